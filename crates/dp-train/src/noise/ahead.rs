//! A row ahead, and back again: a stream whose next row is drawn before it is known whether a checkpoint comes first.

use super::{NoiseError, NoiseStream, State};

/// What a row overwrites in a stream.
pub(crate) struct Overwritten {
    /// The sums of buffers; what the other states overwrite they can draw again.
    sums: Option<Vec<f64>>,
}

impl NoiseStream {
    /// As [`add_next`](Self::add_next), with what [`take_back`](Self::take_back) needs.
    ///
    /// # Errors
    /// As [`add_next`](Self::add_next).
    pub(crate) fn add_ahead(
        &mut self,
        scale: f64,
        target: &mut [f64],
    ) -> Result<Overwritten, NoiseError> {
        let sums = match &self.state {
            State::Buffers(state) => Some(state.sums.clone()),
            State::Recurrence(_) | State::Taps(_) => None,
        };
        self.add_next(scale, target)?;
        Ok(Overwritten { sums })
    }

    /// The stream before its last row, which must not be used then: it comes again, with the same bits.
    pub(crate) fn take_back(&mut self, row: Overwritten) {
        self.next_step -= 1;
        let (at, dim) = (super::Address { key: self.key.bytes(), step: self.next_step }, self.dim);
        match (&mut self.state, row.sums) {
            // Rows that are computed are in the history, where those ahead of the next step are too.
            (State::Recurrence(state), _) if state.history.is_empty() => state.computed = at.step,
            (State::Recurrence(_), _) => {}
            (State::Taps(state), _) => state.take_back(at, dim),
            (State::Buffers(state), Some(sums)) => state.sums = sums,
            (State::Buffers(_), None) => unreachable!("the row is of this stream"),
        }
    }
}

#[cfg(test)]
mod tests {
    use mf_core::{Factorization, Method, Participation, Sgd, Strategy, Workload};

    use super::*;
    use crate::seeds::{NoiseKey, RunSeed};

    const DIM: usize = 2100;

    fn strategies() -> Vec<Strategy> {
        let workload = Workload::sgd(Sgd::new(1.0, 0.9).unwrap(), 40).unwrap();
        let participation = Participation::new(40, 10, 4).unwrap();
        let of = |method| {
            Factorization::for_participation(workload.clone(), method, &participation)
                .unwrap()
                .strategy()
                .clone()
        };
        vec![
            of(Method::Identity),
            of(Method::Bsr { bands: 7 }),
            of(Method::Bisr { bands: 5 }),
            of(Method::Blt { buffers: 2 }),
        ]
    }

    #[test]
    fn a_row_that_is_taken_back_comes_again_and_leaves_no_trace() {
        for strategy in strategies() {
            let stream = || NoiseStream::new(strategy.clone(), DIM, NoiseKey::fixed(RunSeed(3)));
            let (mut plain, mut ahead) = (stream().unwrap(), stream().unwrap());
            for step in 0..40 {
                let [mut expected, mut lost, mut found] = [(); 3].map(|()| vec![0.0; DIM]);
                plain.add_next(2.0, &mut expected).unwrap();
                // Every row is drawn twice, and some checkpoints lie between.
                let row = ahead.add_ahead(2.0, &mut lost).unwrap();
                ahead.take_back(row);
                if step % 3 == 0 {
                    let mut bytes = Vec::new();
                    ahead.save(&mut bytes).unwrap();
                    ahead = NoiseStream::load(strategy.clone(), DIM, bytes.as_slice()).unwrap();
                }
                assert_eq!(ahead.next_step(), step);
                let _ = ahead.add_ahead(2.0, &mut found).unwrap();
                assert_eq!((&lost, &found), (&expected, &expected), "step {step}");
            }
            assert!(ahead.add_ahead(2.0, &mut vec![0.0; DIM]).is_err());
        }
    }
}
