//! Keeps a pidfd for the init process of each container and sandbox, so that the kernel reports its end at once (P8).
//!
//! The report is only a hint; the runtime's response decides. The kernel may reuse a PID between that response and
//! `pidfd_open`. A process is therefore accepted as the container's only if its cgroup path contains the container's
//! id (runc and crun put the id there, with both cgroup drivers). A container that does not run as such a process, for
//! example in a virtual machine, is not watched.

use crate::api::names::Uid;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};

/// Upper bound for the size of `/proc/<pid>/cgroup`, in bytes.
const MAX_CGROUPS: u64 = 64 << 10;

#[derive(Debug)]
struct ProcessWatch {
    uid: Uid,
    id: String,
    pid: u32,
    fd: OwnedFd,
}

/// All watches, indexed by token and by the id of the container or sandbox.
#[derive(Debug, Default)]
pub struct Pidfds {
    watches: BTreeMap<usize, ProcessWatch>,
    tokens: BTreeMap<String, usize>,
}

impl Pidfds {
    /// Watches the process until it ends. `token` must never have been used before.
    ///
    /// # Errors
    /// The process is gone, its cgroup does not contain `id`, or the pidfd cannot be opened or registered. In these
    /// cases the container or sandbox is not watched.
    pub fn watch(&mut self, registry: &Registry, token: Token, uid: Uid, id: &str, pid: u32) -> Result<(), String> {
        self.unwatch(registry, id);
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no such process")?;
        let fd = pidfd_open(process, PidfdFlags::NONBLOCK).map_err(|e| format!("failed to open a pidfd: {e}"))?;
        // Read after the open: the descriptor and the file belong to the same process, or the process is gone.
        let cgroups = cgroups(pid).map_err(|e| format!("failed to read /proc/{pid}/cgroup: {e}"))?;
        if id.is_empty() || !cgroups.contains(id) {
            return Err(format!("the cgroup of process {pid} does not contain the id"));
        }
        registry
            .register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)
            .map_err(|e| format!("failed to watch a pidfd: {e}"))?;
        self.watches.insert(token.0, ProcessWatch { uid, id: id.to_owned(), pid, fd });
        self.tokens.insert(id.to_owned(), token.0);
        Ok(())
    }

    /// Returns the id of each watched container or sandbox, and the UID of its pod.
    pub fn watched(&self) -> impl Iterator<Item = (&str, &Uid)> {
        self.watches.values().map(|w| (w.id.as_str(), &w.uid))
    }

    /// Returns the PID, the id of the container or sandbox, and the UID of its pod.
    pub fn of(&self, token: Token) -> Option<(u32, &str, &Uid)> {
        self.watches.get(&token.0).map(|w| (w.pid, w.id.as_str(), &w.uid))
    }

    /// Removes the watch of a container or sandbox. Does nothing if there is none.
    pub fn unwatch(&mut self, registry: &Registry, id: &str) {
        if let Some(token) = self.tokens.remove(id) {
            self.close(registry, token);
        }
    }

    pub fn owns(&self, token: Token) -> bool {
        self.watches.contains_key(&token.0)
    }

    /// Removes the watch after the poll reported its token: the process has ended.
    pub fn ended(&mut self, registry: &Registry, token: Token) -> Option<(Uid, String)> {
        let watch = self.close(registry, token.0)?;
        self.tokens.remove(&watch.id);
        Some((watch.uid, watch.id))
    }

    fn close(&mut self, registry: &Registry, token: usize) -> Option<ProcessWatch> {
        let watch = self.watches.remove(&token)?;
        // A failure does not matter, because closing the descriptor also removes the registration.
        let _ = registry.deregister(&mut SourceFd(&watch.fd.as_raw_fd()));
        Some(watch)
    }
}

fn cgroups(pid: u32) -> std::io::Result<String> {
    // One read usually suffices.
    let mut text = String::with_capacity(4096);
    File::open(format!("/proc/{pid}/cgroup"))?.take(MAX_CGROUPS).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};
    use std::process::{Child, Command};
    use std::time::Duration;

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    /// Returns a part of this process's cgroup path. Child processes share it, so it serves as an id.
    fn shared_id() -> String {
        cgroups(std::process::id()).unwrap().lines().next().unwrap().to_owned()
    }

    #[test]
    fn p8_an_exit_is_reported_once_and_ends_the_watch() {
        let mut poll = Poll::new().unwrap();
        let mut child = sleeper();
        let mut pidfds = Pidfds::default();
        let id = shared_id();
        pidfds.watch(poll.registry(), Token(7), "u".into(), &id, child.id()).unwrap();
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_millis(20))).unwrap();
        assert!(events.is_empty(), "the process is alive");
        child.kill().unwrap();
        poll.poll(&mut events, Some(Duration::from_secs(30))).unwrap();
        assert_eq!(events.iter().map(|e| e.token()).collect::<Vec<_>>(), [Token(7)]);
        assert_eq!(pidfds.ended(poll.registry(), Token(7)), Some((Uid::from("u"), id)));
        assert!(pidfds.watches.is_empty() && pidfds.ended(poll.registry(), Token(7)).is_none());
        child.wait().unwrap();
    }

    #[test]
    fn p8_a_process_of_another_container_is_not_watched() {
        let poll = Poll::new().unwrap();
        let mut child = sleeper();
        let mut pidfds = Pidfds::default();
        let error = pidfds.watch(poll.registry(), Token(7), "u".into(), "0123abcd0123abcd", child.id()).unwrap_err();
        assert!(error.contains("does not contain the id"), "{error}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(pidfds.watch(poll.registry(), Token(8), "u".into(), "x", 0).is_err());
        assert!(pidfds.watches.is_empty());
    }

    #[test]
    fn a_second_watch_of_one_id_replaces_the_first() {
        let poll = Poll::new().unwrap();
        let mut child = sleeper();
        let mut pidfds = Pidfds::default();
        let id = shared_id();
        for token in [7, 8] {
            pidfds.watch(poll.registry(), Token(token), "u".into(), &id, child.id()).unwrap();
        }
        assert!(!pidfds.owns(Token(7)) && pidfds.owns(Token(8)) && pidfds.watches.len() == 1);
        pidfds.unwatch(poll.registry(), &id);
        assert!(pidfds.watches.is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
