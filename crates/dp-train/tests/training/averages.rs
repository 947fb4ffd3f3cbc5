//! Averages of the iterates.

use dp_train::training::average::{Average, AverageError};
use dp_train::training::non_private::NonPrivateTraining;

use super::non_private::{mean, non_private_request};
use super::*;

fn averages() -> [Average; 3] {
    [Average::Ema { decay: 0.7 }, Average::Tail { from: 0.5 }, Average::Tail { from: 0.95 }]
}

fn bits(parameters: Option<Vec<f32>>) -> Option<Vec<u32>> {
    parameters.map(|parameters| parameters.iter().map(|x| x.to_bits()).collect())
}

#[test]
fn an_average_is_that_of_the_iterates_and_the_iterates_do_not_know_of_it() {
    let method = Method::Bsr { bands: 5 };
    for average in averages() {
        let (mut plain, mut averaged) = (start(method), start(method));
        averaged = averaged.with_average(average).unwrap();
        let mut iterates: Vec<Vec<f32>> = Vec::new();
        while !plain.is_finished() {
            plain.step(clip).unwrap();
            averaged.step(clip).unwrap();
            assert_eq!(plain.parameters(), averaged.parameters());
            iterates.push(plain.parameters().to_vec());
            assert_eq!(plain.average(), None);
        }
        // Of 15 steps, a half leaves out the first 7, and 0.95 of them the first 14.
        let weight = |s: usize| match average {
            Average::Ema { decay } => decay.powi(15 - s as i32),
            Average::Tail { from } => f64::from(s as f64 > (from * 15.0).floor()),
        };
        let weights: f64 = (1..=15).map(weight).sum();
        for (i, found) in averaged.average().unwrap().into_iter().enumerate() {
            let sum: f64 = (1..=15).map(|s| weight(s) * f64::from(iterates[s - 1][i])).sum();
            assert!((f64::from(found) - sum / weights).abs() < 1e-6, "{average:?}");
        }
    }
}

#[test]
fn a_continued_average_ends_with_the_same_bits() {
    let method = Method::Bsr { bands: 5 };
    for average in averages() {
        let mut whole = start(method).with_average(average).unwrap();
        let mut open =
            NonPrivateTraining::new(non_private_request(None), vec![0.1; 6], EXAMPLES, SEED)
                .and_then(|open| open.with_average(average))
                .unwrap();
        let mut saved = Vec::new();
        while !whole.is_finished() {
            let (mut private, mut bare) = (Vec::new(), Vec::new());
            whole.save(&mut private, &Seal::default(), b"").unwrap();
            open.save(&mut bare, &Seal::default(), b"").unwrap();
            saved.push((private, bare, bits(whole.average())));
            whole.step(clip).unwrap();
            open.step(mean).unwrap();
        }
        for (private, bare, so_far) in saved {
            let seal = Seal::default();
            let (mut continued, _) =
                Training::load(plan(method), EXAMPLES, 0.05, SEED, &seal, &private[..]).unwrap();
            assert_eq!(bits(continued.average()), so_far);
            while !continued.is_finished() {
                continued.step(clip).unwrap();
            }
            assert_eq!(bits(continued.average()), bits(whole.average()), "{average:?}");
            let request = non_private_request(None);
            let (mut continued, _) =
                NonPrivateTraining::load(request, EXAMPLES, SEED, &seal, &bare[..]).unwrap();
            while !continued.is_finished() {
                continued.step(mean).unwrap();
            }
            assert_eq!(bits(continued.average()), bits(open.average()), "{average:?}");
        }
    }
}

#[test]
fn an_average_begins_with_the_run_and_its_checkpoint_is_whole_or_refused() {
    let method = Method::Bsr { bands: 5 };
    let mut training = start(method).with_average(Average::Ema { decay: 0.9 }).unwrap();
    take(&mut training, 6);
    let mut bytes = Vec::new();
    training.save(&mut bytes, &Seal::default(), b"").unwrap();
    let load = |bytes: &[u8]| {
        Training::load(plan(method), EXAMPLES, 0.05, SEED, &Seal::default(), bytes).map(|_| ())
    };
    assert!(load(&bytes).is_ok());
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(load(&flipped).is_err(), "byte {at}");
        assert!(load(&bytes[..at]).is_err(), "cut after {at}");
    }
    let late = training.with_average(Average::Tail { from: 0.5 }).unwrap_err();
    assert_eq!(late, TrainingError::Average(AverageError::Begun { taken: 6 }));
    let wrong = start(method).with_average(Average::Ema { decay: 1.0 }).unwrap_err();
    assert_eq!(wrong, TrainingError::Average(AverageError::Decay { decay: 1.0 }));
    let old = bytes.iter().copied().zip(0..).map(|(byte, at)| if at == 14 { b'4' } else { byte });
    assert!(matches!(load(&old.collect::<Vec<_>>()), Err(ResumeError::Version)));
}
