//! The end of a change to a manifest: the client gets its response when the engine has accepted the result.

use super::change_queue::{ACCEPT_TIMEOUT, Awaited, FileChange, RequestedChange, RunningChange, WrittenChange};
use super::namespaces;
use super::objects::in_force;
use super::request::Result;
use super::response::ApiResponse;
use super::snapshot::Snapshot;
use super::state::KubectlApi;
use crate::api::kube::edit::{EditOutcome, EditVerdict, Edited, Effected};
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::scale;
use crate::api::kube::status::Failure;
use crate::api::kube::versions::Key;
use crate::api::kube::write;
use crate::api::names::{FullName, Uid};
use crate::api::time::Boot;
use crate::api::uid::of_name as uid;
use crate::engine::control::{Request, RequestId};
use crate::engine::node::Engine;
use serde_json::{Value, json};

/// The end of a change: the client's response, and what follows it.
pub struct EndedChange {
    pub request: RequestId,
    pub response: Result<ApiResponse>,
    pub next: AfterChange,
}

/// What follows the end of a change.
pub enum AfterChange {
    Nothing,
    /// W4: the engine shortens the grace period of the removed pod.
    Ask(Request),
    /// The engine did not accept the object, so the old content of the file is restored.
    TakeBack(Box<Edited>),
}

impl EndedChange {
    fn accepted(written: WrittenChange, response: Result<ApiResponse>) -> EndedChange {
        let WrittenChange { change: RunningChange { request, of, .. }, edited, .. } = written;
        let pod = || FullName::new(&of.key.namespace, &of.key.name);
        let next = match (edited.outcome, of.grace, of.key.kind) {
            (EditOutcome::Removed, Some(grace), Kind::Pod) if !of.dry_run => {
                AfterChange::Ask(Request::Shorten { pod: pod(), grace })
            }
            _ => AfterChange::Nothing,
        };
        EndedChange { request, response, next }
    }

    fn refused(written: WrittenChange, why: Failure) -> EndedChange {
        let next = AfterChange::TakeBack(Box::new(written.edited));
        EndedChange { request: written.change.request, response: Err(why), next }
    }
}

/// The outcome of a written change.
enum Settled {
    Accepted(ApiResponse),
    /// The change must be reverted.
    Refused(Failure),
    /// The client has waited long enough. The change stays.
    Late(Failure),
    /// The change is in force, and the client waits for pods that end.
    PodsEnd,
}

impl KubectlApi {
    /// Queues a change that a client has requested.
    ///
    /// # Errors
    /// Too many changes are pending.
    pub fn queue_change(&mut self, request: RequestId, change: RequestedChange) -> Result<()> {
        self.changes.push(request, change)
    }

    /// Returns the next change for a helper, unless a helper is already carrying one out.
    pub fn next_change(&mut self, engine: &Engine) -> Option<(RequestId, FileChange)> {
        self.changes.next(|name| engine.manifest_of(name).map(|pod| pod.uid.clone()))
    }

    /// Takes the helper's result. Returns the failure for the client if the change was refused.
    pub fn change_done(&mut self, result: Result<Edited>, now: Boot) -> Option<(RequestId, Failure)> {
        self.changes.done(result, now)
    }

    /// Abandons the change of a client that has disconnected, unless it is already written. Returns true if the
    /// helper must abandon the change.
    pub fn gone(&mut self, request: RequestId) -> bool {
        self.changes.gone(request)
    }

    /// Returns the earliest time at which a client stops waiting.
    pub fn next_deadline(&self) -> Option<Boot> {
        let until = |written: &WrittenChange| match written.awaited {
            Awaited::Engine { until } => Some(until),
            // The end of a pod is an event.
            Awaited::Pods => None,
        };
        self.changes.written.iter().filter_map(until).min()
    }

    /// Takes the changes that the engine has accepted or refused. Returns None if no written change is pending.
    pub fn take_ended(&mut self, snapshot: &Snapshot<'_>) -> Option<Vec<EndedChange>> {
        if self.changes.written.is_empty() {
            return None;
        }
        let mut ended = Vec::new();
        for mut written in std::mem::take(&mut self.changes.written) {
            match self.settled(snapshot, &written) {
                Some(Settled::Accepted(response)) => ended.push(EndedChange::accepted(written, Ok(response))),
                Some(Settled::Late(failure)) => ended.push(EndedChange::accepted(written, Err(failure))),
                Some(Settled::Refused(why)) => ended.push(EndedChange::refused(written, why)),
                Some(Settled::PodsEnd) => {
                    written.awaited = Awaited::Pods;
                    self.changes.written.push(written);
                }
                None => self.changes.written.push(written),
            }
        }
        Some(ended)
    }

    /// Returns the outcome of a change, or None if the engine has not decided yet.
    fn settled(&self, snapshot: &Snapshot<'_>, written: &WrittenChange) -> Option<Settled> {
        let WrittenChange { change: RunningChange { of, .. }, edited, awaited } = written;
        let pods_end = of.pods.iter().any(|uid| snapshot.engine.pod(uid).is_some());
        let Awaited::Engine { until } = awaited else {
            return (!pods_end).then(|| Settled::Accepted(self.changed_response(snapshot, written)));
        };
        if of.dry_run || edited.outcome == EditOutcome::Unchanged {
            return Some(Settled::Accepted(self.changed_response(snapshot, written)));
        }
        let in_force = in_force(snapshot.engine, &of.key);
        let file = edited.file.display().to_string();
        let of_file = snapshot.engine.manifest_problems().filter(|p| p.path == file);
        let effected = Effected {
            outcome: edited.outcome,
            file: &file,
            digest: &edited.digest,
            in_force: in_force.as_ref().map(|(source, digest)| (source.path.as_str(), digest.as_str())),
            problems: of_file.flat_map(|p| &p.problems).cloned().collect(),
            expired: snapshot.now.boot >= *until,
        };
        match effected.verdict() {
            EditVerdict::Accepted if pods_end => Some(Settled::PodsEnd),
            EditVerdict::Accepted => Some(Settled::Accepted(self.changed_response(snapshot, written))),
            EditVerdict::Waiting => None,
            EditVerdict::Refused(problems) => {
                let resource = Resource::of(of.key.kind);
                Some(Settled::Refused(write::invalid(resource, &of.key.name, &problems)))
            }
            EditVerdict::Late => {
                let why = format!("{file} was written, but not accepted within {} s", ACCEPT_TIMEOUT.as_secs());
                Some(Settled::Late(Failure::timeout(why)))
            }
        }
    }

    fn changed_response(&self, snapshot: &Snapshot<'_>, written: &WrittenChange) -> ApiResponse {
        let WrittenChange { change: RunningChange { of, before, .. }, edited, .. } = written;
        let key = &of.key;
        let resource = Resource::of(key.kind);
        let live = self.object(snapshot, key);
        if edited.outcome == EditOutcome::Removed {
            let object = match live {
                // The pod still exists and is terminating.
                Some(object) if key.kind == Kind::Pod => object,
                _ => json!({
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Success",
                    "details": {
                        "name": *key.name,
                        "kind": resource.plural,
                        "uid": before.as_ref().map_or_else(
                            || uid(resource.kind_name, &key.namespace, &key.name),
                            Uid::to_string,
                        ),
                    },
                }),
            };
            let mut response = ApiResponse::json(&object);
            if key.kind == Kind::Namespace && namespaces::contains_objects(snapshot.engine, &key.name) {
                response.headers.push(("Warning", format!("299 - {:?}", namespaces::STILL_USED)));
            }
            return response;
        }
        let uid = edited.object.pointer("/metadata/uid").and_then(Value::as_str);
        let is_live = |object: &Value| uid.is_none() || object.pointer("/metadata/uid").and_then(Value::as_str) == uid;
        let is_in_force = !of.dry_run || edited.outcome == EditOutcome::Unchanged;
        let object = match live {
            Some(object) if is_in_force && is_live(&object) => object,
            live => {
                let live = live.map(|object| (is_live(&object), object));
                self.future(snapshot, key, edited.object.clone(), live)
            }
        };
        let object = if of.subresource == Some("scale") { scale::of(&object) } else { object };
        let mut response = ApiResponse::json(&object);
        if edited.outcome == EditOutcome::Created {
            response.status = 201;
        }
        for warning in &edited.warnings {
            response.headers.push(("Warning", format!("299 - {:?}", printable(warning))));
        }
        let after =
            in_force(snapshot.engine, key).filter(|_| key.kind == Kind::Pod && edited.outcome == EditOutcome::Changed);
        let name = FullName::new(&key.namespace, &key.name);
        let uid = after.and_then(|_| snapshot.engine.manifest_of(&name)).map(|pod| &pod.uid);
        if uid.is_some() && before.as_ref() != uid {
            let warning = "the pod is being replaced: its containers end, and a new pod with the change starts";
            response.headers.push(("Warning", format!("299 - {warning:?}")));
        }
        response
    }

    /// Returns the object as it will be. `live` is the current object, and whether it is updated instead of replaced.
    fn future(&self, snapshot: &Snapshot<'_>, key: &Key, mut object: Value, live: Option<(bool, Value)>) -> Value {
        let resource = Resource::of(key.kind);
        object["kind"] = resource.kind_name.into();
        object["apiVersion"] = resource.api_version().into();
        let created = snapshot.timestamp().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let metadata = &mut object["metadata"];
        metadata["creationTimestamp"] = created.into();
        metadata["resourceVersion"] = self.objects.versions.current().to_string().into();
        if metadata.get("uid").is_none() {
            metadata["uid"] = uid(resource.kind_name, &key.namespace, &key.name).into();
        }
        if key.kind == Kind::Pod {
            metadata["generation"] = 1.into();
            object["status"] = json!({ "phase": "Pending" });
        }
        if let Some((changed, mut live)) = live {
            // As in an API server's response to a dry run, these fields keep their current values.
            for field in ["creationTimestamp", "resourceVersion"] {
                object["metadata"][field] = live["metadata"][field].take();
            }
            if changed && key.kind == Kind::Pod {
                object["metadata"]["generation"] = live["metadata"]["generation"].take();
                object["status"] = live["status"].take();
            }
        }
        object
    }
}

/// Removes the characters that a header value in quotes cannot contain.
fn printable(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii() && !c.is_control() && !matches!(c, '"' | '\\')).collect()
}
