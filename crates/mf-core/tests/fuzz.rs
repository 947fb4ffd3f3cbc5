//! Damaged entries of the cache: refused, or what was stored.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use mf_core::factorization::aof::Options;
use mf_core::factorization::cache::{Cache, Cached};
use mf_core::{Factorization, Sgd, Workload};

mod fuzzing;

use fuzzing::{Kind, Target};

const STEPS: usize = 12;

fn workload() -> Workload {
    Workload::sgd(Sgd::new(0.999, 0.9).unwrap(), STEPS).unwrap()
}

/// The bands of the problems: one of the descent, one of the fixed point.
const BANDS: [usize; 2] = [3, STEPS];

fn solve(cache: &Cache, bands: usize, end: ControlFlow<()>) -> Cached {
    let options = Options { relative_gap: 1e-4, ..Options::default() };
    cache.aof(workload(), bands, &options, &mut |_| end).unwrap()
}

/// A folder in memory where there is one: every input is a file.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.unwrap()
}

#[test]
fn a_damaged_cache_entry_is_refused_or_the_same_factorization() {
    let (mut corpus, mut paths, mut solved) = (Vec::new(), Vec::new(), Vec::new());
    let folders = BANDS.map(|_| folder());
    for (folder, bands) in folders.iter().zip(BANDS) {
        let cached = solve(&Cache::new(folder.path()), bands, ControlFlow::Continue(()));
        let path = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        corpus.push(fs::read(&path).unwrap());
        paths.push(path);
        solved.push(cached.factorization);
    }
    let target = Target {
        name: "cache",
        kind: Kind::Binary,
        corpus,
        inputs: 5000,
        cost: 4,
        most_bytes: 1 << 20,
    };
    target.run(|input| {
        let (bands, honest) = (BANDS[input.honest], &solved[input.honest]);
        fs::write(&paths[input.honest], input.bytes).unwrap();
        // An entry that is refused is solved again, and that is ended at once.
        let cached =
            solve(&Cache::new(folders[input.honest].path()), bands, ControlFlow::Break(()));
        match cached.found {
            false if cached.warning.is_none() => Err("it was refused without a word".into()),
            false => Ok(false),
            true if cached.factorization == *honest => Ok(true),
            // Whoever makes the checksum right can write what the certificate is true of.
            true if input.resealed && is_near(&cached.factorization, honest) => Ok(true),
            true => Err(format!("another factorization: {:?}", cached.factorization)),
        }
    });
}

/// The same rows and the same certificate up to what no check of the objective can see, which is flat at the
/// optimum: within the tolerance of the solver.
fn is_near(found: &Factorization, honest: &Factorization) -> bool {
    let near = |x: f64, y: f64, most: f64| (x - y).abs() <= most;
    let rows = (0..STEPS).all(|i| {
        let pairs = found.strategy().row(i).iter().zip(honest.strategy().row(i));
        pairs.into_iter().all(|(x, y)| near(*x, *y, 0.05))
    });
    let (Some(one), Some(two)) = (found.certificate(), honest.certificate()) else { return false };
    rows && near(one.objective, two.objective, 1e-3 * two.objective)
        && near(one.lower_bound, two.lower_bound, 1e-3 * two.objective)
        && one.relative_gap <= 1e-4
        && one.converged
}
