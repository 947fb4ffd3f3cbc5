//! Private scores: by what a search with a secret, random number of runs chooses its best.
//!
//! The score of a run is how many held-out training examples it gets right, plus Gaussian noise: one example moves the number
//! by at most 1. Every draw comes from the operating system; [`stopping`](crate::accounting::stopping) says what the
//! choice costs.

use std::cmp::Ordering;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution, StandardNormal};

use crate::accounting::stopping::StoppingLaw;
use crate::seeds::NoEntropy;

/// The noise lies on a grid of `2^-20` of its deviation or less: what is right shows in no digit beyond it.
const GRID_BITS: i32 = 20;

/// The coins of a search, which nobody may know.
pub struct SecretCoins(ChaCha20Rng);

/// A number of right answers with its noise; no two are equal.
#[derive(Debug, Clone, Copy)]
pub struct PrivateScore {
    right: f64,
    /// Decides between equals.
    tie: u64,
}

impl SecretCoins {
    /// A key from the operating system.
    ///
    /// # Errors
    /// [`NoEntropy`] if it has none to give.
    pub fn from_os() -> Result<Self, NoEntropy> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|_| NoEntropy)?;
        Ok(Self(ChaCha20Rng::from_seed(key)))
    }

    /// A number of runs from its law.
    pub fn runs(&mut self, law: &StoppingLaw) -> u64 {
        let unit = (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        law.at(unit)
    }

    /// A number below `count`, all equally likely but for `2^-32`; 0 if there is none.
    pub fn below(&mut self, count: u32) -> u32 {
        ((u128::from(self.0.next_u64()) * u128::from(count)) >> 64) as u32
    }

    /// A seed that fits into 63 bits, as TOML has them.
    pub fn seed(&mut self) -> u64 {
        self.0.next_u64() >> 1
    }

    /// The score of a run with so many right answers, with Gaussian noise of this deviation.
    pub fn score(&mut self, right: u64, deviation: f64) -> PrivateScore {
        let normal: f64 = StandardNormal.sample(&mut self.0);
        // A power of two of at most 1, of which every count is a multiple: all scores lie on one grid.
        let grid = f64::exp2((deviation.log2().floor() - f64::from(GRID_BITS)).min(0.0));
        let noise = (deviation * normal / grid).round() * grid;
        PrivateScore { right: right as f64 + noise, tie: self.0.next_u64() }
    }
}

impl PrivateScore {
    /// The number, which may be published: of right answers, with noise.
    pub fn right(&self) -> f64 {
        self.right
    }

    /// Which of two is better.
    pub fn order(&self, other: &Self) -> Ordering {
        self.right.total_cmp(&other.right).then(self.tie.cmp(&other.tie))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With 20,000 scores a true deviation or mean fails with a probability below 1e-6 (five deviations).
    #[test]
    fn scores_have_their_noise_and_lie_on_one_grid() {
        let mut coins = SecretCoins::from_os().unwrap();
        let (deviation, count) = (3.7, 20_000);
        let scores: Vec<f64> = (0..count).map(|_| coins.score(100, deviation).right()).collect();
        let mean = scores.iter().sum::<f64>() / f64::from(count);
        let variance =
            scores.iter().map(|score| (score - 100.0).powi(2)).sum::<f64>() / f64::from(count);
        let error = deviation / f64::from(count).sqrt();
        assert!((mean - 100.0).abs() < 5.0 * error, "{mean}");
        assert!((variance.sqrt() - deviation).abs() < 5.0 * error / 2_f64.sqrt(), "{variance}");
        let grid = f64::exp2(1.0 - 20.0);
        assert!(scores.iter().all(|score| score % grid == 0.0));
        assert!(scores.iter().any(|score| score % (2.0 * grid) != 0.0));
    }

    #[test]
    fn numbers_of_runs_and_settings_follow_their_laws() {
        let mut coins = SecretCoins::from_os().unwrap();
        let law = StoppingLaw::new(4.0, 1.0).unwrap();
        let count = 20_000;
        let mean = (0..count).map(|_| coins.runs(&law) as f64).sum::<f64>() / f64::from(count);
        // The geometric law of mean 4 has a deviation of sqrt(12): five of those of the mean, below 1e-6.
        assert!((mean - 4.0).abs() < 5.0 * (12.0 / f64::from(count)).sqrt(), "{mean}");
        let thirds = (0..count).filter(|_| coins.below(3) == 2).count() as f64;
        let expected = f64::from(count) / 3.0;
        assert!((thirds - expected).abs() < 5.0 * (expected * 2.0 / 3.0).sqrt(), "{thirds}");
        assert_eq!(coins.below(1), 0);
    }

    #[test]
    fn a_larger_number_is_better_and_equals_are_told_apart() {
        let score = |right: f64, tie: u64| PrivateScore { right, tie };
        assert_eq!(score(2.0, 0).order(&score(1.0, 9)), Ordering::Greater);
        assert_eq!(score(2.0, 0).order(&score(2.0, 9)), Ordering::Less);
    }
}
