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
use crate::strategy::Strategy;
use crate::workload::Workload;

pub mod bsr;

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
    /// The approximately optimal factorization: of all `C` with unit columns and `bands` diagonals, the one
    /// with the smallest `||A C^-1||_F`.
    Aof {
        /// `p`, the number of diagonals.
        bands: usize,
        /// The certified relative gap to stop at.
        tolerance: f64,
    },
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::Identity => "identity",
            Method::Input => "input",
            Method::SquareRoot => "sqrt",
            Method::Bsr { .. } => "bsr",
            Method::Aof { .. } => "aof",
        })
    }
}

/// A workload with the strategy that a method chose for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Factorization {
    workload: Workload,
    method: Method,
    strategy: Strategy,
    certificate: Option<Certificate>,
}

impl Factorization {
    /// Factorizes `A`. The roots cost O(p) for SGD with a constant learning rate and O(n p^2) otherwise;
    /// the optimum is found by iteration, see [`aof`](Self::aof).
    ///
    /// # Errors
    /// [`Error::Bands`] unless `1 <= p <= n`, and those of [`aof`](Self::aof).
    pub fn new(workload: Workload, method: Method) -> Result<Self> {
        let n = workload.steps();
        let strategy = match method {
            Method::Identity => Strategy::identity(n)?,
            Method::Input => match workload.as_toeplitz() {
                Some(sgd) => Strategy::toeplitz(n, sgd.coefficients(n))?,
                None => Strategy::banded(workload.diagonals(n)?)?,
            },
            Method::SquareRoot => square_root(&workload, n)?,
            Method::Bsr { bands } => square_root(&workload, bands)?,
            Method::Aof { bands, tolerance } => {
                let options = aof::Options { relative_gap: tolerance, ..aof::Options::default() };
                let mut go_on = |_| ControlFlow::Continue(());
                return Self::aof(workload, bands, &options, &mut go_on);
            }
        };
        Ok(Self { workload, method, strategy, certificate: None })
    }

    /// The approximately optimal factorization with its certificate. Whether the gap that was asked for
    /// has been reached stands in [`certificate`](Self::certificate); `progress` is told of every iteration
    /// and may end the search. With `bands = n` by the fixed point of [`aof::solve_single`], else by
    /// [`aof::solve`] from a cold start.
    ///
    /// # Errors
    /// [`Error::GeneralWorkload`]: the solver needs a workload whose inverse has three diagonals. Else those
    /// of the solver.
    pub fn aof(
        workload: Workload,
        bands: usize,
        options: &aof::Options,
        progress: &mut dyn FnMut(aof::Progress) -> ControlFlow<()>,
    ) -> Result<Self> {
        let inverse = workload.inverse().ok_or(Error::GeneralWorkload)?;
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
        Ok(Self { workload, method, strategy, certificate: Some(certificate) })
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

fn square_root(workload: &Workload, bands: usize) -> Result<Strategy> {
    match workload.as_toeplitz() {
        Some(sgd) if bands <= workload.steps() => {
            Strategy::toeplitz(workload.steps(), bsr::coefficients(sgd, bands))
        }
        // Too many bands are refused here too, before anything is computed.
        _ => {
            let root = triangular_root::banded_square_root(&workload.diagonals(bands)?)?;
            Strategy::banded(root)
        }
    }
}
