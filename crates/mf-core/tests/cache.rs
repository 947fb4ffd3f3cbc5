//! The cache of solved factorizations: found again, and never believed when damaged.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use mf_core::factorization::aof::{Options, Progress};
use mf_core::factorization::cache::{Cache, Cached};
use mf_core::{Error, LowerTriangular, Sgd, Workload};
use sha2::{Digest, Sha256};

fn workload() -> Workload {
    Workload::sgd(Sgd::new(0.999, 0.9).unwrap(), 120).unwrap()
}

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn solve(cache: &Cache, workload: Workload, bands: usize, relative_gap: f64) -> Cached {
    let options = Options { relative_gap, ..Options::default() };
    cache.aof(workload, bands, &options, &mut go_on).unwrap()
}

fn only_file(folder: &Path) -> PathBuf {
    let mut files = fs::read_dir(folder).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none(), "one entry, no temporary file");
    file
}

#[test]
fn a_solution_is_stored_once_and_found_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().join("made/on/demand"));
    let solved = solve(&cache, workload(), 20, 1e-5);
    assert!(!solved.found && solved.warning.is_none());
    only_file(&folder.path().join("made/on/demand"));
    let found = solve(&cache, workload(), 20, 1e-5);
    assert!(found.found && found.warning.is_none());
    assert_eq!(found.factorization, solved.factorization);
    assert_eq!(found.factorization.certificate(), solved.factorization.certificate());
}

#[test]
fn every_part_of_the_key_tells_problems_apart() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path());
    solve(&cache, workload(), 20, 1e-4);
    let sgd = |alpha, beta| Sgd::new(alpha, beta).unwrap();
    let others = [
        solve(&cache, workload(), 21, 1e-4),
        solve(&cache, workload(), 20, 1e-5),
        solve(&cache, Workload::sgd(sgd(0.999, 0.9), 121).unwrap(), 20, 1e-4),
        solve(&cache, Workload::sgd(sgd(1.0, 0.9), 120).unwrap(), 20, 1e-4),
        solve(&cache, Workload::sgd(sgd(0.999, 0.8), 120).unwrap(), 20, 1e-4),
        solve(&cache, Workload::scheduled(sgd(0.999, 0.9), vec![0.5; 120]).unwrap(), 20, 1e-4),
        solve(&cache, Workload::scheduled(sgd(0.999, 0.9), vec![0.6; 120]).unwrap(), 20, 1e-4),
    ];
    assert!(others.iter().all(|other| !other.found));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 8);
}

#[test]
fn a_damaged_entry_is_reported_and_solved_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path());
    let solved = solve(&cache, workload(), 20, 1e-4);
    let path = only_file(folder.path());
    let whole = fs::read(&path).unwrap();
    let mut damages: Vec<(String, Vec<u8>)> = Vec::new();
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        damages.push((format!("a bit of byte {at} flipped"), flipped));
        damages.push((format!("cut after {at} bytes"), whole[..at].to_vec()));
    }
    let mut longer = whole.clone();
    longer.push(0);
    damages.push(("one byte more".into(), longer));
    for (damage, bytes) in damages {
        fs::write(&path, bytes).unwrap();
        let again = solve(&cache, workload(), 20, 1e-4);
        let warning = again.warning.unwrap_or_else(|| panic!("{damage}: not reported"));
        assert!(warning.contains(&path.display().to_string()), "{damage}: {warning}");
        assert!(!again.found, "{damage}");
        assert_eq!(again.factorization.strategy(), solved.factorization.strategy(), "{damage}");
        assert_eq!(fs::read(&path).unwrap(), whole, "{damage}: not replaced");
    }
}

#[test]
fn an_entry_that_contradicts_itself_is_not_believed_though_its_checksum_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path());
    let solved = solve(&cache, workload(), 20, 1e-4);
    let path = only_file(folder.path());
    let whole = fs::read(&path).unwrap();
    let content = &whole[..whole.len() - 32];
    let last = content.len() - 8;
    let with_last = |x: f64| [&content[..last], &x.to_le_bytes()].concat();
    let swapped = |from: &str, to: &str| {
        let at = content.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
        let length = u64::from_le_bytes(*content[16..].first_chunk().unwrap());
        let length = length + to.len() as u64 - from.len() as u64;
        let (head, rest) = (&content[24..at], &content[at + from.len()..]);
        [&content[..16], &length.to_le_bytes(), head, to.as_bytes(), rest].concat()
    };
    let entry = solved.factorization.strategy().row(119)[19];
    let forgeries = [
        ("unit norm", with_last(entry + 0.1)),
        ("not that of its rows", with_last(-entry)),
        ("contradicts itself", swapped("\"relative_gap\":", "\"relative_gap\":9")),
        ("contradicts itself", swapped("\"lower_bound\":", "\"lower_bound\":9")),
    ];
    for (reason, forged) in forgeries {
        let digest = Sha256::digest(&forged);
        fs::write(&path, [&forged[..], &digest[..]].concat()).unwrap();
        let again = solve(&cache, workload(), 20, 1e-4);
        let warning = again.warning.unwrap_or_else(|| panic!("{reason}: not reported"));
        assert!(!again.found && warning.contains(reason), "{warning}");
        assert_eq!(fs::read(&path).unwrap(), whole, "{reason}: not replaced");
    }
}

#[test]
fn an_entry_under_another_name_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path());
    solve(&cache, workload(), 20, 1e-4);
    let first = only_file(folder.path());
    solve(&cache, workload(), 21, 1e-4);
    let is_second = |path: &PathBuf| *path != first;
    let second = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).find(is_second);
    fs::copy(second.unwrap(), &first).unwrap();
    let again = solve(&cache, workload(), 20, 1e-4);
    assert!(again.warning.unwrap().contains("another problem"));
}

#[test]
fn a_solution_that_did_not_converge_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path());
    let options = Options { relative_gap: 1e-8, max_iterations: 1, ..Options::default() };
    let cached = cache.aof(workload(), 20, &options, &mut go_on).unwrap();
    assert!(!cached.factorization.certificate().unwrap().converged);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn trouble_with_the_disk_costs_the_entry_and_not_the_solution() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("file");
    fs::write(&in_the_way, "not a folder").unwrap();
    let cached = solve(&Cache::new(in_the_way.join("cache")), workload(), 20, 1e-4);
    assert!(cached.warning.is_some() && cached.factorization.certificate().unwrap().converged);
}

#[test]
fn a_general_workload_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let general = Workload::general(LowerTriangular::from_fn(5, |_, _| 1.0).unwrap());
    let outcome = Cache::new(folder.path()).aof(general, 2, &Options::default(), &mut go_on);
    assert_eq!(outcome.unwrap_err(), Error::NotSgd { method: "aof" });
}
