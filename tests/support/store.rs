//! A stand-in for systemd's descriptor store: it keeps the descriptors that Wherry sends to NOTIFY_SOCKET and passes
//! them to the next process with LISTEN_FDS, as systemd does for a service.

use super::agent::Agent;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

pub struct Store {
    path: PathBuf,
    socket: UnixDatagram,
    kept: Vec<(String, OwnedFd)>,
    /// All messages received, each with its lines joined by spaces.
    messages: Vec<String>,
}

impl Store {
    pub fn new(dir: &Path) -> Store {
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).expect("notify");
        socket.set_nonblocking(true).expect("nonblocking");
        Store { path, socket, kept: Vec::new(), messages: Vec::new() }
    }

    /// Makes the agent send its notifications to this store. The agent receives no descriptors. Takes effect at the
    /// next start.
    pub fn listen_to(&self, agent: &mut Agent) {
        agent.set("NOTIFY_SOCKET", &self.path.display().to_string());
    }

    /// Makes the agent send its notifications to this store and receive the descriptors that are stored now. Takes
    /// effect at the next start.
    pub fn serve(&mut self, agent: &mut Agent) {
        agent.set("NOTIFY_SOCKET", &self.path.display().to_string());
        let names: Vec<String> = self.names();
        let pid = std::process::id();
        let paths: Vec<String> = self.kept.iter().map(|(_, fd)| format!("/proc/{pid}/fd/{}", fd.as_raw_fd())).collect();
        agent.set("STORED", &paths.join(" "));
        agent.set("LISTEN_FDS", &names.len().to_string());
        agent.set("LISTEN_FDNAMES", &names.join(":"));
        // The descriptors are FIFOs. Opening one through /proc adds a writer.
        let give = "n=3; for f in $STORED; do eval \"exec $n>$f\"; n=$((n+1)); done; LISTEN_PID=$$ exec \"$@\"";
        agent.under = vec!["sh", "-c", give, "sh"];
    }

    /// Returns the names of the stored descriptors, in the order of arrival.
    pub fn names(&mut self) -> Vec<String> {
        self.read();
        self.kept.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Returns the messages that have arrived since the last call.
    pub fn messages(&mut self) -> Vec<String> {
        self.read();
        std::mem::take(&mut self.messages)
    }

    /// Returns the messages up to the first one that contains all of `parts`, or None if it has not arrived. Later
    /// messages are kept for the next call.
    pub fn messages_until(&mut self, parts: &[&str]) -> Option<Vec<String>> {
        self.read();
        let at = self.messages.iter().position(|m| parts.iter().all(|part| m.contains(part)))?;
        Some(self.messages.drain(..=at).collect())
    }

    /// Fills the socket's queue, as if systemd did not read: the socket accepts no message until the next read.
    pub fn fill(&self) {
        let filler = UnixDatagram::unbound().expect("a socket");
        filler.connect(&self.path).expect("connected");
        filler.set_nonblocking(true).expect("nonblocking");
        while filler.send(b"filler").is_ok() {}
    }

    /// Stores a descriptor, as if a previous run of Wherry had stored it.
    pub fn put(&mut self, name: &str, fd: OwnedFd) {
        self.kept.push((name.to_owned(), fd));
    }

    fn read(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let received =
                recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
            let Ok(received) = received else { return };
            let text = String::from_utf8_lossy(&bytes[..received.bytes]).into_owned();
            let mut fds = Vec::new();
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(more) = message {
                    fds.extend(more);
                }
            }
            let lines: Vec<&str> = text.lines().collect();
            let name = lines.iter().find_map(|l| l.strip_prefix("FDNAME=")).unwrap_or("stored");
            if lines.contains(&"FDSTORE=1") {
                self.kept.extend(fds.into_iter().map(|fd| (name.to_owned(), fd)));
            }
            if lines.contains(&"FDSTOREREMOVE=1") {
                self.kept.retain(|(n, _)| n != name);
            }
            self.messages.push(lines.join(" "));
        }
    }
}
