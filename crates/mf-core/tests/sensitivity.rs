//! Sensitivities against brute force over all sets of steps.

mod dense;

use mf_core::sensitivity::{self, Method};
use mf_core::{BandedLower, Participation, Sgd, Strategy as Matrix};
use proptest::prelude::*;

/// All patterns for `n` steps.
fn patterns(n: usize) -> impl Iterator<Item = Participation> {
    (1..=n)
        .flat_map(move |b| (1..=n.div_ceil(b)).map(move |k| Participation::new(n, b, k).unwrap()))
}

/// Checks one matrix in all patterns; exact values must be attained, bounds must not be exceeded.
/// Returns the methods that were used.
fn check(matrix: &Matrix) -> Vec<Method> {
    let c = dense::strategy(matrix);
    patterns(matrix.steps())
        .map(|pattern| {
            let found = sensitivity::of(matrix, &pattern).unwrap();
            let worst = dense::sensitivity(&c, &pattern);
            let slack = 1e-12 * worst;
            assert!(found.value >= worst - slack, "{found:?} below {worst} for {pattern:?}: {c:?}");
            if found.exact {
                assert!(
                    found.value <= worst + slack,
                    "{found:?} above {worst}, {pattern:?}: {c:?}"
                );
            }
            found.method
        })
        .collect()
}

#[test]
fn roots_baselines_and_bands_are_exact_for_every_pattern() {
    for (alpha, beta) in [(1.0, 0.0), (1.0, 0.9), (0.99, 0.9), (0.9, 0.8), (0.5, 0.1)] {
        let sgd = Sgd::new(alpha, beta).unwrap();
        for n in 1..=10 {
            let root = mf_core::factorization::bsr::coefficients(&sgd, n);
            for p in 1..=n {
                let methods = check(&Matrix::toeplitz(n, root[..p].to_vec()).unwrap());
                assert!(!methods.contains(&Method::UnimodalMajorant));
            }
            let input = Matrix::toeplitz(n, sgd.coefficients(n)).unwrap();
            assert!(!check(&input).contains(&Method::UnimodalMajorant), "a_j rises, then falls");
        }
    }
}

#[test]
fn a_pattern_for_other_steps_is_refused() {
    let identity = Matrix::identity(5).unwrap();
    assert!(sensitivity::of(&identity, &Participation::single(4).unwrap()).is_err());
}

#[test]
fn a_sequence_that_falls_and_rises_is_only_bounded() {
    // Two far apart peaks: participating at distance 3 is worse than at distance 2 from the left.
    let matrix = Matrix::toeplitz(8, vec![1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
    let pattern = Participation::new(8, 2, 2).unwrap();
    let found = sensitivity::of(&matrix, &pattern).unwrap();
    assert_eq!((found.exact, found.method), (false, Method::UnimodalMajorant));
    assert!(found.value > dense::sensitivity(&dense::strategy(&matrix), &pattern));
}

#[test]
fn long_patterns_with_few_participations_agree_with_adding_the_columns() {
    let sgd = Sgd::new(0.999, 0.9).unwrap();
    for (n, b, k) in [(1000, 7, 20), (1000, 1, 1000), (1003, 100, 11), (500, 100, 2), (64, 9, 3)] {
        let pattern = Participation::new(n, b, k).unwrap();
        for c in [sgd.coefficients(n), mf_core::factorization::bsr::coefficients(&sgd, n / 2)] {
            let slow = mf_core::reference::leftmost_sensitivity(&c, &pattern);
            let fast = sensitivity::of(&Matrix::toeplitz(n, c).unwrap(), &pattern).unwrap().value;
            assert!((fast / slow - 1.0).abs() < 1e-12, "n {n}, b {b}, k {k}: {fast} and {slow}");
        }
    }
}

/// A sequence that rises to a random peak and falls from there, with ties.
fn unimodal() -> impl Strategy<Value = Vec<f64>> {
    (prop::collection::vec(0_u8..6, 1..10), any::<prop::sample::Index>()).prop_map(|(steps, at)| {
        let mut c: Vec<f64> = steps.iter().map(|&s| f64::from(s)).collect();
        c.sort_by(f64::total_cmp);
        let peak = at.index(c.len());
        c[peak..].reverse();
        c[0] += 0.5;
        let least = c[0];
        c[..=peak].iter_mut().for_each(|x| *x = x.max(least));
        c
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn rising_then_falling_toeplitz_matrices_are_exact(c in unimodal()) {
        let methods = check(&Matrix::toeplitz(c.len(), c.clone()).unwrap());
        prop_assert!(!methods.contains(&Method::UnimodalMajorant), "{:?}", c);
    }

    #[test]
    fn any_toeplitz_matrix_is_bounded(mut c in prop::collection::vec(-1.0_f64..1.0, 1..9)) {
        c[0] = c[0].abs() + 0.1;
        check(&Matrix::toeplitz(c.len(), c).unwrap());
    }

    #[test]
    fn any_banded_matrix_is_bounded_and_exact_where_columns_are_disjoint(
        entries in prop::collection::vec(-1.0_f64..1.0, 64),
        p in 1_usize..=8,
    ) {
        let mut rows = BandedLower::from_entries(8, p, entries[..8 * p].to_vec()).unwrap();
        for i in 0..8 {
            rows.row_mut(i)[0] = rows.row(i)[0].abs() + 0.1;
        }
        let methods = check(&Matrix::banded(rows).unwrap());
        for (pattern, method) in patterns(8).zip(methods) {
            let disjoint = p <= pattern.min_separation() || pattern.max_participations() == 1;
            prop_assert_eq!(method == Method::DisjointColumns, disjoint);
        }
    }
}
