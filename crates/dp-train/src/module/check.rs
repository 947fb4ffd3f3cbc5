//! A module is compared with the definition before its first step.

use burn::module::{Flag, Module, ModuleMapper, Param};
use burn::tensor::Tensor;

use super::draws::Seeds;
use super::error::ModuleError;
use super::layout::Layout;
use super::per_example::{Gradient, PerExample, bits};
use crate::gradient::ClippedSum;
use crate::seeds::Draws;
use crate::training::TrainingError;

/// Examples that are compared.
const EXAMPLES: usize = 4;

/// The numbers of the examples that are compared: from all over the data, and not in their order, as a batch has them.
pub(super) fn compared(examples: usize) -> Vec<u32> {
    let n = examples as u32;
    let mut compared = Vec::with_capacity(EXAMPLES);
    for example in [n.saturating_sub(1), 0, (u64::from(n) * 2 / 3) as u32, n / 3] {
        if example < n && !compared.contains(&example) {
            compared.push(example);
        }
    }
    compared
}

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
    let found = compare(module, layout, way, loss, examples);
    // Nobody is to know what is drawn after the check.
    let gradient = over(module, layout)?;
    gradient.draw_from(gradient.seeds.next());
    found
}

fn compare<M: Module>(
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
    let gradient = over(&quiet, layout)?;
    check_losses(&gradient, loss, examples)?;
    let microbatch = gradient.usual_microbatch(loss, examples);
    let sizes = norms(&gradient, loss, examples)?;
    let way = match (way, check_sums(&gradient, way, loss, examples, &sizes)) {
        (PerExample::Auto, Ok(())) => PerExample::Taps,
        (PerExample::Auto, Err(ModuleError::NotTapped { .. } | ModuleError::Rows { .. })) => {
            PerExample::OneByOne
        }
        (way, result) => result.map(|()| way)?,
    };
    // Gradients of another module's parameters are zero in every way but by taps.
    if !gradient.reaches(loss, examples)? {
        return Err(ModuleError::Constant);
    }
    // Behind weights that begin with zeros (a head, an adapter) nothing is seen at first.
    let values = shaken(layout.values(module));
    let shaken = layout.with_values(module.clone(), &values);
    let quiet_shaken = layout.with_values(quiet.clone(), &values);
    let elsewhere = over(&quiet_shaken, layout)?;
    check_losses(&elsewhere, loss, examples)?;
    let sizes = norms(&elsewhere, loss, examples)?;
    if sizes.iter().all(|&size| size < COMPARABLE) {
        check_sums(&elsewhere, way, loss, examples, &sizes)?;
    }
    for module in [module, &shaken] {
        check_training(&over(module, layout)?, way, loss, examples)?;
    }
    let all = [module, &quiet, &shaken, &quiet_shaken];
    if all.iter().any(|module| Layout::frozen(*module) != frozen) {
        return Err(ModuleError::State);
    }
    Ok(Checked { way, microbatch })
}

fn over<'a, M: Module>(module: &'a M, layout: &'a Layout) -> Result<Gradient<'a, M>, ModuleError> {
    let seeds = Seeds::of(Draws::from_os().map_err(TrainingError::from)?);
    Ok(Gradient { module, layout, microbatch: EXAMPLES, seeds })
}

/// Each value moved by up to 0.1, the same every time.
fn shaken(mut values: Vec<f32>) -> Vec<f32> {
    for (i, value) in values.iter_mut().enumerate() {
        let mixed = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        *value += ((mixed >> 40) as f32 / (1 << 23) as f32 - 1.0) * 0.1;
    }
    values
}

/// What sums of squares in f32 have room for: beyond, ways differ in what they take for infinite.
const COMPARABLE: f64 = 1e15;

/// Passes that are tried until two draw the same: others may draw from the same generator.
const TRIES: usize = 20;

/// That no loss depends on another example while the flags are on that [`Quiet`] switches off. What is drawn at random is drawn for
/// as many examples, from the same seed: so nothing changes where one of the others is exchanged.
fn check_training<M: Module>(
    gradient: &Gradient<'_, M>,
    way: PerExample,
    loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
    examples: &[u32],
) -> Result<(), ModuleError> {
    if !gradient.layout.draws() {
        return Ok(());
    }
    let last = examples.len() - 1;
    let exchanged = |place: usize, by: usize| {
        let mut exchanged = examples.to_vec();
        exchanged[place] = examples[by];
        exchanged
    };
    for _ in 0..TRIES {
        let seed = gradient.seeds.next();
        let mut drawn = |examples: &[u32]| -> Result<Option<Vec<f32>>, ModuleError> {
            let mut once = || {
                gradient.draw_from(seed);
                gradient.values(loss, examples)
            };
            let (first, second) = (once()?, once()?);
            let same = first.iter().zip(&second).all(|(a, b)| bits(*a) == bits(*b));
            Ok(same.then_some(first))
        };
        let found = drawn(examples)?;
        let others = [(0, drawn(&exchanged(0, last))?), (last, drawn(&exchanged(last, 0))?)];
        let (Some(found), [(first, Some(a)), (second, Some(b))]) = (found, others) else {
            continue;
        };
        for (place, other) in [(first, a), (second, b)] {
            if let Some(kept) = first_difference(&found, &other, |kept| kept != place) {
                let (example, found, other) = (examples[kept], found[kept], other[kept]);
                return Err(ModuleError::MixedInTraining { example, found, other });
            }
        }
        if way == PerExample::OneByOne {
            return Ok(());
        }
        return match gradient.stray(loss, examples)? {
            Some((example, other)) => Err(ModuleError::Stray { example, other }),
            None => Ok(()),
        };
    }
    // One example at a time mixes with none.
    match way {
        PerExample::OneByOne => Ok(()),
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
    if first_difference(&beside, &gradient.values(loss, examples)?, |_| true).is_some() {
        let reason = "something in it is random that burn's layers do not know of; what the closure draws itself, say to augment \
                      its examples, must be the same for an example in every call of a step: draw it from a generator \
                      seeded by the example's number and the step";
        return Err(ModuleError::Random { reason: reason.to_owned() });
    }
    let mut alone = Vec::with_capacity(examples.len());
    for &example in examples {
        alone.extend(gradient.values(loss, &[example])?);
    }
    match first_difference(&alone, &beside, |_| true) {
        Some(i) => {
            Err(ModuleError::Mixed { example: examples[i], alone: alone[i], beside: beside[i] })
        }
        None => Ok(()),
    }
}

/// The first place, of those that count, where losses differ by more than rounding.
fn first_difference(a: &[f32], b: &[f32], counts: impl Fn(usize) -> bool) -> Option<usize> {
    // A loss near zero may be the difference of numbers of the size of the others.
    let finite =
        a.iter().chain(b).map(|loss| f64::from(loss.abs())).filter(|loss| loss.is_finite());
    let largest = finite.fold(0.0, f64::max);
    (0..a.len()).find(|&i| {
        let (a, b) = (f64::from(a[i]), f64::from(b[i]));
        let allowed = TOLERANCE * a.abs().max(b.abs()) + 1e-5 * largest;
        // Losses that are not finite are those of examples that contribute nothing.
        let differs = a.is_finite() != b.is_finite() || a.is_finite() && (a - b).abs() > allowed;
        counts(i) && differs
    })
}

/// That clipped sums are those of one-by-one gradients, where all examples are clipped and where none is.
fn check_sums<M: Module>(
    gradient: &Gradient<'_, M>,
    way: PerExample,
    loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
    examples: &[u32],
    norms: &[f64],
) -> Result<(), ModuleError> {
    let dim = gradient.layout.dim();
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
    Ok(())
}

/// The norms of single gradients.
fn norms<M: Module>(
    gradient: &Gradient<'_, M>,
    loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
    examples: &[u32],
) -> Result<Vec<f64>, ModuleError> {
    let norm = |example: &u32| {
        let mut one = ClippedSum::new(gradient.layout.dim(), 1e30)?;
        gradient.add_one_by_one(loss, &[*example], &mut one)?;
        Ok(length(&one.into_values()))
    };
    examples.iter().map(norm).collect()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}
