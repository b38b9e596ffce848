//! A connection that was passed to another server after an upgrade. Bytes pass unchanged in both directions, with
//! bounded queues. Each direction can end before the other.

use super::outcome::DriveOutcome;
use crate::net::buffered::{Buffered, Input, Written};
use crate::net::server::exchange::Upstream;
use crate::net::stream::Stream;
use mio::net::TcpStream;
use mio::{Registry, Token};
use std::io;

/// The maximum number of bytes that are queued for each side.
const QUEUE: usize = 128 * 1024;
/// The size of one read. Smaller reads reduce the throughput, because each read also causes a write.
const READ: usize = 64 * 1024;
/// The maximum number of bytes passed on in one `drive`.
const BUDGET: usize = 512 * 1024;

/// The state of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Open,
    /// The source has ended, but queued bytes are not written yet.
    Ending,
    /// The end was passed on.
    Ended,
}

pub struct Pipe {
    name: &'static str,
    upstream: Buffered,
    is_registered: bool,
    to_upstream: Flow,
    to_client: Flow,
    /// Whether the upstream has sent something.
    answered: bool,
}

/// The result of `Pipe::drive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piped {
    /// The outcome for the connection, and whether bytes have moved.
    Goes(DriveOutcome, bool),
    /// The upstream cannot be reached, or ended before it sent anything.
    Unanswered,
}

impl Pipe {
    /// Starts to connect. `rest` is the input that the client has sent after its request.
    ///
    /// # Errors
    /// The connection cannot be started.
    pub fn new(upstream: Upstream, rest: Vec<u8>) -> io::Result<Pipe> {
        let socket = TcpStream::connect(upstream.address)?;
        // Otherwise keystrokes would wait for acknowledgements.
        let _ = socket.set_nodelay(true);
        let mut stream = Buffered::new(Stream::Tcp(socket));
        stream.push(upstream.request);
        stream.push(rest);
        Ok(Pipe {
            name: upstream.name,
            upstream: stream,
            is_registered: false,
            to_upstream: Flow::Open,
            to_client: Flow::Open,
            answered: false,
        })
    }

    /// Returns `Upstream::name`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Registers the upstream's socket, unless it is already registered.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        if !self.is_registered {
            self.upstream.stream().register(registry, token)?;
            self.is_registered = true;
        }
        Ok(())
    }

    pub fn ready(&mut self) {
        self.upstream.ready();
    }

    /// Passes on bytes until both sides block or the budget is used up.
    pub fn drive(&mut self, client: &mut Buffered) -> Piped {
        if !self.is_registered {
            return Piped::Goes(DriveOutcome::Again, false);
        }
        self.upstream.begin();
        let (mut moved, mut written) = (0, 0);
        loop {
            let before = moved + written;
            if let Some(n) = copy(client, &mut self.upstream, &mut self.to_upstream) {
                moved += n;
            } else {
                return Piped::Goes(DriveOutcome::Close, moved > 0);
            }
            match self.upstream.write(&mut written, BUDGET) {
                Written::Broken if !self.answered => return Piped::Unanswered,
                Written::Broken => self.to_client = self.to_client.max_ending(),
                _ => {}
            }
            match copy(&mut self.upstream, client, &mut self.to_client) {
                Some(n) => {
                    self.answered |= n > 0;
                    moved += n;
                }
                None if !self.answered => return Piped::Unanswered,
                None => self.to_client = self.to_client.max_ending(),
            }
            if self.to_client != Flow::Open && !self.answered {
                return Piped::Unanswered;
            }
            if client.write(&mut written, BUDGET) == Written::Broken {
                return Piped::Goes(DriveOutcome::Close, moved > 0);
            }
            end(&mut self.upstream, &mut self.to_upstream);
            end(client, &mut self.to_client);
            // The session is over when its server has ended it: an exec has no use for further input.
            if self.to_client == Flow::Ended {
                return Piped::Goes(DriveOutcome::Close, moved > 0);
            }
            if moved + written == before {
                let outcome = if self.upstream.stopped() { DriveOutcome::Again } else { DriveOutcome::Wait };
                return Piped::Goes(outcome, moved > 0);
            }
            if moved >= BUDGET || written >= BUDGET {
                return Piped::Goes(DriveOutcome::Again, true);
            }
        }
    }
}

impl Flow {
    fn max_ending(self) -> Flow {
        if self == Flow::Open { Flow::Ending } else { self }
    }
}

/// Queues at most one read of `from` for `to`. Returns the number of bytes; None if `from` is broken.
fn copy(from: &mut Buffered, to: &mut Buffered, flow: &mut Flow) -> Option<usize> {
    if *flow != Flow::Open || to.queued() >= QUEUE {
        return Some(0);
    }
    let mut buffer = vec![0; READ];
    match from.read(&mut buffer) {
        Input::Bytes(n) => {
            buffer.truncate(n);
            // A queued buffer must not hold much more memory than its length.
            if n < READ / 2 {
                buffer.shrink_to_fit();
            }
            to.push(buffer);
            Some(n)
        }
        Input::Blocked => Some(0),
        Input::End => {
            *flow = Flow::Ending;
            Some(0)
        }
        Input::Broken => None,
    }
}

/// Passes the end of the input on when everything before it is written.
fn end(to: &mut Buffered, flow: &mut Flow) {
    if *flow == Flow::Ending && to.queued() == 0 {
        // The peer is gone if this fails, which the next read shows.
        let _ = to.stream().finish();
        *flow = Flow::Ended;
    }
}
