//! The best of a secret, random number of runs: only it is left, and its certificate says what the choice costs.

mod shell;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use shell::{bandroot, json, refused, repository};

/// A search among four settings of tiny runs.
fn spec(folder: &Path, base: &str, rest: &str) -> PathBuf {
    let base = format!(
        "extends = '{}'\n[data]\nexamples = 60\ntest_examples = 20\n{base}\n[training]\nepochs = 2\nbatch_size = 12\n\
         checkpoint_steps = 1\n",
        repository("configs/textures.toml")
    );
    fs::write(folder.join("base.toml"), base).unwrap();
    let sweep = folder.join("search.toml");
    let grid = "[grid]\n'optimizer.learning_rate' = [0.01, 0.02, 0.05, 0.1]";
    fs::write(&sweep, format!("base = 'base.toml'\n{rest}\n{grid}")).unwrap();
    sweep
}

const HELD_OUT: &str = "validation = 0.2";

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn only_the_best_is_left_and_its_choice_has_an_epsilon() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = spec(folder.path(), HELD_OUT, "");
    let out = folder.path().join("out");
    let command = format!(
        "sweep {} --out {} --random-stopping mean=3,shape=1",
        sweep.display(),
        out.display()
    );
    let shown = json(&format!("{command} --json"));
    assert_eq!(names(&out), ["chosen"]);
    let chosen = out.join("chosen");
    // Nothing that counts the others, and nothing measured on examples that no noise hides.
    let files = ["config.toml", "environment.json", "parameters.safetensors", "plan.json"];
    assert_eq!(names(&chosen), [&files[..], &["privacy.json", "summary.json"]].concat());
    let summary = read_json(&chosen.join("summary.json"));
    for key in ["validation_accuracy", "validation_loss", "seconds", "examples_per_second"] {
        assert!(summary[key].is_null(), "{key}: {summary}");
    }
    let certificate = read_json(&chosen.join("privacy.json"));
    assert_eq!(
        (&certificate["trials"], &summary["statement"]),
        (&1.into(), &certificate["statement"])
    );
    assert_eq!(shown["selection"], certificate["selection"]);
    let single = certificate["plan"]["request"]["epsilon"].as_f64().unwrap();
    let epsilon = certificate["selection"]["epsilon"].as_f64().unwrap();
    assert!(epsilon > single && epsilon < 2.0 * single, "{epsilon}");
    let statement = certificate["statement"].as_str().unwrap();
    assert!(
        statement.contains("as the best of a random number of runs, 3 in the mean"),
        "{statement}"
    );
    bandroot(&format!("verify {} --require-private", chosen.display())).assert().success();
    bandroot(&format!("eval {} --split test", chosen.display())).assert().success();
    assert!(certificate["epsilon_all_trials"].is_null(), "nobody counts them");
    assert_eq!(summary["epsilon"], epsilon);
    let environment = read_json(&chosen.join("environment.json"));
    assert!(environment["unix_time"].is_null() && environment["command"].is_null());
    // Neither another search nor a sweep takes it for its own.
    refused(&command.replace("mean=3", "mean=4"), 2, &["another search"]);
    refused(command.split(" --random").next().unwrap(), 2, &["--random-stopping"]);
    // A kill while the rest was removed: the same command removes it, and a folder without draws is not passed over.
    fs::create_dir_all(out.join(".secret/run")).unwrap();
    refused(&command, 1, &["no search has drawn"]);
    fs::remove_dir(out.join(".secret/run")).unwrap();
    bandroot(&command).assert().success();
    assert_eq!(names(&out), ["chosen"]);
    // Undoing the choice is noticed, though what is left is the certificate of a single run without a fault of its own.
    let forged = folder.path().join("forged");
    fs::create_dir(&forged).unwrap();
    for name in names(&chosen) {
        fs::copy(chosen.join(&name), forged.join(&name)).unwrap();
    }
    bandroot(&format!("verify {}", forged.display())).assert().success();
    let (mut single_run, mut summary) = (certificate.clone(), summary);
    single_run.as_object_mut().unwrap().remove("selection");
    single_run["epsilon_all_trials"] = single.into();
    let held_out = &certificate["held_out_examples"];
    let statement = format!(
        "{}; it holds for the examples trained on, not for the {held_out} held out to validate with",
        statement.split("; as the best").next().unwrap()
    );
    single_run["statement"] = statement.clone().into();
    summary["statement"] = statement.into();
    summary["epsilon"] = single.into();
    for (name, value) in [("privacy.json", single_run), ("summary.json", summary)] {
        fs::write(forged.join(name), value.to_string()).unwrap();
    }
    let shown = bandroot(&format!("verify {}", forged.display())).assert().failure();
    let shown = String::from_utf8_lossy(&shown.get_output().stdout).into_owned();
    let wrong: Vec<&str> = shown.lines().filter(|line| line.starts_with("NO")).collect();
    assert!(wrong.len() == 1 && wrong[0].contains("selection"), "{shown}");
    // The same command draws nothing again.
    let parameters = fs::read(chosen.join("parameters.safetensors")).unwrap();
    bandroot(&command).assert().success();
    assert_eq!(fs::read(chosen.join("parameters.safetensors")).unwrap(), parameters);
}

#[test]
fn a_search_that_is_killed_goes_on_with_what_was_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = spec(folder.path(), HELD_OUT, "");
    let out = folder.path().join("out");
    let command = format!(
        "sweep {} --out {} --random-stopping mean=8,shape=1",
        sweep.display(),
        out.display()
    );
    let draws = out.join(".secret/draws.json");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_bandroot"))
        .args(command.split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !draws.exists() {
        sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!out.join("chosen").exists(), "killed as soon as something was drawn");
    let drawn = read_json(&draws);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o77;
        assert_eq!((mode(&out.join(".secret")), mode(&draws)), (0, 0), "it is for nobody else");
    }
    let other = command.replace("mean=8", "mean=9");
    refused(&other, 2, &["drawn for another"]);
    // A grid of as many other settings is another search.
    let text = fs::read_to_string(&sweep).unwrap();
    fs::write(&sweep, text.replace("0.02", "0.03")).unwrap();
    refused(&command, 2, &["other settings"]);
    fs::write(&sweep, text).unwrap();
    assert_eq!(read_json(&draws), drawn);
    // Neither are files of one's own removed with it, nor are its runs imported.
    fs::write(out.join(".secret/thesis.txt"), "mine").unwrap();
    refused(&command, 1, &["thesis.txt", "not of the search"]);
    fs::remove_file(out.join(".secret/thesis.txt")).unwrap();
    let into = folder.path().join("imported");
    let import = format!("results import {} --into {}", out.display(), into.display());
    fs::create_dir(out.join(".secret/run")).unwrap();
    fs::write(out.join(".secret/run/summary.json"), "{}").unwrap();
    refused(&import, 2, &["no finished or failed run"]);
    fs::remove_dir_all(out.join(".secret/run")).unwrap();
    // What was drawn is what is run: cut to one run here, which must be the one that is chosen.
    let mut one = drawn.clone();
    let first = drawn["runs"][0].clone();
    one["runs"] = serde_json::json!([first]);
    fs::write(&draws, one.to_string()).unwrap();
    bandroot(&command).assert().success();
    let config = fs::read_to_string(out.join("chosen/config.toml")).unwrap();
    assert!(config.contains(&format!("seed = {}", one["runs"][0]["seed"])), "{config}");
    assert_eq!(names(&out), ["chosen"]);
}

#[test]
fn what_is_not_accounted_for_is_refused_before_anything_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let check = |base: &str, rest: &str, more: &str, word: &str| {
        let sweep = spec(folder.path(), base, rest);
        let law = "--random-stopping mean=3,shape=1";
        let command = format!("sweep {} --out {} {law} {more}", sweep.display(), out.display());
        refused(&command, 2, &[word]);
    };
    check("", "", "", "data.validation");
    check(HELD_OUT, "seeds = [1, 2]", "", "seeds");
    check(HELD_OUT, "", "--retry-failed", "--retry-failed");
    let seeded = format!("{HELD_OUT}\n[privacy]\nnoise_seed = 5");
    check(&seeded, "", "", "privacy.noise_seed");
    let secret = format!("{HELD_OUT}\n[privacy]\nsampling = 'balls-in-bins'");
    check(&secret, "", "", "privacy.sampling");
    let candidates =
        "[[candidates]]\n'privacy.epsilon' = 1.0\n[[candidates]]\n'privacy.epsilon' = 2.0";
    check(HELD_OUT, candidates, "", "one epsilon");
    check("", "[select]\nseeds = [0]", "", "select");
    check(HELD_OUT, "seeds = [0]", "", "seeds");
    assert!(!out.exists());
    // Files of one's own would be removed at the end.
    fs::create_dir_all(out.join(".secret")).unwrap();
    fs::write(out.join(".secret/thesis.txt"), "mine").unwrap();
    let sweep = spec(folder.path(), HELD_OUT, "");
    let command = format!("sweep {} --out {}", sweep.display(), out.display());
    refused(
        &format!("{command} --random-stopping mean=3,shape=1"),
        1,
        &[".secret", "no search has drawn"],
    );
    assert_eq!(fs::read_to_string(out.join(".secret/thesis.txt")).unwrap(), "mine");
}

#[test]
fn a_folder_with_other_runs_is_refused_and_two_processes_make_one_choice() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = spec(folder.path(), HELD_OUT, "");
    let out = folder.path().join("out");
    let counted = format!("sweep {} --out {}", sweep.display(), out.display());
    bandroot(&counted).assert().success();
    let secret = |out: &Path| {
        let law = "--random-stopping mean=4,shape=1";
        format!("sweep {} --out {} {law}", sweep.display(), out.display())
    };
    refused(&secret(&out), 2, &["other runs"]);
    let both = folder.path().join("both");
    let start = || {
        std::process::Command::new(env!("CARGO_BIN_EXE_bandroot"))
            .args(secret(&both).split(' '))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let ended = [start(), start()].map(|child| child.wait_with_output().unwrap());
    for output in &ended {
        let message = String::from_utf8_lossy(&output.stderr);
        let refused = message.contains("another process is at this search");
        assert!(output.status.success() != refused, "{message}");
    }
    assert!(ended.iter().any(|output| output.status.success()));
    assert_eq!(names(&both), ["chosen"]);
    bandroot(&format!("verify {}", both.join("chosen").display())).assert().success();
}
