//! A verifier that cannot be talked into yes: every field of a certificate doctored, every file beside it exchanged.

mod shell;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use shell::{bandroot, json, repository};

/// A private run of 8 steps on a few textures.
fn trained(out: &Path, more: &str) {
    let arguments = format!(
        "train {} --out {} --set data.examples=48 --set data.test_examples=20 --set training.epochs=2 \
         --set training.batch_size=12 {more}",
        repository("configs/textures.toml"),
        out.display()
    );
    bandroot(&arguments).assert().success();
}

/// Why `verify` says no, or nothing if it says yes.
fn refusals(run: &Path) -> Vec<String> {
    let output = bandroot(&format!("verify {} --json", run.display())).output().unwrap();
    match serde_json::from_slice::<Value>(&output.stdout) {
        Ok(report) => {
            assert_eq!(report["holds"].as_bool(), Some(output.status.success()));
            let findings = report["findings"].as_array().unwrap().iter();
            let wrong = findings.filter(|finding| finding[0] == false);
            wrong.map(|finding| finding[1].as_str().unwrap().to_owned()).collect()
        }
        Err(_) => {
            assert!(!output.status.success());
            vec![String::from_utf8(output.stderr).unwrap()]
        }
    }
}

fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| leaves(value, &format!("{path}/{key}"), found));
        }
        Value::Array(items) if !items.is_empty() => {
            let each = items.iter().enumerate();
            each.for_each(|(i, value)| leaves(value, &format!("{path}/{i}"), found));
        }
        _ => found.push(path.to_owned()),
    }
}

fn doctored(value: &Value) -> Vec<Value> {
    match value {
        Value::Number(number) if number.is_f64() => {
            vec![json!(number.as_f64().unwrap() * 1.001), json!(1e-8), json!(-1.0)]
        }
        Value::Number(number) => {
            let x = number.as_u64().unwrap();
            vec![json!(x + 1), json!(x.saturating_sub(1).max(x / 2)), json!(1_u64 << 40)]
        }
        Value::Bool(holds) => vec![json!(!holds)],
        Value::String(text) => match text.as_str() {
            "covered" => vec![json!("not_private")],
            "not_private" => vec![json!("covered")],
            "operating_system" => vec![json!("fixed_seed")],
            text if text.len() == 64 => vec![json!(text.replace(['1', '2'], "3"))],
            text => vec![json!(format!("{text}."))],
        },
        Value::Null => vec![json!(1)],
        Value::Array(_) => vec![json!([9999])],
        Value::Object(_) => Vec::new(),
    }
}

#[test]
fn every_field_of_a_certificate_is_checked_against_the_run_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    trained(&run, "");
    let output = bandroot(&format!("verify {} --data", run.display())).assert().success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    let last: Vec<&str> = text.trim_end().lines().rev().take(3).collect();
    assert!(last.iter().all(|line| line.starts_with("not proven")), "{text}");
    assert!(text.contains("\nyes\n") && !text.contains("NO "), "{text}");
    let path = run.join("privacy.json");
    let honest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut paths = Vec::new();
    leaves(&honest, "", &mut paths);
    for leaf in paths {
        // Compared only if the data are read, below.
        if leaf == "/artifacts/training_data_sha256" {
            continue;
        }
        let value = honest.pointer(&leaf).unwrap();
        for other in doctored(value).into_iter().filter(|other| other != value) {
            let mut bad = honest.clone();
            *bad.pointer_mut(&leaf).unwrap() = other.clone();
            fs::write(&path, serde_json::to_vec(&bad).unwrap()).unwrap();
            let why = refusals(&run);
            assert!(!why.is_empty(), "{leaf} = {other} passes");
            let field = leaf.split('/').rfind(|part| part.parse::<usize>().is_err()).unwrap();
            let section = leaf.split('/').nth(1).unwrap();
            // What cannot even be read is named by its line and column.
            let names = [field, section, "is not a certificate"];
            let named = why.iter().any(|why| names.iter().any(|name| why.contains(name)));
            assert!(named, "{leaf} = {other}: {why:?}");
        }
    }
    // The data are read only if they are asked for.
    let mut bad = honest.clone();
    bad["artifacts"]["training_data_sha256"] = json!("0".repeat(64));
    fs::write(&path, serde_json::to_vec(&bad).unwrap()).unwrap();
    bandroot(&format!("verify {} --data", run.display())).assert().code(1);
}

#[test]
fn a_certificate_beside_other_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    trained(&path("private"), "");
    trained(&path("other"), "--set training.seed=7");
    trained(&path("open"), "--set privacy=none");
    assert_eq!(refusals(&path("private")), Vec::<String>::new());
    // Copied into the folder of a run without privacy, with whatever else helps.
    for files in [&["privacy.json"][..], &["privacy.json", "plan.json", "summary.json"]] {
        for file in files {
            fs::copy(path("private").join(file), path("open").join(file)).unwrap();
        }
        let why = refusals(&path("open")).join("\n");
        assert!(why.contains("config.toml") && why.contains("none"), "{why}");
        assert!(why.contains("parameters_sha256"), "{why}");
    }
    for (file, named) in [
        ("config.toml", "config_sha256"),
        ("parameters.safetensors", "parameters_sha256"),
        ("summary.json", ""),
        ("plan.json", ""),
    ] {
        let honest = fs::read(path("private").join(file)).unwrap();
        fs::copy(path("other").join(file), path("private").join(file)).unwrap();
        let why = refusals(&path("private"));
        // Two runs of one plan have the same plan, and the same summary but for the accuracy.
        assert_eq!(why.is_empty(), named.is_empty(), "{file}: {why:?}");
        assert!(why.iter().all(|why| why.contains(named)), "{file}: {why:?}");
        fs::write(path("private").join(file), honest).unwrap();
    }
    for (file, from, to) in [
        ("summary.json", "\"epsilon\": 8.0", "\"epsilon\": 1.0"),
        ("summary.json", "(8, 1e-5)", "(1, 1e-5)"),
        ("plan.json", "\"epsilon\": 8.0", "\"epsilon\": 1.0"),
        ("config.toml", "epsilon = 8.0", "epsilon = 1.0"),
        ("config.toml", "momentum = 0.9", "momentum = 0.8"),
    ] {
        let honest = fs::read_to_string(path("private").join(file)).unwrap();
        assert!(honest.contains(from), "{from} is not in {honest}");
        fs::write(path("private").join(file), honest.replace(from, to)).unwrap();
        assert!(!refusals(&path("private")).is_empty(), "{file}: {to}");
        fs::write(path("private").join(file), honest).unwrap();
    }
    fs::write(path("private").join("checkpoint-00000004.bin.77.partial"), "key").unwrap();
    let why = refusals(&path("private")).join("\n");
    assert!(why.contains("checkpoint-00000004.bin.77.partial"), "{why}");
}

/// The attack with two files deleted and one field removed, and its variants: what binds a certificate to a model must
/// be there.
#[test]
fn a_certificate_without_its_bindings_is_of_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    trained(&path("private"), "");
    trained(&path("open"), "--set privacy=none");
    let honest: Value =
        serde_json::from_slice(&fs::read(path("private").join("privacy.json")).unwrap()).unwrap();
    let require = |run: &Path| {
        let command = format!("verify {} --require-private", run.display());
        bandroot(&command).output().unwrap().status.code().unwrap()
    };
    assert_eq!(require(&path("private")), 0);
    for file in ["config.toml", "summary.json"] {
        fs::remove_file(path("open").join(file)).unwrap();
    }
    for missing in ["parameters_sha256", "config_sha256", "training_data_sha256", ""] {
        let mut bad = honest.clone();
        match missing {
            "" => drop(bad.as_object_mut().unwrap().remove("artifacts")),
            name => drop(bad["artifacts"].as_object_mut().unwrap().remove(name)),
        }
        fs::write(path("open").join("privacy.json"), serde_json::to_vec(&bad).unwrap()).unwrap();
        let why = refusals(&path("open")).join("\n");
        assert!(why.contains(missing) && why.contains("sha256"), "{missing}: {why}");
    }
    // Alone with a model under another name: yes to the numbers, no to a private run.
    fs::create_dir(path("alone")).unwrap();
    fs::copy(path("private").join("privacy.json"), path("alone").join("privacy.json")).unwrap();
    fs::copy(path("open").join("parameters.safetensors"), path("alone").join("model.bin")).unwrap();
    assert_eq!((refusals(&path("alone")).len(), require(&path("alone"))), (0, 1));
    // A key under another name, in a folder below.
    fs::create_dir(path("private").join("old")).unwrap();
    fs::write(path("private").join("old/state.bak"), "bandroot noise 1 and a key").unwrap();
    assert!(refusals(&path("private")).join("\n").contains("state.bak"));
}

#[test]
fn all_recorded_certificates_are_still_verified() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
    let mut verified = 0;
    let groups = ["accuracy", "searches", "successors", "runs"];
    let mut folders = groups.map(|group| results.join(group)).to_vec();
    while let Some(folder) = folders.pop() {
        if folder.join("privacy.json").exists() {
            assert_eq!(refusals(&folder), Vec::<String>::new(), "{}", folder.display());
            verified += 1;
        }
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        folders.extend(entries.filter(|path| path.is_dir()));
    }
    assert!(verified > 130, "{verified}");
}

#[test]
fn a_recorded_certificate_of_the_first_format_says_what_can_be_checked() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
    let run =
        results.join("accuracy/repeated-epsilon-4/repeated-epsilon4-bsr-epochs1_seed-0_d8810e8c");
    let report = json(&format!("verify {} --json", run.display()));
    assert_eq!((&report["holds"], &report["private"]), (&true.into(), &false.into()), "{report}");
    let not_checked = report["not_checked"].to_string();
    assert!(not_checked.contains("format 1"), "{not_checked}");
    let aof =
        results.join("accuracy/repeated-epsilon-4/repeated-epsilon4-aof-epochs1_seed-0_51e1c51a");
    let output = bandroot(&format!("verify {}", aof.display())).assert().code(1);
    let message = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(message.contains("without the rows of its strategy"), "{message}");
}
