//! Limits on the depth of a value and on the memory that it needs, for values that a client sends or builds with
//! patches.
//!
//! Short texts can make large values: `[0,0,...]` needs 16 times the memory of its text, and `[{"":0},...]` 80 times. A
//! JSON patch doubles a value with each copy.

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The maximum depth. More than any object needs, and safe for the stack of a helper, whatever code recurses over the
/// value.
pub const MAX_DEPTH: usize = 64;
/// The maximum estimated memory, in bytes. The largest object, with 1 MiB of values in base64, needs a quarter of it.
pub const MAX_MEMORY: usize = 12 << 20;

/// An item of a list: its value, and spare capacity of the list.
const ITEM: usize = 2 * size_of::<Value>();
/// The first entry of a map allocates a node for eleven.
const FIRST_ENTRY: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 24;
/// A further entry: nodes are at least half full.
const ENTRY: usize = 2 * (size_of::<String>() + size_of::<Value>());
/// The overhead of the allocator for a string.
const ALLOCATION: usize = 16;

/// The limit that a value exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Depth,
    Memory,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Excess::Depth => write!(f, "the value is nested deeper than {MAX_DEPTH} levels"),
            Excess::Memory => {
                write!(f, "the value needs more than {} MiB of memory; split it", MAX_MEMORY >> 20)
            }
        }
    }
}

/// The remaining memory budget of one request.
#[derive(Debug)]
pub struct Budget {
    left: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: MAX_MEMORY }
    }
}

impl Budget {
    /// # Errors
    /// Fewer bytes are left.
    pub fn take(&mut self, bytes: usize) -> Result<(), Excess> {
        self.left = self.left.checked_sub(bytes).ok_or(Excess::Memory)?;
        Ok(())
    }

    /// Takes the memory of a value that is `depth` levels below the root.
    ///
    /// # Errors
    /// The value is too deep or too large at this depth. At most `MAX_DEPTH` levels are visited.
    pub fn take_value(&mut self, value: &Value, depth: usize) -> Result<(), Excess> {
        if depth > MAX_DEPTH {
            return Err(Excess::Depth);
        }
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
            Value::String(text) => self.take(ALLOCATION + text.len()),
            Value::Array(items) => items.iter().try_for_each(|item| {
                self.take(ITEM)?;
                self.take_value(item, depth + 1)
            }),
            Value::Object(map) => map.iter().enumerate().try_for_each(|(index, (key, value))| {
                self.take_entry(index, key)?;
                self.take_value(value, depth + 1)
            }),
        }
    }

    fn take_entry(&mut self, index: usize, key: &str) -> Result<(), Excess> {
        self.take(ALLOCATION + key.len() + if index == 0 { FIRST_ENTRY } else { ENTRY })
    }
}

/// # Errors
/// The value is too deep or too large.
pub fn check(value: &Value) -> Result<(), Excess> {
    Budget::default().take_value(value, 0)
}

/// Why a string is not a usable value.
#[derive(Debug)]
pub enum Unreadable {
    Excess(Excess),
    Syntax(serde_json::Error),
}

/// Reads JSON. A value that exceeds a limit is not built.
///
/// # Errors
/// The text is not JSON, or its value is too deep or too large.
pub fn read(text: &[u8]) -> Result<Value, Unreadable> {
    let (mut budget, mut excess) = (Budget::default(), None);
    let mut json = serde_json::Deserializer::from_slice(text);
    let seed = Limited { budget: &mut budget, excess: &mut excess, depth: 0 };
    let read = seed.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    read.map_err(|error| excess.map_or(Unreadable::Syntax(error), Unreadable::Excess))
}

/// Builds a value within the budget.
struct Limited<'a> {
    budget: &'a mut Budget,
    /// The reason for the error.
    excess: &'a mut Option<Excess>,
    depth: usize,
}

impl Limited<'_> {
    fn allowed<E: Error>(&mut self, result: Result<(), Excess>) -> Result<(), E> {
        result.map_err(|excess| {
            *self.excess = Some(excess);
            E::custom(excess)
        })
    }

    fn below(&mut self) -> Limited<'_> {
        Limited { budget: self.budget, excess: self.excess, depth: self.depth + 1 }
    }
}

impl<'de> DeserializeSeed<'de> for Limited<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(mut self, from: D) -> Result<Value, D::Error> {
        if self.depth > MAX_DEPTH {
            self.allowed(Err(Excess::Depth))?;
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Limited<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<Value, E> {
        let taken = self.budget.take(ALLOCATION + text.len());
        self.allowed(taken)?;
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.below())? {
            let taken = self.budget.take(ITEM);
            self.allowed(taken)?;
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let taken = self.budget.take_entry(map.len(), &key);
            self.allowed(taken)?;
            map.insert(key, entries.next_value_seed(self.below())?);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn excess(text: &str) -> Option<Excess> {
        match read(text.as_bytes()) {
            Err(Unreadable::Excess(excess)) => Some(excess),
            Ok(_) | Err(Unreadable::Syntax(_)) => None,
        }
    }

    #[test]
    fn a_value_is_read_as_it_is_written() {
        let text =
            r#"{"a": [1, -2, 2.5, 1e3, true, null, "x\u00e9", {}, []], "b": {"c": 18446744073709551615}, "a": "last"}"#;
        assert_eq!(read(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        for text in ["", "{", "[1,]", "{} {}", "{1: 2}", "nul"] {
            assert!(matches!(read(text.as_bytes()), Err(Unreadable::Syntax(_))), "{text}");
        }
    }

    #[test]
    fn the_depth_has_a_limit() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(read(nested(MAX_DEPTH).as_bytes()).is_ok());
        for text in [nested(MAX_DEPTH + 1), nested(1_000_000), r#"{"a":"#.repeat(MAX_DEPTH + 1) + "1"] {
            assert_eq!(excess(&text), Some(Excess::Depth));
        }
        let deep = |levels| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert_eq!((check(&deep(MAX_DEPTH)), check(&deep(MAX_DEPTH + 1))), (Ok(()), Err(Excess::Depth)));
    }

    #[test]
    fn a_short_text_does_not_become_a_large_value() {
        let full = 3 << 20;
        for item in ["0", "[]", "{}", "\"\"", "[0]", r#"{"":0}"#, r#"{"a":{"b":[{}]}}"#] {
            let text = format!("[{}]", vec![item; full / (item.len() + 1)].join(","));
            assert_eq!(excess(&text), Some(Excess::Memory), "{item}");
            assert_eq!(check(&json!([serde_json::from_str::<Value>(&text).unwrap()])), Err(Excess::Memory), "{item}");
        }
        let keys: Vec<String> = (0..200_000).map(|n| format!("\"{n:x}\":0")).collect();
        assert_eq!(excess(&format!("{{{}}}", keys.join(","))), Some(Excess::Memory));
    }

    #[test]
    fn the_largest_useful_objects_are_within_the_limits() {
        let text = "x".repeat(1 << 20);
        let containers: Vec<Value> = (0..200)
            .map(|n| {
                let env: Vec<Value> = (0..50).map(|e| json!({ "name": format!("E{e}"), "value": "v" })).collect();
                json!({ "name": format!("c{n}"), "image": "a:1", "env": env })
            })
            .collect();
        for object in [json!({ "data": { "a": text } }), json!({ "spec": { "containers": containers } })] {
            assert_eq!(check(&object), Ok(()));
            assert_eq!(read(object.to_string().as_bytes()).unwrap(), object);
        }
    }
}
