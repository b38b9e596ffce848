//! Checks whether a bus answers before libdbus connects to it. libdbus uses a blocking connect(2), which hangs if the
//! bus accepts no connections and its backlog is full. The probe therefore opens a non-blocking socket first and sends
//! the first line of the D-Bus authentication. An answer shows that the bus accepts and reads, so libdbus may connect.
//! A stopped bus (SIGSTOP) costs one socket; the answer arrives when the bus continues.

use super::address::{BusAddress, BusSocket};
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;

/// A zero byte for the credentials, and a request for the authentication mechanisms. Any line is accepted as an
/// answer.
const QUESTION: &[u8] = b"\0AUTH\r\n";

pub(super) struct Probe {
    stream: UnixStream,
    /// The address that is probed.
    pub(super) place: BusAddress,
}

pub(super) enum Answered {
    Yes,
    NotYet,
    No(String),
}

impl Probe {
    /// Starts a probe; `read` returns its result.
    ///
    /// # Errors
    /// The connection failed, or the backlog of the socket is full.
    pub(super) fn begin(place: &BusAddress, registry: &Registry, token: Token) -> Result<Probe, String> {
        let failed = |e: &io::Error| match e.kind() {
            ErrorKind::WouldBlock => {
                format!("connect to {place}: it accepts no connections and its backlog is full")
            }
            _ => format!("connect to {place}: {e}"),
        };
        let connected = match &place.socket {
            BusSocket::Path(path) => UnixStream::connect(path),
            BusSocket::Abstract(name) => {
                SocketAddr::from_abstract_name(name).and_then(|a| UnixStream::connect_addr(&a))
            }
        };
        let mut stream = connected.map_err(|e| failed(&e))?;
        // The buffer of a new socket has space for seven bytes, so the write does not block.
        stream.write_all(QUESTION).map_err(|e| failed(&e))?;
        registry.register(&mut stream, token, Interest::READABLE).map_err(|e| failed(&e))?;
        Ok(Probe { stream, place: place.clone() })
    }

    pub(super) fn read(&mut self) -> Answered {
        let mut answer = [0; 256];
        match self.stream.read(&mut answer) {
            Ok(0) => Answered::No(format!("{}: the bus closed the connection without a response", self.place)),
            Ok(_) => Answered::Yes,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Answered::NotYet,
            Err(e) => Answered::No(format!("{}: {e}", self.place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::address;
    use super::*;
    use mio::Poll;
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    fn place(path: &std::path::Path) -> BusAddress {
        address::parse(&format!("unix:path={}", path.display())).unwrap().remove(0)
    }

    #[test]
    fn a_probe_of_a_socket_without_an_accepting_process_never_blocks() {
        let poll = Poll::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus");
        let error = Probe::begin(&place(&path), poll.registry(), Token(1)).err().unwrap();
        assert!(error.contains("bus: No such file"), "{error}");
        let listener = UnixListener::bind(&path).unwrap();
        let mut probe = Probe::begin(&place(&path), poll.registry(), Token(1)).unwrap();
        assert!(matches!(probe.read(), Answered::NotYet));
        // Fill the backlog.
        let begin = Instant::now();
        let mut waiting = 0;
        let error = loop {
            // A connection that this side has closed stays in the backlog.
            match Probe::begin(&place(&path), poll.registry(), Token(2)) {
                Ok(_) => waiting += 1,
                Err(e) => break e,
            }
            assert!(waiting < 100_000, "the queue is never full");
        };
        assert!(error.contains("accepts no connections"), "{error}");
        assert!(begin.elapsed().as_secs() < 10);
        // The bus continues.
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.write_all(b"REJECTED EXTERNAL\r\n").unwrap();
        assert!(matches!(probe.read(), Answered::Yes));
        drop((listener, accepted));
        std::fs::remove_file(&path).unwrap();
    }
}
