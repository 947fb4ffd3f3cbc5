//! Rounding to the safe side.

/// The largest f32 that is not above `x`.
pub(crate) fn round_down(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) > x { nearest.next_down() } else { nearest }
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
