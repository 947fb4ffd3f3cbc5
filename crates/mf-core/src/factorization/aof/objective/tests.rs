use super::*;
use crate::banded::BandedLower;
use crate::factorization::aof::warm_start::square_root;

fn workload(n: usize, alpha: f64, beta: f64) -> InverseWorkload {
    let mut matrix = BandedLower::zeros(n, n.min(3)).unwrap();
    let rate = |i: usize| 1.0 + 0.3 * (i as f64).sin();
    for i in 0..n {
        let before = rate(i.saturating_sub(1));
        let entries = [1.0 / rate(i), -(alpha / rate(i) + beta / before), alpha * beta / before];
        for (k, entry) in entries.into_iter().enumerate().take(i + 1) {
            matrix.row_mut(i)[k] = entry;
        }
    }
    InverseWorkload::new(&matrix)
}

/// A start away from the optimum and from any symmetry.
fn start(inverse: &InverseWorkload, bands: usize) -> Columns {
    let mut columns = square_root(inverse, bands);
    for (place, value) in columns.iter_mut().enumerate() {
        *value *= 1.0 + 0.02 * (place as f64 * 1.3).cos();
    }
    columns
}

/// `||(C T)^-1||_F^2` and its derivative `-2 (L^-^T L^-1 L^-^T) T^T` on the band, from dense matrices.
#[allow(clippy::needless_range_loop)] // index notation
fn dense(inverse: &InverseWorkload, columns: &[f64], bands: usize) -> (f64, Columns) {
    let n = inverse.steps();
    let t = |i: usize, j: usize| if i >= j && i - j < 3 { inverse.columns[j][i - j] } else { 0.0 };
    let c =
        |i: usize, j: usize| if i >= j && i - j < bands { columns[j * bands + i - j] } else { 0.0 };
    let mut inverse_of_l = vec![vec![0.0; n]; n];
    let l = |i: usize, j: usize| -> f64 { (j..=i).map(|m| c(i, m) * t(m, j)).sum() };
    for j in 0..n {
        for i in j..n {
            let sum: f64 = (j..i).map(|k| l(i, k) * inverse_of_l[k][j]).sum();
            inverse_of_l[i][j] = (f64::from(u8::from(i == j)) - sum) / l(i, i);
        }
    }
    let x = &inverse_of_l;
    let product = |a: &dyn Fn(usize, usize) -> f64,
                   b: &dyn Fn(usize, usize) -> f64|
     -> Vec<Vec<f64>> {
        (0..n).map(|i| (0..n).map(|j| (0..n).map(|k| a(i, k) * b(k, j)).sum()).collect()).collect()
    };
    let gram = product(&|i, k| x[k][i], &|k, j| x[k][j]);
    let right = product(&|i, k| gram[i][k], &|k, j| x[j][k]);
    let full = product(&|i, k| -2.0 * right[i][k], &|k, j| t(j, k));
    let mut gradient = vec![0.0; n * bands];
    for j in 0..n {
        for k in 0..bands.min(n - j) {
            gradient[j * bands + k] = full[j + k][j];
        }
    }
    (x.iter().flatten().map(|v| v * v).sum(), gradient)
}

#[test]
fn value_and_gradient_equal_the_dense_ones() {
    for (n, bands, alpha, beta) in [
        (1, 1, 1.0, 0.9),
        (2, 2, 1.0, 0.9),
        (9, 3, 1.0, 0.9),
        (40, 7, 0.99, 0.9),
        (40, 40, 1.0, 0.5),
        (31, 1, 1.0, 0.0),
    ] {
        let inverse = workload(n, alpha, beta);
        let columns = start(&inverse, bands);
        let mut gradient = vec![0.0; n * bands];
        let value = Objective::new(&inverse, bands).evaluate(&columns, &mut gradient);
        let (exact, exact_gradient) = dense(&inverse, &columns, bands);
        // The tolerances are those of the dense inverse, whose entries reach 1e4 at a full band.
        assert!((value / exact - 1.0).abs() < 1e-9, "n {n} bands {bands}: {value} {exact}");
        let size = exact_gradient.iter().map(|g| g.abs()).fold(0.0, f64::max);
        for (place, (a, b)) in gradient.iter().zip(&exact_gradient).enumerate() {
            assert!((a - b).abs() < 1e-8 * size, "n {n} bands {bands} place {place}: {a} {b}");
        }
    }
}

#[test]
fn gradient_is_the_limit_of_difference_quotients() {
    let (n, bands) = (24, 6);
    let inverse = workload(n, 1.0, 0.9);
    let columns = start(&inverse, bands);
    let mut objective = Objective::new(&inverse, bands);
    let mut gradient = vec![0.0; n * bands];
    let mut scratch = gradient.clone();
    objective.evaluate(&columns, &mut gradient);
    for place in (0..n * bands).step_by(5) {
        let (j, k) = (place / bands, place % bands);
        if j + k >= n {
            assert_eq!(gradient[place], 0.0);
            continue;
        }
        let mut at = |shift: f64| {
            let mut moved = columns.clone();
            moved[place] += shift;
            objective.evaluate(&moved, &mut scratch)
        };
        let quotient = (at(1e-5) - at(-1e-5)) / 2e-5;
        assert!(
            (quotient - gradient[place]).abs() < 1e-6 * gradient[place].abs().max(1.0),
            "place {place}"
        );
    }
}

/// The head with its terminal cost has the full derivative in its rows.
#[test]
fn a_head_differentiates_like_the_whole() {
    let (n, bands, rows) = (60, 5, 23);
    let inverse = workload(n, 1.0, 0.9);
    let columns = start(&inverse, bands);
    let mut whole = Objective::new(&inverse, bands);
    let mut gradient = vec![0.0; n * bands];
    whole.evaluate(&columns, &mut gradient);
    let short = InverseWorkload { columns: inverse.columns[..rows].to_vec(), reach: inverse.reach };
    let mut head = Objective::head(&short, bands, whole.cost_to_go(rows));
    let mut head_gradient = vec![0.0; rows * bands];
    head.evaluate(&columns[..rows * bands], &mut head_gradient);
    let free = rows + 1 - bands;
    for (a, b) in head_gradient.iter().zip(&gradient).take(free * bands) {
        assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{a} {b}");
    }
}

#[test]
fn a_non_positive_diagonal_is_infinite() {
    let inverse = workload(12, 1.0, 0.9);
    let mut columns = start(&inverse, 3);
    columns[5 * 3] = -0.1;
    assert_eq!(Objective::new(&inverse, 3).evaluate(&columns, &mut vec![0.0; 36]), f64::INFINITY);
}
