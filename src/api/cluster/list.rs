//! The answer to a list request: each item by itself, and the rest of the list.
//!
//! The items are valid only together with a valid rest, which arrives last. An empty answer, or one from another
//! program, must never be read as a list without items, because the node would stop all its pods.

use super::watched::Watched;
use serde::Deserialize;
use serde_json::Value;
use std::fmt;

/// The rest of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The version at which a watch continues.
    pub resource_version: String,
    /// Set if the list has another page: see `ListFrom::Next`.
    pub next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListHead {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    resource_version: Option<String>,
    r#continue: Option<String>,
}

/// Reads the list without its items.
///
/// # Errors
/// The answer is not a list of these objects, or has no resource version. The text describes the answer.
pub fn rest(body: &[u8], watched: &Watched) -> Result<Rest, String> {
    let expected = format!("{}List of {}", watched.kind(), watched.api_version());
    let list: ListHead = serde_json::from_slice(body).map_err(|e| format!("the response is not a {expected}: {e}"))?;
    if list.kind.strip_suffix("List") != Some(watched.kind()) || list.api_version != watched.api_version() {
        return Err(format!("the response is a {:?} of {:?}, not a {expected}", list.kind, list.api_version));
    }
    let text = |field: Option<String>| field.filter(|text| !text.is_empty());
    let Some(resource_version) = text(list.metadata.resource_version) else {
        return Err(format!("the {expected} has no resourceVersion"));
    };
    Ok(Rest { resource_version, next: text(list.metadata.r#continue) })
}

/// Reads one item of a list, and removes `metadata.managedFields`. Items have no `kind`.
///
/// # Errors
/// The item is not an object with a name and a resource version.
pub fn item(body: &[u8]) -> Result<Value, String> {
    let mut object: Value =
        serde_json::from_slice(body).map_err(|e| format!("an item of the list is not JSON: {e}"))?;
    match strip(&mut object) {
        Ok(_) => Ok(object),
        Err(why) => Err(format!("an item of the list {why}")),
    }
}

/// The known identity of an object that cannot be used. Fields may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.is_empty() {
            true => f.write_str(&self.name),
            false => write!(f, "{}/{}", self.namespace, self.name),
        }
    }
}

/// Returns the identity of an item that cannot be used. None if it has neither a UID nor a name.
pub fn identity(body: &[u8]) -> Option<Identity> {
    identity_of(&serde_json::from_slice(body).ok()?)
}

/// Returns the identity of an object. None if it has neither a UID nor a name.
pub fn identity_of(object: &Value) -> Option<Identity> {
    /// Longer values are not valid.
    const LONGEST: usize = 253;
    let metadata = object.get("metadata")?;
    let text = |field: &str| {
        let text = metadata.get(field).and_then(Value::as_str).filter(|text| text.len() <= LONGEST);
        text.unwrap_or_default().to_owned()
    };
    let identity = Identity { uid: text("uid"), namespace: text("namespace"), name: text("name") };
    (!identity.uid.is_empty() || !identity.name.is_empty()).then_some(identity)
}

/// Removes `metadata.managedFields`, which make up half of an object. Returns the resource version.
pub(super) fn strip(object: &mut Value) -> Result<String, &'static str> {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Err("has no metadata");
    };
    metadata.remove("managedFields");
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    text("name").ok_or("has no name")?;
    text("resourceVersion").map(str::to_owned).ok_or("has no resourceVersion")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(body: &str) -> Result<Rest, String> {
        rest(body.as_bytes(), &Watched::Pods("n1".into()))
    }

    #[test]
    fn the_rest_has_the_version_and_the_next_page() {
        let last = of(r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "437"}}"#);
        assert_eq!(last, Ok(Rest { resource_version: "437".into(), next: None }));
        let page = r#"{"kind": "PodList", "apiVersion": "v1",
            "metadata": {"resourceVersion": "437", "continue": "ab==", "remainingItemCount": 7}}"#;
        assert_eq!(of(page).unwrap().next.as_deref(), Some("ab=="));
        let classes =
            br#"{"kind":"RuntimeClassList","apiVersion":"node.k8s.io/v1","metadata":{"resourceVersion":"1"}}"#;
        assert!(rest(classes, &Watched::RuntimeClasses).is_ok());
    }

    #[test]
    fn a_foreign_answer_is_no_list() {
        for body in [
            "",
            "{}",
            "null",
            "[]",
            "<html></html>",
            r#"{"kind": "PodList", "apiVersion": "v1"}"#,
            r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": ""}}"#,
            r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": 7}}"#,
            r#"{"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}"#,
            r#"{"kind": "PodList", "apiVersion": "v2", "metadata": {"resourceVersion": "7"}}"#,
            r#"{"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}"#,
            r#"{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}"#,
            r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}"#,
        ] {
            assert!(of(body).is_err(), "{body}");
        }
        let why = of(r#"{"kind": "Status", "apiVersion": "v1"}"#).unwrap_err();
        assert_eq!(why, "the response is a \"Status\" of \"v1\", not a PodList of v1");
    }

    #[test]
    fn an_item_has_no_managed_fields() {
        let object = json!({ "metadata": { "name": "a", "resourceVersion": "1", "managedFields": [{}] }, "spec": {} });
        let expected = json!({ "metadata": { "name": "a", "resourceVersion": "1" }, "spec": {} });
        assert_eq!(item(object.to_string().as_bytes()), Ok(expected));
        for body in ["{}", "7", "{\"metadata\": 1}", "{\"metadata\": {\"name\": \"a\"}}", "{\"metadata\": {}", ""] {
            assert!(item(body.as_bytes()).is_err(), "{body}");
        }
        let deep = format!("{{\"metadata\": {}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(item(deep.as_bytes()).is_err());
    }
}
