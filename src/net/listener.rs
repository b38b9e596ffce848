//! A listening socket, TCP or unix. If it cannot be opened, the listener logs the error and retries with a back-off. No
//! client can connect to a unix socket whose file was removed. inotify reports the removal, without a periodic check,
//! and the listener creates the socket again.

use crate::api::time::Boot;
use crate::net::backoff::Backoff;
use crate::net::stream::{Peer, Stream};
use inotify::{Inotify, WatchMask};
use mio::net::{TcpListener, UnixListener, UnixStream};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// The minimum time between two log lines about the same error.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// The pause after accept failed because descriptors or memory are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Unix(path) => path.display().fmt(f),
            Place::Tcp(address) => address.fmt(f),
        }
    }
}

enum Socket {
    /// The socket; the device and inode of its file, so that only this file is removed; and the inotify watch of the
    /// file.
    Unix(UnixListener, (u64, u64), Option<Inotify>),
    /// The socket and its local address, which each turn of the loop needs.
    Tcp(TcpListener, SocketAddr),
}

pub struct Listener {
    /// For the log: the name of the listener, and the configuration field that contains its address.
    name: &'static str,
    field: &'static str,
    place: Place,
    socket: Option<Socket>,
    /// When to try again to listen or to accept.
    retry_at: Option<Boot>,
    backoff: Backoff,
    told_at: Option<Boot>,
    may_accept: bool,
}

impl Listener {
    /// Creates a listener. It opens its socket at the first `drive`. The log uses `name` as the name of the listener,
    /// and `field` as the configuration field that contains its address.
    pub fn new(name: &'static str, field: &'static str, place: Place) -> Listener {
        Listener {
            name,
            field,
            place,
            socket: None,
            retry_at: Some(Boot(0)),
            backoff: Backoff::new(FIRST_RETRY, LAST_RETRY),
            told_at: None,
            may_accept: false,
        }
    }

    pub fn is_listening(&self) -> bool {
        self.socket.is_some()
    }

    pub fn ready(&mut self) {
        self.may_accept = true;
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        self.retry_at
    }

    /// Returns the TCP address of the socket, with the port that the kernel chose if port 0 is configured.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Some(Socket::Tcp(_, address)) => Some(*address),
            _ => None,
        }
    }

    /// Does what is due: opens the socket, replaces it if its file was removed, or resumes accepting after a pause.
    pub fn drive(&mut self, registry: &Registry, token: Token, now: Boot) {
        if self.may_accept && self.file_is_gone() {
            log::warn!("the file of the socket was removed; creating the socket again path={}", self.place);
            self.close(Some(registry));
            self.retry_at = Some(now);
        }
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        self.retry_at = None;
        if self.socket.is_some() {
            self.may_accept = true;
            return;
        }
        self.backoff.attempt(now);
        match open(&self.place, registry, token) {
            Ok(socket) => {
                log::info!("listening on={} listener={}", self.place, self.name);
                self.socket = Some(socket);
                self.may_accept = true;
                self.backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
                self.told_at = None;
            }
            Err(e) => {
                let retry_at = self.backoff.next(now);
                if self.told_at.is_none_or(|at| now.since(at) >= TELL_AGAIN) {
                    log::error!(
                        "cannot listen on={} field={} error={:?} retry={:?}",
                        self.place,
                        self.field,
                        e.to_string(),
                        retry_at.since(now)
                    );
                    self.told_at = Some(now);
                }
                self.retry_at = Some(retry_at);
            }
        }
    }

    /// Listens on another TCP address. If that fails, the listener keeps its address.
    ///
    /// # Errors
    /// The new address cannot be opened.
    pub fn move_to(&mut self, address: SocketAddr, registry: &Registry, token: Token) -> io::Result<()> {
        let place = Place::Tcp(address);
        if self.place == place {
            return Ok(());
        }
        // The kernel does not let a process listen on 127.0.0.1:6443 and 0.0.0.0:6443 at the same time, so close the
        // old socket first.
        let same_port = matches!(self.place, Place::Tcp(old) if old.port() == address.port());
        if same_port {
            self.close(Some(registry));
            // The next `drive` opens the old address again, unless the new one can be opened now.
            self.retry_at = Some(Boot(0));
        }
        let socket = open(&place, registry, token)?;
        self.close(Some(registry));
        log::info!("listening on={place} instead_of={} listener={}", self.place, self.name);
        (self.place, self.socket) = (place, Some(socket));
        (self.told_at, self.may_accept) = (None, true);
        self.backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        Ok(())
    }

    /// Reports whether the socket's file has been removed or renamed since the last call. Checks the file only after
    /// an inotify event.
    fn file_is_gone(&mut self) -> bool {
        let (Some(Socket::Unix(_, file, Some(inotify))), Place::Unix(path)) = (&mut self.socket, &self.place) else {
            return false;
        };
        let mut buffer = [0; 1024];
        let mut changed = false;
        // Read to the end: the poll is edge-triggered and reports only later events.
        while inotify.read_events(&mut buffer).is_ok_and(|mut events| events.next().is_some()) {
            changed = true;
        }
        changed && file_id(path).map_or(true, |id| id != *file)
    }

    /// Accepts the next waiting connection, if there is one.
    pub fn accept(&mut self, now: Boot) -> Option<(Stream, Peer)> {
        while self.may_accept {
            let accepted = match &self.socket {
                Some(Socket::Unix(listener, ..)) => listener.accept().map(|(s, _)| {
                    let peer = user_of(&s);
                    (Stream::Unix(s), peer)
                }),
                Some(Socket::Tcp(listener, _)) => listener.accept().map(|(s, _)| (Stream::Tcp(s), Peer::Tcp)),
                None => return None,
            };
            match accepted {
                Ok(accepted) => return Some(accepted),
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.may_accept = false,
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // EMFILE, ENFILE, ENOMEM and others: the connection stays in the queue, and the poll does not report it
                // again, so retry later.
                Err(e) => {
                    self.may_accept = false;
                    self.retry_at = Some(now + ACCEPT_PAUSE);
                    if self.told_at.is_none_or(|at| now.since(at) >= TELL_AGAIN) {
                        log::warn!("cannot accept on={} error={:?}", self.place, e.to_string());
                        self.told_at = Some(now);
                    }
                }
            }
        }
        None
    }

    /// Stops listening. Removes the socket's file if it still belongs to this listener.
    pub fn close(&mut self, registry: Option<&Registry>) {
        match self.socket.take() {
            Some(Socket::Unix(mut listener, file, _)) => {
                if let Some(registry) = registry {
                    let _ = registry.deregister(&mut listener);
                }
                if let Place::Unix(path) = &self.place
                    && file_id(path).is_ok_and(|id| id == file)
                {
                    let _ = std::fs::remove_file(path);
                }
            }
            Some(Socket::Tcp(mut listener, _)) => {
                if let Some(registry) = registry {
                    let _ = registry.deregister(&mut listener);
                }
            }
            None => {}
        }
        self.retry_at = None;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close(None);
    }
}

/// Returns the user of the client (SO_PEERCRED). If the kernel does not report it, the client is not treated as root.
fn user_of(stream: &UnixStream) -> Peer {
    let credentials = rustix::net::sockopt::socket_peercred(stream);
    Peer::User(credentials.map_or(u32::MAX, |c| c.uid.as_raw()))
}

fn open(place: &Place, registry: &Registry, token: Token) -> io::Result<Socket> {
    match place {
        Place::Tcp(address) => {
            let mut listener = TcpListener::bind(*address)?;
            let bound = listener.local_addr()?;
            registry.register(&mut listener, token, Interest::READABLE)?;
            Ok(Socket::Tcp(listener, bound))
        }
        Place::Unix(path) => {
            let mut listener = bind_unix(path)?;
            registry.register(&mut listener, token, Interest::READABLE)?;
            Ok(Socket::Unix(listener, file_id(path)?, watch(path, registry, token)))
        }
    }
}

/// Watches the socket's file with inotify, under the listener's token. Without the watch, nothing detects that the file
/// was removed.
fn watch(path: &Path, registry: &Registry, token: Token) -> Option<Inotify> {
    let mask = WatchMask::ATTRIB | WatchMask::DELETE_SELF | WatchMask::MOVE_SELF | WatchMask::DONT_FOLLOW;
    let watched = Inotify::init().and_then(|inotify| {
        inotify.watches().add(path, mask)?;
        registry.register(&mut SourceFd(&inotify.as_raw_fd()), token, Interest::READABLE)?;
        Ok(inotify)
    });
    watched.map_err(|e| log::debug!("failed to watch the socket's file path={} error={e:?}", path.display())).ok()
}

/// Opens a listening socket with mode 0660. Replaces the file of a process that has ended, but not of a running one.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {
            // mio's connect does not block. A full queue is an error, and proves that a process is listening.
            match UnixStream::connect(path) {
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                _ => return Err(io::Error::new(ErrorKind::AddrInUse, "another process is listening on it")),
            }
        }
        Ok(_) => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "the file exists and is not a socket"));
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let mode = Mode::from_raw_mode(0o660);
    // bind(2) creates the file with the socket's mode (less the umask), so the file is never more accessible.
    rustix::fs::fchmod(&socket, mode)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::fs::chmod(path, mode)?;
    rustix::net::listen(&socket, 128)?;
    Ok(UnixListener::from_std(socket.into()))
}

fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()))
}
