//! `bandroot train`: a private run, from a config to a folder that explains itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use dp_train::certificate::{Certificate, Exposure, Metric};
use dp_train::engine::{Batch, BatchMetrics, GradientEngine};
use dp_train::model::{Architecture, initial_parameters};
use dp_train::plan::DpPlan;
use dp_train::seeds::{KeyOrigin, NoiseKey, RunSeed};
use dp_train::training::Training;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use crate::cli::{ConfigFile, Train};
use crate::config::{self, Config};
use crate::dataset::Dataset;
use crate::environment::Environment;
use crate::evaluation::Evaluation;
use crate::output::{self, BadArgument};
use crate::plan;
use crate::progress;
use crate::run_folder::RunFolder;

/// One line of `metrics.csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Epoch {
    epoch: usize,
    step: usize,
    test_accuracy: f64,
    test_loss: f64,
    /// The next three depend on the training data and are covered by no guarantee.
    train_loss: f64,
    train_accuracy: f64,
    clipped_share: f64,
    examples_per_second: f64,
    seconds: f64,
}

/// What a checkpoint carries besides the state of the training.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// Of the training examples: the rest of a run on other data would be a second release with the same
    /// noise, and the difference of the two would show the data.
    data_md5: String,
    epochs: Vec<Epoch>,
}

/// Which columns of `metrics.csv` may be published.
fn metrics() -> Vec<Metric> {
    let metric = |name: &str, exposure| Metric { name: name.to_owned(), exposure };
    let covered = ["epoch", "step", "test_accuracy", "test_loss"];
    let open = ["train_loss", "train_accuracy", "clipped_share", "examples_per_second", "seconds"];
    let covered = covered.map(|name| metric(name, Exposure::Covered));
    covered.into_iter().chain(open.map(|name| metric(name, Exposure::NotPrivate))).collect()
}

/// What `--json` prints, and `summary.json` holds.
#[derive(Debug, Serialize)]
struct Summary {
    run: PathBuf,
    test_accuracy: f64,
    test_loss: f64,
    epsilon: f64,
    delta: f64,
    private: bool,
    steps: usize,
    seconds: f64,
    examples_per_second: f64,
}

pub(crate) fn run(arguments: &Train) -> anyhow::Result<()> {
    let (file, folder) = match (&arguments.config, &arguments.resume) {
        (Some(config), None) => {
            let file = ConfigFile { config: config.clone(), set: arguments.set.clone() };
            (file, arguments.out.clone().unwrap_or_else(|| default_folder(config)))
        }
        (None, Some(run)) => {
            (ConfigFile { config: run.join("config.toml"), set: Vec::new() }, run.clone())
        }
        _ => bail!(BadArgument("give a config, or --resume with the folder of a run".into())),
    };
    let config = config::file::read(&file.config, &file.set)?;
    // The plan stands before any data is read.
    let plan = plan::from_config(&config, &file, &arguments.aof)?;
    let data = config.data.load()?;
    let architecture = config.model.architecture();
    config.check_shape(&data, &architecture)?;
    let session = Session::start(&config, plan, &data, &architecture, folder, arguments)?;
    session.train(arguments)
}

/// `runs/NAME-SECONDS`, with the name of the config and the time.
fn default_folder(config: &Path) -> PathBuf {
    let name = config.file_stem().map_or("run".into(), |stem| stem.to_string_lossy());
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    PathBuf::from("runs").join(format!("{name}-{seconds}"))
}

/// A run with all that it works on.
struct Session<'a> {
    config: &'a Config,
    data: &'a Dataset,
    architecture: &'a Architecture,
    folder: RunFolder,
    engine: Box<dyn GradientEngine>,
    training: Training,
    data_md5: String,
    epochs: Vec<Epoch>,
}

impl<'a> Session<'a> {
    /// Makes the folder and its first files, or takes a run up where it was left.
    fn start(
        config: &'a Config,
        plan: DpPlan,
        data: &'a Dataset,
        architecture: &'a Architecture,
        folder: PathBuf,
        arguments: &Train,
    ) -> anyhow::Result<Self> {
        let engine = config.engine.build(architecture)?;
        let examples = u32::try_from(data.train.len()).context("too many examples")?;
        let (rate, seed) = (config.optimizer.learning_rate as f32, RunSeed(config.training.seed));
        let data_md5 = data.train.md5();
        if arguments.resume.is_some() {
            let folder = RunFolder::open(&folder);
            let Some((training, note)) = folder.load_checkpoint(&plan, examples, rate, seed)?
            else {
                bail!("{} has no checkpoint to continue from", folder.path().display());
            };
            let note: Note = serde_json::from_slice(&note).context("the checkpoint's note")?;
            if note.data_md5 != data_md5 {
                bail!(
                    "{} was trained on other examples than these: going on would release both with the \
                     same noise",
                    folder.path().display()
                );
            }
            let epochs = note.epochs;
            return Ok(Self {
                config,
                data,
                architecture,
                folder,
                engine,
                training,
                data_md5,
                epochs,
            });
        }
        let folder = RunFolder::create(&folder)?;
        folder.write("config.toml", toml::to_string_pretty(config)?.as_bytes())?;
        folder.write("plan.json", output::json(plan.record())?.as_bytes())?;
        folder.write("environment.json", output::json(&Environment::current())?.as_bytes())?;
        let key = match config.privacy.noise_seed {
            Some(seed) => NoiseKey::fixed(RunSeed(seed)),
            None => NoiseKey::from_os()?,
        };
        let parameters = initial_parameters(architecture, seed);
        let training = Training::new(plan, parameters, examples, rate, seed, key)?;
        let epochs = Vec::new();
        Ok(Self { config, data, architecture, folder, engine, training, data_md5, epochs })
    }

    fn train(mut self, arguments: &Train) -> anyhow::Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        // A second handler in one process is refused; the first one stays, which is as good.
        drop(ctrlc::set_handler(move || seen.store(true, Ordering::SeqCst)));
        let steps = self.training.plan().participation().steps();
        let bar = progress::bar(steps as u64);
        bar.set_position(self.training.steps_taken() as u64);
        while !self.training.is_finished() {
            self.epoch(&bar, &stop)?;
            if stop.load(Ordering::SeqCst) && !self.training.is_finished() {
                self.checkpoint()?;
                bar.finish_and_clear();
                let (taken, folder) = (self.training.steps_taken(), self.folder.path().display());
                return output::print(&format!(
                    "stopped after {taken} of {steps} steps; to go on: bandroot train --resume {folder}"
                ));
            }
        }
        bar.finish_and_clear();
        self.finish(arguments)
    }

    /// Steps up to the end of the epoch, an evaluation and a checkpoint; less if it is to stop.
    fn epoch(&mut self, bar: &ProgressBar, stop: &AtomicBool) -> anyhow::Result<()> {
        let per_epoch = self.training.plan().request().min_separation;
        let pixels = self.data.shape.len();
        let clip_norm = self.config.privacy.clip_norm;
        let every = self.config.training.checkpoint_steps;
        let start = Instant::now();
        let (mut total, mut clipped) = (BatchMetrics::default(), 0);
        let mut images = vec![0.0; self.config.training.batch_size * pixels];
        let mut labels = Vec::new();
        loop {
            let (engine, data) = (&mut self.engine, self.data);
            let mut metrics = BatchMetrics::default();
            let counts = self.training.step(|parameters, batch| -> anyhow::Result<_> {
                data.train.decode(batch, &mut images);
                labels.clear();
                labels.extend(batch.iter().map(|&i| u32::from(data.train.labels()[i as usize])));
                let batch = Batch { images: &images, labels: &labels };
                let (sum, found) = engine.clipped_sum(parameters, batch, clip_norm)?;
                metrics = found;
                Ok(sum)
            })?;
            total.examples += metrics.examples;
            total.loss_sum += metrics.loss_sum;
            total.correct += metrics.correct;
            clipped += counts.clipped;
            let taken = self.training.steps_taken();
            let rate = total.examples as f64 / start.elapsed().as_secs_f64();
            bar.set_position(taken as u64);
            let epoch = taken.div_ceil(per_epoch);
            bar.set_message(format!("epoch {epoch}, {rate:.0} examples/s, {}", self.last()));
            if taken.is_multiple_of(per_epoch) {
                self.evaluate(&total, clipped, start)?;
                return self.checkpoint();
            }
            if stop.load(Ordering::SeqCst) {
                return Ok(());
            }
            if every.is_some_and(|every| taken.is_multiple_of(every)) {
                self.checkpoint()?;
            }
        }
    }

    /// The last accuracy, for the bar.
    fn last(&self) -> String {
        let percent = |epoch: &Epoch| format!("{:.1} % on test", 100.0 * epoch.test_accuracy);
        self.epochs.last().map_or(String::new(), percent)
    }

    fn evaluate(
        &mut self,
        total: &BatchMetrics,
        clipped: usize,
        start: Instant,
    ) -> anyhow::Result<()> {
        let seconds = start.elapsed().as_secs_f64();
        let (pixels, classes) = (self.data.shape.len(), self.data.classes.len());
        let parameters = self.training.parameters();
        let Evaluation { accuracy, loss } =
            Evaluation::of(&mut *self.engine, parameters, &self.data.test, pixels, classes)?;
        let step = self.training.steps_taken();
        let examples = total.examples.max(1) as f64;
        self.epochs.push(Epoch {
            epoch: step / self.training.plan().request().min_separation,
            step,
            test_accuracy: accuracy,
            test_loss: loss,
            train_loss: total.loss_sum / examples,
            train_accuracy: total.correct as f64 / examples,
            clipped_share: clipped as f64 / examples,
            examples_per_second: total.examples as f64 / seconds,
            seconds,
        });
        let mut writer = csv::Writer::from_writer(Vec::new());
        for epoch in &self.epochs {
            writer.serialize(epoch)?;
        }
        self.folder.write("metrics.csv", &writer.into_inner()?)
    }

    fn checkpoint(&self) -> anyhow::Result<()> {
        let note = Note { data_md5: self.data_md5.clone(), epochs: self.epochs.clone() };
        self.folder.save_checkpoint(&self.training, &serde_json::to_vec(&note)?)
    }

    /// The certificate, the model and the summary; then the secrets go.
    fn finish(self, arguments: &Train) -> anyhow::Result<()> {
        let certificate = Certificate::new(
            self.training.plan(),
            self.training.key_origin(),
            self.training.ledger(),
            metrics(),
            1,
        );
        self.folder.write("privacy.json", output::json(&certificate)?.as_bytes())?;
        let model = safetensors(self.architecture, self.training.parameters())?;
        self.folder.write("parameters.safetensors", &model)?;
        let last = self.epochs.last().context("a run has at least one epoch")?;
        let request = self.training.plan().request();
        let seconds: f64 = self.epochs.iter().map(|epoch| epoch.seconds).sum();
        let trained = self.training.steps_taken() * request.batch_size;
        let summary = Summary {
            run: self.folder.path().to_owned(),
            test_accuracy: last.test_accuracy,
            test_loss: last.test_loss,
            epsilon: request.epsilon,
            delta: request.delta,
            private: self.training.key_origin() == KeyOrigin::OperatingSystem,
            steps: self.training.steps_taken(),
            seconds,
            examples_per_second: trained as f64 / seconds,
        };
        self.folder.write("summary.json", output::json(&summary)?.as_bytes())?;
        self.folder.remove_checkpoints()?;
        if arguments.json {
            return output::print(&output::json(&summary)?);
        }
        output::print(&format!(
            "test accuracy  {:.2} %\nprivacy        {}\nspeed          {:.0} examples/s\nrun folder     {}\n",
            100.0 * summary.test_accuracy,
            certificate.statement,
            summary.examples_per_second,
            summary.run.display()
        ))
    }
}

/// The parameters with PyTorch's names and layouts.
fn safetensors(architecture: &Architecture, parameters: &[f32]) -> anyhow::Result<Vec<u8>> {
    let bytes: Vec<u8> = parameters.iter().flat_map(|x| x.to_le_bytes()).collect();
    let views = architecture.parameters().iter().map(|parameter| {
        let range = 4 * parameter.range.start..4 * parameter.range.end;
        let view = safetensors::tensor::TensorView::new(
            safetensors::Dtype::F32,
            parameter.shape.clone(),
            &bytes[range],
        )?;
        Ok((parameter.name.clone(), view))
    });
    let views = views.collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    Ok(safetensors::serialize(views, None)?)
}
