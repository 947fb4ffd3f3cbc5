//! The sampler under test: are secret batches drawn as the accountant assumes?
//!
//! An attack on what is released can miss a sampler that is wrong, such as one whose batches anyone can compute. So the batches
//! themselves are looked at, over many keys: their structure exactly, and by counting, each within 6 deviations of what
//! independent draws give,
//!
//! * how often an example is in each slot, or in a batch;
//! * how often two examples are together, as they are too rarely where batches have one size;
//! * how often one example is in the same place under two keys, as it always is where the key has no part in it;
//! * for Poisson, how often it is there twice in a row.
//!
//! Fewer than a hundred counts for most plans: a correct sampler fails with a probability below 2e-6 (normal tails; each
//! count has thousands of trials).

use super::canary::CANARIES;
use super::report::AuditError;
use crate::batches::Batches;
use crate::plan::{DpPlan, Sampling};
use crate::seeds::{NoiseKey, RunSeed};

/// The canaries in the batch of every step.
pub type Drawn = Vec<Vec<u32>>;

/// Keys that are drawn from.
const KEYS: u64 = 2000;

/// Largest deviation of a count.
const LARGEST_DEVIATION: f64 = 6.0;

/// Slots whose counts are looked at.
const MOST_COUNTS: usize = 64;

/// What was found of the sampler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Findings {
    /// Whether every example is where it may be, as often as it must be.
    pub(super) is_structured: bool,
    /// Largest deviation of a count, in standard deviations.
    pub(super) deviation: f64,
}

impl Findings {
    pub(super) fn are_as_planned(self) -> bool {
        self.is_structured && self.deviation <= LARGEST_DEVIATION
    }
}

/// The batches of a plan for the canaries, as training draws them: the first examples of any number.
///
/// # Errors
/// [`AuditError::Batches`] if there are none.
pub fn drawn(plan: &DpPlan, key: &NoiseKey) -> Result<Drawn, AuditError> {
    let batches = Batches::of(plan.request(), CANARIES as u32, RunSeed(0), key)?;
    Ok((0..plan.request().steps).map(|step| batches.batch(step).into_owned()).collect())
}

/// A count of events with one probability.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    events: f64,
    trials: f64,
}

impl Count {
    fn add(&mut self, event: bool) {
        self.events += f64::from(u8::from(event));
        self.trials += 1.0;
    }

    /// From what is expected, in standard deviations.
    fn deviation(self, probability: f64) -> f64 {
        let variance = self.trials * probability * (1.0 - probability);
        let difference = (self.events - self.trials * probability).abs();
        // Where nothing is random nothing may differ.
        if variance > 0.0 { difference / variance.sqrt() } else { difference * f64::MAX }
    }
}

/// Looks at the batches under many keys. O(keys n CANARIES).
pub(super) fn findings(
    plan: &DpPlan,
    seed: RunSeed,
    draw: impl Fn(&NoiseKey) -> Result<Drawn, AuditError>,
) -> Result<Findings, AuditError> {
    let cycle = plan.request().min_separation;
    let mut drawings = Vec::new();
    for index in 0..KEYS {
        // Beyond the keys of the attack.
        drawings.push(draw(&NoiseKey::for_audit(seed, u64::MAX - index))?);
    }
    Ok(match plan.request().sampling {
        Sampling::FixedOrder | Sampling::BallsInBins => of_slots(&drawings, cycle),
        Sampling::Poisson | Sampling::CyclicPoisson => {
            of_poisson(&drawings, cycle, plan.request().probability().unwrap_or(1.0))
        }
    })
}

fn of_slots(drawings: &[Drawn], slots: usize) -> Findings {
    let mut is_structured = true;
    let mut slot_of = Vec::new();
    for drawn in drawings {
        let mut own = vec![usize::MAX; CANARIES];
        for (step, batch) in drawn.iter().enumerate() {
            for &example in batch {
                let own = &mut own[example as usize];
                is_structured &= step < slots && *own == usize::MAX || *own == step % slots;
                *own = step % slots;
            }
        }
        let size = |epoch: &[Vec<u32>]| epoch.iter().map(Vec::len).sum::<usize>();
        is_structured &= drawn.chunks_exact(slots).all(|epoch| size(epoch) == CANARIES);
        slot_of.push(own);
    }
    let (mut together, mut again) = (Count::default(), Count::default());
    let mut each = vec![Count::default(); slots.min(MOST_COUNTS)];
    for (index, own) in slot_of.iter().enumerate() {
        for pair in own.chunks_exact(2) {
            together.add(pair[0] == pair[1]);
        }
        for (example, slot) in own.iter().enumerate() {
            each.iter_mut().enumerate().for_each(|(i, count)| count.add(*slot == i));
            if index % 2 == 1 {
                again.add(slot_of[index - 1][example] == *slot);
            }
        }
    }
    let probability = 1.0 / slots as f64;
    let deviations = each.into_iter().chain([together, again]);
    let deviation = deviations.map(|count| count.deviation(probability)).fold(0.0, f64::max);
    Findings { is_structured, deviation }
}

fn of_poisson(drawings: &[Drawn], groups: usize, probability: f64) -> Findings {
    let mut is_structured = true;
    let [mut there, mut together, mut again, mut twice] = [Count::default(); 4];
    for (index, drawn) in drawings.iter().enumerate() {
        let is_in = |drawn: &Drawn, step: usize, example: usize| {
            drawn[step].binary_search(&(example as u32)).is_ok()
        };
        for step in 0..drawn.len() {
            let group = step % groups;
            is_structured &= drawn[step].is_sorted()
                && drawn[step].iter().all(|example| *example as usize % groups == group);
            for example in (group..CANARIES).step_by(groups) {
                let is_there = is_in(drawn, step, example);
                there.add(is_there);
                let pair = example / groups;
                if pair % 2 == 1 {
                    together.add(is_there && is_in(drawn, step, example - groups));
                }
                if (step / groups) % 2 == 1 {
                    twice.add(is_there && is_in(drawn, step - groups, example));
                }
                if index % 2 == 1 {
                    again.add(is_there && is_in(&drawings[index - 1], step, example));
                }
            }
        }
    }
    let both = probability * probability;
    let pairs = [together, again, twice].map(|count| count.deviation(both));
    let deviation = pairs.into_iter().fold(there.deviation(probability), f64::max);
    Findings { is_structured, deviation }
}
