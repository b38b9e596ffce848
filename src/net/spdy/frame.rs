//! The parts of a frame that both directions share: streams, statuses, flags and types.

use std::fmt;

/// The id of a stream on a connection. Streams that a client opens have odd ids, starting at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// The status of a RST_STREAM frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetStatus(pub u32);

impl ResetStatus {
    /// The sender has no further interest in the stream. Servers send it at the end of each stream.
    pub const CANCEL: ResetStatus = ResetStatus(5);
}

impl fmt::Display for ResetStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            1 => "PROTOCOL_ERROR",
            2 => "INVALID_STREAM",
            3 => "REFUSED_STREAM",
            4 => "UNSUPPORTED_VERSION",
            5 => "CANCEL",
            6 => "INTERNAL_ERROR",
            7 => "FLOW_CONTROL_ERROR",
            8 => "STREAM_IN_USE",
            9 => "STREAM_ALREADY_CLOSED",
            11 => "FRAME_TOO_LARGE",
            other => return write!(f, "status {other}"),
        };
        f.write_str(name)
    }
}

pub(super) const VERSION: u16 = 3;
/// The length of a frame header, in bytes.
pub(super) const HEADER: usize = 8;
/// The flag of the last frame of a stream in this direction.
pub(super) const FIN: u8 = 1;
/// The largest stream id.
pub(super) const MAX_STREAM: u32 = 0x7fff_ffff;

// The types of control frames.
pub(super) const SYN_STREAM: u16 = 1;
pub(super) const SYN_REPLY: u16 = 2;
pub(super) const RST_STREAM: u16 = 3;
pub(super) const PING: u16 = 6;
pub(super) const GOAWAY: u16 = 7;
pub(super) const HEADERS: u16 = 8;
