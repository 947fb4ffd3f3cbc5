//! A workload of one's own: which noise is best if the average of the last iterates is published?
//!
//! ```sh
//! cargo run --release -p mf-core --example own_workload
//! ```
//!
//! Plain SGD publishes its last iterate; many people publish the average of the last `w` iterates, which is
//! another combination of the updates. All that a factorization needs of it is the first column.

use mf_core::{Error, Factorization, Method, Participation, Workload};

/// Expected errors of DP-SGD and of three factorizations, for the average of the last `window` iterates
/// over 10 epochs of 50 steps.
pub(crate) fn errors(window: usize) -> Result<Vec<(Method, f64)>, Error> {
    let participation = Participation::epochs(10, 50)?;
    // Update j is in iterate j and in all after it: in min(lag + 1, w) of the last w iterates.
    let share = |lag: usize| (lag + 1).min(window) as f64 / window as f64;
    let workload = Workload::toeplitz((0..participation.steps()).map(share).collect())?;
    let methods = [
        Method::Identity,
        Method::Bsr { bands: 50 },
        Method::Bisr { bands: 50 },
        Method::Toeplitz { bands: 50 },
    ];
    let error = |method: Method| {
        let solved = Factorization::for_participation(workload.clone(), method, &participation)?;
        Ok((method, solved.loss(&participation)?.expected_error))
    };
    methods.into_iter().map(error).collect()
}

#[cfg_attr(test, allow(dead_code, reason = "the test calls errors"))]
fn main() -> Result<(), Error> {
    for window in [1, 20] {
        println!("average of the last {window} iterates");
        for (method, error) in errors(window)? {
            println!("{:>10}  {error:.3}", method.name());
        }
    }
    Ok(())
}
