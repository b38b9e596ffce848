//! The node's own object on the server: its labels and taints, which admission uses, and the changes that other
//! clients make to it.
//!
//! The labels are on the disk, so that a pod that was admitted because of a label is admitted again after a reboot
//! without the server. The taints are not: they affect only new pods, which come from the server.
//!
//! The names of the extended resources are on the disk before the node reports them, as in a kubelet's checkpoint.
//! With this record, resources that no plugin provides any longer are reported with 0, and resources that an
//! administrator has added to the Node stay as they are.

use super::backoff::{Backoff, REQUESTS};
use super::reflector::{Change, Reflector, Step};
use super::warning::warn;
use crate::api::cluster::node::DeviceAmount;
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::watched::Watched;
use crate::api::document;
use crate::api::node_facts::NodeFacts;
use crate::api::ordered::CollectOrdered;
use crate::api::taints::NoExecute;
use crate::api::time::Boot;
use crate::engine::effect::RecordChange;
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The kind of the record.
pub const KIND: &str = "cluster";
pub const KEY: &str = "cluster/node";
const VERSION: u64 = 1;

/// The maximum number of extended resources that the node reports, including past ones. A kubelet has no such limit.
const MOST_RESOURCES: usize = 256;

type Labels = BTreeMap<String, String>;

#[derive(Debug, Serialize)]
pub struct OwnNode {
    pub reflector: Reflector<Value>,
    labels: Labels,
    taints: Vec<NoExecute>,
    resources: OwnResources,
}

/// The names of the extended resources that the node reports, or has reported.
#[derive(Debug, Default, Serialize)]
struct OwnResources {
    recorded: BTreeSet<String>,
    /// The write in flight, and the names that it adds.
    saving: Option<(OpId, BTreeSet<String>)>,
    backoff: Backoff,
}

#[derive(Serialize, Deserialize)]
struct Record {
    version: u64,
    labels: Labels,
    #[serde(default)]
    resources: BTreeSet<String>,
}

/// A change of the object.
#[derive(Debug, PartialEq)]
pub enum Observed {
    Object(Value),
    Gone,
}

impl OwnNode {
    pub fn new(name: &str) -> OwnNode {
        OwnNode {
            reflector: Reflector::new(Watched::Node(name.into())),
            labels: Labels::new(),
            taints: Vec::new(),
            resources: OwnResources::default(),
        }
    }

    /// Returns the labels that the server has.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Returns the facts of this machine, with the labels and taints that the server has.
    pub fn with_own<'n>(&self, node: &'n NodeFacts) -> Cow<'n, NodeFacts> {
        if self.labels.is_empty() && self.taints.is_empty() {
            return Cow::Borrowed(node);
        }
        let mut labels = node.labels.clone();
        labels.extend(self.labels.clone());
        Cow::Owned(NodeFacts { labels, taints: self.taints.clone(), ..node.clone() })
    }

    /// Returns true if the node was registered before.
    pub fn is_recorded(&self) -> bool {
        !self.labels.is_empty()
    }

    /// Takes the record of an earlier process. An unusable record is moved aside.
    pub fn record_found(&mut self, key: &str, text: &str, outbox: &mut Outbox) {
        match serde_json::from_str(text) {
            Ok(Record { version: VERSION, labels, resources }) if key == KEY => {
                self.labels = labels;
                self.resources.recorded = resources;
            }
            _ => {
                warn(outbox, format!("record {key} is unusable; moving it aside"));
                outbox.record(Owner::Cluster, RecordChange::SetAside { key: key.to_owned() });
            }
        }
    }

    /// Takes the labels and taints of the object on the server. Returns whether they have changed.
    pub fn observe(&mut self, object: &Value, outbox: &mut Outbox) -> bool {
        let taints = object.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
        let taints: Vec<NoExecute> =
            taints.filter_map(|taint| NoExecute::of(document::from_value(taint).ok()?)).collect();
        let taints_changed = std::mem::replace(&mut self.taints, taints) != self.taints;
        self.observe_labels(object, outbox) || taints_changed
    }

    fn observe_labels(&mut self, object: &Value, outbox: &mut Outbox) -> bool {
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let labels: Labels = labels.into_iter().flatten().filter_map(text).collect_map();
        if labels == self.labels {
            return false;
        }
        self.labels = labels;
        self.write(outbox);
        true
    }

    /// Returns the resources of device plugins to report: those whose names are on the disk, even if no plugin
    /// provides them.
    pub fn reported(&self, provided: &BTreeMap<String, DeviceAmount>) -> BTreeMap<String, DeviceAmount> {
        let amount = |name: &String| (name.clone(), provided.get(name).copied().unwrap_or_default());
        self.resources.recorded.iter().map(amount).collect_map()
    }

    /// Writes the names of new resources to the record. Resources beyond the limit are not reported.
    pub fn record_resources<'n>(&mut self, provided: impl Iterator<Item = &'n str>, now: Boot, outbox: &mut Outbox) {
        let OwnResources { recorded, saving: None, backoff } = &mut self.resources else { return };
        let room = MOST_RESOURCES.saturating_sub(recorded.len());
        let new = provided.filter(|name| !recorded.contains(*name)).take(room);
        let names: BTreeSet<String> = new.map(str::to_owned).collect_set();
        if names.is_empty() {
            return backoff.succeeded();
        }
        if !backoff.is_due(now) {
            return;
        }
        let op = self.write_with(&names, outbox);
        self.resources.saving = Some((op, names));
    }

    /// Handles the result of writing a record. Returns false if the write was not for new resources.
    pub fn recorded(&mut self, op: OpId, result: &Result<(), OpError>, step: &mut Step<'_>) -> bool {
        let Some((_, names)) = self.resources.saving.take_if(|(of, _)| *of == op) else { return false };
        match result {
            Ok(()) => {
                self.resources.recorded.extend(names);
                self.resources.backoff.succeeded();
            }
            Err(e) => {
                let message =
                    format!("record {KEY} cannot be written, so new devices are not reported: {}", e.message());
                warn(step.outbox, message);
                self.resources.backoff.failed(REQUESTS, step.now, step.rng);
            }
        }
        true
    }

    fn write(&self, outbox: &mut Outbox) {
        let saving = self.resources.saving.as_ref().map(|(_, names)| names.clone()).unwrap_or_default();
        self.write_with(&saving, outbox);
    }

    fn write_with(&self, more: &BTreeSet<String>, outbox: &mut Outbox) -> OpId {
        let resources = self.resources.recorded.union(more).cloned().collect_set();
        let record = Record { version: VERSION, labels: self.labels.clone(), resources };
        let value = serde_json::to_string(&record).unwrap_or_default();
        outbox.record(Owner::Cluster, RecordChange::Put { key: KEY.to_owned(), value })
    }

    pub fn next(&self) -> Option<Boot> {
        // A failed write is repeated.
        let record = Some(self.resources.backoff.at()).filter(|at| *at > Boot(0) && self.resources.saving.is_none());
        self.reflector.next().into_iter().chain(record).min()
    }

    pub fn item(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) {
        self.reflector.item(op, json, &|object, _| Ok(Some(object)), step);
    }

    pub fn line(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) -> Option<Observed> {
        self.reflector.line(op, json, &|object, _| Ok(Some(object)), step).and_then(observed)
    }

    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> Option<Observed> {
        self.reflector.ended(op, result, step).and_then(observed)
    }
}

fn observed(change: Change<Value>) -> Option<Observed> {
    match change {
        Change::Set(object) => Some(Observed::Object(object)),
        Change::All(mut list, gaps) => match list.pop() {
            Some(object) => Some(Observed::Object(object)),
            None => (!gaps.are_any()).then_some(Observed::Gone),
        },
        Change::Gone(_) => Some(Observed::Gone),
    }
}
