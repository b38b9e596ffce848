//! Why a request was refused or failed: the text for the user, and the HTTP status of the response.

use super::limits::{LONGEST_EXEC, LONGEST_GRACE, MAX_EXECS, MAX_STREAM_CALLS, STREAM_TIMEOUT};
use crate::api::disruption_budget::BudgetRefusal;
use crate::api::ephemeral_request::Invalid;
use crate::api::names::{FullName, Uid};
use crate::engine::cluster::access::AccessError;
use crate::engine::op::OpError;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The body is not valid JSON for this request. `expected` is an example, or empty.
    Malformed {
        why: String,
        expected: &'static str,
    },
    /// D1: until the manifests have been read, the set of pods is unknown.
    ManifestsNotRead,
    /// A drain or undrain without pods.
    NoPods,
    /// A retry without a pod.
    NoPod,
    GraceTooLong,
    NoCommand,
    NulByte,
    /// The time limit of a command is zero or too long.
    TimeoutOutOfRange,
    /// None of stdin, stdout and stderr is requested.
    NoStream,
    TerminalWithStderr,
    PortZero,
    UnknownPod(Uid),
    /// The deletion of a Job that no CronJob has created.
    UnknownJob(FullName),
    /// The deletion of a claim that a manifest defines, or that does not exist.
    UnknownClaim(FullName),
    /// The removal of a directory that does not exist.
    UnknownVolume(FullName),
    /// The removal of a directory that has a claim, or that Wherry has not created.
    VolumeStays(FullName),
    /// Y32: the eviction of a pod that a disruption budget protects.
    Budget(BudgetRefusal),
    /// A retry of a pod that is not rejected. `reason` is the reason in its status.
    NotRejected {
        pod: FullName,
        phase: String,
        reason: Option<String>,
        drained: bool,
    },
    /// A retry of a rejected pod of the API server: its controller may have created another pod already (C5).
    RejectedForGood {
        pod: FullName,
    },
    /// A retry of a pod that is rejected only while the node shuts down (A3).
    RejectedByShutdown {
        pod: FullName,
    },
    /// W29: the pod cannot get ephemeral containers, because it has not started or is terminating. `reason` is the
    /// reason in its status.
    NotStarted {
        pod: FullName,
        phase: String,
        reason: Option<String>,
    },
    /// W29: a list of ephemeral containers with errors.
    InvalidEphemeral {
        pod: FullName,
        errors: Vec<Invalid>,
    },
    NoContainers {
        pod: FullName,
    },
    UnknownContainer {
        pod: FullName,
        container: String,
        containers: Vec<String>,
    },
    NotRunning {
        pod: FullName,
        container: String,
        state: NotRunning,
    },
    /// An attach with a terminal to a container without one.
    NoTerminal {
        pod: FullName,
        container: String,
    },
    /// An attach without a terminal to a container with one.
    OnlyTerminal {
        pod: FullName,
        container: String,
    },
    /// An attach with stdin to a container whose stdin is closed.
    NoStdin {
        pod: FullName,
        container: String,
    },
    /// A port-forward to a pod without a ready sandbox.
    NoSandbox {
        pod: FullName,
    },
    TooManyCommands,
    TooManyStreams,
    /// W27: the change was made, but its record could not be written.
    NotDurable {
        why: String,
    },
    /// A10: the record of the cordon could not be written, so nothing has changed.
    NotCordoned {
        why: String,
    },
    /// The command was not sent.
    NotConnected {
        why: String,
    },
    /// The command did not end in time. The runtime has killed it.
    CommandTimedOut {
        seconds: u64,
    },
    /// The command's output exceeds the runtime's limit.
    OutputTooLarge,
    /// The runtime's own error.
    ExecFailed {
        why: String,
    },
    /// The runtime did not return the URL of a stream in time.
    StreamTimedOut,
    /// The runtime's own error.
    StreamFailed {
        why: String,
    },
    UsageFailed(OpError),
    ImagesFailed(OpError),
    /// C6: access to the node's server is denied, or cannot be decided.
    NoAccess(AccessError),
}

/// The state of a container that is not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRunning {
    Absent,
    Created,
    Exited { exit_code: i32 },
    Unknown,
}

impl RequestError {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            RequestError::NoAccess(error) => error.status(),
            RequestError::Malformed { .. }
            | RequestError::NoPods
            | RequestError::NoPod
            | RequestError::GraceTooLong
            | RequestError::NoCommand
            | RequestError::NulByte
            | RequestError::TimeoutOutOfRange
            | RequestError::NoStream
            | RequestError::TerminalWithStderr
            | RequestError::PortZero => 400,
            RequestError::UnknownPod(_)
            | RequestError::UnknownJob(_)
            | RequestError::UnknownClaim(_)
            | RequestError::UnknownVolume(_)
            | RequestError::UnknownContainer { .. } => 404,
            RequestError::InvalidEphemeral { .. } => 422,
            RequestError::VolumeStays(_)
            | RequestError::NotRejected { .. }
            | RequestError::NotStarted { .. }
            | RequestError::RejectedForGood { .. }
            | RequestError::RejectedByShutdown { .. }
            | RequestError::NoContainers { .. }
            | RequestError::NotRunning { .. }
            | RequestError::NoTerminal { .. }
            | RequestError::OnlyTerminal { .. }
            | RequestError::NoStdin { .. }
            | RequestError::NoSandbox { .. } => 409,
            RequestError::Budget(BudgetRefusal::Violated { .. }) => 429,
            RequestError::Budget(BudgetRefusal::Several)
            | RequestError::NotDurable { .. }
            | RequestError::NotCordoned { .. } => 500,
            RequestError::OutputTooLarge
            | RequestError::ExecFailed { .. }
            | RequestError::StreamFailed { .. }
            | RequestError::UsageFailed(_)
            | RequestError::ImagesFailed(_) => 502,
            RequestError::ManifestsNotRead
            | RequestError::TooManyCommands
            | RequestError::TooManyStreams
            | RequestError::NotConnected { .. } => 503,
            RequestError::CommandTimedOut { .. } | RequestError::StreamTimedOut => 504,
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::NoAccess(error) => error.fmt(f),
            RequestError::Budget(refusal) => write!(f, "{refusal}"),
            RequestError::Malformed { why, expected: "" } => write!(f, "invalid request: {why}"),
            RequestError::Malformed { why, expected } => write!(f, "invalid request: {why}; expected {expected}"),
            RequestError::ManifestsNotRead => {
                f.write_str("the manifests have not been read yet; try again in a moment")
            }
            RequestError::NoPods => f.write_str("the request names no pods; expected {\"uids\": [...]}"),
            RequestError::NoPod => f.write_str("the request names no pod; expected /retry?uid=UID"),
            RequestError::GraceTooLong => write!(f, "gracePeriodSeconds may be at most {}", LONGEST_GRACE.as_secs()),
            RequestError::NoCommand => f.write_str("the request has no command"),
            RequestError::NulByte => f.write_str("an argument of the command contains a NUL byte"),
            RequestError::TimeoutOutOfRange => {
                write!(f, "timeoutSeconds must be from 1 to {}", LONGEST_EXEC.as_secs())
            }
            RequestError::NoStream => f.write_str("the request has none of stdin, stdout and stderr"),
            RequestError::TerminalWithStderr => f.write_str("a terminal has one output; request stdout without stderr"),
            RequestError::PortZero => f.write_str("a port must be from 1 to 65535"),
            RequestError::UnknownPod(_)
            | RequestError::UnknownJob(_)
            | RequestError::UnknownClaim(_)
            | RequestError::UnknownVolume(_)
            | RequestError::VolumeStays(_)
            | RequestError::NotRejected { .. }
            | RequestError::RejectedForGood { .. }
            | RequestError::RejectedByShutdown { .. }
            | RequestError::NotStarted { .. }
            | RequestError::InvalidEphemeral { .. }
            | RequestError::NoContainers { .. }
            | RequestError::UnknownContainer { .. }
            | RequestError::NotRunning { .. }
            | RequestError::NoTerminal { .. }
            | RequestError::OnlyTerminal { .. }
            | RequestError::NoStdin { .. }
            | RequestError::NoSandbox { .. } => self.fmt_of_pod(f),
            RequestError::TooManyCommands
            | RequestError::TooManyStreams
            | RequestError::NotDurable { .. }
            | RequestError::NotCordoned { .. }
            | RequestError::NotConnected { .. }
            | RequestError::CommandTimedOut { .. }
            | RequestError::OutputTooLarge
            | RequestError::ExecFailed { .. }
            | RequestError::StreamTimedOut
            | RequestError::StreamFailed { .. }
            | RequestError::ImagesFailed(_)
            | RequestError::UsageFailed(_) => self.fmt_of_runtime(f),
        }
    }
}

impl RequestError {
    /// Formats the errors that concern a pod or a container.
    fn fmt_of_pod(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::UnknownPod(uid) => write!(f, "there is no pod with the UID {uid}"),
            RequestError::UnknownClaim(name) => write!(f, "only its manifest ends the claim {name}, or there is none"),
            RequestError::UnknownVolume(name) => write!(f, "no claim {name} has left a directory"),
            RequestError::VolumeStays(name) => write!(
                f,
                "the directory of {name} stays: it has a claim or pods use it, or it existed before the claim; see \
                 wherry volumes"
            ),
            RequestError::UnknownJob(name) => write!(f, "no CronJob has created a Job {name}"),
            RequestError::NotRejected { pod, phase, reason, drained } => {
                write!(f, "pod {pod} is not rejected, it is {phase}")?;
                if let Some(reason) = reason {
                    write!(f, ", {reason}")?;
                }
                f.write_str(if *drained { "; `wherry undrain` lets it run again" } else { "" })
            }
            RequestError::RejectedForGood { pod } => write!(
                f,
                "pod {pod} of the API server has failed permanently; delete it, so that its controller creates another \
                 pod"
            ),
            RequestError::RejectedByShutdown { pod } => write!(
                f,
                "pod {pod} is rejected because the node is shutting down; Wherry retries it when the shutdown is over"
            ),
            RequestError::NotStarted { pod, phase, reason } => {
                write!(f, "pod {pod} has not started or is ending: it is {phase}")?;
                reason.iter().try_for_each(|reason| write!(f, ", {reason}"))
            }
            RequestError::InvalidEphemeral { pod, errors } => {
                let all: Vec<String> = errors.iter().map(Invalid::to_string).collect();
                write!(f, "the ephemeral container of pod {pod} is invalid: {}", all.join(", "))
            }
            RequestError::NoContainers { pod } => write!(f, "pod {pod} has no containers"),
            RequestError::UnknownContainer { pod, container, containers } => {
                write!(f, "pod {pod} has no container {container}; it has {}", containers.join(", "))
            }
            RequestError::NotRunning { pod, container, state } => {
                write!(f, "container {container} of pod {pod} is not running: {state}")
            }
            RequestError::NoTerminal { pod, container } => {
                write!(f, "container {container} of pod {pod} has no terminal; set `tty: true` in its manifest")
            }
            RequestError::OnlyTerminal { pod, container } => {
                write!(f, "container {container} of pod {pod} has a terminal; request tty without stderr")
            }
            RequestError::NoStdin { pod, container } => {
                write!(f, "container {container} of pod {pod} has no standard input; set `stdin: true` in its manifest")
            }
            RequestError::NoSandbox { pod } => {
                write!(f, "pod {pod} has no running sandbox, and so no network; see `wherry describe {pod}`")
            }
            // `fmt` passes no other error.
            other => write!(f, "{other:?}"),
        }
    }

    /// Formats the errors that come from the runtime, from limits or from the disk.
    fn fmt_of_runtime(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::TooManyCommands => {
                write!(f, "{MAX_EXECS} commands are already running; try again when one has ended")
            }
            RequestError::TooManyStreams => write!(
                f,
                "the container runtime has not yet responded to {} requests for streams; try again in a moment",
                MAX_STREAM_CALLS
            ),
            RequestError::NotDurable { why } => {
                write!(f, "done, but a restart would undo it: {why}; Wherry retries the write")
            }
            RequestError::NotCordoned { why } => {
                write!(f, "the node's record could not be written, so nothing has changed: {why}")
            }
            RequestError::NotConnected { why } => {
                write!(f, "there is no connection to the container runtime: {why}")
            }
            RequestError::CommandTimedOut { seconds } => {
                write!(f, "the command exceeded its timeout of {seconds} s and was killed")
            }
            RequestError::OutputTooLarge => f.write_str(
                "the command wrote more than the runtime's limit of 16 MiB, and its output was lost; write the output \
                 to a file, print only a part of it (head, tail), or use -i, which passes the output on at once",
            ),
            RequestError::ExecFailed { why } => f.write_str(why),
            RequestError::StreamTimedOut => {
                write!(f, "the container runtime did not respond within {} s; is it hanging?", STREAM_TIMEOUT.as_secs())
            }
            RequestError::StreamFailed { why } => write!(f, "the container runtime offers no stream: {why}"),
            RequestError::ImagesFailed(e) => write!(f, "failed to list the images of the runtime: {e}"),
            RequestError::UsageFailed(e) => {
                write!(f, "failed to read the containers' resource usage from the runtime: {e}")
            }
            // `fmt` passes no other error.
            other => write!(f, "{other:?}"),
        }
    }
}

impl fmt::Display for NotRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotRunning::Absent => f.write_str("it has not been created yet, or was removed"),
            NotRunning::Created => f.write_str("it is being started"),
            NotRunning::Exited { exit_code } => write!(f, "it has ended with exit code {exit_code}"),
            NotRunning::Unknown => f.write_str("the runtime does not know its state"),
        }
    }
}
