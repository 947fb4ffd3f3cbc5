//! Accounting for training on randomly sampled batches: how much noise `(epsilon, delta)` needs when nobody
//! knows which batches an example was in.
//!
//! | sampling | strategy | accountant | how |
//! |---|---|---|---|
//! | every step takes each example with probability `q` | `C = I` | [`poisson`] | composed privacy loss |
//! | step `i` does so with group `i mod p` | `p` diagonals | [`cyclic`] | the same |
//! | every example draws one of `b` slots, and step `i` takes slot `i mod b` | any | [`deterministic`] | a bound without sampling |
//! | the same | any | [`monte_carlo`], [`verified`] | a bound by sampling that fails with a stated probability |
//!
//! Neighbours are data sets of which one has an example more, or in which the gradients of one example are zero and it is
//! left out of its batches.
//! Replacing an example is not covered and refused. The two directions, *remove* (is a release of the larger data
//! set unlikely for the smaller one?) and *add* (the converse), are bounded separately, and the larger `delta`
//! counts. All results are rounded towards more privacy.
//!
//! ```
//! use dp_train::Neighbouring::ZeroOut;
//! use dp_train::accounting::{deterministic, gram::Gram, poisson::Poisson};
//! use mf_core::{Participation, Strategy};
//!
//! // 1000 steps of DP-SGD with a hundredth of the data in each, at epsilon 2 and delta 1e-5.
//! let multiplier = Poisson::new(ZeroOut, 0.01, 1000)?.multiplier(2.0, 1e-5)?;
//! // The same number of steps as ten epochs of 100 slots, with noise that is correlated over four steps.
//! let strategy = Strategy::toeplitz(1000, vec![1.0, 0.5, 0.375, 0.3125])?;
//! let gram = Gram::of(ZeroOut, &strategy, &Participation::epochs(10, 100)?)?;
//! let noise = deterministic::noise_std(&gram, 2.0, 1e-5)?;
//! assert!(multiplier < 1.0 && noise.noise_std < 4.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The dominating pair
//!
//! **Theorem 1.** Let `C` be lower triangular, let the example in question take part in a random set `S` of steps,
//! independent of everything else, with `Pr[S = S_j] = w_j`, and let every update of it have norm at most 1. Let
//! `M[t,j] = sum_{s in S_j} |C[t,s]|` and `K = M^T M / sigma^2`. Then adaptive training with noise `sigma Z` has,
//! for every epsilon,
//!
//! ```text
//! delta(remove) <= E (W - e^epsilon)_+       W = sum_j w_j exp(u_j - K_jj / 2),   u ~ N(0, K)
//! delta(add)    <= E (1 - e^epsilon W)_+
//! ```
//!
//! the two divergences between `sum_j w_j N(M_j, sigma^2 I)` and `N(0, sigma^2 I)`. If no entry of `C` is negative
//! both are attained, by updates that all point the same way. (For balls-in-bins and `C >= 0` this is Lemma 3.2 of
//! Choquette-Choo et al. 2024, arXiv:2410.06266.)
//!
//! *What is released.* Row `t` of `C X + sigma Z`, where `X` are the sums of clipped updates. The training sees
//! `X + sigma C^-1 Z`; since `C` is lower triangular with positive diagonal, the first `t` rows of either give the
//! first `t` rows of the other.
//!
//! *Fixing the rest.* Divergences of the form `E_Q h(dP/dQ)`, `h` convex, are jointly convex in `(P, Q)`. The places of
//! the other examples and all augmentation have the same law for both neighbours and are independent of `S`, so it
//! is enough to bound the divergence with them fixed. Then the sum of the other examples' updates in a
//! step is a function of the releases before it, the same for both neighbours, since each is
//! clipped alone and the divisor is public (up to rounding, which the noise of a plan allows for: see
//! [`SUM_ROUNDING`](crate::gradient::SUM_ROUNDING)). Subtract it. What is left in step `t` is `sigma z_t` without the example
//! (law `Q`) and `v_j + sigma z_t` with it and pattern `j`, where `v_j = sum_{s in S_j, s <= t} C[t,s] g_s` and `g_s`,
//! of norm at most 1, depends on earlier releases only.
//!
//! *The likelihood ratio* of pattern `j` to `Q` is a product `l_j` over steps. Under `Q`, given what was released
//! before, step `t` multiplies it by `exp(X_j - A_jj / 2)` with `X_j = <v_j, z_t> / sigma`: jointly normal, with
//! covariance `A_ij = <v_i, v_j> / sigma^2 <= |v_i| |v_j| / sigma^2 <= B_ij = M[t,i] M[t,j] / sigma^2` for *all* `i, j`,
//! the diagonal included. And `dP/dQ = sum_j w_j l_j`.
//!
//! **Lemma (Kahane 1985).** Let `F` be smooth on positive vectors with bounded first and second derivatives and all
//! `d_ij F >= 0`, and `A <= B` entry by entry two covariances, of `X` and `Y`. Then for every `l > 0`
//! `E F(l_j e^{X_j - A_jj/2}) <= E F(l_j e^{Y_j - B_jj/2})`.
//!
//! *Proof.* Take `X` and `Y` independent, `Z = sqrt(1-s) X + sqrt(s) Y` and `W_j = l_j exp(Z_j - Var(Z_j)/2)`. With
//! `Z'_i` the derivative by `s`, `Cov(Z'_i, Z_j) = (B_ij - A_ij)/2`, so by Gaussian integration by parts
//! `E[Z'_i F_i(W) W_i] = 1/2 sum_j (B_ij - A_ij) E[F_ij W_i W_j] + 1/2 (B_ii - A_ii) E[F_i W_i]`. The last term cancels the
//! derivative of `-Var(Z_i)/2`, and `d/ds E F(W) = 1/2 sum_ij (B_ij - A_ij) E[F_ij W_i W_j] >= 0`. QED
//!
//! *Proof of the theorem.* Let `h` be `(x - e^epsilon)_+` or `(1 - e^epsilon x)_+`, made smooth by averaging over an
//! interval of length `eta`: still convex, with bounded `h'` and `h''`, and within a multiple of `eta` of what it
//! was; let `eta -> 0` at the end. Put `F_n(l) = h(sum_j w_j l_j)` and
//! `F_{t-1}(l) = E F_t(l_j exp(Y_j - B_jj/2))`, where `Y_j = M[t,j] y / sigma` with one standard normal `y`. All these
//! are of the form `E h(sum_j w_j l_j E_j)` with log-normal `E_j`, so `d_ij F_t = E[w_i w_j E_i E_j h''] >= 0` exists and
//! is bounded. By the lemma, applied to step `t` given all releases before it,
//! `E[F_t(l after step t) | before] <= F_{t-1}(l before step t)`; from the last step to the first,
//! `E_Q h(dP/dQ) <= F_0(1) = E h(W)`. QED
//!
//! **Corollaries.**
//! * (a) *Larger covariances are pessimistic*: any covariance that is entry by entry at least `K` bounds both directions
//!   (the lemma with `F_n`).
//! * (b) *So is more noise taken away or more weight in `C`*: both raise entries of `K`.
//! * (c) *Classes*: if the patterns are split into classes, `P` is the average of the classes' `P_r` by their weights,
//!   and by convexity delta is at most the average of the classes' deltas.

use thiserror::Error;

use crate::calibration::{CalibrationError, LEAST_EPSILON, Neighbouring};

mod normal;
mod root;
pub mod pld;
mod convolution;
pub mod composition;
mod mixture;
pub mod poisson;
pub mod cyclic;
pub mod gram;
mod log_normal;
pub mod allocation;
pub mod deterministic;
pub mod confidence;
pub mod monte_carlo;
mod factored;
mod importance;
pub mod verified;
pub mod tuning;
pub mod stopping;

/// The least `delta` that these accountants resolve: below it the tails that they cut off would show.
pub const LEAST_DELTA: f64 = 1e-15;

/// The largest `epsilon` that they are asked for; with more there is no privacy to account for.
pub const LARGEST_EPSILON: f64 = 500.0;

/// Which neighbour a release was made from, and which one has to explain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Made with the example, explained without it.
    Remove,
    /// Made without the example, explained with it.
    Add,
}

/// A number for each [`Direction`]; privacy is decided by the larger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Directions {
    /// For [`Direction::Remove`].
    pub remove: f64,
    /// For [`Direction::Add`].
    pub add: f64,
}

impl Directions {
    /// What a function gives for each, at the same time.
    fn both(
        of: impl Fn(Direction) -> Result<f64, AccountingError> + Sync,
    ) -> Result<Self, AccountingError> {
        let (remove, add) = rayon::join(|| of(Direction::Remove), || of(Direction::Add));
        Ok(Self { remove: remove?, add: add? })
    }

    /// The larger of the two.
    pub fn worst(self) -> f64 {
        self.remove.max(self.add)
    }
}

/// What an accountant cannot account for.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AccountingError {
    /// `epsilon` is outside the range.
    #[error("epsilon must be from 1e-6 to 500, but it is {epsilon}")]
    Epsilon {
        /// The value given.
        epsilon: f64,
    },
    /// `delta` is outside the range.
    #[error("delta must be at least 1e-15 and below 1, but it is {delta}")]
    Delta {
        /// The value given.
        delta: f64,
    },
    /// The noise multiplier or standard deviation is not positive and finite.
    #[error("the {what} must be positive and finite, but it is {value}")]
    Noise {
        /// Which of the two.
        what: &'static str,
        /// The value given.
        value: f64,
    },
    /// The sampling probability is not in (0, 1].
    #[error("the sampling probability must be above 0 and at most 1, but it is {probability}")]
    Probability {
        /// The value given.
        probability: f64,
    },
    /// The number of rounds, groups or examples is outside the range.
    #[error("the number of {what} must be from 1 to {most}, but it is {value}")]
    Count {
        /// Of what.
        what: &'static str,
        /// The value given.
        value: u64,
        /// The largest allowed.
        most: u64,
    },
    /// A grid would take too much memory.
    #[error(
        "the privacy loss needs a grid of {points:.1e} points, more than {most}: \
         a larger sampling probability, more noise or fewer rounds need less"
    )]
    Grid {
        /// The points needed.
        points: f64,
        /// The points allowed.
        most: usize,
    },
    /// Two privacy losses on different grids cannot be composed.
    #[error(
        "privacy losses on grids of steps {first} and {second} cannot be composed: discretize both with one step"
    )]
    Steps {
        /// The step of the first.
        first: f64,
        /// The step of another.
        second: f64,
    },
    /// There is nothing to compose.
    #[error("no privacy loss was given to compose")]
    Empty,
    /// Replacing an example is not covered.
    #[error(
        "sampled batches are accounted for when one example is zeroed out, not replaced: \
         use zero-out neighbours, or a fixed order"
    )]
    ReplaceOne,
    /// Not every example takes part once in every period.
    #[error(
        "balls-in-bins uses every example once in every {separation} steps, {most} times in all, \
         but the participation allows only {participations}: raise it to {most}"
    )]
    Participations {
        /// `b`.
        separation: usize,
        /// `k` of the participation.
        participations: usize,
        /// `ceil(n / b)`.
        most: usize,
    },
    /// A strategy for another number of steps.
    #[error(
        "the strategy has {strategy} steps and the participation {participation}: they must agree"
    )]
    Lengths {
        /// Steps of the strategy.
        strategy: usize,
        /// Steps of the participation.
        participation: usize,
    },
    /// The entries of a Gram matrix are not those of non-negative vectors.
    #[error(
        "the Gram matrix is no {side} x {side} matrix of finite, non-negative, symmetric entries with a positive diagonal and G_ij^2 <= G_ii G_jj"
    )]
    Gram {
        /// Its rows.
        side: usize,
    },
    /// No noise or epsilon within range gives the privacy asked for.
    #[error("no noise or epsilon within the range of this accountant gives delta = {delta}")]
    OutOfRange {
        /// The delta asked for.
        delta: f64,
    },
    /// A law of the number of runs that there is none of.
    #[error(
        "the number of runs needs a mean above 1 and at most 10000 and a shape of 0 or from 1e-6 to 10, not mean {mean}, shape {shape}"
    )]
    Stopping {
        /// The mean given.
        mean: f64,
        /// The shape given.
        shape: f64,
    },
    /// The operating system has no random bytes to sample with.
    #[error("the operating system has no random bytes to sample with")]
    NoEntropy,
    /// The unamplified mechanism cannot be calibrated.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
}

fn check_epsilon(epsilon: f64) -> Result<(), AccountingError> {
    if (LEAST_EPSILON..=LARGEST_EPSILON).contains(&epsilon) {
        Ok(())
    } else {
        Err(AccountingError::Epsilon { epsilon })
    }
}

fn check_delta(delta: f64) -> Result<(), AccountingError> {
    if (LEAST_DELTA..1.0).contains(&delta) { Ok(()) } else { Err(AccountingError::Delta { delta }) }
}

fn check_noise(what: &'static str, value: f64) -> Result<(), AccountingError> {
    if value > 0.0 && value.is_finite() {
        Ok(())
    } else {
        Err(AccountingError::Noise { what, value })
    }
}

fn check_count(what: &'static str, value: u64, most: u64) -> Result<(), AccountingError> {
    if (1..=most).contains(&value) {
        Ok(())
    } else {
        Err(AccountingError::Count { what, value, most })
    }
}

fn refuse_replace_one(neighbouring: Neighbouring) -> Result<(), AccountingError> {
    match neighbouring {
        Neighbouring::ZeroOut => Ok(()),
        Neighbouring::ReplaceOne => Err(AccountingError::ReplaceOne),
    }
}
