//! Runs that stay on the device, beside those of the CPU.

use mf_core::{Method, Sgd};

use super::*;
use crate::engine::{
    ByteImages, Engine, EngineError, FixedNoise, Resident, Shown, StepSeen, ViewPlace,
};
use crate::plan::{DpPlan, PlanRequest, Sampling};
use crate::seal::Seal;
use crate::seeds::NoiseKey;
use crate::training::average::Average;
use crate::training::resident::ResidentTraining;
use crate::training::{Training, TrainingError};

const EXAMPLES: usize = 120;
pub(super) const SEED: RunSeed = RunSeed(7);

/// A held convolution, one with ghost norms, normalization and a linear layer, on 2 x 8 x 7 images.
pub(super) fn model() -> Architecture {
    let layers = vec![
        conv(2, 4, 3, 1, 1),
        Layer::Relu,
        Layer::MaxPool2d { kernel: 2, stride: 2 },
        conv(4, 20, 3, 2, 1),
        Layer::GroupNorm { groups: 2 },
        Layer::Tanh,
    ];
    classifier((2, 8, 7), layers)
}

pub(super) struct Data {
    bytes: Vec<u8>,
    labels: Vec<u16>,
    table: [f32; 256],
}

impl Data {
    pub(super) fn new() -> Self {
        let bytes = (0..EXAMPLES * 112).map(|i| (i * 7919 % 251) as u8).collect();
        let labels = (0..EXAMPLES).map(|i| (i * 3 % 5) as u16).collect();
        Self { bytes, labels, table: std::array::from_fn(|byte| byte as f32 / 127.5 - 1.0) }
    }

    pub(super) fn images(&self, padding: usize, reflect: bool) -> ByteImages<'_> {
        let Self { bytes, labels, table } = self;
        let (channels, height, width) = (2, 8, 7);
        ByteImages { bytes, labels, table, channels, height, width, padding, reflect }
    }

    /// A view by its definition.
    fn view(&self, place: ViewPlace, padding: usize, reflect: bool) -> Vec<f32> {
        let line = |at: usize, length: usize| {
            let at = at as isize - padding as isize;
            let last = length as isize - 1;
            match at {
                _ if (0..=last).contains(&at) => Some(at as usize),
                _ if !reflect => None,
                _ if at < 0 => Some(-at as usize),
                _ => Some((2 * last - at) as usize),
            }
        };
        let number = |i: usize| {
            let (channel, y, x) = (i / 56, i / 7 % 8, i % 7);
            let x = if place.mirrored { 6 - x } else { x };
            let row = line(y + usize::from(place.down), 8);
            let column = line(x + usize::from(place.right), 7);
            let at = row.zip(column).map(|(row, column)| channel * 56 + row * 7 + column);
            self.table[at.map_or(0, |at| self.bytes[place.example as usize * 112 + at] as usize)]
        };
        (0..112).map(number).collect()
    }
}

pub(super) fn plan(sampling: Sampling) -> DpPlan {
    DpPlan::new(PlanRequest {
        sgd: Sgd::new(0.99, 0.9).unwrap(),
        learning_rates: None,
        workload_column: None,
        strategy_for: Default::default(),
        method: Method::Bsr { bands: 4 },
        steps: 12,
        min_separation: 3,
        max_participations: Some(4),
        clip_norm: 1.0,
        batch_size: 40,
        epsilon: 8.0,
        delta: 1e-5,
        neighbouring: Default::default(),
        sampling,
        examples: None,
        accountant: Default::default(),
        dim: model().parameter_count(),
        keep_rows: None,
    })
    .unwrap()
}

pub(super) fn start(sampling: Sampling) -> Training {
    let parameters = initial_parameters(&model(), SEED);
    let key = NoiseKey::fixed(SEED);
    Training::new(plan(sampling), parameters, EXAMPLES as u32, 0.05, SEED, key).unwrap()
}

#[derive(Debug)]
enum Failed {
    Training(TrainingError),
    Engine(EngineError),
}

impl From<TrainingError> for Failed {
    fn from(error: TrainingError) -> Self {
        Self::Training(error)
    }
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

/// The images as they are.
fn whole(example: u32) -> ViewPlace {
    ViewPlace { example, down: 0, right: 0, mirrored: false }
}

pub(super) fn places(slots: &[Option<u32>]) -> Vec<ViewPlace> {
    slots.iter().map(|slot| whole(slot.unwrap_or(0))).collect()
}

/// So many steps on the device.
pub(super) fn steps(run: &mut ResidentTraining, engine: &mut GpuEngine, count: usize) {
    for _ in 0..count {
        let shown = &mut Vec::new();
        run.step(engine, move |_, slots| -> Result<_, Failed> {
            *shown = places(slots);
            Ok(Shown::Stored(shown))
        })
        .unwrap();
    }
}

pub(super) fn engine(gpu: Device) -> GpuEngine {
    GpuEngine::new(&model(), gpu, EngineOptions::default()).unwrap()
}

#[test]
fn ten_steps_are_those_of_the_cpu_with_the_same_noise() {
    let Some(gpu) = gpu() else { return };
    let data = Data::new();
    let samplings = [Sampling::FixedOrder, Sampling::BallsInBins];
    let both = |form| samplings.map(|sampling| (form, sampling));
    for (form, sampling) in forms(gpu).into_iter().flat_map(both) {
        let mut engine = engine(gpu);
        engine.set_form(form);
        let average = Average::Ema { decay: 0.5 };
        let training = start(sampling).with_average(average).unwrap();
        let images = Some(data.images(0, false));
        let mut run = ResidentTraining::new(training, &mut engine, images).unwrap();
        steps(&mut run, &mut engine, 10);
        assert_eq!(run.unread(), 10);
        let (found, seen) = run.read(&mut engine).unwrap();

        let mut cpu = Engine::new(&model(), EngineOptions::default()).unwrap();
        let mut expected = start(sampling).with_average(average).unwrap();
        let (mut far, mut near) = (0.0, 0.0);
        for StepSeen { metrics, counts } in seen {
            let mut of_cpu = BatchMetrics::default();
            let before = wide(expected.parameters());
            let of_counts = expected.step(|parameters, batch, sum| -> Result<_, Failed> {
                let decode = |&example: &u32| data.view(whole(example), 0, false);
                let images: Vec<f32> = batch.iter().flat_map(decode).collect();
                let labels: Vec<u32> =
                    batch.iter().map(|&i| u32::from(data.labels[i as usize])).collect();
                let batch = Batch::new(&images, &labels);
                (*sum, of_cpu) = cpu.clipped_sum(parameters, batch, 1.0)?;
                Ok(())
            });
            assert_eq!(of_counts.unwrap().examples, counts.examples);
            assert_eq!((metrics.images, counts.non_finite), (of_cpu.images, 0));
            assert!((metrics.loss_sum - of_cpu.loss_sum).abs() < 1e-4 * of_cpu.loss_sum);
            far += distance(expected.parameters(), &before);
        }
        near += distance(found.parameters(), &wide(expected.parameters()));
        assert!(near < 1e-4 * far, "{near:e} of {far:e}");
        let averages = [found, &expected].map(|run| run.average().unwrap());
        assert!(distance(&averages[0], &wide(&averages[1])) < 1e-4 * far);
    }
}

#[test]
fn a_run_continues_on_the_device_bit_by_bit() {
    let Some(gpu) = gpu() else { return };
    let data = Data::new();
    let mut engine = engine(gpu);
    let images = Some(data.images(0, false));
    let mut whole =
        ResidentTraining::new(start(Sampling::FixedOrder), &mut engine, images).unwrap();
    steps(&mut whole, &mut engine, 12);
    assert!(whole.is_finished());
    // There is no noise for a thirteenth step.
    let found = step_of_given(&mut whole, &mut engine, &data);
    assert!(matches!(found, Err(Failed::Training(_))), "{found:?}");
    let seal = Seal::default();
    let mut half = ResidentTraining::new(start(Sampling::FixedOrder), &mut engine, images).unwrap();
    steps(&mut half, &mut engine, 5);
    let mut bytes = Vec::new();
    let (saved, _) = half.read(&mut engine).unwrap();
    saved.save(&mut bytes, &seal, b"").unwrap();
    let (plan, count) = (plan(Sampling::FixedOrder), EXAMPLES as u32);
    let (loaded, _) = Training::load(plan, count, 0.05, SEED, &seal, bytes.as_slice()).unwrap();
    let mut rest = ResidentTraining::new(loaded, &mut engine, images).unwrap();
    steps(&mut rest, &mut engine, 7);
    let [whole, rest] =
        [&mut whole, &mut rest].map(|run| run.read(&mut engine).unwrap().0.parameters().to_vec());
    assert_eq!(whole, rest);
}

/// One step from images that are given.
fn step_of_given(
    run: &mut ResidentTraining,
    engine: &mut GpuEngine,
    data: &Data,
) -> Result<(), Failed> {
    run.step(engine, |_, slots| {
        let images: Vec<f32> =
            places(slots).iter().flat_map(|&place| data.view(place, 0, false)).collect();
        let label = |slot: &Option<u32>| slot.map_or(0, |i| u32::from(data.labels[i as usize]));
        let labels: Vec<u32> = slots.iter().map(label).collect();
        Ok(Shown::Given(Batch::new(images.leak(), labels.leak())))
    })
}

#[test]
fn views_on_the_device_are_those_that_are_given() {
    let Some(gpu) = gpu() else { return };
    let data = Data::new();
    for (padding, reflect) in [(3, false), (3, true), (0, false)] {
        let mut engine = engine(gpu);
        let place = |step: usize, example: u32, view: usize| {
            let mix = step * 31 + example as usize * 7 + view * 13;
            let most = 2 * padding + 1;
            let (down, right) = ((mix % most) as u16, (mix / 3 % most) as u16);
            ViewPlace { example, down, right, mirrored: mix % 2 == 1 }
        };
        let mut runs = [true, false].map(|stored| {
            let training = start(Sampling::BallsInBins);
            let images = stored.then(|| data.images(padding, reflect));
            let mut run = ResidentTraining::new(training, &mut engine, images).unwrap();
            for _ in 0..2 {
                run.step(&mut engine, |step, slots| -> Result<_, Failed> {
                    let views =
                        |slot: &Option<u32>| [0, 1].map(|v| place(step, slot.unwrap_or(0), v));
                    let places: Vec<ViewPlace> = slots.iter().flat_map(views).collect();
                    if stored {
                        return Ok(Shown::Stored(places.leak()));
                    }
                    let images: Vec<f32> =
                        places.iter().flat_map(|&p| data.view(p, padding, reflect)).collect();
                    let label =
                        |slot: &Option<u32>| slot.map_or(0, |i| u32::from(data.labels[i as usize]));
                    let labels: Vec<u32> = slots.iter().map(label).collect();
                    Ok(Shown::Given(Batch::new(images.leak(), labels.leak()).with_views(2)))
                })
                .unwrap();
            }
            run
        });
        let [stored, given] = runs.each_mut().map(|run| {
            let (training, seen) = run.read(&mut engine).unwrap();
            (training.parameters().to_vec(), seen)
        });
        assert_eq!(stored, given, "padding {padding}, reflected {reflect}");
    }
}

#[test]
fn what_is_not_in_the_slots_is_refused_and_ends_the_run() {
    let Some(gpu) = gpu() else { return };
    let data = Data::new();
    let mut engine = engine(gpu);
    let other = |slots: &[Option<u32>]| {
        let mut places = places(slots);
        places[3].example = (places[3].example + 1) % EXAMPLES as u32;
        places
    };
    let short = |slots: &[Option<u32>]| places(&slots[1..]);
    let twice = |slots: &[Option<u32>]| {
        let mut places = places(slots);
        places[0] = places[1];
        places
    };
    type Wrong<'a> = &'a dyn Fn(&[Option<u32>]) -> Vec<ViewPlace>;
    for wrong in [&other as Wrong<'_>, &short, &twice] {
        let images = Some(data.images(0, false));
        let mut run =
            ResidentTraining::new(start(Sampling::FixedOrder), &mut engine, images).unwrap();
        let found = run.step(&mut engine, |_, slots| Ok(Shown::Stored(wrong(slots).leak())));
        assert!(matches!(found, Err(Failed::Engine(EngineError::Shown { .. }))), "{found:?}");
        let found = run.step(&mut engine, |_, slots| Ok(Shown::Stored(places(slots).leak())));
        assert!(matches!(found, Err(Failed::Training(TrainingError::Ended))), "{found:?}");
    }
}

#[test]
fn a_batch_that_does_not_fit_at_once_is_summed_in_pieces() {
    let Some(gpu) = gpu() else { return };
    let data = Data::new();
    let [whole, pieces] = [0, 16].map(|microbatch| {
        let options = EngineOptions { microbatch, ..EngineOptions::default() };
        let mut engine = GpuEngine::new(&model(), gpu, options).unwrap();
        let images = Some(data.images(0, false));
        let mut run =
            ResidentTraining::new(start(Sampling::FixedOrder), &mut engine, images).unwrap();
        steps(&mut run, &mut engine, 2);
        let (training, seen) = run.read(&mut engine).unwrap();
        (training.parameters().to_vec(), seen)
    });
    assert_eq!(whole.0, pieces.0);
    for (StepSeen { metrics, counts }, of_pieces) in whole.1.iter().zip(&pieces.1) {
        assert_eq!(*counts, of_pieces.counts);
        let of_pieces = of_pieces.metrics;
        assert_eq!((metrics.images, metrics.correct), (of_pieces.images, of_pieces.correct));
        assert!((metrics.loss_sum - of_pieces.loss_sum).abs() < 1e-5 * metrics.loss_sum);
    }
}

#[test]
fn an_empty_batch_gets_its_noise_and_nothing_else() {
    let Some(gpu) = gpu() else { return };
    let data = Data::new();
    let mut engine = engine(gpu);
    let parameters = vec![1.0; model().parameter_count()];
    let momenta = vec![0.0; parameters.len()];
    let images = Some(data.images(0, false));
    let mut resident = Resident::new(&mut engine, &parameters, &momenta, images).unwrap();
    let low: Vec<u32> = (0..parameters.len() as u32).collect();
    for shown in [Shown::Stored(&[]), Shown::Given(Batch::new(&[], &[]))] {
        let noise = FixedNoise { exponent: -10, words: low.clone(), wide: false, scale: 0.5 };
        let sum = resident.clipped_sum(&mut engine, &[], shown, 1.0).unwrap();
        let sgd = Sgd::new(1.0, 0.0).unwrap();
        sum.with_noise(noise).step(&mut engine, sgd, 1.0).unwrap();
    }
    let found = resident.read(&mut engine).unwrap();
    assert_eq!(found.steps.len(), 2);
    assert!(found.steps.iter().all(|seen| seen.counts == ClipCounts::default()));
    for (i, (&momentum, &parameter)) in found.momenta.iter().zip(&found.parameters).enumerate() {
        assert_eq!(momentum, 0.5 * i as f32);
        assert_eq!(parameter, 1.0 - i as f32);
    }
}

#[test]
fn images_that_do_not_fit_are_refused_and_a_run_stays_with_its_engine() {
    let Some(gpu) = gpu() else { return };
    let data = Data::new();
    let mut first = engine(gpu);
    let images = data.images(0, false);
    let wrong = [
        ByteImages { width: 8, ..images },
        ByteImages { bytes: &images.bytes[1..], ..images },
        ByteImages { padding: 7, reflect: true, ..images },
        ByteImages { labels: &[5; EXAMPLES], ..images },
    ];
    for images in wrong {
        let found = ResidentTraining::new(start(Sampling::FixedOrder), &mut first, Some(images));
        assert!(matches!(found, Err(EngineError::Stored { .. })), "{found:?}");
    }
    let mut run =
        ResidentTraining::new(start(Sampling::FixedOrder), &mut first, Some(images)).unwrap();
    let found = step_of_given(&mut run, &mut engine(gpu), &data);
    assert!(matches!(found, Err(Failed::Engine(EngineError::OtherEngine))), "{found:?}");
}
