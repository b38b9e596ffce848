//! Kills of desired pods: the source, the status text, and the condition for a restart (W4 to W6, W27, S5, A8, A11).

use crate::api::names::FullName;
use crate::api::reason::Reason;
use crate::engine::severity::Severity;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::time::Duration;

/// Why a desired pod is killed. The variants are in the alphabetical order of their names in the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TerminationSource {
    /// A11: a client evicted the pod through the API; the pod waits while the node is cordoned.
    ApiEviction,
    /// W27: the pod waits for `undrain`.
    Drain,
    /// A9: the pod waits for the end of the pressure.
    Eviction,
    /// A9: the pod waits for room.
    Preemption,
    /// S5, S6: the pod waits until the shutdown is cancelled or the node has rebooted.
    Shutdown,
}

impl TerminationSource {
    /// Returns the reason in the pod's status (S5, A8, W27). For an eviction it is the kubelet's.
    fn reason(self) -> Reason {
        match self {
            TerminationSource::Drain => Reason::Drained,
            TerminationSource::ApiEviction | TerminationSource::Eviction => Reason::Evicted,
            TerminationSource::Preemption => Reason::Preempting,
            TerminationSource::Shutdown => Reason::Terminated,
        }
    }

    fn message(self) -> &'static str {
        match self {
            TerminationSource::ApiEviction => "Pod was evicted through the API.",
            TerminationSource::Drain => "Pod was drained from the node.",
            TerminationSource::Eviction => "Pod was evicted.",
            TerminationSource::Preemption => "Preempted in order to admit critical pod",
            TerminationSource::Shutdown => "Pod was terminated in response to imminent node shutdown.",
        }
    }

    /// Returns the severity and the reason of the event.
    pub fn notice(self) -> (Severity, Reason) {
        let severity = match self {
            TerminationSource::Eviction | TerminationSource::Preemption => Severity::Warning,
            TerminationSource::ApiEviction | TerminationSource::Drain | TerminationSource::Shutdown => Severity::Normal,
        };
        (severity, self.reason())
    }

    /// W24: returns true if the dead containers and logs of the victims are removed once the victims are finished.
    pub fn evicts(self) -> bool {
        matches!(self, TerminationSource::Eviction | TerminationSource::Preemption)
    }

    /// Returns the reason of the `DisruptionTarget` condition (S5, A8, A11), if the pod gets this condition.
    pub fn disruption(self) -> Option<Reason> {
        match self {
            TerminationSource::ApiEviction => Some(Reason::EvictionByEvictionAPI),
            TerminationSource::Drain => None,
            TerminationSource::Eviction | TerminationSource::Preemption | TerminationSource::Shutdown => {
                Some(Reason::TerminationByKubelet)
            }
        }
    }

    /// Returns true if the pod runs again when the cause is over. A pod of the API server runs again only after a
    /// shutdown, so that the pods run after a reboot even while the server is unavailable. After any other kill it
    /// has ended for good, and its controller creates a replacement.
    pub fn lets_run_again(self, from_api_server: bool) -> bool {
        self == TerminationSource::Shutdown || !from_api_server
    }

    /// Returns true if the source also holds back a pod that has ended and would run again (W27, A8, A11). The other
    /// sources concern only running pods.
    pub fn holds_back_ended(self) -> bool {
        match self {
            TerminationSource::ApiEviction | TerminationSource::Drain | TerminationSource::Preemption => true,
            TerminationSource::Eviction | TerminationSource::Shutdown => false,
        }
    }
}

/// One kill request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kill {
    pub by: TerminationSource,
    /// None: the default message of the source.
    pub message: Option<String>,
    /// None: the pod's own grace period (W4).
    pub grace: Option<Duration>,
}

impl Kill {
    pub fn cause(&self) -> Cause {
        Cause {
            reason: self.by.reason(),
            message: self.message.clone().unwrap_or_else(|| self.by.message().into()),
            by: Some(self.by),
        }
    }
}

/// Why the pod was stopped or is being stopped. The status shows it together with the pod's last phase, and later
/// with the terminal phase (W3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    #[serde(deserialize_with = "reason")]
    pub reason: Reason,
    #[serde(default)]
    pub message: String,
    /// None: the pod's own deadline, or a source that only a newer Wherry knows.
    #[serde(default, deserialize_with = "known_source", skip_serializing_if = "Option::is_none")]
    pub by: Option<TerminationSource>,
}

impl Cause {
    /// A3: returns the cause for a pod that was rejected, and therefore not stopped.
    pub fn node_shutdown() -> Cause {
        Cause {
            reason: Reason::NodeShutdown,
            message: "Pod was rejected as the node is shutting down.".into(),
            by: None,
        }
    }
}

/// # Errors
/// The value is not a string.
fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Reason, D::Error> {
    String::deserialize(deserializer).map(|text| Reason::from_text(&text))
}

/// Reads the source. Returns None for a source that only a newer Wherry knows.
///
/// # Errors
/// Never fails: any value is permitted.
fn known_source<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TerminationSource>, D::Error> {
    Value::deserialize(deserializer).map(|by| TerminationSource::deserialize(by).ok())
}

/// Identifies a kill to its requester.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum KillId {
    /// A kill that `Event::Kill` requested.
    Event(u64),
    /// W27: a drain of the pod with this name.
    Drain(FullName),
    /// A11: an eviction through the API.
    ApiEviction(FullName),
}
