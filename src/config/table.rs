//! Reads a document according to a table of its fields.
//!
//! A table contains every field of a kind, including those that Wherry does not implement. Therefore, a misspelt field
//! can be told from a field without an effect, and wrong types are detected in all fields. A field is *honoured* (a
//! function sets it), has inner fields, or has no effect. A field without an effect causes a warning, unless its value
//! is empty (`{}`, `0s`, `""`; kubeadm writes many of these).

use crate::api::duration;
use crate::config::field_value::{FieldValue, Wrong};
use crate::config::problem::{Place, Problems};
use crate::config::settings::Config;
use crate::config::yaml::{MapEntry, Node, Value};
use std::collections::BTreeMap;

/// The type of a field in the Kubernetes API.
#[derive(Debug)]
pub enum FieldType {
    Bool,
    /// An integer with its maximum (`i32::MAX` or `i64::MAX`). The minimum is `-max - 1`.
    Int(i64),
    Float,
    Text,
    /// One of these words, or the empty string.
    OneOf(&'static [&'static str]),
    Duration,
    /// A duration, or a number of nanoseconds.
    DurationOrInt,
    /// A quantity: a string, or a number.
    Quantity,
    /// An RFC 3339 time.
    Time,
    List(&'static FieldType),
    /// A map with arbitrary keys.
    MapOf(&'static FieldType),
    Object(&'static [Field]),
}

/// The types `int32` and `int64` of the API.
pub const INT32: FieldType = FieldType::Int(i32::MAX as i64);
pub const INT64: FieldType = FieldType::Int(i64::MAX);

/// How a field is handled.
#[derive(Debug)]
pub enum Use {
    /// This function sets the field, and returns an error for an invalid value (for example, out of range).
    Honoured(Set),
    /// Like `Honoured`, for a value with several parts. The function reports the errors of each part.
    Parts(SetParts),
    /// An object whose inner fields are handled one by one.
    Inner,
    /// Ignored. Its zero value is equal to an unset field.
    NoEffect,
    /// Ignored. Its zero value differs from an unset field, because it is a pointer in the Go type (`failSwapOn:
    /// false`).
    NoEffectPointer,
}

pub type Set = fn(&mut Config, &FieldValue) -> Result<(), String>;
pub type SetParts = fn(&mut Config, &Node, Wrong);

#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: FieldType,
    pub what: Use,
}

/// Returns a field that `set` sets.
pub const fn set(name: &'static str, kind: FieldType, set: Set) -> Field {
    Field { name, kind, what: Use::Honoured(set) }
}

/// Returns a field with several parts, which `set` sets.
pub const fn parts(name: &'static str, kind: FieldType, set: SetParts) -> Field {
    Field { name, kind, what: Use::Parts(set) }
}

/// Returns a field without an effect of its own: it is ignored, or its list or map sets it.
pub const fn none(name: &'static str, kind: FieldType) -> Field {
    Field { name, kind, what: Use::NoEffect }
}

/// Applies documents to a configuration.
pub struct Reader<'a> {
    pub config: &'a mut Config,
    pub problems: &'a mut Problems,
    /// Where each honoured field was last set, for checks that involve several fields.
    pub places: &'a mut BTreeMap<String, Place>,
}

impl Reader<'_> {
    /// Reads the fields of a map. `path` is the path of the map, `""` for a document. `skip` lists keys to ignore.
    pub fn object(&mut self, fields: &'static [Field], entries: &[MapEntry], file: &Place, path: &str, skip: &[&str]) {
        for entry in entries {
            if skip.contains(&entry.key.as_str()) {
                continue;
            }
            let full = join(path, &entry.key);
            let place = file.line(entry.line);
            let Some(field) = fields.iter().find(|f| f.name == entry.key) else {
                let hint = match closest(&entry.key, fields.iter().map(|f| f.name)) {
                    Some(name) => format!("; did you mean {name}?"),
                    None => String::new(),
                };
                self.problems.error(&place, full, format!("unknown field{hint}"));
                continue;
            };
            // As in Go, null is the same as an unset field.
            if entry.node.value == Value::Null {
                continue;
            }
            self.field(field, &entry.node, &place, full);
        }
    }

    fn field(&mut self, field: &'static Field, node: &Node, place: &Place, full: String) {
        let before = self.problems.errors.len();
        if let (FieldType::Object(inner), Use::Inner) = (&field.kind, &field.what) {
            match &node.value {
                Value::Map(entries) => self.object(inner, entries, place, &full, &[]),
                other => self.problems.error(place, full, format!("expected a map, found {}", other.describe())),
            }
            return;
        }
        check(&field.kind, node, place, &full, self.problems);
        if self.problems.errors.len() > before {
            return;
        }
        match &field.what {
            Use::Honoured(set) => match set(self.config, &given(&field.kind, &node.value)) {
                Ok(()) => {
                    self.places.insert(full, place.clone());
                }
                Err(message) => self.problems.error(place, full, message),
            },
            Use::Parts(set) => {
                let mut wrong = |line, part: &str, message| {
                    self.problems.error(&place.line(line), format!("{full}{part}"), message)
                };
                set(self.config, node, &mut wrong);
                self.places.insert(full, place.clone());
            }
            Use::NoEffect if is_zero(&node.value) => {}
            Use::NoEffect | Use::NoEffectPointer | Use::Inner => {
                self.problems.warning(place, full, "known, but not honoured by wherry: it has no effect")
            }
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn given<'a>(kind: &FieldType, value: &'a Value) -> FieldValue<'a> {
    match (kind, value) {
        (_, Value::Bool(b)) => FieldValue::Bool(*b),
        (FieldType::Duration, Value::Text(s)) => FieldValue::Duration(duration::parse(s).unwrap_or_default()),
        (_, Value::Int(n)) => FieldValue::Int(*n),
        (_, Value::Text(s)) => FieldValue::Text(s),
        (FieldType::List(_), Value::List(list)) => {
            FieldValue::Texts(list.iter().filter_map(|n| n.value.text()).collect())
        }
        _ => FieldValue::Other,
    }
}

/// Reports every part of `node` that does not have the type `kind`.
fn check(kind: &FieldType, node: &Node, place: &Place, path: &str, problems: &mut Problems) {
    let wrong = |what: &str| format!("expected {what}, found {}", node.value.describe());
    let message = match (kind, &node.value) {
        (FieldType::Bool, Value::Bool(_)) => return,
        (FieldType::Bool, _) => wrong("true or false"),
        (FieldType::Int(max), Value::Int(n)) if *n <= *max && *n >= -*max - 1 => return,
        (FieldType::Int(max), Value::Int(n)) => {
            format!("{n} is out of range; it must be between {} and {max}", -*max - 1)
        }
        (FieldType::Int(_), _) => wrong("a whole number"),
        (FieldType::Float, Value::Float(_) | Value::Int(_)) => return,
        (FieldType::Float, _) => wrong("a number"),
        (FieldType::Text | FieldType::Time, Value::Text(_)) => return,
        (FieldType::Text, Value::Int(_) | Value::Float(_) | Value::Bool(_)) => {
            format!("{} (quote it)", wrong("a string"))
        }
        (FieldType::Text | FieldType::Time, _) => wrong("a string"),
        (FieldType::OneOf(words), Value::Text(s)) => {
            if s.is_empty() || words.contains(&s.as_str()) {
                return;
            }
            format!("{s:?} is not one of {}", words.join(", "))
        }
        (FieldType::OneOf(words), _) => wrong(&format!("one of {}", words.join(", "))),
        (FieldType::Duration | FieldType::DurationOrInt, Value::Text(s)) => match duration::parse(s) {
            Ok(_) => return,
            Err(message) => message,
        },
        (FieldType::DurationOrInt, Value::Int(_)) => return,
        (FieldType::Duration | FieldType::DurationOrInt, _) => wrong("a duration like \"20s\" or \"1m30s\""),
        (FieldType::Quantity, Value::Text(_) | Value::Int(_) | Value::Float(_)) => return,
        (FieldType::Quantity, _) => wrong("a quantity like \"100Mi\""),
        (FieldType::List(inner), Value::List(list)) => {
            for (i, item) in list.iter().enumerate() {
                check(inner, item, &place.line(item.line), &format!("{path}[{i}]"), problems);
            }
            return;
        }
        (FieldType::List(_), _) => wrong("a list"),
        (FieldType::MapOf(inner), Value::Map(entries)) => {
            for entry in entries {
                check(inner, &entry.node, &place.line(entry.line), &join(path, &entry.key), problems);
            }
            return;
        }
        (FieldType::Object(fields), Value::Map(entries)) => {
            for entry in entries {
                let (place, full) = (place.line(entry.line), join(path, &entry.key));
                match fields.iter().find(|f| f.name == entry.key) {
                    Some(_) if entry.node.value == Value::Null => {}
                    Some(field) => check(&field.kind, &entry.node, &place, &full, problems),
                    None => problems.error(&place, full, "unknown field"),
                }
            }
            return;
        }
        (FieldType::MapOf(_) | FieldType::Object(_), _) => wrong("a map"),
    };
    problems.error(place, path, message);
}

/// Reports whether this is a zero value, which is the same as an unset field if the Go field is not a pointer.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Int(n) => *n == 0,
        Value::Float(n) => *n == 0.0,
        Value::Text(s) => s.is_empty() || duration::parse(s).is_ok_and(|d| d.is_zero()),
        Value::List(list) => list.is_empty(),
        Value::Map(entries) => entries.iter().all(|e| is_zero(&e.node.value)),
    }
}

/// Returns the candidate closest to `word`, if it is similar enough for a suggestion.
fn closest(word: &str, candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase();
    candidates
        .map(|c| (distance(&lower, &c.to_lowercase()), c))
        .filter(|(d, c)| *d <= 2.max(c.len() / 4))
        .min()
        .map(|(_, c)| c)
}

/// Returns the edit distance (insert, delete, replace) between `a` and `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
