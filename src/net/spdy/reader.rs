//! Decodes the frames of the server.

use super::frame::{
    FIN, GOAWAY, HEADER, HEADERS, MAX_STREAM, PING, RST_STREAM, ResetStatus, SYN_REPLY, StreamId, VERSION,
};
use std::fmt;

/// What the server sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpdyEvent<'a> {
    /// A part of a stream's data, in order. Never empty.
    Data { stream: StreamId, bytes: &'a [u8] },
    /// The server sends nothing more on this stream.
    End { stream: StreamId },
    /// The stream has ended in both directions.
    Reset { stream: StreamId, status: ResetStatus },
    /// The caller must answer with `Writer::pong`.
    Ping(u32),
    /// The server accepts no new streams.
    GoAway,
}

/// The server violates the protocol. The connection cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    Version(u16),
    Length { kind: u16, length: u32 },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Version(version) => write!(f, "a SPDY frame has the version {version} instead of {VERSION}"),
            Malformed::Length { kind, length } => write!(f, "a SPDY frame of type {kind} has {length} bytes"),
        }
    }
}

/// Buffers at most one frame header, or the part of a body that is needed (8 bytes). Data is passed on as it arrives.
#[derive(Debug, Default)]
pub struct Reader {
    state: FrameState,
}

#[derive(Debug)]
enum FrameState {
    /// Collects the header of the next frame.
    Header(Collected),
    /// Within a data frame. `left` is the number of bytes that have not arrived yet.
    Data { stream: StreamId, fin: bool, left: u32 },
    /// Collects the body of a control frame.
    Body { kind: u16, length: u32, body: Collected },
    /// The rest of a frame whose content is not needed. `fin` is the stream that ends with the frame.
    Skip { left: u32, fin: Option<StreamId> },
}

/// The first bytes of a header or body.
#[derive(Debug, Default)]
struct Collected {
    bytes: [u8; HEADER],
    length: usize,
}

impl Collected {
    /// Takes bytes from `input` until there are `wanted`, at most 8. Returns them once they are complete.
    fn take(&mut self, wanted: usize, input: &mut &[u8]) -> Option<[u8; HEADER]> {
        let n = wanted.saturating_sub(self.length).min(input.len());
        let (taken, rest) = input.split_at(n);
        self.bytes[self.length..self.length + n].copy_from_slice(taken);
        self.length += n;
        *input = rest;
        (self.length >= wanted).then_some(self.bytes)
    }
}

impl Default for FrameState {
    fn default() -> FrameState {
        FrameState::Header(Collected::default())
    }
}

impl Reader {
    /// Decodes the next event and removes its bytes from `input`. Returns None when all of `input` is consumed.
    ///
    /// # Errors
    /// The server violates the protocol.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<SpdyEvent<'a>>, Malformed> {
        loop {
            match &mut self.state {
                FrameState::Header(collected) => {
                    let Some(header) = collected.take(HEADER, input) else { return Ok(None) };
                    self.state = after_header(header)?;
                }
                FrameState::Data { stream, fin: true, left: 0 } => {
                    let stream = *stream;
                    self.state = FrameState::default();
                    return Ok(Some(SpdyEvent::End { stream }));
                }
                FrameState::Data { left: 0, .. } | FrameState::Skip { left: 0, fin: None } => {
                    self.state = FrameState::default()
                }
                FrameState::Data { stream, left, .. } => {
                    let bytes = up_to(left, input);
                    return Ok((!bytes.is_empty()).then_some(SpdyEvent::Data { stream: *stream, bytes }));
                }
                FrameState::Skip { left: 0, fin: Some(stream) } => {
                    let stream = *stream;
                    self.state = FrameState::default();
                    return Ok(Some(SpdyEvent::End { stream }));
                }
                FrameState::Skip { left, .. } => {
                    if up_to(left, input).is_empty() {
                        return Ok(None);
                    }
                }
                FrameState::Body { kind, length, body } => {
                    let (kind, length) = (*kind, *length);
                    let wanted = wanted(kind);
                    let Some(bytes) = body.take(wanted, input) else { return Ok(None) };
                    let [a, b, c, d, status @ ..] = bytes;
                    let first = u32::from_be_bytes([a, b, c, d]);
                    let stream = StreamId(first & MAX_STREAM);
                    // The rest of the body is not needed: the headers of a reply, or fields of a later version.
                    let left = length.saturating_sub(wanted as u32);
                    self.state = FrameState::Skip { left, fin: None };
                    match kind {
                        RST_STREAM => {
                            let status = ResetStatus(u32::from_be_bytes(status));
                            return Ok(Some(SpdyEvent::Reset { stream, status }));
                        }
                        PING => return Ok(Some(SpdyEvent::Ping(first))),
                        GOAWAY => return Ok(Some(SpdyEvent::GoAway)),
                        // SYN_REPLY or HEADERS with FIN.
                        _ => self.state = FrameState::Skip { left, fin: Some(stream) },
                    }
                }
            }
        }
    }

    /// Reports whether the reader is at a frame boundary. If the connection ends anywhere else, the input was
    /// truncated.
    pub fn is_between_frames(&self) -> bool {
        matches!(
            self.state,
            FrameState::Header(Collected { length: 0, .. })
                | FrameState::Data { left: 0, fin: false, .. }
                | FrameState::Skip { left: 0, fin: None }
        )
    }
}

/// Returns how many bytes of a control frame's body are needed.
fn wanted(kind: u16) -> usize {
    if kind == RST_STREAM { 8 } else { 4 }
}

fn after_header([a, b, c, d, flags, length @ ..]: [u8; HEADER]) -> Result<FrameState, Malformed> {
    let length = length.into_iter().fold(0, |n, byte| n << 8 | u32::from(byte));
    let fin = flags & FIN != 0;
    if a & 0x80 == 0 {
        let stream = StreamId(u32::from_be_bytes([a, b, c, d]));
        return Ok(FrameState::Data { stream, fin, left: length });
    }
    let version = u16::from_be_bytes([a & 0x7f, b]);
    if version != VERSION {
        return Err(Malformed::Version(version));
    }
    let kind = u16::from_be_bytes([c, d]);
    match kind {
        RST_STREAM | PING | GOAWAY => {}
        SYN_REPLY | HEADERS if fin => {}
        // Not needed: replies that do not end a stream, settings, window updates, and streams that the server opens.
        _ => return Ok(FrameState::Skip { left: length, fin: None }),
    }
    if (length as usize) < wanted(kind) {
        return Err(Malformed::Length { kind, length });
    }
    Ok(FrameState::Body { kind, length, body: Collected::default() })
}

/// Takes up to `left` bytes.
fn up_to<'a>(left: &mut u32, input: &mut &'a [u8]) -> &'a [u8] {
    let n = input.len().min(*left as usize);
    let (taken, rest) = input.split_at(n);
    *input = rest;
    *left -= n as u32;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An owned event. Consecutive data parts of a stream are merged.
    #[derive(Debug, PartialEq, Eq)]
    enum Seen {
        Data(u32, Vec<u8>),
        End(u32),
        Reset(u32, u32),
        Ping(u32),
        GoAway,
    }

    /// Reads `input` in pieces of this length.
    fn read(input: &[u8], piece: usize) -> Result<Vec<Seen>, Malformed> {
        let (mut reader, mut seen) = (Reader::default(), Vec::new());
        for mut part in input.chunks(piece) {
            while let Some(event) = reader.next(&mut part)? {
                match (event, seen.last_mut()) {
                    (SpdyEvent::Data { stream, bytes }, Some(Seen::Data(last, all))) if *last == stream.0 => {
                        all.extend_from_slice(bytes);
                    }
                    (SpdyEvent::Data { stream, bytes }, _) => seen.push(Seen::Data(stream.0, bytes.to_vec())),
                    (SpdyEvent::End { stream }, _) => seen.push(Seen::End(stream.0)),
                    (SpdyEvent::Reset { stream, status }, _) => seen.push(Seen::Reset(stream.0, status.0)),
                    (SpdyEvent::Ping(id), _) => seen.push(Seen::Ping(id)),
                    (SpdyEvent::GoAway, _) => seen.push(Seen::GoAway),
                }
            }
            assert!(part.is_empty());
        }
        Ok(seen)
    }

    fn control(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
        [&[0x80, 3, 0, kind, flags, 0, 0, body.len() as u8][..], body].concat()
    }

    fn data(stream: u8, flags: u8, bytes: &[u8]) -> Vec<u8> {
        let length = bytes.len() as u32;
        [&[0, 0, 0, stream][..], &(u32::from(flags) << 24 | length).to_be_bytes(), bytes].concat()
    }

    #[test]
    fn frames_are_decoded_however_they_are_split() {
        let long = vec![7; 70_000];
        let input = [
            control(2, 0, &[0, 0, 0, 1, 9, 9, 9]),
            control(4, 0, &[0; 12]),
            data(3, 0, b"out"),
            data(5, 0, &long),
            control(6, 0, &[0, 0, 0, 2]),
            data(3, 0, b""),
            data(3, 1, b"!"),
            data(5, 1, b""),
            control(8, 1, &[0, 0, 0, 9, 1]),
            control(9, 0, &[0, 0, 0, 1, 0, 0, 1, 0]),
            control(3, 0, &[0, 0, 0, 1, 0, 0, 0, 5]),
            control(7, 0, &[0, 0, 0, 0, 0, 0, 0, 0]),
        ]
        .concat();
        for piece in [1, 3, 7, 8, 9, 4096, input.len()] {
            let seen = read(&input, piece).unwrap();
            let expected = [
                Seen::Data(3, b"out".to_vec()),
                Seen::Data(5, long.clone()),
                Seen::Ping(2),
                Seen::Data(3, b"!".to_vec()),
                Seen::End(3),
                Seen::End(5),
                Seen::End(9),
                Seen::Reset(1, 5),
                Seen::GoAway,
            ];
            assert!(seen == expected, "pieces of {piece} bytes");
        }
    }

    #[test]
    fn a_frame_that_cannot_be_valid_is_an_error() {
        assert_eq!(read(&[0x80, 2, 0, 1, 0, 0, 0, 0], 8), Err(Malformed::Version(2)));
        for (kind, length) in [(3, 7), (6, 3), (7, 0)] {
            let frame = control(kind, 0, &vec![0; length]);
            let error = Malformed::Length { kind: kind.into(), length: length as u32 };
            assert_eq!(read(&frame, 99), Err(error));
        }
        let words = Malformed::Length { kind: 3, length: 7 }.to_string();
        assert_eq!(words, "a SPDY frame of type 3 has 7 bytes");
    }

    #[test]
    fn arbitrary_input_needs_no_memory_and_causes_no_panic() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..2000 {
            let mut input = Vec::new();
            for _ in 0..40 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let bytes = state.to_be_bytes();
                // Many frames of known types, with short lengths.
                input.extend(match bytes[0] % 3 {
                    0 => vec![0x80, 3, 0, bytes[1] % 10, bytes[2] & 1, 0, 0, bytes[3] % 20],
                    1 => vec![0, 0, 0, bytes[1], bytes[2] & 1, 0, 0, bytes[3] % 20],
                    _ => bytes.to_vec(),
                });
            }
            assert_eq!(read(&input, 5), read(&input, input.len()), "{input:?}");
        }
        assert!(size_of::<Reader>() <= 40, "{}", size_of::<Reader>());
    }

    #[test]
    fn the_end_of_a_connection_within_a_frame_is_noticed() {
        let mut reader = Reader::default();
        assert!(reader.is_between_frames());
        let frame = [control(7, 0, &[0; 8]), data(1, 0, b"abc")].concat();
        for n in 1..frame.len() {
            let mut input = &frame[n - 1..n];
            while reader.next(&mut input).unwrap().is_some() {}
            assert_eq!(reader.is_between_frames(), n == 16 || n == frame.len(), "{n}");
        }
    }
}
