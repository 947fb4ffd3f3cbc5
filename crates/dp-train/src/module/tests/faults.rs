//! Modules that cannot be trained privately, refused by name.

use burn::module::{Flag, Module, Param, RunningState};
use burn::nn::conv::{Conv1d, Conv1dConfig, Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::{DType, Device, Distribution, Tensor, TensorData};

use super::*;
use crate::module::Tapped;

fn checked<M: Module>(
    module: M,
    way: PerExample,
    mut loss: impl FnMut(&M, &[u32]) -> Tensor<1>,
) -> Result<PerExample, ModuleError> {
    let module = module.train();
    let layout = Layout::of(&module)?;
    check(&module, &layout, way, &mut loss, &[0, 1, 2, 3]).map(|checked| checked.way)
}

fn refused<M: Module>(
    module: M,
    way: PerExample,
    words: &str,
    loss: impl FnMut(&M, &[u32]) -> Tensor<1>,
) {
    let error = checked(module, way, loss).unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
}

pub(super) fn linear(device: &Device) -> Linear {
    shaken(LinearConfig::new(4, 4).init(device))
}

pub(super) fn flex() -> Device {
    Device::flex().autodiff()
}

const ALL: [PerExample; 4] =
    [PerExample::Auto, PerExample::Taps, PerExample::TwoPasses, PerExample::OneByOne];

#[derive(Module, Debug)]
struct Normalized {
    layer: Linear,
    norm: BatchNorm,
}

#[test]
fn batch_normalization_is_refused_by_name_unless_it_is_frozen() {
    let device = flex();
    let module =
        || Normalized { layer: linear(&device), norm: BatchNormConfig::new(4).init(&device) };
    let x = numbers([8, 4], 1, &device);
    let loss = |module: &Normalized, examples: &[u32]| {
        losses(module.norm.forward(module.layer.tapped(rows(&x, examples))), examples)
    };
    for way in ALL {
        refused(module(), way, "norm is a BatchNorm in training", loss);
    }
    let module = module();
    let frozen = Normalized { norm: module.norm.clone().freeze(), ..module };
    assert_eq!(checked(frozen, PerExample::Auto, loss).unwrap(), PerExample::Taps);
}

#[test]
fn a_mean_loss_is_refused() {
    let device = flex();
    let x = numbers([8, 4], 1, &device);
    for way in ALL {
        refused(linear(&device), way, "4 examples have 1 losses", |layer: &Linear, examples| {
            losses(layer.tapped(rows(&x, examples)), examples).mean()
        });
    }
}

#[test]
fn examples_that_have_influence_on_others_are_refused() {
    let device = flex();
    let x = numbers([8, 4], 1, &device);
    for way in ALL {
        refused(linear(&device), way, "the module mixes examples", |layer: &Linear, examples| {
            let y = layer.tapped(rows(&x, examples));
            let mean = y.clone().mean_dim(0);
            losses(y - mean, examples)
        });
        // The losses are right, and only their gradients go astray.
        if way != PerExample::OneByOne {
            refused(linear(&device), way, "one-by-one", |layer: &Linear, examples| {
                let y = layer.tapped(rows(&x, examples));
                let mean = y.clone().mean_dim(0);
                losses(y + mean.clone() - mean.detach(), examples)
            });
        }
    }
}

#[test]
fn a_parameter_without_a_tap_is_named_and_goes_one_by_one() {
    let device = flex();
    #[derive(Module, Debug)]
    struct Half {
        first: Linear,
        second: Linear,
    }
    let module = || Half { first: linear(&device), second: linear(&device) };
    let x = numbers([8, 4], 1, &device);
    let loss = |module: &Half, examples: &[u32]| {
        losses(module.second.forward(module.first.tapped(rows(&x, examples))), examples)
    };
    for way in [PerExample::Taps, PerExample::TwoPasses] {
        refused(module(), way, "second.weight is used where no tap sees it", loss);
    }
    assert_eq!(checked(module(), PerExample::Auto, loss).unwrap(), PerExample::OneByOne);
    // Tapped once, and used again beside the tap.
    let loss = |module: &Half, examples: &[u32]| {
        let x = module.first.tapped(rows(&x, examples));
        let x = module.first.forward(module.second.tapped(x));
        losses(x, examples)
    };
    refused(module(), PerExample::Taps, "first.weight is used where no tap sees it", loss);
    // On a thread of its own there is no tape.
    let loss = |module: &Half, examples: &[u32]| {
        let x = rows(&x, examples);
        let y = std::thread::scope(|scope| scope.spawn(|| module.first.tapped(x)).join().unwrap());
        losses(module.second.tapped(y), examples)
    };
    refused(module(), PerExample::Taps, "first.weight is used where no tap sees it", loss);
}

#[test]
fn shared_weights_are_refused_by_both_names() {
    let device = flex();
    #[derive(Module, Debug)]
    struct Tied {
        first: Linear,
        second: Linear,
    }
    let first = linear(&device);
    let module = Tied { second: first.clone(), first };
    let x = numbers([8, 4], 1, &device);
    for way in ALL {
        refused(
            module.clone(),
            way,
            "first.weight and second.weight are one parameter",
            |m, examples| losses(m.second.tapped(m.first.tapped(rows(&x, examples))), examples),
        );
    }
}

#[test]
fn rows_that_are_not_examples_are_refused() {
    let device = flex();
    let x = numbers([8, 3, 4], 1, &device);
    let loss = |layer: &Linear, examples: &[u32]| {
        let n = examples.len();
        let y = layer.tapped(rows(&x, examples).reshape([n * 3, 4]));
        losses(y.reshape([n, 12]), examples)
    };
    refused(linear(&device), PerExample::Taps, "weight saw 12 rows for 4 examples", loss);
    assert_eq!(checked(linear(&device), PerExample::Auto, loss).unwrap(), PerExample::OneByOne);
}

#[test]
fn masks_at_random_that_layers_do_not_know_of_are_refused() {
    let device = flex();
    let x = numbers([8, 4], 1, &device);
    for way in ALL {
        refused(linear(&device), way, "random", |layer: &Linear, examples| {
            let y = layer.tapped(rows(&x, examples));
            // One mask for all examples.
            let mask = Tensor::<2>::random([1, 4], Distribution::Uniform(1.0, 9.0), &y.device());
            losses(y * mask, examples)
        });
    }
}

#[test]
fn a_state_that_a_pass_changes_is_refused() {
    let device = flex();
    #[derive(Module, Debug)]
    struct Counting {
        layer: Linear,
        seen: RunningState<Tensor<1>>,
    }
    let seen = RunningState::new(Tensor::<1>::zeros([4], &device.clone().inner()));
    let module = Counting { layer: linear(&device), seen };
    let x = numbers([8, 4], 1, &device);
    for way in ALL {
        refused(module.clone(), way, "changed a state", |module: &Counting, examples| {
            let x = rows(&x, examples);
            let mean = x.clone().inner().mean_dim(0).reshape([4]);
            module.seen.update(mean);
            losses(module.layer.tapped(x), examples)
        });
    }
}

#[test]
fn nothing_to_train_other_numbers_and_foreign_modules_are_refused() {
    let device = flex();
    let x = numbers([8, 4], 1, &device);
    let loss =
        |layer: &Linear, examples: &[u32]| losses(layer.tapped(rows(&x, examples)), examples);
    refused(linear(&device).no_grad(), PerExample::Auto, "nothing to train", loss);
    let other = linear(&device);
    refused(linear(&device), PerExample::Taps, "another module", |_: &Linear, examples| {
        losses(other.tapped(rows(&x, examples)), examples)
    });
    refused(linear(&device), PerExample::Auto, "do not depend", |_: &Linear, examples| {
        losses(rows(&x, examples), examples)
    });
    let halves = Param::from_tensor(numbers([4], 1, &device).cast(DType::F64));
    refused(halves, PerExample::Auto, "proven for f32 only", |_, examples| {
        losses(rows(&x, examples), examples)
    });
}

#[test]
fn examples_that_are_not_finite_contribute_nothing_and_end_nothing() {
    let device = flex();
    let mut values = numbers([40, 4], 1, &device).into_data().try_to_vec::<f32>().unwrap();
    values[4 * 3] = f32::NAN;
    values[4 * 20] = f32::INFINITY;
    values[4 * 33] = 3e38;
    let x = Tensor::<2>::from_data(TensorData::new(values, [40, 4]), &device);
    let layer = linear(&device);
    let mut loss = |layer: &Linear, examples: &[u32]| {
        losses(layer.tapped(rows(&x, examples)).tanh(), examples)
    };
    let all: Vec<u32> = (0..40).collect();
    let good: Vec<u32> = all.iter().copied().filter(|j| ![3, 20, 33].contains(j)).collect();
    let (expected, _) = sum(&layer, PerExample::OneByOne, &mut loss, &good, 0.5).unwrap();
    for way in [PerExample::Taps, PerExample::TwoPasses, PerExample::OneByOne] {
        let (found, counts) = sum(&layer, way, &mut loss, &all, 0.5).unwrap();
        let difference: Vec<f64> = found.iter().zip(&expected).map(|(a, b)| a - b).collect();
        assert!(counts.non_finite >= 2 && counts.examples == 40, "{way:?}: {counts:?}");
        // The third is finite where norms are f64.
        assert!(length(&difference) < 0.5 + 1e-4, "{way:?}: {}", length(&difference));
        assert!(found.iter().all(|value| value.is_finite()));
    }
}

#[test]
fn an_example_that_is_not_finite_changes_nothing_of_the_others() {
    let device = flex();
    let layer = linear(&device);
    // The squares of their norms are beyond f32: they contribute nothing, with a bad example among them or without.
    let all: Vec<u32> = (0..32).collect();
    for way in [PerExample::Taps, PerExample::TwoPasses] {
        for seventh in [0.0, f32::INFINITY, f32::NAN] {
            let mut loss = |layer: &Linear, examples: &[u32]| {
                let number = |&i: &u32| if i == 7 { seventh } else { 0.5 };
                let x: Vec<f32> = examples.iter().flat_map(|i| [number(i); 4]).collect();
                let x = Tensor::<2>::from_data(TensorData::new(x, [examples.len(), 4]), &device);
                layer.tapped(x).sum_dim(1).reshape([examples.len()]).mul_scalar(1e19)
            };
            let (found, counts) = sum(&layer, way, &mut loss, &all, 0.5).unwrap();
            assert_eq!((counts.examples, counts.non_finite), (32, 32), "{way:?}, {seventh}");
            assert_eq!(length(&found), 0.0, "{way:?}, {seventh}");
        }
    }
}

#[test]
fn inputs_whose_squares_vanish_count_beside_huge_gradients() {
    let device = flex();
    let clip_norm = 1e-6;
    let unit = |found: (Vec<f64>, ClipCounts), what: &str| {
        let excess = length(&found.0) / clip_norm;
        assert!(excess < 1.0 + 1e-4 && found.1.clipped == 1, "{what}: {excess}");
    };
    for (positions, inner, outer) in [(1, 64, 4), (3, 40, 30), (20, 2, 2)] {
        let layer: Linear = LinearConfig::new(inner, outer).with_bias(false).init(&device);
        for way in [PerExample::Taps, PerExample::TwoPasses] {
            let mut loss = |layer: &Linear, examples: &[u32]| {
                let n = examples.len();
                let x = Tensor::<3>::full([n, positions, inner], 2e-23, &device);
                layer.tapped(x).mul_scalar(1e18).sum_dim(1).sum_dim(2).reshape([n])
            };
            let found = sum(&layer, way, &mut loss, &[0], clip_norm).unwrap();
            unit(found, &format!("{positions} positions by {way:?}"));
        }
    }
    let config = Conv2dConfig::new([32, 32], [3, 3]).with_bias(false);
    let mut loss = |layer: &Conv2d, examples: &[u32]| {
        let n = examples.len();
        let x = Tensor::<4>::full([n, 32, 4, 4], 2e-23, &device);
        layer.tapped(x).mul_scalar(1e18).sum_dim(1).sum_dim(2).sum_dim(3).reshape([n])
    };
    unit(
        sum(&config.init(&device), PerExample::Taps, &mut loss, &[0], clip_norm).unwrap(),
        "a kernel",
    );
}

/// A layer of one's own that behaves differently in training.
#[derive(Module, Debug)]
struct Flagged {
    layer: Linear,
    training: Param<Flag>,
    seen: RunningState<Tensor<1>>,
}

#[test]
fn what_mixes_examples_or_keeps_something_of_them_in_training_only_is_refused() {
    let device = flex();
    let module = || Flagged {
        layer: linear(&device),
        training: Param::from_bool(true),
        seen: RunningState::new(Tensor::<1>::zeros([4], &device.clone().inner())),
    };
    let x = numbers([8, 4], 1, &device);
    let centred = |module: &Flagged, examples: &[u32]| {
        let y = module.layer.tapped(rows(&x, examples));
        let mean = y.clone().mean_dim(0);
        losses(if module.training.is_enabled() { y - mean } else { y }, examples)
    };
    let counting = |module: &Flagged, examples: &[u32]| {
        let y = module.layer.tapped(rows(&x, examples));
        if module.training.is_enabled() {
            module.seen.update(y.clone().inner().mean_dim(0).reshape([4]));
        }
        losses(y, examples)
    };
    for way in ALL {
        refused(module(), way, "mixes examples while its training flags are on", centred);
        refused(module(), way, "changed a state", counting);
    }
    let off = || Flagged { training: Param::from_bool(false), ..module() };
    assert_eq!(checked(off(), PerExample::Auto, centred).unwrap(), PerExample::Taps);
    // Masks from elsewhere cannot be drawn again: only single examples are known not to mix.
    let mut drawn = 0.0;
    let mut masked = |module: &Flagged, examples: &[u32]| {
        drawn += 1.0;
        let factor = if module.training.is_enabled() { drawn } else { 1.0 };
        losses(module.layer.tapped(rows(&x, examples)).mul_scalar(factor), examples)
    };
    refused(module(), PerExample::Taps, "no generator of burn", &mut masked);
    let way = checked(module(), PerExample::OneByOne, &mut masked).unwrap();
    assert_eq!(way, PerExample::OneByOne);
}

#[test]
fn losses_of_other_numbers_are_refused_and_vectors_go_one_by_one() {
    let device = flex();
    let x = numbers([8, 4], 1, &device);
    for dtype in [DType::F64, DType::F16] {
        refused(linear(&device), PerExample::Auto, "the loss has numbers", |layer, examples| {
            losses(layer.tapped(rows(&x, examples)), examples).cast(dtype)
        });
    }
    let way = checked(linear(&device), PerExample::Auto, |layer, examples| {
        let one = |&i: &u32| layer.tapped(rows(&x, &[i]).reshape([4])).sum();
        Tensor::cat(examples.iter().map(one).collect(), 0)
    });
    assert_eq!(way.unwrap(), PerExample::OneByOne);
}

#[test]
fn augmentation_by_example_and_step_passes_and_one_that_runs_on_is_refused_with_advice() {
    let device = flex();
    let x = numbers([8, 4], 1, &device);
    let hashed = |seed: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / 2e7;
    let augmented = |layer: &Linear, examples: &[u32], factors: Vec<f32>| {
        let factors = Tensor::<1>::from_data(&factors[..], &device).reshape([examples.len(), 1]);
        losses(layer.tapped(rows(&x, examples) * factors), examples)
    };
    let step = 3;
    for way in [PerExample::Taps, PerExample::TwoPasses, PerExample::OneByOne] {
        let found = checked(linear(&device), way, |layer: &Linear, examples| {
            let seeded = examples.iter().map(|&i| hashed((step << 32) + u64::from(i) + 1));
            augmented(layer, examples, seeded.collect())
        });
        assert_eq!(found.unwrap(), way);
    }
    for way in ALL {
        let mut drawn = 0;
        let advice = "seeded by the example's number and the step";
        refused(linear(&device), way, advice, |layer: &Linear, examples| {
            let mut draw = |_| {
                drawn += 1;
                hashed(drawn)
            };
            augmented(layer, examples, examples.iter().map(&mut draw).collect())
        });
    }
}

/// If this fails, burn has mended it: then what is said at [`PerExample::OneByOne`] can go.
#[test]
fn burns_gradient_of_grouped_sequences_with_a_remainder_is_wrong_and_taps_are_right() {
    let device = flex();
    let config = Conv1dConfig::new(4, 4, 3).with_groups(2).with_stride(2);
    let sequence: Conv1d = shaken(config.init(&device));
    // The same over images of one row, which burn differentiates rightly.
    let config = Conv2dConfig::new([4, 4], [1, 3]).with_groups(2).with_stride([1, 2]);
    let mut image: Conv2d = config.init(&device);
    let weight = sequence.weight.val().inner().unsqueeze_dim::<4>(2);
    image.weight = Param::from_tensor(weight.autodiff().require_grad());
    image.bias = sequence.bias.clone();
    let examples: Vec<u32> = (0..8).collect();
    for (length_of, right) in [(9, true), (8, false)] {
        let x = numbers([8, 4, length_of], 1, &device);
        let mut of_sequence =
            |layer: &Conv1d, examples: &[u32]| losses(layer.tapped(rows(&x, examples)), examples);
        let mut of_image = |layer: &Conv2d, examples: &[u32]| {
            let row = rows(&x, examples).unsqueeze_dim::<4>(2);
            losses(layer.tapped(row).squeeze_dim::<3>(2), examples)
        };
        let one_by_one = PerExample::OneByOne;
        let (definition, _) = sum(&image, one_by_one, &mut of_image, &examples, 1e3).unwrap();
        let far = |found: &[f64]| {
            let difference: Vec<f64> = found.iter().zip(&definition).map(|(a, b)| a - b).collect();
            length(&difference) / length(&definition)
        };
        let (taps, _) = sum(&sequence, PerExample::Taps, &mut of_sequence, &examples, 1e3).unwrap();
        assert!(far(&taps) < 1e-5, "{}", far(&taps));
        let (burns, _) = sum(&sequence, one_by_one, &mut of_sequence, &examples, 1e3).unwrap();
        assert_eq!(far(&burns) < 1e-5, right, "{length_of}: {}", far(&burns));
        for way in [PerExample::Auto, PerExample::Taps, PerExample::TwoPasses] {
            let found = checked(sequence.clone(), way, &mut of_sequence);
            assert_eq!(found.is_ok(), right, "{way:?}: {found:?}");
            assert!(right || matches!(found, Err(ModuleError::Disagrees { .. })), "{found:?}");
        }
    }
}

#[test]
fn mixing_behind_weights_that_begin_with_zeros_is_refused() {
    let device = flex();
    #[derive(Module, Debug)]
    struct Headed {
        layer: Linear,
        head: Linear,
    }
    let zeros = burn::nn::Initializer::Zeros;
    let head = || LinearConfig::new(4, 4).with_initializer(zeros.clone()).init(&device);
    let module = || Headed { layer: linear(&device), head: head() };
    let x = numbers([8, 4], 1, &device);
    for way in ALL {
        refused(module(), way, "the module mixes examples", |module: &Headed, examples| {
            let y = module.layer.tapped(rows(&x, examples));
            // Zero at first, and so is its gradient.
            let gate = module.head.tapped(y.clone());
            losses(y + gate.clone() * gate.mean_dim(0), examples)
        });
    }
}

#[test]
fn small_losses_that_mix_are_refused_too() {
    let device = flex();
    let x = numbers([8, 4], 1, &device);
    refused(
        linear(&device),
        PerExample::OneByOne,
        "the module mixes examples",
        |layer: &Linear, examples| {
            let y = layer.tapped(rows(&x, examples));
            let mean = y.clone().mean_dim(0);
            losses(y - mean, examples).mul_scalar(1e-7)
        },
    );
}

#[test]
fn mixing_in_training_by_the_first_example_or_in_gradients_alone_is_refused() {
    let device = flex();
    let module = || Flagged {
        layer: linear(&device),
        training: Param::from_bool(true),
        seen: RunningState::new(Tensor::<1>::zeros([4], &device.clone().inner())),
    };
    let x = numbers([8, 4], 1, &device);
    let by_first = |module: &Flagged, examples: &[u32]| {
        let y = module.layer.tapped(rows(&x, examples));
        let first = y.clone().narrow(0, 0, 1);
        losses(if module.training.is_enabled() { y + first } else { y }, examples)
    };
    let hidden = |module: &Flagged, examples: &[u32]| {
        let y = module.layer.tapped(rows(&x, examples));
        let mean = y.clone().mean_dim(0);
        let mixed = y.clone() + mean.clone() - mean.detach();
        losses(if module.training.is_enabled() { mixed } else { y }, examples)
    };
    for way in ALL {
        refused(module(), way, "mixes examples while its training flags are on", by_first);
        if way != PerExample::OneByOne {
            refused(module(), way, "has a gradient that goes through example", hidden);
        }
    }
}

#[test]
fn examples_to_compare_are_from_all_over_the_data_and_not_in_order() {
    use crate::module::check::compared;
    assert_eq!(compared(300), [299, 0, 200, 100]);
    assert_eq!(compared(3), [2, 0, 1]);
    assert_eq!(compared(2), [1, 0]);
    assert_eq!(compared(1), [0]);
    assert!(compared(0).is_empty());
}
