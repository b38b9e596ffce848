//! Requests and failures of the Kubernetes API.

use crate::api::kube::access::Role;
use crate::api::kube::status::Failure;
use crate::api::time::Boot;
use crate::net::http1::Head;
use crate::net::server::exchange::Response;
use std::rc::Rc;

/// The maximum length of a request body, in bytes (the limit of an API server).
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// A client, from the certificate of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedClient {
    /// The common name (CN).
    pub name: String,
    pub role: Role,
    /// The end of the certificate's validity. (A clock that is set meanwhile counts from the next request on.)
    pub expires: Boot,
}

/// The parts of a request that only the API needs.
#[derive(Debug)]
pub struct ApiRequest<'a> {
    pub head: &'a Head,
    /// The client, if its certificate is valid and one of the clients'; otherwise the failure for it.
    pub client: Result<Rc<VerifiedClient>, Failure>,
}

/// The response for a failure.
pub fn failure<S>(failure: &Failure) -> Response<S> {
    let mut response = Response::json(serde_json::to_vec(&failure.to_value()).unwrap_or_default());
    response.status = failure.code;
    if failure.code == 429 {
        response.headers.push(("Retry-After", "1".to_owned()));
    }
    response
}
