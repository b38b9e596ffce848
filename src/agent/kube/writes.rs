//! Changes of objects: a helper writes or removes the manifest, and the client gets its answer when the engine has
//! accepted the result. One change at a time, so that each begins with the result of the one before.

use super::Kube;
use super::body::now;
use crate::adapters::manifests::edit::{self, Abandoned, Edit, Edited};
use crate::adapters::server::api::failure;
use crate::agent::content::{Response, View, json};
use crate::agent::jobs::{JobSpec, Jobs};
use crate::api::data_object::{DataKey, DataKind};
use crate::api::kube::edit::{EditOutcome, EditVerdict, Effected};
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::status::Failure;
use crate::api::kube::versions::Key;
use crate::api::kube::write;
use crate::api::names::{FullName, Uid};
use crate::api::pod::Source;
use crate::api::time::{Boot, Now};
use crate::engine::control::Request;
use crate::engine::node::Engine;
use crate::event_loop::Class;
use crate::net::server::exchange::Ticket;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

/// Time limit for a change of a file.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client waits for the engine to accept a change. (The manifests may be on a file system that is slow.)
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum number of changes that wait.
const MAX_WAITING: usize = 64;

/// A change that a client has requested.
pub(in crate::agent) struct Change {
    pub key: Key,
    pub edit: Edit,
    /// For the removal of a pod: the client's grace period, which can only be shorter than the pod's.
    pub grace: Option<Duration>,
}

#[derive(Default)]
pub(super) struct Writes {
    waiting: VecDeque<(Ticket, Change)>,
    /// The change that a helper carries out.
    running: Option<Running>,
    /// The changes that the engine has not accepted yet.
    written: Vec<Written>,
}

struct Running {
    ticket: Ticket,
    change: Change,
    /// The UID of the pod before the change.
    before: Option<Uid>,
    abandoned: Abandoned,
}

struct Written {
    ticket: Ticket,
    change: Change,
    edited: Edited,
    before: Option<Uid>,
    until: Boot,
}

impl Writes {
    /// Whether a client waits for the answer to a change.
    pub(super) fn are_pending(&self) -> bool {
        self.running.is_some() || !self.waiting.is_empty() || !self.written.is_empty()
    }

    /// The client has disconnected: its change is given up, unless it is written already.
    pub(super) fn gone(&mut self, ticket: Ticket) {
        self.waiting.retain(|(waits, _)| *waits != ticket);
        if let Some(running) = self.running.as_ref().filter(|running| running.ticket == ticket) {
            running.abandoned.abandon();
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        self.written.iter().map(|w| w.until).min()
    }
}

/// The end of a change: the client's response, and what follows it.
pub(in crate::agent) struct EndedChange {
    pub ticket: Ticket,
    pub response: Response,
    pub next: AfterChange,
}

/// What follows the end of a change.
pub(in crate::agent) enum AfterChange {
    Nothing,
    /// W4: the engine shortens the grace period of the removed pod.
    Ask(Request),
    /// The engine did not accept the object: the file gets its old content.
    TakeBack(Box<TakeBack>),
}

/// A change of a file that is undone.
pub(in crate::agent) struct TakeBack {
    directory: PathBuf,
    edited: Edited,
}

impl TakeBack {
    pub(in crate::agent) fn begin(self, jobs: &mut Jobs, now: Now) {
        let spec = JobSpec::new(Class::Records, "take a manifest back", now.boot + WRITE_TIMEOUT);
        jobs.run(
            spec,
            move || edit::take_back(&self.directory, &self.edited),
            |agent, taken, now| {
                let log = &mut agent.reporting.standing;
                if let Err(why) = taken.unwrap_or_else(|e| Err(log.job_failed(&e, now.boot))) {
                    log::error!("failed to take a change of a manifest back error={why:?}");
                }
            },
        );
    }
}

impl EndedChange {
    fn accepted(written: Written, response: Response) -> EndedChange {
        let Written { ticket, change, edited, .. } = written;
        let next = match (edited.outcome, change.grace, change.key.kind) {
            (EditOutcome::Removed, Some(grace), Kind::Pod) if !change.edit.dry_run => {
                AfterChange::Ask(Request::Shorten {
                    pod: FullName::new(&change.key.namespace, &change.key.name),
                    grace,
                })
            }
            _ => AfterChange::Nothing,
        };
        EndedChange { ticket, response, next }
    }

    fn refused(written: Written, why: &Failure) -> EndedChange {
        let Written { ticket, change, edited, .. } = written;
        let next = AfterChange::TakeBack(Box::new(TakeBack { directory: change.edit.directory, edited }));
        EndedChange { ticket, response: failure(why), next }
    }
}

impl Writes {
    /// Has a helper carry out the next change, unless it carries out one.
    fn begin(&mut self, engine: &Engine, jobs: &mut Jobs, now: Now) {
        if self.running.is_some() {
            return;
        }
        let Some((ticket, change)) = self.waiting.pop_front() else { return };
        let edit = change.edit.clone();
        let name = FullName::new(&change.key.namespace, &change.key.name);
        let pod = (change.key.kind == Kind::Pod).then(|| engine.manifest_of(&name)).flatten();
        let before = pod.map(|pod| pod.uid.clone());
        let abandoned = Abandoned::default();
        self.running = Some(Running { ticket, change, before, abandoned: abandoned.clone() });
        let spec = JobSpec::new(Class::Records, "write a manifest", now.boot + WRITE_TIMEOUT);
        jobs.run(
            spec,
            move || edit.run(&abandoned),
            |agent, edited, now| {
                let edited = edited.unwrap_or_else(|e| {
                    let why = agent.reporting.standing.job_failed(&e, now.boot);
                    Err(Failure::internal(format!("failed to write the manifest: {why}")))
                });
                let Some(kube) = agent.serving.kube.get() else { return };
                if let Some((ticket, refused)) = kube.writes.done(edited, &agent.engine, &mut agent.jobs, now) {
                    agent.respond(ticket, refused, now);
                }
                agent.drive_server_again();
            },
        );
    }

    /// The helper has carried out a change. Returns the response if it is refused.
    fn done(
        &mut self,
        result: Result<Edited, Failure>,
        engine: &Engine,
        jobs: &mut Jobs,
        now: Now,
    ) -> Option<(Ticket, Response)> {
        let Running { ticket, change, before, .. } = self.running.take()?;
        let refused = match result {
            Err(refused) => Some((ticket, failure(&refused))),
            Ok(edited) => {
                log_change(&change, &edited);
                let until = now.boot + ACCEPT_TIMEOUT;
                self.written.push(Written { ticket, change, edited, before, until });
                None
            }
        };
        self.begin(engine, jobs, now);
        refused
    }
}

fn log_change(change: &Change, edited: &Edited) {
    log::info!(
        "kubectl {} {} {}/{} file={:?} dry_run={}",
        match edited.outcome {
            EditOutcome::Created => "created",
            EditOutcome::Changed => "changed",
            EditOutcome::Unchanged => "did not change",
            EditOutcome::Removed => "removed",
        },
        Resource::of(change.key.kind).singular,
        change.key.namespace,
        change.key.name,
        edited.file,
        change.edit.dry_run
    );
}

impl Kube {
    /// Queues a change. Returns the response if there are too many.
    pub(in crate::agent) fn queue_change(
        &mut self,
        ticket: Ticket,
        change: Change,
        engine: &Engine,
        jobs: &mut Jobs,
        now: Now,
    ) -> Option<Response> {
        if self.writes.waiting.len() >= MAX_WAITING {
            return Some(failure(&Failure::too_many_requests("too many changes at the same time")));
        }
        self.writes.waiting.push_back((ticket, change));
        self.writes.begin(engine, jobs, now);
        None
    }

    /// Takes the changes that the engine has accepted or refused. None: no change waits for that.
    pub(in crate::agent) fn take_ended(&mut self, view: &View<'_>) -> Option<Vec<EndedChange>> {
        if self.writes.written.is_empty() {
            return None;
        }
        let mut ended = Vec::new();
        for written in std::mem::take(&mut self.writes.written) {
            match self.result_of(view, &written) {
                Some(Ok(response)) => ended.push(EndedChange::accepted(written, response)),
                Some(Err(refused)) => ended.push(EndedChange::refused(written, &refused)),
                None => self.writes.written.push(written),
            }
        }
        Some(ended)
    }

    /// The response of a change that has a result, or the reason why the change has to be taken back.
    fn result_of(&self, view: &View<'_>, written: &Written) -> Option<Result<Response, Failure>> {
        let Written { change, edited, until, .. } = written;
        let resource = Resource::of(change.key.kind);
        if change.edit.dry_run || edited.outcome == EditOutcome::Unchanged {
            return Some(Ok(self.changed_response(view, written)));
        }
        let in_force = in_force(view, &change.key);
        let file = edited.file.display().to_string();
        let of_file = view.engine.manifest_problems().filter(|p| p.path == file);
        let effected = Effected {
            outcome: edited.outcome,
            file: &file,
            digest: &edited.digest,
            in_force: in_force.as_ref().map(|(source, digest)| (source.path.as_str(), digest.as_str())),
            problems: of_file.flat_map(|p| &p.problems).cloned().collect(),
            expired: view.now.boot >= *until,
        };
        match effected.verdict() {
            EditVerdict::Accepted => Some(Ok(self.changed_response(view, written))),
            EditVerdict::Waiting => None,
            EditVerdict::Refused(problems) => Some(Err(write::invalid(resource, &change.key.name, &problems))),
            EditVerdict::Late => {
                let why = format!("{file} is written, but was not accepted within {} s", ACCEPT_TIMEOUT.as_secs());
                Some(Ok(failure(&Failure::timeout(why))))
            }
        }
    }

    fn changed_response(&self, view: &View<'_>, written: &Written) -> Response {
        let Written { change, edited, before, .. } = written;
        let key = &change.key;
        let resource = Resource::of(key.kind);
        let live = self.object(view, key);
        if edited.outcome == EditOutcome::Removed {
            let object = match live {
                // A pod that terminates.
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
                            || super::objects::uid(resource.kind_name, &key.namespace, &key.name),
                            Uid::to_string,
                        ),
                    },
                }),
            };
            return json(&object);
        }
        let uid = edited.object.pointer("/metadata/uid").and_then(Value::as_str);
        let is_live = |object: &Value| uid.is_none() || object.pointer("/metadata/uid").and_then(Value::as_str) == uid;
        let is_in_force = !change.edit.dry_run || edited.outcome == EditOutcome::Unchanged;
        let object = match live {
            Some(object) if is_in_force && is_live(&object) => object,
            live => {
                let live = live.map(|object| (is_live(&object), object));
                self.future(view, key, edited.object.clone(), live)
            }
        };
        let mut response = json(&object);
        if edited.outcome == EditOutcome::Created {
            response.status = 201;
        }
        for warning in &edited.warnings {
            response.headers.push(("Warning", format!("299 - {:?}", printable(warning))));
        }
        let after = in_force(view, key).filter(|_| key.kind == Kind::Pod && edited.outcome == EditOutcome::Changed);
        let name = FullName::new(&key.namespace, &key.name);
        let uid = after.and_then(|_| view.engine.manifest_of(&name)).map(|pod| &pod.uid);
        if uid.is_some() && before.as_ref() != uid {
            let warning = "the pod is replaced: its containers end, and a pod with the change starts";
            response.headers.push(("Warning", format!("299 - {warning:?}")));
        }
        response
    }

    /// The object as it will be. `live`: the present one, and whether it is only changed and not replaced.
    fn future(&self, view: &View<'_>, key: &Key, mut object: Value, live: Option<(bool, Value)>) -> Value {
        let resource = Resource::of(key.kind);
        object["kind"] = resource.kind_name.into();
        object["apiVersion"] = resource.api_version().into();
        let created = now(view).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let metadata = &mut object["metadata"];
        metadata["creationTimestamp"] = created.into();
        metadata["resourceVersion"] = self.objects.versions.current().to_string().into();
        if metadata.get("uid").is_none() {
            metadata["uid"] = super::objects::uid(resource.kind_name, &key.namespace, &key.name).into();
        }
        if key.kind == Kind::Pod {
            metadata["generation"] = 1.into();
            object["status"] = json!({ "phase": "Pending" });
        }
        if let Some((changed, mut live)) = live {
            // As an API server answers a dry run: a change of these fields is only visible afterwards.
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

/// The value of a header is in quotes, and ASCII.
fn printable(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii() && !c.is_control() && !matches!(c, '"' | '\\')).collect()
}

/// The manifest that defines an object: its place and its digest.
pub(super) fn in_force(view: &View<'_>, key: &Key) -> Option<(Source, String)> {
    let name = FullName::new(&key.namespace, &key.name);
    let data = |kind| {
        let object = view.engine.data_objects().get(&DataKey { kind, name: name.clone() })?;
        Some((object.source.clone(), object.digest.clone()))
    };
    match key.kind {
        Kind::Pod => view.engine.manifest_of(&name).map(|pod| (pod.source.clone(), pod.digest.clone())),
        Kind::ConfigMap => data(DataKind::ConfigMap),
        Kind::Secret => data(DataKind::Secret),
        Kind::PriorityClass => {
            let class = view.engine.priority_classes().iter().find(|class| *class.name == *key.name)?;
            Some((class.source.clone(), class.digest.clone()))
        }
        Kind::RuntimeClass => {
            let class = view.engine.runtime_classes().iter().find(|class| *class.name == *key.name)?;
            Some((class.source.clone(), class.digest.clone()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kube::edit::ManifestEdit;
    use crate::api::kube::path::{Target, parse};

    fn change(name: &str) -> Change {
        let Ok(Target::Object(object)) = parse(&format!("/api/v1/namespaces/default/configmaps/{name}")) else {
            panic!("{name}")
        };
        let key = super::super::body::key_of(&object).unwrap();
        let (node_name, seen) = (String::new(), String::new());
        let manifest = ManifestEdit { object, document: None, change: None, node_name, seen };
        let edit = Edit { directory: "/m".into(), file: None, manifest, dry_run: false };
        Change { key, edit, grace: None }
    }

    #[test]
    fn a_client_that_is_gone_gives_up_its_change_and_no_other() {
        let abandoned = Abandoned::default();
        let running = Running { ticket: Ticket(1), change: change("a"), before: None, abandoned: abandoned.clone() };
        let waiting = [(Ticket(2), change("b")), (Ticket(3), change("c"))].into();
        let mut writes = Writes { waiting, running: Some(running), written: Vec::new() };
        writes.gone(Ticket(2));
        assert_eq!(writes.waiting.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [Ticket(3)]);
        assert!(!abandoned.is_abandoned());
        writes.gone(Ticket(1));
        assert!(abandoned.is_abandoned() && writes.running.is_some(), "its result is still awaited");
    }
}
