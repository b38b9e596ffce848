//! Messages to the bus itself, and the functions for reading replies that `logind` and the slices of pods share.

use crate::engine::op::{Code, OpError};
use dbus::arg::{Arg, ArgType, Get};
use dbus::{Message, MessageType};

pub(in crate::adapters) const SYSTEMD: &str = "org.freedesktop.systemd1";
pub(in crate::adapters) const SYSTEMD_PATH: &str = "/org/freedesktop/systemd1";
pub(in crate::adapters) const SYSTEMD_MANAGER: &str = "org.freedesktop.systemd1.Manager";
pub(in crate::adapters) const BUS: &str = "org.freedesktop.DBus";
pub(in crate::adapters) const BUS_PATH: &str = "/org/freedesktop/DBus";

/// gRPC status codes, which `Code::Other` contains.
const UNKNOWN: u32 = 2;
const PERMISSION_DENIED: u32 = 7;

pub(in crate::adapters) type Made = Result<Message, String>;

pub(in crate::adapters) fn to_bus(member: &'static str) -> Made {
    Message::new_method_call(BUS, BUS_PATH, BUS, member)
}

pub(in crate::adapters) fn hello() -> Made {
    to_bus("Hello")
}

/// Returns the only argument of a message.
///
/// # Errors
/// The argument has another type, or the message has more than one.
pub(in crate::adapters) fn only<'m, T: Arg + Get<'m>>(message: &'m Message) -> Result<T, String> {
    let mut arguments = message.iter_init();
    let value = arguments.read::<T>().map_err(|e| e.to_string())?;
    match arguments.arg_type() {
        ArgType::Invalid => Ok(value),
        more => Err(format!("unexpected second argument of type {more:?}")),
    }
}

/// Returns `Ok` for any reply that is not an error, regardless of its content.
pub(in crate::adapters) fn fine(reply: &Message) -> Result<(), OpError> {
    if reply.msg_type() == MessageType::Error { Err(error(reply)) } else { Ok(()) }
}

/// Returns the only argument of a reply, a string.
pub(in crate::adapters) fn text(reply: &Message) -> Result<String, OpError> {
    fine(reply)?;
    only(reply).map_err(OpError::Unknown)
}

/// Returns the name and the text of an error.
pub(in crate::adapters) fn named(reply: &Message) -> (String, String) {
    // `as_result` changes nothing but takes `&mut`.
    match reply.duplicate().map(|mut m| m.as_result().err()) {
        Ok(Some(e)) => (e.name().unwrap_or("").to_owned(), e.message().unwrap_or("").to_owned()),
        _ => (String::new(), String::new()),
    }
}

/// Maps a D-Bus error to the codes that the engine distinguishes. The message contains the text and the name.
fn error(reply: &Message) -> OpError {
    let (name, text) = named(reply);
    let message = if text.is_empty() { name.clone() } else { format!("{text} ({name})") };
    let of_bus = name.strip_prefix("org.freedesktop.DBus.Error.");
    let code = match of_bus {
        // The peer left the bus, or the bus gave up: it is unknown whether the call took effect.
        Some("NoReply" | "Timeout" | "TimedOut" | "Disconnected") => return OpError::Unknown(message),
        Some("ServiceUnknown" | "NameHasNoOwner") => Code::NotFound,
        Some("UnknownMethod" | "UnknownProperty" | "UnknownInterface" | "UnknownObject") => Code::Unimplemented,
        Some("InvalidArgs") => Code::InvalidArgument,
        Some("AccessDenied") => Code::Other(PERMISSION_DENIED),
        // logind refuses Inhibit while the machine is shutting down.
        _ if name == "org.freedesktop.login1.OperationInProgress" => Code::FailedPrecondition,
        _ => Code::Other(UNKNOWN),
    };
    OpError::Answered { code, message }
}
