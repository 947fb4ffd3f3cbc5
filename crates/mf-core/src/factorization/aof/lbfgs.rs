//! Limited-memory quasi-Newton directions with a supplied initial inverse Hessian.

use std::collections::VecDeque;

use rayon::prelude::*;

/// The most recent steps `s` and gradient changes `y`, kept in single precision.
///
/// The curvature `s.y` and the products between pairs are those of the stored values, so rounding a
/// pair perturbs the secant equation it contributes but not the symmetry or positive definiteness
/// of the update. Vectors are read once per pass over blocks that stay in cache: 4 passes over the
/// history for a direction, 1 for a new pair.
pub(super) struct History {
    capacity: usize,
    pairs: VecDeque<Pair>,
}

struct Pair {
    step: Vec<f32>,
    change: Vec<f32>,
    curvature: f64,
    /// `s_older * y_this`, oldest pair first.
    cross: VecDeque<f64>,
}

const BLOCK: usize = 2048;

impl History {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, pairs: VecDeque::with_capacity(capacity) }
    }

    pub(super) fn clear(&mut self) {
        self.pairs.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Records `step` and `change`; ignored unless their curvature is clearly positive.
    pub(super) fn push(&mut self, step: Vec<f32>, change: Vec<f32>) {
        let curvature = inner(&step, &change);
        let size = (inner(&step, &step) * inner(&change, &change)).sqrt();
        if curvature.is_nan() || curvature <= 1e-10 * size {
            return;
        }
        if self.pairs.len() == self.capacity {
            self.pairs.pop_front();
            for pair in &mut self.pairs {
                pair.cross.pop_front();
            }
        }
        let cross = self.pairs.iter().map(|old| inner(&old.step, &change)).collect();
        self.pairs.push_back(Pair { step, change, curvature, cross });
    }

    /// The newest gradient change and its curvature, `(y, s.y)`.
    pub(super) fn newest(&self) -> Option<(&[f32], f64)> {
        self.pairs.back().map(|p| (&p.change[..], p.curvature))
    }

    /// `direction = -H gradient`, the two-loop recursion written with the stored products between
    /// pairs.
    ///
    /// `initial` applies the initial inverse Hessian in place.
    pub(super) fn direction(
        &self,
        gradient: &[f64],
        direction: &mut [f64],
        initial: impl FnOnce(&mut [f64]),
    ) {
        let count = self.pairs.len();
        let along = dots(gradient, &self.vectors(|p| &p.step));
        let mut alpha = vec![0.0; count];
        for i in (0..count).rev() {
            let newer: f64 = (i + 1..count).map(|j| alpha[j] * self.pairs[j].cross[i]).sum();
            alpha[i] = (along[i] - newer) / self.pairs[i].curvature;
        }
        let weights: Vec<f64> = alpha.iter().map(|a| -a).collect();
        direction.copy_from_slice(gradient);
        combine(direction, &self.vectors(|p| &p.change), &weights, 1.0);
        initial(direction);
        let along = dots(direction, &self.vectors(|p| &p.change));
        let mut weights = vec![0.0; count];
        for i in 0..count {
            let older: f64 = (0..i).map(|j| weights[j] * self.pairs[i].cross[j]).sum();
            weights[i] = alpha[i] - (along[i] + older) / self.pairs[i].curvature;
        }
        combine(direction, &self.vectors(|p| &p.step), &weights, -1.0);
    }

    fn vectors(&self, part: impl Fn(&Pair) -> &Vec<f32>) -> Vec<&[f32]> {
        self.pairs.iter().map(|p| &part(p)[..]).collect()
    }
}

/// The sum of a product over two vectors: blocks in parallel, their sums added in order, so that the
/// same bits come out for any number of threads.
pub(super) fn blockwise<T: Copy + Sync>(
    x: &[T],
    y: &[T],
    product: impl Fn(T, T) -> f64 + Sync,
) -> f64 {
    let sums: Vec<f64> = x
        .par_chunks(BLOCK)
        .zip(y.par_chunks(BLOCK))
        .map(|(x, y)| x.iter().zip(y).map(|(&a, &b)| product(a, b)).sum::<f64>())
        .collect();
    sums.iter().sum()
}

/// `x * v` for every `v`, by blocks as in [`blockwise`].
pub(super) fn dots(x: &[f64], vectors: &[&[f32]]) -> Vec<f64> {
    let parts: Vec<Vec<f64>> = x
        .par_chunks(BLOCK)
        .enumerate()
        .map(|(index, block)| {
            vectors
                .iter()
                .map(|v| {
                    let v = &v[index * BLOCK..index * BLOCK + block.len()];
                    let (xs, x_rest) = block.as_chunks::<8>();
                    let (vs, v_rest) = v.as_chunks::<8>();
                    let mut sums = [0.0; 8];
                    for (a, b) in xs.iter().zip(vs) {
                        for t in 0..8 {
                            sums[t] += a[t] * f64::from(b[t]);
                        }
                    }
                    let rest: f64 = x_rest.iter().zip(v_rest).map(|(a, b)| a * f64::from(*b)).sum();
                    sums.iter().sum::<f64>() + rest
                })
                .collect::<Vec<f64>>()
        })
        .collect();
    (0..vectors.len()).map(|v| parts.iter().map(|part| part[v]).sum()).collect()
}

/// `x = sign * (x + sum w v)`.
fn combine(x: &mut [f64], vectors: &[&[f32]], weights: &[f64], sign: f64) {
    x.par_chunks_mut(BLOCK).enumerate().for_each(|(index, block)| {
        for (v, w) in vectors.iter().zip(weights) {
            let v = &v[index * BLOCK..index * BLOCK + block.len()];
            for (x, v) in block.iter_mut().zip(v) {
                *x += w * f64::from(*v);
            }
        }
        if sign < 0.0 {
            block.iter_mut().for_each(|x| *x = -*x);
        }
    });
}

fn inner(x: &[f32], y: &[f32]) -> f64 {
    blockwise(x, y, |a, b| f64::from(a) * f64::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(seed: usize) -> Vec<f32> {
        (0..5000).map(|i| ((i * 7 + seed * 131) % 97) as f32 / 97.0 - 0.3).collect()
    }

    /// The inverse Hessian maps the newest gradient change to the newest step, whatever it started from.
    #[test]
    fn the_newest_secant_equation_holds() {
        let mut history = History::new(3);
        for seed in 0..5 {
            let step = vector(seed);
            let change: Vec<f32> =
                step.iter().zip(vector(seed + 9)).map(|(s, v)| 2.0 * s + 0.5 * v).collect();
            history.push(step.clone(), change.clone());
            let gradient: Vec<f64> = change.iter().map(|&v| f64::from(v)).collect();
            let mut direction = vec![0.0; gradient.len()];
            history.direction(&gradient, &mut direction, |v| v.iter_mut().for_each(|v| *v *= 3.0));
            for (d, s) in direction.iter().zip(&step) {
                assert!((d + f64::from(*s)).abs() < 1e-9, "{d} {s}");
            }
        }
        let before = history.newest().map(|(_, curvature)| curvature);
        history.push(vector(1), vector(1).iter().map(|v| -v).collect());
        assert_eq!(history.newest().map(|(_, curvature)| curvature), before, "negative curvature");
    }
}
