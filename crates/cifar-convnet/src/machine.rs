//! The machine that this process runs on, as far as the system tells.

use std::env;
use std::fs;

/// Its name in the network.
pub fn host() -> Option<String> {
    kernel("hostname")
}

/// A name of the time since it was switched on, all over the world but for clones of one image.
pub fn boot() -> Option<String> {
    kernel("random/boot_id")
}

fn kernel(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The processors that Slurm gave to this process, unless `RAYON_NUM_THREADS` says how many threads to use. Where no plug-in
/// binds a job to its processors it sees all of them, and as many threads would take those of other jobs.
pub fn allotted_threads() -> Option<usize> {
    if env::var_os("RAYON_NUM_THREADS").is_some() {
        return None;
    }
    let threads = env::var("SLURM_CPUS_PER_TASK").ok()?.parse().ok()?;
    (1..=MOST_THREADS).contains(&threads).then_some(threads)
}

/// More is no number of processors, but a mistake.
const MOST_THREADS: usize = 1024;
