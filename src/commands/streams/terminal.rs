//! The user's terminal: its raw mode, its size, and the signals that matter during a session.

use mio::net::UnixStream;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::{SigId, low_level};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

/// The terminal at stdin, in raw mode: every key goes to the container, including Ctrl-C. The previous mode is
/// restored on drop.
pub struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Puts the terminal into raw mode.
    ///
    /// # Errors
    /// stdin is not a terminal.
    pub fn enter() -> io::Result<RawMode> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(RawMode { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Returns the columns and rows of the terminal at stdout or else at stdin, or None if neither is a terminal.
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).or_else(|_| tcgetwinsize(io::stdin())).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// What a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalSignal {
    /// The window has a new size.
    Resized,
    /// End the command with exit code 128 plus this number, as in shells.
    End(u8),
}

/// Handlers for SIGWINCH and for the signals that would otherwise leave the terminal in raw mode. They are removed on
/// drop.
pub struct Signals {
    sources: Vec<(TerminalSignal, SigId, UnixStream)>,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> io::Result<Signals> {
        let mut signals = Signals { sources: Vec::new() };
        for number in [SIGWINCH, SIGHUP, SIGINT, SIGTERM] {
            let signal = match number {
                SIGWINCH => TerminalSignal::Resized,
                other => TerminalSignal::End(u8::try_from(other).unwrap_or(0)),
            };
            let (read, write) = UnixStream::pair()?;
            let id = low_level::pipe::register(number, write)?;
            signals.sources.push((signal, id, read));
        }
        Ok(signals)
    }

    /// Returns descriptors that become readable when a signal arrives.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources.iter().map(|(_, _, read)| read.as_fd())
    }

    /// Returns the signals that have arrived since the last call.
    pub fn take(&mut self) -> Vec<TerminalSignal> {
        let mut buffer = [0; 64];
        let sources = self.sources.iter_mut();
        let arrived =
            sources.filter_map(|(signal, _, read)| matches!(read.read(&mut buffer), Ok(1..)).then_some(*signal));
        arrived.collect()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (_, id, _) in &self.sources {
            low_level::unregister(*id);
        }
    }
}
