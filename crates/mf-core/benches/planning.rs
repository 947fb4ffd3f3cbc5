//! The time to plan a long training: strategy, sensitivity and expected error of the methods that need little
//! memory, for a million steps.
//!
//! `cargo bench -p mf-core --bench planning -- [STEPS] [SEPARATION]` takes some seconds. Fitted methods include
//! their search.

use std::time::Instant;

use mf_core::{Factorization, Method, Participation, Sgd, Workload};

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    let steps = numbers.first().copied().unwrap_or(1_000_000);
    let separation = numbers.get(1).copied().unwrap_or(10_000);
    let participation = Participation::new(steps, separation, steps / separation)
        .expect("a separation up to the number of steps");
    println!(
        "n {steps}, b {separation}, k {}, alpha 1, beta 0.9",
        participation.max_participations()
    );
    println!(
        "{:>12} {:>6} {:>6} {:>12} {:>14} {:>9}",
        "method", "size", "rows", "sens", "error", "seconds"
    );
    for method in [
        Method::Bsr { bands: 100 },
        Method::Bsr { bands: 10_000.min(steps) },
        Method::Bisr { bands: 4 },
        Method::Bisr { bands: 100 },
        Method::LambdaCgd { lambda: Some(0.99) },
        Method::LambdaCgd { lambda: None },
        Method::Blt { buffers: 1 },
        Method::Blt { buffers: 3 },
        Method::Blt { buffers: 6 },
    ] {
        let start = Instant::now();
        let sgd = Sgd::new(1.0, 0.9).expect("an optimizer");
        let workload = Workload::sgd(sgd, steps).expect("some steps");
        let found = Factorization::for_participation(workload, method, &participation);
        let found = found.expect("sizes that fit");
        let sensitivity = found.sensitivity(&participation).expect("the same steps");
        let error = found.loss(&participation).expect("the same steps").expected_error;
        let bound = if sensitivity.exact { ' ' } else { '*' };
        println!(
            "{:>12} {:>6} {:>6} {:>11.4}{bound} {:>14.4} {:>9.3}",
            method.name(),
            method.size().map_or("-".to_string(), |size| size.to_string()),
            found.strategy().noise_rows(),
            sensitivity.value,
            error,
            start.elapsed().as_secs_f64()
        );
    }
}
