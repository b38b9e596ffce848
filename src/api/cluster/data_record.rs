//! A ConfigMap or a Secret of the API server, and its copy on the disk.

use crate::api::data_object::{DataKey, DataKind, DataObject};
use crate::api::document::context::Context;
use crate::api::document::{self, Object};
use crate::api::names::FullName;
use serde_json::{Value, json};
use std::rc::Rc;

/// The kind of these records. A key is `objects/KIND.NAMESPACE.NAME`.
pub const KIND: &str = "objects";
const VERSION: u64 = 1;

/// The object as Wherry uses it, and as the server sent it.
#[derive(Clone, PartialEq)]
pub struct Fetched {
    pub object: Rc<DataObject>,
    /// JSON without `metadata.managedFields`.
    json: String,
}

/// Omits the values, which may be secret.
impl std::fmt::Debug for Fetched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.object)
    }
}

impl Fetched {
    /// # Errors
    /// The object is neither a ConfigMap nor a Secret, or is not valid. The error shows no value.
    pub fn read(mut value: Value) -> Result<Fetched, String> {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        Fetched::of_json(value.to_string())
    }

    /// Returns the object as the server sent it.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.json).unwrap_or_default()
    }

    /// Returns the resource version.
    pub fn version(&self) -> Option<String> {
        self.value().pointer("/metadata/resourceVersion").and_then(Value::as_str).map(str::to_owned)
    }

    fn of_json(json: String) -> Result<Fetched, String> {
        let documents = document::parse(json.as_bytes(), "the API server").map_err(|problem| problem.to_string())?;
        let context = Context::new("", "");
        match documents.first().map(|first| first.object("the API server", None, context)) {
            Some(Ok(Object::Data(object))) => Ok(Fetched { object: Rc::new(object), json }),
            Some(Ok(_)) => Err("it is neither a ConfigMap nor a Secret".to_owned()),
            Some(Err(problems)) => Err(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
            None => Err("the text contains no object".to_owned()),
        }
    }
}

/// Returns the key of the object's record. The name of a namespace has no dot, so the key can be split without
/// ambiguity.
pub fn key(of: &DataKey) -> String {
    format!("{KIND}/{}.{}.{}", of.kind.resource(), of.name.namespace, of.name.name)
}

/// Returns the object that a record belongs to. None if `key` is not the key of such a record.
pub fn data_key(key: &str) -> Option<DataKey> {
    let (kind, rest) = key.strip_prefix(KIND)?.strip_prefix('/')?.split_once('.')?;
    let (namespace, name) = rest.split_once('.')?;
    let kind = [DataKind::ConfigMap, DataKind::Secret].into_iter().find(|k| k.resource() == kind)?;
    Some(DataKey { kind, name: FullName::new(namespace, name) })
}

pub fn write(fetched: &Fetched) -> String {
    // The object is JSON already, so it is not serialized again.
    format!("{{\"version\":{VERSION},\"object\":{}}}", fetched.json)
}

/// # Errors
/// The text is not a record of this version, or belongs to another object. The error shows no value.
pub fn read(key: &str, text: &str) -> Result<Fetched, String> {
    let mut value: Value = serde_json::from_str(text).map_err(|_| "it is not JSON".to_owned())?;
    if value.get("version") != Some(&json!(VERSION)) {
        return Err(format!("it is not of version {VERSION}"));
    }
    let object = value.get_mut("object").map(Value::take).ok_or("it has no object")?;
    let fetched = Fetched::read(object)?;
    match data_key(key) {
        Some(of) if of == fetched.object.key => Ok(fetched),
        _ => Err(format!("it belongs to {}", fetched.object.key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Value {
        json!({
            "kind": "Secret",
            "apiVersion": "v1",
            "metadata": {
                "name": "a.b", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "managedFields": [{ "manager": "kubectl" }],
            },
            "data": { "password": "aHVudGVyMg==" },
            "type": "Opaque",
        })
    }

    #[test]
    fn an_object_survives_on_the_disk() {
        let fetched = Fetched::read(secret()).unwrap();
        assert_eq!(fetched.object.key.to_string(), "Secret shop/a.b");
        let key = key(&fetched.object.key);
        assert_eq!(key, "objects/secret.shop.a.b");
        assert_eq!(read(&key, &write(&fetched)).unwrap(), fetched);
        assert!(!format!("{fetched:?}").contains("hunter2"));
    }

    #[test]
    fn an_unusable_record_is_an_error_without_values() {
        let good = write(&Fetched::read(secret()).unwrap());
        for (key, text, why) in [
            ("objects/secret.shop.a", good.as_str(), "it belongs to Secret shop/a.b"),
            ("objects/secret.shop.a.b", "{", "it is not JSON"),
            ("objects/secret.shop.a.b", "{\"version\":2}", "it is not of version 1"),
            ("objects/secret.shop.a.b", "{\"version\":1}", "it has no object"),
        ] {
            assert_eq!(read(key, text).unwrap_err(), why);
        }
        let error = Fetched::read(json!({ "kind": "Pod", "apiVersion": "v1", "password": "hunter2" })).unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
