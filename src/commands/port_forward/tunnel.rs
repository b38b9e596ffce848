//! One forwarded connection: requests a URL, connects to the runtime, and passes bytes in both directions.
//!
//! Each forwarded connection has its own connection to the runtime. SPDY, as runtimes implement it, has no flow
//! control for single streams: on a shared connection, one client that does not read would block all others.

use crate::commands::streams::PORT_FORWARD;
use crate::commands::streams::connection::{ReadProgress, SpdyConnection};
use crate::commands::streams::lookup::Lookup;
use crate::net::spdy::{SpdyEvent, StreamId};
use mio::net::TcpStream;
use rustix::event::PollFlags;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// While this number of bytes is unsent in one direction, no more input is read for that direction.
const MAX_QUEUED: usize = 64 * 1024;
const READ: usize = 32 * 1024;
/// Maximum length of the runtime's error that is kept, in bytes.
const MAX_ERROR: usize = 4096;
/// Maximum time until the agent returns the URL.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Tunnel {
    client: TcpStream,
    /// The ports, for messages.
    pub local: u16,
    pub remote: u16,
    state: TunnelState,
}

enum TunnelState {
    /// The agent is being asked for a URL. The pod's UID may have changed since the last connection.
    Lookup {
        lookup: Box<Lookup>,
        began: Instant,
    },
    Open(Box<Open>),
}

struct Open {
    connection: SpdyConnection,
    error: StreamId,
    data: StreamId,
    /// Bytes that are waiting to be sent to the client.
    unsent: Vec<u8>,
    /// The runtime's error.
    message: Vec<u8>,
    /// Whether the error stream has ended, as it does after all data.
    error_ended: bool,
    /// Whether the pod has ended its output.
    data_ended: bool,
    /// Whether the client has been told that the pod has ended its output.
    shut: bool,
    /// Whether the client has ended its output.
    client_ended: bool,
}

/// The result of a step.
#[derive(Debug, PartialEq, Eq)]
pub enum TunnelStep {
    Continues,
    /// The agent has returned the URL. The pod currently has this UID.
    Pod(String),
    Done,
}

impl Tunnel {
    pub fn new(client: TcpStream, local: u16, remote: u16, lookup: Lookup) -> Tunnel {
        Tunnel { client, local, remote, state: TunnelState::Lookup { lookup: Box::new(lookup), began: Instant::now() } }
    }

    /// Returns the descriptors and poll events to wait for.
    pub fn interest(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        match &self.state {
            TunnelState::Lookup { lookup, .. } => vec![(lookup.as_fd(), lookup.interest())],
            TunnelState::Open(open) => {
                let mut client = PollFlags::empty();
                client.set(PollFlags::IN, open.reads_client());
                client.set(PollFlags::OUT, !open.unsent.is_empty());
                let server = open.connection.interest(open.reads_server());
                let both = [(open.connection.as_fd(), server), (self.client.as_fd(), client)];
                // Leave out a descriptor without requested events: poll would still report its errors, and would return
                // each time.
                both.into_iter().filter(|(_, flags)| !flags.is_empty()).collect()
            }
        }
    }

    /// Returns when to call `drive` even without an event.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            TunnelState::Lookup { began, .. } => Some(*began + PATIENCE),
            TunnelState::Open(open) => (open.connection.has_more() && open.reads_server()).then(Instant::now),
        }
    }

    /// Does what is possible without blocking.
    ///
    /// # Errors
    /// Forwarding this connection has failed.
    pub fn drive(&mut self) -> Result<TunnelStep, String> {
        match &mut self.state {
            TunnelState::Lookup { lookup, began } => match lookup.drive()? {
                None if began.elapsed() >= PATIENCE => Err(format!(
                    "wherry has not responded for {} s; it may be suspended or hanging, see systemctl status wherry",
                    PATIENCE.as_secs()
                )),
                None => Ok(TunnelStep::Continues),
                Some((url, uid)) => {
                    self.state = TunnelState::Open(Box::new(Open::new(&url, self.remote)?));
                    Ok(TunnelStep::Pod(uid))
                }
            },
            TunnelState::Open(open) => open.drive(&mut self.client),
        }
    }
}

impl Open {
    fn new(url: &str, port: u16) -> Result<Open, String> {
        let mut connection = SpdyConnection::start(url, PORT_FORWARD)?;
        let port = port.to_string();
        let mut open = |kind| connection.open(&[("streamtype", kind), ("port", &port), ("requestid", "0")]);
        let (error, data) = open("error").zip(open("data")).ok_or("a new connection has no streams")?;
        // Only the runtime writes errors.
        connection.end(error);
        Ok(Open {
            connection,
            error,
            data,
            unsent: Vec::new(),
            message: Vec::new(),
            error_ended: false,
            data_ended: false,
            shut: false,
            client_ended: false,
        })
    }

    fn reads_client(&self) -> bool {
        !self.client_ended && self.connection.queued() < MAX_QUEUED
    }

    fn reads_server(&self) -> bool {
        self.unsent.len() < MAX_QUEUED
    }

    fn drive(&mut self, client: &mut TcpStream) -> Result<TunnelStep, String> {
        self.read_client(client);
        self.connection.send()?;
        let closed = self.reads_server() && self.read_server()? == ReadProgress::Closed;
        if self.error_ended && !self.message.is_empty() {
            return Err(String::from_utf8_lossy(&self.message).trim().to_owned());
        }
        if closed && !self.data_ended {
            return Err("the runtime closed the connection".to_owned());
        }
        self.write_client(client);
        let passed_on = self.data_ended && self.unsent.is_empty();
        if passed_on && !self.shut {
            self.shut = true;
            // The client may have closed the connection.
            let _ = client.shutdown(Shutdown::Write);
        }
        let ended = passed_on && self.client_ended && (self.error_ended || closed);
        // After the runtime has closed its connection, nothing more can be sent.
        Ok(if ended || (passed_on && closed) { TunnelStep::Done } else { TunnelStep::Continues })
    }

    fn read_client(&mut self, client: &mut TcpStream) {
        let mut buffer = [0; READ];
        while self.reads_client() {
            match client.read(&mut buffer) {
                Ok(n @ 1..) => self.connection.data(self.data, &buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // Closed, or reset: the pod sees the end of the input.
                Ok(_) | Err(_) => {
                    self.client_ended = true;
                    self.connection.end(self.data);
                }
            }
        }
    }

    fn read_server(&mut self) -> Result<ReadProgress, String> {
        let Open { connection, error, data, unsent, message, error_ended, data_ended, .. } = self;
        connection.read(&mut |event| match event {
            SpdyEvent::Data { stream, bytes } if stream == *data => unsent.extend_from_slice(bytes),
            SpdyEvent::Data { stream, bytes } if stream == *error => {
                let room = MAX_ERROR - message.len();
                message.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            SpdyEvent::End { stream } | SpdyEvent::Reset { stream, .. } if stream == *data => *data_ended = true,
            SpdyEvent::End { stream } | SpdyEvent::Reset { stream, .. } if stream == *error => *error_ended = true,
            _ => {}
        })
    }

    fn write_client(&mut self, client: &mut TcpStream) {
        while !self.unsent.is_empty() {
            match client.write(&self.unsent) {
                Ok(n @ 1..) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // The client has disconnected, so the rest is discarded.
                Ok(_) | Err(_) => {
                    self.unsent.clear();
                    self.data_ended = true;
                    self.error_ended = true;
                    self.client_ended = true;
                }
            }
        }
    }
}
