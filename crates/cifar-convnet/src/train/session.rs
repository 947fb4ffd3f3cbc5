//! A session: one process at work on a run, from its start or from a checkpoint.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use dp_train::certificate::{Certificate, Disclosure};
use dp_train::engine::{BatchMetrics, GradientEngine};
use dp_train::model::Architecture;
use dp_train::seeds::{KeyOrigin, RunSeed};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use super::events::Events;
use super::metrics::{self, Epoch};
use super::state::{Feed, Request, Seen, State};
use super::summary::{Claim, NOT_PRIVATE, Summary};
use crate::config::{Config, Record};
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
    /// Of the training examples: the rest of a run on other data would be a second release with the same
    /// noise, and the difference of the two would show the data.
    data_md5: String,
    /// A table with all columns, because it has a word for what is not a number.
    epochs: String,
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
    data_md5: String,
    epochs: Vec<Epoch>,
}

impl<'a> Session<'a> {
    /// Makes the folder and its first files, or takes a run up where it was left.
    pub(super) fn start(
        config: &'a Config,
        request: Request,
        data: &'a Dataset,
        architecture: &'a Architecture,
        folder: &Path,
        resume: bool,
    ) -> anyhow::Result<Self> {
        let engine = config.engine.build(architecture)?;
        let data_md5 = data.train.md5();
        let (folder, state, epochs) = if resume {
            let folder = RunFolder::open(folder);
            let (state, note) = State::load(config, request, data, &folder)?;
            let note: Note = serde_json::from_slice(&note).context("the checkpoint's note")?;
            if note.data_md5 != data_md5 {
                bail!(
                    "{} was trained on other examples than these: going on would release both with the \
                     same noise",
                    folder.path().display()
                );
            }
            (folder, state, metrics::read_table(&note.epochs)?)
        } else {
            let folder = RunFolder::create(folder)?;
            folder.write("config.toml", toml::to_string_pretty(config)?.as_bytes())?;
            if let Request::Private(plan, _) = &request {
                folder.write("plan.json", output::json(plan.record())?.as_bytes())?;
            }
            folder.write("environment.json", output::json(&Environment::current())?.as_bytes())?;
            let state = State::begin(config, request, data, architecture)?;
            (folder, state, Vec::new())
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
            data_md5,
            epochs,
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
            let loss = seen.metrics.loss_sum / seen.metrics.examples.max(1) as f64;
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
        let percent = |epoch: &Epoch| format!("{:.1} % on test", 100.0 * epoch.test_accuracy);
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
        let BatchMetrics { examples: views, loss_sum, correct } = total.metrics;
        let views = views.max(1) as f64;
        let epoch = Epoch {
            epoch: step / self.steps_per_epoch,
            step,
            test_accuracy: accuracy,
            test_loss: loss,
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
        let covered = [("test_accuracy", accuracy), ("test_loss", loss)];
        self.events.add(step, &covered, &open)?;
        self.epochs.push(epoch);
        let table = metrics::table(&self.epochs, self.config.training.record)?;
        self.folder.write("metrics.csv", &table)
    }

    fn checkpoint(&self) -> anyhow::Result<()> {
        let table = metrics::table(&self.epochs, Record::All)?;
        let note = Note { data_md5: self.data_md5.clone(), epochs: String::from_utf8(table)? };
        let bytes = self.state.bytes(&serde_json::to_vec(&note)?)?;
        // Noted first: a crash in between must not hide that these steps were taken.
        if let State::Private(training) = &self.state {
            self.folder.note_released(training.ledger())?;
        }
        self.folder.save_checkpoint(self.state.steps_taken(), &bytes)
    }

    /// The certificate, the model and the summary; then the secrets go.
    fn finish(self, json: bool) -> anyhow::Result<()> {
        let record = self.config.training.record;
        let claim = match &self.state {
            State::Open(..) => Claim {
                epsilon: None,
                delta: None,
                private: false,
                statement: NOT_PRIVATE.to_owned(),
            },
            State::Private(training) => {
                let (plan, origin) = (training.plan(), training.key_origin());
                let metrics = metrics::metrics(record);
                let (ledger, trials) = (training.ledger(), self.config.privacy.trials());
                let disclosure = Disclosure { metrics, trials, ..Disclosure::default() };
                let certificate = Certificate::new(plan, origin, ledger, disclosure);
                self.folder.write("privacy.json", output::json(&certificate)?.as_bytes())?;
                Claim {
                    epsilon: Some(plan.request().epsilon),
                    delta: Some(plan.request().delta),
                    private: origin == KeyOrigin::OperatingSystem,
                    statement: certificate.statement,
                }
            }
        };
        let model = parameters::write(self.architecture, self.state.parameters())?;
        self.folder.write("parameters.safetensors", &model)?;
        let last = self.epochs.last().context("a run has at least one epoch")?;
        let (path, batch_size) = (self.folder.path().to_owned(), self.config.training.batch_size);
        let summary = Summary::new(path, claim, &self.epochs, last, batch_size, record);
        self.folder.write("summary.json", output::json(&summary)?.as_bytes())?;
        self.folder.remove_checkpoints()?;
        if json {
            return output::print(&output::json(&summary)?);
        }
        output::print(&summary.text())
    }
}

fn add(total: &mut Seen, seen: &Seen) {
    total.metrics.examples += seen.metrics.examples;
    total.metrics.loss_sum += seen.metrics.loss_sum;
    total.metrics.correct += seen.metrics.correct;
    total.examples += seen.examples;
    total.clipped = seen.clipped.map(|clipped| total.clipped.unwrap_or(0) + clipped);
}
