//! The loss of a buffered strategy as a function of its parameters, in O(m^3 log n + k m^2).
//!
//! Neither the sensitivity nor the error of buffers needs the `n` coefficients: both are sums over the
//! orbit of a linear recurrence with few states.
//!
//! *Sensitivity.* The columns `0, b, ..., (k-1) b` added up are the response of the buffers to impulses at
//! these steps. Between two impulses the response is `sum_j omega_j s_j theta_j^t`, whose squares are
//! geometric sums of `theta_j theta_l`.
//!
//! *Error.* The first column of `B = A C^-1` is `b_i = e^T F^i x` with the buffers, the momentum and the
//! iterate as states, so `||B||_F^2 = sum_i (n - i) b_i^2 = x^T Q_n x` with
//!
//! ```text
//! P_N = sum_{i<N} (F^i)^T e e^T F^i         P_{N+M} = P_N + (F^N)^T P_M F^N
//! Q_N = sum_{i<N} (N - i) (F^i)^T e e^T F^i     Q_{N+M} = Q_N + M P_N + (F^N)^T Q_M F^N
//! ```
//!
//! which double `N` at the price of a few products of small matrices.

use std::ops::Add;

use super::tangent::{Tangent, VARIABLES};
use crate::participation::Participation;
use crate::strategy::Buffer;
use crate::workload::Sgd;

/// Most buffers that are fitted.
pub const MOST_BUFFERS: usize = VARIABLES / 2;

type Matrix = Vec<Vec<Tangent>>;

/// The parameters of the buffers: `x_{2j}` is the logit of `theta_j`, `x_{2j+1}` the logarithm of
/// `omega_j`.
pub(super) fn buffers(x: &[f64]) -> Vec<Buffer> {
    let buffer = |x: &[f64]| Buffer { weight: x[1].exp(), decay: 1.0 / (1.0 + (-x[0]).exp()) };
    x.chunks_exact(2).map(buffer).collect()
}

/// The inverse of [`buffers`], for a rate `1 - theta` and a weight.
pub(super) fn parameters(rate: f64, weight: f64) -> [f64; 2] {
    [((1.0 - rate) / rate).ln(), weight.ln()]
}

/// `ln E(B, C)` and its gradient; infinite where the noise would grow.
pub(super) fn log_error(sgd: &Sgd, participation: &Participation, x: &[f64]) -> (f64, Vec<f64>) {
    let alternating: f64 = buffers(x).iter().map(|x| x.weight / (1.0 + x.decay)).sum();
    if alternating >= 1.0 || x.iter().any(|x| x.abs() > 200.0) {
        return (f64::INFINITY, vec![0.0; x.len()]);
    }
    let x: Vec<Tangent> = x.iter().enumerate().map(|(i, x)| Tangent::variable(*x, i)).collect();
    let states: Vec<State> = x
        .chunks_exact(2)
        .map(|x| {
            let rate = (Tangent::ONE + x[0].exp()).reciprocal();
            State { rate, decay: Tangent::ONE - rate, log: (-rate).ln_1p(), weight: x[1].exp() }
        })
        .collect();
    let sensitivity = sensitivity_squared(&states, participation);
    let decoder = decoder_squared(&states, sgd, participation.steps());
    let log = (sensitivity.ln() + decoder.ln()
        - Tangent::constant((participation.steps() as f64).ln()))
    .scale(0.5);
    let defined = log.value.is_finite() && log.gradient.iter().all(|g| g.is_finite());
    let value = if defined { log.value } else { f64::INFINITY };
    (value, log.gradient[..x.len()].to_vec())
}

/// A buffer with its derivatives: `theta`, `1 - theta`, `ln theta` and `omega`.
struct State {
    rate: Tangent,
    decay: Tangent,
    log: Tangent,
    weight: Tangent,
}

/// `|| sum_{j<k} C_{:,jb} ||^2`. O(k m^2), all terms non-negative.
fn sensitivity_squared(states: &[State], participation: &Participation) -> Tangent {
    let (n, b) = (participation.steps(), participation.min_separation());
    let k = participation.max_participations();
    let last = n - (k - 1) * b;
    let (within, tail) = (Overlaps::new(states, b - 1), Overlaps::new(states, last - 1));
    let mut sums = vec![Tangent::ZERO; states.len()];
    let mut squared = Tangent::ZERO;
    for use_number in 0..k {
        let past = states.iter().zip(&sums).map(|(x, sum)| x.weight * *sum);
        let peak = past.fold(Tangent::ONE, |total, term| total + term);
        squared = squared + peak * peak;
        for (sum, state) in sums.iter_mut().zip(states) {
            *sum = state.decay * *sum + Tangent::ONE;
        }
        let overlaps = if use_number + 1 < k { &within } else { &tail };
        squared = squared + overlaps.energy(&sums);
        sums.iter_mut().zip(&overlaps.decays).for_each(|(sum, decay)| *sum = *sum * *decay);
    }
    squared
}

/// What happens in `len` steps without an impulse.
struct Overlaps {
    /// `omega_j omega_l sum_{t<len} (theta_j theta_l)^t`.
    products: Vec<Vec<Tangent>>,
    /// `theta_j^len`.
    decays: Vec<Tangent>,
}

impl Overlaps {
    fn new(states: &[State], len: usize) -> Self {
        let geometric = |x: &State, y: &State| {
            // 1 - theta_j theta_l and 1 - (theta_j theta_l)^len without cancellation.
            let rate = x.rate + y.rate - x.rate * y.rate;
            x.weight * y.weight * -(x.log + y.log).scale(len as f64).exp_m1() * rate.reciprocal()
        };
        let row = |x: &State| states.iter().map(|y| geometric(x, y)).collect();
        let decays = states.iter().map(|x| x.log.scale(len as f64).exp()).collect();
        Self { products: states.iter().map(row).collect(), decays }
    }

    fn energy(&self, sums: &[Tangent]) -> Tangent {
        let mut energy = Tangent::ZERO;
        for (row, x) in self.products.iter().zip(sums) {
            let inner = row.iter().zip(sums).map(|(product, y)| *product * *y);
            energy = energy + *x * inner.fold(Tangent::ZERO, Tangent::add);
        }
        energy
    }
}

/// `||A C^-1||_F^2`.
fn decoder_squared(states: &[State], sgd: &Sgd, steps: usize) -> Tangent {
    let m = states.len();
    let (momentum, iterate, size) = (m, m + 1, m + 2);
    // One step without an impulse: y = -omega s; s <- theta s + y; the momentum and the iterate follow.
    let mut f = vec![vec![Tangent::ZERO; size]; size];
    for (l, state) in states.iter().enumerate() {
        for row in &mut f {
            row[l] = -state.weight;
        }
        f[l][l] = f[l][l] + state.decay;
    }
    let (alpha, beta) = (sgd.decay_factor(), sgd.momentum());
    f[momentum][momentum] = Tangent::constant(beta);
    f[iterate][momentum] = Tangent::constant(beta);
    f[iterate][iterate] = Tangent::constant(alpha);
    // e e^T with e the iterate: N = 1.
    let mut observed = vec![vec![Tangent::ZERO; size]; size];
    observed[iterate][iterate] = Tangent::ONE;
    let (mut power, mut p, mut q) = (f.clone(), observed.clone(), observed.clone());
    let mut reached = 1_usize;
    for bit in (0..usize::BITS - 1 - steps.leading_zeros()).rev() {
        let further = congruence(&power, &q);
        q = combine(&[(&q, 1.0), (&p, reached as f64), (&further, 1.0)]);
        p = combine(&[(&p, 1.0), (&congruence(&power, &p), 1.0)]);
        power = product(&power, &power);
        reached *= 2;
        if steps >> bit & 1 == 1 {
            let further = congruence(&power, &observed);
            q = combine(&[(&q, 1.0), (&p, 1.0), (&further, 1.0)]);
            p = combine(&[(&p, 1.0), (&further, 1.0)]);
            power = product(&f, &power);
            reached += 1;
        }
    }
    // After the impulse of step 0 all states are 1.
    q.iter().flatten().fold(Tangent::ZERO, |sum, x| sum + *x)
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let n = a.len();
    let entry = |i: usize, j: usize| (0..n).fold(Tangent::ZERO, |sum, l| sum + a[i][l] * b[l][j]);
    (0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect()
}

/// `F^T S F`.
fn congruence(f: &Matrix, s: &Matrix) -> Matrix {
    let n = f.len();
    let transposed: Matrix = (0..n).map(|i| (0..n).map(|j| f[j][i]).collect()).collect();
    product(&transposed, &product(s, f))
}

fn combine(terms: &[(&Matrix, f64)]) -> Matrix {
    let n = terms[0].0.len();
    let entry = |i: usize, j: usize| {
        terms.iter().fold(Tangent::ZERO, |sum, (matrix, scale)| sum + matrix[i][j].scale(*scale))
    };
    (0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Strategy;
    use crate::workload::Workload;
    use crate::{loss, sensitivity};

    fn direct(sgd: Sgd, participation: &Participation, x: &[f64]) -> f64 {
        let n = participation.steps();
        let strategy = Strategy::buffered(n, buffers(x)).unwrap();
        let workload = Workload::sgd(sgd, n).unwrap();
        let sensitivity = sensitivity::of(&strategy, participation).unwrap();
        assert!(sensitivity.exact);
        let norms = loss::decoder_norms(&workload, &strategy).unwrap();
        norms.loss(&sensitivity, n).expected_error
    }

    #[test]
    fn it_is_the_error_of_the_strategy_and_its_gradient() {
        let x: Vec<f64> = [(1e-3, 0.01), (0.05, 0.1), (0.6, 0.3)]
            .iter()
            .flat_map(|&(rate, weight)| parameters(rate, weight))
            .collect();
        for (alpha, beta) in [(1.0, 0.0), (1.0, 0.9), (0.999, 0.5)] {
            let sgd = Sgd::new(alpha, beta).unwrap();
            for (n, b, k) in
                [(1, 1, 1), (2, 1, 2), (7, 3, 2), (100, 10, 10), (1003, 100, 11), (4096, 4096, 1)]
            {
                let participation = Participation::new(n, b, k).unwrap();
                let (value, gradient) = log_error(&sgd, &participation, &x);
                let slow = direct(sgd, &participation, &x);
                assert!(
                    (value.exp() / slow - 1.0).abs() < 1e-9,
                    "{n} {b} {k}: {} {slow}",
                    value.exp()
                );
                for i in 0..x.len() {
                    let at = |h: f64| {
                        let mut moved = x.clone();
                        moved[i] += h;
                        log_error(&sgd, &participation, &moved).0
                    };
                    let numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
                    assert!((gradient[i] - numeric).abs() < 1e-7, "{n} {b} {k} {i}");
                }
            }
        }
    }

    #[test]
    fn growing_noise_is_out_of_bounds() {
        let sgd = Sgd::new(1.0, 0.0).unwrap();
        let participation = Participation::single(10).unwrap();
        let x = [parameters(0.1, 1.5), parameters(0.5, 0.5)].concat();
        assert_eq!(log_error(&sgd, &participation, &x).0, f64::INFINITY);
        assert!(Strategy::buffered(10, buffers(&x)).is_err());
    }
}
