//! The matrix `Z` of independent standard normals, addressed by (step, coordinate).
//!
//! Entry `(i, t)` comes from `ChaCha20` with the run's key, stream number `i`, and a counter that
//! starts anew for every tile of 1024 coordinates. The rejection method behind the normals takes an
//! uncertain number of words, so tiles are set 65,536 words apart: a tile uses 2,070 on average,
//! and that one needs more than 30 times that is beyond all odds. A tile is thus the smallest unit
//! that can be generated alone, and every entry is the same whoever generates it, in whatever
//! order.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
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
        let mut rng = ChaCha20Rng::from_seed(*key);
        rng.set_stream(step as u64);
        rng.set_block_pos(((at / TILE) as u64) << BLOCKS_PER_TILE_LOG2);
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
}
