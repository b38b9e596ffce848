//! The rules for a request that changes an object. Its answer follows when the change is in force.

use super::asked::Asked;
use super::change_queue::RequestedChange;
use super::keys::key_of;
use super::objects::in_force;
use super::request::Result;
use super::response::ApiResponse;
use super::state::KubectlApi;
use super::step::{AfterAnswer, NextStep};
use crate::api::kube::edit::ManifestEdit;
use crate::api::kube::request_body::{change_of, object};
use crate::api::kube::resources::Kind;
use crate::api::kube::status::Failure;
use crate::api::kube::versions::Key;
use crate::api::kube::write;
use crate::api::names::FullName;
use crate::api::uid::digest_of_bytes;
use crate::engine::control::Request;
use serde_json::Value;
use std::time::Duration;

/// What a request wants to change. `options`: of a deletion.
struct WantedChange {
    change: Option<write::ObjectChange>,
    options: Value,
    grace: Option<Duration>,
    dry_run: bool,
}

impl KubectlApi {
    pub(super) fn change(&self, asked: &Asked<'_>, verb: &str, body: &[u8]) -> Result<NextStep> {
        let (resource, snapshot) = (asked.path.resource, asked.snapshot);
        if !resource.verbs.contains(&verb) {
            return Err(Failure::method_not_allowed());
        }
        let mut path = asked.path.clone();
        let mut wanted = wanted(asked, verb, body, &mut path.name)?;
        if let (Kind::Node, Some(change)) = (resource.kind, &wanted.change) {
            return self.change_node(asked, change);
        }
        if resource.namespaced && path.namespace.is_none() {
            return Err(Failure::bad_request("an object of this resource needs a namespace in the path"));
        }
        let name = path.name.clone().unwrap_or_default();
        let Some(key) = key_of(&path) else { return Err(Failure::method_not_allowed()) };
        let source = in_force(snapshot.engine, &key).map(|(source, _)| source);
        let live = self.object(snapshot, &key);
        if let (Some(change), Some(live)) = (&mut wanted.change, &live) {
            write::without_ephemeral(change, live);
        }
        let (change, options) = (wanted.change.as_ref(), &wanted.options);
        write::check(resource, &name, change, options, source.is_some(), live.as_ref())?;
        wanted.read_options(asked)?;
        if let (Some(live), None) = (&live, &source) {
            return Ok(delete_again(key, live.clone(), &wanted));
        }
        if !snapshot.engine.manifests_are_writable() {
            let why = "the manifest directory is not readable, or not the one of the running pods; see wherry status";
            return Err(Failure::service_unavailable(why));
        }
        let WantedChange { change, grace, dry_run, .. } = wanted;
        let (document, file) = source.map(|source| (source.document, source.path)).unzip();
        let (node_name, seen) = (snapshot.node_name.to_owned(), snapshot.timestamp().to_string());
        let manifest = ManifestEdit { object: path, document, change, node_name, seen };
        let log = format!("verb={verb} {}={}/{}", resource.singular, key.namespace, key.name);
        let change = Box::new(RequestedChange { key, file, manifest, dry_run, grace });
        Ok(NextStep::Change { change, log })
    }
}

impl WantedChange {
    fn read_options(&mut self, asked: &Asked<'_>) -> Result<()> {
        let seconds = self.options.get("gracePeriodSeconds").and_then(Value::as_u64);
        let of_query = asked.query.number("gracePeriodSeconds").map_err(Failure::bad_request)?;
        self.grace = seconds.or(of_query).map(Duration::from_secs);
        let dry_run = self.options.get("dryRun").and_then(Value::as_array);
        self.dry_run = asked.is_dry_run() || dry_run.is_some_and(|all| all.iter().any(|v| v == "All"));
        Ok(())
    }
}

/// W4: the pod terminates already. A grace period can only shorten the one that has started.
fn delete_again(key: Key, live: Value, wanted: &WantedChange) -> NextStep {
    let Some(grace) = wanted.grace.filter(|_| !wanted.dry_run) else {
        return NextStep::Respond(ApiResponse::json(&live));
    };
    let pod = FullName::new(&key.namespace, &key.name);
    let log = format!("verb=delete pod={pod} again=true grace={grace:?}");
    NextStep::Ask { request: Request::Shorten { pod, grace }, after: AfterAnswer::DeletedAgain { key, live }, log }
}

/// Reads the body of a request. A new object gets its name in `name`.
fn wanted(asked: &Asked<'_>, verb: &str, body: &[u8], name: &mut Option<String>) -> Result<WantedChange> {
    let media_type = asked.request.media_type;
    let (change, options) = match verb {
        "create" => {
            let mut object = object(body, media_type)?;
            let seed = format!("{}{}", asked.request.id.0, asked.snapshot.now.wall.0);
            let digest = digest_of_bytes(seed.as_bytes());
            let suffix = digest.get(..5).unwrap_or_default();
            *name = Some(write::new_name(asked.path.resource, &mut object, suffix)?);
            (Some(write::ObjectChange::Create(object)), Value::Null)
        }
        "update" | "patch" => (Some(change_of(verb, media_type, body)?), Value::Null),
        _ if body.is_empty() => (None, Value::Null),
        _ => (None, object(body, media_type)?),
    };
    Ok(WantedChange { change, options, grace: None, dry_run: false })
}
