//! The fields of a record on disk, which is one JSON object. Several structs can share the object: each takes the
//! fields that it defines, and an error names the field.

use crate::engine::record_error::RecordError;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Serialize, forward_to_deserialize_any};
use serde_json::{Map, Value};
use std::fmt;

pub type Fields = Map<String, Value>;

/// Returns the fields of a record without content: only the version.
pub fn of(version: u64) -> Fields {
    [("version".to_owned(), Value::from(version))].into_iter().collect()
}

/// Adds the fields of a struct.
pub fn put<T: Serialize>(of: &T, all: &mut Fields) {
    if let Ok(Value::Object(fields)) = serde_json::to_value(of) {
        all.extend(fields);
    }
}

/// Parses a record of this version.
///
/// # Errors
/// The text is not a JSON object, or has another version.
pub fn parse(text: &str, version: u64) -> Result<Fields, RecordError> {
    match crate::engine::record_error::parse(text, version)? {
        Value::Object(all) => Ok(all),
        // Not reached: only an object can have a version.
        _ => Err(RecordError::Version { found: None, read: version }),
    }
}

/// Takes the fields that the struct `T` defines.
///
/// # Errors
/// A field is missing or invalid.
pub fn take<T: DeserializeOwned>(all: &mut Fields) -> Result<T, RecordError> {
    T::deserialize(Taker(all))
}

struct Taker<'f>(&'f mut Fields);

impl<'de> Deserializer<'de> for Taker<'_> {
    type Error = RecordError;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RecordError> {
        visitor.visit_map(Taken { all: self.0, fields: fields.iter(), value: None })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, RecordError> {
        Err(RecordError::custom("only a struct has the fields of a record"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct Taken<'f> {
    all: &'f mut Fields,
    fields: std::slice::Iter<'static, &'static str>,
    /// The field whose key was returned last.
    value: Option<(&'static str, Value)>,
}

impl<'de> MapAccess<'de> for Taken<'_> {
    type Error = RecordError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, RecordError> {
        self.value = self.fields.find_map(|name| Some((*name, self.all.remove(*name)?)));
        let name = self.value.as_ref().map(|(name, _)| seed.deserialize(StrDeserializer::new(name)));
        name.transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, RecordError> {
        let (field, value) = self.value.take().unwrap_or_default();
        seed.deserialize(value).map_err(|e: serde_json::Error| RecordError::Invalid { field, why: e.to_string() })
    }
}

impl std::error::Error for RecordError {}

impl de::Error for RecordError {
    fn custom<T: fmt::Display>(why: T) -> RecordError {
        RecordError::Syntax(why.to_string())
    }

    fn missing_field(field: &'static str) -> RecordError {
        RecordError::Missing(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Animal {
        name: String,
        #[serde(default)]
        legs: u32,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Place {
        town: Option<String>,
    }

    #[test]
    fn two_structs_share_a_record() {
        let (animal, place) = (Animal { name: "a".into(), legs: 4 }, Place { town: Some("b".into()) });
        let mut all = of(1);
        put(&animal, &mut all);
        put(&place, &mut all);
        let text = Value::Object(all).to_string();
        assert_eq!(text, r#"{"legs":4,"name":"a","town":"b","version":1}"#);
        let mut all = parse(&text, 1).unwrap();
        assert_eq!((take::<Place>(&mut all).unwrap(), take::<Animal>(&mut all).unwrap()), (place, animal));
    }

    #[test]
    fn an_error_names_the_field() {
        let error = |text: &str| take::<Animal>(&mut parse(text, 1).unwrap()).unwrap_err().to_string();
        assert_eq!(error(r#"{"version": 1}"#), "no name");
        let why = r#"legs: invalid type: string "four", expected u32"#;
        assert_eq!(error(r#"{"version": 1, "name": "a", "legs": "four"}"#), why);
    }
}
