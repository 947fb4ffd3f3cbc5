//! `noise.bands = "best"`: how many diagonals leave the least noise at the privacy that is asked for.
//!
//! The noise of a number of bands is known by planning for it: hundredths of a second by the accountant without coins,
//! seconds if it is to be verified by sampling, which takes off more of it for few bands than for many. So the search
//! goes from coarse to fine, and only its end is sampled:
//!
//! 1. the powers of two up to an epoch, and an epoch, without coins;
//! 2. within a factor of two of the best of them the numbers 4, 5, 6 and 7 times a power of two, without coins;
//! 3. from the best of all these, by the accountant that is asked for, along these numbers as long as the noise falls;
//! 4. the two numbers half-way to the neighbours of where that ends.

use std::borrow::Cow;
use std::collections::BTreeMap;

use dp_train::plan::{Accountant, DpPlan};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use toml::{Table, Value};

use super::Config;
use super::error::ConfigError;
use crate::factorizations::MethodName;

/// The word in place of a number.
const BEST: &str = "best";

/// What a file may say of bands, for the reference page.
pub(super) enum NumberOrBest {}

impl JsonSchema for NumberOrBest {
    fn schema_name() -> Cow<'static, str> {
        "NumberOrBest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "integer" }, { "const": BEST }] })
    }
}

/// Takes `noise.bands = "best"` out of a table; whether it was there.
pub(super) fn take_best(table: &mut Table) -> bool {
    let Some(Value::Table(noise)) = table.get_mut("noise") else { return false };
    let asks = noise.get("bands").and_then(Value::as_str) == Some(BEST);
    if asks {
        noise.remove("bands");
    }
    asks
}

/// 1, 2, 3, then 4, 5, 6 and 7 times the powers of two, below `most`, and `most` itself.
fn numbers_up_to(most: usize) -> Vec<usize> {
    let scales = std::iter::successors(Some(1), |scale| Some(2 * scale));
    let numbers = scales.flat_map(|scale| (4..8).map(move |number| number * scale));
    [1, 2, 3].into_iter().chain(numbers).take_while(|bands| *bands < most).chain([most]).collect()
}

/// The noise of the numbers that were looked at, and how it is found: none where there is no plan.
struct Search<F> {
    noise_of: F,
    found: BTreeMap<usize, Option<f64>>,
}

impl<F: FnMut(usize) -> Option<f64>> Search<F> {
    fn new(noise_of: F) -> Self {
        Self { noise_of, found: BTreeMap::new() }
    }

    /// The noise of a number of bands, infinite where there is no plan.
    fn noise(&mut self, bands: usize) -> f64 {
        let found = self.found.entry(bands).or_insert_with(|| (self.noise_of)(bands));
        found.unwrap_or(f64::INFINITY)
    }

    /// The number with the least noise so far, the smallest of equals; none if there is no plan.
    fn best(&self) -> Option<usize> {
        let planned = self.found.iter().filter_map(|(bands, noise)| Some((*bands, (*noise)?)));
        planned.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(bands, _)| bands)
    }

    /// Walks along `numbers` from one of them as long as the noise falls, then looks half-way to the neighbours.
    fn descend(&mut self, numbers: &[usize], start: usize) {
        let Some(mut at) = numbers.iter().position(|number| *number == start) else { return };
        let neighbours =
            |at: usize| [at.checked_sub(1), Some(at + 1).filter(|i| *i < numbers.len())];
        loop {
            let here = self.noise(numbers[at]);
            let mut around = neighbours(at).into_iter().flatten();
            match around.find(|next| self.noise(numbers[*next]) < here) {
                Some(next) => at = next,
                None => break,
            }
        }
        for next in neighbours(at).into_iter().flatten() {
            self.noise(usize::midpoint(numbers[at], numbers[next]));
        }
    }
}

impl Config {
    /// Gives `noise.bands` the number with the least noise on the iterates that the search of this module finds: few bands
    /// where secret batches hide much, an epoch in a fixed order. A second without coins; with them about six plans that
    /// are verified by sampling.
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
        // What is wrong with any number is said once.
        let asked = self.with_bands(per_epoch).plan_request()?.accountant;
        let numbers = numbers_up_to(per_epoch);
        let mut certain = Search::new(|bands| self.iterate_noise(bands, Accountant::default()));
        for bands in numbers.iter().filter(|bands| bands.is_power_of_two() || **bands == per_epoch)
        {
            certain.noise(*bands);
        }
        // None has a plan: the reason comes with the default.
        let Some(coarse) = certain.best() else { return Ok(()) };
        for bands in
            numbers.iter().filter(|bands| (coarse.div_ceil(2)..=2 * coarse).contains(bands))
        {
            certain.noise(*bands);
        }
        let Some(start) = certain.best() else { return Ok(()) };
        let best = if asked == Accountant::default() {
            certain.descend(&numbers, start);
            certain.best()
        } else {
            let mut sampled = Search::new(|bands| self.iterate_noise(bands, asked));
            sampled.descend(&numbers, start);
            sampled.best()
        };
        if let Some(noise) = self.noise.as_mut() {
            noise.bands = best;
        }
        Ok(())
    }

    fn with_bands(&self, bands: usize) -> Self {
        let mut config = self.clone();
        if let Some(noise) = config.noise.as_mut() {
            noise.bands = Some(bands);
        }
        config
    }

    /// The noise on the iterates by the plan with so many bands. Not every number has one: cyclic batches of too many
    /// groups would have to hold everyone.
    fn iterate_noise(&self, bands: usize, accountant: Accountant) -> Option<f64> {
        let mut request = self.with_bands(bands).plan_request().ok()?;
        request.accountant = accountant;
        Some(DpPlan::rehearsed(request).ok()?.iterate_noise_std)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_quarters_of_octaves() {
        assert_eq!(numbers_up_to(1), [1]);
        assert_eq!(numbers_up_to(5), [1, 2, 3, 4, 5]);
        let expected = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 30];
        assert_eq!(numbers_up_to(30), expected);
    }

    #[test]
    fn a_descent_ends_between_neighbours_that_are_no_better() {
        let numbers = numbers_up_to(100);
        for least in [1, 9, 36, 64, 99, 100] {
            let mut asked = Vec::new();
            let mut search = Search::new(|bands: usize| {
                asked.push(bands);
                (bands > 0).then(|| bands.abs_diff(least) as f64)
            });
            search.descend(&numbers, 56);
            let best = search.best().unwrap();
            // Half-way between numbers that are a quarter of an octave apart.
            assert!(best.abs_diff(least) <= least.div_ceil(8), "{least}: {best}");
            let mut once = asked.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), asked.len(), "nothing is planned twice");
        }
    }
}
