//! What an accepted certificate may say: no more than the honest one, whatever the verifier thinks.

use std::collections::BTreeMap;

use dp_train::calibration;
use dp_train::certificate::Certificate;
use dp_train::plan::DpPlan;
use serde_json::Value;

use crate::fuzzing::json;

/// What the verifier does not look at and need not: what is compared with the files of a run, names, and how far a
/// run got within its plan. The noise seed of these runs is fixed, so their statement claims nothing that trials and
/// held-out examples could change.
const FREE: [&str; 9] = [
    "trials",
    "held_out_examples",
    "features",
    "metrics",
    "artifacts",
    "realised.run_id",
    "realised.examples",
    "realised.steps",
    "realised.continued_at",
];

/// What may change as long as the noise is enough for it, which [`judge`] derives anew.
const DERIVED: [&str; 5] = [
    "plan.request.learning_rates",
    "plan.request.method.",
    "plan.request.strategy_for",
    "plan.request.dim",
    "plan.request.max_participations",
];

/// Sizes for which the verifier takes longer than a fuzzer has, O(n^2 p). Sizes that it refuses at sight are let
/// through.
pub(crate) fn is_slow(certificate: &Certificate) -> bool {
    const MANY: usize = 64;
    let plan = &certificate.plan;
    let steps = plan.request.steps.max(plan.participation.steps());
    let width = plan.bands.max(plan.participation.max_participations()).max(1);
    steps > MANY && steps.saturating_mul(width) <= 1 << 27
}

/// Whether everything that an accepted certificate says is true or known from the honest one.
pub(crate) fn judge(
    certificate: &Certificate,
    honest: &BTreeMap<String, Value>,
) -> Result<(), String> {
    let tree = serde_json::to_value(certificate).map_err(|error| error.to_string())?;
    let leaves = json::leaves(&tree);
    // Parts of two honest certificates can make a third: then its numbers are those of a plan of its own.
    let planned = DpPlan::new(certificate.plan.request.clone()).ok();
    let planned = planned.and_then(|plan| serde_json::to_value(plan.record()).ok());
    let planned = planned.map_or_else(BTreeMap::new, |record| json::leaves(&record));
    let is_one_of = |path: &str, list: &[&str]| list.iter().any(|start| path.starts_with(start));
    for path in leaves.keys().chain(honest.keys()) {
        let (now, then) = (leaves.get(path), honest.get(path));
        let known = is_one_of(path, &FREE) || is_one_of(path, &DERIVED);
        let strategy = path.starts_with("strategy") || path.starts_with("toeplitz");
        let own = path.strip_prefix("plan.").and_then(|path| planned.get(path));
        if !known && !strategy && !is_same(now, then) && !is_same(now, own) {
            return Err(format!("accepted with {path} = {now:?}, it was {then:?}"));
        }
    }
    enough_noise(certificate)
}

/// Equal, or numbers that are as close as the verifier asks for.
fn is_same(now: Option<&Value>, then: Option<&Value>) -> bool {
    let number = |value: Option<&Value>| value.and_then(Value::as_f64);
    let close = |(a, b): (f64, f64)| (a / b - 1.0).abs() < 1e-6;
    now == then || number(now).zip(number(then)).is_some_and(close)
}

/// The noise suffices for the claim by the closed form, with the sensitivity that the verifier derived.
fn enough_noise(certificate: &Certificate) -> Result<(), String> {
    let (plan, request) = (&certificate.plan, &certificate.plan.request);
    let needed = calibration::multiplier(request.epsilon, request.delta)
        .map_err(|error| format!("accepted, but {error}"))?;
    let moved = request.clip_norm * (1.0 + plan.sum_rounding);
    let unit = plan.sensitivity.value * moved * request.neighbouring.factor();
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
