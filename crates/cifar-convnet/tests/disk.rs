//! A disk that is full: the file is named, nothing half-written is left under its name, and what was there before
//! serves to go on. The shell's limit on the size of files stands for the disk, so that no root is needed.

#![cfg(unix)]

mod shell;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;

use shell::{bandroot, repository, start};

/// Runs the program with room for files of so many bytes.
fn limited(bytes: usize, arguments: &str) -> Output {
    // The shell counts in blocks of 512 bytes. Without the trap the system would end the program.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", bytes / 512);
    Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(assert_cmd::cargo::cargo_bin!("bandroot"))
        .args(arguments.split_whitespace())
        .output()
        .unwrap()
}

/// The command fails with a sentence that names the file.
fn refused_for_want_of_room(bytes: usize, arguments: &str, file: &Path) {
    let output = limited(bytes, arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    // Before it there may be a warning of steps that are repeated.
    let last = message.lines().last().unwrap();
    assert!(last.contains("could not write"), "{message}");
    assert!(last.contains(&file.display().to_string()), "no {file:?} in {message}");
}

fn tiny(out: &Path) -> String {
    format!(
        "train {} --out {} --set data.examples=48 --set data.test_examples=20 --set training.epochs=2 \
         --set training.batch_size=12 --set training.checkpoint_steps=1 --set privacy.noise_seed=5",
        repository("configs/textures.toml"),
        out.display()
    )
}

/// The states of a run, and what is in them.
fn states(run: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(run).into_iter().flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|end| end == "bin" || end == "partial"));
    found.sort();
    found.into_iter().map(|path| (path.clone(), fs::read(path).unwrap_or_default())).collect()
}

/// Kills a run as soon as the file is there; whether it had not ended.
fn killed_at(arguments: &str, file: &Path) -> bool {
    let mut child = start(arguments);
    while !file.exists() && child.try_wait().unwrap().is_none() {
        sleep(Duration::from_micros(200));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    file.exists()
}

#[test]
fn a_run_that_cannot_write_a_checkpoint_goes_on_from_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, run) = (folder.path().join("whole"), folder.path().join("run"));
    bandroot(&tiny(&whole)).assert().success();
    assert!(killed_at(&tiny(&run), &run.join("checkpoint-00000003.bin")), "it ended by itself");
    let resume = format!("train --resume {}", run.display());
    // What the kill left is gone with the first continuation; this one has no room for a state.
    let newest = |run: &Path| {
        let states = states(run);
        let (path, _) =
            states.iter().rfind(|(path, _)| path.extension().unwrap() == "bin").unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        name.rsplit_once('-').unwrap().1.parse::<usize>().unwrap()
    };
    let next = run.join(format!("checkpoint-{:08}.bin", newest(&run) + 1));
    refused_for_want_of_room(1 << 20, &resume, &next);
    let before = states(&run);
    assert!(before.iter().all(|(path, _)| path.extension().unwrap() == "bin"), "nothing torn");
    assert!(!next.exists());
    refused_for_want_of_room(1 << 20, &resume, &next);
    assert!(states(&run) == before, "the states before it are as they were");
    bandroot(&resume).assert().success();
    let model = |run: &Path| fs::read(run.join("parameters.safetensors")).unwrap();
    assert!(model(&run) == model(&whole));
    assert!(states(&run).is_empty());
}

#[test]
fn a_run_that_cannot_write_its_results_keeps_its_last_state() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let is_ended =
        || ["summary.json", "summary.json.pending"].iter().any(|name| run.join(name).exists());
    // Between the last state and the summary there are some milliseconds.
    let caught = (0..50).any(|_| {
        drop(fs::remove_dir_all(&run));
        killed_at(&tiny(&run), &run.join("checkpoint-00000008.bin")) && !is_ended()
    });
    assert!(caught, "no kill of 50 was before the end");
    for name in ["parameters.safetensors", "privacy.json"] {
        drop(fs::remove_file(run.join(name)));
    }
    let resume = format!("train --resume {}", run.display());
    let model = run.join("parameters.safetensors");
    refused_for_want_of_room(1 << 19, &resume, &model);
    assert!(!model.exists() && !is_ended());
    let before = states(&run);
    let whole = |path: &Path| path.extension().unwrap() == "bin";
    assert!(before.len() >= 2 && before.iter().all(|(path, _)| whole(path)), "nothing torn");
    refused_for_want_of_room(1 << 19, &resume, &model);
    assert!(states(&run) == before);
    bandroot(&resume).assert().success();
    assert!(model.exists() && states(&run).is_empty());
    bandroot(&format!("verify {}", run.display())).assert().success();
    // Other results: whole or not at all.
    let logits = folder.path().join("logits.csv");
    let eval = format!("eval {} --logits {}", run.display(), logits.display());
    refused_for_want_of_room(512, &eval, &logits);
    let left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [run]);
}

#[test]
fn a_factorization_that_cannot_be_kept_is_used_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let plan = format!(
        "plan {} --set noise.method=aof --set training.epochs=2 --json --cache {}",
        repository("configs/cifar10-bsr.toml"),
        cache.display()
    );
    let output = limited(4096, &plan);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{message}");
    assert!(message.contains("warning") && message.contains("could not be written"), "{message}");
    assert!(message.contains(&cache.display().to_string()), "{message}");
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0, "nothing half-written");
    let again = bandroot(&plan).assert().success().get_output().stdout.clone();
    assert_eq!(again, output.stdout, "the same plan");
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
}

/// The real thing where this machine lets us: a file system of 16 MiB in a mount namespace of its own, which holds two
/// states and no third.
#[test]
#[cfg(target_os = "linux")]
fn a_full_file_system_stops_a_run_that_goes_on_when_there_is_room() {
    let allowed = Command::new("unshare").args(["-m", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        eprintln!(
            "SKIPPED: a full file system needs root and unshare(1); the limit on file sizes is tested"
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (whole, disk) = (folder.path().join("whole"), folder.path().join("disk"));
    bandroot(&tiny(&whole)).assert().success();
    fs::create_dir(&disk).unwrap();
    let script = format!(
        "set -e; mount -t tmpfs -o size=16m tmpfs {disk}; program=$1; \
         if $program {train}; then echo 'it had room'; exit 3; fi; \
         ls {disk}/run | grep -q '^checkpoint-.*bin$'; \
         if ls {disk}/run | grep -q partial; then echo 'a torn file'; exit 4; fi; \
         if $program train --resume {disk}/run; then echo 'it had room'; exit 5; fi; \
         mount -o remount,size=64m {disk}; \
         $program train --resume {disk}/run; $program verify {disk}/run; \
         cp {disk}/run/parameters.safetensors {folder}/",
        disk = disk.display(),
        train = tiny(&disk.join("run")),
        folder = folder.path().display(),
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script, "sh"])
        .arg(assert_cmd::cargo::cargo_bin!("bandroot"))
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    let refusals: Vec<&str> = err.lines().filter(|line| line.contains("could not write")).collect();
    assert!(refusals.len() == 2 && refusals.iter().all(|line| line.contains("No space")), "{err}");
    let model = |folder: &Path| fs::read(folder.join("parameters.safetensors")).unwrap();
    assert!(model(&whole) == model(folder.path()), "not the run that had room");
}
