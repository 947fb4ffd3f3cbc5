//! Sums and norms of rows of floats.

use crate::engine::cpu::kernels::plane::Plane;
use crate::engine::cpu::kernels::vector::kernel;

/// Where a gradient goes: added to what is there if `keep`, written otherwise.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) keep: bool,
}

kernel! {
    /// `|x|^2` in f64, in a fixed order: squares of finite floats neither overflow nor vanish.
    pub(crate) fn squared_norm<V>(x: &[f32]) -> f64 {
        let mut sums = [0.0_f64; 16];
        let (chunks, rest) = x.as_chunks::<16>();
        for chunk in chunks {
            for i in 0..16 {
                sums[i] += f64::from(chunk[i]) * f64::from(chunk[i]);
            }
        }
        let rest: f64 = rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        sums.iter().sum::<f64>() + rest
    }
}

kernel! {
    /// `y += a x`.
    pub(crate) fn add_scaled<V>(a: f32, x: &[f32], y: &mut [f32]) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
    }
}

kernel! {
    /// The sum of an output gradient over examples and pixels: the gradient of the bias.
    pub(crate) fn add_pixels<V>(
        plane: &Plane,
        samples: usize,
        dy: &[f32],
        target: Target<'_>,
    ) {
        let Target { values: target, keep } = target;
        if !keep {
            target.fill(0.0);
        }
        for sample in 0..samples {
            let dy = &dy[sample * plane.len()..][..plane.len()];
            for y in 0..plane.height {
                for pixel in dy[plane.row(y)].chunks_exact(plane.pitch) {
                    target.iter_mut().zip(pixel).for_each(|(t, d)| *t += d);
                }
            }
        }
    }
}
