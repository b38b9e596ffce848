//! A WebSocket client for the channel protocols of Kubernetes: each message begins with the number of its channel.
//! The frames are encoded by hand, so that they do not depend on other code.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

pub struct WebSocket<S> {
    stream: S,
    /// The protocol that the server has chosen.
    pub protocol: String,
    /// The bytes that have arrived on each channel.
    pub received: BTreeMap<u8, Vec<u8>>,
}

impl<S: Read + Write> WebSocket<S> {
    /// Performs the handshake.
    ///
    /// # Errors
    /// The server refuses the WebSocket. The text is the head of its response.
    pub fn open(mut stream: S, path: &str, protocol: &str) -> io::Result<WebSocket<S>> {
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
        )?;
        stream.flush()?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        if !head.starts_with("HTTP/1.1 101 ") {
            return Err(io::Error::other(head));
        }
        let chosen = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("Sec-WebSocket-Protocol").then(|| value.to_owned())
        });
        Ok(WebSocket { stream, protocol: chosen.unwrap_or_default(), received: BTreeMap::new() })
    }

    /// Sends a message of less than 125 bytes on a channel.
    pub fn send(&mut self, channel: u8, bytes: &[u8]) {
        let length = u8::try_from(bytes.len() + 1).expect("short");
        assert!(length < 126, "short");
        // A binary message with a mask of zeros, which changes nothing.
        let frame = [&[0x82, 0x80 | length, 0, 0, 0, 0, channel], bytes].concat();
        self.stream.write_all(&frame).and_then(|()| self.stream.flush()).expect("sent");
    }

    /// Receives messages until `is_enough` returns true, or until the server closes the connection.
    pub fn until(&mut self, is_enough: impl Fn(&BTreeMap<u8, Vec<u8>>) -> bool) {
        while !is_enough(&self.received) {
            let Ok((kind, payload)) = self.frame() else { return };
            match (kind, payload.split_first()) {
                // A close frame.
                (8, _) => return,
                (0..=2, Some((channel, bytes))) => {
                    self.received.entry(*channel).or_default().extend_from_slice(bytes);
                }
                _ => {}
            }
        }
    }

    /// Returns the bytes that have arrived on a channel, as text.
    pub fn text(&self, channel: u8) -> String {
        String::from_utf8_lossy(self.received.get(&channel).map_or(&[][..], |bytes| bytes)).into_owned()
    }

    fn frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head)?;
        let length = match head[1] & 0x7f {
            126 => {
                let mut length = [0; 2];
                self.stream.read_exact(&mut length)?;
                usize::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.stream.read_exact(&mut length)?;
                usize::try_from(u64::from_be_bytes(length)).expect("a length")
            }
            length => usize::from(length),
        };
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        Ok((head[0] & 0xf, payload))
    }
}
