//! JSON merge patches (RFC 7386) and JSON patches (RFC 6902).

use super::value_size::Budget;
use serde_json::{Map, Value};

/// The maximum number of operations in a JSON patch, as in an API server.
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

/// The maximum number of bytes that operations may move in the middle of lists.
const MAX_MOVED: usize = 1 << 30;

/// Applies the operations of a JSON patch, all or none.
///
/// # Errors
/// The patch is malformed, a path does not exist, a test fails, or the result is too deep or too large.
pub fn apply(object: &Value, patch: &Value) -> Result<Value, String> {
    let operations = patch.as_array().ok_or("a JSON patch must be a list of operations")?;
    if operations.len() > MAX_OPERATIONS {
        return Err(format!("a JSON patch can have at most {MAX_OPERATIONS} operations"));
    }
    let (mut object, mut limits) = (object.clone(), PatchLimits::of(object)?);
    for operation in operations {
        carry_out(&mut object, operation, &mut limits)?;
    }
    Ok(object)
}

fn carry_out(object: &mut Value, operation: &Value, limits: &mut PatchLimits) -> Result<(), String> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    let path = text("path").ok_or("an operation has no path")?;
    let value = || operation.get("value").ok_or_else(|| format!("the operation on {path} has no value"));
    let from = || text("from").ok_or_else(|| format!("the operation on {path} has no \"from\""));
    match text("op").unwrap_or_default() {
        "add" => {
            let value = value()?;
            limits.put(path, value)?;
            add(object, path, value.clone(), limits)
        }
        "remove" => remove(object, path, limits).map(drop),
        "replace" => {
            let value = value()?;
            limits.put(path, value)?;
            *object.pointer_mut(path).ok_or_else(|| missing(path))? = value.clone();
            Ok(())
        }
        "move" => {
            let from = from()?;
            if path.starts_with(&format!("{from}/")) {
                return Err(format!("{from} cannot be moved into itself"));
            }
            let value = remove(object, from, limits)?;
            limits.put(path, &value)?;
            add(object, path, value, limits)
        }
        "copy" => {
            let value = object.pointer(from()?).ok_or_else(|| missing(path))?;
            limits.put(path, value)?;
            let value = value.clone();
            add(object, path, value, limits)
        }
        "test" if object.pointer(path) == Some(value()?) => Ok(()),
        "test" => Err(format!("the test of {path} failed")),
        other => Err(format!("unknown operation {other:?}")),
    }
}

/// The amount that the operations of a patch may still add or move. A removal gives nothing back, so the work is
/// limited too.
struct PatchLimits {
    memory: Budget,
    moved: usize,
}

impl PatchLimits {
    fn of(object: &Value) -> Result<PatchLimits, String> {
        let mut memory = Budget::default();
        memory.take_value(object, 0).map_err(|excess| excess.to_string())?;
        Ok(PatchLimits { memory, moved: MAX_MOVED })
    }

    /// Takes the memory of a value that is put at this path.
    fn put(&mut self, path: &str, value: &Value) -> Result<(), String> {
        let depth = path.matches('/').count();
        self.memory.take_value(value, depth).map_err(|excess| format!("{path}: {excess}"))
    }

    /// Takes the cost of moving this many items of a list.
    fn shift(&mut self, items: usize) -> Result<(), String> {
        let left = self.moved.checked_sub(items.saturating_mul(size_of::<Value>()));
        self.moved = left.ok_or("the patch moves too many items of lists")?;
        Ok(())
    }
}

fn missing(path: &str) -> String {
    format!("the path {path} does not exist in the manifest")
}

/// Returns the parent of the last part of a path, and this part.
fn parent<'a>(object: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let (above, last) = path.rsplit_once('/').ok_or_else(|| missing(path))?;
    let parent = object.pointer_mut(above).ok_or_else(|| missing(path))?;
    Ok((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(object: &mut Value, path: &str, value: Value, limits: &mut PatchLimits) -> Result<(), String> {
    if path.is_empty() {
        *object = value;
        return Ok(());
    }
    match parent(object, path)? {
        (Value::Object(map), key) => drop(map.insert(key, value)),
        (Value::Array(list), key) if key == "-" => list.push(value),
        (Value::Array(list), key) => {
            let at = key.parse::<usize>().ok().filter(|at| *at <= list.len()).ok_or_else(|| missing(path))?;
            limits.shift(list.len() - at)?;
            list.insert(at, value);
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn remove(object: &mut Value, path: &str, limits: &mut PatchLimits) -> Result<Value, String> {
    match parent(object, path)? {
        (Value::Object(map), key) => map.remove(&key).ok_or_else(|| missing(path)),
        (Value::Array(list), key) => {
            let at = key.parse::<usize>().ok().filter(|at| *at < list.len()).ok_or_else(|| missing(path))?;
            limits.shift(list.len() - at)?;
            Ok(list.remove(at))
        }
        _ => Err(missing(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::value_size;
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

    #[test]
    fn copies_and_moves_do_not_make_an_object_deep() {
        // Each patch doubles the depth of `a`.
        let mut object = json!({ "a": {} });
        let failed = (0..10).find_map(|step| {
            let end = format!("/a{}", "/x".repeat(1 << step));
            let patch = json!([
                { "op": "copy", "from": "/a", "path": "/b" },
                { "op": "move", "from": "/b", "path": end },
            ]);
            object = match apply(&object, &patch) {
                Ok(object) => object,
                Err(why) => return Some((step, why)),
            };
            value_size::check(&object).unwrap();
            None
        });
        let (step, why) = failed.expect("the depth has a limit");
        assert!(step == 6 && why.contains("nested deeper than 64 levels"), "{step}: {why}");
        let wrapped = [
            json!({ "op": "move", "from": "/d", "path": "/e/d" }),
            json!({ "op": "copy", "from": "/d", "path": "/e/d" }),
        ];
        let deep = (0..63).fold(json!(1), |inner, _| json!({ "x": inner }));
        for operation in wrapped {
            let why = apply(&json!({ "d": deep, "e": {} }), &json!([operation])).unwrap_err();
            assert!(why.contains("nested deeper"), "{operation}: {why}");
        }
    }

    #[test]
    fn copies_do_not_double_the_memory_without_end() {
        let begin = json!({ "op": "add", "path": "/a", "value": [{ "x": "y".repeat(1000) }] });
        let copies = (0..40).map(|_| json!({ "op": "copy", "from": "/a", "path": "/a/-" }));
        let in_list: Vec<Value> = std::iter::once(begin.clone()).chain(copies).collect();
        // The copies replace each other, but each one is work.
        let large = json!({ "op": "add", "path": "/a", "value": "x".repeat(1 << 20) });
        let again = (0..1000).map(|_| json!({ "op": "copy", "from": "/a", "path": "/b" }));
        let replaced: Vec<Value> = std::iter::once(large).chain(again).collect();
        for patch in [in_list, replaced] {
            let why = apply(&json!({}), &json!(patch)).unwrap_err();
            assert!(why.contains("needs more than 12 MiB of memory"), "{why}");
        }
    }

    #[test]
    fn operations_at_the_front_of_a_long_list_have_a_limit() {
        let begin = json!({ "op": "add", "path": "/a", "value": vec![0; 100_000] });
        let front = (0..9_000).map(|_| json!({ "op": "add", "path": "/a/0", "value": 0 }));
        let patch: Vec<Value> = std::iter::once(begin).chain(front).collect();
        assert!(apply(&json!({}), &json!(patch)).unwrap_err().contains("moves too many items"));
        let short: Vec<Value> = (0..9_000).map(|_| json!({ "op": "add", "path": "/a/0", "value": 0 })).collect();
        assert!(apply(&json!({ "a": vec![0; 100] }), &json!(short[..200])).is_ok());
    }
}
