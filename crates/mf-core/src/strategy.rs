//! The strategy `C`: what is made private, and by its inverse how the noise is correlated.
//!
//! What a strategy costs in training is the memory that the rows of `C^-1 Z` need:
//!
//! | form | row `i` of the noise | rows of single-precision floats kept |
//! |---|---|---|
//! | `C` has `p` diagonals | `(z_i - sum_{k=1}^{p-1} C_{i,i-k} y_{i-k}) / C_ii` | `p - 1` |
//! | `C^-1` has `p` diagonals | `sum_{k=0}^{p-1} g_k z_{i-k}` | `p - 1`, or fewer and `Z` is drawn again |
//! | `m` buffers | `z_i - sum_j omega_j s_j`, then `s_j <- theta_j s_j + y_i` | `2 m`, in double precision |

use serde::{Deserialize, Serialize};

use crate::banded::BandedLower;
use crate::error::{Error, Result};
use crate::series;
use crate::triangular::LowerTriangular;

/// One buffer of a buffered linear Toeplitz strategy, `C = LDToep(1, c_1, c_2, ...)` with
/// `c_i = sum_j weight_j decay_j^(i-1)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// `omega_j`, not negative.
    pub weight: f64,
    /// `theta_j`, in [0, 1].
    pub decay: f64,
}

/// A lower-triangular strategy matrix `C` with positive diagonal and `p` diagonals.
#[derive(Debug, Clone, PartialEq)]
pub struct Strategy {
    steps: usize,
    form: Form,
}

/// How a strategy is stored.
#[derive(Debug, Clone, PartialEq)]
enum Form {
    /// One column for all: `LDToep(c_0, ..., c_{p-1}, 0, ...)`.
    Toeplitz(Vec<f64>),
    Rows(BandedLower),
    /// `C^-1 = LDToep(taps)`, and the first column of `C`.
    Inverse {
        taps: Vec<f64>,
        column: Vec<f64>,
    },
    /// The buffers, and the first column of `C`.
    Buffered {
        buffers: Vec<Buffer>,
        column: Vec<f64>,
    },
}

/// A strategy by the numbers that it is stored by, as they stand in files. The number of steps stands
/// elsewhere; anyone can write such a record, and [`strategy`](Self::strategy) checks it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case", deny_unknown_fields)]
pub enum StrategyRecord {
    /// The first column of a Toeplitz `C`, up to its last coefficient that is not zero.
    #[serde(rename = "strategy")]
    Toeplitz {
        /// By lag.
        coefficients: Vec<f64>,
    },
    /// The same of `C^-1`.
    Inverse {
        /// By lag.
        coefficients: Vec<f64>,
    },
    /// The buffers of a buffered linear Toeplitz strategy.
    Buffered {
        /// Weight and decay of each.
        buffers: Vec<Buffer>,
    },
    /// Any `C` by its rows.
    Rows {
        /// By lag, diagonal first: row `i` has `min(p, i + 1)` entries.
        rows: Vec<Vec<f64>>,
    },
}

impl StrategyRecord {
    /// The strategy over `n` steps that has these numbers.
    ///
    /// # Errors
    /// What the constructor of its form says, and [`Error::SizeMismatch`] for rows of other lengths.
    pub fn strategy(&self, steps: usize) -> Result<Strategy> {
        match self {
            Self::Toeplitz { coefficients } => Strategy::toeplitz(steps, coefficients.clone()),
            Self::Inverse { coefficients } => {
                Strategy::inverse_toeplitz(steps, coefficients.clone())
            }
            Self::Buffered { buffers } => Strategy::buffered(steps, buffers.clone()),
            Self::Rows { rows } => {
                let mismatch =
                    |what, expected, found| Error::SizeMismatch { what, expected, found };
                if rows.len() != steps {
                    return Err(mismatch("rows of the strategy", steps, rows.len()));
                }
                let bands = rows.last().map_or(0, Vec::len);
                let mut padded = Vec::with_capacity(steps.saturating_mul(bands));
                for (i, row) in rows.iter().enumerate() {
                    let expected = bands.min(i + 1);
                    if row.len() != expected {
                        return Err(mismatch(
                            "entries in a row of the strategy",
                            expected,
                            row.len(),
                        ));
                    }
                    padded.extend_from_slice(row);
                    padded.resize((i + 1) * bands, 0.0);
                }
                Strategy::banded(BandedLower::from_entries(steps, bands, padded)?)
            }
        }
    }
}

/// How the rows of `C^-1 Z` are computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noising<'a> {
    /// From earlier rows of the noise, by the rows of `C`.
    Recurrence,
    /// From rows of `Z`, by these diagonals of the Toeplitz matrix `C^-1`.
    Taps(&'a [f64]),
    /// From one running sum per buffer.
    Buffers(&'a [Buffer]),
}

impl Strategy {
    /// `C = I`, which is DP-SGD: independent noise in every step.
    ///
    /// # Errors
    /// [`Error::NoSteps`].
    pub fn identity(steps: usize) -> Result<Self> {
        Self::toeplitz(steps, vec![1.0])
    }

    /// `C = LDToep(c_0, ..., c_{p-1}, 0, ...)`.
    ///
    /// # Errors
    /// [`Error::NoSteps`], [`Error::Bands`] unless `1 <= p <= n`, [`Error::NotFinite`], or
    /// [`Error::NonPositiveDiagonal`].
    pub fn toeplitz(steps: usize, coefficients: Vec<f64>) -> Result<Self> {
        check_column(steps, &coefficients)?;
        Ok(Self { steps, form: Form::Toeplitz(coefficients) })
    }

    /// A banded `C` given by its rows.
    ///
    /// # Errors
    /// [`Error::NotFinite`] or [`Error::NonPositiveDiagonal`].
    pub fn banded(rows: BandedLower) -> Result<Self> {
        rows.check_invertible()?;
        Ok(Self { steps: rows.steps(), form: Form::Rows(rows) })
    }

    /// Any lower-triangular `C`, all of whose diagonals are kept: `n^2` doubles.
    ///
    /// # Errors
    /// As [`banded`](Self::banded).
    pub fn dense(matrix: &LowerTriangular) -> Result<Self> {
        let n = matrix.steps();
        let mut rows = BandedLower::zeros(n, n)?;
        for i in 0..n {
            let entries = rows.row_mut(i).iter_mut().zip(matrix.row(i).iter().rev());
            entries.for_each(|(entry, value)| *entry = *value);
        }
        Self::banded(rows)
    }

    /// `C = LDToep(g_0, ..., g_{p-1}, 0, ...)^-1`: the inverse has `p` diagonals, `C` has all. O(n p).
    ///
    /// The column of `C` is found by substitution. If no `g_k` with `k >= 1` is positive, this adds only
    /// non-negative numbers: the relative error of `c_j` is below `(j + 1) (p + 1) 2^-53`, for all
    /// practical purposes its square root.
    ///
    /// # Errors
    /// As [`toeplitz`](Self::toeplitz); [`Error::NotFinite`] also if `C` overflows.
    pub fn inverse_toeplitz(steps: usize, taps: Vec<f64>) -> Result<Self> {
        check_column(steps, &taps)?;
        let column = series::divide_by_substitution(&[1.0], &taps, steps);
        if let Some(row) = column.iter().position(|c| !c.is_finite()) {
            return Err(Error::NotFinite { row, column: 0 });
        }
        Ok(Self { steps, form: Form::Inverse { taps, column } })
    }

    /// The buffered linear Toeplitz strategy `C = LDToep(1, c_1, c_2, ...)` with
    /// `c_i = sum_j omega_j theta_j^(i-1)` (Dvijotham et al. 2024, arXiv:2404.16706). O(n m).
    ///
    /// From `c_1` on the coefficients fall, also after rounding, so that the sensitivity is exact. The
    /// poles of `C^-1` are the zeros of `1 + sum_j omega_j / (x - theta_j)`: real, below 1, and above -1
    /// if and only if `sum_j omega_j / (1 + theta_j) < 1`, which is required: otherwise the noise
    /// would grow from step to step.
    ///
    /// # Errors
    /// [`Error::NoSteps`], [`Error::Buffer`] for a negative weight or a decay outside [0, 1], or
    /// [`Error::GrowingNoise`].
    pub fn buffered(steps: usize, buffers: Vec<Buffer>) -> Result<Self> {
        if steps == 0 {
            return Err(Error::NoSteps);
        }
        if buffers.is_empty() {
            return Err(Error::Buffers { buffers: 0, most: steps });
        }
        let fits =
            |x: &Buffer| x.weight >= 0.0 && x.weight.is_finite() && (0.0..=1.0).contains(&x.decay);
        if let Some(index) = buffers.iter().position(|buffer| !fits(buffer)) {
            let Buffer { weight, decay } = buffers[index];
            return Err(Error::Buffer { index, weight, decay });
        }
        let alternating: f64 = buffers.iter().map(|x| x.weight / (1.0 + x.decay)).sum();
        if alternating >= 1.0 {
            return Err(Error::GrowingNoise { alternating });
        }
        let mut terms: Vec<f64> = buffers.iter().map(|x| x.weight).collect();
        let mut column = Vec::with_capacity(steps);
        column.push(1.0);
        while column.len() < steps {
            column.push(terms.iter().sum());
            terms.iter_mut().zip(&buffers).for_each(|(term, x)| *term *= x.decay);
        }
        Ok(Self { steps, form: Form::Buffered { buffers, column } })
    }

    /// `n`, the number of steps.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// `p`, the number of diagonals of `C`.
    pub fn bands(&self) -> usize {
        match &self.form {
            Form::Toeplitz(column) | Form::Inverse { column, .. } => column.len(),
            Form::Buffered { column, .. } => column.len(),
            Form::Rows(rows) => rows.bands(),
        }
    }

    /// Row `i` of `C` by lag, diagonal first: `min(p, i + 1)` entries.
    ///
    /// Row `i` of `C^-1 Z` is `(z_i - sum_{k>=1} row[k] y_{i-k}) / row[0]` of the rows `y` before it.
    pub fn row(&self, i: usize) -> &[f64] {
        let row = match &self.form {
            Form::Rows(rows) => rows.row(i),
            Form::Toeplitz(column)
            | Form::Inverse { column, .. }
            | Form::Buffered { column, .. } => column,
        };
        &row[..row.len().min(i + 1)]
    }

    /// The first column of `C`, if all columns are shifts of it.
    pub fn as_toeplitz(&self) -> Option<&[f64]> {
        match &self.form {
            Form::Toeplitz(column)
            | Form::Inverse { column, .. }
            | Form::Buffered { column, .. } => Some(column),
            Form::Rows(_) => None,
        }
    }

    /// The numbers that the strategy is stored by: O(p), or O(n p) if it is not Toeplitz.
    pub fn record(&self) -> StrategyRecord {
        match &self.form {
            Form::Toeplitz(column) => StrategyRecord::Toeplitz { coefficients: column.clone() },
            Form::Inverse { taps, .. } => StrategyRecord::Inverse { coefficients: taps.clone() },
            Form::Buffered { buffers, .. } => StrategyRecord::Buffered { buffers: buffers.clone() },
            Form::Rows(_) => {
                let rows = (0..self.steps).map(|i| self.row(i).to_vec()).collect();
                StrategyRecord::Rows { rows }
            }
        }
    }

    /// How the rows of `C^-1 Z` are best computed.
    pub fn noising(&self) -> Noising<'_> {
        match &self.form {
            Form::Toeplitz(_) | Form::Rows(_) => Noising::Recurrence,
            Form::Inverse { taps, .. } => Noising::Taps(taps),
            Form::Buffered { buffers, .. } => Noising::Buffers(buffers),
        }
    }

    /// Rows of single-precision floats that the noise keeps from step to step; see the
    /// [module](self).
    pub fn noise_rows(&self) -> usize {
        match self.noising() {
            Noising::Recurrence => self.bands() - 1,
            Noising::Taps(taps) => taps.len() - 1,
            Noising::Buffers(buffers) => 2 * buffers.len(),
        }
    }

    /// The first column of `C^-1`, if `C` is Toeplitz and there is a short recipe for it: O(n m) for
    /// buffers, O(n) for a banded inverse.
    pub fn short_inverse(&self) -> Option<Vec<f64>> {
        match self.noising() {
            Noising::Recurrence => None,
            Noising::Taps(taps) => {
                let mut column = taps.to_vec();
                column.resize(self.steps, 0.0);
                Some(column)
            }
            Noising::Buffers(buffers) => {
                let mut sums = vec![0.0; buffers.len()];
                let mut column = Vec::with_capacity(self.steps);
                for i in 0..self.steps {
                    let past: f64 = buffers.iter().zip(&sums).map(|(x, sum)| x.weight * sum).sum();
                    let y = f64::from(u8::from(i == 0)) - past;
                    for (sum, buffer) in sums.iter_mut().zip(buffers) {
                        *sum = buffer.decay * *sum + y;
                    }
                    column.push(y);
                }
                Some(column)
            }
        }
    }

    /// The matrix by its rows. O(n p) for a Toeplitz strategy, which stores only one.
    ///
    /// # Errors
    /// None in practice: the sizes were checked when the strategy was made.
    pub fn to_rows(&self) -> Result<BandedLower> {
        match &self.form {
            Form::Rows(rows) => Ok(rows.clone()),
            Form::Toeplitz(column)
            | Form::Inverse { column, .. }
            | Form::Buffered { column, .. } => BandedLower::toeplitz(self.steps, column),
        }
    }
}

/// Checks what makes a lower-triangular banded Toeplitz matrix invertible.
fn check_column(steps: usize, coefficients: &[f64]) -> Result<()> {
    if steps == 0 {
        return Err(Error::NoSteps);
    }
    let bands = coefficients.len();
    if bands == 0 || bands > steps {
        return Err(Error::Bands { bands, steps });
    }
    if let Some(row) = coefficients.iter().position(|c| !c.is_finite()) {
        return Err(Error::NotFinite { row, column: 0 });
    }
    if coefficients[0] <= 0.0 {
        return Err(Error::NonPositiveDiagonal { index: 0, value: coefficients[0] });
    }
    Ok(())
}
