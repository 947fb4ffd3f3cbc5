//! What can be wrong with the arguments of a factorization.

use thiserror::Error as ThisError;

/// An argument outside the domain of the mathematics. Every variant names the offender.
#[derive(Debug, Clone, PartialEq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// `alpha` is not a number in (0, 1].
    #[error("alpha (decay factor) must be in (0, 1], but it is {decay_factor}")]
    DecayFactor {
        /// The value given for `alpha`.
        decay_factor: f64,
    },
    /// `beta` is not a number in [0, alpha).
    #[error(
        "beta (momentum) must be at least 0 and below alpha = {decay_factor}, but it is \
         {momentum}"
    )]
    Momentum {
        /// The value given for `beta`.
        momentum: f64,
        /// The `alpha` it has to stay below.
        decay_factor: f64,
    },
    /// There is nothing to factorize: `n = 0`.
    #[error("the number of steps must be at least 1")]
    NoSteps,
    /// `p` is not in 1..=n.
    #[error("bands must be between 1 and steps = {steps}, but it is {bands}")]
    Bands {
        /// The value given for `p`.
        bands: usize,
        /// The number of steps `n`.
        steps: usize,
    },
    /// `b` is not in 1..=n.
    #[error("separation must be between 1 and steps = {steps}, but it is {separation}")]
    Separation {
        /// The value given for `b`.
        separation: usize,
        /// The number of steps `n`.
        steps: usize,
    },
    /// `k` is not in 1..=ceil(n / b).
    #[error(
        "participations must be between 1 and ceil(steps / separation) = {most}, but it is \
         {participations}"
    )]
    Participations {
        /// The value given for `k`.
        participations: usize,
        /// The largest `k` that the steps and the separation leave room for.
        most: usize,
    },
    /// A learning rate is not a positive finite number.
    #[error("the learning rate of step {step} must be positive and finite, but it is {value}")]
    LearningRate {
        /// The step, counted from 0.
        step: usize,
        /// The value at that step.
        value: f64,
    },
    /// A matrix entry is NaN or infinite.
    #[error("the matrix entry in row {row}, column {column} is not finite")]
    NotFinite {
        /// Row of the entry, counted from 0.
        row: usize,
        /// Column of the entry, counted from 0.
        column: usize,
    },
    /// A lower-triangular matrix has a diagonal entry that is not positive.
    #[error("a factorization needs a positive diagonal, but entry {index} of it is {value}")]
    NonPositiveDiagonal {
        /// Row and column of the entry, counted from 0.
        index: usize,
        /// Its value.
        value: f64,
    },
    /// The first coefficient of a Toeplitz workload is 0, so that it has no inverse.
    #[error("the first coefficient of a workload must not be 0")]
    ZeroDiagonal,
    /// The method needs the workload of SGD, and another was given.
    #[error(
        "method {method} needs the workload of SGD, which it knows in closed form: a matrix or column \
         of one's own can be factorized by identity, input, sqrt, bsr, bisr, lambda-cgd, toeplitz, \
         inverse-toeplitz or normalised-sqrt"
    )]
    NotSgd {
        /// The name of the method.
        method: &'static str,
    },
    /// A strategy of one's own cannot be computed from a workload.
    #[error(
        "method own stands for a strategy that the caller has: it cannot be computed from a workload"
    )]
    OwnStrategy,
    /// The method needs a constant learning rate, for which the workload is Toeplitz.
    #[error(
        "method {method} is made for a constant learning rate: make the strategy for the \
         constant rate, under which the loss of the schedule is still the true one, or use bsr \
         or aof"
    )]
    ScheduledWorkload {
        /// The name of the method.
        method: &'static str,
    },
    /// The method fits its strategy to a participation pattern, and none was given.
    #[error("method {method} is fitted to a participation pattern, and none was given")]
    NoParticipation {
        /// The name of the method.
        method: &'static str,
    },
    /// `lambda` is not a number in [0, 1].
    #[error("lambda must be between 0 and 1, but it is {lambda}")]
    Lambda {
        /// The value given.
        lambda: f64,
    },
    /// The number of buffers is not in 1..=most.
    #[error("buffers must be between 1 and {most}, but it is {buffers}")]
    Buffers {
        /// The number given.
        buffers: usize,
        /// The most that are fitted.
        most: usize,
    },
    /// A buffer has a negative weight or a decay outside [0, 1].
    #[error(
        "a buffer needs a weight of at least 0 and a decay between 0 and 1, but buffer {index} \
         has {weight} and {decay}"
    )]
    Buffer {
        /// Which, counted from 0.
        index: usize,
        /// Its weight.
        weight: f64,
        /// Its decay.
        decay: f64,
    },
    /// The inverse of a buffered strategy is unstable.
    #[error(
        "the noise of these buffers would grow from step to step: the sum of weight / (1 + \
         decay) must be below 1, but it is {alternating}"
    )]
    GrowingNoise {
        /// `sum_j omega_j / (1 + theta_j)`, which must stay below 1.
        alternating: f64,
    },
    /// A certified relative gap outside what double precision can reach.
    #[error("the tolerance must be between 1e-9 and 1, but it is {tolerance}")]
    Tolerance {
        /// The gap asked for.
        tolerance: f64,
    },
    /// `||A C^-1||_F` overflows: the workload grows too fast for its length.
    #[error("the error overflows over {steps} steps: the workload grows too fast")]
    Overflow {
        /// The number of steps `n`.
        steps: usize,
    },
    /// A dense `n x n` factor was asked for that is too large to form.
    #[error(
        "a dense factor of {steps} steps was asked for, but at most {limit} are formed; use \
         fewer bands"
    )]
    TooLargeForDense {
        /// The number of steps `n`.
        steps: usize,
        /// The most steps for which it is formed.
        limit: usize,
    },
    /// A Gram matrix `C^T C` is not positive definite to working precision.
    #[error("the Gram matrix of {steps} steps is not positive definite to working precision")]
    NotPositiveDefinite {
        /// The number of steps `n`.
        steps: usize,
    },
    /// Two sizes that must agree do not.
    #[error("{what}: expected {expected}, found {found}")]
    SizeMismatch {
        /// What was measured, in words.
        what: &'static str,
        /// The size that was needed.
        expected: usize,
        /// The size that was found.
        found: usize,
    },
}

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
