//! What a newcomer sees: the program without arguments, the end of the first run, data that is not there.

mod shell;

use shell::{bandroot, refused, repository};

fn printed(arguments: &str) -> (String, String) {
    let assert = bandroot(arguments).assert().success();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let output = assert.get_output();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn without_a_command_it_says_what_to_do_first() {
    let (text, _) = printed("");
    let first = text.lines().find(|line| line.starts_with("  bandroot")).unwrap();
    assert_eq!(first.trim(), "bandroot train configs/quickstart.toml");
    // Every command that it names exists, with the config that it names.
    for line in text.lines().filter_map(|line| line.strip_prefix("  bandroot ")) {
        let command = line.split("  ").next().unwrap();
        let name = command.split(' ').next().unwrap();
        printed(&format!("{name} --help"));
        for config in command.split(' ').filter(|word| word.ends_with(".toml")) {
            assert!(std::path::Path::new(&repository(config)).exists(), "{config}");
        }
    }
}

#[test]
fn a_run_in_a_pipe_shows_its_epochs_and_three_commands_that_work() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let config = repository("configs/quickstart.toml");
    let (text, progress) = printed(&format!(
        "train {config} --set data.examples=200 --set data.test_examples=50 --set training.batch_size=50 \
         --set training.epochs=3 --out {}",
        run.display()
    ));
    let epochs: Vec<&str> = progress.lines().filter(|line| line.starts_with("epoch ")).collect();
    assert_eq!(epochs.len(), 2, "the last epoch is in the summary: {progress}");
    assert!(epochs[0].starts_with("epoch 1 of 3: ") && epochs[0].ends_with("% on test"));
    for word in ["test accuracy", "privacy", "e^8", "run folder"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    let commands: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("  bandroot ")).collect();
    assert_eq!(commands.len(), 3, "{text}");
    for (line, name) in commands.iter().zip(["plan", "verify", "report"]) {
        let command = line.split("  ").next().unwrap();
        assert!(command.starts_with(name), "{command}");
        printed(command);
    }
}

#[test]
fn data_that_is_not_there_names_the_command_that_fetches_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = repository("configs/cifar10-bsr.toml");
    let arguments = format!(
        "train {config} --set data.folder={} --out {}",
        folder.path().display(),
        folder.path().join("run").display()
    );
    refused(&arguments, 1, &["bandroot data fetch cifar10"]);
    assert!(!folder.path().join("run").exists(), "nothing was begun");
}
