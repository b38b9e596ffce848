//! Checks the head of a request: the client's certificate, the origin, the target, and the client's role. The server
//! has these checks made before it reads a large body, and again when the request is complete.

use super::Kube;
use super::answer::Result;
use crate::adapters::server::api::{self, ApiRequest, VerifiedClient};
use crate::agent::content::{Response, View};
use crate::api::kube::access;
use crate::api::kube::kubelet::KubeletPath;
use crate::api::kube::path::{self, ObjectPath, Target};
use crate::api::kube::query::Query;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::status::Failure;
use crate::metrics::families;
use crate::net::server::exchange::Request;
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
    /// A document that is no object.
    Document(Target),
}

impl Kube {
    /// The response to a request that is refused whatever its body is.
    pub(in crate::agent) fn refusal(&mut self, view: &View<'_>, request: &Request<'_>) -> Option<Response> {
        let api = self.identify(view, request);
        let refused = self.admit(view, &api).err()?;
        self.report(view, &api, Some(&refused));
        Some(api::failure(&refused))
    }

    /// Finds the client of a request.
    pub(super) fn identify<'a>(&mut self, view: &View<'_>, request: &Request<'a>) -> ApiRequest<'a> {
        let client = match request.certificate {
            Some(certificate) => self.access.client(certificate, view.now),
            None => Err(Failure::unauthorized("a client certificate is required")),
        };
        ApiRequest { head: request.head, client }
    }

    /// Logs a request and its failure, and counts the refusals.
    pub(super) fn report(&self, view: &View<'_>, api: &ApiRequest<'_>, failure: Option<&Failure>) {
        let client = api.client.as_ref().map_or("-", |client| client.name.as_str());
        let (method, path) = (api.head.method, &api.head.path);
        match failure {
            // The client's certificate does not permit the request.
            Some(Failure { code: code @ (401 | 403), message, .. }) => {
                view.metrics.inc(families::KUBECTL_REFUSALS, []);
                log::warn!("kubectl client={client:?} method={method} path={path} status={code} error={message:?}");
            }
            Some(Failure { code, message, .. }) => {
                log::debug!("kubectl client={client:?} method={method} path={path} status={code} error={message:?}");
            }
            None => log::debug!("kubectl client={client:?} method={method} path={path}"),
        }
    }

    /// # Errors
    /// The client has no access, the target does not exist, or it does not have the method.
    pub(super) fn admit(&self, view: &View<'_>, api: &ApiRequest<'_>) -> Result<Admitted> {
        let client = api.client.clone()?;
        self.check_origin(api)?;
        let head = api.head;
        let query = Query::parse(&head.query);
        let reads = matches!(head.method, "GET" | "HEAD");
        let target = match path::parse(&head.path)? {
            Target::Kubelet(node, path) => {
                let (nodes, own) = (Resource::of(Kind::Node), view.config.node_name.as_str());
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
                let verb = verb(head.method, &path, &query);
                let name = path.name.as_deref().unwrap_or_default();
                access::check(client.role, &client.name, verb, path.resource, path.subresource, name)?;
                AdmittedTarget::Object(verb, path)
            }
            _ if !reads => return Err(Failure::method_not_allowed()),
            document => AdmittedTarget::Document(document),
        };
        Ok(Admitted { client, target, query })
    }

    /// A browser sends Origin. A page of another site could use a certificate that the browser has, and by DNS
    /// rebinding it could use a name of its own.
    fn check_origin(&self, api: &ApiRequest<'_>) -> Result<()> {
        if api.head.values("origin").next().is_some() || api.head.values("sec-fetch-site").next().is_some() {
            return Err(Failure::forbidden_request("requests of browsers are refused"));
        }
        let host = api.head.values("host").next().unwrap_or_default();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let known = name.parse::<IpAddr>().is_ok() || self.names.has_dns(name);
        if known { Ok(()) } else { Err(Failure::forbidden_request(format!("this server has no name {name:?}"))) }
    }
}

/// The verb that an authorizer sees.
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
