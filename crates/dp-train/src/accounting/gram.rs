//! Slot means and their Gram matrix: all that balls-in-bins accounting needs to know of a strategy.
//!
//! Every example draws one of `b` slots, and slot `i` takes part in the steps `i, i + b, i + 2b, ...`. In Theorem 1 of the
//! [module above](super) its column is `m_i = sum_l |C e_{i + l b}|`, and `G_ij = <m_i, m_j>`. The number of steps drops
//! out: everything else happens in `b` dimensions.
//!
//! Slots must be uniform and independent. A slot drawn as the upper half of `b` times 64 random bits is so up to `b 2^-64`,
//! which counts towards delta.

use mf_core::{Participation, Strategy};

use super::AccountingError;
use crate::calibration::Neighbouring;

/// The most slots: 128 MB.
pub const MOST_SLOTS: usize = 4096;

/// By which relative amount the entries are raised: more than the rounding of their sums.
const RAISED: f64 = 1e-10;

/// `G = M^T M` of the slot means `M`, entries rounded up.
#[derive(Debug, Clone, PartialEq)]
pub struct Gram {
    slots: usize,
    entries: Vec<f64>,
}

impl Gram {
    /// The Gram matrix of a strategy whose steps are dealt to `b` slots in turn; the last period may be cut short.
    ///
    /// O(n b) for a Toeplitz strategy, whose slot means are shifts of the first: `G_{i,i+d}` is a sum over
    /// `s < n - i - d` of `m_0[s] m_0[s + d]`, so each lag is one running sum. O(n p + n b^2) otherwise.
    ///
    /// # Errors
    /// [`AccountingError::ReplaceOne`]; [`AccountingError::Lengths`]; [`AccountingError::Participations`] if the
    /// participation forbids the last uses; [`AccountingError::Count`] for more than [`MOST_SLOTS`] slots.
    pub fn of(
        neighbouring: Neighbouring,
        strategy: &Strategy,
        participation: &Participation,
    ) -> Result<Self, AccountingError> {
        check_slots(neighbouring, participation)?;
        let (n, b) = (strategy.steps(), participation.min_separation());
        if participation.steps() != n {
            let participation = participation.steps();
            return Err(AccountingError::Lengths { strategy: n, participation });
        }
        let mut entries = match strategy.as_toeplitz() {
            Some(column) => of_shifts(&first_mean(column, n, b), b),
            None => of_rows(strategy, b),
        };
        entries.iter_mut().for_each(|entry| *entry *= 1.0 + RAISED);
        Self::new(b, entries)
    }

    /// A matrix of one's own, by rows: inner products of vectors without negative entries, which is assumed.
    ///
    /// # Errors
    /// [`AccountingError::Gram`] if entries are missing, negative, not finite or not symmetric, a diagonal entry is
    /// zero, or Cauchy's inequality does not hold; [`AccountingError::Count`] for too many slots.
    pub fn new(slots: usize, entries: Vec<f64>) -> Result<Self, AccountingError> {
        super::check_count("slots", slots as u64, MOST_SLOTS as u64)?;
        let wrong = AccountingError::Gram { side: slots };
        if entries.len() != slots * slots {
            return Err(wrong);
        }
        let at = |i: usize, j: usize| entries[i * slots + j];
        let diagonal = |i: usize| at(i, i) > 0.0 && at(i, i).is_finite();
        let entry = |i: usize, j: usize| {
            let largest = (at(i, i).sqrt() * at(j, j).sqrt()) * (1.0 + 1e-9);
            at(i, j) >= 0.0 && at(i, j) == at(j, i) && at(i, j) <= largest
        };
        let fits = (0..slots).all(diagonal) && (0..slots).all(|i| (0..i).all(|j| entry(i, j)));
        if fits { Ok(Self { slots, entries }) } else { Err(wrong) }
    }

    /// `b`, the number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// `G_ij`.
    ///
    /// # Panics
    /// If `i` or `j` is no slot.
    pub fn entry(&self, i: usize, j: usize) -> f64 {
        self.row(i)[j]
    }

    /// Row `i`.
    ///
    /// # Panics
    /// If `i` is no slot.
    pub fn row(&self, i: usize) -> &[f64] {
        &self.entries[i * self.slots..(i + 1) * self.slots]
    }

    /// `max_i G_ii`: the squared sensitivity if the slot were known.
    pub fn largest_diagonal(&self) -> f64 {
        (0..self.slots).map(|i| self.entry(i, i)).fold(0.0, f64::max)
    }

    /// The Gram matrix of the slots `0, w, 2w, ...` alone, if accounting with it is pessimistic.
    ///
    /// Split the slots into the `w` classes `{r, r + w, ...}`, `w` a divisor of `b`. Delta is at most the average of the classes'
    /// deltas (Corollary c), and if no class has an entry above that of class 0 in the same place, all are at most that
    /// of class 0 (Corollary a). So it always is for a Toeplitz strategy, whose later slots are cut earlier. Costs little
    /// where neighbouring slots are alike, and sampling becomes `w^2` times faster. None otherwise. O(b^2 / w).
    pub fn of_class(&self, classes: usize) -> Option<Self> {
        let b = self.slots;
        if classes == 0 || !b.is_multiple_of(classes) {
            return None;
        }
        let side = b / classes;
        let of = |r: usize, i: usize, j: usize| self.entry(r + i * classes, r + j * classes);
        let dominates = |i: usize, j: usize| (1..classes).all(|r| of(r, i, j) <= of(0, i, j));
        if !(0..side).all(|i| (0..=i).all(|j| dominates(i, j))) {
            return None;
        }
        let entries = (0..side * side).map(|at| of(0, at / side, at % side)).collect();
        Some(Self { slots: side, entries })
    }

    /// For every `w` from 0 on, the largest `G_ij` with `|i - j| = w`.
    pub(super) fn largest_by_lag(&self) -> Vec<f64> {
        let of_lag = |w: usize| (w..self.slots).map(|i| self.entry(i, i - w)).fold(0.0, f64::max);
        (0..self.slots).map(of_lag).collect()
    }
}

/// That slots can be accounted for, whatever the strategy.
pub(crate) fn check_slots(
    neighbouring: Neighbouring,
    participation: &Participation,
) -> Result<(), AccountingError> {
    super::refuse_replace_one(neighbouring)?;
    let (n, b) = (participation.steps(), participation.min_separation());
    if !participation.is_unbounded() {
        return Err(AccountingError::Participations {
            separation: b,
            participations: participation.max_participations(),
            most: n.div_ceil(b),
        });
    }
    super::check_count("slots", b as u64, MOST_SLOTS as u64)
}

/// `m_0`, from the absolute values of the first column.
fn first_mean(column: &[f64], n: usize, b: usize) -> Vec<f64> {
    let mut mean = vec![0.0; n];
    for (t, c) in column.iter().enumerate() {
        mean[t] = c.abs();
    }
    // m_0[t] = |c_t| + m_0[t - b].
    for t in b..n {
        mean[t] += mean[t - b];
    }
    mean
}

/// The Gram matrix of `m` and its shifts by 1, ..., b - 1, all cut at the same length. Only adds.
fn of_shifts(mean: &[f64], b: usize) -> Vec<f64> {
    let n = mean.len();
    let mut entries = vec![0.0; b * b];
    for lag in 0..b {
        let mut sum = 0.0;
        for s in 0..n - lag {
            sum += mean[s] * mean[s + lag];
            // The last row of column i + lag is s = n - 1 - lag - i.
            let i = n - 1 - lag - s;
            if i + lag < b {
                entries[i * b + i + lag] = sum;
                entries[(i + lag) * b + i] = sum;
            }
        }
    }
    entries
}

/// The same for any strategy: a sum of outer products of the rows of `M`.
fn of_rows(strategy: &Strategy, b: usize) -> Vec<f64> {
    let mut entries = vec![0.0; b * b];
    let mut row = vec![0.0; b];
    for t in 0..strategy.steps() {
        row.fill(0.0);
        for (lag, c) in strategy.row(t).iter().enumerate() {
            row[(t - lag) % b] += c.abs();
        }
        for i in 0..b {
            if row[i] > 0.0 {
                let products = entries[i * b..(i + 1) * b].iter_mut().zip(&row);
                products.for_each(|(entry, x)| *entry += row[i] * x);
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use mf_core::factorization::{bisr, bsr};
    use mf_core::{Sgd, Strategy, sensitivity};
    use proptest::prelude::*;

    fn of(strategy: &Strategy, b: usize) -> Gram {
        let n = strategy.steps();
        let participation = Participation::new(n, b, n.div_ceil(b)).unwrap();
        Gram::of(Neighbouring::ZeroOut, strategy, &participation).unwrap()
    }

    /// From the whole matrix, by the definition.
    fn by_definition(strategy: &Strategy, b: usize) -> Vec<f64> {
        let n = strategy.steps();
        let c = strategy.to_rows().unwrap();
        let mean = |t: usize, i: usize| (i..n).step_by(b).map(|s| c.entry(t, s).abs()).sum::<f64>();
        let product = |i: usize, j: usize| (0..n).map(|t| mean(t, i) * mean(t, j)).sum();
        (0..b * b).map(|at| product(at / b, at % b)).collect()
    }

    #[test]
    fn the_matrices_of_bsr_and_bisr() {
        // From the numpy prototype of the design notes.
        let sgd = Sgd::new(0.999, 0.9).unwrap();
        let banded = Strategy::toeplitz(1000, bsr::coefficients(&sgd, 100)).unwrap();
        let inverse = Strategy::inverse_toeplitz(1000, bisr::coefficients(&sgd, 4)).unwrap();
        let known = [
            (&banded, [152.1703084, 148.4393595, 95.8187901, 137.9532776]),
            (&inverse, [107.5388179, 102.4167743, 17.3981627, 97.7838554]),
        ];
        for (strategy, expected) in known {
            let gram = of(strategy, 100);
            let places = [(0, 0), (0, 1), (0, 50), (99, 99)];
            for ((i, j), expected) in places.into_iter().zip(expected) {
                assert!(
                    (gram.entry(i, j) - expected).abs() < 1e-7,
                    "{} {expected}",
                    gram.entry(i, j)
                );
            }
            let participation = Participation::epochs(10, 100).unwrap();
            let sensitivity = sensitivity::of(strategy, &participation).unwrap().value;
            assert!((gram.largest_diagonal().sqrt() / sensitivity - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_class_stands_for_all_if_it_dominates() {
        let toeplitz = of(&Strategy::toeplitz(24, vec![1.0, 0.7, 0.5, 0.2]).unwrap(), 12);
        let third = toeplitz.of_class(3).unwrap();
        assert_eq!(third.slots(), 4);
        assert_eq!(
            (third.entry(0, 1), third.entry(2, 2)),
            (toeplitz.entry(0, 3), toeplitz.entry(6, 6))
        );
        assert_eq!(toeplitz.of_class(1).unwrap(), toeplitz);
        assert!(toeplitz.of_class(5).is_none() && toeplitz.of_class(0).is_none());
        let rising = Gram::new(2, vec![1.0, 0.0, 0.0, 2.0]).unwrap();
        assert!(rising.of_class(2).is_none(), "the later slot is worse");
    }

    #[test]
    fn what_is_no_gram_matrix_is_refused() {
        let wrong = Err(AccountingError::Gram { side: 2 });
        let bad = [
            vec![1.0, 0.0, 0.0],
            vec![1.0, -0.1, -0.1, 1.0],
            vec![1.0, 0.2, 0.1, 1.0],
            vec![1.0, 1.1, 1.1, 1.0],
            vec![1.0, 0.0, 0.0, 0.0],
            vec![f64::NAN, 0.0, 0.0, 1.0],
        ];
        for entries in bad {
            assert_eq!(Gram::new(2, entries), wrong);
        }
        assert!(matches!(Gram::new(0, vec![]), Err(AccountingError::Count { .. })));
        let strategy = Strategy::identity(12).unwrap();
        let of = |neighbouring, participation| Gram::of(neighbouring, &strategy, &participation);
        let epochs = Participation::epochs(3, 4).unwrap();
        assert_eq!(of(Neighbouring::ReplaceOne, epochs), Err(AccountingError::ReplaceOne));
        let fewer = Participation::new(12, 4, 2).unwrap();
        let refused = of(Neighbouring::ZeroOut, fewer);
        assert!(matches!(refused, Err(AccountingError::Participations { most: 3, .. })));
        let longer = of(Neighbouring::ZeroOut, Participation::epochs(4, 4).unwrap());
        assert_eq!(longer, Err(AccountingError::Lengths { strategy: 12, participation: 16 }));
    }

    proptest! {
        #[test]
        fn both_paths_agree_with_the_definition(
            n in 1_usize..24, b in 1_usize..24, column in prop::collection::vec(-2.0..2.0_f64, 1..24)
        ) {
            let b = b.min(n);
            let mut column = column[..column.len().min(n)].to_vec();
            column[0] = column[0].abs() + 0.1;
            let toeplitz = Strategy::toeplitz(n, column).unwrap();
            let rows = Strategy::banded(toeplitz.to_rows().unwrap()).unwrap();
            let expected = by_definition(&toeplitz, b);
            for strategy in [toeplitz, rows] {
                let gram = of(&strategy, b);
                for (found, expected) in gram.entries.iter().zip(&expected) {
                    prop_assert!(found >= expected && *found <= expected * (1.0 + 2e-10));
                }
            }
        }
    }
}
