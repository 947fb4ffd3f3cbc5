//! Max and average pooling.

use crate::engine::cpu::kernels::plane::Planes;
use crate::engine::cpu::kernels::vector::kernel;

/// A pooling layer. Windows without padding, the last ones dropped if they do not fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pool {
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) max: bool,
    /// Whether the input gradient goes on to what ReLU made the input from.
    pub(crate) through_relu: bool,
    pub(crate) planes: Planes,
}

/// Channels that are pooled at a time: a multiple of it is in every inner pixel.
const WIDTH: usize = 16;

kernel! {
    /// The largest entry or the mean of every window. A NaN in a window is its largest entry.
    pub(crate) fn forward<V>(pool: &Pool, samples: usize, x: &[f32], y: &mut [f32]) {
        let Pool { kernel, stride, max, planes: Planes { input, output, .. }, .. } = pool;
        let (kernel, stride, max) = (*kernel, *stride, *max);
        let scale = 1.0 / (kernel * kernel) as f32;
        for (x, y) in x.chunks_exact(input.len()).zip(y.chunks_exact_mut(output.len())).take(samples) {
            for oy in 0..output.height {
                for ox in 0..output.width {
                    let corner = input.pixel(oy * stride, ox * stride);
                    let at = output.pixel(oy, ox);
                    for channel in (0..output.pitch).step_by(WIDTH) {
                        let start = if max { f32::NEG_INFINITY } else { 0.0 };
                        let mut result = [start; WIDTH];
                        for k in 0..kernel * kernel {
                            let from = corner + input.bordered(k / kernel, k % kernel);
                            let x = &x[from + channel..][..WIDTH];
                            for i in 0..WIDTH {
                                result[i] = match max {
                                    true if result[i] >= x[i] || result[i].is_nan() => result[i],
                                    true => x[i],
                                    false => result[i] + x[i],
                                };
                            }
                        }
                        if !max {
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
    /// The gradient with respect to the input: to the first largest entry of a window, or evenly; on through the
    /// ReLU before it if asked for.
    pub(crate) fn backward<V>(
        pool: &Pool,
        samples: usize,
        x: &[f32],
        y: &[f32],
        dy: &[f32],
        dx: &mut [f32],
    ) {
        let Planes { input, output, input_gradient, output_gradient } = &pool.planes;
        let Some(input_gradient) = input_gradient else { return };
        let Pool { kernel, stride, max, through_relu, .. } = *pool;
        let scale = 1.0 / (kernel * kernel) as f32;
        let once = kernel == stride
            && output.height * stride == input.height
            && output.width * stride == input.width;
        for sample in 0..samples {
            let x = &x[sample * input.len()..][..input.len()];
            let y = &y[sample * output.len()..][..output.len()];
            let dy = &dy[sample * output_gradient.len()..][..output_gradient.len()];
            let dx = &mut dx[sample * input_gradient.len()..][..input_gradient.len()];
            // Windows that cover the image once write every entry themselves.
            if !once {
                for line in 0..input_gradient.height {
                    dx[input_gradient.row(line)].fill(0.0);
                }
            }
            for oy in 0..output.height {
                for ox in 0..output.width {
                    let (iy, ix) = (oy * stride, ox * stride);
                    for channel in (0..output.pitch).step_by(V::LANES) {
                        let at = output_gradient.pixel(oy, ox) + channel;
                        let y = &y[output.pixel(oy, ox) + channel..][..V::LANES];
                        // SAFETY: each slice has so many floats.
                        let (mut left, y) =
                            unsafe { (V::load(dy[at..][..V::LANES].as_ptr()), V::load(y.as_ptr())) };
                        for k in 0..kernel * kernel {
                            let (ky, kx) = (iy + k / kernel, ix + k % kernel);
                            let x = &x[input.pixel(ky, kx) + channel..][..V::LANES];
                            let dx = &mut dx[input_gradient.pixel(ky, kx) + channel..][..V::LANES];
                            // SAFETY: both slices have so many floats.
                            unsafe {
                                let x = V::load(x.as_ptr());
                                let mut share = left.mul(V::splat(scale));
                                if max {
                                    // The first hit takes all that is left of the gradient.
                                    share = x.where_equal(y, left);
                                    left = left.sub(share);
                                }
                                if through_relu {
                                    share = x.where_positive(share);
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
