//! Damaged configs and overrides: refused by their key, or experiments that survive their own file.

use std::path::Path;

use toml::Table;

use super::Config;
use super::file::{apply, check, parse};
use crate::fuzz::{Kind, Target};

/// Not there: nothing here reads a file.
const PATH: &str = "damaged.toml";

fn configs() -> Vec<String> {
    let own = "[data]\nname = 'fashion-mnist'\n[data.augmentation]\ncrop_padding = 2\npadding = 'reflect'\nflip = true\n\
        [model]\nname = 'own'\nlayers = [{ layer = 'conv2d', in_channels = 1, out_channels = 4, \
        kernel = 3, stride = 2, padding = 1 }, { layer = 'group_norm', groups = 2 },\n\
        { layer = 'max_pool2d', kernel = 2, stride = 2 }, { layer = 'flatten' },\n\
        { layer = 'linear', in_features = 196, out_features = 10 }]\n[privacy]\nepsilon = 2.0\n\
        delta = 1e-6\nclip_norm = 0.5\nneighbouring = 'replace-one'\nnoise_seed = 3\n\
        [noise]\nmethod = 'bisr'\nbands = 5\nkeep_rows = 2\n[optimizer]\nlearning_rate = 0.5\n\
        schedule = 'linear-cooldown'\ncooldown_steps = 20\nfinal_fraction = 0.1\n\
        decay_factor = 0.999\n[training]\nepochs = 3\nbatch_size = 600\nseed = 4\naverage = { kind = 'ema', decay = 0.99 }\n\
        [evaluation]\nmirror = true\nevery = 2\n";
    let open = "privacy = 'none'\n[data]\nname = 'textures'\nexamples = 900\ntest_examples = 90\n\
        validation = 0.25\n[model]\nname = 'convnet-tanh'\n[optimizer]\nlearning_rate = 0.1\n\
        clip_norm = 2.0\nschedule = 'cosine'\n[training]\nepochs = 2\nbatch_size = 32\n\
        checkpoint_steps = 7\n[engine]\nthreads = 1\nmicrobatch = 8\nconvolution = 'direct'\n";
    let csv = "[data]\nname = 'csv'\nexamples = 900\ntest_share = 0.25\nclasses = ['no', 'yes']\n\
        columns = ['age', 'height']\nlabel = 'ill'\noffset = [40, 170.5]\nscale = 20\n\
        train_table = 'a.csv'\n[model]\nname = 'own'\nlayers = [{ layer = 'linear', in_features = 2, \
        out_features = 2 }]\n[privacy]\nepsilon = 2.0\ndelta = 1e-6\nclip_norm = 0.5\n[noise]\n\
        method = 'identity'\n[optimizer]\nlearning_rate = 0.5\n[training]\nepochs = 3\nbatch_size = 60\n";
    let npy = "privacy = 'none'\n[data]\nname = 'npy'\nexamples = 600\nclasses = 300\nsize = [16, 24]\n\
        channels = 3\nlayout = 'nhwc'\ndtype = 'f32'\nscale = [0.2, 0.3, 0.4]\n\
        train_images = 'a.npz:x'\n[model]\nname = 'convnet'\n[optimizer]\nlearning_rate = 0.1\n\
        [training]\nepochs = 2\nbatch_size = 32\n";
    let features = "[data]\nname = 'textures'\nexamples = 900\nfeatures = { kind = 'scattering', \
        scales = 3, angles = 4 }\naugmentation = { flip = true }\n[model]\nname = 'own'\nlayers = [\
        { layer = 'flatten' }, { layer = 'linear', in_features = 2928, out_features = 10 }]\n\
        [privacy]\nepsilon = 2.0\ndelta = 1e-6\nclip_norm = 0.5\n[noise]\nmethod = 'bsr'\n\
        [optimizer]\nlearning_rate = 0.5\n[training]\nepochs = 3\nbatch_size = 60\n";
    let textures = include_str!("../../../../configs/textures.toml");
    [textures, own, open, csv, npy, features].map(String::from).into()
}

/// The config of a table, if it can be run.
fn runnable(mut table: Table) -> Option<Config> {
    table.remove("extends");
    check(table, Path::new(PATH)).ok().filter(|config| config.check().is_ok())
}

/// Whether a config is the same after it was written and read.
fn survives(config: &Config) -> Result<bool, String> {
    let text = toml::to_string_pretty(config).map_err(|error| error.to_string())?;
    let again = parse(&text, Path::new(PATH)).map_err(|error| error.to_string())?;
    let again = runnable(again).ok_or("its own file is refused")?;
    // By what it prints: not a number is not equal to itself.
    let same = format!("{config:?}") == format!("{again:?}");
    if same { Ok(true) } else { Err(format!("{config:?} became {again:?}")) }
}

#[test]
fn a_damaged_config_is_refused_or_survives_its_own_file() {
    let target = Target {
        name: "config",
        kind: Kind::Text,
        corpus: configs().into_iter().map(String::into_bytes).collect(),
        inputs: 5000,
        cost: 1,
        // A schedule of the longest run, and its neighbour while it is compared.
        most_bytes: 64 << 20,
    };
    target.run(|input| {
        let table = match parse(&input.text(), Path::new(PATH)) {
            Ok(table) => table,
            Err(error) if error.to_string().starts_with(PATH) => return Ok(false),
            Err(error) => return Err(format!("the refusal does not name the file: {error}")),
        };
        runnable(table).map_or(Ok(false), |config| survives(&config))
    });
}

#[test]
fn a_damaged_override_is_refused_or_survives_its_own_file() {
    let base = parse(&configs()[0], Path::new(PATH)).unwrap();
    let overrides = [
        "training.epochs=7",
        "noise.method=aof",
        "privacy=none",
        "optimizer.learning_rate = 0.25",
        "data.augmentation.flip=true",
        "data={name='textures', examples=500}",
        "noise={method='bisr', bands=3}",
        "engine.device=\"cpu\"",
        "privacy.neighbouring=zero-out",
        "training.average={kind='tail', from=0.75}",
        "evaluation.every=3",
    ];
    let target = Target {
        name: "set",
        kind: Kind::Text,
        corpus: overrides.map(|text| text.as_bytes().to_vec()).into(),
        inputs: 5000,
        cost: 1,
        most_bytes: 64 << 20,
    };
    target.run(|input| {
        let mut table = base.clone();
        match apply(&mut table, &input.text()) {
            Ok(()) => runnable(table).map_or(Ok(false), |config| survives(&config)),
            Err(error) if error.to_string().contains("--set") => Ok(false),
            Err(error) => Err(format!("the refusal does not name the flag: {error}")),
        }
    });
}
