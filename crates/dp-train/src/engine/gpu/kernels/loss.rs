//! The loss: cross entropy of the softmax, its gradient, and whether the label is the largest logit.
//!
//! Where there is no example ([`ABSENT`]) the loss is 0 and the gradient not a number, so that it gets no part in any sum.

use cubecl::prelude::*;

use super::activation::{Activation, derivative};
use super::gather::ABSENT;
use super::ledger::enter;
use super::position::position;

/// One image: `measures` gets its loss and 1 if it is classified correctly.
#[cube(launch)]
pub(crate) fn cross_entropy(
    ledger: &mut [u32],
    logits: &[f32],
    labels: &[u32],
    gradients: &mut [f32],
    measures: &mut [f32],
    images: u32,
    #[comptime] classes: usize,
    #[comptime] views: usize,
    #[comptime] activation: Activation,
) {
    enter(ledger);
    let image = position();
    if image < images as usize {
        let start = image * classes;
        let label = labels[image / views];
        let there = label != ABSENT;
        let label = select(there, label as usize, 0);
        let mut largest = logits[start];
        let mut best = 0;
        let mut finite = there;
        for class in 0..classes {
            let logit = logits[start + class];
            if logit > largest {
                largest = logit;
                best = class;
            }
            finite = finite && (u32::reinterpret(logit) & 0x7fff_ffffu32) < 0x7f80_0000u32;
        }
        let mut sum = 0.0f32;
        for class in 0..classes {
            sum += (logits[start + class] - largest).exp();
        }
        // What is not finite becomes a gradient that is not, in any arithmetic.
        let spoil = select(finite, 0.0f32, f32::reinterpret(0x7fc0_0000u32));
        for class in 0..classes {
            let logit = logits[start + class];
            let share = (logit - largest).exp() / sum;
            let target = select(class == label, 1.0f32, 0.0f32);
            let gradient = (share - target) * derivative(logit, activation);
            gradients[start + class] = select(finite, gradient, spoil);
        }
        let loss = sum.ln() + largest - logits[start + label];
        measures[2 * image] = select(finite, loss, select(there, spoil, 0.0f32));
        measures[2 * image + 1] = select(finite && best == label, 1.0f32, 0.0f32);
    }
}
