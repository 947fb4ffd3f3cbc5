//! Softmax cross-entropy of one example.

/// What the loss says of one example.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) loss: f64,
    pub(crate) correct: bool,
}

/// `-log softmax(logits)[label]`, and its gradient `softmax(logits) - e_label` if asked for.
///
/// f64 inside. NaN if a logit is NaN or `inf`. O(classes).
pub(crate) fn cross_entropy(logits: &[f32], label: usize, gradient: Option<&mut [f32]>) -> Verdict {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shifted = |x: f32| f64::from(x) - f64::from(largest);
    let total: f64 = logits.iter().map(|&x| shifted(x).exp()).sum();
    if let Some(gradient) = gradient {
        for (i, (d, &x)) in gradient.iter_mut().zip(logits).enumerate() {
            let target = if i == label { 1.0 } else { 0.0 };
            *d = (shifted(x).exp() / total - target) as f32;
        }
    }
    // Ties go to the first class, as with argmax elsewhere.
    let correct = logits.iter().position(|&x| x == largest) == Some(label);
    Verdict { loss: total.ln() - shifted(logits[label]), correct }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_the_derivative() {
        let logits = [0.3_f32, -1.2, 2.0, 0.9];
        let mut gradient = [0.0; 4];
        let at = cross_entropy(&logits, 3, Some(&mut gradient));
        assert!(!at.correct && cross_entropy(&logits, 2, None).correct);
        for i in 0..4 {
            let moved = |h: f32| {
                let mut logits = logits;
                logits[i] += h;
                cross_entropy(&logits, 3, None).loss
            };
            let numeric = (moved(1e-3) - moved(-1e-3)) / 2e-3;
            assert!((f64::from(gradient[i]) - numeric).abs() < 1e-4);
        }
    }

    #[test]
    fn large_logits_do_not_overflow_and_bad_ones_are_seen() {
        assert!((cross_entropy(&[1e30, 0.0], 0, None).loss).abs() < 1e-12);
        assert!(cross_entropy(&[f32::NAN, 0.0], 1, None).loss.is_nan());
        assert!(cross_entropy(&[f32::INFINITY, 0.0], 1, None).loss.is_nan());
    }
}
