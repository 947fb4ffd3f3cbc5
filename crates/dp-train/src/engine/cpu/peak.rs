//! The machine's speed limit, for benchmarks: a large matrix product of the engine's own tiles.

use std::time::Instant;

use crate::engine::cpu::kernels::tile::{COLUMNS, Product, Rows, Start, Steps, product};
use crate::engine::cpu::kernels::vector::Isa;

/// Side of the matrices.
const SIDE: usize = 1024;
/// Part of the sum whose 16 columns of `b` stay in a first-level cache.
const DEPTH: usize = 256;

/// Seconds that every one of `threads` threads needs for its own 1024 x 1024 x 1024 product in f32,
/// all at the same time: `2 * 1024^3` operations per thread.
pub fn sgemm_seconds(threads: usize) -> f64 {
    let isa = Isa::detect();
    let mut jobs: Vec<_> = (0..threads)
        .map(|_| (vec![1.0; SIDE * SIDE], vec![1.0; SIDE * SIDE], vec![0.0; SIDE * SIDE]))
        .collect();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (a, b, c) in &mut jobs {
            scope.spawn(move || sgemm(isa, a, b, c));
        }
    });
    start.elapsed().as_secs_f64()
}

/// `c = a b`, with `a` in panels of 256 columns, so that a block of its rows stays in a second-level
/// cache, and `b` in such panels of rows, 16 columns at a time.
fn sgemm(isa: Isa, a: &[f32], b: &[f32], c: &mut [f32]) {
    let rows: Vec<u32> = (0..SIDE as u32).map(|i| i * SIDE as u32).collect();
    let panel: Vec<u32> = (0..SIDE as u32).map(|i| i * DEPTH as u32).collect();
    let groups: Vec<u32> = (0..SIDE as u32).step_by(COLUMNS).collect();
    for depth in 0..SIDE / DEPTH {
        for block in (0..SIDE).step_by(96) {
            let count = 96.min(SIDE - block);
            product(
                isa,
                Product {
                    samples: 1,
                    a: &a[depth * DEPTH * SIDE + block * DEPTH..],
                    a_rows: Rows { offsets: &panel[..count], stride: 0 },
                    b: &b[depth * DEPTH * SIDE..],
                    b_group: DEPTH * COLUMNS,
                    sum: [Steps::ONCE, Steps::ONCE, Steps::new(DEPTH, 1, COLUMNS)],
                    start: if depth == 0 { Start::Zero } else { Start::Kept },
                    relu: false,
                    c: &mut c[block * SIDE..],
                    c_rows: Rows { offsets: &rows[..count], stride: 0 },
                    columns: &groups,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_timed_is_the_whole_product() {
        // a[i][k] = i mod 3 + k mod 5 and b[k][j] = k mod 7 + j mod 2: small whole numbers are exact.
        let (mut a, mut b) = (vec![0.0; SIDE * SIDE], vec![0.0; SIDE * SIDE]);
        for i in 0..SIDE {
            for k in 0..SIDE {
                a[k / DEPTH * DEPTH * SIDE + i * DEPTH + k % DEPTH] = (i % 3 + k % 5) as f32;
                let group = i / COLUMNS * DEPTH * COLUMNS + k % DEPTH * COLUMNS + i % COLUMNS;
                b[k / DEPTH * DEPTH * SIDE + group] = (k % 7 + i % 2) as f32;
            }
        }
        for isa in Isa::all() {
            let mut c = vec![f32::NAN; SIDE * SIDE];
            sgemm(isa, &a, &b, &mut c);
            for (i, j) in [(0, 0), (1, 1), (2, 17), (500, 499), (1023, 1022), (1022, 1023)] {
                let exact = (0..SIDE).map(|k| (i % 3 + k % 5) * (k % 7 + j % 2)).sum::<usize>();
                assert_eq!(c[i * SIDE + j], exact as f32, "row {i}, column {j}");
            }
        }
    }
}
