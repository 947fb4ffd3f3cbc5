//! A private run of a burn module.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use burn::module::Module;
use burn::tensor::Tensor;

use super::check::{self, check};
use super::draws::Seeds;
use super::error::ModuleError;
use super::layout::Layout;
use super::per_example::{Gradient, PerExample};
use super::settings;
use crate::certificate::{Certificate, Disclosure};
use crate::fingerprint::Fingerprint;
use crate::gradient::ClipCounts;
use crate::parting::Parting;
use crate::plan::DpPlan;
use crate::seal::Seal;
use crate::seeds::{NoiseKey, RunSeed};
use crate::training::Training;
use crate::training::checkpoint::ResumeError;

/// A private run of a plan with a module of burn: [`Training`], whose gradients are the module's.
///
/// # Guarantees
/// Those of [`Training`], for losses of which each depends on its own example and on the module alone. That is checked on
/// the first examples before the first step, and in every pass it is checked that taps reach all that is
/// trained; what a closure does on purpose with other examples no check can exclude.
#[derive(Debug)]
pub struct PrivateTraining<M: Module> {
    module: M,
    layout: Layout,
    frozen: Fingerprint,
    training: Training,
    way: PerExample,
    /// None before a caller or the check says it.
    microbatch: Option<usize>,
    checked: bool,
    /// Whether a step or a checkpoint has fixed way and microbatch: both decide how sums are rounded.
    settled: AtomicBool,
    /// What was to change after that: its name, what it is and what it was to be.
    refused: Option<(&'static str, String, String)>,
}

impl<M: Module> PrivateTraining<M> {
    /// A run before its first step. All parameters of the module that require gradients are trained; the plan's dimension is
    /// their [number](super::trained_parameters).
    ///
    /// # Errors
    /// [`ModuleError`] if the module cannot be trained privately, and what [`Training::new`] says.
    pub fn new(
        module: M,
        plan: DpPlan,
        examples: u32,
        learning_rate: f32,
        seed: RunSeed,
        key: NoiseKey,
    ) -> Result<Self, ModuleError> {
        let module = module.train();
        let layout = Layout::of(&module)?;
        settings::check_products(&module)?;
        let values = layout.values(&module);
        let training = Training::new(plan, values, examples, learning_rate, seed, key)?;
        // Tensors of its own: a copy that the caller kept is another module from the first step on.
        let module = layout.with_values(module, training.parameters());
        Ok(Self::over(module, layout, training, (PerExample::Auto, None)))
    }

    /// The run that [`save`](Self::save) wrote, and the note. The module is one made as the first was; its trained parameters are
    /// replaced. The [way](Self::gradients) and the [microbatch](Self::microbatch) are those that were saved; the setters need
    /// not be called again, and others are refused.
    ///
    /// # Errors
    /// [`ModuleError::Resume`] if the checkpoint is damaged or belongs to another module, plan, seed, rate or data set.
    pub fn resume(
        module: M,
        plan: DpPlan,
        examples: u32,
        learning_rate: f32,
        seed: RunSeed,
        seal: Seal,
        reader: impl Read,
    ) -> Result<(Self, Vec<u8>), ModuleError> {
        let module = module.train();
        let layout = Layout::of(&module)?;
        settings::check_products(&module)?;
        let seal = sealed(seal, &layout, Layout::frozen(&module), &module);
        let (training, note) = Training::load(plan, examples, learning_rate, seed, &seal, reader)?;
        let (manner, note) = read_manner(&note)?;
        let module = layout.with_values(module, training.parameters());
        let mut resumed = Self::over(module, layout, training, manner);
        resumed.settled = AtomicBool::new(true);
        Ok((resumed, note.to_vec()))
    }

    fn over(module: M, layout: Layout, training: Training, (way, microbatch): Manner) -> Self {
        let frozen = Layout::frozen(&module);
        let settled = AtomicBool::new(false);
        let (checked, refused) = (false, None);
        Self { module, layout, frozen, training, way, microbatch, checked, settled, refused }
    }

    /// How the contributions of single examples are to be found, in place of [`PerExample::Auto`]. To be said before the first
    /// step and the first [`save`](Self::save): after them another way is an error of the next step, as its sums are rounded otherwise.
    pub fn gradients(mut self, way: PerExample) -> Self {
        if !self.settled() {
            (self.way, self.checked) = (way, false);
        } else if way != self.way && way != PerExample::Auto {
            self.refuse("the way to gradients", format!("{:?}", self.way), format!("{way:?}"));
        }
        self
    }

    /// Examples in a forward pass: memory against time. 128 unless told, and up to 1024 for small ones. To be said when the [way](Self::gradients) is.
    pub fn microbatch(mut self, examples: usize) -> Self {
        let (was, now) = (self.microbatch, examples.max(1));
        if !self.settled() {
            self.microbatch = Some(now);
        } else if was != Some(now) {
            let was = was.map_or("the usual one".to_owned(), |was| was.to_string());
            self.refuse("the microbatch", was, now.to_string());
        }
        self
    }

    fn settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    fn refuse(&mut self, what: &'static str, was: String, now: String) {
        self.refused.get_or_insert((what, was, now));
    }

    /// Compares the module with one-by-one automatic differentiation on four examples, from all over the data: losses alone and beside
    /// others, clipped sums, and that no state changes; once with the parameters as they are, once with each moved by up to 0.1, as
    /// nothing is seen behind weights that begin with zeros. Dropout is switched off for it; with it on, losses are compared where one of
    /// the other examples is exchanged, and no loss's gradient may go through another example. The first step does so by itself if it was
    /// not done.
    ///
    /// That it passes or not depends on these examples, and is covered by no guarantee, like any error of a program that looks at
    /// data.
    ///
    /// # Errors
    /// [`ModuleError`] with what is wrong.
    pub fn check(
        &mut self,
        mut loss: impl FnMut(&M, &[u32]) -> Tensor<1>,
    ) -> Result<(), ModuleError> {
        if let Some((what, was, now)) = self.refused.clone() {
            return Err(ModuleError::Settled { what, was, now });
        }
        let examples = check::compared(self.training.ledger().realized().examples);
        let found = check(&self.module, &self.layout, self.way, &mut loss, &examples)?;
        (self.way, self.checked) = (found.way, true);
        self.microbatch.get_or_insert(found.microbatch);
        Ok(())
    }

    /// Takes one step. `loss` is called with the module and the numbers of some examples of the batch, and returns one loss for each, in
    /// their order; it is called for every microbatch.
    ///
    /// # Errors
    /// [`ModuleError`]. The run has ended then, unless the module did not pass its [check](Self::check).
    pub fn step(
        &mut self,
        mut loss: impl FnMut(&M, &[u32]) -> Tensor<1>,
    ) -> Result<ClipCounts, ModuleError> {
        if !self.checked || self.refused.is_some() {
            self.check(&mut loss)?;
        }
        self.settled.store(true, Ordering::Relaxed);
        let Self { module, layout, frozen, training, way, microbatch, .. } = self;
        let seeds = Seeds::of(training.draws());
        let microbatch = microbatch.expect("the check found one");
        let gradient = Gradient { module: &*module, layout, microbatch, seeds };
        let parting = Parting::of(training.plan().request());
        let is_last = training.steps_taken() + 1 == training.plan().request().steps;
        let counts = training.step(|_, batch, sum| -> Result<(), ModuleError> {
            for part in parting.parts(batch)? {
                gradient.add(*way, &mut loss, &part, sum)?;
            }
            // Before the release, and not in every step: a frozen base may be large.
            if is_last && Layout::frozen(&*module) != *frozen {
                return Err(ModuleError::State);
            }
            Ok(())
        })?;
        self.module = layout.with_values(module.clone(), training.parameters());
        Ok(counts)
    }

    /// The module after the last step.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// The run.
    pub fn training(&self) -> &Training {
        &self.training
    }

    /// How the contributions of single examples are found; [`PerExample::Auto`] before the [check](Self::check).
    pub fn way(&self) -> PerExample {
        self.way
    }

    /// Whether all steps of the plan are taken.
    pub fn is_finished(&self) -> bool {
        self.training.is_finished()
    }

    /// Writes the state, the way and the microbatch, to be continued bit by bit by [`resume`](Self::resume). The seal binds what the gradients depend on
    /// besides the module: the data, and whatever the closure does.
    ///
    /// # Errors
    /// Those of the writer, and [`ModuleError::State`] in one if a state of the module has changed since the run began.
    pub fn save(&self, writer: impl Write, seal: Seal, note: &[u8]) -> io::Result<()> {
        if Layout::frozen(&self.module) != self.frozen {
            return Err(io::Error::other(ModuleError::State));
        }
        self.settled.store(true, Ordering::Relaxed);
        let note = [&manner(self.way, self.microbatch)[..], note].concat();
        self.training.save(writer, &sealed(seal, &self.layout, self.frozen, &self.module), &note)
    }

    /// The module, and the certificate of the run, finished or not, with hashes of the names and shapes of what was trained, of its
    /// values, and of what was left as it was. That it was is compared in the last step and in every [`save`](Self::save): of a run that
    /// ends before its last step, save one.
    pub fn finish(self, disclosure: Disclosure) -> (M, Certificate) {
        let mut disclosure = disclosure;
        disclosure.artifacts.module_sha256 = Some(self.layout.fingerprint());
        disclosure.artifacts.frozen_sha256 = Layout::told(self.frozen);
        let bytes = self.training.parameters().iter().flat_map(|value| value.to_le_bytes());
        let bytes: Vec<u8> = bytes.collect();
        let parameters = &mut disclosure.artifacts.parameters_sha256;
        parameters.get_or_insert_with(|| Fingerprint::of_bytes(&bytes));
        let certificate = Certificate::of(&self.training, disclosure);
        (self.module, certificate)
    }
}

const WAYS: [PerExample; 4] =
    [PerExample::Auto, PerExample::Taps, PerExample::TwoPasses, PerExample::OneByOne];

/// Bytes of [`manner`].
const MANNER: usize = 9;

/// A way to gradients and the examples of a pass, if they are known.
type Manner = (PerExample, Option<usize>);

/// How gradients are found, as it stands before the note of a checkpoint.
fn manner(way: PerExample, microbatch: Option<usize>) -> [u8; MANNER] {
    let mut bytes = [0; MANNER];
    bytes[0] = WAYS.iter().position(|&known| known == way).expect("all are there") as u8;
    bytes[1..].copy_from_slice(&(microbatch.unwrap_or(0) as u64).to_le_bytes());
    bytes
}

/// What [`manner`] wrote, and what follows.
fn read_manner(bytes: &[u8]) -> Result<(Manner, &[u8]), ResumeError> {
    let (manner, note) = bytes.split_first_chunk::<MANNER>().ok_or(ResumeError::Checksum)?;
    let way = *WAYS.get(usize::from(manner[0])).ok_or(ResumeError::Checksum)?;
    let microbatch = u64::from_le_bytes(manner[1..].try_into().expect("eight bytes"));
    let microbatch = usize::try_from(microbatch).map_err(|_| ResumeError::Checksum)?;
    Ok(((way, Some(microbatch).filter(|&examples| examples > 0)), note))
}

/// The seal with what belongs to the module.
fn sealed<M: Module>(mut seal: Seal, layout: &Layout, frozen: Fingerprint, module: &M) -> Seal {
    seal.bind("module.parameters", layout.fingerprint().to_string());
    seal.bind("module.frozen", frozen.to_string());
    seal.bind("module.settings", settings::fingerprint(module).to_string());
    seal.bind("module.arithmetic", settings::arithmetic(module));
    // The way and the microbatch stand in the note since 2, and seeds of draws come from the key since 3.
    seal.bind("module.checkpoint", "3");
    seal.bind("module.program", concat!("dp-train ", env!("CARGO_PKG_VERSION")));
    seal
}
