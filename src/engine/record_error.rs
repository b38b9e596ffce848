//! Why the engine cannot use a stored record.

use crate::api::names::Uid;
use serde_json::Value;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The record is not JSON.
    Syntax(String),
    /// The record has no version, or another version than this Wherry reads.
    Version {
        found: Option<u64>,
        read: u64,
    },
    /// A required field is missing.
    Missing(&'static str),
    Invalid {
        field: &'static str,
        why: String,
    },
    /// The field `pod` is not a valid Pod of the API.
    NotAPod(String),
    /// The UID differs from the one in the record's key.
    OtherPod(Uid),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Syntax(why) | RecordError::NotAPod(why) => f.write_str(why),
            RecordError::Version { found: Some(found), read } => {
                write!(f, "version {found}; this Wherry reads version {read}")
            }
            RecordError::Version { found: None, read } => write!(f, "no version; this Wherry reads version {read}"),
            RecordError::Missing(field) => write!(f, "no {field}"),
            RecordError::Invalid { field, why } => write!(f, "{field}: {why}"),
            RecordError::OtherPod(uid) => write!(f, "it belongs to pod {uid}"),
        }
    }
}

/// Parses a record of this version.
///
/// # Errors
/// The text is not JSON, or has another version.
pub fn parse(text: &str, version: u64) -> Result<Value, RecordError> {
    let value: Value = serde_json::from_str(text).map_err(|e| RecordError::Syntax(e.to_string()))?;
    match value.get("version").and_then(Value::as_u64) {
        Some(found) if found == version => Ok(value),
        found => Err(RecordError::Version { found, read: version }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_another_version_or_without_one_is_not_read() {
        let error = |text: &str| parse(text, 1).unwrap_err();
        assert_eq!(error("{\"version\": 2}"), RecordError::Version { found: Some(2), read: 1 });
        assert_eq!(error("{\"version\": 2}").to_string(), "version 2; this Wherry reads version 1");
        assert_eq!(error("{}").to_string(), "no version; this Wherry reads version 1");
        assert!(matches!(error("{"), RecordError::Syntax(_)));
        assert!(parse("{\"version\": 1}", 1).is_ok());
    }
}
