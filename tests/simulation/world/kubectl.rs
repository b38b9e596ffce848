//! The clients of the API for kubectl. As the agent does, the model makes `kubectl_api` find the first step of each request,
//! carries it out, and lets it answer the client: with a changed manifest when the engine has accepted that, with a request when
//! the engine has answered. One client watches the pods, and must at every look have what a list shows.

use super::manifests::DIRECTORY;
use super::{Item, MS, S, World};
use crate::chance::below;
use crate::plan::Kubectl;
use crate::story::{Manifest, read};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use wherry::api::cluster::machine::MachineIdentity;
use wherry::api::document;
use wherry::api::kube::access::Role;
use wherry::api::kube::edit::{EditOutcome, Edited, FileFound};
use wherry::api::kube::status::Failure;
use wherry::api::layout::Layout;
use wherry::api::names::FullName;
use wherry::api::time::Boot;
use wherry::engine::control::{Reply, RequestError, RequestId};
use wherry::engine::node::PodView;
use wherry::kubectl_api::condition_times::ConditionTimes;
use wherry::kubectl_api::event_cache::EventCache;
use wherry::kubectl_api::form::BodyProgress;
use wherry::kubectl_api::request::{ApiRequest, VerifiedClient};
use wherry::kubectl_api::response::{ApiBody, ApiResponse};
use wherry::kubectl_api::snapshot::Snapshot;
use wherry::kubectl_api::step::{AfterAnswer, NextStep};
use wherry::kubectl_api::watch::Watch;
use wherry::kubectl_api::{AfterChange, EndedChange, FileChange, KubectlApi};

/// The first id of these clients. The others have smaller ones.
const FIRST: u64 = 1 << 32;
/// How long a client waits for the engine to accept a change (ns).
const PATIENCE: u64 = 20 * S;
const PODS: &str = "/api/v1/pods";

type Answer = Result<ApiResponse, Failure>;

pub(super) struct Clients {
    api: KubectlApi,
    events: EventCache,
    conditions: ConditionTimes,
    layout: Layout,
    last: u64,
    /// The clients that wait for an answer.
    open: BTreeMap<RequestId, Open>,
    /// The answers, in stories: the status, and the body or the message.
    answers: BTreeMap<RequestId, (u16, String)>,
    follower: Option<Follower>,
}

struct Open {
    name: FullName,
    /// None: a story knows what the answer has to be.
    what: Option<Kubectl>,
    /// What follows the engine's answer.
    after: Option<AfterAnswer>,
    /// What was written for it.
    written: Option<Edited>,
    /// The engine could not write its record.
    is_not_durable: bool,
}

/// A client that watches the pods. What it has of each: the UID and the resource version.
struct Follower {
    watch: Box<Watch>,
    pods: BTreeMap<String, (String, String)>,
}

impl Default for Clients {
    fn default() -> Clients {
        Clients {
            api: KubectlApi::new(1, MachineIdentity::default()),
            events: EventCache::default(),
            conditions: ConditionTimes::default(),
            layout: Layout { root: super::host::ROOT.into(), logs: "/var/log/pods".into(), log_links: None },
            last: FIRST,
            open: BTreeMap::new(),
            answers: BTreeMap::new(),
            follower: None,
        }
    }
}

impl Clients {
    /// The engine's process has ended. The next one has an API with a higher number.
    pub(super) fn disconnect(&mut self) {
        let (last, run) = (self.last, self.last - FIRST + 2);
        *self = Clients { api: KubectlApi::new(run, MachineIdentity::default()), last, ..Clients::default() };
    }

    pub(super) fn pod_changed(&mut self, name: &FullName, view: Option<&PodView<'_>>) {
        self.api.pod_changed(name, view);
    }

    pub(super) fn manifests_changed(&mut self) {
        self.api.manifests_changed();
    }

    pub(super) fn claims_changed(&mut self) {
        self.api.claims_changed();
    }

    pub(super) fn services_changed(&mut self) {
        self.api.services_changed();
    }

    pub(super) fn workloads_changed(&mut self) {
        self.api.workloads_changed();
    }
}

/// The request of kubectl: the method, the path with the query, the media type and the body.
struct Sent {
    method: &'static str,
    path: String,
    media_type: &'static str,
    body: Value,
}

impl Sent {
    fn new(method: &'static str, path: String) -> Sent {
        Sent { method, path, media_type: "application/json", body: Value::Null }
    }

    fn merge(path: String, body: Value) -> Sent {
        Sent { media_type: "application/merge-patch+json", body, ..Sent::new("PATCH", path) }
    }

    fn with(self, body: Value) -> Sent {
        Sent { body, ..self }
    }
}

impl World {
    /// kubectl does something with the pod of this file.
    pub fn kubectl(&mut self, path: &str, what: Kubectl) {
        let name = match what {
            Kubectl::Create(number) => FullName::new("default", &format!("made-{number}")),
            _ => match self.files.get(path) {
                Some(manifest) => manifest.name.clone(),
                None => return,
            },
        };
        if !self.process.alive || self.process.unread {
            return;
        }
        self.clients_see_the_pods();
        if let Some(sent) = self.sent(&name, what) {
            self.send(&sent, name, Some(what));
        }
    }

    /// A client sends a request for a pod. `kubectl_answer` has the answer.
    pub fn kubectl_sends(&mut self, method: &'static str, path: &str, body: Value) -> RequestId {
        let sent = Sent { body, ..Sent::new(method, path.to_owned()) };
        self.send(&sent, FullName::new("", ""), None)
    }

    /// The status of the answer, and its body or the message of the failure.
    pub fn kubectl_answer(&self, id: RequestId) -> Option<(u16, &str)> {
        self.clients.answers.get(&id).map(|(status, text)| (*status, text.as_str()))
    }

    fn send(&mut self, sent: &Sent, name: FullName, what: Option<Kubectl>) -> RequestId {
        self.clients.last += 1;
        let id = RequestId(self.clients.last);
        self.clients.open.insert(id, Open { name, what, after: None, written: None, is_not_durable: false });
        match self.first_step(id, sent) {
            Err(refused) => self.kubectl_has(id, Err(refused)),
            Ok(NextStep::Respond(response)) => self.kubectl_has(id, Ok(response)),
            Ok(NextStep::Ask { request, after, .. }) => {
                self.clients.open.entry(id).and_modify(|open| open.after = Some(after));
                self.ask_as(id, request);
            }
            Ok(NextStep::Change { change, .. }) => match self.clients.api.queue_change(id, *change) {
                Ok(()) => {
                    let late = self.chaos.as_mut().map_or(0, |chaos| below(&mut chaos.dice("a change", ""), 30) * MS);
                    self.at(late, Item::Kubectl { life: self.process.life });
                }
                Err(refused) => self.kubectl_has(id, Err(refused)),
            },
            Ok(_) => self.kubectl_must(false, "a request for an object has no other step", id),
        }
        id
    }

    fn sent(&mut self, name: &FullName, what: Kubectl) -> Option<Sent> {
        let all = format!("/api/v1/namespaces/{}/pods", name.namespace);
        let one = format!("{all}/{}", name.name);
        let metadata = json!({ "name": *name.name, "namespace": *name.namespace });
        Some(match what {
            Kubectl::Create(_) => Sent::new("POST", all).with(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": { "containers": [{ "name": "main", "image": "busybox:1.35" }] },
            })),
            Kubectl::Label(value) => {
                Sent::merge(one, json!({ "metadata": { "labels": { "round": value.to_string() } } }))
            }
            Kubectl::InvalidChange => Sent::merge(one, json!({ "spec": { "restartPolicy": "Perhaps" } })),
            Kubectl::Replace => {
                let live = self.body_of(&Sent::new("GET", one.clone()))?;
                Sent::new("PUT", one).with(live)
            }
            Kubectl::ReplaceOutdated => {
                let mut live = self.body_of(&Sent::new("GET", one.clone()))?;
                live["metadata"]["resourceVersion"] = "1".into();
                Sent::new("PUT", one).with(live)
            }
            Kubectl::Delete => Sent::new("DELETE", one),
            Kubectl::DeleteSoon => Sent::new("DELETE", one).with(json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 1,
            })),
            Kubectl::DryRunDelete => Sent::new("DELETE", format!("{one}?dryRun=All")),
            Kubectl::Evict => Sent::new("POST", format!("{one}/eviction")).with(json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata,
            })),
        })
    }

    fn first_step(&mut self, id: RequestId, sent: &Sent) -> Result<NextStep, Failure> {
        let (path, query) = sent.path.split_once('?').unwrap_or((&sent.path, ""));
        let client = VerifiedClient { name: "admin".into(), role: Role::Edit, expires: Boot(u64::MAX) };
        let request = ApiRequest {
            id,
            method: sent.method,
            path,
            query,
            accept: "application/json".into(),
            media_type: sent.media_type,
            host: "127.0.0.1:10250",
            is_from_browser: false,
            client: Ok(Rc::new(client)),
        };
        let body = if sent.body.is_null() { Vec::new() } else { sent.body.to_string().into_bytes() };
        self.with_api(|api, snapshot| {
            drop(api.follow(snapshot, true));
            api.request(snapshot, &request, &body).next
        })
    }

    fn with_api<T>(&mut self, f: impl FnOnce(&mut KubectlApi, &Snapshot<'_>) -> T) -> T {
        let now = self.time();
        let Clients { api, events, conditions, layout, .. } = &mut self.clients;
        let (created, started) = (self.config.fixed.started, self.config.fixed.started);
        let node_name = self.config.node.name.as_str();
        let snapshot =
            Snapshot { engine: &self.engine, events, conditions, layout, node_name, port: 0, created, started, now };
        f(api, &snapshot)
    }

    /// The object or the list that is the response. None: there is none.
    fn body_of(&mut self, sent: &Sent) -> Option<Value> {
        match self.first_step(RequestId(FIRST), sent) {
            Ok(NextStep::Respond(ApiResponse { body: ApiBody::Full(body), .. })) => serde_json::from_slice(&body).ok(),
            Ok(NextStep::Respond(ApiResponse { body: ApiBody::List(mut list), .. })) => {
                let mut out = Vec::new();
                while self.with_api(|api, snapshot| api.part_of_list(snapshot, &mut list, &mut out))
                    != BodyProgress::Whole
                {}
                serde_json::from_slice(&out).ok()
            }
            _ => None,
        }
    }

    /// A helper carries out the next change.
    pub(super) fn helper_of_kubectl(&mut self) {
        if let Some((id, change)) = self.clients.api.next_change(&self.engine) {
            let life = self.process.life;
            let result = self.change_file(&change);
            if life != self.process.life {
                // The engine was killed in the middle.
                return;
            }
            if let (Ok(edited), Some(open)) = (&result, self.clients.open.get_mut(&id)) {
                open.written = Some(edited.clone());
            }
            let refused = self.clients.api.change_done(result, self.time().boot);
            if let Some((id, failure)) = refused {
                self.kubectl_has(id, Err(failure));
            }
            // More changes may wait, and the patience of the client ends.
            self.at(0, Item::Kubectl { life });
            self.at(PATIENCE, Item::Kubectl { life });
        }
        self.end_changes_of_kubectl();
    }

    fn change_file(&mut self, change: &FileChange) -> Result<Edited, Failure> {
        let path = change.file.clone().unwrap_or_else(|| format!("{DIRECTORY}/{}", change.manifest.file_name()));
        let before = self.text_of(&path).map(String::into_bytes);
        let planned = change.manifest.plan(&path, before.clone().map_or(FileFound::Nothing, FileFound::Text))?;
        if !change.dry_run && planned.outcome != EditOutcome::Unchanged {
            self.write_file(&path, planned.text.as_deref());
        }
        Ok(planned.carried_out(PathBuf::from(path), before))
    }

    /// None: the file is removed.
    fn write_file(&mut self, path: &str, text: Option<&[u8]>) {
        let text = text.map(String::from_utf8_lossy);
        let is_pod = match &text {
            Some(text) => kind_of(path, text) == "Pod",
            None => self.files.contains_key(path),
        };
        if !is_pod {
            return self.write_document(path, text.map(|text| text.into_owned()));
        }
        let mut files = self.files.clone();
        match text {
            Some(text) => {
                let manifest = Manifest { pod: read(path, &text), text: text.as_ref().into() };
                files.insert(path.to_owned(), manifest);
            }
            None => drop(files.remove(path)),
        }
        self.set_files(files);
    }

    /// Answers the clients whose changes the engine has accepted or refused.
    pub(super) fn end_changes_of_kubectl(&mut self) {
        if !self.process.alive {
            return;
        }
        let Some(ended) = self.with_api(|api, snapshot| api.take_ended(snapshot)) else { return };
        for EndedChange { request: id, response, next } in ended {
            self.kubectl_has(id, response);
            match next {
                AfterChange::Nothing => {}
                AfterChange::Ask(request) if self.process.alive => self.ask_as(id, request),
                AfterChange::Ask(_) => {}
                AfterChange::TakeBack(edited) => {
                    let path = edited.file.display().to_string();
                    let present = self.text_of(&path);
                    if edited.is_unchanged_since(present.as_deref().map(str::as_bytes)) {
                        self.write_file(&path, edited.before.as_deref());
                    }
                }
            }
        }
    }

    /// Takes the engine's answer for one of these clients. Returns that for another one.
    pub fn answered_kubectl(
        &mut self,
        id: RequestId,
        answer: Result<Reply, RequestError>,
    ) -> Option<Result<Reply, RequestError>> {
        if id.0 <= FIRST {
            return Some(answer);
        }
        let is_not_durable = matches!(answer, Err(RequestError::NotDurable { .. }));
        let after = self.clients.open.get_mut(&id).and_then(|open| {
            open.is_not_durable = is_not_durable;
            open.after.take()
        });
        if let Some(after) = after {
            let response = self.with_api(|api, snapshot| api.answered(snapshot, after, answer));
            self.kubectl_has(id, response);
        }
        None
    }

    /// The client has its answer.
    fn kubectl_has(&mut self, id: RequestId, answer: Answer) {
        let Some(open) = self.clients.open.remove(&id) else {
            return self.kubectl_must(false, "each request has one answer", id);
        };
        self.note(|| match &answer {
            Ok(response) => format!("    kubectl: {:?} {} {}", open.what, open.name, response.status),
            Err(refused) => format!("    kubectl: {:?} {}: {} {}", open.what, open.name, refused.code, refused.message),
        });
        let Some(what) = open.what else {
            let answer = match answer {
                Ok(ApiResponse { status, body: ApiBody::Full(body), .. }) => {
                    (status, String::from_utf8_lossy(&body).into_owned())
                }
                Ok(ApiResponse { status, .. }) => (status, String::new()),
                Err(failure) => (failure.code, failure.message),
            };
            self.clients.answers.insert(id, answer);
            return;
        };
        let fine = match &answer {
            Ok(response) => self.may_succeed(&open, what, response.status),
            Err(Failure { code: 503, .. }) => !self.engine.manifests_are_writable(),
            Err(Failure { code: 500, .. }) => open.is_not_durable,
            Err(Failure { code: 504, .. }) => self.has_to_wait(&open),
            Err(Failure { code, .. }) => (400..500).contains(code),
        };
        let answer = answer.map(|response| response.status).map_err(|failure| failure.message);
        if !fine {
            self.checks.fail("kubectl", format!("{what:?} {}: {answer:?}", open.name));
        }
    }

    /// Whether an answer without an error is right.
    fn may_succeed(&self, open: &Open, what: Kubectl, status: u16) -> bool {
        let defined = self.engine.manifest_of(&open.name);
        match what {
            Kubectl::Create(_) => status == 201 && defined.is_some(),
            Kubectl::Label(_) | Kubectl::Replace => status == 200 && defined.is_some(),
            // A pod that terminates already has no manifest; another file may define one of this name.
            Kubectl::Delete | Kubectl::DeleteSoon => {
                let file = open.written.as_ref().and_then(|edited| edited.file.to_str());
                status == 200 && defined.is_none_or(|pod| Some(pod.source.path.as_str()) != file)
            }
            Kubectl::DryRunDelete => status == 200,
            Kubectl::Evict => status == 201,
            Kubectl::InvalidChange | Kubectl::ReplaceOutdated => false,
        }
    }

    /// Whether the engine has a reason not to accept a file: it cannot be read, it was changed since, or another file defines
    /// a pod of this name.
    fn has_to_wait(&self, open: &Open) -> bool {
        let Some(edited) = &open.written else { return false };
        let path = edited.file.display().to_string();
        let present = self.text_of(&path);
        let changed = !edited.is_unchanged_since(present.as_deref().map(str::as_bytes));
        let other = self.engine.manifest_of(&open.name).is_some_and(|pod| pod.source.path != path);
        self.manifests.is_away() || changed || other
    }

    fn kubectl_must(&mut self, fine: bool, rule: &'static str, id: RequestId) {
        if !fine {
            self.checks.fail("kubectl", format!("{rule}: {id:?}"));
        }
    }

    /// The client that watches has what a list shows.
    pub fn clients_see_the_pods(&mut self) {
        if !self.process.alive {
            return;
        }
        let Some(listed) = self.body_of(&Sent::new("GET", PODS.into())) else {
            return self.checks.fail("kubectl", "there is no list of pods".into());
        };
        let shown: BTreeMap<String, (String, String)> =
            listed["items"].as_array().into_iter().flatten().map(in_short).collect();
        let version = text(&listed["metadata"]["resourceVersion"]);
        let Some(mut follower) = self.clients.follower.take() else {
            let sent = Sent::new("GET", format!("{PODS}?watch=true&resourceVersion={version}"));
            let step = self.first_step(RequestId(FIRST), &sent);
            if let Ok(NextStep::Respond(ApiResponse { body: ApiBody::Watch(watch), .. })) = step {
                self.clients.follower = Some(Follower { watch, pods: shown });
            } else {
                self.checks.fail("kubectl", "the pods cannot be watched".into());
            }
            return;
        };
        match self.follow_pods(&mut follower) {
            Err(wrong) => self.checks.fail("a watch", wrong),
            // It is too far behind, and the client begins again.
            Ok(false) => {}
            Ok(true) if follower.pods != shown => {
                let what = format!("the client has {:?}, a list shows {shown:?}", follower.pods);
                self.checks.fail("a watch has what a list has", what);
            }
            Ok(true) => self.clients.follower = Some(follower),
        }
    }

    /// Reads what a watch has. False: it has ended.
    fn follow_pods(&mut self, Follower { watch, pods }: &mut Follower) -> Result<bool, String> {
        let mut out = Vec::new();
        while self.with_api(|api, snapshot| api.part_of_watch(snapshot, watch, &mut out)) == BodyProgress::Piece {}
        for line in out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line).map_err(|e| e.to_string())?;
            let (name, (uid, version)) = in_short(&event["object"]);
            let before = pods.get(&name).map(|(uid, _)| uid.clone());
            let fits = match event["type"].as_str() {
                Some("ADDED") => before.is_none() && pods.insert(name.clone(), (uid, version)).is_none(),
                Some("MODIFIED") => {
                    before.as_ref() == Some(&uid) && pods.insert(name.clone(), (uid, version)).is_some()
                }
                Some("DELETED") => before.as_ref() == Some(&uid) && pods.remove(&name).is_some(),
                Some("ERROR") => return Ok(false),
                _ => false,
            };
            if !fits {
                return Err(format!("{} of {name}, of which the client has {before:?}", event["type"]));
            }
        }
        Ok(true)
    }
}

/// The name, and the UID and the resource version.
fn in_short(object: &Value) -> (String, (String, String)) {
    let metadata = &object["metadata"];
    let name = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
    (name, (text(&metadata["uid"]), text(&metadata["resourceVersion"])))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The kind of the first document in a text.
fn kind_of(path: &str, text: &str) -> String {
    let documents = document::parse(text.as_bytes(), path).unwrap_or_default();
    let kind = documents.first().and_then(|document| document.content["kind"].as_str());
    kind.unwrap_or_default().to_owned()
}
