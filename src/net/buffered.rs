//! A stream with an output queue. The poll is edge-triggered, so the stream remembers that it can read or write until
//! the kernel returns EAGAIN. A budget limits the reads in one turn of the loop.

use crate::net::stream::Stream;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};

/// The maximum number of reads in one turn.
const READS: usize = 64;

pub struct Buffered {
    stream: Stream,
    output: VecDeque<Bytes>,
    /// How many bytes of the first element of `output` have been written.
    sent: usize,
    /// The number of unwritten bytes in `output`.
    queued: usize,
    may_read: bool,
    may_write: bool,
    /// The number of reads in this turn.
    reads: usize,
    /// Whether the budget of this turn is used up and there may be more to read.
    stopped: bool,
    /// Whether the stream itself holds no output back (see `flush`).
    flushed: bool,
}

/// The result of `Buffered::read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The number of bytes read; not 0.
    Bytes(usize),
    Blocked,
    /// The peer has closed its sending side.
    End,
    Broken,
}

/// The result of `Buffered::write`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    All,
    Blocked,
    Budget,
    Broken,
}

impl Buffered {
    pub fn new(stream: Stream) -> Buffered {
        Buffered {
            stream,
            output: VecDeque::new(),
            sent: 0,
            queued: 0,
            may_read: true,
            may_write: true,
            reads: 0,
            stopped: false,
            flushed: true,
        }
    }

    pub fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Returns `Stream::peer_certificate`.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.stream.peer_certificate()
    }

    /// Notes that the poll reported the stream.
    pub fn ready(&mut self) {
        self.may_read = true;
        self.may_write = true;
    }

    /// Resets the read budget at the start of a turn.
    pub fn begin(&mut self) {
        (self.reads, self.stopped) = (0, false);
    }

    /// Reports whether a read was refused because the budget of this turn is used up. The poll will not report the
    /// remaining input.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Returns the number of unwritten bytes.
    pub fn queued(&self) -> usize {
        self.queued
    }

    pub fn push(&mut self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        if !bytes.is_empty() {
            self.queued += bytes.len();
            self.output.push_back(bytes);
        }
    }

    /// Writes the queued output, and adds the number of bytes to `written`. Stops when `written` has reached `budget`.
    pub fn write(&mut self, written: &mut usize, budget: usize) -> Written {
        while let Some(front) = self.output.front() {
            if !self.may_write {
                return Written::Blocked;
            }
            if *written >= budget {
                return Written::Budget;
            }
            match self.stream.write(&front[self.sent..]) {
                Ok(n) => {
                    *written += n;
                    self.sent += n;
                    self.queued -= n;
                    if self.sent >= front.len() {
                        self.sent = 0;
                        self.output.pop_front();
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.may_write = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Written::Broken,
            }
        }
        // Release the memory after a burst.
        self.output.shrink_to(4);
        self.flush()
    }

    /// Flushes the stream. TLS holds encrypted data back when the socket is full.
    fn flush(&mut self) -> Written {
        loop {
            if !self.may_write {
                return if self.flushed { Written::All } else { Written::Blocked };
            }
            match self.stream.flush() {
                Ok(()) => {
                    self.flushed = true;
                    return Written::All;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => (self.may_write, self.flushed) = (false, false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Written::Broken,
            }
        }
    }

    /// Reads once. `buffer` must not be empty. Also returns `Blocked` when the budget is used up.
    pub fn read(&mut self, buffer: &mut [u8]) -> Input {
        if !self.may_read {
            return Input::Blocked;
        }
        if self.reads >= READS {
            self.stopped = true;
            return Input::Blocked;
        }
        self.reads += 1;
        match self.stream.read(buffer) {
            Ok(0) => return Input::End,
            Ok(n) => return Input::Bytes(n),
            Err(e) if e.kind() == ErrorKind::WouldBlock => self.may_read = false,
            // TLS has read a lot of input without returning any content.
            Err(e) if e.kind() == ErrorKind::Interrupted => (self.reads, self.stopped) = (READS, true),
            Err(_) => return Input::Broken,
        }
        Input::Blocked
    }

    /// Reads and discards input, about `most` bytes. Returns the number of bytes, or None if the peer has disconnected.
    pub fn discard(&mut self, most: usize) -> Option<usize> {
        let mut total = 0;
        let mut buffer = [0; 4096];
        while total < most {
            match self.read(&mut buffer) {
                Input::Bytes(n) => total += n,
                Input::Blocked => break,
                Input::End | Input::Broken => return None,
            }
        }
        Some(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::net::UnixStream;

    #[test]
    fn a_write_stops_at_its_budget_and_at_a_full_socket_and_reading_ends_with_the_peer() {
        let (mut near, mut far) = UnixStream::pair().map(|(n, f)| (Buffered::new(Stream::Unix(n)), f)).unwrap();
        for _ in 0..100 {
            near.push(vec![1; 10_000]);
        }
        let mut written = 0;
        assert_eq!(near.write(&mut written, 15_000), Written::Budget);
        assert_eq!((written, near.queued()), (20_000, 980_000));
        assert_eq!(near.write(&mut written, usize::MAX), Written::Blocked);
        assert!(near.queued() > 0);
        let mut buffer = vec![0; 1 << 20];
        assert_eq!(far.read(&mut buffer).unwrap(), written);
        let before = written;
        assert_eq!(near.write(&mut written, usize::MAX), Written::Blocked, "until the poll reports the stream");
        assert_eq!(written, before);
        near.ready();
        near.write(&mut written, usize::MAX);
        assert!(written > before);

        assert_eq!(near.read(&mut buffer), Input::Blocked);
        far.write_all(&[2; 10_000]).unwrap();
        assert_eq!(near.read(&mut buffer), Input::Blocked);
        near.ready();
        assert_eq!(near.read(&mut buffer[..100]), Input::Bytes(100));
        assert_eq!(near.discard(1 << 20), Some(9900));
        drop(far);
        near.ready();
        assert_eq!(near.discard(1 << 20), None);
        assert_eq!(near.write(&mut written, usize::MAX), Written::Broken);
    }
    #[test]
    fn the_reads_of_a_turn_have_a_budget() {
        let (mut near, mut far) = UnixStream::pair().map(|(n, f)| (Buffered::new(Stream::Unix(n)), f)).unwrap();
        far.write_all(&[1; 2 * READS]).unwrap();
        let mut byte = [0];
        for _ in 0..2 {
            near.begin();
            for _ in 0..READS {
                assert_eq!(near.read(&mut byte), Input::Bytes(1));
            }
            assert!(!near.stopped());
            assert_eq!(near.read(&mut byte), Input::Blocked);
            assert!(near.stopped());
        }
        near.begin();
        assert_eq!((near.read(&mut byte), near.stopped()), (Input::Blocked, false));
    }
}
