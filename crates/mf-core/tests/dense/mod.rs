//! Dense matrices and brute force: slow, and obviously right.

#![allow(dead_code, missing_docs, reason = "every test file uses its own part")]

use mf_core::{Participation, Strategy, Workload};

pub(crate) type Dense = Vec<Vec<f64>>;

/// Column `j` of the matrix is what a recurrence makes of the `j`-th unit vector.
pub(crate) fn from_columns(n: usize, column: impl Fn(&[f64]) -> Vec<f64>) -> Dense {
    let mut matrix = vec![vec![0.0; n]; n];
    for j in 0..n {
        let mut unit = vec![0.0; n];
        unit[j] = 1.0;
        for (i, x) in column(&unit).into_iter().enumerate() {
            matrix[i][j] = x;
        }
    }
    matrix
}

/// `theta_i = alpha theta_{i-1} + eta_i m_i`, `m_i = beta m_{i-1} + x_i`, written out.
pub(crate) fn sgd(alpha: f64, beta: f64, rates: &[f64]) -> Dense {
    from_columns(rates.len(), |x| {
        let (mut theta, mut m) = (0.0, 0.0);
        (0..x.len())
            .map(|i| {
                m = beta * m + x[i];
                theta = alpha * theta + rates[i] * m;
                theta
            })
            .collect()
    })
}

pub(crate) fn workload(workload: &Workload) -> Dense {
    from_columns(workload.steps(), |x| workload.apply(x))
}

pub(crate) fn strategy(c: &Strategy) -> Dense {
    let n = c.steps();
    let mut matrix = vec![vec![0.0; n]; n];
    for i in 0..n {
        for (lag, x) in c.row(i).iter().enumerate() {
            matrix[i][i - lag] = *x;
        }
    }
    matrix
}

pub(crate) fn product(a: &Dense, b: &Dense) -> Dense {
    let n = a.len();
    let entry = |i: usize, j: usize| (0..n).map(|l| a[i][l] * b[l][j]).sum();
    (0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect()
}

/// The inverse of a lower-triangular matrix, column by column.
pub(crate) fn inverse(l: &Dense) -> Dense {
    from_columns(l.len(), |unit| {
        let mut x: Vec<f64> = Vec::new();
        for i in 0..l.len() {
            let known: f64 = (0..i).map(|j| l[i][j] * x[j]).sum();
            x.push((unit[i] - known) / l[i][i]);
        }
        x
    })
}

pub(crate) fn largest_difference(a: &Dense, b: &Dense) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
}

/// `max_pi sqrt(sum_{i,j in pi} |(C^T C)_ij|)` over every allowed set of steps.
pub(crate) fn sensitivity(c: &Dense, participation: &Participation) -> f64 {
    let n = c.len();
    let gram = |i: usize, j: usize| -> f64 { (0..n).map(|r| c[r][i] * c[r][j]).sum() };
    let mut largest: f64 = 0.0;
    for set in 0_u32..1 << n {
        let steps: Vec<usize> = (0..n).filter(|i| set >> i & 1 == 1).collect();
        let apart = steps.windows(2).all(|w| w[1] - w[0] >= participation.min_separation());
        if apart && steps.len() <= participation.max_participations() {
            let pairs = steps.iter().flat_map(|&i| steps.iter().map(move |&j| (i, j)));
            largest = largest.max(pairs.map(|(i, j)| gram(i, j).abs()).sum());
        }
    }
    largest.sqrt()
}
