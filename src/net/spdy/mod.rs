//! The client's side of SPDY/3.1, as much as the streaming server of a container runtime needs. Pure: bytes in, bytes
//! out.
//!
//! A runtime multiplexes the streams of one session (stdin, stdout, ...) over one connection: `upgrade` begins it with
//! an HTTP/1.1 request, `Writer` produces the frames of the client, and `Reader` decodes those of the server. The
//! servers of containerd and CRI-O (moby/spdystream) use no flow-control windows and open no streams, and nothing in
//! their headers is needed. So the reader inflates no headers and keeps at most one frame header, whatever the server
//! sends.
//!
//! A frame has a header of 8 bytes, all numbers in big endian. Control frame: `80 03`, type (2), flags (1), length (3).
//! Data frame: stream (4, highest bit 0), flags (1), length (3). Flag 1 (FIN): the last frame of its stream in this
//! direction.

mod reader;
pub mod upgrade;
mod writer;

pub use reader::{Malformed, Reader, SpdyEvent};
pub use writer::{MAX_DATA, Writer};

use std::fmt;

/// A stream of a connection. Those of a client are odd, from 1.
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

const VERSION: u16 = 3;
const HEADER: usize = 8;
const FIN: u8 = 1;
/// The largest stream id.
const MAX_STREAM: u32 = 0x7fff_ffff;

// The types of control frames.
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
