//! Mirror images of examples, left to right, for evaluation.

use super::{Shape, Split};

/// Writes the mirror images of the examples of `indices` one after the other, decoded as by [`Split::decode`].
///
/// The one place that says what the mirror image of an example is: its features are those of the mirrored picture.
///
/// # Panics
/// As [`Split::decode`], if rows of `shape` do not fill `out`, and if there are features but none of mirror images.
pub fn decode(split: &Split, shape: Shape, indices: &[u32], out: &mut [f32]) {
    if let Some(features) = split.features() {
        return features.decode_mirrored(indices, out);
    }
    split.decode(indices, out);
    assert_eq!(out.len() % shape.width, 0, "whole rows");
    out.chunks_exact_mut(shape.width).for_each(<[f32]>::reverse);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_every_plane_is_reversed_and_nothing_else() {
        let shape = Shape { channels: 2, height: 2, width: 3 };
        let split = Split::new((0..24).collect::<Vec<u8>>(), vec![0, 1], shape);
        let flipped = [2, 1, 0, 5, 4, 3, 8, 7, 6, 11, 10, 9];
        let flipped: Vec<u8> = flipped.iter().copied().chain(flipped.map(|x| x + 12)).collect();
        let by_hand = Split::new(flipped, vec![0, 1], shape);
        let (mut found, mut expected) = (vec![0.0; 24], vec![0.0; 24]);
        decode(&split, shape, &[1, 0], &mut found);
        by_hand.decode(&[1, 0], &mut expected);
        assert_eq!(found, expected);
    }
}
