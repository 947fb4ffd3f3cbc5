//! The one hot loop: 6 x 16 results at a time, or 12 x 32 by AVX-512, of a matrix product whose operands
//! stay where they are.
//!
//! ```text
//! c[i][j] = start[j] + sum_k a[i][k] b[k][j]
//! ```
//!
//! The rows of `a` and `c` lie at listed offsets, and `k` is walked by up to three nested strides.
//! So a convolution needs no im2col: its rows are pixels and its sum walks the window. A weight
//! gradient needs no transpose: its rows are the floats of a window, and its sum walks the pixels.

use crate::engine::cpu::kernels::vector::{Vector, kernel};

/// Rows of the largest tile. Whoever chooses a number of rows does well to take a multiple of it.
pub(crate) const ROWS: usize = 12;
/// Columns of a group. Channels are filled up with zeros to a multiple of it.
pub(crate) const COLUMNS: usize = 16;

/// Floats of `b` that stay in half of a first-level cache.
const SMALL: usize = 4 * 1024;

/// One level of a nested sum: how often, and how far `a` and `b` move each time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) count: usize,
    pub(crate) a: usize,
    pub(crate) b: usize,
}

impl Steps {
    /// No loop at this level.
    pub(crate) const ONCE: Self = Self { count: 1, a: 0, b: 0 };

    pub(crate) fn new(count: usize, a: usize, b: usize) -> Self {
        Self { count, a, b }
    }
}

/// Rows at `sample * stride + offsets[i]`, sample by sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) offsets: &'a [u32],
    pub(crate) stride: usize,
}

impl Rows<'_> {
    fn last(&self, samples: usize) -> usize {
        let largest = self.offsets.iter().copied().max().unwrap_or(0) as usize;
        largest + (samples - 1) * self.stride
    }
}

/// What a product begins with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Start<'a> {
    Zero,
    /// The same row everywhere, one float per column.
    Row(&'a [f32]),
    /// What `c` holds.
    Kept,
}

/// A matrix product `c = start + a b`.
pub(crate) struct Product<'a> {
    pub(crate) samples: usize,
    pub(crate) a: &'a [f32],
    pub(crate) a_rows: Rows<'a>,
    /// Groups of 16 columns, `b_group` floats apart.
    pub(crate) b: &'a [f32],
    pub(crate) b_group: usize,
    /// The sum over `k`, outermost first.
    pub(crate) sum: [Steps; 3],
    pub(crate) start: Start<'a>,
    /// Whether negative results become zero.
    pub(crate) relu: bool,
    pub(crate) c: &'a mut [f32],
    /// As many rows as `a` has.
    pub(crate) c_rows: Rows<'a>,
    /// Where in a row of `c` each group of 16 columns lies.
    pub(crate) columns: &'a [u32],
}

kernel! {
    /// Computes the product, a tile's groups of columns after the other, so that their part of `b` stays in
    /// the first cache. The order of each sum is fixed, and the same for every size of tile. O(rows columns k).
    ///
    /// # Panics
    /// If an operand does not hold what the strides reach.
    pub(crate) fn product<V>(p: Product<'_>) {
        if p.samples == 0 || p.a_rows.offsets.is_empty() {
            return;
        }
        let reach = |step: fn(&Steps) -> usize| {
            p.sum.iter().map(|s| s.count.saturating_sub(1) * step(s)).sum::<usize>()
        };
        let groups = p.columns.len();
        assert_eq!(p.a_rows.offsets.len(), p.c_rows.offsets.len(), "rows of a and c");
        assert!(p.a_rows.last(p.samples) + reach(|s| s.a) < p.a.len(), "a is too short");
        assert!((groups - 1) * p.b_group + reach(|s| s.b) + COLUMNS <= p.b.len(), "b is too short");
        let widest = p.columns.iter().copied().max().unwrap_or(0) as usize;
        assert!(p.c_rows.last(p.samples) + widest + COLUMNS <= p.c.len(), "c is too short");
        if let Start::Row(row) = p.start {
            assert!(row.len() >= groups * COLUMNS, "start is too short");
        }
        let rows = p.a_rows.offsets.len() * p.samples;
        // A small `b` stays in cache as a whole: then the rows are looked up only once.
        let depth: usize = p.sum.iter().map(|s| s.count).product();
        // Groups in two vectors.
        let wide = 2 * V::LANES / COLUMNS;
        let together = if depth * groups * COLUMNS <= SMALL { groups } else { wide };
        for first in (0..groups).step_by(together) {
            let last = groups.min(first + together);
            let (mut sample, mut index) = (0, 0);
            let mut row = 0;
            while row < rows {
                let m = V::ROWS.min(rows - row);
                let mut a_at = [p.a.as_ptr(); ROWS];
                let mut c_at = [p.c.as_mut_ptr(); ROWS];
                for i in 0..m {
                    let a_offset = sample * p.a_rows.stride + p.a_rows.offsets[index] as usize;
                    let c_offset = sample * p.c_rows.stride + p.c_rows.offsets[index] as usize;
                    // SAFETY: both offsets are below what was asserted above.
                    unsafe {
                        a_at[i] = a_at[i].add(a_offset);
                        c_at[i] = c_at[i].add(c_offset);
                    }
                    index += 1;
                    if index == p.a_rows.offsets.len() {
                        (sample, index) = (sample + 1, 0);
                    }
                }
                for group in (first..last).step_by(wide) {
                    // SAFETY: the asserts cover every address that the strides reach from these
                    // rows, for all rows and groups.
                    unsafe {
                        if wide == 1 || group + wide <= last {
                            rows_of_tile::<V, 2>(&p, m, a_at, group, c_at);
                        } else {
                            rows_of_tile::<V, 1>(&p, m, a_at, group, c_at);
                        }
                    }
                }
                row += m;
            }
        }
    }
}

/// A tile of `m` rows and `W` vectors, from a group of columns on.
///
/// # Safety
/// As for [`tile`], for the addresses of `p`.
#[inline(always)]
unsafe fn rows_of_tile<V: Vector, const W: usize>(
    p: &Product<'_>,
    m: usize,
    a: [*const f32; ROWS],
    group: usize,
    c: [*mut f32; ROWS],
) {
    let mut vectors = [Columns { b: p.b.as_ptr(), start: Begin::Zero, at: 0 }; W];
    for w in 0..W {
        let (group, inside) = (group + w * V::LANES / COLUMNS, w * V::LANES % COLUMNS);
        vectors[w] = Columns {
            b: p.b[group * p.b_group + inside..].as_ptr(),
            start: match p.start {
                Start::Zero => Begin::Zero,
                Start::Row(row) => Begin::Row(row[group * COLUMNS + inside..].as_ptr()),
                Start::Kept => Begin::Kept,
            },
            at: p.columns[group] as usize + inside,
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        // What is constant is decided before code is made, so no tile is compiled that never runs.
        match m {
            12 if V::ROWS > 6 => tile::<V, 12, W>(head(a), &vectors, &p.sum, p.relu, head(c)),
            11 if V::ROWS > 6 => tile::<V, 11, W>(head(a), &vectors, &p.sum, p.relu, head(c)),
            10 if V::ROWS > 6 => tile::<V, 10, W>(head(a), &vectors, &p.sum, p.relu, head(c)),
            9 if V::ROWS > 6 => tile::<V, 9, W>(head(a), &vectors, &p.sum, p.relu, head(c)),
            8 if V::ROWS > 6 => tile::<V, 8, W>(head(a), &vectors, &p.sum, p.relu, head(c)),
            7 if V::ROWS > 6 => tile::<V, 7, W>(head(a), &vectors, &p.sum, p.relu, head(c)),
            6 => tile::<V, 6, W>(head(a), &vectors, &p.sum, p.relu, head(c)),
            5 => tile::<V, 5, W>(head(a), &vectors, &p.sum, p.relu, head(c)),
            4 => tile::<V, 4, W>(head(a), &vectors, &p.sum, p.relu, head(c)),
            3 => tile::<V, 3, W>(head(a), &vectors, &p.sum, p.relu, head(c)),
            2 => tile::<V, 2, W>(head(a), &vectors, &p.sum, p.relu, head(c)),
            _ => tile::<V, 1, W>(head(a), &vectors, &p.sum, p.relu, head(c)),
        }
    }
}

/// A vector of columns.
#[derive(Clone, Copy)]
struct Columns {
    b: *const f32,
    start: Begin,
    /// Where in a row of `c` they lie.
    at: usize,
}

#[derive(Clone, Copy)]
enum Begin {
    Zero,
    Row(*const f32),
    Kept,
}

#[inline(always)]
fn head<T: Copy, const M: usize>(all: [T; ROWS]) -> [T; M] {
    std::array::from_fn(|i| all[i])
}

/// `M` rows of `W` vectors of results.
///
/// # Safety
/// `a` and `b` must be readable wherever the strides lead, `c` writable for the vectors of every row, and
/// the row to begin with readable for them.
#[inline(always)]
unsafe fn tile<V: Vector, const M: usize, const W: usize>(
    a: [*const f32; M],
    columns: &[Columns; W],
    sum: &[Steps; 3],
    relu: bool,
    c: [*mut f32; M],
) {
    let [outer, middle, inner] = *sum;
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc = [[V::splat(0.0); W]; M];
        for w in 0..W {
            match columns[w].start {
                Begin::Zero => {}
                Begin::Row(row) => {
                    let row = V::load(row);
                    for i in 0..M {
                        acc[i][w] = row;
                    }
                }
                Begin::Kept => {
                    for i in 0..M {
                        acc[i][w] = V::load(c[i].add(columns[w].at));
                    }
                }
            }
        }
        for o in 0..outer.count {
            for m in 0..middle.count {
                let mut at = o * outer.a + m * middle.a;
                let from = o * outer.b + m * middle.b;
                let mut b = [columns[0].b; W];
                for w in 0..W {
                    b[w] = columns[w].b.add(from);
                }
                for _ in 0..inner.count {
                    let mut vectors = [V::splat(0.0); W];
                    for w in 0..W {
                        vectors[w] = V::load(b[w]);
                        // Wrapping: after the last step it may point past the end.
                        b[w] = b[w].wrapping_add(inner.b);
                    }
                    for i in 0..M {
                        let x = V::splat(*a[i].add(at));
                        for w in 0..W {
                            acc[i][w] = x.mul_add(vectors[w], acc[i][w]);
                        }
                    }
                    at += inner.a;
                }
            }
        }
        for i in 0..M {
            for w in 0..W {
                let result = if relu { acc[i][w].relu() } else { acc[i][w] };
                result.store(c[i].add(columns[w].at));
            }
        }
    }
}
