//! Numbers as tables have them.

/// Formats a number with three significant digits.
pub(crate) fn short(value: f64) -> String {
    significant(value, 3)
}

/// Formats a number with this many significant digits, at least those before the point, with commas between thousands.
pub(crate) fn significant(value: f64, digits: usize) -> String {
    let decimals = |exponent: i32| usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0).min(digits);
    // Rounded first, because 9.996 becomes 10.0.
    let exponent = |value: f64| if value == 0.0 { -1 } else { value.abs().log10().floor() as i32 };
    let rounded: f64 = format!("{value:.0$}", decimals(exponent(value))).parse().unwrap_or(value);
    let text = format!("{value:.0$}", decimals(exponent(rounded)));
    thousands(&text)
}

/// Formats a number with all its digits, with commas between thousands.
pub(crate) fn whole(value: f64) -> String {
    thousands(&value.to_string())
}

fn thousands(text: &str) -> String {
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, letter) in whole.char_indices() {
        let left = whole.len() - index;
        if left % 3 == 0 && grouped.ends_with(|last: char| last.is_ascii_digit()) {
            grouped.push(',');
        }
        grouped.push(letter);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_three_digits_and_those_before_the_point() {
        let told = [0.0, 0.0004, 0.1234, 0.9996, 1.0, 9.994, 9.996, 25.05, 99.96, 123.4, 5190.0, -1234567.8].map(short);
        let wanted =
            ["0.000", "0.000", "0.123", "1.00", "1.00", "9.99", "10.0", "25.1", "100", "123", "5,190", "-1,234,568"];
        assert_eq!(told.each_ref().map(String::as_str), wanted);
        assert_eq!([0.99985, 1.0, 16.0123].map(|value| significant(value, 4)), ["0.9999", "1.000", "16.01"]);
    }

    #[test]
    fn thousands_are_divided_by_commas() {
        let told = [60.0, 1000.0, 65226.0, 1_000_000.0, 1514.5].map(whole);
        assert_eq!(told.each_ref().map(String::as_str), ["60", "1,000", "65,226", "1,000,000", "1,514.5"]);
    }
}
