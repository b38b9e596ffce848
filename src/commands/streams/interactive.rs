//! Connects the standard streams of the command to those of a session, until the session ends.

use super::detach::{DetachKeys, Detector};
use super::session::{End, Output, Session};
use super::terminal::{self, RawMode, Signals, TerminalSignal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::fd::AsFd as _;

/// Size of the read buffer for stdin, in bytes.
const READ: usize = 32 * 1024;
/// While this number of input bytes waits for the runtime, stdin is not read.
const MAX_QUEUED: usize = 256 * 1024;

/// How the session ended.
#[derive(Debug)]
pub enum SessionEnd {
    Session(End),
    /// The user has typed the detach keys.
    Detached,
    /// A signal with this number ended the session.
    Signal(u8),
    /// The connection was lost, for this reason.
    Lost(String),
    /// The output cannot be written.
    Output(io::Error),
}

/// How the command's own streams and terminal are connected to the session.
#[derive(Clone, Copy, Debug)]
pub struct Local<'a> {
    /// Whether stdin is forwarded.
    pub stdin: bool,
    /// Whether the terminal of the process follows the size of the user's terminal.
    pub resize: bool,
    /// Whether the user's terminal is in raw mode.
    pub raw: bool,
    /// The keys that end the session if the terminal is in raw mode.
    pub detach: &'a DetachKeys,
}

/// Forwards the streams until the session ends.
///
/// # Errors
/// The terminal or the signal handlers cannot be set up.
pub fn run(
    session: &mut Session,
    local: Local<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<SessionEnd> {
    // Without raw mode there is nothing to restore, and the signals have their usual effects.
    let mut signals = if local.raw || local.resize { Some(Signals::new()?) } else { None };
    let raw = if local.raw { Some(RawMode::enter()?) } else { None };
    if local.resize {
        send_size(session);
    }
    let ended = pump(session, local, signals.as_mut(), out, err);
    drop(raw);
    Ok(ended)
}

fn pump(
    session: &mut Session,
    local: Local<'_>,
    mut signals: Option<&mut Signals>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> SessionEnd {
    let mut stdin_open = local.stdin;
    let mut buffer = vec![0; READ];
    let mut keys = local.raw.then(|| Detector::new(local.detach));
    let mut again = false;
    loop {
        let reads_stdin = stdin_open && session.queued() < MAX_QUEUED;
        let (stdin_ready, signal) = match wait(session, reads_stdin, signals.as_deref(), again) {
            Ok(ready) => ready,
            Err(e) => return SessionEnd::Lost(format!("cannot wait for the streams: {e}")),
        };
        if let (true, Some(signals)) = (signal, signals.as_deref_mut()) {
            for signal in signals.take() {
                match signal {
                    TerminalSignal::Resized if local.resize => send_size(session),
                    TerminalSignal::Resized => {}
                    TerminalSignal::End(number) => return SessionEnd::Signal(number),
                }
            }
        }
        if stdin_ready {
            match send_input(session, &mut buffer, keys.as_mut()) {
                Input::Open => {}
                Input::Ended => stdin_open = false,
                Input::Detached => return SessionEnd::Detached,
            }
        }
        again = match drive(session, out, err) {
            Ok(again) => again,
            Err(ended) => return ended,
        };
        if let Some(end) = session.end() {
            return SessionEnd::Session(end.clone());
        }
    }
}

enum Input {
    Open,
    Ended,
    /// The user has typed the detach keys.
    Detached,
}

/// Reads stdin and sends it to the session.
fn send_input(session: &mut Session, buffer: &mut [u8], keys: Option<&mut Detector<'_>>) -> Input {
    match rustix::io::read(io::stdin(), &mut *buffer) {
        Ok(n @ 1..) => {
            let Some(keys) = keys else {
                session.send_stdin(&buffer[..n]);
                return Input::Open;
            };
            let mut passed = Vec::new();
            let detached = keys.pass(&buffer[..n], &mut passed);
            session.send_stdin(&passed);
            if !detached {
                return Input::Open;
            }
            // Send as much as possible of what was typed before the detach keys.
            let _ = session.drive(&mut |_, _| {});
            Input::Detached
        }
        Err(Errno::INTR | Errno::AGAIN) => Input::Open,
        // The input has ended, or the terminal is gone.
        Ok(_) | Err(_) => {
            let mut held = Vec::new();
            keys.into_iter().for_each(|keys| keys.finish(&mut held));
            session.send_stdin(&held);
            session.close_stdin();
            Input::Ended
        }
    }
}

/// Drives the session and writes its outputs. Returns true if the session must be driven again at once.
fn drive(session: &mut Session, out: &mut dyn Write, err: &mut dyn Write) -> Result<bool, SessionEnd> {
    let mut failed = None;
    let again = session.drive(&mut |output, bytes| {
        let result = match output {
            Output::Stdout => out.write_all(bytes).and_then(|()| out.flush()),
            // stderr may be closed; the exit code still counts.
            Output::Stderr => {
                let _ = err.write_all(bytes).and_then(|()| err.flush());
                Ok(())
            }
        };
        if let Err(e) = result {
            failed.get_or_insert(e);
        }
    });
    match failed {
        Some(e) if again.is_ok() => Err(SessionEnd::Output(e)),
        _ => again.map_err(SessionEnd::Lost),
    }
}

/// Waits for the session, stdin or a signal. Returns whether stdin is readable, and whether a signal has arrived.
fn wait(session: &Session, stdin: bool, signals: Option<&Signals>, again: bool) -> io::Result<(bool, bool)> {
    let input = io::stdin();
    let mut fds = vec![PollFd::new(session, session.interest())];
    let first = fds.len() + usize::from(stdin);
    if stdin {
        fds.push(PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN));
    }
    let of_signals = signals.into_iter().flat_map(Signals::fds);
    fds.extend(of_signals.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    match poll(&mut fds, again.then_some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok((false, true)),
        Err(e) => return Err(e.into()),
    }
    let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    Ok((stdin && ready(&fds[1]), fds[first..].iter().any(ready)))
}

fn send_size(session: &mut Session) {
    if let Some((columns, rows)) = terminal::size() {
        session.resize(columns, rows);
    }
}
