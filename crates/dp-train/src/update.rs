//! The update: SGD with momentum and weight decay on a flat vector of parameters.

use mf_core::Sgd;
use rayon::prelude::*;

use crate::gradient::{NonPrivateGradient, PrivateGradient};

/// Numbers that are worth a thread.
pub(crate) const PIECE: usize = 1 << 14;

/// The state of SGD, one number per parameter.
///
/// ```text
/// m_i     = beta m_{i-1} + x_i
/// theta_i = alpha theta_{i-1} - eta_i m_i
/// ```
///
/// Unrolled, `theta_i = alpha^i theta_0 - (A x)_i` with the workload `A` of the same [`Sgd`]: the
/// noise is shaped for exactly this recurrence. `alpha` multiplies the weights themselves, apart
/// from learning rate and gradient; the momentum is not dampened.
#[derive(Debug, Clone, PartialEq)]
pub struct Momentum {
    sgd: Sgd,
    buffer: Vec<f32>,
}

impl Momentum {
    /// Zero momentum for `dim` parameters.
    pub fn new(sgd: Sgd, dim: usize) -> Self {
        Self { sgd, buffer: vec![0.0; dim] }
    }

    /// The momentum of an earlier run.
    pub(crate) fn with_buffer(sgd: Sgd, buffer: Vec<f32>) -> Self {
        Self { sgd, buffer }
    }

    /// `m`, one number per parameter.
    pub(crate) fn buffer(&self) -> &[f32] {
        &self.buffer
    }

    /// One step with learning rate `eta`, which uses the gradient up. O(dim).
    ///
    /// # Panics
    /// Unless `parameters` and `gradient` have as many elements as the momentum.
    pub fn step(&mut self, parameters: &mut [f32], gradient: PrivateGradient, learning_rate: f32) {
        self.advance(parameters, gradient.values(), learning_rate);
    }

    /// The same step with a gradient that has no noise: what comes out is not private.
    ///
    /// # Panics
    /// As [`step`](Self::step).
    pub fn step_without_privacy(
        &mut self,
        parameters: &mut [f32],
        gradient: NonPrivateGradient,
        learning_rate: f32,
    ) {
        self.advance(parameters, gradient.values(), learning_rate);
    }

    fn advance(&mut self, parameters: &mut [f32], gradient: &[f32], learning_rate: f32) {
        assert_eq!(parameters.len(), self.buffer.len(), "one parameter per momentum");
        assert_eq!(gradient.len(), self.buffer.len(), "one gradient entry per momentum");
        let (alpha, beta) = (self.sgd.decay_factor() as f32, self.sgd.momentum() as f32);
        let numbers = parameters.par_iter_mut().zip(&mut self.buffer).zip(gradient);
        numbers.with_min_len(PIECE).for_each(|((theta, m), x)| {
            *m = beta * *m + x;
            *theta = alpha * *theta - learning_rate * *m;
        });
    }
}

#[cfg(test)]
mod tests {
    use mf_core::Workload;

    use super::*;

    #[test]
    fn the_iterates_are_the_workload_times_the_updates() {
        for (alpha, beta) in [(1.0, 0.0), (1.0, 0.9), (0.99, 0.9), (0.5, 0.25)] {
            let sgd = Sgd::new(alpha, beta).unwrap();
            let rates: Vec<f64> = (0..40).map(|i| 0.1 + 0.01 * f64::from(i)).collect();
            let updates: Vec<f64> = (0..40).map(|i| f64::from(i * 7 % 11) - 5.0).collect();
            let unrolled = Workload::scheduled(sgd, rates.clone()).unwrap().apply(&updates);
            let mut parameters = [3.0_f32];
            let mut momentum = Momentum::new(sgd, 1);
            for i in 0..40 {
                let gradient = PrivateGradient::released(vec![updates[i] as f32], i);
                momentum.step(&mut parameters, gradient, rates[i] as f32);
                let expected = 3.0 * alpha.powi(i as i32 + 1) - unrolled[i];
                let scale = 1.0 + expected.abs();
                assert!((f64::from(parameters[0]) - expected).abs() < 2e-5 * scale, "step {i}");
            }
        }
    }
}
