//! Who was to take part, and who did.
//!
//! A run walks through one fixed order of its examples: of `N` examples in batches of `m` there are `N / m` batches
//! in an epoch, each example is used once per epoch, and uses are an epoch apart. So the number of steps decides
//! everything else that the ledger saw. In balls-in-bins there are `b` batches in an epoch and no example is left out;
//! who was used in a part of an epoch is random.

use super::Verdict;
use crate::certificate::Certificate;
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
            Sampling::BallsInBins => self.check_slots(certificate),
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

    fn check_slots(&mut self, certificate: &Certificate) {
        let realized = &certificate.realized;
        let b = certificate.plan.participation.min_separation().max(1);
        let (epochs, rest) = (realized.steps / b, realized.steps % b);
        let used = realized.examples_used;
        let everyone =
            if epochs > 0 { used == realized.examples } else { used <= realized.examples };
        let uses = realized.most_uses;
        let turns = uses == epochs || (rest > 0 && uses == epochs + 1);
        let gap = realized.least_gap == (uses > 1).then_some(b);
        self.find(
            realized.examples > 0 && everyone && turns && gap,
            format!(
                "realised: {used} of {} examples used, most uses {uses}, least gap {:?}, in {epochs} epochs of {b} steps \
                 and {rest} more",
                realized.examples, realized.least_gap
            ),
        );
    }
}
