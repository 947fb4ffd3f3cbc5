//! Preconditioned quasi-Newton descent over factors with unit columns.

use rayon::prelude::*;

use super::lbfgs::{History, blockwise, dots};
use super::objective::{Columns, Objective};
use super::preconditioner::{Preconditioner, project};
use super::warm_start::normalize;

/// A point moving downhill.
///
/// The variable `x` is an unconstrained band matrix and the factor is `x` with its columns scaled
/// to unit norm, so the constraint never has to be restored and secant pairs are those of one
/// smooth function. Only the first `free` columns move.
pub(super) struct Descent<'a> {
    objective: Objective<'a>,
    bands: usize,
    free: usize,
    x: Columns,
    gradient: Columns,
    value: f64,
    trial: Columns,
    trial_gradient: Columns,
    direction: Columns,
    /// The factor last evaluated; the current one between steps.
    unit: Columns,
    /// Derivative with respect to the entries of `unit`, before projection.
    raw: Columns,
    history: History,
    /// Scale of the initial inverse Hessian and the number of steps since it was measured.
    scale: f64,
    scale_age: usize,
    evaluations: usize,
}

/// What a step did.
pub(super) enum Step {
    /// Moved; `predicted` is the decrease the quadratic model promised, relative to the value.
    Moved { predicted: f64 },
    /// No descent to rounding accuracy.
    Stalled,
}

/// Steps between measurements of the initial scale, each of which costs one more preconditioner
/// application.
const SCALE_LIFETIME: usize = 5;
/// Changes of the value below this fraction are rounding.
const ROUNDING: f64 = 1e-13;
const ARMIJO: f64 = 1e-4;
const LINE_SEARCH_TRIALS: usize = 20;

impl<'a> Descent<'a> {
    /// Starts at `x`, with the first `free` columns as variables.
    pub(super) fn new(
        objective: Objective<'a>,
        bands: usize,
        free: usize,
        x: Columns,
        history: usize,
    ) -> Self {
        let zeros = vec![0.0; x.len()];
        let mut descent = Self {
            objective,
            bands,
            free,
            gradient: zeros.clone(),
            value: f64::INFINITY,
            trial: x.clone(),
            trial_gradient: zeros.clone(),
            direction: zeros.clone(),
            unit: zeros.clone(),
            raw: zeros,
            x,
            history: History::new(history),
            scale: 1.0,
            scale_age: SCALE_LIFETIME,
            evaluations: 0,
        };
        descent.restart();
        descent
    }

    /// Replaces the leading columns and evaluates there; the curvature seen so far is kept.
    pub(super) fn replace_head(&mut self, columns: &[f64]) {
        self.trial.copy_from_slice(&self.x);
        self.trial[..columns.len()].copy_from_slice(columns);
        self.restart();
    }

    fn restart(&mut self) {
        self.value = self.evaluate();
        std::mem::swap(&mut self.x, &mut self.trial);
        std::mem::swap(&mut self.gradient, &mut self.trial_gradient);
    }

    pub(super) fn value(&self) -> f64 {
        self.value
    }

    pub(super) fn evaluations(&self) -> usize {
        self.evaluations
    }

    /// The current factor.
    pub(super) fn factor(&self) -> &[f64] {
        &self.unit
    }

    pub(super) fn into_factor(self) -> Columns {
        self.unit
    }

    /// The derivative of the objective in the entries of the factor, unprojected.
    pub(super) fn derivative(&self) -> &[f64] {
        &self.raw
    }

    pub(super) fn objective(&self) -> &Objective<'a> {
        &self.objective
    }

    /// Makes the next step measure the initial scale again, as after a change of preconditioner.
    pub(super) fn forget_scale(&mut self) {
        self.scale_age = SCALE_LIFETIME;
    }

    /// Value at `trial`, leaving the gradient in `trial_gradient`.
    fn evaluate(&mut self) -> f64 {
        let (bands, free) = (self.bands, self.free);
        self.evaluations += 1;
        self.unit.copy_from_slice(&self.trial);
        normalize(&mut self.unit, bands);
        let value = self.objective.evaluate(&self.unit, &mut self.raw);
        self.trial_gradient
            .par_chunks_mut(bands)
            .zip(self.raw.par_chunks(bands))
            .zip(self.unit.par_chunks(bands))
            .zip(self.trial.par_chunks(bands))
            .enumerate()
            .for_each(|(j, (((gradient, raw), unit), x))| {
                if j >= free {
                    gradient.fill(0.0);
                    return;
                }
                gradient.copy_from_slice(raw);
                project(unit, gradient);
                let norm = x.iter().map(|v| v * v).sum::<f64>().sqrt();
                gradient.iter_mut().for_each(|g| *g /= norm);
            });
        value
    }

    /// One quasi-Newton step with backtracking.
    pub(super) fn step(&mut self, preconditioner: &Preconditioner) -> Step {
        loop {
            self.measure_scale(preconditioner);
            let slope = self.aim(preconditioner);
            if slope < 0.0 && self.search(slope) {
                return Step::Moved { predicted: -0.5 * slope / self.value };
            }
            // `unit` and `raw` must describe the current point again after a failed search.
            self.trial.copy_from_slice(&self.x);
            self.value = self.evaluate();
            if self.history.is_empty() {
                return Step::Stalled;
            }
            self.history.clear();
            self.scale_age = SCALE_LIFETIME;
        }
    }

    /// `gamma = s.y / y.Hy` for the newest pair: without it the preconditioner's overall scale costs
    /// extra trials.
    fn measure_scale(&mut self, preconditioner: &Preconditioner) {
        self.scale_age += 1;
        if self.scale_age <= SCALE_LIFETIME {
            return;
        }
        if let Some((change, curvature)) = self.history.newest() {
            let mut image: Vec<f64> = change.iter().map(|&v| f64::from(v)).collect();
            preconditioner.apply(&self.unit, &mut image);
            let norm = dots(&image, &[change])[0];
            if norm > 0.0 && norm.is_finite() {
                self.scale = curvature / norm;
                self.scale_age = 0;
            }
        }
    }

    /// Fills `direction`; the slope along it.
    fn aim(&mut self, preconditioner: &Preconditioner) -> f64 {
        let Self { history, gradient, direction, unit, scale, free, bands, .. } = self;
        let end = *free * *bands;
        history.direction(gradient, direction, |v| {
            preconditioner.apply(unit, v);
            v[end..].fill(0.0);
            v.par_iter_mut().for_each(|v| *v *= *scale);
        });
        blockwise(gradient, direction, |a, b| a * b)
    }

    /// Backtracks along `direction`; on success moves there and records the pair.
    fn search(&mut self, slope: f64) -> bool {
        let mut length = 1.0;
        for _ in 0..LINE_SEARCH_TRIALS {
            let Self { trial, x, direction, .. } = self;
            trial
                .par_iter_mut()
                .zip(&*x)
                .zip(&*direction)
                .for_each(|((t, x), d)| *t = x + length * d);
            let value = self.evaluate();
            if value <= self.value + ARMIJO * length * slope + ROUNDING * self.value {
                let difference = |a: &[f64], b: &[f64]| {
                    a.par_iter().zip(b).map(|(a, b)| (a - b) as f32).collect()
                };
                let step = difference(&self.trial, &self.x);
                let change = difference(&self.trial_gradient, &self.gradient);
                self.history.push(step, change);
                self.value = value;
                std::mem::swap(&mut self.x, &mut self.trial);
                std::mem::swap(&mut self.gradient, &mut self.trial_gradient);
                return true;
            }
            self.scale_age = SCALE_LIFETIME;
            // Minimiser of the parabola through both values and the slope.
            let excess = value - self.value - slope * length;
            let vertex =
                if excess.is_finite() { -0.5 * slope * length * length / excess } else { 0.0 };
            length = vertex.clamp(0.1 * length, 0.5 * length);
        }
        false
    }
}
