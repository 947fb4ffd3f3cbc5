//! What the closed forms cost as `n` grows, beside the evaluation from the definitions in the same run.
//!
//! `cargo bench -p mf-core --bench closed_form`. Groups:
//! * `coefficients`: the square root's first `p` coefficients, recurrence against double sum;
//! * `expected_error`: BSR with `p = b = 100`, and the full square root, against the O(n^2) sums;
//! * `quotient`: `A C^-1` around the number of bands where substitution gives way to transforms.
//!
//! Two lines at the end fit the exponents of `seconds ~ n^x` from one more timing of each.

#![allow(missing_docs, reason = "criterion_group! makes undocumented functions")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use mf_core::factorization::bsr;
use mf_core::{Factorization, Method, Participation, Sgd, Workload, reference, series};

fn sgd() -> Sgd {
    Sgd::new(0.999, 0.9).expect("in the domain")
}

fn fast_error(method: Method, n: usize, b: usize) -> f64 {
    let workload = Workload::sgd(sgd(), n).expect("n > 0");
    let participation = Participation::new(n, b, n / b).expect("b divides n");
    let factorization = Factorization::new(workload, method).expect("p <= n");
    factorization.loss(&participation).expect("sizes agree").expected_error
}

fn slow_error(n: usize, b: usize) -> f64 {
    let participation = Participation::new(n, b, n / b).expect("b divides n");
    reference::expected_error(
        &sgd(),
        &reference::square_root_coefficients(&sgd(), b),
        &participation,
    )
}

fn coefficients(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("coefficients");
    group.sample_size(10).measurement_time(Duration::from_secs(1));
    for p in [1_000, 10_000, 100_000, 1_000_000] {
        let fast = |bench: &mut criterion::Bencher<'_>, &p: &usize| {
            bench.iter(|| bsr::coefficients(&sgd(), black_box(p)));
        };
        group.bench_with_input(BenchmarkId::new("recurrence", p), &p, fast);
        if p <= 10_000 {
            let slow = |bench: &mut criterion::Bencher<'_>, &p: &usize| {
                bench.iter(|| reference::square_root_coefficients(&sgd(), black_box(p)));
            };
            group.bench_with_input(BenchmarkId::new("double_sum", p), &p, slow);
        }
    }
}

fn expected_error(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("expected_error");
    group.sample_size(10).measurement_time(Duration::from_secs(1));
    for n in [1_000, 10_000, 100_000, 1_000_000] {
        let bsr = Method::Bsr { bands: 100 };
        group.bench_function(BenchmarkId::new("bsr_100", n), |bench| {
            bench.iter(|| fast_error(bsr, black_box(n), 100));
        });
        group.bench_function(BenchmarkId::new("square_root", n), |bench| {
            bench.iter(|| fast_error(Method::SquareRoot, black_box(n), n));
        });
        if n <= 10_000 {
            group.bench_function(BenchmarkId::new("definition_100", n), |bench| {
                bench.iter(|| slow_error(black_box(n), 100));
            });
        }
    }
    group.finish();
    let seconds = |evaluate: &dyn Fn() -> f64| {
        let start = Instant::now();
        black_box(evaluate());
        start.elapsed().as_secs_f64()
    };
    let line = |name: &str, small: usize, large: usize, evaluate: &dyn Fn(usize) -> f64| {
        let (few, many) = (seconds(&|| evaluate(small)), seconds(&|| evaluate(large)));
        let exponent = (many / few).ln() / (large as f64 / small as f64).ln();
        println!(
            "{name}: {few:.2e} s at n = {small}, {many:.2e} s at n = {large}: n^{exponent:.2}"
        );
    };
    let bsr = Method::Bsr { bands: 100 };
    line("bsr, p = 100", 10_000, 1_000_000, &|n| fast_error(bsr, n, 100));
    line("square root", 10_000, 1_000_000, &|n| fast_error(Method::SquareRoot, n, n));
    line("definition, p = 100", 1_000, 10_000, &|n| slow_error(n, 100));
    let ratio = seconds(&|| slow_error(10_000, 100)) / seconds(&|| fast_error(bsr, 10_000, 100));
    println!("definition / bsr at n = 10000: {ratio:.0} times the time");
}

fn quotient(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("quotient");
    group.sample_size(10).measurement_time(Duration::from_secs(1));
    let n = 100_000;
    let a = sgd().coefficients(n);
    for p in [64, 128, 192, 193, 256, 1024] {
        let c = bsr::coefficients(&sgd(), p);
        group.bench_function(BenchmarkId::new("divide", p), |bench| {
            bench.iter(|| series::divide(&a, black_box(&c), n));
        });
    }
}

criterion_group!(benches, coefficients, expected_error, quotient);
criterion_main!(benches);
