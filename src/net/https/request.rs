//! A request, and the reason why a call failed.

use crate::api::time::Boot;
use bytes::Bytes;
use http::{HeaderMap, Method};

/// Identifies a call. The client assigns it and never reuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// One request to the client's server. It does not implement `Debug`, because the body can contain credentials.
pub struct Request {
    pub method: Method,
    /// The path with the query. Starts with `/`.
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// At the deadline the client resets the stream, and the call ends as `Unknown`. None for an endless answer.
    pub deadline: Option<Boot>,
}

impl Request {
    /// Returns the method and the path without the query, for errors.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.target.split('?').next().unwrap_or_default())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The server has definitely not processed the request.
    NotSent(String),
    /// The request may have reached the server: deadline exceeded, cancelled, connection lost or stream reset.
    Unknown(String),
}
