//! The HTTP/1.1 request that upgrades a connection to SPDY.

use std::fmt;

/// Maximum length of the response's head, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// How much of the text of a refusal is kept, in bytes.
const MAX_TEXT: usize = 1024;

/// Returns the request. `host` is the host and port of the URL, `protocol` the name of the protocol above SPDY.
pub fn request(host: &str, path: &str, protocol: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

/// The server does not upgrade to SPDY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    NotHttp,
    /// The status, and the beginning of the text, as far as it has arrived.
    Status(u16, String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NotHttp => f.write_str("the response is not HTTP"),
            // The server drops the token of the URL after its first use, or after a minute.
            Refused::Status(404, _) => f.write_str("the URL is no longer valid; try again"),
            Refused::Status(status, text) if text.is_empty() => write!(f, "HTTP status {status}"),
            Refused::Status(status, text) => write!(f, "HTTP status {status}: {text}"),
        }
    }
}

/// Parses the response. Returns the length of its head, after which SPDY begins, or None if the head is incomplete.
///
/// # Errors
/// The server refuses.
pub fn response(received: &[u8]) -> Result<Option<usize>, Refused> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(received) {
        Ok(httparse::Status::Partial) if received.len() < MAX_HEAD => Ok(None),
        Ok(httparse::Status::Partial) | Err(_) => Err(Refused::NotHttp),
        Ok(httparse::Status::Complete(length)) => match response.code {
            Some(101) => Ok(Some(length)),
            code => {
                let text = &received[length..received.len().min(length + MAX_TEXT)];
                Err(Refused::Status(code.unwrap_or(0), String::from_utf8_lossy(text).trim().to_owned()))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spdy_begins_after_the_head_of_the_response() {
        let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
        for n in 0..head.len() {
            assert_eq!(response(&head[..n]), Ok(None));
        }
        assert_eq!(response(head), Ok(Some(head.len())));
        assert_eq!(response(&[head, &b"\x80\x03"[..]].concat()), Ok(Some(head.len())));
    }

    #[test]
    fn every_other_answer_is_a_refusal() {
        let gone = response(b"HTTP/1.1 404 Not Found\r\n\r\nnot found\n").unwrap_err();
        assert_eq!(gone.to_string(), "the URL is no longer valid; try again");
        let text = response(b"HTTP/1.1 500 Oops\r\n\r\nno such container\n").unwrap_err();
        assert_eq!(text.to_string(), "HTTP status 500: no such container");
        assert_eq!(response(b"\x80\x03\x00\x01"), Err(Refused::NotHttp));
        let endless = [&b"HTTP/1.1 101 x\r\nA: "[..], &vec![b'a'; MAX_HEAD]].concat();
        assert_eq!(response(&endless), Err(Refused::NotHttp));
    }
}
