//! Reads the Kubernetes types from a parsed document. This is the only reader: in one pass, it finds all wrong types
//! with their paths, and all unknown fields (D5) with the known name that is probably meant.

use super::field::{AnyObject, FieldMut, FieldValue, IntOrString};
use crate::api::problem::{At, Fault};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de};
use serde_json::{Number, Value};

/// The maximum number of wrong types that are reported for a document.
const MAX_TYPE_FAULTS: usize = 10;

/// Reads `value`. The second part of the result lists all unknown fields.
///
/// # Errors
/// The first wrong type, with its path.
pub(crate) fn from_value<T: FieldValue + Default>(value: &Value) -> (Result<T, Fault>, Vec<Fault>) {
    let (typed, found) = read(value);
    (found.wrong.into_iter().next().map_or(Ok(typed), Err), found.unknown)
}

/// Like `from_value`, but returns all errors, for the author of a document.
///
/// # Errors
/// The first `MAX_TYPE_FAULTS` wrong types, then the unknown fields.
pub(crate) fn with_unknown<T: FieldValue + Default>(value: &Value) -> Result<(T, Vec<Fault>), Vec<Fault>> {
    let (typed, mut found) = read(value);
    if found.wrong.is_empty() {
        return Ok((typed, found.unknown));
    }
    found.wrong.append(&mut found.unknown);
    Err(found.wrong)
}

/// Like `with_unknown`, but an unknown field is an error too.
///
/// # Errors
/// As for `with_unknown`, or the unknown fields.
pub(crate) fn strict<T: FieldValue + Default>(value: &Value) -> Result<T, Vec<Fault>> {
    let (typed, unknown) = with_unknown(value)?;
    if unknown.is_empty() { Ok(typed) } else { Err(unknown) }
}

/// Reads a value that is part of another type. Unknown fields are ignored.
pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FieldValue + Default,
    D: Deserializer<'de>,
{
    let value = Value::deserialize(deserializer)?;
    from_value(&value).0.map_err(de::Error::custom)
}

fn read<T: FieldValue + Default>(value: &Value) -> (T, Found) {
    let (mut typed, mut found) = (T::default(), Found::default());
    read_into(&mut typed, value, At::Root, &mut found);
    (typed, found)
}

/// Reads a value that is present.
fn read_into(to: &mut dyn FieldValue, value: &Value, at: At<'_>, found: &mut Found) {
    let expected = match (to.place(), value) {
        (FieldMut::Bool(to), Value::Bool(value)) => return *to = *value,
        (FieldMut::Bool(_), _) => "a boolean",
        (FieldMut::Int32(to), _) => return *to = found.integer(value, at, i32::MIN.into(), i32::MAX.into()) as i32,
        (FieldMut::Int64(to), _) => return *to = found.integer(value, at, i64::MIN, i64::MAX),
        (FieldMut::Text(to), Value::String(text)) => return text.clone_into(to),
        (FieldMut::Text(_), _) => "a string",
        (FieldMut::Quantity(to), _) => return *to = found.quantity(value, at),
        (FieldMut::IntOrString(to), _) => return *to = found.int_or_string(value, at),
        (FieldMut::Time(to), _) => return *to = found.time(value, at),
        (FieldMut::Bytes(to), _) => return *to = found.bytes(value, at),
        (FieldMut::Json(to), _) => return value.clone_into(to),
        (FieldMut::List(list), Value::Array(items)) => {
            list.reserve(items.len());
            return items.iter().enumerate().for_each(|(i, item)| read_into(list.add(), item, at.item(i), found));
        }
        (FieldMut::List(_), _) => "a list",
        (FieldMut::Map(map), Value::Object(entries)) => {
            return entries.iter().for_each(|(key, value)| read_into(map.entry(key), value, at.key(key), found));
        }
        (FieldMut::Map(_), _) => "an object with arbitrary keys",
        (FieldMut::Object(object), Value::Object(entries)) => {
            return entries.iter().for_each(|(key, value)| read_field(object, key, value, at.field(key), found));
        }
        (FieldMut::Object(object), _) => {
            return found.wrong(value, at, &format!("an object ({})", object.shape().name));
        }
    };
    found.wrong(value, at, expected);
}

fn read_field(object: &mut dyn AnyObject, key: &str, value: &Value, at: At<'_>, found: &mut Found) {
    let shape = object.shape();
    if let Some(index) = shape.fields.iter().position(|name| *name == key) {
        if !value.is_null() {
            read_into(object.field_mut(index), value, at, found);
        }
        return;
    }
    let same = shape.identity.iter().flat_map(|identity| identity.fields());
    match same.clone().find(|(name, _)| *name == key) {
        Some((_, right)) => found.identity(value, at, right),
        None => {
            let names: Vec<&str> = same.map(|(name, _)| name).chain(shape.fields.iter().copied()).collect();
            found.unknown(at, key, &names);
        }
    }
}

/// The errors of a document.
#[derive(Default)]
struct Found {
    /// At most `MAX_TYPE_FAULTS`.
    wrong: Vec<Fault>,
    unknown: Vec<Fault>,
}

impl Found {
    fn wrong(&mut self, value: &Value, at: At<'_>, expected: &str) {
        let text = expected == "a string";
        let (found, hint) = match value {
            Value::Null => ("nothing".to_owned(), ""),
            Value::Array(_) => ("a list".to_owned(), ""),
            Value::Object(_) => ("an object".to_owned(), ""),
            Value::String(value) => (format!("the text {value:?}"), ""),
            Value::Bool(value) if text => {
                (format!("the boolean {value}"), "; put it in quotes (yes, no, on, off, y and n are booleans too)")
            }
            Value::Bool(value) => (format!("the boolean {value}"), ""),
            Value::Number(value) => (format!("the {}", number(value)), if text { "; put it in quotes" } else { "" }),
        };
        self.message(at, format!("must be {expected}, not {found}{hint}"));
    }

    fn message(&mut self, at: At<'_>, message: String) {
        if self.wrong.len() < MAX_TYPE_FAULTS {
            self.wrong.push(Fault::invalid(at.path(), message));
        }
    }

    fn unknown(&mut self, at: At<'_>, name: &str, fields: &[&str]) {
        let mut message = String::from("unknown field");
        if let Some(meant) = nearest(name, fields) {
            message.push_str("; did you mean ");
            message.push_str(meant);
            message.push('?');
        }
        self.unknown.push(Fault::invalid(at.path(), message));
    }

    /// Checks `apiVersion` or `kind`.
    fn identity(&mut self, value: &Value, at: At<'_>, right: &str) {
        match value {
            Value::String(text) if text == right => {}
            Value::String(text) => self.message(at, format!("must be {right}, not string {text:?}")),
            _ => self.wrong(value, at, "a string"),
        }
    }

    /// Reads an integer that is between the bounds.
    fn integer(&mut self, value: &Value, at: At<'_>, low: i64, high: i64) -> i64 {
        match value {
            Value::Number(number) if !number.is_f64() => match number.as_i64() {
                Some(number) if (low..=high).contains(&number) => return number,
                _ => self.message(at, format!("integer {number} is out of range")),
            },
            _ => self.wrong(value, at, "an integer"),
        }
        0
    }

    fn int_or_string(&mut self, value: &Value, at: At<'_>) -> IntOrString {
        match value {
            Value::String(text) => return IntOrString::String(text.clone()),
            Value::Number(number) if !number.is_f64() => match number.as_i64().map(i32::try_from) {
                Some(Ok(number)) => return IntOrString::Int(number),
                _ => self.message(at, format!("must be a 32-bit integer, not integer {number}")),
            },
            _ => self.wrong(value, at, "an integer or a string"),
        }
        IntOrString::default()
    }

    fn time(&mut self, value: &Value, at: At<'_>) -> Timestamp {
        match value {
            Value::String(text) => match text.parse() {
                Ok(time) => return time,
                Err(e) => self.message(at, format!("must be a time such as 2026-01-02T15:04:05Z: {e}")),
            },
            _ => self.wrong(value, at, "a time such as 2026-01-02T15:04:05Z"),
        }
        Timestamp::default()
    }

    /// Reads the text of a quantity.
    fn quantity(&mut self, value: &Value, at: At<'_>) -> String {
        match value {
            Value::String(text) => return text.clone(),
            Value::Number(number) => return float(number).map_or_else(|| number.to_string(), |f| f.to_string()),
            _ => self.wrong(value, at, "a quantity"),
        }
        String::new()
    }

    fn bytes(&mut self, value: &Value, at: At<'_>) -> Vec<u8> {
        match value {
            Value::String(text) => match STANDARD.decode(text) {
                Ok(bytes) => return bytes,
                Err(e) => self.message(at, format!("must be base64 text: {e}")),
            },
            _ => self.wrong(value, at, "base64 text"),
        }
        Vec::new()
    }
}

fn float(number: &Number) -> Option<f64> {
    number.as_f64().filter(|_| number.is_f64())
}

fn number(number: &Number) -> String {
    let kind = if number.is_f64() { "floating point" } else { "integer" };
    format!("{kind} {number}")
}

/// Returns the most similar known name, if it differs only in case or in at most two letters (one letter for a short
/// name).
pub(crate) fn nearest<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let lower = name.to_ascii_lowercase();
    names
        .iter()
        .map(|candidate| (distance(&lower, &candidate.to_ascii_lowercase()), *candidate))
        .filter(|(distance, candidate)| *distance <= if candidate.len() < 6 { 1 } else { 2 })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the edit distance: the number of letters to insert, delete, replace, or swap with a neighbour. Names
/// longer than 64 letters never match.
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
    use crate::api::k8s::{Pod, Secret};
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
                "spec.containers[0].ports[0].containerPort: integer 99999999999 is out of range",
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
            (
                json!({"livenessProbe": {"tcpSocket": {"port": true}}}),
                "spec.containers[0].livenessProbe.tcpSocket.port: must be an integer or a string, not the boolean true",
            ),
            (
                json!({"livenessProbe": {"tcpSocket": {"port": 99999999999i64}}}),
                "spec.containers[0].livenessProbe.tcpSocket.port: must be a 32-bit integer, not integer 99999999999",
            ),
        ] {
            assert_eq!(pod(json!({"containers": [container]})).0.unwrap_err(), expected);
        }
    }

    #[test]
    fn a_wrong_time_version_or_encoding_is_named() {
        let wrong = |value: Value| from_value::<Pod>(&value).0.map_err(|fault| fault.to_string()).unwrap_err();
        let time = wrong(json!({"metadata": {"creationTimestamp": "yesterday"}}));
        assert!(
            time.starts_with("metadata.creationTimestamp: must be a time such as 2026-01-02T15:04:05Z: "),
            "{time}"
        );
        let time = wrong(json!({"metadata": {"creationTimestamp": 5}}));
        assert!(time.ends_with("must be a time such as 2026-01-02T15:04:05Z, not the integer 5"), "{time}");
        assert_eq!(wrong(json!({"apiVersion": "v2"})), "apiVersion: must be v1, not string \"v2\"");
        let secret = |data: Value| from_value::<Secret>(&json!({"data": {"key": data}})).0.map_err(|f| f.to_string());
        assert_eq!(secret(json!("aGk=")).unwrap().data.unwrap()["key"].0, b"hi");
        assert_eq!(secret(json!(1)).unwrap_err(), "data[key]: must be base64 text, not the integer 1");
        let encoding = secret(json!("a!")).unwrap_err();
        assert!(encoding.starts_with("data[key]: must be base64 text: "), "{encoding}");
    }

    #[test]
    fn the_values_of_a_secret_have_no_debug_form() {
        let value = json!({"data": {"key": "aGlkZGVu"}, "stringData": {"other": "hidden"}});
        let secret: Secret = from_value(&value).0.unwrap();
        let shown = format!("{secret:?} {:?}", secret.data);
        assert!(!["hidden", "aGlkZGVu", "104"].into_iter().any(|value| shown.contains(value)), "{shown}");
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
        let groups = json!({"supplementalGroups": ["x", "y"], "sysctls": 1});
        let found = faults(json!({"containers": [], "securityContext": groups}));
        assert_eq!(found.len(), 3, "{found:#?}");
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
