//! systemd as our service manager: its notification socket (sd_notify(3)), by which it is told how the service does, and the
//! descriptors that it keeps for us while wherry restarts. Without NOTIFY_SOCKET, that is without systemd, everything here is
//! nothing.
//!
//! What systemd keeps has a name, and is removed by its name only. It is told not to look at a descriptor (FDPOLL=0): of a FIFO
//! whose other end is closed for a moment, as while logind restarts, it would let go.

use crate::api::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sd_notify::NotifyState;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// systemd takes messages of a page; a line of `systemctl status` is shorter, in bytes.
const MAX_STATUS: usize = 1024;

/// What systemd is told of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// It is up; also: the configuration has been read again.
    Ready,
    /// It reads its configuration again, from now on until `Ready`.
    Reloading,
    /// It ends, because it was told to.
    Stopping,
    /// What it is at: the line `Status:` of systemctl status.
    Status(&'a str),
    /// It is not stuck.
    Alive,
}

/// Is there somebody to be told?
pub fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// How often it wants to hear `Said::Alive` (WATCHDOG_USEC, meant for this process), if at all. At half of that is right.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|period| is_there() && !period.is_zero())
}

/// All in one message.
///
/// # Errors
/// Why it could not be told.
pub fn tell(said: &[Said<'_>]) -> Result<(), String> {
    let statuses: Vec<String> =
        said.iter().filter_map(|s| if let Said::Status(text) = s { Some(one_line(text)) } else { None }).collect();
    let mut texts = statuses.iter();
    let mut state = Vec::with_capacity(said.len() + 1);
    for s in said {
        match s {
            Said::Ready => state.push(NotifyState::Ready),
            Said::Reloading => {
                state.push(NotifyState::Reloading);
                // By which a systemd of 253 or newer (Type=notify-reload) tells this one from an earlier.
                let now = NotifyState::monotonic_usec_now().map_err(|e| format!("read the monotonic clock: {e}"))?;
                state.push(now);
            }
            Said::Stopping => state.push(NotifyState::Stopping),
            Said::Status(_) => state.extend(texts.next().map(|text| NotifyState::Status(text))),
            Said::Alive => state.push(NotifyState::Watchdog),
        }
    }
    notify(&state, &[])
}

/// A line is a message of its own: what others wrote (a manifest, a runtime's message) must not begin one.
fn one_line(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if printable::is_plain(c) { c } else { ' ' }).collect();
    if line.len() > MAX_STATUS {
        let mut end = MAX_STATUS - 3;
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        line.truncate(end);
        line.push_str("...");
    }
    line
}

/// Has systemd keep a copy of the descriptor (FDSTORE). The unit's FileDescriptorStoreMax has to allow it, which systemd does not
/// tell.
///
/// # Errors
/// Why it could not be told.
pub fn store(name: &str, fd: BorrowedFd<'_>) -> Result<(), String> {
    notify(&[NotifyState::FdStore, NotifyState::FdName(name), NotifyState::Custom("FDPOLL=0")], &[fd])
        .map_err(|e| format!("have systemd keep {name}: {e}"))
}

/// Has systemd let go of all that it keeps by that name (FDSTOREREMOVE); fine if there is nothing.
///
/// # Errors
/// Why it could not be told.
pub fn remove(name: &str) -> Result<(), String> {
    notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)], &[])
        .map_err(|e| format!("have systemd let go of {name}: {e}"))
}

fn notify(state: &[NotifyState<'_>], fds: &[BorrowedFd<'_>]) -> Result<(), String> {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    // The library's socket waits where the queue is full: on a systemd that hangs, for ever.
    if !takes_messages(&socket)? {
        return Err(format!("{}: systemd does not read its messages", socket.display()));
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

/// What is to be seen of a descriptor right now.
fn events(fd: BorrowedFd<'_>, wanted: PollFlags) -> rustix::io::Result<PollFlags> {
    let mut fds = [PollFd::from_borrowed_fd(fd, wanted)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(fds[0].revents())
}

/// True if nobody has the other end of this FIFO.
pub fn is_broken(fd: BorrowedFd<'_>) -> bool {
    events(fd, PollFlags::empty()).is_ok_and(|e| e.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL))
}

/// The descriptors that systemd has given to this process, with their names. To be called once, before anything is opened: they
/// are closed with what is returned. They are closed at exec.
pub fn inherited() -> Vec<(String, OwnedFd)> {
    let given = sd_listen_fds::get().unwrap_or_else(|e| {
        log::warn!("descriptors given by systemd are not taken (LISTEN_PID, LISTEN_FDS) error={:?}", e.to_string());
        Vec::new()
    });
    let mut kept = Vec::with_capacity(given.len());
    for (name, fd) in given {
        let (name, fd) = (name.unwrap_or_default(), fd.into_std());
        match rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC) {
            Ok(()) => kept.push((name, fd)),
            Err(e) => {
                // There is no such descriptor, so nothing to close.
                std::mem::forget(fd);
                log::warn!("a descriptor given by systemd is not there name={name:?} error={:?}", e.to_string());
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
    fn a_broken_fifo_is_seen() {
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
    fn a_full_queue_is_seen_before_it_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = path.clone().into_os_string();
        assert!(takes_messages(&name).unwrap_err().contains("notify: No such file"));
        let systemd = UnixDatagram::bind(&path).unwrap();
        assert_eq!(takes_messages(&name), Ok(true));
        let other = UnixDatagram::unbound().unwrap();
        other.connect(&path).unwrap();
        other.set_nonblocking(true).unwrap();
        while other.send(b"x").is_ok() {}
        assert_eq!(takes_messages(&name), Ok(false));
        systemd.recv(&mut [0; 8]).unwrap();
        assert_eq!(takes_messages(&name), Ok(true));
    }
}
