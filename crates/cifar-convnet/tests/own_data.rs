//! Data of one's own, from the files to a prediction: every format is trained with its example config.

mod shell;

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use shell::{bandroot, json, refused, repository};

/// Two classes of images of 12 x 10 pixels: bright above, or bright below.
fn pixels(class: usize, index: usize) -> Vec<u8> {
    let row = |y: usize| if (y < 6) == (class == 0) { 200 + index as u8 % 50 } else { 20 };
    (0..12).flat_map(|y| vec![row(y); 10]).collect()
}

fn grey_png(pixels: &[u8]) -> Vec<u8> {
    let image = image::GrayImage::from_raw(10, 12, pixels.to_vec()).unwrap();
    let mut file = Cursor::new(vec![]);
    image.write_to(&mut file, image::ImageFormat::Png).unwrap();
    file.into_inner()
}

fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut content = b"\x93NUMPY\x01\x00".to_vec();
    content.extend((header.len() as u16).to_le_bytes());
    content.extend(header.as_bytes());
    content.extend(bytes);
    content
}

fn idx(sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut content = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|size| content.extend(size.to_be_bytes()));
    content.extend(bytes);
    content
}

fn put(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path.display().to_string()
}

/// A linear model, and so few and small steps that it takes a second.
fn tiny(config: &str, folder: &Path, numbers: usize, more: &str) -> String {
    let layers =
        format!("[{{layer='flatten'}},{{layer='linear',in_features={numbers},out_features=2}}]");
    format!(
        "train {} --out {}/run --json --set data.folder={} --set training.batch_size=10 --set training.epochs=20 \
         --set optimizer.learning_rate=0.1 --set model.name=own --set model.layers={layers} \
         --set privacy.epsilon=1000 {more}",
        repository(&format!("configs/own/{config}.toml")),
        folder.display(),
        folder.display(),
    )
}

/// Trains, checks the certificate with and without the data, and predicts one file of each class.
fn trained(train: &str, folder: &Path, files: [&str; 2], classes: [&str; 2]) {
    let summary = json(train);
    assert!(summary["test_accuracy"].as_f64().unwrap() > 0.8, "{summary}");
    let run = folder.join("run");
    let run = run.display();
    bandroot(&format!("verify {run} --data --require-private")).assert().success();
    let predictions = json(&format!("predict {run} {} {} --json", files[0], files[1]));
    for (at, class) in classes.iter().enumerate() {
        assert_eq!(&predictions[at]["class"], class, "{predictions}");
        let probability = predictions[at]["probability"].as_f64().unwrap();
        let rest = predictions[at]["next"][0]["probability"].as_f64().unwrap();
        assert!(probability > 0.5 && (probability + rest - 1.0).abs() < 1e-9, "{predictions}");
    }
    let output = bandroot(&format!("predict {run} {}", files[1])).assert().success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    assert!(text.contains("probability") && text.contains(classes[1]), "{text}");
}

/// A config with another folder in it, for the commands that take no `--set`.
fn config(name: &str, folder: &Path, more: &str) -> String {
    let text = fs::read_to_string(repository(&format!("configs/own/{name}.toml"))).unwrap();
    let start = text.find("[data]").unwrap();
    let end = text.find("[model]").unwrap_or(text.len());
    let lines = text[start..end].lines().filter(|line| !line.starts_with("folder ="));
    let section: String = lines.map(|line| format!("{line}\n")).collect();
    put(folder, "data.toml", format!("{section}folder = '{}'\n{more}\n", folder.display()))
}

#[test]
fn class_folders_of_images() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (part, count) in [("train", 20), ("test", 5)] {
        for (class, name) in ["above", "below"].iter().enumerate() {
            for index in 0..count {
                let path = format!("{part}/{name}/{index:02}.png");
                put(folder, &path, grey_png(&pixels(class, index)));
            }
        }
    }
    let files = ["above", "below"].map(|name| format!("{}/test/{name}/01.png", folder.display()));
    let more = "--set data.size=8";
    let train = tiny("folder", folder, 3 * 8 * 8, more);
    trained(&train, folder, [&files[0], &files[1]], ["above", "below"]);
    // What was found in the folder is part of the run: it can be checked without the images.
    let run = folder.join("run");
    let written = fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(written.contains("examples = 40") && written.contains("\"below\""), "{written}");
    let config = config("folder", folder, "");
    let output = bandroot(&format!("data verify {config}")).assert().success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    assert!(text.contains("40 examples  SHA-256") && text.contains("10 examples"), "{text}");
    let described = json(&format!("data describe {config} --json"));
    assert_eq!(described["train"]["per_class"], serde_json::json!([20, 20]));
    let sheet = folder.join("sheet.png");
    bandroot(&format!("data show {config} --out {}", sheet.display())).assert().success();
    assert!(fs::read(sheet).unwrap().starts_with(b"\x89PNG"));
    let table = put(folder, "a.csv", "a\n1\n");
    refused(&format!("predict {} {table}", run.display()), 1, &["a.csv", ".png"]);
    put(folder, "train/below/07.png", "damaged");
    refused(&format!("data verify {config}"), 1, &["train/below/07.png"]);
    fs::remove_dir_all(folder.join("train")).unwrap();
    bandroot(&format!("verify {}", run.display())).assert().success();
    refused(&format!("data verify {config}"), 1, &["train", "data.folder"]);
}

#[test]
fn one_tree_of_class_folders_is_divided_once_and_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (class, name) in ["above", "below"].iter().enumerate() {
        for index in 0..20 {
            put(
                &folder.join("all"),
                &format!("{name}/{index}.png"),
                grey_png(&pixels(class, index)),
            );
        }
    }
    let text = "[data]\nname = 'folder'\nsize = [6, 5]\nchannels = 1\ntest_share = 0.25\n";
    let all = folder.join("all");
    let config = put(folder, "a.toml", format!("{text}folder = '{}'\n", all.display()));
    let verify = || {
        let output = bandroot(&format!("data verify {config}")).assert().success();
        String::from_utf8(output.get_output().stdout.clone()).unwrap()
    };
    let first = verify();
    assert!(first.contains("30 examples") && first.contains("10 examples"), "{first}");
    assert_eq!(verify(), first);
}

#[test]
fn arrays() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Grey images as float32, which need no layout.
    for (part, count) in [("train", 40), ("test", 10)] {
        let images = (0..count).flat_map(|i| pixels(i % 2, i));
        let bytes: Vec<u8> = images.flat_map(|p| f32::from(p).to_le_bytes()).collect();
        put(
            folder,
            &format!("{part}_images.npy"),
            npy("<f4", &format!("({count}, 12, 10)"), &bytes),
        );
        let labels: Vec<u8> = (0..count as i64).flat_map(|i| (i % 2).to_le_bytes()).collect();
        put(folder, &format!("{part}_labels.npy"), npy("<i8", &format!("({count},)"), &labels));
    }
    let one = |class: usize| {
        let bytes: Vec<u8> =
            pixels(class, 3).into_iter().flat_map(|p| f32::from(p).to_le_bytes()).collect();
        put(folder, &format!("new-{class}.npy"), npy("<f4", "(12, 10)", &bytes))
    };
    let files = [one(0), one(1)];
    let more = "--set data.classes=2 --set data.offset=127.5 --set data.scale=127.5";
    trained(&tiny("npy", folder, 120, more), folder, [&files[0], &files[1]], ["0", "1"]);
    let run = folder.join("run");
    let png = put(folder, "a.png", grey_png(&pixels(0, 0)));
    refused(&format!("predict {} {png}", run.display()), 1, &["a.png", ".npy"]);
    let few = put(folder, "few.npy", npy("<f4", "(3,)", &[0; 12]));
    refused(&format!("predict {} {few}", run.display()), 1, &["few.npy"]);
    // One number that is none is found, and a label that is no class.
    let config = config("npy", folder, "");
    let mut bytes = fs::read(folder.join("train_images.npy")).unwrap();
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&f32::NAN.to_le_bytes());
    put(folder, "train_images.npy", bytes);
    refused(&format!("data verify {config}"), 1, &["train_images.npy", "record 39"]);
    refused(&tiny("npy", folder, 120, more).replace("/run ", "/other "), 1, &["record 39"]);
}

#[test]
fn idx_files_plain_and_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (part, count) in [("train", 40), ("t10k", 10)] {
        let images: Vec<u8> = (0..count).flat_map(|i| pixels(i % 2, i)).collect();
        let labels: Vec<u8> = (0..count).map(|i| (i % 2) as u8).collect();
        let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
        encoder.write_all(&idx(&[count as u32, 12, 10], &images)).unwrap();
        put(folder, &format!("{part}-images-idx3-ubyte.gz"), encoder.finish().unwrap());
        put(folder, &format!("{part}-labels-idx1-ubyte"), idx(&[count as u32], &labels));
    }
    let files =
        [0, 1].map(|class| put(folder, &format!("{class}.png"), grey_png(&pixels(class, 9))));
    let train = tiny("idx", folder, 120, "--set data.classes=2");
    trained(&train, folder, [&files[0], &files[1]], ["0", "1"]);
    let mut labels = vec![0; 40];
    labels[7] = 10;
    put(folder, "train-labels-idx1-ubyte", idx(&[40], &labels));
    let words = ["train-labels-idx1-ubyte", "record 7", "label 10"];
    refused(&format!("data verify {}", config("idx", folder, "")), 1, &words);
}

#[test]
fn tables() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (part, count) in [("train", 40), ("test", 10)] {
        let mut table = "income,bought,age,children\n".to_owned();
        for i in 0..count {
            let (age, bought) = if i % 2 == 0 { (25, "no") } else { (60, "yes") };
            table += &format!("{},{bought},{age},{}\n", 30_000 + 500 * i, i % 4 / 2);
        }
        put(folder, &format!("{part}.csv"), table);
    }
    // The order of the columns does not matter, nor whether there is a label.
    let files = [
        put(folder, "new.csv", "age,children,income\n22,0,40000\n"),
        put(folder, "labelled.csv", "bought,age,children,income\n?,65,0,40000\n"),
    ];
    let train = tiny("csv", folder, 3, "");
    trained(&train, folder, [&files[0], &files[1]], ["no", "yes"]);
    let config = config("csv", folder, "");
    assert_eq!(json(&format!("data describe {config} --json"))["train"]["mean"][0], 42.5);
    let sheet = folder.join("sheet.png");
    refused(&format!("data show {config} --out {}", sheet.display()), 2, &["vectors"]);
    let other = train.replace("/run ", "/other ");
    refused(&format!("{other} --set data.augmentation.flip=true"), 2, &["data.augmentation"]);
    let convnet = format!(
        "plan {} --set data.folder={} --set training.batch_size=10 --set model={{name='convnet'}}",
        repository("configs/own/csv.toml"),
        folder.display()
    );
    refused(&convnet, 2, &["convnet", "linear"]);
    put(folder, "test.csv", "age,children,income,bought\n1,2,three,no\n");
    refused(&other, 1, &["test.csv", "line 2", "\"income\""]);
}

/// A table of 40 people of two kinds, one of whom has this age.
fn people(age: u32) -> String {
    let mut table = format!("age,bought\n{age},yes\n");
    (0..39).for_each(|i| table += &format!("{},{}\n", 20 + i % 2 * 40, ["no", "yes"][i % 2]));
    table
}

/// Who knows everyone but one must not find that one by trying out ages against what a run publishes.
#[test]
fn a_certificate_does_not_give_a_guess_about_an_example_away() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    put(folder, "train.csv", people(68));
    put(folder, "test.csv", people(33));
    let more = "--set data.columns=[\"age\"] --set data.offset=40 --set data.scale=20";
    json(&tiny("csv", folder, 1, more));
    let run = folder.join("run");
    let published = fs::read_to_string(run.join("privacy.json")).unwrap();
    let own = config("csv", folder, "");
    let own = fs::read_to_string(own.split(' ').next().unwrap()).unwrap();
    let guess = put(
        folder,
        "guess.toml",
        own.replace("\"age\", \"income\", \"children\"", "\"age\"")
            .replace("[40, 40000, 1]", "40")
            .replace("[20, 30000, 2]", "20"),
    );
    let output = bandroot(&format!("data verify {guess}")).assert().success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    let hashes: Vec<&str> = text.split_whitespace().filter(|word| word.len() == 64).collect();
    assert!(!hashes.is_empty(), "the plain hash is printed to who has the data: {text}");
    assert!(hashes.iter().all(|hash| !published.contains(hash)), "and is not in the certificate");
    // With the salt it can be shown which data it was, without it nothing is.
    let verify = format!("verify {} --data", run.display());
    bandroot(&verify).assert().success();
    let salt = fs::read(run.join("data-salt")).unwrap();
    fs::remove_file(run.join("data-salt")).unwrap();
    let output = bandroot(&verify).assert().success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    assert!(text.contains("not checked: the training data: their hash is salted"), "{text}");
    fs::write(run.join("data-salt"), salt).unwrap();
    put(folder, "train.csv", people(67));
    bandroot(&verify).assert().code(1);
}

#[test]
fn test_examples_from_the_training_files_are_not_private_and_keys_that_contradict_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    put(folder, "train.csv", people(68));
    let base = "--set data.columns=[\"age\"] --set data.offset=40 --set data.scale=20";
    let both = tiny("csv", folder, 1, &format!("{base} --set data.test_share=0.25"));
    refused(&both, 2, &["data.test_table", "data.test_share"]);
    let config = put(
        folder,
        "share.toml",
        fs::read_to_string(repository("configs/own/csv.toml"))
            .unwrap()
            .lines()
            .filter(|line| !line.starts_with("test_table"))
            .collect::<Vec<_>>()
            .join("\n"),
    );
    let share = both.replace(&repository("configs/own/csv.toml"), &config);
    json(&share);
    let metrics = fs::read_to_string(folder.join("run/metrics.csv")).unwrap();
    assert!(metrics.starts_with("epoch,step,not_private_test_accuracy,"), "{metrics}");
    let public = share.replace("/run ", "/public ") + " --set training.record=public";
    refused(&public, 2, &["training.record", "data.test_share"]);
    let twice = share.replace("/run ", "/twice ").replace("[\"age\"]", "[\"age\",\"age\"]");
    refused(&twice, 2, &["data.columns", "twice"]);
}
