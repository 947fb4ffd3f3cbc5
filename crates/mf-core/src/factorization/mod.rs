//! Factorizations `A = B C` of a workload: which strategy `C` to take.

use std::fmt;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use self::aof::Certificate;
use crate::banded::BandedLower;
use crate::error::{Error, Result};
use crate::loss::{self, DecoderNorms, Loss};
use crate::participation::Participation;
use crate::sensitivity::{self, Sensitivity};
use crate::series;
use crate::strategy::Strategy;
use crate::workload::Workload;

pub mod bsr;
pub mod bisr;
pub mod lambda_cgd;
mod quasi_newton;
pub mod toeplitz;
pub mod inverse_toeplitz;
pub mod blt;
pub mod normalized_root;
pub mod triangular_root;
pub mod aof;
pub mod cache;

/// How the strategy `C` is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Method {
    /// `C = I`, `B = A`: DP-SGD.
    Identity,
    /// `C = A`, `B = I`: noise on the iterates.
    Input,
    /// `C = A^{1/2}`.
    #[serde(rename = "sqrt")]
    SquareRoot,
    /// The first `bands` diagonals of `A^{1/2}`.
    Bsr {
        /// `p`, the number of diagonals.
        bands: usize,
    },
    /// `C^-1` is the first `bands` diagonals of `A^{-1/2}`: the banded inverse square root.
    Bisr {
        /// `p`, the number of diagonals of `C^-1`.
        bands: usize,
    },
    /// `C^-1 = I - lambda * shift`.
    #[serde(rename = "lambda-cgd")]
    LambdaCgd {
        /// In [0, 1]; if left out, the best one for the participation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lambda: Option<f64>,
    },
    /// The banded Toeplitz `C` with the smallest expected error.
    Toeplitz {
        /// `p`, the number of diagonals.
        bands: usize,
    },
    /// The `C` with the smallest expected error whose inverse is banded Toeplitz.
    #[serde(rename = "inverse-toeplitz")]
    InverseToeplitz {
        /// `p`, the number of diagonals of `C^-1`.
        bands: usize,
    },
    /// Buffered linear Toeplitz: the coefficients of `C` are a sum of few exponentials, fitted to the
    /// participation.
    Blt {
        /// `m`, the number of exponentials.
        buffers: usize,
    },
    /// The first `bands` diagonals of `A^{1/2}`, every column scaled to unit norm.
    #[serde(rename = "normalised-sqrt")]
    NormalizedSquareRoot {
        /// `p`, the number of diagonals.
        bands: usize,
    },
    /// A strategy that the caller has, wherever it comes from: no workload gives it.
    Own,
    /// The approximately optimal factorization: of all `C` with unit columns and `bands` diagonals, the one
    /// with the smallest `||A C^-1||_F`.
    Aof {
        /// `p`, the number of diagonals.
        bands: usize,
        /// The certified relative gap to stop at.
        tolerance: f64,
    },
}

impl Method {
    /// The name by which configs and tables know the method.
    pub fn name(&self) -> &'static str {
        match self {
            Method::Identity => "identity",
            Method::Input => "input",
            Method::SquareRoot => "sqrt",
            Method::Bsr { .. } => "bsr",
            Method::Bisr { .. } => "bisr",
            Method::LambdaCgd { .. } => "lambda-cgd",
            Method::Toeplitz { .. } => "toeplitz",
            Method::InverseToeplitz { .. } => "inverse-toeplitz",
            Method::Blt { .. } => "blt",
            Method::NormalizedSquareRoot { .. } => "normalised-sqrt",
            Method::Aof { .. } => "aof",
            Method::Own => "own",
        }
    }

    /// The number that the method is given, bands or buffers, if it is given one.
    pub fn size(&self) -> Option<usize> {
        match *self {
            Method::Bsr { bands }
            | Method::Bisr { bands }
            | Method::Toeplitz { bands }
            | Method::InverseToeplitz { bands }
            | Method::NormalizedSquareRoot { bands }
            | Method::Aof { bands, .. } => Some(bands),
            Method::Blt { buffers } => Some(buffers),
            Method::Identity
            | Method::Input
            | Method::SquareRoot
            | Method::LambdaCgd { .. }
            | Method::Own => None,
        }
    }

    /// Whether the strategy is fitted to a participation pattern, besides the workload.
    pub fn is_fitted(&self) -> bool {
        matches!(
            self,
            Method::LambdaCgd { lambda: None }
                | Method::Toeplitz { .. }
                | Method::InverseToeplitz { .. }
                | Method::Blt { .. }
        )
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A workload with the strategy that a method chose for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Factorization {
    workload: Workload,
    method: Method,
    strategy: Strategy,
    /// What a fitted strategy was fitted to.
    participation: Option<Participation>,
    certificate: Option<Certificate>,
}

impl Factorization {
    /// Factorizes `A` by a method that does not ask who takes part when. The roots cost O(p) for SGD with
    /// a constant learning rate and O(n p^2) otherwise; the optimum is found by iteration, see
    /// [`aof`](Self::aof).
    ///
    /// # Errors
    /// [`Error::NoParticipation`] for a method that is [fitted](Method::is_fitted), and as
    /// [`for_participation`](Self::for_participation).
    pub fn new(workload: Workload, method: Method) -> Result<Self> {
        if method.is_fitted() {
            return Err(Error::NoParticipation { method: method.name() });
        }
        let any = Participation::single(workload.steps())?;
        Self::for_participation(workload, method, &any)
    }

    /// Factorizes `A`, by a method that may fit its strategy to the participation.
    ///
    /// The participation is only what the strategy is made good for. The sensitivity is computed from the
    /// strategy, for any pattern.
    ///
    /// # Errors
    /// [`Error::Bands`] unless `1 <= p <= n`; [`Error::Lambda`] or [`Error::Buffers`];
    /// [`Error::SizeMismatch`] if the participation is for other steps; [`Error::ScheduledWorkload`] for a
    /// method with Toeplitz strategies if the workload is not; [`Error::NotSgd`] for `blt` and `aof` if the
    /// workload is not SGD's; [`Error::OwnStrategy`]; those of [`aof`](Self::aof).
    pub fn for_participation(
        workload: Workload,
        method: Method,
        participation: &Participation,
    ) -> Result<Self> {
        let n = workload.steps();
        if participation.steps() != n {
            return Err(Error::SizeMismatch {
                what: "steps of the participation pattern",
                expected: n,
                found: participation.steps(),
            });
        }
        let checked = |bands: usize| {
            let fits = (1..=n).contains(&bands);
            if fits { Ok(bands) } else { Err(Error::Bands { bands, steps: n }) }
        };
        let column = |len: usize| {
            workload.as_toeplitz(len).ok_or(Error::ScheduledWorkload { method: method.name() })
        };
        let strategy = match method {
            Method::Identity => Strategy::identity(n)?,
            Method::Input => match workload.as_toeplitz(n) {
                Some(column) => Strategy::toeplitz(n, column)?,
                None => Strategy::banded(workload.diagonals(n)?)?,
            },
            Method::SquareRoot => square_root(&workload, n)?,
            Method::Bsr { bands } => square_root(&workload, bands)?,
            Method::Bisr { bands } => {
                let column = column(checked(bands)?)?;
                Strategy::inverse_toeplitz(n, inverse_root(&workload, &column)?)?
            }
            Method::LambdaCgd { lambda } => {
                let lambda = match lambda {
                    Some(lambda) if (0.0..=1.0).contains(&lambda) => lambda,
                    Some(lambda) => return Err(Error::Lambda { lambda }),
                    None => lambda_cgd::best_lambda(&workload, participation)?,
                };
                lambda_cgd::strategy(n, lambda)?
            }
            Method::Toeplitz { bands } => {
                let (a, bands) = (column(n)?, checked(bands)?);
                toeplitz::optimize(&a, &root(&workload, &a[..bands])?, participation)?
            }
            Method::InverseToeplitz { bands } => {
                let (a, bands) = (column(n)?, checked(bands)?);
                let inverse_root = inverse_root(&workload, &a[..bands])?;
                let exponentials = match workload.as_constant_sgd() {
                    Some(sgd) if bands > 1 => Some(blt::fit(sgd, participation, 2)?),
                    _ => None,
                };
                inverse_toeplitz::optimize(&a, &inverse_root, exponentials.as_ref(), participation)?
            }
            Method::Blt { buffers } => {
                let closed_form = match workload.as_sgd() {
                    Some(_) => Error::ScheduledWorkload { method: method.name() },
                    None => Error::NotSgd { method: method.name() },
                };
                let sgd = workload.as_constant_sgd().ok_or(closed_form)?;
                blt::fit(sgd, participation, buffers)?
            }
            Method::NormalizedSquareRoot { bands } => {
                let root = square_root(&workload, bands)?.to_rows()?;
                Strategy::banded(normalized_root::with_unit_columns(&root)?)?
            }
            Method::Aof { bands, tolerance } => {
                let options = aof::Options { relative_gap: tolerance, ..aof::Options::default() };
                let mut go_on = |_| ControlFlow::Continue(());
                return Self::aof(workload, bands, &options, &mut go_on);
            }
            Method::Own => return Err(Error::OwnStrategy),
        };
        let participation = method.is_fitted().then_some(*participation);
        Ok(Self { workload, method, strategy, participation, certificate: None })
    }

    /// The approximately optimal factorization with its certificate. Whether the gap that was asked for
    /// has been reached stands in [`certificate`](Self::certificate); `progress` is called after every
    /// iteration and may end the search. With `bands = n` by the fixed point of [`aof::solve_single`], else by
    /// [`aof::solve`] from a cold start.
    ///
    /// # Errors
    /// [`Error::NotSgd`]: the solver needs a workload whose inverse has three diagonals. Else those
    /// of the solver.
    pub fn aof(
        workload: Workload,
        bands: usize,
        options: &aof::Options,
        progress: &mut dyn FnMut(aof::Progress) -> ControlFlow<()>,
    ) -> Result<Self> {
        let inverse = workload.inverse().ok_or(Error::NotSgd { method: "aof" })?;
        let (rows, certificate) = if bands == workload.steps() {
            let solution = aof::solve_single(&inverse, options, progress)?;
            (solution.factor()?, solution.certificate)
        } else {
            let solution = aof::solve(&inverse, bands, options, aof::Start::Cold, progress)?;
            (solution.strategy, solution.certificate)
        };
        Self::from_aof(workload, rows, certificate, options.relative_gap)
    }

    /// A factorization that was solved before.
    fn from_aof(
        workload: Workload,
        rows: BandedLower,
        certificate: Certificate,
        tolerance: f64,
    ) -> Result<Self> {
        let method = Method::Aof { bands: rows.bands(), tolerance };
        let strategy = Strategy::banded(rows)?;
        let certificate = Some(certificate);
        Ok(Self { workload, method, strategy, participation: None, certificate })
    }

    /// `A`.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// How `C` was chosen.
    pub fn method(&self) -> Method {
        self.method
    }

    /// `C`.
    pub fn strategy(&self) -> &Strategy {
        &self.strategy
    }

    /// The participation that a fitted strategy was fitted to.
    pub fn fitted_to(&self) -> Option<Participation> {
        self.participation
    }

    /// How close to the optimum the factorization is, if it was found by iteration.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// `sens_{k,b}(C)`; see [`sensitivity::of`].
    ///
    /// # Errors
    /// [`Error::SizeMismatch`] if the participation is for other steps.
    pub fn sensitivity(&self, participation: &Participation) -> Result<Sensitivity> {
        sensitivity::of(&self.strategy, participation)
    }

    /// The norms of `B = A C^-1`; see [`loss::decoder_norms`].
    ///
    /// # Errors
    /// None in practice: the sizes agree by construction.
    pub fn decoder_norms(&self) -> Result<DecoderNorms> {
        loss::decoder_norms(&self.workload, &self.strategy)
    }

    /// The expected and the largest error under a participation pattern.
    ///
    /// # Errors
    /// As [`sensitivity`](Self::sensitivity).
    pub fn loss(&self, participation: &Participation) -> Result<Loss> {
        let sensitivity = self.sensitivity(participation)?;
        Ok(self.decoder_norms()?.loss(&sensitivity, self.workload.steps()))
    }
}

/// The first coefficients of `A^{1/2}`, as many as `column`, those of `A`, has.
fn root(workload: &Workload, column: &[f64]) -> Result<Vec<f64>> {
    match workload.as_constant_sgd() {
        Some(sgd) => Ok(bsr::coefficients(sgd, column.len())),
        None => bsr::root_of_column(column),
    }
}

/// The first coefficients of `A^{-1/2}`, as many as `column`, those of `A`, has.
fn inverse_root(workload: &Workload, column: &[f64]) -> Result<Vec<f64>> {
    match workload.as_constant_sgd() {
        Some(sgd) => Ok(bisr::coefficients(sgd, column.len())),
        None => {
            let root = bsr::root_of_column(column)?;
            Ok(series::divide_by_substitution(&[1.0], &root, column.len()))
        }
    }
}

fn square_root(workload: &Workload, bands: usize) -> Result<Strategy> {
    match workload.as_toeplitz(bands) {
        Some(column) if (1..=workload.steps()).contains(&bands) => {
            Strategy::toeplitz(workload.steps(), root(workload, &column)?)
        }
        // Too many bands are refused here too, before anything is computed.
        _ => {
            let root = triangular_root::banded_square_root(&workload.diagonals(bands)?)?;
            Strategy::banded(root)
        }
    }
}
