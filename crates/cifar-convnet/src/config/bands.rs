//! `noise.bands = "best"`: how many diagonals leave the least noise at the privacy that is asked for.

use dp_train::plan::{Accountant, DpPlan};
use toml::{Table, Value};

use super::Config;
use super::error::ConfigError;
use crate::factorizations::MethodName;

/// The word in place of a number.
const BEST: &str = "best";

/// Takes `noise.bands = "best"` out of a table; whether it was there.
pub(super) fn take_best(table: &mut Table) -> bool {
    let Some(Value::Table(noise)) = table.get_mut("noise") else { return false };
    let asks = noise.get("bands").and_then(Value::as_str) == Some(BEST);
    if asks {
        noise.remove("bands");
    }
    asks
}

impl Config {
    /// Gives `noise.bands` the number among the powers of two up to an epoch, and an epoch, whose plan has the least noise on
    /// the iterates: few bands where secret batches hide much, an epoch in a fixed order. The fewest of equals. Seconds:
    /// each is planned, by the accountant without coins.
    ///
    /// # Errors
    /// The [`ConfigError`] of a config that has no plan, or [`ConfigError::BestBands`] if the method takes none, or hours to
    /// solve for all of them.
    pub(super) fn choose_bands(&mut self) -> Result<(), ConfigError> {
        let per_epoch = self.steps()?.per_epoch;
        let Some(noise) = &self.noise else { return Ok(()) };
        let method = noise.method;
        let is_banded = matches!(
            method,
            MethodName::Bsr
                | MethodName::Bisr
                | MethodName::Toeplitz
                | MethodName::InverseToeplitz
                | MethodName::NormalisedSqrt
        );
        if !is_banded {
            return Err(ConfigError::BestBands { method });
        }
        let powers = std::iter::successors(Some(1), |bands| Some(2 * bands));
        let candidates = powers.take_while(|bands| *bands < per_epoch).chain([per_epoch]);
        let mut best: Option<(f64, usize)> = None;
        for bands in candidates {
            let mut config = self.clone();
            config.noise.as_mut().map(|noise| noise.bands.replace(bands));
            let mut request = config.plan_request()?;
            request.accountant = Accountant::default();
            // Not every number has a plan: cyclic batches of too many groups would have to hold everyone.
            let Ok(plan) = DpPlan::new(request) else { continue };
            let noise = plan.record().iterate_noise_std;
            if best.is_none_or(|(least, _)| noise < least) {
                best = Some((noise, bands));
            }
        }
        // None has a plan: the reason comes with the default.
        if let (Some(noise), Some((_, bands))) = (self.noise.as_mut(), best) {
            noise.bands = Some(bands);
        }
        Ok(())
    }
}
