//! Schedules: one factor of the learning rate per step.
//!
//! With `n` steps counted from 0, the last `c` of them in the cooldown, and the fraction `f` that the last
//! step has:
//!
//! ```text
//! constant          1
//! linear-cooldown   1 - (1 - f) max(0, t - (n - 1 - c)) / c
//! cosine            f + (1 - f) (1 + cos(pi t / (n - 1))) / 2
//! ```
//!
//! The first step has factor 1 and the last `f`; a run of one step has factor 1.

use std::f64::consts::PI;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use dp_train::StrategyFor;
use dp_train::plan::Sampling;

use super::error::ConfigError;
use super::{Config, Optimizer, Privacy};
use crate::factorizations::MethodName;

/// The last factor if none is given.
const FINAL_FRACTION: f64 = 0.01;

/// How the learning rate changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// Not at all.
    #[default]
    Constant,
    /// Down a straight line at the end.
    LinearCooldown,
    /// Down half a wave over the whole run.
    Cosine,
}

/// Where bsr gains by the schedule: a fall over more than so many epochs, to at most this part of the rate, with at least
/// this momentum and without decay. In 2000 plans drawn at random there, after the bounds were chosen (6 to 80 epochs of
/// 4 to 250 steps, any bands), the mean, the final and the largest error were all smaller with the schedule's strategy,
/// by 0.6 to 25 percent. Outside either can be: with rates that fall only to 0.7, 0.8 or 0.9 the final error was larger
/// in 238 of 691 plans, and over shorter falls some error was in 290 of 900. No other method was better throughout. The plans
/// were of batches in a fixed order. Cyclic Poisson batches charge every round with its own columns, and there some final
/// errors are larger: that of one band over 6 epochs by 2 percent (a test has it), so they are left out.
const FALL_EPOCHS: usize = 5;
const LOW_FRACTION: f64 = 0.1;
const HEAVY_MOMENTUM: f64 = 0.9;

impl Config {
    /// What `noise.strategy_for` is if it is left out: the schedule only where that is never worse.
    pub fn usual_strategy(&self) -> StrategyFor {
        let Optimizer { schedule, final_fraction, momentum, decay_factor, .. } = self.optimizer;
        let falls_long = self.steps().is_ok_and(|steps| {
            let fall = match schedule {
                Schedule::Constant => 0,
                Schedule::LinearCooldown => self.optimizer.cooldown(steps.total).unwrap_or(0),
                Schedule::Cosine => steps.total,
            };
            fall > FALL_EPOCHS * steps.per_epoch
        });
        let is_bsr = self.noise.as_ref().is_some_and(|noise| noise.method == MethodName::Bsr);
        let charges_rounds = matches!(
            &self.privacy,
            Privacy::Guaranteed(guarantee) if guarantee.sampling == Sampling::CyclicPoisson
        );
        let gains = is_bsr
            && !charges_rounds
            && decay_factor == 1.0
            && momentum >= HEAVY_MOMENTUM
            && final_fraction.unwrap_or(FINAL_FRACTION) <= LOW_FRACTION
            && falls_long;
        if gains { StrategyFor::Schedule } else { StrategyFor::ConstantRate }
    }
}

impl Optimizer {
    /// The factor of every step; none if the rate is constant. The bits do not depend on the machine.
    pub fn factors(&self, steps: usize) -> Result<Option<Vec<f64>>, ConfigError> {
        let fraction = self.final_fraction.unwrap_or(FINAL_FRACTION);
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(ConfigError::FinalFraction { fraction });
        }
        let cools = self.schedule == Schedule::LinearCooldown;
        for (key, given) in [
            ("cooldown_steps", self.cooldown_steps.is_some()),
            ("cooldown_fraction", self.cooldown_fraction.is_some()),
        ] {
            if given && !cools {
                return Err(ConfigError::NoCooldown { key });
            }
        }
        let last = steps.saturating_sub(1);
        let shape: Box<dyn Fn(usize) -> f64> = match self.schedule {
            Schedule::Constant if self.final_fraction.is_some() => {
                return Err(ConfigError::NoCooldown { key: "final_fraction" });
            }
            Schedule::Constant => return Ok(None),
            Schedule::LinearCooldown => {
                let cooldown = self.cooldown(steps)?;
                if cooldown > last || self.cooldown_steps == Some(0) {
                    return Err(ConfigError::Cooldown { cooldown, most: last });
                }
                Box::new(move |t| {
                    let into = t.saturating_sub(last - cooldown);
                    1.0 - into as f64 / cooldown.max(1) as f64
                })
            }
            Schedule::Cosine => {
                Box::new(move |t| (1.0 + libm::cos(PI * t as f64 / last.max(1) as f64)) / 2.0)
            }
        };
        Ok(Some((0..steps).map(|t| fraction + (1.0 - fraction) * shape(t)).collect()))
    }

    /// Over how many of the steps after the first the rate falls; all of them if nothing is said.
    fn cooldown(&self, steps: usize) -> Result<usize, ConfigError> {
        let last = steps.saturating_sub(1);
        match (self.cooldown_steps, self.cooldown_fraction) {
            (Some(_), Some(_)) => Err(ConfigError::TwoCooldowns),
            (Some(cooldown), None) => Ok(cooldown),
            (None, None) => Ok(last),
            (None, Some(fraction)) if fraction > 0.0 && fraction <= 1.0 => {
                let cooldown = (fraction * steps as f64).round() as usize;
                Ok(cooldown.clamp(1.min(last), last))
            }
            (None, Some(fraction)) => Err(ConfigError::CooldownFraction { fraction }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(
        schedule: Schedule,
        cooldown_steps: Option<usize>,
        final_fraction: Option<f64>,
        steps: usize,
    ) -> Result<Option<Vec<f64>>, ConfigError> {
        let optimizer = Optimizer {
            learning_rate: 1.0,
            schedule,
            cooldown_steps,
            cooldown_fraction: None,
            final_fraction,
            momentum: 0.0,
            decay_factor: 1.0,
            clip_norm: None,
        };
        optimizer.factors(steps)
    }

    fn close(found: Option<Vec<f64>>, expected: &[f64]) {
        let found = found.unwrap();
        assert_eq!(found.len(), expected.len());
        for (f, e) in found.iter().zip(expected) {
            assert!((f - e).abs() < 1e-15, "{found:?} against {expected:?}");
        }
    }

    #[test]
    fn every_schedule_follows_its_formula() {
        use Schedule::{Constant, Cosine, LinearCooldown};
        assert_eq!(factors(Constant, None, None, 5), Ok(None));
        // By hand: the last 4 of 6 steps go from 1 to 0.2.
        let cooled = factors(LinearCooldown, Some(4), Some(0.2), 6).unwrap();
        close(cooled, &[1.0, 1.0, 0.8, 0.6, 0.4, 0.2]);
        let whole = factors(LinearCooldown, None, Some(0.5), 3).unwrap();
        close(whole, &[1.0, 0.75, 0.5]);
        // cos 0, pi/3, 2 pi/3, pi are 1, 1/2, -1/2, -1.
        let cosine = factors(Cosine, None, Some(0.2), 4).unwrap();
        close(cosine, &[1.0, 0.8, 0.4, 0.2]);
        close(factors(Cosine, None, None, 2).unwrap(), &[1.0, 0.01]);
        for schedule in [LinearCooldown, Cosine] {
            close(factors(schedule, None, None, 1).unwrap(), &[1.0]);
            let long = factors(schedule, None, None, 1000).unwrap().unwrap();
            assert!(long.windows(2).all(|pair| pair[0] > pair[1]), "{schedule:?} falls");
            assert!((long[999] - 0.01).abs() < 1e-15);
        }
    }

    #[test]
    fn a_cooldown_as_a_part_is_that_many_steps_of_a_run_of_any_length() {
        let optimizer = |schedule, cooldown_steps, cooldown_fraction| Optimizer {
            learning_rate: 1.0,
            schedule,
            cooldown_steps,
            cooldown_fraction,
            final_fraction: None,
            momentum: 0.0,
            decay_factor: 1.0,
            clip_norm: None,
        };
        let cools = Schedule::LinearCooldown;
        let part = |part, steps| optimizer(cools, None, Some(part)).factors(steps);
        let whole = |cooldown, steps| optimizer(cools, Some(cooldown), None).factors(steps);
        for (fraction, steps, cooldown) in
            [(0.5, 800, 400), (0.5, 80, 40), (0.5, 9, 5), (0.001, 10, 1), (1.0, 10, 9), (0.5, 2, 1)]
        {
            assert_eq!(part(fraction, steps), whole(cooldown, steps), "{fraction} of {steps}");
        }
        close(part(0.5, 1).unwrap(), &[1.0]);
        for wrong in [0.0, -0.5, 1.5, f64::NAN] {
            let message = part(wrong, 10).unwrap_err().to_string();
            assert!(message.contains("optimizer.cooldown_fraction"), "{message}");
        }
        let two = optimizer(cools, Some(3), Some(0.5)).factors(10).unwrap_err();
        assert_eq!(two, ConfigError::TwoCooldowns);
        let cosine = optimizer(Schedule::Cosine, None, Some(0.5)).factors(10).unwrap_err();
        assert_eq!(cosine, ConfigError::NoCooldown { key: "cooldown_fraction" });
    }

    #[test]
    fn keys_that_a_schedule_has_no_use_for_are_refused() {
        use Schedule::{Constant, Cosine, LinearCooldown};
        for (schedule, cooldown, fraction) in [
            (Constant, Some(3), None),
            (Constant, None, Some(0.5)),
            (Cosine, Some(3), None),
            (Cosine, None, Some(0.0)),
            (Cosine, None, Some(1.5)),
            (Cosine, None, Some(f64::NAN)),
            (LinearCooldown, Some(0), None),
            (LinearCooldown, Some(10), None),
        ] {
            let found = factors(schedule, cooldown, fraction, 10);
            let message = found.unwrap_err().to_string();
            assert!(message.contains("optimizer."), "{message}");
        }
    }
}
