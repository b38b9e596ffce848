//! The wanted objects as their source read them. The engine decides which of them are in force (D4, A5).

use super::data_object::DataObject;
use super::pod::Pod;
use super::priority::{Given, PriorityClass};
use std::rc::Rc;

/// All valid documents of a source, in the order of their paths. A broken document is represented by its last good
/// version (D2).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    pub classes: Vec<PriorityClass>,
    /// ConfigMaps and Secrets.
    pub data: Vec<Rc<DataObject>>,
    pub pods: Vec<PodDocument>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PodDocument {
    /// The engine has accepted this version.
    Accepted(AcceptedPod),
    /// A version that the engine has not accepted yet, and the last one that it accepted (D2).
    New { pod: Rc<Pod>, last_good: Option<AcceptedPod> },
}

/// A pod with its final priority (A5).
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptedPod {
    pub pod: Rc<Pod>,
    /// The values that the pod got from a PriorityClass, if any. The spec contains them too.
    pub given: Option<Given>,
}
