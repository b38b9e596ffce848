//! The data that is needed to build the object of a document, but is not in the document.

use crate::api::system_credentials::Credentials;
use serde::Serialize;

/// `networkPolicies`: what happens to a NetworkPolicy, which nothing on one machine enforces (Y31).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum NetworkPolicies {
    /// It is an error.
    #[default]
    Refuse,
    /// It is kept and shown, without effect.
    Ignore,
}

impl NetworkPolicies {
    pub const NAMES: &[&str] = &["Refuse", "Ignore"];

    pub fn of_name(name: &str) -> NetworkPolicies {
        if name == "Ignore" { NetworkPolicies::Ignore } else { NetworkPolicies::Refuse }
    }
}

/// The data that building an object needs.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub node_name: &'a str,
    /// For the `config.seen` annotation: RFC 3339 with nanoseconds, UTC.
    pub seen: &'a str,
    pub credentials: Credentials<'a>,
    pub network_policies: NetworkPolicies,
}

impl<'a> Context<'a> {
    /// Returns a context without the credentials of the service, in which a NetworkPolicy is an error.
    pub const fn new(node_name: &'a str, seen: &'a str) -> Context<'a> {
        Context { node_name, seen, credentials: Credentials::Unknown, network_policies: NetworkPolicies::Refuse }
    }
}
