//! Attacks on a run that is stopped and continued: other gradients under the same noise, and keys that are left
//! behind.

mod shell;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use shell::{assert_no_secret, bandroot, files, noise_key, refused, repository, start};

/// Arguments of a run of 8 steps on a few textures, whose noise does not depend on momentum and decay.
fn tiny(out: &Path, more: &str) -> String {
    format!(
        "train {} --out {} --set data.examples=48 --set data.test_examples=20 --set training.epochs=2 \
         --set training.batch_size=12 --set training.checkpoint_steps=1 --set noise.method=identity {more}",
        repository("configs/textures.toml"),
        out.display()
    )
}

fn with_end(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = files(folder);
    found.retain(|path| path.to_str().unwrap().ends_with(end));
    found
}

/// Starts a run and kills it as soon as it has two checkpoints.
fn stopped(arguments: &str, run: &Path) {
    let mut child = start(arguments);
    while with_end(run, ".bin").len() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be stopped");
        sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in files(from) {
        fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

/// Sets a key in the config of a run.
fn edit(run: &Path, key: &str, value: &str) {
    let path = run.join("config.toml");
    let mut table: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    let (sections, last) = key.rsplit_once('.').unwrap();
    let mut inner = &mut table;
    for section in sections.split('.') {
        let entry = inner.entry(section).or_insert_with(|| toml::Table::new().into());
        inner = entry.as_table_mut().unwrap();
    }
    let value = format!("v = {value}").parse::<toml::Table>().unwrap()["v"].clone();
    assert_ne!(inner.insert(last.to_owned(), value.clone()), Some(value), "{key} is no edit");
    fs::write(path, toml::to_string_pretty(&table).unwrap()).unwrap();
}

#[test]
fn a_checkpoint_is_continued_with_what_it_began_with_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, run) = (folder.path().join("whole"), folder.path().join("run"));
    let fixed = "--set privacy.noise_seed=5 --set training.average={kind='ema',decay=0.9}";
    stopped(&tiny(&run, fixed), &run);
    let config = fs::read_to_string(run.join("config.toml")).unwrap();
    let before = with_end(&run, ".bin");
    for (key, value) in [
        ("data.augmentation.crop_padding", "2"),
        ("data.augmentation.flip", "true"),
        ("data.augmentation.multiplicity", "2"),
        ("model.name", "'convnet-tanh'"),
        ("engine.convolution", "'direct'"),
        ("engine.microbatch", "3"),
        ("optimizer.momentum", "0.5"),
        ("optimizer.decay_factor", "0.99"),
        ("optimizer.learning_rate", "0.123"),
        ("training.record", "'public'"),
        ("training.seed", "9"),
        ("training.epochs", "3"),
        ("training.average.decay", "0.8"),
        ("evaluation.every", "2"),
        ("privacy.noise_seed", "6"),
        ("privacy.clip_norm", "1.5"),
        ("privacy.epsilon", "9.0"),
        ("data.test_examples", "21"),
    ] {
        edit(&run, key, value);
        let now = format!("{key} was ");
        refused(&format!("train --resume {}", run.display()), 3, &[&now, "config.toml", "begin"]);
        fs::write(run.join("config.toml"), &config).unwrap();
    }
    // The same number of other examples.
    edit(&run, "data.validation", "0.5");
    edit(&run, "data.examples", "96");
    refused(&format!("train --resume {}", run.display()), 3, &["data.examples was 48"]);
    fs::write(run.join("config.toml"), &config).unwrap();
    assert_eq!(with_end(&run, ".bin"), before, "a refusal removes nothing");
    bandroot(&tiny(&whole, fixed)).assert().success();
    let model = |run: &Path| fs::read(run.join("parameters.safetensors")).unwrap();
    for (index, (key, value)) in [
        ("engine.threads", "1"),
        ("training.checkpoint_steps", "3"),
        ("data.folder", "'elsewhere'"),
        ("privacy.trials", "7"),
    ]
    .into_iter()
    .enumerate()
    {
        let run_again = folder.path().join(format!("again-{index}"));
        copy(&run, &run_again);
        edit(&run_again, key, value);
        bandroot(&format!("train --resume {}", run_again.display())).assert().success();
        assert!(model(&run_again) == model(&whole), "{key}");
    }
}

#[test]
fn what_a_crash_left_of_a_checkpoint_is_gone_when_the_run_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    stopped(&tiny(&run, ""), &run);
    let newest = with_end(&run, ".bin").pop().unwrap();
    let secret = noise_key(&newest);
    fs::copy(&newest, run.join("checkpoint-00000007.bin.12345.partial")).unwrap();
    let resume = format!("train --resume {}", run.display());
    bandroot(&resume).assert().success();
    assert_no_secret(&run, Some(secret));
    // A program from before may have been killed between its summary and its checkpoints.
    fs::write(run.join("checkpoint-00000008.bin"), secret).unwrap();
    fs::write(run.join("checkpoint-00000008.bin.9.partial"), secret).unwrap();
    refused(&resume, 1, &["no checkpoint", "finished"]);
    assert_no_secret(&run, Some(secret));
}

#[test]
fn a_run_that_was_killed_while_its_secrets_went_has_only_to_be_tidied_up() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    bandroot(&tiny(&run, "")).assert().success();
    let summary = fs::read(run.join("summary.json")).unwrap();
    let pending = run.join("summary.json.pending");
    for left in [vec![], vec!["checkpoint-00000008.bin"], vec!["checkpoint-00000008.bin.1.partial"]]
    {
        fs::rename(run.join("summary.json"), &pending).unwrap();
        left.iter().for_each(|name| fs::write(run.join(name), "secret").unwrap());
        let resume = format!("train --resume {} --json", run.display());
        let output = bandroot(&resume).assert().success().get_output().stdout.clone();
        assert_eq!(output, summary);
        assert_eq!(fs::read(run.join("summary.json")).unwrap(), summary);
        assert_no_secret(&run, None);
    }
    bandroot(&format!("verify {} --require-private", run.display())).assert().success();
}

#[test]
fn a_run_that_was_killed_in_the_midst_of_its_checkpoints_ends_without_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    // All rows of the noise are in a checkpoint: it takes long to write.
    let begin = tiny(&run, "").replace("noise.method=identity", "noise.method=sqrt");
    let begin = begin.replace("training.epochs=2", "training.epochs=6");
    let resume = format!("train --resume {}", run.display());
    stopped(&begin, &run);
    let secret = noise_key(&with_end(&run, ".bin").pop().unwrap());
    let (mut torn, mut kills) = (0, 0);
    while torn < 5 && kills < 40 {
        let mut child = start(&resume);
        let written_by = format!("-{}-", child.id());
        let being_written = || {
            let mut found = with_end(&run, ".partial");
            found.retain(|path| {
                let name = path.to_str().unwrap();
                name.contains(".bin.") && name.contains(&written_by)
            });
            found
        };
        let mut seen = 0;
        // Not always the first: the run is to get on.
        while seen <= kills % 3 && child.try_wait().unwrap().is_none() {
            while being_written().is_empty() && child.try_wait().unwrap().is_none() {}
            seen += 1;
            while seen <= kills % 3 && !being_written().is_empty() {}
        }
        // SIGKILL: no handler runs, nothing is removed.
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        torn += being_written().len();
    }
    assert!(torn > 0, "no kill of {kills} was in the midst of a checkpoint");
    if !run.join("summary.json").exists() {
        bandroot(&resume).assert().success();
    }
    assert_no_secret(&run, Some(secret));
    bandroot(&format!("verify {} --require-private", run.display())).assert().success();
}

/// Two processes on one run remove each other's states, and the later one would write keys into a finished folder.
#[test]
fn one_process_at_a_time_works_on_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let long = tiny(&run, "--set data.examples=960");
    let mut child = start(&long);
    while with_end(&run, ".bin").is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be disturbed");
        sleep(Duration::from_millis(2));
    }
    let resume = format!("train --resume {}", run.display());
    refused(&resume, 1, &["another process is at work on", &run.display().to_string()]);
    child.kill().unwrap();
    child.wait().unwrap();
    bandroot(&resume).assert().success();
    assert_no_secret(&run, None);
}

#[test]
fn a_checkpoint_of_another_run_is_not_continued_here() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["mine", "other"] {
        stopped(&tiny(&path(name), ""), &path(name));
    }
    for state in with_end(&path("mine"), ".bin") {
        fs::remove_file(state).unwrap();
    }
    for state in with_end(&path("other"), ".bin") {
        fs::copy(&state, path("mine").join(state.file_name().unwrap())).unwrap();
    }
    let words = ["continuations.json", "another run was trained here"];
    refused(&format!("train --resume {}", path("mine").display()), 2, &words);
    bandroot(&format!("train --resume {}", path("other").display())).assert().success();
}

#[test]
fn a_summary_that_is_not_of_this_run_does_not_end_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    bandroot(&tiny(&path("whole"), "--set privacy.noise_seed=5")).assert().success();
    let other = fs::read(path("whole").join("summary.json")).unwrap();
    for (name, pending) in [("damaged", b"{\"run\":".to_vec()), ("foreign", other)] {
        stopped(&tiny(&path(name), "--set privacy.noise_seed=5"), &path(name));
        fs::write(path(name).join("summary.json.pending"), pending).unwrap();
        bandroot(&format!("train --resume {}", path(name).display())).assert().success();
        let model = |name: &str| fs::read(path(name).join("parameters.safetensors")).unwrap();
        assert!(model(name) == model("whole"), "{name}: it was ended too early");
        assert_no_secret(&path(name), None);
    }
}

#[test]
fn the_number_of_trials_may_rise_but_not_fall() {
    let folder = tempfile::tempdir().unwrap();
    for (name, edited, expected) in [("less", "1", 50), ("more", "70", 70)] {
        let run = folder.path().join(name);
        stopped(&tiny(&run, "--set privacy.trials=50"), &run);
        edit(&run, "privacy.trials", edited);
        bandroot(&format!("train --resume {}", run.display())).assert().success();
        let text = fs::read_to_string(run.join("privacy.json")).unwrap();
        assert!(text.contains(&format!("\"trials\": {expected}")), "{name}");
        bandroot(&format!("verify {}", run.display())).assert().success();
    }
}
