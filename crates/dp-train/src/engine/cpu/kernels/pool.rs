//! Max and average pooling.

use crate::engine::cpu::kernels::plane::Plane;
use crate::engine::cpu::kernels::vector::kernel;

/// A pooling layer. Windows without padding, the last ones dropped if they do not fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pool {
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) max: bool,
}

/// Channels that are pooled at a time: a multiple of it is in every inner pixel.
const WIDTH: usize = 16;

kernel! {
    /// The largest entry or the mean of every window. A NaN in a window is its largest entry.
    pub(crate) fn forward<V>(
        pool: Pool,
        planes: (&Plane, &Plane),
        samples: usize,
        x: &[f32],
        y: &mut [f32],
    ) {
        let (input, output) = planes;
        let scale = 1.0 / (pool.kernel * pool.kernel) as f32;
        for (x, y) in x.chunks_exact(input.len()).zip(y.chunks_exact_mut(output.len())).take(samples) {
            for oy in 0..output.height {
                for ox in 0..output.width {
                    let corner = input.pixel(oy * pool.stride, ox * pool.stride);
                    let at = output.pixel(oy, ox);
                    for channel in (0..output.pitch).step_by(WIDTH) {
                        let start = if pool.max { f32::NEG_INFINITY } else { 0.0 };
                        let mut result = [start; WIDTH];
                        for k in 0..pool.kernel * pool.kernel {
                            let from = corner + input.bordered(k / pool.kernel, k % pool.kernel);
                            let x = &x[from + channel..][..WIDTH];
                            for i in 0..WIDTH {
                                result[i] = match pool.max {
                                    true if result[i] >= x[i] || result[i].is_nan() => result[i],
                                    true => x[i],
                                    false => result[i] + x[i],
                                };
                            }
                        }
                        if !pool.max {
                            result.iter_mut().for_each(|r| *r *= scale);
                        }
                        y[at + channel..][..WIDTH].copy_from_slice(&result);
                    }
                }
            }
        }
    }
}

kernel! {
    /// The gradient with respect to the input: to the first largest entry of a window, or evenly.
    pub(crate) fn backward<V>(
        pool: Pool,
        planes: [&Plane; 4],
        samples: usize,
        values: (&[f32], &[f32]),
        gradients: (&[f32], &mut [f32]),
    ) {
        let [input, output, output_gradient, input_gradient] = planes;
        let scale = 1.0 / (pool.kernel * pool.kernel) as f32;
        let once = pool.kernel == pool.stride
            && output.height * pool.stride == input.height
            && output.width * pool.stride == input.width;
        for sample in 0..samples {
            let x = &values.0[sample * input.len()..][..input.len()];
            let y = &values.1[sample * output.len()..][..output.len()];
            let dy = &gradients.0[sample * output_gradient.len()..][..output_gradient.len()];
            let dx = &mut gradients.1[sample * input_gradient.len()..][..input_gradient.len()];
            // Windows that cover the image once write every entry themselves.
            if !once {
                for line in 0..input_gradient.height {
                    dx[input_gradient.row(line)].fill(0.0);
                }
            }
            for oy in 0..output.height {
                for ox in 0..output.width {
                    let (iy, ix) = (oy * pool.stride, ox * pool.stride);
                    for channel in (0..output.pitch).step_by(8) {
                        let at = output_gradient.pixel(oy, ox) + channel;
                        let y = &y[output.pixel(oy, ox) + channel..][..8];
                        // SAFETY: each slice has eight floats.
                        let (mut left, y) =
                            unsafe { (V::load(dy[at..][..8].as_ptr()), V::load(y.as_ptr())) };
                        for k in 0..pool.kernel * pool.kernel {
                            let (ky, kx) = (iy + k / pool.kernel, ix + k % pool.kernel);
                            let x = &x[input.pixel(ky, kx) + channel..][..8];
                            let dx = &mut dx[input_gradient.pixel(ky, kx) + channel..][..8];
                            // SAFETY: both slices have eight floats.
                            unsafe {
                                let mut share = left.mul(V::splat(scale));
                                if pool.max {
                                    // The first hit takes all that is left of the gradient.
                                    share = V::load(x.as_ptr()).where_equal(y, left);
                                    left = left.sub(share);
                                }
                                if !once {
                                    share = share.add(V::load(dx.as_ptr()));
                                }
                                share.store(dx.as_mut_ptr());
                            }
                        }
                    }
                }
            }
        }
    }
}
