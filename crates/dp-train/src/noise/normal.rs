//! The matrix `Z` of independent standard normals, addressed by (step, coordinate).
//!
//! Entry `(i, t)` comes from `ChaCha20` with the run's key, stream number `i`, and a counter that
//! starts anew for every tile of 1024 coordinates. The rejection method behind the normals takes an
//! uncertain number of words, so tiles are set 65,536 words apart: a tile uses 2,070 on average,
//! and that one needs more than 15 times that is beyond all odds. A tile is thus the smallest unit
//! that can be generated alone, and every entry is the same whoever generates it, in whatever
//! order. The second half of a tile's words is for what else a released row needs: its dither.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution, StandardNormal};

/// Coordinates that share one piece of the key stream.
pub const TILE: usize = 1024;

/// Blocks of the cipher (of 16 words) set aside for a tile, as a power of two.
const BLOCKS_PER_TILE_LOG2: u32 = 12;

/// Row `step` of `Z` from coordinate `first` on, in f64. O(`out.len()` + 1024).
///
/// The normals are those of `rand_distr`: a ziggurat of 256 layers over 52 random bits, exact
/// rejection at its edges, and the tail beyond 3.65 by Marsaglia's method, so no value is cut off.
pub fn fill(key: &[u8; 32], step: usize, first: usize, out: &mut [f64]) {
    let mut filled = 0;
    while filled < out.len() {
        let at = first + filled;
        let mut rng = stream(key, step, at / TILE, 0);
        for _ in 0..at % TILE {
            let _: f64 = StandardNormal.sample(&mut rng);
        }
        let end = out.len().min(filled + TILE - at % TILE);
        for z in &mut out[filled..end] {
            *z = StandardNormal.sample(&mut rng);
        }
        filled = end;
    }
}

/// The part of the key stream that belongs to a tile of a row, from one of its blocks on.
fn stream(key: &[u8; 32], step: usize, tile: usize, block: u64) -> ChaCha20Rng {
    let mut rng = ChaCha20Rng::from_seed(*key);
    rng.set_stream(step as u64);
    rng.set_block_pos(((tile as u64) << BLOCKS_PER_TILE_LOG2) + block);
    rng
}

/// Uniform numbers in (-1/2, 1/2) for the coordinates of a tile, independent of its normals. O(`out.len()`).
pub(super) fn dither(key: &[u8; 32], step: usize, tile: usize, out: &mut [f64]) {
    let mut rng = stream(key, step, tile, 1 << (BLOCKS_PER_TILE_LOG2 - 1));
    for u in out {
        // 26 bits: with more, a number next to 1/2 would not fit into the f64 beside its f32.
        *u = (f64::from(rng.next_u32() >> 6) + 0.5) / f64::from(1 << 26) - 0.5;
    }
}

/// A number between the neighbours of an f32, `y` in the middle: what rounding to `y` took away, drawn anew.
///
/// A row that was rounded to f32 has gaps, and a sum plus such a row has them too: most f32 near it can come out
/// for one sum and not for another. `u` in (-1/2, 1/2) fills the gap around `y`, so that the row is as dense as the
/// f64 it is added in. It depends on key and step alone, so all it does to the release is add independent noise of
/// 2^-25 of the row; rounding the result to f32 gives `y` back.
#[inline(always)]
pub(super) fn dithered(y: f32, u: f64) -> f64 {
    let magnitude = y.abs().to_bits();
    let size = f64::from(y.abs());
    let gap = if u < 0.0 {
        size - f64::from(f32::from_bits(magnitude.saturating_sub(1)))
    } else {
        f64::from(f32::from_bits(magnitude + 1)) - size
    };
    (size + u * gap).copysign(f64::from(y))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_do_not_depend_on_how_a_row_is_cut() {
        let key = [7; 32];
        let mut whole = vec![0.0; 5000];
        fill(&key, 3, 0, &mut whole);
        for piece in [1, 7, 1000, 1024, 1025, 4999] {
            let mut cut = vec![0.0; 5000];
            for (index, out) in cut.chunks_mut(piece).enumerate() {
                fill(&key, 3, index * piece, out);
            }
            assert_eq!(whole, cut, "pieces of {piece}");
        }
    }

    #[test]
    fn steps_tiles_and_keys_have_different_entries() {
        let mut rows = Vec::new();
        for (key, step, first) in [(0, 0, 0), (0, 1, 0), (0, 0, TILE), (1, 0, 0), (0, 1 << 32, 0)] {
            let mut row = [0.0; 4];
            fill(&[key; 32], step, first, &mut row);
            rows.push(row);
        }
        for i in 0..rows.len() {
            for j in 0..i {
                assert!(rows[i].iter().all(|z| !rows[j].contains(z)), "rows {i} and {j}");
            }
        }
    }

    #[test]
    fn a_dithered_number_rounds_back_and_fills_the_gap() {
        let mut uniforms = [0.0; TILE];
        dither(&[3; 32], 5, 2, &mut uniforms);
        assert!(uniforms.iter().all(|u| u.abs() < 0.5));
        let mean = uniforms.iter().sum::<f64>() / TILE as f64;
        // Standard deviation 1 / sqrt(12 x 1024) = 0.009; 6 of them fail once in 5e8.
        assert!(mean.abs() < 0.054, "{mean}");
        const EDGE: f64 = 0.5 - 0.5 / (1 << 26) as f64;
        let mut values = vec![0.0_f32, 1.0, -1.0, 2.0, -0.5, f32::MIN_POSITIVE, 1e-40, 3.7e30];
        values.extend((0..200).map(|i| (f64::from(i) * 0.77).sin() as f32));
        for y in values {
            for u in uniforms.iter().copied().chain([-EDGE, EDGE]) {
                let x = dithered(y, u);
                assert_eq!((x as f32).to_bits(), y.to_bits(), "{y} {u}");
                assert!(x != f64::from(y) || y == 0.0 || u.abs() < 1e-6);
            }
        }
    }

    #[test]
    fn dither_and_normals_share_no_word() {
        // A tile's normals would have to take 15 times their average to reach the dither.
        let words = 16_u64 << (BLOCKS_PER_TILE_LOG2 - 1);
        assert!(words > 15 * 2_070);
        let mut uniforms = [0.0; TILE];
        dither(&[0; 32], 0, 0, &mut uniforms);
        let mut rng = ChaCha20Rng::from_seed([0; 32]);
        rng.set_word_pos(u128::from(words));
        let word = (uniforms[0] + 0.5) * f64::from(1 << 26) - 0.5;
        assert_eq!(word, f64::from(rng.next_u32() >> 6));
    }
}
