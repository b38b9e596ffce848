//! `pods/ephemeralcontainers`: the engine adds the containers to the running pod, and the client gets the pod as the
//! response once its record is durable.

use super::asked::Asked;
use super::keys::key_of;
use super::request::Result;
use super::response::ApiResponse;
use super::snapshot::Snapshot;
use super::state::KubectlApi;
use super::step::{AfterAnswer, Debugging, NextStep};
use crate::api::ephemeral_request::{Invalid, RequestedContainers};
use crate::api::kube::pod_row::text;
use crate::api::kube::request_body::change_of;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::status::Failure;
use crate::api::kube::{ephemeral, write};
use crate::api::problem::Problem;
use crate::engine::control::ephemeral::Origin;
use crate::engine::control::{EphemeralRequest, Reply, Request, RequestError};
use serde_json::Value;

impl KubectlApi {
    pub(super) fn add_ephemeral(&self, asked: &Asked<'_>, verb: &str, body: &[u8]) -> Result<NextStep> {
        let name = asked.path.name.as_deref().unwrap_or_default();
        let uid = asked.pod()?.uid.clone();
        let key = key_of(asked.path).ok_or_else(Failure::method_not_allowed)?;
        let live = self.object(asked.snapshot, &key).ok_or_else(|| Failure::not_found(asked.path.resource, name))?;
        let change = change_of(verb, asked.request.media_type, body)?;
        let current = (text(&live, "/metadata/uid"), text(&live, "/metadata/resourceVersion"));
        let (wanted_uid, version) = write::preconditions(&change);
        write::check_preconditions(asked.path.resource, name, (Some(wanted_uid), Some(version)), current)?;
        let wanted = ephemeral::wanted(asked.path, &live, &change)?;
        let dry_run = asked.is_dry_run();
        let log = format!("verb={verb} pod={} ephemeralcontainers", asked.full_name());
        let request = EphemeralRequest { uid, origin: Origin::Api, wanted: wanted.clone(), dry_run };
        let after = AfterAnswer::Debugged(Debugging { key, wanted, dry_run });
        Ok(NextStep::Ask { request: Request::Ephemeral(request), after, log })
    }

    pub(super) fn ephemeral_added(
        &self,
        snapshot: &Snapshot<'_>,
        of: Debugging,
        answer: std::result::Result<Reply, RequestError>,
    ) -> Result<ApiResponse> {
        let Debugging { key, wanted, dry_run } = of;
        let resource = Resource::of(Kind::Pod);
        answer.map_err(|error| failure(resource, &key.name, error))?;
        let mut object = self.object(snapshot, &key).ok_or_else(|| Failure::not_found(resource, &key.name))?;
        if let (true, RequestedContainers::All(list)) = (dry_run, wanted) {
            object["spec"]["ephemeralContainers"] = Value::Array(list);
        }
        Ok(ApiResponse::json(&object))
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
