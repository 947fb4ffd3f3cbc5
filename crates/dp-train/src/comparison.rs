//! Comparison: one request, several factorizations, the same privacy.

use std::fmt;
use std::time::Instant;

use mf_core::Method;
use mf_core::sensitivity::Sensitivity;

use crate::plan::{DpPlan, PlanError, PlanRequest, Sampling, StrategyFor};

/// One factorization in a comparison. Losses are for clip norm 1 and multiplier 1 in a fixed order: the privacy is
/// the same for all, so these factors are too. Where secret batches let a strategy do with less noise, its losses are
/// less by [`amplified`](Self::amplified).
#[derive(Debug, Clone, PartialEq)]
pub struct Contender {
    /// How the strategy was chosen.
    pub method: Method,
    /// What the strategy is made for; its losses are those of the request's schedule in any case.
    pub strategy_for: StrategyFor,
    /// `p`, the number of diagonals of `C`.
    pub bands: usize,
    /// Rows of single-precision floats that the noise keeps.
    pub history_rows: u64,
    /// `sens_{k,b}(C)`, exact or a bound.
    pub sensitivity: Sensitivity,
    /// `E(B, C)`, the root mean squared error over the steps.
    pub expected_error: f64,
    /// The root mean squared error of the final iterate.
    pub final_error: f64,
    /// The noise it needs over what it would need at the same sensitivity if everyone knew the batches: 1 unless they are
    /// secret.
    pub amplified: f64,
    /// Memory for past rows of noise.
    pub history_bytes: u64,
    /// Wall time of the whole plan: factorization, sensitivity and loss.
    pub plan_seconds: f64,
}

/// A comparison of factorizations for one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// One per method that has a plan, in the order in which they were given.
    pub contenders: Vec<Contender>,
    /// The others, and why they have none.
    pub refused: Vec<(Method, PlanError)>,
    /// How batches are made.
    pub sampling: Sampling,
    /// The most memory that the noise history may take, if there is a limit.
    pub memory_limit: Option<u64>,
}

/// The error of a strategy that is not Toeplitz costs `n p^2`; beyond this it is left out: some seconds.
const MOST_WORK: usize = 4_000_000_000;

/// The factorizations that are worth a look for separation `b` and `n` steps: the two baselines, the square
/// root, those of one coefficient or few buffers, and the banded ones with bandwidths that double up to `b`;
/// BSR also with `2 b` and `4 b`, the optimized inverse up to 32, from where on it gains little. Without AOF,
/// which takes longer.
pub fn usual_methods(steps: usize, min_separation: usize) -> Vec<Method> {
    let mut bandwidths: Vec<usize> = std::iter::successors(Some(2), |p| Some(2 * p))
        .take_while(|p| *p < min_separation)
        .chain([min_separation])
        .collect();
    bandwidths.retain(|p| (2..steps).contains(p));
    let wide = [2 * min_separation, 4 * min_separation];
    let wide = wide.into_iter().filter(|p| (2..steps).contains(p));
    let banded = |method: fn(usize) -> Method| bandwidths.iter().copied().map(method);
    let mut methods = vec![Method::Identity, Method::Input, Method::SquareRoot];
    methods.push(Method::LambdaCgd { lambda: None });
    methods.extend((1..=3).map(|buffers| Method::Blt { buffers }));
    methods.extend(banded(|bands| Method::Bsr { bands }));
    methods.extend(wide.map(|bands| Method::Bsr { bands }));
    methods.extend(banded(|bands| Method::Bisr { bands }));
    methods.extend(banded(|bands| Method::Toeplitz { bands }));
    methods.extend(
        banded(|bands| Method::InverseToeplitz { bands })
            .take_while(|method| method.size().is_some_and(|bands| bands <= 32)),
    );
    let bands = min_separation.min(steps);
    if steps.saturating_mul(bands * bands) <= MOST_WORK {
        methods.push(Method::NormalizedSquareRoot { bands });
    }
    methods
}

impl Comparison {
    /// Plans the request with each of the methods in place of its own, on cyclic Poisson batches of as many groups as each
    /// has diagonals, and for a constant rate where a strategy for the schedule is refused. `plan` makes a plan, say [`DpPlan::new`], or from a cache what takes long.
    ///
    /// # Errors
    /// [`PlanError`] of the first method if none has a plan.
    pub fn new(
        request: &PlanRequest,
        methods: &[Method],
        memory_limit: Option<u64>,
        mut plan: impl FnMut(PlanRequest) -> Result<DpPlan, PlanError>,
    ) -> Result<Self, PlanError> {
        let mut contender = |&method: &Method| -> Result<Contender, PlanError> {
            let start = Instant::now();
            let request = request.clone().with_method(method);
            let plan = plan(request.clone()).or_else(|error| match request.strategy_for {
                StrategyFor::ConstantRate => Err(error),
                StrategyFor::Schedule => {
                    let constant =
                        PlanRequest { strategy_for: StrategyFor::ConstantRate, ..request };
                    // The first refusal says more: it is of what was asked for.
                    plan(constant).map_err(|_| error)
                }
            })?;
            let record = plan.record();
            let amplified = record
                .amplification
                .map_or(1.0, |found| record.noise_multiplier / found.unamplified_multiplier);
            Ok(Contender {
                method,
                strategy_for: record.request.strategy_for,
                bands: record.bands,
                history_rows: record.history_rows(),
                sensitivity: record.sensitivity,
                expected_error: amplified * record.loss.expected_error,
                final_error: amplified * record.loss.final_error,
                amplified,
                history_bytes: record.history_bytes,
                plan_seconds: start.elapsed().as_secs_f64(),
            })
        };
        let (mut contenders, mut refused) = (Vec::new(), Vec::new());
        for method in methods {
            match contender(method) {
                Ok(contender) => contenders.push(contender),
                Err(error) => refused.push((*method, error)),
            }
        }
        match refused.first() {
            Some((_, error)) if contenders.is_empty() => Err(error.clone()),
            _ => Ok(Self { contenders, refused, sampling: request.sampling, memory_limit }),
        }
    }

    /// The contender with the least expected error among those that fit into the memory.
    pub fn best(&self) -> Option<&Contender> {
        let fits = |c: &&Contender| self.memory_limit.is_none_or(|limit| c.history_bytes <= limit);
        let fitting = self.contenders.iter().filter(fits);
        fitting.min_by(|a, b| a.expected_error.total_cmp(&b.expected_error))
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // With Poisson batches the sensitivity is another than in a fixed order, and so would be the error there.
        let secret = self.sampling == Sampling::BallsInBins;
        let head = if secret {
            format!(" {:>11} {:>9}", "fixed order", "amplified")
        } else {
            String::new()
        };
        writeln!(
            f,
            "{:16} {:>6} {:>6} {:>12} {:>14} {:>12}{head} {:>12} {:>9}",
            "method",
            "size",
            "rows",
            "sens",
            "expected error",
            "final error",
            "history MiB",
            "seconds"
        )?;
        for c in &self.contenders {
            let bound = if c.sensitivity.exact { ' ' } else { '*' };
            let gain = match secret {
                true => format!(" {:>11.4} {:>9.4}", c.expected_error / c.amplified, c.amplified),
                false => String::new(),
            };
            writeln!(
                f,
                "{:16} {:>6} {:>6} {:>11.4}{bound} {:>14.4} {:>12.4}{gain} {:>12.1} {:>9.4}",
                c.method.name(),
                c.method.size().map_or("-".to_string(), |size| size.to_string()),
                c.history_rows,
                c.sensitivity.value,
                c.expected_error,
                c.final_error,
                c.history_bytes as f64 / f64::from(1 << 20),
                c.plan_seconds,
            )?;
        }
        writeln!(f, "size: bands or buffers; rows: of noise kept from step to step")?;
        if self.contenders.iter().any(|c| !c.sensitivity.exact) {
            writeln!(f, "* an upper bound")?;
        }
        if secret {
            writeln!(
                f,
                "fixed order: expected error there; amplified: the noise that secret batches need over it"
            )?;
        }
        let made_for = |what| self.contenders.iter().filter(move |c| c.strategy_for == what);
        if made_for(StrategyFor::Schedule).next().is_some() {
            let mut names: Vec<&str> =
                made_for(StrategyFor::ConstantRate).map(|c| c.method.name()).collect();
            names.dedup();
            if !names.is_empty() {
                writeln!(f, "made for a constant rate: {}", names.join(", "))?;
            }
        }
        for (method, error) in &self.refused {
            let size = method.size().map_or(String::new(), |size| format!(" {size}"));
            writeln!(f, "no plan for {}{size}: {error}", method.name())?;
        }
        let limit = self.memory_limit.map_or(String::new(), |limit| {
            format!(" within {:.1} MiB of noise history", limit as f64 / f64::from(1 << 20))
        });
        match self.best() {
            Some(best) => {
                let size = best.method.size().map_or(String::new(), |size| format!(" {size}"));
                write!(f, "best{limit}: {}{size} with {} rows", best.method, best.history_rows)
            }
            None => write!(f, "none{limit}"),
        }
    }
}
