//! A session: one process at work on a run, from its start or from a checkpoint.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use dp_train::certificate::{Artifacts, Certificate, Disclosure, Exposure};
use dp_train::engine::{BatchMetrics, GradientEngine};
use dp_train::fingerprint::Fingerprint;
use dp_train::model::Architecture;
use dp_train::seal::Seal;
use dp_train::seeds::{KeyOrigin, RunSeed};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use super::events::Events;
use super::metrics::{self, Epoch};
use super::state::{Feed, Request, Seen, State};
use super::summary::{Claim, NOT_PRIVATE, Summary};
use crate::config::Config;
use crate::dataset::Dataset;
use crate::dataset::views::Views;
use crate::environment::Environment;
use crate::evaluation::Evaluation;
use crate::output;
use crate::parameters;
use crate::progress;
use crate::run_folder::RunFolder;

/// What a checkpoint carries besides the state of the training.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// A table with all columns, because it has a word for what is not a number.
    epochs: String,
    /// Among how many runs this one is chosen, as far as was known; it may rise, not fall.
    trials: u64,
}

/// Where a run is kept.
pub(super) enum Place {
    /// In a folder that is still to be made.
    New(PathBuf),
    /// In the folder that it was left in.
    Resumed(RunFolder),
}

/// A run with all that it works on.
pub(super) struct Session<'a> {
    config: &'a Config,
    data: &'a Dataset,
    architecture: &'a Architecture,
    folder: RunFolder,
    /// When the epoch began, or this session if that was later.
    since: Instant,
    engine: Box<dyn GradientEngine>,
    state: State,
    feed: Feed<'a>,
    events: Events,
    steps_per_epoch: usize,
    total_steps: usize,
    data_sha256: Fingerprint,
    /// What every checkpoint is bound to.
    seal: Seal,
    epochs: Vec<Epoch>,
    /// Among how many runs this one is chosen.
    trials: u64,
}

impl<'a> Session<'a> {
    /// Makes the folder and its first files, or takes a run up where it was left.
    pub(super) fn start(
        config: &'a Config,
        request: Request,
        data: &'a Dataset,
        (architecture, engine): (&'a Architecture, Box<dyn GradientEngine>),
        place: Place,
    ) -> anyhow::Result<Self> {
        let data_sha256 = data.train.sha256();
        let seal = config.seal(&data_sha256, engine.describe().arithmetic)?;
        let mut trials = config.privacy.trials();
        let (folder, state, epochs) = match place {
            Place::Resumed(folder) => {
                let (state, note) = State::load(config, request, data, &folder, &seal)?;
                let note: Note = serde_json::from_slice(&note).context("the checkpoint's note")?;
                trials = trials.max(note.trials);
                (folder, state, metrics::read_table(&note.epochs)?)
            }
            Place::New(path) => {
                let folder = RunFolder::create(&path)?;
                folder.write("config.toml", toml::to_string_pretty(config)?.as_bytes())?;
                if let Request::Private(plan, _) = &request {
                    folder.write("plan.json", output::json(plan.record())?.as_bytes())?;
                }
                let environment = output::json(&Environment::current())?;
                folder.write("environment.json", environment.as_bytes())?;
                let state = State::begin(config, request, data, architecture)?;
                (folder, state, Vec::new())
            }
        };
        let (record, private) = (config.training.record, matches!(state, State::Private(_)));
        let events = Events::open(folder.path(), state.steps_taken(), record, private)?;
        let (augmentation, shape) = (config.data.augmentation, data.shape);
        let views = Views { augmentation, shape, seed: RunSeed(config.training.seed) };
        let steps_per_epoch = data.train.len() / config.training.batch_size;
        Ok(Self {
            config,
            data,
            architecture,
            folder,
            since: Instant::now(),
            engine,
            state,
            feed: Feed::new(&data.train, views),
            events,
            steps_per_epoch,
            total_steps: steps_per_epoch * config.training.epochs,
            data_sha256,
            seal,
            epochs,
            trials,
        })
    }

    pub(super) fn train(mut self, json: bool) -> anyhow::Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        // A second handler in one process is refused; the first one stays, which is as good.
        drop(ctrlc::set_handler(move || seen.store(true, Ordering::SeqCst)));
        let steps = self.total_steps;
        let bar = progress::training_bar(steps as u64, self.state.steps_taken() as u64);
        while !self.state.is_finished() {
            self.epoch(&bar, &stop)?;
            if stop.load(Ordering::SeqCst) && !self.state.is_finished() {
                self.checkpoint()?;
                bar.finish_and_clear();
                let (taken, folder) = (self.state.steps_taken(), self.folder.path().display());
                return output::print(&format!(
                    "stopped after {taken} of {steps} steps; to go on: bandroot train --resume {folder}"
                ));
            }
        }
        bar.finish_and_clear();
        self.finish(json)
    }

    /// Steps up to the end of the epoch, an evaluation and a checkpoint; less if it is to stop.
    fn epoch(&mut self, bar: &ProgressBar, stop: &AtomicBool) -> anyhow::Result<()> {
        let every = self.config.training.checkpoint_steps;
        let mut total = Seen::default();
        loop {
            let rate = self.state.learning_rate(self.state.steps_taken());
            let seen = self.state.step(&mut *self.engine, &mut self.feed)?;
            add(&mut total, &seen);
            let taken = self.state.steps_taken();
            let loss = seen.metrics.loss_sum / seen.metrics.images.max(1) as f64;
            self.events.add(
                taken,
                &[("learning_rate", f64::from(rate))],
                &[("batch_loss", loss)],
            )?;
            let speed = total.examples as f64 / self.since.elapsed().as_secs_f64();
            bar.set_position(taken as u64);
            let epoch = taken.div_ceil(self.steps_per_epoch);
            bar.set_message(format!("epoch {epoch}, {speed:.0} examples/s, {}", self.last()));
            if taken.is_multiple_of(self.steps_per_epoch) {
                self.evaluate(&total)?;
                return self.checkpoint();
            }
            if stop.load(Ordering::SeqCst) {
                return Ok(());
            }
            if every.is_some_and(|every| every > 0 && taken.is_multiple_of(every)) {
                self.checkpoint()?;
            }
        }
    }

    /// The last accuracy, for the bar.
    fn last(&self) -> String {
        let place = if self.config.data.holds_out() { "validation" } else { "test" };
        let percent = |epoch: &Epoch| format!("{:.1} % on {place}", 100.0 * epoch.accuracy);
        self.epochs.last().map_or(String::new(), percent)
    }

    /// Evaluates and records. The time of an epoch is all of it: data, steps, noise, this evaluation, and the
    /// checkpoint of the epoch before.
    fn evaluate(&mut self, total: &Seen) -> anyhow::Result<()> {
        let (pixels, classes) = (self.data.shape.len(), self.data.classes.len());
        let parameters = self.state.parameters();
        let Evaluation { accuracy, loss } =
            Evaluation::of(&mut *self.engine, parameters, &self.data.test, pixels, classes)?;
        let seconds = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        let step = self.state.steps_taken();
        let BatchMetrics { images: views, loss_sum, correct } = total.metrics;
        let views = views.max(1) as f64;
        let epoch = Epoch {
            epoch: step / self.steps_per_epoch,
            step,
            accuracy,
            loss,
            train_loss: loss_sum / views,
            train_accuracy: correct as f64 / views,
            clipped_share: total.clipped.map(|clipped| clipped as f64 / total.examples as f64),
            examples_per_second: total.examples as f64 / seconds,
            seconds,
        };
        let mut open = vec![
            ("train_loss", epoch.train_loss),
            ("train_accuracy", epoch.train_accuracy),
            ("examples_per_second", epoch.examples_per_second),
        ];
        open.extend(epoch.clipped_share.map(|share| ("clipped_share", share)));
        let (names, exposure) = metrics::judged_by(self.config);
        let judged = [(names[0], accuracy), (names[1], loss)];
        let mut covered = Vec::new();
        match exposure {
            Exposure::Covered => covered.extend(judged),
            Exposure::NotPrivate => open.extend(judged),
        }
        self.events.add(step, &covered, &open)?;
        self.epochs.push(epoch);
        let table = metrics::table(&self.epochs, self.config)?;
        self.folder.write("metrics.csv", &table)
    }

    fn checkpoint(&self) -> anyhow::Result<()> {
        let note = Note { epochs: metrics::whole_table(&self.epochs)?, trials: self.trials };
        let bytes = self.state.bytes(&self.seal, &serde_json::to_vec(&note)?)?;
        // Noted first: a crash in between must not hide that these steps were taken.
        if let State::Private(training) = &self.state {
            self.folder.note_released(training.ledger())?;
        }
        self.folder.save_checkpoint(self.state.steps_taken(), &bytes)
    }

    /// The model and the certificate; then the secrets go, and the summary comes.
    fn finish(self, json: bool) -> anyhow::Result<()> {
        let model = parameters::write(self.architecture, self.state.parameters())?;
        self.folder.write("parameters.safetensors", &model)?;
        let claim = match &self.state {
            State::Open(..) => Claim {
                epsilon: None,
                delta: None,
                private: false,
                statement: NOT_PRIVATE.to_owned(),
            },
            State::Private(training) => {
                let (plan, origin) = (training.plan(), training.key_origin());
                let disclosure = Disclosure {
                    metrics: metrics::metrics(self.config),
                    trials: self.trials,
                    held_out_examples: self.config.data.held_out_examples(),
                    artifacts: Artifacts {
                        config_sha256: Some(self.config.sha256()?),
                        training_data_sha256: Some(self.data_sha256),
                        parameters_sha256: Some(Fingerprint::of_bytes(&model)),
                    },
                };
                let certificate = Certificate::new(plan, origin, training.ledger(), disclosure);
                self.folder.write("privacy.json", output::json(&certificate)?.as_bytes())?;
                Claim {
                    epsilon: Some(plan.request().epsilon),
                    delta: Some(plan.request().delta),
                    private: origin == KeyOrigin::OperatingSystem,
                    statement: certificate.statement,
                }
            }
        };
        let last = self.epochs.last().context("a run has at least one epoch")?;
        let path = self.folder.path().to_owned();
        let summary = Summary::new(path, claim, &self.epochs, last, self.config);
        let written = output::json(&summary)?;
        self.folder.finish(written.as_bytes())?;
        output::print(&if json { written } else { summary.text() })
    }
}

fn add(total: &mut Seen, seen: &Seen) {
    total.metrics.images += seen.metrics.images;
    total.metrics.loss_sum += seen.metrics.loss_sum;
    total.metrics.correct += seen.metrics.correct;
    total.examples += seen.examples;
    total.clipped = seen.clipped.map(|clipped| total.clipped.unwrap_or(0) + clipped);
}
