//! The least noise that is enough.

use super::AccountingError;

/// Where and how closely to look for the least noise.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    /// A noise that surely is enough.
    pub(super) enough: f64,
    /// The factor, below 1, by which the noise is lowered until it is too little.
    pub(super) lower_by: f64,
    /// The relative width to which the root is bracketed.
    pub(super) tolerance: f64,
}

impl Search {
    /// From noise that may be far too much to about eight digits.
    pub(super) fn from(enough: f64) -> Self {
        Self { enough, lower_by: 0.5, tolerance: 1e-8 }
    }
}

/// A noise with `excess(noise) <= 0`, within a few tolerances of the least such one.
///
/// `excess` is a falling function of the noise such as `ln(delta(noise) / delta)`, up to rounding. Brackets first, then
/// takes steps of the secant that are kept inside the bracket (the Illinois rule, in the logarithm of the noise). About
/// ten evaluations. The result was itself evaluated.
///
/// # Errors
/// Those of `excess`, and [`AccountingError::OutOfRange`] if `enough` is not, or everything is.
pub(super) fn least_noise(
    search: Search,
    delta: f64,
    mut excess: impl FnMut(f64) -> Result<f64, AccountingError>,
) -> Result<f64, AccountingError> {
    let Search { enough, lower_by, tolerance } = search;
    let out_of_range = AccountingError::OutOfRange { delta };
    // Infinite excesses would make the secant useless.
    let mut bounded = |x: f64| excess(x.exp()).map(|y| y.clamp(-40.0, 40.0));
    let mut high = (enough.ln(), bounded(enough.ln())?);
    if high.1.is_nan() || high.1 > 0.0 {
        return Err(out_of_range);
    }
    let mut low = high;
    while low.1 <= 0.0 {
        high = low;
        low.0 += lower_by.ln();
        low.1 = bounded(low.0)?;
        if low.0 < -60.0 || low.1.is_nan() {
            return Err(out_of_range);
        }
    }
    let (mut low_value, mut high_value, mut last) = (low.1, high.1, 0);
    for _ in 0..200 {
        let width = high.0 - low.0;
        if width <= tolerance || high.1 == 0.0 {
            break;
        }
        // The secant aims a little above the root: the next bracket is then narrow and its upper end is enough.
        let share = (high_value / (high_value - low_value)).clamp(0.0, 1.0);
        let aim = high.0 - width * share + 0.3 * tolerance;
        let x = aim.clamp(low.0 + 1e-3 * width.min(1e-6), high.0 - 0.2 * tolerance.min(width));
        let y = bounded(x)?;
        if y <= 0.0 {
            high = (x, y);
            high_value = y;
            if last == 1 {
                low_value *= 0.5;
            }
            last = 1;
        } else {
            low = (x, y);
            low_value = y;
            if last == -1 {
                high_value *= 0.5;
            }
            last = -1;
        }
    }
    Ok(high.0.exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_found_from_above_in_a_few_steps() {
        for power in [0.5, 3.0, 25.0] {
            let mut calls = 0;
            let found = least_noise(Search::from(50.0), 1e-5, |x| {
                calls += 1;
                Ok(-power * (x / 0.7).ln() + 0.1 * ((x / 0.7).ln()).powi(2))
            });
            let found = found.unwrap();
            assert!((0.7..0.7 * (1.0 + 1e-7)).contains(&found), "{found}");
            assert!(calls < 25, "{calls}");
        }
    }

    #[test]
    fn what_is_never_enough_or_always_is_an_error() {
        let error = Err(AccountingError::OutOfRange { delta: 0.1 });
        assert_eq!(least_noise(Search::from(1.0), 0.1, |_| Ok(1.0)), error);
        assert_eq!(least_noise(Search::from(1.0), 0.1, |_| Ok(-1.0)), error);
        assert_eq!(least_noise(Search::from(1.0), 0.1, |_| Ok(f64::NAN)), error);
    }
}
