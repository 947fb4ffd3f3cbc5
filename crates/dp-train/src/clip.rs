//! Clipping: no example moves the sum by more than the clip norm.

use rayon::prelude::*;

use crate::gradient::{
    CLIP_NORMS, ClipCounts, ClippedSum, GradientError, MOST_EXAMPLES, PerSampleGradients,
};

/// Coordinates that one thread sums at a time.
const TILE: usize = 4096;

impl PerSampleGradients {
    /// `sum_j min(1, zeta / ||g_j||) g_j` with the clip norm `zeta`.
    ///
    /// Norms, products and sums are f64 and in the order of the examples, whatever the number of
    /// threads. A gradient with a NaN or infinite entry
    /// contributes zero and is counted. O(examples dim).
    ///
    /// # Errors
    /// [`GradientError::ClipNorm`] unless the clip norm is in [`CLIP_NORMS`], [`GradientError::TooMany`] beyond
    /// [`MOST_EXAMPLES`].
    pub fn clip(self, clip_norm: f64) -> Result<ClippedSum, GradientError> {
        if !CLIP_NORMS.contains(&clip_norm) {
            return Err(GradientError::ClipNorm { clip_norm });
        }
        let rows: Vec<&[f32]> = self.rows().collect();
        if rows.len() > MOST_EXAMPLES {
            return Err(GradientError::TooMany);
        }
        let norms: Vec<f64> = rows.par_iter().map(|row| norm(row)).collect();
        let counts = ClipCounts {
            examples: rows.len(),
            clipped: norms.iter().filter(|n| n.is_finite() && **n > clip_norm).count(),
            non_finite: norms.iter().filter(|n| !n.is_finite()).count(),
        };
        let kept: Vec<(&[f32], f64)> = rows
            .into_iter()
            .zip(&norms)
            .filter(|(_, norm)| norm.is_finite())
            .map(|(row, &norm)| (row, scale(norm, clip_norm)))
            .collect();
        let mut sum = vec![0.0_f64; self.dim()];
        sum.par_chunks_mut(TILE).enumerate().for_each(|(tile, sum)| {
            let at = tile * TILE;
            kept.iter().for_each(|(row, scale)| add_scaled(sum, &row[at..], *scale));
        });
        Ok(ClippedSum::from_clipping(sum, clip_norm, counts))
    }
}

impl ClippedSum {
    /// Adds one example's gradient `g`, clipped: `min(1, zeta / ||g||) g`. O(dim), and no memory.
    ///
    /// The same operations in the same order as [`PerSampleGradients::clip`] on the whole batch: the sums are equal
    /// bit for bit. A gradient with a NaN or infinite entry contributes zero and is counted.
    ///
    /// # Errors
    /// [`GradientError::Dimension`] or [`GradientError::TooMany`], and nothing is added.
    pub fn add(&mut self, gradient: &[f32]) -> Result<(), GradientError> {
        self.check_room(gradient.len(), 1)?;
        let (norm, clip_norm) = (norm(gradient), self.clip_norm());
        let (sum, counts) = self.parts_mut();
        counts.examples += 1;
        if !norm.is_finite() {
            counts.non_finite += 1;
            return Ok(());
        }
        counts.clipped += usize::from(norm > clip_norm);
        let scale = scale(norm, clip_norm);
        if sum.len() <= TILE {
            add_scaled(sum, gradient, scale);
        } else {
            let tiles = sum.par_chunks_mut(TILE).zip(gradient.par_chunks(TILE));
            tiles.for_each(|(sum, gradient)| add_scaled(sum, gradient, scale));
        }
        Ok(())
    }
}

/// The factor that brings a gradient of this norm down to the clip norm.
fn scale(norm: f64, clip_norm: f64) -> f64 {
    if norm > clip_norm { clip_norm / norm } else { 1.0 }
}

fn add_scaled(sum: &mut [f64], gradient: &[f32], scale: f64) {
    sum.iter_mut().zip(gradient).for_each(|(s, &g)| *s += scale * f64::from(g));
}

/// `||g||` in f64: squares of finite f32 neither overflow nor vanish there. NaN or infinite exactly
/// if an entry is.
fn norm(gradient: &[f32]) -> f64 {
    gradient.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn length(vector: &[f64]) -> f64 {
        vector.iter().map(|x| x * x).sum::<f64>().sqrt()
    }

    fn clip_one(gradient: &[f32], clip_norm: f64) -> ClippedSum {
        let mut batch = PerSampleGradients::new(gradient.len());
        batch.push(gradient).unwrap();
        batch.clip(clip_norm).unwrap()
    }

    proptest! {
        #[test]
        fn norms_are_bounded_small_gradients_unchanged_and_directions_kept(
            gradient in prop::collection::vec(-1e20_f32..1e20, 1..50),
            shrink in 0..40_i32,
            clip_norm in 1e-3..10.0_f64,
        ) {
            let gradient: Vec<f32> = gradient.iter().map(|g| g * 0.1_f32.powi(shrink)).collect();
            let sum = clip_one(&gradient, clip_norm).into_values();
            let size = norm(&gradient);
            prop_assert!(length(&sum) <= clip_norm * (1.0 + 1e-14));
            for (s, g) in sum.iter().zip(&gradient) {
                let expected = f64::from(*g) * (clip_norm / size).min(1.0);
                prop_assert!((s - expected).abs() <= 1e-14 * clip_norm);
            }
        }

        #[test]
        fn one_example_moves_the_sum_by_at_most_the_clip_norm(
            rows in prop::collection::vec(prop::collection::vec(-5.0_f32..5.0, 7), 1..20),
            bad in prop::sample::select(vec![0.0, f32::NAN, f32::INFINITY, f32::MAX]),
        ) {
            let clipped = |rows: &[Vec<f32>]| {
                let mut batch = PerSampleGradients::new(7);
                rows.iter().for_each(|row| batch.push(row).unwrap());
                batch.clip(1.5).unwrap().into_values()
            };
            let mut rows = rows;
            rows[0][3] += bad;
            let (with, without) = (clipped(&rows), clipped(&rows[1..]));
            let difference: Vec<f64> = with.iter().zip(&without).map(|(a, b)| a - b).collect();
            prop_assert!(length(&difference) <= 1.5 * (1.0 + 1e-12));
        }
    }

    #[test]
    fn non_finite_gradients_contribute_zero_and_are_counted() {
        let mut batch = PerSampleGradients::new(2);
        for row in [[3.0, 4.0], [f32::NAN, 1.0], [f32::INFINITY, 0.0], [0.1, 0.0]] {
            batch.push(&row).unwrap();
        }
        let sum = batch.clip(1.0).unwrap();
        assert_eq!(sum.counts(), ClipCounts { examples: 4, clipped: 1, non_finite: 2 });
        let sum = sum.into_values();
        assert!((sum[0] - 0.7).abs() < 1e-6 && (sum[1] - 0.8).abs() < 1e-6, "{sum:?}");
    }

    #[test]
    fn adding_one_by_one_is_clipping_the_batch_bit_for_bit() {
        // Longer than a tile, so that tiles are added in parallel.
        let dim = 2 * TILE + 77;
        let entry = |j: usize, i: usize| ((j * 7919 + i * 104_729) % 2003) as f32 / 1000.0 - 1.0;
        let mut rows: Vec<Vec<f32>> =
            (0..9).map(|j| (0..dim).map(|i| entry(j, i) / (1 << j) as f32).collect()).collect();
        rows[4][TILE + 3] = f32::NAN;
        let (mut batch, mut sum) =
            (PerSampleGradients::new(dim), ClippedSum::new(dim, 3.0).unwrap());
        for row in &rows {
            batch.push(row).unwrap();
            sum.add(row).unwrap();
        }
        let whole = batch.clip(3.0).unwrap();
        assert!(whole.counts().clipped > 0 && whole.counts().clipped < 8);
        assert_eq!(sum, whole);
    }

    #[test]
    fn sums_of_other_norms_and_dimensions_or_too_many_examples_are_refused_and_leave_no_trace() {
        let mut sum = ClippedSum::new(2, 1.0).unwrap();
        sum.add(&[0.5, 0.0]).unwrap();
        let other = |dim, norm| ClippedSum::new(dim, norm).unwrap();
        let refused = [
            (sum.add(&[1.0]), GradientError::Dimension { expected: 2, found: 1 }),
            (sum.add_sum(other(3, 1.0)), GradientError::Dimension { expected: 2, found: 3 }),
            (
                sum.add_sum(other(2, 1.1)),
                GradientError::OtherClipNorm { expected: 1.0, found: 1.1 },
            ),
            (
                sum.add_sum(ClippedSum::from_clipping(
                    vec![0.0; 2],
                    1.0,
                    ClipCounts { examples: MOST_EXAMPLES, ..ClipCounts::default() },
                )),
                GradientError::TooMany,
            ),
        ];
        for (found, expected) in refused {
            assert_eq!(found, Err(expected));
        }
        let mut one = ClippedSum::new(2, 1.0).unwrap();
        one.add(&[0.0, 2.0]).unwrap();
        sum.add_sum(one).unwrap();
        assert_eq!(sum.counts(), ClipCounts { examples: 2, clipped: 1, non_finite: 0 });
        assert_eq!(sum.into_values(), [0.5, 1.0]);
        for clip_norm in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(ClippedSum::new(2, clip_norm).is_err(), "{clip_norm}");
        }
    }

    #[test]
    fn an_empty_batch_sums_to_zero() {
        let sum = PerSampleGradients::new(3).clip(1.0).unwrap();
        assert_eq!(sum.into_values(), [0.0; 3]);
    }
}
