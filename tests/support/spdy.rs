//! A blocking client of a streaming server: the runtime's own server, or Wherry's API.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use wherry::net::spdy::{Reader, SpdyEvent, StreamId, Writer, upgrade};

const READ: usize = 64 * 1024;
/// The protocols above SPDY.
pub const REMOTE_COMMAND: &str = "v4.channel.k8s.io";
pub const PORT_FORWARD: &str = "portforward.k8s.io";

pub struct Spdy<S> {
    stream: S,
    writer: Writer,
    reader: Reader,
    buffer: Vec<u8>,
    /// The length of the input in `buffer` that follows the response.
    rest: usize,
}

/// Connects to the URL that a runtime has returned.
pub fn connect(url: &str, protocol: &str) -> io::Result<Spdy<TcpStream>> {
    let rest = url.strip_prefix("http://").ok_or(io::ErrorKind::InvalidInput)?;
    let (host, path) = rest.split_at(rest.find('/').ok_or(io::ErrorKind::InvalidInput)?);
    let stream = TcpStream::connect(host)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    Spdy::start(stream, host, path, protocol)
}

impl<S: Read + Write> Spdy<S> {
    /// Upgrades an open connection to SPDY.
    pub fn start(mut stream: S, host: &str, path: &str, protocol: &str) -> io::Result<Spdy<S>> {
        stream.write_all(&upgrade::request(host, path, protocol))?;
        stream.flush()?;
        let (mut buffer, mut length) = (vec![0; READ], 0);
        loop {
            match stream.read(&mut buffer[length..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => length += n,
            }
            let head = upgrade::response(&buffer[..length]).map_err(|e| io::Error::other(e.to_string()))?;
            if let Some(head) = head {
                buffer.copy_within(head..length, 0);
                let (writer, reader) = (Writer::default(), Reader::default());
                return Ok(Spdy { stream, writer, reader, buffer, rest: length - head });
            }
        }
    }

    /// Opens a stream for each list of headers.
    pub fn open<const N: usize>(&mut self, streams: [&[(&str, &str)]; N]) -> io::Result<[StreamId; N]> {
        let mut out = Vec::new();
        let ids = streams.map(|headers| self.writer.open(headers, &mut out).expect("a stream id"));
        self.stream.write_all(&out)?;
        self.stream.flush()?;
        Ok(ids)
    }

    pub fn send(&mut self, stream: StreamId, bytes: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        self.writer.data(stream, bytes, &mut out);
        self.stream.write_all(&out)
    }

    pub fn end(&mut self, stream: StreamId) -> io::Result<()> {
        let mut out = Vec::new();
        self.writer.end(stream, &mut out);
        self.stream.write_all(&out)?;
        self.stream.flush()
    }

    /// Reads until `wanted` bytes of this stream have arrived, or the stream has ended. Returns their number.
    pub fn receive(&mut self, of: StreamId, wanted: usize) -> io::Result<usize> {
        let mut received = 0;
        loop {
            let length = match std::mem::take(&mut self.rest) {
                0 => self.stream.read(&mut self.buffer)?,
                n => n,
            };
            if length == 0 {
                return Ok(received);
            }
            let (mut input, mut has_ended) = (&self.buffer[..length], false);
            while let Some(event) = self.reader.next(&mut input).map_err(|e| io::Error::other(e.to_string()))? {
                match event {
                    SpdyEvent::Data { stream, bytes } if stream == of => received += bytes.len(),
                    SpdyEvent::End { stream } | SpdyEvent::Reset { stream, .. } => has_ended |= stream == of,
                    SpdyEvent::Data { .. } | SpdyEvent::Ping(_) | SpdyEvent::GoAway => {}
                }
            }
            if has_ended || received >= wanted {
                return Ok(received);
            }
        }
    }
}
