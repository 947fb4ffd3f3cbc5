//! The strategy of a certificate: derived from its method, or as it stands in the file.

use mf_core::{Factorization, Method, Strategy, StrategyRecord};

use super::reference::SlowStrategy;
use super::{TOLERANCE, Verdict};
use crate::certificate::Certificate;
use crate::fingerprint::Fingerprint;
use crate::plan::Sampling;

/// Entries of the largest tables that are made: 1 GiB of doubles.
const MOST_ENTRIES: usize = 1 << 27;

/// Multiplications that a sensitivity may take: about a minute.
const MOST_WORK: usize = 1 << 36;

impl Verdict {
    /// The strategy as training has it and as a slow table, both of as many rows as the pattern has steps.
    pub(super) fn check_strategy(
        &mut self,
        certificate: &Certificate,
    ) -> Option<(Strategy, SlowStrategy)> {
        let plan = &certificate.plan;
        let n = plan.participation.steps();
        let k = plan.participation.max_participations();
        let (bands, b) = (plan.bands, plan.participation.min_separation());
        // Where bands overlap, every column is charged with every other.
        let overlapping = if bands > b && k > 1 { n } else { 1 };
        let work = overlapping.saturating_mul(n).saturating_mul(k.max(bands));
        // The Gram matrix of slots is made by its definition.
        let slots = if plan.request.sampling == Sampling::BallsInBins { b } else { 1 };
        let work = work.max(n.saturating_mul(slots.saturating_mul(slots)));
        let few = |size: usize| n.saturating_mul(size.saturating_add(4)) <= MOST_ENTRIES;
        if !(few(bands) && few(k) && work <= MOST_WORK) {
            self.find(
                false,
                format!(
                    "bands: {n} steps, {bands} bands, {k} uses and {slots} slots are too many to check"
                ),
            );
            return None;
        }
        let rows =
            certificate.strategy.as_ref().map(|rows| StrategyRecord::Rows { rows: rows.clone() });
        let in_file = [rows.as_ref(), certificate.toeplitz.as_ref(), plan.strategy.as_ref()];
        let in_file: Vec<&StrategyRecord> = in_file.into_iter().flatten().collect();
        if plan.strategy.is_some() != (plan.request.method == Method::Own) {
            self.find(
                false,
                "plan.strategy: it belongs to method own, and to no other".to_string(),
            );
            return None;
        }
        let recorded = match in_file[..] {
            [] => None,
            [record] => Some(self.check_recorded_strategy(certificate, record)?),
            _ => {
                self.find(false, "strategy: the file has two".to_string());
                return None;
            }
        };
        // What a method has a formula for is derived even if the file brings it along.
        let has_formula = SlowStrategy::bands(&plan.request).is_some();
        match recorded {
            Some(recorded) if !has_formula => Some(recorded),
            _ => self.check_derived_strategy(certificate),
        }
    }

    /// The strategy by the definition of its method, beside the one that training computes.
    fn check_derived_strategy(
        &mut self,
        certificate: &Certificate,
    ) -> Option<(Strategy, SlowStrategy)> {
        let (plan, request) = (&certificate.plan, &certificate.plan.request);
        let n = request.steps;
        let feasible = SlowStrategy::bands(request) == Some(plan.bands);
        self.find(feasible, format!("strategy: {n} rows of {} entries by a formula", plan.bands));
        if !feasible {
            return None;
        }
        let computed = request.factorized_workload().and_then(|workload| {
            let pattern = plan.participation;
            Ok(Factorization::for_participation(workload, request.method, &pattern)?)
        });
        let computed = match computed {
            Ok(factorization) => factorization.strategy().clone(),
            Err(error) => {
                self.find(false, format!("request: it has no plan: {error}"));
                return None;
            }
        };
        let hash = Fingerprint::of(&computed);
        self.find(hash == plan.strategy_sha256, format!("strategy_sha256: {hash} derived"));
        let slow = SlowStrategy::new(request)?;
        let same_length = (0..n).all(|i| computed.row(i).len() == slow.rows[i].len());
        let difference = (0..n)
            .flat_map(|i| computed.row(i).iter().zip(&slow.rows[i]))
            .map(|(fast, slow)| (fast - slow).abs())
            .fold(0.0, f64::max);
        let largest = slow.rows.iter().flatten().fold(0.0, |most: f64, c| most.max(c.abs()));
        self.find(
            same_length && difference <= TOLERANCE * largest,
            format!("strategy: within {difference:.1e} of its definition"),
        );
        Some((computed, slow))
    }

    /// The strategy as it stands in the file. How it was found has no bearing on privacy.
    fn check_recorded_strategy(
        &mut self,
        certificate: &Certificate,
        recorded: &StrategyRecord,
    ) -> Option<(Strategy, SlowStrategy)> {
        let plan = &certificate.plan;
        let (n, p) = (plan.participation.steps(), plan.bands);
        let asked = match plan.request.method {
            Method::Aof { bands, .. } => bands == p,
            _ => true,
        };
        let shaped = match recorded {
            StrategyRecord::Rows { rows } => {
                asked
                    && rows.len() == n
                    && rows.iter().enumerate().all(|(i, row)| row.len() == p.min(i + 1))
            }
            _ => asked,
        };
        self.find(shaped, format!("strategy: {n} rows of at most {p} entries in the file"));
        if !shaped {
            return None;
        }
        match recorded.strategy(n) {
            Ok(strategy) => {
                let hash = Fingerprint::of(&strategy);
                let same = hash == plan.strategy_sha256 && strategy.bands() == p;
                self.find(same, format!("strategy_sha256: {hash} derived"));
                same.then(|| (strategy, SlowStrategy::recorded(recorded, n)))
            }
            Err(error) => {
                self.find(false, format!("strategy: {error}"));
                None
            }
        }
    }
}
