//! The definition: naive loops in f64, one example at a time. Slow and meant to be obviously right.

use crate::model::{Architecture, Layer, Shape};

/// An image `[channels][height][width]` with its shape.
#[derive(Debug, Clone)]
struct Image {
    c: usize,
    h: usize,
    w: usize,
    at: Vec<f64>,
}

impl Image {
    fn zeros(c: usize, h: usize, w: usize) -> Self {
        Self { c, h, w, at: vec![0.0; c * h * w] }
    }
    fn get(&self, c: usize, y: isize, x: isize) -> f64 {
        let inside = (0..self.h as isize).contains(&y) && (0..self.w as isize).contains(&x);
        if inside { self.at[(c * self.h + y as usize) * self.w + x as usize] } else { 0.0 }
    }
    fn add(&mut self, c: usize, y: isize, x: isize, value: f64) {
        let inside = (0..self.h as isize).contains(&y) && (0..self.w as isize).contains(&x);
        if inside {
            self.at[(c * self.h + y as usize) * self.w + x as usize] += value;
        }
    }
}

/// Every `(oy, ox, ky, kx, y, x)` of windows over an image.
fn windows(
    (oh, ow): (usize, usize),
    (kernel, stride, padding): (usize, usize, usize),
    mut visit: impl FnMut(usize, usize, usize, usize, isize, isize),
) {
    for oy in 0..oh {
        for ox in 0..ow {
            for ky in 0..kernel {
                for kx in 0..kernel {
                    let y = (oy * stride + ky) as isize - padding as isize;
                    let x = (ox * stride + kx) as isize - padding as isize;
                    visit(oy, ox, ky, kx, y, x);
                }
            }
        }
    }
}

fn image_of(shape: Shape) -> Image {
    match shape {
        Shape::Image { channels, height, width } => Image::zeros(channels, height, width),
        Shape::Vector { features } => Image::zeros(features, 1, 1),
    }
}

fn forward_layer(layer: Layer, x: &Image, mut y: Image, p: &[&[f64]]) -> Image {
    match layer {
        Layer::Conv2d { in_channels, out_channels, kernel, stride, padding, groups } => {
            let inner = in_channels / groups;
            for o in 0..y.c {
                let first = o / (out_channels / groups) * inner;
                windows((y.h, y.w), (kernel, stride, padding), |oy, ox, ky, kx, iy, ix| {
                    for i in 0..inner {
                        let w = p[0][((o * inner + i) * kernel + ky) * kernel + kx];
                        y.add(o, oy as isize, ox as isize, w * x.get(first + i, iy, ix));
                    }
                });
                for pixel in 0..y.h * y.w {
                    y.at[o * y.h * y.w + pixel] += p[1][o];
                }
            }
        }
        Layer::Linear { in_features, .. } => {
            for o in 0..y.c {
                let row = &p[0][o * in_features..][..in_features];
                y.at[o] = p[1][o] + row.iter().zip(&x.at).map(|(w, x)| w * x).sum::<f64>();
            }
        }
        Layer::Relu => y.at = x.at.iter().map(|x| x.max(0.0)).collect(),
        Layer::Tanh => y.at = x.at.iter().map(|x| x.tanh()).collect(),
        Layer::MaxPool2d { kernel, stride } => {
            y.at.fill(f64::NEG_INFINITY);
            for c in 0..y.c {
                windows((y.h, y.w), (kernel, stride, 0), |oy, ox, _, _, iy, ix| {
                    let at = (c * y.h + oy) * y.w + ox;
                    y.at[at] = y.at[at].max(x.get(c, iy, ix));
                });
            }
        }
        Layer::AvgPool2d { kernel, stride } => {
            for c in 0..y.c {
                windows((y.h, y.w), (kernel, stride, 0), |oy, ox, _, _, iy, ix| {
                    let share = x.get(c, iy, ix) / (kernel * kernel) as f64;
                    y.add(c, oy as isize, ox as isize, share);
                });
            }
        }
        Layer::GroupNorm { groups } => {
            let size = x.at.len() / groups;
            for group in 0..groups {
                let part = &x.at[group * size..][..size];
                let (mean, deviation) = moments(part);
                for i in group * size..(group + 1) * size {
                    let c = i / (x.h * x.w);
                    y.at[i] = p[0][c] * (x.at[i] - mean) / deviation + p[1][c];
                }
            }
        }
        Layer::Flatten => y.at.clone_from(&x.at),
    }
    y
}

fn moments(part: &[f64]) -> (f64, f64) {
    let n = part.len() as f64;
    let mean = part.iter().sum::<f64>() / n;
    let variance = part.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    (mean, (variance + 1e-5).sqrt())
}

/// The gradients of the input and of the parameters (weight, bias).
fn backward_layer(
    layer: Layer,
    (x, y): (&Image, &Image),
    dy: &Image,
    p: &[&[f64]],
) -> (Image, Vec<Vec<f64>>) {
    let mut dx = Image::zeros(x.c, x.h, x.w);
    let mut dp: Vec<Vec<f64>> = p.iter().map(|p| vec![0.0; p.len()]).collect();
    match layer {
        Layer::Conv2d { in_channels, out_channels, kernel, stride, padding, groups } => {
            let inner = in_channels / groups;
            for o in 0..y.c {
                let first = o / (out_channels / groups) * inner;
                windows((y.h, y.w), (kernel, stride, padding), |oy, ox, ky, kx, iy, ix| {
                    let d = dy.get(o, oy as isize, ox as isize);
                    for i in 0..inner {
                        let at = ((o * inner + i) * kernel + ky) * kernel + kx;
                        dp[0][at] += d * x.get(first + i, iy, ix);
                        dx.add(first + i, iy, ix, d * p[0][at]);
                    }
                });
                dp[1][o] = dy.at[o * y.h * y.w..][..y.h * y.w].iter().sum();
            }
        }
        Layer::Linear { in_features, .. } => {
            for o in 0..y.c {
                dp[1][o] = dy.at[o];
                for i in 0..in_features {
                    dp[0][o * in_features + i] = dy.at[o] * x.at[i];
                    dx.at[i] += dy.at[o] * p[0][o * in_features + i];
                }
            }
        }
        Layer::Relu => {
            for i in 0..x.at.len() {
                dx.at[i] = if x.at[i] > 0.0 { dy.at[i] } else { 0.0 };
            }
        }
        Layer::Tanh => {
            for i in 0..x.at.len() {
                dx.at[i] = dy.at[i] * (1.0 - y.at[i] * y.at[i]);
            }
        }
        Layer::MaxPool2d { kernel, stride } => {
            for c in 0..y.c {
                let mut taken = vec![false; y.h * y.w];
                windows((y.h, y.w), (kernel, stride, 0), |oy, ox, _, _, iy, ix| {
                    let (oy_, ox_) = (oy as isize, ox as isize);
                    if !taken[oy * y.w + ox] && x.get(c, iy, ix) == y.get(c, oy_, ox_) {
                        taken[oy * y.w + ox] = true;
                        dx.add(c, iy, ix, dy.get(c, oy_, ox_));
                    }
                });
            }
        }
        Layer::AvgPool2d { kernel, stride } => {
            for c in 0..y.c {
                windows((y.h, y.w), (kernel, stride, 0), |oy, ox, _, _, iy, ix| {
                    let d = dy.get(c, oy as isize, ox as isize) / (kernel * kernel) as f64;
                    dx.add(c, iy, ix, d);
                });
            }
        }
        Layer::GroupNorm { groups } => {
            let size = x.at.len() / groups;
            for group in 0..groups {
                let range = group * size..(group + 1) * size;
                let (mean, deviation) = moments(&x.at[range.clone()]);
                let normal = |i: usize| (x.at[i] - mean) / deviation;
                let scaled = |i: usize| dy.at[i] * p[0][i / (x.h * x.w)];
                let n = size as f64;
                let mean_e = range.clone().map(scaled).sum::<f64>() / n;
                let mean_en = range.clone().map(|i| scaled(i) * normal(i)).sum::<f64>() / n;
                for i in range {
                    dp[0][i / (x.h * x.w)] += dy.at[i] * normal(i);
                    dp[1][i / (x.h * x.w)] += dy.at[i];
                    dx.at[i] = (scaled(i) - mean_e - normal(i) * mean_en) / deviation;
                }
            }
        }
        Layer::Flatten => dx.at.clone_from(&dy.at),
    }
    (dx, dp)
}

/// Loss, logits and gradient of one example.
pub(crate) struct Example {
    pub(crate) loss: f64,
    pub(crate) logits: Vec<f64>,
    pub(crate) gradient: Vec<f64>,
}

/// Forward and backward by the definition.
pub(crate) fn example(
    architecture: &Architecture,
    parameters: &[f64],
    image: &[f64],
    label: usize,
) -> Example {
    let shapes = architecture.shapes();
    let tensors = |layer: usize| -> Vec<&[f64]> {
        let tensors = architecture.parameters_of(layer).iter();
        tensors.map(|p| &parameters[p.range.clone()]).collect()
    };
    let mut values = vec![Image { at: image.to_vec(), ..image_of(shapes[0]) }];
    for (i, &layer) in architecture.layers().iter().enumerate() {
        let y = forward_layer(layer, &values[i], image_of(shapes[i + 1]), &tensors(i));
        values.push(y);
    }
    let logits = values[values.len() - 1].at.clone();
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = logits.iter().map(|l| (l - largest).exp()).sum();
    let loss = total.ln() + largest - logits[label];
    let mut d = image_of(shapes[shapes.len() - 1]);
    for (i, l) in logits.iter().enumerate() {
        d.at[i] = (l - largest).exp() / total - f64::from(u8::from(i == label));
    }
    let mut gradient = vec![0.0; parameters.len()];
    for (i, &layer) in architecture.layers().iter().enumerate().rev() {
        let (dx, dp) = backward_layer(layer, (&values[i], &values[i + 1]), &d, &tensors(i));
        for (tensor, values) in architecture.parameters_of(i).iter().zip(dp) {
            gradient[tensor.range.clone()].copy_from_slice(&values);
        }
        d = dx;
    }
    Example { loss, logits, gradient }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference is itself checked: central differences of its loss in every parameter.
    #[test]
    fn the_reference_gradient_is_the_derivative_of_the_reference_loss() {
        let input = Shape::Image { channels: 2, height: 7, width: 6 };
        let conv = |in_channels, out_channels, stride, padding, groups| Layer::Conv2d {
            in_channels,
            out_channels,
            kernel: 3,
            stride,
            padding,
            groups,
        };
        let layers = vec![
            conv(2, 4, 1, 1, 1),
            conv(4, 6, 1, 1, 2),
            Layer::Tanh,
            Layer::GroupNorm { groups: 2 },
            Layer::MaxPool2d { kernel: 2, stride: 1 },
            conv(6, 3, 2, 2, 1),
            Layer::Relu,
            Layer::AvgPool2d { kernel: 2, stride: 2 },
            Layer::Flatten,
            Layer::Linear { in_features: 12, out_features: 3 },
        ];
        let architecture = Architecture::new(input, layers).unwrap();
        let wave =
            |n: usize, f: f64| (0..n).map(|i| (f * i as f64 + 0.3).sin()).collect::<Vec<_>>();
        let mut parameters = wave(architecture.parameter_count(), 1.7);
        let image = wave(84, 0.9);
        let gradient = example(&architecture, &parameters, &image, 1).gradient;
        for i in 0..parameters.len() {
            let kept = parameters[i];
            let mut loss = |h: f64| {
                parameters[i] = kept + h;
                example(&architecture, &parameters, &image, 1).loss
            };
            let numeric = (loss(1e-6) - loss(-1e-6)) / 2e-6;
            parameters[i] = kept;
            assert!((numeric - gradient[i]).abs() < 1e-7, "{i}: {numeric} {}", gradient[i]);
        }
    }
}
