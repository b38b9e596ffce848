//! The parts of gRPC above HTTP/2: message framing, percent-encoded status messages, and status codes. Pure.

use super::call_error::CallError;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

/// The maximum size of a message in either direction, in bytes; the same as in a kubelet.
pub const MAX_MESSAGE: usize = 16 << 20;

/// The prefix of a message: one byte for the compression flag, four for the length.
const PREFIX: usize = 5;

/// Adds the prefix to a message.
///
/// # Errors
/// The message is larger than `MAX_MESSAGE`.
pub fn frame(message: &Bytes) -> Result<Bytes, String> {
    let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= MAX_MESSAGE);
    let length = length.ok_or_else(|| over_limit(message.len(), MAX_MESSAGE))?;
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(length);
    framed.extend_from_slice(message);
    Ok(framed.freeze())
}

pub fn over_limit(length: usize, most: usize) -> String {
    let limit = if most >> 20 > 0 { format!("{} MiB", most >> 20) } else { format!("{} KiB", most >> 10) };
    format!("message of {length} bytes is over the limit of {limit}")
}

/// Splits a stream of bytes into messages. A message that arrives in one piece is not copied.
#[derive(Debug)]
pub struct Deframer {
    /// The maximum size of a message, in bytes.
    most: usize,
    prefix: [u8; PREFIX],
    /// Number of prefix bytes received.
    have: usize,
    /// The bytes of the current message received so far, after its prefix.
    body: BytesMut,
}

impl Deframer {
    /// Creates a deframer for messages of at most `most` bytes.
    pub fn new(most: usize) -> Deframer {
        Deframer { most, prefix: [0; PREFIX], have: 0, body: BytesMut::new() }
    }

    /// Calls `message` for each complete message.
    pub fn push(&mut self, mut bytes: Bytes, message: &mut impl FnMut(Bytes)) -> Result<(), String> {
        loop {
            if self.have < PREFIX {
                let take = bytes.len().min(PREFIX - self.have);
                self.prefix[self.have..self.have + take].copy_from_slice(&bytes[..take]);
                self.have += take;
                bytes.advance(take);
                if self.have < PREFIX {
                    return Ok(());
                }
                if self.prefix[0] != 0 {
                    return Err("the message is compressed although no compression was requested".to_string());
                }
                if self.length() > self.most {
                    return Err(over_limit(self.length(), self.most));
                }
            }
            let missing = self.length() - self.body.len();
            if self.body.is_empty() && bytes.len() >= missing {
                message(bytes.split_to(missing));
            } else {
                // Reserve the whole size at once: growing step by step would need twice the memory.
                self.body.reserve(missing);
                let take = bytes.len().min(missing);
                self.body.extend_from_slice(&bytes[..take]);
                bytes.advance(take);
                if take < missing {
                    return Ok(());
                }
                message(std::mem::take(&mut self.body).freeze());
            }
            self.have = 0;
        }
    }

    /// Reports whether an incomplete message is buffered.
    pub fn is_partial(&self) -> bool {
        self.have > 0
    }

    fn length(&self) -> usize {
        u32::from_be_bytes([self.prefix[1], self.prefix[2], self.prefix[3], self.prefix[4]]) as usize
    }
}

/// Returns the gRPC status in trailers (or in headers, for an answer without a message). None if it is missing.
pub fn status(headers: &HeaderMap) -> Option<Result<(), CallError>> {
    let code = headers.get("grpc-status")?.as_bytes();
    let code = std::str::from_utf8(code).ok().and_then(|c| c.parse::<u32>().ok());
    if code == Some(0) {
        return Some(Ok(()));
    }
    let message = headers.get("grpc-message").map_or_else(String::new, |m| percent_decode(m.as_bytes()));
    // A status that is not a number becomes UNKNOWN (2).
    Some(Err(CallError::Status { code: code.unwrap_or(2), message }))
}

/// Returns the content type of an answer (or `missing`) if it is not gRPC's, otherwise None.
pub fn other_content(headers: &HeaderMap) -> Option<String> {
    let Some(kind) = headers.get(http::header::CONTENT_TYPE) else { return Some("missing".to_owned()) };
    let rest = kind.as_bytes().strip_prefix(b"application/grpc");
    // A suffix (`+proto`) or a parameter is allowed.
    let good = rest.is_some_and(|rest| rest.first().is_none_or(|next| matches!(next, b'+' | b';')));
    (!good).then(|| String::from_utf8_lossy(kind.as_bytes()).chars().take(100).collect())
}

/// Maps an HTTP status other than 200 to a gRPC status, for an answer without a gRPC status.
pub fn http_status(status: StatusCode) -> CallError {
    let code = match status.as_u16() {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502..=504 => 14,
        _ => 2,
    };
    CallError::Status { code, message: format!("HTTP status {} instead of a gRPC response", status.as_u16()) }
}

/// Decodes a status message. Invalid escapes are kept and invalid UTF-8 is replaced, so that no message is lost.
pub fn percent_decode(text: &[u8]) -> String {
    let digit = |at: usize| text.get(at).and_then(|d| char::from(*d).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                // Cannot truncate: two hexadecimal digits fit into a byte.
                decoded.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Percent-encodes a status message. Printable ASCII characters other than `%` are kept.
pub fn percent_encode(text: &str) -> String {
    let one = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, String> {
        let mut deframer = Deframer::new(MAX_MESSAGE);
        let mut messages = Vec::new();
        for piece in pieces {
            deframer.push(Bytes::copy_from_slice(piece), &mut |m| messages.push(m.to_vec()))?;
        }
        assert!(!deframer.is_partial());
        Ok(messages)
    }

    #[test]
    fn messages_are_decoded_from_any_split_of_the_bytes() {
        let mut bytes = Vec::new();
        let messages: [&[u8]; 4] = [b"one", b"", b"three and a half", b"4"];
        for message in messages {
            bytes.extend_from_slice(&frame(&Bytes::copy_from_slice(message)).unwrap());
        }
        for size in 1..=bytes.len() {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(cut(&pieces).unwrap(), messages, "pieces of {size}");
        }
    }

    #[test]
    fn a_compressed_and_a_too_large_message_are_errors() {
        assert!(cut(&[&[1, 0, 0, 0, 0]]).unwrap_err().contains("compressed"));
        let error = cut(&[&[0, 1, 0, 0, 1]]).unwrap_err();
        assert_eq!(error, "message of 16777217 bytes is over the limit of 16 MiB");
        let error = Deframer::new(16 << 10).push(Bytes::from_static(&[0, 0, 1, 0, 0]), &mut |_| ()).unwrap_err();
        assert_eq!(error, "message of 65536 bytes is over the limit of 16 KiB");
        assert!(frame(&Bytes::from(vec![0; MAX_MESSAGE])).is_ok());
        assert!(frame(&Bytes::from(vec![0; MAX_MESSAGE + 1])).is_err());
    }

    #[test]
    fn a_status_has_its_message_decoded() {
        let mut headers = HeaderMap::new();
        assert_eq!(status(&headers), None);
        headers.insert("grpc-status", "5".parse().unwrap());
        headers.insert("grpc-message", "na%C3%AFve %25 100%".parse().unwrap());
        let expected = CallError::Status { code: 5, message: "naïve % 100%".to_string() };
        assert_eq!(status(&headers), Some(Err(expected)));
        headers.insert("grpc-status", "0".parse().unwrap());
        assert_eq!(status(&headers), Some(Ok(())));
        headers.insert("grpc-status", "x".parse().unwrap());
        assert!(matches!(status(&headers), Some(Err(CallError::Status { code: 2, .. }))));
    }

    #[test]
    fn a_response_that_is_not_grpc_is_detected() {
        let of = |kind: &str| {
            other_content(&[(http::header::CONTENT_TYPE, kind.parse().unwrap())].into_iter().collect::<HeaderMap>())
        };
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;v=1"] {
            assert_eq!(of(kind), None);
        }
        for kind in ["text/html", "application/grpc-web", "application/json"] {
            assert_eq!(of(kind).as_deref(), Some(kind));
        }
        assert!(other_content(&HeaderMap::new()).is_some());
    }

    #[test]
    fn percent_decoding_never_fails() {
        assert_eq!(percent_decode(b"%"), "%");
        assert_eq!(percent_decode(b"%4"), "%4");
        assert_eq!(percent_decode(b"%zz%41"), "%zzA");
        assert_eq!(percent_decode(b"%ff"), "\u{fffd}");
    }
}
