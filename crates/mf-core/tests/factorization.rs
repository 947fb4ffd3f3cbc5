//! Factorizations and losses against dense matrices.

mod dense;

use mf_core::factorization::triangular_root::banded_square_root;
use mf_core::{
    Factorization, LowerTriangular, Method, Participation, Sgd, Workload, loss, reference,
};
use mf_core::{Strategy as Root, series};
use proptest::prelude::*;

const PARAMETERS: [(f64, f64); 5] = [(1.0, 0.0), (1.0, 0.9), (0.999, 0.5), (0.99, 0.9), (0.5, 0.0)];

fn cosine(n: usize) -> Vec<f64> {
    (0..n).map(|i| 0.05 + 0.5 * (1.0 + (3.0 * i as f64 / n as f64).cos())).collect()
}

/// The three kinds of workload with the same dense reference beside each.
fn workloads(alpha: f64, beta: f64, n: usize) -> Vec<(Workload, dense::Dense)> {
    let sgd = Sgd::new(alpha, beta).unwrap();
    let constant = dense::sgd(alpha, beta, &vec![1.0; n]);
    let scheduled = dense::sgd(alpha, beta, &cosine(n));
    let matrix = LowerTriangular::from_fn(n, |i, j| scheduled[i][j]).unwrap();
    vec![
        (Workload::sgd(sgd, n).unwrap(), constant),
        (Workload::scheduled(sgd, cosine(n)).unwrap(), scheduled.clone()),
        (Workload::general(matrix), scheduled),
    ]
}

#[test]
fn workloads_are_the_unrolled_recurrence_and_their_inverse_has_three_diagonals() {
    for (alpha, beta) in PARAMETERS {
        for n in [1, 2, 3, 10, 33] {
            for (workload, expected) in workloads(alpha, beta, n) {
                assert!(dense::largest_difference(&dense::workload(&workload), &expected) < 1e-13);
                let diagonals = Root::banded(workload.diagonals(n).unwrap()).unwrap();
                assert!(dense::largest_difference(&dense::strategy(&diagonals), &expected) < 1e-13);
                let Some(inverse) = workload.inverse() else {
                    continue;
                };
                let inverse = dense::strategy(&Root::banded(inverse).unwrap());
                let exact = dense::inverse(&expected);
                assert!(dense::largest_difference(&inverse, &exact) < 1e-9, "n = {n}");
            }
        }
    }
}

#[test]
fn roots_square_to_the_workload() {
    for (alpha, beta) in PARAMETERS {
        for n in [1, 2, 7, 40] {
            for (workload, expected) in workloads(alpha, beta, n) {
                let root = Factorization::new(workload, Method::SquareRoot).unwrap();
                let c = dense::strategy(root.strategy());
                let difference = dense::largest_difference(&dense::product(&c, &c), &expected);
                assert!(difference < 1e-12, "alpha {alpha}, beta {beta}, n = {n}: {difference}");
            }
        }
    }
}

#[test]
fn the_numeric_root_is_the_closed_form_at_every_block_edge() {
    let sgd = Sgd::new(0.999, 0.9).unwrap();
    for n in [1, 63, 64, 65, 128, 200] {
        let workload = Workload::sgd(sgd, n).unwrap();
        for p in [1, 2, 63, 64, 65, 66, 129, n] {
            if p > n {
                continue;
            }
            let numeric = banded_square_root(&workload.diagonals(p).unwrap()).unwrap();
            let closed = Factorization::new(workload.clone(), Method::Bsr { bands: p }).unwrap();
            let numeric = dense::strategy(&Root::banded(numeric).unwrap());
            let closed = dense::strategy(closed.strategy());
            let difference = dense::largest_difference(&numeric, &closed);
            assert!(difference < 1e-13, "n = {n}, p = {p}: {difference}");
        }
    }
}

#[test]
fn the_banded_root_of_a_schedule_is_the_band_of_its_root() {
    let workload = Workload::scheduled(Sgd::new(1.0, 0.9).unwrap(), cosine(150)).unwrap();
    let full = Factorization::new(workload.clone(), Method::SquareRoot).unwrap();
    for p in [1, 10, 64, 100] {
        let banded = Factorization::new(workload.clone(), Method::Bsr { bands: p }).unwrap();
        for i in 0..150 {
            for (lag, c) in banded.strategy().row(i).iter().enumerate() {
                assert!((c - full.strategy().row(i)[lag]).abs() < 1e-13, "p = {p}, ({i}, -{lag})");
            }
        }
    }
}

#[test]
fn decoder_norms_are_those_of_the_dense_quotient() {
    for (alpha, beta) in PARAMETERS {
        for n in [1, 2, 5, 24] {
            for (workload, a) in workloads(alpha, beta, n) {
                let methods = [Method::Identity, Method::Input, Method::SquareRoot]
                    .into_iter()
                    .chain((1..=n).map(|bands| Method::Bsr { bands }));
                for method in methods {
                    let factorization = Factorization::new(workload.clone(), method).unwrap();
                    let c = dense::strategy(factorization.strategy());
                    let b = dense::product(&a, &dense::inverse(&c));
                    let rows: Vec<f64> =
                        b.iter().map(|row| row.iter().map(|x| x * x).sum()).collect();
                    let norms = factorization.decoder_norms().unwrap();
                    let close = |x: f64, y: f64| (x / y - 1.0).abs() < 1e-10;
                    assert!(close(norms.frobenius_squared, rows.iter().sum()), "{method:?}");
                    assert!(close(norms.max_row_squared, rows.iter().copied().fold(0.0, f64::max)));
                    assert!(close(norms.last_row_squared, rows[n - 1]));
                }
            }
        }
    }
}

#[test]
fn toeplitz_and_banded_paths_agree_on_a_long_workload() {
    for (alpha, beta) in PARAMETERS {
        let workload = Workload::sgd(Sgd::new(alpha, beta).unwrap(), 1500).unwrap();
        for bands in [1, 20, 200, 400] {
            let bsr = Factorization::new(workload.clone(), Method::Bsr { bands }).unwrap();
            let fast = bsr.decoder_norms().unwrap();
            let rows = Root::banded(bsr.strategy().to_rows().unwrap()).unwrap();
            let slow = loss::decoder_norms(&workload, &rows).unwrap();
            let ratio = fast.frobenius_squared / slow.frobenius_squared;
            assert!((ratio - 1.0).abs() < 1e-9, "alpha {alpha}, beta {beta}, p {bands}: {ratio}");
        }
    }
}

#[test]
fn the_first_coefficients_of_a_banded_decoder_are_those_of_the_proof_of_theorem_6() {
    let sgd = Sgd::new(0.999, 0.9).unwrap();
    let (n, p) = (1000, 300);
    let c = reference::square_root_coefficients(&sgd, 2 * p);
    let b = series::divide(&sgd.coefficients(n), &c[..p], n);
    for j in 0..2 * p {
        let expected = if j < p { c[j] } else { 2.0 * c[j] };
        assert!((b[j] / expected - 1.0).abs() < 1e-11, "j = {j}");
    }
}

proptest! {
    #[test]
    fn the_fast_expected_error_is_the_slow_one(
        alpha in prop_oneof![Just(1.0), 0.3_f64..1.0],
        gamma in prop_oneof![Just(0.0), 0.0_f64..0.99],
        n in 1_usize..400,
        p in 0.0_f64..1.0,
        b in 0.0_f64..1.0,
        k in 0.0_f64..1.0,
    ) {
        let pick = |most: usize, share: f64| 1 + ((most - 1) as f64 * share) as usize;
        let (bands, separation) = (pick(n, p), pick(n, b));
        let participations = pick(n.div_ceil(separation), k);
        let participation = Participation::new(n, separation, participations).unwrap();
        let sgd = Sgd::new(alpha, alpha * gamma).unwrap();
        let workload = Workload::sgd(sgd, n).unwrap();
        let input = reference::workload_coefficients(&sgd, n);
        let root = reference::square_root_coefficients(&sgd, n);
        for (method, c) in [
            (Method::Identity, &[1.0][..]),
            (Method::Input, &input),
            (Method::SquareRoot, &root),
            (Method::Bsr { bands }, &root[..bands]),
        ] {
            let fast = Factorization::new(workload.clone(), method).unwrap();
            let fast = fast.loss(&participation).unwrap().expected_error;
            let slow = reference::expected_error(&sgd, c, &participation);
            prop_assert!((fast / slow - 1.0).abs() < 1e-9, "{method}: {fast} against {slow}");
        }
    }
}
