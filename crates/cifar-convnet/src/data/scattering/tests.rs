use serde_json::Value;

use super::{Scattering, filters, reference};

/// `units` of `scripts/golden/formula.py`, rounded to f32.
fn units(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as f64 / f64::from(1 << 30) - 1.0) as f32
    };
    (0..count).map(next).collect()
}

fn transformed(plane: &[f32], size: [usize; 2], scales: usize, angles: usize) -> Vec<f32> {
    let scattering = Scattering::new(size, scales, angles);
    let mut out = vec![f32::NAN; scattering.output_len()];
    let mut workspace = scattering.workspace();
    scattering.transform(plane, &mut workspace, &mut out);
    // What a plane leaves behind must not be seen in the next.
    let again = out.clone();
    scattering.transform(plane, &mut workspace, &mut out);
    assert_eq!(out, again);
    out
}

#[test]
fn it_is_the_sum_over_all_pixels_for_every_size() {
    let cases =
        [([4, 6], 1, 1), ([8, 12], 1, 3), ([8, 8], 2, 4), ([12, 20], 2, 3), ([16, 16], 3, 2)];
    for (case, (size, scales, angles)) in cases.into_iter().enumerate() {
        let plane = units(case as u64, size[0] * size[1]);
        let expected = reference::scattering(&plane, size, scales, angles);
        let found = transformed(&plane, size, scales, angles);
        assert_eq!(found.len(), expected.len());
        let scale = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let error = (f64::from(*found) - expected).abs() / scale;
            assert!(error < 1e-6, "{size:?} {scales} {angles}, {at}: {found}, not {expected}");
        }
    }
}

#[test]
fn it_is_what_kymatio_computes() {
    let golden: Value =
        serde_json::from_str(include_str!("../../../tests/golden/scattering.json")).unwrap();
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    for case in golden["cases"].as_array().unwrap() {
        let size = [number(&case["height"]), number(&case["width"])];
        let (scales, angles) = (number(&case["scales"]), number(&case["angles"]));
        let plane = match case["picture"].as_str().unwrap() {
            "noise" => units(7, size[0] * size[1]),
            _ => (0..size[0] * size[1])
                .map(|at| ((3 * (at % size[1]) + 7 * (at / size[1])) % 32) as f32 / 16.0 - 1.0)
                .collect(),
        };
        let found = transformed(&plane, size, scales, angles);
        let channels = case["channels"].as_array().unwrap();
        let places = found.len() / channels.len();
        let weights = units(11, places);
        for (at, (found, expected)) in found.chunks(places).zip(channels).enumerate() {
            let mean = found.iter().sum::<f32>() / places as f32;
            let projection: f32 = found.iter().zip(&weights).map(|(x, w)| x * w).sum();
            let numbers = [mean, projection / places as f32, found[0], found[places / 2]];
            let expected: Vec<f32> =
                expected.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
            let scale = expected[2..].iter().fold(expected[0].abs(), |most, x| most.max(x.abs()));
            for (found, expected) in numbers.iter().zip(&expected) {
                let error = (found - expected).abs() / scale;
                assert!(error < 2e-5, "{case:.60}, channel {at}: {found}, not {expected}");
            }
        }
    }
}

#[test]
fn wavelets_see_no_mean_and_the_low_pass_keeps_it() {
    let size = [40, 40];
    for (j, t) in (0..2).flat_map(|j| (0..8).map(move |t| (j, t))) {
        let sum = filters::morlet_on_grid(size, j, t, 8).iter().map(|z| z.re).sum::<f64>();
        assert!(sum.abs() < 1e-12, "{j} {t}: {sum}");
    }
    // Up to kymatio's value of pi, half of whose error this one carries.
    let sum: f64 = filters::low_pass(40, 2).iter().sum();
    assert!((sum - (std::f64::consts::PI / filters::NORM_PI).sqrt()).abs() < 1e-9, "{sum}");
    let flat = transformed(&[0.5; 1024], [32, 32], 2, 8);
    assert!(flat[..64].iter().all(|x| (x - 0.5).abs() < 1e-4), "{:?}", &flat[..4]);
    assert!(flat[64..].iter().all(|x| x.abs() < 1e-6), "no wavelet sees a flat plane");
}

#[test]
fn sizes_that_do_not_fit_are_known() {
    assert!(Scattering::fits([32, 32], 2) && Scattering::fits([28, 28], 2));
    assert!(!Scattering::fits([30, 32], 2) && !Scattering::fits([4, 32], 2));
    assert_eq!([(2, 8), (1, 8), (3, 4)].map(|(j, l)| Scattering::coefficients(j, l)), [81, 9, 61]);
}
