//! For `#[serde(with)]`: times and durations as numbers of nanoseconds, which is their format in records.

use crate::api::time::{Boot, Wall};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

pub trait Nanoseconds: Copy {
    type Number: Serialize + DeserializeOwned;

    fn number(self) -> Self::Number;
    fn from_number(number: Self::Number) -> Self;
}

impl Nanoseconds for Wall {
    type Number = i64;

    fn number(self) -> i64 {
        self.0
    }

    fn from_number(number: i64) -> Wall {
        Wall(number)
    }
}

impl Nanoseconds for Boot {
    type Number = u64;

    fn number(self) -> u64 {
        self.0
    }

    fn from_number(number: u64) -> Boot {
        Boot(number)
    }
}

impl Nanoseconds for Duration {
    type Number = u64;

    fn number(self) -> u64 {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX)
    }

    fn from_number(number: u64) -> Duration {
        Duration::from_nanos(number)
    }
}

/// # Errors
/// The serializer fails.
pub fn serialize<T: Nanoseconds, S: Serializer>(of: &T, serializer: S) -> Result<S::Ok, S::Error> {
    of.number().serialize(serializer)
}

/// # Errors
/// The value is not a number in the type's range.
pub fn deserialize<'de, T: Nanoseconds, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::Number::deserialize(deserializer).map(T::from_number)
}
