//! Clipped sums of a module's gradients, in three ways.

use std::collections::HashMap;
use std::ops::Range;

use burn::module::{Module, ParamId};
use burn::tensor::{DType, Gradients, Tensor, TensorData};
use rayon::prelude::*;

use super::draws::{Seeds, draw_from};
use super::error::ModuleError;
use super::layer_use::LayerUse;
use super::layout::Layout;
use super::parts::{Left, Norms, Part, parts};
use super::{microbatch, tape};
use crate::engine::{Scales, rounded_up};
use crate::gradient::{ClipCounts, ClippedSum};

/// Examples whose gradients are added up in f32 at most, in blocks ([`SUM_ROUNDING`](crate::gradient::SUM_ROUNDING));
/// beyond them in f64.
const GROUP: usize = 128;

/// Examples of a block where products may cancel.
const BLOCK: usize = 32;

/// Examples of a block where none can: half as many products, each twice as deep.
const LONG_BLOCK: usize = 64;

/// How the contributions of single examples are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PerExample {
    /// By taps if they reach all parameters that are trained, else one by one.
    #[default]
    Auto,
    /// One forward and one backward pass over a microbatch; norms and clipped sums from what tapped layers saw.
    Taps,
    /// Norms by taps, then a second pass whose losses are scaled: an ordinary backward pass makes the sum, but for gradients that were
    /// held for their norms, which are summed as they are. Never faster than taps; a second opinion on them.
    ///
    /// That the backward pass of a scaled loss gives the scaled gradient is true but for rounding: where terms cancel on the way back
    /// through a module, nothing is proven of what is left of them.
    TwoPasses,
    /// A pass for every example: the definition, as far as burn's automatic differentiation is right. Any module, many times
    /// slower.
    ///
    /// burn 0.22.1 has a wrong gradient for the weights of a `Conv1d` with `groups` above 1 and a stride that leaves a remainder of the
    /// padded sequence (a length of 8 under a kernel of 3 and a stride of 2). Taps have the right one, so the check refuses
    /// all other ways than this one ([`ModuleError::Disagrees`]); one by one, nothing notices. What is released is as private then, since
    /// whatever stands for an example's gradient is clipped, but the weights learn the wrong thing: pad or cut the sequence so that the
    /// stride leaves nothing.
    OneByOne,
}

/// A module with the way to its gradients.
pub(super) struct Gradient<'a, M> {
    pub(super) module: &'a M,
    pub(super) layout: &'a Layout,
    /// Examples in a forward pass.
    pub(super) microbatch: usize,
    /// Of what layers draw in the passes.
    pub(super) seeds: Seeds,
}

/// What taps say of a pass.
struct Pass {
    parts: Vec<Part>,
    losses: Vec<f32>,
}

impl<M: Module> Gradient<'_, M> {
    /// Adds `sum_j min(1, clip_norm / |g_j|) g_j` over the examples of one part of a batch. `Auto` is for the caller to decide.
    ///
    /// # Errors
    /// [`ModuleError`] if the losses are not one per example, or taps do not reach a parameter.
    pub(super) fn add(
        &self,
        way: PerExample,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
        sum: &mut ClippedSum,
    ) -> Result<(), ModuleError> {
        self.seeds.next_part();
        for chunk in examples.chunks(self.microbatch.max(1)) {
            match way {
                PerExample::OneByOne => self.add_one_by_one(loss, chunk, sum)?,
                PerExample::Taps | PerExample::Auto => self.add_by_taps(loss, chunk, sum)?,
                PerExample::TwoPasses => self.add_by_two_passes(loss, chunk, sum)?,
            }
        }
        Ok(())
    }

    /// The definition.
    pub(super) fn add_one_by_one(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
        sum: &mut ClippedSum,
    ) -> Result<(), ModuleError> {
        for &example in examples {
            self.draw_from(self.seeds.next());
            match backward(self.losses(loss, &[example])?) {
                Some(gradients) => sum.add(&self.layout.gradients(self.module, &gradients))?,
                None => self.add_nothing(1, sum)?,
            }
        }
        Ok(())
    }

    /// Sets what the module's layers draw next.
    pub(super) fn draw_from(&self, seed: u64) {
        if self.layout.draws() {
            draw_from(self.module, seed);
        }
    }

    fn losses(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
    ) -> Result<Tensor<1>, ModuleError> {
        let losses = loss(self.module, examples);
        if losses.dtype() != DType::F32 {
            let (path, dtype) = ("the loss".to_owned(), format!("{:?}", losses.dtype()));
            return Err(ModuleError::NotF32 { path, dtype });
        }
        match losses.dims() {
            [found] if found == examples.len() => Ok(losses),
            [found] => Err(ModuleError::Losses { examples: examples.len(), found }),
        }
    }

    /// Whether the losses depend on any parameter that is trained.
    pub(super) fn reaches(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
    ) -> Result<bool, ModuleError> {
        let gradients = backward(self.losses(loss, examples)?);
        let of_parameters =
            gradients.map(|gradients| self.layout.by_parameter(self.module, &gradients));
        Ok(of_parameters.is_some_and(|found| !found.is_empty()))
    }

    /// How many examples a pass takes, unless the caller says it.
    pub(super) fn usual_microbatch(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
    ) -> usize {
        // What taps cannot do goes one by one, where it does not matter.
        let uses = self.taped(loss, examples).map_or(Vec::new(), |(_, uses)| uses);
        microbatch::usual(&uses)
    }

    /// The losses as numbers.
    pub(super) fn values(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
    ) -> Result<Vec<f32>, ModuleError> {
        Ok(numbers(self.losses(loss, examples)?.inner()))
    }

    /// The first example whose loss has a gradient that goes through another one in a taped pass, and that other.
    pub(super) fn stray(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
    ) -> Result<Option<(u32, u32)>, ModuleError> {
        for (own, &example) in examples.iter().enumerate() {
            let (losses, uses) = self.taped(loss, examples)?;
            let Some(mut gradients) = backward(losses.narrow(0, own, 1)) else {
                continue;
            };
            for seen in uses.into_iter().filter_map(|layer| layer.seen(&mut gradients)) {
                if let Some(other) = seen.reached().find(|&other| other != own) {
                    return Ok(Some((example, examples[other])));
                }
            }
        }
        Ok(None)
    }

    /// Losses, and what tapped layers recorded.
    fn taped(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
    ) -> Result<(Tensor<1>, Vec<LayerUse>), ModuleError> {
        let (losses, uses) = tape::record(self.layout.strategy(), || self.losses(loss, examples));
        let losses = losses?;
        for layer in &uses {
            if layer.parameters().iter().any(|&id| self.layout.range(id).is_none()) {
                return Err(ModuleError::Foreign);
            }
            if layer.examples() != examples.len() {
                let path = layer.parameters().first().map(|&id| self.layout.path(id));
                let (path, found) = (path.unwrap_or_default(), layer.examples());
                return Err(ModuleError::Rows { path, examples: examples.len(), found });
            }
        }
        Ok((losses, uses))
    }

    /// A taped pass, backward too. It has no parts if the losses depend on nothing.
    fn pass(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
    ) -> Result<Pass, ModuleError> {
        let (losses, uses) = self.taped(loss, examples)?;
        let values = numbers(losses.clone().inner());
        let Some(mut gradients) = backward(losses) else {
            return Ok(Pass { parts: Vec::new(), losses: values });
        };
        // Taps use weights as constants: a weight with a gradient was used by something else too.
        if let Some(path) = self.layout.with_gradient(self.module, &gradients) {
            return Err(ModuleError::NotTapped { path });
        }
        let seen = uses.into_iter().filter_map(|layer| layer.seen(&mut gradients)).collect();
        Ok(Pass { parts: parts(seen), losses: values })
    }

    fn add_by_taps(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
        sum: &mut ClippedSum,
    ) -> Result<(), ModuleError> {
        self.draw_from(self.seeds.next());
        let pass = self.pass(loss, examples)?;
        if pass.parts.is_empty() {
            return self.add_nothing(examples.len(), sum);
        }
        let n = examples.len();
        // Where host memory holds them, these layers are added at the end, all examples in one product.
        let (outer, parts): (Vec<Part>, Vec<Part>) =
            pass.parts.into_iter().partition(Part::is_outer_product_on_host);
        let known = Norms::of(&outer);
        // Without others nothing is added up in f32 here.
        let (group, block) = match () {
            () if parts.is_empty() => (n, n),
            () if parts.iter().any(Part::cancels) => (GROUP, BLOCK),
            () => (GROUP, LONG_BLOCK),
        };
        let mut factors = Vec::with_capacity(n);
        for group in ranges(n, group) {
            let mut total: HashMap<ParamId, Tensor<1>> = HashMap::new();
            let mut counts = ClipCounts::default();
            for block in ranges(group.len(), block) {
                let block = group.start + block.start..group.start + block.end;
                let (scales, left) = self.scales(&parts, &known, block, sum.clip_norm());
                count(&mut counts, &scales);
                factors.extend(numbers(scales.factor.clone()));
                for (id, more) in left.into_iter().flat_map(|left| left.sum(&scales)) {
                    let so_far = total.remove(&id);
                    total.insert(id, so_far.map_or(more.clone(), |so_far| so_far + more));
                }
            }
            let values = total.into_iter().map(|(id, sum)| (id, sum.into_data())).collect();
            if !self.add_values(values, counts, sum)? {
                factors[group.clone()].fill(0.0);
                self.add_alone(parts.iter().chain(&outer), group, sum)?;
            }
        }
        // Such a product is no longer than the clip norm, so no sum of them overflows.
        let range = |id| self.layout.range(id).expect("uses of other parameters are refused");
        for part in outer {
            if let Part::One(seen) = part {
                seen.add_outer_products(&factors, range, sum.parts_mut().0);
            }
        }
        Ok(())
    }

    fn add_by_two_passes(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
        sum: &mut ClippedSum,
    ) -> Result<(), ModuleError> {
        for examples in examples.chunks(BLOCK) {
            // Dropout and the like draw the same twice.
            let seed = self.seeds.next();
            self.draw_from(seed);
            let pass = self.pass(loss, examples)?;
            if pass.parts.is_empty() {
                self.add_nothing(examples.len(), sum)?;
                continue;
            }
            let all = 0..examples.len();
            let (scales, left) =
                self.scales(&pass.parts, &Norms::default(), all.clone(), sum.clip_norm());
            let mut counts = ClipCounts::default();
            count(&mut counts, &scales);
            // What is not finite would spoil the sum even with a factor of zero. In its place stands an example that is: the others keep
            // their places, and with them what they draw.
            let bad = numbers(scales.bad.clone().float());
            let Some(good) = bad.iter().position(|&bad| bad == 0.0) else {
                self.add_values(Vec::new(), counts, sum)?;
                continue;
            };
            let stand_ins = examples.iter().zip(&bad);
            let stand_ins =
                stand_ins.map(|(&own, &bad)| if bad > 0.0 { examples[good] } else { own });
            self.draw_from(seed);
            let losses = self.losses(loss, &stand_ins.collect::<Vec<u32>>())?;
            let again = numbers(losses.clone().inner());
            let mut both = again.iter().zip(&pass.losses).zip(&bad);
            if both.any(|((again, first), &bad)| bad == 0.0 && bits(*again) != bits(*first)) {
                let reason = "something in it is random, or depends on what came before; two passes need a module that gives \
                              the same twice, so take taps or one by one";
                return Err(ModuleError::Random { reason: reason.to_owned() });
            }
            let losses = losses.mask_fill(scales.bad.clone(), 0.0);
            let gradients = backward(losses * scales.factor.clone());
            let values = gradients.map(|found| self.layout.by_parameter(self.module, &found));
            let mut values = values.unwrap_or_default();
            // A held gradient is no longer than its norm says, but products that make it may be: they may cancel in it, and leave
            // anything in a sum over examples.
            for (id, rows) in left.into_iter().flat_map(Left::held) {
                values.retain(|(known, _)| *known != id);
                values.push((id, scales.sum(rows).into_data()));
            }
            if !self.add_values(values, counts, sum)? {
                self.add_alone(pass.parts.iter(), all, sum)?;
            }
        }
        Ok(())
    }

    /// Adds examples whose losses depend on nothing that is trained: gradients of zero.
    fn add_nothing(&self, examples: usize, sum: &mut ClippedSum) -> Result<(), ModuleError> {
        let counts = ClipCounts { examples, ..ClipCounts::default() };
        self.add_values(Vec::new(), counts, sum).map(|_| ())
    }

    /// Adds the examples of a group whose sum is not finite in spite of clipping, each alone but from the same pass: what an example
    /// contributes depends on that example alone, but for the last places of its norm and its products, and none can end the run. In another pass or by another way the others would
    /// contribute something else, as they would draw something else, or their norms be rounded otherwise. One that is not finite alone
    /// contributes nothing.
    fn add_alone<'p>(
        &self,
        parts: impl Iterator<Item = &'p Part> + Clone,
        group: Range<usize>,
        sum: &mut ClippedSum,
    ) -> Result<(), ModuleError> {
        for example in group {
            let (example, clip_norm) = (example..example + 1, sum.clip_norm());
            let (scales, left) = self.scales(parts.clone(), &Norms::default(), example, clip_norm);
            let mut counts = ClipCounts::default();
            count(&mut counts, &scales);
            let values = left.into_iter().flat_map(|left| left.sum(&scales));
            let values = values.map(|(id, sum)| (id, sum.into_data())).collect();
            if !self.add_values(values, counts, sum)? {
                let counts = ClipCounts { examples: 1, clipped: 0, non_finite: 1 };
                self.add_values(Vec::new(), counts, sum)?;
            }
        }
        Ok(())
    }

    /// Adds what a group sums to, if that is finite, and says whether it is.
    fn add_values(
        &self,
        values: Vec<(ParamId, TensorData)>,
        counts: ClipCounts,
        sum: &mut ClippedSum,
    ) -> Result<bool, ModuleError> {
        let slices = values.iter().map(|(id, data)| (*id, data.as_slice().expect("it is f32")));
        let slices: Vec<(ParamId, &[f32])> = slices.collect();
        if !slices.iter().all(|(_, values)| values.iter().all(|value| value.is_finite())) {
            return Ok(false);
        }
        sum.check_room(self.layout.dim(), counts.examples)?;
        let (all, seen) = sum.parts_mut();
        for (id, values) in slices {
            let range = self.layout.range(id).expect("uses of other parameters are refused");
            let pairs = all[range].par_iter_mut().with_min_len(1 << 14).zip(values);
            pairs.for_each(|(sum, value)| *sum += f64::from(*value));
        }
        seen.add(counts);
        Ok(true)
    }

    /// Norms and factors of a block of examples, from those that are known and those of the parts, and what is left of the
    /// parts for the examples' sum.
    fn scales<'p>(
        &self,
        parts: impl IntoIterator<Item = &'p Part>,
        known: &Norms,
        block: Range<usize>,
        clip_norm: f64,
    ) -> (Scales, Vec<Left>) {
        let mut total = known.of_block(block.clone());
        let mut left = Vec::new();
        for part in parts {
            let (norms, rest) = part.norms(block.clone());
            norms.into_iter().for_each(|norms| total.add(norms));
            left.push(rest);
        }
        let squared = total.squared.expect("passes without parts are left out");
        let squared = rounded_up(squared, 2 * (2 + total.terms));
        (Scales::new(squared, self.layout.dim(), clip_norm), left)
    }
}

/// The gradients of a sum of losses; none if it depends on nothing.
fn backward(losses: Tensor<1>) -> Option<Gradients> {
    let sum = losses.sum();
    sum.is_tracked().then(|| sum.backward())
}

/// The bits of a number, and one for all that are none: which of them comes out differs from pass to pass.
pub(super) fn bits(number: f32) -> u32 {
    if number.is_nan() { f32::NAN.to_bits() } else { number.to_bits() }
}

fn numbers(tensor: Tensor<1>) -> Vec<f32> {
    tensor.into_data().try_to_vec().expect("it is f32")
}

fn count(counts: &mut ClipCounts, scales: &Scales) {
    let set = |flags: &Tensor<1, burn::tensor::Bool>| {
        numbers(flags.clone().float()).into_iter().filter(|&flag| flag > 0.0).count()
    };
    counts.examples += scales.norm.dims()[0];
    counts.clipped += set(&scales.clipped);
    counts.non_finite += set(&scales.bad);
}

/// `0..length` in pieces of at most so many.
fn ranges(length: usize, piece: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length).step_by(piece).map(move |from| from..(from + piece).min(length))
}
