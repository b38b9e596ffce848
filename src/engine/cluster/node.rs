//! The registration of the node, and its status.
//!
//! The Node object is read first: it shows the labels and the status that the server has, and whether the node has to
//! be created. If the object is deleted while Wherry runs, it is created again at once.

use super::backoff::{Backoff, Limits};
use super::reflector::{Step, begin};
use super::warning::warn;
use crate::api::cluster::node::NodeReport;
use crate::api::cluster::node_status::Sent;
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::requests;
use crate::api::cluster::status::{Failure, Refusal};
use crate::api::time::Boot;
use crate::engine::op::OpId;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
const RETRIES: Limits = Limits { first: Duration::from_millis(100), most: Duration::from_secs(7) };

#[derive(Debug, Serialize)]
pub struct Node {
    state: State,
    backoff: Backoff,
}

#[derive(Debug, Serialize)]
enum State {
    Unread,
    Reading(OpId),
    /// The server has no such node.
    Missing,
    Creating(OpId),
    Registered(Box<Registered>),
}

#[derive(Debug, Serialize)]
struct Registered {
    uid: String,
    /// The status that the server has.
    #[serde(skip)]
    sent: Sent,
    /// The status patch in flight, and the status that the server has after it.
    #[serde(skip)]
    patch: Option<(OpId, Sent)>,
    heartbeat: Boot,
    changes: Changes,
}

/// Slows down reports in close succession. Otherwise another program that reacts to each report with a change of its
/// own would cause reports endlessly.
#[derive(Debug, Default, Serialize)]
struct Changes {
    /// The number of successive reports without a pause between them.
    close: u32,
    last: Option<Boot>,
    backoff: Backoff,
}

impl Changes {
    /// The minimum length of a pause.
    const PAUSE: Duration = Duration::from_secs(15);
    /// This many successive reports are not delayed.
    const FREE: u32 = 10;

    fn reported(&mut self, step: &mut Step<'_>) {
        let is_close = self.last.is_some_and(|last| step.now.since(last) < Changes::PAUSE);
        self.close = if is_close { self.close.saturating_add(1) } else { 0 };
        self.last = Some(step.now);
        if self.close > Changes::FREE {
            self.backoff.failed(RETRIES, step.now, step.rng);
        } else {
            self.backoff.succeeded();
        }
    }
}

/// The result of a request for the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The node is registered now.
    Registered,
    Reported,
    Failed,
}

impl Default for Node {
    fn default() -> Node {
        Node { state: State::Unread, backoff: Backoff::default() }
    }
}

impl Node {
    pub fn uid(&self) -> Option<&str> {
        match &self.state {
            State::Registered(r) => Some(&r.uid),
            _ => None,
        }
    }

    /// Returns when the next step is due. None if a request is in flight.
    pub fn next(&self) -> Option<Boot> {
        match &self.state {
            State::Unread | State::Missing => Some(self.backoff.at()),
            State::Reading(_) | State::Creating(_) => None,
            State::Registered(r) if r.patch.is_some() => None,
            State::Registered(r) => Some(r.heartbeat.max(self.backoff.at()).max(r.changes.backoff.at())),
        }
    }

    pub fn is_busy(&self) -> bool {
        self.next().is_none()
    }

    /// Returns the request in flight.
    pub fn op(&self) -> Option<OpId> {
        match &self.state {
            State::Reading(op) | State::Creating(op) => Some(*op),
            State::Registered(r) => r.patch.as_ref().map(|(op, _)| *op),
            State::Unread | State::Missing => None,
        }
    }

    /// Delays the first request until this time.
    pub fn wait(&mut self, until: Boot) {
        self.backoff.wait(until);
    }

    /// Reads the object again: the server is reachable again, or the node may have been deleted.
    pub fn read_again(&mut self) {
        if !self.is_busy() {
            self.state = State::Unread;
            self.backoff.hurry();
        }
    }

    /// Takes the Node object after a change by Wherry or by somebody else. Returns false if the object is not the
    /// current one.
    pub fn observe(&mut self, object: &Value) -> bool {
        let State::Registered(r) = &mut self.state else { return false };
        if object.pointer("/metadata/uid").and_then(Value::as_str) != Some(&r.uid) {
            self.read_again();
            return false;
        }
        let is_current = r.sent.is_current(object);
        if is_current {
            r.sent.observe(object);
        }
        is_current
    }

    /// Registers the node, and reports a status that has changed.
    pub fn step(&mut self, report: &NodeReport, step: &mut Step<'_>) {
        if !self.backoff.is_due(step.now) {
            return;
        }
        match &mut self.state {
            State::Unread => {
                let op = begin(requests::read_node(&report.name), Some(TIMEOUT), step.outbox);
                self.state = State::Reading(op);
            }
            State::Missing => {
                let request = requests::create_node(report.object(step.wall));
                self.state = State::Creating(begin(request, Some(TIMEOUT), step.outbox));
            }
            State::Registered(r) if r.patch.is_none() && !r.changes.backoff.is_due(step.now) => {
                r.heartbeat = r.heartbeat.min(step.now);
            }
            State::Registered(r) if r.patch.is_none() => {
                r.sent.begin(report);
                let heartbeat = r.heartbeat <= step.now;
                if let Some((patch, sent)) = r.sent.patch(report, step.wall, heartbeat) {
                    let request = requests::patch_node_status(&report.name, patch);
                    r.patch = Some((begin(request, Some(TIMEOUT), step.outbox), sent));
                }
            }
            State::Reading(_) | State::Creating(_) | State::Registered(_) => {}
        }
    }

    /// Handles the result of a request. Returns None if the request does not belong to the node.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> Option<Progress> {
        match &mut self.state {
            State::Reading(of) if *of == op => Some(self.was_read(false, result, step)),
            State::Creating(of) if *of == op => Some(self.was_read(true, result, step)),
            State::Registered(r) if r.patch.as_ref().is_some_and(|(of, _)| *of == op) => {
                let (_, sent) = r.patch.take()?;
                Some(self.was_reported(sent, result, step))
            }
            _ => None,
        }
    }

    /// Handles the result of reading or creating the Node object.
    fn was_read(&mut self, creating: bool, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> Progress {
        self.state = State::Unread;
        let mut refused_with = None;
        match result.as_ref().map(|response| (response, Refusal::of(response))) {
            Ok((response, None)) => match read(&response.body) {
                Ok((uid, sent)) => {
                    self.backoff.succeeded();
                    // A newly created Node has its complete status. The status of an existing one is compared now.
                    let heartbeat = if creating { step.now + next_heartbeat(step) } else { step.now };
                    let registered = Registered { uid, sent, patch: None, heartbeat, changes: Changes::default() };
                    self.state = State::Registered(Box::new(registered));
                    return Progress::Registered;
                }
                Err(why) => warn(step.outbox, format!("the API server's Node is unusable: {why}")),
            },
            Ok((_, Some(refusal))) => match refusal.failure {
                // Some servers forbid reading a Node that does not exist, so both failures mean that it is missing.
                Failure::NotFound | Failure::Forbidden if !creating => {
                    self.state = State::Missing;
                    return Progress::Failed;
                }
                Failure::AlreadyExists if creating => {}
                _ => {
                    refused(&refusal, step);
                    refused_with = Some(refusal);
                }
            },
            Err(_) => {}
        }
        self.backoff.refused(refused_with.as_ref(), RETRIES, step.now, step.rng);
        Progress::Failed
    }

    /// Handles the result of patching the node's status. `sent`: the status on the server if the patch has succeeded.
    fn was_reported(&mut self, sent: Sent, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> Progress {
        let State::Registered(r) = &mut self.state else { return Progress::Failed };
        let mut refused_with = None;
        match result.as_ref().map(|response| (response, Refusal::of(response))) {
            Ok((response, None)) => {
                // A response that another program sends is not a Node, and proves nothing.
                let node = serde_json::from_slice(&response.body).ok();
                if let Some(node) = node.filter(|node: &Value| node["kind"] == "Node") {
                    r.sent = sent;
                    r.sent.observe(&node);
                    r.heartbeat = step.now + next_heartbeat(step);
                    self.backoff.succeeded();
                    r.changes.reported(step);
                    return Progress::Reported;
                }
            }
            Ok((_, Some(refusal))) if refusal.failure == Failure::NotFound => {
                self.state = State::Unread;
                return Progress::Failed;
            }
            Ok((_, Some(refusal))) => {
                refused(&refusal, step);
                refused_with = Some(refusal);
            }
            Err(_) => {}
        }
        // The change is reported after the back-off, without waiting for the next heartbeat.
        r.heartbeat = step.now;
        self.backoff.refused(refused_with.as_ref(), RETRIES, step.now, step.rng);
        Progress::Failed
    }
}

/// Returns the time until an unchanged status is reported again. It differs from the period by up to 20 %.
fn next_heartbeat(step: &mut Step<'_>) -> Duration {
    step.rng.jitter(step.traffic.heartbeat().mul_f64(0.8))
}

/// Returns the UID of the Node, and its status on the server.
fn read(body: &[u8]) -> Result<(String, Sent), String> {
    let node: Value = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    match node.pointer("/metadata/uid").and_then(Value::as_str) {
        Some(uid) if node["kind"] == "Node" => Ok((uid.to_owned(), Sent::of(&node))),
        _ => Err("it is not a Node with a UID".to_owned()),
    }
}

fn refused(refusal: &Refusal, step: &mut Step<'_>) {
    warn(step.outbox, format!("the API server rejected a request for the Node object: {refusal}"));
}
