//! Factorizations `A = B C` of a workload: which strategy `C` to take.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::loss::{self, DecoderNorms, Loss};
use crate::participation::Participation;
use crate::sensitivity::{self, Sensitivity};
use crate::strategy::Strategy;
use crate::workload::Workload;

pub mod bsr;

pub mod triangular_root;

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
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::Identity => "identity",
            Method::Input => "input",
            Method::SquareRoot => "sqrt",
            Method::Bsr { .. } => "bsr",
        })
    }
}

/// A workload with the strategy that a method chose for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Factorization {
    workload: Workload,
    method: Method,
    strategy: Strategy,
}

impl Factorization {
    /// Factorizes `A`. O(p) for SGD with a constant learning rate; otherwise O(n p^2), by the numeric
    /// root.
    ///
    /// # Errors
    /// [`Error::Bands`](crate::Error::Bands) unless `1 <= p <= n`.
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
        };
        Ok(Self {
            workload,
            method,
            strategy,
        })
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

    /// `sens_{k,b}(C)`; see [`sensitivity::of`].
    ///
    /// # Errors
    /// [`Error::SizeMismatch`](crate::Error::SizeMismatch) if the participation is for other steps.
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
        Ok(self
            .decoder_norms()?
            .loss(&sensitivity, self.workload.steps()))
    }
}

fn square_root(workload: &Workload, bands: usize) -> Result<Strategy> {
    // Checks the bands before any coefficient is computed.
    match workload.as_toeplitz() {
        Some(sgd) if bands <= workload.steps() => {
            Strategy::toeplitz(workload.steps(), bsr::coefficients(sgd, bands))
        }
        _ => {
            let root = triangular_root::banded_square_root(&workload.diagonals(bands)?)?;
            Strategy::banded(root)
        }
    }
}
