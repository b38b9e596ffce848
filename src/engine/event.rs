//! What reaches the engine from the world, and the answers to its effects.

use crate::api::facts::{ContainerFact, ImageFact, Listed, PodFacts, RuntimeFact, SandboxFact};
use crate::api::names::{ContainerId, FullName, Uid};
use crate::api::pod::Pod;
use crate::engine::config::EngineConfig;
use crate::engine::effect::TimerKey;
use crate::engine::op::{OpError, OpId};
pub use crate::engine::pleg::relist::{Kind, PlegEvent};
use crate::engine::pod::kill::{Kill, KillId, TerminationSource};
use std::rc::Rc;
use std::time::Duration;

// One at a time, and moved once: a box would only cost an allocation.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The records found at start: (key, value). First of all events.
    Records(Vec<(String, String)>),
    /// The directories of pods found at start, right after the records.
    Directories(Vec<PodDirectory>),
    /// The whole desired set, all documents in the order of their paths (D1, D4). The first one says that
    /// every source was read.
    Desired(Vec<Rc<Pod>>),
    /// Other settings from now on (SIGHUP). The owner, the seed and the boot's id are given once.
    Configure(Box<EngineConfig>),
    /// The connection to the runtime is there.
    RuntimeUp,
    /// It is gone; the calls in flight have their own `Done`.
    RuntimeDown {
        why: String,
    },
    Timer(TimerKey),
    /// A hint (P8): the runtime's event stream tells of a container or sandbox. None: it does not say whose.
    Hint {
        uid: Option<Uid>,
        event: PlegEvent,
    },
    /// Somebody wants the end of a pod that is still desired (W5); `Effect::Killed` answers.
    Kill {
        id: KillId,
        uid: Uid,
        kill: Kill,
    },
    /// What killed pods, or all of `uids`, is over: those that wait for nothing else start again (W6, W27).
    Release {
        by: TerminationSource,
        uids: Option<Vec<Uid>>,
    },
    /// A3: the pod that was rejected is looked at again.
    Retry {
        uid: Uid,
    },
    /// From logind.
    Logind(LogindEvent),
    /// The answer to `Watch`. One that could not be had leaves its pod to the list.
    Watched {
        uid: Uid,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogindEvent {
    /// At start, before all others of its kind: systemd kept a lock that an earlier wherry took.
    Inherited,
    /// The bus is there and logind is on it; again when logind has restarted.
    Up,
    /// There is no bus, or no logind on it; again when the reason changes.
    Down { why: String },
    /// PrepareForShutdown, from logind itself.
    Preparing(bool),
}

/// A pod's directory below the root directory.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PodDirectory {
    pub uid: Uid,
    /// As its log directory tells; if there is none, a name that no pod has.
    pub name: FullName,
    /// For people.
    pub path: String,
}

// As above.
#[allow(clippy::large_enum_variant)]
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
    Prepared {
        termination_file: String,
    },
    Message(String),
    Probe(ProbeResult),
    /// How long logind waits for delay locks.
    Delay(Duration),
    /// False: there was nothing to write.
    Written(bool),
    Preparing(bool),
    Inhibited(bool),
    /// A lock was taken; the earlier one is closed.
    Locked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    Passed,
    /// Passed, and there is something to say (a redirect to another host).
    Warning(String),
    /// With what it printed, or why it could not be made.
    Failed(String),
}
