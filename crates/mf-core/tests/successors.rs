//! The factorizations that came after BSR, against dense matrices, brute force, each other and `jax_privacy`.

mod dense;

use mf_core::sensitivity::Method as Argument;
use mf_core::{
    Buffer, Error, Factorization, Method, Noising, Participation, Sgd, Strategy as Matrix,
    Workload, bounds, loss, sensitivity,
};
use proptest::prelude::*;

const PARAMETERS: [(f64, f64); 4] = [(1.0, 0.0), (1.0, 0.9), (0.999, 0.5), (0.9, 0.8)];

fn methods(n: usize) -> Vec<Method> {
    let mut methods = vec![
        Method::LambdaCgd { lambda: Some(0.7) },
        Method::LambdaCgd { lambda: Some(1.0) },
        Method::LambdaCgd { lambda: None },
        Method::Blt { buffers: 1 },
        Method::Blt { buffers: 3 },
    ];
    for bands in [1, 2, 3, 5, n] {
        methods.push(Method::Bisr { bands });
        methods.push(Method::Toeplitz { bands });
        methods.push(Method::NormalizedSquareRoot { bands });
    }
    methods.extend([1, 2, 5].map(|bands| Method::InverseToeplitz { bands }));
    let fits = |method: &Method| match method {
        Method::Blt { .. } => true,
        method => method.size().is_none_or(|bands| bands <= n),
    };
    methods.retain(fits);
    methods
}

fn workload(alpha: f64, beta: f64, n: usize) -> Workload {
    Workload::sgd(Sgd::new(alpha, beta).unwrap(), n).unwrap()
}

fn factorize(alpha: f64, beta: f64, method: Method, pattern: &Participation) -> Factorization {
    Factorization::for_participation(workload(alpha, beta, pattern.steps()), method, pattern)
        .unwrap()
}

fn error(alpha: f64, beta: f64, method: Method, pattern: &Participation) -> f64 {
    factorize(alpha, beta, method, pattern).loss(pattern).unwrap().expected_error
}

fn cooldown(n: usize) -> Vec<f64> {
    // Constant, then linear down to a tenth.
    let half = n / 2;
    (0..n)
        .map(|i| if i < half { 1.0 } else { 1.0 - 0.9 * (i - half) as f64 / (n - half) as f64 })
        .collect()
}

fn cosine(n: usize) -> Vec<f64> {
    let angle = |i: usize| std::f64::consts::PI * i as f64 / n as f64;
    (0..n).map(|i| 0.01 + 0.5 * (1.0 + angle(i).cos())).collect()
}

#[test]
fn the_inverse_is_what_the_noise_is_made_of() {
    let n = 20;
    let pattern = Participation::new(n, 5, 4).unwrap();
    for (alpha, beta) in PARAMETERS {
        for method in methods(n) {
            let found = factorize(alpha, beta, method, &pattern);
            let inverse = dense::inverse(&dense::strategy(found.strategy()));
            let Some(column) = found.strategy().short_inverse() else {
                assert_eq!(found.strategy().noising(), Noising::Recurrence);
                continue;
            };
            for i in 0..n {
                for j in 0..=i {
                    assert!((inverse[i][j] - column[i - j]).abs() < 1e-12, "{method:?} ({i}, {j})");
                }
            }
        }
    }
}

#[test]
fn the_whole_inverse_root_is_the_root() {
    for (alpha, beta) in PARAMETERS {
        let pattern = Participation::single(60).unwrap();
        let bisr = factorize(alpha, beta, Method::Bisr { bands: 60 }, &pattern);
        let root = factorize(alpha, beta, Method::SquareRoot, &pattern);
        for (x, y) in bisr.strategy().row(59).iter().zip(root.strategy().row(59)) {
            assert!((x / y - 1.0).abs() < 1e-12, "{alpha} {beta}: {x} {y}");
        }
    }
}

#[test]
fn decoder_norms_are_those_of_the_dense_quotient_also_under_a_schedule() {
    for n in [1, 2, 6, 21] {
        let pattern = Participation::new(n, n.div_ceil(3), 1 + n / 10).unwrap();
        for (alpha, beta) in PARAMETERS {
            let sgd = Sgd::new(alpha, beta).unwrap();
            for method in methods(n) {
                let found = factorize(alpha, beta, method, &pattern);
                let inverse = dense::inverse(&dense::strategy(found.strategy()));
                for (workload, rates) in [
                    (workload(alpha, beta, n), vec![1.0; n]),
                    (Workload::scheduled(sgd, cosine(n)).unwrap(), cosine(n)),
                ] {
                    let b = dense::product(&dense::sgd(alpha, beta, &rates), &inverse);
                    let rows: Vec<f64> =
                        b.iter().map(|row| row.iter().map(|x| x * x).sum()).collect();
                    let norms = loss::decoder_norms(&workload, found.strategy()).unwrap();
                    let close = |x: f64, y: f64| (x / y - 1.0).abs() < 1e-9;
                    assert!(close(norms.frobenius_squared, rows.iter().sum()), "{method:?} n {n}");
                    assert!(close(norms.last_row_squared, rows[n - 1]), "{method:?} n {n}");
                    let largest = rows.iter().copied().fold(0.0, f64::max);
                    assert!(close(norms.max_row_squared, largest), "{method:?} n {n}");
                }
            }
        }
    }
}

/// Exact values must be attained, bounds must not be exceeded.
fn check(strategy: &Matrix, pattern: &Participation) -> mf_core::Sensitivity {
    let found = sensitivity::of(strategy, pattern).unwrap();
    let worst = dense::sensitivity(&dense::strategy(strategy), pattern);
    let slack = 1e-12 * worst;
    assert!(found.value >= worst - slack, "{found:?} below {worst} for {pattern:?}: {strategy:?}");
    assert!(!found.exact || found.value <= worst + slack, "{found:?} above {worst}, {pattern:?}");
    found
}

#[test]
fn sensitivities_are_exact_by_brute_force_over_all_patterns() {
    for n in [1_usize, 2, 6, 10] {
        for b in [1, 2, 3, 5] {
            for k in [2, n.div_ceil(b)] {
                let Ok(pattern) = Participation::new(n, b, k) else { continue };
                for (alpha, beta) in [(1.0, 0.0), (1.0, 0.9), (0.9, 0.8)] {
                    for method in methods(n) {
                        let found = factorize(alpha, beta, method, &pattern);
                        let value = check(found.strategy(), &pattern);
                        let toeplitz = !matches!(method, Method::NormalizedSquareRoot { .. });
                        assert!(
                            value.exact || !toeplitz,
                            "{method:?} {alpha} {beta} n {n} b {b} k {k}"
                        );
                        assert!(value.method != Argument::UnimodalMajorant);
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_banded_inverse_is_bounded(
        mut taps in prop::collection::vec(-0.6_f64..0.6, 1..8),
        b in 1_usize..=8,
    ) {
        taps[0] = 1.0;
        let strategy = Matrix::inverse_toeplitz(8, taps).unwrap();
        check(&strategy, &Participation::new(8, b, 8_usize.div_ceil(b)).unwrap());
    }

    #[test]
    fn any_buffers_are_exact(
        pairs in prop::collection::vec((0.0_f64..1.0, 0.0_f64..=1.0), 1..4),
        b in 1_usize..=9,
    ) {
        let total: f64 = pairs.iter().map(|(weight, decay)| weight / (1.0 + decay)).sum();
        let scale = 0.99 / f64::max(total, 1.0);
        let buffers = pairs.iter().map(|&(weight, decay)| Buffer { weight: scale * weight, decay });
        let strategy = Matrix::buffered(9, buffers.collect()).unwrap();
        let found = check(&strategy, &Participation::new(9, b, 9_usize.div_ceil(b)).unwrap());
        prop_assert!(found.exact);
        // The noise does not grow.
        let inverse = Matrix::buffered(2000, match strategy.noising() {
            Noising::Buffers(buffers) => buffers.to_vec(),
            _ => vec![],
        }).unwrap().short_inverse().unwrap();
        let largest = |part: &[f64]| part.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        prop_assert!(largest(&inverse[1000..]) <= largest(&inverse[..1000]));
    }
}

#[test]
fn jax_privacy_finds_the_same() {
    let text = include_str!("golden/factorizations.csv");
    let mut seen = 0;
    for line in text.lines().skip(2) {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |i: usize| cells[i].parse::<usize>().unwrap();
        let (n, b, k, size) = (number(1), number(2), number(3), number(4));
        let golden: f64 = cells[5].parse().unwrap();
        let pattern = Participation::new(n, b, k).unwrap();
        let (ours, tolerance) = match cells[0] {
            "toeplitz_error" => (error(1.0, 0.0, Method::Toeplitz { bands: size }, &pattern), 1e-5),
            "bisr_error" => (error(1.0, 0.0, Method::Bisr { bands: size }, &pattern), 1e-9),
            "bisr_sensitivity" => {
                let found = factorize(1.0, 0.0, Method::Bisr { bands: size }, &pattern);
                (found.sensitivity(&pattern).unwrap().value, 1e-9)
            }
            // Two searches over the same family; ours may be better, not worse.
            "blt_error" => {
                let ours = error(1.0, 0.0, Method::Blt { buffers: size }, &pattern);
                assert!(ours <= golden * 1.001, "{line}: {ours}");
                (ours, 0.01)
            }
            other => panic!("unknown quantity {other}"),
        };
        assert!((ours / golden - 1.0).abs() < tolerance, "{line}: {ours}");
        seen += 1;
    }
    assert!(seen >= 20, "{seen} rows");
}

#[test]
fn nothing_is_below_the_optimum_of_its_class() {
    let (n, b, k) = (400, 40, 10);
    let pattern = Participation::new(n, b, k).unwrap();
    for (alpha, beta) in PARAMETERS {
        let optimum = factorize(alpha, beta, Method::Aof { bands: b, tolerance: 1e-4 }, &pattern);
        let least = optimum.loss(&pattern).unwrap().expected_error
            * (1.0 - optimum.certificate().unwrap().relative_gap);
        for bands in [1, 2, 7, 40] {
            // Columns of at most the same norm and at most b bands.
            for method in [
                Method::Bsr { bands },
                Method::Toeplitz { bands },
                Method::NormalizedSquareRoot { bands },
            ] {
                let ours = error(alpha, beta, method, &pattern);
                assert!(ours >= least * (1.0 - 1e-12), "{method:?} {alpha} {beta}: {ours} {least}");
            }
        }
        let any = bounds::nuclear_norm_lower(&Sgd::new(alpha, beta).unwrap(), &pattern);
        for method in [
            Method::Bisr { bands: 8 },
            Method::LambdaCgd { lambda: None },
            Method::InverseToeplitz { bands: 8 },
            Method::Blt { buffers: 3 },
        ] {
            let ours = error(alpha, beta, method, &pattern);
            assert!(ours >= any, "{method:?} {alpha} {beta}: {ours} {any}");
        }
    }
}

#[test]
fn searches_are_better_than_what_they_start_from_and_more_is_not_worse() {
    for (n, b, k) in [(300, 30, 10), (256, 256, 1)] {
        let pattern = Participation::new(n, b, k).unwrap();
        for (alpha, beta) in PARAMETERS {
            let error = |method| error(alpha, beta, method, &pattern);
            let slack = 1.0 + 1e-6;
            for bands in [2, 4, 8, 16] {
                let toeplitz = error(Method::Toeplitz { bands });
                let inverse = error(Method::InverseToeplitz { bands });
                assert!(toeplitz <= slack * error(Method::Bsr { bands }));
                assert!(inverse <= slack * error(Method::Bisr { bands }));
                assert!(inverse <= slack * error(Method::LambdaCgd { lambda: None }));
                assert!(error(Method::InverseToeplitz { bands: 2 * bands }) <= slack * inverse);
                assert!(error(Method::Toeplitz { bands: 2 * bands }) <= slack * toeplitz);
            }
            let two = error(Method::InverseToeplitz { bands: 2 });
            assert!((two / error(Method::LambdaCgd { lambda: None }) - 1.0).abs() < 1e-6);
            let by_buffers: Vec<f64> =
                (1..=4).map(|buffers| error(Method::Blt { buffers })).collect();
            assert!(by_buffers.windows(2).all(|w| w[1] <= slack * w[0]), "{by_buffers:?}");
            let scan = (0..=1000).map(|i| f64::from(i) / 1000.0);
            let scanned = scan.map(|lambda| error(Method::LambdaCgd { lambda: Some(lambda) }));
            assert!(
                error(Method::LambdaCgd { lambda: None })
                    <= slack * scanned.fold(f64::INFINITY, f64::min)
            );
        }
    }
}

#[test]
fn six_buffers_are_as_good_as_the_root_over_a_hundred_thousand_steps() {
    let pattern = Participation::single(100_000).unwrap();
    for (alpha, beta) in [(1.0, 0.0), (1.0, 0.9), (0.9999, 0.9)] {
        let root = error(alpha, beta, Method::SquareRoot, &pattern);
        let found = factorize(alpha, beta, Method::Blt { buffers: 6 }, &pattern);
        let ours = found.loss(&pattern).unwrap().expected_error;
        assert!(found.strategy().noise_rows() <= 12);
        assert!(ours <= 1.01 * root, "{alpha} {beta}: {ours} against {root}");
    }
}

#[test]
fn unit_columns_help_the_root_and_make_the_sensitivity_known() {
    for (alpha, beta) in PARAMETERS {
        let single = Participation::single(200).unwrap();
        let normalized = error(alpha, beta, Method::NormalizedSquareRoot { bands: 200 }, &single);
        assert!(normalized <= error(alpha, beta, Method::SquareRoot, &single) * (1.0 + 1e-12));
        let pattern = Participation::new(200, 20, 10).unwrap();
        let found = factorize(alpha, beta, Method::NormalizedSquareRoot { bands: 20 }, &pattern);
        let value = found.sensitivity(&pattern).unwrap();
        assert!(value.exact && (value.value / 10.0_f64.sqrt() - 1.0).abs() < 1e-12);
    }
}

#[test]
fn schedules_are_factorized_as_what_they_are() {
    let n = 60;
    let pattern = Participation::new(n, 12, 5).unwrap();
    for (alpha, beta) in PARAMETERS {
        let sgd = Sgd::new(alpha, beta).unwrap();
        for rates in [cooldown(n), cosine(n)] {
            let scheduled = Workload::scheduled(sgd, rates.clone()).unwrap();
            let a = dense::sgd(alpha, beta, &rates);
            for method in [
                Method::Bsr { bands: 12 },
                Method::NormalizedSquareRoot { bands: 12 },
                Method::Aof { bands: 12, tolerance: 1e-6 },
            ] {
                let found = Factorization::new(scheduled.clone(), method).unwrap();
                let constant = Factorization::new(workload(alpha, beta, n), method).unwrap();
                let true_error = |c: &Matrix| {
                    let b = dense::product(&a, &dense::inverse(&dense::strategy(c)));
                    let frobenius: f64 = b.iter().flatten().map(|x| x * x).sum();
                    let sens = sensitivity::of(c, &pattern).unwrap();
                    assert!(sens.exact);
                    sens.value * (frobenius / n as f64).sqrt()
                };
                let error = true_error(found.strategy());
                let reported = found.loss(&pattern).unwrap().expected_error;
                assert!((reported / error - 1.0).abs() < 1e-9, "{method}");
                if let Some(certificate) = found.certificate() {
                    let certified = certificate.expected_error(n, 5);
                    assert!((certified / error - 1.0).abs() < 1e-9 && certificate.converged);
                    let of_constant = true_error(constant.strategy());
                    let least = error * (1.0 - certificate.relative_gap);
                    assert!(
                        least <= of_constant,
                        "optimal for the schedule: {error} {of_constant}"
                    );
                    // The root with unit columns is of the same class; without, it is not: columns of falling
                    // norm can have a smaller sum over every pattern than equal ones.
                    let in_class = Method::NormalizedSquareRoot { bands: 12 };
                    let root = Factorization::new(scheduled.clone(), in_class).unwrap();
                    assert!(least <= root.loss(&pattern).unwrap().expected_error);
                    let bsr = Factorization::new(scheduled.clone(), Method::Bsr { bands: 12 });
                    let bsr = bsr.unwrap().loss(&pattern).unwrap().expected_error;
                    println!(
                        "alpha {alpha} beta {beta}: bsr {bsr:.4}, aof {error:.4}, for constant {of_constant:.4}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_has_no_meaning_is_refused() {
    let pattern = Participation::new(20, 5, 4).unwrap();
    let make = |method| Factorization::for_participation(workload(1.0, 0.9, 20), method, &pattern);
    let other = Participation::new(21, 5, 4).unwrap();
    let bisr = Method::Bisr { bands: 4 };
    assert!(Factorization::for_participation(workload(1.0, 0.9, 20), bisr, &other).is_err());
    for method in [
        Method::Bisr { bands: 0 },
        Method::Bisr { bands: 21 },
        Method::Toeplitz { bands: 0 },
        Method::Toeplitz { bands: 21 },
        Method::InverseToeplitz { bands: 21 },
        Method::NormalizedSquareRoot { bands: 21 },
    ] {
        assert!(matches!(make(method), Err(Error::Bands { .. })), "{method:?}");
    }
    for lambda in [-0.1, 1.1, f64::NAN] {
        let refused = make(Method::LambdaCgd { lambda: Some(lambda) });
        assert!(matches!(refused, Err(Error::Lambda { .. })));
    }
    assert!(matches!(make(Method::Blt { buffers: 0 }), Err(Error::Buffers { .. })));
    assert!(matches!(make(Method::Blt { buffers: 7 }), Err(Error::Buffers { .. })));
    let fitted = Factorization::new(workload(1.0, 0.9, 20), Method::Blt { buffers: 1 });
    assert!(matches!(fitted, Err(Error::NoParticipation { method: "blt" })));
    let scheduled = Workload::scheduled(Sgd::new(1.0, 0.9).unwrap(), cosine(20)).unwrap();
    for method in methods(20).into_iter().filter(|method| {
        !matches!(method, Method::NormalizedSquareRoot { .. } | Method::LambdaCgd { .. })
    }) {
        let refused = Factorization::for_participation(scheduled.clone(), method, &pattern);
        assert!(matches!(refused, Err(Error::ScheduledWorkload { .. })), "{method:?}");
    }
    let negative = Buffer { weight: -0.1, decay: 0.5 };
    assert!(matches!(Matrix::buffered(5, vec![negative]), Err(Error::Buffer { .. })));
    let growing = Buffer { weight: 1.6, decay: 0.5 };
    assert!(matches!(Matrix::buffered(5, vec![growing]), Err(Error::GrowingNoise { .. })));
    assert!(matches!(
        Matrix::inverse_toeplitz(2000, vec![1.0, -3.0]),
        Err(Error::NotFinite { .. })
    ));
}

#[test]
fn a_method_survives_its_file() {
    for method in methods(30) {
        let text = serde_json::to_string(&method).unwrap();
        assert!(text.contains(&format!("\"name\":\"{method}\"")), "{text}");
        assert_eq!(serde_json::from_str::<Method>(&text).unwrap(), method);
    }
}
