//! burn's `Learner` trains a module on private gradients.

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Int, Tensor};
use burn::train::metric::LossMetric;
use burn::train::{
    ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep,
};
use dp_train::mf_core::{Method, Participation, Sgd};
use dp_train::module::{
    ModuleError, PerExample, PrivateBatch, PrivateSteps, Tapped, cross_entropy, trained_parameters,
};
use dp_train::{Budget, Clipping, Disclosure, NoiseKey, PlanRequest, RunSeed, verify};

#[derive(Module, Debug)]
struct Net {
    layer: Linear,
}

/// Two numbers, and which of them is larger.
fn load(examples: &[u32], device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
    let number = |i: u32| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0;
    let x: Vec<f32> = examples.iter().flat_map(|&i| [number(2 * i), number(2 * i + 1)]).collect();
    let n = examples.len();
    let x = Tensor::<1>::from_data(&x[..], device).reshape([n, 2]);
    (x.clone(), x.argmax(1).reshape([n]))
}

fn output(net: &Net, examples: &[u32]) -> ClassificationOutput {
    let (x, y) = load(examples, &net.layer.weight.device());
    let logits = net.layer.tapped(x);
    ClassificationOutput::new(cross_entropy(logits.clone(), y.clone()).mean(), logits, y)
}

impl TrainStep for Net {
    type Input = PrivateBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: PrivateBatch) -> TrainOutput<ClassificationOutput> {
        let grads = batch.gradients(self, |net, examples| {
            let (x, y) = load(examples, &net.layer.weight.device());
            cross_entropy(net.layer.tapped(x), y)
        });
        TrainOutput { grads: grads.unwrap(), item: output(self, batch.examples()) }
    }
}

impl InferenceStep for Net {
    type Input = Vec<u32>;
    type Output = ClassificationOutput;

    fn step(&self, examples: Vec<u32>) -> ClassificationOutput {
        output(self, &examples)
    }
}

struct Numbers;

impl Batcher<u32, Vec<u32>> for Numbers {
    fn batch(&self, items: Vec<u32>, _: &Device) -> Vec<u32> {
        items
    }
}

fn steps(net: &Net) -> PrivateSteps {
    steps_with(net, NoiseKey::from_os().unwrap())
}

fn steps_with(net: &Net, key: NoiseKey) -> PrivateSteps {
    let plan = PlanRequest::new(
        Method::Bsr { bands: 5 },
        Sgd::new(1.0, 0.0).unwrap(),
        Participation::epochs(3, 5).unwrap(),
        Budget { epsilon: 8.0, delta: 1e-5 },
        Clipping { batch_size: 100, clip_norm: 1.0 },
        trained_parameters(net).unwrap(),
    );
    PrivateSteps::new(net, plan.plan().unwrap(), 500, RunSeed(1), key).unwrap()
}

fn net() -> Net {
    let device = Device::flex().autodiff();
    Net { layer: LinearConfig::new(2, 2).init(&device) }
}

#[test]
fn a_learner_trains_privately_and_the_certificate_holds() {
    let folder = std::env::temp_dir().join(format!("bandroot-learner-{}", std::process::id()));
    let (net, valid) = (net(), InMemDataset::new((500..700).collect()));
    let steps = steps(&net);
    let valid = DataLoaderBuilder::new(Numbers).batch_size(100).build(valid);
    let training = SupervisedTraining::new(&folder, steps.loader(), valid)
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .num_epochs(3);
    let result = training.launch(Learner::new(net, SgdConfig::new().init(), 1.0));
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(result.error.is_none());
    let certificate = steps.certificate(Disclosure::default());
    assert_eq!(certificate.realized.steps, 15);
    assert!(verify(&certificate).is_private(), "{}", verify(&certificate));
    let unseen: Vec<u32> = (700..1700).collect();
    let found = output(&result.model, &unseen);
    let right = found.output.argmax(1).reshape([1000]).equal(found.targets).int().sum();
    let right = right.into_scalar::<i32>();
    assert!(right > 800, "{right} of 1000");
}

#[test]
fn every_batch_has_its_gradients_once_and_in_order() {
    let net = net();
    let steps = steps(&net);
    let loader = steps.loader();
    let batches: Vec<PrivateBatch> = loader.iter().map(Result::unwrap).collect();
    assert_eq!(batches.len(), 5);
    let gradients = |batch: &PrivateBatch| {
        batch.gradients(&net, |net: &Net, examples: &[u32]| {
            let (x, y) = load(examples, &net.layer.weight.device());
            cross_entropy(net.layer.tapped(x), y)
        })
    };
    assert!(matches!(gradients(&batches[1]), Err(ModuleError::OtherStep { step: 1, next: 0 })));
    assert_eq!(gradients(&batches[0]).unwrap().len(), 2);
    assert!(matches!(gradients(&batches[0]), Err(ModuleError::OtherStep { step: 0, next: 1 })));
    for batch in &batches[1..] {
        gradients(batch).unwrap();
    }
    for _ in 0..2 {
        let epoch: Vec<PrivateBatch> = loader.iter().map(Result::unwrap).collect();
        epoch.iter().for_each(|batch| drop(gradients(batch).unwrap()));
    }
    // The plan is spent.
    assert_eq!(loader.iter().count(), 0);
    assert!(gradients(&batches[0]).is_err());
    // Examples of a batch are those that the plan's order has: none twice in an epoch.
    let mut all: Vec<u32> = batches.iter().flat_map(|batch| batch.examples().to_vec()).collect();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..500));
}

#[test]
fn every_way_and_microbatch_releases_the_same_but_for_rounding() {
    let net = net();
    let released = |set: fn(PrivateSteps) -> PrivateSteps, way| {
        let steps = set(steps_with(&net, NoiseKey::fixed(RunSeed(3))));
        let (mut calls, loader) = (0, steps.loader());
        let batch = loader.iter().next().unwrap().unwrap();
        assert_eq!(batch.step(), 0);
        let gradients = batch.gradients(&net, |net: &Net, examples: &[u32]| {
            calls += 1;
            let (x, y) = load(examples, &net.layer.weight.device());
            cross_entropy(net.layer.tapped(x), y)
        });
        assert_eq!(steps.way(), way);
        let weights = gradients.unwrap().get::<2>(net.layer.weight.id).unwrap();
        (weights, calls)
    };
    let (expected, few) = released(|steps| steps, PerExample::Taps);
    let (taps, more) = released(|steps| steps.microbatch(10), PerExample::Taps);
    // A batch of 100, in one call or in ten.
    assert_eq!(more, few + 9);
    let (one_by_one, most) =
        released(|steps| steps.gradients(PerExample::OneByOne), PerExample::OneByOne);
    assert!(most > 100);
    for found in [taps, one_by_one] {
        let apart: f32 = (found - expected.clone()).abs().max().into_scalar();
        assert!(apart < 1e-5, "{apart:e}");
    }
}

#[test]
fn a_frozen_copy_of_a_trained_layer_is_refused_by_both_names() {
    #[derive(Module, Debug)]
    struct Copied {
        layer: Linear,
        teacher: Linear,
    }
    let layer = net().layer;
    let begin = |teacher: Linear| {
        let net = Copied { layer: layer.clone(), teacher };
        let (method, sgd) = (Method::Bsr { bands: 5 }, Sgd::new(1.0, 0.0).unwrap());
        let (participation, budget) =
            (Participation::epochs(3, 5).unwrap(), Budget { epsilon: 8.0, delta: 1e-5 });
        let clipping = Clipping { batch_size: 100, clip_norm: 1.0 };
        let size = trained_parameters(&net).unwrap();
        let plan = PlanRequest::new(method, sgd, participation, budget, clipping, size).plan();
        PrivateSteps::new(&net, plan.unwrap(), 500, RunSeed(1), NoiseKey::from_os().unwrap())
    };
    let error = begin(layer.clone().no_grad()).unwrap_err().to_string();
    assert!(error.contains("teacher.weight is a frozen copy of layer.weight"), "{error}");
    begin(net().layer.no_grad()).unwrap();
}
