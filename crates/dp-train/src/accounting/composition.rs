//! Many releases: the law of a sum of independent privacy losses.
//!
//! The characteristic function of the sum is a product of powers, so one Fourier transform there and one back do
//! it. Two things would go wrong for a small `delta`: a transform's rounding error is relative to the *largest* mass,
//! and what lies outside the window wraps round into it. Both are cured by tilting: instead of masses `m_i` the
//! transform gets `m_i e^{theta l_i - M(theta)}`, with `M` the logarithm of their moment generating function, and what
//! comes out at loss `l` is multiplied by `e^{T M(theta) - theta l}`. An error `e` of the transform then changes
//! `delta(epsilon)` by at most `e` times Chernoff's bound `e^{T M(theta) - theta epsilon}`, which at the saddle point is a
//! small multiple of `delta` itself. Where that is known, the tilt is the least
//! one that makes the error about 1e-5 of it; and less than that where the window would become very wide.
//!
//! What is added to `delta`, per unit of that bound:
//! * *Wrapping*: the window is chosen by Chernoff's bound for the tilted law such that all but `1e-15` lies in it. The
//!   single releases may be wider than the window: folding them first is the same as folding their sum.
//! * *Rounding*: every coefficient of a transform of `N` points with unit mass comes with an error of at most
//!   `e = c u log2 N`: it is a sum through `log2 N` levels, each with a complex product (`sqrt 5 u`), a rounded root of
//!   unity (`u`) and a sum (`u`); `c = 6` here. The tilted masses have a relative error of `u` times the size of the
//!   exponents, whose mean is added to `e`. A `T`-th power, computed by squaring, adds another `sqrt 5 u` per factor and then
//!   errs by at most `T e (|phi| + e)^{T-1}`. By Parseval and Cauchy-Schwarz the masses err in sum by at most the
//!   Euclidean norm of these errors; the transform back adds at most `c u log2 N sum |phi^T|`.

pub use super::convolution::Aim;
use super::convolution::{OUTSIDE, Part, UNIT, convolve, log_moment, saddle, window};
use super::pld::Pld;
use super::{AccountingError, check_count, check_delta};

/// The most points of a transform: 128 MB for its input and output.
const MOST_POINTS: usize = 1 << 23;

/// The points of a window beyond which less tilt is better.
const WIDE: f64 = 1e6;

/// The most releases.
pub const MOST_ROUNDS: u64 = 1_000_000_000;

/// The upper part of the law of a sum of privacy losses, accurate where it was aimed.
#[derive(Debug, Clone)]
pub struct Composition {
    step: f64,
    /// The index of the first loss that is kept, at least 1.
    first: i64,
    /// Masses at the losses kept and above, and the same times `e^{-loss}`.
    masses_above: Vec<f64>,
    discounted_above: Vec<f64>,
    infinite: f64,
    /// `theta` per unit of loss and `T M(theta)`.
    tilt: f64,
    log_moment: f64,
    /// The error of the transform and what wrapped round, per unit of Chernoff's bound.
    error: f64,
    /// `sum T r` of the parts' relative rounding errors.
    rounding: f64,
}

impl Composition {
    /// The sum of `rounds` independent losses of each law.
    ///
    /// O(points + N log N) with a window of N points: about sixteen standard deviations of the tilted sum.
    ///
    /// # Errors
    /// [`AccountingError::Empty`], [`AccountingError::Steps`], [`AccountingError::Count`] for no rounds or more than
    /// [`MOST_ROUNDS`], [`AccountingError::Grid`] if the window is too wide, [`AccountingError::Epsilon`] or
    /// [`AccountingError::Delta`] for the aim.
    pub fn new(parts: &[(&Pld, u64)], aim: Aim) -> Result<Self, AccountingError> {
        let step = parts.first().ok_or(AccountingError::Empty)?.0.step;
        let mut total = 0;
        for (pld, rounds) in parts {
            check_count("rounds", *rounds, MOST_ROUNDS)?;
            total += rounds;
            if pld.step != step {
                return Err(AccountingError::Steps { first: step, second: pld.step });
            }
        }
        check_count("rounds", total, MOST_ROUNDS)?;
        let (epsilon, delta) = match aim {
            Aim::Epsilon(epsilon) => (epsilon, 0.5),
            Aim::Delta(delta) => (0.0, delta),
            Aim::Both { epsilon, delta } => (epsilon, delta),
        };
        if !(epsilon >= 0.0 && epsilon.is_finite()) {
            return Err(AccountingError::Epsilon { epsilon });
        }
        check_delta(delta)?;
        let parts: Vec<Part> = parts.iter().map(|(pld, rounds)| Part::new(pld, *rounds)).collect();

        if parts.iter().any(|part| part.pld.masses.iter().sum::<f64>() == 0.0) {
            return Ok(Self::nothing_private(step));
        }
        let mut tilt = saddle(&parts, aim);
        let (log_moment, low, high) = loop {
            let log_moment = log_moment(&parts, tilt);
            let (low, high) = window(&parts, tilt, log_moment);
            let (low, high) = ((low / step).floor(), (high / step).ceil());
            if high - low < WIDE || tilt == 0.0 {
                break (log_moment, low, high);
            }
            // Far tails of single losses widen the window of a tilted sum.
            tilt = if tilt * step > 1e-9 { 0.8 * tilt } else { 0.0 };
        };
        let points = high - low + 1.0;
        if points.is_nan() || points > MOST_POINTS as f64 {
            return Err(AccountingError::Grid { points, most: MOST_POINTS });
        }
        let size = (points as usize).next_power_of_two().max(16);
        let (tilted, error) = convolve(&parts, tilt, size);

        // Only losses above epsilon >= 0 count; where Chernoff's bound exceeds e^40 the error alone exceeds 1.
        let useful = if tilt > 0.0 { ((log_moment - 40.0) / tilt / step).ceil() } else { low };
        let first = low.max(useful).max(1.0) as i64;
        let count = (high as i64 - first + 1).max(0) as usize;
        let (mut masses_above, mut discounted_above) = (vec![0.0; count + 1], vec![0.0; count + 1]);
        for j in (0..count).rev() {
            let index = first + j as i64;
            let loss = index as f64 * step;
            let weight = (log_moment - tilt * loss).exp();
            let mass = tilted[index.rem_euclid(size as i64) as usize].max(0.0) * weight;
            masses_above[j] = masses_above[j + 1] + mass;
            discounted_above[j] = discounted_above[j + 1] + mass * (-loss).exp();
        }
        let survive = |part: &Part| part.rounds * (-part.pld.infinite).ln_1p();
        let infinite = -parts.iter().map(survive).sum::<f64>().exp_m1();
        let rounding = parts.iter().map(|part| part.rounds * part.pld.rounding).sum();
        let error = error + OUTSIDE;
        Ok(Self {
            step,
            first,
            masses_above,
            discounted_above,
            infinite,
            tilt,
            log_moment,
            error,
            rounding,
        })
    }

    /// All mass at infinity.
    fn nothing_private(step: f64) -> Self {
        Self {
            step,
            first: 1,
            masses_above: vec![0.0],
            discounted_above: vec![0.0],
            infinite: 1.0,
            tilt: 0.0,
            log_moment: 0.0,
            error: 0.0,
            rounding: 0.0,
        }
    }

    /// `delta(epsilon)` of all releases together, not below the truth. O(1).
    ///
    /// Correct for every epsilon, close to the truth for those near the aim; 1 for one far below it.
    ///
    /// # Errors
    /// [`AccountingError::Epsilon`] for an epsilon that is negative or not finite.
    pub fn delta(&self, epsilon: f64) -> Result<f64, AccountingError> {
        if !(epsilon >= 0.0 && epsilon.is_finite()) {
            return Err(AccountingError::Epsilon { epsilon });
        }
        Ok(self.delta_at(epsilon))
    }

    fn delta_at(&self, epsilon: f64) -> f64 {
        // delta(epsilon - x) <= delta(epsilon) + x where the former would be at a negative epsilon.
        let shift = 2.0 * self.rounding;
        let (earlier, missing) = ((epsilon - shift).max(0.0), (shift - epsilon).max(0.0));
        let index = (earlier / self.step).floor() as i64 + 1;
        let at = ((index - self.first).max(0) as usize).min(self.masses_above.len() - 1);
        let above = self.masses_above[at];
        // Beyond e^700 nothing is left of what is subtracted.
        let subtracted =
            if earlier < 700.0 { earlier.exp() * self.discounted_above[at] } else { 0.0 };
        let sum = above - subtracted;
        // The sums have as many terms as the window has points, and the exponents a few hundred units' rounding.
        let summing = above * UNIT * (self.masses_above.len() as f64 + 1e4);
        // Losses that were not kept lie outside the window, or so far below the aim that this exceeds 1.
        let chernoff = (self.log_moment - self.tilt * index as f64 * self.step).exp();
        let delta = self.infinite + sum.max(0.0) + summing + chernoff * self.error + missing;
        (delta * (1.0 + 2.0 * self.rounding)).min(1.0)
    }

    /// The least `epsilon` found with `delta(epsilon) <= delta`, to the last digits from above. O(1).
    ///
    /// # Errors
    /// [`AccountingError::Delta`]; [`AccountingError::OutOfRange`] if the mass at infinity alone exceeds it.
    pub fn epsilon(&self, delta: f64) -> Result<f64, AccountingError> {
        check_delta(delta)?;
        if self.delta_at(0.0) <= delta {
            return Ok(0.0);
        }
        let top = (self.first + self.masses_above.len() as i64) as f64 * self.step;
        let (mut low, mut high) = (0.0, top + 1.0);
        if self.delta_at(high) > delta {
            return Err(AccountingError::OutOfRange { delta });
        }
        loop {
            let middle = 0.5 * (low + high);
            if middle <= low || middle >= high || high - low < 1e-12 * high {
                return Ok(high);
            }
            if self.delta_at(middle) <= delta {
                high = middle;
            } else {
                low = middle;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Pld {
        Pld {
            step: 0.25,
            lowest: -2,
            masses: vec![0.1, 0.2, 0.3, 0.2, 0.1, 0.05, 0.0, 0.04],
            infinite: 0.01,
            rounding: 1e-13,
        }
    }

    fn other() -> Pld {
        Pld {
            step: 0.25,
            lowest: -3,
            masses: vec![0.4, 0.1, 0.3, 0.2],
            infinite: 0.0,
            rounding: 1e-13,
        }
    }

    /// Delta by summing over all pairs, again and again.
    fn by_hand(laws: &[Pld], epsilon: f64) -> f64 {
        let (mut lowest, mut sum, mut finite) = (0, vec![1.0], 1.0);
        for law in laws {
            let mut next = vec![0.0; sum.len() + law.masses.len() - 1];
            for (i, x) in sum.iter().enumerate() {
                for (j, y) in law.masses.iter().enumerate() {
                    next[i + j] += x * y;
                }
            }
            (lowest, sum, finite) = (lowest + law.lowest, next, finite * (1.0 - law.infinite));
        }
        let share = |j: usize| (1.0 - (epsilon - (lowest + j as i64) as f64 * 0.25).exp()).max(0.0);
        1.0 - finite + sum.iter().enumerate().map(|(j, m)| m * share(j)).sum::<f64>()
    }

    #[test]
    fn powers_by_transforms_agree_with_sums_over_all_pairs() {
        let (small, other) = (small(), other());
        for (first, second) in [(1, 1), (1, 4), (7, 2), (30, 0), (0, 12)] {
            let mut laws = vec![small.clone(); first];
            laws.extend(vec![other.clone(); second]);
            let mut parts = Vec::new();
            if first > 0 {
                parts.push((&small, first as u64));
            }
            if second > 0 {
                parts.push((&other, second as u64));
            }
            for epsilon in [0.0, 0.1, 0.25, 1.0, 2.6, 5.0, 12.0] {
                let expected = by_hand(&laws, epsilon);
                let delta = expected.clamp(1e-12, 0.5);
                let both = Aim::Both { epsilon, delta };
                for aim in [Aim::Epsilon(epsilon), Aim::Delta(delta), both] {
                    let found = Composition::new(&parts, aim).unwrap().delta(epsilon).unwrap();
                    let excess = found - expected;
                    assert!(
                        excess > -1e-16,
                        "{first} {second} {epsilon} {aim:?}: below by {excess:e}"
                    );
                    assert!(
                        excess < 1e-5 * expected + 1e-11,
                        "{first} {second} {epsilon} {aim:?}: {found} for {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn epsilon_is_the_inverse_of_delta_also_far_from_the_aim() {
        let small = Pld { infinite: 0.0, ..small() };
        let aimed = Composition::new(&[(&small, 20)], Aim::Delta(1e-6)).unwrap();
        for delta in [1e-9, 1e-6, 1e-3] {
            let epsilon = aimed.epsilon(delta).unwrap();
            let laws = vec![small.clone(); 20];
            assert!(by_hand(&laws, epsilon) <= delta, "{delta}");
            let slack = if delta == 1e-6 { 1e-6 } else { 0.01 };
            assert!(by_hand(&laws, epsilon - slack) > delta, "{delta}");
        }
        let zero = by_hand(&vec![small.clone(); 20], 0.0);
        assert!(aimed.delta(0.0).unwrap() >= zero, "far below the aim");
        let certain = Composition::new(&[(&other(), 1)], Aim::Epsilon(1.0)).unwrap();
        assert_eq!(certain.epsilon(1e-3).unwrap(), 0.0, "no loss is positive");
    }

    #[test]
    fn what_cannot_be_composed_is_refused() {
        let (small, finer) = (small(), Pld { step: 0.125, ..other() });
        let of = |parts: &[(&Pld, u64)], aim| Composition::new(parts, aim).map(|_| ());
        assert_eq!(of(&[], Aim::Delta(0.1)), Err(AccountingError::Empty));
        let steps = AccountingError::Steps { first: 0.25, second: 0.125 };
        assert_eq!(of(&[(&small, 1), (&finer, 1)], Aim::Delta(0.1)), Err(steps));
        assert!(matches!(of(&[(&small, 0)], Aim::Delta(0.1)), Err(AccountingError::Count { .. })));
        assert!(matches!(of(&[(&small, 1)], Aim::Delta(0.0)), Err(AccountingError::Delta { .. })));
        let nan = of(&[(&small, 1)], Aim::Epsilon(f64::NAN));
        assert!(matches!(nan, Err(AccountingError::Epsilon { .. })));
        let lost = Composition::new(&[(&small, 9)], Aim::Delta(0.01)).unwrap().epsilon(0.01);
        assert_eq!(lost, Err(AccountingError::OutOfRange { delta: 0.01 }));
    }
}
