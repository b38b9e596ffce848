//! A minimal OpenAPI v3 document. kubectl reads it before it sends an object, only to see whether the server validates fields
//! itself: whether PATCH of the kind has the query parameter `fieldValidation`.

use super::resources::{RESOURCES, Resource};
use serde_json::{Map, Value, json};

/// `/openapi/v3`
pub fn index() -> Value {
    let mut paths = Map::new();
    for resource in RESOURCES.iter().filter(|r| is_written(r)) {
        let path = base(resource);
        let url = json!({ "serverRelativeURL": format!("/openapi/v3/{path}") });
        paths.insert(path, url);
    }
    json!({ "paths": paths })
}

/// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION`
pub fn document(group: &str, version: &str) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in RESOURCES.iter().filter(|r| r.group == group && r.version == version && is_written(r)) {
        let kind = json!({ "group": group, "version": version, "kind": resource.kind_name });
        let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force"]
            .iter()
            .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string" } }))
            .collect();
        let namespace = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
        let path = format!("/{}/{namespace}{}/{{name}}", base(resource), resource.plural);
        let patch = json!({
            "operationId": format!("patch{}", resource.kind_name),
            "parameters": parameters,
            "responses": { "200": { "description": "OK" } },
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": kind,
        });
        paths.insert(path, json!({ "patch": patch }));
        let group = if group.is_empty() { "core" } else { group };
        let schema = json!({ "type": "object", "x-kubernetes-group-version-kind": [kind] });
        schemas.insert(format!("{group}.{version}.{}", resource.kind_name), schema);
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Wherry", "version": version },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

fn is_written(resource: &Resource) -> bool {
    resource.verbs.contains(&"patch")
}

fn base(resource: &Resource) -> String {
    match resource.group {
        "" => format!("api/{}", resource.version),
        group => format!("apis/{group}/{}", resource.version),
    }
}
