//! ReLU and tanh, in place, and their derivatives from their results.

use crate::engine::cpu::kernels::plane::Plane;
use crate::engine::cpu::kernels::vector::kernel;

/// An activation function whose derivative is known from its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    Relu,
    Tanh,
}

kernel! {
    /// `y = f(y)`. NaN stays NaN.
    pub(crate) fn activate<V>(f: Activation, plane: &Plane, samples: usize, y: &mut [f32]) {
        for sample in y.chunks_exact_mut(plane.len()).take(samples) {
            for line in 0..plane.height {
                let line = &mut sample[plane.row(line)];
                match f {
                    Activation::Relu => {
                        line.iter_mut().for_each(|y| *y = if *y < 0.0 { 0.0 } else { *y });
                    }
                    Activation::Tanh => line.iter_mut().for_each(|y| *y = tanh(*y)),
                }
            }
        }
    }
}

kernel! {
    /// `d = f'(x) d`, with the derivative from `y = f(x)`: `[y > 0]` and `1 - y^2`.
    pub(crate) fn differentiate<V>(
        f: Activation,
        value: &Plane,
        gradient: &Plane,
        samples: usize,
        y: &[f32],
        d: &mut [f32],
    ) {
        let pairs = y.chunks_exact(value.len()).zip(d.chunks_exact_mut(gradient.len()));
        for (y, d) in pairs.take(samples) {
            for line in 0..value.height {
                let pairs = d[gradient.row(line)].iter_mut().zip(&y[value.row(line)]);
                match f {
                    Activation::Relu => pairs.for_each(|(d, y)| *d = if *y > 0.0 { *d } else { 0.0 }),
                    Activation::Tanh => pairs.for_each(|(d, y)| *d *= 1.0 - y * y),
                }
            }
        }
    }
}

/// `tanh` to a few units of f32's last place, without a call: `x` times a rational function of
/// `x^2` (the minimax one of Eigen and XLA), exactly 1 beyond 7.9. NaN stays NaN.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    const NUMERATOR: [f32; 7] = [
        -2.760_768_5e-16,
        2.000_188e-13,
        -8.604_672e-11,
        5.122_297e-8,
        1.485_722_4e-5,
        6.372_619e-4,
        4.893_525e-3,
    ];
    const DENOMINATOR: [f32; 4] = [1.198_258_4e-6, 1.185_347_1e-4, 2.268_434_6e-3, 4.893_525e-3];
    let small = x.abs() < 0.0004;
    // Written so that NaN passes through both comparisons.
    let c = if x > 7.905_311 { 7.905_311 } else { x };
    let c = if c < -7.905_311 { -7.905_311 } else { c };
    let s = c * c;
    let numerator = NUMERATOR.iter().fold(0.0, |p, a| p * s + a);
    let denominator = DENOMINATOR.iter().fold(0.0, |p, a| p * s + a);
    if small { x } else { c * numerator / denominator }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tanh_is_accurate_everywhere() {
        for i in -200_000..=200_000 {
            let x = i as f32 * 1e-4;
            let exact = f64::from(x).tanh();
            let error = (f64::from(tanh(x)) - exact).abs();
            assert!(error <= 6e-7 * exact.abs(), "{x}: {error:e}");
        }
        assert!(tanh(f32::NAN).is_nan());
        assert_eq!(tanh(0.0), 0.0);
        assert!((tanh(f32::INFINITY) - 1.0).abs() < 1e-6);
    }
}
