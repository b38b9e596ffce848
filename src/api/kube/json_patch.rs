//! JSON merge patches (RFC 7386) and JSON patches (RFC 6902).

use serde_json::{Map, Value};

/// The largest number of operations of a JSON patch (that of an API server).
const MAX_OPERATIONS: usize = 10_000;

/// Applies a merge patch: maps are merged, `null` removes, everything else replaces.
pub fn merge(object: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *object = patch;
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(object) = object else { return };
    for (key, value) in patch {
        if value.is_null() {
            object.remove(&key);
        } else {
            merge(object.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Applies the operations of a JSON patch, all or none.
///
/// # Errors
/// The patch is malformed, a path does not exist, or a test fails.
pub fn apply(object: &Value, patch: &Value) -> Result<Value, String> {
    let operations = patch.as_array().ok_or("a JSON patch is a list of operations")?;
    if operations.len() > MAX_OPERATIONS {
        return Err(format!("a JSON patch has at most {MAX_OPERATIONS} operations"));
    }
    let mut object = object.clone();
    for operation in operations {
        let text = |field: &str| operation.get(field).and_then(Value::as_str);
        let path = text("path").ok_or("an operation has no path")?;
        let value = || operation.get("value").cloned().ok_or_else(|| format!("the operation on {path} has no value"));
        let from = || text("from").ok_or_else(|| format!("the operation on {path} has no from"));
        match text("op").unwrap_or_default() {
            "add" => add(&mut object, path, value()?)?,
            "remove" => drop(remove(&mut object, path)?),
            "replace" => {
                let value = value()?;
                *object.pointer_mut(path).ok_or_else(|| missing(path))? = value;
            }
            "move" => {
                let from = from()?;
                if path.starts_with(&format!("{from}/")) {
                    return Err(format!("{from} cannot be moved into itself"));
                }
                let value = remove(&mut object, from)?;
                add(&mut object, path, value)?;
            }
            "copy" => {
                let value = object.pointer(from()?).cloned().ok_or_else(|| missing(path))?;
                add(&mut object, path, value)?;
            }
            "test" => {
                if object.pointer(path) != Some(&value()?) {
                    return Err(format!("the test of {path} failed"));
                }
            }
            other => return Err(format!("unknown operation {other:?}")),
        }
    }
    Ok(object)
}

fn missing(path: &str) -> String {
    format!("the path {path} does not exist in the manifest")
}

/// The parent of the last part of a path, and this part.
fn parent<'a>(object: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let (above, last) = path.rsplit_once('/').ok_or_else(|| missing(path))?;
    let parent = object.pointer_mut(above).ok_or_else(|| missing(path))?;
    Ok((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        *object = value;
        return Ok(());
    }
    match parent(object, path)? {
        (Value::Object(map), key) => drop(map.insert(key, value)),
        (Value::Array(list), key) if key == "-" => list.push(value),
        (Value::Array(list), key) => {
            let at = key.parse::<usize>().ok().filter(|at| *at <= list.len()).ok_or_else(|| missing(path))?;
            list.insert(at, value);
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn remove(object: &mut Value, path: &str) -> Result<Value, String> {
    match parent(object, path)? {
        (Value::Object(map), key) => map.remove(&key).ok_or_else(|| missing(path)),
        (Value::Array(list), key) => {
            let at = key.parse::<usize>().ok().filter(|at| *at < list.len()).ok_or_else(|| missing(path))?;
            Ok(list.remove(at))
        }
        _ => Err(missing(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_patch_merges_maps_and_replaces_the_rest() {
        let mut object = json!({ "a": { "b": 1, "c": 2 }, "d": [1, 2] });
        merge(&mut object, json!({ "a": { "b": null, "e": { "f": null, "g": 1 } }, "d": [3] }));
        assert_eq!(object, json!({ "a": { "c": 2, "e": { "g": 1 } }, "d": [3] }));
    }

    #[test]
    fn operations_change_the_object_in_their_order() {
        let object = json!({ "a": { "b/c": 1 }, "d": [1, 2] });
        let patch = json!([
            { "op": "test", "path": "/a/b~1c", "value": 1 },
            { "op": "add", "path": "/d/1", "value": 9 },
            { "op": "add", "path": "/d/-", "value": 8 },
            { "op": "replace", "path": "/d/0", "value": 7 },
            { "op": "copy", "from": "/d", "path": "/e" },
            { "op": "move", "from": "/a/b~1c", "path": "/f" },
            { "op": "remove", "path": "/d/3" },
        ]);
        assert_eq!(apply(&object, &patch), Ok(json!({ "a": {}, "d": [7, 9, 2], "e": [7, 9, 2, 8], "f": 1 })));
    }

    #[test]
    fn an_impossible_operation_is_an_error() {
        let object = json!({ "a": [1] });
        for operation in [
            json!({}),
            json!({ "op": "add", "path": "/b/c", "value": 1 }),
            json!({ "op": "add", "path": "/a/5", "value": 1 }),
            json!({ "op": "add", "path": "/a/0" }),
            json!({ "op": "remove", "path": "/a/1" }),
            json!({ "op": "remove", "path": "" }),
            json!({ "op": "replace", "path": "/z", "value": 1 }),
            json!({ "op": "test", "path": "/a/0", "value": 2 }),
            json!({ "op": "move", "from": "/a", "path": "/a/0" }),
            json!({ "op": "copy", "path": "/b" }),
            json!({ "op": "explode", "path": "/a" }),
        ] {
            assert!(apply(&object, &json!([operation])).is_err(), "{operation}");
        }
        assert!(apply(&object, &json!({})).is_err());
    }
}
