//! A module is compared with the definition before its first step.

use std::sync::atomic::Ordering;

use burn::module::{Flag, Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;

use super::error::ModuleError;
use super::layout::Layout;
use super::per_example::{Gradient, PerExample, SEED};
use crate::gradient::ClippedSum;

/// Examples that are compared.
pub(super) const EXAMPLES: usize = 4;

/// What f32 may differ by, of what is summed. Influence of one example on another that is smaller passes: beside few it does not matter
/// beside the noise, but no check of four examples bounds what it adds up to in a large batch.
const TOLERANCE: f64 = 1e-3;

/// Switches dropout and the like off, so that two passes can be compared.
struct Quiet;

impl ModuleMapper for Quiet {
    fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
        flag.with_value(false)
    }
}

/// Whether there is such a switch, and it is on.
#[derive(Default)]
struct Noisy(bool);

impl ModuleVisitor for Noisy {
    fn visit_flag(&mut self, flag: &Param<Flag>) {
        self.0 |= flag.is_enabled();
    }
}

/// What a module was found to be good for.
pub(super) struct Checked {
    /// The way that holds.
    pub(super) way: PerExample,
    /// Examples in a forward pass, unless the caller says it.
    pub(super) microbatch: usize,
}

/// Compares losses and clipped sums of a few examples with those of each alone, and says which way holds.
///
/// # Errors
/// [`ModuleError`] with what is wrong: losses that are not one per example, examples that have influence on others, taps that
/// do not reach a parameter, a state that changes.
pub(super) fn check<M: Module>(
    module: &M,
    layout: &Layout,
    way: PerExample,
    loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
    examples: &[u32],
) -> Result<Checked, ModuleError> {
    if examples.len() < 2 {
        return Err(ModuleError::TooFew { found: examples.len() });
    }
    let frozen = Layout::frozen(module);
    let quiet = module.clone().map(&mut Quiet);
    let gradient = Gradient { module: &quiet, layout, microbatch: EXAMPLES };
    check_losses(&gradient, loss, examples)?;
    let microbatch = gradient.usual_microbatch(loss, examples)?;
    let way = match (way, check_sums(&gradient, way, loss, examples)) {
        (PerExample::Auto, Ok(())) => PerExample::Taps,
        (PerExample::Auto, Err(ModuleError::NotTapped { .. } | ModuleError::Rows { .. })) => {
            PerExample::OneByOne
        }
        (way, result) => result.map(|()| way)?,
    };
    let gradient = Gradient { module, layout, microbatch: EXAMPLES };
    let way = check_training(&gradient, way, loss, examples)?;
    if Layout::frozen(module) != frozen || Layout::frozen(&quiet) != frozen {
        return Err(ModuleError::State);
    }
    Ok(Checked { way, microbatch })
}

/// Passes that are tried until two draw the same: others may draw from the same generator.
const TRIES: usize = 20;

/// That no loss depends on another example while the flags are on that [`Quiet`] switches off. What is drawn at random is drawn for
/// as many examples, from the same seed: so nothing changes where one of the others is exchanged.
fn check_training<M: Module>(
    gradient: &Gradient<'_, M>,
    way: PerExample,
    loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
    examples: &[u32],
) -> Result<PerExample, ModuleError> {
    let mut noisy = Noisy::default();
    gradient.module.visit(&mut noisy);
    if !noisy.0 {
        return Ok(way);
    }
    let mut exchanged = examples.to_vec();
    let last = exchanged.len() - 1;
    exchanged[last] = exchanged[0];
    for _ in 0..TRIES {
        let seed = SEED.fetch_add(1, Ordering::Relaxed);
        let mut seeded = |examples: &[u32]| {
            gradient.module.devices().iter().for_each(|device| device.seed(seed));
            gradient.values(loss, examples)
        };
        let (found, other, again) = (seeded(examples)?, seeded(&exchanged)?, seeded(examples)?);
        let bits = |losses: &[f32]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
        if bits(&found) != bits(&again) {
            continue;
        }
        let mut kept = examples.iter().zip(found.iter().zip(&other)).take(last);
        return match kept.find(|(_, (found, other))| differ(**found, **other)) {
            Some((&example, (&found, &other))) => {
                Err(ModuleError::MixedInTraining { example, found, other })
            }
            None => Ok(way),
        };
    }
    // One example at a time mixes with none.
    match way {
        PerExample::OneByOne => Ok(way),
        _ => {
            let reason = "something in it draws at random in training, from no generator of burn; draw from one of burn's, \
                          or let examples go one by one (PerExample::OneByOne)";
            Err(ModuleError::Random { reason: reason.to_owned() })
        }
    }
}

/// That every example's loss is the same alone, beside others, and a second time.
fn check_losses<M: Module>(
    gradient: &Gradient<'_, M>,
    loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
    examples: &[u32],
) -> Result<(), ModuleError> {
    let beside = gradient.values(loss, examples)?;
    if gradient.values(loss, examples)?.iter().zip(&beside).any(|(a, b)| differ(*a, *b)) {
        let reason = "something in it is random that burn's layers do not know of; what the closure draws itself, say to augment \
                      its examples, must be the same for an example in every call of a step: draw it from a generator \
                      seeded by the example's number and the step";
        return Err(ModuleError::Random { reason: reason.to_owned() });
    }
    for (&example, &beside) in examples.iter().zip(&beside) {
        let alone = gradient.values(loss, &[example])?[0];
        if differ(alone, beside) {
            return Err(ModuleError::Mixed { example, alone, beside });
        }
    }
    Ok(())
}

fn differ(a: f32, b: f32) -> bool {
    let (a, b) = (f64::from(a), f64::from(b));
    // Losses that are not finite are those of examples that contribute nothing.
    a.is_finite() != b.is_finite()
        || a.is_finite() && (a - b).abs() > TOLERANCE * a.abs().max(b.abs()) + 1e-5
}

/// That clipped sums are those of one-by-one gradients, where all examples are clipped and where none is.
fn check_sums<M: Module>(
    gradient: &Gradient<'_, M>,
    way: PerExample,
    loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
    examples: &[u32],
) -> Result<(), ModuleError> {
    let dim = gradient.layout.dim();
    let mut norms = Vec::new();
    for &example in examples {
        let mut one = ClippedSum::new(dim, 1e30)?;
        gradient.add_one_by_one(loss, &[example], &mut one)?;
        norms.push(length(&one.into_values()));
    }
    let least = norms.iter().copied().filter(|&norm| norm > 0.0).fold(f64::INFINITY, f64::min);
    let most = norms.iter().copied().fold(0.0, f64::max);
    for (what, clip_norm) in [("a clipped sum", least / 2.0), ("a sum", 2.0 * most)] {
        // Without a gradient there is nothing to clip, but the passes say whether taps reach everything.
        let usable = clip_norm.is_finite() && clip_norm > 0.0;
        let clip_norm = if usable { clip_norm.clamp(1e-30, 1e30) } else { 1.0 };
        let (mut found, mut expected) =
            (ClippedSum::new(dim, clip_norm)?, ClippedSum::new(dim, clip_norm)?);
        gradient.add(way, loss, examples, &mut found)?;
        gradient.add_one_by_one(loss, examples, &mut expected)?;
        let (found, expected) = (found.into_values(), expected.into_values());
        let difference: Vec<f64> = found.iter().zip(&expected).map(|(a, b)| a - b).collect();
        let size: f64 = norms.iter().map(|norm| norm.min(clip_norm)).sum();
        if length(&difference) > TOLERANCE * size {
            let (found, expected) = (length(&found), length(&expected));
            return Err(ModuleError::Disagrees { what: what.to_owned(), found, expected });
        }
    }
    // Gradients of another module's parameters are zero in every way but by taps.
    if gradient.reaches(loss, examples)? { Ok(()) } else { Err(ModuleError::Constant) }
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}
