//! A connection to the runtime's streaming server: a non-blocking socket, the upgrade to SPDY, and an output queue.

use crate::net::spdy::{Reader, SpdyEvent, StreamId, Writer, upgrade};
use crate::net::tls::client as tls;
use http::Uri;
use mio::net::TcpStream;
use rustix::event::PollFlags;
use std::io::{self, ErrorKind, Read, Write};
use std::net::ToSocketAddrs as _;
use std::os::fd::{AsFd, BorrowedFd};

/// Size of the read buffer, in bytes.
const READ: usize = 64 * 1024;
/// Maximum number of reads in one call, so that other connections are served too.
const READS: usize = 4;

pub struct SpdyConnection {
    socket: StreamSocket,
    state: SpdyState,
    writer: Writer,
    /// Frames that have not been sent yet. They are sent after the upgrade.
    queue: Queue,
    buffer: Vec<u8>,
    /// Whether TLS may have buffered input, which poll no longer reports for the socket.
    more: bool,
    /// The name of the server, for error messages.
    server: String,
}

enum StreamSocket {
    Plain(TcpStream),
    Tls(Box<tls::Client<TcpStream>>),
}

enum SpdyState {
    /// The upgrade request is being sent, or the head of its response is being read.
    Upgrading {
        request: Queue,
        response: Vec<u8>,
    },
    Open(Reader),
}

/// Bytes that are waiting to be sent.
#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    sent: usize,
}

impl Queue {
    fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Sends as much as the socket accepts.
    fn send(&mut self, socket: &mut StreamSocket) -> io::Result<()> {
        while self.len() > 0 {
            match socket.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if self.len() == 0 {
            self.bytes.clear();
        } else if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
        } else {
            return Ok(());
        }
        self.sent = 0;
        Ok(())
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadProgress {
    /// All input that has arrived was read.
    Waiting,
    /// There may be more input: read again without waiting.
    Again,
    /// The server has closed the connection.
    Closed,
}

impl SpdyConnection {
    /// Connects to the URL that the runtime returned. `protocol` is the protocol on top of SPDY.
    ///
    /// # Errors
    /// The URL does not belong to a streaming server, or the connection fails.
    pub fn start(url: &str, protocol: &str) -> Result<SpdyConnection, String> {
        let invalid = || format!("the runtime returned {url:?}, which is not the URL of a streaming server");
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let (scheme, authority) = uri.scheme_str().zip(uri.authority()).ok_or_else(invalid)?;
        let tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(invalid()),
        };
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let server = format!("the runtime's streaming server at {authority}");
        let failed = |e: io::Error| format!("cannot connect to {server}: {e}");
        let mut addresses = (host, port).to_socket_addrs().map_err(failed)?;
        let address = addresses.next().ok_or_else(invalid)?;
        let stream = TcpStream::connect(address).map_err(failed)?;
        // Without this option, keystrokes would wait for the acknowledgement of earlier ones.
        let _ = stream.set_nodelay(true);
        let socket =
            if tls { StreamSocket::Tls(Box::new(tls::client(host, stream)?)) } else { StreamSocket::Plain(stream) };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Queue { bytes: upgrade::request(authority.as_str(), path, protocol), sent: 0 };
        let state = SpdyState::Upgrading { request, response: Vec::new() };
        let (writer, queue) = (Writer::default(), Queue::default());
        Ok(SpdyConnection { socket, state, writer, queue, buffer: vec![0; READ], more: false, server })
    }

    /// Returns the poll events to wait for. `read` tells whether the caller wants more input.
    pub fn interest(&self, read: bool) -> PollFlags {
        let output = match &self.state {
            SpdyState::Upgrading { request, .. } => request.len() > 0,
            SpdyState::Open(_) => self.queue.len() > 0,
        };
        let (output, input) = match &self.socket {
            StreamSocket::Plain(_) => (output, false),
            // A TLS handshake needs input, and may have output of its own.
            StreamSocket::Tls(tls) => (output || tls.conn.wants_write(), tls.conn.is_handshaking()),
        };
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::OUT, output);
        flags.set(PollFlags::IN, read || input || matches!(self.state, SpdyState::Upgrading { .. }));
        flags
    }

    /// Returns the number of bytes that have not been sent yet.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Sends as much of the queue as possible without blocking.
    ///
    /// # Errors
    /// The connection is lost, or was never established.
    pub fn send(&mut self) -> Result<(), String> {
        let queue = match &mut self.state {
            SpdyState::Upgrading { request, .. } => request,
            SpdyState::Open(_) => &mut self.queue,
        };
        queue.send(&mut self.socket).map_err(|e| format!("{}: {e}", self.server))?;
        match self.socket.flush() {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(format!("{}: {e}", self.server)),
            _ => Ok(()),
        }
    }

    /// Reads what has arrived, and passes it to `on`. Pings are answered here.
    ///
    /// # Errors
    /// The server refuses the upgrade or violates the protocol, or the connection is lost.
    pub fn read(&mut self, on: &mut dyn FnMut(SpdyEvent<'_>)) -> Result<ReadProgress, String> {
        self.more = false;
        for _ in 0..READS {
            match self.socket.read(&mut self.buffer) {
                Ok(0) => return self.closed(),
                Ok(n) => self.arrived(n, on)?,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(ReadProgress::Waiting),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // Servers often close a TLS connection without the prescribed close_notify.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return self.closed(),
                Err(e) => return Err(format!("{}: {e}", self.server)),
            }
        }
        self.more = matches!(self.socket, StreamSocket::Tls(_));
        Ok(ReadProgress::Again)
    }

    /// Reports whether `read` must be called without waiting for the descriptor.
    pub fn has_more(&self) -> bool {
        self.more
    }

    fn closed(&self) -> Result<ReadProgress, String> {
        match &self.state {
            SpdyState::Upgrading { .. } => Err(format!("{} closed the connection without a response", self.server)),
            SpdyState::Open(reader) if !reader.is_between_frames() => {
                Err(format!("{} closed the connection in the middle of a frame", self.server))
            }
            SpdyState::Open(_) => Ok(ReadProgress::Closed),
        }
    }

    fn arrived(&mut self, n: usize, on: &mut dyn FnMut(SpdyEvent<'_>)) -> Result<(), String> {
        let mut input = &self.buffer[..n];
        let head;
        if let SpdyState::Upgrading { response, .. } = &mut self.state {
            response.extend_from_slice(input);
            let refused = |e| format!("{} refuses the stream: {e}", self.server);
            let Some(length) = upgrade::response(response).map_err(refused)? else { return Ok(()) };
            head = std::mem::take(response);
            input = &head[length..];
            self.state = SpdyState::Open(Reader::default());
        }
        let SpdyState::Open(reader) = &mut self.state else { return Ok(()) };
        while let Some(event) = reader.next(&mut input).map_err(|e| format!("{}: {e}", self.server))? {
            match event {
                SpdyEvent::Ping(id) => self.writer.pong(id, &mut self.queue.bytes),
                event => on(event),
            }
        }
        Ok(())
    }

    /// Opens a stream. Returns None if the connection has no stream ids left.
    pub fn open(&mut self, headers: &[(&str, &str)]) -> Option<StreamId> {
        self.writer.open(headers, &mut self.queue.bytes)
    }

    /// Queues data for a stream.
    pub fn data(&mut self, stream: StreamId, bytes: &[u8]) {
        self.writer.data(stream, bytes, &mut self.queue.bytes);
    }

    /// Ends the client's side of a stream.
    pub fn end(&mut self, stream: StreamId) {
        self.writer.end(stream, &mut self.queue.bytes);
    }
}

impl AsFd for SpdyConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            StreamSocket::Plain(stream) => stream.as_fd(),
            StreamSocket::Tls(tls) => tls.sock.stream.as_fd(),
        }
    }
}

impl Read for StreamSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            StreamSocket::Plain(stream) => stream.read(buffer),
            StreamSocket::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for StreamSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            StreamSocket::Plain(stream) => stream.write(bytes),
            StreamSocket::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            StreamSocket::Plain(stream) => stream.flush(),
            StreamSocket::Tls(tls) => tls.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, Timespec, poll};
    use std::net::TcpListener;
    use std::thread;

    /// Drives the connection until it is closed or fails. Returns the received events.
    fn drive(connection: &mut SpdyConnection) -> Result<Vec<String>, String> {
        let mut events = Vec::new();
        loop {
            let interest = connection.interest(true);
            poll(&mut [PollFd::new(&*connection, interest)], Some(&Timespec { tv_sec: 30, tv_nsec: 0 })).unwrap();
            connection.send()?;
            if connection.read(&mut |event| events.push(format!("{event:?}")))? == ReadProgress::Closed {
                return Ok(events);
            }
        }
    }

    /// Starts a server that reads a request, sends `answer`, and then reads `wanted` more bytes. Returns its URL and
    /// thread.
    fn served(wanted: usize, answer: &'static [u8]) -> (String, thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/exec/token", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                request.push(byte[0]);
            }
            stream.write_all(answer).unwrap();
            let mut rest = vec![0; wanted];
            stream.read_exact(&mut rest).unwrap();
            request.extend(rest);
            request
        });
        (url, server)
    }

    #[test]
    fn frames_follow_the_upgrade_and_pings_are_answered() {
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n\r\n\
                       \x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x02\x00\x00\x00\x01\x01\x00\x00\x02ok";
        let (url, server) = served(10 + 12, answer);
        let mut connection = SpdyConnection::start(&url, "v4.channel.k8s.io").unwrap();
        connection.data(StreamId(3), b"in");
        let events = drive(&mut connection).unwrap();
        assert_eq!(events, ["Data { stream: StreamId(1), bytes: [111, 107] }", "End { stream: StreamId(1) }"]);
        let request = server.join().unwrap();
        assert!(request.starts_with(b"POST /exec/token HTTP/1.1\r\nHost: 127.0.0.1:"));
        assert!(
            request.ends_with(b"\x00\x00\x00\x03\x00\x00\x00\x02in\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x02")
        );
    }

    #[test]
    fn a_refusal_a_lost_server_and_an_odd_url_are_errors() {
        let (url, server) = served(0, b"HTTP/1.1 404 Not Found\r\n\r\nno");
        let error = drive(&mut SpdyConnection::start(&url, "x").unwrap()).unwrap_err();
        assert!(error.ends_with("refuses the stream: the URL is no longer valid; try again"), "{error}");
        server.join().unwrap();
        let (url, server) = served(0, b"");
        let error = drive(&mut SpdyConnection::start(&url, "x").unwrap()).unwrap_err();
        assert!(error.ends_with("closed the connection without a response"), "{error}");
        server.join().unwrap();
        // The server no longer listens.
        let error = drive(&mut SpdyConnection::start(&url, "x").unwrap()).unwrap_err();
        assert!(error.contains("refused"), "{error}");
        for url in ["", "/exec/token", "unix:///run/x", "ftp://127.0.0.1/x"] {
            let error = SpdyConnection::start(url, "x").map(|_| ()).unwrap_err();
            assert!(error.contains("not the URL of a streaming server"), "{error}");
        }
    }
}
