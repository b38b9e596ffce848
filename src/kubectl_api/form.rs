//! Objects and lists in the requested format.

use crate::api::kube::accept::Format;
use crate::api::kube::resources::Resource;
use crate::api::kube::table::{self, Include};
use jiff::Timestamp;
use serde_json::{Value, json};

/// How much of a body that is written in pieces has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyProgress {
    /// More can be written at once.
    Piece,
    /// Everything that is available now has been written. More follows after a change, or at a later time.
    Everything,
    /// The body is complete.
    Whole,
}

/// Approximate size of a piece of a body, in bytes.
pub(super) const PIECE: usize = 8 * 1024;

/// Returns one object in the requested format.
pub fn single(object: Value, resource: &Resource, format: Format, include: Include, now: Timestamp) -> Value {
    match format {
        Format::Object => object,
        Format::Metadata => table::metadata_only(object),
        Format::Table => {
            let version = object["metadata"]["resourceVersion"].clone();
            json!({
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": { "resourceVersion": version },
                "columnDefinitions": table::definitions(resource.kind),
                "rows": [table::row(resource.kind, object, include, now)],
            })
        }
    }
}

/// Returns a complete list of objects that have no versions.
pub fn whole_list(
    objects: Vec<Value>,
    resource: &Resource,
    format: Format,
    include: Include,
    now: Timestamp,
) -> Vec<u8> {
    let mut out = Vec::new();
    write_list_head(resource, format, 0, &mut out);
    for (at, object) in objects.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(&item(object, resource, format, include, now), &mut out);
    }
    out.extend_from_slice(b"]}\n");
    out
}

/// Appends the beginning of a list. `version` is the resource version of the list, or 0 if the objects have no
/// versions.
pub(super) fn write_list_head(resource: &Resource, format: Format, version: u64, out: &mut Vec<u8>) {
    let (kind, api_version) = match format {
        Format::Object => (format!("{}List", resource.kind_name), resource.api_version()),
        Format::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        Format::Table => ("Table".to_owned(), "meta.k8s.io/v1".to_owned()),
    };
    let metadata = match version {
        0 => json!({}),
        version => json!({ "resourceVersion": version.to_string() }),
    };
    out.extend_from_slice(
        format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"#).as_bytes(),
    );
    if format == Format::Table {
        out.extend_from_slice(br#""columnDefinitions":"#);
        write(&table::definitions(resource.kind), out);
        out.extend_from_slice(br#","rows":["#);
    } else {
        out.extend_from_slice(br#""items":["#);
    }
}

/// Returns an item of a list.
pub(super) fn item(mut object: Value, resource: &Resource, format: Format, include: Include, now: Timestamp) -> Value {
    match format {
        Format::Object => {
            // As in an API server's lists, items have neither of these fields.
            if let Some(object) = object.as_object_mut() {
                object.remove("kind");
                object.remove("apiVersion");
            }
            object
        }
        Format::Metadata => table::metadata_only(object),
        Format::Table => table::row(resource.kind, object, include, now),
    }
}

/// Appends a value as JSON.
pub(super) fn write(value: &Value, out: &mut Vec<u8>) {
    // Writing to a Vec does not fail.
    let _ = serde_json::to_writer(out, value);
}
