//! Strategic merge patches, with which kubectl changes objects of known kinds: maps are merged, and the lists of a pod
//! and the ports of a Service are merged by the key of their items.

use super::merged_list::{self, Keys, Ports};
use super::value_size::MAX_DEPTH;
use crate::api::ordered::CollectOrdered;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Lists of plain values that are merged.
const PRIMITIVE: [&str; 1] = ["finalizers"];

const PULL_SECRETS: &str = "imagePullSecrets";

/// Applies the patch.
///
/// # Errors
/// The patch is nested too deeply, a directive is unknown, an item of a merged list has no key, or too many items
/// have the same key.
pub fn merge(object: Value, patch: Value) -> Result<Value, String> {
    match (object, patch) {
        (Value::Object(mut object), Value::Object(patch)) => {
            // Unlike the list of a pod, that of a service account is replaced as a whole.
            if object.get("kind").is_some_and(|kind| kind == "ServiceAccount") && patch.contains_key(PULL_SECRETS) {
                object.remove(PULL_SECRETS);
            }
            let ports = Ports::of(&object);
            merge_map(object, patch, ports, 0)
        }
        _ => Err("the patch is not an object".to_owned()),
    }
}

fn merge_map(
    mut object: Map<String, Value>,
    mut patch: Map<String, Value>,
    ports: Ports,
    depth: usize,
) -> Result<Value, String> {
    if depth > MAX_DEPTH {
        return Err("the patch is nested too deeply".to_owned());
    }
    match patch.remove("$patch").as_ref().map(Value::as_str) {
        None | Some(Some("merge")) => {}
        Some(Some("replace")) => object.clear(),
        Some(Some("delete")) => return Ok(Value::Object(Map::new())),
        Some(other) => return Err(format!("unknown directive $patch: {other:?}")),
    }
    if let Some(retained) = patch.remove("$retainKeys") {
        let retained: BTreeSet<&str> =
            retained.as_array().into_iter().flatten().filter_map(Value::as_str).collect_set();
        object.retain(|key, _| retained.contains(key.as_str()));
    }
    let orders = take_orders(&mut patch);
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone: BTreeSet<String> = value.as_array().into_iter().flatten().map(Value::to_string).collect_set();
            if let Some(Value::Array(items)) = object.get_mut(list) {
                items.retain(|item| !gone.contains(&item.to_string()));
            }
        } else if key.starts_with('$') {
            return Err(format!("unknown directive {key}"));
        } else if value.is_null() {
            object.remove(&key);
        } else {
            let before = object.remove(&key).unwrap_or(Value::Null);
            let order = orders.get(&key).and_then(Value::as_array).map(Vec::as_slice);
            let merged = merge_value(&key, before, value, order, ports, depth + 1)?;
            object.insert(key, merged);
        }
    }
    for (list, order) in orders {
        if let (Some(Value::Array(items)), Value::Array(order)) = (object.get_mut(&list), &order) {
            merged_list::reorder(items, order, Keys::of(&list, ports));
        }
    }
    Ok(Value::Object(object))
}

/// Removes the directives `$setElementOrder` from a patch. Returns the orders by list.
fn take_orders(patch: &mut Map<String, Value>) -> Map<String, Value> {
    let list = |key: &String| key.strip_prefix("$setElementOrder/").map(str::to_owned);
    let orders = patch.iter_mut().filter_map(|(key, value)| Some((list(key)?, value.take()))).collect_object();
    patch.retain(|key, _| list(key).is_none());
    orders
}

fn merge_value(
    name: &str,
    before: Value,
    patch: Value,
    order: Option<&[Value]>,
    ports: Ports,
    depth: usize,
) -> Result<Value, String> {
    match patch {
        Value::Object(patch) => {
            let before = if let Value::Object(before) = before { before } else { Map::new() };
            merge_map(before, patch, ports, depth)
        }
        Value::Array(patch) => {
            let before = if let Value::Array(before) = before { before } else { Vec::new() };
            merge_list(name, before, patch, order, ports, depth).map(Value::Array)
        }
        plain => Ok(plain),
    }
}

fn merge_list(
    name: &str,
    mut items: Vec<Value>,
    patch: Vec<Value>,
    order: Option<&[Value]>,
    ports: Ports,
    depth: usize,
) -> Result<Vec<Value>, String> {
    if let Some(keys) = Keys::of(name, ports) {
        return merged_list::merge(keys, items, patch, order, &mut |before, item| {
            merge_map(before, item, ports, depth + 1)
        });
    }
    if !PRIMITIVE.contains(&name) {
        return Ok(patch);
    }
    let mut present: BTreeSet<String> = items.iter().map(Value::to_string).collect_set();
    items.extend(patch.into_iter().filter(|value| present.insert(value.to_string())));
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_ports_of_a_service_are_merged_by_their_number_and_those_of_a_slice_replaced() {
        let service =
            json!({ "kind": "Service", "spec": { "ports": [{ "port": 80, "targetPort": 8080 }, { "port": 443 }] } });
        let patch = json!({ "spec": {
            "$setElementOrder/ports": [{ "port": 81 }, { "port": 80 }],
            "ports": [{ "port": 443, "$patch": "delete" }, { "port": 80, "name": "a" }, { "port": 81, "name": "b" }],
        } });
        let merged = merge(service, patch).unwrap();
        let expected = json!([{ "port": 81, "name": "b" }, { "port": 80, "targetPort": 8080, "name": "a" }]);
        assert_eq!(merged["spec"]["ports"], expected);
        let slice = |port: u16| json!({ "kind": "EndpointSlice", "ports": [{ "port": port }] });
        assert_eq!(merge(slice(80), json!({ "ports": [{ "port": 81 }] })), Ok(slice(81)));
    }

    #[test]
    fn containers_are_merged_by_their_name() {
        let pod = json!({
            "metadata": { "labels": { "a": "1", "b": "2" } },
            "spec": {
                "containers": [{ "name": "main", "image": "a:1", "env": [{ "name": "X", "value": "1" }] },
                    { "name": "side" }],
                "tolerations": [{ "key": "a" }],
            },
        });
        let patch = json!({
            "metadata": { "labels": { "a": null, "c": "3" } },
            "spec": {
                "$setElementOrder/containers": [{ "name": "new" }, { "name": "main" }],
                "containers": [
                    { "name": "main", "image": "a:2", "env": [{ "name": "Y", "value": "2" }] },
                    { "name": "side", "$patch": "delete" },
                    { "name": "new", "image": "b:1" },
                ],
                "tolerations": [{ "key": "b" }],
            },
        });
        let expected = json!({
            "metadata": { "labels": { "b": "2", "c": "3" } },
            "spec": {
                "containers": [
                    { "name": "new", "image": "b:1" },
                    { "name": "main", "image": "a:2", "env": [{ "name": "X", "value": "1" }, { "name": "Y",
                        "value": "2" }] },
                ],
                "tolerations": [{ "key": "b" }],
            },
        });
        assert_eq!(merge(pod, patch), Ok(expected));
    }

    #[test]
    fn directives_replace_delete_and_retain() {
        let volumes =
            json!({ "volumes": [{ "name": "v", "emptyDir": {} }], "finalizers": ["a", "b"], "x": { "y": 1 } });
        let patch = json!({
            "volumes": [{ "name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": { "path": "/a" } }],
            "$deleteFromPrimitiveList/finalizers": ["a"],
            "x": { "$patch": "replace", "z": 2 },
        });
        let merged = merge(volumes.clone(), patch).unwrap();
        assert_eq!(merged["volumes"], json!([{ "name": "v", "hostPath": { "path": "/a" } }]));
        assert_eq!((&merged["finalizers"], &merged["x"]), (&json!(["b"]), &json!({ "z": 2 })));
        let all = merge(volumes, json!({ "volumes": [{ "$patch": "replace" }, { "name": "w" }] })).unwrap();
        assert_eq!(all["volumes"], json!([{ "name": "w" }]));
    }

    #[test]
    fn y30_the_lists_of_a_service_account_are_merged_as_by_an_api_server() {
        let named = |name: &str| json!({ "name": name });
        let before = json!({
            "kind": "ServiceAccount", "secrets": [named("a")], "imagePullSecrets": [named("old")],
        });
        let patch = json!({ "secrets": [named("b")], "imagePullSecrets": [named("new")] });
        let Value::Object(after) = merge(before, patch).unwrap() else { panic!() };
        assert_eq!(after["imagePullSecrets"], json!([named("new")]));
        assert_eq!(after["secrets"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn an_invalid_patch_is_an_error() {
        for patch in [
            json!([]),
            json!({ "$patch": "explode" }),
            json!({ "$unknown": 1 }),
            json!({ "containers": [{ "image": "a" }] }),
            json!({ "containers": ["a"] }),
            (0..100).fold(json!(1), |inner, _| json!({ "a": inner })),
        ] {
            assert!(merge(json!({}), patch.clone()).is_err(), "{patch}");
        }
    }
}
