//! A number of replicas that is written as a number or as a percentage: `maxSurge` and `maxUnavailable`.

use crate::api::k8s::IntOrString;

/// How a percentage of the replicas becomes a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Up,
    Down,
}

/// Returns the number of replicas. None if the text is not a percentage such as `25%`, or if the number is negative.
pub fn of(value: &IntOrString, replicas: u32, rounding: Rounding) -> Option<u32> {
    match value {
        IntOrString::Int(number) => u32::try_from(*number).ok(),
        IntOrString::String(text) => {
            let hundredths = u64::from(replicas) * u64::from(percent(text)?);
            let number = match rounding {
                Rounding::Up => hundredths.div_ceil(100),
                Rounding::Down => hundredths / 100,
            };
            Some(u32::try_from(number).unwrap_or(u32::MAX))
        }
    }
}

/// Returns the number before the percent sign.
pub fn percent(text: &str) -> Option<u32> {
    let digits = text.strip_suffix('%')?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_rounded_in_the_direction_that_the_field_asks_for() {
        let text = |text: &str| IntOrString::String(text.to_owned());
        for (value, replicas, up, down) in [
            (IntOrString::Int(3), 10, Some(3), Some(3)),
            (IntOrString::Int(-1), 10, None, None),
            (text("25%"), 1, Some(1), Some(0)),
            (text("25%"), 10, Some(3), Some(2)),
            (text("100%"), 7, Some(7), Some(7)),
            (text("0%"), 7, Some(0), Some(0)),
            (text("250%"), 2, Some(5), Some(5)),
            (text("25"), 10, None, None),
            (text("%"), 10, None, None),
            (text("-5%"), 10, None, None),
            (text("2.5%"), 10, None, None),
        ] {
            let found = (of(&value, replicas, Rounding::Up), of(&value, replicas, Rounding::Down));
            assert_eq!(found, (up, down), "{value:?} of {replicas}");
        }
    }
}
