//! Encodes the frames of the client.

use super::frame::{FIN, HEADER, MAX_STREAM, PING, RST_STREAM, ResetStatus, SYN_STREAM, StreamId, VERSION};

/// Maximum length of the data of a frame, in bytes. kubectl uses the same limit.
pub const MAX_DATA: usize = 32 * 1024;

/// Encodes frames. Each method appends its frames to `out`.
#[derive(Debug, Default)]
pub struct Writer {
    /// The number of streams that were opened.
    opened: u32,
}

impl Writer {
    /// Opens a stream with these headers. Names must be in lower case. Returns None if the connection has no stream
    /// id left (after 2^30 streams).
    pub fn open(&mut self, headers: &[(&str, &str)], out: &mut Vec<u8>) -> Option<StreamId> {
        let stream = self.opened.checked_mul(2)?.checked_add(1).filter(|id| *id <= MAX_STREAM)?;
        let first = self.opened == 0;
        self.opened += 1;
        let mut body = Vec::new();
        body.extend(stream.to_be_bytes());
        // No associated stream, priority 0, slot 0.
        body.extend([0; 6]);
        compress(&block(headers), first, &mut body);
        control(SYN_STREAM, &body, out);
        Some(StreamId(stream))
    }

    /// Sends data, in frames of at most `MAX_DATA`.
    pub fn data(&self, stream: StreamId, bytes: &[u8], out: &mut Vec<u8>) {
        bytes.chunks(MAX_DATA).for_each(|part| data(stream, 0, part, out));
    }

    /// Ends the client's side of the stream.
    pub fn end(&self, stream: StreamId, out: &mut Vec<u8>) {
        data(stream, FIN, &[], out);
    }

    /// Ends the stream in both directions.
    pub fn reset(&self, stream: StreamId, out: &mut Vec<u8>) {
        control(RST_STREAM, &[stream.0.to_be_bytes(), ResetStatus::CANCEL.0.to_be_bytes()].concat(), out);
    }

    /// Answers a ping of the server.
    pub fn pong(&self, id: u32, out: &mut Vec<u8>) {
        control(PING, &id.to_be_bytes(), out);
    }
}

/// Encodes the names and values of a stream's headers.
fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = (headers.len() as u32).to_be_bytes().to_vec();
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        block.extend((text.len() as u32).to_be_bytes());
        block.extend(text.as_bytes());
    }
    block
}

/// Appends a header block to the zlib stream (RFC 1950) that all header blocks of a direction form. The stream need
/// not be compressed: a stored block of DEFLATE holds up to 65,535 bytes as they are. An empty stored block follows,
/// because Go's inflater passes a block on only when the next one begins.
fn compress(block: &[u8], first: bool, out: &mut Vec<u8>) {
    if first {
        // The header of zlib: DEFLATE with a window of 32 kB, no dictionary.
        out.extend([0x78, 0x01]);
    }
    for part in block.chunks(usize::from(u16::MAX)).chain([&[][..]]) {
        let length = part.len() as u16;
        out.push(0);
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(part);
    }
}

fn control(kind: u16, body: &[u8], out: &mut Vec<u8>) {
    out.reserve(HEADER + body.len());
    out.extend((0x8000 | VERSION).to_be_bytes());
    out.extend(kind.to_be_bytes());
    // Flags, then the length.
    out.extend((body.len() as u32).to_be_bytes());
    out.extend(body);
}

fn data(stream: StreamId, flags: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(HEADER + bytes.len());
    out.extend(stream.0.to_be_bytes());
    out.extend((u32::from(flags) << 24 | bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Decompress, FlushDecompress};

    #[test]
    fn a_stream_is_opened_with_its_headers_in_one_zlib_stream() {
        let mut writer = Writer::default();
        let mut inflate = Decompress::new(true);
        let value = "x".repeat(70_000);
        for (n, headers) in
            [&[("streamtype", "error")][..], &[("streamtype", "data"), ("port", "80")], &[("long", value.as_str())]]
                .into_iter()
                .enumerate()
        {
            let mut out = Vec::new();
            let id = writer.open(headers, &mut out).unwrap();
            assert_eq!(id, StreamId(n as u32 * 2 + 1));
            assert_eq!(out[..5], [0x80, 3, 0, 1, 0]);
            assert_eq!(u32::from_be_bytes([0, out[5], out[6], out[7]]) as usize, out.len() - 8);
            assert_eq!(out[8..12], id.0.to_be_bytes());
            assert_eq!(out[12..18], [0; 6]);
            let mut block = Vec::with_capacity(100_000);
            inflate.decompress_vec(&out[18..], &mut block, FlushDecompress::Sync).unwrap();
            let mut expected = (headers.len() as u32).to_be_bytes().to_vec();
            for text in headers.iter().flat_map(|(name, value)| [*name, *value]) {
                expected.extend((text.len() as u32).to_be_bytes());
                expected.extend(text.bytes());
            }
            assert!(block == expected, "{headers:?}");
        }
        let mut writer = Writer { opened: 1 << 30 };
        assert_eq!(writer.open(&[], &mut Vec::new()), None);
    }

    #[test]
    fn the_other_frames_have_the_documented_bytes() {
        let (writer, mut out) = (Writer::default(), Vec::new());
        writer.data(StreamId(3), b"ab", &mut out);
        writer.data(StreamId(3), b"", &mut out);
        writer.end(StreamId(3), &mut out);
        writer.reset(StreamId(5), &mut out);
        writer.pong(258, &mut out);
        let expected: [&[u8]; 4] = [
            &[0, 0, 0, 3, 0, 0, 0, 2, b'a', b'b'],
            &[0, 0, 0, 3, 1, 0, 0, 0],
            &[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 5],
            &[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 1, 2],
        ];
        assert_eq!(out, expected.concat());
        let mut out = Vec::new();
        writer.data(StreamId(1), &vec![1; MAX_DATA * 2 + 1], &mut out);
        assert_eq!(out.len(), 3 * HEADER + MAX_DATA * 2 + 1);
    }
}
