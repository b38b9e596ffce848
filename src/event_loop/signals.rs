//! Signals as values. For each signal, the handler of signal-hook writes a byte to a separate socket. The read ends
//! are registered in the poll under one token. Several signals of the same kind before the next turn count as one.

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: exit. Pods continue to run (S10).
    Terminate,
    /// SIGINT: the same as SIGTERM.
    Interrupt,
    /// SIGHUP: reload the configuration and the manifests.
    Hangup,
}

const SIGNALS: [(i32, Signal); 3] =
    [(SIGTERM, Signal::Terminate), (SIGINT, Signal::Interrupt), (SIGHUP, Signal::Hangup)];

pub struct Signals {
    sources: Vec<(Signal, SigId, UnixStream)>,
    /// The write ends, used by the handlers.
    handlers: Vec<RawFd>,
}

impl Signals {
    /// Installs handlers for SIGTERM, SIGINT and SIGHUP.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Signals> {
        let mut signals = Signals { sources: Vec::with_capacity(SIGNALS.len()), handlers: Vec::new() };
        for (number, signal) in SIGNALS {
            let (mut read, write) = UnixStream::pair()?;
            registry.register(&mut read, token, Interest::READABLE)?;
            signals.handlers.push(write.as_raw_fd());
            let id = low_level::pipe::register(number, write)?;
            signals.sources.push((signal, id, read));
        }
        Ok(signals)
    }

    /// Returns both descriptors of each signal: the read end in the poll, and the handler's write end.
    pub fn descriptors(&self) -> impl Iterator<Item = (Signal, RawFd, RawFd)> {
        self.sources.iter().zip(&self.handlers).map(|((signal, _, read), write)| (*signal, read.as_raw_fd(), *write))
    }

    /// Returns the signals that arrived since the last call. Call it when the token is ready.
    pub fn take(&mut self) -> Vec<Signal> {
        let mut taken = Vec::new();
        for (signal, _, read) in &mut self.sources {
            if drain(read) {
                taken.push(*signal);
            }
        }
        taken
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (_, id, _) in &self.sources {
            low_level::unregister(*id);
        }
    }
}

/// Reads until the socket would block. Returns true if there was data.
fn drain(read: &mut UnixStream) -> bool {
    let mut any = false;
    let mut bytes = [0; 64];
    loop {
        match read.read(&mut bytes) {
            Ok(0) => return any,
            Ok(_) => any = true,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return any,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_loop::EventLoop;

    #[test]
    fn a_signal_wakes_the_loop_and_many_of_one_kind_are_one() {
        let mut event_loop = EventLoop::new().unwrap();
        let mut signals = Signals::new(event_loop.registry(), Token(1)).unwrap();
        assert_eq!(signals.take(), []);
        for _ in 0..3 {
            low_level::raise(SIGHUP).unwrap();
        }
        low_level::raise(SIGTERM).unwrap();
        let mut ready = Vec::new();
        while ready.is_empty() {
            event_loop.turn(None, &mut ready).unwrap();
        }
        assert_eq!(ready, [Token(1)]);
        assert_eq!(signals.take(), [Signal::Terminate, Signal::Hangup]);
        assert_eq!(signals.take(), []);
    }
}
