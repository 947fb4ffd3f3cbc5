//! Value and gradient of `f(C) = ||A C^-1||_F^2` for a banded lower-triangular `C`.

use rayon::prelude::*;

use super::window::{PADDING, multiply, stride_for, update};
use super::workload::InverseWorkload;

/// A banded lower-triangular matrix by columns: `entries[j * bands + k]` is entry `(j + k, j)`, zero
/// past the last row.
///
/// The optimizer works in this layout because normalization, projection and preconditioning act on
/// columns.
pub(super) type Columns = Vec<f64>;

/// Working storage for evaluations of `f` and its gradient.
///
/// With `L = C T` (lower triangular, lags `0..=w`) and `x = L^-1 z` for white `z`, `f` is the total
/// variance of `x`. Row `i` of `L x = z` is the regression `x_i = s_i z_i + sum_k g_ik x_{i-k}`. A
/// forward sweep propagates the covariance `(L^T L)^-1` of the last `w` states, a backward sweep the
/// quadratic cost-to-go, and row `i` of the gradient is their product; the sweeps are independent
/// of one another. `3 n w^2` multiply-adds per evaluation.
pub(super) struct Objective<'a> {
    inverse: &'a InverseWorkload,
    bands: usize,
    width: usize,
    stride: usize,
    /// Row `i` of `g`, element `k - 1` for lag `k`.
    regression: Vec<f64>,
    /// `s_i = 1/L_ii`.
    scale: Vec<f64>,
    /// Band of `(L^T L)^-1`.
    covariance: Vec<f64>,
    /// Cost-to-go while sweeping; afterwards `q_i g_i + lambda_i` and then the gradient with respect to
    /// row `i` of `L`.
    cost: Vec<f64>,
    /// `q_i`, the cost of a unit of `x_i^2` from step `i` on.
    cost_diagonal: Vec<f64>,
    /// Cost-to-go of the rows after the last, when this is the head of a longer problem.
    terminal: Option<Vec<f64>>,
}

impl<'a> Objective<'a> {
    pub(super) fn new(inverse: &'a InverseWorkload, bands: usize) -> Self {
        let n = inverse.steps();
        let width = bands - 1 + inverse.reach;
        let stride = stride_for(width);
        Self {
            inverse,
            bands,
            width,
            stride,
            regression: vec![0.0; n * stride],
            scale: vec![0.0; n],
            covariance: vec![0.0; n * stride],
            cost: vec![0.0; n * stride],
            cost_diagonal: vec![0.0; n],
            terminal: None,
        }
    }

    /// The same objective as a function of the first `inverse.steps()` rows only, the later ones
    /// entering through the cost-to-go `terminal` taken from [`Objective::cost_to_go`].
    pub(super) fn head(inverse: &'a InverseWorkload, bands: usize, terminal: Vec<f64>) -> Self {
        Self { terminal: Some(terminal), ..Self::new(inverse, bands) }
    }

    pub(super) fn steps(&self) -> usize {
        self.inverse.steps()
    }

    /// `f` at the matrix with these columns and, in `gradient`, its derivative with respect to
    /// every entry in the band (the columns are taken as they are, not normalized).
    ///
    /// Not finite if the diagonal has a non-positive entry or the sweep overflows; `gradient` is
    /// then unspecified.
    pub(super) fn evaluate(&mut self, columns: &[f64], gradient: &mut [f64]) -> f64 {
        if !self.regress(columns) {
            return f64::INFINITY;
        }
        let (value, ()) = {
            let Self {
                regression,
                scale,
                covariance,
                cost,
                cost_diagonal,
                terminal,
                width,
                stride,
                ..
            } = self;
            let (regression, scale, width, stride) = (&*regression, &*scale, *width, *stride);
            rayon::join(
                || {
                    sweep_backward(
                        regression,
                        width,
                        stride,
                        terminal.as_deref(),
                        0,
                        cost,
                        cost_diagonal,
                    );
                    scale.iter().zip(&*cost_diagonal).map(|(s, q)| s * s * q).sum::<f64>()
                },
                || sweep_forward(regression, scale, width, stride, covariance),
            )
        };
        if value.is_finite() {
            self.differentiate();
            self.collect(gradient);
        }
        value
    }

    /// Fills `regression` and `scale` from `L = C T`; false if a diagonal entry is not positive.
    fn regress(&mut self, columns: &[f64]) -> bool {
        let (bands, width, stride) = (self.bands, self.width, self.stride);
        let inverse = &self.inverse.columns;
        let block = 64;
        self.regression
            .par_chunks_mut(block * stride)
            .zip(self.scale.par_chunks_mut(block))
            .enumerate()
            .map(|(index, (rows, scales))| {
                let mut entries = vec![0.0; width + 1];
                let mut l = vec![0.0; width + 1];
                for (offset, (row, scale)) in rows.chunks_mut(stride).zip(scales).enumerate() {
                    let i = index * block + offset;
                    for (k, entry) in entries.iter_mut().enumerate().take(bands.min(i + 1)) {
                        *entry = columns[(i - k) * bands + k];
                    }
                    // `(CT)_{i,j} = sum_m C_{i,m} T_{m,j}` with `m = j, j + 1, j + 2`.
                    for k in 0..=width.min(i) {
                        let t = &inverse[i - k];
                        let mut sum = t[0] * entries[k];
                        if k >= 1 {
                            sum += t[1] * entries[k - 1];
                        }
                        if k >= 2 {
                            sum += t[2] * entries[k - 2];
                        }
                        l[k] = sum;
                    }
                    if l[0].is_nan() || l[0] <= 0.0 {
                        return false;
                    }
                    *scale = 1.0 / l[0];
                    for k in 1..=width.min(i) {
                        row[k - 1] = -l[k] * *scale;
                    }
                }
                true
            })
            .reduce(|| true, |a, b| a && b)
    }

    /// Replaces row `i` of `cost` by `df/dL_{i,i-k}`.
    fn differentiate(&mut self) {
        let (width, stride) = (self.width, self.stride);
        let Self { regression, scale, covariance, cost, cost_diagonal, .. } = self;
        let (regression, scale, covariance, cost_diagonal) =
            (&*regression, &*scale, &*covariance, &*cost_diagonal);
        let block = 32;
        cost.par_chunks_mut(block * stride).enumerate().for_each(|(index, rows)| {
            let mut product = vec![0.0; width + PADDING];
            for (offset, row) in rows.chunks_mut(stride).enumerate() {
                let i = index * block + offset;
                let (reach, s) = (width.min(i), scale[i]);
                multiply(&covariance[..i * stride], stride, reach, &row[1..], &mut product);
                let g = &regression[i * stride..i * stride + reach];
                let inner: f64 = g.iter().zip(&product).map(|(a, b)| a * b).sum();
                row[0] = -2.0 * s * (s * s * cost_diagonal[i] + inner);
                for (derivative, p) in row[1..=reach].iter_mut().zip(&product) {
                    *derivative = -2.0 * s * p;
                }
            }
        });
    }

    /// Chain rule through `L = C T`, from rows to columns.
    fn collect(&self, gradient: &mut [f64]) {
        let (n, bands, stride) = (self.steps(), self.bands, self.stride);
        let inverse = &self.inverse.columns;
        let block = 64;
        gradient.par_chunks_mut(block * bands).enumerate().for_each(|(index, columns)| {
            for (offset, column) in columns.chunks_mut(bands).enumerate() {
                let j = index * block + offset;
                let t0 = inverse[j][0];
                let t1 = if j >= 1 { inverse[j - 1][1] } else { 0.0 };
                let t2 = if j >= 2 { inverse[j - 2][2] } else { 0.0 };
                for (k, entry) in column.iter_mut().enumerate() {
                    if j + k >= n {
                        *entry = 0.0;
                        continue;
                    }
                    let d = &self.cost[(j + k) * stride + k..];
                    *entry = t0 * d[0] + t1 * d[1] + t2 * d[2];
                }
            }
        });
    }

    /// The cost-to-go of rows `from..` at the matrix last evaluated: `w` rows of lags, the last for
    /// row `from - 1`.
    pub(super) fn cost_to_go(&self, from: usize) -> Vec<f64> {
        let (width, stride) = (self.width, self.stride);
        let first = from - width.min(from);
        let mut rows = vec![0.0; (self.steps() - first) * stride];
        let mut diagonal = vec![0.0; self.steps() - first];
        let regression = &self.regression[first * stride..];
        sweep_backward(
            regression,
            width,
            stride,
            self.terminal.as_deref(),
            from - first,
            &mut rows,
            &mut diagonal,
        );
        rows.truncate((from - first) * stride);
        rows
    }

    /// Band of `N = (L L^T)^-1`, lags `0..=w`, by rows of [`Objective::stride`] at the matrix last
    /// evaluated.
    ///
    /// Reversing the order of the steps turns `L L^T` into `K^T K` with `K` lower triangular, so this
    /// is the forward sweep once more. `n w^2` multiply-adds.
    pub(super) fn output_gram(&self) -> Vec<f64> {
        let (n, width, stride) = (self.steps(), self.width, self.stride);
        let mut regression = vec![0.0; n * stride];
        let mut scale = vec![0.0; n];
        for i in 0..n {
            let j = n - 1 - i;
            scale[i] = self.scale[j];
            for k in 1..=width.min(i) {
                // K_{i,i-k} = L_{j+k,j}; g = -K_{i,i-k}/K_ii.
                let row = j + k;
                let entry = -self.regression[row * stride + k - 1] / self.scale[row];
                regression[i * stride + k - 1] = -entry * scale[i];
            }
        }
        let mut reversed = vec![0.0; n * stride];
        sweep_forward(&regression, &scale, width, stride, &mut reversed);
        let mut gram = regression;
        gram.fill(0.0);
        for i in 0..n {
            for k in 0..=width.min(i) {
                gram[i * stride + k] = reversed[(n - 1 - i + k) * stride + k];
            }
        }
        gram
    }

    pub(super) fn stride(&self) -> usize {
        self.stride
    }
}

/// `covariance[i][k] = Cov(x_i, x_{i-k})` for ascending `i`.
fn sweep_forward(
    regression: &[f64],
    scale: &[f64],
    width: usize,
    stride: usize,
    covariance: &mut [f64],
) {
    let mut product = vec![0.0; width + PADDING];
    for (i, &s) in scale.iter().enumerate() {
        let reach = width.min(i);
        let g = &regression[i * stride..(i + 1) * stride];
        let (past, row) = covariance.split_at_mut(i * stride);
        multiply(past, stride, reach, g, &mut product);
        let inner: f64 = g[..reach].iter().zip(&product).map(|(a, b)| a * b).sum();
        row[0] = s * s + inner;
        row[1..=reach].copy_from_slice(&product[..reach]);
    }
}

/// Cost-to-go for descending `i >= stop`: row `i` of `cost` becomes `(_, q_i g_i + lambda_i)` and
/// `diagonal[i]` is `q_i`.
///
/// Rows before `stop` are left holding the cost-to-go of rows `stop..` in the states before `stop`.
fn sweep_backward(
    regression: &[f64],
    width: usize,
    stride: usize,
    terminal: Option<&[f64]>,
    stop: usize,
    cost: &mut [f64],
    diagonal: &mut [f64],
) {
    cost.fill(0.0);
    if let Some(rows) = terminal {
        let start = cost.len() - rows.len();
        cost[start..].copy_from_slice(rows);
    }
    let mut lambda = vec![0.0; width + PADDING];
    for i in (stop..diagonal.len()).rev() {
        let reach = width.min(i);
        let g = &regression[i * stride..(i + 1) * stride];
        let (past, row) = cost.split_at_mut(i * stride);
        let q = 1.0 + row[0];
        diagonal[i] = q;
        lambda[..reach].copy_from_slice(&row[1..=reach]);
        lambda[reach..].fill(0.0);
        for (h, (x, l)) in row[1..=reach].iter_mut().zip(g.iter().zip(&lambda)) {
            *h = q * x + l;
        }
        row[reach + 1..stride].fill(0.0);
        update(past, stride, reach, g, &row[1..stride], &lambda);
    }
}

#[cfg(test)]
mod tests;
