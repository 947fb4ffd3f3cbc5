//! All runs of a search together: what whoever sees every one of them learns of an example.
//!
//! A run with a fixed order is one Gaussian release with its noise multiplier, and so is one on balls-in-bins for whoever
//! knows the batches, which depend on no example: so many runs together are charged without amplification there, which is an
//! upper bound and not a tight one. Gaussian releases of multipliers `s_1, s_2, ..` are one of
//!
//! ```text
//! s = (sum_i s_i^-2)^(-1/2),
//! ```
//!
//! exactly, and adaptively chosen ones too: what one release shows may decide what the next is made of. Poisson
//! batches, cyclic ones too, are composed by the laws of their privacy losses, each direction by itself: the rounds of
//! several runs are as many rounds, and dominating pairs may be composed. A run that was stopped has released less
//! than a whole one, and counts as one.

use serde::{Deserialize, Serialize};

use super::composition::{Aim, Composition};
use super::pld::Pld;
use super::poisson::Poisson;
use super::{AccountingError, Direction, Directions, check_count, check_delta, check_noise};
use crate::calibration::{self, Neighbouring};

/// The most runs of one kind.
const MOST_RUNS: u64 = 1_000_000;

/// What one run releases of an example.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Release {
    /// One Gaussian release.
    Gaussian {
        /// Noise over sensitivity.
        multiplier: f64,
    },
    /// Rounds that take the example with the same probability.
    Poisson {
        /// Of each round.
        probability: f64,
        /// How many.
        rounds: u64,
        /// Noise over clip norm.
        multiplier: f64,
    },
}

/// Runs that release the same, among those that a choice was made from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tried {
    /// How many were begun.
    pub runs: u64,
    /// What each of them released of the examples that it was trained on.
    pub release: Release,
    /// Whether they held training examples out to be judged by, of which their scores tell without noise.
    pub held_out: bool,
}

/// The `epsilon` of all these runs together at `delta`, rounded up. O(kinds of runs), and some ten milliseconds for
/// each kind with Poisson batches.
///
/// # Errors
/// [`AccountingError::Empty`], [`AccountingError::Count`], [`AccountingError::Noise`], [`AccountingError::Delta`],
/// [`AccountingError::Grid`] where the laws are too different to be laid on one grid.
pub fn epsilon(tried: &[Tried], delta: f64) -> Result<f64, AccountingError> {
    check_delta(delta)?;
    let mut precision = 0.0;
    let mut rounds: Vec<(Poisson, f64)> = Vec::new();
    for Tried { runs, release, .. } in tried {
        check_count("runs", *runs, MOST_RUNS)?;
        match *release {
            Release::Gaussian { multiplier } => {
                check_noise("noise multiplier", multiplier)?;
                precision += *runs as f64 / (multiplier * multiplier);
            }
            Release::Poisson { probability, rounds: each, multiplier } => {
                check_noise("noise multiplier", multiplier)?;
                let all = each.saturating_mul(*runs);
                rounds.push((Poisson::new(Neighbouring::ZeroOut, probability, all)?, multiplier));
            }
        }
    }
    let gaussian = (precision > 0.0).then(|| 1.0 / f64::sqrt(precision));
    match gaussian {
        None if rounds.is_empty() => return Err(AccountingError::Empty),
        Some(multiplier) if rounds.is_empty() => {
            return Ok(calibration::epsilon(multiplier, delta)?);
        }
        Some(multiplier) => {
            rounds.push((Poisson::new(Neighbouring::ZeroOut, 1.0, 1)?, multiplier));
        }
        None => {}
    }
    let of = |direction| in_direction(&rounds, direction, delta);
    Ok(Directions::both(of)?.worst())
}

/// The same in one direction, by the laws of the losses on the finest grid that one of them asks for.
fn in_direction(
    rounds: &[(Poisson, f64)],
    direction: Direction,
    delta: f64,
) -> Result<f64, AccountingError> {
    let mut step = f64::INFINITY;
    for (poisson, multiplier) in rounds {
        step = step.min(poisson.loss(direction, *multiplier)?.step());
    }
    let losses = rounds.iter().map(|(poisson, multiplier)| {
        let loss = poisson.loss_with_step(direction, *multiplier, step)?;
        Ok((loss, poisson.rounds()))
    });
    let losses = losses.collect::<Result<Vec<(Pld, u64)>, AccountingError>>()?;
    let parts: Vec<(&Pld, u64)> = losses.iter().map(|(loss, rounds)| (loss, *rounds)).collect();
    let aimed = |aim| Composition::new(&parts, aim)?.epsilon(delta);
    let first = aimed(Aim::Delta(delta))?;
    // Where many rounds have far tails the first aim is off, and the second better.
    Ok(first.min(aimed(Aim::Epsilon(first))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaussian(multiplier: f64, runs: u64) -> Tried {
        Tried { runs, release: Release::Gaussian { multiplier }, held_out: false }
    }

    fn poisson(probability: f64, rounds: u64, multiplier: f64, runs: u64) -> Tried {
        let release = Release::Poisson { probability, rounds, multiplier };
        Tried { runs, release, held_out: false }
    }

    /// The column "all T" of the table that the design notes have of it.
    #[test]
    fn five_and_twenty_gaussian_runs_cost_what_is_known() {
        for (single, five, twenty) in
            [(1.0, 2.44, 5.41), (2.0, 5.00, 11.5), (4.0, 10.4, 25.5), (8.0, 22.2, 58.7)]
        {
            let s = calibration::multiplier(single, 1e-5).unwrap();
            let all = |runs| epsilon(&[gaussian(s, runs)], 1e-5).unwrap();
            assert!((all(1) / single - 1.0).abs() < 1e-8);
            assert!((all(5) / five - 1.0).abs() < 3e-3, "{}", all(5));
            assert!((all(20) / twenty - 1.0).abs() < 3e-3, "{}", all(20));
            let split = epsilon(&[gaussian(s, 2), gaussian(s, 3)], 1e-5).unwrap();
            assert!((split / all(5) - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn poisson_runs_are_as_many_rounds() {
        let one = Poisson::new(Neighbouring::ZeroOut, 0.01, 1000).unwrap();
        let s = one.multiplier(2.0, 1e-5).unwrap();
        let single = epsilon(&[poisson(0.01, 1000, s, 1)], 1e-5).unwrap();
        assert!((single - 2.0).abs() < 1e-4, "{single}");
        let thrice = epsilon(&[poisson(0.01, 1000, s, 3)], 1e-5).unwrap();
        let rounds = Poisson::new(Neighbouring::ZeroOut, 0.01, 3000).unwrap();
        let expected = rounds.epsilon(s, 1e-5).unwrap().worst();
        assert!((thrice / expected - 1.0).abs() < 1e-4, "{thrice} {expected}");
    }

    /// A probability of 1 is no sampling: the two kinds then are one, which has a closed form.
    #[test]
    fn mixed_runs_agree_with_the_closed_form_where_there_is_one() {
        let mixed = [gaussian(3.0, 2), poisson(1.0, 4, 5.0, 2)];
        let closed = [gaussian(3.0, 2), gaussian(5.0, 8)];
        let (mixed, closed) = (epsilon(&mixed, 1e-6).unwrap(), epsilon(&closed, 1e-6).unwrap());
        assert!(mixed >= closed * (1.0 - 1e-9) && mixed < closed * 1.001, "{mixed} {closed}");
    }

    #[test]
    fn more_runs_never_cost_less() {
        let kinds = [gaussian(2.0, 1), gaussian(0.7, 2), poisson(0.02, 300, 1.1, 1)];
        for taken in 1..kinds.len() {
            let fewer = epsilon(&kinds[..taken], 1e-5).unwrap();
            assert!(epsilon(&kinds[..=taken], 1e-5).unwrap() > fewer);
        }
        assert_eq!(epsilon(&[], 1e-5), Err(AccountingError::Empty));
        for bad in
            [gaussian(0.0, 1), gaussian(f64::NAN, 1), gaussian(1.0, 0), poisson(2.0, 1, 1.0, 1)]
        {
            assert!(epsilon(&[bad], 1e-5).is_err(), "{bad:?}");
        }
        assert!(epsilon(&[poisson(0.1, u64::MAX, 1.0, 2)], 1e-5).is_err());
    }
}
