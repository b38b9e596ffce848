//! Deserialises a parsed document to a typed pod. This is the only place that deserialises the Kubernetes types.
//!
//! Each deserialiser type instantiates the whole tree of Pod types again (about 1 MB of code). Therefore one
//! deserialiser walks a `serde_json::Value` and does the work of three wrappers: it records the path of an error, it
//! collects unknown fields (D5), and it knows the field names of each type for suggestions.

use crate::api::problem::{At, Fault, FieldPath, FieldStep};
use serde::Deserialize;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::fmt;

/// Deserialises `value`. The second part of the result lists all unknown fields.
///
/// # Errors
/// The first wrong type, with its path.
pub(super) fn from_value<'de, T: Deserialize<'de>>(value: &'de Value) -> (Result<T, Fault>, Vec<Fault>) {
    let unknown = RefCell::new(Vec::new());
    let root = Node { value, at: At::Root, siblings: &[], unknown: &unknown };
    let result = T::deserialize(root).map_err(|e| Fault::invalid(e.at.unwrap_or_default(), e.message));
    (result, unknown.into_inner())
}

/// The maximum number of wrong types that are reported for a document.
const MAX_TYPE_FAULTS: usize = 10;
/// Values that may stand in for one of a wrong type. One of them has almost any type.
const STAND_INS: [fn() -> Value; 3] = [|| Value::Null, || Value::Object(Map::new()), || Value::String(String::new())];

/// Like `from_value`, for the author of a document: an unknown field is an error too.
///
/// # Errors
/// The first `MAX_TYPE_FAULTS` wrong types, then the unknown fields.
pub(super) fn strict<T: DeserializeOwned>(value: &Value) -> Result<T, Vec<Fault>> {
    match from_value::<T>(value) {
        (Ok(typed), unknown) if unknown.is_empty() => Ok(typed),
        (Ok(_), unknown) => Err(unknown),
        (Err(first), unknown) => Err(all_faults::<T>(value.clone(), first, unknown)),
    }
}

/// Deserialising ends at the first wrong type. To find the next one, a value that fits takes its place.
fn all_faults<T: DeserializeOwned>(mut value: Value, first: Fault, mut unknown: Vec<Fault>) -> Vec<Fault> {
    let mut wrong = vec![first];
    // Where the last error was, and how many values have been tried there.
    let (mut at, mut tried) = (wrong[0].at.clone(), 0);
    // Each error takes at most all stand-ins for it and for some of the values above it.
    for _ in 0..4 * STAND_INS.len() * MAX_TYPE_FAULTS {
        let Some(stand_in) = STAND_INS.get(tried) else {
            // No value fits: the whole object or list around it is left out.
            if at.0.pop().is_none() {
                break;
            }
            tried = 0;
            continue;
        };
        let Some(place) = find(&mut value, &at.0) else { break };
        *place = stand_in();
        let (result, more) = from_value::<T>(&value);
        unknown = more;
        match result {
            Ok(_) => break,
            Err(fault) if fault.at == at => tried += 1,
            Err(_) if wrong.len() == MAX_TYPE_FAULTS => break,
            Err(fault) => {
                (at, tried) = (fault.at.clone(), 0);
                wrong.push(fault);
            }
        }
    }
    wrong.extend(unknown);
    wrong
}

fn find<'v>(value: &'v mut Value, steps: &[FieldStep]) -> Option<&'v mut Value> {
    steps.iter().try_fold(value, |value, step| match step {
        FieldStep::Field(name) | FieldStep::Key(name) | FieldStep::HiddenKey(name) => value.get_mut(name),
        FieldStep::Item(index) => value.get_mut(index),
    })
}

/// One value on the walk. Cheap to create: nothing is copied until a typed field takes the value.
#[derive(Clone, Copy)]
struct Node<'de, 'w> {
    value: &'de Value,
    at: At<'w>,
    /// The field names of the object that contains this value. Empty in a map with free keys.
    siblings: &'static [&'static str],
    unknown: &'w RefCell<Vec<Fault>>,
}

/// An error and its location: the deepest value that was being read.
#[derive(Debug)]
struct TypeError {
    at: Option<FieldPath>,
    message: String,
}

impl TypeError {
    fn at(mut self, at: At<'_>) -> TypeError {
        self.at.get_or_insert_with(|| at.path());
        self
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TypeError {}

impl de::Error for TypeError {
    fn custom<T: fmt::Display>(message: T) -> TypeError {
        TypeError { at: None, message: message.to_string() }
    }

    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> TypeError {
        let expected = expected.to_string();
        let text = matches!(expected.as_str(), "a string");
        let hint = match found {
            de::Unexpected::Bool(_) if text => "; put it in quotes (yes, no, on, off, y and n are booleans too)",
            de::Unexpected::Unsigned(_) | de::Unexpected::Signed(_) | de::Unexpected::Float(_) if text => {
                "; put it in quotes"
            }
            _ => "",
        };
        let expected = plain(&expected);
        let found = match found {
            de::Unexpected::Unit | de::Unexpected::Option => "nothing".to_owned(),
            de::Unexpected::Seq => "a list".to_owned(),
            de::Unexpected::Map => "an object".to_owned(),
            de::Unexpected::Str(s) => format!("the text {s:?}"),
            other => format!("the {other}").replace('`', ""),
        };
        TypeError { at: None, message: format!("must be {expected}, not {found}{hint}") }
    }

    fn invalid_value(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> TypeError {
        let expected = plain(&expected.to_string());
        TypeError { at: None, message: format!("must be {expected}, not {}", found.to_string().replace('`', "")) }
    }
}

/// Translates a Rust type name for the author of a manifest.
fn plain(expected: &str) -> String {
    match expected {
        "i32" | "i64" | "u16" | "u32" | "u64" => "an integer".to_owned(),
        "f64" => "a number".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object with free keys".to_owned(),
        "Quantity" => "a quantity".to_owned(),
        "option" => "a value".to_owned(),
        // Kubernetes type names start with an upper-case letter.
        name if name.starts_with(|c: char| c.is_ascii_uppercase()) => format!("an object ({name})"),
        other => other.to_owned(),
    }
}

impl<'de> Deserializer<'de> for Node<'de, '_> {
    type Error = TypeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let result = match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::String(s) => visitor.visit_borrowed_str(s),
            Value::Number(n) => match (n.as_u64(), n.as_i64()) {
                (Some(n), _) => visitor.visit_u64(n),
                (None, Some(n)) => visitor.visit_i64(n),
                (None, None) => visitor.visit_f64(n.as_f64().unwrap_or(f64::NAN)),
            },
            Value::Array(items) => visitor.visit_seq(Items { node: self, items: items.iter().enumerate() }),
            Value::Object(map) => {
                visitor.visit_map(Entries { node: self, fields: None, entries: map.iter(), current: None })
            }
        };
        result.map_err(|e| e.at(self.at))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        let Value::Object(map) = self.value else { return self.deserialize_any(visitor) };
        let entries = Entries { node: self, fields: Some(fields), entries: map.iter(), current: None };
        visitor.visit_map(entries).map_err(|e| e.at(self.at))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let mut message = String::from("unknown field");
        if let At::Field(_, name) = self.at
            && let Some(meant) = nearest(name, self.siblings)
        {
            message.push_str("; did you mean ");
            message.push_str(meant);
            message.push('?');
        }
        self.unknown.borrow_mut().push(Fault::invalid(self.at.path(), message));
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map enum identifier
    }
}

struct Items<'de, 'w> {
    node: Node<'de, 'w>,
    items: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = TypeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, TypeError> {
        let Some((index, value)) = self.items.next() else { return Ok(None) };
        let at = self.node.at.item(index);
        let node = Node { value, at, siblings: &[], unknown: self.node.unknown };
        seed.deserialize(node).map(Some).map_err(|e| e.at(at))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Entries<'de, 'w> {
    node: Node<'de, 'w>,
    /// The fields of the type; None for a map with free keys.
    fields: Option<&'static [&'static str]>,
    entries: serde_json::map::Iter<'de>,
    current: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Entries<'de, '_> {
    type Error = TypeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, TypeError> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        self.current = Some((key, value));
        let key: de::value::StrDeserializer<'_, TypeError> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, TypeError> {
        let Some((key, value)) = self.current.take() else {
            return Err(de::Error::custom("value requested before its key"));
        };
        let at = match self.fields {
            Some(_) => self.node.at.field(key),
            None => self.node.at.key(key),
        };
        let node = Node { value, at, siblings: self.fields.unwrap_or(&[]), unknown: self.node.unknown };
        seed.deserialize(node).map_err(|e| e.at(at))
    }
}

/// The most similar known name: it differs in case, or in at most two letters (one letter for a short name).
pub(super) fn nearest<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let lower = name.to_ascii_lowercase();
    names
        .iter()
        .map(|candidate| (distance(&lower, &candidate.to_ascii_lowercase()), *candidate))
        .filter(|(distance, candidate)| *distance <= if candidate.len() < 6 { 1 } else { 2 })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The edit distance: insert, drop, replace, or swap neighbours. Names above 64 letters never match.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > 2 || a.len() > 64 {
        return usize::MAX;
    }
    // Row i contains the distances of the first i letters of `a` to each prefix of `b`. Three rows are enough.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn pod(spec: Value) -> (Result<Pod, String>, Vec<String>) {
        let value = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec});
        let (result, unknown) = from_value(&value);
        (result.map_err(|f| f.to_string()), unknown.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn d5_unknown_fields_are_all_found_with_a_suggestion() {
        let (result, unknown) = pod(json!({
            "containers": [{"name": "main", "imagePulPolicy": "Always", "securitycontext": {}, "wholly": {"else": 1}}],
            "restartpolicy": "Never",
        }));
        assert!(result.is_ok());
        assert_eq!(
            unknown,
            [
                "spec.containers[0].imagePulPolicy: unknown field; did you mean imagePullPolicy?",
                "spec.containers[0].securitycontext: unknown field; did you mean securityContext?",
                "spec.containers[0].wholly: unknown field",
                "spec.restartpolicy: unknown field; did you mean restartPolicy?",
            ]
        );
    }

    #[test]
    fn type_errors_have_a_plain_message_and_the_field_path() {
        for (container, expected) in [
            (json!({"command": "sh"}), "spec.containers[0].command: must be a list, not the text \"sh\""),
            (
                json!({"env": [{"name": "A", "value": 8080}]}),
                "spec.containers[0].env[0].value: must be a string, not the integer 8080; put it in quotes",
            ),
            (
                json!({"name": true}),
                "spec.containers[0].name: must be a string, not the boolean true; put it in quotes (yes, no, on, off, \
                 y and n are booleans too)",
            ),
            (
                json!({"ports": [{"containerPort": "80"}]}),
                "spec.containers[0].ports[0].containerPort: must be an integer, not the text \"80\"",
            ),
            (
                json!({"ports": [{"containerPort": 99999999999i64}]}),
                "spec.containers[0].ports[0].containerPort: must be an integer, not integer 99999999999",
            ),
            (
                json!({"resources": {"limits": {"cpu": true}}}),
                "spec.containers[0].resources.limits[cpu]: must be a quantity, not the boolean true",
            ),
            (
                json!({"resources": []}),
                "spec.containers[0].resources: must be an object (ResourceRequirements), not a list",
            ),
            (json!({"tty": "yes"}), "spec.containers[0].tty: must be a boolean, not the text \"yes\""),
        ] {
            assert_eq!(pod(json!({"containers": [container]})).0.unwrap_err(), expected);
        }
    }

    fn faults(spec: Value) -> Vec<String> {
        let value = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec});
        let faults = strict::<Pod>(&value).map(|_| Vec::new()).unwrap_or_else(|faults| faults);
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn all_wrong_types_are_found() {
        let found = faults(json!({
            "containers": [
                {"name": true, "args": [1, "x", {}], "env": {}, "resources": {"limits": {"cpu": true, "memory": []}}},
                "main",
                {"name": "ok", "ports": [{"containerPort": "80"}], "typo": 1},
            ],
            "hostNetwork": "yes",
        }));
        let starts: Vec<&str> = found.iter().filter_map(|text| text.split(": ").next()).collect();
        let wanted = [
            "spec.containers[0].args[0]",
            "spec.containers[0].args[2]",
            "spec.containers[0].env",
            "spec.containers[0].name",
            "spec.containers[0].resources.limits[cpu]",
            "spec.containers[0].resources.limits[memory]",
            "spec.containers[1]",
            "spec.containers[2].ports[0].containerPort",
            "spec.hostNetwork",
            "spec.containers[2].typo",
        ];
        assert_eq!(starts, wanted, "{found:#?}");
        assert!(found[8].contains("must be a boolean") && found[9].contains("unknown field"), "{found:#?}");
        assert_eq!(faults(json!("text")).len(), 1);
        assert_eq!(faults(json!({"containers": [{"name": "a"}]})), [""; 0]);
    }

    #[test]
    fn the_wrong_types_have_a_limit() {
        let env: Vec<Value> = (0..1000).map(|n| json!({"name": "A", "value": n})).collect();
        let found = faults(json!({"containers": [{"name": "a", "env": env}], "hostNetwork": 1}));
        assert_eq!(found.len(), MAX_TYPE_FAULTS);
        assert!(found[9].starts_with("spec.containers[0].env[9].value: "), "{found:#?}");
        // No value stands in for a number: the rest of its list is left out.
        let groups = json!({"supplementalGroups": ["x", "y"], "sysctls": 1});
        let found = faults(json!({"containers": [], "securityContext": groups}));
        assert_eq!(found.len(), 2, "{found:#?}");
    }

    #[test]
    fn numbers_are_quantities_and_null_is_absent() {
        let (result, unknown) = pod(json!({
            "containers": [{"name": "a", "args": null, "resources": {"limits": {"cpu": 0.5, "memory": 1024}}}],
        }));
        let limits = result.unwrap().spec.unwrap().containers[0].resources.clone().unwrap().limits.unwrap();
        assert_eq!((limits["cpu"].0.as_str(), limits["memory"].0.as_str()), ("0.5", "1024"));
        assert!(unknown.is_empty());
    }
}
