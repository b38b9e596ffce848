//! The node as a member of a cluster: owns the machines of this directory, and passes each answer to its machine.

use super::backoff::{Backoff, CONNECTION};
use super::certificate::Certificate;
use super::data::Data;
use super::lease::{Lease, Renewal};
use super::node::{Node, Progress};
use super::pods::{Pods, Seen};
use super::posts::Posts;
use super::reflector::Step;
use super::reports::Reports;
use crate::api::cluster::node::NodeReport;
use crate::api::cluster::request::{ApiError, ApiRequest, ApiResponse};
use crate::api::eviction::Condition;
use crate::api::names::{FullName, Uid};
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::effect::{Effect, Severity, TimerKey};
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use k8s_openapi::api::core::v1 as core;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Member {
    server: Server,
    node: Node,
    lease: Lease,
    pub certificate: Certificate,
    pub pods: Pods,
    pub data: Data,
    pub reports: Reports,
    posts: Posts,
    pub health: Health,
    /// The health that the last report shows. None: the next report is compared with the server's state.
    reported: Option<Health>,
    /// The deadline of the timer.
    armed: Option<Boot>,
}

/// The part of the node's status that can change at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Health {
    /// `containerd://1.7.0`
    pub runtime: String,
    /// Why the node is not ready; None if it is.
    pub why_not: Option<String>,
    pub pressures: Vec<Condition>,
}

/// Whether the API server answers.
#[derive(Debug, Serialize)]
enum Server {
    Answers,
    Away { since: Boot, why: String, backoff: Backoff },
}

impl Member {
    pub fn new(node: &str) -> Member {
        Member {
            server: Server::Answers,
            node: Node::default(),
            lease: Lease::default(),
            certificate: Certificate::default(),
            pods: Pods::new(node),
            data: Data::default(),
            reports: Reports::default(),
            posts: Posts::default(),
            health: Health::default(),
            reported: None,
            armed: None,
        }
    }

    /// `step` needs a report of the node.
    pub fn wants_report(&self, now: Boot) -> bool {
        let is_reported = self.reported.as_ref() == Some(&self.health);
        !self.node.is_busy() && (!is_reported || self.node.next().is_some_and(|at| at <= now))
    }

    /// An event for the server.
    pub fn post(&mut self, request: ApiRequest) {
        self.posts.push(request);
    }

    pub fn publish(&mut self, uid: &Uid, name: &FullName, status: core::PodStatus) {
        if self.pods.get(uid).is_some() {
            self.reports.publish(uid, name, status);
        }
    }

    /// Begins the requests that are due. `report`: if `wants_report`.
    pub fn step(&mut self, report: Option<&NodeReport>, name: &str, step: &mut Step<'_>) {
        self.certificate.watch_expiry(step);
        if let Server::Away { backoff, .. } = &self.server {
            // One request tries the connection.
            if backoff.is_due(step.now) && !self.node.is_busy() {
                self.node.read_again();
                if let Some(report) = report {
                    self.node.step(report, step);
                }
            }
            return;
        }
        if let Some(report) = report {
            self.reported = Some(self.health.clone());
            self.node.step(report, step);
        }
        let Some(uid) = self.node.uid() else { return };
        self.lease.step(name, uid, step);
        self.certificate.step(step);
        self.pods.reflector.step(step);
        self.data.step(step);
        self.reports.step(step);
        self.posts.step(step);
    }

    /// Sets the timer to the next deadline.
    pub fn arm(&mut self, outbox: &mut Outbox) {
        let at = match &self.server {
            Server::Away { backoff, .. } => (!self.node.is_busy()).then(|| backoff.at()),
            Server::Answers if self.node.uid().is_none() => self.node.next(),
            Server::Answers => [
                self.node.next(),
                self.lease.next(),
                self.certificate.next(),
                self.pods.reflector.next(),
                self.data.next(),
                self.reports.next(),
                self.posts.next(),
            ]
            .into_iter()
            .flatten()
            .min(),
        };
        if at != self.armed {
            self.armed = at;
            outbox.push(Effect::Timer { key: TimerKey::Cluster, at });
        }
    }

    /// The timer has fired.
    pub fn timer_fired(&mut self) {
        self.armed = None;
    }

    /// An element of a list.
    pub fn item(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) {
        if self.pods.reflector.op() == Some(op) {
            self.pods.item(op, json, step);
        } else {
            self.data.item(op, json, step);
        }
    }

    /// A line of a watch. Returns the changes of pods.
    pub fn line(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) -> Vec<Seen> {
        if self.pods.reflector.op() == Some(op) {
            let seen = self.pods.line(op, json, step);
            return self.seen(seen);
        }
        self.data.line(op, json, step);
        Vec::new()
    }

    /// A request has ended. Returns the changes of pods, and whether the list of pods was complete.
    pub fn answered(
        &mut self,
        op: OpId,
        result: &Result<ApiResponse, ApiError>,
        step: &mut Step<'_>,
    ) -> (Vec<Seen>, bool) {
        match result {
            Ok(_) => self.server_answers(step),
            Err(ApiError::NotSent(why)) => self.server_is_away(why, step),
            // The connection is found broken by its own means.
            Err(ApiError::Unknown(_) | ApiError::TooLarge(_)) => {}
        }
        if let Some(progress) = self.node.ended(op, result, step) {
            if progress == Progress::Registered {
                self.reported = None;
                let message = "the node is registered at the API server".to_owned();
                step.outbox.emit_node_event(Severity::Normal, Reason::NodeRegistered, message);
            }
        } else if let Some(renewal) = self.lease.ended(op, result, step) {
            // The lease is removed together with the node.
            if renewal == Renewal::Missing {
                self.node.read_again();
            }
        } else if self.pods.reflector.op() == Some(op) {
            if let Some(seen) = self.pods.ended(op, result, step) {
                return (self.seen(seen), true);
            }
        } else if !self.certificate.ended(op, result, step)
            && !self.data.ended(op, result, step)
            && !self.reports.answered(op, result, step)
        {
            self.posts.ended(op, result, step);
        }
        (Vec::new(), false)
    }

    /// A record has been written.
    pub fn recorded(&mut self, op: OpId, result: Result<(), OpError>, outbox: &mut Outbox) {
        self.data.recorded(op, result, outbox);
    }

    fn seen(&mut self, seen: Vec<Seen>) -> Vec<Seen> {
        for one in &seen {
            match one {
                Seen::Status(uid, stored) => {
                    if let Some(bound) = self.pods.get(uid) {
                        self.reports.stored(uid, &bound.name, stored);
                    }
                }
                Seen::Gone(uid) => self.reports.gone(uid),
            }
        }
        seen
    }

    fn server_answers(&mut self, step: &mut Step<'_>) {
        let Server::Away { since, .. } = &self.server else { return };
        let away = step.now.since(*since).as_secs();
        let message = format!("the API server answers again after {away} s");
        step.outbox.emit_node_event(Severity::Normal, Reason::ApiServerConnected, message);
        self.server = Server::Answers;
        self.reported = None;
        self.lease.hurry();
        self.certificate.hurry();
        self.pods.reflector.hurry();
        self.data.hurry();
        self.reports.hurry();
        self.posts.hurry();
    }

    fn server_is_away(&mut self, why: &str, step: &mut Step<'_>) {
        match &mut self.server {
            Server::Away { backoff, why: last, .. } => {
                backoff.failed(CONNECTION, step.now, step.rng);
                why.clone_into(last);
            }
            Server::Answers => {
                let message = format!("the API server cannot be reached; pods keep running: {why}");
                step.outbox.emit_node_event(Severity::Warning, Reason::ApiServerDisconnected, message);
                let mut backoff = Backoff::default();
                backoff.failed(CONNECTION, step.now, step.rng);
                self.server = Server::Away { since: step.now, why: why.to_owned(), backoff };
            }
        }
    }
}
