//! Rounding to the safe side.

/// The largest f32 that is not above `x`.
pub(crate) fn round_down(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) > x { nearest.next_down() } else { nearest }
}

/// Half the distance from 1 to the next f32.
#[cfg(feature = "burn")]
pub(crate) const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// A bound on the relative error of a sum of `terms` rounded terms, with as much again for the
/// rounding of the bound itself.
#[cfg(feature = "burn")]
pub(crate) fn rounding_error(terms: usize) -> f64 {
    2.0 * (terms + 4) as f64 * UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_downwards_and_exact_where_it_can_be() {
        assert_eq!(round_down(1e300), f32::MAX);
        assert_eq!(round_down(0.5), 0.5);
        assert!(f64::from(round_down(0.1)) <= 0.1 && round_down(0.1) > 0.099_999);
    }
}
