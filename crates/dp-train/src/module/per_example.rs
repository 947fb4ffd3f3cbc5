//! Clipped sums of a module's gradients, in three ways.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::module::{Module, ParamId};
use burn::tensor::{DType, Gradients, Tensor, TensorData};
use rayon::prelude::*;

use super::error::ModuleError;
use super::layer_use::{OfParameters, Seen};
use super::layout::Layout;
use super::{microbatch, tape};
use crate::engine::{Scales, rounded_up, sum_of_squares};
use crate::gradient::{ClipCounts, ClippedSum};

/// Examples whose gradients are added up in f32 at most, in blocks ([`SUM_ROUNDING`](crate::gradient::SUM_ROUNDING));
/// beyond them in f64.
const GROUP: usize = 128;

/// Examples of a block where products may cancel.
const BLOCK: usize = 32;

/// Examples of a block where none can: half as many products, each twice as deep.
const LONG_BLOCK: usize = 64;

/// Of what layers draw at random in two passes; it has no influence on any noise.
pub(super) static SEED: AtomicU64 = AtomicU64::new(1);

/// How the contributions of single examples are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PerExample {
    /// By taps if they reach all parameters that are trained, else one by one.
    #[default]
    Auto,
    /// One forward and one backward pass over a microbatch; norms and clipped sums from what tapped layers saw.
    Taps,
    /// Norms by taps, then a second pass whose losses are scaled: an ordinary backward pass makes the sum. Never
    /// faster than taps; a second opinion on them.
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
}

/// What taps say of a pass.
struct Pass {
    parts: Vec<Part>,
    losses: Vec<f32>,
}

/// Uses that share parameters.
enum Part {
    One(Box<Seen>),
    Several(Vec<Seen>),
}

/// What a part leaves for the clipped sum.
enum Left {
    Rows(OfParameters<2>),
    Seen(Box<Seen>),
}

impl<M: Module> Gradient<'_, M> {
    /// Adds `sum_j min(1, clip_norm / |g_j|) g_j` over the examples. `Auto` is for the caller to decide.
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
            let losses = self.losses(loss, &[example])?;
            let gradient = self.layout.gradients(self.module, &backward(losses)?);
            sum.add(&gradient)?;
        }
        Ok(())
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
        let gradients = backward(self.losses(loss, examples)?)?;
        Ok(!self.layout.by_parameter(self.module, &gradients).is_empty())
    }

    /// How many examples a pass takes, unless the caller says it.
    pub(super) fn usual_microbatch(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
    ) -> Result<usize, ModuleError> {
        let (losses, uses) = tape::record(|| self.losses(loss, examples));
        losses.map(|_| microbatch::usual(&uses))
    }

    /// The losses as numbers.
    pub(super) fn values(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
    ) -> Result<Vec<f32>, ModuleError> {
        Ok(numbers(self.losses(loss, examples)?.inner()))
    }

    /// A taped pass.
    fn pass(
        &self,
        loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
        examples: &[u32],
    ) -> Result<Pass, ModuleError> {
        let (losses, uses) = tape::record(|| self.losses(loss, examples));
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
        let values = numbers(losses.clone().inner());
        let mut gradients = backward(losses)?;
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
        let n = examples.len();
        let (parts, outer) = self.pass(loss, examples)?.split();
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
            if self.add_values(values, counts, sum)? {
                continue;
            }
            factors[group.clone()].fill(0.0);
            let alone =
                |example: &[u32], sum: &mut ClippedSum| self.add_by_taps(loss, example, sum);
            add_alone(&examples[group], alone, sum)?;
        }
        // Such a product is no longer than the clip norm, so no sum of them overflows.
        let range = |id| self.layout.range(id).expect("uses of other parameters are refused");
        for seen in outer {
            seen.add_outer_products(&factors, range, sum.parts_mut().0);
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
            // Dropout and the like draw the same twice, and something else the next time.
            let seed = SEED.fetch_add(1, Ordering::Relaxed);
            let reset = || self.module.devices().iter().for_each(|device| device.seed(seed));
            reset();
            let pass = self.pass(loss, examples)?;
            let all = 0..examples.len();
            let (scales, _) = self.scales(&pass.parts, &Norms::default(), all, sum.clip_norm());
            let mut counts = ClipCounts::default();
            count(&mut counts, &scales);
            reset();
            let losses = self.losses(loss, examples)?;
            // Bit by bit: what is not a number is not equal to itself.
            let bits =
                |losses: &[f32]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
            if bits(&numbers(losses.clone().inner())) != bits(&pass.losses) {
                let reason = "something in it is random, or depends on what came before; two passes need a module that gives \
                              the same twice, so take taps or one by one";
                return Err(ModuleError::Random { reason: reason.to_owned() });
            }
            // The factor of a bad example is zero, but zero times what is not finite is not.
            let losses = losses.mask_fill(scales.bad.clone().autodiff(), 0.0);
            let gradients = backward(losses * scales.factor.clone().autodiff())?;
            let values = self.layout.by_parameter(self.module, &gradients);
            if self.add_values(values, counts, sum)? {
                continue;
            }
            let alone =
                |example: &[u32], sum: &mut ClippedSum| self.add_by_two_passes(loss, example, sum);
            add_alone(examples, alone, sum)?;
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
    fn scales(
        &self,
        parts: &[Part],
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
        let squared = total.squared.expect("losses that depend on parameters have taps");
        let squared = rounded_up(squared, 2 * (2 + total.terms));
        (Scales::new(squared, self.layout.dim(), clip_norm), left)
    }
}

impl Pass {
    /// What is added up in blocks, and linear layers at one position, which host memory knows a faster way for.
    fn split(self) -> (Vec<Part>, Vec<Seen>) {
        let (mut parts, mut outer) = (Vec::new(), Vec::new());
        for part in self.parts {
            match part {
                Part::One(seen) if seen.is_outer_product() && seen.is_on_host() => {
                    outer.push(*seen)
                }
                part => parts.push(part),
            }
        }
        (parts, outer)
    }
}

/// Squared norms of examples, added up over parameters.
#[derive(Default)]
struct Norms {
    squared: Option<Tensor<1>>,
    terms: usize,
}

impl Norms {
    /// Those of layers that know them without rows.
    fn of(uses: &[Seen]) -> Self {
        let mut norms = Self::default();
        uses.iter().filter_map(Seen::squared_norms).for_each(|more| norms.add(more));
        norms
    }

    fn of_block(&self, block: Range<usize>) -> Self {
        let squared = self.squared.as_ref().map(|squared| squared.clone().slice([block]));
        Self { squared, terms: self.terms }
    }

    fn add(&mut self, norms: Tensor<1>) {
        self.terms += 1;
        self.squared = Some(match self.squared.take() {
            Some(sum) => sum + norms,
            None => norms,
        });
    }
}

impl Part {
    /// Whether an example's part of a sum is made of products that may be larger than itself.
    fn cancels(&self) -> bool {
        match self {
            Self::One(seen) => seen.cancels(),
            Self::Several(_) => false,
        }
    }

    /// Squared norms of examples, to be added up, and what is left for their sum.
    fn norms(&self, block: Range<usize>) -> (Vec<Tensor<1>>, Left) {
        let rows = match self {
            Self::One(seen) => {
                let seen = seen.of(block);
                if let Some(norms) = seen.squared_norms() {
                    return (vec![norms], Left::Seen(Box::new(seen)));
                }
                seen.rows()
            }
            // The norm of a sum is not to be had from the norms of its terms.
            Self::Several(uses) => {
                // In the order of their first uses: norms are added up in it, and runs repeat bit by bit.
                let mut rows: OfParameters<2> = Vec::new();
                for (id, more) in uses.iter().flat_map(|seen| seen.of(block.clone()).rows()) {
                    match rows.iter_mut().find(|(known, _)| *known == id) {
                        Some((_, sum)) => *sum = sum.clone() + more,
                        None => rows.push((id, more)),
                    }
                }
                rows
            }
        };
        (rows.iter().map(|(_, rows)| sum_of_squares(rows.clone())).collect(), Left::Rows(rows))
    }
}

impl Left {
    fn sum(self, scales: &Scales) -> OfParameters<1> {
        match self {
            Self::Rows(rows) => rows.into_iter().map(|(id, rows)| (id, scales.sum(rows))).collect(),
            Self::Seen(seen) => seen.sum(scales),
        }
    }
}

/// Uses by the parameters that they share. Uses of one layer become one with the positions of all.
fn parts(uses: Vec<Seen>) -> Vec<Part> {
    let mut groups: Vec<Vec<Seen>> = Vec::new();
    for seen in uses {
        let ids = seen.parameters();
        let shares = |group: &Vec<Seen>| {
            group.iter().any(|other| other.parameters().iter().any(|id| ids.contains(id)))
        };
        let (mut same, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(shares);
        groups = others;
        let mut group: Vec<Seen> = same.drain(..).flatten().collect();
        group.push(seen);
        groups.push(group);
    }
    groups
        .into_iter()
        .map(|mut uses| {
            if uses.len() == 1 {
                return Part::One(Box::new(uses.remove(0)));
            }
            match Seen::joined(&uses) {
                Some(one) => Part::One(Box::new(one)),
                None => Part::Several(uses),
            }
        })
        .collect()
}

/// Adds the examples of a group whose sum is not finite in spite of clipping, each alone but in the same way: what an example
/// contributes depends on that example alone, and none can end the run. By another way the others would contribute something
/// else, as their norms are rounded otherwise there, or only here too large for f32. One that is not finite alone
/// contributes nothing.
fn add_alone(
    examples: &[u32],
    mut add: impl FnMut(&[u32], &mut ClippedSum) -> Result<(), ModuleError>,
    sum: &mut ClippedSum,
) -> Result<(), ModuleError> {
    if let [_] = examples {
        sum.check_room(sum.dim(), 1)?;
        sum.parts_mut().1.add(ClipCounts { examples: 1, clipped: 0, non_finite: 1 });
        return Ok(());
    }
    examples.chunks(1).try_for_each(|example| add(example, sum))
}

fn backward(losses: Tensor<1>) -> Result<Gradients, ModuleError> {
    let sum = losses.sum();
    if !sum.is_tracked() {
        return Err(ModuleError::Constant);
    }
    Ok(sum.backward())
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
