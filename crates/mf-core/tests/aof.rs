//! The solver against explicit dense matrices, against an independent method and against recorded
//! optima.

mod dual;

use std::ops::ControlFlow;

use dual::{
    dense, dual_bound, inverse_workload, multiply, objective, scheduled_inverse_workload,
    slow_minimum, transpose,
};
use mf_core::factorization::aof::{Options, Progress, Solution, Start, solve, solve_single};
use mf_core::{BandedLower, Error};
use proptest::prelude::*;

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn solved(inverse: &BandedLower, bands: usize, relative_gap: f64) -> Solution {
    let options = Options { relative_gap, ..Options::default() };
    solve(inverse, bands, &options, Start::Cold, &mut go_on).unwrap()
}

#[test]
fn objective_is_that_of_the_factor_and_columns_are_unit() {
    for (alpha, beta, n, b) in
        [(1.0, 0.9, 40, 7), (0.99, 0.0, 33, 33), (1.0, 0.0, 25, 4), (0.9, 0.5, 10, 1)]
    {
        let inverse = inverse_workload(n, alpha, beta);
        let solution = solved(&inverse, b, 1e-6);
        let exact = objective(&inverse, &solution.strategy);
        assert!((solution.certificate.objective / exact - 1.0).abs() < 1e-11, "n {n} b {b}");
        for (j, norm) in solution.strategy.column_norms_squared().into_iter().enumerate() {
            assert!((norm - 1.0).abs() < 1e-12, "column {j}: {norm}");
        }
    }
}

/// The bound of the certificate must not exceed the exact dual value of the same dual matrix, nor
/// that the optimum.
#[test]
fn lower_bound_is_below_the_exact_dual_and_that_below_the_objective() {
    for (alpha, beta, n, b, gap) in [
        (1.0, 0.9, 100, 100, 1e-3),
        (1.0, 0.9, 80, 20, 1e-4),
        (1.0, 0.0, 100, 25, 1e-6),
        (0.99, 0.9, 61, 9, 1e-2),
    ] {
        let inverse = inverse_workload(n, alpha, beta);
        let certificate = |solution: &Solution| solution.certificate.clone();
        let rough = solved(&inverse, b, gap);
        let fine = solved(&inverse, b, 1e-7);
        let exact = dual_bound(&inverse, &rough.strategy);
        let rounding = 1.0 + 1e-10;
        assert!(
            rough.certificate.lower_bound <= exact * rounding,
            "n {n} b {b}: {:?} {exact}",
            certificate(&rough)
        );
        assert!(
            exact <= fine.certificate.objective * rounding,
            "n {n} b {b}: {exact} {:?}",
            certificate(&fine)
        );
        assert!(fine.certificate.lower_bound <= rough.certificate.objective);
    }
}

#[test]
fn agrees_with_an_independent_slow_method() {
    for (alpha, beta, n, b) in
        [(1.0, 0.9, 6, 3), (1.0, 0.0, 8, 4), (0.95, 0.5, 7, 2), (1.0, 0.9, 5, 5)]
    {
        let inverse = inverse_workload(n, alpha, beta);
        let fast = solved(&inverse, b, 1e-7).certificate;
        let slow = slow_minimum(&inverse, b);
        assert!(
            (fast.objective / slow - 1.0).abs() < 1e-6,
            "n {n} b {b}: {} {slow}",
            fast.objective
        );
    }
}

/// Optimal expected errors from the project's design measurements, `shared/design/aof.md` section
/// 4, six decimals.
#[test]
fn reproduces_recorded_optima() {
    for (alpha, beta, n, recorded) in [
        (1.0, 0.0, 100, 2.235496),
        (1.0, 0.0, 500, 6.694864),
        (1.0, 0.0, 1000, 11.338701),
        (1.0, 0.9, 100, 12.952841),
        (1.0, 0.9, 500, 46.779850),
        (1.0, 0.9, 1000, 85.466312),
        (0.999, 0.0, 1000, 9.708065),
        (0.999, 0.9, 500, 41.698990),
    ] {
        let certificate = solved(&inverse_workload(n, alpha, beta), 100, 1e-6).certificate;
        assert!(certificate.converged);
        let found = certificate.expected_error(n, n / 100);
        // Recorded to 5e-7 absolute and certified there to 5e-7 relative of f; ours to 1e-6.
        assert!(
            (found / recorded - 1.0).abs() < 1.3e-6,
            "({alpha}, {beta}) n {n}: {found} {recorded}"
        );
    }
}

/// Two algorithms for the same problem, and the design measurements for both (section 5).
#[test]
fn single_participation_agrees_with_a_full_band() {
    for (alpha, beta, recorded) in
        [(1.0, 0.9, 12.952841), (1.0, 0.0, 2.235496), (0.999, 0.9, 12.627189)]
    {
        let inverse = inverse_workload(100, alpha, beta);
        let options = Options { relative_gap: 1e-7, ..Options::default() };
        let single = solve_single(&inverse, &options, &mut go_on).unwrap();
        let banded = solved(&inverse, 100, 1e-7).certificate;
        assert!(single.certificate.converged && banded.converged);
        assert!((single.certificate.objective / banded.objective - 1.0).abs() < 4e-7);
        assert!(single.certificate.lower_bound <= banded.objective * (1.0 + 1e-10));
        assert!((single.certificate.expected_error(100, 1) / recorded - 1.0).abs() < 3e-7);
        let factor = single.factor().unwrap();
        assert!(objective(&inverse, &factor) <= single.certificate.objective * (1.0 + 1e-9));
        assert!(factor.column_norms_squared().iter().all(|norm| (norm - 1.0).abs() < 1e-12));
    }
}

#[test]
fn schedules_are_solved_by_the_same_code() {
    let rates: Vec<f64> =
        (0..90).map(|i| 0.1 + (std::f64::consts::PI * f64::from(i) / 90.0).cos().powi(2)).collect();
    let inverse = scheduled_inverse_workload(&rates, 0.999, 0.9);
    // The workload really is E_alpha diag(eta) E_beta.
    let n = rates.len();
    let power =
        |base: f64| move |i: usize, j: usize| if i >= j { base.powi((i - j) as i32) } else { 0.0 };
    let middle = |i: usize, j: usize| rates[i] * power(0.9)(i, j);
    let product = multiply(
        &dense(n, power(0.999)),
        &multiply(&dense(n, middle), &dense(n, |i, j| inverse.entry(i, j))),
    );
    for (i, row) in product.iter().enumerate() {
        for (j, value) in row.iter().enumerate() {
            assert!((value - f64::from(u8::from(i == j))).abs() < 1e-10);
        }
    }
    for b in [1, 8, 30, 90] {
        let solution = solved(&inverse, b, 1e-6);
        assert!(solution.certificate.converged, "b {b}");
        assert!(
            (objective(&inverse, &solution.strategy) / solution.certificate.objective - 1.0).abs()
                < 1e-10
        );
        // Rounding of the smallest eigenvalues of A Y A^T enters the exact dual through its square
        // root.
        assert!(
            dual_bound(&inverse, &solution.strategy)
                <= solution.certificate.objective * (1.0 + 1e-6),
            "b {b}"
        );
    }
    let options = Options { relative_gap: 1e-7, ..Options::default() };
    let single = solve_single(&inverse, &options, &mut go_on).unwrap().certificate;
    let banded = solved(&inverse, 90, 1e-7).certificate;
    assert!((single.objective / banded.objective - 1.0).abs() < 4e-7);
    let long: Vec<f64> = (0..700).map(|i| 1.0 - 0.9 * f64::from(i) / 700.0).collect();
    assert!(solved(&scheduled_inverse_workload(&long, 1.0, 0.9), 20, 1e-5).certificate.converged);
}

#[test]
fn a_warm_start_from_fewer_steps_needs_fewer_iterations() {
    let short = solved(&inverse_workload(430, 1.0, 0.0), 20, 1e-6);
    let inverse = inverse_workload(511, 1.0, 0.0);
    let options = Options { relative_gap: 1e-5, ..Options::default() };
    let warm = solve(&inverse, 20, &options, Start::Warm(&short.strategy), &mut go_on)
        .unwrap()
        .certificate;
    let cold = solve(&inverse, 20, &options, Start::Cold, &mut go_on).unwrap().certificate;
    assert!(warm.converged && cold.converged);
    assert!(warm.iterations < cold.iterations, "{} {}", warm.iterations, cold.iterations);
    assert!((warm.objective / cold.objective - 1.0).abs() < 3e-5);
}

#[test]
fn one_band_is_the_identity_and_one_step_is_trivial() {
    let solution = solved(&inverse_workload(30, 1.0, 0.9), 1, 1e-7);
    assert!((0..30).all(|i| solution.strategy.row(i) == [1.0]));
    assert!(solution.certificate.converged);
    let one = solved(&inverse_workload(1, 1.0, 0.9), 1, 1e-7);
    assert_eq!((one.certificate.objective, one.certificate.lower_bound), (1.0, 1.0));
    let single =
        solve_single(&inverse_workload(1, 1.0, 0.9), &Options::default(), &mut go_on).unwrap();
    assert!((single.factor().unwrap().entry(0, 0) - 1.0).abs() < 1e-14);
}

#[test]
fn a_caller_can_cancel_and_the_certificate_says_so() {
    let inverse = inverse_workload(300, 1.0, 0.9);
    let options = Options { relative_gap: 1e-7, ..Options::default() };
    let mut stop = |p: Progress| {
        if p.iteration >= 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let certificate = solve(&inverse, 30, &options, Start::Cold, &mut stop).unwrap().certificate;
    assert!(!certificate.converged && certificate.relative_gap > 1e-7);
    assert!(certificate.lower_bound <= certificate.objective);
    let few = Options { relative_gap: 1e-7, max_iterations: 4, ..Options::default() };
    assert!(!solve(&inverse, 30, &few, Start::Cold, &mut go_on).unwrap().certificate.converged);
}

#[test]
fn the_factor_has_the_same_bits_for_any_number_of_threads() {
    let inverse = inverse_workload(700, 1.0, 0.9);
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let options = Options { relative_gap: 1e-6, ..Options::default() };
            let single = solve_single(&inverse, &options, &mut go_on).unwrap();
            (solved(&inverse, 60, 1e-5).strategy, single.factor().unwrap())
        })
    };
    let one = on(1);
    for threads in [2, 3] {
        assert!(on(threads) == one, "{threads} threads");
    }
}

#[test]
fn bad_input_is_named() {
    let inverse = inverse_workload(10, 1.0, 0.9);
    let options = Options::default();
    let attempt = |inverse: &BandedLower, bands: usize, options: &Options, start: Start<'_>| {
        solve(inverse, bands, options, start, &mut go_on).map(|s| s.certificate.converged)
    };
    let out_of_range = |bands| Err(Error::Bands { bands, steps: 10 });
    assert_eq!(attempt(&inverse, 0, &options, Start::Cold), out_of_range(0));
    assert_eq!(attempt(&inverse, 11, &options, Start::Cold), out_of_range(11));
    let wide = attempt(&BandedLower::zeros(10, 4).unwrap(), 2, &options, Start::Cold);
    assert!(matches!(wide, Err(Error::SizeMismatch { expected: 3, found: 4, .. })));
    let zero = Err(Error::NonPositiveDiagonal { index: 0, value: 0.0 });
    assert_eq!(attempt(&BandedLower::zeros(10, 3).unwrap(), 2, &options, Start::Cold), zero);
    let mut poisoned = inverse.clone();
    poisoned.row_mut(4)[1] = f64::NAN;
    let refused = attempt(&poisoned, 2, &options, Start::Cold);
    assert_eq!(refused, Err(Error::NotFinite { row: 4, column: 3 }));
    for relative_gap in [0.0, -1.0, 1.0, 1e-12, f64::NAN] {
        let options = Options { relative_gap, ..Options::default() };
        let refused = attempt(&inverse, 2, &options, Start::Cold);
        assert!(matches!(refused, Err(Error::Tolerance { .. })));
    }
    let other = BandedLower::zeros(5, 3).unwrap();
    let refused = attempt(&inverse, 2, &options, Start::Warm(&other));
    assert!(matches!(refused, Err(Error::SizeMismatch { expected: 2, found: 3, .. })));
    let refused = attempt(&inverse, 3, &options, Start::Warm(&other));
    assert_eq!(refused, Err(Error::NonPositiveDiagonal { index: 0, value: 0.0 }));
    // An exploding workload: (1 - 1e8 z)(1 - 1e8 z) over 100 steps has entries of 1e800.
    let exploding = inverse_workload(100, 1e8, 1e8);
    assert!(matches!(attempt(&exploding, 3, &options, Start::Cold), Err(Error::Overflow { .. })));
    assert!(solve_single(&exploding, &options, &mut go_on).is_err());
    // A double root is an ordinary instance.
    assert_eq!(attempt(&inverse_workload(50, 0.9, 0.9), 10, &options, Start::Cold), Ok(true));
    assert!(transpose(&dense(2, |i, j| (2 * i + j) as f64)) == dense(2, |i, j| (2 * j + i) as f64));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Unit columns, an objective no worse than the normalized banded square root, and an ordered
    /// certificate.
    #[test]
    fn every_instance_ends_with_a_valid_certificate(
        alpha in 0.5f64..=1.0,
        beta in 0.0f64..0.95,
        steps in 1usize..120,
        fraction in 0.0f64..=1.0,
    ) {
        let bands = 1 + (fraction * (steps - 1) as f64) as usize;
        let inverse = inverse_workload(steps, alpha, beta);
        let mut first = None;
        let solution = solve(&inverse, bands, &Options::default(), Start::Cold, &mut |p| {
            if p.steps == steps && first.is_none() {
                first = Some(p.objective);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        let certificate = &solution.certificate;
        prop_assert!(certificate.converged, "{certificate:?}");
        prop_assert!(certificate.lower_bound <= certificate.objective * (1.0 + 1e-12));
        prop_assert!(solution.strategy.column_norms_squared().iter().all(|norm| (norm - 1.0).abs() < 1e-12));
        let root = square_root(alpha, beta, steps, bands);
        prop_assert!(certificate.objective <= objective(&inverse, &root) * (1.0 + 1e-12));
        prop_assert!(first.is_some_and(|f| certificate.objective <= f));
    }
}

/// The banded square root from the product of two binomial series, normalized.
fn square_root(alpha: f64, beta: f64, n: usize, bands: usize) -> BandedLower {
    let series = |base: f64| {
        let mut c = vec![1.0];
        for k in 1..bands {
            c.push(c[k - 1] * base * (2 * k - 1) as f64 / (2 * k) as f64);
        }
        c
    };
    let (a, b) = (series(alpha), series(beta));
    let c: Vec<f64> = (0..bands).map(|k| (0..=k).map(|m| a[m] * b[k - m]).sum()).collect();
    let mut matrix = BandedLower::zeros(n, bands).unwrap();
    for i in 0..n {
        for k in 0..bands.min(i + 1) {
            let rows = bands.min(n - (i - k));
            let norm: f64 = c[..rows].iter().map(|v| v * v).sum();
            matrix.row_mut(i)[k] = c[k] / norm.sqrt();
        }
    }
    matrix
}
