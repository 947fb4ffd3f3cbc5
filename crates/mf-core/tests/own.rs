//! Workloads and strategies of one's own: accepted where the mathematics allows it, and never with a
//! sensitivity that is too small.

use mf_core::loss::{noise_deviations, noise_growth};
use mf_core::{
    Error, Factorization, LowerTriangular, Method, Participation, Sgd, Strategy, StrategyRecord,
    Workload, sensitivity,
};
use proptest::prelude::*;

/// The average of the last `window` iterates of plain SGD, over `n` steps.
fn averaged(n: usize, window: usize) -> Workload {
    let column = (0..n).map(|j| (j + 1).min(window) as f64 / window as f64);
    Workload::toeplitz(column.collect()).unwrap()
}

const COLUMN_METHODS: [Method; 9] = [
    Method::Identity,
    Method::Input,
    Method::SquareRoot,
    Method::Bsr { bands: 6 },
    Method::Bisr { bands: 4 },
    Method::LambdaCgd { lambda: None },
    Method::Toeplitz { bands: 5 },
    Method::InverseToeplitz { bands: 3 },
    Method::NormalizedSquareRoot { bands: 6 },
];

#[test]
fn a_column_gives_the_strategies_that_sgd_gives_where_it_is_the_column_of_sgd() {
    let sgd = Sgd::new(0.99, 0.5).unwrap();
    let pattern = Participation::epochs(4, 10).unwrap();
    let known = Workload::sgd(sgd, 40).unwrap();
    let own = Workload::toeplitz(sgd.coefficients(40)).unwrap();
    for method in COLUMN_METHODS {
        let solve = |workload: &Workload| {
            Factorization::for_participation(workload.clone(), method, &pattern).unwrap()
        };
        let (known, own) = (solve(&known), solve(&own));
        let errors = [known, own].map(|x| x.loss(&pattern).unwrap().expected_error);
        // Searches start from other places and end within their tolerance.
        assert!((errors[0] / errors[1] - 1.0).abs() < 1e-3, "{method:?}: {errors:?}");
    }
}

#[test]
fn the_loss_of_an_own_workload_is_that_of_the_dense_definition() {
    let pattern = Participation::epochs(3, 8).unwrap();
    let workload = averaged(24, 5);
    let general = LowerTriangular::from_fn(24, |i, j| ((i - j + 1).min(5)) as f64 / 5.0).unwrap();
    let general = Workload::general(general);
    for method in COLUMN_METHODS {
        let solved = Factorization::for_participation(workload.clone(), method, &pattern).unwrap();
        let dense = mf_core::loss::decoder_norms(&general, solved.strategy()).unwrap();
        let found = solved.decoder_norms().unwrap();
        let ratio = found.frobenius_squared / dense.frobenius_squared;
        assert!((ratio - 1.0).abs() < 1e-10, "{method:?}: {ratio}");
        let last = found.last_row_squared / dense.last_row_squared;
        assert!((last - 1.0).abs() < 1e-10, "{method:?}: {last}");
    }
}

#[test]
fn methods_that_need_the_closed_form_of_sgd_refuse_a_column_by_name() {
    let pattern = Participation::epochs(3, 8).unwrap();
    for (method, name) in
        [(Method::Blt { buffers: 2 }, "blt"), (Method::Aof { bands: 4, tolerance: 1e-3 }, "aof")]
    {
        let refused = Factorization::for_participation(averaged(24, 5), method, &pattern);
        assert_eq!(refused, Err(Error::NotSgd { method: name }));
    }
    let own = Factorization::for_participation(averaged(24, 5), Method::Own, &pattern);
    assert_eq!(own, Err(Error::OwnStrategy));
}

#[test]
fn a_column_without_a_root_is_refused_by_the_roots_only() {
    let pattern = Participation::single(4).unwrap();
    let workload = Workload::toeplitz(vec![-1.0, 0.5, 0.0, 2.0]).unwrap();
    let solve = |method| Factorization::for_participation(workload.clone(), method, &pattern);
    assert!(solve(Method::Identity).is_ok());
    for method in [Method::Input, Method::SquareRoot, Method::Bisr { bands: 2 }] {
        assert!(matches!(solve(method), Err(Error::NonPositiveDiagonal { .. })), "{method:?}");
    }
}

#[test]
fn a_strategy_without_an_inverse_or_with_another_size_is_refused() {
    let toeplitz = |column: &[f64]| Strategy::toeplitz(5, column.to_vec());
    assert!(matches!(toeplitz(&[0.0, 1.0]), Err(Error::NonPositiveDiagonal { .. })));
    assert!(matches!(toeplitz(&[-1.0, 1.0]), Err(Error::NonPositiveDiagonal { .. })));
    assert!(matches!(toeplitz(&[1.0, f64::NAN]), Err(Error::NotFinite { .. })));
    assert!(matches!(toeplitz(&[f64::INFINITY]), Err(Error::NotFinite { .. })));
    assert!(matches!(toeplitz(&[1.0; 6]), Err(Error::Bands { .. })));
    let singular = LowerTriangular::from_fn(3, |i, j| f64::from(u8::from(i != 1 && i == j)));
    assert!(matches!(singular, Err(Error::NonPositiveDiagonal { index: 1, .. })));
    let strategy = toeplitz(&[1.0, 0.5]).unwrap();
    let other = Participation::single(6).unwrap();
    assert!(matches!(sensitivity::of(&strategy, &other), Err(Error::SizeMismatch { .. })));
}

#[test]
fn a_record_is_the_strategy_and_a_damaged_one_is_refused() {
    let dense = LowerTriangular::from_fn(6, |i, j| 1.0 / (1.0 + i as f64 + j as f64)).unwrap();
    for strategy in [
        Strategy::toeplitz(6, vec![1.0, -0.5]).unwrap(),
        Strategy::inverse_toeplitz(6, vec![1.0, -0.5]).unwrap(),
        Strategy::buffered(6, vec![mf_core::Buffer { weight: 0.1, decay: 0.9 }]).unwrap(),
        Strategy::dense(&dense).unwrap(),
    ] {
        let text = serde_json::to_string(&strategy.record()).unwrap();
        let read: StrategyRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read.strategy(6).as_ref(), Ok(&strategy), "{text}");
    }
    let rows = |rows: &[&[f64]]| {
        let rows = rows.iter().map(|row| row.to_vec()).collect();
        StrategyRecord::Rows { rows }.strategy(3)
    };
    assert!(rows(&[&[1.0], &[1.0, 0.5], &[1.0, 0.5]]).is_ok());
    assert!(rows(&[&[1.0], &[1.0, 0.5]]).is_err(), "a row is missing");
    assert!(rows(&[&[1.0], &[1.0], &[1.0, 0.5]]).is_err(), "a row is short");
    assert!(rows(&[&[1.0, 1.0], &[1.0, 0.5], &[1.0, 0.5]]).is_err(), "a row is long");
    assert!(rows(&[&[], &[], &[]]).is_err(), "no entries");
    assert!(rows(&[&[1.0], &[0.0, 0.5], &[1.0, 0.5]]).is_err(), "no inverse");
}

#[test]
fn the_noise_of_an_unstable_strategy_grows() {
    let growth =
        |column: &[f64]| noise_growth(&Strategy::toeplitz(200, column.to_vec()).unwrap()).unwrap();
    assert_eq!(growth(&[1.0]), 1.0);
    assert!(growth(&[1.0, 0.5, 0.375]) < 4.0);
    assert!(growth(&[1.0, 1.5]) > 1e30);
    let overflowing = growth(&[1.0, 1e300]);
    assert!(overflowing.is_nan() || overflowing == f64::INFINITY, "{overflowing}");
    let column = [1.0, -0.7, 0.2];
    let rows = mf_core::BandedLower::toeplitz(50, &column).unwrap();
    let by_rows = noise_deviations(&Strategy::banded(rows).unwrap()).unwrap();
    let by_column = noise_deviations(&Strategy::toeplitz(50, column.to_vec()).unwrap()).unwrap();
    for (x, y) in by_rows.iter().zip(&by_column) {
        assert!((x / y - 1.0).abs() < 1e-12, "{x} and {y}");
    }
}

/// The largest `||C u||` over patterns, by trying all of them with all signs.
fn brute_force(rows: &[Vec<f64>], participation: &Participation) -> f64 {
    let n = rows.len();
    let (b, k) = (participation.min_separation(), participation.max_participations());
    let mut most: f64 = 0.0;
    for set in 0_u32..1 << n {
        let steps: Vec<usize> = (0..n).filter(|i| set >> i & 1 == 1).collect();
        if steps.len() > k || steps.windows(2).any(|pair| pair[1] - pair[0] < b) {
            continue;
        }
        for signs in 0_u32..1 << steps.len() {
            let sign = |m: usize| if signs >> m & 1 == 1 { -1.0 } else { 1.0 };
            let squared: f64 = rows
                .iter()
                .map(|row| {
                    let sum: f64 = steps.iter().enumerate().map(|(m, &j)| sign(m) * row[j]).sum();
                    sum * sum
                })
                .sum();
            most = most.max(squared.sqrt());
        }
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_strategy_has_a_sensitivity_below_the_worst_pattern(
        entries in prop::collection::vec(
            prop_oneof![3 => -2.0..2.0_f64, 1 => Just(0.0), 1 => Just(1.0)], 28..=28),
        toeplitz in any::<bool>(),
        bands in 1..=7_usize,
        b in 1..=7_usize,
        k in 1..=7_usize,
    ) {
        let n = 7_usize;
        let k = k.min(n.div_ceil(b));
        let participation = Participation::new(n, b, k).unwrap();
        let entry = |i: usize, j: usize| match (i >= j && i - j < bands, toeplitz) {
            (false, _) => 0.0,
            (true, _) if i == j => 0.5 + entries[if toeplitz { 0 } else { i }].abs(),
            (true, true) => entries[i - j],
            (true, false) => entries[i * (i + 1) / 2 + j],
        };
        let rows: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect();
        let strategy = if toeplitz {
            Strategy::toeplitz(n, (0..bands).map(|lag| entry(lag, 0)).collect()).unwrap()
        } else {
            Strategy::dense(&LowerTriangular::from_fn(n, entry).unwrap()).unwrap()
        };
        let found = sensitivity::of(&strategy, &participation).unwrap();
        let worst = brute_force(&rows, &participation);
        prop_assert!(found.value >= worst * (1.0 - 1e-12), "{found:?} below {worst}");
        if found.exact {
            prop_assert!((found.value / worst - 1.0).abs() < 1e-12, "{found:?} is not {worst}");
        }
    }
}
