//! Whole runs of modules.

use burn::module::{Module, RunningState};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use mf_core::{Method, Participation, Sgd};

use super::*;
use crate::certificate::{Certificate, LIMITS};
use crate::module::{PrivateTraining, Tapped, trained_parameters};
use crate::plan::Sampling;
use crate::seal::Seal;
use crate::{Budget, Clipping, Disclosure, DpPlan, NoiseKey, PlanRequest, RunSeed, verify};

#[derive(Module, Debug)]
struct Net {
    first: Linear,
    second: Linear,
}

impl Net {
    fn new(device: &Device) -> Self {
        let first = LinearConfig::new(5, 8).init(device);
        shaken(Self { first, second: LinearConfig::new(8, 3).init(device) })
    }
}

fn plan(sampling: Sampling) -> DpPlan {
    let net = Net::new(&Device::flex().autodiff());
    let request = PlanRequest::new(
        Method::Bsr { bands: 4 },
        Sgd::new(1.0, 0.9).unwrap(),
        Participation::epochs(3, 4).unwrap(),
        Budget { epsilon: 8.0, delta: 1e-5 },
        Clipping { batch_size: 50, clip_norm: 1.0 },
        trained_parameters(&net).unwrap(),
    );
    request.with_sampling(sampling).plan().unwrap()
}

fn loss(x: &Tensor<2>) -> impl FnMut(&Net, &[u32]) -> Tensor<1> {
    let x = x.clone();
    move |net, examples| {
        let y = net.second.tapped(net.first.tapped(rows(&x, examples)).tanh());
        let n = examples.len();
        (y.clone() * y).sum_dim(1).reshape([n])
    }
}

fn private(sampling: Sampling) -> PrivateTraining<Net> {
    let net = Net::new(&Device::flex().autodiff());
    let key = NoiseKey::fixed(RunSeed(5));
    PrivateTraining::new(net, plan(sampling), 200, 0.1, RunSeed(3), key).unwrap()
}

#[test]
fn a_run_is_that_of_its_one_by_one_gradients_and_its_certificate_holds() {
    let x = numbers([200, 5], 9, &Device::flex().autodiff());
    for sampling in [Sampling::FixedOrder, Sampling::BallsInBins] {
        let mut ends = Vec::new();
        for way in [PerExample::Auto, PerExample::TwoPasses, PerExample::OneByOne] {
            let mut run = private(sampling).gradients(way).microbatch(48);
            while !run.is_finished() {
                run.step(loss(&x)).unwrap();
            }
            let decided = if way == PerExample::Auto { PerExample::Taps } else { way };
            assert_eq!(run.way(), decided);
            let (net, certificate) = run.finish(Disclosure::default());
            let verdict = verify(&certificate);
            assert!(verdict.holds(), "{verdict:?}");
            let artifacts = certificate.artifacts;
            assert!(artifacts.module_sha256.is_some() && artifacts.frozen_sha256.is_none());
            // The words that hold for other runs do not hold for a module's.
            let other = Certificate { limits: LIMITS.to_owned(), ..certificate };
            assert!(!verify(&other).holds());
            ends.push(Layout::of(&net).unwrap().values(&net));
        }
        for other in &ends[1..] {
            let most = ends[0].iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(most < 1e-4, "{most}");
        }
    }
}

#[test]
fn a_run_continues_bit_by_bit_and_only_as_itself() {
    let device = Device::flex().autodiff();
    let x = numbers([200, 5], 9, &device);
    let (mut whole, mut begun) = (private(Sampling::FixedOrder), private(Sampling::FixedOrder));
    for _ in 0..5 {
        whole.step(loss(&x)).unwrap();
        begun.step(loss(&x)).unwrap();
    }
    let mut file = Vec::new();
    let seal = |data: &str| {
        let mut seal = Seal::default();
        seal.bind("data", data);
        seal
    };
    begun.save(&mut file, seal("numbers"), b"note").unwrap();
    let resume = |net: Net, seal: Seal| {
        let plan = plan(Sampling::FixedOrder);
        PrivateTraining::resume(net, plan, 200, 0.1, RunSeed(3), seal, &file[..])
    };
    let (mut resumed, note) = resume(Net::new(&device), seal("numbers")).unwrap();
    assert_eq!(note, b"note");
    while !whole.is_finished() {
        whole.step(loss(&x)).unwrap();
        resumed.step(loss(&x)).unwrap();
    }
    assert_eq!(whole.training().parameters(), resumed.training().parameters());
    // The module is what the run says it is.
    let layout = Layout::of(resumed.module()).unwrap();
    assert_eq!(layout.values(resumed.module()), resumed.training().parameters());
    let error = resume(Net::new(&device), seal("others")).unwrap_err().to_string();
    assert!(error.contains("data was numbers"), "{error}");
    let mut other = Net::new(&device);
    other.first.bias = other.first.bias.map(|bias| bias.set_require_grad(false));
    assert!(resume(other, seal("numbers")).is_err());
}

#[test]
fn way_and_microbatch_are_those_that_were_saved_and_others_are_refused() {
    let device = Device::flex().autodiff();
    let x = numbers([200, 5], 9, &device);
    let begin = || private(Sampling::FixedOrder).gradients(PerExample::TwoPasses).microbatch(7);
    let resume = |file: &[u8]| {
        let (plan, net) = (plan(Sampling::FixedOrder), Net::new(&device));
        PrivateTraining::resume(net, plan, 200, 0.1, RunSeed(3), Seal::default(), file).unwrap().0
    };
    let file = |run: &PrivateTraining<Net>| {
        let mut file = Vec::new();
        run.save(&mut file, Seal::default(), b"").unwrap();
        file
    };
    let (mut whole, before) = (begin(), file(&begin()));
    let mut begun = begin();
    for _ in 0..5 {
        whole.step(loss(&x)).unwrap();
        begun.step(loss(&x)).unwrap();
    }
    // Nothing is said again, or the same.
    let same = |run: PrivateTraining<Net>| run.gradients(PerExample::TwoPasses).microbatch(7);
    let any = |run: PrivateTraining<Net>| run.gradients(PerExample::Auto);
    let saved = file(&begun);
    let mut resumed =
        [resume(&before), resume(&saved), same(resume(&saved)), any(resume(&saved)), same(begun)];
    while !whole.is_finished() {
        whole.step(loss(&x)).unwrap();
    }
    for run in &mut resumed {
        assert_eq!(run.way(), PerExample::TwoPasses);
        while !run.is_finished() {
            run.step(loss(&x)).unwrap();
        }
        assert_eq!(run.training().parameters(), whole.training().parameters());
    }
    // Others would make other gradients under the same noise: after a step, a checkpoint or a continuation.
    let (mut stepped, written) = (begin(), begin());
    stepped.step(loss(&x)).unwrap();
    file(&written);
    for run in [stepped, written, resume(&before), resume(&saved)] {
        let taken = run.training().steps_taken();
        let mut run = run.microbatch(8);
        for _ in 0..2 {
            let error = run.step(loss(&x)).unwrap_err().to_string();
            assert!(
                error.starts_with("the microbatch was 7 when the run began and is 8"),
                "{error}"
            );
        }
        assert_eq!(run.training().steps_taken(), taken);
    }
    let error = resume(&saved).gradients(PerExample::Taps).step(loss(&x)).unwrap_err().to_string();
    assert!(error.starts_with("the way to gradients was TwoPasses when"), "{error}");
    // What a run found by itself is saved too.
    let mut found = private(Sampling::FixedOrder);
    found.step(loss(&x)).unwrap();
    assert_eq!(resume(&file(&found)).way(), PerExample::Taps);
}

#[test]
fn a_module_that_fails_its_check_takes_no_step() {
    let x = numbers([200, 5], 9, &Device::flex().autodiff());
    let mut run = private(Sampling::FixedOrder);
    let before = run.training().parameters().to_vec();
    let error = run.step(|net: &Net, examples: &[u32]| loss(&x)(net, examples).mean()).unwrap_err();
    assert!(error.to_string().contains("4 examples have 1 losses"), "{error}");
    assert_eq!(run.training().steps_taken(), 0);
    assert_eq!(run.training().parameters(), before);
    run.step(loss(&x)).unwrap();
}

#[test]
fn a_module_that_the_run_was_begun_with_is_not_the_one_that_is_trained() {
    let x = numbers([200, 5], 9, &Device::flex().autodiff());
    for way in [PerExample::Auto, PerExample::Taps, PerExample::TwoPasses, PerExample::OneByOne] {
        let net = Net::new(&Device::flex().autodiff()).train();
        let (before, key) = (net.clone(), NoiseKey::fixed(RunSeed(5)));
        let plan = plan(Sampling::FixedOrder);
        let run = PrivateTraining::new(net, plan, 200, 0.1, RunSeed(3), key).unwrap();
        let mut run = run.gradients(way);
        let found = run.step(|_: &Net, examples: &[u32]| loss(&x)(&before, examples));
        assert!(found.is_err(), "{way:?} trains on what a module was before");
    }
}

#[test]
fn a_plan_of_another_size_is_refused() {
    let net = LinearConfig::new(2, 2).init(&Device::flex().autodiff());
    let key = NoiseKey::fixed(RunSeed(5));
    let found = PrivateTraining::new(net, plan(Sampling::FixedOrder), 200, 0.1, RunSeed(3), key);
    let error = found.unwrap_err().to_string();
    assert_eq!(error, "the plan is for 75 parameters, but the model has 6");
}

/// A net with a state that some passes change.
#[derive(Module, Debug)]
struct Remembering {
    net: Net,
    seen: RunningState<Tensor<1>>,
}

#[test]
fn a_state_that_changes_after_the_check_ends_in_no_checkpoint_and_no_last_step() {
    let device = Device::flex().autodiff();
    let x = numbers([200, 5], 9, &device);
    let begin = || {
        let seen = RunningState::new(Tensor::<1>::zeros([4], &device.clone().inner()));
        let module = Remembering { net: Net::new(&device), seen };
        let key = NoiseKey::fixed(RunSeed(5));
        PrivateTraining::new(module, plan(Sampling::FixedOrder), 200, 0.1, RunSeed(3), key).unwrap()
    };
    let step = |run: &mut PrivateTraining<Remembering>, remember: bool| {
        run.step(|module: &Remembering, examples: &[u32]| {
            if remember && examples.len() > 4 {
                module.seen.update(Tensor::ones([4], &device.clone().inner()));
            }
            loss(&x)(&module.net, examples)
        })
    };
    let save = |run: &PrivateTraining<Remembering>| {
        run.save(Vec::new(), Seal::default(), b"").map_err(|error| error.to_string())
    };
    let mut run = begin();
    step(&mut run, false).unwrap();
    assert_eq!(save(&run), Ok(()));
    step(&mut run, true).unwrap();
    assert!(save(&run).unwrap_err().contains("changed a state"));
    while run.training().steps_taken() + 1 < run.training().plan().request().steps {
        step(&mut run, false).unwrap();
    }
    assert!(matches!(step(&mut run, false), Err(ModuleError::State)));
    assert!(!run.is_finished());
    // A run that remembers nothing comes to its end.
    let mut run = begin();
    while !run.is_finished() {
        step(&mut run, false).unwrap();
    }
    assert!(run.finish(Disclosure::default()).1.artifacts.frozen_sha256.is_some());
}

#[test]
fn devices_that_keep_less_for_the_backward_pass_train_by_every_way() {
    let device = Device::flex().autodiff().gradient_checkpointing();
    let x = numbers([200, 5], 9, &device);
    let mut ends = Vec::new();
    for way in [PerExample::Taps, PerExample::TwoPasses, PerExample::OneByOne] {
        let (net, key) = (Net::new(&device), NoiseKey::fixed(RunSeed(5)));
        let plan = plan(Sampling::FixedOrder);
        let run = PrivateTraining::new(net, plan, 200, 0.1, RunSeed(3), key).unwrap();
        let mut run = run.gradients(way);
        run.step(loss(&x)).unwrap();
        ends.push(run.training().parameters().to_vec());
    }
    for other in &ends[1..] {
        let most = ends[0].iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(most < 1e-4, "{most}");
    }
}
