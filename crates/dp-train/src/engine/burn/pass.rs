//! One microbatch through the layers and back.

use burn::tensor::{Int, Tensor};

use crate::engine::burn::clip::{Scales, rounded_up, sum_of_squares};
use crate::engine::burn::layer::{Choice, ExampleGradients, Seen, TensorLayer};
use crate::engine::burn::loss::{Losses, cross_entropy};

/// What a microbatch comes to.
#[derive(Debug)]
pub(crate) struct Sums {
    /// Of all tensors of parameters, in their order.
    pub(crate) gradients: Vec<Tensor<1>>,
    /// Loss and correctness of every image: `[images, 2]`.
    pub(crate) images: Tensor<2>,
    /// Whether an example was clipped, whether it is bad, and its norm: `[examples, 3]`.
    pub(crate) examples: Option<Tensor<2>>,
}

/// The layers, with their parameters on the device.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    pub(crate) layers: &'a [Box<dyn TensorLayer>],
    /// The tensors of every layer.
    pub(crate) parameters: Vec<Vec<Tensor<1>>>,
    /// Length of the flat vector of parameters.
    pub(crate) weights: usize,
}

impl Pass<'_> {
    /// The logits `[n, classes, 1, 1]`.
    pub(crate) fn logits(&self, images: Tensor<4>) -> Tensor<4> {
        let layers = self.layers.iter().zip(&self.parameters);
        layers.fold(images, |x, (layer, parameters)| layer.forward(parameters, x))
    }

    /// The sums over a microbatch, clipped to a norm or as they are. The views of an example lie one
    /// after the other.
    pub(crate) fn gradients(
        &self,
        images: Tensor<4>,
        classes: Tensor<2, Int>,
        views: usize,
        clip_norm: Option<f64>,
    ) -> Sums {
        let mut values = vec![images];
        for (i, layer) in self.layers.iter().enumerate() {
            values.push(layer.forward(&self.parameters[i], values[i].clone()));
        }
        let Losses { loss, correct, gradient } =
            cross_entropy(values[self.layers.len()].clone(), classes);
        let (gradients, examples) = match clip_norm {
            None => (self.plain(values, gradient), None),
            Some(clip_norm) => {
                let (sums, scales) = self.clipped(values, gradient, views, clip_norm);
                (sums, Some(scales.columns()))
            }
        };
        Sums { gradients, images: Tensor::cat(vec![loss, correct], 1), examples }
    }

    fn plain(&self, values: Vec<Tensor<4>>, dy: Tensor<4>) -> Vec<Tensor<1>> {
        let mut sums = Vec::new();
        self.backward(values, dy, |i, seen| {
            sums.push(self.layers[i].gradient_sum(&self.parameters[i], seen.clone()));
        });
        sums.into_iter().rev().flatten().collect()
    }

    fn clipped(
        &self,
        values: Vec<Tensor<4>>,
        dy: Tensor<4>,
        views: usize,
        clip_norm: f64,
    ) -> (Vec<Tensor<1>>, Scales) {
        let examples = dy.dims()[0] / views;
        let mut squared_norm = Tensor::zeros([examples], &dy.device());
        let mut parts = Vec::new();
        self.backward(values, dy, |i, seen| {
            // The norm of a mean is not to be had from the norms of its terms.
            let choice = if views == 1 { Choice::Cheaper } else { Choice::Held };
            let gradients = self.layers[i].example_gradients(&self.parameters[i], seen, choice);
            let part = match gradients {
                ExampleGradients::None => return,
                ExampleGradients::Held(rows) => {
                    let rows: Vec<_> = rows.into_iter().map(|rows| means(rows, views)).collect();
                    for rows in &rows {
                        squared_norm = squared_norm.clone() + sum_of_squares(rows.clone());
                    }
                    Part::Held(rows)
                }
                ExampleGradients::Ghost(squares) => {
                    squared_norm = squared_norm.clone() + squares;
                    Part::Ghost(i, seen.clone())
                }
            };
            parts.push(part);
        });
        let squared_norm = rounded_up(squared_norm, 2 * self.layers.len());
        let scales = Scales::new(squared_norm, self.weights, clip_norm);
        let mut sums = Vec::new();
        while let Some(part) = parts.pop() {
            match part {
                Part::Held(rows) => sums.extend(rows.into_iter().map(|rows| scales.sum(rows))),
                Part::Ghost(i, Seen { x, y, dy }) => {
                    let seen = Seen { x: scales.without_bad(x), y, dy: scales.scaled(dy) };
                    sums.extend(self.layers[i].gradient_sum(&self.parameters[i], seen));
                }
            }
        }
        (sums, scales)
    }

    /// Shows every layer what it saw, the last one first, down to the first with parameters.
    fn backward(
        &self,
        mut values: Vec<Tensor<4>>,
        mut dy: Tensor<4>,
        mut visit: impl FnMut(usize, &Seen),
    ) {
        let first = self.parameters.iter().position(|p| !p.is_empty());
        let first = first.unwrap_or(self.layers.len());
        for i in (first..self.layers.len()).rev() {
            let seen = Seen { x: values[i].clone(), y: values[i + 1].clone(), dy };
            values.truncate(i + 1);
            visit(i, &seen);
            if i == first {
                return;
            }
            dy = self.layers[i].input_gradient(&self.parameters[i], seen);
        }
    }
}

/// What a layer leaves for the clipped sum.
#[expect(clippy::large_enum_variant, reason = "there is one per layer, and a tensor is a handle")]
enum Part {
    Held(Vec<Tensor<2>>),
    Ghost(usize, Seen),
}

/// The means of so many rows each.
fn means(rows: Tensor<2>, views: usize) -> Tensor<2> {
    let [n, length] = rows.dims();
    if views == 1 {
        return rows;
    }
    rows.reshape([n / views, views, length]).mean_dim(1).reshape([n / views, length])
}
