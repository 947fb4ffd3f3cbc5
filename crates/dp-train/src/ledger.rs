//! The ledger: who took part when, checked against the plan while it happens.

use mf_core::Participation;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::seeds::NoEntropy;

/// Every example's last step and number of uses, and what continues what.
///
/// # Guarantees
/// * Steps are recorded one after the other, at most `n`.
/// * An example used again before `b` steps are over, or more than `k` times, is an error, and the
///   step is not recorded: the sensitivity would not cover it.
/// * One that is read from a file is one that could have been recorded, or it is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Ledger {
    run_id: String,
    participation: Participation,
    next_step: usize,
    /// Steps at which the run was resumed from a checkpoint.
    continued_at: Vec<usize>,
    /// One entry per example of the data set.
    examples: Vec<Uses>,
    least_gap: Option<usize>,
}

/// The uses of one example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Uses {
    last_step: Option<u32>,
    count: u32,
}

/// The same fields before they were checked: what a file says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    run_id: String,
    participation: Participation,
    next_step: usize,
    continued_at: Vec<usize>,
    examples: Vec<Uses>,
    least_gap: Option<usize>,
}

impl TryFrom<Unchecked> for Ledger {
    type Error = Impossible;

    fn try_from(raw: Unchecked) -> Result<Self, Impossible> {
        let Unchecked { run_id, participation, next_step, continued_at, examples, least_gap } = raw;
        let (n, b) = (participation.steps(), participation.min_separation());
        let k = participation.max_participations();
        let possible = |uses: &Uses| match uses.last_step {
            None => uses.count == 0,
            // As many uses as it has, all of them apart, up to the last.
            Some(last) => {
                let (last, count) = (last as usize, uses.count as usize);
                (1..=k).contains(&count) && last < next_step && (count - 1) * b <= last
            }
        };
        let used_twice = examples.iter().any(|uses| uses.count > 1);
        let gap_possible = match least_gap {
            None => !used_twice,
            Some(gap) => used_twice && gap >= b && gap < next_step,
        };
        let continued = continued_at.is_sorted() && continued_at.iter().all(|at| *at <= next_step);
        if next_step <= n && examples.iter().all(possible) && gap_possible && continued {
            Ok(Self { run_id, participation, next_step, continued_at, examples, least_gap })
        } else {
            Err(Impossible)
        }
    }
}

/// A ledger in a file that no run can have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the ledger contradicts its own participation: no run can have written it")]
pub struct Impossible;

impl Uses {
    /// Steps from the last use to this one.
    fn gap(&self, step: usize) -> Option<usize> {
        self.last_step.map(|last| step.saturating_sub(last as usize))
    }
}

/// What the ledger saw, for the certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Realized {
    /// Random name of the run.
    pub run_id: String,
    /// Steps that were taken.
    pub steps: usize,
    /// Examples that the ledger knows.
    pub examples: usize,
    /// Examples that were used at least once. This and the two that follow are 0 or none where they would tell of secret
    /// batches.
    pub examples_used: usize,
    /// Smallest distance between two uses of one example; none if none was used twice.
    pub least_gap: Option<usize>,
    /// Most uses of one example.
    pub most_uses: usize,
    /// Steps at which the run was resumed from a checkpoint.
    pub continued_at: Vec<usize>,
}

impl Realized {
    /// What may be told where batches are secret: how many examples were used, and how often, is then nobody's business
    /// unless it follows from the steps alone, as after whole epochs of balls-in-bins.
    pub(crate) fn without_uses(self) -> Self {
        Self { examples_used: 0, least_gap: None, most_uses: 0, ..self }
    }
}

impl Ledger {
    /// An empty ledger for a data set, with a random run id of 128 bits.
    ///
    /// # Errors
    /// [`NoEntropy`] if the operating system has no random bytes.
    pub fn new(participation: Participation, examples: u32) -> Result<Self, NoEntropy> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|_| NoEntropy)?;
        Ok(Self {
            run_id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            participation,
            next_step: 0,
            continued_at: Vec::new(),
            examples: vec![Uses { last_step: None, count: 0 }; examples as usize],
            least_gap: None,
        })
    }

    /// Records the examples of a step. To be called before their gradients are used. O(batch).
    ///
    /// # Errors
    /// [`Violation`], and nothing is recorded: the run has to stop.
    pub fn record(&mut self, step: usize, batch: &[u32]) -> Result<(), Violation> {
        let (n, b) = (self.participation.steps(), self.participation.min_separation());
        let k = self.participation.max_participations();
        if step != self.next_step {
            return Err(Violation::Step { expected: self.next_step, found: step });
        }
        let now = match u32::try_from(step) {
            Ok(now) if step < n => now,
            _ => return Err(Violation::TooManySteps { steps: n }),
        };
        let known = self.examples.len();
        if let Some(&example) = batch.iter().find(|example| **example as usize >= known) {
            return Err(Violation::Unknown { example, known });
        }
        let mut sorted = batch.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Violation::Separation { example: twice[0], gap: 0, least: b });
        }
        for &example in batch {
            let uses = &self.examples[example as usize];
            if let Some(gap) = uses.gap(step).filter(|gap| *gap < b) {
                return Err(Violation::Separation { example, gap, least: b });
            }
            if uses.count as usize >= k {
                return Err(Violation::Participations { example, most: k });
            }
        }
        for &example in batch {
            let uses = &mut self.examples[example as usize];
            if let Some(gap) = uses.gap(step) {
                self.least_gap = Some(self.least_gap.map_or(gap, |least| least.min(gap)));
            }
            *uses = Uses { last_step: Some(now), count: uses.count + 1 };
        }
        self.next_step += 1;
        Ok(())
    }

    /// Notes that the run continues from a checkpoint.
    pub fn continue_here(&mut self) {
        self.continued_at.push(self.next_step);
    }

    /// The step that comes next, counted from 0.
    pub fn next_step(&self) -> usize {
        self.next_step
    }

    /// Who may take part when.
    pub(crate) fn participation(&self) -> Participation {
        self.participation
    }

    /// Random name of the run, the same after a continuation.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// What was seen so far.
    pub fn realized(&self) -> Realized {
        Realized {
            run_id: self.run_id.clone(),
            steps: self.next_step,
            examples: self.examples.len(),
            examples_used: self.examples.iter().filter(|uses| uses.count > 0).count(),
            least_gap: self.least_gap,
            most_uses: self.examples.iter().map(|uses| uses.count).max().unwrap_or(0) as usize,
            continued_at: self.continued_at.clone(),
        }
    }
}

/// What happened that the plan does not cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// A step was left out or done twice.
    #[error("step {expected} comes next, but step {found} was recorded")]
    Step {
        /// The step that comes next.
        expected: usize,
        /// The step that was recorded.
        found: usize,
    },
    /// More steps than the sensitivity is for.
    #[error("the privacy guarantee is for {steps} steps, and all have been taken")]
    TooManySteps {
        /// `n`.
        steps: usize,
    },
    /// An example came back too early.
    #[error("example {example} came back after {gap} steps; the plan is for at least {least}")]
    Separation {
        /// The example.
        example: u32,
        /// Steps since its last use.
        gap: usize,
        /// `b`.
        least: usize,
    },
    /// An example was used too often.
    #[error("example {example} was to be used more than {most} times")]
    Participations {
        /// The example.
        example: u32,
        /// `k`.
        most: usize,
    },
    /// An example that the data set does not have.
    #[error("example {example} does not exist; there are {known}")]
    Unknown {
        /// The example.
        example: u32,
        /// Examples in the data set.
        known: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger::new(Participation::new(10, 3, 2).unwrap(), 5).unwrap()
    }

    #[test]
    fn allowed_patterns_are_recorded() {
        let mut ledger = ledger();
        for (step, batch) in [&[0, 1][..], &[2], &[], &[1, 0], &[3]].into_iter().enumerate() {
            ledger.record(step, batch).unwrap();
        }
        let realized = ledger.realized();
        assert_eq!((realized.steps, realized.examples, realized.examples_used), (5, 5, 4));
        assert_eq!((realized.least_gap, realized.most_uses), (Some(3), 2));
    }

    #[test]
    fn violations_are_named_and_leave_no_trace() {
        let mut ledger = ledger();
        ledger.record(0, &[0, 1]).unwrap();
        ledger.record(1, &[]).unwrap();
        let before = ledger.clone();
        let cases = [
            (2, &[2, 1][..], Violation::Separation { example: 1, gap: 2, least: 3 }),
            (2, &[3, 3], Violation::Separation { example: 3, gap: 0, least: 3 }),
            (3, &[2], Violation::Step { expected: 2, found: 3 }),
            (1, &[2], Violation::Step { expected: 2, found: 1 }),
            (2, &[5], Violation::Unknown { example: 5, known: 5 }),
        ];
        for (step, batch, violation) in cases {
            assert_eq!(ledger.record(step, batch), Err(violation));
            assert_eq!(ledger, before);
        }
        (2..10).for_each(|step| ledger.record(step, &[0][usize::from(step != 4)..]).unwrap());
        assert_eq!(ledger.record(10, &[]), Err(Violation::TooManySteps { steps: 10 }));
    }

    #[test]
    fn a_ledger_that_no_run_can_have_written_is_not_read() {
        let mut ledger = ledger();
        for (step, batch) in [&[0, 1][..], &[2], &[], &[1, 0], &[3]].into_iter().enumerate() {
            ledger.record(step, batch).unwrap();
        }
        ledger.continue_here();
        let text = serde_json::to_string(&ledger).unwrap();
        assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
        let twice = r#"{"last_step":3,"count":2}"#;
        for (from, to) in [
            (twice, r#"{"last_step":3,"count":4}"#),
            (twice, r#"{"last_step":3,"count":0}"#),
            (twice, r#"{"last_step":null,"count":2}"#),
            (twice, r#"{"last_step":2,"count":2}"#),
            (twice, r#"{"last_step":5,"count":2}"#),
            (r#""least_gap":3"#, r#""least_gap":2"#),
            (r#""least_gap":3"#, r#""least_gap":null"#),
            (r#""next_step":5"#, r#""next_step":11"#),
            (r#""continued_at":[5]"#, r#""continued_at":[6]"#),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            let read = serde_json::from_str::<Ledger>(&text.replacen(from, to, 1));
            assert!(read.is_err(), "{to}");
        }
    }

    #[test]
    fn the_third_use_is_one_too_many() {
        let mut ledger = ledger();
        for step in 0..9 {
            let batch: &[u32] = if step == 0 || step == 4 { &[4] } else { &[] };
            ledger.record(step, batch).unwrap();
        }
        assert_eq!(ledger.record(9, &[4]), Err(Violation::Participations { example: 4, most: 2 }));
    }
}
