//! `pods/ephemeralcontainers`: the engine adds the containers to the running pod, and the client gets the pod when its
//! record is durable.

use super::Kube;
use super::answer::{Asked, pod_of};
use super::body::key_of;
use crate::agent::act::{Act, Then};
use crate::agent::content::{Response, View, json};
use crate::api::ephemeral::{Invalid, RequestedContainers};
use crate::api::kube::pod_row::text;
use crate::api::kube::request_body::change_of;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::status::Failure;
use crate::api::kube::versions::Key;
use crate::api::kube::{ephemeral, write};
use crate::api::problem::Problem;
use crate::engine::control::ephemeral::Origin;
use crate::engine::control::{EphemeralRequest, Reply, Request, RequestError};
use serde_json::Value;

/// A request whose answer depends on the engine.
#[derive(Debug)]
pub(in crate::agent) struct Debugging {
    key: Key,
    wanted: RequestedContainers,
    dry_run: bool,
}

impl Kube {
    pub(super) fn add_ephemeral(&self, asked: &Asked<'_>, verb: &str, body: &[u8]) -> Result<Act, Failure> {
        let name = asked.path.name.as_deref().unwrap_or_default();
        let uid = pod_of(asked)?.uid.clone();
        let key = key_of(asked.path).ok_or_else(Failure::method_not_allowed)?;
        let live = self.object(asked.view, &key).ok_or_else(|| Failure::not_found(asked.path.resource, name))?;
        let change = change_of(verb, asked.media_type(), body)?;
        let current = (text(&live, "/metadata/uid"), text(&live, "/metadata/resourceVersion"));
        let (wanted_uid, version) = write::preconditions(&change);
        write::check_preconditions(asked.path.resource, name, (Some(wanted_uid), Some(version)), current)?;
        let wanted = ephemeral::wanted(asked.path, &live, &change)?;
        let dry_run = asked.is_dry_run();
        log::info!(
            "kubectl client={:?} verb={verb} pod={}/{name} ephemeralcontainers",
            asked.client.name,
            key.namespace
        );
        let request = EphemeralRequest { uid, origin: Origin::Api, wanted: wanted.clone(), dry_run };
        Ok(Act::Ask(Request::Ephemeral(request), Then::Debugged(Debugging { key, wanted, dry_run })))
    }

    pub(in crate::agent) fn ephemeral_added(
        &self,
        view: &View<'_>,
        of: Debugging,
        answer: Result<Reply, RequestError>,
    ) -> Result<Response, Failure> {
        let Debugging { key, wanted, dry_run } = of;
        let resource = Resource::of(Kind::Pod);
        answer.map_err(|error| failure(resource, &key.name, error))?;
        let mut object = self.object(view, &key).ok_or_else(|| Failure::not_found(resource, &key.name))?;
        if let (true, RequestedContainers::All(list)) = (dry_run, wanted) {
            object["spec"]["ephemeralContainers"] = Value::Array(list);
        }
        Ok(json(&object))
    }
}

fn failure(resource: &'static Resource, name: &str, error: RequestError) -> Failure {
    match error {
        RequestError::UnknownPod(_) => Failure::not_found(resource, name),
        RequestError::NotStarted { .. } => Failure::conflict(resource, name, error),
        RequestError::InvalidEphemeral { errors, .. } => {
            let problem = |Invalid { field, message }| Problem {
                path: String::new(),
                document: 1,
                line: None,
                field: Some(field),
                message,
            };
            write::invalid(resource, name, &errors.into_iter().map(problem).collect::<Vec<_>>())
        }
        error => Failure::http(error.status(), &error.to_string()),
    }
}
