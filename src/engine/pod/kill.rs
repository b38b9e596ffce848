//! Who asks for the end of a pod that is still desired, what its status says of it, and what it waits for before it may run
//! again (W4 to W6, W27, S5, A8).

use crate::engine::effect::Severity;
use crate::engine::pod::status::Cause;
use serde::Serialize;
use std::time::Duration;

/// What makes room, or an end, at the cost of a pod. In the order of their names in the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TerminationSource {
    /// W27: until `undrain`.
    Drain,
    /// A9: until the pressure is gone.
    Eviction,
    /// A9: until there is room.
    Preemption,
    /// S5, S6: until the shutdown is called off, or the node has come back.
    Shutdown,
}

impl TerminationSource {
    const ALL: [TerminationSource; 4] = [
        TerminationSource::Drain,
        TerminationSource::Eviction,
        TerminationSource::Preemption,
        TerminationSource::Shutdown,
    ];

    /// As it stands in the records.
    pub fn name(self) -> &'static str {
        match self {
            TerminationSource::Drain => "drain",
            TerminationSource::Eviction => "eviction",
            TerminationSource::Preemption => "preemption",
            TerminationSource::Shutdown => "shutdown",
        }
    }

    pub fn from_name(name: &str) -> Option<TerminationSource> {
        TerminationSource::ALL.into_iter().find(|k| k.name() == name)
    }

    /// The reason in the pod's status (S5, A8, W27; an eviction's as in a kubelet).
    fn reason(self) -> &'static str {
        match self {
            TerminationSource::Drain => "Drained",
            TerminationSource::Eviction => "Evicted",
            TerminationSource::Preemption => "Preempting",
            TerminationSource::Shutdown => "Terminated",
        }
    }

    fn message(self) -> &'static str {
        match self {
            TerminationSource::Drain => "Pod was drained from the node.",
            TerminationSource::Eviction => "Pod was evicted.",
            TerminationSource::Preemption => "Preempted in order to admit critical pod",
            TerminationSource::Shutdown => "Pod was terminated in response to imminent node shutdown.",
        }
    }

    /// How people are told of it.
    pub fn notice(self) -> (Severity, &'static str) {
        let severity = match self {
            TerminationSource::Eviction | TerminationSource::Preemption => Severity::Warning,
            TerminationSource::Drain | TerminationSource::Shutdown => Severity::Normal,
        };
        (severity, self.reason())
    }

    /// W24: dead containers and logs of its victims go once they are finished.
    pub fn evicts(self) -> bool {
        matches!(self, TerminationSource::Eviction | TerminationSource::Preemption)
    }

    /// The condition `DisruptionTarget` says so (S5, A8).
    pub fn disrupts(self) -> bool {
        !matches!(self, TerminationSource::Drain)
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kill {
    pub by: TerminationSource,
    /// None: the killer's usual words.
    pub message: Option<String>,
    /// None: the pod's own grace period (W4).
    pub grace: Option<Duration>,
}

impl Kill {
    pub fn cause(&self) -> Cause {
        Cause {
            reason: self.by.reason().into(),
            message: self.message.clone().unwrap_or_else(|| self.by.message().into()),
            by: Some(self.by),
        }
    }
}

/// Names a kill to the one who asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct KillId(pub u64);
