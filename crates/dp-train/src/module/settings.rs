//! What decides a module's losses besides its parameters: the settings of its layers, and what computes them.

use burn::module::{Flag, Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};

use super::error::ModuleError;
use crate::fingerprint::Fingerprint;

/// SHA-256 of the settings of a module's layers: strides, probabilities, activations, and which flags are on.
///
/// They are taken from the module's debug form, the one place where burn tells them all. Two modules that are made in the same way have
/// the same, as numbers of parameters, values of running states and addresses are left out.
pub(super) fn fingerprint<M: Module>(module: &M) -> Fingerprint {
    let mut flags = Flags::default();
    module.visit(&mut flags);
    let text = format!("{}\n{:?}", without_marks(&format!("{module:?}")), flags.0);
    Fingerprint::of_bytes(text.as_bytes())
}

/// Whether each flag is on, which no debug form says.
#[derive(Default)]
struct Flags(Vec<bool>);

impl ModuleVisitor for Flags {
    fn visit_flag(&mut self, flag: &Param<Flag>) {
        self.0.push(flag.is_enabled());
    }
}

/// A debug form without what differs from one module, or one process, to the next.
fn without_marks(debug: &str) -> String {
    let mut kept = String::new();
    let mut rest = debug;
    let marks = ["Param: ", "RunningState {", "0x"];
    while let Some((at, mark)) = marks.iter().filter_map(|m| Some((rest.find(m)?, *m))).min() {
        let (before, after) = rest.split_at(at + mark.len());
        kept.push_str(before);
        let length = match mark {
            // `Param: <number> - ..`
            "Param: " => after.find(' ').unwrap_or(after.len()),
            "0x" => after.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(after.len()),
            _ => closing(after),
        };
        rest = &after[length..];
    }
    kept + rest
}

/// The place of the brace that closes one opened before.
fn closing(text: &str) -> usize {
    let mut depth = 1;
    let end = text.char_indices().find(|(_, c)| {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        depth == 0
    });
    end.map_or(text.len(), |(at, _)| at)
}

/// What computes a module's passes: others may round otherwise.
pub(super) fn arithmetic<M: Module>(module: &M) -> String {
    let devices = module.devices();
    format!("{devices:?}, {}{}", instruction_set(), adapters(&devices))
}

/// The GPUs of this machine by name, if a device is one: burn's devices have numbers only.
#[cfg(feature = "gpu")]
fn adapters(devices: &[Device]) -> String {
    let is_processor = |device: &Device| {
        let name = format!("{device:?}");
        name.contains("Flex") || name.contains("NdArray")
    };
    if devices.iter().all(is_processor) {
        return String::new();
    }
    let adapters = crate::engine::adapters().into_iter();
    adapters.map(|adapter| format!(", {} through {}", adapter.name, adapter.interface)).collect()
}

#[cfg(not(feature = "gpu"))]
fn adapters(_: &[Device]) -> String {
    String::new()
}

/// The widest instructions that burn's backends choose among when they run.
fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        let fused = std::arch::is_x86_feature_detected!("fma");
        if std::arch::is_x86_feature_detected!("avx512f") {
            return "AVX-512";
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return if fused { "AVX2 and FMA" } else { "AVX2" };
        }
    }
    std::env::consts::ARCH
}

/// That products on a module's devices are of f32: a device that takes TF32 or half of the bits for them has norms that are off by more
/// than they are rounded up by.
///
/// # Errors
/// [`ModuleError::Inexact`] with the device.
pub(super) fn check_products<M: Module>(module: &M) -> Result<(), ModuleError> {
    let inexact = module.devices().into_iter().find(|device| !is_exact(device.clone().inner()));
    match inexact {
        Some(device) => Err(ModuleError::Inexact { device: format!("{device:?}") }),
        None => Ok(()),
    }
}

/// Whether a number of 21 bits is itself times one.
fn is_exact(device: Device) -> bool {
    let number = 1.0 + (-20.0_f32).exp2();
    let product = Tensor::<2>::full([64, 64], number, &device).matmul(Tensor::eye(64, &device));
    let numbers = product.into_data().try_to_vec::<f32>();
    numbers.is_ok_and(|numbers| numbers.iter().all(|&found| found == number))
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::nn::conv::Conv2dConfig;
    use burn::nn::{BatchNormConfig, DropoutConfig};

    use super::*;

    #[test]
    fn modules_made_alike_have_the_same_settings_and_each_setting_counts() {
        let device = Device::flex().autodiff();
        let made = |stride, probability, epsilon| {
            let conv = Conv2dConfig::new([2, 2], [3, 3]).with_stride([1, stride]).init(&device);
            let dropout = DropoutConfig::new(probability).init();
            let norm = BatchNormConfig::new(2).with_epsilon(epsilon).init(&device);
            (conv, dropout, norm)
        };
        let module = made(1, 0.5, 1e-5);
        let text = format!("{module:?}");
        for mark in ["Param: ", "RunningState {"] {
            assert!(text.contains(mark), "burn prints something else now: {text}");
        }
        let settings = fingerprint(&module);
        assert_eq!(settings, fingerprint(&made(1, 0.5, 1e-5)));
        // What a state has seen is no setting, and neither is a thread that saw it.
        module.2.running_mean.update(Tensor::ones([2], &device.clone().inner()));
        assert_eq!(settings, fingerprint(&module));
        for other in [made(2, 0.5, 1e-5), made(1, 0.4, 1e-5), made(1, 0.5, 1e-4)] {
            assert_ne!(settings, fingerprint(&other));
        }
        let frozen = (module.0, module.1.freeze(), module.2);
        assert_ne!(settings, fingerprint(&frozen));
    }

    #[test]
    fn what_differs_between_processes_is_left_out() {
        let text = "Net { w: Param: ab3c - x { a: 1 }, s: RunningState { id: 3, v: {9: {}} }, f: 0x7ffe12, p: 2 }";
        let kept = "Net { w: Param:  - x { a: 1 }, s: RunningState {}, f: 0x, p: 2 }";
        assert_eq!(without_marks(text), kept);
    }

    #[test]
    fn products_of_the_processor_are_exact() {
        assert!(is_exact(Device::flex()));
    }
}
