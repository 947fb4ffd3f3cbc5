//! The sum over a batch: microbatches are added on the device in f32, groups of them on the host in
//! f64.
//!
//! Every addition in f32 loses up to `2^-24` of the partial sum, and one example changes all
//! roundings after it. Over a whole batch of `B` examples that is up to `B^2 2^-24` clip norms: at
//! `B = 4096` as much as the sensitivity itself, which the noise is for. In groups of four microbatches
//! it is within [`SUM_ROUNDING`](crate::gradient::SUM_ROUNDING): an example reaches no group but its own,
//! and the rest is f64.

use burn::tensor::Tensor;

use crate::engine::batch::{Batch, BatchMetrics};
use crate::engine::burn::pass::Pass;
use crate::engine::burn::placed::PlacedModel;
use crate::engine::error::EngineError;

/// Microbatches that the device adds up before the host takes the sum.
const MICROBATCHES: usize = 4;

/// What a batch sums to, and what is known of it.
#[derive(Debug)]
pub(super) struct Summed {
    pub(super) sum: Vec<f64>,
    pub(super) metrics: BatchMetrics,
    /// Whether it was clipped, whether it is bad, and its norm.
    pub(super) examples: Vec<[f32; 3]>,
}

/// What the device made of a group.
struct Group {
    sum: Vec<f32>,
    /// Loss and correctness.
    images: Vec<[f32; 2]>,
    /// As in [`Summed`].
    examples: Vec<[f32; 3]>,
}

impl Group {
    fn is_finite(&self) -> bool {
        self.sum.iter().all(|value| value.is_finite())
    }

    /// As if the examples had been found to be bad before they were summed.
    fn drop_all(&mut self) {
        self.sum.fill(0.0);
        for [clipped, bad, _] in &mut self.examples {
            (*clipped, *bad) = (0.0, 1.0);
        }
    }
}

impl Summed {
    fn zero(parameters: usize) -> Self {
        let (sum, metrics) = (vec![0.0; parameters], BatchMetrics::default());
        Self { sum, metrics, examples: Vec::new() }
    }

    fn add(&mut self, group: Group) {
        self.sum.iter_mut().zip(group.sum).for_each(|(sum, part)| *sum += f64::from(part));
        self.metrics.images += group.images.len();
        for [loss, correct] in group.images {
            self.metrics.loss_sum += f64::from(loss);
            self.metrics.correct += usize::from(correct > 0.0);
        }
        self.examples.extend(group.examples);
    }
}

/// The sum over a batch, in microbatches of so many images if the views of one example are not more:
/// clipped to a norm, or as it is.
///
/// The device promises that clipped sums are finite. Where one is not, the examples of its group
/// are computed one at a time, and those that are not finite alone contribute zero and count as
/// bad. So what an example contributes depends on that example alone, and none can end the run:
/// a run that ends or not depending on the data would be a release without noise.
///
/// # Errors
/// [`EngineError`] if parameters and batch do not fit the model, or the device fails.
pub(super) fn sum(
    model: &PlacedModel,
    microbatch: usize,
    parameters: &[f32],
    batch: Batch<'_>,
    clip_norm: Option<f64>,
) -> Result<Summed, EngineError> {
    model.sizes.check_batch(parameters.len(), batch)?;
    let mut summed = Summed::zero(parameters.len());
    if batch.labels.is_empty() || parameters.is_empty() {
        return Ok(summed);
    }
    let together = (microbatch / batch.views).max(1);
    let pixels = model.sizes.pixels;
    model.run(|| {
        let pass = model.pass(parameters);
        for batch in batch.chunks(MICROBATCHES * together, pixels) {
            let whole = group(model, &pass, batch, together, clip_norm)?;
            if whole.is_finite() || clip_norm.is_none() {
                summed.add(whole);
                continue;
            }
            for example in batch.chunks(1, pixels) {
                let mut one = group(model, &pass, example, 1, clip_norm)?;
                if !one.is_finite() {
                    one.drop_all();
                }
                summed.add(one);
            }
        }
        Ok(summed)
    })
}

/// Sums microbatches of `together` examples on the device, and waits for it.
fn group(
    model: &PlacedModel,
    pass: &Pass<'_>,
    batch: Batch<'_>,
    together: usize,
    clip_norm: Option<f64>,
) -> Result<Group, EngineError> {
    let (mut total, mut of_images, mut of_examples) = (Vec::new(), Vec::new(), Vec::new());
    for block in batch.chunks(together, model.sizes.pixels) {
        let (images, classes) = (model.images(block.images), model.classes(block));
        let sums = pass.gradients(images, classes, block.views, clip_norm);
        of_images.push(sums.images);
        of_examples.extend(sums.examples);
        total = if total.is_empty() {
            sums.gradients
        } else {
            let pairs = total.into_iter().zip(sums.gradients);
            pairs.map(|(total, sum)| total + sum).collect()
        };
    }
    let columns = [of_images, of_examples].map(|blocks| joined(blocks, &model.open.tensors));
    let [of_images, of_examples] = columns;
    let [sum, of_images, of_examples] =
        model.read([Tensor::cat(total, 0), of_images, of_examples])?;
    let (images, examples) = (of_images.as_chunks().0, of_examples.as_chunks().0);
    Ok(Group { sum, images: images.to_vec(), examples: examples.to_vec() })
}

/// All rows one after the other; one number if there are none, for burn reads nothing empty.
fn joined(blocks: Vec<Tensor<2>>, device: &burn::tensor::Device) -> Tensor<1> {
    if blocks.is_empty() {
        return Tensor::zeros([1], device);
    }
    let all = Tensor::cat(blocks, 0);
    let length = all.dims().iter().product::<usize>();
    all.reshape([length])
}
