//! Converts an object in protobuf, as newer versions of kubectl send it, to the JSON object that an older version would
//! send.
//!
//! `pod_fields`, `workload_fields` and `plain_fields` describe the messages of the public API: one line for each, with
//! the number, the JSON name and the type of each field. The fields of a field without a name belong to its parent in
//! JSON. Types:
//! - `s`, `i`, `b`: a string, an integer, a boolean that clients always send; JSON omits the empty value, zero and
//!   false;
//! - `S`, `I`, `B`: the same for a field that can be absent;
//! - `[]` before a type: a list; `{}`: a map from strings; `-`: a field that a client cannot set; any other type is a
//!   message.

use super::wire::{Malformed, WireValue, read_fields};
use super::{plain_fields, pod_fields, workload_fields};
use crate::api::ordered::CollectOrdered;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The deepest message of a valid Deployment is at level 14.
const MAX_DEPTH: usize = 16;
/// The maximum number of fields in a body.
const MAX_FIELDS: usize = 100_000;

/// Why a body is not an object of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// This version of Wherry does not know the field.
    Unknown {
        message: String,
        field: u64,
    },
    /// The field has a different type in the API.
    WrongType {
        message: String,
        field: String,
    },
    Malformed {
        message: String,
    },
    TooDeep,
    TooManyFields,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageError::Unknown { message, field } => write!(f, "unknown field number {field} of {message}"),
            MessageError::WrongType { message, field } => {
                write!(f, "the field {field:?} of {message} has the wrong type")
            }
            MessageError::Malformed { message } => write!(f, "the message {message} is malformed"),
            MessageError::TooDeep => f.write_str("the messages are nested too deeply"),
            MessageError::TooManyFields => f.write_str("the message has too many fields"),
        }
    }
}

/// The field numbers of a message, with the JSON name and the type of each.
type Fields = BTreeMap<u64, (&'static str, &'static str)>;

fn table() -> BTreeMap<&'static str, Fields> {
    let field = |text: &'static str| {
        let (number, rest) = text.split_once(':')?;
        let (name, kind) = rest.split_once(':')?;
        Some((number.parse().ok()?, (name, kind)))
    };
    let message = |line: &'static str| {
        let (name, fields) = line.split_once(' ')?;
        Some((name, fields.split(' ').filter_map(field).collect_map()))
    };
    lines().filter_map(message).collect_map()
}

fn lines() -> impl Iterator<Item = &'static str> {
    [pod_fields::TABLE, workload_fields::TABLE, plain_fields::TABLE].into_iter().flat_map(str::lines)
}

/// Returns the object of this kind in a message. Any message of the tables is a kind.
///
/// # Errors
/// See `MessageError`.
pub fn object(kind: &str, message: &[u8]) -> Result<Value, MessageError> {
    let mut decoder = Decoder { table: table(), left: MAX_FIELDS };
    let mut object = Map::new();
    decoder.message(kind, message, 0, &mut object)?;
    Ok(object.into())
}

struct Decoder {
    table: BTreeMap<&'static str, Fields>,
    /// The number of fields that may still follow.
    left: usize,
}

impl Decoder {
    /// Adds the fields of a message to an object.
    fn message(
        &mut self,
        message: &str,
        bytes: &[u8],
        depth: usize,
        object: &mut Map<String, Value>,
    ) -> Result<(), MessageError> {
        if depth > MAX_DEPTH {
            return Err(MessageError::TooDeep);
        }
        for field in read_fields(bytes) {
            let (number, field) = field.map_err(|Malformed| malformed(message))?;
            self.left = self.left.checked_sub(1).ok_or(MessageError::TooManyFields)?;
            let known = self.table.get(message).and_then(|fields| fields.get(&number)).copied();
            let Some((name, kind)) = known else {
                return Err(MessageError::Unknown { message: message.to_owned(), field: number });
            };
            if kind == "-" {
                continue;
            }
            let wrong = || MessageError::WrongType { message: message.to_owned(), field: name.to_owned() };
            if name.is_empty() {
                let WireValue::Bytes(bytes) = field else { return Err(wrong()) };
                self.message(kind, bytes, depth + 1, object)?;
            } else if let Some(kind) = kind.strip_prefix("[]") {
                let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                let mut list = list.take();
                let value = self.value(kind, field, depth)?.ok_or_else(wrong)?;
                if let Some(list) = list.as_array_mut() {
                    list.push(value);
                }
                object.insert(name.to_owned(), list);
            } else if let Some(kind) = kind.strip_prefix("{}") {
                let WireValue::Bytes(bytes) = field else { return Err(wrong()) };
                let (key, value) = self.entry(message, kind, bytes, depth)?;
                let map = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if let Some(map) = map.as_object_mut() {
                    map.insert(key, value);
                }
            } else {
                let value = self.value(kind, field, depth)?.ok_or_else(wrong)?;
                let is_empty = match &value {
                    Value::String(text) => kind == "s" && text.is_empty(),
                    Value::Number(n) => kind == "i" && n.as_i64() == Some(0),
                    Value::Bool(on) => kind == "b" && !on,
                    _ => false,
                };
                if !is_empty {
                    object.insert(name.to_owned(), value);
                }
            }
        }
        Ok(())
    }

    /// Reads an entry of a map.
    fn entry(
        &mut self,
        message: &str,
        kind: &str,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(String, Value), MessageError> {
        let (mut key, mut value) = (String::new(), None);
        for field in read_fields(bytes) {
            match field.map_err(|Malformed| malformed(message))? {
                (1, WireValue::Bytes(bytes)) => key = text(bytes).ok_or_else(|| malformed(message))?,
                (2, field) => value = self.value(kind, field, depth)?,
                _ => return Err(malformed(message)),
            }
        }
        Ok((key, value.unwrap_or_else(|| "".into())))
    }

    /// Reads a value of this type. None if the field has another type.
    fn value(&mut self, kind: &str, field: WireValue<'_>, depth: usize) -> Result<Option<Value>, MessageError> {
        Ok(match (kind, field) {
            ("s" | "S", WireValue::Bytes(bytes)) => text(bytes).map(Value::from),
            ("i" | "I", WireValue::Number(n)) => Some(n.cast_signed().into()),
            ("b" | "B", WireValue::Number(n)) => Some((n != 0).into()),
            ("s" | "S" | "i" | "I" | "b" | "B", _) | (_, WireValue::Number(_)) => None,
            ("Quantity", WireValue::Bytes(bytes)) => Some(quantity(bytes)?),
            ("IntOrString", WireValue::Bytes(bytes)) => Some(int_or_string(bytes)?),
            (message, WireValue::Bytes(bytes)) => {
                let mut object = Map::new();
                self.message(message, bytes, depth + 1, &mut object)?;
                Some(object.into())
            }
        })
    }
}

fn malformed(message: &str) -> MessageError {
    MessageError::Malformed { message: message.to_owned() }
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn quantity(bytes: &[u8]) -> Result<Value, MessageError> {
    let mut value = String::new();
    for field in read_fields(bytes) {
        match field.map_err(|Malformed| malformed("Quantity"))? {
            (1, WireValue::Bytes(bytes)) => value = text(bytes).ok_or_else(|| malformed("Quantity"))?,
            (field, _) => return Err(MessageError::Unknown { message: "Quantity".to_owned(), field }),
        }
    }
    Ok(value.into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, MessageError> {
    let (mut is_text, mut number, mut words) = (false, 0, String::new());
    for field in read_fields(bytes) {
        match field.map_err(|Malformed| malformed("IntOrString"))? {
            (1, WireValue::Number(kind)) => is_text = kind == 1,
            (2, WireValue::Number(n)) => number = n.cast_signed(),
            (3, WireValue::Bytes(bytes)) => words = text(bytes).ok_or_else(|| malformed("IntOrString"))?,
            (field, _) => return Err(MessageError::Unknown { message: "IntOrString".to_owned(), field }),
        }
    }
    Ok(if is_text { words.into() } else { number.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(message: &[u8]) -> Result<Value, MessageError> {
        object("Pod", message)
    }

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut tag = vec![number << 3 | 2];
        if number > 15 {
            tag = vec![(number & 0xf) << 3 | 2 | 0x80, number >> 4];
        }
        [tag, vec![u8::try_from(bytes.len()).unwrap()], bytes.to_vec()].concat()
    }

    fn example() -> Vec<u8> {
        let meta = [field(1, b"copy"), field(3, b""), field(8, b"")].concat();
        let port = field(1, &[[1 << 3, 0].to_vec(), [2 << 3, 80].to_vec(), field(3, b"")].concat());
        let get = field(2, &[field(1, b"/x"), field(2, &port[2..])].concat());
        let probe = [field(1, &get), vec![2 << 3, 5, 3 << 3, 0]].concat();
        let limits = field(1, &[field(1, b"cpu"), field(2, &field(1, b"500m"))].concat());
        let security = [2 << 3, 0];
        let container = [
            field(1, b"main"),
            field(2, b"busybox"),
            field(3, b"sh"),
            field(3, b""),
            field(5, b""),
            field(8, &limits),
            field(10, &probe),
            field(15, &security),
        ];
        let source = field(2, &field(2, &field(1, b"Memory")));
        let volume = [field(1, b"v"), source].concat();
        let spec = [field(1, &volume), field(2, &container.concat()), vec![4 << 3, 0, 11 << 3, 0]].concat();
        [field(1, &meta), field(2, &spec), field(3, &field(1, b"Pending"))].concat()
    }

    #[test]
    fn a_pod_is_read_as_its_json_form() {
        let expected = json!({
            "metadata": { "name": "copy" },
            "spec": {
                "volumes": [{ "name": "v", "emptyDir": { "medium": "Memory" } }],
                "containers": [{
                    "name": "main", "image": "busybox", "command": ["sh", ""],
                    "resources": { "limits": { "cpu": "500m" } },
                    "livenessProbe": { "httpGet": { "path": "/x", "port": 80 }, "initialDelaySeconds": 5 },
                    "securityContext": { "privileged": false },
                }],
                "terminationGracePeriodSeconds": 0,
            },
        });
        assert_eq!(pod(&example()), Ok(expected));
    }

    #[test]
    fn a_job_is_read_as_its_json_form() {
        let container = [field(1, b"main"), field(2, b"busybox")].concat();
        let template = field(2, &[field(2, &container), field(3, b"Never")].concat());
        let spec = [vec![2 << 3, 3, 7 << 3, 0], field(6, &template)].concat();
        let job = [field(1, &field(1, b"hello")), field(2, &spec), field(3, b"")].concat();
        let pod = json!({ "containers": [{ "name": "main", "image": "busybox" }], "restartPolicy": "Never" });
        let spec = json!({ "completions": 3, "backoffLimit": 0, "template": { "spec": pod } });
        assert_eq!(object("Job", &job), Ok(json!({ "metadata": { "name": "hello" }, "spec": spec })));
    }

    #[test]
    fn a_role_is_read_as_its_json_form() {
        // The core group has an empty name.
        let rule = [field(1, b"get"), field(1, b"list"), field(2, b""), field(3, b"pods")].concat();
        let role = [field(1, &field(1, b"reader")), field(2, &rule)].concat();
        let rules = json!([{ "verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"] }]);
        assert_eq!(object("Role", &role), Ok(json!({ "metadata": { "name": "reader" }, "rules": rules })));
    }

    #[test]
    fn an_unknown_field_is_an_error_with_its_message_and_number() {
        let error = pod(&field(2, &field(2, &field(99, b"x")))).unwrap_err();
        assert_eq!(error.to_string(), "unknown field number 99 of Container");
        let wrong = pod(&field(2, &[4 << 3 | 2, 1, 0])).unwrap_err();
        assert_eq!(wrong.to_string(), "the field \"terminationGracePeriodSeconds\" of PodSpec has the wrong type");
        assert_eq!(pod(&[2 << 3 | 2, 9]).unwrap_err().to_string(), "the message Pod is malformed");
    }

    #[test]
    fn the_table_is_complete() {
        let table = table();
        assert_eq!(table.len(), lines().count());
        for (message, fields) in &table {
            for (name, kind) in fields.values() {
                let kind = kind.trim_start_matches("[]").trim_start_matches("{}");
                let known = matches!(kind, "s" | "S" | "i" | "I" | "b" | "B" | "-" | "Quantity" | "IntOrString");
                assert!(known || table.contains_key(kind), "{message}.{name}: {kind}");
            }
        }
    }

    #[test]
    fn no_input_causes_a_panic() {
        let example = example();
        for end in 0..example.len() {
            let _ = pod(&example[..end]);
            for change in 0..=255 {
                let mut changed = example.clone();
                changed[end] = change;
                let _ = pod(&changed);
            }
        }
        // Empty messages cost little, and their number is bounded.
        let many: Vec<u8> = [2 << 3 | 2, 0].repeat(MAX_FIELDS + 1);
        assert_eq!(pod(&many), Err(MessageError::TooManyFields));
    }
}
