//! No module cycle in any crate: of two modules that lie side by side, at most one knows the other, however many
//! modules are in between.
//!
//! The graph is derived from the paths that begin with `crate` or `super`; a name that a module only passes on
//! (`pub use`) leads to where it comes from. A module and those inside it are one room and may know each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The names from the root of a crate to one of its modules.
type Module = Vec<String>;

/// The crates as folders with their root files.
const ROOTS: [(&str, &str); 4] = [
    ("crates/mf-core/src", "lib.rs"),
    ("crates/dp-train/src", "lib.rs"),
    ("crates/cifar-convnet/src", "lib.rs"),
    ("crates/cifar-convnet/src/bin/bandroot", "main.rs"),
];

#[test]
fn no_crate_has_a_module_cycle() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (folder, root) in ROOTS {
        let modules = modules(&repository.join(folder), root);
        assert!(modules.len() > 10, "{folder} has modules");
        let graph = graph(&modules);
        assert!(!graph.is_empty(), "{folder}: its modules use one another");
        if let Some(cycle) = cycle(&graph) {
            panic!("{folder}: modules that know each other in a circle: {}", cycle.join(" -> "));
        }
    }
}

#[test]
fn a_cycle_is_found_at_any_depth_and_in_any_way_of_writing() {
    let modules = |texts: &[(&str, &str)]| -> BTreeMap<Module, String> {
        let names =
            |path: &str| path.split("::").filter(|n| !n.is_empty()).map(Into::into).collect();
        texts.iter().map(|(path, text)| (names(path), (*text).to_owned())).collect()
    };
    let found = |texts: &[(&str, &str)]| cycle(&graph(&modules(texts))).is_some();
    let root = ("", "mod a;");
    assert!(found(&[root, ("a", "use crate::b::Thing;"), ("b", "fn f() -> crate::a::Thing {}")]));
    assert!(found(&[
        root,
        ("a", "use super::b;"),
        ("b", "use super::{c::{X, Y}};"),
        ("c", "use crate::{a};")
    ]));
    assert!(found(&[
        root,
        ("r::a", "use super::b::X;"),
        ("r::b", "use crate::r::a::Y;"),
        ("r", "")
    ]));
    // A room and what is inside it are one; tests and comments do not count.
    assert!(!found(&[root, ("a", "use crate::a::inner::X;"), ("a::inner", "use super::Y;")]));
    assert!(!found(&[
        root,
        ("a", "use crate::b;"),
        ("b", "// crate::a\n#[cfg(test)]\nmod tests { use crate::a; }")
    ]));
    assert!(!found(&[root, ("a", "use crate::b::X;"), ("b", "use crate::X;")]));
    // A name that the root passes on is known where it comes from.
    let passes = ("", "mod a;\npub use a::X;");
    assert!(found(&[passes, ("a", "use crate::b::Y;"), ("b", "use crate::X;")]));
    let group = ("r", "pub(crate) use self::a::{X, inner::Z};");
    assert!(found(&[
        root,
        group,
        ("r::a", "use super::b::Y;"),
        ("r::a::inner", ""),
        ("r::b", "use super::Z;")
    ]));
}

/// The source of every module below `folder`, without tests.
fn modules(folder: &Path, root: &str) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    let mut open: Vec<(PathBuf, Module)> = vec![(folder.to_owned(), vec![])];
    while let Some((path, module)) = open.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let inner = || module.iter().cloned().chain([name.clone()]).collect::<Module>();
            if path.is_dir() {
                if !["bin", "tests"].contains(&name.as_str()) {
                    open.push((path, inner()));
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let is_root = module.is_empty() && path.ends_with(root);
                let module = if is_root || name == "mod" { module.clone() } else { inner() };
                if !["tests", "fuzz", "golden"].contains(&name.as_str()) {
                    found.insert(module, fs::read_to_string(&path).unwrap());
                }
            }
        }
    }
    found
}

/// Which module knows which, between modules of one parent.
fn graph(modules: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut graph = BTreeMap::<Module, BTreeSet<Module>>::new();
    let origins = origins(modules);
    for (module, text) in modules {
        for path in paths(text) {
            let Some(mut absolute) = resolve(module, &path) else { continue };
            for _ in 0..8 {
                let Some(origin) = origins.iter().find(|(name, _)| absolute.starts_with(name))
                else {
                    break;
                };
                absolute = origin.1.iter().chain(&absolute[origin.0.len()..]).cloned().collect();
            }
            while !modules.contains_key(&absolute) && absolute.pop().is_some() {}
            let shared = module.iter().zip(&absolute).take_while(|(a, b)| a == b).count();
            if shared < module.len() && shared < absolute.len() {
                let (from, to) = (module[..=shared].to_vec(), absolute[..=shared].to_vec());
                graph.entry(from).or_default().insert(to);
            }
        }
    }
    graph
}

/// Names that a module passes on, as paths from the root, with the paths of what they stand for.
fn origins(modules: &BTreeMap<Module, String>) -> Vec<(Module, Module)> {
    let mut found = Vec::new();
    for (module, text) in modules {
        let passed_on = text.split(';').filter_map(|statement| {
            let at = statement.find("pub use ").or_else(|| statement.find("pub(crate) use "))?;
            let at = at + statement[at..].find("use ")? + 4;
            Some(&statement[at..])
        });
        for statement in passed_on {
            let mut paths = Vec::new();
            read_path(&tokens(statement), 0, &[], &mut paths);
            for path in paths {
                let path: Module = path.into_iter().filter(|name| name != "self").collect();
                let inner: Module = module.iter().chain(&path[..path.len() - 1]).cloned().collect();
                if let (Some(name), true) = (path.last(), modules.contains_key(&inner)) {
                    let passed = module.iter().cloned().chain([name.clone()]).collect();
                    found.push((passed, inner.iter().cloned().chain([name.clone()]).collect()));
                }
            }
        }
    }
    // A name that stands for itself would lead round in circles.
    found.retain(|(passed, origin)| passed != origin);
    found
}

/// A path from the root of the crate; none if it is not one of this crate's.
fn resolve(module: &Module, path: &[String]) -> Option<Module> {
    let mut absolute = match path.first()?.as_str() {
        "crate" => vec![],
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        _ => return None,
    };
    for name in &path[1..] {
        match name.as_str() {
            "super" => drop(absolute.pop()),
            _ => absolute.push(name.clone()),
        }
    }
    Some(absolute)
}

/// All paths that begin with `crate` or `super`, with groups written out.
fn paths(text: &str) -> Vec<Vec<String>> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let tokens = tokens(&code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let begins = ["crate", "super"].contains(&tokens[at].as_str());
        if begins && tokens.get(at + 1).is_some_and(|token| token == "::") {
            at = read_path(&tokens, at, &[], &mut found);
        } else {
            at += 1;
        }
    }
    found
}

/// Words, `::`, braces, commas; everything else is a token of one character.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let len = match first {
            _ if rest.starts_with("::") => 2,
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        tokens.push(rest[..len].to_owned());
        rest = rest[len..].trim_start();
    }
    tokens
}

/// Reads one path behind `prefix`, or all paths of a group; gives where it ends.
fn read_path(
    tokens: &[String],
    start: usize,
    prefix: &[String],
    found: &mut Vec<Vec<String>>,
) -> usize {
    let mut path = prefix.to_vec();
    let mut at = start;
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = read_path(tokens, at, &path, found);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                return at + 1;
            }
            Some("self") if !path.is_empty() => at += 1,
            Some(_) => {
                path.push(tokens[at].clone());
                at += 1;
            }
            None => break,
        }
        if tokens.get(at).is_some_and(|token| token == "::") {
            at += 1;
        } else {
            break;
        }
    }
    // A new name for it is no part of the path.
    if tokens.get(at).is_some_and(|token| token == "as") {
        at += 2;
    }
    found.push(path);
    at
}

/// A walk that comes back to where it began, if there is one.
fn cycle(graph: &BTreeMap<Module, BTreeSet<Module>>) -> Option<Vec<String>> {
    graph.keys().find_map(|start| {
        let mut before = BTreeMap::<&Module, &Module>::new();
        let mut open = vec![start];
        while let Some(module) = open.pop() {
            for next in graph.get(module).into_iter().flatten() {
                if next == start {
                    let mut walk = vec![start.join("::")];
                    let mut at = module;
                    while at != start {
                        walk.push(at.join("::"));
                        at = before[at];
                    }
                    walk.push(start.join("::"));
                    walk.reverse();
                    return Some(walk);
                }
                if !before.contains_key(next) {
                    before.insert(next, module);
                    open.push(next);
                }
            }
        }
        None
    })
}
