//! Axes: where a value stands, and which round numbers are written beside it.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// How the values of an axis become places on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    Logarithmic,
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Scale::Linear => value,
            Scale::Logarithmic => value.log10(),
        }
    }

    /// The round numbers within a range.
    fn ticks(self, from: f64, to: f64) -> Vec<f64> {
        match self {
            Scale::Linear => {
                let rough = (to - from) / 6.0;
                let decade = 10_f64.powi(rough.log10().floor() as i32);
                let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * decade);
                let step = steps.into_iter().find(|&step| step >= rough).unwrap_or(10.0 * decade);
                let (first, last) = ((from / step).ceil() as i64, (to / step).floor() as i64);
                (first..=last).map(|number| number as f64 * step).collect()
            }
            Scale::Logarithmic => {
                let decades = from.log10().floor() as i32..=to.log10().ceil() as i32;
                let tick = |decade: i32, digit: f64| {
                    let power = 10_f64.powi(decade.abs());
                    if decade < 0 { digit / power } else { digit * power }
                };
                // Over many decades only their beginnings have room.
                let digits: &[f64] =
                    if decades.clone().count() > 5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                decades
                    .flat_map(|decade| digits.iter().map(move |&digit| tick(decade, digit)))
                    .filter(|&x| x >= from && x <= to)
                    .collect()
            }
        }
    }
}

/// The axis of one panel.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    scale: Scale,
    range: Range<f64>,
}

impl Axis {
    /// An axis with room for all values and some air on both sides.
    pub(super) fn over(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let (least, most) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), v| (l.min(v), m.max(v)));
        let range = match scale {
            _ if least > most => 1.0..10.0,
            Scale::Linear => {
                let air = (0.06 * (most - least)).max(0.5);
                least - air..most + air
            }
            Scale::Logarithmic => 0.85 * least..1.2 * most,
        };
        Self { scale, range }
    }

    /// A tick as it is written: without the last bits of its computation.
    pub(super) fn label(value: f64) -> String {
        format!("{value:.9e}").parse::<f64>().map_or(String::new(), |value| value.to_string())
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let place = |value: f64| self.scale.place(value);
        let (from, to) = (place(self.range.start), place(self.range.end));
        let share = (place(*value) - from) / (to - from);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.scale.ticks(self.range.start, self.range.end)
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_inside_the_range() {
        let logarithmic = |from, to| Scale::Logarithmic.ticks(from, to);
        assert_eq!(logarithmic(0.3, 25.0), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(logarithmic(90.0, 2400.0), [100.0, 200.0, 500.0, 1000.0, 2000.0]);
        assert_eq!(logarithmic(1e-4, 50.0), [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0]);
        assert_eq!(Scale::Linear.ticks(11.0, 47.0), [20.0, 30.0, 40.0]);
        let tenths = Scale::Linear.ticks(0.05, 0.65);
        let labels: Vec<String> = tenths.into_iter().map(Axis::label).collect();
        assert_eq!(labels, ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6"]);
    }

    #[test]
    fn values_are_placed_in_proportion() {
        let axis = Axis { scale: Scale::Logarithmic, range: 1.0..100.0 };
        assert_eq!([1.0, 10.0, 100.0].map(|value| axis.map(&value, (0, 200))), [0, 100, 200]);
        // Down the screen is up the axis.
        let axis = Axis { scale: Scale::Linear, range: 10.0..20.0 };
        assert_eq!([10.0, 15.0, 20.0].map(|value| axis.map(&value, (300, 0))), [300, 150, 0]);
    }
}
