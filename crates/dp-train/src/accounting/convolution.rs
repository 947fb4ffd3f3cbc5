//! Tilted laws and their convolution: the arithmetic behind [`composition`](super::composition).

use std::cell::RefCell;

use realfft::RealFftPlanner;
use realfft::num_complex::Complex;

use super::pld::Pld;

/// The part of the tilted law that may lie outside the window.
pub(super) const OUTSIDE: f64 = 1e-15;

/// Half a unit in the last place of 1.
pub(super) const UNIT: f64 = f64::EPSILON / 2.0;

/// Coefficients that are smaller count as 0: their sum is lost beside any other error.
const NOTHING: f64 = 1e-300;

/// Points up to which the roots of unity of a transform are kept for the next: 16 MB for the largest.
const KEPT: usize = 1 << 20;

thread_local! {
    /// A search for noise makes a dozen transforms of one size.
    static PLANNER: RefCell<RealFftPlanner<f64>> = RefCell::new(RealFftPlanner::new());
}

/// Where the composed law has to be accurate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aim {
    /// Around this epsilon.
    Epsilon(f64),
    /// Where `delta(epsilon)` is about this.
    Delta(f64),
    /// Around this epsilon, where delta is about as given: faster.
    Both {
        /// The epsilon.
        epsilon: f64,
        /// The delta.
        delta: f64,
    },
}

/// One of the laws that are summed, with the logarithms of its masses and a coarse version of it to search with.
pub(super) struct Part<'a> {
    pub(super) pld: &'a Pld,
    pub(super) rounds: f64,
    logs: Vec<f64>,
    coarse: Vec<(f64, f64)>,
}

impl<'a> Part<'a> {
    pub(super) fn new(pld: &'a Pld, rounds: u64) -> Self {
        let logs: Vec<f64> = pld.masses.iter().map(|m| m.ln()).collect();
        // Few points, but none that hides the shape of the bulk: groups end at a thousandth of the mass.
        let longest = pld.masses.len().div_ceil(2048);
        let mut coarse = Vec::new();
        let (mut mass, mut moment, mut length) = (0.0, 0.0, 0);
        for (j, m) in pld.masses.iter().enumerate() {
            mass += m;
            moment += m * pld.loss(j);
            length += 1;
            if mass > 1e-3 || length == longest || j + 1 == pld.masses.len() {
                if mass > 0.0 {
                    coarse.push((moment / mass, mass.ln()));
                }
                (mass, moment, length) = (0.0, 0.0, 0);
            }
        }
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

pub(super) fn log_moment(parts: &[Part], theta: f64) -> f64 {
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

/// The tilt that minimizes Chernoff's bound, of delta at an epsilon or of epsilon at a delta; if both are known, the least
/// one at which the transform's error is about 1e-5 of delta. Any tilt is correct.
///
/// Chernoff's bound falls up to the saddle point, but beyond what is needed a tilt only widens the window: it brings in
/// the far tail of single losses.
pub(super) fn saddle(parts: &[Part], aim: Aim) -> f64 {
    let step = parts[0].pld.step;
    let at_epsilon = |epsilon: f64| {
        if coarse_moment(parts, 0.0).1 >= epsilon {
            return 0.0;
        }
        crossing(step, |theta| coarse_moment(parts, theta).1 - epsilon)
    };
    match aim {
        Aim::Epsilon(epsilon) => at_epsilon(epsilon),
        Aim::Delta(delta) => crossing(step, |theta| {
            let (moment, derivative) = coarse_moment(parts, theta);
            theta * derivative - moment + delta.ln()
        }),
        Aim::Both { epsilon, delta } => {
            let rounds: f64 = parts.iter().map(|part| part.rounds).sum();
            let wanted = (1e-5 * delta / (5e-14 * rounds + OUTSIDE)).ln();
            let (mut low, mut high) = (0.0, at_epsilon(epsilon));
            for _ in 0..12 {
                let middle = 0.5 * (low + high);
                let chernoff = coarse_moment(parts, middle).0 - middle * epsilon;
                if chernoff > wanted { low = middle } else { high = middle }
            }
            high
        }
    }
}

/// The losses between which all but [`OUTSIDE`] of the tilted sum lies, by Chernoff's bound on either side.
pub(super) fn window(parts: &[Part], tilt: f64, log_moment_at_tilt: f64) -> (f64, f64) {
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
pub(super) fn convolve(parts: &[Part], tilt: f64, size: usize) -> (Vec<f64>, f64) {
    let plans = |planner: &mut RealFftPlanner<f64>| {
        (planner.plan_fft_forward(size), planner.plan_fft_inverse(size))
    };
    let (forward, inverse) = match size {
        ..=KEPT => PLANNER.with_borrow_mut(plans),
        _ => plans(&mut RealFftPlanner::new()),
    };
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
        let least = NOTHING.powf(1.0 / part.rounds);
        for (k, phi) in spectrum.iter().enumerate() {
            let size = phi.norm_sqr().sqrt() + error;
            errors[k] += part.rounds * error / size;
            // Most coefficients of many rounds; what is dropped is all of an error.
            if size < least {
                errors[k] += 1.0;
                product[k] = Complex::ZERO;
                sizes[k] *= NOTHING;
            } else {
                product[k] *= phi.powu(power);
                sizes[k] *= size.powf(part.rounds);
            }
        }
    }
    let twice = |k: usize| if k == 0 || 2 * k == size { 1.0 } else { 2.0 };
    let squared: f64 = (0..half).map(|k| twice(k) * (sizes[k] * errors[k]).powi(2)).sum();
    let back: f64 = (0..half).map(|k| twice(k) * sizes[k]).sum::<f64>() * depth;
    // A real signal has a real coefficient at 0 and at the middle; rounding leaves something else there.
    product[0].im = 0.0;
    product[half - 1].im = 0.0;
    let mut out = vec![0.0; size];
    if inverse.process(&mut product, &mut out).is_err() {
        return (vec![0.0; size], f64::INFINITY);
    }
    out.iter_mut().for_each(|mass| *mass /= size as f64);
    (out, squared.sqrt() + back)
}
