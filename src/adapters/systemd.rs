//! Communicates with systemd as the service manager: through its notification socket (sd_notify(3)) for the state of
//! the service, and with its descriptor store, which keeps descriptors while wherry restarts. Without NOTIFY_SOCKET,
//! that is without systemd, every function does nothing.
//!
//! Each stored descriptor has a name and is removed only by that name. FDPOLL=0 prevents systemd from polling a
//! descriptor: otherwise it would drop a FIFO whose other end is closed for a moment, for example while logind
//! restarts.

use crate::api::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sd_notify::NotifyState;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// The longest status text, in bytes. systemd accepts messages of up to a page; a line of `systemctl status` is
/// shorter.
const MAX_STATUS: usize = 1024;

/// A part of a notification to systemd about the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification<'a> {
    /// The service is ready, or has finished reloading its configuration.
    Ready,
    /// The service is reloading its configuration. `Ready` ends the reload.
    Reloading,
    /// The service is stopping on request.
    Stopping,
    /// The text for the line `Status:` of systemctl status.
    Status(&'a str),
    /// The keep-alive for systemd's watchdog.
    Alive,
}

/// Reports whether systemd expects notifications (NOTIFY_SOCKET is set).
pub fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Returns the watchdog timeout for this process (WATCHDOG_USEC), if systemd set one. The caller sends
/// `Notification::Alive` at half this period.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|period| is_there() && !period.is_zero())
}

/// Sends all parts in one message.
///
/// # Errors
/// The socket cannot be used, or systemd does not read its messages.
pub fn notify(notifications: &[Notification<'_>]) -> Result<(), String> {
    let statuses: Vec<String> = notifications
        .iter()
        .filter_map(|s| if let Notification::Status(text) = s { Some(one_line(text)) } else { None })
        .collect();
    let mut texts = statuses.iter();
    let mut state = Vec::with_capacity(notifications.len() + 1);
    for s in notifications {
        match s {
            Notification::Ready => state.push(NotifyState::Ready),
            Notification::Reloading => {
                state.push(NotifyState::Reloading);
                // With Type=notify-reload (systemd 253), the time distinguishes this reload from an earlier one.
                let now = NotifyState::monotonic_usec_now()
                    .map_err(|e| format!("failed to read the monotonic clock: {e}"))?;
                state.push(now);
            }
            Notification::Stopping => state.push(NotifyState::Stopping),
            Notification::Status(_) => state.extend(texts.next().map(|text| NotifyState::Status(text))),
            Notification::Alive => state.push(NotifyState::Watchdog),
        }
    }
    send(&state, &[])
}

/// Replaces control characters. Each line of a notification is an assignment, and text from a manifest or the runtime
/// must not add one.
fn one_line(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if printable::is_plain(c) { c } else { ' ' }).collect();
    if line.len() > MAX_STATUS {
        line.truncate(printable::cut(&line, MAX_STATUS - 3).len());
        line.push_str("...");
    }
    line
}

/// Stores a copy of the descriptor in systemd's descriptor store (FDSTORE). The unit's FileDescriptorStoreMax must
/// allow it; systemd does not report whether it does.
///
/// # Errors
/// The socket cannot be used, or systemd does not read its messages.
pub fn store(name: &str, fd: BorrowedFd<'_>) -> Result<(), String> {
    send(&[NotifyState::FdStore, NotifyState::FdName(name), NotifyState::Custom("FDPOLL=0")], &[fd])
        .map_err(|e| format!("failed to store descriptor {name} in systemd: {e}"))
}

/// Removes all descriptors with that name from systemd's descriptor store (FDSTOREREMOVE). Succeeds if there is none.
///
/// # Errors
/// The socket cannot be used, or systemd does not read its messages.
pub fn remove(name: &str) -> Result<(), String> {
    send(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)], &[])
        .map_err(|e| format!("failed to remove descriptor {name} from systemd: {e}"))
}

fn send(state: &[NotifyState<'_>], fds: &[BorrowedFd<'_>]) -> Result<(), String> {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    // The library's socket blocks while the queue is full. If systemd hangs, the call would block forever.
    if !takes_messages(&socket)? {
        return Err(format!("{}: systemd is not reading its messages", socket.display()));
    }
    sd_notify::notify_with_fds(state, fds).map_err(|e| format!("{}: {e}", socket.display()))
}

fn takes_messages(socket: &OsString) -> Result<bool, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", socket.display());
    let probe = UnixDatagram::unbound().map_err(failed)?;
    probe.connect(socket).map_err(failed)?;
    let events = events(probe.as_fd(), PollFlags::OUT).map_err(|e| failed(e.into()))?;
    Ok(events.contains(PollFlags::OUT))
}

/// Returns the poll events of a descriptor at this moment.
fn events(fd: BorrowedFd<'_>, wanted: PollFlags) -> rustix::io::Result<PollFlags> {
    let mut fds = [PollFd::from_borrowed_fd(fd, wanted)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(fds[0].revents())
}

/// Reports whether the other end of this FIFO is closed.
pub fn is_broken(fd: BorrowedFd<'_>) -> bool {
    events(fd, PollFlags::empty()).is_ok_and(|e| e.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL))
}

/// Takes the descriptors that systemd passed to this process, with their names, and sets close-on-exec on them. Must be
/// called once, before anything else opens a descriptor. Dropping the result closes them.
pub fn inherited() -> Vec<(String, OwnedFd)> {
    let given = sd_listen_fds::get().unwrap_or_else(|e| {
        log::warn!(
            "ignoring the descriptors from systemd: LISTEN_PID or LISTEN_FDS is invalid error={:?}",
            e.to_string()
        );
        Vec::new()
    });
    let mut kept = Vec::with_capacity(given.len());
    for (name, fd) in given {
        let (name, fd) = (name.unwrap_or_default(), fd.into_std());
        match rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC) {
            Ok(()) => kept.push((name, fd)),
            Err(e) => {
                // The descriptor does not exist, so there is nothing to close.
                std::mem::forget(fd);
                log::warn!(
                    "ignoring a descriptor from systemd that is not open name={name:?} error={:?}",
                    e.to_string()
                );
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    #[test]
    fn a_broken_fifo_is_detected() {
        let (read, write) = pipe().unwrap();
        assert!(!is_broken(write.as_fd()));
        drop(read);
        assert!(is_broken(write.as_fd()));
    }

    #[test]
    fn a_status_is_one_line_and_short() {
        assert_eq!(one_line("a\nREADY=1\r\u{1b}b"), "a READY=1  b");
        let long = one_line(&"\u{20ac}".repeat(1000));
        assert!(long.len() <= MAX_STATUS && long.ends_with("\u{20ac}..."), "{long}");
    }

    #[test]
    fn a_full_queue_is_detected_before_it_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = path.clone().into_os_string();
        assert!(takes_messages(&name).unwrap_err().contains("notify: No such file"));
        let systemd = UnixDatagram::bind(&path).unwrap();
        assert_eq!(takes_messages(&name), Ok(true));
        // A sender has a buffer of its own, which can be full before the queue is (net.unix.max_dgram_qlen).
        let mut senders = Vec::new();
        while takes_messages(&name) == Ok(true) {
            let other = UnixDatagram::unbound().unwrap();
            other.connect(&path).unwrap();
            other.set_nonblocking(true).unwrap();
            while other.send(b"x").is_ok() {}
            senders.push(other);
            assert!(senders.len() < 100);
        }
        assert_eq!(takes_messages(&name), Ok(false));
        systemd.recv(&mut [0; 8]).unwrap();
        assert_eq!(takes_messages(&name), Ok(true));
    }
}
