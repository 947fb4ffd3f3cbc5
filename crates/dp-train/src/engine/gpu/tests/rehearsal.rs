//! What must not go unnoticed in a run on a device: lost kernels, other noise, other views, sums without room.

use mf_core::Sgd;

use super::resident::{Data, SEED, engine, model, places, plan, start, steps};
use super::*;
use crate::engine::gpu::rehearsal::{EXPONENTS, MadeUpNoise, check_views};
use crate::engine::gpu::shown::Stored;
use crate::engine::{EngineError, FixedNoise, Resident, Shown};
use crate::mechanism::Mechanism;
use crate::noise::NoiseStream;
use crate::plan::{DpPlan, PlanRequest, Sampling};
use crate::seeds::NoiseKey;
use crate::training::resident::ResidentTraining;

#[test]
fn a_step_that_loses_any_of_its_kernels_ends_the_run() {
    let Some(gpu) = gpu() else { return };
    let data = Data::new();
    let mut engine = engine(gpu);
    let parameters = initial_parameters(&model(), SEED);
    let momenta = vec![0.0; parameters.len()];
    let slots: Vec<Option<u32>> = (0..20).map(Some).collect();
    let (mut lost, mut kernels) = (0, 1);
    while lost <= kernels {
        let images = Some(data.images(0, false));
        let mut resident = Resident::new(&mut engine, &parameters, &momenta, images).unwrap();
        let mut started = 0;
        // Of the second step, in whose buffers the numbers of the first are left.
        for step in 0..2 {
            started = resident.ledger.started();
            if step == 1 && lost > 0 {
                resident.ledger.lost.set(Some(started + lost));
            }
            let shown = places(&slots);
            let shown = Shown::Stored(&shown);
            let sum = resident.clipped_sum(&mut engine, &slots, shown, 1.0).unwrap();
            let words = vec![step; parameters.len()];
            let noise = FixedNoise { exponent: -20, words, wide: false, scale: 0.5 };
            sum.with_noise(noise).step(&mut engine, Sgd::new(1.0, 0.0).unwrap(), 0.1).unwrap();
        }
        kernels = resident.ledger.started() - started;
        let found = resident.read(&mut engine);
        assert_eq!(found.is_err(), lost > 0, "{lost} of {kernels}: {found:?}");
        lost += 1;
    }
    assert!(kernels > 15, "{kernels}");
}

#[test]
fn the_noise_of_a_step_is_that_of_the_stream_to_the_grid_of_the_device() {
    let Some(gpu) = gpu() else { return };
    let mut engine = engine(gpu);
    let dim = model().parameter_count();
    // Noise of 32 bits, and noise for which the grid is so fine that it has more.
    for (epsilon, least) in [(8.0, 0.0), (1e-3, 4096.0)] {
        let request = PlanRequest { epsilon, ..plan(Sampling::FixedOrder).request().clone() };
        let plan = DpPlan::new(request).unwrap();
        let std = plan.noise_std();
        assert!(std > least, "{std}");
        let [mut here, mut there] =
            [(); 2].map(|()| Mechanism::new(&plan, NoiseKey::fixed(SEED)).unwrap());
        let strategy = plan.strategy().clone();
        let mut stream = NoiseStream::new(strategy, dim, NoiseKey::fixed(SEED)).unwrap();
        for _ in 0..6 {
            let mut run =
                Resident::new(&mut engine, &vec![0.0; dim], &vec![0.0; dim], None).unwrap();
            let shown = Shown::Given(Batch::new(&[], &[]));
            let sum = run.clipped_sum(&mut engine, &[], shown, 1.0).unwrap();
            let gradient = there.privatize_resident(sum).unwrap();
            gradient.step(&mut engine, Sgd::new(1.0, 0.0).unwrap(), 1.0).unwrap();
            let found = run.read(&mut engine).unwrap().momenta;
            let on_cpu = here.privatize(here.empty_sum()).unwrap();
            let mut row = vec![0.0; dim];
            stream.add_next(std, &mut row).unwrap();
            let batch_size = plan.request().batch_size as f64;
            for ((found, of_cpu), noise) in found.iter().zip(on_cpu.values()).zip(&row) {
                // Half of the grid, and what two f32 may lose.
                let error = 2_f64.powi(-27) * std + 2_f64.powi(-22) * noise.abs();
                assert!((f64::from(*found) * batch_size - noise).abs() <= error);
                assert!((f64::from(*found - *of_cpu) * batch_size).abs() <= 2.0 * error);
            }
        }
    }
}

#[test]
fn a_run_on_an_engine_that_is_compared_is_rehearsed_with_its_views() {
    let Some(gpu) = gpu() else { return };
    let data = Data::new();
    let mut engine = GpuEngine::open(&model(), gpu, EngineOptions::default()).unwrap();
    for (padding, reflect) in [(3, true), (2, false)] {
        let images = Some(data.images(padding, reflect));
        let start = start(Sampling::FixedOrder);
        let mut run = ResidentTraining::new(start, &mut engine, images).unwrap();
        steps(&mut run, &mut engine, 1);
        run.read(&mut engine).unwrap();
    }
}

#[test]
fn noise_and_views_that_are_not_those_of_the_host_are_refused() {
    let Some(gpu) = gpu() else { return };
    let mut engine = engine(gpu);
    let refused = |found| matches!(found, Err(EngineError::Disagrees { .. }));
    for (exponent, wide) in EXPONENTS {
        let mut made_up = MadeUpNoise::new(exponent, wide);
        made_up.check(&mut engine).unwrap();
        made_up.noise[77] += 1;
        assert!(refused(made_up.check(&mut engine)), "{exponent}");
    }
    let data = Data::new();
    for (padding, reflect, views) in [(3, true, 1), (2, false, 2), (0, false, 1)] {
        let mut stored = Stored::new(&engine.client, data.images(padding, reflect));
        check_views(&mut engine, &stored, views).unwrap();
        stored.sample.bytes[130] ^= 1;
        assert!(refused(check_views(&mut engine, &stored, views)));
        stored.sample.bytes[130] ^= 1;
        stored.sample.labels[1] += 1;
        assert!(refused(check_views(&mut engine, &stored, views)));
    }
}

#[test]
fn sums_that_no_buffer_can_hold_are_refused_with_the_batch_that_fits() {
    let Some(gpu) = gpu() else { return };
    let engine = engine(gpu);
    engine.check_parts(40).unwrap();
    let found = engine.check_parts(usize::MAX >> 20).unwrap_err();
    let EngineError::Parts { fitting, .. } = found else { panic!("{found}") };
    engine.check_parts(fitting).unwrap();
    assert!(engine.check_parts(fitting + 1).is_err());
}
