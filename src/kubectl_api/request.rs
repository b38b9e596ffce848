//! A request of the API, as a plain value.

use crate::api::kube::access::Role;
use crate::api::kube::status::Failure;
use crate::api::time::Boot;
use crate::engine::control::RequestId;
use std::rc::Rc;

/// A result, or the failure to send to the client.
pub(super) type Result<T> = std::result::Result<T, Failure>;

/// A client, identified by the certificate of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedClient {
    /// The common name (CN).
    pub name: String,
    pub role: Role,
    /// When the certificate expires. If the clock is set meanwhile, the time is corrected with the next request.
    pub expires: Boot,
}

/// A request, without its body.
#[derive(Debug)]
pub struct ApiRequest<'a> {
    pub id: RequestId,
    pub method: &'a str,
    pub path: &'a str,
    /// The text after `?`.
    pub query: &'a str,
    /// All values of Accept, separated by commas.
    pub accept: String,
    /// Content-Type without parameters.
    pub media_type: &'a str,
    pub host: &'a str,
    /// Whether the request has a header that only browsers send: Origin or Sec-Fetch-Site.
    pub is_from_browser: bool,
    /// The client, if it has a valid client certificate; otherwise the failure to send.
    pub client: Result<Rc<VerifiedClient>>,
}
