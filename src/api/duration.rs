//! Durations in the format of Kubernetes (Go): `1h15m30.5s`.

use std::time::Duration;

/// The longest Go duration: 2^63 - 1 nanoseconds, 292 years.
const MAX_NANOS: u128 = i64::MAX as u128;

/// Nanoseconds per unit. `µs` occurs with either of two Unicode letters.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration. Go allows negative durations, but no field of the configuration does.
pub fn parse(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration; write one like \"90s\", \"1m30s\" or \"500ms\"");
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    if unsigned.is_empty() {
        return Err(bad());
    }
    let mut total: u128 = 0;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (number, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, n)| *n).ok_or_else(bad)?;
        total = total.checked_add(nanos(number, scale).ok_or_else(bad)?).ok_or_else(bad)?;
        rest = tail;
    }
    if total > MAX_NANOS {
        return Err(format!("{text:?} is too long for a duration"));
    }
    if negative && total > 0 {
        return Err(format!("{text:?} is negative; it must be 0s or more"));
    }
    // The total is at most i64::MAX, so it fits.
    Ok(Duration::from_nanos(total as u64))
}

/// Returns `number` (for example `1.5`) times `scale`. None if it is not a number.
fn nanos(number: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Digits below a nanosecond have no effect, so 18 are enough.
    let fraction = fraction.get(..fraction.len().min(18))?;
    let part = if fraction.is_empty() {
        0
    } else {
        fraction.parse::<u128>().ok()?.checked_mul(scale)? / 10u128.pow(fraction.len() as u32)
    };
    whole.checked_mul(scale)?.checked_add(part)
}

/// Formats a duration as Go does: `1m30s`, `500ms`, `0s`.
pub fn format(d: Duration) -> String {
    let nanos = d.subsec_nanos();
    let seconds = d.as_secs();
    if seconds == 0 {
        return match nanos {
            0 => "0s".into(),
            1..1_000 => format!("{nanos}ns"),
            1_000..1_000_000 => format!("{}µs", f64::from(nanos) / 1e3),
            _ => format!("{}ms", f64::from(nanos) / 1e6),
        };
    }
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = if nanos == 0 { String::new() } else { format!(".{nanos:09}").trim_end_matches('0').to_owned() };
    match (h, m) {
        (0, 0) => format!("{s}{fraction}s"),
        (0, _) => format!("{m}m{s}{fraction}s"),
        _ => format!("{h}h{m}m{s}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("20s", 20_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1h0m0s", 3_600_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("100ms", 100_000_000),
            ("2us", 2_000),
            ("2µs", 2_000),
            ("1h1m1s1ms1us1ns", 3_661_001_001_001),
            ("+3s", 3_000_000_000),
            ("-0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn an_invalid_duration_is_rejected() {
        for text in ["", "-", "20", "s", "1x", "1 s", "1.2.3s", ".s", "1s5", "-5s", "99999999999h", "1e3s", "١s"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_printed_as_go_prints_them() {
        for text in ["0s", "20s", "1m0s", "1m30s", "1h0m0s", "26h3m4.5s", "100ms", "1.5ms", "2µs", "7ns"] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
    }
}
