//! Operations: every effect that can fail carries an `OpId` and ends in exactly one `Event::Done`.

use std::fmt;

/// Assigned by the engine. Never reused within a run of the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct OpId(pub u64);

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op{}", self.0)
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op{}", self.0)
    }
}

/// Why an operation failed, grouped by its possible effect on the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpError {
    /// Not sent, because there is no connection; nothing changed. Can be sent again after a reconnect.
    NotSent(String),
    /// Not sent or not processed, although there is a connection: the message is too large, cannot be encoded, or the
    /// other side accepts no more. Nothing changed, and a retry may fail in the same way.
    Refused(String),
    /// May have reached the other side (deadline, lost connection, cancelled). Read the state before the next action.
    Unknown(String),
    /// The other side answered with an error.
    Answered { code: Code, message: String },
}

/// The gRPC status codes that the engine distinguishes; all others are `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    NotFound,
    AlreadyExists,
    InvalidArgument,
    FailedPrecondition,
    Unimplemented,
    Other(u32),
}

impl OpError {
    /// Returns the message for people. The runtime's message is unchanged.
    pub fn message(&self) -> &str {
        match self {
            OpError::NotSent(m) | OpError::Refused(m) | OpError::Unknown(m) => m,
            OpError::Answered { message, .. } => message,
        }
    }

    /// Reports whether the name is in use. containerd and CRI-O report "reserved" while another call or object holds
    /// the name, and have no error code for that.
    pub fn is_name_taken(&self) -> bool {
        match self {
            OpError::Answered { code: Code::AlreadyExists, .. } => true,
            OpError::Answered { message, .. } => message.contains("reserved"),
            OpError::NotSent(_) | OpError::Refused(_) | OpError::Unknown(_) => false,
        }
    }

    /// Reports whether the call, or the command that it executes, exceeded its time limit. containerd: "timeout 1s
    /// exceeded"; CRI-O: "command timed out"; gRPC: the call's deadline.
    pub fn is_timeout(&self) -> bool {
        let lower = self.message().to_lowercase();
        !matches!(self, OpError::NotSent(_))
            && ["deadline exceeded", "timeout", "timed out"].iter().any(|words| lower.contains(words))
    }

    /// Returns false if the operation certainly changed nothing.
    pub fn may_have_acted(&self) -> bool {
        !matches!(self, OpError::NotSent(_) | OpError::Refused(_))
    }

    /// Reports whether this is the error with which containerd refuses to remove a container whose task still exists.
    pub fn is_failed_precondition(&self) -> bool {
        matches!(self, OpError::Answered { code: Code::FailedPrecondition, .. })
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, OpError::Answered { code: Code::NotFound, .. })
    }
}

/// The format of gRPC errors in Go, and therefore in a kubelet's events.
impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpError::NotSent(m) | OpError::Refused(m) | OpError::Unknown(m) => f.write_str(m),
            OpError::Answered { code, message } => write!(f, "rpc error: code = {code} desc = {message}"),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Code::InvalidArgument => "InvalidArgument",
            Code::NotFound => "NotFound",
            Code::AlreadyExists => "AlreadyExists",
            Code::Unimplemented => "Unimplemented",
            Code::Other(2) => "Unknown",
            Code::Other(7) => "PermissionDenied",
            Code::Other(8) => "ResourceExhausted",
            Code::FailedPrecondition => "FailedPrecondition",
            Code::Other(10) => "Aborted",
            Code::Other(11) => "OutOfRange",
            Code::Other(13) => "Internal",
            Code::Other(15) => "DataLoss",
            Code::Other(16) => "Unauthenticated",
            Code::Other(n) => return write!(f, "Code({n})"),
        })
    }
}
