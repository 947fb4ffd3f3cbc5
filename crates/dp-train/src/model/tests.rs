//! Architectures that fit, and refusals that name the layer.

use super::*;

const CIFAR: Shape = Shape::Image { channels: 3, height: 32, width: 32 };

#[test]
fn sizes_beyond_memory_are_refused_and_do_not_wrap_round() {
    let input = Shape::Image { channels: 1, height: 4, width: 4 };
    let convolution = |out_channels, kernel, padding| Layer::Conv2d {
        in_channels: 1,
        out_channels,
        kernel,
        stride: 1,
        padding,
        groups: 1,
    };
    let refused = |layer: Layer| {
        let made = Architecture::new(input, vec![Layer::Relu, layer]);
        assert_eq!(made, Err(ArchitectureError::TooLarge { layer: 1 }), "{layer:?}");
    };
    refused(convolution(1 << 62, 1, 0));
    refused(convolution(1, 1, usize::MAX / 2 + 1));
    refused(convolution(1, 1 << 33, 1 << 32));
    refused(convolution(1, 1, 1 << 32));
    let layers = vec![
        Layer::Flatten,
        Layer::Linear { in_features: 16, out_features: 1 << 60 },
        Layer::Linear { in_features: 1 << 60, out_features: 16 },
    ];
    let made = Architecture::new(input, layers);
    assert_eq!(made, Err(ArchitectureError::TooLarge { layer: 1 }));
}

#[test]
fn layers_that_do_not_fit_are_named() {
    let conv = |in_channels, kernel, stride| Layer::Conv2d {
        in_channels,
        out_channels: 4,
        kernel,
        stride,
        padding: 0,
        groups: 1,
    };
    let error = |layers| Architecture::new(CIFAR, layers).unwrap_err();
    use ArchitectureError as Error;
    assert_eq!(
        error(vec![Layer::Relu, conv(4, 3, 1)]),
        Error::Channels { layer: 1, expected: 4, found: 3 }
    );
    assert_eq!(
        error(vec![conv(3, 33, 1)]),
        Error::KernelTooLarge { layer: 0, kernel: 33, size: 32 }
    );
    assert_eq!(error(vec![conv(3, 3, 0)]), Error::Empty { layer: 0 });
    assert_eq!(error(vec![Layer::Flatten, conv(3, 3, 1)]), Error::NeedsImage { layer: 1 });
    let linear = Layer::Linear { in_features: 5, out_features: 2 };
    assert_eq!(error(vec![linear]), Error::NeedsVector { layer: 0 });
    assert_eq!(
        error(vec![Layer::Flatten, linear]),
        Error::Features { layer: 1, expected: 5, found: 3072 }
    );
    assert_eq!(
        error(vec![Layer::GroupNorm { groups: 2 }]),
        Error::Groups { layer: 0, groups: 2, channels: 3 }
    );
    let grouped = |out_channels, groups| Layer::Conv2d {
        in_channels: 3,
        out_channels,
        kernel: 3,
        stride: 1,
        padding: 0,
        groups,
    };
    for (out_channels, groups, channels) in [(4, 2, 3), (4, 3, 4), (3, 0, 3)] {
        let refused = error(vec![grouped(out_channels, groups)]);
        assert_eq!(refused, Error::Groups { layer: 0, groups, channels });
    }
    assert_eq!(
        error(vec![grouped(4, 3)]).to_string(),
        "layer 0 cannot split 4 channels into 3 groups"
    );
}

#[test]
fn groups_cut_the_weights_and_are_one_unless_said() {
    let text = r#"{"layer": "conv2d", "in_channels": 6, "out_channels": 12, "kernel": 3,
        "stride": 1, "padding": 1"#;
    let plain: Layer = serde_json::from_str(&format!("{text}}}")).unwrap();
    let grouped: Layer = serde_json::from_str(&format!("{text}, \"groups\": 3}}")).unwrap();
    let input = Shape::Image { channels: 6, height: 5, width: 5 };
    let weight = |layer| Architecture::new(input, vec![layer]).unwrap().parameters()[0].clone();
    assert_eq!((weight(plain).shape, weight(plain).fan_in), (vec![12, 6, 3, 3], Some(54)));
    assert_eq!((weight(grouped).shape, weight(grouped).fan_in), (vec![12, 2, 3, 3], Some(18)));
    for layer in [plain, grouped] {
        let text = serde_json::to_string(&layer).unwrap();
        assert_eq!(serde_json::from_str::<Layer>(&text).unwrap(), layer);
        assert_eq!(text.contains("groups"), layer == grouped);
    }
}

#[test]
fn layers_have_pytorchs_names_and_shapes() {
    let layers = vec![Layer::conv(3, 8, 5), Layer::Tanh, Layer::avg_pool(4), Layer::Flatten];
    let body = Architecture::new(CIFAR, layers.clone()).unwrap();
    assert_eq!(body.output(), Shape::Vector { features: 8 * 8 * 8 });
    let model = Architecture::new(CIFAR, [layers, vec![Layer::linear(512, 4)]].concat()).unwrap();
    let tensors = model.parameters().iter().map(|p| (p.name.as_str(), p.shape.as_slice()));
    let expected: [(&str, &[usize]); 4] =
        [("0.weight", &[8, 3, 5, 5]), ("0.bias", &[8]), ("4.weight", &[4, 512]), ("4.bias", &[4])];
    assert_eq!(tensors.collect::<Vec<_>>(), expected);
    assert_eq!((model.input(), model.parameter_count()), (CIFAR, 608 + 2052));
    // By hand: 1024 pixels of 600 weights, and the linear layer; the image needs no gradient.
    let forward = 2 * (1024 * 600 + 2048);
    assert_eq!(model.flops(), Flops { forward, backward: 2 * forward - 2 * 1024 * 600 });
}

#[test]
fn groups_divide_the_work_and_layers_without_weights_take_none() {
    let layer = |groups| Layer::Conv2d {
        in_channels: 4,
        out_channels: 8,
        kernel: 3,
        stride: 2,
        padding: 0,
        groups,
    };
    let input = Shape::Image { channels: 4, height: 9, width: 7 };
    let flops = |layers| Architecture::new(input, layers).unwrap().flops();
    let whole = 2 * 4 * 3 * 8 * 4 * 9;
    assert_eq!(flops(vec![layer(1)]), Flops { forward: whole, backward: whole });
    assert_eq!(flops(vec![Layer::Tanh, layer(4)]).forward, whole / 4);
    assert_eq!(flops(vec![Layer::Relu]), Flops { forward: 0, backward: 0 });
}
