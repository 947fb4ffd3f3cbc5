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
    let rows: Vec<u32> = (0..SIDE as u32).map(|i| i * SIDE as u32).collect();
    // `a` in panels of 256 columns, so that a block of rows stays in a second-level cache.
    let panel: Vec<u32> = (0..SIDE as u32).map(|i| i * DEPTH as u32).collect();
    let groups: Vec<u32> = (0..SIDE as u32).step_by(COLUMNS).collect();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (a, b, c) in &mut jobs {
            let (rows, panel, groups) = (&rows, &panel, &groups);
            scope.spawn(move || {
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
                                c: &mut c[block * SIDE..],
                                c_rows: Rows { offsets: &rows[..count], stride: 0 },
                                columns: groups,
                            },
                        );
                    }
                }
            });
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    debug_assert!(jobs.iter().all(|(_, _, c)| c.iter().all(|&c| c == SIDE as f32)));
    seconds
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_takes_time() {
        assert!(super::sgemm_seconds(1) > 0.0);
    }
}
