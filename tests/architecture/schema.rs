//! `src/api/kube/schema.txt`, from which `kubectl explain` gets the types and fields: compared with the types of k8s-openapi and with
//! docs/pods.md. `WHERRY_WRITE=1 cargo test --test architecture schema` writes the file. The types of `src/api/k8s` are
//! compared with those of k8s-openapi too.

use super::pod_fields::{Row, row_of, rows};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
    ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use serde::Deserialize;
use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, Visitor};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use wherry::api::k8s;
use wherry::api::k8s::field::{AnyObject, FieldMut, FieldValue};

#[derive(Debug, Default)]
struct Field {
    kind: String,
    /// Where the field occurs in a Pod.
    paths: BTreeSet<String>,
}

/// The fields of each type, by their names.
type Types = BTreeMap<String, BTreeMap<String, Field>>;

/// Gives each field a value, and notes its type. Lists get one item, and maps one entry.
#[derive(Clone)]
struct Tracer<'a> {
    /// The type and the field whose value comes next; None inside of a simple type.
    field: Option<(&'static str, &'static str)>,
    root: (&'static str, &'static str),
    path: String,
    /// `[]` and `map ` before the type.
    wrap: String,
    types: &'a RefCell<Types>,
}

type Error = de::value::Error;

impl Tracer<'_> {
    fn note(&self, kind: &str) {
        let Some((owner, name)) = self.field else { return };
        let mut types = self.types.borrow_mut();
        let field = types.entry(owner.to_owned()).or_default().entry(name.to_owned()).or_default();
        field.kind = format!("{}{kind}", self.wrap);
        if self.root.1 == "Pod" {
            field.paths.insert(self.path.trim_end_matches("[]").trim_end_matches("{}").to_owned());
        }
    }

    fn inside(&self, path: &str, wrap: &str) -> Self {
        Tracer { path: format!("{}{path}", self.path), wrap: format!("{}{wrap}", self.wrap), ..self.clone() }
    }

    /// A string that the type accepts.
    fn text(&self) -> &'static str {
        match self.path.as_str() {
            "apiVersion" => self.root.0,
            "kind" => self.root.1,
            "spec.volumeClaimTemplates[].apiVersion" => "v1",
            "spec.volumeClaimTemplates[].kind" => "PersistentVolumeClaim",
            "data{}" | "binaryData{}" => "AAAA",
            _ => "2026-01-02T03:04:05.000000Z",
        }
    }
}

impl<'de> IntoDeserializer<'de, Error> for Tracer<'_> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    /// Only types that accept several kinds of values call it.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note("IntOrString");
        visitor.visit_str(self.text())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note("string");
        visitor.visit_str(self.text())
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note("boolean");
        visitor.visit_bool(true)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note("integer");
        visitor.visit_i32(1)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note("integer");
        visitor.visit_i64(1)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        self.note(name);
        visitor.visit_newtype_struct(Tracer { field: None, ..self })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new([self.inside("[]", "[]")].into_iter()))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(MapDeserializer::new([("key", self.inside("{}", "map "))].into_iter()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.note(name);
        let dot = if self.path.is_empty() { "" } else { "." };
        let fields = fields.iter().map(|field| {
            let path = format!("{}{dot}{field}", self.path);
            let value = Tracer { field: Some((name, field)), path, wrap: String::new(), ..self.clone() };
            (StrDeserializer::new(field), value)
        });
        visitor.visit_map(MapDeserializer::new(fields))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 u8 u16 u32 u64 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

fn trace<T: for<'de> Deserialize<'de>>(version: &'static str, kind: &'static str, types: &RefCell<Types>) {
    let root = (version, kind);
    let tracer = Tracer { field: None, root, path: String::new(), wrap: String::new(), types };
    if let Err(e) = T::deserialize(tracer) {
        panic!("{kind}: {e}");
    }
}

fn types() -> Types {
    let types = RefCell::default();
    trace::<Pod>("v1", "Pod", &types);
    trace::<ConfigMap>("v1", "ConfigMap", &types);
    trace::<Secret>("v1", "Secret", &types);
    trace::<PersistentVolumeClaim>("v1", "PersistentVolumeClaim", &types);
    trace::<PersistentVolume>("v1", "PersistentVolume", &types);
    trace::<Service>("v1", "Service", &types);
    trace::<Endpoints>("v1", "Endpoints", &types);
    trace::<EndpointSlice>("discovery.k8s.io/v1", "EndpointSlice", &types);
    trace::<StorageClass>("storage.k8s.io/v1", "StorageClass", &types);
    trace::<Event>("v1", "Event", &types);
    trace::<Namespace>("v1", "Namespace", &types);
    trace::<Node>("v1", "Node", &types);
    trace::<PriorityClass>("scheduling.k8s.io/v1", "PriorityClass", &types);
    trace::<RuntimeClass>("node.k8s.io/v1", "RuntimeClass", &types);
    trace::<Deployment>("apps/v1", "Deployment", &types);
    trace::<ReplicaSet>("apps/v1", "ReplicaSet", &types);
    trace::<DaemonSet>("apps/v1", "DaemonSet", &types);
    trace::<StatefulSet>("apps/v1", "StatefulSet", &types);
    trace::<Job>("batch/v1", "Job", &types);
    trace::<CronJob>("batch/v1", "CronJob", &types);
    trace::<ControllerRevision>("apps/v1", "ControllerRevision", &types);
    trace::<ServiceAccount>("v1", "ServiceAccount", &types);
    // The older version has the schema of the newer one.
    trace::<HorizontalPodAutoscaler>("autoscaling/v2", "HorizontalPodAutoscaler", &types);
    trace::<NetworkPolicy>("networking.k8s.io/v1", "NetworkPolicy", &types);
    trace::<PodDisruptionBudget>("policy/v1", "PodDisruptionBudget", &types);
    trace::<ClusterRole>("rbac.authorization.k8s.io/v1", "ClusterRole", &types);
    trace::<ClusterRoleBinding>("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", &types);
    trace::<Role>("rbac.authorization.k8s.io/v1", "Role", &types);
    trace::<RoleBinding>("rbac.authorization.k8s.io/v1", "RoleBinding", &types);
    trace::<Lease>("coordination.k8s.io/v1", "Lease", &types);
    types.into_inner()
}

/// The support of the field at this path of a Pod. None below a field that is not honoured: that field has the note.
fn support(rows: &[Row], path: &str) -> Option<String> {
    if let Some(rest) = path.strip_prefix("spec.initContainers[].")
        && !rows.iter().any(|row| row.path == path)
    {
        return support(rows, &format!("spec.containers[].{rest}"));
    }
    let named = |row: &Row| row.path.trim_end_matches("[]") == path;
    let row = row_of(rows, path).or_else(|| rows.iter().find(|row| named(row)))?;
    let state = match row.state.as_str() {
        "honoured" => "Honoured",
        "no effect" if named(row) => "No effect",
        "refused" if named(row) => "Refused",
        _ => return None,
    };
    // Otherwise the note is about the field above.
    let note = if named(row) { row.note.replace('`', "") } else { String::new() };
    Some(if note.is_empty() { format!("{state}.") } else { format!("{state}; {note}.") })
}

/// The notes of a field. Those that differ name their places.
fn description(rows: &[Row], field: &Field) -> String {
    let mut places: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for path in &field.paths {
        let Some(note) = support(rows, path) else { continue };
        places.entry(note).or_default().push(path.rsplit_once('.').map_or("", |(above, _)| above));
    }
    if places.len() == 1 {
        return places.into_keys().next().unwrap_or_default();
    }
    let parts = places.into_iter().map(|(note, places)| format!("In {}: {note}", places.join(", ")));
    parts.collect::<Vec<_>>().join(" ")
}

fn text() -> String {
    let rows = rows();
    let mut text = String::new();
    for (name, fields) in types() {
        text.push_str(&name);
        text.push('\n');
        for (field, of) in fields {
            let line = format!(" {field}\t{}\t{}", of.kind, description(&rows, &of));
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

#[test]
fn the_schema_has_the_types_of_kubernetes_and_the_notes_of_the_documentation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/kube/schema.txt");
    let expected = text();
    if std::env::var_os("WHERRY_WRITE").is_some() {
        fs::write(&path, &expected).expect("schema.txt");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let line = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    let remedy = "WHERRY_WRITE=1 cargo test --test architecture schema";
    assert!(found == expected, "schema.txt is not up to date; run {remedy}: {line:?}");
}

/// The type of a field whose content Wherry does not read: it passes it on, or refuses the field.
const JSON: &str = "JSON";

/// The type of a field in `src/api/k8s`, and what is below it in `types`.
fn own_kind(value: &mut dyn FieldValue, types: &mut Types) -> String {
    match value.place() {
        FieldMut::Bool(_) => "boolean".to_owned(),
        FieldMut::Int32(_) | FieldMut::Int64(_) => "integer".to_owned(),
        FieldMut::Text(_) | FieldMut::Bytes(_) => "string".to_owned(),
        FieldMut::Quantity(_) => "Quantity".to_owned(),
        FieldMut::IntOrString(_) => "IntOrString".to_owned(),
        FieldMut::Time(_) => "Time".to_owned(),
        FieldMut::Json(_) => JSON.to_owned(),
        FieldMut::List(list) => format!("[]{}", own_kind(list.add(), types)),
        FieldMut::Map(map) => format!("map {}", own_kind(map.entry("key"), types)),
        FieldMut::Object(object) => own_object(object, types),
    }
}

/// The name of a type in `src/api/k8s`. Its fields are added to `types`.
fn own_object(object: &mut dyn AnyObject, types: &mut Types) -> String {
    let shape = object.shape();
    let mut fields: BTreeMap<String, Field> = BTreeMap::new();
    for (name, _) in shape.identity.iter().flat_map(|identity| identity.fields()) {
        fields.insert(name.to_owned(), Field { kind: "string".to_owned(), ..Field::default() });
    }
    for (index, name) in shape.fields.iter().enumerate() {
        let kind = own_kind(object.field_mut(index), types);
        fields.insert((*name).to_owned(), Field { kind, ..Field::default() });
    }
    types.insert(shape.name.to_owned(), fields);
    shape.name.to_owned()
}

#[test]
fn the_types_of_wherry_have_the_fields_of_kubernetes() {
    let mut own = Types::new();
    own_object(&mut k8s::Pod::default(), &mut own);
    own_object(&mut k8s::ConfigMap::default(), &mut own);
    own_object(&mut k8s::Secret::default(), &mut own);
    own_object(&mut k8s::PriorityClass::default(), &mut own);
    own_object(&mut k8s::RuntimeClass::default(), &mut own);
    own_object(&mut k8s::Deployment::default(), &mut own);
    own_object(&mut k8s::ReplicaSet::default(), &mut own);
    own_object(&mut k8s::Service::default(), &mut own);
    own_object(&mut k8s::EndpointSlice::default(), &mut own);
    own_object(&mut k8s::PodDisruptionBudget::default(), &mut own);
    own_object(&mut k8s::Taint::default(), &mut own);
    let of_kubernetes = types();
    assert!(own.len() > 100, "{} types", own.len());
    for (name, fields) in own {
        let kinds = |fields: &BTreeMap<String, Field>| -> BTreeMap<String, String> {
            fields.iter().map(|(name, field)| (name.clone(), field.kind.clone())).collect()
        };
        let found = kinds(&fields);
        let mut right = of_kubernetes.get(&name).map(kinds).unwrap_or_else(|| panic!("Kubernetes has no {name}"));
        let json = found.iter().filter(|(_, kind)| *kind == JSON);
        json.for_each(|(field, _)| *right.entry(field.clone()).or_default() = JSON.to_owned());
        assert_eq!(found, right, "the fields of {name}");
    }
}
