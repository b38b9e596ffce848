//! Pods bound to this node beyond the number that Wherry stores in full (C17). Wherry keeps only what it needs to
//! reject them: UID, namespace and name.
//!
//! Admission never sees these pods. They are rejected with the reason and the status that admission would give. The
//! deletion of such a pod is confirmed when nothing of the pod is on this node.

use super::backoff::{Backoff, REQUESTS};
use super::reflector::{Step, begin};
use super::warning::warn;
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::requests;
use crate::api::cluster::status::{Failure, Refusal};
use crate::api::names::{FullName, Uid};
use crate::api::reason::Reason;
use crate::api::resources::PODS;
use crate::api::time::Boot;
use crate::engine::op::OpId;
use crate::engine::pod::kill::Cause;
use crate::engine::pod::status;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of requests in flight.
const PARALLEL: usize = 4;
/// Pods beyond this number are only counted. The next list, which follows when all known ones are handled, shows them
/// again.
pub const MOST: usize = 10_000;
/// The time from the last rejection to the next list, if pods were only counted.
const NEXT_LIST: Duration = Duration::from_secs(30);

/// A pod from a list or a watch.
#[derive(Debug, PartialEq)]
pub struct ExcessPod {
    pub uid: Uid,
    pub name: FullName,
    pub is_deleted: bool,
}

#[derive(Debug, Default, Serialize)]
pub struct Excess {
    pods: BTreeMap<Uid, Entry>,
    in_flight: BTreeMap<OpId, InFlight>,
    backoff: Backoff,
    /// The number of pods that are only counted.
    left_out: usize,
    /// When the next list is due.
    list: Option<Boot>,
    report: Report,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: FullName,
    deletion: Deletion,
    state: State,
}

#[derive(Debug, Serialize)]
struct InFlight {
    uid: Uid,
    /// The state of the deletion when the request was sent.
    deletion: Deletion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Deletion {
    No,
    /// Something of the pod may be on this node.
    Unclear,
    /// Nothing of the pod is on this node.
    Clear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum State {
    /// The pod has to be rejected, or its deletion has to be confirmed.
    Open,
    InFlight,
    /// The request has succeeded. The watch shows the result soon.
    Done,
}

impl Entry {
    fn is_due(&self) -> bool {
        self.state == State::Open && self.deletion != Deletion::Unclear
    }
}

/// Whether an event has reported the excess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
enum Report {
    #[default]
    Due,
    Made,
}

impl Excess {
    /// Takes a pod that the server has.
    pub fn set(&mut self, pod: ExcessPod) {
        let ExcessPod { uid, name, is_deleted } = pod;
        if self.pods.len() >= MOST && !self.pods.contains_key(&uid) {
            return self.leave_out(1);
        }
        let entry = self.pods.entry(uid).or_insert(Entry { name, deletion: Deletion::No, state: State::Open });
        if is_deleted && entry.deletion == Deletion::No {
            entry.deletion = Deletion::Unclear;
        }
        // The server does not show the result of the request, so the request is repeated.
        if entry.state == State::Done {
            entry.state = State::Open;
        }
    }

    /// Counts pods that are not kept.
    pub fn leave_out(&mut self, pods: usize) {
        self.left_out = self.left_out.saturating_add(pods);
    }

    /// Forgets a pod that is gone or has terminated, or that the node can now hold.
    pub fn remove(&mut self, uid: &Uid) {
        self.pods.remove(uid);
    }

    /// Forgets the pods that are not in the complete list of the server.
    pub fn listed(&mut self, mut is_listed: impl FnMut(&Uid) -> bool) {
        self.pods.retain(|uid, _| is_listed(uid));
    }

    /// Returns the deleted pods whose deletion may be confirmed as soon as nothing of them is on this node.
    pub fn deleted(&self) -> impl Iterator<Item = &Uid> {
        self.pods.iter().filter(|(_, entry)| entry.deletion == Deletion::Unclear).map(|(uid, _)| uid)
    }

    /// Lets the deletion be confirmed: nothing of the pod is on this node.
    pub fn may_be_confirmed(&mut self, uid: &Uid) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.deletion = Deletion::Clear;
        }
    }

    pub fn hurry(&mut self) {
        self.backoff.hurry();
    }

    pub fn next(&self) -> Option<Boot> {
        let work = (self.in_flight.len() < PARALLEL && self.due().is_some()).then(|| self.backoff.at());
        work.into_iter().chain(self.list).min()
    }

    fn due(&self) -> Option<&Uid> {
        self.pods.iter().find(|(_, entry)| entry.is_due()).map(|(uid, _)| uid)
    }

    /// Begins the requests that are due. Returns whether the pods have to be listed again.
    pub fn step(&mut self, step: &mut Step<'_>) -> bool {
        self.report(step);
        while self.in_flight.len() < PARALLEL && self.backoff.is_due(step.now) {
            let Some(uid) = self.due().cloned() else { break };
            let Some(entry) = self.pods.get_mut(&uid) else { break };
            let request = match entry.deletion {
                Deletion::No => requests::patch_pod_status(&entry.name, rejection(&uid, step.most_pods)),
                Deletion::Unclear | Deletion::Clear => requests::delete_pod(&entry.name, &uid),
            };
            entry.state = State::InFlight;
            let sent = InFlight { uid, deletion: entry.deletion };
            self.in_flight.insert(begin(request, Some(TIMEOUT), step.outbox), sent);
        }
        if self.left_out > 0 && self.in_flight.is_empty() && self.due().is_none() {
            self.left_out = 0;
            self.list = Some(step.now + NEXT_LIST);
        }
        self.list.take_if(|at| *at <= step.now).is_some()
    }

    fn report(&mut self, step: &mut Step<'_>) {
        match (self.pods.is_empty(), self.report) {
            (true, Report::Made) if self.left_out == 0 => self.report = Report::Due,
            (false, Report::Due) => {
                self.report = Report::Made;
                let pods = self.pods.len() + self.left_out;
                let message = format!(
                    "at least {pods} pods are bound to this node beyond the {} that it can hold, and are rejected; \
                     find out who binds them",
                    step.most_pods
                );
                warn(step.outbox, message);
            }
            _ => {}
        }
    }

    /// Returns false if the operation does not belong to these pods.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> bool {
        let Some(InFlight { uid, deletion }) = self.in_flight.remove(&op) else { return false };
        let refusal = result.as_ref().map(Refusal::of);
        let Some(entry) = self.pods.get_mut(&uid) else { return true };
        entry.state = State::Open;
        match refusal {
            Ok(None) => {
                self.backoff.succeeded();
                // The pod may have been deleted since the request was sent.
                if entry.deletion == deletion {
                    entry.state = State::Done;
                }
            }
            // Another pod has the name, or the server would refuse the same request again. The next list shows the
            // current state.
            Ok(Some(refusal)) if is_final(refusal.failure) => {
                self.pods.remove(&uid);
                self.leave_out(1);
            }
            other => self.backoff.refused(other.ok().flatten().as_ref(), REQUESTS, step.now, step.rng),
        }
        true
    }
}

fn is_final(failure: Failure) -> bool {
    matches!(failure, Failure::NotFound | Failure::Conflict | Failure::Forbidden | Failure::Invalid)
}

/// Returns the patch that rejects the pod.
fn rejection(uid: &Uid, most: usize) -> String {
    let reason = Reason::out_of(PODS);
    let message = format!("Pod was rejected: more pods are bound to this node than the {most} that it can hold");
    let status = status::rejected(&Cause { reason, message, by: None });
    json!({ "metadata": { "uid": uid }, "status": status }).to_string()
}
