//! Runs that stay on a GPU, here the software that stands in for one, from the command line.

#![cfg(feature = "gpu")]

mod shell;

use std::fs;
use std::io::Write;
use std::path::Path;

use shell::{bandroot, json, repository};

/// A small model on views of textures, on a device and in batches of a kind.
fn config(folder: &Path, device: &str, sampling: &str) -> String {
    let path = folder.join(format!("{device}-{sampling}.toml"));
    let text = format!(
        "extends = '{}'\n[data]\nexamples = 120\ntest_examples = 20\n\
         augmentation = {{ crop_padding = 2, flip = true, views = 2 }}\n\
         [model]\nname = 'own'\nlayers = [\n\
         {{ layer = 'conv2d', in_channels = 3, out_channels = 8, kernel = 3, stride = 2, padding = 1 }},\n\
         {{ layer = 'relu' }}, {{ layer = 'group_norm', groups = 4 }},\n\
         {{ layer = 'max_pool2d', kernel = 4, stride = 4 }},\n\
         {{ layer = 'flatten' }}, {{ layer = 'linear', in_features = 128, out_features = 10 }}]\n\
         [training]\nepochs = 2\nbatch_size = 40\ncheckpoint_steps = 2\nrecord = 'all'\n\
         [optimizer]\nlearning_rate = 0.01\n\
         [privacy]\nnoise_seed = 5\nsampling = '{sampling}'\n[engine]\ndevice = '{device}'\n",
        repository("configs/textures.toml")
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// `false`, loudly, without any Vulkan device.
fn is_there(folder: &Path) -> bool {
    let devices = json("devices --json");
    let names: Vec<&str> =
        devices.as_array().unwrap().iter().filter_map(|d| d["device"].as_str()).collect();
    if names.contains(&"gpu-software") {
        return true;
    }
    assert!(std::env::var_os("BANDROOT_REQUIRE_GPU").is_none(), "no software for a GPU: {names:?}");
    let _ = writeln!(std::io::stderr(), "\nNOT TESTED on a GPU: {names:?} in {folder:?}\n");
    false
}

#[test]
fn a_run_on_the_device_has_the_epochs_of_one_on_the_cpu_and_a_certificate_that_holds() {
    let folder = tempfile::tempdir().unwrap();
    if !is_there(folder.path()) {
        return;
    }
    for sampling in ["fixed-order", "balls-in-bins"] {
        let tables = ["cpu", "gpu-software"].map(|device| {
            let out = folder.path().join(format!("{device}-{sampling}"));
            let config = config(folder.path(), device, sampling);
            bandroot(&format!("train {config} --out {}", out.display())).assert().success();
            bandroot(&format!("verify {}", out.display())).assert().success();
            let certificate = fs::read_to_string(out.join("privacy.json")).unwrap();
            assert_eq!(certificate.contains("added in whole numbers"), device == "gpu-software");
            let table = fs::read_to_string(out.join("metrics.csv")).unwrap();
            let rows = table.lines().skip(1).map(|line| {
                let number = |cell: &str| cell.parse::<f64>().unwrap();
                line.split(',').map(number).collect::<Vec<_>>()
            });
            (table.lines().next().unwrap().to_owned(), rows.collect::<Vec<_>>())
        });
        let [(names, cpu), (of_gpu, gpu)] = tables;
        assert_eq!(names, of_gpu);
        assert_eq!(cpu.len(), 2);
        let losses: Vec<usize> = (0..names.split(',').count())
            .filter(|&i| names.split(',').nth(i).unwrap().ends_with("loss"))
            .collect();
        assert!(losses.len() >= 2, "{names}");
        for (cpu, gpu) in cpu.iter().zip(&gpu) {
            for &loss in &losses {
                let difference = (cpu[loss] - gpu[loss]).abs() / cpu[loss];
                assert!(difference < 1e-3, "{sampling}, column {loss} of {names}: {cpu:?} {gpu:?}");
            }
        }
    }
    let other = config(folder.path(), "gpu", "fixed-order");
    let asked = format!("train {other} --set engine.adapter=none-of-this-name");
    shell::refused(&asked, 2, &["engine.adapter"]);
}
