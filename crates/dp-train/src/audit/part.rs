//! A part of what is shipped, with canaries for it.
//!
//! The main attack runs the mechanism at 64 coordinates. A part runs it where production has other
//! code: canaries with gradients in many coordinates, sums that an engine clipped, a run that was
//! saved and loaded.
//!
//! # Canaries in any direction
//! What canary `j` contributes, `v_j`, is measured first, without noise. The attacker knows all
//! examples but one, so it may subtract what the other canaries add; and it looks along `w_j`,
//! which come from the `v_j` by Gram and Schmidt's method. Noise is independent in orthogonal
//! directions, so one run still gives 64 independent trials; what `v_j` has along the ones before
//! it is given away, which makes the bound lower but no less true.

use super::canary::{CANARIES, Canary, Released, World, indicator};
use super::experiment::{Expected, Experiment};
use super::report::{AuditError, PartReport};
use super::tally::{directions, directions_at};
use crate::gradient::ClippedSum;
use crate::mechanism::Mechanism;
use crate::plan::DpPlan;
use crate::seeds::{NoiseKey, RunSeed};

/// Confidence of the lower bound on epsilon of one part.
const CONFIDENCE: f64 = 0.999;

/// Largest deviation of a mean or variance, in its standard deviations. At most 180 numbers are
/// looked at: 12 directions in two worlds and 64 canaries, with mean and variance each. They
/// exceed it with probability 180 x 2e-9 < 1e-6.
const LARGEST_DEVIATION: f64 = 6.0;

/// By how much rounding may make a contribution longer than the clip norm.
const ROUNDING: f64 = 1e-6;

/// All coordinates of the released sums of one run: a row for every step.
pub type ReleasedRows = Vec<Vec<f32>>;

/// What is attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Noise of several tiles.
    Tiles,
    /// The same, saved and loaded on the way.
    Resume,
    /// Sums that the CPU engine clipped.
    Engine,
}

impl Target {
    fn describe(self) -> (&'static str, &'static str) {
        match self {
            Target::Tiles => ("tiles", "noise of several tiles, the last one partial"),
            Target::Resume => ("resume", "the same, saved and loaded before a participation"),
            Target::Engine => ("engine", "examples that the CPU engine clips, in a small ConvNet"),
        }
    }
}

/// What the canaries do in one world.
#[derive(Debug, Clone)]
struct Side {
    /// `<w_j, v_j>`.
    own: [f64; CANARIES],
    /// `<w_j, sum_{k != j} v_k>`.
    others: [f64; CANARIES],
    /// `sum_j v_j`.
    total: Vec<f64>,
}

impl Side {
    fn new(directions: &[Vec<f64>], contributions: &[Vec<f64>]) -> Self {
        let dim = contributions[0].len();
        let total: Vec<f64> = (0..dim).map(|t| contributions.iter().map(|v| v[t]).sum()).collect();
        let own = std::array::from_fn(|j| dot(&directions[j], &contributions[j]));
        let others = std::array::from_fn(|j| dot(&directions[j], &total) - own[j]);
        Self { own, others, total }
    }
}

/// Canaries for one part.
#[derive(Debug, Clone)]
pub struct Part {
    target: Target,
    /// The plan at as many coordinates as the part has.
    pub plan: DpPlan,
    /// When the canaries take part, and in which worlds they are there.
    pub canary: Canary,
    /// The step before which the mechanism is saved and loaded.
    pub resume_at: Option<usize>,
    /// The coordinates that are looked at, with their weights in all `w_j`.
    views: Vec<(usize, [f32; CANARIES])>,
    with: Side,
    without: Side,
    /// `max_j |v_j|` over the clip norm.
    longest: f64,
}

impl Part {
    /// Measures the contributions: `contribution(j, world)` is the vector of `dim` entries that
    /// canary `j` adds to a sum, without noise. O(64^2 dim).
    ///
    /// # Errors
    /// Those of `contribution`, and [`AuditError::DependentCanaries`] if one canary's contribution
    /// is made up of those of others: then it is no trial of its own.
    pub fn new(
        target: Target,
        plan: &DpPlan,
        dim: usize,
        mut contribution: impl FnMut(usize, World) -> Result<Vec<f64>, AuditError>,
    ) -> Result<Self, AuditError> {
        let canary = Canary::worst(plan);
        let mut measure = |world: World| -> Result<Vec<Vec<f64>>, AuditError> {
            if canary.contribution(world) == 0.0 {
                return Ok(vec![vec![0.0; dim]; CANARIES]);
            }
            (0..CANARIES).map(|j| contribution(j, world)).collect()
        };
        let (with, without) = (measure(World::With)?, measure(World::Without)?);
        let longest = with.iter().chain(&without).map(|v| dot(v, v).sqrt()).fold(0.0, f64::max);
        let difference = |(v, other): (&Vec<f64>, &Vec<f64>)| {
            v.iter().zip(other).map(|(v, other)| v - other).collect()
        };
        let directions = orthonormal(with.iter().zip(&without).map(difference).collect())
            .ok_or(AuditError::DependentCanaries)?;
        let views = (0..dim).map(|t| (t, std::array::from_fn(|j| directions[j][t] as f32)));
        let resume_at = (target == Target::Resume).then(|| resume_step(&canary.takes_part));
        Ok(Self {
            target,
            plan: plan.with_dim(dim),
            resume_at,
            views: views.filter(|(_, weights)| weights.iter().any(|w| *w != 0.0)).collect(),
            with: Side::new(&directions, &with),
            without: Side::new(&directions, &without),
            longest: longest / plan.request().clip_norm,
            canary,
        })
    }

    fn side(&self, world: World) -> &Side {
        match world {
            World::With => &self.with,
            World::Without => &self.without,
        }
    }

    /// What all canaries together add to the sum of a step where they take part.
    pub fn total(&self, world: World) -> &[f64] {
        &self.side(world).total
    }

    /// Runs the mechanism over the sums of the steps, saved and loaded on the way if the part says
    /// so.
    ///
    /// # Errors
    /// Those of `sum`, and [`AuditError`] if the mechanism refuses a step or its own bytes.
    pub fn released(
        &self,
        key: NoiseKey,
        mut sum: impl FnMut(usize) -> Result<ClippedSum, AuditError>,
    ) -> Result<ReleasedRows, AuditError> {
        let mut mechanism = Mechanism::new(&self.plan, key)?;
        let batch_size = self.plan.request().batch_size as f32;
        let mut rows = Vec::with_capacity(self.plan.request().steps);
        for step in 0..self.plan.request().steps {
            if self.resume_at == Some(step) {
                let mut bytes = Vec::new();
                let refused = |error: &dyn ToString| AuditError::Resume(error.to_string());
                mechanism.save(&mut bytes).map_err(|error| refused(&error))?;
                mechanism =
                    Mechanism::load(&self.plan, &bytes[..]).map_err(|error| refused(&error))?;
            }
            let gradient = mechanism.privatize(sum(step)?)?;
            rows.push(gradient.values().iter().map(|value| value * batch_size).collect());
        }
        Ok(rows)
    }

    /// What the attackers see of a run: a column for every canary. O(64 n dim).
    fn seen(&self, rows: &ReleasedRows, world: World) -> Released {
        let others = &self.side(world).others;
        let see = |(row, &takes_part): (&Vec<f32>, &bool)| {
            let mut seen = [0.0_f64; CANARIES];
            for (t, weights) in &self.views {
                let value = f64::from(row[*t]);
                for (seen, w) in seen.iter_mut().zip(weights) {
                    *seen += value * f64::from(*w);
                }
            }
            let known = if takes_part { 1.0 } else { 0.0 };
            std::array::from_fn(|j| (seen[j] - known * others[j]) as f32)
        };
        rows.iter().zip(&self.canary.takes_part).map(see).collect()
    }

    /// Attacks a mechanism with (at least) `trials` trials in each world. `run` goes once through
    /// all steps of the part's plan with the canaries of a world and a key of its own, and returns
    /// what it released, as sums.
    ///
    /// # Errors
    /// [`AuditError::Trials`] for fewer than 640, and those of `run`.
    pub fn attack(
        &self,
        trials: u64,
        seed: RunSeed,
        run: impl Fn(World, NoiseKey) -> Result<ReleasedRows, AuditError> + Sync,
    ) -> Result<PartReport, AuditError> {
        let runs = trials.div_ceil(CANARIES as u64);
        if runs < 10 {
            return Err(AuditError::Trials { trials });
        }
        let updates = indicator(&self.canary.takes_part);
        let mut directions = directions(&self.plan, &updates, seed);
        if let Some(step) = self.resume_at {
            directions.extend(directions_at(&self.plan, &updates, step));
        }
        let experiment = Experiment {
            plan: &self.plan,
            updates: &updates,
            directions: &directions,
            measured: &[World::With, World::Without],
            expected: &Expected { with: self.with.own, without: self.without.own },
            runs,
            confidence: CONFIDENCE,
        };
        // No run of another part, nor of the main attack, has the same key.
        let first = (self.target as u64 + 1) << 48;
        let outcome = experiment.outcome(|index, world| {
            let index = first + 2 * index + u64::from(world == World::With);
            Ok(self.seen(&run(world, NoiseKey::for_audit(seed, index))?, world))
        })?;
        let further = (outcome.counted * CANARIES as u64) as f64;
        let both = outcome.with.clone().plus(&outcome.without);
        let noise_deviation = [
            outcome.with.largest_deviation(further),
            outcome.without.largest_deviation(further),
            both.largest_single_deviation(2.0 * outcome.counted as f64),
        ];
        let noise_deviation = noise_deviation.into_iter().fold(0.0, f64::max);
        let (name, attacked) = self.target.describe();
        Ok(PartReport {
            name: name.to_owned(),
            attacked: attacked.to_owned(),
            longest_contribution: self.longest,
            contributions_within_clip_norm: self.longest <= 1.0 + ROUNDING,
            epsilon_lower_bound: outcome.epsilon_lower_bound,
            epsilon_lower_bound_if_gaussian: outcome.epsilon_lower_bound_if_gaussian,
            trials: runs * CANARIES as u64,
            confidence: CONFIDENCE,
            noise_deviation,
            noise_as_planned: noise_deviation <= LARGEST_DEVIATION,
        })
    }
}

/// The step of the participation nearest to the middle, the first step apart: noise that went on
/// wrongly then hides the canary worst. Without one, the middle.
fn resume_step(takes_part: &[bool]) -> usize {
    let middle = takes_part.len() / 2;
    let steps = (1..takes_part.len()).filter(|&step| takes_part[step]);
    steps.min_by_key(|step| step.abs_diff(middle)).unwrap_or(middle)
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// Gram and Schmidt's method, twice for the rounding; `None` if a vector has less than a hundredth
/// of its length outside the span of the ones before it. O(m^2 d).
fn orthonormal(mut vectors: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    for j in 0..vectors.len() {
        let (before, rest) = vectors.split_at_mut(j);
        let vector = &mut rest[0];
        let length = dot(vector, vector).sqrt();
        for _ in 0..2 {
            for w in before.iter() {
                let along = dot(w, vector);
                vector.iter_mut().zip(w).for_each(|(x, w)| *x -= along * w);
            }
        }
        let left = dot(vector, vector).sqrt();
        if left.is_nan() || left <= 0.01 * length {
            return None;
        }
        vector.iter_mut().for_each(|x| *x /= left);
    }
    Some(vectors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_orthonormal_or_there_are_none() {
        let vectors = vec![vec![3.0, 0.0, 4.0], vec![1.0, 1.0, 1.0], vec![4.0, 1.0, 6.0]];
        let found = orthonormal(vectors.clone()).unwrap();
        for i in 0..3 {
            for j in 0..=i {
                let expected = if i == j { 1.0 } else { 0.0 };
                assert!((dot(&found[i], &found[j]) - expected).abs() < 1e-12);
            }
        }
        assert_eq!(orthonormal(vec![vectors[0].clone(), vectors[0].clone()]), None);
        assert_eq!(orthonormal(vec![vec![0.0; 3]]), None);
    }

    #[test]
    fn a_run_resumes_before_a_participation_near_the_middle() {
        let pattern = |steps: usize, every: usize| (0..steps).map(|s| s % every == 0).collect();
        let at = |takes_part: Vec<bool>| resume_step(&takes_part);
        assert_eq!(at(pattern(50, 5)), 25);
        assert_eq!(at(pattern(20, 8)), 8);
        assert_eq!(at(pattern(12, 12)), 6);
        assert_eq!(at(vec![true]), 0);
    }
}
