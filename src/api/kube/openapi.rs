//! OpenAPI v3 documents. kubectl reads them for `explain` and before it sends an object: it checks whether PATCH of
//! the kind has the query parameter `fieldValidation`, which means that the server validates fields itself.
//!
//! `schema.txt` lists the fields of every type, with their types and how Wherry supports them (docs/pods.md).
//! `tests/architecture/schema.rs` writes the file.

use super::resources::{RESOURCES, Resource};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Each type begins with a line that has its name. A line for each of its fields follows: a space, the name, a tab,
/// the type, and optionally a tab and a note.
const SCHEMA: &str = include_str!("schema.txt");

/// Returns `/openapi/v3`.
pub fn index() -> Value {
    let mut paths = Map::new();
    for resource in RESOURCES.iter().filter(|r| is_described(r)) {
        let path = base(resource);
        let url = json!({ "serverRelativeURL": format!("/openapi/v3/{path}") });
        paths.insert(path, url);
    }
    json!({ "paths": paths })
}

/// Returns `/openapi/v3/api/v1` or `/openapi/v3/apis/GROUP/VERSION`.
pub fn document(group: &str, version: &str) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    let types = types();
    for resource in RESOURCES.iter().filter(|r| r.group == group && r.version == version && is_described(r)) {
        let kind = json!({ "group": group, "version": version, "kind": resource.kind_name });
        let namespace = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
        let list = format!("/{}/{namespace}{}", base(resource), resource.plural);
        let read = operation(resource, "get", &kind);
        paths.insert(list.clone(), json!({ "get": operation(resource, "list", &kind) }));
        let mut object = json!({ "get": read });
        if resource.verbs.contains(&"patch") || resource.kind.is_refused() {
            object["patch"] = operation(resource, "patch", &kind);
        }
        paths.insert(format!("{list}/{{name}}"), object);
        add(resource.kind_name, &types, &mut schemas);
        if let Some(schema) = schemas.get_mut(resource.kind_name) {
            schema["x-kubernetes-group-version-kind"] = json!([kind]);
            schema["description"] = DESCRIPTION.into();
        }
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Wherry", "version": version },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

const DESCRIPTION: &str = "The descriptions of the fields say whether Wherry honours them. For their meaning, see \
                           https://kubernetes.io/docs/reference/kubernetes-api/ or wherry-manifests(5).";

fn operation(resource: &Resource, action: &str, kind: &Value) -> Value {
    let mut operation = json!({
        "operationId": format!("{action}{}", resource.kind_name),
        "responses": { "200": { "description": "OK" } },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
    });
    if action == "patch" {
        let parameter = |name: &&str| json!({ "name": name, "in": "query", "schema": { "type": "string" } });
        operation["parameters"] =
            ["dryRun", "fieldManager", "fieldValidation", "force"].iter().map(parameter).collect();
    }
    operation
}

/// A field: its name, type and note.
type SchemaField = (&'static str, &'static str, &'static str);

fn types() -> BTreeMap<&'static str, Vec<SchemaField>> {
    let mut types = BTreeMap::new();
    let mut fields = &mut Vec::new();
    for line in SCHEMA.lines() {
        match line.strip_prefix(' ') {
            None => fields = types.entry(line).or_default(),
            Some(field) => {
                let mut parts = field.splitn(3, '\t');
                let mut part = || parts.next().unwrap_or_default();
                fields.push((part(), part(), part()));
            }
        }
    }
    types
}

/// Adds the schema of a type, and of the types of its fields.
fn add(name: &'static str, types: &BTreeMap<&'static str, Vec<SchemaField>>, schemas: &mut Map<String, Value>) {
    let (mut waiting, mut known) = (vec![name], BTreeSet::from([name]));
    while let Some(name) = waiting.pop() {
        let schema = match types.get(name) {
            None => simple(name),
            Some(fields) => {
                let mut properties = Map::new();
                for (field, kind, note) in fields {
                    let mut schema = schema_of(kind, |name| {
                        if known.insert(name) {
                            waiting.push(name);
                        }
                    });
                    if !note.is_empty() {
                        schema["description"] = (*note).into();
                    }
                    properties.insert((*field).to_owned(), schema);
                }
                json!({ "type": "object", "properties": properties })
            }
        };
        schemas.insert(name.to_owned(), schema);
    }
}

/// Returns the schema of a field's type. Calls `refer` with the named type that it contains.
fn schema_of(kind: &'static str, mut refer: impl FnMut(&'static str)) -> Value {
    if let Some(item) = kind.strip_prefix("[]") {
        return json!({ "type": "array", "items": schema_of(item, refer) });
    }
    if let Some(value) = kind.strip_prefix("map ") {
        return json!({ "type": "object", "additionalProperties": schema_of(value, refer) });
    }
    match kind {
        "string" | "integer" | "boolean" => json!({ "type": kind }),
        "Time" | "MicroTime" => json!({ "type": "string", "format": "date-time" }),
        "ByteString" => json!({ "type": "string", "format": "byte" }),
        name => {
            refer(name);
            // Only inside `allOf` can a reference have a description.
            json!({ "allOf": [{ "$ref": format!("#/components/schemas/{name}") }] })
        }
    }
}

/// Returns the schema of a type without fields.
fn simple(name: &str) -> Value {
    match name {
        "IntOrString" => json!({ "oneOf": [{ "type": "integer" }, { "type": "string" }] }),
        "Quantity" => json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }),
        _ => json!({ "type": "object" }),
    }
}

/// Reports whether clients can read or send objects of the resource. Metrics and reviews are never stored. kubectl
/// reads the operations of a kind before it sends an object, also if the kind is refused.
fn is_described(resource: &Resource) -> bool {
    resource.verbs.contains(&"watch") || resource.kind.is_refused()
}

fn base(resource: &Resource) -> String {
    match resource.group {
        "" => format!("api/{}", resource.version),
        group => format!("apis/{group}/{}", resource.version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects all references in a document.
    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| match value.as_str() {
                Some(reference) if key == "$ref" => drop(found.insert(reference)),
                _ => references(value, found),
            }),
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_kind_has_a_schema_and_every_reference_leads_to_one() {
        for resource in RESOURCES.iter().filter(|r| is_described(r)) {
            let document = document(resource.group, resource.version);
            let schemas = document.pointer("/components/schemas").and_then(Value::as_object).unwrap();
            let schema = schemas.get(resource.kind_name).unwrap();
            let has_metadata = schema.pointer("/properties/metadata").is_some();
            assert_ne!(has_metadata, resource.kind.is_refused(), "{}", resource.kind_name);
            let mut found = BTreeSet::new();
            references(&document, &mut found);
            for reference in found {
                let name = reference.strip_prefix("#/components/schemas/").unwrap();
                assert!(schemas.contains_key(name), "{reference}");
            }
        }
    }

    #[test]
    fn a_field_has_its_type_and_its_support() {
        let document = document("", "v1");
        let at = |path: &str| document.pointer(&format!("/components/schemas/{path}")).cloned().unwrap_or_default();
        assert_eq!(at("PodSpec/properties/containers/items/allOf/0/$ref"), "#/components/schemas/Container");
        assert_eq!(
            at("Container/properties/command"),
            json!({
                "type": "array", "items": { "type": "string" }, "description": "Honoured."
            })
        );
        assert_eq!(at("PodSpec/properties/nodeSelector/additionalProperties/type"), "string");
        assert_eq!(at("PodSpec/properties/readinessGates/description"), "Refused.");
        let parameters = document.pointer("/paths/~1api~1v1~1namespaces~1{namespace}~1pods~1{name}/patch/parameters");
        assert!(parameters.unwrap().as_array().unwrap().iter().any(|p| p["name"] == "fieldValidation"));
        let length = document.to_string().len();
        assert!(length < 100_000, "{length}");
    }
}
