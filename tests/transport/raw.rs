//! A peer that writes arbitrary bytes, for input that no HTTP/2 library sends.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

pub struct Raw {
    connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Raw {
    /// Runs `script` for each connection in a separate thread. Its first argument is the number of the connection, from 0.
    pub fn start(path: &Path, script: impl Fn(usize, Peer) -> Option<()> + Send + Sync + 'static) -> Raw {
        let listener = UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (connections, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (connections, stop, script) = (connections.clone(), stop.clone(), Arc::new(script));
            std::thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let Ok((stream, _)) = listener.accept() else {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    };
                    let (number, script) = (connections.fetch_add(1, Ordering::SeqCst), script.clone());
                    stream.set_nonblocking(false).unwrap();
                    // The timeouts end the thread if the client neither reads, writes nor closes.
                    stream.set_read_timeout(Some(Duration::from_secs(240))).unwrap();
                    stream.set_write_timeout(Some(Duration::from_secs(240))).unwrap();
                    std::thread::spawn(move || script(number, Peer(stream)));
                }
            })
        };
        Raw { connections, stop, thread: Some(thread) }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One connection. Its methods return None when the client has closed the connection.
pub struct Peer(pub UnixStream);

impl Peer {
    /// Reads the client's preface and sends the initial SETTINGS.
    pub fn greet(&mut self) -> Option<()> {
        self.0.read_exact(&mut [0; 24]).ok()?;
        self.write(&frame(SETTINGS, 0, 0, &[]))
    }

    pub fn write(&mut self, bytes: &[u8]) -> Option<()> {
        self.0.write_all(bytes).ok()
    }

    /// Waits for the next request. Returns its stream ID.
    pub fn request(&mut self) -> Option<u32> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            std::io::copy(&mut (&self.0).take(u64::from(length)), &mut std::io::sink()).ok()?;
            if head[3] == HEADERS {
                return Some(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
            }
        }
    }

    pub fn answer(&mut self, stream: u32, message: &[u8]) -> Option<()> {
        self.write(&begin(stream))?;
        self.write(&frame(DATA, 0, stream, &[&[0, 0, 0, 0, message.len() as u8], message].concat()))?;
        self.write(&end(stream))
    }

    /// Answers every request with `message`.
    pub fn serve(&mut self, message: &[u8]) -> Option<()> {
        loop {
            let stream = self.request()?;
            self.answer(stream, message)?;
        }
    }

    /// Discards input until the client closes the connection.
    pub fn drain(mut self) -> Option<()> {
        std::io::copy(&mut self.0, &mut std::io::sink()).ok().map(drop)
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of an answer: status 200 and the content type. Both use the static HPACK table (entries 8 and 31).
pub fn begin(stream: u32) -> Vec<u8> {
    let kind = b"application/grpc";
    frame(HEADERS, END_HEADERS, stream, &[&[0x88, 0x0f, 0x10, kind.len() as u8], &kind[..]].concat())
}

/// The trailers of a successful answer.
pub fn end(stream: u32) -> Vec<u8> {
    let name = b"grpc-status";
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &[&[0, name.len() as u8], &name[..], &[1, b'0']].concat())
}
