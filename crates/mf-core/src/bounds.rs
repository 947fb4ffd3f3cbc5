//! The bounds of the theorems of Kalinin & Lampert (2024, arXiv:2405.13763), with their constants.
//!
//! All are for noise multiplier 1, clip norm 1 and `SGD` with a constant learning rate. Where the paper
//! states an order of growth, the function returns the explicit expression of its proof; where a
//! constant there does not follow, the doc comment says which one is used instead.
//!
//! | theorem | about | functions |
//! |---|---|---|
//! | 3 | square root, single participation | [`square_root_single`] |
//! | 4, 8 | any factorization | [`any_factorization_lower`], [`nuclear_norm_lower`] |
//! | 5 | baselines, single participation | [`identity_single_upper`], [`input_single_upper`] |
//! | 6 | BSR, repeated participation | [`bsr_leading_term`] |
//! | 7 | square root, repeated participation | [`square_root_repeated`] |
//! | 9 | baselines, repeated participation | [`identity_lower`], [`input_lower`] |

use std::f64::consts::{FRAC_PI_2, PI};

use serde::Serialize;

use crate::factorization::{Factorization, Method};
use crate::participation::Participation;
use crate::workload::Sgd;

/// An interval that contains an expected error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// The error is at least this.
    pub lower: f64,
    /// The error is at most this.
    pub upper: f64,
}

/// What a theorem says of the expected error of a factorization.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bound {
    /// Its number in the paper.
    pub theorem: u8,
    /// `lower`, `upper`, or `leading term`, which is no bound.
    pub kind: &'static str,
    /// The value of the expression.
    pub value: f64,
}

/// What the theorems say of a factorization under a participation pattern; nothing of a workload that is not
/// SGD's with a constant learning rate.
pub fn of(factorization: &Factorization, participation: &Participation) -> Vec<Bound> {
    let Some(sgd) = factorization.workload().as_constant_sgd() else {
        return Vec::new();
    };
    let steps = participation.steps();
    let single = participation.max_participations() == 1;
    let (lower, upper, leading) = ("lower", "upper", "leading term");
    let bound = |theorem, kind, value| Bound { theorem, kind, value };
    let any = if single { 4 } else { 8 };
    let mut found = vec![bound(any, lower, any_factorization_lower(sgd, participation))];
    match factorization.method() {
        Method::SquareRoot => {
            let (theorem, interval) = match single {
                true => (3, Some(square_root_single(sgd, steps))),
                false => (7, square_root_repeated(sgd, participation)),
            };
            if let Some(interval) = interval {
                found.push(bound(theorem, lower, interval.lower));
                found.push(bound(theorem, upper, interval.upper));
            }
        }
        Method::Bsr { bands } if bands <= participation.min_separation() => {
            found.push(bound(6, leading, bsr_leading_term(sgd, bands, participation)));
        }
        Method::Identity => {
            found.push(bound(9, lower, identity_lower(sgd, participation)));
            if single {
                found.push(bound(5, upper, identity_single_upper(sgd, steps)));
            }
        }
        Method::Input => {
            found.push(bound(9, lower, input_lower(sgd, participation)));
            if single {
                found.push(bound(5, upper, input_single_upper(sgd, steps)));
            }
        }
        _ => {}
    }
    found
}

fn has_decay(sgd: &Sgd) -> bool {
    sgd.decay_factor() < 1.0
}

/// `log(1 / (1 - alpha^2)) / (alpha - beta)^2`: an upper bound on `sum_j c_j^2` for `alpha < 1`.
fn root_column_with_decay(sgd: &Sgd) -> f64 {
    let (alpha, beta) = (sgd.decay_factor(), sgd.momentum());
    -((1.0 - alpha) * (1.0 + alpha)).ln() / (alpha - beta).powi(2)
}

/// `(1 + log len) / (1 - beta)^2`: an upper bound on `sum_{j<len} c_j^2` for `alpha = 1`.
fn root_column_without_decay(sgd: &Sgd, len: usize) -> f64 {
    (1.0 + (len as f64).ln()) / (1.0 - sgd.momentum()).powi(2)
}

/// The expected error of the square root with single participation (Theorem 3):
/// `1 <= E <= log(1/(1-alpha^2)) / (alpha-beta)^2` for `alpha < 1`, and
/// `max(1, (log(n+1) - 1)/4) <= E <= (1 + log n) / (1-beta)^2` for `alpha = 1`.
pub fn square_root_single(sgd: &Sgd, steps: usize) -> Interval {
    if has_decay(sgd) {
        return Interval { lower: 1.0, upper: root_column_with_decay(sgd) };
    }
    Interval {
        lower: f64::max(1.0, (((steps + 1) as f64).ln() - 1.0) / 4.0),
        upper: root_column_without_decay(sgd, steps),
    }
}

/// A lower bound on the expected error of every factorization with `C^T C >= 0` (Theorem 8; with
/// `k = 1`, Theorem 4): `sqrt(k)` for `alpha < 1`, `sqrt(k) max(1, log(n+1) / pi)` for `alpha = 1`.
///
/// The paper states it for `b` dividing `n`. It holds whenever `k b <= n`: the pattern
/// `t, t + b, ..., t + (k-1) b` modulo `n` with a random `t` is `b`-separated and hits every column
/// with probability `k / n`, so `sens^2 >= k ||C||_F^2 / n`. Where `k b > n` it is not claimed, and the
/// largest `k` with `k b <= n` is used.
pub fn any_factorization_lower(sgd: &Sgd, participation: &Participation) -> f64 {
    let scale = counted_participations(participation).sqrt();
    if has_decay(sgd) {
        return scale;
    }
    scale * f64::max(1.0, ((participation.steps() + 1) as f64).ln() / PI)
}

fn counted_participations(participation: &Participation) -> f64 {
    let most = participation.steps() / participation.min_separation();
    participation.max_participations().min(most) as f64
}

/// A sharper form of [`any_factorization_lower`] for `alpha = 1`: `sqrt(k) ||E_1||_* / n` with the
/// nuclear norm of the prefix sum in closed form,
/// `||E_1||_* = sum_{j=1}^{n} 1 / (2 sin((j - 1/2) pi / (2n + 1)))`. For `alpha < 1` it is
/// [`any_factorization_lower`]. O(n).
///
/// Two remarks on the paper's Lemma 7 and 8, from which Theorem 8 follows there. The singular values
/// of `E_1` are half of what the lemma prints (its own proof finds the eigenvalues
/// `4 sin^2(theta/2)` of the inverse). And momentum need not cost the factor `1 / (1 + beta)`:
/// `A_{1,beta} = (E_1 - beta E_beta) / (1 - beta)`, and `E_beta` is the entrywise product of `E_1` with
/// the correlation matrix `beta^|i-j|`, which does not increase a nuclear norm; so
/// `||A_{1,beta}||_* >= ||E_1||_*`. Both together confirm the theorem as printed.
pub fn nuclear_norm_lower(sgd: &Sgd, participation: &Participation) -> f64 {
    if has_decay(sgd) {
        return any_factorization_lower(sgd, participation);
    }
    let n = participation.steps();
    let half = |j: usize| (j as f64 - 0.5) / (n as f64 + 0.5) * FRAC_PI_2;
    let nuclear: f64 = (1..=n).map(|j| 0.5 / half(j).sin()).sum();
    counted_participations(participation).sqrt() * nuclear / n as f64
}

/// An upper bound on `E(A, I)`, DP-SGD, with single participation (Theorem 5):
/// `sqrt((1 + alpha beta) / ((1 - alpha beta)(1 - alpha^2)(1 - beta^2)))` for `alpha < 1`, and
/// `sqrt((n+1)/2) / (1 - beta)` for `alpha = 1`.
///
/// The paper gives these as limits; both are reached from below. (With `n + 1` for its `n`: that is
/// what `||A_{1,0}||_F^2 = n (n+1) / 2` gives.)
pub fn identity_single_upper(sgd: &Sgd, steps: usize) -> f64 {
    if has_decay(sgd) {
        return workload_column_limit(sgd);
    }
    ((steps as f64 + 1.0) / 2.0).sqrt() / (1.0 - sgd.momentum())
}

/// An upper bound on `E(I, A)`, noise on the iterates, with single participation (Theorem 5): the
/// same limit for `alpha < 1`, and `sqrt(n) / (1 - beta)` for `alpha = 1`.
pub fn input_single_upper(sgd: &Sgd, steps: usize) -> f64 {
    if has_decay(sgd) {
        return workload_column_limit(sgd);
    }
    (steps as f64).sqrt() / (1.0 - sgd.momentum())
}

/// The norm of the whole infinite column `a_0, a_1, ...` for `alpha < 1`.
fn workload_column_limit(sgd: &Sgd) -> f64 {
    let (alpha, beta) = (sgd.decay_factor(), sgd.momentum());
    let decay = (1.0 - alpha) * (1.0 + alpha) * (1.0 - beta) * (1.0 + beta);
    ((1.0 + alpha * beta) / ((1.0 - alpha * beta) * decay)).sqrt()
}

/// The leading term of the expected error of the `p`-BSR for `p <= b` (Theorem 6):
/// `sqrt(k R_p) sqrt(R_p + r)` with `R_p` the bound on `sum_{j<p} c_j^2` and
/// `r = sum_{j=p}^{n-1} alpha^{2j+2} / ((alpha-beta)^2 (sqrt(p+1) - 1)^2)`.
///
/// For `alpha < 1` the paper's last line on `||B||_F` keeps only `alpha^2` of that sum; the line before
/// has all of it, as here. Even so this is *not* a bound: the proof adds a term that does not depend
/// on `n` or `k` but whose size it leaves open. On the grid of the tests the exact error stays below
/// the leading term.
pub fn bsr_leading_term(sgd: &Sgd, bands: usize, participation: &Participation) -> f64 {
    let (alpha, beta) = (sgd.decay_factor(), sgd.momentum());
    let k = participation.max_participations() as f64;
    let beyond = participation.steps().saturating_sub(bands) as f64;
    let (column, tail) = if has_decay(sgd) {
        let decayed = alpha.powf(2.0 * bands as f64 + 2.0) * (1.0 - alpha.powf(2.0 * beyond));
        (root_column_with_decay(sgd), decayed / ((1.0 - alpha) * (1.0 + alpha)))
    } else {
        (root_column_without_decay(sgd, bands), beyond)
    };
    let root = ((bands + 1) as f64).sqrt() - 1.0;
    (k * column * (column + tail / ((alpha - beta) * root).powi(2))).sqrt()
}

/// The expected error of the square root for `k = n / b` participations (Theorem 7), or `None` where
/// `k b != n`, which the theorem does not cover.
///
/// With `L = log n`, for `alpha = 1`:
///
/// ```text
/// sqrt(k) (L-1) / (4 sqrt 2) + k/(2 sqrt 5) sqrt(L-1) sqrt(1 - 20/(3 sqrt n)) <= E     (n >= 45, else 1)
/// E <= (sqrt(k) (L+1) + sqrt(6) k sqrt(L+1)) / (1-beta)^2
/// ```
///
/// where the paper prints `sqrt(5)`, but its bound on the sensitivity gives `sqrt(6)`; for `alpha < 1`:
///
/// ```text
/// sqrt(k) <= E <= sqrt(k) [log(1/(1-alpha^2)) / (alpha-beta)^2
///                          + 2 alpha^b / ((1-beta/alpha)^2 (1-alpha^2) (1-alpha^b) sqrt(b))]
/// ```
pub fn square_root_repeated(sgd: &Sgd, participation: &Participation) -> Option<Interval> {
    let (n, b) = (participation.steps() as f64, participation.min_separation() as f64);
    let k = participation.max_participations() as f64;
    if participation.max_participations() * participation.min_separation() != participation.steps()
    {
        return None;
    }
    let (alpha, beta) = (sgd.decay_factor(), sgd.momentum());
    if has_decay(sgd) {
        let gamma = beta / alpha;
        let decayed = alpha.powf(b);
        let overlap = 2.0 * decayed
            / ((1.0 - gamma).powi(2) * (1.0 - alpha) * (1.0 + alpha) * (1.0 - decayed) * b.sqrt());
        let upper = k.sqrt() * (root_column_with_decay(sgd) + overlap);
        return Some(Interval { lower: k.sqrt(), upper });
    }
    let log = n.ln();
    let lower = if n >= 45.0 {
        let single = k.sqrt() * (log - 1.0) / (4.0 * 2.0_f64.sqrt());
        let repeated = k / (2.0 * 5.0_f64.sqrt()) * (log - 1.0).sqrt();
        single + repeated * (1.0 - 20.0 / (3.0 * n.sqrt())).sqrt()
    } else {
        1.0
    };
    let upper =
        (k.sqrt() * (log + 1.0) + 6.0_f64.sqrt() * k * (log + 1.0).sqrt()) / (1.0 - beta).powi(2);
    Some(Interval { lower, upper })
}

/// A lower bound on `E(A, I)`, DP-SGD (Theorem 9): `sqrt(n k / 2)` for `alpha = 1`, `sqrt(k)` else.
pub fn identity_lower(sgd: &Sgd, participation: &Participation) -> f64 {
    let k = participation.max_participations() as f64;
    if has_decay(sgd) { k.sqrt() } else { (participation.steps() as f64 * k / 2.0).sqrt() }
}

/// A lower bound on `E(I, A)`, noise on the iterates (Theorem 9): `k sqrt(n / 3)` for `alpha = 1`,
/// `sqrt(k)` else. For `k b <= n`, as in [`any_factorization_lower`].
pub fn input_lower(sgd: &Sgd, participation: &Participation) -> f64 {
    let k = counted_participations(participation);
    if has_decay(sgd) { k.sqrt() } else { k * (participation.steps() as f64 / 3.0).sqrt() }
}
