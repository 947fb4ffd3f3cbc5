use burn::module::{Module, Param};
use burn::nn::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::conv::{Conv1dConfig, Conv2d, Conv2dConfig};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    DropoutConfig, EmbeddingConfig, GroupNormConfig, LayerNormConfig, Linear, LinearConfig,
    LinearLayout, LstmConfig, PaddingConfig1d, PaddingConfig2d, RmsNormConfig, gru::GruConfig,
};
use burn::tensor::{Bool, Device, Tensor};

use super::*;
use crate::module::{Attend, Encode, Tapped, for_each_example};

const EXAMPLES: usize = 37;

#[test]
fn linear_layers_agree() {
    for device in devices() {
        // One position (norms are products), few (Gram matrices) and many (gradients are held).
        for (positions, inner, outer) in [(1, 5, 7), (3, 40, 30), (20, 3, 2)] {
            for bias in [true, false] {
                let config = LinearConfig::new(inner, outer).with_bias(bias);
                let layer = shaken(config.init(&device));
                let x = numbers([EXAMPLES, positions, inner], 3, &device);
                let what = format!("linear of {positions} positions, bias {bias}");
                agree(&what, layer, |layer, examples| {
                    losses(layer.tapped(rows(&x, examples)), examples)
                });
            }
        }
        let columns = LinearConfig::new(4, 3).with_layout(LinearLayout::Col).init(&device);
        let x = numbers([EXAMPLES, 4], 3, &device);
        agree("linear by columns", shaken(columns), |layer, examples| {
            losses(layer.tapped(rows(&x, examples)), examples)
        });
    }
}

#[test]
fn convolutions_agree() {
    for device in devices() {
        let conv = |channels| Conv2dConfig::new(channels, [3, 3]);
        let padded = PaddingConfig2d::Explicit(1, 0, 2, 1);
        let configs = [
            ("plain", conv([3, 4])),
            ("same", conv([3, 4]).with_padding(PaddingConfig2d::Same)),
            ("without bias", conv([3, 4]).with_bias(false)),
            ("uneven", Conv2dConfig::new([3, 2], [2, 3]).with_padding(padded).with_stride([2, 1])),
            ("same, strides", conv([3, 4]).with_padding(PaddingConfig2d::Same).with_stride([2, 3])),
            ("dilated", conv([3, 4]).with_dilation([2, 1])),
            ("groups", Conv2dConfig::new([6, 4], [3, 3]).with_groups(2)),
            ("many channels", conv([12, 16])),
        ];
        for (what, config) in configs {
            let x = numbers([EXAMPLES, config.channels[0], 6, 7], 5, &device);
            let layer = shaken(config.init(&device));
            agree(&format!("convolution, {what}"), layer, |layer: &Conv2d, examples| {
                let (x, bare) = (rows(&x, examples), layer.clone());
                assert_eq!(layer.tapped(x.clone()).dims(), bare.forward(x.clone()).dims());
                losses(layer.tapped(x), examples)
            });
        }
        let config = Conv1dConfig::new(3, 4, 3).with_padding(PaddingConfig1d::Same);
        let groups = Conv1dConfig::new(4, 6, 3).with_groups(2);
        for config in [config.clone(), config.with_stride(2).with_dilation(2), groups] {
            let x = numbers([EXAMPLES, config.channels_in, 9], 5, &device);
            agree("convolution of a sequence", shaken(config.init(&device)), |layer, examples| {
                losses(layer.tapped(rows(&x, examples)), examples)
            });
        }
    }
}

#[test]
fn embeddings_agree() {
    for device in devices() {
        // Large tables have norms by Gram matrices, small ones are held.
        for entries in [200, 5] {
            let layer = shaken(EmbeddingConfig::new(entries, 6).init(&device));
            let words = tokens([EXAMPLES, 8], entries, &device);
            agree("embedding", layer, |layer, examples| {
                let indices: Vec<i32> = examples.iter().map(|&example| example as i32).collect();
                let chosen = Tensor::from_data(&indices[..], &words.device());
                losses(layer.tapped(words.clone().select(0, chosen)), examples)
            });
        }
    }
}

#[test]
fn normalizations_agree() {
    for device in devices() {
        let x = numbers([EXAMPLES, 5, 6], 5, &device);
        agree("layer norm", shaken(LayerNormConfig::new(6).init(&device)), |layer, examples| {
            losses(layer.tapped(rows(&x, examples)), examples)
        });
        let without_bias = LayerNormConfig::new(6).with_bias(false);
        agree("layer norm without bias", shaken(without_bias.init(&device)), |layer, examples| {
            losses(layer.tapped(rows(&x, examples)), examples)
        });
        agree("rms norm", shaken(RmsNormConfig::new(6).init(&device)), |layer, examples| {
            losses(layer.tapped(rows(&x, examples)), examples)
        });
        let image = numbers([EXAMPLES, 6, 3, 4], 5, &device);
        agree("group norm", shaken(GroupNormConfig::new(3, 6).init(&device)), |layer, examples| {
            losses(layer.tapped(rows(&image, examples)), examples)
        });
    }
}

#[test]
fn attention_agrees_and_is_burns() {
    for device in devices() {
        let config = MultiHeadAttentionConfig::new(8, 2).with_dropout(0.0);
        let layer = shaken(config.init(&device));
        let x = numbers([EXAMPLES, 5, 8], 5, &device);
        let causal = |n: usize| -> Tensor<3, Bool> {
            Tensor::<2, Bool>::tril_mask([5, 5], 0, &device).unsqueeze_dim::<3>(0).expand([n, 5, 5])
        };
        let burns = {
            use burn::nn::attention::MhaInput;
            let input = MhaInput::self_attn(x.clone()).mask_attn(causal(EXAMPLES));
            layer.forward(input).context
        };
        let attend = |x: Tensor<3>| {
            let mask_attn = Some(causal(x.dims()[0]));
            Attend { mask_attn, ..Attend::to_itself(x) }
        };
        same(layer.tapped(attend(x.clone())).context, burns);
        agree("attention", layer, |layer: &MultiHeadAttention, examples| {
            losses(layer.tapped(attend(rows(&x, examples))).context, examples)
        });
    }
}

#[test]
fn attention_past_padding_agrees_and_is_burns() {
    use burn::nn::attention::MhaInput;
    for (device, quiet) in devices().into_iter().flat_map(|d| [(d.clone(), true), (d, false)]) {
        let config = MultiHeadAttentionConfig::new(8, 2).with_dropout(0.0);
        let layer = shaken(config.with_quiet_softmax(quiet).init(&device));
        let x = numbers([EXAMPLES, 5, 8], 5, &device);
        // Behind the first one to five words of an example there is nothing.
        let padding = |examples: &[u32]| -> Tensor<2, Bool> {
            let nothing = |&i: &u32| (0..5).map(move |at| i32::from(at > i % 5));
            let nothing: Vec<i32> = examples.iter().flat_map(nothing).collect();
            let nothing = Tensor::<1, Int>::from_data(&nothing[..], &device);
            nothing.reshape([examples.len(), 5]).equal_elem(1)
        };
        let all: Vec<u32> = (0..EXAMPLES as u32).collect();
        let attend = |x: Tensor<3>, examples: &[u32]| Attend {
            mask_pad: Some(padding(examples)),
            ..Attend::to_itself(x)
        };
        let burns = layer.forward(MhaInput::self_attn(x.clone()).mask_pad(padding(&all)));
        same(layer.tapped(attend(x.clone(), &all)).context, burns.context);
        agree("attention past padding", layer, |layer: &MultiHeadAttention, examples| {
            losses(layer.tapped(attend(rows(&x, examples), examples)).context, examples)
        });
    }
}

#[test]
fn encoders_agree_and_are_burns() {
    for (device, norm_first) in devices().into_iter().flat_map(|d| [(d.clone(), true), (d, false)])
    {
        let config = TransformerEncoderConfig::new(8, 12, 2, 2).with_dropout(0.0);
        let layer = shaken(config.with_norm_first(norm_first).init(&device));
        let x = numbers([EXAMPLES, 4, 8], 5, &device);
        let burns = layer.forward(TransformerEncoderInput::new(x.clone()));
        same(layer.tapped(x.clone()), burns);
        agree("encoder", layer, |layer: &TransformerEncoder, examples| {
            losses(layer.tapped(Encode::from(rows(&x, examples))), examples)
        });
    }
}

#[test]
fn recurrent_layers_agree_and_are_burns() {
    for device in devices() {
        let x = numbers([EXAMPLES, 4, 3], 5, &device);
        for reset_after in [true, false] {
            let config = GruConfig::new(3, 5, true).with_reset_after(reset_after);
            let layer = shaken(config.init(&device));
            same(layer.tapped(x.clone()), layer.forward(x.clone(), None));
            agree("gru", layer, |layer, examples| {
                losses(layer.tapped(rows(&x, examples)), examples)
            });
        }
        for coupled in [true, false] {
            let config = LstmConfig::new(3, 5, true).with_input_forget(coupled);
            let layer = shaken(config.with_reverse(coupled).init(&device));
            same(layer.tapped(x.clone()), layer.forward(x.clone(), None).0);
            agree("lstm", layer, |layer, examples| {
                losses(layer.tapped(rows(&x, examples)), examples)
            });
        }
        // States that are cut off, and sequences whose first axis is time.
        let layer = shaken(GruConfig::new(3, 5, true).with_clip(Some(0.2)).init(&device));
        same(layer.tapped(x.clone()), layer.forward(x.clone(), None));
        agree("gru with clipping", layer, |layer, examples| {
            losses(layer.tapped(rows(&x, examples)), examples)
        });
        let config = LstmConfig::new(3, 5, true).with_clip(Some(0.2)).with_batch_first(false);
        let layer = shaken(config.init(&device));
        let steps = x.clone().swap_dims(0, 1);
        same(layer.tapped(steps.clone()), layer.forward(steps, None).0);
        agree("lstm by time, with clipping", layer, |layer, examples| {
            let steps = rows(&x, examples).swap_dims(0, 1);
            losses(layer.tapped(steps).swap_dims(0, 1), examples)
        });
    }
}

fn same<const D: usize>(a: Tensor<D>, b: Tensor<D>) {
    let difference: f32 = (a - b).abs().max().into_scalar();
    assert!(difference < 1e-5, "{difference}");
}

/// A layer used twice, a parameter of its own, a frozen one, a residual path and one that is not used.
#[derive(Module, Debug)]
struct Mixture {
    layer: Linear,
    token: Param<Tensor<1>>,
    frozen: Linear,
    unused: Linear,
}

impl Mixture {
    fn new(device: &Device) -> Self {
        let linear = || LinearConfig::new(6, 6).init(device);
        let token = Param::from_tensor(numbers([6], 2, device));
        Self { layer: linear(), token, frozen: linear().no_grad(), unused: linear() }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let n = x.dims()[0];
        let y = self.layer.tapped(x.clone() + for_each_example(&self.token, n));
        let y = self.frozen.tapped(y.tanh()) + x;
        self.layer.tapped(y.reshape([n, 1, 6])).reshape([n, 6]) * for_each_example(&self.token, n)
    }
}

#[test]
fn weights_used_twice_own_parameters_and_frozen_ones_agree() {
    for device in devices() {
        let module = shaken(Mixture::new(&device));
        assert_eq!(Layout::of(&module).unwrap().dim(), 42 + 6 + 42);
        let x = numbers([EXAMPLES, 6], 5, &device);
        agree("a mixture", module, |module: &Mixture, examples| {
            losses(module.forward(rows(&x, examples)), examples)
        });
    }
}

#[test]
fn a_kernel_used_twice_has_the_norm_of_the_sum() {
    for device in devices() {
        let config = Conv2dConfig::new([2, 2], [3, 3]).with_padding(PaddingConfig2d::Same);
        let x = numbers([EXAMPLES, 2, 5, 5], 5, &device);
        agree(
            "a convolution used twice",
            shaken(config.init(&device)),
            |layer: &Conv2d, examples| {
                let x = layer.tapped(rows(&x, examples)).tanh();
                losses(layer.tapped(x), examples)
            },
        );
    }
}

#[test]
fn sums_of_layers_used_twice_repeat_bit_by_bit() {
    let device = Device::flex().autodiff();
    let channels = || GroupNormConfig::new(2, 4).init(&device);
    let layers: (Vec<burn::nn::GroupNorm>, Conv2d) = (
        vec![channels(), channels()],
        Conv2dConfig::new([4, 4], [3, 3]).with_padding(PaddingConfig2d::Same).init(&device),
    );
    let module = shaken(layers);
    let x = numbers([EXAMPLES, 4, 5, 5], 3, &device);
    let mut loss = |(norms, conv): &(Vec<burn::nn::GroupNorm>, Conv2d), examples: &[u32]| {
        let once = |x| norms[1].tapped(norms[0].tapped(conv.tapped(x)));
        losses(once(once(rows(&x, examples)).tanh()), examples)
    };
    let all: Vec<u32> = (0..37).collect();
    let mut found = || sum(&module, PerExample::Taps, &mut loss, &all, 0.1).unwrap().0;
    let first = found();
    assert!((0..20).all(|_| found() == first));
}

#[test]
fn biases_alone_agree() {
    let device = Device::flex().autodiff();
    let mut layer = shaken(LinearConfig::new(4, 3).init(&device));
    layer.weight = layer.weight.set_require_grad(false);
    let x = numbers([EXAMPLES, 2, 4], 5, &device);
    agree("a bias", layer, |layer: &Linear, examples| {
        losses(layer.tapped(rows(&x, examples)), examples)
    });
}

#[test]
fn dropout_trains_by_taps_and_draws_the_same_in_two_passes() {
    let device = Device::flex().autodiff();
    #[derive(Module, Debug)]
    struct Dropping {
        layer: Linear,
        dropout: burn::nn::Dropout,
    }
    let layer = shaken(LinearConfig::new(4, 3).init(&device));
    let module = Dropping { layer, dropout: DropoutConfig::new(0.5).init() }.train();
    let x = numbers([EXAMPLES, 4], 5, &device);
    let mut loss = |module: &Dropping, examples: &[u32]| {
        losses(module.dropout.forward(module.layer.tapped(rows(&x, examples))), examples)
    };
    let layout = Layout::of(&module).unwrap();
    let checked = check(&module, &layout, PerExample::Auto, &mut loss, &[0, 1, 2, 3]).unwrap();
    assert_eq!(checked.way, PerExample::Taps);
    // Other tests draw from the same generator, and may do so between two passes, which is noticed.
    let mut patient = |way, examples: &[u32]| {
        let tries = (0..50).map(|_| sum(&module, way, &mut loss, examples, 0.1));
        tries.into_iter().find_map(Result::ok).expect("one of fifty is left alone")
    };
    let examples: Vec<u32> = (0..20).collect();
    for way in [PerExample::Taps, PerExample::TwoPasses] {
        let (found, counts) = patient(way, &examples);
        assert!(counts.clipped >= 5, "{counts:?}");
        assert!(length(&found) <= 2.0 + 1e-5 && length(&found) > 0.1, "{way:?}");
    }
    // Of one example the two passes make what its norm says, which is less if much is dropped: they drew the same.
    for example in examples {
        let (found, counts) = patient(PerExample::TwoPasses, &[example]);
        let least = if counts.clipped == 1 { 0.1 - 1e-4 } else { 0.0 };
        assert!((least..0.1 + 1e-4).contains(&length(&found)), "{counts:?}: {}", length(&found));
    }
    // Of few examples all may be dropped, and the losses be the same.
    let many: Vec<u32> = (0..20).collect();
    let mut count = 0.0;
    let mut changing = |module: &Dropping, examples: &[u32]| {
        count += 0.01;
        loss(module, examples).mul_scalar(1.0 + count)
    };
    let refused = sum(&module, PerExample::TwoPasses, &mut changing, &many, 0.1).unwrap_err();
    assert!(refused.to_string().contains("something in it is random"), "{refused}");
}
