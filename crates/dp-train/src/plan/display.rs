//! A plan in a few lines.

use std::fmt;

use mf_core::{Noising, Strategy};

use super::{DpPlan, Sampling};

/// What is special about a strategy, in a few words.
fn shape(strategy: &Strategy) -> String {
    match strategy.noising() {
        Noising::Recurrence => format!("{} of {} bands", strategy.bands(), strategy.steps()),
        Noising::Taps([_, next]) => format!("inverse 1, {next:.6}"),
        Noising::Taps(taps) => format!("{} bands of the inverse", taps.len()),
        Noising::Buffers(buffers) => format!("{} buffers", buffers.len()),
    }
}

impl fmt::Display for DpPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plan, ask) = (&self.record, &self.record.request);
        let neighbours = ask.neighbouring;
        let kind = if plan.sensitivity.exact { "exact" } else { "upper bound" };
        let (n, b) = (plan.participation.steps(), plan.participation.min_separation());
        let k = plan.participation.max_participations();
        writeln!(
            f,
            "privacy            epsilon {}, delta {:e}; {neighbours}",
            ask.epsilon, ask.delta
        )?;
        writeln!(f, "steps              n = {n}, b = {b}, k = {k}")?;
        writeln!(f, "strategy           {}, {}", ask.method, shape(&self.strategy))?;
        writeln!(
            f,
            "sensitivity        {:.6} ({kind}, {:?})",
            plan.sensitivity.value, plan.sensitivity.method
        )?;
        writeln!(f, "noise multiplier   {:.6}", plan.noise_multiplier)?;
        if let Some(found) = &plan.amplification {
            // Poisson batches have another sensitivity than a fixed order, so their multipliers cannot be compared.
            let beside = match ask.sampling {
                Sampling::BallsInBins => {
                    format!("{:.6} in a fixed order", found.unamplified_multiplier)
                }
                _ => {
                    format!("noise {:.6} of what one example moves a step", plan.step_multiplier())
                }
            };
            writeln!(
                f,
                "sampling           {}: {beside}; delta at most {:.3e} (remove), {:.3e} (add)",
                ask.sampling, found.delta_remove, found.delta_add
            )?;
        }
        writeln!(f, "clip norm          {}, batch size {}", ask.clip_norm, ask.batch_size)?;
        writeln!(f, "noise std          {:.6} per coordinate of Z", plan.noise_std)?;
        writeln!(
            f,
            "expected error     {:.6}, final {:.6}",
            plan.loss.expected_error, plan.loss.final_error
        )?;
        writeln!(
            f,
            "noise on iterates  {:.6}, final {:.6}",
            plan.iterate_noise_std, plan.final_iterate_noise_std
        )?;
        writeln!(
            f,
            "noise history      {} rows, {} bytes for {} parameters",
            plan.history_rows(),
            plan.history_bytes,
            ask.dim
        )?;
        write!(f, "strategy SHA-256   {}", plan.strategy_sha256)
    }
}
