//! The client side of SPDY/3.1, as far as the streaming server of a container runtime needs it. Pure: bytes in, bytes
//! out.
//!
//! A runtime multiplexes the streams of one session (stdin, stdout, ...) over one connection: `upgrade` begins it
//! with an HTTP/1.1 request, `Writer` produces the frames of the client, and `Reader` decodes those of the server.
//! The servers of containerd and CRI-O (moby/spdystream) use no flow-control windows and open no streams, and nothing
//! in their headers is needed. Therefore, the reader inflates no headers and keeps at most one frame header, whatever
//! the server sends.
//!
//! A frame has a header of 8 bytes. All numbers are big-endian. Control frame: `80 03`, type (2), flags (1), length
//! (3). Data frame: stream (4, highest bit 0), flags (1), length (3). Flag 1 (FIN): the last frame of its stream in
//! this direction.

mod frame;
mod reader;
pub mod upgrade;
mod writer;

pub use frame::{ResetStatus, StreamId};
pub use reader::{Malformed, Reader, SpdyEvent};
pub use writer::{MAX_DATA, Writer};
