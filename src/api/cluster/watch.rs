//! One line of a watch: a change of an object, a bookmark, or the error that ends the watch.

use super::list::{self, Identity};
use super::status::Refusal;
use super::watched::Watched;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    Change {
        kind: ChangeKind,
        /// The object without `metadata.managedFields`. For a deleted object, its last state.
        object: Value,
        /// The version at which a watch continues.
        resource_version: String,
    },
    /// Nothing has changed. A watch continues from this version.
    Bookmark(String),
    /// The object has no name or no resource version, so the line is ignored.
    Unusable { identity: Option<Identity>, why: String },
    /// The last line. See `Refusal::is_expired`.
    Error(Refusal),
}

/// # Errors
/// The line is truncated, or does not come from a watch of these objects. The watch can no longer be trusted.
pub fn parse(line: &[u8], watched: &Watched) -> Result<Line, String> {
    let mut line: Value = serde_json::from_slice(line).map_err(|e| format!("a line of the watch is not JSON: {e}"))?;
    let mut object = line.get_mut("object").map(Value::take).unwrap_or_default();
    let kind = match line.get("type").and_then(Value::as_str) {
        Some("ADDED") => Some(ChangeKind::Added),
        Some("MODIFIED") => Some(ChangeKind::Modified),
        Some("DELETED") => Some(ChangeKind::Deleted),
        Some("BOOKMARK") => None,
        Some("ERROR") => {
            let refusal = Refusal::of_body(object.to_string().as_bytes());
            return refusal.map(Line::Error).ok_or_else(|| "an error of the watch has no Status".to_owned());
        }
        other => return Err(format!("a line of the watch has the type {:?}", other.unwrap_or_default())),
    };
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    if (text("kind"), text("apiVersion")) != (watched.kind(), watched.api_version()) {
        return Err(format!(
            "the watch returned an object {:?} of {:?}, not {} of {}",
            text("kind"),
            text("apiVersion"),
            watched.kind(),
            watched.api_version()
        ));
    }
    match kind {
        None => {
            let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            let version = version.filter(|version| !version.is_empty());
            version.map(|version| Line::Bookmark(version.to_owned())).ok_or("a bookmark has no version".to_owned())
        }
        Some(kind) => match list::strip(&mut object) {
            Ok(resource_version) => Ok(Line::Change { kind, object, resource_version }),
            Err(why) => Ok(Line::Unusable {
                identity: list::identity_of(&object),
                why: format!("an object of the watch {why}"),
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::status::Failure;
    use super::*;
    use serde_json::json;

    fn of(line: Value) -> Result<Line, String> {
        parse(line.to_string().as_bytes(), &Watched::Pods("n1".into()))
    }

    #[test]
    fn a_change_has_its_object_and_its_version() {
        let metadata = json!({ "name": "a", "resourceVersion": "7", "managedFields": [1] });
        let pod = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": metadata });
        for (name, expected) in
            [("ADDED", ChangeKind::Added), ("MODIFIED", ChangeKind::Modified), ("DELETED", ChangeKind::Deleted)]
        {
            let Ok(Line::Change { kind, object, resource_version }) = of(json!({ "type": name, "object": pod })) else {
                panic!("{name}")
            };
            assert_eq!((kind, resource_version.as_str()), (expected, "7"));
            assert_eq!(object["metadata"], json!({ "name": "a", "resourceVersion": "7" }));
        }
    }

    #[test]
    fn a_bookmark_has_only_a_version() {
        let pod = json!({ "kind": "Pod", "apiVersion": "v1",
            "metadata": { "resourceVersion": "9", "creationTimestamp": null } });
        assert_eq!(of(json!({ "type": "BOOKMARK", "object": pod })), Ok(Line::Bookmark("9".into())));
    }

    #[test]
    fn an_expired_version_is_an_error_line() {
        let status = |reason: &str, code: u16| {
            json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "too old resource version: 1 \
                                                                                           (9)",
                    "reason": reason, "code": code })
        };
        for (reason, code, expected) in
            [("Expired", 410, true), ("Gone", 410, true), ("", 410, true), ("InternalError", 500, false)]
        {
            let Ok(Line::Error(refusal)) = of(json!({ "type": "ERROR", "object": status(reason, code) })) else {
                panic!("{reason}")
            };
            assert_eq!(refusal.is_expired(), expected, "{reason}");
        }
        let Ok(Line::Error(refusal)) = of(json!({ "type": "ERROR", "object": status("Expired", 0) })) else { panic!() };
        assert_eq!(refusal.failure, Failure::Expired);
    }

    #[test]
    fn a_foreign_line_is_an_error() {
        let node = json!({ "kind": "Node", "apiVersion": "v1", "metadata": { "name": "a", "resourceVersion": "7" } });
        let unnamed = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "resourceVersion": "7" } });
        for line in [
            json!({ "type": "ADDED", "object": node }),
            json!({ "type": "ADDED" }),
            json!({ "type": "PURGED", "object": unnamed }),
            json!({ "type": "BOOKMARK", "object": { "kind": "Pod", "apiVersion": "v1" } }),
            json!({ "type": "ERROR", "object": node }),
            json!({ "type": "ERROR" }),
            json!([]),
            json!("ADDED"),
            unnamed.clone(),
        ] {
            assert!(of(line.clone()).is_err(), "{line}");
        }
        let unusable = of(json!({ "type": "ADDED", "object": unnamed }));
        assert!(matches!(&unusable, Ok(Line::Unusable { identity: None, .. })), "{unusable:?}");
        for line in ["", "{\"type\": \"ADDED\", \"object\": {\"kind\": \"Po", "<html>", "\u{0}"] {
            assert!(parse(line.as_bytes(), &Watched::Services("shop".into())).is_err());
        }
    }
}
