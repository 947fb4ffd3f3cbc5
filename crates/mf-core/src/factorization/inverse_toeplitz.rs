//! Optimized banded inverse Toeplitz strategies: the best `p` coefficients of `C^-1`.

use super::quasi_newton::minimize;
use super::toeplitz::{LIMITS, correlate};
use crate::error::Result;
use crate::participation::Participation;
use crate::sensitivity;
use crate::series;
use crate::strategy::Strategy;

/// Searches with more coefficients than this start from one place only.
const MANY: usize = 32;

/// The strategy whose inverse has `p` Toeplitz diagonals with the smallest expected error that a search
/// finds: a few hundred evaluations of `ln E` with its exact gradient, O(n p) each, for `p` and each of its
/// halves.
///
/// There are several valleys: with two coefficients `lambda` close to 1 is best, and more of them are best
/// spent on that shape, on that of the BISR, or on that of two exponentials. The search starts from the best
/// coefficients for half as many bands, from the first coefficients of the inverse root (the BISR) and,
/// where there is one, from the inverse of a [BLT](super::blt).
///
/// The sensitivity of the leftmost pattern is that of `C` only if the coefficients of `C` rise and then
/// fall. A search without this condition comes first; if it ends at a `C` that does not meet it, it is
/// repeated with steps out of the set refused. The result is then feasible, and perhaps not the best
/// feasible one.
///
/// # Errors
/// As [`Strategy::inverse_toeplitz`].
pub(super) fn optimize(
    a: &[f64],
    inverse_root: &[f64],
    exponentials: Option<&Strategy>,
    participation: &Participation,
) -> Result<Strategy> {
    let (n, bands) = (participation.steps(), inverse_root.len());
    if bands == 1 {
        return Strategy::inverse_toeplitz(n, vec![1.0]);
    }
    let inverse_root = inverse_root.iter().map(|g| g / inverse_root[0]).collect();
    let exponentials = exponentials.and_then(Strategy::short_inverse);
    let problem = Problem { a, participation, inverse_root, exponentials };
    Strategy::inverse_toeplitz(n, problem.best(bands).1)
}

struct Problem<'a> {
    a: &'a [f64],
    participation: &'a Participation,
    /// The first coefficients of `A^{-1/2}`, scaled so that the first is 1.
    inverse_root: Vec<f64>,
    /// The first column of the inverse of a BLT.
    exponentials: Option<Vec<f64>>,
}

impl Problem<'_> {
    /// The best certified coefficients, with `ln E` up to a constant.
    fn best(&self, bands: usize) -> (f64, Vec<f64>) {
        let mut starts = vec![self.inverse_root[..bands].to_vec()];
        starts.extend(self.exponentials.iter().map(|column| column[..bands].to_vec()));
        if bands > 2 {
            let mut half = self.best(bands.div_ceil(2)).1;
            half.resize(bands, 0.0);
            starts.push(half);
        }
        let value = |g: &Vec<f64>| log_error(self.a, g, self.participation).0;
        let mut valued: Vec<(f64, Vec<f64>)> =
            starts.into_iter().map(|start| (value(&start), start)).collect();
        valued.sort_by(|x, y| x.0.total_cmp(&y.0));
        let most = if bands > MANY { 1 } else { valued.len() };
        let searched: Vec<Vec<f64>> =
            valued.iter().take(most).flat_map(|(_, start)| self.search(start)).collect();
        valued.extend(searched.into_iter().map(|g| (value(&g), g)));
        valued.retain(|(_, g)| is_certified(g, self.participation));
        let best = valued.into_iter().min_by(|x, y| x.0.total_cmp(&y.0));
        best.unwrap_or_else(|| (f64::INFINITY, self.inverse_root[..bands].to_vec()))
    }

    /// Where a search ends: without the condition, or else with it, from the start and from the last
    /// certified point on the way to where it leads without.
    fn search(&self, start: &[f64]) -> Vec<Vec<f64>> {
        let free = self.descend(start, false);
        if is_certified(&free, self.participation) {
            return vec![free];
        }
        if !is_certified(start, self.participation) {
            return Vec::new();
        }
        let blend = |t: f64| -> Vec<f64> {
            start.iter().zip(&free).map(|(x, y)| (1.0 - t) * x + t * y).collect()
        };
        let (mut inside, mut outside) = (0.0, 1.0);
        for _ in 0..20 {
            let middle = 0.5 * (inside + outside);
            let certified = is_certified(&blend(middle), self.participation);
            if certified { inside = middle } else { outside = middle }
        }
        let edge = blend(inside);
        vec![self.descend(start, true), self.descend(&edge, true), edge]
    }

    fn descend(&self, start: &[f64], only_certified: bool) -> Vec<f64> {
        let found = minimize(start[1..].to_vec(), LIMITS, |tail: &[f64]| {
            let g = [&[1.0], tail].concat();
            if only_certified && !is_certified(&g, self.participation) {
                return (f64::INFINITY, vec![0.0; tail.len()]);
            }
            let (value, mut gradient) = log_error(self.a, &g, self.participation);
            gradient.remove(0);
            (value, gradient)
        });
        [&[1.0], &found.x[..]].concat()
    }
}

/// Whether the sensitivity of the inverse of `LDToep(g)` is exact.
fn is_certified(g: &[f64], participation: &Participation) -> bool {
    participation.max_participations() == 1
        || sensitivity::is_unimodal(&series::divide_by_substitution(
            &[1.0],
            g,
            participation.steps(),
        ))
}

/// `ln E` of `C^-1 = LDToep(g)` for `A = LDToep(a)` if participating at `0, b, 2b, ...` is worst, up to a
/// constant, and its gradient by `g`.
fn log_error(a: &[f64], g: &[f64], participation: &Participation) -> (f64, Vec<f64>) {
    let n = a.len();
    let b = participation.min_separation();
    let mut uses = vec![0.0; (participation.max_participations() - 1) * b + 1];
    uses.iter_mut().step_by(b).for_each(|x| *x = 1.0);
    // The columns 0, b, ... of C added up, and what a change of g_l does to them: -(sum / g) moved down.
    let sum = series::divide_by_substitution(&uses, g, n);
    let moved = series::divide_by_substitution(&sum, g, n);
    let sensitivity: f64 = sum.iter().map(|x| x * x).sum();
    let along_sum = correlate(&sum, &moved, g.len());
    let decoder_column = series::multiply(a, g, n);
    let weighted: Vec<f64> =
        decoder_column.iter().enumerate().map(|(i, b)| (n - i) as f64 * b).collect();
    let decoder: f64 = weighted.iter().zip(&decoder_column).map(|(x, b)| x * b).sum();
    let along_decoder = correlate(&weighted, a, g.len());
    let gradient: Vec<f64> =
        along_sum.iter().zip(&along_decoder).map(|(s, d)| d / decoder - s / sensitivity).collect();
    let value = 0.5 * (sensitivity.ln() + decoder.ln());
    let defined = value.is_finite() && gradient.iter().all(|g| g.is_finite());
    (if defined { value } else { f64::INFINITY }, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factorization::bisr;
    use crate::workload::Sgd;

    #[test]
    fn gradients_are_those_of_differences() {
        let sgd = Sgd::new(0.99, 0.5).unwrap();
        for (n, b, k, p) in [(50, 10, 5, 4), (50, 4, 10, 9), (300, 20, 15, 80), (9, 9, 1, 9)] {
            let participation = Participation::new(n, b, k).unwrap();
            let a = sgd.coefficients(n);
            let g: Vec<f64> = bisr::coefficients(&sgd, p).iter().map(|g| 0.98 * g).collect();
            let (_, gradient) = log_error(&a, &g, &participation);
            for l in 0..p {
                let at = |h: f64| {
                    let mut moved = g.clone();
                    moved[l] += h;
                    log_error(&a, &moved, &participation).0
                };
                let numeric = (at(1e-6) - at(-1e-6)) / 2e-6;
                assert!(
                    (gradient[l] / numeric - 1.0).abs() < 1e-5,
                    "{n} {p} {l}: {} {numeric}",
                    gradient[l]
                );
            }
        }
    }
}
