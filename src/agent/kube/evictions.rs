//! Cordons of the node and evictions of pods: the requests for the engine, and the answers from its replies.

use super::Kube;
use super::answer::{Asked, pod_of};
use super::body::key_of;
use super::versions::key;
use crate::agent::act::{Act, Then};
use crate::agent::content::{Response, View, json};
use crate::api::kube::pod_row::text;
use crate::api::kube::request_body::object;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::status::Failure;
use crate::api::kube::{eviction, node_change, write};
use crate::engine::control::{Reply, Request, RequestError};
use std::time::Duration;

impl Kube {
    /// A11: `pods/eviction`.
    pub(super) fn evict(&self, asked: &Asked<'_>, body: &[u8]) -> Result<Act, Failure> {
        let uid = pod_of(asked)?.uid.clone();
        let (namespace, name) = (asked.path.namespace.as_deref(), asked.path.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let object = object(body, asked.media_type())?;
        let wanted = eviction::read(&object, namespace, name)?;
        let live = key_of(asked.path).and_then(|key| self.object(asked.view, &key)).unwrap_or_default();
        let current = (text(&live, "/metadata/uid"), text(&live, "/metadata/resourceVersion"));
        let preconditions = (Some(&*wanted.uid), Some(&*wanted.resource_version));
        write::check_preconditions(asked.path.resource, name, preconditions, current)?;
        if wanted.dry_run || asked.is_dry_run() {
            return Ok(Act::Respond(success()));
        }
        log::info!("kubectl client={:?} verb=evict pod={namespace}/{name}", asked.client.name);
        let grace = wanted.grace_seconds.map(Duration::from_secs);
        Ok(Act::Ask(Request::Evict { uid, grace }, Then::Evicted { name: name.to_owned() }))
    }

    /// A10: a change of the node.
    pub(super) fn change_node(&self, asked: &Asked<'_>, change: &write::ObjectChange) -> Result<Act, Failure> {
        let name = asked.path.name.as_deref().unwrap_or_default();
        let node = key_of(asked.path).and_then(|key| self.object(asked.view, &key));
        let mut node = node.ok_or_else(|| Failure::not_found(asked.path.resource, name))?;
        let on = node_change::cordons(asked.path, &node, change)?;
        if asked.is_dry_run() {
            node_change::show(&mut node, on);
            return Ok(Act::Respond(json(&node)));
        }
        log::info!("kubectl client={:?} verb=cordon node={name} unschedulable={on}", asked.client.name);
        Ok(Act::Ask(Request::Cordon { on }, Then::Cordoned))
    }

    /// The engine has answered an eviction or a cordon.
    pub(in crate::agent) fn node_answered(
        &mut self,
        view: &View<'_>,
        evicted: Option<String>,
        answer: Result<Reply, RequestError>,
    ) -> Result<Response, Failure> {
        match (evicted, answer) {
            (Some(name), Err(RequestError::UnknownPod(_))) => Err(Failure::not_found(Resource::of(Kind::Pod), &name)),
            (Some(_), Err(RequestError::GraceTooLong)) => {
                Err(Failure::bad_request(RequestError::GraceTooLong.to_string()))
            }
            (_, Err(error @ RequestError::ManifestsNotRead)) => Err(Failure::service_unavailable(error.to_string())),
            (_, Err(error)) => Err(Failure::internal(error)),
            (Some(_), Ok(_)) => Ok(success()),
            (None, Ok(_)) => {
                self.follow_changed_node(view);
                let node = self.object(view, &key(Kind::Node, "", &view.config.node_name));
                Ok(json(&node.unwrap_or_default()))
            }
        }
    }
}

fn success() -> Response {
    let mut response = json(&eviction::success());
    response.status = 201;
    response
}
