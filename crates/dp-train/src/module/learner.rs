//! The steps of a plan for burn's `Learner`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};

use super::check::{self, check};
use super::draws::Seeds;
use super::error::ModuleError;
use super::layout::Layout;
use super::per_example::{Gradient, PerExample};
use super::settings;
use crate::certificate::{Certificate, Disclosure};
use crate::fingerprint::Fingerprint;
use crate::gradient::PrivateGradient;
use crate::parting::Parting;
use crate::plan::DpPlan;
use crate::seeds::{NoiseKey, RunSeed};
use crate::training::Training;

/// The steps of a private run whose loop, optimizer and metrics are those of burn's `Learner`.
///
/// The [loader](Self::loader) decides the batches, as the plan has them; a [`PrivateBatch`] gives the private gradients of its step, once.
/// An optimizer is post-processing, so any may follow; only SGD with the plan's momentum and decay has the error that the plan was
/// made for.
///
/// Training metrics of a `Learner` are computed from examples without noise: they are not private, and neither are its logs and
/// dashboards. Gradients may not be accumulated, and there is one device: every step has its own noise.
///
/// There is no saving and resuming here: a `Learner`'s checkpoint has its module and optimizer, but not the noise. A run that was cut
/// off is begun anew, and what it had released until then is spent besides; for runs that go on there is
/// [`PrivateTraining`](super::PrivateTraining).
#[derive(Debug, Clone)]
pub struct PrivateSteps {
    steps: Arc<Mutex<Steps>>,
}

#[derive(Debug)]
struct Steps {
    training: Training,
    layout: Layout,
    frozen: Fingerprint,
    way: PerExample,
    checked: bool,
    microbatch: Option<usize>,
}

impl PrivateSteps {
    /// The steps of a plan for a module, before the first.
    ///
    /// # Errors
    /// As [`PrivateTraining::new`](super::PrivateTraining::new).
    pub fn new<M: Module>(
        module: &M,
        plan: DpPlan,
        examples: u32,
        seed: RunSeed,
        key: NoiseKey,
    ) -> Result<Self, ModuleError> {
        let module = module.clone().train();
        let layout = Layout::of(&module)?;
        refuse_copies(&module, &layout)?;
        settings::check_products(&module)?;
        // The rate is the learner's.
        let training = Training::new(plan, layout.values(&module), examples, 1.0, seed, key)?;
        let (way, microbatch) = (PerExample::Auto, None);
        let frozen = Layout::frozen(&module);
        let steps = Steps { training, layout, frozen, way, checked: false, microbatch };
        Ok(Self { steps: Arc::new(Mutex::new(steps)) })
    }

    /// How the contributions of single examples are to be found, in place of [`PerExample::Auto`].
    pub fn gradients(self, way: PerExample) -> Self {
        let mut steps = self.lock();
        (steps.way, steps.checked) = (way, false);
        drop(steps);
        self
    }

    /// Examples in a forward pass: memory against time. 128 unless told, and up to 1024 for small ones.
    pub fn microbatch(self, examples: usize) -> Self {
        self.lock().microbatch = Some(examples.max(1));
        self
    }

    /// How the contributions of single examples are found; [`PerExample::Auto`] before the first step.
    pub fn way(&self) -> PerExample {
        self.lock().way
    }

    /// The batches of one epoch after the other, for a `Learner` of as many epochs as the plan has.
    pub fn loader(&self) -> Arc<dyn DataLoader<PrivateBatch>> {
        Arc::new(self.clone())
    }

    /// The certificate of the steps so far.
    pub fn certificate(&self, mut disclosure: Disclosure) -> Certificate {
        let steps = self.lock();
        disclosure.artifacts.module_sha256 = Some(steps.layout.fingerprint());
        disclosure.artifacts.frozen_sha256 = Layout::told(steps.frozen);
        Certificate::of(&steps.training, disclosure)
    }

    fn lock(&self) -> MutexGuard<'_, Steps> {
        lock(&self.steps)
    }
}

/// A closure that panicked left a run that takes no further step.
fn lock(steps: &Mutex<Steps>) -> MutexGuard<'_, Steps> {
    steps.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DataLoader<PrivateBatch> for PrivateSteps {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<PrivateBatch> + 'a> {
        let steps = self.lock();
        let (begin, all) = (steps.training.steps_taken(), steps.training.plan().request().steps);
        let end = (begin + steps.training.cycle()).min(all);
        Box::new(Epoch { steps: self.steps.clone(), begin, next: begin, end })
    }

    fn num_items(&self) -> usize {
        self.lock().training.cycle()
    }

    fn to_device(&self, _: &Device) -> Arc<dyn DataLoader<PrivateBatch>> {
        self.loader()
    }

    /// All of it: a part of a plan's batches is no plan.
    fn slice(&self, _: usize, _: usize) -> Arc<dyn DataLoader<PrivateBatch>> {
        self.loader()
    }
}

struct Epoch {
    steps: Arc<Mutex<Steps>>,
    begin: usize,
    next: usize,
    end: usize,
}

impl Iterator for Epoch {
    type Item = Result<PrivateBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let examples = lock(&self.steps).training.batch(self.next).to_vec();
        let batch = PrivateBatch { steps: self.steps.clone(), step: self.next, examples };
        self.next += 1;
        Some(Ok(batch))
    }
}

impl DataLoaderIterator<PrivateBatch> for Epoch {
    fn progress(&self) -> Progress {
        let (done, all) = (self.next - self.begin, self.end - self.begin);
        Progress::new(done, all, Some("steps".to_owned()))
    }
}

/// The batch of one step.
#[derive(Debug)]
pub struct PrivateBatch {
    steps: Arc<Mutex<Steps>>,
    step: usize,
    examples: Vec<u32>,
}

impl PrivateBatch {
    /// The numbers of its examples, say to compute a metric from; what is computed from them without noise is not private.
    pub fn examples(&self) -> &[u32] {
        &self.examples
    }

    /// The number of its step, from 0: with the number of an example what its augmentation is drawn from.
    pub fn step(&self) -> usize {
        self.step
    }

    /// The private gradients of the step: what a `TrainStep` returns. `loss` as in [`PrivateTraining::step`](super::PrivateTraining::step).
    ///
    /// # Errors
    /// [`ModuleError`]; the run has ended then. [`ModuleError::OtherStep`] if it is not this batch's turn, or it had it.
    pub fn gradients<M: Module>(
        &self,
        module: &M,
        mut loss: impl FnMut(&M, &[u32]) -> Tensor<1>,
    ) -> Result<GradientsParams, ModuleError> {
        let mut steps = lock(&self.steps);
        let Steps { training, layout, frozen, way, checked, microbatch } = &mut *steps;
        let next = training.steps_taken();
        if next != self.step {
            return Err(ModuleError::OtherStep { step: self.step, next });
        }
        if !*checked {
            let examples = check::compared(training.ledger().realized().examples);
            // The learner may have put it on another device.
            settings::check_products(module)?;
            let found = check(module, layout, *way, &mut loss, &examples)?;
            (*way, *checked) = (found.way, true);
            microbatch.get_or_insert(found.microbatch);
        }
        let microbatch = microbatch.expect("the check found one");
        let seeds = Seeds::of(training.draws());
        let gradient = Gradient { module, layout, microbatch, seeds };
        let parting = Parting::of(training.plan().request());
        let is_last = next + 1 == training.plan().request().steps;
        let (released, _) = training.release(|batch, sum| -> Result<(), ModuleError> {
            for part in parting.parts(batch)? {
                gradient.add(*way, &mut loss, &part, sum)?;
            }
            if is_last && Layout::frozen(module) != *frozen {
                return Err(ModuleError::State);
            }
            Ok(())
        })?;
        let mut gradients = GradientsParams::new();
        module.visit(&mut Register { released: &released, layout, gradients: &mut gradients });
        Ok(gradients)
    }
}

/// Splits a released vector by parameter.
struct Register<'a> {
    released: &'a PrivateGradient,
    layout: &'a Layout,
    gradients: &'a mut GradientsParams,
}

impl ModuleVisitor for Register<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let Some(range) = self.layout.range(parameter.id) else {
            return;
        };
        let value = parameter.base().inner();
        let data = TensorData::new(self.released.values()[range].to_vec(), value.dims());
        self.gradients.register(parameter.id, Tensor::<D>::from_data(data, &value.device()));
    }
}

/// That no frozen parameter has the number of one that is trained: by it an optimizer would find a gradient for both.
///
/// # Errors
/// [`ModuleError::FrozenCopy`] with both.
fn refuse_copies<M: Module>(module: &M, layout: &Layout) -> Result<(), ModuleError> {
    let mut copies = Copies { layout, path: Vec::new(), found: None };
    module.visit(&mut copies);
    match copies.found {
        Some((trained, frozen)) => Err(ModuleError::FrozenCopy { trained, frozen }),
        None => Ok(()),
    }
}

/// The first frozen parameter with the number of a trained one.
struct Copies<'a> {
    layout: &'a Layout,
    path: Vec<String>,
    found: Option<(String, String)>,
}

impl ModuleVisitor for Copies<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let id = parameter.id;
        if self.layout.range(id).is_some() && !parameter.base().is_require_grad() {
            self.found.get_or_insert_with(|| (self.layout.path(id), self.path.join(".")));
        }
    }
}
