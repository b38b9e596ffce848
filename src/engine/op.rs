//! Operations: every effect that can fail carries an `OpId` and ends in exactly one `Event::Done`.

use std::fmt;

/// Given by the engine, never reused in one life of the process.
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

/// Why an operation failed, by what it says about the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpError {
    /// There is no connection, so it was not sent and nothing changed. It can be sent again once there is a connection.
    NotSent(String),
    /// It was not sent, or not processed, although there is a connection: it is larger than a message may be, it cannot be
    /// encoded, or the other side takes no more. Nothing changed, and the next attempt may well end the same way.
    Refused(String),
    /// It may have reached the other side (deadline, lost connection, cancelled): look before acting.
    Unknown(String),
    /// The other side answered with an error.
    Answered { code: Code, message: String },
}

/// The gRPC status codes on which the engine decides; every other one is `Other`.
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
    /// The text for people: the runtime's message as it is.
    pub fn message(&self) -> &str {
        match self {
            OpError::NotSent(m) | OpError::Refused(m) | OpError::Unknown(m) => m,
            OpError::Answered { message, .. } => message,
        }
    }

    /// containerd and CRI-O say "reserved" while another call, or something, has the name; neither has a code for it.
    pub fn is_name_taken(&self) -> bool {
        match self {
            OpError::Answered { code: Code::AlreadyExists, .. } => true,
            OpError::Answered { message, .. } => message.contains("reserved"),
            OpError::NotSent(_) | OpError::Refused(_) | OpError::Unknown(_) => false,
        }
    }

    /// False if the other side certainly did nothing.
    pub fn may_have_acted(&self) -> bool {
        !matches!(self, OpError::NotSent(_) | OpError::Refused(_))
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, OpError::Answered { code: Code::NotFound, .. })
    }
}

/// As gRPC's errors are written in Go, and so in a kubelet's events.
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
