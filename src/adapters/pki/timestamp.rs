//! The times in the records of certificates: RFC 3339.

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(time: &Timestamp, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(time)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(d)?;
    text.parse().map_err(|e| D::Error::custom(format_args!("{text:?} is not a time: {e}")))
}
