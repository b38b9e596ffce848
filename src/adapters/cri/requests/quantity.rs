//! The two numbers that the runtime wants of a Kubernetes quantity.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Thousandths of a cpu, rounded up. Zero for what is no quantity (validation lets none pass).
pub fn milli_cpu(q: &Quantity) -> i64 {
    scaled(&q.0, 3).unwrap_or(0)
}

/// Bytes (or pieces), rounded up. Zero for what is no quantity.
pub fn bytes(q: &Quantity) -> i64 {
    scaled(&q.0, 0).unwrap_or(0)
}

/// The value times 10^`places`, rounded up, capped at i64's range.
fn scaled(text: &str, places: u32) -> Option<i64> {
    let digits_end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (factor, exponent): (i128, i32) = match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        s => (1, s.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let power = exponent.checked_add(i32::try_from(places).ok()?)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let value = mantissa.checked_mul(factor)?;
    let ten = 10i128.checked_pow(power.unsigned_abs());
    let result = match (power >= 0, ten) {
        (true, Some(ten)) => value.saturating_mul(ten),
        (true, None) => i128::MAX,
        (false, Some(ten)) => value.div_euclid(ten) + i128::from(value.rem_euclid(ten) != 0),
        (false, None) => i128::from(value > 0),
    };
    Some(i64::try_from(result).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_round_up() {
        let q = |s: &str| Quantity(s.into());
        assert_eq!(milli_cpu(&q("250m")), 250);
        assert_eq!(milli_cpu(&q("1.5")), 1500);
        assert_eq!(milli_cpu(&q("0.0001")), 1);
        assert_eq!(bytes(&q("64Mi")), 67_108_864);
        assert_eq!(bytes(&q("1e3")), 1000);
        assert_eq!(bytes(&q("1.5Gi")), 1_610_612_736);
        assert_eq!(bytes(&q("100m")), 1);
        assert_eq!(bytes(&q("9E")), 9_000_000_000_000_000_000);
        assert_eq!(bytes(&q("16E")), i64::MAX);
    }
}
