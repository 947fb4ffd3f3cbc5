//! The workload `A`: which linear combination of updates every iterate is.
//!
//! SGD with momentum and weight decay, `theta_i = alpha theta_{i-1} - eta_i m_i` with
//! `m_i = beta m_{i-1} + x_i`, unrolls to `theta = -A x` with `A = E_alpha diag(eta) E_beta`, where
//! `E_t = LDToep(1, t, t^2, ...)`. For a constant learning rate (taken out as a factor) `A` is
//! Toeplitz; a schedule makes it non-Toeplitz, but its inverse keeps three diagonals.

use serde::{Deserialize, Serialize};
use twofloat::TwoFloat;

use crate::banded::BandedLower;
use crate::error::{Error, Result};
use crate::triangular::LowerTriangular;

/// The two numbers of SGD that shape the workload, checked: `0 <= beta < alpha <= 1`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Sgd {
    decay_factor: f64,
    momentum: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    decay_factor: f64,
    momentum: f64,
}

impl TryFrom<Unchecked> for Sgd {
    type Error = Error;

    fn try_from(raw: Unchecked) -> Result<Self> {
        Self::new(raw.decay_factor, raw.momentum)
    }
}

impl Sgd {
    /// SGD that multiplies the weights by `alpha` and the momentum buffer by `beta` in every step.
    ///
    /// # Errors
    /// [`Error::DecayFactor`] unless `0 < alpha <= 1`; [`Error::Momentum`] unless
    /// `0 <= beta < alpha`. NaN fails both.
    pub fn new(decay_factor: f64, momentum: f64) -> Result<Self> {
        if !(decay_factor > 0.0 && decay_factor <= 1.0) {
            return Err(Error::DecayFactor { decay_factor });
        }
        if !(momentum >= 0.0 && momentum < decay_factor) {
            return Err(Error::Momentum { momentum, decay_factor });
        }
        Ok(Self { decay_factor, momentum })
    }

    /// `alpha`, the factor on the weights.
    pub fn decay_factor(&self) -> f64 {
        self.decay_factor
    }

    /// `beta`, the factor on the momentum buffer.
    pub fn momentum(&self) -> f64 {
        self.momentum
    }

    /// The first `len` coefficients of the first column of `A_{alpha,beta}`,
    /// `a_j = sum_{i=0}^{j} alpha^i beta^{j-i}`.
    ///
    /// By `a_j = alpha a_{j-1} + beta^j` in twice the working precision: a sum of non-negative terms
    /// has no cancellation, nothing is divided by `alpha - beta`, and every coefficient is right to
    /// the last place however close the two are. O(len).
    pub fn coefficients(&self, len: usize) -> Vec<f64> {
        let mut a = TwoFloat::from(0.0);
        let mut beta_power = TwoFloat::from(1.0);
        let mut coefficients = Vec::with_capacity(len);
        for _ in 0..len {
            a = a * self.decay_factor + beta_power;
            coefficients.push(a.hi());
            beta_power *= self.momentum;
        }
        coefficients
    }
}

/// A workload matrix `A` of `n` steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    steps: usize,
    shape: Shape,
}

/// What is known of a workload's structure.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Constant(Sgd),
    Scheduled(Sgd, Vec<f64>),
    /// The first column, one element per step.
    Toeplitz(Vec<f64>),
    General(LowerTriangular),
}

impl Workload {
    /// `A_{alpha,beta}`: SGD with a constant learning rate, which is taken out as a factor.
    ///
    /// # Errors
    /// [`Error::NoSteps`].
    pub fn sgd(sgd: Sgd, steps: usize) -> Result<Self> {
        if steps == 0 {
            return Err(Error::NoSteps);
        }
        Ok(Self { steps, shape: Shape::Constant(sgd) })
    }

    /// `A = E_alpha diag(eta) E_beta`: SGD with learning rate `eta_i` in step `i`.
    ///
    /// # Errors
    /// [`Error::NoSteps`], or [`Error::LearningRate`] unless all rates are positive and finite.
    pub fn scheduled(sgd: Sgd, learning_rates: Vec<f64>) -> Result<Self> {
        if learning_rates.is_empty() {
            return Err(Error::NoSteps);
        }
        if let Some(step) = learning_rates.iter().position(|&x| !(x > 0.0 && x.is_finite())) {
            return Err(Error::LearningRate { step, value: learning_rates[step] });
        }
        Ok(Self { steps: learning_rates.len(), shape: Shape::Scheduled(sgd, learning_rates) })
    }

    /// Any lower-triangular Toeplitz matrix by its first column, one coefficient per step: the same
    /// combination of the last updates is wanted in every step.
    ///
    /// The average of the last 10 iterates of plain SGD, or any other linear optimizer or average of
    /// iterates, has such a workload. Methods that need SGD's closed form refuse it by name.
    ///
    /// # Errors
    /// [`Error::NoSteps`], [`Error::NotFinite`], or [`Error::ZeroDiagonal`] if the first coefficient is
    /// 0, for then `A` has no inverse.
    pub fn toeplitz(column: Vec<f64>) -> Result<Self> {
        if column.is_empty() {
            return Err(Error::NoSteps);
        }
        if let Some(row) = column.iter().position(|a| !a.is_finite()) {
            return Err(Error::NotFinite { row, column: 0 });
        }
        if column[0] == 0.0 {
            return Err(Error::ZeroDiagonal);
        }
        Ok(Self { steps: column.len(), shape: Shape::Toeplitz(column) })
    }

    /// Any lower-triangular matrix with positive diagonal.
    pub fn general(matrix: LowerTriangular) -> Self {
        Self { steps: matrix.steps(), shape: Shape::General(matrix) }
    }

    /// `n`, the number of steps.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The parameters of SGD, unless the workload was given as a matrix or by its column.
    pub fn as_sgd(&self) -> Option<&Sgd> {
        match &self.shape {
            Shape::Constant(sgd) | Shape::Scheduled(sgd, _) => Some(sgd),
            Shape::Toeplitz(_) | Shape::General(_) => None,
        }
    }

    /// The first `len` coefficients of the first column of `A`, if all columns are shifts of it.
    pub fn as_toeplitz(&self, len: usize) -> Option<Vec<f64>> {
        match &self.shape {
            Shape::Constant(sgd) => Some(sgd.coefficients(len.min(self.steps))),
            Shape::Toeplitz(column) => Some(column[..len.min(self.steps)].to_vec()),
            Shape::Scheduled(..) | Shape::General(_) => None,
        }
    }

    /// The parameters of SGD if the learning rate is constant, for which much has a closed form.
    pub fn as_constant_sgd(&self) -> Option<&Sgd> {
        match &self.shape {
            Shape::Constant(sgd) => Some(sgd),
            _ => None,
        }
    }

    /// The learning rates, if they are not constant.
    pub fn learning_rates(&self) -> Option<&[f64]> {
        match &self.shape {
            Shape::Scheduled(_, rates) => Some(rates),
            _ => None,
        }
    }

    /// The general matrix, if the workload was given as one.
    pub fn as_general(&self) -> Option<&LowerTriangular> {
        match &self.shape {
            Shape::General(matrix) => Some(matrix),
            _ => None,
        }
    }

    /// The first `bands` diagonals of `A`. O(n bands).
    ///
    /// # Errors
    /// [`Error::Bands`].
    pub fn diagonals(&self, bands: usize) -> Result<BandedLower> {
        let mut band = BandedLower::zeros(self.steps, bands)?;
        match &self.shape {
            Shape::Constant(sgd) => {
                return BandedLower::toeplitz(self.steps, &sgd.coefficients(bands));
            }
            Shape::Scheduled(sgd, rates) => {
                let powers = powers(sgd.momentum, bands);
                for i in 0..self.steps {
                    let above: Vec<f64> = if i == 0 { vec![] } else { band.row(i - 1).to_vec() };
                    let row = band.row_mut(i);
                    for lag in 0..bands.min(i + 1) {
                        // A_ij = alpha A_{i-1,j} + eta_i beta^{i-j}: all terms are non-negative.
                        let decayed =
                            if lag == 0 { 0.0 } else { sgd.decay_factor * above[lag - 1] };
                        row[lag] = decayed + rates[i] * powers[lag];
                    }
                }
            }
            Shape::Toeplitz(column) => {
                let lags = bands.min(column.len());
                return BandedLower::toeplitz(self.steps, &column[..lags]);
            }
            Shape::General(matrix) => {
                for i in 0..self.steps {
                    let source = matrix.row(i);
                    for lag in 0..bands.min(i + 1) {
                        band.row_mut(i)[lag] = source[i - lag];
                    }
                }
            }
        }
        Ok(band)
    }

    /// `A^-1 = E_beta^-1 diag(1/eta) E_alpha^-1` by its three diagonals, for SGD with or without a
    /// schedule; `None` for any other workload, whose inverse is full.
    ///
    /// Row `i`: `1/eta_i`, `-(alpha/eta_i + beta/eta_{i-1})`, `alpha beta / eta_{i-1}`. O(n).
    pub fn inverse(&self) -> Option<BandedLower> {
        let (sgd, rates) = match &self.shape {
            Shape::Constant(sgd) => (sgd, None),
            Shape::Scheduled(sgd, rates) => (sgd, Some(rates)),
            Shape::Toeplitz(_) | Shape::General(_) => return None,
        };
        let (alpha, beta) = (sgd.decay_factor, sgd.momentum);
        let rate = |i: usize| rates.map_or(1.0, |rates| rates[i]);
        let bands = self.steps.min(3);
        let mut entries = vec![0.0; self.steps * bands];
        for (i, row) in entries.chunks_exact_mut(bands).enumerate() {
            row[0] = 1.0 / rate(i);
            if i >= 1 {
                row[1] = -(alpha / rate(i) + beta / rate(i - 1));
            }
            if i >= 2 {
                row[2] = alpha * beta / rate(i - 1);
            }
        }
        BandedLower::from_entries(self.steps, bands, entries).ok()
    }

    /// `A x` for one column of updates, by running the recurrence: O(n), or O(n^2) for a workload that is
    /// not SGD's.
    ///
    /// # Panics
    /// Unless `x` has one element per step.
    pub fn apply(&self, x: &[f64]) -> Vec<f64> {
        assert_eq!(x.len(), self.steps, "one update per step");
        let mut iterates = vec![0.0; self.steps];
        self.apply_from(0, x, |i, theta| iterates[i] = theta);
        iterates
    }

    /// `A x` for updates `x` that begin in step `first`; `row` is called with every element from there on.
    ///
    /// # Panics
    /// Unless there is one update for each step from `first` on.
    pub(crate) fn apply_from(&self, first: usize, x: &[f64], mut row: impl FnMut(usize, f64)) {
        assert_eq!(first + x.len(), self.steps, "one update per step");
        let (sgd, rates) = match &self.shape {
            Shape::Constant(sgd) => (sgd, None),
            Shape::Scheduled(sgd, rates) => (sgd, Some(rates)),
            Shape::Toeplitz(column) => {
                for (i, last) in (first..).zip(0..x.len()) {
                    let recent = x[..=last].iter().rev();
                    row(i, column.iter().zip(recent).map(|(a, x)| a * x).sum());
                }
                return;
            }
            Shape::General(matrix) => {
                for i in first..self.steps {
                    row(i, matrix.row(i)[first..].iter().zip(x).map(|(a, x)| a * x).sum());
                }
                return;
            }
        };
        let (mut theta, mut m) = (0.0, 0.0);
        for (i, x) in (first..).zip(x) {
            m = sgd.momentum * m + x;
            theta = sgd.decay_factor * theta + rates.map_or(1.0, |rates| rates[i]) * m;
            row(i, theta);
        }
    }
}

/// `1, t, t^2, ...` in twice the working precision, rounded.
fn powers(t: f64, len: usize) -> Vec<f64> {
    let mut power = TwoFloat::from(1.0);
    let mut powers = Vec::with_capacity(len);
    for _ in 0..len {
        powers.push(power.hi());
        power *= t;
    }
    powers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_outside_the_domain_are_refused() {
        assert!(matches!(Sgd::new(f64::NAN, 0.0), Err(Error::DecayFactor { .. })));
        assert!(matches!(Sgd::new(0.0, 0.0), Err(Error::DecayFactor { .. })));
        assert!(matches!(Sgd::new(1.1, 0.0), Err(Error::DecayFactor { .. })));
        assert!(matches!(Sgd::new(0.9, 0.9), Err(Error::Momentum { .. })));
        assert!(matches!(Sgd::new(0.9, -0.1), Err(Error::Momentum { .. })));
        assert!(matches!(Sgd::new(0.9, f64::NAN), Err(Error::Momentum { .. })));
        let sgd = Sgd::new(1.0, 0.9).unwrap();
        assert!(matches!(
            Workload::scheduled(sgd, vec![1.0, 0.0]),
            Err(Error::LearningRate { step: 1, .. })
        ));
        assert_eq!(Workload::sgd(sgd, 0), Err(Error::NoSteps));
    }

    #[test]
    fn a_column_of_ones_own_is_checked_and_applied_like_any_other() {
        assert_eq!(Workload::toeplitz(vec![]), Err(Error::NoSteps));
        assert_eq!(Workload::toeplitz(vec![0.0, 1.0]), Err(Error::ZeroDiagonal));
        for bad in [f64::NAN, f64::INFINITY] {
            let refused = Workload::toeplitz(vec![1.0, bad]);
            assert_eq!(refused, Err(Error::NotFinite { row: 1, column: 0 }));
        }
        let sgd = Sgd::new(0.9, 0.5).unwrap();
        let known = Workload::sgd(sgd, 30).unwrap();
        let own = Workload::toeplitz(sgd.coefficients(30)).unwrap();
        assert_eq!(own.diagonals(7), known.diagonals(7));
        let x: Vec<f64> = (0..30).map(|i| f64::from(i * 7 % 11) - 5.0).collect();
        for (a, b) in own.apply(&x).iter().zip(known.apply(&x)) {
            assert!((a - b).abs() < 1e-12, "{a} and {b}");
        }
        assert_eq!((own.inverse(), own.as_sgd()), (None, None));
    }

    #[test]
    fn nearly_equal_parameters_lose_nothing() {
        // The limit beta -> alpha is a_j = (j + 1) alpha^j; one ulp away it must be as close.
        let alpha: f64 = 0.75;
        let sgd = Sgd::new(alpha, alpha.next_down()).unwrap();
        for (j, a) in sgd.coefficients(200).iter().enumerate() {
            let limit = (j + 1) as f64 * alpha.powi(j as i32);
            assert!((a / limit - 1.0).abs() < 1e-13, "j = {j}: {a} against {limit}");
        }
    }

    #[test]
    fn without_momentum_the_coefficients_are_powers() {
        let a = Sgd::new(0.5, 0.0).unwrap().coefficients(5);
        assert_eq!(a, [1.0, 0.5, 0.25, 0.125, 0.0625]);
        assert_eq!(Sgd::new(1.0, 0.0).unwrap().coefficients(3), [1.0; 3]);
    }
}
