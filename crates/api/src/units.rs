//! Quantities as users write them: `"300s"`, `"64MiB"`.

use std::time::Duration;

const DURATIONS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

const SIZES: [(&str, u64); 8] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const RATES: [(&str, u64); 4] = [("pps", 1), ("kpps", 1_000), ("Mpps", 1_000_000), ("Gpps", 1_000_000_000)];

const BITS: [(&str, u64); 4] = [("bit", 1), ("kbit", 1_000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000)];

/// Reads `50us`, `1.5ms`, `300s`, `5min`, `1h`; exact to the nanosecond.
///
/// # Errors
/// What is wrong and how to write it.
pub fn duration(text: &str) -> Result<Duration, String> {
    let how = "write a number and one of ns, us, ms, s, min, h, like \"300s\"";
    quantity(text, &DURATIONS).map(Duration::from_nanos).ok_or_else(|| format!("{text:?} is not a duration; {how}"))
}

/// Reads `65536B`, `64KiB`, `64MiB`, `1.5GiB`, `1MB`, in bytes.
///
/// # Errors
/// What is wrong and how to write it.
pub fn size(text: &str) -> Result<u64, String> {
    let how = "write a number and one of B, kB, MB, GB, KiB, MiB, GiB, TiB, like \"64MiB\"";
    quantity(text, &SIZES).ok_or_else(|| format!("{text:?} is not a size; {how}"))
}

/// Reads `500pps`, `10kpps`, `1.5Mpps`, in frames per second.
///
/// # Errors
/// What is wrong and how to write it.
pub fn rate(text: &str) -> Result<u64, String> {
    let how = "write a number and one of pps, kpps, Mpps, Gpps, like \"10kpps\"";
    quantity(text, &RATES).ok_or_else(|| format!("{text:?} is not a rate of frames; {how}"))
}

/// Reads `8kbit`, `500Mbit`, `1.5Gbit`, in bits per second.
///
/// # Errors
/// What is wrong and how to write it.
pub fn bits(text: &str) -> Result<u64, String> {
    let how = "write a number and one of bit, kbit, Mbit, Gbit, like \"500Mbit\"";
    quantity(text, &BITS).ok_or_else(|| format!("{text:?} is not a rate in bits per second; {how}"))
}

/// Returns the shortest text that reads back as this rate in bits per second.
pub fn show_bits(rate: u64) -> String {
    show(rate.into(), BITS.iter().rev(), "bit")
}

/// Returns the shortest text that reads back as this duration.
pub fn show_duration(d: Duration) -> String {
    show(d.as_nanos(), DURATIONS[..4].iter().rev(), "s")
}

/// Returns the shortest text that reads back as this size.
pub fn show_size(bytes: u64) -> String {
    show(bytes.into(), SIZES[4..].iter().rev().chain(&SIZES[..1]), "B")
}

/// Returns the shortest text that reads back as this rate in frames per second.
pub fn show_rate(rate: u64) -> String {
    show(rate.into(), RATES.iter().rev(), "pps")
}

fn show<'a>(value: u128, mut units: impl Iterator<Item = &'a (&'a str, u64)>, zero: &str) -> String {
    if value == 0 {
        return format!("0{zero}");
    }
    let fits = units.find(|&&(_, scale)| value.is_multiple_of(scale.into()));
    let &(unit, scale) = fits.expect("the last unit is 1");
    format!("{}{unit}", value / u128::from(scale))
}

/// Reads digits, an optional decimal fraction, optional spaces, and a unit. Returns `None` if the result is not whole or overflows.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits_end);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start_matches(' '))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || number.ends_with('.') || fraction.len() > 9 {
        return None;
    }
    let fraction_scale = 10u64.pow(u32::try_from(fraction.len()).ok()?);
    let fraction: u64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let part = u128::from(fraction) * u128::from(*scale);
    if part % u128::from(fraction_scale) != 0 {
        return None;
    }
    let part = u64::try_from(part / u128::from(fraction_scale)).ok()?;
    whole.parse::<u64>().ok()?.checked_mul(*scale)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_sizes_and_rates_read_exactly() {
        assert_eq!(duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(duration("1.5 ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("1.5KiB"), Ok(1536));
        assert_eq!(size("1kB"), Ok(1000));
        assert_eq!(rate("1.5Mpps"), Ok(1_500_000));
        assert_eq!(bits("1.5Gbit"), Ok(1_500_000_000));
        assert_eq!(bits("8kbit"), Ok(8_000));
    }

    #[test]
    fn what_is_not_a_quantity_is_refused() {
        for bad in ["", "5", "s", "5 parsec", "-1s", "1..5s", ".5s", "1.s", "0.3ns", "99999999999h", "1s "] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "64", "MiB", "64mib", "0.1B", "99999999999GiB"] {
            assert!(size(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "10", "10k", "10Kpps", "0.5pps", "99999999999Gpps"] {
            assert!(rate(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "10", "10k", "10Kbit", "1Gbps", "0.5bit", "99999999999Gbit"] {
            assert!(bits(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for d in [0, 1, 1500, 50_000, 300_000_000_000, 3_600_000_000_000].map(Duration::from_nanos) {
            assert_eq!(duration(&show_duration(d)), Ok(d));
        }
        assert_eq!(show_duration(Duration::from_secs(300)), "300s");
        for s in [0, 1, 1000, 64 << 20, 1 << 30] {
            assert_eq!(size(&show_size(s)), Ok(s));
        }
        assert_eq!(show_size(64 << 20), "64MiB");
        for r in [0, 1, 1500, 10_000, 3_000_000_000] {
            assert_eq!(rate(&show_rate(r)), Ok(r));
        }
        assert_eq!(show_rate(10_000), "10kpps");
        for b in [0, 1, 8_000, 1_500_000_000, 400_000_000_000] {
            assert_eq!(bits(&show_bits(b)), Ok(b));
        }
    }
}
