//! The part of HTTP/1.1 that a small server needs: GET, HEAD and POST, small request bodies, keep-alive, pipelining,
//! and HTTP/1.0 for simple clients. Parses bytes and formats heads; does no I/O. The caller says what it accepts for
//! each path.

/// The maximum length of a request line with its headers, in bytes.
pub const MAX_HEAD: usize = 8 * 1024;
const MAX_HEADERS: usize = 64;

/// What a server accepts for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepts {
    pub methods: &'static [&'static str],
    /// The maximum length of a request body, in bytes. If it is 0, a request must not have a body.
    pub body: usize,
    /// Whether `Head::fields` is needed.
    pub fields: bool,
}

/// The parts of a request head that the server uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The length of the head, in bytes. The body follows, then the next request.
    pub length: usize,
    /// The length of the body, in bytes.
    pub body: usize,
    /// The method, which is one of those that the path accepts.
    pub method: &'static str,
    pub is_head: bool,
    pub http10: bool,
    pub keep_alive: bool,
    /// The path as the client sent it, with percent-encoding.
    pub path: String,
    pub query: String,
    /// The header fields in their order, if they are needed. A value that is not UTF-8 is omitted.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// Returns the values of a header field. A comma-separated list in one field is one value.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The head is incomplete.
    Partial,
    Head(Head),
    /// Send this status and close the connection, because the start of the next request is unknown.
    Refused(u16, &'static str),
    /// Like `Refused` with status 405. Contains the methods that the path accepts.
    WrongMethod(&'static [&'static str]),
}

/// Parses the head at the start of `input`. `accepts` returns what the server accepts for a path.
pub fn parse(input: &[u8], accepts: impl Fn(&str) -> Accepts) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(input) {
        Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(httparse::Status::Partial) if input.len() < MAX_HEAD => return Parsed::Partial,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Parsed::Refused(431, "the request head is too large"),
        Err(httparse::Error::Version) => return Parsed::Refused(505, "only HTTP/1.1 and HTTP/1.0 are supported"),
        Err(_) => return Parsed::Refused(400, "not a valid HTTP request"),
    };
    // `Complete` guarantees all three.
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Parsed::Refused(400, "not a valid HTTP request");
    };
    let http10 = minor == 0;
    let mut keep_alive = !http10;
    let (mut hosts, mut lengths, mut unmeasured) = (0, Vec::new(), false);
    for header in request.headers.iter() {
        let name = header.name;
        if name.eq_ignore_ascii_case("host") {
            hosts += 1;
        } else if name.eq_ignore_ascii_case("content-length") {
            lengths.push(content_length(header.value));
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            unmeasured = true;
        } else if name.eq_ignore_ascii_case("connection") {
            for word in header.value.split(|b| *b == b',') {
                if word.trim_ascii().eq_ignore_ascii_case(b"close") {
                    keep_alive = false;
                } else if word.trim_ascii().eq_ignore_ascii_case(b"keep-alive") && http10 {
                    keep_alive = true;
                }
            }
        }
    }
    if hosts > 1 || (hosts == 0 && !http10) {
        return Parsed::Refused(400, "a request must have exactly one Host header");
    }
    let (path, query) = split_target(target);
    let accepts = accepts(path);
    let Some(&method) = accepts.methods.iter().find(|m| **m == method) else {
        return Parsed::WrongMethod(accepts.methods);
    };
    let body = match body_length(lengths, unmeasured, accepts.body) {
        Ok(body) => body,
        Err((status, why)) => return Parsed::Refused(status, why),
    };
    Parsed::Head(Head {
        length,
        body,
        method,
        is_head: method == "HEAD",
        http10,
        keep_alive,
        path: path.to_owned(),
        query: query.to_owned(),
        fields: if accepts.fields { fields(request.headers) } else { Vec::new() },
    })
}

/// Returns the length of the body. `unmeasured` means that the request has a Transfer-Encoding.
fn body_length(
    mut lengths: Vec<Option<usize>>,
    unmeasured: bool,
    accepted: usize,
) -> Result<usize, (u16, &'static str)> {
    lengths.dedup();
    match lengths[..] {
        _ if unmeasured && accepted > 0 => Err((411, "the request needs a Content-Length")),
        _ if unmeasured => Err((413, "this request must not have a body")),
        [] | [Some(0)] => Ok(0),
        [Some(_)] if accepted == 0 => Err((413, "this request must not have a body")),
        [Some(n)] if n > accepted => Err((413, "the request body is too large")),
        [Some(n)] => Ok(n),
        // Refuse two different lengths, because they can be used for request smuggling.
        _ => Err((400, "Content-Length must be a single number")),
    }
}

fn fields(headers: &[httparse::Header<'_>]) -> Vec<(String, String)> {
    let text = |h: &httparse::Header<'_>| Some((h.name.to_owned(), std::str::from_utf8(h.value).ok()?.to_owned()));
    headers.iter().filter_map(text).collect()
}

/// Parses a Content-Length: only digits (RFC 9110, 8.6), with optional surrounding spaces or tabs. A sign or a list,
/// even of equal numbers, is refused, because a proxy may interpret it differently.
fn content_length(value: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Returns the path and query of `/path?query`, or of `http://host/path?query`, which a server must also accept (RFC
/// 9112, 3.2.2).
fn split_target(target: &str) -> (&str, &str) {
    let origin = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => rest.find('/').map_or("/", |i| &rest[i..]),
        _ => target,
    };
    origin.split_once('?').unwrap_or((origin, ""))
}

/// Reports whether the query contains `name` with a value other than `0` or `false`.
pub fn query_has(query: &str, name: &str) -> bool {
    query.split('&').any(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        key == name && !matches!(value, "0" | "false")
    })
}

/// Returns the first value of `name` in the query. It is not percent-decoded, because a UID needs no encoding.
pub fn value_of<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// How a response marks the end of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Length(usize),
    Chunked,
    /// The server closes the connection. HTTP/1.0 has no other way to end a body of unknown length.
    Close,
}

/// Formats the head of a response. `head` is the head of the request, if it was valid. `headers` are additional
/// fields.
pub fn response_head(
    status: u16,
    content_type: &str,
    framing: Framing,
    head: Option<&Head>,
    keep: bool,
    headers: &[(&str, String)],
) -> Vec<u8> {
    let mut out = String::with_capacity(192);
    out.push_str("HTTP/1.1 ");
    out.push_str(&status.to_string());
    out.push(' ');
    out.push_str(reason(status));
    out.push_str("\r\nContent-Type: ");
    out.push_str(content_type);
    out.push_str("\r\nCache-Control: no-store\r\n");
    match framing {
        Framing::Length(n) => {
            out.push_str("Content-Length: ");
            out.push_str(&n.to_string());
            out.push_str("\r\n");
        }
        Framing::Chunked => out.push_str("Transfer-Encoding: chunked\r\n"),
        Framing::Close => {}
    }
    for (name, value) in headers {
        out.push_str(name);
        out.push_str(": ");
        // Replace control characters: a line break would begin another field.
        out.extend(value.chars().map(|c| if c.is_control() { ' ' } else { c }));
        out.push_str("\r\n");
    }
    if !keep {
        out.push_str("Connection: close\r\n");
    } else if head.is_some_and(|h| h.http10) {
        out.push_str("Connection: keep-alive\r\n");
    }
    out.push_str("\r\n");
    out.into_bytes()
}

fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

/// Appends one chunk with the data that `fill` appends. Omits an empty chunk, because it would end the body.
pub fn chunk(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    // Reserve eight digits (leading zeros are allowed), so that the length can be filled in later without moving the
    // data.
    out.extend_from_slice(b"00000000\r\n");
    let body = out.len();
    fill(out);
    let length = out.len() - body;
    if length == 0 {
        out.truncate(start);
        return;
    }
    out[start..start + 8].copy_from_slice(format!("{length:08x}").as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts a POST with a body for `/drain`, and reads of every other path.
    fn parsed(input: &[u8]) -> Parsed {
        parse(input, |path| match path {
            "/drain" => Accepts { methods: &["POST"], body: 128 * 1024, fields: true },
            _ => Accepts { methods: &["GET", "HEAD"], body: 0, fields: false },
        })
    }

    fn head(text: &str) -> Head {
        match parsed(text.as_bytes()) {
            Parsed::Head(head) => head,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn refused(text: &str) -> u16 {
        match parsed(text.as_bytes()) {
            Parsed::Refused(status, _) => status,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn keep_alive_follows_the_http_version() {
        assert!(head("GET / HTTP/1.1\r\nHost: x\r\n\r\n").keep_alive);
        assert!(!head("GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n").keep_alive);
        assert!(!head("GET / HTTP/1.1\r\nHost: x\r\nConnection: foo, close\r\n\r\n").keep_alive);
        assert!(!head("GET / HTTP/1.0\r\n\r\n").keep_alive);
        assert!(head("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").keep_alive);
    }

    #[test]
    fn targets_are_split() {
        let h = head("GET http://localhost/healthz?verbose HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!((h.path.as_str(), h.query.as_str()), ("/healthz", "verbose"));
        let h = head("GET /pods?next=http://a/b&watch=true HTTP/1.0\r\n\r\nGET");
        assert_eq!(h.path, "/pods");
        assert!(query_has(&h.query, "watch") && !query_has(&h.query, "verbose"));
        assert!(!query_has("watch=0", "watch") && !query_has("watch=false", "watch") && query_has("a&watch", "watch"));
        assert_eq!(head("GET http://localhost HTTP/1.0\r\n\r\n").path, "/");
    }

    #[test]
    fn each_unsupported_request_has_its_own_error_status() {
        assert_eq!(refused("GET /pods HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"), 413);
        assert_eq!(refused("GET /pods HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"), 413);
        assert_eq!(refused("GET /pods HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n"), 400);
        assert_eq!(refused("GET /pods HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(refused("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"), 400);
        assert_eq!(refused("GET / HTTP/2.0\r\n\r\n"), 505);
        assert_eq!(refused("\u{1}\u{2}\u{3}"), 400);
        assert_eq!(refused(&format!("GET / HTTP/1.0\r\n{}\r\n", "a: b\r\n".repeat(65))), 431);
        assert_eq!(refused(&format!("GET /{} HTTP/1.0\r\n\r\n", "a".repeat(MAX_HEAD))), 431);
        assert_eq!(parsed(b"GET / HTTP/1.1\r\nHo"), Parsed::Partial);
    }

    #[test]
    fn a_body_is_measured_and_not_large() {
        let with = |more: &str| {
            let text = format!("POST /drain HTTP/1.1\r\nHost: x\r\n{more}\r\n{{\"uids\": []}}");
            parsed(text.as_bytes())
        };
        let Parsed::Head(head) = with("Content-Length: 12\r\nContent-Length: 12\r\n") else { panic!() };
        assert_eq!(head.body, 12);
        for more in ["Content-Length: 00012\r\n", "content-length:12 \t\r\n"] {
            let Parsed::Head(head) = with(more) else { panic!("{more}") };
            assert_eq!(head.body, 12, "{more}");
        }
        let Parsed::Head(head) = with("") else { panic!() };
        assert_eq!(head.body, 0);
        for (more, status) in [
            ("Content-Length: 131073\r\n", 413),
            ("Content-Length: 99999999999999999999999\r\n", 400),
            ("Content-Length: -1\r\n", 400),
            ("Content-Length: +5\r\n", 400),
            ("Content-Length: 5, 5\r\n", 400),
            ("Content-Length: 1 2\r\n", 400),
            ("Content-Length: 0x5\r\n", 400),
            ("Content-Length: 5.0\r\n", 400),
            ("Content-Length:\r\n", 400),
            ("Content-Length: \u{661}\r\n", 400),
            ("Content-Length : 5\r\n", 400),
            ("Content-Length: 12\r\nContent-Length: +12\r\n", 400),
            ("Content-Length: 12\r\nTransfer-Encoding: identity\r\n", 411),
            ("transfer-encoding: \r\n", 411),
            ("Content-Length: 12\r\nContent-Length: 13\r\n", 400),
            ("Transfer-Encoding: chunked\r\n", 411),
            ("Transfer-Encoding: chunked\r\nContent-Length: 12\r\n", 411),
        ] {
            assert!(matches!(with(more), Parsed::Refused(s, _) if s == status), "{more}: {:?}", with(more));
        }
    }

    #[test]
    fn a_value_of_a_query_is_the_first_of_its_name() {
        assert_eq!(value_of("watch=1&uid=4a57-F6&uid=b&x", "uid"), Some("4a57-F6"));
        assert_eq!((value_of("uid=", "uid"), value_of("uid", "uid"), value_of("a=uid", "uid")), (Some(""), None, None));
    }

    #[test]
    fn a_chunk_carries_its_length_and_an_empty_one_is_none() {
        let mut out = Vec::new();
        chunk(&mut out, |o| o.extend_from_slice(b"hello"));
        chunk(&mut out, |_| {});
        assert_eq!(out, b"00000005\r\nhello\r\n");
    }
}
