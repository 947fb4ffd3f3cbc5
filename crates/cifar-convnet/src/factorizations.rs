//! Factorizations by name, as configs and the command line give them, and their solutions, which are kept.

use std::fmt;
use std::ops::ControlFlow;

use clap::ValueEnum;
use dp_train::plan::{DpPlan, PlanError, PlanRequest};
use mf_core::factorization::aof::{Options, Progress};
use mf_core::factorization::cache::Cache;
use mf_core::{Factorization, Method, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Diagonals of a banded inverse, and buffers, if nothing is said.
const FEW_BANDS: usize = 4;
const FEW_BUFFERS: usize = 3;

/// How C is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum MethodName {
    /// C = I, independent noise, which is DP-SGD
    Identity,
    /// C = A, noise on the iterates
    Input,
    /// The whole square root of A
    Sqrt,
    /// The first bands of the square root of A
    Bsr,
    /// The approximately optimal C with some bands and unit columns, with a certificate
    Aof,
    /// The inverse of C is the first bands of the inverse square root of A
    Bisr,
    /// The inverse of C is I - lambda * shift, with the lambda that is given or the best one
    LambdaCgd,
    /// The best Toeplitz bands of C for the participation
    Toeplitz,
    /// The best Toeplitz bands of the inverse of C for the participation
    InverseToeplitz,
    /// Buffered linear Toeplitz: a few exponentials, fitted to the participation
    Blt,
    /// The first bands of the square root of A, with columns of unit norm
    NormalisedSqrt,
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// A name, and the numbers that were given for it.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    /// Which one.
    pub name: MethodName,
    /// Diagonals of `C` or of its inverse.
    pub bands: Option<usize>,
    /// For lambda-cgd.
    pub lambda: Option<f64>,
    /// For blt.
    pub buffers: Option<usize>,
    /// For aof.
    pub tolerance: f64,
}

impl Choice {
    /// The method for so many steps, with uses of an example at least `separation` apart. Bands are those of
    /// one separation, or 4 of an inverse, if none are given.
    ///
    /// # Errors
    /// [`MethodError`] if a number is given that the method has no use for, or bands that it cannot have.
    pub fn method(self, steps: usize, separation: usize) -> Result<Method, MethodError> {
        let Self { name, lambda, buffers, tolerance, .. } = self;
        let unused = |key| Err(MethodError::Unused { key, name });
        if lambda.is_some() && name != MethodName::LambdaCgd {
            return unused("lambda");
        }
        if buffers.is_some() && name != MethodName::Blt {
            return unused("buffers");
        }
        if let Some(bands) = self.bands.filter(|&bands| bands == 0 || bands > steps) {
            return Err(MethodError::Bands { bands, steps });
        }
        let bands = self.bands.unwrap_or(separation);
        let inverse_bands = self.bands.unwrap_or(FEW_BANDS.min(steps));
        let method = match name {
            MethodName::Bsr => Method::Bsr { bands },
            MethodName::Toeplitz => Method::Toeplitz { bands },
            MethodName::NormalisedSqrt => Method::NormalizedSquareRoot { bands },
            MethodName::Bisr => Method::Bisr { bands: inverse_bands },
            MethodName::InverseToeplitz => Method::InverseToeplitz { bands: inverse_bands },
            // Wider columns that one example uses would overlap.
            MethodName::Aof if bands > separation => {
                return Err(MethodError::Overlap { bands, separation });
            }
            MethodName::Aof => Method::Aof { bands, tolerance },
            _ if self.bands.is_some() => return unused("bands"),
            MethodName::Identity => Method::Identity,
            MethodName::Input => Method::Input,
            MethodName::Sqrt => Method::SquareRoot,
            MethodName::LambdaCgd => Method::LambdaCgd { lambda },
            MethodName::Blt => Method::Blt { buffers: buffers.unwrap_or(FEW_BUFFERS) },
        };
        Ok(method)
    }
}

/// Why there is no such method.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the sentence of a variant says what its fields are")]
pub enum MethodError {
    /// A number that the method has no use for.
    Unused { key: &'static str, name: MethodName },
    /// No bands, or more than steps.
    Bands { bands: usize, steps: usize },
    /// More bands than the columns of one example have room for.
    Overlap { bands: usize, separation: usize },
}

impl MethodError {
    /// In one sentence, with what stands before a key: `--` or `noise.`.
    pub fn sentence(&self, before: &str) -> String {
        match self {
            MethodError::Unused { key, name } => {
                format!("{before}{key} is given, but method {name} has no use for it: leave it out")
            }
            MethodError::Bands { bands, steps } => {
                format!("{before}bands must be between 1 and the {steps} steps, but it is {bands}")
            }
            MethodError::Overlap { bands, separation } => format!(
                "{before}bands must be at most the separation {separation} for method aof, but it is \
                 {bands}: with more, the columns that one example uses would overlap"
            ),
        }
    }
}

/// Solves factorizations. Those that take long come from the cache if it has them, and are shown while they are solved.
pub struct Solver<'a> {
    cache: Option<Cache>,
    show: &'a mut dyn FnMut(&Progress),
}

/// A factorization, and whether it was found in the cache.
#[derive(Debug)]
pub struct Solved {
    /// The solution.
    pub factorization: Factorization,
    /// Whether nothing had to be computed.
    pub found: bool,
}

impl<'a> Solver<'a> {
    /// A solver that calls `show` with every iteration.
    pub fn new(cache: Option<Cache>, show: &'a mut dyn FnMut(&Progress)) -> Self {
        Self { cache, show }
    }

    /// The approximately optimal factorization.
    ///
    /// # Errors
    /// [`mf_core::Error`]. A cache that cannot be read or written is only warned of.
    pub fn aof(
        &mut self,
        workload: Workload,
        bands: usize,
        options: &Options,
    ) -> Result<Solved, mf_core::Error> {
        let mut show = |progress: Progress| {
            (self.show)(&progress);
            ControlFlow::Continue(())
        };
        let Some(cache) = &self.cache else {
            let factorization = Factorization::aof(workload, bands, options, &mut show)?;
            return Ok(Solved { factorization, found: false });
        };
        let cached = cache.aof(workload, bands, options, &mut show)?;
        if let Some(warning) = cached.warning {
            log::warn!("{warning}");
        }
        Ok(Solved { factorization: cached.factorization, found: cached.found })
    }

    /// The plan of a request, with whichever factorization it asks for.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn plan(&mut self, request: PlanRequest) -> Result<DpPlan, PlanError> {
        let Method::Aof { bands, tolerance } = request.method else {
            return DpPlan::new(request);
        };
        let options = Options { relative_gap: tolerance, ..Options::default() };
        let solved = self.aof(request.factorized_workload()?, bands, &options)?;
        DpPlan::from_factorization(request, &solved.factorization)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(name: MethodName) -> Choice {
        Choice { name, bands: None, lambda: None, buffers: None, tolerance: 1e-4 }
    }

    #[test]
    fn every_name_is_that_of_its_method() {
        for &name in MethodName::value_variants() {
            let method = choice(name).method(100, 10).unwrap();
            assert_eq!(method.name(), name.to_string());
        }
    }

    #[test]
    fn numbers_that_a_method_has_no_use_for_are_refused() {
        for &name in MethodName::value_variants() {
            use MethodName as Name;
            let bands = Choice { bands: Some(7), ..choice(name) }.method(100, 10);
            let fixed = [Name::Identity, Name::Input, Name::Sqrt, Name::LambdaCgd, Name::Blt];
            match bands {
                Ok(method) => assert_eq!(method.size(), Some(7), "{name}"),
                Err(error) => {
                    assert!(fixed.contains(&name), "{name}");
                    assert_eq!(error, MethodError::Unused { key: "bands", name });
                }
            }
            let lambda = Choice { lambda: Some(0.5), ..choice(name) }.method(100, 10);
            assert_eq!(lambda.is_ok(), name == Name::LambdaCgd);
            let buffers = Choice { buffers: Some(2), ..choice(name) }.method(100, 10);
            assert_eq!(buffers.is_ok(), name == Name::Blt);
            for bands in [0, 101] {
                let error = Choice { bands: Some(bands), ..choice(name) }.method(100, 10);
                assert_eq!(error, Err(MethodError::Bands { bands, steps: 100 }));
            }
        }
        let wide = Choice { bands: Some(11), ..choice(MethodName::Aof) }.method(100, 10);
        let sentence = wide.unwrap_err().sentence("noise.");
        assert!(sentence.contains("noise.bands") && sentence.contains("11"), "{sentence}");
    }
}
