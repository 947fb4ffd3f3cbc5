//! Features of examples in memory: half-precision numbers, one row per example.

use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt;

/// What a model sees of every example in place of its pixels; if asked for, also of its mirror image. A part of
/// the examples shares the numbers of all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct FeatureRows {
    plain: Arc<Vec<f16>>,
    mirrored: Option<Arc<Vec<f16>>>,
    /// Where the numbers of each example stand.
    rows: Vec<u32>,
    row_len: usize,
}

impl FeatureRows {
    /// # Panics
    /// If the numbers are not whole rows, or those of mirror images are not as many.
    pub fn new(plain: Vec<f16>, mirrored: Option<Vec<f16>>, row_len: usize) -> Self {
        assert!(plain.len().is_multiple_of(row_len), "whole rows");
        assert!(mirrored.as_ref().is_none_or(|m| m.len() == plain.len()), "a mirror image of each");
        let rows = (0..(plain.len() / row_len) as u32).collect();
        Self { plain: Arc::new(plain), mirrored: mirrored.map(Arc::new), rows, row_len }
    }

    /// The number of examples.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Numbers of one example.
    pub fn row_len(&self) -> usize {
        self.row_len
    }

    /// Whether [`decode_mirrored`](Self::decode_mirrored) has something to write.
    pub fn has_mirrored(&self) -> bool {
        self.mirrored.is_some()
    }

    /// Writes the features of the examples one after the other.
    ///
    /// # Panics
    /// If an index is out of range or `out` has not exactly the length of these features.
    pub fn decode(&self, indices: &[u32], out: &mut [f32]) {
        self.write(&self.plain, indices, out);
    }

    /// The same of their mirror images.
    ///
    /// # Panics
    /// As [`decode`](Self::decode), and if there are none: see [`has_mirrored`](Self::has_mirrored).
    pub fn decode_mirrored(&self, indices: &[u32], out: &mut [f32]) {
        let mirrored = self.mirrored.as_ref().expect("features of mirror images were asked for");
        self.write(mirrored, indices, out);
    }

    fn write(&self, numbers: &[f16], indices: &[u32], out: &mut [f32]) {
        assert_eq!(out.len(), indices.len() * self.row_len, "room for every example");
        for (&index, out) in indices.iter().zip(out.chunks_exact_mut(self.row_len)) {
            let row = self.rows[index as usize] as usize;
            numbers[row * self.row_len..][..self.row_len].convert_to_f32_slice(out);
        }
    }

    /// Those of some examples, in this order. Copies no features.
    pub(super) fn subset(&self, indices: impl Iterator<Item = usize>) -> Self {
        Self { rows: indices.map(|index| self.rows[index]).collect(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subset_has_the_rows_of_its_examples_and_their_mirror_images() {
        let numbers = |sign: f32| (0..8).map(|x| f16::from_f32(sign * x as f32)).collect();
        let all = FeatureRows::new(numbers(1.0), Some(numbers(-1.0)), 2);
        let part = all.subset([3, 1, 2].into_iter()).subset([0, 2].into_iter());
        assert_eq!((part.len(), part.row_len(), part.has_mirrored()), (2, 2, true));
        let mut out = [0.0; 4];
        part.decode(&[1, 0], &mut out);
        assert_eq!(out, [4.0, 5.0, 6.0, 7.0]);
        part.decode_mirrored(&[0, 0], &mut out);
        assert_eq!(out, [-6.0, -7.0, -6.0, -7.0]);
        assert!(!FeatureRows::new(numbers(1.0), None, 4).has_mirrored());
    }
}
