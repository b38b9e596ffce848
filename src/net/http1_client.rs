//! The part of HTTP/1.1 that a probe needs: writes a GET request, and parses the response incrementally. Does no I/O.

use std::fmt::Write as _;

/// The maximum length of all response heads together, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// The maximum number of informational responses (1xx) before the response.
const MAX_INFORMATIONAL: usize = 5;
const MAX_HEADERS: usize = 128;
/// The maximum number of bytes that chunk sizes and trailers may add to a body.
const MAX_FRAMING: usize = 16 * 1024;

/// A GET request on its own connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The value of the header `Host`.
    pub host: &'a str,
    /// The path with the query. Starts with `/`.
    pub target: &'a str,
    pub user_agent: &'a str,
    /// Additional headers. A `Host`, `User-Agent` or `Accept` header replaces the default one; an empty `User-Agent`
    /// or `Accept` removes it. A `Connection` header is ignored.
    pub headers: &'a [(String, String)],
}

impl Get<'_> {
    /// Returns the bytes of the request. Names and values must not contain line breaks.
    pub fn bytes(&self) -> Vec<u8> {
        let own = |name: &str| self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str());
        let mut text = String::with_capacity(256);
        // Writing to a String cannot fail.
        let _ = write!(text, "GET {} HTTP/1.1\r\nHost: {}\r\n", self.target, own("Host").unwrap_or(self.host));
        for (name, default) in [("User-Agent", self.user_agent), ("Accept", "*/*")] {
            let value = own(name).unwrap_or(default);
            if !value.is_empty() {
                let _ = write!(text, "{name}: {value}\r\n");
            }
        }
        text.push_str("Connection: close\r\n");
        for (name, value) in self.headers {
            let replaced = ["Host", "User-Agent", "Accept", "Connection"].iter().any(|n| n.eq_ignore_ascii_case(name));
            if !replaced {
                let _ = write!(text, "{name}: {value}\r\n");
            }
        }
        text.push_str("\r\n");
        text.into_bytes()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub location: Option<String>,
    /// The body, cut off at the limit of the reader.
    pub body: Vec<u8>,
}

/// The error for a response that is not valid HTTP/1. The text is human-readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Parses one response.
#[derive(Debug)]
pub struct ResponseReader {
    input: Vec<u8>,
    most: usize,
    /// The number of informational responses so far, and the bytes of their heads.
    informational: (usize, usize),
    head: Option<Head>,
}

#[derive(Debug)]
struct Head {
    status: u16,
    location: Option<String>,
    framing: Framing,
}

#[derive(Clone, Copy, Debug)]
enum Framing {
    Length(usize),
    Chunked,
    UntilEnd,
}

impl ResponseReader {
    /// Creates a reader. `most` is how many bytes of the body the caller needs: the response is complete once they have
    /// arrived.
    pub fn new(most: usize) -> ResponseReader {
        ResponseReader { input: Vec::new(), most, informational: (0, 0), head: None }
    }

    /// Reports whether the head of the response has arrived.
    pub fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// Adds input. Returns the response once it is complete.
    ///
    /// # Errors
    /// The input is not a response.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Response>, Malformed> {
        self.input.extend_from_slice(bytes);
        self.response(false)
    }

    /// Handles the end of the input, and returns the response.
    ///
    /// # Errors
    /// The response is incomplete.
    pub fn end(&mut self) -> Result<Response, Malformed> {
        self.response(true)?.ok_or(Malformed(if self.head.is_some() { "unexpected EOF" } else { "EOF" }))
    }

    fn response(&mut self, ended: bool) -> Result<Option<Response>, Malformed> {
        // Informational responses (1xx) precede the response.
        while self.head.is_none() {
            let (count, bytes) = self.informational;
            let Some((length, head)) = parse_head(&self.input, MAX_HEAD - bytes)? else { return Ok(None) };
            self.input.drain(..length);
            // After 101 the server speaks another protocol.
            if !(100..200).contains(&head.status) || head.status == 101 {
                self.head = Some(head);
            } else if count >= MAX_INFORMATIONAL {
                return Err(Malformed("more than 5 informational responses (1xx)"));
            } else {
                self.informational = (count + 1, bytes + length);
            }
        }
        let Some(head) = &self.head else { return Ok(None) };
        let body = match head.framing {
            Framing::Length(length) => {
                let wanted = length.min(self.most);
                self.input.get(..wanted).map(<[u8]>::to_vec)
            }
            Framing::UntilEnd if ended || self.input.len() >= self.most => {
                Some(self.input[..self.input.len().min(self.most)].to_vec())
            }
            Framing::UntilEnd => None,
            Framing::Chunked => unchunked(&self.input, self.most)?,
        };
        Ok(body.map(|body| Response { status: head.status, location: head.location.clone(), body }))
    }
}

/// Parses a head of at most `most` bytes. Returns its length and its parts, or None if it is incomplete.
fn parse_head(input: &[u8], most: usize) -> Result<Option<(usize, Head)>, Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(input) {
        Ok(httparse::Status::Complete(length)) if length <= most => length,
        Ok(httparse::Status::Partial) if input.len() < most => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Malformed("the head of the response is too large"));
        }
        Err(_) => return Err(Malformed("malformed HTTP response")),
    };
    let status = response.code.unwrap_or_default();
    let value = |name: &str| {
        let header = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok().map(str::trim)
    };
    let chunked = value("Transfer-Encoding").is_some_and(|coding| coding.to_ascii_lowercase().ends_with("chunked"));
    let framing = match value("Content-Length") {
        _ if matches!(status, 101 | 204 | 304) => Framing::Length(0),
        _ if chunked => Framing::Chunked,
        None => Framing::UntilEnd,
        Some(length) => Framing::Length(length.parse().map_err(|_| Malformed("bad Content-Length"))?),
    };
    let location = value("Location").map(str::to_owned);
    Ok(Some((length, Head { status, location, framing })))
}

/// Decodes a chunked body. Returns it once it is complete or has `most` bytes.
fn unchunked(mut input: &[u8], most: usize) -> Result<Option<Vec<u8>>, Malformed> {
    let mut body = Vec::new();
    // A chunk size with extensions can be longer than its chunk, so the encoded input needs its own limit.
    let endless = input.len() > most + MAX_FRAMING;
    loop {
        let (start, size) = match httparse::parse_chunk_size(input) {
            Ok(httparse::Status::Complete((start, size))) => (start, usize::try_from(size).unwrap_or(usize::MAX)),
            Ok(httparse::Status::Partial) if endless => return Err(Malformed("malformed chunked encoding")),
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Malformed("malformed chunked encoding")),
        };
        if size == 0 {
            return Ok(Some(body));
        }
        let data = &input[start..];
        body.extend_from_slice(&data[..data.len().min(size).min(most - body.len())]);
        if body.len() >= most {
            return Ok(Some(body));
        }
        // CR LF follows the data of a chunk.
        match size.checked_add(2).and_then(|end| data.get(end..)) {
            Some(rest) => input = rest,
            None if endless => return Err(Malformed("malformed chunked encoding")),
            None => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&str]) -> Result<Option<Response>, Malformed> {
        let mut reader = ResponseReader::new(10);
        for part in parts {
            if let Some(response) = reader.feed(part.as_bytes())? {
                return Ok(Some(response));
            }
        }
        Ok(None)
    }

    fn body(parts: &[&str]) -> Option<String> {
        read(parts).unwrap().map(|response| String::from_utf8(response.body).unwrap())
    }

    #[test]
    fn a_request_has_the_default_headers_unless_they_are_replaced() {
        let headers = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
        };
        let text = |headers: &[(String, String)]| {
            let get = Get { host: "10.0.0.5:80", target: "/x?y=1", user_agent: "kube-probe/1.33", headers };
            String::from_utf8(get.bytes()).unwrap()
        };
        let default = "GET /x?y=1 HTTP/1.1\r\nHost: 10.0.0.5:80\r\nUser-Agent: kube-probe/1.33\r\nAccept: */*\r\n\
                       Connection: close\r\n\r\n";
        assert_eq!(text(&[]), default);
        let own =
            headers(&[("host", "shop.example"), ("Accept", ""), ("user-agent", "me"), ("X-A", "1"), ("X-A", "2")]);
        assert_eq!(
            text(&own),
            "GET /x?y=1 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: me\r\nConnection: close\r\nX-A: 1\r\nX-A: 2\r\n\
             \r\n"
        );
    }

    #[test]
    fn a_body_ends_with_its_length_its_last_chunk_or_the_connection() {
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(body(&[length, "he", "llo"]).as_deref(), Some("hello"));
        assert_eq!(body(&[length, "he"]), None);
        assert_eq!(body(&["HTTP/1.1 204 No Content\r\n\r\n"]).as_deref(), Some(""));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(body(&[chunked, "3\r\nhel\r", "\n2;x=y\r\nlo\r\n0\r\n\r\n"]).as_deref(), Some("hello"));
        assert_eq!(body(&[chunked, "3\r\nhe"]), None);
        let mut reader = ResponseReader::new(10);
        assert_eq!(reader.feed(b"HTTP/1.0 200 OK\r\n\r\nhello"), Ok(None));
        assert_eq!(reader.end().map(|r| r.body), Ok(b"hello".to_vec()));
    }

    #[test]
    fn a_body_is_read_up_to_the_limit() {
        for head in ["Content-Length: 1000000", "X: y", "Transfer-Encoding: chunked"] {
            let chunk = if head.starts_with('T') { "f4240\r\n" } else { "" };
            let text = format!("HTTP/1.1 500 Bad\r\n{head}\r\n\r\n{chunk}0123456789abcdef");
            assert_eq!(body(&[&text]).as_deref(), Some("0123456789"), "{head}");
        }
    }

    #[test]
    fn informational_responses_are_skipped_and_the_location_is_kept() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 302 Found\r\nLocation: /next \r\nContent-Length: 0\r\n\r\n";
        let response = read(&[text]).unwrap().unwrap();
        assert_eq!((response.status, response.location.as_deref()), (302, Some("/next")));
    }

    #[test]
    fn what_is_not_http_is_an_error() {
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(MAX_HEAD));
        for text in ["SSH-2.0-OpenSSH\r\n", "\0\0\0", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", &long] {
            assert!(read(&[text]).is_err(), "{text:.40}");
        }
        assert!(read(&["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]).is_err());
        let mut reader = ResponseReader::new(10);
        assert_eq!(reader.feed(b"HTTP/1.1 20"), Ok(None));
        assert_eq!(reader.end(), Err(Malformed("EOF")));
        let mut reader = ResponseReader::new(10);
        assert_eq!(reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"), Ok(None));
        assert_eq!(reader.end(), Err(Malformed("unexpected EOF")));
    }

    #[test]
    fn five_informational_responses_may_precede_the_response() {
        let informational = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
        let fine = informational.repeat(5) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(read(&[&fine]).unwrap().map(|r| r.status), Some(200));
        assert_eq!(read(&[&informational.repeat(5)]), Ok(None));
        let error = read(&[&informational.repeat(6)]).unwrap_err();
        assert_eq!(error, Malformed("more than 5 informational responses (1xx)"));
        let switched = "HTTP/1.1 101 Switching Protocols\r\n\r\n";
        assert_eq!(read(&[switched]).unwrap().map(|r| r.status), Some(101));
    }

    #[test]
    fn all_heads_together_have_a_limit() {
        let head = |status: u32| format!("HTTP/1.1 {status} X\r\nX: {}\r\n\r\n", "x".repeat(15_000));
        assert!(read(&[&head(100).repeat(3), &head(204)]).unwrap().is_some());
        for last in [&head(204), &"x".repeat(9_000)] {
            assert_eq!(
                read(&[&head(100).repeat(4), "HTTP/1.1 200 OK\r\nX: ", last]),
                Err(Malformed("the head of the response is too large"))
            );
        }
    }

    #[test]
    fn chunk_sizes_that_are_longer_than_their_chunks_have_a_limit() {
        // Each part ends inside a chunk.
        let first = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{}\r\n", "x".repeat(4000));
        let further = format!("y\r\n1;{}\r\n", "x".repeat(4000));
        let parts: Vec<&str> = std::iter::once(&*first).chain(std::iter::repeat_n(&*further, 8)).collect();
        assert_eq!(read(&parts), Err(Malformed("malformed chunked encoding")));
    }
}
