//! Scattering features, from a config to a prediction.

mod shell;

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use serde_json::Value;
use shell::{bandroot, files, json, refused};

/// A linear model of features, private and short.
fn config(folder: &Path, data: &str, numbers: usize, classes: usize) -> String {
    let path = folder.join("config.toml");
    let text = format!(
        "[data]\n{data}\nfeatures = {{ kind = 'scattering' }}\naugmentation = {{ flip = true }}\n\
         [model]\nname = 'own'\nlayers = [{{ layer = 'flatten' }}, {{ layer = 'linear', in_features = {numbers}, \
         out_features = {classes} }}]\n[privacy]\nepsilon = 1000\ndelta = 1e-5\nclip_norm = 1.0\n\
         [noise]\nmethod = 'bsr'\n[optimizer]\nlearning_rate = 0.05\nmomentum = 0.9\n\
         [training]\nepochs = 4\nbatch_size = 20\n"
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn png(folder: &Path, name: &str, side: u32, pixel: impl Fn(u32, u32) -> u8) -> String {
    let image = image::GrayImage::from_fn(side, side, |x, y| image::Luma([pixel(x, y)]));
    let mut file = Cursor::new(vec![]);
    image.write_to(&mut file, image::ImageFormat::Png).unwrap();
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, file.into_inner()).unwrap();
    path.display().to_string()
}

#[test]
fn a_run_on_features_of_textures_is_trained_verified_evaluated_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let data = "name = 'textures'\nexamples = 200\ntest_examples = 100";
    let config = config(folder.path(), data, 243 * 64, 10);
    let run = folder.path().join("run");
    let shown = run.display();
    let summary = json(&format!("train {config} --out {shown} --json"));
    // 10 % is guessing; the same linear model on pixels learns next to nothing from so few.
    let accuracy = summary["test_accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.18, "{accuracy}");
    let again = json(&format!("eval {shown} --json"));
    assert_eq!(again["test_accuracy"].as_f64(), Some(accuracy));
    bandroot(&format!("verify {shown} --data --require-private")).assert().success();
    let picture =
        png(folder.path(), "a.png", 32, |x, y| if (x / 4 + y / 4) % 2 == 0 { 20 } else { 230 });
    let predictions = json(&format!("predict {shown} {picture} --json"));
    assert!(predictions[0]["probability"].as_f64().unwrap() > 0.1, "{predictions}");
    // Looked at as images.
    let described = json(&format!("data describe {config} --json"));
    assert_eq!(described["channels"], 3);
    bandroot(&format!("data verify {config}")).assert().success();
    let sheet = folder.path().join("sheet.png");
    bandroot(&format!("data show {config} --out {}", sheet.display())).assert().success();
    // The certificate names them, and cannot name others.
    let path = run.join("privacy.json");
    let mut certificate: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let named = certificate["features"].as_str().unwrap().to_owned();
    assert!(named.starts_with("scattering, 2 scales, 8 angles"), "{named}");
    for other in [Value::Null, Value::from("scattering, 1 scales, 8 angles")] {
        certificate["features"] = other;
        fs::write(&path, certificate.to_string()).unwrap();
        let assert = bandroot(&format!("verify {shown}")).assert().failure();
        let output = assert.get_output();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("features: config.toml asks for scattering"), "{text}");
    }
    refused(
        &format!("plan {config} --set data.augmentation.crop_padding=4"),
        2,
        &["data.augmentation.crop_padding", "leave it out"],
    );
}

#[test]
fn features_of_ones_own_images_are_kept_beside_them_and_made_again_if_they_are_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    for index in 0..40 {
        let grain = |x: u32, y: u32| ((x * 7 + y * 13 + index * 31) % 40) as u8;
        png(&images, &format!("down/{index}.png"), 16, |x, y| {
            (x / 2 % 2) as u8 * 180 + grain(x, y)
        });
        png(&images, &format!("over/{index}.png"), 16, |x, y| {
            (y / 2 % 2) as u8 * 180 + grain(x, y)
        });
    }
    let data = format!(
        "name = 'folder'\nfolder = '{}'\nsize = 16\nchannels = 1\ntest_share = 0.25",
        images.display()
    );
    let config = config(folder.path(), &data, 81 * 16, 2);
    let kept = || -> Vec<PathBuf> {
        let hidden = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with('.');
        files(&images).into_iter().filter(hidden).collect()
    };
    let trained = |run: &str, more: &str| -> String {
        let out = folder.path().join(run);
        let train = format!("train {config} --out {} --json {more}", out.display());
        let assert = bandroot(&train).assert().success();
        let output = assert.get_output();
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        let accuracy =
            summary["validation_accuracy"].as_f64().or(summary["test_accuracy"].as_f64());
        assert!(accuracy.unwrap() > 0.9, "{summary}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let first = trained("first", "");
    assert_eq!(first.matches("features of").count(), 3, "{first}");
    assert_eq!(kept().len(), 3, "of both splits, and of mirror images to train on");
    let second = trained("second", "--set training.seed=1");
    assert!(!second.contains("features of"), "{second}");
    let tuned = trained("tuned", "--set data.validation=0.25 --set training.batch_size=15");
    assert!(!tuned.contains("features of"), "{tuned}");
    let path = kept().remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let third = trained("third", "");
    assert!(third.contains("warning: ") && third.contains("it is damaged"), "{third}");
    assert_eq!(kept().len(), 3);
    let run = folder.path().join("third");
    bandroot(&format!("verify {} --data", run.display())).assert().success();
    let picture = images.join("over/3.png");
    let prediction = json(&format!("predict {} {} --json", run.display(), picture.display()));
    assert_eq!(prediction[0]["class"], "over");
}
