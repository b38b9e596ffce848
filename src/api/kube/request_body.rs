//! Reads the bodies of requests: objects and patches, as JSON, YAML or protobuf.

use super::protobuf as messages;
use super::status::Failure;
use super::value_size::{self, Unreadable};
use super::write::{self, ObjectChange};
use crate::api::document;
use serde_json::Value;

/// Reads the change of an existing object.
///
/// # Errors
/// The body cannot be read, or its media type is not supported.
pub fn change_of(verb: &str, media_type: &str, body: &[u8]) -> Result<ObjectChange, Failure> {
    Ok(match (verb, media_type) {
        ("update", media_type) => ObjectChange::Replace(object(body, media_type)?),
        (_, "application/merge-patch+json") => ObjectChange::Merge(json_body(body)?),
        (_, "application/strategic-merge-patch+json") => ObjectChange::Strategic(json_body(body)?),
        (_, "application/json-patch+json") => ObjectChange::JsonPatch(json_body(body)?),
        (_, "application/apply-patch+yaml") => ObjectChange::Apply(yaml_body(body)?),
        _ => return Err(Failure::unsupported_media_type(write::PATCHES)),
    })
}

/// Reads the object in a body. kubectl sends some objects as protobuf.
///
/// # Errors
/// The body cannot be read, or its media type is not supported.
pub fn object(body: &[u8], media_type: &str) -> Result<Value, Failure> {
    match media_type {
        "application/json" | "" => json_body(body),
        "application/yaml" => yaml_body(body),
        "application/vnd.kubernetes.protobuf" => match messages::object(body) {
            Some(object) => object
                .map_err(|(kind, why)| Failure::bad_request(format!("the body is not a {kind} in protobuf: {why}"))),
            None => {
                let unsupported = || Failure::unsupported_media_type("application/json, application/yaml");
                messages::to_json(body).ok_or_else(unsupported)
            }
        },
        _ => Err(Failure::unsupported_media_type("application/json, application/yaml")),
    }
}

/// Parses JSON. A short text can become a large value, so the size of the value is limited too.
fn json_body(body: &[u8]) -> Result<Value, Failure> {
    value_size::read(body).map_err(|why| match why {
        Unreadable::Syntax(e) => Failure::bad_request(format!("the body is not valid JSON: {e}")),
        Unreadable::Excess(excess) => Failure::large_value(excess),
    })
}

/// Parses YAML by the rules of manifests, with limits on depth, size and aliases.
fn yaml_body(body: &[u8]) -> Result<Value, Failure> {
    document::value(body).map_err(|why| Failure::bad_request(format!("the body is not valid YAML: {why}")))
}
