//! Refusals of the API server: converts a `Status` object (meta/v1) to a cause that code can branch on and a text for
//! people.

use super::request::ApiResponse;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// The maximum length of a message in characters. A longer message is truncated.
const MAX_MESSAGE: usize = 500;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// 404: the server has no such object. (A 404 for a whole path, or from another program, is `Other`.)
    NotFound,
    /// 409 for the creation of an object.
    AlreadyExists,
    /// 409: the object has another version or another UID.
    Conflict,
    /// 410: the resource version is too old, so the objects have to be listed again.
    Expired,
    /// 403: a rule forbids it. The Node authorizer also forbids an object that it does not yet, or no longer, relate
    /// to the node.
    Forbidden,
    /// 401: the credential is not valid.
    Unauthorized,
    TooManyRequests {
        /// The delay before a retry, from the answer's header or body.
        retry_after: Option<Duration>,
    },
    /// 422 or 400: the same request will be refused again.
    Invalid,
    /// 5xx or 408: the server, or a proxy in front of it, cannot handle the request now.
    Unavailable {
        retry_after: Option<Duration>,
    },
    Other,
}

/// A refusal, with its cause and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub failure: Failure,
    /// The HTTP status. 0: not known.
    pub code: u16,
    /// The server's message, or the first characters of a body that is not from an API server.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            0 => f.write_str(&self.message),
            code => write!(f, "{code}: {}", self.message),
        }
    }
}

/// The fields of a `Status` that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    kind: String,
    code: Option<u16>,
    reason: Option<String>,
    message: Option<String>,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u32>,
}

impl Refusal {
    /// Reads the refusal in a response. None if the server has carried out the request (2xx).
    pub fn of(response: &ApiResponse) -> Option<Refusal> {
        if (200..300).contains(&response.status) {
            return None;
        }
        let status = parsed(&response.body);
        let message = match &status {
            Some(status) => status.message.clone().unwrap_or_default(),
            // The body is not a `Status`, but for example the page of a proxy.
            None => String::from_utf8_lossy(&response.body).trim().to_owned(),
        };
        let status = status.unwrap_or_default();
        Some(Refusal::new(response.status, &status, message, response.retry_after))
    }

    /// Reads a `Status` that is not the body of an answer. None if it is not a `Status`.
    pub(super) fn of_body(body: &[u8]) -> Option<Refusal> {
        let status = parsed(body)?;
        let message = status.message.clone().unwrap_or_default();
        Some(Refusal::new(status.code.unwrap_or(0), &status, message, None))
    }

    fn new(code: u16, status: &Status, message: String, header: Option<Duration>) -> Refusal {
        let seconds = status.details.as_ref().and_then(|details| details.retry_after_seconds).filter(|s| *s > 0);
        let retry_after = header.or(seconds.map(|s| Duration::from_secs(s.into())));
        let failure = failure(code, status.reason.as_deref().unwrap_or_default(), retry_after);
        let message = match message.char_indices().nth(MAX_MESSAGE) {
            Some((end, _)) => format!("{}...", &message[..end]),
            None if message.is_empty() => status.reason.clone().unwrap_or_else(|| "no reason given".to_owned()),
            None => message,
        };
        Refusal { failure, code, message }
    }

    /// Returns true if the objects have to be listed again.
    pub fn is_expired(&self) -> bool {
        self.failure == Failure::Expired
    }
}

fn parsed(body: &[u8]) -> Option<Status> {
    serde_json::from_slice::<Status>(body).ok().filter(|status| status.kind == "Status")
}

fn failure(code: u16, reason: &str, retry_after: Option<Duration>) -> Failure {
    match (code, reason) {
        (_, "Expired" | "Gone") | (410, _) => Failure::Expired,
        (409, "AlreadyExists") => Failure::AlreadyExists,
        (409, _) => Failure::Conflict,
        (400 | 422, _) => Failure::Invalid,
        (401, _) => Failure::Unauthorized,
        (403, _) => Failure::Forbidden,
        (404, "NotFound") => Failure::NotFound,
        (429, _) => Failure::TooManyRequests { retry_after },
        (408 | 500..=599, _) => Failure::Unavailable { retry_after },
        _ => Failure::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn response(status: u16, body: &str) -> ApiResponse {
        ApiResponse { status, retry_after: None, body: body.as_bytes().to_vec() }
    }

    fn status(code: u16, reason: &str) -> ApiResponse {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
            "message": "why", "details": { "name": "n1", "kind": "nodes", "retryAfterSeconds": 3 },
        });
        response(code, &body.to_string())
    }

    #[test]
    fn each_refusal_has_a_cause() {
        let retry_after = Some(Duration::from_secs(3));
        for (code, reason, expected) in [
            (404, "NotFound", Failure::NotFound),
            (409, "AlreadyExists", Failure::AlreadyExists),
            (409, "Conflict", Failure::Conflict),
            (410, "Expired", Failure::Expired),
            (410, "Gone", Failure::Expired),
            (403, "Forbidden", Failure::Forbidden),
            (401, "Unauthorized", Failure::Unauthorized),
            (429, "TooManyRequests", Failure::TooManyRequests { retry_after }),
            (422, "Invalid", Failure::Invalid),
            (400, "BadRequest", Failure::Invalid),
            (500, "InternalError", Failure::Unavailable { retry_after }),
            (504, "Timeout", Failure::Unavailable { retry_after }),
            (404, "", Failure::Other),
            (415, "UnsupportedMediaType", Failure::Other),
        ] {
            let refusal = Refusal::of(&status(code, reason)).unwrap();
            assert_eq!((refusal.failure, refusal.code, refusal.message.as_str()), (expected, code, "why"));
        }
        assert_eq!(Refusal::of(&response(201, "{}")), None);
    }

    #[test]
    fn the_header_precedes_the_body() {
        let header = ApiResponse { retry_after: Some(Duration::from_secs(1)), ..status(429, "TooManyRequests") };
        let retry_after = Some(Duration::from_secs(1));
        assert_eq!(Refusal::of(&header).unwrap().failure, Failure::TooManyRequests { retry_after });
    }

    #[test]
    fn the_body_may_come_from_something_else() {
        let page = Refusal::of(&response(502, "<html>Bad Gateway</html>\n")).unwrap();
        assert_eq!(page.to_string(), "502: <html>Bad Gateway</html>");
        assert_eq!(page.failure, Failure::Unavailable { retry_after: None });
        let empty = Refusal::of(&response(404, "")).unwrap();
        assert_eq!(empty.to_string(), "404: no reason given");
        let object = Refusal::of(&response(409, r#"{"kind": "Pod", "reason": "AlreadyExists"}"#)).unwrap();
        assert_eq!(object.failure, Failure::Conflict);
        let long = Refusal::of(&response(500, &"\u{e4}".repeat(1000))).unwrap();
        assert_eq!(long.message.chars().count(), MAX_MESSAGE + 3);
        for body in [&[0xff, 0xfe][..], b"[1, 2]", b"null", b"{\"kind\": \"Status\", \"code\": \"x\"}"] {
            assert!(Refusal::of(&ApiResponse { body: body.to_vec(), ..response(404, "") }).is_some());
        }
    }
}
