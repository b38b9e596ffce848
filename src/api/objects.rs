//! The desired objects as their source has read them. The engine decides which of them are in force (D4, A5).

use super::claim::Claim;
use super::data_object::DataObject;
use super::network_object::NetworkObject;
use super::plain_object::PlainObject;
use super::pod::Pod;
use super::priority::{self, PriorityClass};
use super::runtime_class::{self, RuntimeClass};
use super::workload::Workload;
use crate::api::k8s::PodSpec;
use std::rc::Rc;

/// All valid documents of a source, in the order of their paths. A broken document is represented by its last good
/// version (D2).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    pub classes: Vec<PriorityClass>,
    pub runtime_classes: Vec<RuntimeClass>,
    /// ConfigMaps and Secrets.
    pub data: Vec<Rc<DataObject>>,
    pub claims: Vec<Rc<Claim>>,
    /// Services and EndpointSlices.
    pub network: Vec<Rc<NetworkObject>>,
    pub plain: Vec<Rc<PlainObject>>,
    pub workloads: Vec<Workload>,
    pub pods: Vec<PodDocument>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PodDocument {
    /// The engine has accepted this version.
    Accepted(AcceptedPod),
    /// A version that the engine has not accepted yet, and the last one that it accepted (D2).
    New { pod: Rc<Pod>, last_good: Option<AcceptedPod> },
}

/// A pod with the values of its classes (A5).
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptedPod {
    pub pod: Rc<Pod>,
    /// The spec contains these values too.
    pub given: Given,
}

/// The values that a pod got from its classes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    pub priority: Option<priority::Given>,
    pub runtime_class: Option<runtime_class::Given>,
}

impl Given {
    pub fn is_nothing(&self) -> bool {
        *self == Given::default()
    }

    /// Sets the values in the spec.
    pub fn apply(&self, spec: &mut PodSpec) {
        if let Some(given) = &self.priority {
            given.apply(spec);
        }
        if let Some(given) = &self.runtime_class {
            given.apply(spec);
        }
    }
}
