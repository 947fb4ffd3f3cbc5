//! Clipping: no example moves the sum by more than the clip norm.

use rayon::prelude::*;

use crate::gradient::{CLIP_NORMS, ClipCounts, ClippedSum, GradientError, PerSampleGradients};

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
    /// [`GradientError::ClipNorm`] unless the clip norm is in [`CLIP_NORMS`].
    pub fn clip(self, clip_norm: f64) -> Result<ClippedSum, GradientError> {
        if !CLIP_NORMS.contains(&clip_norm) {
            return Err(GradientError::ClipNorm { clip_norm });
        }
        let rows: Vec<&[f32]> = self.rows().collect();
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
            .map(|(row, &norm)| (row, if norm > clip_norm { clip_norm / norm } else { 1.0 }))
            .collect();
        let mut sum = vec![0.0_f64; self.dim()];
        sum.par_chunks_mut(TILE).enumerate().for_each(|(tile, sum)| {
            let at = tile * TILE;
            for (row, scale) in &kept {
                for (s, &g) in sum.iter_mut().zip(&row[at..]) {
                    *s += scale * f64::from(g);
                }
            }
        });
        Ok(ClippedSum::from_clipping(sum, clip_norm, counts))
    }
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
    fn an_empty_batch_sums_to_zero() {
        let sum = PerSampleGradients::new(3).clip(1.0).unwrap();
        assert_eq!(sum.into_values(), [0.0; 3]);
    }
}
