//! The socket of a connection: implements tokio's two traits, which `h2` requires, for a non-blocking socket. Wakers
//! are not stored: the caller that drives the connection knows when to poll it again.
//!
//! Reading and writing stop at a budget, so that a flood cannot block the event loop. Write readiness is polled only
//! while a write is blocked; otherwise each read of the peer would wake the agent for nothing.

use crate::net::stream::Stream;
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Gives the driver access to the state of the socket, which `h2` owns.
#[derive(Clone)]
pub struct Gauge(Arc<Mutex<GaugeState>>);

#[derive(Default)]
struct GaugeState {
    /// The numbers of bytes that may still be read and written in this slice.
    read_budget: usize,
    write_budget: usize,
    /// Whether the budget of the slice was used up before the socket would block.
    stopped: bool,
    /// Whether the last read would have blocked. If so, the next read waits until the poll reports the socket readable.
    drained: bool,
    /// Total bytes read and written.
    read: u64,
    written: u64,
}

impl Gauge {
    fn state(&self) -> MutexGuard<'_, GaugeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a drive in which the socket may have become readable.
    pub fn begin(&self) {
        self.state().drained = false;
    }

    /// Starts a slice: up to `bytes` bytes may be read, and up to `bytes` bytes may be written.
    pub fn slice(&self, bytes: usize) {
        let mut state = self.state();
        state.read_budget = bytes;
        state.write_budget = bytes;
        state.stopped = false;
    }

    /// Reports whether the budget of the slice was used up.
    pub fn stopped(&self) -> bool {
        self.state().stopped
    }

    /// Returns the number of bytes read since the connection was opened. The peer's first frame is SETTINGS.
    pub fn read(&self) -> u64 {
        self.state().read
    }

    /// Returns the number of bytes written since the connection was opened.
    pub fn written(&self) -> u64 {
        self.state().written
    }
}

pub struct Socket {
    stream: Stream,
    registry: Registry,
    token: Token,
    gauge: Gauge,
    /// Whether a write or flush is blocked. If so, the socket is registered for write readiness.
    blocked: bool,
}

impl Socket {
    /// Connects. A unix socket connects immediately or fails.
    pub fn connect(path: &Path, registry: &Registry, token: Token) -> io::Result<(Socket, Gauge)> {
        let mut stream = UnixStream::connect(path)?;
        registry.register(&mut stream, token, Interest::READABLE)?;
        Socket::on(Stream::Unix(stream), registry, token)
    }

    /// Wraps a stream that is already connected and registered under the token.
    pub fn on(stream: Stream, registry: &Registry, token: Token) -> io::Result<(Socket, Gauge)> {
        let registry = registry.try_clone()?;
        let gauge = Gauge(Arc::new(Mutex::new(GaugeState::default())));
        Ok((Socket { stream, registry, token, gauge: gauge.clone(), blocked: false }, gauge))
    }

    fn watch_for_room(&mut self, wanted: bool) -> io::Result<()> {
        if self.blocked != wanted {
            let interest = if wanted { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            // EPOLL_CTL_MOD reports readiness that already exists, so no edge is lost.
            self.stream.reregister(&self.registry, self.token, interest)?;
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
                    // TLS has only encrypted the data; the flush shows whether the socket has space for it.
                    if !matches!(self.stream, Stream::Tls(_)) {
                        self.watch_for_room(false)?;
                    }
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
        let room = buffer.remaining().min(state.read_budget);
        match self.stream.read(buffer.initialize_unfilled_to(room)) {
            Ok(count) => {
                buffer.advance(count);
                state.read_budget = state.read_budget.saturating_sub(count);
                state.read += count as u64;
                Poll::Ready(Ok(()))
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                state.drained = true;
                Poll::Pending
            }
            // TLS has read a lot of input without returning any content.
            Err(e) if e.kind() == ErrorKind::Interrupted => {
                (state.read_budget, state.stopped) = (0, true);
                Poll::Pending
            }
            Err(e) => Poll::Ready(Err(e)),
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

    /// Writes the data that TLS has encrypted, and TLS's own replies to its input. Other streams hold nothing back.
    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !matches!(self.stream, Stream::Tls(_)) {
            return Poll::Ready(Ok(()));
        }
        loop {
            match self.stream.flush() {
                Ok(()) => return Poll::Ready(self.watch_for_room(false)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.watch_for_room(true)?;
                    return Poll::Pending;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// Does nothing: dropping the socket closes it. HTTP/2 itself announces the end of the connection.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
