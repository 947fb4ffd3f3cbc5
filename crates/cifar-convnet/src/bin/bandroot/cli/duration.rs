//! Durations as people write them.

use std::time::Duration;

/// Reads `90m`, `1h30m`, `45s`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let usage = || format!("{text:?} is no duration; write 45s, 90m or 1h30m");
    let (mut seconds, mut digits) = (0_u64, String::new());
    for c in text.chars() {
        let unit = match c {
            '0'..='9' => {
                digits.push(c);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            _ => return Err(usage()),
        };
        let number: u64 = digits.parse().map_err(|_| usage())?;
        let more = number.checked_mul(unit).ok_or_else(usage)?;
        seconds = seconds.checked_add(more).ok_or_else(usage)?;
        digits.clear();
    }
    if digits.is_empty() && seconds > 0 { Ok(Duration::from_secs(seconds)) } else { Err(usage()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_nonsense_is_not() {
        let seconds = |text| parse(text).unwrap().as_secs();
        assert_eq!([seconds("45s"), seconds("90m"), seconds("1h30m")], [45, 5400, 5400]);
        for text in ["", "90", "m", "18446744073709551615s1s", "1x", "-5m", "0s", "1h30"] {
            assert!(parse(text).unwrap_err().contains("90m"), "{text}");
        }
    }
}
