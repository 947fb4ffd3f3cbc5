//! Strategy and sensitivity by their definitions, slowly, from the numbers of a request alone.
//!
//! Only [`mf_core::reference`] is shared with `mf_core`, none of its fast paths.

use mf_core::{Method, Participation, StrategyRecord, reference};

use crate::plan::{PlanRequest, StrategyFor};

/// A strategy as a table of rows by lag, diagonal first.
pub(super) struct SlowStrategy {
    pub(super) rows: Vec<Vec<f64>>,
    /// The first column, if the request makes a Toeplitz strategy.
    toeplitz: Option<Vec<f64>>,
}

/// A sensitivity and whether it is attained.
pub(super) struct SlowSensitivity {
    pub(super) value: f64,
    pub(super) exact: bool,
}

impl SlowStrategy {
    /// The number of diagonals that a request asks for; `None` for a method without a formula.
    pub(super) fn bands(request: &PlanRequest) -> Option<usize> {
        match request.method {
            Method::Identity => Some(1),
            Method::Input | Method::SquareRoot => Some(request.steps),
            Method::Bsr { bands } | Method::NormalizedSquareRoot { bands } => Some(bands),
            // The inverse is banded, the strategy is not.
            Method::Bisr { .. } | Method::LambdaCgd { lambda: Some(_) } => Some(request.steps),
            _ => None,
        }
    }

    /// The strategy that a request describes; `None` for a method without a formula.
    pub(super) fn new(request: &PlanRequest) -> Option<Self> {
        let (n, bands) = (request.steps, Self::bands(request)?);
        let rates = match (request.strategy_for, &request.learning_rates) {
            (StrategyFor::Schedule, Some(rates)) => Some(rates),
            _ => None,
        };
        let method = request.method;
        if let Some(column) = &request.workload_column {
            return Self::of_column(method, column, bands);
        }
        let toeplitz = match (method, rates) {
            (Method::Identity, _) => Some(vec![1.0]),
            (Method::LambdaCgd { lambda: Some(lambda) }, _) => {
                Some((0..n).map(|j| lambda.powi(j as i32)).collect())
            }
            (Method::Bisr { bands }, None) => {
                let taps = reference::inverse_square_root_coefficients(&request.sgd, bands);
                Some(reference::reciprocal(&taps, n))
            }
            (Method::Input, None) => Some(reference::workload_coefficients(&request.sgd, n)),
            (Method::SquareRoot | Method::Bsr { .. }, None) => {
                Some(reference::square_root_coefficients(&request.sgd, bands))
            }
            _ => None,
        };
        if let Some(c) = toeplitz {
            return Some(Self::with_column(c, n));
        }
        let constant = vec![1.0; n];
        let a = workload_rows(request, rates.unwrap_or(&constant), bands);
        let rows = match method {
            Method::Input => a,
            Method::SquareRoot | Method::Bsr { .. } => square_root_rows(&a),
            Method::NormalizedSquareRoot { .. } => with_unit_columns(square_root_rows(&a)),
            _ => return None,
        };
        Some(Self { rows, toeplitz: None })
    }

    /// The same for a workload of one's own, `A = LDToep(column)`: the root by its definition, row by row.
    fn of_column(method: Method, column: &[f64], bands: usize) -> Option<Self> {
        let n = column.len();
        let a = |rows: usize, bands: usize| -> Vec<Vec<f64>> {
            (0..rows).map(|i| column[..bands.min(i + 1)].to_vec()).collect()
        };
        let root = |len: usize| square_root_rows(&a(len, len)).pop();
        let c = match method {
            Method::Identity => vec![1.0],
            Method::LambdaCgd { lambda: Some(lambda) } => {
                (0..n).map(|j| lambda.powi(j as i32)).collect()
            }
            Method::Input => column.to_vec(),
            Method::SquareRoot | Method::Bsr { .. } => root(bands)?,
            Method::Bisr { bands } => {
                reference::reciprocal(&reference::reciprocal(&root(bands)?, bands), n)
            }
            Method::NormalizedSquareRoot { bands } => {
                let rows = with_unit_columns(square_root_rows(&a(n, bands)));
                return Some(Self { rows, toeplitz: None });
            }
            _ => return None,
        };
        Some(Self::with_column(c, n))
    }

    fn with_column(c: Vec<f64>, steps: usize) -> Self {
        let rows = (0..steps).map(|i| c[..c.len().min(i + 1)].to_vec()).collect();
        Self { rows, toeplitz: Some(c) }
    }

    /// `|C e_i|^2` of all columns, by the definition. O(n p).
    pub(super) fn squared_columns(&self) -> Vec<f64> {
        let mut squares = vec![0.0; self.rows.len()];
        for (t, row) in self.rows.iter().enumerate() {
            for (lag, c) in row.iter().enumerate() {
                squares[t - lag] += c * c;
            }
        }
        squares
    }

    /// `<m_i, m_j>` of the slot means `m_i = sum_l |C e_{i + l b}|`, by rows: by the definition. O(n p + n b^2).
    pub(super) fn gram(&self, slots: usize) -> Vec<f64> {
        let mut entries = vec![0.0; slots * slots];
        for (t, row) in self.rows.iter().enumerate() {
            let mut means = vec![0.0; slots];
            for (lag, c) in row.iter().enumerate() {
                means[(t - lag) % slots] += c.abs();
            }
            for (i, j) in (0..slots).flat_map(|i| (0..slots).map(move |j| (i, j))) {
                entries[i * slots + j] += means[i] * means[j];
            }
        }
        entries
    }

    /// The strategy that a certificate gives: by its rows, or Toeplitz by few numbers: `C g = 1` by substitution,
    /// buffers by their powers.
    pub(super) fn recorded(recorded: &StrategyRecord, steps: usize) -> Self {
        let column = match recorded {
            StrategyRecord::Rows { rows } => {
                return Self { rows: rows.clone(), toeplitz: None };
            }
            StrategyRecord::Toeplitz { coefficients } => coefficients.clone(),
            StrategyRecord::Inverse { coefficients } => reference::reciprocal(coefficients, steps),
            StrategyRecord::Buffered { buffers } => (0..steps as i32)
                .map(|i| match i {
                    0 => 1.0,
                    _ => buffers.iter().map(|x| x.weight * x.decay.powi(i - 1)).sum(),
                })
                .collect(),
        };
        Self::with_column(column, steps)
    }

    /// `sens_{k,b}(C)`, or an upper bound where the worst pattern is not known. O(n^2 (p + k)) at worst.
    pub(super) fn sensitivity(&self, participation: &Participation) -> SlowSensitivity {
        let (n, b) = (self.rows.len(), participation.min_separation());
        let k = participation.max_participations();
        let bands = self.rows.iter().map(Vec::len).max().unwrap_or(1);
        if bands <= b || k == 1 {
            let weights: Vec<f64> = (0..n).map(|j| self.inner(j, j, bands)).collect();
            return SlowSensitivity { value: heaviest(&weights, b, k)[k].sqrt(), exact: true };
        }
        if let Some(c) = &self.toeplitz {
            let peak =
                (0..c.len()).fold(0, |peak, j| if c[j].abs() > c[peak].abs() { j } else { peak });
            let largest = |part: &[f64]| part.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            let majorant: Vec<f64> = (0..c.len())
                .map(|j| if j <= peak { largest(&c[..=j]) } else { largest(&c[j..]) })
                .collect();
            let value = reference::leftmost_sensitivity(&majorant, participation);
            // Rounding makes no pattern worse that was not.
            let close = |(m, c): (&f64, &f64)| m - c <= 1e-12 * m;
            return SlowSensitivity { value, exact: majorant.iter().zip(c).all(close) };
        }
        let charges: Vec<f64> = (0..n).map(|i| self.charge(i, b, k, bands)).collect();
        SlowSensitivity { value: heaviest(&charges, b, k)[k].sqrt(), exact: false }
    }

    /// The inner product of columns `i` and `j`: rows from the later one on, as far as the earlier one reaches. O(p).
    fn inner(&self, i: usize, j: usize, bands: usize) -> f64 {
        let (first, last) = (i.min(j), i.max(j));
        let entry =
            |row: usize, column: usize| self.rows[row].get(row - column).copied().unwrap_or(0.0);
        let end = self.rows.len().min(first + bands);
        (last..end).map(|row| entry(row, i) * entry(row, j)).sum()
    }

    /// The most that `sum_{j in pi} |(C^T C)_ij|` can be over patterns that contain `i`.
    fn charge(&self, i: usize, b: usize, k: usize, bands: usize) -> f64 {
        let inner = |j: usize| self.inner(i, j, bands).abs();
        let left: Vec<f64> = (0..(i + 1).saturating_sub(b)).map(inner).collect();
        let right: Vec<f64> = (i + b..self.rows.len()).map(inner).collect();
        let (left, right) = (heaviest(&left, b, k), heaviest(&right, b, k));
        let others = (0..k).map(|m| left[m] + right[k - 1 - m]);
        inner(i) + others.fold(0.0, f64::max)
    }
}

/// `A_ij = sum_{t=j}^{i} alpha^{i-t} eta_t beta^{t-j}` for the lags below `bands`, term by term.
fn workload_rows(request: &PlanRequest, rates: &[f64], bands: usize) -> Vec<Vec<f64>> {
    let powers = |x: f64| -> Vec<f64> { (0..bands).map(|i| x.powi(i as i32)).collect() };
    let (alpha, beta) = (powers(request.sgd.decay_factor()), powers(request.sgd.momentum()));
    let entry = |i: usize, j: usize| (j..=i).map(|t| alpha[i - t] * rates[t] * beta[t - j]).sum();
    (0..rates.len()).map(|i| (0..bands.min(i + 1)).map(|lag| entry(i, i - lag)).collect()).collect()
}

/// The banded root from `(C^2)_ij = A_ij`: `C_ij = (A_ij - sum_{j<t<i} C_it C_tj) / (C_ii + C_jj)`.
fn square_root_rows(a: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut c: Vec<Vec<f64>> = Vec::with_capacity(a.len());
    for (i, row) in a.iter().enumerate() {
        let mut root = vec![row[0].sqrt()];
        for lag in 1..row.len() {
            let known: f64 = (1..lag).map(|m| root[m] * c[i - m][lag - m]).sum();
            root.push((row[lag] - known) / (root[0] + c[i - lag][0]));
        }
        c.push(root);
    }
    c
}

/// Every column divided by its norm.
fn with_unit_columns(mut c: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let mut squares = vec![0.0; c.len()];
    for (i, row) in c.iter().enumerate() {
        row.iter().enumerate().for_each(|(lag, x)| squares[i - lag] += x * x);
    }
    for (i, row) in c.iter_mut().enumerate() {
        row.iter_mut().enumerate().for_each(|(lag, x)| *x /= squares[i - lag].sqrt());
    }
    c
}

/// The largest sums of at most 0, 1, ..., `k` weights that are `b` apart, by a table over (weights, count). O(n
/// k).
fn heaviest(weights: &[f64], b: usize, k: usize) -> Vec<f64> {
    let n = weights.len();
    let mut best = vec![vec![0.0_f64; n + 1]; k + 1];
    for m in 1..=k {
        for i in 1..=n {
            best[m][i] = best[m][i - 1].max(weights[i - 1] + best[m - 1][i.saturating_sub(b)]);
        }
    }
    best.into_iter().map(|row| row[n]).collect()
}
