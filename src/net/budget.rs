//! A socket whose peer may be hostile: a server in a container. Reading stops at a budget for each turn of the loop,
//! and fails at a limit for the whole connection. TLS can read for ever without returning any content, so a limit above
//! the TLS layer would not be enough.

use std::io::{self, ErrorKind, Read, Write};

/// The maximum number of reads in one turn.
const READS: usize = 16;
/// The maximum number of bytes that a peer may send before its answer is complete.
pub const MOST: u64 = 1 << 20;

pub struct Budgeted<S> {
    pub stream: S,
    reads: usize,
    stopped: bool,
    received: u64,
}

impl<S> Budgeted<S> {
    pub fn new(stream: S) -> Budgeted<S> {
        Budgeted { stream, reads: 0, stopped: false, received: 0 }
    }

    /// Resets the budget for a new turn of the loop.
    pub fn begin(&mut self) {
        (self.reads, self.stopped) = (0, false);
    }

    /// Reports whether the budget of the turn was used up. The poll will not report the remaining input.
    pub fn stopped(&self) -> bool {
        self.stopped
    }
}

impl<S: Read> Read for Budgeted<S> {
    /// Fails with `WouldBlock` when the budget is used up.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.received >= MOST {
            return Err(io::Error::other(too_much()));
        }
        if self.reads >= READS {
            self.stopped = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        self.reads += 1;
        let n = self.stream.read(buffer)?;
        self.received += n as u64;
        Ok(n)
    }
}

impl<S: Write> Write for Budgeted<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Returns the error message for a peer that has sent `MOST` bytes or more.
pub fn too_much() -> String {
    format!("the server sent {} MiB without a complete response", MOST >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_stops_in_each_turn_and_fails_at_the_limit() {
        let mut socket = Budgeted::new(io::repeat(b'x'));
        let mut buffer = [0; 4096];
        let (mut total, mut turns) = (0, 0);
        let failure = loop {
            match socket.read(&mut buffer) {
                Ok(n) => total += n as u64,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    assert!(socket.stopped());
                    turns += 1;
                    assert_eq!(total, turns * READS as u64 * 4096);
                    socket.begin();
                    assert!(!socket.stopped());
                }
                Err(e) => break e,
            }
        };
        assert_eq!((failure.to_string(), total, turns), (too_much(), MOST, 15));
    }
}
