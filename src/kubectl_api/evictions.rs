//! Cordons of the node and evictions of pods: creates the requests to the engine, and the responses from its replies.

use super::asked::Asked;
use super::keys::key;
use super::keys::key_of;
use super::request::Result;
use super::response::ApiResponse;
use super::snapshot::Snapshot;
use super::state::KubectlApi;
use super::step::{AfterAnswer, NextStep};
use crate::api::kube::pod_row::text;
use crate::api::kube::request_body::object;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::status::Failure;
use crate::api::kube::{eviction, node_change, write};
use crate::api::names::FullName;
use crate::engine::control::{Reply, Request, RequestError};
use std::time::Duration;

impl KubectlApi {
    /// Handles `pods/eviction` (A11).
    pub(super) fn evict(&self, asked: &Asked<'_>, body: &[u8]) -> Result<NextStep> {
        let uid = asked.pod()?.uid.clone();
        let FullName { namespace, name } = asked.full_name();
        let object = object(body, asked.request.media_type)?;
        let wanted = eviction::read(&object, &namespace, &name)?;
        let live = key_of(asked.path).and_then(|key| self.object(asked.snapshot, &key)).unwrap_or_default();
        let current = (text(&live, "/metadata/uid"), text(&live, "/metadata/resourceVersion"));
        let preconditions = (Some(&*wanted.uid), Some(&*wanted.resource_version));
        write::check_preconditions(asked.path.resource, &name, preconditions, current)?;
        if wanted.dry_run || asked.is_dry_run() {
            return match asked.snapshot.engine.budget_refuses(&uid) {
                Some(refusal) => Err(Failure::budget(&refusal)),
                None => Ok(NextStep::Respond(success())),
            };
        }
        let grace = wanted.grace_seconds.map(Duration::from_secs);
        let log = format!("verb=evict pod={namespace}/{name}");
        let after = AfterAnswer::Evicted(name.to_string());
        Ok(NextStep::Ask { request: Request::Evict { uid, grace }, after, log })
    }

    /// Handles a change to the node (A10).
    pub(super) fn change_node(&self, asked: &Asked<'_>, change: &write::ObjectChange) -> Result<NextStep> {
        let name = asked.path.name.as_deref().unwrap_or_default();
        let node = key_of(asked.path).and_then(|key| self.object(asked.snapshot, &key));
        let mut node = node.ok_or_else(|| Failure::not_found(asked.path.resource, name))?;
        let on = node_change::cordons(asked.path, &node, change)?;
        if asked.is_dry_run() {
            node_change::show(&mut node, on);
            return Ok(NextStep::Respond(ApiResponse::json(&node)));
        }
        let log = format!("verb=cordon node={name} unschedulable={on}");
        Ok(NextStep::Ask { request: Request::Cordon { on }, after: AfterAnswer::Cordoned, log })
    }

    /// Returns the response after the engine has answered a cordon.
    pub(super) fn cordoned(
        &mut self,
        snapshot: &Snapshot<'_>,
        answer: std::result::Result<Reply, RequestError>,
    ) -> Result<ApiResponse> {
        answer.map_err(failure)?;
        self.follow_changed_node(snapshot);
        let node = self.object(snapshot, &key(Kind::Node, "", snapshot.node_name));
        Ok(ApiResponse::json(&node.unwrap_or_default()))
    }
}

/// Returns the response after the engine has answered the eviction of the pod with this name.
pub(super) fn evicted(name: &str, answer: std::result::Result<Reply, RequestError>) -> Result<ApiResponse> {
    match answer {
        Ok(_) => Ok(success()),
        Err(RequestError::UnknownPod(_)) => Err(Failure::not_found(Resource::of(Kind::Pod), name)),
        Err(RequestError::Budget(refusal)) => Err(Failure::budget(&refusal)),
        Err(error @ RequestError::GraceTooLong) => Err(Failure::bad_request(error.to_string())),
        Err(error) => Err(failure(error)),
    }
}

fn failure(error: RequestError) -> Failure {
    match error {
        RequestError::ManifestsNotRead => Failure::service_unavailable(error.to_string()),
        error => Failure::internal(error),
    }
}

fn success() -> ApiResponse {
    ApiResponse::created(&eviction::success())
}
