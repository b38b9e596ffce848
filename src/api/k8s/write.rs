//! Writes the Kubernetes types as JSON.

use super::field::{AnyObject, FieldRef, FieldValue, items};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use std::fmt;

/// Serializes a value. Absent fields are left out.
pub struct Json<'a>(pub &'a dyn FieldValue);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.value() {
            FieldRef::Absent => serializer.serialize_none(),
            FieldRef::Bool(value) => serializer.serialize_bool(value),
            FieldRef::Int(value) => serializer.serialize_i64(value),
            FieldRef::Text(text) => serializer.serialize_str(text),
            FieldRef::Time(time) => serializer.serialize_str(&time_text(time)),
            FieldRef::Bytes(bytes) => serializer.serialize_str(&STANDARD.encode(bytes)),
            FieldRef::Json(value) => value.serialize(serializer),
            FieldRef::List(list) => {
                let mut seq = serializer.serialize_seq(None)?;
                items(list).try_for_each(|item| seq.serialize_element(&Json(item)))?;
                seq.end()
            }
            FieldRef::Map(map) => {
                let mut entries = serializer.serialize_map(None)?;
                map.entries().try_for_each(|(key, value)| entries.serialize_entry(key, &Json(value)))?;
                entries.end()
            }
            FieldRef::Object(object) => {
                let shape = object.shape();
                let mut fields = serializer.serialize_map(None)?;
                for (name, value) in shape.identity.iter().flat_map(|identity| identity.fields()) {
                    fields.serialize_entry(name, value)?;
                }
                for (index, name) in shape.fields.iter().enumerate() {
                    let field = object.field(index);
                    if !matches!(field.value(), FieldRef::Absent) {
                        fields.serialize_entry(name, &Json(field))?;
                    }
                }
                fields.end()
            }
        }
    }
}

/// Formats a time as RFC 3339 in UTC, in whole seconds, as the API server does.
fn time_text(time: jiff::Timestamp) -> String {
    jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%SZ", time).unwrap_or_default()
}

/// Formats an object for messages of tests and for dumps. A Secret is shown without its fields.
pub fn debug(object: &(impl AnyObject + FieldValue), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = object.shape().name;
    if name == "Secret" {
        return write!(f, "{name} {{ .. }}");
    }
    write!(f, "{name} {}", serde_json::to_string(&Json(object)).map_err(|_| fmt::Error)?)
}
