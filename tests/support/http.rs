//! Blocking HTTP requests over TCP or a unix socket.

use std::io::{self, BufRead, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

pub fn get_unix(socket: &Path, path: &str) -> io::Result<Response> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    exchange(stream, "GET", path)
}

/// Calls `each` for every line of a streamed body, until the server closes the connection.
pub fn lines_unix(socket: &Path, path: &str, mut each: impl FnMut(&str)) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    // HTTP/1.0 has no chunks. A chunk boundary could split a line.
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut lines = io::BufReader::new(stream).lines();
    for head in lines.by_ref() {
        if head?.trim().is_empty() {
            break;
        }
    }
    for line in lines {
        each(&line?);
    }
    Ok(())
}

/// Sends a GET. `address` is `host:port`.
pub fn get_tcp(address: &str, path: &str) -> io::Result<Response> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    exchange(stream, "GET", path)
}

pub fn exchange(stream: impl Read + Write, method: &str, path: &str) -> io::Result<Response> {
    exchange_with(stream, method, path, "")
}

/// Like `exchange`. `fields` are further header fields, each with its line ending.
pub fn exchange_with(stream: impl Read + Write, method: &str, path: &str, fields: &str) -> io::Result<Response> {
    exchange_body(stream, method, path, fields, "")
}

/// Like `exchange_with`, with a body. `fields` contains its length.
pub fn exchange_body(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    fields: &str,
    body: &str,
) -> io::Result<Response> {
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n{body}")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_string());
    let split = bytes.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(|| bad("no end of the head"))?;
    let head = String::from_utf8_lossy(&bytes[..split]).into_owned();
    let body = &bytes[split + 4..];
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(|| bad("no status"))?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunk(body).ok_or_else(|| bad("bad chunks"))? } else { body.to_vec() };
    Ok(Response { status, head, body: String::from_utf8_lossy(&body).into_owned() })
}

/// Returns the data of a chunked body. None if it is not complete.
pub fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..line]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        rest = &rest[line + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}
