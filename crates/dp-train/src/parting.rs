//! Parts of batches that are summed on their own.

use std::borrow::Cow;

use thiserror::Error;

use crate::plan::{PlanRequest, Sampling};

/// Examples of a part on average, and at most. A part of the latter size is a chance of 1e-19.
const USUAL_PART: usize = 48;
pub(crate) const MOST_IN_PART: usize = 128;

/// Examples whose gradients a device adds up in f32.
pub const BLOCK: usize = 16;

/// How batches are cut into parts that are summed on their own, so that an example which is missing changes the rounding of
/// its own part only ([`SUM_ROUNDING`](crate::gradient::SUM_ROUNDING)).
///
/// In a fixed order every batch is one part: the place of an example that is zeroed stays. Where batches are secret the
/// neighbour of an example in its batch is none there, and the examples behind it move up; so the number of an example
/// says which part it is in, whoever else is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parting {
    /// Parts, and by what the number of an example is divided first: those of one Poisson group differ by it. None where a
    /// batch is one part, whatever its size.
    by_number: Option<(u32, u32)>,
}

impl Parting {
    /// That of a plan.
    pub fn of(request: &PlanRequest) -> Self {
        let parts = request.batch_size.div_ceil(USUAL_PART).clamp(1, 1 << 20) as u32;
        let stride = u32::try_from(request.min_separation).unwrap_or(u32::MAX).max(1);
        let by_number = match request.sampling {
            Sampling::FixedOrder => None,
            Sampling::BallsInBins => Some((parts, 1)),
            Sampling::Poisson | Sampling::CyclicPoisson => Some((parts, stride)),
        };
        Self { by_number }
    }

    /// The parts of a batch that have examples, in order. O(batch).
    ///
    /// # Errors
    /// [`LargePart`] if there are too many in a part of a secret batch for what is proven of its sum.
    pub fn parts(self, batch: &[u32]) -> Result<Vec<Cow<'_, [u32]>>, LargePart> {
        let Some((count, stride)) = self.by_number else {
            return Ok(if batch.is_empty() { Vec::new() } else { vec![Cow::Borrowed(batch)] });
        };
        let mut parts = vec![Vec::new(); count as usize];
        for &example in batch {
            parts[(example / stride % count) as usize].push(example);
        }
        parts.retain(|part| !part.is_empty());
        match parts.iter().map(Vec::len).find(|&examples| examples > MOST_IN_PART) {
            Some(examples) => Err(LargePart { examples }),
            None => Ok(parts.into_iter().map(Cow::Owned).collect()),
        }
    }
}

impl Parting {
    /// The examples of a batch in slots, of which a device sums every [`BLOCK`] by themselves: parts begin at such a block, and what is
    /// left of their last one stays empty. O(batch).
    ///
    /// # Errors
    /// [`LargePart`], as [`parts`](Self::parts).
    pub fn slots(self, batch: &[u32]) -> Result<Vec<Option<u32>>, LargePart> {
        let mut slots = Vec::new();
        for part in self.parts(batch)? {
            slots.resize(slots.len().next_multiple_of(BLOCK), None);
            slots.extend(part.iter().map(|&example| Some(example)));
        }
        Ok(slots)
    }
}

/// A part of a batch has more examples than a sum may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a part of a secret batch has {examples} examples, more than the rounding of its sum is proven for: this does not \
     happen by chance"
)]
pub struct LargePart {
    examples: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_that_is_missing_changes_its_own_part_only() {
        let request = |sampling| {
            PlanRequest {
                min_separation: 3,
                ..PlanRequest::new(
                    mf_core::Method::Identity,
                    mf_core::Sgd::new(1.0, 0.0).unwrap(),
                    mf_core::Participation::epochs(2, 3).unwrap(),
                    crate::Budget { epsilon: 1.0, delta: 1e-5 },
                    crate::Clipping { batch_size: 500, clip_norm: 1.0 },
                    1,
                )
            }
            .with_sampling(sampling)
        };
        let batch: Vec<u32> = (0..1000).map(|i| 3 * i * i % 5000 / 3 * 3).collect();
        for sampling in [Sampling::BallsInBins, Sampling::CyclicPoisson] {
            let parting = Parting::of(&request(sampling));
            let all = parting.parts(&batch[..400]).unwrap();
            assert!(all.len() > 8, "{}", all.len());
            assert_eq!(all.iter().map(|part| part.len()).sum::<usize>(), 400);
            for missing in [0, 17, 399] {
                let mut fewer = batch[..400].to_vec();
                fewer.remove(missing);
                let fewer = parting.parts(&fewer).unwrap();
                let changed = all.iter().filter(|part| !fewer.contains(part)).count();
                assert_eq!(changed, 1);
            }
            assert!(parting.parts(&[]).unwrap().is_empty());
            assert!(parting.parts(&vec![6; 129]).is_err() && parting.parts(&vec![6; 128]).is_ok());
        }
        let whole = Parting::of(&request(Sampling::FixedOrder));
        assert_eq!(whole.parts(&batch).unwrap(), [&batch[..]]);
        // Small batches on average are one part, and no less checked.
        let small = |sampling| Parting::of(&PlanRequest { batch_size: 10, ..request(sampling) });
        for sampling in [Sampling::BallsInBins, Sampling::Poisson] {
            assert!(small(sampling).parts(&batch[..128]).is_ok());
            assert!(small(sampling).parts(&batch[..129]).is_err());
        }
        assert!(small(Sampling::FixedOrder).parts(&batch).is_ok());
    }
}
