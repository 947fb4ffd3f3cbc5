//! Sums of outer products: the weight gradient of a linear layer, to which every example adds one.

use rayon::prelude::*;

use crate::engine::cpu::kernels::tile::{COLUMNS, Product, Rows, Start, Steps, product};
use crate::engine::cpu::kernels::vector::Isa;

/// Examples that are added up in f32 ([`SUM_ROUNDING`](crate::gradient::SUM_ROUNDING)).
const DEPTH: usize = 64;

/// Rows of the sum that a thread makes at a time: they stay in its second-level cache while all examples are added.
const PANEL: usize = 48;

/// Adds `sum_k scales[k] x_k dy_k'` to `sum: [inner, outer]`, for `x: [n, inner]` and `dy: [n, outer]` of `n` examples.
///
/// An example of scale zero adds nothing, whatever its numbers are. Blocks of 64 examples are added up in f32 and their sums in f64; the
/// bits do not depend on the threads. O(n inner outer).
///
/// # Panics
/// Unless the lengths fit.
pub(crate) fn add_outer_products(x: &[f32], dy: &[f32], scales: &[f32], sum: &mut [f64]) {
    add(Isa::detect(), x, dy, scales, sum);
}

fn add(isa: Isa, x: &[f32], dy: &[f32], scales: &[f32], sum: &mut [f64]) {
    let n = scales.len();
    if n == 0 || x.is_empty() || dy.is_empty() {
        return;
    }
    let (inner, outer) = (x.len() / n, dy.len() / n);
    assert!(x.len() == n * inner && dy.len() == n * outer && sum.len() == inner * outer, "lengths");
    let scaled = Scaled::new(dy, scales, outer);
    let width = scaled.groups * COLUMNS;
    let offsets: Vec<u32> = (0..PANEL as u32).collect();
    let lines: Vec<u32> = offsets.iter().map(|i| i * width as u32).collect();
    let columns: Vec<u32> = (0..width as u32).step_by(COLUMNS).collect();
    let scratch = || (vec![0.0; DEPTH * PANEL], vec![0.0; PANEL * width]);
    let panels = sum.par_chunks_mut(PANEL * outer).enumerate();
    panels.for_each_init(scratch, |(inputs, products), (panel, sum)| {
        let (first, rows) = (panel * PANEL, sum.len() / outer);
        for (block, dy) in scaled.values.chunks_exact(scaled.groups * DEPTH * COLUMNS).enumerate() {
            let examples = block * DEPTH..n.min((block + 1) * DEPTH);
            for (line, k) in inputs.chunks_exact_mut(PANEL).zip(examples.clone()) {
                match scales[k] {
                    0.0 => line.fill(0.0),
                    _ => line[..rows].copy_from_slice(&x[k * inner + first..][..rows]),
                }
            }
            product(
                isa,
                Product {
                    samples: 1,
                    a: inputs,
                    a_rows: Rows { offsets: &offsets[..rows], stride: 0 },
                    b: dy,
                    b_group: DEPTH * COLUMNS,
                    sum: [Steps::ONCE, Steps::ONCE, Steps::new(examples.len(), PANEL, COLUMNS)],
                    start: Start::Zero,
                    relu: false,
                    c: products,
                    c_rows: Rows { offsets: &lines[..rows], stride: 0 },
                    columns: &columns,
                },
            );
            for (sum, products) in sum.chunks_exact_mut(outer).zip(products.chunks_exact(width)) {
                sum.iter_mut().zip(products).for_each(|(sum, more)| *sum += f64::from(*more));
            }
        }
    });
}

/// Scaled rows, block by block in groups of 16 columns, filled up with zeros.
struct Scaled {
    values: Vec<f32>,
    groups: usize,
}

impl Scaled {
    fn new(dy: &[f32], scales: &[f32], outer: usize) -> Self {
        let groups = outer.div_ceil(COLUMNS);
        let block = groups * DEPTH * COLUMNS;
        let mut values = vec![0.0; scales.len().div_ceil(DEPTH) * block];
        values.par_chunks_mut(block).enumerate().for_each(|(i, values)| {
            let examples = i * DEPTH..scales.len().min((i + 1) * DEPTH);
            for k in examples.clone().filter(|&k| scales[k] != 0.0) {
                for (group, row) in dy[k * outer..][..outer].chunks(COLUMNS).enumerate() {
                    let at = (group * DEPTH + k - examples.start) * COLUMNS;
                    let line = values[at..].iter_mut().zip(row);
                    line.for_each(|(value, dy)| *value = scales[k] * dy);
                }
            }
        });
        Self { values, groups }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(length: usize, seed: usize) -> Vec<f32> {
        (0..length).map(|i| ((i * 7919 + seed) % 2003) as f32 / 1001.5 - 1.0).collect()
    }

    #[test]
    fn they_are_the_products_of_the_definition() {
        for (n, inner, outer) in [(1, 1, 1), (3, 50, 10), (64, 48, 16), (65, 47, 33), (200, 97, 40)]
        {
            let (x, dy) = (numbers(n * inner, 1), numbers(n * outer, 2));
            let scales: Vec<f32> = (0..n).map(|k| (k % 5) as f32 / 4.0).collect();
            let mut expected = vec![0.5; inner * outer];
            for (i, sum) in expected.iter_mut().enumerate() {
                for k in 0..n {
                    let (x, dy) = (x[k * inner + i / outer], dy[k * outer + i % outer]);
                    *sum += f64::from(scales[k]) * f64::from(x) * f64::from(dy);
                }
            }
            let mut bits = Vec::new();
            for isa in Isa::all() {
                let mut sum = vec![0.5; inner * outer];
                add(isa, &x, &dy, &scales, &mut sum);
                for (found, expected) in sum.iter().zip(&expected) {
                    let error = (found - expected).abs();
                    assert!(error < 1e-6 * n as f64, "{n} {inner} {outer}: {error:e}");
                }
                bits.push((isa.arithmetic(), sum));
            }
            for (arithmetic, sum) in &bits {
                let same = bits.iter().filter(|(other, _)| other == arithmetic);
                assert!(same.into_iter().all(|(_, other)| other == sum));
            }
        }
    }

    #[test]
    fn an_example_of_scale_zero_adds_nothing_and_one_more_moves_its_own_block_only() {
        let (n, inner, outer) = (150, 20, 30);
        let (mut x, mut dy) = (numbers(n * inner, 3), numbers(n * outer, 4));
        let mut scales = vec![1.0; n];
        scales[70] = 0.0;
        let sum = |x: &[f32], dy: &[f32], scales: &[f32]| {
            let mut sum = vec![0.0; inner * outer];
            add_outer_products(x, dy, scales, &mut sum);
            sum
        };
        let without = sum(&x, &dy, &scales);
        x[70 * inner..71 * inner].fill(f32::NAN);
        dy[70 * outer..71 * outer].fill(f32::INFINITY);
        assert_eq!(sum(&x, &dy, &scales), without);
        // Blocks are f64 sums: what the other two make is what is left of the difference, exactly.
        let block = |range: std::ops::Range<usize>| {
            sum(
                &x[range.start * inner..range.end * inner],
                &dy[range.start * outer..range.end * outer],
                &scales[range],
            )
        };
        let (a, b, c) = (block(0..64), block(64..128), block(128..150));
        for (i, whole) in without.iter().enumerate() {
            assert_eq!(*whole, a[i] + b[i] + c[i]);
        }
    }
}
