//! The stream of noise against its definition: `C^-1 Z`, the same bits however it is computed.

use dp_train::noise::normal;
use dp_train::noise::{NoiseError, NoiseStream, history_bytes, most_kept_rows};
use dp_train::seeds::{NoiseKey, RunSeed};
use mf_core::{
    BandedLower, Buffer, Factorization, Method, Noising, Participation, Sgd, Strategy, Workload,
};
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

const SEED: RunSeed = RunSeed(11);

fn strategy(method: Method, steps: usize) -> Strategy {
    let workload = Workload::sgd(Sgd::new(0.999, 0.9).unwrap(), steps).unwrap();
    let participation = Participation::new(steps, steps.div_ceil(4), 2.min(steps)).unwrap();
    let found = Factorization::for_participation(workload, method, &participation);
    found.unwrap().strategy().clone()
}

fn stream(strategy: &Strategy, dim: usize) -> NoiseStream {
    NoiseStream::new(strategy.clone(), dim, NoiseKey::fixed(SEED)).unwrap()
}

fn next(stream: &mut NoiseStream) -> Vec<f32> {
    let mut row = vec![0.0; stream.dim()];
    stream.add_next(1.0, &mut row).unwrap();
    // What was rounded to f32 comes back: the dither is below its last place.
    row.into_iter().map(|y| y as f32).collect()
}

fn all_rows(strategy: &Strategy, dim: usize) -> Vec<Vec<f32>> {
    let mut stream = stream(strategy, dim);
    (0..strategy.steps()).map(|_| next(&mut stream)).collect()
}

/// The key's bytes are secret, but a checkpoint of an unused stream shows them after 16 others.
fn key_bytes() -> [u8; 32] {
    let mut bytes = Vec::new();
    stream(&Strategy::identity(1).unwrap(), 1).save(&mut bytes).unwrap();
    bytes[16..48].try_into().unwrap()
}

fn normals(step: usize, dim: usize) -> Vec<f64> {
    let mut z = vec![0.0; dim];
    normal::fill(&key_bytes(), step, 0, &mut z);
    z
}

/// The recurrence, row by row and coordinate by coordinate, rounded to f32 once per entry.
fn plain_rows(strategy: &Strategy, dim: usize) -> Vec<Vec<f32>> {
    let mut rows: Vec<Vec<f32>> = Vec::new();
    for i in 0..strategy.steps() {
        let c = strategy.row(i);
        let mut y = normals(i, dim);
        for lag in (1..c.len()).rev() {
            y.iter_mut().zip(&rows[i - lag]).for_each(|(y, h)| *y -= c[lag] * f64::from(*h));
        }
        rows.push(y.iter().map(|y| (y / c[0]) as f32).collect());
    }
    rows
}

#[test]
fn the_blocked_solve_is_bit_equal_to_the_plain_recurrence() {
    for steps in [1, 2, 15, 16, 17, 33, 70] {
        for bands in [1, 2, 3, 16, 17, 18, 40, 70] {
            if bands > steps {
                continue;
            }
            let c = strategy(Method::Bsr { bands }, steps);
            for dim in [1, 16, 37] {
                assert_eq!(all_rows(&c, dim), plain_rows(&c, dim), "n {steps}, p {bands}, d {dim}");
            }
        }
    }
}

#[test]
fn toeplitz_and_general_storage_give_the_same_bits() {
    let c = strategy(Method::Bsr { bands: 9 }, 50);
    let rows = Strategy::banded(c.to_rows().unwrap()).unwrap();
    assert_eq!(all_rows(&c, 20), all_rows(&rows, 20));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_banded_strategy_is_solved_and_bit_equal(
        (steps, bands, entries) in (1..60_usize)
            .prop_flat_map(|n| (Just(n), 1..=n))
            .prop_flat_map(|(n, p)| {
                (Just(n), Just(p), prop::collection::vec(-0.3..0.3_f64, n * p))
            }),
        dim in 1..40_usize,
    ) {
        let mut entries = entries;
        entries.chunks_mut(bands).for_each(|row| row[0] = 1.0 + row[0].abs());
        let rows = BandedLower::from_entries(steps, bands, entries).unwrap();
        let c = Strategy::banded(rows).unwrap();
        let streamed = all_rows(&c, dim);
        prop_assert_eq!(&streamed, &plain_rows(&c, dim));
        // The definition: C y = z, up to one rounding of y per entry.
        for i in 0..steps {
            let z = normals(i, dim);
            for t in 0..dim {
                let terms = c.row(i).iter().enumerate();
                let (mut product, mut size) = (0.0, 0.0);
                for (lag, c) in terms {
                    let term = c * f64::from(streamed[i - lag][t]);
                    product += term;
                    size += term.abs();
                }
                prop_assert!((product - z[t]).abs() <= 2_f64.powi(-24) * size + 1e-12 * size);
            }
        }
    }
}

#[test]
fn f32_rows_are_close_to_the_dense_f64_product_over_2000_steps() {
    let (n, dim) = (2000, 24);
    for (name, method) in [
        ("sqrt", Method::SquareRoot),
        ("bsr 100", Method::Bsr { bands: 100 }),
        ("input", Method::Input),
        ("aof 100", Method::Aof { bands: 100, tolerance: 1e-4 }),
        ("bisr 40", Method::Bisr { bands: 40 }),
        ("lambda-cgd", Method::LambdaCgd { lambda: Some(0.98) }),
        ("blt 3", Method::Blt { buffers: 3 }),
    ] {
        let c = strategy(method, n);
        // Dense forward substitution with everything in f64.
        let mut dense: Vec<Vec<f64>> = Vec::new();
        for i in 0..n {
            let row = c.row(i);
            let mut y = normals(i, dim);
            for lag in 1..row.len() {
                y.iter_mut().zip(&dense[i - lag]).for_each(|(y, h)| *y -= row[lag] * h);
            }
            dense.push(y.iter().map(|y| y / row[0]).collect());
        }
        let (mut difference, mut size, mut worst) = (0.0, 0.0, 0.0_f64);
        for (streamed, dense) in all_rows(&c, dim).iter().zip(&dense) {
            for (s, d) in streamed.iter().zip(dense) {
                let error = f64::from(*s) - d;
                difference += error * error;
                size += d * d;
                worst = worst.max(error.abs());
            }
        }
        let (relative, worst) =
            ((difference / size).sqrt(), worst / (size / (n * dim) as f64).sqrt());
        println!("{name}: relative error {relative:.1e}, largest {worst:.1e} standard deviations");
        assert!(relative < 1e-7 && worst < 1e-6, "{name}: {relative:e} {worst:e}");
    }
}

#[test]
fn identity_is_bit_equal_to_plain_dp_sgd_noise() {
    let (steps, dim, std) = (5, 3000, 12.345);
    let mut identity = stream(&Strategy::identity(steps).unwrap(), dim);
    for step in 0..steps {
        let mut noisy = vec![0.25; dim];
        identity.add_next(std, &mut noisy).unwrap();
        let z = normals(step, dim);
        let expected: Vec<f64> = z.iter().map(|z| 0.25 + std * z).collect();
        assert_eq!(noisy, expected);
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    for method in
        [Method::Bsr { bands: 20 }, Method::Bisr { bands: 20 }, Method::Blt { buffers: 2 }]
    {
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| all_rows(&strategy(method, 40), 5003))
        };
        let one = with(1);
        assert_eq!(one, with(2));
        assert_eq!(one, with(5));
    }
}

#[test]
fn a_longer_vector_starts_with_the_same_coordinates() {
    let c = strategy(Method::Bsr { bands: 5 }, 20);
    let (short, long) = (all_rows(&c, 1500), all_rows(&c, 4100));
    for (short, long) in short.iter().zip(&long) {
        assert_eq!(short[..], long[..1500]);
    }
}

#[test]
fn resuming_anywhere_continues_bit_by_bit() {
    for (method, steps, dim) in [
        (Method::Identity, 10, 50),
        (Method::Bsr { bands: 2 }, 10, 50),
        (Method::Bsr { bands: 30 }, 64, 1100),
        (Method::SquareRoot, 40, 33),
        (Method::Aof { bands: 7, tolerance: 1e-3 }, 40, 33),
        (Method::Bisr { bands: 9 }, 40, 1100),
        (Method::LambdaCgd { lambda: None }, 20, 33),
        (Method::Blt { buffers: 2 }, 40, 1100),
    ] {
        let c = strategy(method, steps);
        let whole = all_rows(&c, dim);
        for stop in 0..=steps {
            let mut first = stream(&c, dim);
            let mut rows: Vec<Vec<f32>> = (0..stop).map(|_| next(&mut first)).collect();
            let mut bytes = Vec::new();
            first.save(&mut bytes).unwrap();
            let mut second = NoiseStream::load(c.clone(), dim, &bytes[..]).unwrap();
            assert_eq!(first, second);
            rows.extend((stop..steps).map(|_| next(&mut second)));
            assert!(whole == rows, "{method} stopped at {stop}");
        }
    }
}

#[test]
fn a_checkpoint_of_another_run_or_a_damaged_one_is_refused() {
    let c = strategy(Method::Bsr { bands: 4 }, 20);
    let mut source = stream(&c, 10);
    next(&mut source);
    let mut bytes = Vec::new();
    source.save(&mut bytes).unwrap();
    let load = |c: &Strategy, dim, bytes: &[u8]| NoiseStream::load(c.clone(), dim, bytes);
    assert!(load(&c, 10, &bytes).is_ok());
    assert!(load(&strategy(Method::Bsr { bands: 5 }, 20), 10, &bytes).is_err());
    assert!(load(&strategy(Method::Bsr { bands: 4 }, 21), 10, &bytes).is_err());
    assert!(load(&c, 11, &bytes).is_err());
    assert!(load(&c, 10, &bytes[..bytes.len() - 1]).is_err());
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 4;
        assert!(load(&c, 10, &damaged).is_err(), "byte {position}");
    }
}

#[test]
fn the_state_is_exactly_the_history_and_a_few_numbers() {
    let numbers = 16 + 32 + 1 + 32 + 3 * 8 + 32;
    let saved = |c: &Strategy, dim: usize| {
        let mut bytes = Vec::new();
        stream(c, dim).save(&mut bytes).unwrap();
        bytes.len() - numbers
    };
    for (bands, dim) in [(1, 100), (2, 17), (40, 1025)] {
        let c = strategy(Method::Bsr { bands }, 50);
        assert_eq!(history_bytes(&c, None, dim), 4 * (bands as u64 - 1) * dim as u64);
        assert_eq!(saved(&c, dim) as u64, history_bytes(&c, None, dim));
        let c = strategy(Method::Bisr { bands }, 50);
        assert_eq!(history_bytes(&c, None, dim), 4 * (bands as u64 - 1) * dim as u64);
        assert_eq!(history_bytes(&c, Some(0), dim), 0);
        assert_eq!(saved(&c, dim), 0, "rows of Z are drawn again");
    }
    let c = strategy(Method::Blt { buffers: 1 }, 50);
    assert_eq!((history_bytes(&c, None, 1025), saved(&c, 1025)), (8 * 1025, 8 * 1025));
}

#[test]
fn rows_from_a_banded_inverse_are_the_same_bits_however_many_are_kept() {
    for (bands, steps, dim) in
        [(1, 5, 10), (2, 30, 1500), (5, 30, 1024), (12, 30, 2500), (30, 30, 7)]
    {
        let c = strategy(Method::Bisr { bands }, steps);
        let Noising::Taps(taps) = c.noising() else { panic!("a banded inverse") };
        // The definition: entries of Z rounded to f32, the sum in f64 from the oldest row on. The newest row is
        // dithered below its last place.
        let z: Vec<Vec<f32>> =
            (0..steps).map(|i| normals(i, dim).iter().map(|z| *z as f32).collect()).collect();
        let all = all_rows(&c, dim);
        for (i, row) in all.iter().enumerate() {
            for (t, found) in row.iter().enumerate() {
                let lags = (0..taps.len().min(i + 1)).rev();
                let exact = lags.fold(0.0, |sum, k| sum + taps[k] * f64::from(z[i - k][t]));
                let last_place = f64::from(f32::EPSILON) * (f64::from(z[i][t]).abs() + exact.abs());
                assert!(
                    (f64::from(*found) - exact).abs() <= last_place,
                    "p {bands}: {found} {exact}"
                );
            }
        }
        for kept in 0..bands {
            let mut stream = stream(&c, dim).keeping(kept).unwrap();
            let rows: Vec<Vec<f32>> = (0..steps).map(|_| next(&mut stream)).collect();
            assert!(rows == all, "p {bands}, {kept} rows kept");
        }
    }
}

#[test]
fn a_continuation_may_keep_another_number_of_rows() {
    let (steps, dim) = (40, 1100);
    let c = strategy(Method::Bisr { bands: 9 }, steps);
    let whole = all_rows(&c, dim);
    for (before, after, stop) in [(8, 0, 17), (0, 8, 23), (3, 5, 4), (5, 3, 0)] {
        let mut first = stream(&c, dim).keeping(before).unwrap();
        let mut rows: Vec<Vec<f32>> = (0..stop).map(|_| next(&mut first)).collect();
        let mut bytes = Vec::new();
        first.save(&mut bytes).unwrap();
        let second = NoiseStream::load(c.clone(), dim, &bytes[..]).unwrap();
        let mut second = second.keeping(after).unwrap();
        rows.extend((stop..steps).map(|_| next(&mut second)));
        assert!(whole == rows, "{before} rows, then {after}");
    }
}

#[test]
fn only_rows_of_z_can_be_drawn_again() {
    for (method, most) in [
        (Method::Bisr { bands: 4 }, Some(3)),
        (Method::LambdaCgd { lambda: Some(0.5) }, Some(1)),
        (Method::Bsr { bands: 4 }, None),
        (Method::Blt { buffers: 1 }, None),
    ] {
        let c = strategy(method, 20);
        assert_eq!(most_kept_rows(&c), most);
        let rows = most.map_or(0, |most| most + 1);
        let refused = stream(&c, 3).keeping(rows).unwrap_err();
        assert_eq!(refused, NoiseError::KeptRows { rows, most });
        assert!(refused.to_string().split(' ').count() > 5);
    }
}

#[test]
fn buffers_are_the_recurrence_of_their_coefficients() {
    let (steps, dim) = (300, 1030);
    let buffers = vec![Buffer { weight: 0.3, decay: 0.999 }, Buffer { weight: 0.4, decay: 0.5 }];
    let c = Strategy::buffered(steps, buffers).unwrap();
    let rows = all_rows(&c, dim);
    // C y = z up to one rounding of y per entry, with the coefficients of C and no buffer.
    for i in 0..steps {
        let z = normals(i, dim);
        for t in [0, 1, 1023, 1024, 1029] {
            let (mut product, mut size) = (0.0, 0.0);
            for (lag, c) in c.row(i).iter().enumerate() {
                let term = c * f64::from(rows[i - lag][t]);
                product += term;
                size += term.abs();
            }
            assert!((product - z[t]).abs() <= 2_f64.powi(-24) * size + 1e-12 * size, "{i} {t}");
        }
    }
}

#[test]
fn step_n_is_a_hard_error() {
    for method in [
        Method::Identity,
        Method::Bsr { bands: 3 },
        Method::SquareRoot,
        Method::Bisr { bands: 3 },
        Method::Blt { buffers: 1 },
    ] {
        let mut stream = stream(&strategy(method, 7), 4);
        (0..7).for_each(|_| drop(next(&mut stream)));
        let mut row = [0.5; 4];
        assert_eq!(stream.add_next(1.0, &mut row), Err(NoiseError::Exhausted { steps: 7 }));
        assert_eq!(row, [0.5; 4]);
    }
}
