//! A request to the API server and its answer.

use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }
}

/// The media type of a request's body. Every body is JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Content {
    Json,
    StrategicMergePatch,
    MergePatch,
}

impl Content {
    pub fn media_type(self) -> &'static str {
        match self {
            Content::Json => "application/json",
            Content::StrategicMergePatch => "application/strategic-merge-patch+json",
            Content::MergePatch => "application/merge-patch+json",
        }
    }
}

/// How the body of a successful answer (2xx) is delivered. The body of any other answer is a `Status` and is
/// delivered as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum BodyDelivery {
    /// As a whole, at the end.
    Whole,
    /// For a list: each element of `items` by itself, as it arrives, and at the end the rest of the object, without
    /// `items`.
    Items,
    /// For a watch: each line by itself, as it arrives. The answer at the end has no body.
    Lines,
}

/// One request. Equal requests have the same effect.
#[derive(Clone, PartialEq, Serialize)]
pub struct ApiRequest {
    pub method: Method,
    /// The path with the query.
    pub path: String,
    /// Dumps omit the body, which may contain credentials.
    #[serde(skip)]
    pub body: Option<(Content, String)>,
    pub reading: BodyDelivery,
}

/// Omits the body, which may contain credentials.
impl std::fmt::Debug for ApiRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method.as_str(), self.path)?;
        match &self.body {
            Some((content, body)) => write!(f, " ({} bytes of {})", body.len(), content.media_type()),
            None => Ok(()),
        }
    }
}

/// A complete answer with any status.
#[derive(Clone, PartialEq)]
pub struct ApiResponse {
    /// The HTTP status.
    pub status: u16,
    /// The delay that the header `Retry-After` gives in seconds.
    pub retry_after: Option<Duration>,
    /// See `BodyDelivery`.
    pub body: Vec<u8>,
}

/// Omits the body, which may contain credentials.
impl std::fmt::Debug for ApiResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.status, self.body.len())
    }
}

/// Why there is no complete response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// The server has not received the request. The text names the address and the reason.
    NotSent(String),
    /// The server may have carried out the request.
    Unknown(String),
    /// The answer, or an item or line of it, exceeds the limit.
    TooLarge(String),
}
