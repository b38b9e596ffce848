//! The data that is needed to build the object of a document, but is not in the document.

use crate::api::system_credentials::Credentials;

/// The node and time data that defaulting needs.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub node_name: &'a str,
    /// For the `config.seen` annotation: RFC 3339 with nanoseconds, UTC.
    pub seen: &'a str,
    pub credentials: Credentials<'a>,
}

impl<'a> Context<'a> {
    /// Returns a context without the credentials of the service.
    pub const fn new(node_name: &'a str, seen: &'a str) -> Context<'a> {
        Context { node_name, seen, credentials: Credentials::Unknown }
    }
}
