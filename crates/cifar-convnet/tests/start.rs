//! Runs that start from others: the same features under a new head, and nothing left unsaid of the data behind them.

mod shell;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use safetensors::SafeTensors;
use serde_json::Value;
use shell::{bandroot, files, refused, repository, start};

/// Arguments of a run of 8 steps on a few textures.
fn textures(out: &Path, more: &str) -> String {
    format!(
        "train {} --out {} --set data.examples=48 --set data.test_examples=20 --set training.epochs=2 \
         --set training.batch_size=12 --set training.checkpoint_steps=1 {more}",
        repository("configs/textures.toml"),
        out.display()
    )
}

/// A folder with tables of two numbers and a label, of which `shift` says where the classes lie.
struct Tables(tempfile::TempDir);

impl Tables {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a table of 60 examples and gives the config of a run on it.
    fn config(&self, data: &str, shift: usize, classes: usize, hidden: usize) -> String {
        let row = |i: usize| format!("{},{},{}\n", (i * 7 + shift) % 11, i % 5, i % classes);
        let table: String = (0..60).map(row).collect();
        fs::create_dir_all(self.path(data)).unwrap();
        fs::write(self.path(data).join("train.csv"), format!("x,y,label\n{table}")).unwrap();
        let config = format!(
            "[data]\nname = 'csv'\nfolder = '{}'\nclasses = {classes}\ntest_share = 0.2\n\
             [model]\nname = 'own'\nlayers = [{{ layer = 'linear', in_features = 2, out_features = {hidden} }}, \
             {{ layer = 'tanh' }}, {{ layer = 'linear', in_features = {hidden}, out_features = {classes} }}]\n\
             [privacy]\nepsilon = 4.0\ndelta = 1e-3\nclip_norm = 1.0\n[noise]\nmethod = 'bsr'\n\
             [optimizer]\nlearning_rate = 0.1\n[training]\nepochs = 2\nbatch_size = 12\n",
            self.path(data).display()
        );
        let path = self.path(&format!("{data}.toml"));
        fs::write(&path, config).unwrap();
        path.display().to_string()
    }

    /// Trains, and gives the folder of the run.
    fn trained(&self, config: &str, run: &str, more: &str) -> PathBuf {
        let run = self.path(run);
        bandroot(&format!("train {config} --out {} {more}", run.display())).assert().success();
        run
    }

    fn from(&self, source: &Path) -> String {
        format!("--set model.start_from={}", source.display())
    }

    /// A run that starts from another is refused with these words, and leaves nothing behind.
    fn refused(&self, config: &str, source: &Path, words: &[&str]) {
        let out = self.path("refused");
        let words: Vec<&str> = words.iter().copied().chain(["model.start_from"]).collect();
        let command = format!("train {config} --out {} {}", out.display(), self.from(source));
        refused(&command, 2, &words);
        assert!(!out.exists());
    }
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The bytes of all tensors by name.
fn tensors(run: &Path) -> Vec<(String, Vec<u8>)> {
    let bytes = fs::read(run.join("parameters.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut found: Vec<_> =
        file.iter().map(|(name, tensor)| (name.to_owned(), tensor.data().to_vec())).collect();
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in files(from).into_iter().filter(|path| path.is_file()) {
        fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

#[test]
fn a_run_takes_all_layers_but_the_head_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    bandroot(&textures(&path("source"), "--set privacy=none")).assert().success();
    // Steps that move nothing: what comes out is what went in.
    let still = "--set optimizer.learning_rate=1e-30 --set training.seed=3";
    bandroot(&textures(&path("plain"), still)).assert().success();
    let from = format!("{still} --set model.start_from={}", path("source").display());
    bandroot(&textures(&path("started"), &from)).assert().success();
    let [source, plain, started] = ["source", "plain", "started"].map(|name| tensors(&path(name)));
    assert_eq!(started.len(), 14);
    for (((name, found), (_, source)), (_, plain)) in started.iter().zip(&source).zip(&plain) {
        let head = name.starts_with("16.");
        assert!(found == if head { plain } else { source }, "{name}");
        assert!(found != if head { source } else { plain }, "{name}");
    }
    assert!(started.iter().any(|(name, _)| name == "16.weight"));
    let certificate = read_json(&path("started").join("privacy.json"));
    let statement = certificate["statement"].as_str().unwrap();
    let said = "does not cover the data that the starting parameters were trained on: textures \
                (generated, nobody's data)";
    assert!(statement.ends_with(said), "{statement}");
    assert_eq!(read_json(&path("started").join("summary.json"))["statement"], statement);
    bandroot(&format!("verify {} --data --require-private", path("started").display()))
        .assert()
        .success();
    // A certificate without any has no word of it.
    assert!(read_json(&path("plain").join("privacy.json")).get("provenance").is_none());
    assert!(!path("plain").join("provenance.json").exists());
    let other = textures(&path("other"), "--set model.name=convnet-tanh");
    let other = format!("{other} --set model.start_from={}", path("source").display());
    refused(&other, 2, &["model.start_from", "layer 1 is Tanh in this model and Relu in that one"]);
    assert!(!path("other").exists());
}

#[test]
fn the_data_of_all_runs_before_are_told_with_what_covers_them() {
    let tables = Tables::new();
    let (open, middle) = (tables.config("open", 0, 2, 4), tables.config("middle", 1, 3, 4));
    let last = tables.config("last", 2, 2, 4);
    let first = tables.trained(&open, "first", "--set privacy=none");
    let second = tables.trained(&middle, "second", &tables.from(&first));
    let third = tables.trained(&last, "third", &tables.from(&second));
    let certificate = read_json(&third.join("privacy.json"));
    let provenance = certificate["provenance"].as_array().unwrap();
    assert_eq!(provenance.len(), 2);
    assert_eq!(provenance[0]["data"], "csv data in middle/train.csv");
    let protection = &provenance[0]["protection"];
    let numbers = [&protection["kind"], &protection["epsilon"], &protection["delta"]];
    assert_eq!(numbers, [&Value::from("certified"), &4.0.into(), &1e-3.into()]);
    assert_eq!(provenance[1]["data"], "csv data in open/train.csv");
    assert_eq!(provenance[1]["protection"]["kind"], "none");
    assert_eq!(read_json(&second.join("provenance.json")).as_array().unwrap().len(), 1);
    let statement = certificate["statement"].as_str().unwrap();
    let hash = &protection["certificate_sha256"].as_str().unwrap()[..16];
    let said = format!(
        "csv data in middle/train.csv ((4, 1e-3)-differentially private by that run's own certificate, \
         SHA-256 {hash}), before that csv data in open/train.csv (not private)"
    );
    assert!(statement.contains(&said), "{statement}");
    assert_eq!(read_json(&third.join("summary.json"))["statement"], statement);
    let verify = format!("verify {} --data --require-private", third.display());
    bandroot(&verify).assert().success();
    // Results are kept without the path to the run before.
    let results = tables.path("results");
    let import = format!("results import {} --into {}", third.display(), results.display());
    bandroot(&import).assert().success();
    let kept = fs::read_to_string(results.join("third/config.toml")).unwrap();
    assert!(kept.contains("start_from = \"second\""), "{kept}");
    bandroot(&format!("verify {}", results.join("third").display())).assert().success();
    // Nothing of it can be changed or left out.
    let (list, mut doctored) = (third.join("provenance.json"), certificate.clone());
    let whole = fs::read(&list).unwrap();
    for text in ["[]", "nonsense"] {
        fs::write(&list, text).unwrap();
        bandroot(&verify).assert().code(1);
    }
    fs::remove_file(&list).unwrap();
    bandroot(&verify).assert().code(1);
    fs::write(&list, &whole).unwrap();
    for (at, other) in [
        ("/provenance/0/parameters_sha256", Value::from("0".repeat(64))),
        ("/provenance/0/training_data_sha256", Value::from("0".repeat(64))),
        ("/provenance/0/protection/epsilon", 1.0.into()),
        ("/provenance/1/data", "textures".into()),
    ] {
        doctored.clone_from(&certificate);
        *doctored.pointer_mut(at).unwrap() = other;
        fs::write(third.join("privacy.json"), doctored.to_string()).unwrap();
        bandroot(&verify).assert().code(1);
    }
    fs::write(third.join("privacy.json"), certificate.to_string()).unwrap();
    bandroot(&verify).assert().success();
    // The run before may be gone; one in its place may not be another.
    fs::rename(&second, tables.path("elsewhere")).unwrap();
    let output = bandroot(&verify).assert().success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    assert!(text.contains("not checked: the run that it started from"), "{text}");
    fs::rename(&first, &second).unwrap();
    bandroot(&verify).assert().code(1);
}

#[test]
fn the_same_data_are_not_spent_twice() {
    let tables = Tables::new();
    let (faces, others) = (tables.config("faces", 0, 2, 4), tables.config("others", 1, 2, 4));
    let open = tables.trained(&faces, "open", "--set privacy=none");
    tables.refused(&faces, &open, &["trained on csv data in faces/train.csv", "without privacy"]);
    let private = tables.trained(&faces, "private", "");
    tables.refused(&faces, &private, &["(4, 1e-3)-differential privacy", "adds up"]);
    let fixed = tables.trained(&faces, "fixed", "--set privacy.noise_seed=1");
    tables.refused(&faces, &fixed, &["without privacy"]);
    // Under another name it is still the same by its hash.
    fs::rename(tables.path("faces"), tables.path("renamed")).unwrap();
    let text = fs::read_to_string(&faces).unwrap();
    let renamed = tables.path("renamed.toml");
    fs::write(&renamed, text.replace("/faces'", "/renamed'")).unwrap();
    let renamed = renamed.display().to_string();
    for source in [&open, &private] {
        tables.refused(&renamed, source, &["trained on csv data in faces/train.csv, as this run"]);
    }
    fs::rename(tables.path("renamed"), tables.path("faces")).unwrap();
    // Nor by way of a run on other data.
    let between = tables.trained(&others, "between", &tables.from(&open));
    let words = ["a run that it started from was trained on csv data in faces/train.csv"];
    tables.refused(&faces, &between, &words);
    fs::rename(tables.path("faces"), tables.path("renamed")).unwrap();
    tables.refused(&renamed, &between, &words);
    fs::rename(tables.path("renamed"), tables.path("faces")).unwrap();
    // Without a guarantee there is nothing to break, and it is told all the same.
    let more = format!("--set privacy=none {}", tables.from(&private));
    let again = tables.trained(&faces, "again", &more);
    let statement = read_json(&again.join("summary.json"))["statement"].clone();
    let statement = statement.as_str().unwrap();
    assert!(statement.contains("were trained on csv data in faces/train.csv ((4, 1e-3)-"));
    let third = tables.trained(&others, "third", &tables.from(&again));
    let certificate = read_json(&third.join("privacy.json"));
    assert_eq!(certificate["provenance"].as_array().unwrap().len(), 2);
}

#[test]
fn what_is_not_known_is_refused() {
    let tables = Tables::new();
    let (open, mine) = (tables.config("open", 0, 2, 4), tables.config("mine", 1, 2, 4));
    let source = tables.trained(&open, "source", "");
    tables.refused(&mine, &tables.path("nowhere"), &["not the folder of a finished run"]);
    let wider = tables.config("wider", 2, 2, 5);
    tables.refused(&wider, &source, &["layer 0 is Linear", "out_features: 5", "out_features: 4"]);
    let damage = |name: &str, change: &dyn Fn(&Path)| {
        let damaged = tables.path(name);
        copy(&source, &damaged);
        change(&damaged);
        damaged
    };
    let unfinished = damage("unfinished", &|run| {
        fs::rename(run.join("summary.json"), run.join("summary.json.pending")).unwrap();
    });
    tables.refused(&mine, &unfinished, &["not the folder of a finished run"]);
    let unsalted = damage("unsalted", &|run| fs::remove_file(run.join("data-salt")).unwrap());
    tables.refused(&mine, &unsalted, &["data-salt", "the same data"]);
    let uncertified = damage("uncertified", &|run| {
        fs::remove_file(run.join("privacy.json")).unwrap();
    });
    tables.refused(&mine, &uncertified, &["privacy.json"]);
    let boasting = damage("boasting", &|run| {
        let text = fs::read_to_string(run.join("privacy.json")).unwrap();
        fs::write(run.join("privacy.json"), text.replace("\"epsilon\": 4.0", "\"epsilon\": 1.0"))
            .unwrap();
    });
    tables.refused(&mine, &boasting, &["certificate does not hold", "bandroot verify"]);
    let exchanged = damage("exchanged", &|run| {
        let other = tables.trained(&open, "other", "--set training.seed=1");
        let file = "parameters.safetensors";
        fs::copy(other.join(file), run.join(file)).unwrap();
    });
    tables.refused(&mine, &exchanged, &["certificate does not hold"]);
    // A run from before such hashes were written down, and one whose history was removed.
    let old = tables.trained(&open, "old", "--set privacy=none");
    let mut summary = read_json(&old.join("summary.json"));
    summary.as_object_mut().unwrap().remove("training_data_sha256").unwrap();
    fs::write(old.join("summary.json"), summary.to_string()).unwrap();
    tables.refused(&mine, &old, &["no hash of its training examples"]);
    let more = format!("--set privacy=none {}", tables.from(&source));
    let next = tables.trained(&wider.replace("wider", "open"), "next", &more);
    fs::remove_file(next.join("provenance.json")).unwrap();
    tables.refused(&mine, &next, &["provenance.json", "not known"]);
}

#[test]
fn a_run_goes_on_without_the_one_that_it_started_from_but_not_with_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    bandroot(&textures(&path("source"), "--set privacy=none")).assert().success();
    bandroot(&textures(&path("other"), "--set privacy=none --set training.seed=9"))
        .assert()
        .success();
    let from =
        format!("--set privacy.noise_seed=5 --set model.start_from={}", path("source").display());
    bandroot(&textures(&path("whole"), &from)).assert().success();
    let mut child = start(&textures(&path("run"), &from));
    let states = |run: &Path| {
        let mut found = files(run);
        found.retain(|path| path.extension().is_some_and(|end| end == "bin"));
        found.len()
    };
    while states(&path("run")) < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be stopped");
        sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let again = |name: &str, change: &dyn Fn(&Path)| {
        copy(&path("run"), &path(name));
        change(&path(name));
        format!("train --resume {}", path(name).display())
    };
    let edit = |run: &Path, from: &str, to: &str| {
        let text = fs::read_to_string(run.join("config.toml")).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(run.join("config.toml"), text.replace(from, to)).unwrap();
    };
    let line = format!("start_from = \"{}\"\n", path("source").display());
    let model = |name: &str| fs::read(path(name).join("parameters.safetensors")).unwrap();
    // Another run in its place, or none at all.
    let words = ["model.start_from.parameters was", "as it was then"];
    let other = again("with-another", &|run| {
        edit(run, "/source\"", "/other\"");
    });
    refused(&other, 3, &words);
    refused(&again("with-none", &|run| edit(run, &line, "")), 3, &words);
    let retold = again("retold", &|run| {
        let list = fs::read_to_string(run.join("provenance.json")).unwrap();
        let list = list.replace("\"textures\"", "\"nothing\"");
        fs::write(run.join("provenance.json"), list).unwrap();
    });
    refused(&retold, 3, &["model.start_from.provenance was"]);
    let silent = again("silent", &|run| fs::remove_file(run.join("provenance.json")).unwrap());
    refused(&silent, 1, &["provenance.json is gone"]);
    // The same run elsewhere, or gone.
    copy(&path("source"), &path("copy"));
    let moved = again("moved", &|run| edit(run, "/source\"", "/copy\""));
    bandroot(&moved).assert().success();
    fs::remove_dir_all(path("source")).unwrap();
    bandroot(&again("alone", &|_| {})).assert().success();
    for name in ["moved", "alone"] {
        assert!(model(name) == model("whole"), "{name}");
        bandroot(&format!("verify {}", path(name).display())).assert().success();
    }
}
