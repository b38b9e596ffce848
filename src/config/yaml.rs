//! Parses YAML (and thus JSON) into a tree in which every value and key has its line.
//!
//! Configuration is small and rarely read. The tree is designed for good messages, not for speed: a problem found at
//! any later point can name its line. The parser is as strict as the one for manifests: a duplicate key is an error,
//! and size, depth and number of nodes are limited.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, MessageFormatter, Options, Spanned, UserMessageFormatter};
use std::fmt;

/// Maximum size of a file, in bytes.
pub const MAX_BYTES: u64 = 1 << 20;

/// A value and the line (from 1) on which it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub line: u64,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<MapEntry>),
}

/// One key of a map, its line, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    pub key: String,
    pub line: u64,
    pub node: Node,
}

/// A YAML syntax error and its line (0 if unknown).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    pub line: u64,
    pub message: String,
}

/// Parses all documents of `text`. Empty documents are omitted.
pub fn read(text: &str) -> Result<Vec<Node>, SyntaxError> {
    serde_saphyr::from_str_multiple_with_options::<Node, Vec<Node>>(text, options()).map_err(|e| SyntaxError {
        line: e.location().map_or(0, |l| l.line()),
        message: UserMessageFormatter.format_message(&e).into_owned(),
    })
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 64,
            max_nodes: 20_000,
            max_documents: 16,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        legacy_octal_numbers: true,
        no_schema: true,
        with_snippet: false,
    }
}

impl Value {
    /// Returns a description of the value for messages ("found ...").
    pub fn describe(&self) -> String {
        match self {
            Value::Null => "nothing".into(),
            Value::Bool(b) => format!("the boolean {b}"),
            Value::Int(n) => format!("the number {n}"),
            Value::Float(n) => format!("the number {n}"),
            Value::Text(s) => format!("the string {s:?}"),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a map".into(),
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(s) => Some(s),
            _ => None,
        }
    }

    /// Returns the value of `key`, if this is a map that contains it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match self {
            Value::Map(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.node),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Node, D::Error> {
        let spanned = Spanned::<Value>::deserialize(d)?;
        Ok(Node { line: spanned.referenced.line(), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Value, D::Error> {
        d.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        Value::deserialize(d)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(Value::Int(n))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(i64::try_from(n).map_or(Value::Float(n as f64), Value::Int))
    }

    fn visit_f64<E>(self, n: f64) -> Result<Value, E> {
        Ok(Value::Float(n))
    }

    fn visit_str<E>(self, s: &str) -> Result<Value, E> {
        Ok(Value::Text(s.to_owned()))
    }

    fn visit_string<E>(self, s: String) -> Result<Value, E> {
        Ok(Value::Text(s))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = seq.next_element::<Node>()? {
            list.push(node);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Node>()? {
            let name = match key.value {
                Value::Text(s) => s,
                other => {
                    return Err(A::Error::custom(format_args!("a key must be a string, not {}", other.describe())));
                }
            };
            entries.push(MapEntry { key: name, line: key.line, node: map.next_value::<Node>()? });
        }
        Ok(Value::Map(entries))
    }
}
