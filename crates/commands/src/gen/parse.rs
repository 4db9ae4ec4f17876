//! Values of options.

use std::time::Duration;

use ringway_api::units;

/// Reads a time above zero.
pub fn positive(text: &str) -> Result<Duration, String> {
    match units::duration(text)? {
        Duration::ZERO => Err("must be more than nothing".to_owned()),
        some => Ok(some),
    }
}

/// Reads a count above zero: `1000`, `10k`, `1M`, `2G`.
pub fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((end, 'k')) => (&text[..end], 1_000),
        Some((end, 'M')) => (&text[..end], 1_000_000),
        Some((end, 'G')) => (&text[..end], 1_000_000_000),
        _ => (text, 1),
    };
    let plain = !digits.starts_with('+');
    let value = digits.parse::<u64>().ok().filter(|_| plain).and_then(|number| number.checked_mul(factor));
    value.filter(|&value| value > 0).ok_or_else(|| "write a number above 0, like 1000, 10k, 1M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_with_their_prefix() {
        assert_eq!(count("1000"), Ok(1000));
        assert_eq!(count("10k"), Ok(10_000));
        assert_eq!(count("2G"), Ok(2_000_000_000));
        for wrong in ["", "0", "-1", "+1", "1.5M", "k", "99999999999999999999", "9999999999999G"] {
            assert!(count(wrong).is_err(), "{wrong:?}");
        }
    }
}
