//! The theorems' bounds against exact errors over a grid.

use mf_core::{Factorization, Method, Participation, Sgd, Workload, bounds};

const GRID: [(f64, f64); 10] = [
    (1.0, 0.0),
    (1.0, 0.5),
    (1.0, 0.9),
    (0.9999, 0.0),
    (0.9999, 0.9),
    (0.999, 0.9),
    (0.99, 0.0),
    (0.99, 0.9),
    (0.9, 0.5),
    (0.3, 0.1),
];

/// Patterns with `k b <= n`, as the theorems ask.
const PATTERNS: [(usize, usize, usize); 12] = [
    (1, 1, 1),
    (10, 10, 1),
    (50, 50, 1),
    (2000, 2000, 1),
    (50, 1, 50),
    (60, 20, 3),
    (100, 10, 10),
    (1000, 100, 10),
    (1000, 100, 4),
    (1005, 100, 10),
    (2000, 100, 20),
    (2000, 5, 400),
];

fn for_each(mut check: impl FnMut(&Sgd, &Participation, &dyn Fn(Method) -> f64)) {
    for (alpha, beta) in GRID {
        for (n, b, k) in PATTERNS {
            let sgd = Sgd::new(alpha, beta).unwrap();
            let participation = Participation::new(n, b, k).unwrap();
            let workload = Workload::sgd(sgd, n).unwrap();
            let exact = |method| {
                let factorization = Factorization::new(workload.clone(), method).unwrap();
                factorization.loss(&participation).unwrap().expected_error
            };
            check(&sgd, &participation, &exact);
        }
    }
}

/// One part in 10^12 for rounding: several bounds are attained.
const ROUNDING: f64 = 1.0 + 1e-12;

#[test]
fn theorem_3_holds_for_the_square_root_with_single_participation() {
    for_each(|sgd, participation, exact| {
        if participation.max_participations() == 1 {
            let bound = bounds::square_root_single(sgd, participation.steps());
            let error = exact(Method::SquareRoot);
            assert!(bound.lower <= error * ROUNDING, "{sgd:?} {participation:?}");
            assert!(
                error <= bound.upper * ROUNDING,
                "{sgd:?} {participation:?}: {error} {bound:?}"
            );
        }
    });
}

#[test]
fn theorems_4_and_8_hold_for_every_factorization() {
    for_each(|sgd, participation, exact| {
        let lower = bounds::any_factorization_lower(sgd, participation);
        let sharper = bounds::nuclear_norm_lower(sgd, participation);
        assert!(lower <= sharper * ROUNDING, "{sgd:?} {participation:?}: {lower} {sharper}");
        let bands = participation.min_separation().min(50);
        for method in [Method::Identity, Method::Input, Method::SquareRoot, Method::Bsr { bands }] {
            assert!(sharper <= exact(method) * ROUNDING, "{method} {sgd:?} {participation:?}");
        }
    });
}

#[test]
fn theorem_5_bounds_the_baselines_and_is_their_limit() {
    for_each(|sgd, participation, exact| {
        if participation.max_participations() == 1 {
            let n = participation.steps();
            let (identity, input) =
                (bounds::identity_single_upper(sgd, n), bounds::input_single_upper(sgd, n));
            assert!(exact(Method::Identity) <= identity * ROUNDING, "{sgd:?} {participation:?}");
            assert!(exact(Method::Input) <= input * ROUNDING, "{sgd:?} {participation:?}");
            if n == 2000 && sgd.decay_factor() <= 0.99 {
                assert!(exact(Method::Input) > 0.999 * input, "the limit is reached");
            }
        }
    });
}

#[test]
fn the_leading_term_of_theorem_6_dominates_on_the_grid() {
    for_each(|sgd, participation, exact| {
        for bands in [1, 5, 20, participation.min_separation()] {
            if bands <= participation.min_separation() {
                let leading = bounds::bsr_leading_term(sgd, bands, participation);
                let error = exact(Method::Bsr { bands });
                assert!(error <= leading, "{sgd:?} {participation:?} p {bands}: {error} {leading}");
            }
        }
    });
}

#[test]
fn theorem_7_holds_for_the_square_root_with_repeated_participation() {
    let mut covered = 0;
    for_each(|sgd, participation, exact| {
        let n = participation.max_participations() * participation.min_separation();
        let bound = bounds::square_root_repeated(sgd, participation);
        assert_eq!(bound.is_some(), n == participation.steps());
        if let Some(bound) = bound {
            let error = exact(Method::SquareRoot);
            assert!(
                bound.lower <= error * ROUNDING,
                "{sgd:?} {participation:?}: {error} {bound:?}"
            );
            assert!(
                error <= bound.upper * ROUNDING,
                "{sgd:?} {participation:?}: {error} {bound:?}"
            );
            covered += 1;
        }
    });
    assert_eq!(covered, 10 * GRID.len());
}

#[test]
fn theorem_9_bounds_the_baselines_from_below() {
    for_each(|sgd, participation, exact| {
        let (identity, input) =
            (bounds::identity_lower(sgd, participation), bounds::input_lower(sgd, participation));
        assert!(identity <= exact(Method::Identity) * ROUNDING, "{sgd:?} {participation:?}");
        assert!(input <= exact(Method::Input) * ROUNDING, "{sgd:?} {participation:?}");
    });
}

#[test]
fn the_bounds_of_a_factorization_hold_for_its_error() {
    let methods = [
        Method::Identity,
        Method::Input,
        Method::SquareRoot,
        Method::Bsr { bands: 8 },
        Method::Bisr { bands: 4 },
    ];
    for (alpha, beta) in [(1.0, 0.0), (1.0, 0.9), (0.99, 0.5)] {
        for (epochs, per_epoch) in [(1, 96), (8, 12)] {
            let participation = Participation::epochs(epochs, per_epoch).unwrap();
            let workload = Workload::sgd(Sgd::new(alpha, beta).unwrap(), 96).unwrap();
            for method in methods {
                let solved = Factorization::new(workload.clone(), method).unwrap();
                let error = solved.loss(&participation).unwrap().expected_error;
                let found = bounds::of(&solved, &participation);
                assert!(!found.is_empty());
                for bound in found {
                    let holds = match bound.kind {
                        "lower" => bound.value <= error * (1.0 + 1e-9),
                        _ => error <= bound.value * (1.0 + 1e-9),
                    };
                    assert!(holds, "{method} {alpha} {beta} {epochs}: {bound:?} and {error}");
                }
            }
        }
    }
    let own = Factorization::new(Workload::toeplitz(vec![1.0; 5]).unwrap(), Method::Identity);
    assert!(bounds::of(&own.unwrap(), &Participation::single(5).unwrap()).is_empty());
}
