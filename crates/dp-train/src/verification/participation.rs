//! Who was to take part, and who did.
//!
//! A run walks through one fixed order of its examples: of `N` examples in batches of `m` there are `N / m` batches
//! in an epoch, each example is used once per epoch, and uses are an epoch apart. So the number of steps decides
//! everything else that the ledger saw. Of secret batches the certificate tells only what follows from the steps.

use super::Verdict;
use crate::certificate::{Certificate, tells_uses};
use crate::plan::Sampling;

impl Verdict {
    /// What the ledger saw is within the plan, and what that many steps of a fixed order give.
    pub(super) fn check_participation(&mut self, certificate: &Certificate) {
        let (plan, realized) = (&certificate.plan, &certificate.realized);
        let (n, b) = (plan.participation.steps(), plan.participation.min_separation());
        let k = plan.participation.max_participations();
        self.find(realized.steps <= n, format!("realised.steps: {} of {n}", realized.steps));
        self.find(
            realized.least_gap.is_none_or(|gap| gap >= b),
            match realized.least_gap {
                Some(gap) => format!("realised.least_gap: {gap}, allowed from {b}"),
                None => "realised.least_gap: no example was used twice".to_string(),
            },
        );
        self.find(
            realized.most_uses <= k,
            format!("realised.most_uses: {}, allowed {k}", realized.most_uses),
        );
        match plan.request.sampling {
            Sampling::FixedOrder => self.check_fixed_order(certificate),
            _ => self.check_secret(certificate),
        }
        let steps = realized.steps;
        let continued = &realized.continued_at;
        self.find(
            continued.is_sorted() && continued.iter().all(|step| *step <= steps),
            format!("realised.continued_at: {continued:?} of {steps} steps"),
        );
        let id = &realized.run_id;
        self.find(
            id.len() == 32 && id.bytes().all(|c| c.is_ascii_hexdigit()),
            format!("realised.run_id: {id}"),
        );
    }

    fn check_fixed_order(&mut self, certificate: &Certificate) {
        let (plan, realized) = (&certificate.plan, &certificate.realized);
        let b = plan.participation.min_separation();
        let batch = plan.request.batch_size.max(1);
        let per_epoch = realized.examples / batch;
        self.find(
            per_epoch >= b,
            format!("realised.examples: {per_epoch} batches of {batch}, needed {b}"),
        );
        let steps = realized.steps;
        let expected = (
            steps.min(per_epoch).saturating_mul(batch),
            steps.div_ceil(per_epoch.max(1)),
            (steps > per_epoch).then_some(per_epoch),
        );
        let found = (realized.examples_used, realized.most_uses, realized.least_gap);
        self.find(
            found == expected,
            format!(
                "realised: {found:?} examples used, most uses, least gap; {expected:?} derived"
            ),
        );
    }

    /// Of secret batches only what follows from the steps is told: after whole epochs of balls-in-bins everyone was used
    /// once in each, `b` steps apart.
    fn check_secret(&mut self, certificate: &Certificate) {
        let (plan, realized) = (&certificate.plan, &certificate.realized);
        let b = plan.participation.min_separation().max(1);
        let epochs = realized.steps / b;
        let expected = match tells_uses(plan, realized.steps) && epochs > 0 {
            true => (realized.examples, epochs, (epochs > 1).then_some(b)),
            false => (0, 0, None),
        };
        let found = (realized.examples_used, realized.most_uses, realized.least_gap);
        let planned = plan.request.examples.is_none_or(|n| n == realized.examples as u64);
        self.find(
            found == expected && realized.examples > 0 && planned,
            format!(
                "realised: {found:?} of {} examples used, most uses, least gap; {expected:?} derived",
                realized.examples
            ),
        );
    }
}
