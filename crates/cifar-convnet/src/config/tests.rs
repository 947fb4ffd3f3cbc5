//! Configs as experiments: the paper's cells, what is refused, and that a config survives its own file.

use std::path::{Path, PathBuf};

use dp_train::plan;

use super::file::read;
use super::privacy::Privacy;
use super::*;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn config(path: &str, overrides: &[&str]) -> Result<Config, String> {
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    read(&repository(path), &overrides).map_err(|error| format!("{error:#}"))
}

/// The first thing that is wrong with a config, wherever it is found.
fn refusal(path: &str, overrides: &[&str]) -> String {
    let config = match config(path, overrides) {
        Ok(config) => config,
        Err(message) => return message,
    };
    match config.privacy {
        Privacy::None => config.non_private_request().unwrap_err().to_string(),
        Privacy::Guaranteed(_) => config.plan_request().unwrap_err().to_string(),
    }
}

#[derive(Debug, serde::Deserialize)]
struct Cell {
    participation: String,
    epsilon: f64,
    delta: f64,
    n: usize,
    k: usize,
    b: usize,
    batch_size: usize,
    method: String,
}

#[test]
fn every_cell_of_the_papers_accuracy_table_follows_from_its_base() {
    let table = include_str!("../../paper/cifar10_accuracy.csv");
    let mut cells = 0;
    for cell in csv::Reader::from_reader(table.as_bytes()).deserialize() {
        let cell: Cell = cell.unwrap();
        let size = match cell.participation.as_str() {
            "single" => format!("training.batch_size={}", cell.batch_size),
            _ => format!("training.epochs={}", cell.k),
        };
        let epsilon = format!("privacy.epsilon={}", cell.epsilon);
        let method = format!("noise.method={}", cell.method);
        let path = format!("configs/paper/{}.toml", cell.participation);
        let request = config(&path, &[&size, &epsilon, &method]).unwrap().plan_request().unwrap();
        let pattern = request.participation().unwrap();
        assert_eq!((pattern.steps(), pattern.min_separation()), (cell.n, cell.b), "{cell:?}");
        assert_eq!(pattern.max_participations(), cell.k);
        assert_eq!((request.epsilon, request.delta), (cell.epsilon, cell.delta));
        assert_eq!((request.batch_size, request.dim), (cell.batch_size, 307_498));
        let expected = match cell.method.as_str() {
            "bsr" => mf_core::Method::Bsr { bands: cell.b },
            "aof" => mf_core::Method::Aof { bands: cell.b, tolerance: 1e-4 },
            "identity" => mf_core::Method::Identity,
            _ => mf_core::Method::Input,
        };
        assert_eq!(request.method, expected);
        cells += 1;
    }
    assert_eq!(cells, 228);
}

#[test]
fn every_config_of_the_repository_can_be_run_and_survives_its_own_file() {
    let mut found = 0;
    for folder in [
        "configs",
        "configs/amplification",
        "configs/best",
        "configs/best/ablation",
        "configs/paper",
        "configs/successors",
    ] {
        for entry in std::fs::read_dir(repository(folder)).unwrap() {
            let path = entry.unwrap().path();
            let is_config = path.extension().is_some_and(|extension| extension == "toml");
            // The base of the paper's settings, sweeps and the table of tuned values are no experiments.
            let other = [
                "cifar10.toml",
                "initialization.toml",
                "search.toml",
                "search-input.toml",
                "tuned.toml",
            ]
            .map(|name| format!("paper/{name}"));
            if !is_config || other.iter().any(|name| path.ends_with(name)) {
                continue;
            }
            found += 1;
            let config = read(&path, &[]).unwrap();
            match config.privacy {
                Privacy::None => drop(config.non_private_request().unwrap()),
                Privacy::Guaranteed(_) => drop(config.plan_request().unwrap()),
            }
            let folder = tempfile::tempdir().unwrap();
            let written = folder.path().join("config.toml");
            std::fs::write(&written, toml::to_string_pretty(&config).unwrap()).unwrap();
            assert_eq!(read(&written, &[]).unwrap(), config, "{}", path.display());
        }
    }
    assert!(found >= 30, "{found}");
}

#[test]
fn a_schedule_reaches_the_plan() {
    let overrides = ["optimizer.schedule=cosine", "optimizer.final_fraction=0.1"];
    let config = config("configs/textures.toml", &overrides).unwrap();
    let request = config.plan_request().unwrap();
    let rates = request.learning_rates.clone().unwrap();
    assert_eq!((rates.len(), request.steps, rates[0]), (200, 200, 1.0));
    assert!((rates[199] - 0.1).abs() < 1e-15);
    assert_eq!(request.strategy_for, plan::StrategyFor::ConstantRate);
    let mut scheduled = config.clone();
    scheduled.noise.as_mut().unwrap().strategy_for = StrategyFor::Schedule;
    let scheduled = scheduled.plan_request().unwrap();
    assert_eq!(scheduled.strategy_for, plan::StrategyFor::Schedule);
    assert_ne!(scheduled.factorized_workload(), request.factorized_workload());
}

#[test]
fn the_presets_fit_every_data_set() {
    let dim = |data: &str, model: &str| {
        let overrides = [format!("data.name={data}"), format!("model.name={model}")];
        let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
        config("configs/textures.toml", &overrides).unwrap().plan_request().unwrap().dim
    };
    assert_eq!(dim("cifar10", "convnet"), 307_498);
    assert_eq!(dim("cifar10", "convnet-tanh"), 550_570);
    assert_eq!(dim("fashion-mnist", "convnet"), 307_498 - 2 * 9 * 32 - 10 * (2048 - 1152));
}

#[test]
fn what_cannot_be_run_is_refused_by_its_key() {
    let textures = "configs/textures.toml";
    let cases: [(&[&str], &str); 54] = [
        (&["data.layout=nchw"], "data.layout is for npy"),
        (&["data.features=4"], "data.features is for npy"),
        (&["data.features=pixels"], "data.features = { kind = \"scattering\""),
        (&["data.features.kind=fourier"], "data.features"),
        (&["data.features.scale=2"], "did you mean data.features.scales?"),
        (&["data.features={kind='scattering',angles=99}"], "data.features has angles = 99"),
        (
            &["data.features.kind=scattering", "data.augmentation.crop_padding=2"],
            "data.augmentation.crop_padding moves pixels",
        ),
        (
            &["data.features.kind=scattering", "data.augmentation.views=2"],
            "data.augmentation.views shows the same features",
        ),
        (
            &[
                "data.name=csv",
                "data.examples=900",
                "data.columns=['a']",
                "data.classes=2",
                "data.features.kind=scattering",
            ],
            "data.features is for textures, cifar10",
        ),
        (&["data.name=folder", "data.folder=/no/such"], "/no/such/train"),
        (&["data.name=idx", "data.examples=9", "data.size=5", "data.classes=1"], "data.classes"),
        (
            &[
                "data.name=npy",
                "data.examples=9",
                "data.features=4",
                "data.classes=2",
                "data.dtype=u8",
                "data.scale=2",
            ],
            "data.scale",
        ),
        (
            &["data.name=csv", "data.examples=9", "data.columns=['a','label']", "data.classes=2"],
            "column of the label",
        ),
        (
            &["data.name=csv", "data.examples=900", "data.columns=['a']", "data.classes=0.5"],
            "data.classes must",
        ),
        (&["privacy=nne"], "privacy = \"none\""),
        (&["privacy=3"], "privacy = \"none\""),
        (&["privacy=none", "privacy.epsilon=3"], "--set"),
        (&["privacy.epsilom=3"], "did you mean privacy.epsilon?"),
        (&["privac=none"], "did you mean privacy?"),
        (&["optimizer.clip_norm=1.0"], "privacy.clip_norm"),
        (&["privacy=none", "optimizer.clip_norm=-1.0"], "optimizer.clip_norm"),
        (&["privacy=none", "training.record=public"], "training.record"),
        (&["data.validation=0.2", "training.record=public"], "training.record = \"public\""),
        (&["optimizer.schedule=cosin"], "cosin"),
        (&["optimizer.cooldown_steps=5"], "optimizer.cooldown_steps"),
        (
            &["optimizer.schedule=linear-cooldown", "optimizer.cooldown_steps=200"],
            "between 1 and 199",
        ),
        (&["data.augmentation.flop=true"], "did you mean data.augmentation.flip?"),
        (&["data.augmentation.multiplicity=0"], "data.augmentation.views"),
        (&["data.augmentation.crop_padding=32"], "data.augmentation.crop_padding"),
        (&["model.name=own"], "model.layers"),
        (&["model.layers=[{layer='relu'}]"], "model.layers"),
        (&["model.name=own", "model.layers=[{layer='relu'}]"], "10 numbers"),
        (&["model.name=own", "model.layers=[{layer='relu'}, {layer='rel'}]"], "layer 1"),
        (
            &["model.name=own", "model.layers=[{layer='linear', in_features=3, out=4}]"],
            "layer 0: unknown field `out`",
        ),
        (
            &["model.name=own", "model.layers=[{layer='linear', in_features=3, out_features=4}]"],
            "flatten first",
        ),
        (&["training.record=some"], "some"),
        (&["training.average={kind='mean'}"], "mean"),
        (&["training.average={kind='ema'}"], "needs training.average.decay"),
        (&["training.average={kind='tail', decay=0.5}"], "training.average.decay is given"),
        (&["training.average={kind='ema', decay=1.0}"], "training.average.decay must be"),
        (&["training.average={kind='tail', from=-0.1}"], "training.average.from must be"),
        (&["training.average={kind='ema', decai=0.9}"], "did you mean training.average.decay?"),
        (&["privacy=none", "training.average={kind='ema', decay=nan}"], "it is NaN"),
        (&["evaluation.every=0"], "evaluation.every must be at least 1"),
        (&["evaluation.miror=true"], "did you mean evaluation.mirror?"),
        (&["data.augmentation.padding=reflect"], "data.augmentation.crop_padding is 0"),
        (&["data.augmentation.padding=mirror", "data.augmentation.crop_padding=2"], "mirror"),
        (&["privacy.epsilon=-1.0"], "privacy: epsilon"),
        (&["privacy.delta=nan"], "privacy: delta"),
        (&["privacy.clip_norm=inf"], "privacy.clip_norm"),
        (&["training.epochs=9223372036854775807"], "training.epochs"),
        (&["training.epochs=1000000", "optimizer.schedule=cosine"], "training.batch_size"),
        (&["data.examples=9223372036854775807"], "data.examples"),
        (
            &[
                "model.name=own",
                "model.layers=[{layer='flatten'}, {layer='linear', in_features=3072, \
                 out_features=4611686018427387904}]",
            ],
            "memory",
        ),
    ];
    for (overrides, word) in cases {
        let message = refusal(textures, overrides);
        assert!(message.contains(word), "{overrides:?}: no {word:?} in {message:?}");
    }
    let text = std::fs::read_to_string(repository(textures)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    std::fs::write(&path, text.replace("[noise]\nmethod = \"bsr\"", "")).unwrap();
    let error = read(&path, &[]).unwrap().plan_request().unwrap_err();
    assert!(error.to_string().contains("noise.method"), "{error}");
    assert!(read(&path, &["privacy=none".into()]).unwrap().non_private_request().is_ok());
}

#[test]
fn mirror_images_of_vectors_are_refused() {
    let path = repository("configs/own/csv.toml");
    let mut table = file::read_table(&path, &["evaluation.mirror=true".into()]).unwrap();
    let data: toml::Table =
        "name = 'csv'\nexamples = 900\ntest_share = 0.2\ncolumns = ['a']\nclasses = 2"
            .parse()
            .unwrap();
    table.insert("data".to_owned(), data.into());
    let error = file::check(table, &path).unwrap().check().unwrap_err().to_string();
    assert!(error.contains("evaluation.mirror is for images"), "{error}");
}

#[test]
fn the_schedules_strategy_is_usual_only_where_it_is_never_worse() {
    use StrategyFor::{ConstantRate, Schedule};
    let long: &[&str] = &["training.epochs=12", "optimizer.schedule=cosine"];
    let strategy = |more: &[&str]| {
        let overrides = [long, more].concat();
        config("configs/textures.toml", &overrides).unwrap().noise.unwrap().strategy_for
    };
    // The momentum of the file is 0.9, and its epochs have 40 steps.
    assert_eq!(strategy(&[]), Schedule);
    assert_eq!(strategy(&["noise.strategy_for=constant-rate"]), ConstantRate);
    let cooled = "optimizer.schedule=linear-cooldown";
    for (more, expected) in [
        (vec!["optimizer.schedule=constant"], ConstantRate),
        (vec!["noise.method=aof"], ConstantRate),
        (vec!["noise.method=bisr"], ConstantRate),
        (vec!["noise.method=identity"], ConstantRate),
        (vec!["optimizer.momentum=0.8"], ConstantRate),
        (vec!["optimizer.decay_factor=0.999"], ConstantRate),
        (vec!["training.epochs=5"], ConstantRate),
        (vec!["optimizer.final_fraction=0.1"], Schedule),
        (vec!["optimizer.final_fraction=0.2"], ConstantRate),
        (vec![cooled], Schedule),
        (vec![cooled, "optimizer.cooldown_steps=200"], ConstantRate),
        (vec![cooled, "optimizer.cooldown_steps=201"], Schedule),
        (vec![cooled, "optimizer.cooldown_fraction=0.4"], ConstantRate),
        (vec![cooled, "optimizer.cooldown_fraction=0.5"], Schedule),
        (vec!["noise.method=aof", "noise.strategy_for=schedule"], Schedule),
        (vec!["privacy.sampling=balls-in-bins"], Schedule),
        (vec!["privacy.sampling=cyclic-poisson"], ConstantRate),
    ] {
        assert_eq!(strategy(&more), expected, "{more:?}");
    }
    // The claim, on a few of the plans that it was found by: no error is larger.
    let loss = |more: &[&str], strategy: &str| {
        let overrides = [long, more, &[strategy]].concat();
        let config = config("configs/textures.toml", &overrides).unwrap();
        plan::DpPlan::new(config.plan_request().unwrap()).unwrap().record().clone()
    };
    for more in [
        vec![],
        vec![cooled, "optimizer.cooldown_steps=201"],
        vec!["noise.bands=4"],
        vec!["privacy.sampling=balls-in-bins"],
    ] {
        let usual = loss(&more, "training.seed=0");
        let constant = loss(&more, "noise.strategy_for=constant-rate");
        assert!(usual.iterate_noise_std < constant.iterate_noise_std, "{more:?}");
        assert!(usual.final_iterate_noise_std < constant.final_iterate_noise_std, "{more:?}");
    }
    // Why cyclic Poisson batches are left out.
    let cyclic = [
        "privacy.sampling=cyclic-poisson",
        "noise.bands=1",
        "training.epochs=6",
        "training.batch_size=200",
        "privacy.epsilon=8",
        cooled,
        "optimizer.cooldown_fraction=0.948",
        "optimizer.final_fraction=0.1",
    ];
    let schedule = loss(&cyclic, "noise.strategy_for=schedule");
    let constant = loss(&cyclic, "noise.strategy_for=constant-rate");
    assert!(schedule.final_iterate_noise_std > 1.01 * constant.final_iterate_noise_std);
}

#[test]
fn the_best_bands_have_the_least_noise_and_depend_on_the_sampling() {
    let of = |more: &[&str]| {
        let overrides = [&["training.epochs=3", "privacy.epsilon=2"], more].concat();
        config("configs/textures.toml", &overrides).unwrap()
    };
    let noise = |config: &Config| {
        let plan = plan::DpPlan::new(config.plan_request().unwrap()).unwrap();
        plan.record().iterate_noise_std
    };
    let mut chosen = Vec::new();
    for more in [
        vec!["noise.method=bsr"],
        vec!["noise.method=bsr", "privacy.sampling=balls-in-bins"],
        vec!["noise.method=bisr", "privacy.sampling=balls-in-bins"],
        vec!["noise.method=bsr", "privacy.sampling=cyclic-poisson"],
    ] {
        let best = of(&[&more[..], &["noise.bands=best"]].concat());
        let bands = best.noise.as_ref().unwrap().bands.unwrap();
        for other in [1, 2, 4, 8, 16, 32] {
            let other = of(&[&more[..], &[&format!("noise.bands={other}")]].concat());
            assert!(noise(&best) <= noise(&other), "{more:?} {bands}");
        }
        chosen.push(bands);
    }
    assert!(chosen[1] < chosen[0], "{chosen:?}");
    // Sampling takes off more where bands are few: what is best without coins is not best with them.
    let verified = ["privacy.sampling=balls-in-bins", "privacy.accountant=verified"];
    let best = of(&[&verified[..], &["noise.bands=best"]].concat());
    let bands = best.noise.as_ref().unwrap().bands.unwrap();
    assert!(bands < chosen[1], "{bands} {chosen:?}");
    let (least, fewer, more) = (noise(&best), bands - 1, chosen[1]);
    for other in [fewer, more, 40] {
        let other = of(&[&verified[..], &[&format!("noise.bands={other}")]].concat());
        // Within what samples waver by.
        assert!(least <= 1.003 * noise(&other), "{bands}");
    }
    for method in ["aof", "identity"] {
        let word = refusal(
            "configs/textures.toml",
            &["noise.bands=best", &format!("noise.method={method}")],
        );
        assert!(word.contains("noise.bands") && word.contains(method), "{word}");
    }
    let word = refusal("configs/textures.toml", &["noise.bands=many"]);
    assert!(word.contains("bands"), "{word}");
}
