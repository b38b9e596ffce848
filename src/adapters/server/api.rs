//! The limit for requests of the Kubernetes API, and the responses for its failures.

use crate::api::kube::status::Failure;
use crate::net::server::exchange::Response;

/// The maximum length of a request body, in bytes (the limit of an API server).
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// Returns the response for a failure.
pub fn failure<S>(failure: &Failure) -> Response<S> {
    let mut response = Response::json(serde_json::to_vec(&failure.to_value()).unwrap_or_default());
    response.status = failure.code;
    // Without it, as for a disruption budget, the client itself decides when it tries again.
    if let Some(seconds) = failure.details.get("retryAfterSeconds").filter(|_| failure.code == 429) {
        response.headers.push(("Retry-After", seconds.to_string()));
    }
    response
}
