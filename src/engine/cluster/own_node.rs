//! The node's own object at the server: its labels and taints, which admission uses, and changes that others make.
//!
//! The labels are on the disk, so that a pod that was accepted because of one is accepted again after a reboot without the server.
//! The taints are not: they concern only new pods, which come from the server.

use super::reflector::{Change, Reflector, Step};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::watched::Watched;
use crate::api::node_facts::NodeFacts;
use crate::api::taints::NoExecute;
use crate::api::time::Boot;
use crate::engine::context::Owner;
use crate::engine::effect::RecordChange;
use crate::engine::op::OpId;
use crate::engine::outbox::Outbox;
use k8s_openapi::api::core::v1 as core;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The kind of the record.
pub const KIND: &str = "cluster";
pub const KEY: &str = "cluster/node";
const VERSION: u64 = 1;

type Labels = BTreeMap<String, String>;

#[derive(Debug, Serialize)]
pub struct OwnNode {
    pub reflector: Reflector<Value>,
    labels: Labels,
    taints: Vec<NoExecute>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    version: u64,
    labels: Labels,
}

/// A change of the object.
#[derive(Debug, PartialEq)]
pub enum Observed {
    Object(Value),
    Gone,
}

impl OwnNode {
    pub fn new(name: &str) -> OwnNode {
        OwnNode { reflector: Reflector::new(Watched::Node(name.into())), labels: Labels::new(), taints: Vec::new() }
    }

    /// The labels that the server has.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// This machine with the labels and taints that the server has.
    pub fn with_own<'n>(&self, node: &'n NodeFacts) -> Cow<'n, NodeFacts> {
        if self.labels.is_empty() && self.taints.is_empty() {
            return Cow::Borrowed(node);
        }
        let mut labels = node.labels.clone();
        labels.extend(self.labels.clone());
        Cow::Owned(NodeFacts { labels, taints: self.taints.clone(), ..node.clone() })
    }

    /// The node was registered before.
    pub fn is_recorded(&self) -> bool {
        !self.labels.is_empty()
    }

    /// The record of an earlier run. An unusable one is moved aside.
    pub fn record_found(&mut self, key: &str, text: &str, outbox: &mut Outbox) {
        match serde_json::from_str(text) {
            Ok(Record { version: VERSION, labels }) if key == KEY => self.labels = labels,
            _ => {
                super::warn(outbox, format!("record {key} is unusable; moving it aside"));
                outbox.record(Owner::Cluster, RecordChange::SetAside { key: key.to_owned() });
            }
        }
    }

    /// The server has this object. Returns whether the labels or the taints have changed.
    pub fn observe(&mut self, object: &Value, outbox: &mut Outbox) -> bool {
        let taints = object.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
        let taints: Vec<NoExecute> =
            taints.filter_map(|taint| NoExecute::of(core::Taint::deserialize(taint).ok()?)).collect();
        let taints_changed = std::mem::replace(&mut self.taints, taints) != self.taints;
        self.observe_labels(object, outbox) || taints_changed
    }

    fn observe_labels(&mut self, object: &Value, outbox: &mut Outbox) -> bool {
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let labels: Labels = labels.into_iter().flatten().filter_map(text).collect();
        if labels == self.labels {
            return false;
        }
        let record = serde_json::to_string(&Record { version: VERSION, labels: labels.clone() }).unwrap_or_default();
        outbox.record(Owner::Cluster, RecordChange::Put { key: KEY.to_owned(), value: record });
        self.labels = labels;
        true
    }

    pub fn next(&self) -> Option<Boot> {
        self.reflector.next()
    }

    pub fn item(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) {
        self.reflector.item(op, json, &Ok, step);
    }

    pub fn line(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) -> Option<Observed> {
        self.reflector.line(op, json, &Ok, step).map(observed)
    }

    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> Option<Observed> {
        self.reflector.ended(op, result, step).map(observed)
    }
}

fn observed(change: Change<Value>) -> Observed {
    match change {
        Change::Set(object) => Observed::Object(object),
        Change::All(mut list) => list.pop().map_or(Observed::Gone, Observed::Object),
        Change::Gone(_) => Observed::Gone,
    }
}
