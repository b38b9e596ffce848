//! The rules for a request that changes an object. The response is sent when the change is in force.

use super::asked::Asked;
use super::change_queue::{ChangeOf, FileChange, RequestedChange};
use super::keys::key_of;
use super::objects::in_force;
use super::request::Result;
use super::response::ApiResponse;
use super::state::KubectlApi;
use super::step::{AfterAnswer, NextStep};
use crate::api::claim::ClaimKey;
use crate::api::document::other_kinds;
use crate::api::kube::edit::ManifestEdit;
use crate::api::kube::path::ObjectPath;
use crate::api::kube::request_body::{change_of, object};
use crate::api::kube::resources::Kind;
use crate::api::kube::status::Failure;
use crate::api::kube::versions::Key;
use crate::api::kube::write::{self, ObjectChange};
use crate::api::names::{FullName, Uid};
use crate::api::uid::digest_of_bytes;
use crate::api::workload::key::{WorkloadKey, WorkloadKind};
use crate::engine::control::Request;
use serde_json::Value;
use std::time::Duration;

/// The options of a request that changes an object.
struct ChangeOptions {
    /// The grace period of a deletion.
    grace: Option<Duration>,
    dry_run: bool,
}

impl KubectlApi {
    pub(super) fn change(&self, asked: &Asked<'_>, verb: &str, body: &[u8]) -> Result<NextStep> {
        let resource = asked.path.resource;
        if resource.kind.is_refused() {
            return Err(refusal(asked.path, verb));
        }
        if !resource.verbs.contains(&verb) {
            return Err(Failure::method_not_allowed());
        }
        let mut path = asked.path.clone();
        let (change, options) = read_body(asked, verb, body, &mut path.name)?;
        if let (Kind::Node, Some(change)) = (resource.kind, &change) {
            return self.change_node(asked, change);
        }
        self.change_object(asked, verb, path, change, &options)
    }

    /// Changes or removes (`change`: None) the object at `path`. `body`: the options of a deletion.
    pub(super) fn change_object(
        &self,
        asked: &Asked<'_>,
        verb: &str,
        path: ObjectPath,
        mut change: Option<ObjectChange>,
        body: &Value,
    ) -> Result<NextStep> {
        let (resource, snapshot, subresource) = (path.resource, asked.snapshot, path.subresource);
        let path = ObjectPath { subresource: None, ..path };
        if resource.namespaced && path.namespace.is_none() {
            return Err(Failure::bad_request("an object of this resource needs a namespace in the path"));
        }
        let name = path.name.clone().unwrap_or_default();
        let Some(key) = key_of(&path) else { return Err(Failure::method_not_allowed()) };
        let source = in_force(snapshot.engine, &key).map(|(source, _)| source);
        let live = self.object(snapshot, &key);
        if let (Some(change), Some(live)) = (&mut change, &live) {
            write::without_ephemeral(change, live);
        }
        write::check(resource, &name, change.as_ref(), body, source.is_some(), live.as_ref())?;
        let options = ChangeOptions::read(asked, body)?;
        let pods = match WorkloadKind::of(resource.kind_name) {
            Some(kind) if change.is_none() => pods_to_await(kind, &key, asked, body)?,
            _ => Vec::new(),
        };
        if let (Some(live), None, None) = (&live, &source, &change) {
            return Ok(match write::controller(live) {
                _ if matches!(key.kind, Kind::Claim | Kind::Volume) => delete_storage(key, live, &options),
                Some(_) if key.kind == Kind::Job => delete_created_job(key, live, &options),
                Some(_) if live.pointer("/metadata/deletionTimestamp").is_none() => delete_replica(key, live, &options),
                _ => delete_again(key, live.clone(), &options),
            });
        }
        if !snapshot.engine.manifests_are_writable() {
            let why = "no files can be added: the manifest directory is not readable, or is not the one that the \
                       running pods came from; see wherry status";
            return Err(Failure::service_unavailable(why));
        }
        let ChangeOptions { grace, dry_run } = options;
        let (document, file) = source.map(|source| (source.document, source.path)).unzip();
        let (node_name, seen) = (snapshot.node_name.to_owned(), snapshot.timestamp().to_string());
        let network_policies = snapshot.engine.network_policies();
        let manifest = ManifestEdit { object: path, document, digest: None, change, node_name, seen, network_policies };
        let log = format!("verb={verb} {}={}/{}", resource.singular, key.namespace, key.name);
        let (of, file) = (ChangeOf { key, subresource, dry_run, grace, pods }, FileChange { file, manifest, dry_run });
        Ok(NextStep::Change { change: Box::new(RequestedChange { of, file }), log })
    }
}

/// Returns the failure of a change to a kind that is refused ([`Kind::is_refused`]).
fn refusal(path: &ObjectPath, verb: &str) -> Failure {
    match &path.name {
        Some(name) if verb == "delete" => Failure::not_found(path.resource, name),
        _ => Failure::bad_request(other_kinds::refusal(path.resource.kind_name)),
    }
}

/// Returns the pods for whose end the deletion of a workload waits: all of them with `--cascade=foreground`.
///
/// # Errors
/// The client wants to keep the pods. Without a manifest, nothing would define them.
fn pods_to_await(kind: WorkloadKind, key: &Key, asked: &Asked<'_>, options: &Value) -> Result<Vec<Uid>> {
    let policy = options.get("propagationPolicy").and_then(Value::as_str);
    let policy = policy.or(asked.query.get("propagationPolicy"));
    if policy == Some("Orphan") || options["orphanDependents"] == true {
        let why = format!("the pods of a {} end with it; delete it without --cascade=orphan", kind.name());
        return Err(Failure::bad_request(why));
    }
    let of = WorkloadKey::new(kind, FullName::new(&key.namespace, &key.name));
    Ok(if policy == Some("Foreground") { asked.snapshot.engine.pods_of_workload(&of) } else { Vec::new() })
}

/// Handles the deletion of a pod of a workload, which then creates another one.
fn delete_replica(key: Key, live: &Value, options: &ChangeOptions) -> NextStep {
    if options.dry_run {
        return NextStep::Respond(ApiResponse::json(live));
    }
    let uid = Uid::from(live["metadata"]["uid"].as_str().unwrap_or_default());
    let log = format!("verb=delete pod={}/{} replica=true", key.namespace, key.name);
    let request = Request::DeleteReplica { uid, grace: options.grace };
    NextStep::Ask { request, after: AfterAnswer::DeletedAgain { key, live: live.clone() }, log }
}

/// Handles the deletion of a claim without a manifest, or of a directory without a claim.
fn delete_storage(key: Key, live: &Value, options: &ChangeOptions) -> NextStep {
    // A claim that is being deleted ends with its last pod.
    if options.dry_run || live.pointer("/metadata/deletionTimestamp").is_some() {
        return NextStep::Respond(ApiResponse::json(live));
    }
    let (request, log) = if key.kind == Kind::Claim {
        let of = FullName::new(&key.namespace, &key.name);
        let log = format!("verb=delete persistentvolumeclaim={of} created=true");
        (Request::DeleteClaim { of: ClaimKey(of) }, log)
    } else {
        let text = |path| live.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let of = FullName::new(text("/spec/claimRef/namespace"), text("/spec/claimRef/name"));
        let log = format!("verb=delete persistentvolume={} claim={of}", key.name);
        (Request::RemoveVolume { of: ClaimKey(of) }, log)
    };
    NextStep::Ask { request, after: AfterAnswer::DeletedAgain { key, live: live.clone() }, log }
}

/// Handles the deletion of a Job that a CronJob has created.
fn delete_created_job(key: Key, live: &Value, options: &ChangeOptions) -> NextStep {
    if options.dry_run {
        return NextStep::Respond(ApiResponse::json(live));
    }
    let of = FullName::new(&key.namespace, &key.name);
    let log = format!("verb=delete job={of} created=true");
    NextStep::Ask {
        request: Request::DeleteJob { of },
        after: AfterAnswer::DeletedAgain { key, live: live.clone() },
        log,
    }
}

impl ChangeOptions {
    /// Reads the options from the query and from `body`, which contains the options of a deletion.
    fn read(asked: &Asked<'_>, body: &Value) -> Result<ChangeOptions> {
        let seconds = body.get("gracePeriodSeconds").and_then(Value::as_u64);
        let of_query = asked.query.number("gracePeriodSeconds").map_err(Failure::bad_request)?;
        let dry_run = body.get("dryRun").and_then(Value::as_array);
        let dry_run = asked.is_dry_run() || dry_run.is_some_and(|all| all.iter().any(|v| v == "All"));
        Ok(ChangeOptions { grace: seconds.or(of_query).map(Duration::from_secs), dry_run })
    }
}

/// W4: handles the deletion of a pod that is already terminating. A new grace period can only shorten the current one.
fn delete_again(key: Key, live: Value, options: &ChangeOptions) -> NextStep {
    let Some(grace) = options.grace.filter(|_| !options.dry_run) else {
        return NextStep::Respond(ApiResponse::json(&live));
    };
    let pod = FullName::new(&key.namespace, &key.name);
    let log = format!("verb=delete pod={pod} again=true grace={grace:?}");
    NextStep::Ask { request: Request::Shorten { pod, grace }, after: AfterAnswer::DeletedAgain { key, live }, log }
}

/// Returns the change that the body of a request contains, and the options of a deletion. The name of a new object is
/// stored in `name`.
fn read_body(
    asked: &Asked<'_>,
    verb: &str,
    body: &[u8],
    name: &mut Option<String>,
) -> Result<(Option<write::ObjectChange>, Value)> {
    let media_type = asked.request.media_type;
    Ok(match verb {
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
    })
}
