//! A session: one process at work on a run, from its start or from a checkpoint.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use dp_train::certificate::{Artifacts, Certificate, Disclosure, Exposure};
#[cfg(feature = "gpu")]
use dp_train::engine::GpuEngine;
use dp_train::engine::GradientEngine;
use dp_train::fingerprint::Fingerprint;
use dp_train::plan::Sampling;
use dp_train::provenance::Origin;
use dp_train::seal::Seal;
use dp_train::seeds::{KeyOrigin, RunSeed};
use serde::{Deserialize, Serialize};

use super::events::Events;
use super::feed::Feed;
use super::metrics::{self, Epoch};
use super::seen::Seen;
use super::start::Start;
use super::state::State;
use super::summary::{self, Claim, Summary};
use super::{binding, commitment, provenance};
use crate::config::Record;
use crate::data::Dataset;
use crate::data::views::Views;
use crate::experiment::{Experiment, Kind, Steps};
use crate::files;
use crate::run::environment::Environment;
use crate::run::evaluation::{Judged, Showing};
use crate::run::folder::{self, RunFolder};
use crate::run::parameters;

/// What a checkpoint carries besides the state of the training.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// A table with all columns, because it has a word for what is not a number.
    epochs: String,
    /// Among how many runs this one is chosen, as far as was known; it may rise, not fall.
    trials: u64,
}

/// Where a run is kept.
#[derive(Debug)]
pub enum Place {
    /// In a folder that is still to be made.
    New(PathBuf),
    /// In the folder that it was left in.
    Resumed(RunFolder),
}

/// How far a run has got, after every step.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Steps taken.
    pub step: usize,
    /// Steps of the whole run.
    pub steps: usize,
    /// The epoch of the step, counted from 1.
    pub epoch: usize,
    /// Since the epoch began, or this session if that was later. None unless the run records all: it tells how many
    /// examples its batches had, which may be secret.
    pub examples_per_second: Option<f64>,
    /// Of the result so far, on the examples that the run is judged by, after the last epoch that was evaluated.
    pub accuracy: Option<f64>,
    /// That epoch.
    pub evaluated: Option<usize>,
}

/// How a session ended.
#[derive(Debug)]
pub enum Ending {
    /// The run is complete: the folder has a summary and no secret.
    Finished(Box<Summary>),
    /// It was asked to stop, and wrote a checkpoint.
    Stopped {
        /// Steps taken.
        step: usize,
        /// Steps of the whole run.
        steps: usize,
    },
}

/// A run with all that it works on.
pub struct Session<'a> {
    experiment: &'a Experiment,
    data: &'a Dataset,
    folder: RunFolder,
    /// When the epoch began, or this session if that was later.
    since: Instant,
    engine: Box<dyn GradientEngine>,
    state: State,
    feed: Feed<'a>,
    events: Events,
    data_sha256: Fingerprint,
    /// What every checkpoint is bound to.
    seal: Seal,
    epochs: Vec<Epoch>,
    /// Among how many runs this one is chosen.
    trials: u64,
    /// The runs that the first parameters came from, nearest first.
    provenance: Vec<Origin>,
}

impl<'a> Session<'a> {
    /// Makes the folder and its first files, or takes a run up where it was left.
    ///
    /// # Errors
    /// If the folder cannot be made, or the checkpoint is damaged or bound to something else.
    pub fn start(
        experiment: &'a Experiment,
        data: &'a Dataset,
        mut engine: Box<dyn GradientEngine>,
        place: Place,
    ) -> anyhow::Result<Self> {
        let config = &experiment.config;
        let data_sha256 = data.train.sha256();
        let mut seal = binding::seal(config, &data_sha256, engine.describe().arithmetic)?;
        let start = match &place {
            Place::New(_) => Start::read(config, &experiment.architecture, &data_sha256)?,
            Place::Resumed(folder) => Start::resumed(folder.path(), config)?,
        };
        binding::bind_start(&mut seal, &start.provenance)?;
        let mut trials = config.privacy.trials();
        let (folder, state, epochs) = match place {
            Place::Resumed(folder) => {
                let (state, note) = State::load(experiment, data, &folder, &seal)?;
                let note: Note = serde_json::from_slice(&note).context("the checkpoint's note")?;
                trials = trials.max(note.trials);
                (folder, state, metrics::read_table(&note.epochs)?)
            }
            Place::New(path) => {
                let folder = RunFolder::create(&path)?;
                folder.write(folder::CONFIG, toml::to_string_pretty(config)?.as_bytes())?;
                if let Kind::Private(plan) = &experiment.kind {
                    folder.write(folder::PLAN, files::json(plan.record())?.as_bytes())?;
                }
                // What the environment says of a device holds for the views of this run.
                #[cfg(feature = "gpu")]
                if let (Kind::Private(_), Some(gpu)) =
                    (&experiment.kind, GpuEngine::of(&mut *engine))
                {
                    gpu.compare(config.data.augmentation.views)?;
                }
                let environment =
                    files::json(&Environment::current().with_engine(engine.describe()))?;
                folder.write(folder::ENVIRONMENT, environment.as_bytes())?;
                if !start.provenance.is_empty() {
                    folder.write(folder::PROVENANCE, &provenance::bytes(&start.provenance)?)?;
                }
                commitment::begin(folder.path(), config)?;
                (folder, State::begin(experiment, data, &start)?, Vec::new())
            }
        };
        let (record, private) = (config.training.record, matches!(state, State::Private(_)));
        if let Kind::Private(plan) = &experiment.kind
            && plan.request().sampling != Sampling::FixedOrder
            && record == Record::All
        {
            log::warn!(
                "batches are secret, but with training.record = \"all\" {} and the TensorBoard events tell of them: \
                 publish neither with the model, or leave the key out",
                folder::METRICS
            );
        }
        let events = Events::open(folder.path(), state.steps_taken(), record, private)?;
        let (augmentation, shape) = (config.data.augmentation, data.shape);
        let views = Views { augmentation, shape, seed: RunSeed(config.training.seed) };
        let feed = Feed::new(&data.train, views);
        let state = state.move_to(&mut *engine, &feed)?;
        Ok(Self {
            experiment,
            data,
            folder,
            since: Instant::now(),
            engine,
            state,
            feed,
            events,
            data_sha256,
            seal,
            epochs,
            trials,
            provenance: start.provenance,
        })
    }

    /// Steps taken so far.
    pub fn steps_taken(&self) -> usize {
        self.state.steps_taken()
    }

    /// Trains to the end, or until `stop` is set. `show` is called after every step.
    ///
    /// # Errors
    /// Those of the engine, the mechanism and the disk. The last checkpoint is still there then.
    pub fn train(
        mut self,
        stop: &AtomicBool,
        mut show: impl FnMut(&Progress),
    ) -> anyhow::Result<Ending> {
        let steps = self.experiment.steps.total;
        while !self.state.is_finished() {
            // All steps so far are in a checkpoint here. Before the first one there is none, and nothing that could be lost.
            if stop.load(Ordering::SeqCst) && self.state.steps_taken() > 0 {
                return Ok(Ending::Stopped { step: self.state.steps_taken(), steps });
            }
            self.epoch(stop, &mut show)?;
            if stop.load(Ordering::SeqCst) && !self.state.is_finished() {
                self.checkpoint()?;
                return Ok(Ending::Stopped { step: self.state.steps_taken(), steps });
            }
        }
        self.finish().map(|summary| Ending::Finished(Box::new(summary)))
    }

    /// Steps up to the end of the epoch, an evaluation if one is due, and a checkpoint; less if it is to stop.
    fn epoch(&mut self, stop: &AtomicBool, show: &mut impl FnMut(&Progress)) -> anyhow::Result<()> {
        let every = self.experiment.config.training.checkpoint_steps;
        let Steps { per_epoch, total: steps } = self.experiment.steps;
        let batch_size = self.experiment.config.training.batch_size;
        let (mut total, mut examples) = (Seen::default(), 0);
        let open = self.experiment.config.training.record == Record::All;
        loop {
            let seen = self.state.step(&mut *self.engine, &mut self.feed)?;
            let taken = self.state.steps_taken();
            examples += seen.map_or(batch_size, |seen| seen.examples);
            if let Some(seen) = seen {
                self.note(taken, &seen, &mut total)?;
            }
            let evaluated = self.epochs.iter().rev().find(|epoch| epoch.accuracy.is_some());
            let speed = examples as f64 / self.since.elapsed().as_secs_f64();
            show(&Progress {
                step: taken,
                steps,
                epoch: taken.div_ceil(per_epoch),
                examples_per_second: open.then_some(speed),
                accuracy: evaluated.and_then(|epoch| epoch.accuracy),
                evaluated: evaluated.map(|epoch| epoch.epoch),
            });
            let ends = taken.is_multiple_of(per_epoch);
            let stops = stop.load(Ordering::SeqCst);
            let saves = every.is_some_and(|every| every > 0 && taken.is_multiple_of(every));
            if ends || stops || saves || self.state.is_full() {
                // Nothing may be kept of steps whose sums a device could not make.
                let seen = self.state.read(&mut *self.engine)?;
                let first = taken - seen.len();
                for (i, seen) in seen.iter().enumerate() {
                    self.note(first + i + 1, seen, &mut total)?;
                }
            }
            if ends {
                self.end_epoch(&total)?;
                return self.checkpoint();
            }
            if stops {
                return Ok(());
            }
            if saves {
                self.checkpoint()?;
            }
        }
    }

    /// Notes what a step saw.
    fn note(&mut self, taken: usize, seen: &Seen, total: &mut Seen) -> anyhow::Result<()> {
        *total += *seen;
        let loss = seen.metrics.loss_sum / seen.metrics.images.max(1) as f64;
        let rate = f64::from(self.state.learning_rate(taken - 1));
        self.events.add(taken, &[("learning_rate", rate)], &[("batch_loss", loss)])
    }

    /// Evaluates what the run would end with here, and the last iterate beside it if that is something else.
    fn evaluate(&mut self) -> anyhow::Result<Judged> {
        let (data, config) = (self.data, &self.experiment.config);
        let (shape, classes) = (data.shape, data.classes.len());
        let showing = Showing { shape, classes, mirror: config.evaluation.mirror };
        let averaged = config.training.average.is_some();
        let models = (self.state.parameters(), self.state.average(), averaged);
        Ok(Judged::of(&mut *self.engine, models, &data.test, showing)?)
    }

    /// Evaluates if it is due, and records. The time of an epoch is all of it: data, steps, noise, this evaluation, and
    /// the checkpoint of the epoch before.
    fn end_epoch(&mut self, total: &Seen) -> anyhow::Result<()> {
        let config = &self.experiment.config;
        let step = self.state.steps_taken();
        let number = step / self.experiment.steps.per_epoch;
        let is_due = config.evaluation.is_due(number, config.training.epochs);
        let judged = is_due.then(|| self.evaluate()).transpose()?;
        let seconds = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        let epoch = Epoch::new((number, step), judged, total, seconds);
        let mut open = vec![
            ("train_loss", epoch.train_loss),
            ("train_accuracy", epoch.train_accuracy),
            ("examples_per_second", epoch.examples_per_second),
        ];
        open.extend(epoch.clipped_share.map(|share| ("clipped_share", share)));
        let (names, exposure) = metrics::judged_by(config);
        let mut covered = Vec::new();
        match exposure {
            Exposure::Covered => covered.extend(epoch.measured(names)),
            Exposure::NotPrivate => open.extend(epoch.measured(names)),
        }
        self.events.add(step, &covered, &open)?;
        self.epochs.push(epoch);
        let table = metrics::table(&self.epochs, config)?;
        self.folder.write(folder::METRICS, &table)
    }

    fn checkpoint(&self) -> anyhow::Result<()> {
        let note = Note { epochs: metrics::whole_table(&self.epochs)?, trials: self.trials };
        let bytes = self.state.bytes(&self.seal, &serde_json::to_vec(&note)?)?;
        // Noted first: a crash in between must not hide that these steps were taken.
        if let State::Private(run) = &self.state {
            self.folder.note_released(run.training().ledger())?;
        }
        self.folder.save_checkpoint(self.state.steps_taken(), &bytes)
    }

    /// The model and the certificate; then the secrets go, and the summary comes.
    fn finish(self) -> anyhow::Result<Summary> {
        // Which of the two it is, the config has said before the run.
        let average = self.state.average();
        let result = average.as_deref().unwrap_or(self.state.parameters());
        let model = parameters::write(&self.experiment.architecture, result)?;
        self.folder.write(folder::PARAMETERS, &model)?;
        let (run, config) = (self.folder.path(), &self.experiment.config);
        let data_sha256 = commitment::of(run, config, &self.data_sha256)?;
        let claim = match &self.state {
            State::NonPrivate(..) => Claim {
                epsilon: None,
                delta: None,
                private: false,
                statement: summary::not_private(&self.provenance),
                training_data_sha256: data_sha256,
            },
            State::Private(run) => {
                let training = run.training();
                let (plan, origin) = (training.plan(), training.key_origin());
                let data_sha256 = data_sha256.with_context(|| {
                    format!(
                        "{} is gone, without which the data cannot be named",
                        self.folder.file(folder::SALT).display()
                    )
                })?;
                let disclosure = Disclosure {
                    metrics: metrics::metrics(&self.experiment.config),
                    trials: self.trials,
                    held_out_examples: config.data.held_out_examples(),
                    features: config.data.made_features().map(|features| features.to_string()),
                    artifacts: Artifacts {
                        config_sha256: Some(self.experiment.config.sha256()?),
                        training_data_sha256: Some(data_sha256),
                        parameters_sha256: Some(Fingerprint::of_bytes(&model)),
                        module_sha256: None,
                        frozen_sha256: None,
                    },
                    provenance: self.provenance,
                };
                let certificate = Certificate::new(plan, origin, training.ledger(), disclosure);
                #[cfg(feature = "gpu")]
                let certificate =
                    if run.is_on_device() { certificate.on_device() } else { certificate };
                self.folder.write(folder::CERTIFICATE, files::json(&certificate)?.as_bytes())?;
                Claim {
                    epsilon: Some(plan.request().epsilon),
                    delta: Some(plan.request().delta),
                    private: origin == KeyOrigin::OperatingSystem,
                    statement: certificate.statement,
                    training_data_sha256: None,
                }
            }
        };
        let last = self.epochs.last().context("a run has at least one epoch")?;
        let path = self.folder.path().to_owned();
        let summary = Summary::new(path, claim, &self.epochs, last, &self.experiment.config);
        self.folder.finish(files::json(&summary)?.as_bytes())?;
        Ok(summary)
    }
}
