//! Time to a certified gap against the number of steps.
//!
//! `cargo bench -p mf-core --bench aof -- [largest n] [relative gap] [alpha] [beta]`, `b = 100`. Prints one line per size,
//! the exponent fitted to time over n between neighbouring sizes, and the cost of an iteration with
//! one and two threads.

use std::ops::ControlFlow;
use std::time::Instant;

use mf_core::factorization::aof::{Options, Start, solve};
use mf_core::{BandedLower, Sgd, Workload};

const BANDS: usize = 100;

fn inverse_workload(n: usize, alpha: f64, beta: f64) -> BandedLower {
    let sgd = Sgd::new(alpha, beta).expect("0 <= beta < alpha <= 1");
    let workload = Workload::sgd(sgd, n).expect("n > 0");
    workload.inverse().expect("SGD has a banded inverse")
}

/// Seconds per iteration of the last problem alone, from a warm start, over a few iterations.
fn seconds_per_iteration(inverse: &BandedLower, threads: usize) -> f64 {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
    let options = Options { relative_gap: 1e-9, max_iterations: 4, ..Options::default() };
    let mut start = BandedLower::zeros(inverse.steps(), BANDS).expect("BANDS <= n");
    (0..inverse.steps()).for_each(|i| start.row_mut(i)[0] = 1.0);
    let mut marks = Vec::new();
    pool.install(|| {
        let _ = solve(inverse, BANDS, &options, Start::Warm(&start), &mut |_| {
            marks.push(Instant::now());
            ControlFlow::Continue(())
        });
    });
    // The last report comes after the final certificate.
    let last = marks.len() - 2;
    (marks[last] - marks[0]).as_secs_f64() / last as f64
}

/// The slope of `log t` over `log n`, leaving out sizes where start-up dominates.
fn exponent(times: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> =
        times.iter().filter(|(n, _)| *n >= 500.0).map(|(n, t)| (n.ln(), t.ln())).collect();
    let count = logs.len() as f64;
    let mean = |part: fn(&(f64, f64)) -> f64| logs.iter().map(part).sum::<f64>() / count;
    let (x, y) = (mean(|log| log.0), mean(|log| log.1));
    let covariance: f64 = logs.iter().map(|log| (log.0 - x) * (log.1 - y)).sum();
    covariance / logs.iter().map(|log| (log.0 - x).powi(2)).sum::<f64>()
}

fn main() {
    let numbers: Vec<f64> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let argument = |place: usize, default: f64| numbers.get(place).copied().unwrap_or(default);
    let (largest, relative_gap) = (argument(0, 5000.0) as usize, argument(1, 1e-4));
    let (alpha, beta) = (argument(2, 1.0), argument(3, 0.9));
    println!("alpha {alpha}, beta {beta}, b {BANDS}, requested gap {relative_gap:e}");
    println!(
        "{:>7} {:>14} {:>10} {:>11} {:>9} {:>9} {:>9}",
        "n", "error", "gap", "iterations", "evals", "seconds", "exponent"
    );
    let mut times: Vec<(f64, f64)> = Vec::new();
    for n in [100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000] {
        if n > largest {
            break;
        }
        let inverse = inverse_workload(n, alpha, beta);
        let options = Options { relative_gap, ..Options::default() };
        let begin = Instant::now();
        match solve(&inverse, BANDS, &options, Start::Cold, &mut |_| ControlFlow::Continue(())) {
            Ok(solution) => {
                let seconds = begin.elapsed().as_secs_f64();
                let exponent = times
                    .last()
                    .map_or(f64::NAN, |(m, t)| (seconds / t).ln() / (n as f64 / m).ln());
                let c = &solution.certificate;
                println!(
                    "{n:>7} {:>14.6} {:>10.2e} {:>11} {:>9} {seconds:>9.2} {exponent:>9.2}{}",
                    c.expected_error(n, n / BANDS),
                    c.relative_gap,
                    c.iterations,
                    c.evaluations,
                    if c.converged { "" } else { "  not converged" },
                );
                times.push((n as f64, seconds));
            }
            Err(error) => println!("{n:>7} {error}"),
        }
    }
    println!("seconds ~ n^{:.2}, least squares over n >= 500", exponent(&times));
    for n in [1000, 10_000] {
        if n <= largest.max(1000) {
            let inverse = inverse_workload(n, alpha, beta);
            let times = [1, 2].map(|threads| 1e3 * seconds_per_iteration(&inverse, threads));
            println!(
                "n {n}: {:.1} ms per iteration on one thread, {:.1} on two",
                times[0], times[1]
            );
        }
    }
}
