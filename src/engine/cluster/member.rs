//! The node as a member of a cluster: owns the state machines of this directory, and passes each response to the one
//! that waits for it.

use super::backoff::{Backoff, CONNECTION};
use super::certificate::Certificate;
use super::certificates::Certificates;
use super::connection::{Connection, ConnectionState};
use super::data::Data;
use super::duplicate_node::{DuplicateNode, Sight};
use super::event_queue::EventQueue;
use super::lease::{Lease, Renewal};
use super::lists::Lists;
use super::node::{Node, Progress};
use super::own_node::{self, Observed, OwnNode};
use super::own_status::OwnStatus;
use super::pods::{self, Pods, Seen};
use super::reflector::Step;
use super::reports::Reports;
use super::reviews::Reviews;
use super::sealing::{Protection, Sealing};
use super::shown_cordon::ShownCordon;
use super::tokens::{Tokens, Wanted};
use crate::api::cluster::event_queue::{self, Entry};
use crate::api::cluster::expectation::Expectation;
use crate::api::cluster::node::NodeReport;
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::{data_record, reduced, token};
use crate::api::data_object::DataKind;
use crate::api::environment::ClusterValues;
use crate::api::k8s;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::sealing::{Content, StoredRecord};
use crate::api::service_token;
use crate::api::time::{Boot, Now};
use crate::engine::config::ClusterConfig;
use crate::engine::effect::Severity;
use crate::engine::machine_addresses::MachineAddresses;
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::rng::Rng;
use serde::Serialize;
use std::rc::Rc;
use std::time::Duration;

/// A node restarts its watches at a random time within this period after it has lost the connection. Otherwise all
/// nodes would restart them at the same time (C12).
const SPREAD: Duration = Duration::from_secs(1);
/// A node that was registered before sends its first request at a random time within this period after its start. The
/// period is short because the pods of the node get no traffic before the node is ready, and because machines do not
/// boot equally fast.
const START_SPREAD: Duration = Duration::from_millis(300);

/// The service account of a pod that names none.
const DEFAULT_ACCOUNT: &str = "default";

/// The kinds of the records that a member of a cluster keeps.
pub const KINDS: [&str; 5] = [data_record::KIND, token::KIND, reduced::KIND, own_node::KIND, event_queue::KIND];

fn kind(key: &str) -> &str {
    key.split_once('/').map_or(key, |(kind, _)| kind)
}

/// Returns true if the record contains a Secret or a token.
fn is_secret(key: &str) -> bool {
    kind(key) == token::KIND || data_record::data_key(key).is_some_and(|of| of.kind == DataKind::Secret)
}

/// Returns true if the record is of one of these kinds.
pub fn is_key(key: &str) -> bool {
    KINDS.contains(&kind(key))
}

#[derive(Debug, Serialize)]
pub struct Member {
    server: Server,
    node: Node,
    pub own: OwnNode,
    lease: Lease,
    pub addresses: MachineAddresses,
    pub certificates: Certificates,
    pub sealing: Sealing,
    pub pods: Pods,
    pub data: Data,
    pub tokens: Tokens,
    pub lists: Lists,
    pub reports: Reports,
    event_queue: EventQueue,
    own_object: OwnObject,
    pub cordon: ShownCordon,
    duplicate: DuplicateNode,
    /// The reviews for clients of the node's server.
    pub reviews: Reviews,
    #[serde(flatten)]
    pub status: OwnStatus,
    /// See `Step::resume`.
    resume: Boot,
}

/// Whether the node's labels or taints have changed since the last call of `take_change_for_admission`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum OwnObject {
    AsBefore,
    Changed,
}

/// Whether the API server answers.
#[derive(Debug, Serialize)]
enum Server {
    Answers,
    Away { since: Boot, why: String, backoff: Backoff },
}

impl Member {
    pub fn new(node: &str, config: &ClusterConfig) -> Member {
        let addresses = MachineAddresses::new(config.addresses.clone());
        let certificates = Certificates::new(config.serving, &addresses.reported(node));
        Member {
            server: Server::Answers,
            node: Node::default(),
            own: OwnNode::new(node),
            lease: Lease::default(),
            addresses,
            certificates,
            sealing: Sealing::new(config.sealing.clone()),
            pods: Pods::new(node),
            data: Data::default(),
            tokens: Tokens::default(),
            lists: Lists::default(),
            reports: Reports::default(),
            event_queue: EventQueue::new(node),
            own_object: OwnObject::AsBefore,
            cordon: ShownCordon::default(),
            duplicate: DuplicateNode::new(&config.info),
            reviews: Reviews::new(node, config.reviews.clone()),
            status: OwnStatus::default(),
            resume: Boot(0),
        }
    }

    /// Delays the first request by a random time, because an earlier process has registered the node.
    pub fn starts_again(&mut self, now: Boot, rng: &mut Rng) {
        self.node.wait(now + rng.spread(START_SPREAD));
    }

    pub fn connection(&self, now: Boot) -> Connection<'_> {
        let (waiting_events, lost_events) = self.event_queue.counts();
        let state = match &self.server {
            Server::Away { since, why, .. } => ConnectionState::Away { duration: now.since(*since), why },
            Server::Answers if self.node.uid().is_some() => ConnectionState::Registered,
            Server::Answers => ConnectionState::Unregistered,
        };
        Connection { state, waiting_events, lost_events, is_shared: self.duplicate.is_known() }
    }

    /// Returns true if `step` needs a report of the node.
    pub fn wants_report(&self, now: Boot) -> bool {
        !self.node.is_busy() && (!self.status.is_reported() || self.node.next().is_some_and(|at| at <= now))
    }

    /// Takes the addresses that were read. Returns whether the reported addresses have changed.
    pub fn addresses_found(&mut self, node: &str, found: Vec<String>) -> bool {
        let have_changed = self.addresses.found(found);
        if have_changed {
            self.certificates.addresses_changed(&self.addresses.reported(node));
            self.status.compare();
        }
        have_changed
    }

    /// Queues an event for the server.
    pub fn post(&mut self, entry: Entry, now: Boot, outbox: &mut Outbox) {
        self.event_queue.push(entry, now, outbox);
    }

    /// Prepares for the termination of the process.
    pub fn stopping(&mut self) {
        self.event_queue.close();
    }

    pub fn publish(&mut self, uid: &Uid, name: &FullName, status: k8s::PodStatus) {
        if self.pods.get(uid).is_some() {
            self.reports.publish(uid, name, status);
        }
    }

    /// Publishes the status of a manifest's pod, so that its mirror shows the status.
    pub fn publish_mirror(&mut self, of: &Uid, status: k8s::PodStatus) {
        for (uid, mirror) in self.pods.mirrors.of(of) {
            self.reports.publish(uid, &mirror.name, status.clone());
        }
    }

    /// Handles what has expired: certificates, tokens, and the presence of another machine with this node's name.
    pub fn expire(&mut self, step: &mut Step<'_>) {
        self.certificates.iter_mut().for_each(|certificate| certificate.watch_expiry(step));
        self.tokens.expire(step.now, step.outbox);
        if self.duplicate.is_over(step.now, step.outbox) {
            self.status.compare();
            self.reports.compare();
        }
    }

    /// Begins the requests that are due. `report`: the report of the node, if `wants_report`.
    ///
    /// `statics`: the pods of manifests that need a mirror.
    pub fn step(&mut self, report: Option<&NodeReport>, name: &str, statics: &[Rc<Pod>], step: &mut Step<'_>) {
        self.event_queue.write(step.now, step.outbox);
        if let Server::Away { backoff, .. } = &self.server {
            // A single request tests the connection.
            if backoff.is_due(step.now) && !self.node.is_busy() {
                self.node.read_again();
                if let Some(report) = report {
                    self.node.step(report, step);
                }
            }
            return;
        }
        if let Some(report) = report {
            self.status.report_begins();
            self.node.step(report, step);
        }
        let Some(uid) = self.node.uid() else { return };
        // Wherry is awake now, and may have reached the API server again from another network. A failed renewal is
        // repeated soon.
        if self.lease.step(name, uid, step) {
            self.addresses.read_again(step.traffic.lease_period() / 2, step.now, step.outbox);
        }
        // A person has to approve each request for a serving certificate, so Wherry makes none while the addresses
        // may be outdated.
        if !self.addresses.are_being_read() {
            self.certificates.iter_mut().for_each(|certificate| certificate.step(step));
        }
        self.own.reflector.step(step);
        if self.pods.excess.step(step) {
            self.pods.reflector.list_again(step.outbox);
        }
        self.pods.reflector.step(step);
        if self.duplicate.is_known() {
            self.pods.mirrors.pause();
        } else {
            self.cordon.step(name, step);
            self.pods.mirrors.step(statics, &self.reports, name, uid, step);
        }
        self.data.step(step);
        self.tokens.step(step);
        self.lists.step(step);
        self.reports.step(step);
        self.event_queue.step(step);
    }

    /// Returns when the next step is due if no event causes one before.
    pub fn next_deadline(&self) -> Option<Boot> {
        let at = match &self.server {
            Server::Away { backoff, .. } => (!self.node.is_busy()).then(|| backoff.at()),
            Server::Answers if self.node.uid().is_none() => self.node.next(),
            Server::Answers => [
                self.node.next(),
                self.lease.next(),
                self.next_of_certificates(),
                self.own.next(),
                self.cordon.next().filter(|_| !self.duplicate.is_known()),
                self.pods.reflector.next(),
                self.pods.excess.next(),
                self.data.next(),
                self.tokens.next(),
                self.lists.next(),
                self.reports.next(),
                self.pods.mirrors.next(),
                self.event_queue.next(),
            ]
            .into_iter()
            .flatten()
            .min(),
        };
        let ends = [self.tokens.next_end(), self.duplicate.next()];
        [at, self.event_queue.next_write()].into_iter().chain(ends).flatten().min()
    }

    fn next_of_certificates(&self) -> Option<Boot> {
        // The event that delivers the addresses causes a step.
        let certificates = self.certificates.iter().filter(|_| !self.addresses.are_being_read());
        certificates.filter_map(Certificate::next).min()
    }

    /// Takes an item of a list.
    pub fn item(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) {
        if self.pods.reflector.op() == Some(op) {
            self.pods.item(op, json, step);
        } else if self.own.reflector.op() == Some(op) {
            self.own.item(op, json, step);
        } else if !self.lists.item(op, json, step) {
            self.data.item(op, json, step);
        }
    }

    /// Takes a line of a watch. Returns the changes of pods.
    pub fn line(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) -> Vec<Seen> {
        if self.pods.reflector.op() == Some(op) {
            let seen = self.pods.line(op, json, step);
            return self.seen(seen);
        }
        if self.own.reflector.op() == Some(op) {
            if let Some(observed) = self.own.line(op, json, step) {
                self.observe(observed, step);
            }
        } else if !self.lists.line(op, json, step) {
            self.data.line(op, json, step);
        }
        Vec::new()
    }

    /// Handles the result of a request. Returns the changes of pods, and whether they come from a complete list of
    /// pods.
    pub fn answered(
        &mut self,
        op: OpId,
        result: &Result<ApiResponse, ApiError>,
        step: &mut Step<'_>,
    ) -> (Vec<Seen>, bool) {
        match result {
            Ok(_) => self.server_answers(step),
            Err(ApiError::NotSent(why)) => self.server_is_away(op, why, step),
            Err(ApiError::Unknown(_)) => self.connection_is_lost(op, step),
            Err(ApiError::TooLarge(_)) => {}
        }
        if let Some(progress) = self.node.ended(op, result, step) {
            if progress == Progress::Registered {
                self.status.compare();
                if let Some(object) = result.as_ref().ok().and_then(|r| serde_json::from_slice(&r.body).ok()) {
                    self.observe(Observed::Object(object), step);
                }
                let message = "the node is registered with the API server".to_owned();
                step.outbox.emit_node_event(Severity::Normal, Reason::NodeRegistered, message);
            }
        } else if let Some(renewal) = self.lease.ended(op, result, step) {
            // The lease is removed together with the node, so the node may be gone too.
            if renewal == Renewal::Missing {
                self.node.read_again();
            }
        } else if self.cordon.op() == Some(op) {
            if let Some(node) = self.cordon.ended(result, step) {
                self.observe(Observed::Object(node), step);
            }
        } else if self.pods.reflector.op() == Some(op) {
            if let Some(seen) = self.pods.ended(op, result, step) {
                return (self.seen(seen), true);
            }
        } else if self.own.reflector.op() == Some(op) {
            if let Some(observed) = self.own.ended(op, result, step) {
                self.observe(observed, step);
            }
        } else {
            let _ = self.certificates.iter_mut().any(|certificate| certificate.ended(op, result, step))
                || self.data.ended(op, result, step)
                || self.tokens.ended(op, result, step)
                || self.lists.ended(op, result, step)
                || self.pods.mirrors.ended(op, result, step)
                || self.reports.answered(op, result, step)
                || self.pods.excess.ended(op, result, step)
                || self.reviews.ended(op, result, step)
                || self.event_queue.ended(op, result, step);
        }
        (Vec::new(), false)
    }

    fn observe(&mut self, observed: Observed, step: &mut Step<'_>) {
        match observed {
            Observed::Object(object) => {
                let is_current = self.node.observe(&object);
                if is_current {
                    self.cordon.observe(&object);
                }
                if is_current && self.own.observe(&object, step.outbox) {
                    self.own_object = OwnObject::Changed;
                }
                let heartbeat = step.traffic.heartbeat();
                let sight = match is_current {
                    true => self.duplicate.observe(&object, heartbeat, step.now, step.outbox),
                    false => Sight::Nothing,
                };
                // The node's status on the server may have changed. If another machine is known, its status is not
                // overwritten: the two machines would overwrite each other's status endlessly.
                if sight != Sight::Known {
                    self.status.compare();
                }
            }
            Observed::Gone => self.node.read_again(),
        }
    }

    /// Returns true if the labels or taints of the node have changed since the last call.
    pub fn take_change_for_admission(&mut self) -> bool {
        std::mem::replace(&mut self.own_object, OwnObject::AsBefore) == OwnObject::Changed
    }

    /// Handles the result of writing a record.
    pub fn recorded(&mut self, op: OpId, result: &Result<(), OpError>, step: &mut Step<'_>) {
        let _ = self.sealing.recorded(op, result, step.outbox)
            || self.own.recorded(op, result, step)
            || self.data.recorded(op, result, step.outbox)
            || self.tokens.recorded(op, result, step)
            || self.lists.recorded(op, result, step.outbox);
    }

    /// Returns true if everything that the pod needs from the server, apart from the pod itself, is known. While the
    /// server answers, the pod's sandbox does not wait for tokens (C4).
    pub fn has_all_for(&self, pod: &Pod) -> bool {
        let tokens = || service_token::of_pod(pod);
        let answers = matches!(self.server, Server::Answers);
        self.data.knows(pod.data_objects())
            && (self.tokens.knows(tokens()) || answers && self.tokens.expects(tokens()))
            && self.lists.know(pod)
    }

    /// Returns what will happen to the pod while the server is away: after a reboot, when its tokens expire, and when
    /// controllers consider the node unreachable.
    pub fn expectation(&self, pod: &Pod, now: Boot) -> Expectation {
        let is_withheld = self.sealing.protection() == Protection::Withheld;
        let objects = pod.data_objects().filter(|key| {
            !self.data.knows(std::iter::once(key.clone())) || is_withheld && key.kind == DataKind::Secret
        });
        let mut missing: Vec<String> = objects.map(|key| key.to_string()).collect();
        missing.order();
        missing.dedup();
        let tokens = || service_token::of_pod(pod);
        if !self.tokens.knows(tokens()) || is_withheld && tokens().next().is_some() {
            missing.push("the token of its service account".to_owned());
        }
        if !self.lists.know(pod) {
            missing.push("the services and RuntimeClasses".to_owned());
        }
        Expectation::of(pod, missing, self.tokens.end(tokens(), now).map(|end| end.since(now)))
    }

    /// Returns the values for the environment and the volumes of the server's pods.
    pub fn values(&self) -> ClusterValues<'_> {
        ClusterValues { tokens: self.tokens.values() }
    }

    /// Follows everything that is needed by the pods that run here or will run here. A pod that has terminated
    /// according to the server needs nothing any longer (C4).
    pub fn follow(&mut self, outbox: &mut Outbox) {
        let Member { pods, data, tokens, lists, .. } = self;
        let pods = || pods.iter().filter(|(_, bound)| !bound.ended).filter_map(|(_, bound)| bound.pod.as_deref().ok());
        data.follow(pods().flat_map(Pod::data_objects).collect_set(), outbox);
        let wanted = pods().flat_map(|pod| {
            let account = pod.spec().service_account_name.as_deref().unwrap_or(DEFAULT_ACCOUNT);
            let wanted = Wanted { pod: pod.name.clone(), account: account.into() };
            service_token::of_pod(pod).map(move |key| (key, wanted.clone()))
        });
        tokens.follow(wanted.collect_map(), outbox);
        lists.follow(pods(), outbox);
    }

    /// Takes the records of an earlier process, which were found at the start.
    pub fn records_found(&mut self, records: &[StoredRecord], now: Now, outbox: &mut Outbox) {
        let mut secrets = Vec::new();
        for StoredRecord { key, content } in records {
            match content {
                Content::Plain(text) | Content::Sealed(text) => {
                    if self.record_found(key, text, now, outbox) && is_secret(key) {
                        secrets.push((key, content));
                    }
                }
                Content::Locked => {
                    self.sealing.locked(key);
                    if kind(key) == token::KIND {
                        self.tokens.record_locked(key);
                    } else {
                        self.data.record_locked(key);
                    }
                }
            }
        }
        for (key, content) in secrets {
            self.sealing.convert(key, content, outbox);
        }
        self.sealing.sweep(&[data_record::KIND, token::KIND], outbox);
        self.sealing.report(outbox);
    }

    /// Takes one record. Returns false if it is an unusable Secret, ConfigMap or token.
    fn record_found(&mut self, key: &str, text: &str, now: Now, outbox: &mut Outbox) -> bool {
        match kind(key) {
            token::KIND => return self.tokens.record_found(key, text, now, outbox),
            event_queue::KIND => self.event_queue.record_found(key, text, outbox),
            _ if key == pods::KEY => self.pods.version_found(text, outbox),
            own_node::KIND => self.own.record_found(key, text, outbox),
            reduced::KIND => self.lists.record_found(key, text, outbox),
            _ => return self.data.record_found(key, text, outbox),
        }
        true
    }

    fn seen(&mut self, seen: Vec<Seen>) -> Vec<Seen> {
        for one in &seen {
            match one {
                Seen::Status(uid, stored) | Seen::Pod(uid, stored) => {
                    if let Some(bound) = self.pods.get(uid) {
                        self.reports.stored(uid, &bound.name, stored, self.duplicate.is_known());
                    }
                }
                Seen::Mirror(uid, stored) => {
                    if let Some(mirror) = self.pods.mirrors.get(uid) {
                        self.reports.stored(uid, &mirror.name, stored, self.duplicate.is_known());
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
        let message = match self.event_queue.hurry() {
            (0, 0) => format!("the API server responds again after {away} s"),
            (events, 0) => format!("the API server responds again after {away} s; {events} queued events follow"),
            (events, dropped) => format!(
                "the API server responds again after {away} s; the last {events} queued events follow; {dropped} older \
                 ones are lost"
            ),
        };
        step.outbox.emit_node_event(Severity::Normal, Reason::ApiServerConnected, message);
        self.server = Server::Answers;
        self.status.compare();
        self.lease.hurry();
        self.certificates.iter_mut().for_each(Certificate::hurry);
        self.own.reflector.hurry();
        self.cordon.hurry();
        self.pods.reflector.hurry();
        self.pods.excess.hurry();
        self.pods.mirrors.hurry();
        self.data.hurry();
        self.tokens.hurry();
        self.lists.hurry();
        self.reports.hurry();
    }

    /// Handles a lost connection, which ends many requests at once. It is not known whether the server is away.
    fn connection_is_lost(&mut self, op: OpId, step: &mut Step<'_>) {
        if self.resume <= step.now {
            self.resume = step.now + step.rng.spread(SPREAD);
        }
        step.resume = self.resume;
        if let Server::Away { backoff, .. } = &mut self.server
            && self.node.op() == Some(op)
        {
            backoff.failed(CONNECTION, step.now, step.rng);
        }
    }

    fn server_is_away(&mut self, op: OpId, why: &str, step: &mut Step<'_>) {
        match &mut self.server {
            // The other requests failed together with the first one.
            Server::Away { .. } if self.node.op() != Some(op) => {}
            Server::Away { backoff, why: last, .. } => {
                backoff.failed(CONNECTION, step.now, step.rng);
                why.clone_into(last);
            }
            Server::Answers => {
                let message = format!("the API server cannot be reached: {why}; pods keep running");
                step.outbox.emit_node_event(Severity::Warning, Reason::ApiServerDisconnected, message);
                let mut backoff = Backoff::default();
                backoff.failed(CONNECTION, step.now, step.rng);
                self.server = Server::Away { since: step.now, why: why.to_owned(), backoff };
                self.event_queue.keep(step.now);
            }
        }
    }
}
