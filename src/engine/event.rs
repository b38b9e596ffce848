//! What reaches the engine from the world, and the answers to its effects.

use crate::api::facts::{ContainerFact, ImageFact, Listed, PodFacts, RuntimeFact, SandboxFact};
use crate::api::names::{ContainerId, Uid};
use crate::api::pod::Pod;
use crate::engine::effect::TimerKey;
use crate::engine::op::{OpError, OpId};
use std::rc::Rc;

// An event lives from the poll to the next step, a few at a time: a box for each answer would cost more than it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The records found at start: (key, value). First of all events.
    Records(Vec<(String, String)>),
    /// The whole desired set, all documents in the order of their paths (D1, D4). The first one says that
    /// every source was read.
    Desired(Vec<Rc<Pod>>),
    /// The connection to the runtime is there.
    RuntimeUp,
    /// It is gone; the calls in flight have their own `Done`.
    RuntimeDown {
        why: String,
    },
    Timer(TimerKey),
    /// A hint (P8): read this pod's status.
    Hint {
        uid: Uid,
    },
    /// The answer to `Watch`. One that could not be had leaves its pod to the list.
    Watched {
        id: String,
        ok: bool,
    },
    /// P8: a watched process has ended.
    Ended {
        uid: Uid,
        id: String,
    },
    Done {
        op: OpId,
        result: Result<Answer, OpError>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Ok,
    Runtime(RuntimeFact),
    Listed(Listed),
    Pod(PodFacts),
    Sandbox(SandboxFact),
    Image(Option<ImageFact>),
    Created(ContainerId),
    Container(ContainerFact),
    Prepared { termination_file: String },
    Message(String),
}
