//! The distribution of streamed noise: `Cov(Y) = (C^T C)^-1`.
//!
//! Coordinates are independent, so one run over many of them is a sample of their joint
//! distribution. Every entry of the sample covariance is compared with its expectation on the scale
//! of its own standard deviation. With the threshold of 6.5 standard deviations for each of at most
//! 500 numbers, a correct stream fails a test with probability below 500 x 8.1e-11 = 4e-8.

use dp_train::noise::NoiseStream;
use dp_train::seeds::{NoiseKey, RunSeed};
use mf_core::{Factorization, Method, Participation, Sgd, Strategy, Workload};

const DIM: usize = 400_000;
const THRESHOLD: f64 = 6.5;

fn strategy(method: Method, steps: usize) -> Strategy {
    let workload = Workload::sgd(Sgd::new(0.99, 0.5).unwrap(), steps).unwrap();
    let participation = Participation::new(steps, 4, 2).unwrap();
    let found = Factorization::for_participation(workload, method, &participation);
    found.unwrap().strategy().clone()
}

fn sample(strategy: &Strategy, scale: f64, seed: u64) -> Vec<Vec<f32>> {
    let key = NoiseKey::fixed(RunSeed(seed));
    let mut stream = NoiseStream::new(strategy.clone(), DIM, key).unwrap();
    let mut next = || {
        let mut row = vec![0.0; DIM];
        stream.add_next(scale, &mut row).unwrap();
        row.into_iter().map(|x: f64| x as f32).collect()
    };
    (0..strategy.steps()).map(|_| next()).collect()
}

/// `(C^T C)^-1 = C^-1 C^-T`, densely.
fn expected_covariance(c: &Strategy) -> Vec<Vec<f64>> {
    let n = c.steps();
    let mut inverse = vec![vec![0.0; n]; n];
    for i in 0..n {
        let row = c.row(i);
        for j in 0..=i {
            let known: f64 = (1..row.len()).map(|lag| row[lag] * inverse[i - lag][j]).sum();
            inverse[i][j] = (f64::from(u8::from(i == j)) - known) / row[0];
        }
    }
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum();
    (0..n).map(|i| (0..n).map(|j| dot(&inverse[i], &inverse[j])).collect()).collect()
}

/// The largest deviation of an entry of the sample covariance, in its standard deviations.
fn largest_deviation(rows: &[Vec<f32>], expected: &[Vec<f64>]) -> f64 {
    let mut largest = 0.0_f64;
    for i in 0..rows.len() {
        for j in 0..=i {
            let products = rows[i].iter().zip(&rows[j]).map(|(a, b)| f64::from(*a) * f64::from(*b));
            let measured = products.sum::<f64>() / DIM as f64;
            // Var(y_i y_j) of a centred normal pair.
            let variance = expected[i][i] * expected[j][j] + expected[i][j] * expected[i][j];
            let deviation = (measured - expected[i][j]) / (variance / DIM as f64).sqrt();
            largest = largest.max(deviation.abs());
        }
    }
    largest
}

#[test]
fn the_covariance_is_that_of_the_factorization() {
    for (seed, method, steps) in [
        (1, Method::Identity, 8),
        (2, Method::Bsr { bands: 4 }, 20),
        (3, Method::SquareRoot, 20),
        (4, Method::Input, 8),
        (8, Method::Aof { bands: 5, tolerance: 1e-4 }, 20),
        (9, Method::Aof { bands: 12, tolerance: 1e-4 }, 12),
        (10, Method::Bisr { bands: 4 }, 20),
        (11, Method::LambdaCgd { lambda: Some(0.8) }, 20),
        (12, Method::LambdaCgd { lambda: None }, 12),
        (13, Method::Toeplitz { bands: 4 }, 20),
        (14, Method::InverseToeplitz { bands: 5 }, 20),
        (15, Method::Blt { buffers: 2 }, 20),
        (16, Method::NormalizedSquareRoot { bands: 6 }, 20),
    ] {
        let c = strategy(method, steps);
        let expected = expected_covariance(&c);
        let deviation = largest_deviation(&sample(&c, 1.0, seed), &expected);
        assert!(deviation < THRESHOLD, "{method}: {deviation} standard deviations");
        println!("{method}: {deviation:.2}");
    }
}

#[test]
fn the_test_rejects_a_wrong_standard_deviation_even_one_percent_off() {
    let c = strategy(Method::Bsr { bands: 4 }, 8);
    let expected = expected_covariance(&c);
    for scale in [2.0 / 3.0, 1.5, 0.99, 1.01] {
        let deviation = largest_deviation(&sample(&c, scale, 5), &expected);
        assert!(deviation > THRESHOLD, "{scale}: {deviation} standard deviations");
    }
}

#[test]
fn the_test_rejects_the_covariance_of_another_strategy() {
    let sampled = sample(&strategy(Method::Bsr { bands: 4 }, 8), 1.0, 6);
    for other in [
        Method::Identity,
        Method::SquareRoot,
        Method::Bsr { bands: 3 },
        Method::Bisr { bands: 4 },
        Method::Toeplitz { bands: 4 },
    ] {
        let deviation = largest_deviation(&sampled, &expected_covariance(&strategy(other, 8)));
        assert!(deviation > THRESHOLD, "{other}: {deviation} standard deviations");
    }
}

#[test]
fn the_test_tells_the_parameters_of_one_method_apart() {
    let sampled = |method, seed| sample(&strategy(method, 8), 1.0, seed);
    let pairs = [
        (Method::Bisr { bands: 4 }, Method::Bisr { bands: 3 }),
        (Method::LambdaCgd { lambda: Some(0.8) }, Method::LambdaCgd { lambda: Some(0.77) }),
        (Method::Blt { buffers: 1 }, Method::LambdaCgd { lambda: Some(0.8) }),
    ];
    for (seed, (method, other)) in (20..).zip(pairs) {
        let expected = expected_covariance(&strategy(other, 8));
        let deviation = largest_deviation(&sampled(method, seed), &expected);
        assert!(deviation > THRESHOLD, "{method} and {other}: {deviation} standard deviations");
    }
}

#[test]
fn neighbouring_coordinates_are_independent_and_tails_are_normal() {
    let row = &sample(&Strategy::identity(1).unwrap(), 1.0, 7)[0];
    let n = row.len() as f64;
    for shift in [1, 2, 16, 1024] {
        let products = row.iter().zip(&row[shift..]).map(|(a, b)| f64::from(a * b));
        let deviation = products.sum::<f64>() / n.sqrt();
        assert!(deviation.abs() < THRESHOLD, "shift {shift}: {deviation}");
    }
    // Counts beyond x against n P(|z| > x); a Poisson count stays within 6.5 deviations plus 20.
    for (x, probability) in [(1.0, 0.31731), (2.0, 0.045500), (3.0, 0.0026998), (4.0, 6.3342e-5)] {
        let count = row.iter().filter(|z| z.abs() > x).count() as f64;
        let expected = n * probability;
        let slack = THRESHOLD * expected.sqrt() + 20.0;
        assert!((count - expected).abs() < slack, "|z| > {x}: {count}, expected {expected}");
    }
}
