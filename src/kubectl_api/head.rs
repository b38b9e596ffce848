//! Checks the head of a request: the client, the origin of the request, the target, and the client's role. The server
//! runs these checks before it reads a large body, and again when the request is complete.

use super::request::Result;
use super::request::{ApiRequest, VerifiedClient};
use super::snapshot::Snapshot;
use super::state::KubectlApi;
use crate::api::kube::access;
use crate::api::kube::kubelet::KubeletPath;
use crate::api::kube::path::{self, ObjectPath, Target};
use crate::api::kube::query::Query;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::status::Failure;
use std::net::IpAddr;
use std::rc::Rc;

/// A request that the client may make.
pub(super) struct Admitted {
    pub client: Rc<VerifiedClient>,
    pub target: AdmittedTarget,
    pub query: Query,
}

pub(super) enum AdmittedTarget {
    /// Objects, with the verb that an authorizer sees.
    Object(&'static str, ObjectPath),
    Kubelet(KubeletPath),
    /// A document that is not an object.
    Document(Target),
}

impl KubectlApi {
    /// Returns the failure of a request that is refused regardless of its body.
    pub fn refusal(&self, snapshot: &Snapshot<'_>, request: &ApiRequest<'_>) -> Option<Failure> {
        admit(snapshot, request).err()
    }
}

/// Checks the head of a request, and returns the request in its parsed form.
///
/// # Errors
/// The client has no access, the target does not exist, or the target does not support the method.
pub(super) fn admit(snapshot: &Snapshot<'_>, request: &ApiRequest<'_>) -> Result<Admitted> {
    let client = request.client.clone()?;
    check_origin(snapshot.node_name, request)?;
    let query = Query::parse(request.query);
    let reads = matches!(request.method, "GET" | "HEAD");
    let target = match path::parse(request.path)? {
        Target::Kubelet(node, path) => {
            let (nodes, own) = (Resource::of(Kind::Node), snapshot.node_name);
            let verb = if reads { "get" } else { "create" };
            let name = node.as_deref().unwrap_or(own);
            access::check(client.role, &client.name, verb, nodes, Some(path.subresource()), name)?;
            match node {
                _ if !reads => return Err(Failure::method_not_allowed()),
                Some(other) if other != own => return Err(Failure::not_found(nodes, &other)),
                _ => AdmittedTarget::Kubelet(path),
            }
        }
        Target::Object(path) => {
            let verb = verb(request.method, &path, &query);
            let name = path.name.as_deref().unwrap_or_default();
            access::check(client.role, &client.name, verb, path.resource, path.subresource, name)?;
            AdmittedTarget::Object(verb, path)
        }
        _ if !reads => return Err(Failure::method_not_allowed()),
        document => AdmittedTarget::Document(document),
    };
    Ok(Admitted { client, target, query })
}

/// Refuses requests from browsers, and requests for a host name that is not one of the server's. Otherwise, a page of
/// another site could use a client certificate that is installed in a browser, even under its own name through DNS
/// rebinding.
fn check_origin(node: &str, request: &ApiRequest<'_>) -> Result<()> {
    if request.is_from_browser {
        return Err(Failure::forbidden_request("requests from browsers are refused"));
    }
    let host = request.host;
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let is_own = access::dns_names(node).iter().any(|own| own.eq_ignore_ascii_case(name));
    let known = is_own || name.parse::<IpAddr>().is_ok();
    if known { Ok(()) } else { Err(Failure::forbidden_request(format!("{name:?} is not a name of this server"))) }
}

/// Returns the verb that an authorizer sees.
fn verb(method: &str, path: &ObjectPath, query: &Query) -> &'static str {
    match (method, &path.name) {
        ("GET" | "HEAD", _) if path.subresource.is_none() && query.flag("watch") => "watch",
        ("GET" | "HEAD", Some(_)) => "get",
        ("GET" | "HEAD", None) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        (_, Some(_)) => "delete",
        (_, None) => "deletecollection",
    }
}
