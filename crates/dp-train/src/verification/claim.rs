//! What a certificate says in words, and what was asked for.

use super::Verdict;
use crate::certificate::{
    Certificate, FORMAT, FORMAT_1, GENERATOR, GENERATOR_1, GENERATOR_ON_DEVICE, LIMITS, LIMITS_1,
    LIMITS_OF_MODULE, LIMITS_ON_DEVICE,
};
use crate::plan::Sampling;

impl Verdict {
    /// The sentences of the certificate are those that its numbers make.
    pub(super) fn check_claim(&mut self, certificate: &Certificate) {
        let Certificate { format, generator, limits, statement, trials, .. } = certificate;
        let known = [FORMAT, FORMAT_1].contains(&format.as_str());
        self.find(known, format!("format: {format}"));
        let first = format == FORMAT_1;
        let on_device = !first && generator == GENERATOR_ON_DEVICE;
        let (expected_generator, expected_limits) = match (first, on_device) {
            (true, _) => (GENERATOR_1, LIMITS_1),
            (false, true) => (GENERATOR_ON_DEVICE, LIMITS_ON_DEVICE),
            (false, false) if certificate.artifacts.module_sha256.is_some() => {
                (GENERATOR, LIMITS_OF_MODULE)
            }
            (false, false) => (GENERATOR, LIMITS),
        };
        self.find(generator == expected_generator, format!("generator: {generator}"));
        self.find(limits == expected_limits, format!("limits: {limits}"));
        let derived = certificate.derived_statement();
        let same = *statement == derived;
        self.find(
            same,
            match same {
                true => format!("statement: {statement}"),
                false => format!(
                    "statement: {statement:?} claimed, {derived:?} derived from epsilon, delta, neighbouring, \
                     noise_key, held_out_examples, provenance, trials, tried and selection"
                ),
            },
        );
        self.find(*trials > 0, format!("trials: {trials}"));
        if let Some(key) = certificate.sampling_key {
            let secret = certificate.plan.request.sampling != Sampling::FixedOrder;
            let detail = match secret {
                true => format!("sampling_key: {key}, which is a {}", certificate.noise_key),
                false => "sampling_key: given, but a fixed order has none".to_string(),
            };
            self.find(secret, detail);
        }
        for origin in &certificate.provenance {
            let hash = origin.parameters_sha256;
            let detail = format!("provenance: started from {origin}, parameters {hash}");
            self.find(origin.is_possible(), detail);
        }
        if first {
            let Certificate { held_out_examples, features, artifacts, provenance, .. } =
                certificate;
            let none = *held_out_examples == 0
                && certificate.sampling_key.is_none()
                && certificate.plan.request.sampling == Sampling::FixedOrder
                && features.is_none()
                && *artifacts == Default::default()
                && provenance.is_empty()
                && certificate.epsilon_all_trials.is_none()
                && certificate.tried.is_empty()
                && certificate.selection.is_none();
            let detail = "sampling, sampling_key, held_out_examples, features, artifacts, provenance, epsilon_all_trials and \
                          selection: format 1 has none";
            self.find(none, detail.to_string());
        }
    }

    /// The request can be planned for at all. Whatever else is derived relies on it.
    pub(super) fn check_request(&mut self, certificate: &Certificate) -> bool {
        let plan = &certificate.plan;
        let (checked, pattern) = (plan.request.check(), plan.request.participation());
        let holds = checked.is_ok() && pattern == Ok(plan.participation) && plan.bands > 0;
        self.find(
            holds,
            match checked {
                Ok(()) => {
                    "request: it can be planned for, and n, b and k are those of the plan".into()
                }
                Err(error) => format!("request: {error}"),
            },
        );
        holds
    }
}
