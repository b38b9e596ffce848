//! What differs between runtimes: the answers of containerd 1.6, and those of CRI-O 1.37 where its source or a trial shows others.

use super::{Outcome, failed, not_found, ok};
use wherry::api::facts::ExecOutput;
use wherry::api::runtime_features::StopSignals;
use wherry::engine::event::Answer;
use wherry::engine::op::{Code, OpError};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Personality {
    #[default]
    Containerd,
    CriO,
}

impl Personality {
    pub fn name(self) -> &'static str {
        match self {
            Personality::Containerd => "containerd",
            Personality::CriO => "cri-o",
        }
    }

    pub fn version(self) -> &'static str {
        match self {
            Personality::Containerd => "1.6.20",
            Personality::CriO => "1.37.0",
        }
    }

    /// CRI-O's events are off by default.
    pub fn has_stream(self) -> bool {
        self == Personality::Containerd
    }

    pub fn stop_signals(self) -> StopSignals {
        StopSignals::of(self.name(), self.version())
    }

    /// CRI-O reads the addresses of its sandboxes from libcni's results when it starts.
    pub fn may_forget_addresses(self) -> bool {
        self == Personality::CriO
    }

    /// A container in the state unknown: containerd kills it at once and loses its exit code; CRI-O stops it like any other.
    pub fn kills_unknown_at_once(self) -> bool {
        self == Personality::Containerd
    }

    /// StopContainer, StopPodSandbox or RemovePodSandbox of an object that does not exist.
    pub(super) fn end_of_nothing(self, id: &str) -> Outcome {
        match self {
            Personality::Containerd => not_found(id),
            Personality::CriO => ok(Answer::Ok),
        }
    }

    pub(super) fn name_taken(self, kind: &str, name: &str) -> Outcome {
        match self {
            Personality::Containerd => failed(format!("failed to reserve {kind} name {name:?}: it is reserved")),
            Personality::CriO => failed(format!("error reserving {kind} name {name}: name is reserved")),
        }
    }

    pub(super) fn sandbox_not_ready(self) -> Outcome {
        match self {
            Personality::Containerd => failed("sandbox is not ready"),
            Personality::CriO => failed("CreateContainer failed as the sandbox was stopped"),
        }
    }

    /// A command exceeds its time. `seconds`: its limit.
    pub fn command_timed_out(self, seconds: u64) -> Result<Answer, OpError> {
        match self {
            Personality::Containerd => {
                let message = format!("timeout {seconds}s exceeded: context deadline exceeded");
                Err(OpError::Answered { code: Code::Other(4), message })
            }
            Personality::CriO => Ok(Answer::Executed(ExecOutput {
                exit_code: -1,
                stdout: Vec::new(),
                stderr: b"command timed out".to_vec(),
            })),
        }
    }

    /// A start whose caller is gone: containerd cancels it halfway, CRI-O completes it.
    pub fn cancels_starts(self) -> bool {
        self == Personality::Containerd
    }

    /// A container whose program cannot be started: containerd shows it as ended, CRI-O removes it.
    pub(super) fn removes_what_cannot_start(self) -> bool {
        self == Personality::CriO
    }
}
