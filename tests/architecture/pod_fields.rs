//! docs/pods.md: a table of all fields of the v1 Pod, compared with the types of k8s-openapi.

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, Visitor};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use wherry::api::document;
use wherry::api::document::context::Context;
use wherry::api::k8s;

/// Gives each field of a type a value: each list has one item, and each map one entry. It notes the fields and their values.
#[derive(Clone)]
struct Explorer<'a> {
    path: String,
    found: &'a RefCell<BTreeMap<String, Value>>,
}

type Error = de::value::Error;

impl<'a> Explorer<'a> {
    fn at(&self, path: String) -> Explorer<'a> {
        Explorer { path, found: self.found }
    }

    fn field(&self, name: &str) -> Explorer<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.at(format!("{}{dot}{name}", self.path))
    }

    /// Notes the value. A list or a map of simple values is noted as a whole.
    fn note(&self, value: Value) {
        let mut found = self.found.borrow_mut();
        let (path, value) = match (self.path.strip_suffix("[]"), self.path.strip_suffix("{}")) {
            (Some(list), _) => (list, json!([value])),
            (_, Some(map)) => (map, json!({"key": value})),
            _ => (self.path.as_str(), value),
        };
        found.insert(path.to_owned(), value);
    }

    /// A string that every type of the Pod accepts.
    fn text(&self) -> &'static str {
        match self.path.as_str() {
            "apiVersion" => "v1",
            "kind" => "Pod",
            _ => "2026-01-02T03:04:05Z",
        }
    }
}

impl<'de> IntoDeserializer<'de, Error> for Explorer<'_> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Explorer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(json!(self.text()));
        visitor.visit_str(self.text())
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(json!(true));
        visitor.visit_bool(true)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(json!(1));
        visitor.visit_i32(1)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(json!(1));
        visitor.visit_i64(1)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let item = self.at(format!("{}[]", self.path));
        visitor.visit_seq(SeqDeserializer::new([item].into_iter()))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let entry = self.at(format!("{}{{}}", self.path));
        visitor.visit_map(MapDeserializer::new([("key", entry)].into_iter()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let fields = fields.iter().map(|name| (StrDeserializer::new(name), self.field(name)));
        visitor.visit_map(MapDeserializer::new(fields))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct enum identifier
        ignored_any
    }
}

/// A pod with all fields, and those that are not objects or lists of objects, each with its value.
fn explored() -> (Pod, BTreeMap<String, Value>) {
    let found = RefCell::default();
    let pod = Pod::deserialize(Explorer { path: String::new(), found: &found });
    let pod = pod.expect("every field accepts a value");
    (pod, found.into_inner())
}

fn fields() -> BTreeMap<String, Value> {
    explored().1
}

#[derive(Debug)]
pub struct Row {
    /// With its prefix, and without `.*`.
    pub path: String,
    pub whole: bool,
    pub state: String,
    pub note: String,
    test: String,
}

impl Row {
    fn covers(&self, field: &str) -> bool {
        match field.strip_prefix(&self.path) {
            Some("") => !self.whole,
            Some(rest) => self.whole && rest.starts_with(['.', '[']),
            None => false,
        }
    }
}

fn code(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

pub fn rows() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pods.md");
    let text = fs::read_to_string(path).expect("docs/pods.md");
    let mut prefix = String::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if line.starts_with("## ") {
            prefix.clear();
        } else if let Some(rest) = line.strip_prefix("Prefix: ") {
            prefix = format!("{}.", code(rest)[0]);
        } else if line.starts_with("| `") {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [names, state, note, test] = cells[..] else { panic!("four cells: {line}") };
            for name in code(names) {
                let path = format!("{prefix}{}", name.trim_end_matches(".*"));
                let test = code(test).first().copied().unwrap_or_default().to_owned();
                let (state, note) = (state.to_owned(), note.to_owned());
                rows.push(Row { path, whole: name.ends_with(".*"), state, note, test });
            }
        }
    }
    rows
}

/// The most specific row for a field. Init containers have the fields of containers, and some have a row of their own.
pub fn row_of<'r>(rows: &'r [Row], field: &str) -> Option<&'r Row> {
    if let Some(rest) = field.strip_prefix("spec.initContainers[].") {
        let own = rows.iter().find(|row| row.path == field);
        return own.or_else(|| row_of(rows, &format!("spec.containers[].{rest}")));
    }
    rows.iter().filter(|row| row.covers(field)).max_by_key(|row| row.path.len())
}

/// The place of a field. A list that is missing gets one item.
fn place<'v>(pod: &'v mut Value, field: &str) -> &'v mut Value {
    let mut place = pod;
    for step in field.split('.') {
        let (name, is_list) = step.strip_suffix("[]").map_or((step, false), |name| (name, true));
        place = &mut place[name];
        if is_list {
            if place.is_null() {
                *place = json!([{}]);
            }
            place = &mut place[0];
        }
    }
    place
}

/// A pod with this field.
fn manifest(field: &str, value: &Value) -> String {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"os": {"name": "linux"}, "containers": [{"name": "main", "image": "i:1"}]},
    });
    if field.starts_with("spec.initContainers") {
        // A sidecar can have all fields.
        pod["spec"]["initContainers"] = json!([{"name": "side", "image": "i:1", "restartPolicy": "Always"}]);
    }
    *place(&mut pod, field) = value.clone();
    pod.to_string()
}

/// The refusals of a manifest with this field: other errors, such as a missing field beside it, do not matter.
fn refusals(field: &str, value: &Value) -> Vec<String> {
    let context = Context::new("node", "2026-01-02T03:04:05Z");
    let (_, problems) = document::read_objects(manifest(field, value).as_bytes(), "/m", context);
    let all = problems.into_iter().map(|problem| problem.to_string());
    let refused =
        |text: &String| ["not supported", "Forbidden", "must not be set"].iter().any(|word| text.contains(word));
    all.filter(refused).collect()
}

#[test]
fn every_field_of_a_pod_has_a_row_and_every_row_a_field() {
    let (fields, rows) = (fields(), rows());
    let missing: Vec<&String> = fields.keys().filter(|field| row_of(&rows, field).is_none()).collect();
    assert_eq!(missing, [""; 0], "fields without a row");
    let unused: Vec<&Row> = rows.iter().filter(|row| !fields.keys().any(|field| row.covers(field))).collect();
    assert!(unused.is_empty(), "rows without a field: {unused:#?}");
    assert!(fields.len() > 900, "{}", fields.len());
}

#[test]
fn a_field_is_refused_if_and_only_if_its_row_says_so() {
    let rows = rows();
    let mut wrong = Vec::new();
    for (field, value) in fields() {
        let row = row_of(&rows, &field).expect("a row");
        let refusals = refusals(&field, &value);
        if refusals.is_empty() == (row.state == "refused") {
            wrong.push(format!("{field} is {}: {refusals:?}", row.state));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn a_row_names_a_test_if_and_only_if_the_field_is_honoured() {
    let mut sources = Vec::new();
    for directory in ["tests", "src"] {
        crate::sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(directory), &mut sources);
    }
    let texts: Vec<String> = sources.iter().map(|path| fs::read_to_string(path).expect("a source")).collect();
    for row in rows() {
        assert!(["honoured", "no effect", "refused"].contains(&row.state.as_str()), "{row:?}");
        assert_eq!(!row.test.is_empty(), row.state == "honoured", "{row:?}");
        let function = format!("fn {}(", row.test);
        assert!(row.test.is_empty() || texts.iter().any(|text| text.contains(&function)), "no such test: {row:?}");
    }
}

#[test]
fn wherry_reads_copies_and_writes_all_fields_as_the_generated_types_do() {
    let (pod, fields) = explored();
    let json = json!(pod);
    let own: k8s::Pod = document::from_value(&json).expect("a pod");
    assert_eq!(json!(own), json);
    assert_eq!(json!(own.clone()), json);
    // A comparison sees each field.
    let identity = |field: &&String| !["apiVersion", "kind"].contains(&field.as_str());
    for field in fields.keys().filter(identity) {
        let mut other = json.clone();
        *place(&mut other, field) = Value::Null;
        let other: k8s::Pod = document::from_value(&other).expect("a pod");
        assert!(other != own && other == other.clone(), "{field}");
    }
}
