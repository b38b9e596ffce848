//! A connected socket, TCP, TLS or unix, and the client at its other end.

use crate::net::tls::session::Session;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A TCP client, whose user is unknown.
    Tcp,
    /// The user id of a unix socket's client, as the kernel reports it.
    User(u32),
}

pub enum Stream {
    Tcp(TcpStream),
    Tls(Box<Session>),
    Unix(UnixStream),
}

impl Stream {
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE | Interest::WRITABLE)
    }

    pub fn reregister(&mut self, registry: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        registry.reregister(self.source(), token, interest)
    }

    pub fn deregister(&mut self, registry: &Registry) {
        // An error does not matter: the close that follows also removes the registration.
        let _ = registry.deregister(self.source());
    }

    /// Shuts down the write side.
    pub fn finish(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.shutdown(Shutdown::Write),
            Stream::Tls(s) => s.finish(),
            Stream::Unix(s) => s.shutdown(Shutdown::Write),
        }
    }

    /// Returns the peer's certificate in DER, which TLS has verified. None before the end of the handshake.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        match self {
            Stream::Tls(s) => s.peer_certificate(),
            Stream::Tcp(_) | Stream::Unix(_) => None,
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(s) => s,
            Stream::Tls(s) => s.socket(),
            Stream::Unix(s) => s,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.read(buf),
            Stream::Tls(s) => s.read(buf),
            Stream::Unix(s) => s.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.write(buf),
            Stream::Tls(s) => s.write(buf),
            Stream::Unix(s) => s.write(buf),
        }
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.write_vectored(buffers),
            Stream::Tls(s) => s.write(buffers.iter().find(|b| !b.is_empty()).map_or(&[][..], |b| b)),
            Stream::Unix(s) => s.write_vectored(buffers),
        }
    }

    /// Writes the data that TLS has encrypted and not sent yet. The other streams hold nothing back.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tls(s) => s.flush(),
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
        }
    }
}

/// Reports whether the connection is open. Returns false while it is being opened.
///
/// # Errors
/// The connection cannot be opened.
pub fn connected(stream: &TcpStream) -> io::Result<bool> {
    if let Some(e) = stream.take_error()? {
        return Err(e);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotConnected => Ok(false),
        Err(e) => Err(e),
    }
}
