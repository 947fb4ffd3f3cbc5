//! What a step on a GPU asks of the device, counted and not timed: kernels, uploads, reads and memory of the paper's
//! ConvNet at its own batch. A process of its own, because counting keeps all kernels of a process from running.

#![cfg(feature = "gpu")]

use dp_train::engine::{Device, EngineError, EngineOptions};
use dp_train::model::{Architecture, Layer, Shape};
use dp_train::training::rig::{StepCounts, StepRig};

fn convnet() -> Architecture {
    let mut layers = Vec::new();
    for (inner, outer) in [(3, 32), (32, 64), (64, 128)] {
        layers.extend([Layer::conv(inner, outer, 3), Layer::Relu]);
        layers.extend([Layer::conv(outer, outer, 3), Layer::Relu, Layer::max_pool(2)]);
    }
    layers.extend([Layer::Flatten, Layer::linear(2048, 10)]);
    Architecture::new(Shape::Image { channels: 3, height: 32, width: 32 }, layers).unwrap()
}

/// `None`, loudly, without any Vulkan device.
fn counts(batch: usize) -> Option<StepCounts> {
    for device in [Device::Gpu, Device::GpuSoftware] {
        match StepRig::new(&convnet(), device, EngineOptions::default(), batch, 50_000) {
            Ok(rig) => return Some(rig.counts().unwrap()),
            Err(EngineError::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(std::env::var_os("BANDROOT_REQUIRE_GPU").is_none(), "no GPU and no software for one");
    eprintln!("\nNOT TESTED on a GPU: there is none, and no software that stands in for it\n");
    None
}

#[test]
fn a_step_is_few_kernels_two_uploads_and_no_read() {
    let Some(large) = counts(500) else { return };
    println!("{large:#?}");
    assert!(large.dispatches <= 60, "{:?}", large.kernels);
    assert!(large.dispatches <= large.plain_dispatches + 12, "{large:?}");
    assert!(large.traffic.uploads <= 2 && large.traffic.uploaded_bytes <= 1_300_000, "{large:?}");
    assert_eq!(large.traffic.reads, 0);
    assert!(large.device_bytes <= 500 * 1_200_000 + 200_000_000, "{}", large.device_bytes);
    let flops = convnet().flops().gradient() as f64;
    assert!(large.work.flops <= 1.1 * flops, "{} of {flops}", large.work.flops);
    // 3.3 MB is what a pass needs at least where every value is written once and read once by each kernel that needs it.
    assert!(large.work.bytes <= 1.1 * 3.3e6, "{}", large.work.bytes);
    let small = counts(125).unwrap();
    assert_eq!(small.kernels, large.kernels);
}
