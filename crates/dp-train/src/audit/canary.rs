//! The canary: an example that moves the release as far as the plan allows.

use mf_core::{Participation, Strategy};

use crate::calibration::Neighbouring;
use crate::gradient::PerSampleGradients;
use crate::mechanism::Mechanism;
use crate::plan::DpPlan;
use crate::seeds::NoiseKey;

use super::AuditError;

/// Coordinates of an audited mechanism, and examples that are tested in one run of it.
///
/// Canary `j` has its gradient along coordinate `j` alone. Noise is independent between
/// coordinates, so one run gives as many independent trials as there are coordinates.
pub const CANARIES: usize = 64;

/// Released sums of one run: a row for every step, a column for every canary.
pub type Released = Vec<[f32; CANARIES]>;

/// Which of two neighbouring worlds a run takes place in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// The canaries are in the data.
    With,
    /// They are not; or, where neighbours exchange an example, their opposites are.
    Without,
}

/// When the canaries take part, and what they send in.
#[derive(Debug, Clone, PartialEq)]
pub struct Canary {
    /// Whether step `i` uses the canaries.
    pub takes_part: Vec<bool>,
    clip_norm: f64,
    neighbouring: Neighbouring,
}

impl Canary {
    /// The worst participation pattern that is known for the plan.
    pub(super) fn worst(plan: &DpPlan) -> Self {
        Self {
            takes_part: worst_pattern(plan.strategy(), &plan.participation()),
            clip_norm: plan.request().clip_norm,
            neighbouring: plan.request().neighbouring,
        }
    }

    /// What a canary adds to the sum of a step where it takes part, after clipping.
    pub fn contribution(&self, world: World) -> f64 {
        match (world, self.neighbouring) {
            (World::With, _) => self.clip_norm,
            (World::Without, Neighbouring::ReplaceOne) => -self.clip_norm,
            (World::Without, Neighbouring::ZeroOut) => 0.0,
        }
    }

    /// The batch of a step: gradients ten times too long, so that clipping is part of what is
    /// tested.
    pub fn batch(&self, step: usize, world: World) -> Result<PerSampleGradients, AuditError> {
        let mut gradients = PerSampleGradients::new(CANARIES);
        let contribution = self.contribution(world);
        if self.takes_part[step] && contribution != 0.0 {
            for j in 0..CANARIES {
                let mut gradient = [0.0; CANARIES];
                gradient[j] = 10.0 * contribution as f32;
                gradients.push(&gradient)?;
            }
        }
        Ok(gradients)
    }
}

/// Runs the mechanism of a plan from the first step to the last: the released sums, one row of
/// [`CANARIES`] per step.
///
/// # Errors
/// [`AuditError`] if the mechanism refuses a step, which it has no reason to.
pub fn released_sums(
    plan: &DpPlan,
    canary: &Canary,
    world: World,
    key: NoiseKey,
) -> Result<Released, AuditError> {
    let mut mechanism = Mechanism::new(plan, key)?;
    let (clip_norm, batch_size) = (plan.request().clip_norm, plan.request().batch_size as f32);
    let mut rows = Vec::with_capacity(plan.request().steps);
    for step in 0..plan.request().steps {
        let gradient = mechanism.privatize(canary.batch(step, world)?.clip(clip_norm)?)?;
        let mut row = [0.0; CANARIES];
        for (sum, value) in row.iter_mut().zip(gradient.values()) {
            *sum = value * batch_size;
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The pattern with the largest `||C u||` among: every `b` steps from each first step on, and the
/// heaviest separated columns.
///
/// Exact where the sensitivity is: for falling Toeplitz strategies the first kind contains the
/// worst pattern, for strategies with `p <= b` the second one is it.
fn worst_pattern(strategy: &Strategy, participation: &Participation) -> Vec<bool> {
    let (n, b) = (participation.steps(), participation.min_separation());
    let k = participation.max_participations();
    let offsets = if strategy.as_toeplitz().is_some() { 1 } else { b };
    let regular = (0..offsets.min(n)).map(|first| {
        let mut pattern = vec![false; n];
        (first..n).step_by(b).take(k).for_each(|step| pattern[step] = true);
        pattern
    });
    let candidates = regular.chain([heaviest_columns(strategy, b, k)]);
    let moved = |pattern: &[bool]| -> f64 {
        apply(strategy, &indicator(pattern)).iter().map(|x| x * x).sum()
    };
    let mut best = (f64::NEG_INFINITY, Vec::new());
    for pattern in candidates {
        let squared = moved(&pattern);
        if squared > best.0 {
            best = (squared, pattern);
        }
    }
    best.1
}

/// At most `k` columns, `b` apart, with the largest sum of squared norms. O(n k).
fn heaviest_columns(strategy: &Strategy, b: usize, k: usize) -> Vec<bool> {
    let n = strategy.steps();
    let mut weights = vec![0.0; n];
    for i in 0..n {
        for (lag, c) in strategy.row(i).iter().enumerate() {
            weights[i - lag] += c * c;
        }
    }
    // best[m][i]: the heaviest choice of at most m among the first i columns.
    let mut best = vec![vec![0.0; n + 1]; k + 1];
    for m in 1..=k {
        for i in 0..n {
            let taken = weights[i] + best[m - 1][(i + 1).saturating_sub(b)];
            best[m][i + 1] = f64::max(best[m][i], taken);
        }
    }
    let mut pattern = vec![false; n];
    let (mut m, mut i) = (k, n);
    while m > 0 && i > 0 {
        if best[m][i] == best[m][i - 1] {
            i -= 1;
        } else {
            pattern[i - 1] = true;
            m -= 1;
            i = i.saturating_sub(b);
        }
    }
    pattern
}

/// `u` with 1 in the steps of the pattern.
pub(super) fn indicator(pattern: &[bool]) -> Vec<f64> {
    pattern.iter().map(|&taken| f64::from(u8::from(taken))).collect()
}

/// `C x`. O(n p).
pub(super) fn apply(strategy: &Strategy, x: &[f64]) -> Vec<f64> {
    let dot = |i: usize| strategy.row(i).iter().enumerate().map(|(lag, c)| c * x[i - lag]).sum();
    (0..strategy.steps()).map(dot).collect()
}

/// `C^T x`. O(n p).
pub(super) fn apply_transposed(strategy: &Strategy, x: &[f64]) -> Vec<f64> {
    let mut product = vec![0.0; x.len()];
    for i in 0..strategy.steps() {
        for (lag, c) in strategy.row(i).iter().enumerate() {
            product[i - lag] += c * x[i];
        }
    }
    product
}
