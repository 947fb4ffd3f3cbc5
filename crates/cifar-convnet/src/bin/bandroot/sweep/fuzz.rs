//! Damaged sweeps: refused, or every cell of them is a config that can be run.

use std::collections::BTreeMap;
use std::path::Path;

use super::selection::Search;
use super::spec::Spec;
use crate::fuzz::{Kind, Target};
use cifar_convnet::config;

#[test]
fn a_damaged_sweep_is_refused_or_every_cell_can_be_run() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let base = repository.join("configs/textures.toml");
    let base = config::file::read_table(&base, &[]).unwrap();
    let search = "base = 'base.toml'\n[grid]\n'privacy.epsilon' = [8.0, 4.0]\n\
        'noise.method' = ['bsr', 'identity']\n'training.epochs' = [2]\n\
        [select]\nby = ['privacy.epsilon']\nvalidation = 0.2\nseeds = [0, 1]\n\
        [halving]\nepochs = [1]\nkeep = 0.33\n";
    let plain = "base = 'base.toml'\nseeds = [0, 4]\n[grid]\n'noise.method' = ['bsr', 'sqrt']\n\
        optimizer.learning_rate = [0.1, 1]\noptimizer.schedule = ['cosine']\n";
    let random = "base = 'base.toml'\n[[candidates]]\n'optimizer.learning_rate' = 0.3\n\
        optimizer.momentum = 0.5\n[random]\nsamples = 3\nseed = 2\n[random.ranges]\n\
        'optimizer.learning_rate' = { from = 0.05, to = 2.0, scale = 'log' }\n\
        'training.batch_size' = { from = 100, to = 500 }\n'noise.method' = ['bsr', 'identity']\n\
        [select]\nseeds = [0]\nscale_rate = 1.25\n[halving]\nepochs = [1, 3]\nkeep = 0.5\n\
        [slurm]\ntasks = 4\ntime = '04:00:00'\noptions = ['--nice']\n";
    let target = Target {
        name: "sweep",
        kind: Kind::Text,
        corpus: vec![search.into(), plain.into(), random.into()],
        inputs: 1000,
        cost: 4,
        most_bytes: 64 << 20,
    };
    target.run(|input| {
        let path = Path::new("damaged.toml");
        let text = input.text();
        let spec = match Spec::parse(path, &text, |_| Ok(base.clone())) {
            Ok(spec) => spec,
            Err(error) if format!("{error:#}").contains("damaged.toml") => return Ok(false),
            Err(error) => return Err(format!("the refusal does not name the file: {error:#}")),
        };
        let cells = spec
            .cells(&BTreeMap::new())
            .map_err(|error| format!("a cell is refused: {error:#}"))?;
        let configs = cells.iter().all(|cell| cell.config.check().is_ok() && cell.toml().is_ok());
        let searched = spec.select.as_ref().map(|_| Search::new(&spec, &BTreeMap::new()));
        // A search may be refused, by the share that it holds out.
        drop(searched);
        if configs { Ok(true) } else { Err("a cell cannot be run".into()) }
    });
}
