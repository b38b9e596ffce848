//! Strategic merge patches, with which kubectl changes objects of known kinds: maps are merged, and the lists of a pod are merged by
//! the key of their items.

use serde_json::{Map, Value};

/// The key by which the items of a list are merged. None: the list is replaced as a whole.
fn merge_key(list: &str) -> Option<&'static str> {
    Some(match list {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "schedulingGates"
        | "resourceClaims" => "name",
        "ports" => "containerPort",
        "volumeMounts" => "mountPath",
        "volumeDevices" => "devicePath",
        "hostAliases" | "podIPs" | "hostIPs" => "ip",
        "topologySpreadConstraints" => "topologyKey",
        "conditions" => "type",
        "ownerReferences" => "uid",
        _ => return None,
    })
}

/// Lists of plain values that are merged.
const PRIMITIVE: [&str; 1] = ["finalizers"];

/// The deepest patch.
const MAX_DEPTH: usize = 64;

/// Applies the patch.
///
/// # Errors
/// The patch is nested too deeply, a directive is unknown, or an item of a merged list has no key.
pub fn merge(object: Value, patch: Value) -> Result<Value, String> {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => merge_map(object, patch, 0),
        _ => Err("the patch is not an object".to_owned()),
    }
}

fn merge_map(mut object: Map<String, Value>, mut patch: Map<String, Value>, depth: usize) -> Result<Value, String> {
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
        let retained: Vec<&str> = retained.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        object.retain(|key, _| retained.contains(&key.as_str()));
    }
    let mut orders = Vec::new();
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$setElementOrder/") {
            orders.push((list.to_owned(), value));
        } else if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(Value::Array(items)) = object.get_mut(list) {
                items.retain(|item| !gone.contains(item));
            }
        } else if key.starts_with('$') {
            return Err(format!("unknown directive {key}"));
        } else if value.is_null() {
            object.remove(&key);
        } else {
            let before = object.remove(&key).unwrap_or(Value::Null);
            let merged = merge_value(&key, before, value, depth + 1)?;
            object.insert(key, merged);
        }
    }
    for (list, order) in orders {
        if let (Some(Value::Array(items)), Value::Array(order)) = (object.get_mut(&list), &order) {
            reorder(items, order, merge_key(&list));
        }
    }
    Ok(Value::Object(object))
}

fn merge_value(name: &str, before: Value, patch: Value, depth: usize) -> Result<Value, String> {
    match patch {
        Value::Object(patch) => {
            let before = if let Value::Object(before) = before { before } else { Map::new() };
            merge_map(before, patch, depth)
        }
        Value::Array(patch) => {
            let before = if let Value::Array(before) = before { before } else { Vec::new() };
            merge_list(name, before, patch, depth).map(Value::Array)
        }
        plain => Ok(plain),
    }
}

fn merge_list(name: &str, mut items: Vec<Value>, patch: Vec<Value>, depth: usize) -> Result<Vec<Value>, String> {
    let Some(key) = merge_key(name) else {
        if PRIMITIVE.contains(&name) {
            for value in patch {
                if !items.contains(&value) {
                    items.push(value);
                }
            }
            return Ok(items);
        }
        return Ok(patch);
    };
    if patch.iter().any(|item| item.get("$patch").is_some_and(|d| d == "replace")) {
        items.clear();
    }
    for item in patch {
        let Value::Object(item) = item else { return Err(format!("an item of {name} is not an object")) };
        let directive = item.get("$patch").and_then(Value::as_str).map(str::to_owned);
        if directive.as_deref() == Some("replace") && item.len() == 1 {
            continue;
        }
        let id = item.get(key).cloned().ok_or_else(|| format!("an item of {name} has no {key}"))?;
        let at = items.iter().position(|existing| existing.get(key) == Some(&id));
        if directive.as_deref() == Some("delete") {
            if let Some(at) = at {
                items.remove(at);
            }
            continue;
        }
        let before = at.map_or_else(Map::new, |at| match items[at].take() {
            Value::Object(before) => before,
            _ => Map::new(),
        });
        let merged = merge_map(before, item, depth + 1)?;
        match at {
            Some(at) => items[at] = merged,
            None => items.push(merged),
        }
    }
    Ok(items)
}

/// Puts the items that `order` lists into its order. The others keep their places.
fn reorder(items: &mut [Value], order: &[Value], key: Option<&str>) {
    let place = |item: &Value| {
        order.iter().position(|o| match key {
            Some(key) => o.get(key).is_some_and(|id| item.get(key) == Some(id)),
            None => o == item,
        })
    };
    let mut listed: Vec<(usize, Value)> = items.iter().filter_map(|item| Some((place(item)?, item.clone()))).collect();
    listed.sort_by_key(|(place, _)| *place);
    let mut listed = listed.into_iter().map(|(_, item)| item);
    for item in items.iter_mut() {
        if place(item).is_some()
            && let Some(next) = listed.next()
        {
            *item = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn containers_are_merged_by_their_name() {
        let pod = json!({
            "metadata": { "labels": { "a": "1", "b": "2" } },
            "spec": {
                "containers": [{ "name": "main", "image": "a:1", "env": [{ "name": "X", "value": "1" }] }, { "name": "side" }],
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
                    { "name": "main", "image": "a:2", "env": [{ "name": "X", "value": "1" }, { "name": "Y", "value": "2" }] },
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
