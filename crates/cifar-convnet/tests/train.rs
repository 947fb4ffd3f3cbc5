//! Training from the command line: what a run leaves behind, and that no crash changes it.

mod shell;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use shell::{
    assert_no_secret, bandroot, files, json, noise_key, refused, repository, wanted_kills,
};

/// A run of 12 steps on a few textures, with a fixed noise seed so that two runs can be compared.
fn tiny(out: &Path, more: &str) -> String {
    format!(
        "train {} --out {} --set data.examples=48 --set data.test_examples=20 --set training.epochs=3 \
         --set training.batch_size=12 --set privacy.noise_seed=5 --set training.checkpoint_steps=1 {more}",
        repository("configs/textures.toml"),
        out.display()
    )
}

#[test]
fn a_run_leaves_a_folder_that_explains_and_proves_itself() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let secret = tiny(&run, "--json").replace("--set privacy.noise_seed=5", "");
    let summary = json(&secret);
    assert_eq!((&summary["private"], &summary["steps"]), (&true.into(), &12.into()));
    assert_eq!((&summary["epsilon"], &summary["delta"]), (&8.0.into(), &1e-5.into()));
    let accuracy = summary["test_accuracy"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&accuracy));
    let mut names: Vec<String> = fs::read_dir(&run)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let events = names.iter().position(|name| name.starts_with("events.out.tfevents.")).unwrap();
    names.remove(events);
    assert!(summary["peak_memory_bytes"].as_u64().is_none_or(|bytes| bytes > 1 << 20));
    assert_eq!(
        names,
        [
            "config.toml",
            "continuations.json",
            "environment.json",
            "metrics.csv",
            "parameters.safetensors",
            "plan.json",
            "privacy.json",
            "summary.json"
        ],
        "no checkpoint is left: it would hold the noise key"
    );
    let metrics = fs::read_to_string(run.join("metrics.csv")).unwrap();
    assert_eq!(metrics.lines().count(), 1 + 3, "one line per epoch");
    bandroot(&format!("verify {} --require-private", run.display())).assert().success();
    refused(&secret, 1, &["run", "new run"]);
}

/// A state has the average too: it is what the run ends with.
const AVERAGE: &str = "--set training.average={kind='ema',decay=0.9}";

#[test]
fn a_killed_run_continues_bit_by_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    let start = Instant::now();
    bandroot(&tiny(&whole, AVERAGE)).assert().success();
    let duration = start.elapsed();
    let model = |run: &Path| fs::read(run.join("parameters.safetensors")).unwrap();
    let wanted = wanted_kills(20);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut kills, mut starts, mut finished, mut key) = (0, 0, 0, None);
    let mut arguments = tiny(&killed, AVERAGE);
    // After the wanted kills the run may end by itself.
    loop {
        starts += 1;
        assert!(starts < 50 * wanted, "{kills} kills in {starts} starts");
        let mut child = Command::new(assert_cmd::cargo::cargo_bin!("bandroot"))
            .args(arguments.split_whitespace())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        if kills < wanted {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let share = f64::from((random >> 40) as u32) / f64::from(1 << 24);
            sleep(duration.mul_f64(0.05 + 0.3 * share));
            // SIGKILL: no handler runs, nothing is flushed.
            if child.try_wait().unwrap().is_none() {
                child.kill().unwrap();
                kills += 1;
            }
        }
        let ended = child.wait().unwrap();
        let states: Vec<_> = files(&killed)
            .into_iter()
            .filter(|path| path.extension().is_some_and(|end| end == "bin" || end == "pending"))
            .collect();
        // The noise seed is fixed, so all runs have one key.
        if let (None, Some(state)) =
            (key, states.iter().find(|path| path.extension().is_some_and(|end| end == "bin")))
        {
            key = Some(noise_key(state));
        }
        if ended.success() || killed.join("summary.json").exists() {
            finished += 1;
            // Killed after its last file: the next command finds what it left.
            bandroot(&format!("train --resume {}", killed.display())).output().unwrap();
            assert!(model(&whole) == model(&killed), "the parameters differ after {kills} kills");
            assert_no_secret(&killed, key);
            if kills >= wanted {
                break;
            }
            // Finished between two kills: once more from the start.
            fs::remove_dir_all(&killed).unwrap();
            arguments = tiny(&killed, AVERAGE);
        } else if !states.is_empty() {
            arguments = format!("train --resume {}", killed.display());
        } else if killed.is_dir() {
            fs::remove_dir_all(&killed).unwrap();
            arguments = tiny(&killed, AVERAGE);
        }
    }
    println!(
        "kills train: {kills} in {starts} starts, {finished} runs finished, all as undisturbed"
    );
    bandroot(&format!("verify {}", killed.display())).assert().success();
}

#[test]
fn a_damaged_checkpoint_gives_way_to_the_one_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, stopped) = (folder.path().join("whole"), folder.path().join("stopped"));
    bandroot(&tiny(&whole, "")).assert().success();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("bandroot"))
        .args(tiny(&stopped, "").split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let states = || -> Vec<_> {
        let entries = fs::read_dir(&stopped).into_iter().flatten();
        let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        found.retain(|path| path.extension().is_some_and(|extension| extension == "bin"));
        found.sort();
        found
    };
    while states().len() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be stopped");
        sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The same number of other examples: the order of the labels is the same, the images are not.
    let config = fs::read_to_string(stopped.join("config.toml")).unwrap();
    let other = config
        .replace("validation = 0.0", "validation = 0.5")
        .replace("examples = 48", "examples = 96");
    assert_ne!(other, config);
    fs::write(stopped.join("config.toml"), other).unwrap();
    let resume = format!("train --resume {}", stopped.display());
    refused(&resume, 3, &["data.examples was 48", "is 96 now", "config.toml"]);
    fs::write(stopped.join("config.toml"), config).unwrap();
    let newest = states().pop().unwrap();
    #[cfg(unix)]
    {
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&newest).unwrap().permissions());
        assert_eq!(mode & 0o077, 0, "it holds the noise key: nobody else may read it");
    }
    let mut bytes = fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let assert = bandroot(&format!("train --resume {}", stopped.display())).assert().success();
    let warning = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(warning.contains(&newest.display().to_string()), "{warning}");
    assert!(warning.contains("were taken before"), "{warning}");
    let model = |run: &Path| fs::read(run.join("parameters.safetensors")).unwrap();
    assert!(model(&whole) == model(&stopped));
    refused(&resume, 1, &["no checkpoint", "finished"]);
}

#[test]
fn a_device_that_is_not_there_is_refused_with_its_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    for (device, feature, built) in [
        ("flex", "flex", cfg!(feature = "flex")),
        ("ndarray", "ndarray", cfg!(feature = "ndarray")),
        ("gpu", "gpu", cfg!(feature = "gpu")),
        ("gpu-software", "gpu", cfg!(feature = "gpu")),
    ] {
        let train = tiny(&run, &format!("--set engine.device={device}"));
        if !built {
            refused(&train, 2, &["engine.device", device, &format!("--features {feature}")]);
        } else if feature == "gpu" {
            // No driver: neither a panic nor another device.
            let mut command = bandroot(&train);
            for loader in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES"]
            {
                command.env(loader, "/dev/null");
            }
            let assert = command.assert().code(2);
            let message = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
            assert!(
                message.contains("engine.device") && message.contains("Vulkan driver"),
                "{message}"
            );
            assert!(!message.contains("panicked"), "{message}");
        }
    }
    refused(&tiny(&run, "--set engine.device=tpu"), 2, &["textures.toml", "tpu"]);
    refused(&tiny(&run, "--set engine.threads=0"), 2, &["engine.threads"]);
    assert!(!run.exists());
}

#[test]
fn a_model_that_does_not_fit_the_data_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let config = repository("configs/textures.toml");
    let train = |set: &str| format!("train {config} --out {} --set {set}", run.display());
    refused(&train("data.validation=1.0"), 2, &["textures.toml", "data.validation"]);
    refused(&train("model.name=resnet"), 2, &["textures.toml", "resnet"]);
    refused(
        &format!("{} --set data.examples=5", train("data.name=cifar10")),
        2,
        &["data.examples"],
    );
    refused(&train("training.batch_size=20000"), 2, &["training.batch_size"]);
    assert!(!run.exists());
    refused(&format!("train --resume {}", run.display()), 1, &["config.toml"]);
}
