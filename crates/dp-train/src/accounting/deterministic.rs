//! Balls-in-bins without sampling: an upper bound of delta from two numbers of the Gram matrix.
//!
//! **Theorem 2.** Let `G` be the Gram matrix of `b` slot means, `g = max_i G_ii`, and for some `w` let `g_w` be the largest
//! `G_ij` with `i - j` a positive multiple of `w`, or 0 if there is none. Then both directions of delta are at most those of
//! a Gaussian release with means `sqrt(g_w) / sigma` apart beside a one-in-`floor(b / w)`
//! [allocation](super::allocation) with means `sqrt(g - g_w) / sigma` apart.
//!
//! *Proof.* Split the slots into the `w` classes `{r, r + w, r + 2w, ...}`: each has `t_r = floor(b / w)` or one more, and the
//! slot is uniform inside a class. By Corollary (c) of the [module above](super) delta is at most the average of the
//! classes' deltas. Inside a class all `G_ii <= g` and, for `i != j`, `G_ij <= g_w`; since entries of `G` are non-negative
//! and `G_ij <= sqrt(G_ii G_jj)`, `0 <= g_w <= g`. The matrix with `g` on the diagonal and `g_w` elsewhere is therefore a
//! covariance, that of `sqrt(g_w) z + sqrt(g - g_w) z_i` with independent standard normals, and by Corollary (a) it
//! bounds both directions. Its likelihood ratio is `V W_t`, `t = t_r`, with
//!
//! ```text
//! V = exp(mu_0 z - mu_0^2/2),  mu_0 = sqrt(g_w)/sigma;    W_t = (1/t) sum_{i<=t} exp(mu_1 z_i - mu_1^2/2),  mu_1 = sqrt(g - g_w)/sigma
//! ```
//!
//! independent: the two releases named. Finally `W_{t+1}` is the average of the `t + 1` averages over all but one term,
//! each with the law of `W_t`; so by Jensen's inequality `E h(v W_{t+1}) <= E h(v W_t)` for convex `h`, and the larger classes
//! may be counted as if they had `floor(b / w)` slots. QED
//!
//! Every `w` gives a bound, so the least counts. `w = 1` joins all slots; `w >= b` (in particular `b = 1`) is the plain
//! Gaussian with known slot; for `p` diagonals and one epoch, `w = p` makes `g_w = 0`. Measured, it keeps half to four fifths
//! of what sampling gains.

use rayon::prelude::*;

use super::allocation::Allocation;
use super::gram::Gram;
use super::root::{Search, least_noise};
use super::{AccountingError, Directions, check_delta, check_epsilon, check_noise};
use crate::calibration::{self, LEAST_EPSILON, MARGIN};

/// The step of the grid for a result, and for the choice of `w`.
const FINE: f64 = 0.01;
const COARSE: f64 = 0.05;

/// A bound and the classes that it comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeterministicBound {
    /// The bound in either direction.
    pub delta: Directions,
    /// `w`, the number of classes.
    pub classes: usize,
    /// `t`, the slots of a class that are counted.
    pub slots_per_class: usize,
}

/// An upper bound of `delta(epsilon)` for noise of this standard deviation at clip norm 1: the least over all numbers of
/// classes, chosen on a coarse grid. About 100 ms for 100 slots.
///
/// # Errors
/// [`AccountingError::Epsilon`] or [`AccountingError::Noise`].
pub fn delta(
    gram: &Gram,
    noise_std: f64,
    epsilon: f64,
) -> Result<DeterministicBound, AccountingError> {
    check_epsilon(epsilon)?;
    check_noise("noise standard deviation", noise_std)?;
    let splits = Split::all(gram);
    let best = Split::best(&splits, noise_std, epsilon)?;
    Ok(DeterministicBound {
        delta: best.delta(noise_std, epsilon, FINE)?,
        classes: best.classes,
        slots_per_class: best.slots_per_class,
    })
}

/// The noise that the bound calls `(epsilon, delta)`-private.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeterministicNoise {
    /// The standard deviation of the entries of `Z` at clip norm 1.
    pub noise_std: f64,
    /// The bound at this noise.
    pub bound: DeterministicBound,
}

/// The least noise found for which the bound is at most `delta`, rounded up; never more than without amplification. About
/// a second for 100 slots.
///
/// # Errors
/// [`AccountingError::Epsilon`], [`AccountingError::Delta`] or [`AccountingError::Calibration`].
pub fn noise_std(
    gram: &Gram,
    epsilon: f64,
    delta: f64,
) -> Result<DeterministicNoise, AccountingError> {
    check_epsilon(epsilon)?;
    check_delta(delta)?;
    let splits = Split::all(gram);
    // The margin of the unamplified multiplier covers the rounding of the square root.
    let known_slot = calibration::multiplier(epsilon, delta)? * gram.largest_diagonal().sqrt();
    let solve = |split: &Split, step: f64| {
        // The slots of a split may be too alike for any gain, and the grid costs a little: then the slot counts as known.
        let search = Search::from(1.05 * known_slot);
        let found = least_noise(search, delta, |noise| {
            Ok((split.delta(noise, epsilon, step)?.worst() / delta).ln())
        });
        match found {
            // What the grid rounds away may be more than a tiny delta: then the slot counts as known, too.
            Err(AccountingError::OutOfRange { .. }) => Ok(f64::INFINITY),
            found => found,
        }
    };
    // The best split depends on the noise, weakly: two rounds settle it.
    let mut best = Split::best(&splits, 0.85 * known_slot, epsilon)?;
    for _ in 0..2 {
        if best.slots_per_class > 1 {
            let noise = solve(best, COARSE)?.min(known_slot);
            best = Split::best(&splits, noise, epsilon)?;
        }
    }
    if best.slots_per_class > 1 {
        let noise_std = (solve(best, FINE)? * (1.0 + MARGIN)).min(known_slot);
        let (classes, slots_per_class) = (best.classes, best.slots_per_class);
        let bound = best.delta(noise_std, epsilon, FINE)?;
        if bound.worst() <= delta {
            let bound = DeterministicBound { delta: bound, classes, slots_per_class };
            return Ok(DeterministicNoise { noise_std, bound });
        }
    }
    let slots = gram.slots();
    let known = Split { classes: slots, slots_per_class: 1, ..*best };
    let bound = known.delta(known_slot, epsilon, FINE)?;
    let bound = DeterministicBound { delta: bound, classes: slots, slots_per_class: 1 };
    Ok(DeterministicNoise { noise_std: known_slot, bound })
}

/// The `epsilon` at `delta` for noise of this standard deviation at clip norm 1, rounded up; not below
/// [`LEAST_EPSILON`]. Some twenty evaluations of [`delta`].
///
/// # Errors
/// [`AccountingError::Delta`], [`AccountingError::Noise`], [`AccountingError::Calibration`], or
/// [`AccountingError::OutOfRange`] if it is above [`LARGEST_EPSILON`](super::LARGEST_EPSILON).
pub fn epsilon(gram: &Gram, noise_std: f64, delta: f64) -> Result<f64, AccountingError> {
    check_delta(delta)?;
    check_noise("noise standard deviation", noise_std)?;
    let splits = Split::all(gram);
    let known_slot = calibration::epsilon(noise_std / gram.largest_diagonal().sqrt(), delta)?;
    if known_slot > super::LARGEST_EPSILON {
        return Err(AccountingError::OutOfRange { delta });
    }
    let known_slot = known_slot.max(LEAST_EPSILON);
    let best = Split::best(&splits, noise_std, 0.8 * known_slot)?;
    let enough = |epsilon: f64| Ok((best.delta(noise_std, epsilon, FINE)?.worst() / delta).ln());
    if enough(known_slot)? > 0.0 {
        return Ok(known_slot);
    }
    if enough(LEAST_EPSILON)? <= 0.0 {
        return Ok(LEAST_EPSILON);
    }
    // A falling function of epsilon as of the noise.
    least_noise(Search { lower_by: 0.8, ..Search::from(known_slot) }, delta, enough)
}

/// One way to split the slots into classes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Split {
    classes: usize,
    slots_per_class: usize,
    /// `g` and `g_w`.
    diagonal: f64,
    largest: f64,
}

impl Split {
    /// For every size of the classes, the split with the least `g_w`. O(b log b) after the lags.
    fn all(gram: &Gram) -> Vec<Self> {
        let b = gram.slots();
        let (diagonal, lags) = (gram.largest_diagonal(), gram.largest_by_lag());
        let mut splits: Vec<Self> = Vec::new();
        for classes in 1..=b {
            let largest = (classes..b).step_by(classes).map(|lag| lags[lag]).fold(0.0, f64::max);
            let slots_per_class = b / classes;
            let split = Self { classes, slots_per_class, diagonal, largest: largest.min(diagonal) };
            match splits.last_mut() {
                Some(last) if last.slots_per_class == slots_per_class => {
                    if split.largest < last.largest {
                        *last = split;
                    }
                }
                _ => splits.push(split),
            }
        }
        splits
    }

    /// The one with the least delta, by a coarse grid.
    fn best(splits: &[Self], noise: f64, epsilon: f64) -> Result<&Self, AccountingError> {
        let worst = |split: &Self| Ok(split.delta(noise, epsilon, COARSE)?.worst());
        let deltas: Vec<f64> =
            splits.par_iter().map(worst).collect::<Result<_, AccountingError>>()?;
        let best = splits.iter().zip(&deltas).min_by(|x, y| x.1.total_cmp(y.1));
        // There is one split at least: one class.
        best.map(|(split, _)| split).ok_or(AccountingError::Gram { side: 0 })
    }

    /// The bound of Theorem 2. Where the grid would be too large, that of a known slot.
    fn delta(&self, noise: f64, epsilon: f64, step: f64) -> Result<Directions, AccountingError> {
        // As if there were a little less noise, by more than the rounding of these roots and quotients.
        let noise = noise / (1.0 + 0.5 * MARGIN);
        let known = || {
            let delta = calibration::delta(epsilon, noise / self.diagonal.sqrt())?;
            Ok(Directions { remove: delta, add: delta })
        };
        let (common, own) =
            (self.largest.sqrt() / noise, (self.diagonal - self.largest).sqrt() / noise);
        if self.slots_per_class == 1 || own <= 1e-6 {
            return known();
        }
        // The grid has to resolve the spread of the whole, which for small shifts is less than the usual step.
        let spread = f64::hypot(common, own / (self.slots_per_class as f64).sqrt());
        let step = step.min(0.2 * spread * step / FINE).max(1e-3);
        match Allocation::new(self.slots_per_class as u64, own, step) {
            Ok(allocation) => allocation.delta_beside(common, epsilon),
            Err(AccountingError::Grid { .. }) => known(),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::Neighbouring;
    use mf_core::factorization::{bisr, bsr};
    use mf_core::{Participation, Sgd, Strategy};

    fn gram(strategy: &Strategy, k: usize, b: usize) -> Gram {
        let participation = Participation::epochs(k, b).unwrap();
        Gram::of(Neighbouring::ZeroOut, strategy, &participation).unwrap()
    }

    #[test]
    fn gains_of_bsr_and_bisr() {
        // Gain over the known slot for epsilon 2, 4, 8 at ten epochs of 100, by the prototype of the design notes.
        let sgd = Sgd::new(0.999, 0.9).unwrap();
        let banded = Strategy::toeplitz(1000, bsr::coefficients(&sgd, 100)).unwrap();
        let inverse = Strategy::inverse_toeplitz(1000, bisr::coefficients(&sgd, 4)).unwrap();
        for (strategy, gains) in
            [(&banded, [1.137, 1.131, 1.111]), (&inverse, [1.384, 1.288, 1.187])]
        {
            let gram = gram(strategy, 10, 100);
            for (epsilon, gain) in [2.0, 4.0, 8.0].into_iter().zip(gains) {
                let start = std::time::Instant::now();
                let found = noise_std(&gram, epsilon, 1e-5).unwrap();
                let known = calibration::multiplier(epsilon, 1e-5).unwrap()
                    * gram.largest_diagonal().sqrt();
                println!(
                    "{epsilon}: {found:?}, gain {:.4} for {gain}, {:?}",
                    known / found.noise_std,
                    start.elapsed()
                );
                // Splits whose classes differ by one slot are new here, so the gain may be larger.
                assert!(
                    known / found.noise_std > gain - 0.002 && known / found.noise_std < gain + 0.03
                );
                assert!(found.bound.delta.worst() <= 1e-5);
                let back = super::epsilon(&gram, found.noise_std, 1e-5).unwrap();
                assert!(
                    back >= epsilon * (1.0 - 1e-6) && back < epsilon * 1.01,
                    "{back} for {epsilon}"
                );
            }
        }
    }

    #[test]
    fn small_deltas_gain_too_and_never_need_more_than_a_known_slot() {
        let sgd = Sgd::new(0.999, 0.9).unwrap();
        let gram = gram(&Strategy::toeplitz(1000, bsr::coefficients(&sgd, 100)).unwrap(), 10, 100);
        for (epsilon, delta) in [(2.0, 1e-8), (2.0, 3e-9), (0.5, 1e-12), (8.0, 1e-15)] {
            let found = noise_std(&gram, epsilon, delta).unwrap();
            let known =
                calibration::multiplier(epsilon, delta).unwrap() * gram.largest_diagonal().sqrt();
            println!("{epsilon} {delta:e}: gain {:.4}", known / found.noise_std);
            assert!(found.noise_std <= known && found.bound.delta.worst() <= delta, "{found:?}");
            assert!(known / found.noise_std > 1.05, "{epsilon} {delta:e}: {found:?}");
        }
    }

    #[test]
    fn one_slot_is_the_gaussian() {
        let strategy = Strategy::toeplitz(5, vec![1.0, 0.5]).unwrap();
        let gram = gram(&strategy, 5, 1);
        let found = noise_std(&gram, 3.0, 1e-6).unwrap();
        let plain = calibration::multiplier(3.0, 1e-6).unwrap() * gram.largest_diagonal().sqrt();
        assert_eq!(found.noise_std, plain);
        assert!(found.bound.delta.worst() <= 1e-6);
    }

    #[test]
    fn independent_noise_in_one_epoch_is_one_allocation() {
        // The prototype's noise for C = I, b = 100, delta 1e-5.
        let gram = gram(&Strategy::identity(100).unwrap(), 1, 100);
        for (epsilon, expected) in [(2.0, 0.7178), (4.0, 0.5662), (8.0, 0.4151)] {
            let found = noise_std(&gram, epsilon, 1e-5).unwrap();
            assert!((found.noise_std - expected).abs() < 2e-4, "{found:?} for {expected}");
            assert_eq!((found.bound.classes, found.bound.slots_per_class), (1, 100));
            let allocation = Allocation::new(100, 1.0 / found.noise_std, FINE).unwrap();
            let exact = allocation.delta(epsilon).unwrap().worst();
            assert!((exact / found.bound.delta.worst() - 1.0).abs() < 1e-6);
        }
    }
}
