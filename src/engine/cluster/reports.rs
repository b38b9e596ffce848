//! Reports the status of the API server's pods, and confirms their deletion.
//!
//! A patch carries the pod's UID, so that it never changes another pod of the same name. The deletion with grace
//! period 0 is sent after the last status, and only when nothing of the pod runs and its volumes are gone.

use super::backoff::{Backoff, REQUESTS};
use super::reflector::{Step, begin};
use super::stored::Stored;
use super::warning::warn;
use crate::api::cluster::final_ends::FinalEnds;
use crate::api::cluster::pod_status::{Patch, Reported};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::requests;
use crate::api::cluster::status::{Failure, Refusal};
use crate::api::document;
use crate::api::k8s;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::CollectOrdered;
use crate::api::time::Boot;
use crate::engine::op::OpId;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of requests in flight for all pods.
const PARALLEL: usize = 10;

#[derive(Debug, Default, Serialize)]
pub struct Reports {
    pods: BTreeMap<Uid, Report>,
    /// Pods whose status may have to be reported.
    changed: BTreeSet<Uid>,
    in_flight: BTreeMap<OpId, Uid>,
}

#[derive(Debug, Serialize)]
struct Report {
    name: FullName,
    /// The status on the server. None: the first list has not arrived, so nothing is reported yet.
    #[serde(skip)]
    stored: Option<k8s::PodStatus>,
    #[serde(skip)]
    final_ends: FinalEnds,
    /// The status that this node reports. None: nothing is known about the pod yet.
    #[serde(skip)]
    ours: Option<k8s::PodStatus>,
    #[serde(skip)]
    reported: Reported,
    state: State,
    backoff: Backoff,
}

#[derive(Debug, Serialize)]
enum State {
    /// `patch`: the patch in flight.
    Live {
        #[serde(skip)]
        patch: Option<Patch>,
    },
    /// Nothing of the deleted pod is left. Its last status is reported, then its deletion is confirmed.
    Ended {
        #[serde(skip)]
        patch: Option<Patch>,
    },
    Deleting,
    /// The pod no longer exists on the server. The watch shows this soon.
    Deleted,
}

impl Reports {
    /// Records the status that the server has. `is_duplicate`: another machine reports statuses of this pod too, so
    /// this node sends its own only when it changes.
    pub fn stored(&mut self, uid: &Uid, name: &FullName, stored: &Stored, is_duplicate: bool) {
        let report = self.pods.entry(uid.clone()).or_insert_with(|| Report::new(name.clone()));
        // The watch may still show an older status.
        if report.reported.is_current(&stored.resource_version) {
            let is_first = report.stored.is_none();
            report.stored = Some(stored.status.clone());
            report.final_ends = stored.final_ends.clone();
            if is_first || !is_duplicate {
                self.changed.insert(uid.clone());
            }
        }
    }

    /// Compares all statuses with those of the server.
    pub fn compare(&mut self) {
        self.changed.extend(self.pods.keys().cloned());
    }

    /// Takes the status of the pod on this node, and reports it if it has changed.
    pub fn publish(&mut self, uid: &Uid, name: &FullName, status: k8s::PodStatus) {
        let report = self.pods.entry(uid.clone()).or_insert_with(|| Report::new(name.clone()));
        if report.ours.as_ref() != Some(&status) && matches!(report.state, State::Live { .. }) {
            report.ours = Some(status);
            self.changed.insert(uid.clone());
        }
    }

    /// Returns the status that was published last, or else the one on the server.
    pub fn last(&self, uid: &Uid) -> Option<&k8s::PodStatus> {
        let report = self.pods.get(uid)?;
        report.ours.as_ref().or(report.stored.as_ref())
    }

    /// Begins to confirm a pod's deletion, because nothing of the pod is left on the node. `last`: its last status,
    /// if known. If that status is not terminal, the pod is reported as Failed.
    pub fn ended(&mut self, uid: &Uid, name: &FullName, last: Option<k8s::PodStatus>) {
        let report = self.pods.entry(uid.clone()).or_insert_with(|| Report::new(name.clone()));
        if let State::Live { patch } = &mut report.state {
            report.state = State::Ended { patch: patch.take() };
            report.ours = last.or(report.ours.take()).or_else(|| report.stored.clone());
            if let Some(ours) = report.ours.as_mut().filter(|ours| !has_ended(ours)) {
                ours.phase = Some("Failed".to_owned());
            }
            self.changed.insert(uid.clone());
        }
    }

    /// Returns true if the pod has terminated on the server, where its phase is final (C2), and has started again
    /// here.
    pub fn runs_again(&self, uid: &Uid) -> bool {
        let statuses = self.pods.get(uid).and_then(|report| report.stored.as_ref().zip(report.ours.as_ref()));
        let Some((stored, ours)) = statuses.filter(|(stored, ours)| has_ended(stored) && ours.phase.is_some()) else {
            return false;
        };
        let starts = stored.start_time.as_ref().zip(ours.start_time.as_ref());
        // The server stores whole seconds, so only these are compared.
        !has_ended(ours) || starts.is_some_and(|(before, now)| before.0.as_second() != now.0.as_second())
    }

    /// Returns true if the deletion is being confirmed or has been confirmed.
    pub fn is_ended(&self, uid: &Uid) -> bool {
        self.pods.get(uid).is_some_and(|r| !matches!(r.state, State::Live { .. }))
    }

    /// Forgets a pod whose object no longer exists.
    pub fn gone(&mut self, uid: &Uid) {
        self.pods.remove(uid);
        self.changed.remove(uid);
    }

    /// Makes all reports due, because the server is reachable again.
    pub fn hurry(&mut self) {
        for report in self.pods.values_mut() {
            report.backoff.hurry();
        }
    }

    pub fn next(&self) -> Option<Boot> {
        if self.in_flight.len() >= PARALLEL {
            return None;
        }
        let waits = |uid: &&Uid| !self.in_flight.values().any(|busy| busy == *uid);
        let due = self.changed.iter().filter(waits).filter_map(|uid| self.pods.get(uid));
        due.map(|report| report.backoff.at()).min()
    }

    pub fn step(&mut self, step: &mut Step<'_>) {
        let busy: BTreeSet<&Uid> = self.in_flight.values().collect_set();
        let due = |uid: &&Uid| {
            !busy.contains(uid) && self.pods.get(*uid).is_none_or(|report| report.backoff.is_due(step.now))
        };
        let due: Vec<Uid> = self.changed.iter().filter(due).cloned().collect();
        for uid in due {
            if self.in_flight.len() >= PARALLEL {
                return;
            }
            self.changed.remove(&uid);
            let Some(report) = self.pods.get_mut(&uid) else { continue };
            if let Some(op) = report.step(&uid, step) {
                self.in_flight.insert(op, uid);
            }
        }
    }

    /// Handles the result of a request. Returns false if the request does not belong to the reports.
    pub fn answered(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> bool {
        let Some(uid) = self.in_flight.remove(&op) else { return false };
        let Some(report) = self.pods.get_mut(&uid) else { return true };
        if report.answered(result, step) {
            self.changed.insert(uid);
        }
        true
    }
}

impl Report {
    fn new(name: FullName) -> Report {
        Report {
            name,
            stored: None,
            final_ends: FinalEnds::default(),
            ours: None,
            reported: Reported::default(),
            state: State::Live { patch: None },
            backoff: Backoff::default(),
        }
    }

    /// Begins the next request, if there is something to report.
    fn step(&mut self, uid: &Uid, step: &mut Step<'_>) -> Option<OpId> {
        let (State::Live { patch } | State::Ended { patch }) = &mut self.state else { return None };
        if let Some(ours) = &self.ours
            && let Some(new) = self.reported.patch(uid, Some(self.stored.as_ref()?), ours, &self.final_ends)
        {
            let request = requests::patch_pod_status(&self.name, new.body.clone());
            *patch = Some(new);
            return Some(begin(request, Some(TIMEOUT), step.outbox));
        }
        match self.state {
            State::Ended { .. } => {
                self.state = State::Deleting;
                Some(begin(requests::delete_pod(&self.name, uid), Some(TIMEOUT), step.outbox))
            }
            _ => None,
        }
    }

    /// Handles the result of the request. Returns true if there may be something to report now.
    fn answered(&mut self, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> bool {
        let deleting = matches!(self.state, State::Deleting);
        let sent = match &mut self.state {
            State::Live { patch } | State::Ended { patch } => patch.take(),
            State::Deleting | State::Deleted => None,
        };
        let refusal = match result.as_ref().map(|response| (response, Refusal::of(response))) {
            Ok((response, None)) => {
                if deleting && is_object(&response.body) {
                    self.state = State::Deleted;
                    return false;
                }
                if let Some((sent, (stored, version))) = sent.as_ref().zip(read(&response.body)) {
                    self.backoff.succeeded();
                    self.reported.acknowledge(sent, &stored, &version);
                    self.stored = Some(stored);
                    return true;
                }
                // The response is from another program.
                None
            }
            Ok((_, refusal)) => refusal,
            Err(_) => None,
        };
        match refusal.as_ref().map(|r| r.failure) {
            // The pod is gone. (Kubernetes 1.32 and later return 403 instead, as for a pod whose binding the server
            // does not know yet. In this case the request is repeated until the watch shows that the pod is gone.)
            Some(Failure::NotFound) => {
                self.state = State::Deleted;
                return false;
            }
            // Another pod has the name, so this one is gone.
            Some(Failure::Conflict) if deleting => {
                self.state = State::Deleted;
                return false;
            }
            Some(Failure::Invalid) => {
                // The same patch would be refused again, so it is treated as if it had been carried out.
                let why = refusal.map(|r| r.to_string()).unwrap_or_default();
                let message = format!("the API server refuses the status of pod {}: {why}", self.name);
                warn(step.outbox, message);
                if let Some((sent, stored)) = sent.zip(self.stored.as_ref()) {
                    self.reported.acknowledge(&sent, stored, "");
                }
                return matches!(self.state, State::Ended { .. });
            }
            _ => {}
        }
        if deleting {
            self.state = State::Ended { patch: None };
        }
        self.backoff.refused(refusal.as_ref(), REQUESTS, step.now, step.rng);
        true
    }
}

fn has_ended(status: &k8s::PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Returns true if the response to a deletion is the pod or a `Status`.
fn is_object(body: &[u8]) -> bool {
    let object: Option<Value> = serde_json::from_slice(body).ok();
    object.is_some_and(|object| object["kind"] == "Pod" || object["kind"] == "Status")
}

/// Returns the status and the resource version in the response to a patch.
fn read(body: &[u8]) -> Option<(k8s::PodStatus, String)> {
    let pod: Value = serde_json::from_slice(body).ok()?;
    let resource_version = pod.pointer("/metadata/resourceVersion")?.as_str()?.to_owned();
    let status = document::from_value(pod.get("status")?).ok()?;
    Some((status, resource_version))
}
