//! Opens a connection: TCP, TLS, and HTTP/2 up to the server's SETTINGS, to one address after the other until one of
//! them succeeds. Each address has its own time limits.

use super::peer::Peer;
use super::request::CallId;
use super::times::Times;
use crate::api::time::Boot;
use crate::net::http2::link::{Health, Link};
use crate::net::http2::socket::Socket;
use crate::net::stream::{Stream, connected};
use crate::net::tls::session::{ByteCount, Session};
use crate::net::tls::verified::HandshakeFailure;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustix::net::sockopt::set_tcp_user_timeout;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

/// The kernel closes a connection whose data the peer does not acknowledge for this time, in milliseconds.
const USER_TIMEOUT: u32 = 15_000;

pub(super) struct Opening {
    pub(super) token: Token,
    peer: Peer,
    address: SocketAddr,
    /// The deadline of the stage. The TLS handshake and the wait for SETTINGS share one.
    pub(super) until: Boot,
    stage: OpeningStage,
    /// Whether the socket may be ready.
    look: bool,
    rest: VecDeque<SocketAddr>,
    failed: Vec<(SocketAddr, String)>,
    times: Times,
    byte_count: Arc<ByteCount>,
}

enum OpeningStage {
    Tcp(TcpStream),
    Tls(Box<Session>),
    Greeting(Box<Link<CallId>>),
    /// The attempt has failed.
    Failed(String),
}

pub(super) enum OpeningProgress {
    Pending {
        again: bool,
    },
    Open {
        link: Link<CallId>,
        address: SocketAddr,
        peer: Peer,
    },
    /// No address could be reached. The text names each address and the reason.
    Failed(String),
}

impl Opening {
    /// Starts to connect to the first address. Returns None if `addresses` is empty.
    pub(super) fn new(
        token: Token,
        peer: Peer,
        addresses: &[SocketAddr],
        times: Times,
        byte_count: Arc<ByteCount>,
        registry: &Registry,
        now: Boot,
    ) -> Option<Opening> {
        let mut rest: VecDeque<SocketAddr> = addresses.iter().copied().collect();
        let address = rest.pop_front()?;
        let stage = connect(address, registry, token);
        Some(Opening {
            token,
            peer,
            address,
            until: now + times.connect,
            stage,
            look: true,
            rest,
            failed: Vec::new(),
            times,
            byte_count,
        })
    }

    pub(super) fn ready(&mut self) {
        self.look = true;
    }

    pub(super) fn advance(&mut self, registry: &Registry, now: Boot) -> OpeningProgress {
        loop {
            let stage = std::mem::replace(&mut self.stage, OpeningStage::Failed("the attempt is over".to_owned()));
            let look = std::mem::take(&mut self.look);
            let (stage, again) = match stage {
                OpeningStage::Tcp(stream) => match connected(&stream) {
                    Ok(false) => (OpeningStage::Tcp(stream), false),
                    Ok(true) => match self.start_tls(stream, now) {
                        Ok(session) => {
                            self.stage = OpeningStage::Tls(Box::new(session));
                            continue;
                        }
                        Err(e) => (OpeningStage::Failed(text(&e)), false),
                    },
                    Err(e) => (OpeningStage::Failed(text(&e)), false),
                },
                OpeningStage::Tls(mut session) => match session.handshake() {
                    Ok(false) => (OpeningStage::Tls(session), false),
                    Ok(true) => match self.start_http(session, registry) {
                        Ok(link) => {
                            (self.stage, self.look) = (OpeningStage::Greeting(Box::new(link)), true);
                            continue;
                        }
                        Err(why) => (OpeningStage::Failed(why), false),
                    },
                    Err(e) => (OpeningStage::Failed(handshake_error(&e)), false),
                },
                OpeningStage::Greeting(mut link) => match link.drive(look, |_| {}) {
                    Health::Good { .. } if link.is_greeted() => {
                        return OpeningProgress::Open { link: *link, address: self.address, peer: self.peer.clone() };
                    }
                    Health::Good { again } => (OpeningStage::Greeting(link), again),
                    Health::Leaving { why, .. } => (OpeningStage::Failed(why), false),
                    // With TLS 1.3, the server verifies the client's certificate only after the client has completed
                    // its handshake.
                    Health::Over { why, .. } if why.contains("fatal alert") => {
                        (OpeningStage::Failed(format!("the server refuses the client's certificate ({why})")), false)
                    }
                    Health::Over { why, .. } => (OpeningStage::Failed(why), false),
                },
                OpeningStage::Failed(why) => (OpeningStage::Failed(why), false),
            };
            self.stage = stage;
            let why = match &self.stage {
                OpeningStage::Failed(why) => why.clone(),
                _ if self.until > now => return OpeningProgress::Pending { again },
                OpeningStage::Tcp(_) => format!("no connection within {} s", self.times.connect.as_secs()),
                OpeningStage::Tls(_) => format!("no TLS handshake within {} s", self.times.greeting.as_secs()),
                OpeningStage::Greeting(_) => {
                    format!("connected, but no response (HTTP/2 SETTINGS) within {} s", self.times.greeting.as_secs())
                }
            };
            self.failed.push((self.address, why));
            let Some(next) = self.rest.pop_front() else { return OpeningProgress::Failed(self.reasons()) };
            (self.address, self.until, self.look) = (next, now + self.times.connect, true);
            self.stage = connect(next, registry, self.token);
        }
    }

    fn start_tls(&mut self, stream: TcpStream, now: Boot) -> io::Result<Session> {
        stream.set_nodelay(true)?;
        set_tcp_user_timeout(&stream, USER_TIMEOUT)?;
        self.until = now + self.times.greeting;
        let mut session = self.peer.tls.connect(stream)?;
        session.count(self.byte_count.clone());
        Ok(session)
    }

    fn start_http(&self, session: Box<Session>, registry: &Registry) -> Result<Link<CallId>, String> {
        if session.protocol() != Some(b"h2") {
            return Err(HandshakeFailure::Protocol.to_string());
        }
        let mut stream = Stream::Tls(session);
        let registered = stream.reregister(registry, self.token, Interest::READABLE);
        let socket = registered.and_then(|()| Socket::on(stream, registry, self.token));
        let (socket, gauge) = socket.map_err(|e| text(&e))?;
        Link::new(socket, gauge)
    }

    /// Returns why each address failed. An address that the URL itself contains is not repeated.
    fn reasons(&self) -> String {
        let one = |(address, why): &(SocketAddr, String)| match address.to_string() == self.peer.authority() {
            true => why.clone(),
            false => format!("{address}: {why}"),
        };
        self.failed.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

fn connect(address: SocketAddr, registry: &Registry, token: Token) -> OpeningStage {
    let opened = TcpStream::connect(address).and_then(|mut stream| {
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(stream)
    });
    match opened {
        Ok(stream) => OpeningStage::Tcp(stream),
        Err(e) => OpeningStage::Failed(text(&e)),
    }
}

fn handshake_error(e: &io::Error) -> String {
    if e.kind() == ErrorKind::UnexpectedEof {
        return "the server closed the connection during the TLS handshake".to_owned();
    }
    HandshakeFailure::of(e).map_or_else(|| text(e), |failure| failure.to_string())
}

/// Returns the text of an error with a lower-case first letter and without the error number.
fn text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}
