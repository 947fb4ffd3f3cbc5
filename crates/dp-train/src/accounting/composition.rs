//! Many releases: the law of a sum of independent privacy losses.
//!
//! The characteristic function of the sum is a product of powers, so one Fourier transform there and one back do
//! it. Two things would go wrong for a small `delta`: a transform's rounding error is relative to the *largest* mass,
//! and what lies outside the window wraps round into it. Both are cured by tilting: instead of masses `m_i` the
//! transform gets `m_i e^{theta l_i - M(theta)}`, with `M` the logarithm of their moment generating function, and what
//! comes out at loss `l` is multiplied by `e^{T M(theta) - theta l}`. With theta at the saddle point the tilted law has
//! its bulk at the epsilon in question, and an error `e` of the transform changes `delta(epsilon)` by at most
//! `e` times Chernoff's bound `e^{T M(theta) - theta epsilon}`, itself a small multiple of `delta`.
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

use realfft::RealFftPlanner;
use realfft::num_complex::Complex;

use super::pld::Pld;
use super::{AccountingError, check_count, check_delta};

/// The most points of a transform: 128 MB for its input and output.
const MOST_POINTS: usize = 1 << 23;

/// The most releases.
pub const MOST_ROUNDS: u64 = 1_000_000_000;

/// The part of the tilted law that may lie outside the window.
const OUTSIDE: f64 = 1e-15;

/// Half a unit in the last place of 1.
const UNIT: f64 = f64::EPSILON / 2.0;

/// Where the composed law has to be accurate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aim {
    /// Around this epsilon.
    Epsilon(f64),
    /// Where `delta(epsilon)` is about this.
    Delta(f64),
}

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

/// One of the laws that are summed, with the logarithms of its masses and a coarse version of it to search with.
struct Part<'a> {
    pld: &'a Pld,
    rounds: f64,
    logs: Vec<f64>,
    coarse: Vec<(f64, f64)>,
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
        match aim {
            Aim::Epsilon(epsilon) if !(epsilon >= 0.0 && epsilon.is_finite()) => {
                return Err(AccountingError::Epsilon { epsilon });
            }
            Aim::Epsilon(_) => {}
            Aim::Delta(delta) => check_delta(delta)?,
        }
        let parts: Vec<Part> = parts.iter().map(|(pld, rounds)| Part::new(pld, *rounds)).collect();

        let tilt = saddle(&parts, aim);
        let log_moment = log_moment(&parts, tilt);
        let (low, high) = window(&parts, tilt, log_moment);
        let (low, high) = ((low / step).floor(), (high / step).ceil());
        let points = high - low + 1.0;
        // Not a number is in no range.
        if !(0.0..=MOST_POINTS as f64).contains(&points) {
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

impl<'a> Part<'a> {
    fn new(pld: &'a Pld, rounds: u64) -> Self {
        let logs: Vec<f64> = pld.masses.iter().map(|m| m.ln()).collect();
        let group = pld.masses.len().div_ceil(2048);
        let of_group = |(index, masses): (usize, &[f64])| {
            let mass: f64 = masses.iter().sum();
            let first = index * group;
            let moment: f64 = masses.iter().enumerate().map(|(j, m)| m * pld.loss(first + j)).sum();
            (mass > 0.0).then(|| (moment / mass, mass.ln()))
        };
        let coarse = pld.masses.chunks(group).enumerate().filter_map(of_group).collect();
        Self { pld, rounds: rounds as f64, logs, coarse }
    }

    /// `M(theta)` of the law itself.
    fn log_moment(&self, theta: f64) -> f64 {
        let exponent = |j: usize| self.logs[j] + theta * self.pld.loss(j);
        let largest = (0..self.logs.len()).map(exponent).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = (0..self.logs.len()).map(|j| (exponent(j) - largest).exp()).sum();
        largest + sum.ln()
    }

    /// `M` and its derivative for the coarse law.
    fn coarse_moment(&self, theta: f64) -> (f64, f64) {
        let exponent = |(loss, log): &(f64, f64)| log + theta * loss;
        let largest = self.coarse.iter().map(exponent).fold(f64::NEG_INFINITY, f64::max);
        let (mut sum, mut first) = (0.0, 0.0);
        for point in &self.coarse {
            let weight = (exponent(point) - largest).exp();
            sum += weight;
            first += weight * point.0;
        }
        (largest + sum.ln(), first / sum)
    }
}

fn log_moment(parts: &[Part], theta: f64) -> f64 {
    parts.iter().map(|part| part.rounds * part.log_moment(theta)).sum()
}

fn coarse_moment(parts: &[Part], theta: f64) -> (f64, f64) {
    parts.iter().fold((0.0, 0.0), |(moment, derivative), part| {
        let (m, d) = part.coarse_moment(theta);
        (moment + part.rounds * m, derivative + part.rounds * d)
    })
}

/// Where a rising function passes 0, roughly, between 0 and the largest tilt that is of use.
fn crossing(step: f64, rising: impl Fn(f64) -> f64) -> f64 {
    let most = 30.0 / step;
    let mut high = 1e-3_f64.min(most);
    while rising(high) < 0.0 && high < most {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..30 {
        let middle = 0.5 * (low + high);
        if rising(middle) < 0.0 { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// The tilt that minimizes Chernoff's bound, of delta at an epsilon or of epsilon at a delta. Any tilt is correct.
fn saddle(parts: &[Part], aim: Aim) -> f64 {
    let step = parts[0].pld.step;
    match aim {
        Aim::Epsilon(epsilon) => {
            if coarse_moment(parts, 0.0).1 >= epsilon {
                return 0.0;
            }
            crossing(step, |theta| coarse_moment(parts, theta).1 - epsilon)
        }
        Aim::Delta(delta) => crossing(step, |theta| {
            let (moment, derivative) = coarse_moment(parts, theta);
            theta * derivative - moment + delta.ln()
        }),
    }
}

/// The losses between which all but [`OUTSIDE`] of the tilted sum lies, by Chernoff's bound on either side.
fn window(parts: &[Part], tilt: f64, log_moment_at_tilt: f64) -> (f64, f64) {
    let step = parts[0].pld.step;
    let tail = (2.0 / OUTSIDE).ln();
    let at_tilt = coarse_moment(parts, tilt).0;
    let bound = |side: f64| {
        let further = crossing(step, |o| {
            let (moment, derivative) = coarse_moment(parts, tilt + side * o);
            side * o * derivative - (moment - at_tilt) - tail
        });
        let growth = log_moment(parts, tilt + side * further) - log_moment_at_tilt;
        side * (growth + tail) / further
    };
    (bound(-1.0), bound(1.0))
}

/// The tilted law of the sum, folded to `size` points, and a bound on the sum of its masses' errors.
fn convolve(parts: &[Part], tilt: f64, size: usize) -> (Vec<f64>, f64) {
    let mut planner = RealFftPlanner::<f64>::new();
    let forward = planner.plan_fft_forward(size);
    let depth = 6.0 * UNIT * f64::from(size.ilog2() + 4);
    let half = size / 2 + 1;
    let mut product = vec![Complex::new(1.0, 0.0); half];
    // Per coefficient: the bound of its size, and the sum of T e / (|phi| + e).
    let (mut sizes, mut errors) = (vec![1.0; half], vec![0.0; half]);
    for part in parts {
        let own = part.log_moment(tilt);
        let mut folded = vec![0.0; size];
        let mut exponents = 0.0;
        for (j, log) in part.logs.iter().enumerate() {
            let index = (part.pld.lowest + j as i64).rem_euclid(size as i64) as usize;
            let tilting = tilt * part.pld.loss(j);
            let mass = (log + tilting - own).exp();
            folded[index] += mass;
            if mass > 0.0 {
                exponents += mass * (log.abs() + 2.0 * tilting.abs() + own.abs());
            }
        }
        let wraps = (part.logs.len() / size) as f64;
        let error = depth + UNIT * (2.0 * exponents + wraps + 8.0);
        let mut spectrum = vec![Complex::new(0.0, 0.0); half];
        // Lengths agree by construction, the only thing that can be wrong.
        if forward.process(&mut folded, &mut spectrum).is_err() {
            return (vec![0.0; size], f64::INFINITY);
        }
        let power = part.rounds as u32;
        for (k, phi) in spectrum.iter().enumerate() {
            let size = phi.norm() + error;
            product[k] *= phi.powu(power);
            sizes[k] *= size.powf(part.rounds);
            errors[k] += part.rounds * error / size;
        }
    }
    let twice = |k: usize| if k == 0 || 2 * k == size { 1.0 } else { 2.0 };
    let squared: f64 = (0..half).map(|k| twice(k) * (sizes[k] * errors[k]).powi(2)).sum();
    let back: f64 = (0..half).map(|k| twice(k) * sizes[k]).sum::<f64>() * depth;
    // A real signal has a real coefficient at 0 and at the middle; rounding leaves something else there.
    product[0].im = 0.0;
    product[half - 1].im = 0.0;
    let mut out = vec![0.0; size];
    let inverse = planner.plan_fft_inverse(size);
    if inverse.process(&mut product, &mut out).is_err() {
        return (vec![0.0; size], f64::INFINITY);
    }
    out.iter_mut().for_each(|mass| *mass /= size as f64);
    (out, squared.sqrt() + back)
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
                for aim in [Aim::Epsilon(epsilon), Aim::Delta(expected.clamp(1e-12, 0.5))] {
                    let found = Composition::new(&parts, aim).unwrap().delta(epsilon).unwrap();
                    let excess = found - expected;
                    assert!(
                        excess > -1e-16,
                        "{first} {second} {epsilon} {aim:?}: below by {excess:e}"
                    );
                    assert!(
                        excess < 1e-9 * expected + 1e-11,
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
        for delta in [1e-12, 1e-6, 1e-3] {
            let epsilon = aimed.epsilon(delta).unwrap();
            let laws = vec![small.clone(); 20];
            assert!(by_hand(&laws, epsilon) <= delta, "{delta}");
            let slack = if delta == 1e-6 { 1e-8 } else { 0.01 };
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
