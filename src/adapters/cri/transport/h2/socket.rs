//! The connection's socket, as `h2` wants it: tokio's two traits (nothing else of tokio) over a non-blocking unix
//! socket. Wakers are not kept: whoever drives the connection knows when to poll it again.
//!
//! Two things are decided here. Reading stops at a budget, so that a flood cannot hold a turn. And the poll is asked
//! to tell of room for writing only while a write is blocked: otherwise the peer's reading would wake us for nothing.

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The driver's side of the socket, which `h2` has swallowed.
#[derive(Clone)]
pub struct Gauge(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Bytes that may still be read and written in this slice.
    read_budget: usize,
    write_budget: usize,
    /// The slice's budget stopped us, not the socket.
    stopped: bool,
    /// The last read would have blocked: not tried again until the poll tells.
    drained: bool,
    /// In all.
    read: u64,
    written: u64,
}

impl Gauge {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new drive: the socket may have become readable.
    pub fn begin(&self) {
        self.state().drained = false;
    }

    /// So much may be moved each way until the next slice.
    pub fn slice(&self, bytes: usize) {
        let mut state = self.state();
        state.read_budget = bytes;
        state.write_budget = bytes;
        state.stopped = false;
    }

    /// The slice ended before the socket had enough.
    pub fn stopped(&self) -> bool {
        self.state().stopped
    }

    /// Something of the peer's arrived: its first frame is its SETTINGS.
    pub fn heard(&self) -> bool {
        self.state().read > 0
    }

    /// Bytes given to the kernel since the connection was made.
    pub fn written(&self) -> u64 {
        self.state().written
    }
}

pub struct Socket {
    stream: UnixStream,
    registry: Registry,
    token: Token,
    gauge: Gauge,
    /// The poll is asked for room to write.
    blocked: bool,
}

impl Socket {
    /// Connects, which a unix socket does at once or not at all.
    pub fn connect(path: &Path, registry: &Registry, token: Token) -> io::Result<(Socket, Gauge)> {
        let registry = registry.try_clone()?;
        let mut stream = UnixStream::connect(path)?;
        registry.register(&mut stream, token, Interest::READABLE)?;
        let gauge = Gauge(Arc::new(Mutex::new(State::default())));
        Ok((Socket { stream, registry, token, gauge: gauge.clone(), blocked: false }, gauge))
    }

    fn watch_for_room(&mut self, wanted: bool) -> io::Result<()> {
        if self.blocked != wanted {
            let interest = if wanted { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            // Edge-triggered or not, epoll tells at once of what is ready when it is asked anew: no edge is lost.
            self.registry.reregister(&mut self.stream, self.token, interest)?;
            self.blocked = wanted;
        }
        Ok(())
    }

    fn write(&mut self, buffers: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.gauge.state().write_budget == 0 {
            self.gauge.state().stopped = true;
            return Poll::Pending;
        }
        loop {
            match self.stream.write_vectored(buffers) {
                Ok(count) => {
                    {
                        let mut state = self.gauge.state();
                        state.write_budget = state.write_budget.saturating_sub(count);
                        state.written += count as u64;
                    }
                    self.watch_for_room(false)?;
                    return Poll::Ready(Ok(count));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.watch_for_room(true)?;
                    return Poll::Pending;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let gauge = self.gauge.clone();
        let mut state = gauge.state();
        if state.drained {
            return Poll::Pending;
        }
        if state.read_budget == 0 {
            state.stopped = true;
            return Poll::Pending;
        }
        loop {
            match self.stream.read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    state.read_budget = state.read_budget.saturating_sub(count);
                    state.read += count as u64;
                    return Poll::Ready(Ok(()));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    state.drained = true;
                    return Poll::Pending;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write(&[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(buffers)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Dropping it closes it.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
