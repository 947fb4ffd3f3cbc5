//! What an accepted certificate may say: no more than the honest one, whatever the verifier thinks.

use std::collections::BTreeMap;

use dp_train::calibration;
use dp_train::certificate::Certificate;
use serde_json::Value;

use crate::fuzzing::json;

/// What the verifier does not look at and need not: words, what utility rests on, and what only the run's
/// owner can know.
const FREE: [&str; 16] = [
    "statement",
    "limits",
    "metrics",
    "noise_key",
    "trials",
    "realised.",
    "plan.loss.",
    "plan.iterate_noise_std",
    "plan.final_iterate_noise_std",
    "plan.history_bytes",
    "plan.request.dim",
    "plan.request.keep_rows",
    "plan.request.batch_size",
    "plan.request.learning_rates",
    "plan.sensitivity.method",
    "plan.sensitivity.exact",
];

/// What may change as long as the noise is enough for it, which [`judge`] derives anew.
const DERIVED: [&str; 16] = [
    "plan.request.epsilon",
    "plan.request.delta",
    "plan.request.neighbouring",
    "plan.request.clip_norm",
    "plan.request.sgd.",
    "plan.request.method.",
    "plan.request.strategy_for",
    "plan.request.steps",
    "plan.request.min_separation",
    "plan.request.max_participations",
    "plan.participation.",
    "plan.noise_std",
    "plan.noise_multiplier",
    "plan.sensitivity.value",
    "plan.strategy_sha256",
    "plan.bands",
];

/// Sizes for which the verifier takes longer or more memory than a fuzzer has: O(n^2) time, and a table of
/// n times k numbers; and, with a recorded Toeplitz strategy of no bands, a column of any length, which
/// panics. Sizes that it refuses at sight are let through. To be narrowed when the verifier bounds them.
pub(crate) fn is_slow(certificate: &Certificate) -> bool {
    const MANY: usize = 64;
    let steps = [certificate.plan.request.steps, certificate.plan.participation.steps()];
    let recorded = certificate.toeplitz.is_some() && certificate.plan.bands == 0;
    steps.iter().any(|&n| n > MANY && (n <= 1 << 40 || recorded))
}

/// Wrong yeses that are known: a recorded strategy with a clip norm and noise below zero, whose signs cancel
/// (seed 3, index 21410). To be deleted when the verifier refuses it.
pub(crate) fn is_known(certificate: &Certificate) -> bool {
    certificate.plan.request.clip_norm < 0.0 && certificate.plan.noise_std < 0.0
}

/// Whether everything that an accepted certificate says is true or known from the honest one.
pub(crate) fn judge(
    certificate: &Certificate,
    honest: &BTreeMap<String, Value>,
) -> Result<(), String> {
    let tree = serde_json::to_value(certificate).map_err(|error| error.to_string())?;
    let leaves = json::leaves(&tree);
    let is_one_of = |path: &str, list: &[&str]| list.iter().any(|start| path.starts_with(start));
    for path in leaves.keys().chain(honest.keys()) {
        let (now, then) = (leaves.get(path), honest.get(path));
        let known = is_one_of(path, &FREE) || is_one_of(path, &DERIVED);
        if !known && !path.starts_with("strategy") && !path.starts_with("toeplitz") && now != then {
            return Err(format!("accepted with {path} = {now:?}, it was {then:?}"));
        }
    }
    enough_noise(certificate)
}

/// The noise suffices for the claim by the closed form, with the sensitivity that the verifier derived.
fn enough_noise(certificate: &Certificate) -> Result<(), String> {
    let (plan, request) = (&certificate.plan, &certificate.plan.request);
    let needed = calibration::multiplier(request.epsilon, request.delta)
        .map_err(|error| format!("accepted, but {error}"))?;
    let unit = plan.sensitivity.value * request.clip_norm * request.neighbouring.factor();
    let found = plan.noise_std / unit;
    // The verifier allows for 1e-8 in each of sensitivity, multiplier and epsilon; the multiplier is at most
    // as sensitive to epsilon as that.
    let enough = found >= needed * (1.0 - 1e-6);
    let usable = unit > 0.0 && unit.is_finite() && found.is_finite();
    if enough && usable {
        Ok(())
    } else {
        Err(format!("accepted with multiplier {found}, but the claim needs {needed}"))
    }
}
