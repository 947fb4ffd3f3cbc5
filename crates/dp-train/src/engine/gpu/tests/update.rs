//! Sums of parts and noise are exact, whatever their sizes.

use cubecl::prelude::CubeElement;

use super::gpu;
use crate::engine::gpu::adapter;
use crate::engine::gpu::buffers::{Buffer, cubes};
use crate::engine::gpu::kernels::arrival::arrive;
use crate::engine::gpu::kernels::gather::{Cut, gather};
use crate::engine::gpu::kernels::ledger::{FAILED, KERNELS};
use crate::engine::gpu::kernels::scale::scale;
use crate::engine::gpu::kernels::update::{FINER, update};
use crate::engine::gpu::kernels::{SPAN, UNITS};
use crate::engine::gpu::pass::{spread, units};

/// Momenta and parameters after one update from zero, and whether it failed.
fn updated(
    parts: &[Vec<f32>],
    noise: &[i64],
    exponent: i32,
    wide: bool,
    stamp: u32,
) -> Option<(Vec<f32>, Vec<f32>, bool)> {
    let client = adapter::open(gpu()?, None).unwrap().client;
    let length = noise.len();
    let mut words: Vec<u32> = noise.iter().map(|&n| n as u32).collect();
    if wide {
        words.extend(noise.iter().map(|&n| (n >> 32) as u32));
    }
    words.push(9);
    let (parameters, momenta) =
        (Buffer::of(&client, &vec![1.0_f32; length]), Buffer::of(&client, &vec![0.5_f32; length]));
    let ledger = Buffer::of(&client, &[9, 0, 4_u32]);
    update::launch(
        &client,
        spread(cubes(length)),
        units(),
        ledger.argument(),
        Buffer::of(&client, &parts.concat()).argument(),
        Buffer::of(&client, &words).argument(),
        parameters.argument(),
        momenta.argument(),
        length as u32,
        stamp,
        parts.len() as u32,
        exponent,
        f64::from(exponent).exp2() as f32,
        0.0,
        0.5,
        0.25,
        wide,
    );
    let handles = [momenta, parameters, ledger].map(|buffer| buffer.handle).to_vec();
    let found = client.read(handles).unwrap();
    let floats = |bytes: &[u8]| f32::from_bytes(bytes)[..length].to_vec();
    let ledger = u32::from_bytes(&found[2]);
    assert_eq!(ledger[KERNELS], 5);
    Some((floats(&found[0]), floats(&found[1]), ledger[FAILED] == 1))
}

/// The sum of a coordinate's parts on the grid of the noise: each rounded to a finer one, and then their sum.
fn sum_of(parts: &[Vec<f32>], i: usize, exponent: i32) -> i64 {
    let sum: i64 = parts.iter().map(|part| whole(part[i], exponent - FINER as i32)).sum();
    (sum + (1 << (FINER - 1))) >> FINER
}

/// The nearest whole multiple of `2^exponent`, half away from zero.
fn whole(x: f32, exponent: i32) -> i64 {
    (f64::from(x) * f64::from(-exponent).exp2()).round() as i64
}

#[test]
fn sums_of_parts_and_noise_are_those_of_whole_numbers() {
    let values = [0.0, -0.0, 1.0, -1.0, 0.3, -0.7, 1e-3, -1e-9, 3e-30, 17.0, -250.7, 8000.0, 1e-40];
    for exponent in [-27, -31, -45, -10] {
        let wide = exponent == -45;
        let parts: Vec<Vec<f32>> = (0..7)
            .map(|part| (0..200).map(|i| values[(i * 5 + part * 7 + i / 13) % 13]).collect())
            .collect();
        // Sums that cancel to a few multiples, and sums that carry into the high word and out of it.
        let sums: Vec<i64> = (0..200).map(|i| sum_of(&parts, i, exponent)).collect();
        let noise: Vec<i64> = sums
            .iter()
            .enumerate()
            .map(|(i, sum)| match i % 4 {
                0 => 3 - sum,
                1 => -sum,
                2 => i64::from(i as i32) << 20,
                _ => -1,
            })
            .map(|n| if wide { n } else { n.clamp(i32::MIN.into(), i32::MAX.into()) })
            .collect();
        let Some((momenta, parameters, failed)) = updated(&parts, &noise, exponent, wide, 9) else {
            return;
        };
        assert!(!failed);
        for i in 0..200 {
            let expected = (sums[i] + noise[i]) as f64 * f64::from(exponent).exp2();
            let found = f64::from(momenta[i]);
            assert!((found - expected).abs() <= 3e-7 * expected.abs(), "{i}: {found} {expected}");
            let expected = 0.5 - 0.25 * f64::from(momenta[i]);
            let size = 1e-6 * (1.0 + expected.abs());
            assert!((f64::from(parameters[i]) - expected).abs() <= size, "{i}");
        }
    }
}

#[test]
fn what_is_not_finite_or_too_large_is_noticed() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -1e30] {
        let mut parts = vec![vec![1.0; 70]; 2];
        parts[1][69] = bad;
        let Some((.., failed)) = updated(&parts, &[0; 70], -27, false, 9) else { return };
        assert!(failed, "{bad}");
    }
}

#[test]
fn sums_and_noise_of_another_step_are_noticed() {
    let parts = vec![vec![1.0; 70]; 2];
    for wide in [false, true] {
        for (stamp, expected) in [(9, false), (8, true), (10, true)] {
            let Some((.., failed)) = updated(&parts, &[0; 70], -27, wide, stamp) else { return };
            assert_eq!(failed, expected, "{stamp}");
        }
    }
}

#[test]
fn parameters_beyond_the_first_axis_of_a_grid_get_their_sums_and_noise() {
    let length = SPAN * UNITS + 100;
    let parts = vec![vec![0.25_f32; length]];
    let noise: Vec<i64> = (0..length as i64).map(|i| i % 1000 - 500).collect();
    let Some((momenta, _, failed)) = updated(&parts, &noise, -10, false, 9) else { return };
    assert!(!failed);
    let wrong = momenta.iter().zip(&noise).position(|(&m, &n)| m != 0.25 + n as f32 / 1024.0);
    assert_eq!(wrong, None);
}

#[test]
fn places_of_another_step_are_noticed() {
    let Some(gpu) = gpu() else { return };
    let client = adapter::open(gpu, None).unwrap().client;
    let (bytes, labels) = (Buffer::of(&client, &[0_u32; 2]), Buffer::of(&client, &[5, 6_u32]));
    let table = Buffer::of(&client, &[0.5_f32; 256]);
    let places = Buffer::of(&client, &[0, 0, 1, 0, 7_u32]);
    let cut = Cut { channels: 1, height: 2, width: 2, padding: 0, reflect: false, views: 1 };
    for (stamp, failure) in [(7, 0), (8, 1)] {
        let [images, chosen] = [8, 2].map(|length| Buffer::new(&client, length));
        let ledger = Buffer::of(&client, &[0, 0, 0_u32]);
        gather::launch(
            &client,
            spread(1),
            units(),
            ledger.argument(),
            bytes.argument(),
            labels.argument(),
            table.argument(),
            places.argument(),
            images.argument(),
            chosen.argument(),
            8,
            0,
            2,
            stamp,
            cut,
        );
        let found = client.read(vec![chosen.handle, ledger.handle]).unwrap();
        assert_eq!(u32::from_bytes(&found[0])[..2], [5, 6]);
        assert_eq!(u32::from_bytes(&found[1])[FAILED], failure);
    }
}

#[test]
fn images_and_labels_of_another_batch_are_noticed() {
    let Some(gpu) = gpu() else { return };
    let client = adapter::open(gpu, None).unwrap().client;
    for (stamp, of_images, of_labels, failure) in
        [(3, 3.0_f32, 3_u32, 0), (3, 2.0, 3, 1), (3, 3.0, 2, 1), (0x100_0001, 1.0, 0x100_0001, 0)]
    {
        let images = Buffer::of(&client, &[9.0, 9.0, of_images]);
        let labels = Buffer::of(&client, &[9, of_labels]);
        let ledger = Buffer::of(&client, &[0, 0, 0_u32]);
        let arguments = [&ledger, &images, &labels].map(Buffer::argument);
        let [of_ledger, images, labels] = arguments;
        arrive::launch(&client, spread(1), units(), of_ledger, images, labels, 2, 1, stamp);
        let found = client.read(vec![ledger.handle]).unwrap();
        assert_eq!(u32::from_bytes(&found[0])[FAILED], failure, "{stamp} {of_images} {of_labels}");
    }
}

#[test]
fn norms_of_another_pass_are_factors_of_zero() {
    let Some(gpu) = gpu() else { return };
    let client = adapter::open(gpu, None).unwrap().client;
    for (stamp, expected, failure) in [(3, [1.0, 0.25], 0), (4, [0.0, 0.0], 1)] {
        let squares = Buffer::of(&client, &[0.25, 0.0, 9.0, 7.0_f32]);
        let [factors, marks] = [2, 2].map(|length| Buffer::new(&client, length));
        let ledger = Buffer::of(&client, &[3, 0, 0_u32]);
        scale::launch(
            &client,
            spread(1),
            units(),
            ledger.argument(),
            squares.argument(),
            factors.argument(),
            marks.argument(),
            2,
            stamp,
            1.0,
            0.0,
            0.0,
            0.0,
            2,
        );
        let handles = vec![factors.handle, ledger.handle];
        let found = client.read(handles).unwrap();
        assert_eq!(f32::from_bytes(&found[0])[..2], expected);
        assert_eq!(u32::from_bytes(&found[1])[FAILED], failure);
    }
}
