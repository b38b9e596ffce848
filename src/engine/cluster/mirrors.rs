//! The mirrors of manifest pods. A missing mirror is created. A mirror that matches no pod, or that somebody deletes,
//! is removed.

use super::backoff::{Backoff, Limits};
use super::reflector::{Step, begin};
use super::reports::Reports;
use crate::api::cluster::mirror;
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::requests;
use crate::api::cluster::status::{Failure, Refusal};
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::effect::Severity;
use crate::engine::op::OpId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);
/// A mirror is not urgent, and the server may refuse it for as long as a namespace or a permission is missing, so the
/// delays become long.
const RETRIES: Limits = Limits { first: Duration::from_secs(1), most: Duration::from_secs(300) };

#[derive(Debug, Default, Serialize)]
pub struct Mirrors {
    /// The mirrors on the server, by their UIDs. None: before the first list.
    found: Option<BTreeMap<Uid, Mirror>>,
    tasks: BTreeMap<FullName, Task>,
}

/// A mirror on the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mirror {
    pub name: FullName,
    /// The UID of the mirrored pod.
    pub of: Uid,
    /// The digest of the mirrored pod. Empty: another program created the mirror.
    pub digest: String,
    pub deletion: Option<Duration>,
}

/// The creation or the removal of the mirror with this name.
#[derive(Debug, Default, Serialize)]
struct Task {
    op: Option<OpId>,
    backoff: Backoff,
    refused: Option<String>,
}

impl Mirrors {
    /// Replaces all mirrors with those of a complete list of pods.
    pub fn listed(&mut self, all: BTreeMap<Uid, Mirror>) {
        self.found = Some(all);
    }

    pub fn set(&mut self, uid: &Uid, mirror: Mirror) {
        self.found.get_or_insert_default().insert(uid.clone(), mirror);
    }

    /// Removes a mirror that no longer exists. Returns false if the object was not a mirror.
    pub fn gone(&mut self, uid: &Uid) -> bool {
        self.found.as_mut().is_some_and(|found| found.remove(uid).is_some())
    }

    /// Returns the number of mirrors on the server.
    pub fn count(&self) -> usize {
        self.found.as_ref().map_or(0, BTreeMap::len)
    }

    /// Returns the mirrors of the pod with this UID. A pod with a fixed UID briefly has two when its name has
    /// changed.
    pub fn of(&self, uid: &Uid) -> impl Iterator<Item = (&Uid, &Mirror)> {
        self.found.iter().flatten().filter(move |(_, mirror)| mirror.of == *uid && mirror.deletion.is_none())
    }

    pub fn get(&self, uid: &Uid) -> Option<&Mirror> {
        self.found.as_ref()?.get(uid)
    }

    /// Returns when the next request is due.
    pub fn next(&self) -> Option<Boot> {
        let waiting = self.tasks.values().filter(|task| task.op.is_none());
        waiting.map(|task| task.backoff.at()).min()
    }

    /// Makes all requests due, because the server is reachable again.
    pub fn hurry(&mut self) {
        self.tasks.values_mut().for_each(|task| task.backoff.hurry());
    }

    /// Stops creating and removing mirrors, because another machine with this node's name has mirrors too.
    pub fn pause(&mut self) {
        self.tasks.retain(|_, task| task.op.is_some());
    }

    /// Begins the requests that are due. `pods`: the pods of manifests that need a mirror. `reports`: the status
    /// reports of the mirrors.
    pub fn step(&mut self, pods: &[Rc<Pod>], reports: &Reports, node: &str, node_uid: &str, step: &mut Step<'_>) {
        let Some(found) = &self.found else { return };
        let mut open: Vec<FullName> = Vec::new();
        for (uid, mirror) in found {
            let matches = |pod: &&Rc<Pod>| pod.uid == mirror.of && pod.digest == mirror.digest;
            let is_over = mirror.deletion.is_some() || reports.runs_again(uid);
            if !is_over && pods.iter().any(|pod| matches(&pod)) {
                continue;
            }
            open.push(mirror.name.clone());
            let task = self.tasks.entry(mirror.name.clone()).or_default();
            if task.is_due(step.now) {
                task.op = Some(begin(requests::delete_pod(&mirror.name, uid), Some(TIMEOUT), step.outbox));
            }
        }
        let mirrored = |pod: &&Rc<Pod>| found.values().any(|mirror| mirror.of == pod.uid);
        for pod in pods.iter().filter(|pod| !mirrored(pod)) {
            let name = mirror::name(&pod.name, node);
            // W8: a mirror with this name still exists, for example that of the previous pod with the name, so the
            // new one waits.
            if found.values().any(|mirror| mirror.name == name) {
                continue;
            }
            open.push(name.clone());
            let task = self.tasks.entry(name.clone()).or_default();
            if task.is_due(step.now) {
                let request = requests::create_pod(&name.namespace, mirror::object(pod, node, node_uid));
                task.op = Some(begin(request, Some(TIMEOUT), step.outbox));
            }
        }
        self.tasks.retain(|name, task| task.op.is_some() || open.contains(name));
    }

    /// Handles the result of a request. Returns false if the request does not belong to the mirrors.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> bool {
        let Some((name, task)) = self.tasks.iter_mut().find(|(_, task)| task.op == Some(op)) else { return false };
        task.op = None;
        let refusal = result.as_ref().ok().and_then(Refusal::of);
        match (result, &refusal) {
            // The watch shows the change soon; meanwhile the request is not repeated.
            (Ok(_), None) => {
                task.refused = None;
                task.backoff.succeeded();
                task.backoff.failed(RETRIES, step.now, step.rng);
                return true;
            }
            (_, Some(refusal)) if refusal.failure != Failure::NotFound && refusal.failure != Failure::Conflict => {
                let why = refusal.to_string();
                if task.refused.as_ref() != Some(&why) {
                    let message =
                        format!("the API server refuses the mirror {name}: {why}; the pod itself keeps running");
                    step.outbox.emit_node_event(Severity::Warning, Reason::MirrorRefused, message);
                    task.refused = Some(why);
                }
            }
            _ => {}
        }
        task.backoff.refused(refusal.as_ref(), RETRIES, step.now, step.rng);
        true
    }
}

impl Task {
    fn is_due(&self, now: Boot) -> bool {
        self.op.is_none() && self.backoff.is_due(now)
    }
}
