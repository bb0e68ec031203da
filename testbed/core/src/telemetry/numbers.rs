//! Numbers of telemetry as text.

/// Appends a whole number.
pub(super) fn push_integer(text: &mut String, value: u64) {
    text.push_str(itoa::Buffer::new().format(value));
}

/// A number with its text, which is formatted when the number changes.
#[derive(Default)]
pub(super) struct Number {
    /// Bits of the number; `None`: there was none yet.
    formatted: Option<Option<u64>>,
    text: String,
}

impl Number {
    /// The text of a number.
    #[inline]
    pub(super) fn format(&mut self, value: Option<f64>) -> &str {
        let bits = value.map(f64::to_bits);
        if self.formatted != Some(bits) {
            self.formatted = Some(bits);
            self.text.clear();
            push_number(&mut self.text, value);
        }
        &self.text
    }
}

/// Appends a number as `Display` writes it: the shortest digits that read back as the number, without an exponent and
/// without a fraction if it is whole.
fn push_number(text: &mut String, value: Option<f64>) {
    match value {
        None => text.push_str("null"),
        // In this range zmij writes no exponent.
        Some(value) if value == 0.0 || (1e-4..1e15).contains(&value.abs()) => {
            let mut buffer = zmij::Buffer::new();
            let digits = buffer.format_finite(value);
            let digits = digits.strip_suffix(".0").unwrap_or(digits);
            let decimals = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
            // A number with one binary place more lies halfway between two shortest forms, and zmij may take the other.
            if binary_places(value) == decimals as i64 + 1 {
                text.push_str(&value.to_string());
            } else {
                text.push_str(digits);
            }
        }
        Some(value) => text.push_str(&value.to_string()),
    }
}

/// Binary places after the point of a normal number, which are also the decimal places of its exact value. Negative if
/// it is a multiple of a power of two above one.
fn binary_places(value: f64) -> i64 {
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let fraction = bits & ((1 << 52) - 1);
    52 - exponent - i64::from(fraction.trailing_zeros().min(52))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_written_as_display_writes_them(bits: u64, scaled in -1e4f64..1e4, whole in -1000i32..1000,
            places in 0i32..60) {
            let dyadic = f64::from(whole) + (scaled * 2f64.powi(places)).round() / 2f64.powi(places);
            for value in [f64::from_bits(bits), scaled, scaled * 1e-5, scaled * 1e14, f64::from(whole), dyadic] {
                let mut text = String::new();
                push_number(&mut text, Some(value));
                prop_assert_eq!(text, value.to_string());
            }
        }
    }

    #[test]
    fn numbers_between_two_shortest_forms_are_written_as_display_writes_them() {
        for places in 1..52 {
            for numerator in [1u64, 3, 5, 7, (1 << 51) + 1, (1 << 52) + 1, 7_238_907_361_832_922, 9_007_199_254_740_991]
            {
                let value = numerator as f64 / 2f64.powi(places);
                let mut text = String::new();
                push_number(&mut text, Some(value));
                assert_eq!(text, value.to_string());
            }
        }
    }

    #[test]
    fn a_number_has_the_text_of_its_last_value() {
        let mut number = Number::default();
        for value in [None, Some(0.0), Some(-0.0), Some(1.5), Some(1.5), None, Some(f64::NAN), Some(1e-9)] {
            let mut text = String::new();
            push_number(&mut text, value);
            assert_eq!(number.format(value), text);
        }
    }
}
