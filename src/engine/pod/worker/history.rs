//! The part of a pod's history on this node that its record contains (W25). A later run of Wherry continues from it.

use super::earlier::Earlier;
use super::restarting::Restarting;
use crate::api::devices::PodDevices;
use crate::api::facts::ContainerFact;
use crate::api::names::ContainerId;
use crate::api::time::Wall;
use crate::engine::nanoseconds;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The field names are those in the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// When the pod was first seen.
    #[serde(with = "nanoseconds")]
    pub start_time: Wall,
    /// The pod waits for its name (W8), and nothing of it was ever started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waiting: bool,
    /// A10: for a pod that waits: the version before it has started on this node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::engine::pod) bound: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Preempted>,
    /// E5: the last eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evicted: Option<Evicted>,
    /// G3: the devices of each container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: PodDevices,
    /// W29: the ephemeral containers that were started.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub begun_ephemeral: BTreeSet<String>,
    /// W10: the containers that were stopped for a restart.
    #[serde(default, skip_serializing_if = "Restarting::is_empty")]
    pub restarting: Restarting,
    /// C5: the containers that ran before a shutdown.
    #[serde(default, skip_serializing_if = "Earlier::is_empty")]
    pub earlier: Earlier,
    /// Containers whose preStop hook has started (W4: it runs once).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pre_stopped: BTreeSet<ContainerId>,
}

/// A8, A9: the pod was preempted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preempted {
    /// When the pod was killed.
    #[serde(default, with = "nanoseconds")]
    pub at: Wall,
    /// The first resource in short supply.
    #[serde(default)]
    pub signal: Rc<str>,
}

/// The last eviction of a pod, and the number of consecutive evictions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    #[serde(default, with = "nanoseconds")]
    pub at: Wall,
    #[serde(default = "once")]
    pub times: u32,
}

fn once() -> u32 {
    1
}

impl History {
    /// Returns the history of a pod that is first seen at `start_time`, and waits.
    pub fn new(start_time: Wall) -> History {
        History {
            start_time,
            waiting: true,
            bound: false,
            preempted: None,
            evicted: None,
            devices: PodDevices::default(),
            begun_ephemeral: BTreeSet::new(),
            restarting: Restarting::default(),
            earlier: Earlier::default(),
            pre_stopped: BTreeSet::new(),
        }
    }

    /// A10: returns true if the pod, or the version before it, has started on this node. A cordon does not hold back
    /// such a pod.
    pub fn is_bound(&self) -> bool {
        self.bound || !self.waiting
    }

    /// A10: binds a waiting pod to the node if the version before it is bound.
    pub fn bind(&mut self, is_bound: bool) {
        self.bound = is_bound && self.waiting;
    }

    /// Notes that the pod may start something from now on.
    pub fn begin(&mut self) {
        (self.waiting, self.bound) = (false, false);
    }

    /// Notes the start of the container's preStop hook. Returns true if the hook has not started before.
    pub fn note_pre_stop(&mut self, id: &ContainerId) -> bool {
        self.pre_stopped.insert(id.clone())
    }

    /// Drops the pod's devices. Returns true if it had any.
    pub fn take_devices(&mut self) -> bool {
        !std::mem::take(&mut self.devices).is_empty()
    }

    /// Drops the notes about containers that no longer exist.
    pub fn forget_gone(&mut self, containers: &[ContainerFact]) {
        self.pre_stopped.retain(|id| containers.iter().any(|c| c.id == *id));
        self.restarting.forget_gone(containers);
    }
}
