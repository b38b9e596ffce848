//! The value of a field, as it is passed to the function that sets the field.

use crate::config::yaml::{Node, Value};
use std::time::Duration;

/// Reports an error. The arguments are the line, the part of the value as a suffix of the field path
/// (`[2].priority`), and the message.
pub type Wrong<'a> = &'a mut dyn FnMut(u64, &str, String);

/// A value whose type the table has checked.
#[derive(Debug)]
pub enum FieldValue<'a> {
    Bool(bool),
    Int(i64),
    Duration(Duration),
    Text(&'a str),
    /// A list of strings. Other lists and maps are not supported yet.
    Texts(Vec<&'a str>),
    Other,
}

impl FieldValue<'_> {
    /// Returns the value. The accessors rely on the table, which has checked the type, so the fallback values are
    /// never used.
    pub fn bool(&self) -> bool {
        matches!(self, FieldValue::Bool(true))
    }

    pub fn int(&self) -> i64 {
        if let FieldValue::Int(n) = self { *n } else { 0 }
    }

    pub fn duration(&self) -> Duration {
        if let FieldValue::Duration(d) = self { *d } else { Duration::ZERO }
    }

    pub fn text(&self) -> &str {
        if let FieldValue::Text(s) = self { s } else { "" }
    }

    pub fn texts(&self) -> Vec<String> {
        if let FieldValue::Texts(list) = self { list.iter().map(|s| (*s).to_owned()).collect() } else { Vec::new() }
    }
}

/// Calls `take` for each entry of a map. The table has checked the types.
pub(super) fn each(map: &Node, wrong: Wrong, mut take: impl FnMut(&str, &Value) -> Result<(), String>) {
    let Value::Map(entries) = &map.value else { return };
    for entry in entries {
        if let Err(why) = take(&entry.key, &entry.node.value) {
            wrong(entry.line, &format!(".{}", entry.key), why);
        }
    }
}
