//! The response that a client gets.

use super::list::List;
use super::watch::Watch;
use serde_json::Value;

const JSON: &str = "application/json";

/// A response. It does not implement `Debug`, because the body may contain a Secret.
pub struct ApiResponse {
    pub status: u16,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: ApiBody,
}

pub enum ApiBody {
    Full(Vec<u8>),
    /// A list that is written piece by piece.
    List(Box<List>),
    Watch(Box<Watch>),
}

impl ApiResponse {
    pub fn json(value: &Value) -> ApiResponse {
        // This does not fail, because the keys of a value are strings.
        let body = serde_json::to_vec(value).unwrap_or_default();
        ApiResponse { status: 200, content_type: JSON, headers: Vec::new(), body: ApiBody::Full(body) }
    }

    /// Returns the response for an object that a request has created.
    pub fn created(value: &Value) -> ApiResponse {
        ApiResponse { status: 201, ..ApiResponse::json(value) }
    }

    pub fn list(list: List) -> ApiResponse {
        ApiResponse { body: ApiBody::List(Box::new(list)), ..ApiResponse::json(&Value::Null) }
    }

    pub fn watch(watch: Watch) -> ApiResponse {
        ApiResponse { body: ApiBody::Watch(Box::new(watch)), ..ApiResponse::json(&Value::Null) }
    }
}
