//! Quantities: amounts of cpu, memory and other resources (`250m`, `64Mi`, `1e3`).
//!
//! Like Kubernetes, this module uses fixed-point arithmetic and rounds up. It counts in nano units, with integers only.
//! A number beyond 2^63-1 is an error here (Kubernetes caps it silently).

use crate::api::k8s::Quantity as Written;
use std::collections::BTreeMap;

/// The Kubernetes error for text that is not a quantity.
const SYNTAX: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NANO: i128 = 1_000_000_000;
/// The largest valid quantity, in nano units.
const LARGEST: i128 = i64::MAX as i128 * NANO;

/// An exact amount. Comparisons are by value: `1Gi` equals `1024Mi`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    nanos: i128,
}

impl Quantity {
    /// Parses a quantity. Digits below one nano unit round up (away from zero).
    ///
    /// # Errors
    /// The Kubernetes message for a syntax error, or our own message if the number is too large.
    pub fn parse(text: &str) -> Result<Quantity, String> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let digits_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(digits_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(SYNTAX.to_owned());
        }
        let scale = Scale::of(suffix).ok_or_else(|| SYNTAX.to_owned())?;
        let nanos = scale.nanos(whole, fraction).ok_or_else(|| format!("{text} is too large"))?;
        Ok(Quantity { nanos: if negative { -nanos } else { nanos } })
    }

    /// Returns the amount in whole units (cores, bytes), rounded up away from zero.
    pub fn value(self) -> i64 {
        self.rounded(NANO)
    }

    /// Returns the amount in thousandths (milli-CPU), rounded up away from zero and capped at `i64::MAX`.
    pub fn milli_value(self) -> i64 {
        self.rounded(NANO / 1000)
    }

    /// Returns an amount of `n` units: cores, bytes or items.
    pub fn from_units(n: u64) -> Quantity {
        Quantity { nanos: i128::from(n) * NANO }
    }

    /// Returns an amount of `n` thousandths.
    pub fn from_milli(n: u64) -> Quantity {
        Quantity { nanos: i128::from(n) * (NANO / 1000) }
    }

    /// Returns how many times `divisor` fits into the amount, rounded up. The divisor must not be zero.
    pub fn divided_by(self, divisor: Quantity) -> i64 {
        let up = self.nanos.unsigned_abs().div_ceil(divisor.nanos.unsigned_abs().max(1));
        i64::try_from(up).unwrap_or(i64::MAX)
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Reports whether the amount has no fraction.
    pub fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    fn rounded(self, unit: i128) -> i64 {
        let up = self.nanos.unsigned_abs().div_ceil(unit.unsigned_abs());
        let size = i64::try_from(up).unwrap_or(i64::MAX);
        if self.nanos < 0 { -size } else { size }
    }
}

/// A list of amounts as in a manifest (`requests`, `limits`).
pub type Quantities = BTreeMap<String, Written>;

/// Returns the amount of one resource in a validated list (`requests`, `limits`). None if the list does not contain
/// it.
pub fn amount(list: Option<&Quantities>, resource: &str) -> Option<Quantity> {
    list?.get(resource).and_then(|q| Quantity::parse(&q.0).ok())
}

/// The factor of a suffix: 10^n or 2^n.
enum Scale {
    Ten(i32),
    Binary(u32),
}

impl Scale {
    fn of(suffix: &str) -> Option<Scale> {
        Some(match suffix {
            "" => Scale::Ten(0),
            "n" => Scale::Ten(-9),
            "u" => Scale::Ten(-6),
            "m" => Scale::Ten(-3),
            "k" => Scale::Ten(3),
            "M" => Scale::Ten(6),
            "G" => Scale::Ten(9),
            "T" => Scale::Ten(12),
            "P" => Scale::Ten(15),
            "E" => Scale::Ten(18),
            "Ki" => Scale::Binary(10),
            "Mi" => Scale::Binary(20),
            "Gi" => Scale::Binary(30),
            "Ti" => Scale::Binary(40),
            "Pi" => Scale::Binary(50),
            "Ei" => Scale::Binary(60),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E'])?;
                // Three digits are enough in practice. Cap the exponent so that nothing overflows.
                let digits = exponent.trim_start_matches(['+', '-']);
                if digits.is_empty() || digits.len() + 1 < exponent.len() || !digits.bytes().all(|b| b.is_ascii_digit())
                {
                    return None;
                }
                let size = digits.parse::<i32>().unwrap_or(9999).min(9999);
                Scale::Ten(if exponent.starts_with('-') { -size } else { size })
            }
        })
    }

    /// Returns `whole.fraction` times this factor, in nano units, rounded up. None if the result exceeds `LARGEST`.
    fn nanos(&self, whole: &str, fraction: &str) -> Option<i128> {
        let digits = whole.trim_start_matches('0');
        match *self {
            Scale::Ten(exponent) => {
                // Move the decimal point, and round up the digits to the right of it.
                let point = digits.len() as i64 + i64::from(exponent) + 9;
                let all: Vec<u8> = digits.bytes().chain(fraction.bytes()).collect();
                let mut nanos: i128 = 0;
                let last = point.max(0).min(all.len() as i64) as usize;
                for &b in &all[..last] {
                    nanos = nanos.checked_mul(10)?.checked_add(i128::from(b - b'0'))?;
                    if nanos > LARGEST {
                        return None;
                    }
                }
                if nanos != 0 {
                    for _ in last as i64..point {
                        nanos = nanos.checked_mul(10)?;
                        if nanos > LARGEST {
                            return None;
                        }
                    }
                }
                if all[last..].iter().any(|&b| b != b'0') {
                    nanos += 1;
                }
                (nanos <= LARGEST).then_some(nanos)
            }
            Scale::Binary(shift) => {
                let mut numerator: i128 = 0;
                let mut denominator: i128 = 1;
                let fraction = fraction.trim_end_matches('0');
                for b in digits.bytes() {
                    numerator = numerator.checked_mul(10)?.checked_add(i128::from(b - b'0'))?;
                }
                // With a binary suffix, 18 digits after the point are more precise than one nano unit.
                for b in fraction.bytes().take(18) {
                    numerator = numerator.checked_mul(10)?.checked_add(i128::from(b - b'0'))?;
                    denominator *= 10;
                }
                if fraction.len() > 18 {
                    numerator = numerator.checked_add(1)?;
                }
                // Computes numerator * 2^shift * 10^9 / denominator in parts to avoid overflow.
                let factor = (1i128 << shift).checked_mul(NANO)?;
                let (whole, rest) = (numerator / denominator, numerator % denominator);
                let whole = whole.checked_mul(factor)?;
                let shared = gcd(factor, denominator);
                let rest = rest.checked_mul(factor / shared)?;
                let below = denominator / shared;
                let nanos = whole.checked_add(rest / below + i128::from(rest % below != 0))?;
                (nanos <= LARGEST).then_some(nanos)
            }
        }
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn amounts_are_read_exactly() {
        for (text, value, milli) in [
            ("0", 0, 0),
            ("1", 1, 1000),
            ("250m", 1, 250),
            ("1500m", 2, 1500),
            ("0.5", 1, 500),
            (".5", 1, 500),
            ("5.", 5, 5000),
            ("1u", 1, 1),
            ("1n", 1, 1),
            ("100n", 1, 1),
            ("64Mi", 67_108_864, 67_108_864_000),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("0.1Ki", 103, 102_400),
            ("1k", 1000, 1_000_000),
            ("1e3", 1000, 1_000_000),
            ("1E3", 1000, 1_000_000),
            ("1e-3", 1, 1),
            ("12e+2", 1200, 1_200_000),
            ("+2", 2, 2000),
            ("-1", -1, -1000),
            ("-1500m", -2, -1500),
            ("0.0000000001", 1, 1),
            ("0e999999999999", 0, 0),
            ("000000000000000000000000000000000000000000007", 7, 7000),
            ("9223372036854775807", i64::MAX, i64::MAX),
            ("7Ei", 7 << 60, i64::MAX),
            ("8191Pi", 8191 << 50, i64::MAX),
            ("9.2E", 9_200_000_000_000_000_000, i64::MAX),
            ("9223372036854775.807k", i64::MAX, i64::MAX),
            ("-9223372036854775807", -i64::MAX, -i64::MAX),
            ("1e-9999", 1, 1),
        ] {
            assert_eq!((q(text).value(), q(text).milli_value()), (value, milli), "{text}");
        }
    }

    #[test]
    fn every_suffix_is_its_power() {
        for (i, suffix) in ["", "k", "M", "G", "T", "P", "E"].iter().enumerate() {
            let power = 1000i64.pow(i as u32);
            let exponent = 3 * i;
            for text in [
                format!("1{suffix}"),
                format!("1e{exponent}"),
                format!("1E+{exponent}"),
                format!("0.1e{}", exponent + 1),
            ] {
                assert_eq!((q(&text).value(), q(&text).milli_value()), (power, power.saturating_mul(1000)), "{text}");
            }
        }
        for (i, suffix) in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().enumerate() {
            let power = 1i64 << (10 * (i + 1));
            let text = format!("1{suffix}");
            assert_eq!((q(&text).value(), q(&text).milli_value()), (power, power.saturating_mul(1000)), "{text}");
            assert_eq!(q(&format!("0.5{suffix}")).value(), power / 2);
        }
    }

    #[test]
    fn an_inexact_quantity_is_rounded_away_from_zero() {
        for (text, value, milli) in [
            ("999999n", 1, 1),
            ("1000000n", 1, 1),
            ("1000001n", 1, 2),
            ("999999999n", 1, 1000),
            ("1000000001n", 2, 1001),
            ("1001u", 1, 2),
            ("0.5m", 1, 1),
            ("1.5m", 1, 2),
            ("-1.5m", -1, -2),
            ("-0.1", -1, -100),
            ("-1000000001n", -2, -1001),
            ("15e-1", 2, 1500),
            ("1.0001", 2, 1001),
            ("0.001Ki", 2, 1024),
            ("0.0005Ki", 1, 512),
            ("0.3Gi", 322_122_548, 322_122_547_200),
            ("1.0000000000000000000001Ki", 1025, 1_024_001),
            ("0.00000000000000000001", 1, 1),
        ] {
            assert_eq!((q(text).value(), q(text).milli_value()), (value, milli), "{text}");
        }
    }

    #[test]
    fn equal_amounts_are_equal_however_written() {
        assert_eq!(q("1Gi"), q("1024Mi"));
        assert_eq!(q("1"), q("1000m"));
        assert_eq!(q("1000000000n"), q("1e0"));
        assert!(q("0.1") < q("101m"));
        assert!(q("-1").is_negative() && q("0m").is_zero());
        assert!(q("2000m").is_whole() && q("1Ki").is_whole() && !q("0.1Ki").is_whole() && !q("1n").is_whole());
    }

    #[test]
    fn an_invalid_quantity_is_rejected_with_the_message_of_kubernetes() {
        for text in [
            "", "m", ".", "1.2.3", "1 Gi", " 1", "1Kib", "1ki", "1K", "0x10", "1e", "1e+-3", "1e1.5", "--1", "Mi",
            "1mm", "٣",
        ] {
            assert_eq!(Quantity::parse(text).unwrap_err(), SYNTAX, "{text:?}");
        }
    }

    #[test]
    fn a_quantity_that_overflows_is_an_error() {
        for text in [
            "9223372036854775808",
            "8Ei",
            "1e19",
            "1e9999",
            "99999999999999999999999999999999999999999999",
            "9999999999999E",
            "1e30",
            "-1e30",
            "1E19",
            "10E",
            "9.3E",
            "8192Pi",
            "9223372036854775807.1",
            "9223372036854775807000000001n",
            "9223372036854775.808k",
        ] {
            assert!(Quantity::parse(text).unwrap_err().contains("too large"), "{text}");
        }
    }
}
