//! The command line as a script sees it: JSON, files, exit codes.

mod shell;

use std::fs;
use std::path::Path;

use serde_json::Value;
use shell::{bandroot, json, refused};

#[test]
fn factorize_prints_what_scripts_rely_on() {
    let report = json(
        "factorize --method bsr --alpha 0.999 --beta 0.9 --steps 1000 --bands 100 --separation 100 \
         --participations 10 --json",
    );
    assert_eq!(report["method"], "bsr");
    assert_eq!((&report["alpha"], &report["beta"]), (&0.999.into(), &0.9.into()));
    assert_eq!((&report["steps"], &report["bands"]), (&1000.into(), &100.into()));
    assert_eq!((&report["separation"], &report["participations"]), (&100.into(), &10.into()));
    assert_eq!(report["sensitivity_exact"], true);
    let number = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key} is missing"));
    // Table of the paper for alpha 0.999, beta 0.9, n = 1000: 70.0.
    assert!((number("expected_error") - 70.0).abs() < 0.05);
    assert!(number("max_error") > number("expected_error"));
    assert!(number("sensitivity") > 0.0 && number("seconds") >= 0.0);
}

#[test]
fn defaults_are_single_participation_and_bands_up_to_the_separation() {
    let report = json("factorize --method bsr --steps 300 --json");
    assert_eq!((&report["separation"], &report["participations"]), (&300.into(), &1.into()));
    assert_eq!(report["bands"], 300);
    let report = json("factorize --method identity --steps 300 --separation 100 --json");
    assert_eq!((&report["participations"], &report["bands"]), (&3.into(), &1.into()));
    assert_eq!(report["sensitivity"].as_f64(), Some(3.0_f64.sqrt()));
}

#[test]
fn bad_arguments_end_with_code_2_and_one_sentence() {
    let bsr = "factorize --method bsr --steps 100";
    refused(&format!("{bsr} --alpha 0.9 --beta 0.9"), 2, &["beta", "0.9"]);
    refused(&format!("{bsr} --alpha 0.9 --beta 0.95"), 2, &["beta", "alpha = 0.9"]);
    refused(&format!("{bsr} --alpha NaN"), 2, &["alpha", "NaN"]);
    refused(&format!("{bsr} --beta NaN"), 2, &["beta", "NaN"]);
    refused(&format!("{bsr} --alpha -1"), 2, &["alpha", "-1"]);
    refused(&format!("{bsr} --alpha inf"), 2, &["alpha", "inf"]);
    refused(&format!("{bsr} --bands 101"), 2, &["bands", "101"]);
    refused(&format!("{bsr} --bands 0"), 2, &["bands", "0"]);
    refused(&format!("{bsr} --separation 0"), 2, &["separation", "0"]);
    refused(&format!("{bsr} --separation 101 --participations 1"), 2, &["separation", "101"]);
    refused(&format!("{bsr} --separation 10 --participations 11"), 2, &["participations", "11"]);
    refused(&format!("{bsr} --separation 10 --participations 0"), 2, &["participations"]);
    refused(&format!("{bsr} --separation 30"), 2, &["--participations"]);
    refused("factorize --method bsr --steps 0", 2, &["steps"]);
    refused("factorize --method identity --steps 10 --bands 3", 2, &["identity", "--bands"]);
    refused("factorize --method sqrt --steps 10 --bands 11", 2, &["bands", "11"]);
    bandroot("factorize --method nonsense --steps 1").assert().code(2);
}

#[test]
fn the_strategy_is_written_in_full_precision() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.csv");
    let arguments = format!("factorize --method bsr --steps 50 --bands 4 --csv {}", path.display());
    bandroot(&arguments).assert().success();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "lag,coefficient\n0,1\n1,0.5\n2,0.375\n3,0.3125\n"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    refused("factorize --method bsr --steps 5 --csv no/such/folder/c.csv", 1, &["no/such/folder"]);
}

#[test]
fn a_schedule_changes_the_workload_and_bad_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let run = |path: &str, rest: &str| {
        format!("factorize --method bsr --steps 4 --bands 2 --learning-rates {path} {rest}")
    };
    let constant = json(&run(&file("constant", "1\n1\n1\n1\n"), "--json"));
    let plain = json("factorize --method bsr --steps 4 --bands 2 --json");
    let error = |report: &Value| report["expected_error"].as_f64().unwrap();
    assert!((error(&constant) / error(&plain) - 1.0).abs() < 1e-14);
    let csv = folder.path().join("rows.csv");
    let falling = run(&file("falling", "1\n0.5\n0.25\n\n0.125\n"), "--json --csv");
    let falling = json(&format!("{falling} {}", csv.display()));
    assert!(error(&falling) < error(&plain));
    assert!(fs::read_to_string(&csv).unwrap().starts_with("step,lag_0,lag_1\n0,1,0\n"));
    refused(&run(&file("short", "1\n1\n"), ""), 2, &["short", "2 learning rates"]);
    refused(&run(&file("words", "1\nx\n1\n1"), ""), 2, &["words", "line 2"]);
    refused(&run(&file("zero", "1\n1\n0\n1"), ""), 2, &["zero", "step 2"]);
    refused(&run("/no/such/file", ""), 1, &["/no/such/file"]);
}

#[test]
fn every_cell_agrees_with_the_exact_value_and_599_with_the_printed_digit() {
    let agreement = json("reproduce errors --without-aof --json");
    assert_eq!(agreement["cells"], 608);
    assert_eq!(agreement["agree_exact"], 608);
    assert_eq!(agreement["agree_printed"], 599);
    let mismatches = agreement["mismatches"].as_array().unwrap();
    assert_eq!(mismatches.len(), 9);
    for cell in mismatches {
        assert_eq!((&cell["method"], &cell["beta"]), (&"input".into(), &0.9.into()));
        let (ours, paper) = (cell["expected_error"].as_f64(), cell["paper"].as_f64());
        assert!(ours < paper, "the paper is above");
        assert!(cell["reason"].as_str().unwrap().contains("upper bound"));
    }
}

#[test]
fn the_folder_holds_tables_figures_and_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/errors");
    bandroot(&format!("reproduce errors --without-aof --format csv --out {}", out.display()))
        .assert()
        .success();
    let size = |name: &str| fs::metadata(out.join(name)).map_or(0, |data| data.len());
    for name in ["errors.txt", "errors.csv", "errors.md", "errors.json", "environment.json"] {
        assert!(size(name) > 100, "{name}");
    }
    for name in ["errors-main", "errors-repeated", "errors-single"] {
        let svg = fs::read_to_string(out.join(format!("{name}.svg"))).unwrap();
        assert!(svg.contains("expected error") && svg.contains("BSR"), "{name}");
        let png = fs::read(out.join(format!("{name}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 10_000, "{name}");
    }
    assert_eq!(entries(&out), 11, "no temporary file is left");
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn csv_has_one_line_per_cell_in_full_precision() {
    let output = bandroot("reproduce errors --without-aof --format csv").assert().success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    assert_eq!(text.lines().count(), 1 + 608);
    let digits = text.lines().nth(1).unwrap().split(',').nth(7).unwrap().len();
    assert!(digits >= 16, "{digits} digits");
}

#[test]
fn aof_comes_with_a_certificate_and_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let run = |rest: &str| {
        json(&format!(
            "factorize --method aof --beta 0.9 --steps 500 --separation 100 --tolerance 1e-6 --json {rest}"
        ))
    };
    let cache = format!("--cache {}", folder.path().display());
    let solved = run(&cache);
    let number = |key: &str| solved[key].as_f64().unwrap_or_else(|| panic!("{key} is missing"));
    // The design measurements of this project, confirmed there by a dense dual: 46.779850.
    assert!((number("expected_error") / 46.779_850 - 1.0).abs() < 2e-6);
    assert!(number("certified_gap") <= 1e-6 && number("lower_bound") <= number("expected_error"));
    assert!((number("sensitivity") / 5.0_f64.sqrt() - 1.0).abs() < 1e-12, "unit columns");
    assert!(solved["iterations"].as_u64().unwrap() > 0);
    assert_eq!((&solved["converged"], &solved["cached"]), (&true.into(), &false.into()));
    let found = run(&cache);
    assert_eq!(found["cached"], true);
    assert_eq!(found["expected_error"], solved["expected_error"]);
    assert_eq!(run("--no-cache")["cached"], false);
}

#[test]
fn aof_that_does_not_converge_says_so_and_keeps_its_result() {
    let arguments = "factorize --method aof --beta 0.9 --steps 300 --separation 50 --participations 6 \
                     --tolerance 1e-7 --max-iterations 2 --no-cache --json";
    let assert = bandroot(arguments).assert().code(1);
    let report: Value = serde_json::from_slice(&assert.get_output().stdout).expect("JSON");
    assert_eq!(report["converged"], false);
    assert!(String::from_utf8_lossy(&assert.get_output().stderr).contains("--max-iterations"));
}

#[test]
fn aof_refuses_what_it_cannot_solve() {
    let aof = "factorize --method aof --steps 100 --no-cache";
    refused(&format!("{aof} --alpha 0.9 --beta 0.9"), 2, &["beta", "0.9"]);
    refused(&format!("{aof} --separation 101 --participations 1"), 2, &["separation", "101"]);
    refused(&format!("{aof} --separation 10 --bands 20"), 2, &["--bands", "20"]);
    refused(&format!("{aof} --separation 10 --bands 0"), 2, &["bands", "0"]);
    refused(&format!("{aof} --tolerance 0"), 2, &["tolerance"]);
    refused(&format!("{aof} --tolerance NaN"), 2, &["tolerance", "NaN"]);
    let dense = "factorize --method aof --steps 20000 --no-cache --csv never-written.csv";
    refused(dense, 2, &["dense", "20000"]);
    let value = json("factorize --method aof --steps 20000 --no-cache --json");
    assert!(value["max_error"].is_null() && value["certified_gap"].as_f64() <= Some(1e-4));
}

#[test]
fn successors_are_factorized_and_say_what_they_keep() {
    let run = |rest: &str| {
        json(&format!("factorize --beta 0.9 --steps 400 --separation 40 --json {rest}"))
    };
    let number = |report: &Value, key: &str| report[key].as_f64().unwrap();
    let aof = run("--method aof --no-cache");
    for (rest, rows) in [
        ("--method bisr", 3),
        ("--method bisr --bands 9", 8),
        ("--method lambda-cgd --lambda 0.9", 1),
        ("--method lambda-cgd", 1),
        ("--method toeplitz", 39),
        ("--method inverse-toeplitz", 3),
        ("--method blt --buffers 1", 2),
        ("--method normalised-sqrt", 39),
    ] {
        let report = run(rest);
        assert_eq!(
            (&report["noise_rows"], &report["sensitivity_exact"]),
            (&rows.into(), &true.into())
        );
        assert!(number(&report, "expected_error") > number(&aof, "lower_bound"), "{rest}");
    }
    let start = "factorize --steps 100 --method";
    refused(&format!("{start} bisr --bands 101"), 2, &["bands", "101"]);
    refused(&format!("{start} blt --buffers 9"), 2, &["buffers", "9"]);
    refused(&format!("{start} blt --bands 9"), 2, &["blt", "--bands"]);
    refused(&format!("{start} lambda-cgd --lambda -1"), 2, &["lambda", "-1"]);
    refused(&format!("{start} bsr --lambda 0.5"), 2, &["--lambda"]);
    refused(&format!("{start} bsr --buffers 2"), 2, &["--buffers"]);
}

#[test]
fn the_frontier_has_every_method_and_a_floor() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("frontier");
    let cells = json(&format!(
        "reproduce frontier --steps 100 --separation 20 --no-cache --json --out {}",
        out.display()
    ));
    let cells = cells.as_array().unwrap();
    for (alpha, beta) in [(1.0, 0.0), (1.0, 0.9), (0.999, 0.0), (0.999, 0.9)] {
        let setting: Vec<&Value> =
            cells.iter().filter(|cell| cell["alpha"] == alpha && cell["beta"] == beta).collect();
        let floor = setting.iter().find_map(|cell| cell["lower_bound"].as_f64()).unwrap();
        assert!(setting.len() > 20);
        for cell in setting {
            let banded = ["identity", "bsr", "toeplitz", "normalised-sqrt", "aof"]
                .contains(&cell["method"].as_str().unwrap());
            if banded && cell["rows"].as_u64().unwrap() < 20 {
                assert!(cell["expected_error"].as_f64().unwrap() >= floor, "{cell}");
            }
            assert!(cell["least_rows"].as_u64() <= cell["rows"].as_u64());
        }
    }
    let text = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert!(text("frontier.svg").contains("rows of noise kept"));
    assert!(text("frontier.md").contains("inverse-toeplitz"));
    assert_eq!(text("frontier.csv").lines().count(), cells.len() + 1);
    assert!(text("environment.json").contains("frontier"));
    refused("reproduce frontier --steps 100 --separation 30", 2, &["--separation", "30"]);
}

#[test]
fn runtimes_are_measured_once_and_set_beside_the_paper() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display().to_string();
    let small = format!("reproduce runtimes --steps 100,200 --alpha 1 --beta 0 --json --out {out}");
    let first = json(&small);
    let rows = first.as_array().unwrap();
    assert_eq!(rows.len(), 4, "two regimes, two sizes");
    for row in rows {
        assert!(row["aof_error"].as_f64() < row["bsr_error"].as_f64());
        assert_eq!(row["converged"], true);
    }
    assert_eq!(json(&small), first, "the second call measures nothing again");
    let text = fs::read_to_string(folder.path().join("runtimes.md")).unwrap();
    assert!(text.contains("| 200 |") || text.contains(" 200 |"), "{text}");
    assert!(folder.path().join("optimizers-repeated.svg").exists());
    refused(&format!("reproduce runtimes --steps 7 --out {out}"), 2, &["--steps"]);
    fs::write(folder.path().join("measurements.csv"), "nonsense\n1\n").unwrap();
    refused(&small, 1, &["measurements.csv", "move it away"]);
}

#[test]
fn the_engine_is_measured() {
    let options = "--batch 3 --threads 2 --rounds 2 --json";
    for (model, convolution) in [("convnet", "winograd"), ("convnet-tanh", "direct")] {
        let report = json(&format!(
            "bench engine {options} --device cpu --model {model} --convolution {convolution}"
        ));
        let number = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key} is missing"));
        assert_eq!(
            (&report["model"], &report["convolution"]),
            (&model.into(), &convolution.into())
        );
        assert_eq!((&report["threads"], &report["batch_size"]), (&2.into(), &3.into()));
        assert_eq!((&report["device"], &report["rounds"]), (&"cpu".into(), &2.into()));
        for key in ["forward_samples_per_second", "plain_samples_per_second", "sgemm_gflops"] {
            assert!(number(key) > 0.0, "{key}");
        }
        // The quotients fit their parts: 230.15 MFLOP per example, and 1.46 more for the linear
        // layers of the other ConvNet.
        let mflop = if model == "convnet" { 230.154_24 } else { 231.611_904 };
        let gflops = number("private_samples_per_second") * mflop / 1e3;
        assert!((number("private_gflops") / gflops - 1.0).abs() < 1e-9);
        let fraction = number("private_gflops") / number("sgemm_gflops");
        assert!((number("fraction_of_peak") / fraction - 1.0).abs() < 1e-9);
        if cfg!(target_os = "linux") {
            // Two lanes of 1.2 MB at the least, and less than a gigabyte.
            assert!((2e6..1e9).contains(&number("peak_memory_bytes")));
        }
    }
    let text = bandroot("bench engine --batch 1 --threads 1 --rounds 1").assert().success();
    let text = String::from_utf8_lossy(&text.get_output().stdout).into_owned();
    for word in ["forward", "plain gradient", "private gradient", "sgemm", "peak memory"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for bad in [
        "--device abacus",
        "--batch 0",
        "--rounds 0",
        "--threads 0",
        "--model mlp",
        "--convolution fft",
    ] {
        bandroot(&format!("bench engine {bad}")).assert().code(2);
    }
}

#[test]
fn help_and_completions_know_every_command() {
    let help = bandroot("--help").assert().success();
    let help = String::from_utf8_lossy(&help.get_output().stdout).into_owned();
    let script = bandroot("completions bash").assert().success();
    let script = String::from_utf8_lossy(&script.get_output().stdout).into_owned();
    for command in ["factorize", "reproduce", "bench", "completions"] {
        assert!(help.contains(command) && script.contains(command), "{command}");
    }
}
