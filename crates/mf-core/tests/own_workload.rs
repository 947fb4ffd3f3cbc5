//! The example of a workload of one's own does what it says.

#[path = "../examples/own_workload.rs"]
mod own_workload;

#[test]
fn correlated_noise_is_far_better_than_dp_sgd_for_averages_too() {
    for window in [1, 20] {
        let errors: Vec<f64> =
            own_workload::errors(window).unwrap().into_iter().map(|(_, error)| error).collect();
        let [dp_sgd, bsr, bisr, best] = errors[..] else { panic!("{errors:?}") };
        assert!(4.0 * bsr < dp_sgd && 2.0 * bisr < dp_sgd, "{errors:?}");
        assert!(best <= bsr * (1.0 + 1e-9), "the search starts from the BSR: {errors:?}");
    }
}
