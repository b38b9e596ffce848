//! One connection of a client. Its owner keeps the calls, each under a key of type `K`. A drive polls the connection's
//! future, then the calls that it woke, and repeats this until nothing is woken or the budget is used up.
//!
//! The budget is split into slices, and the calls consume the data after each slice: `h2` keeps unconsumed frames in a
//! table that never shrinks, and small slices keep it small.

use super::socket::{Gauge, Socket};
use super::wake::{CallWaker, Woken};
use ::h2::PingPong;
use ::h2::client::{self, ResponseFuture, SendRequest};
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The maximum number of bytes read, and of bytes written, before the calls are polled.
const SLICE: usize = 16 << 10;
/// Maximum number of slices in one drive, unless its owner sets another limit.
const SLICES: usize = 8;

/// Flow-control windows of one answer and of all answers together, in bytes. No memory is reserved for them. The peer
/// sends the rest of a larger answer as the received data is consumed.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Maximum size of an answer's headers in bytes. `grpc-message` can be long.
const MAX_HEADERS: u32 = 64 << 10;

/// Maximum number of concurrent streams until the peer's SETTINGS arrive. No call is started before that.
const INITIAL_STREAMS: usize = 100;

pub struct Link<K> {
    gauge: Gauge,
    h2: Pin<Box<client::Connection<Socket, Bytes>>>,
    send: SendRequest<Bytes>,
    woken: Arc<Woken<K>>,
    slices: usize,
}

/// The maximum number of informational responses (1xx) before a response.
const MAX_INFORMATIONAL: usize = 5;
pub const TOO_MANY_INFORMATIONAL: &str = "more than 5 informational responses (1xx)";

/// The state of a connection after a drive.
#[derive(Debug)]
pub enum Health {
    /// `again` means that the budget was used up.
    Good { again: bool },
    /// The connection accepts no new calls (GOAWAY, or no stream ids are left). The calls in flight continue.
    Leaving { again: bool, why: String },
    /// The connection has ended. `polite` means that the peer sent a GOAWAY first.
    Over { why: String, polite: bool },
}

impl<K: Copy + Send + Sync + 'static> Link<K> {
    /// Starts HTTP/2 on a connected socket.
    ///
    /// # Errors
    /// The socket fails or accepts no data.
    pub fn new(socket: Socket, gauge: Gauge) -> Result<Link<K>, String> {
        gauge.slice(SLICE);
        let handshake = client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(INITIAL_STREAMS)
            .max_header_list_size(MAX_HEADERS)
            .enable_push(false)
            // Turn off two limits against hostile peers. They count late frames of cancelled calls, and small frames,
            // so over years a well-behaved peer would reach them, too. The budget bounds the cost of such frames
            // anyway.
            .max_local_error_reset_streams(None)
            .data_frame_budget(usize::MAX)
            .handshake::<Socket, Bytes>(socket);
        // The handshake only writes 24 bytes to an empty socket buffer, so it does not have to wait.
        match Box::pin(handshake).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok((send, h2))) => {
                Ok(Link { gauge, h2: Box::pin(h2), send, woken: Arc::new(Woken::default()), slices: SLICES })
            }
            Poll::Ready(Err(e)) => Err(e.to_string()),
            Poll::Pending => Err("the new connection accepts no data".to_string()),
        }
    }

    /// Reports whether the peer's SETTINGS have arrived, which shows that the peer accepted the connection.
    pub fn is_greeted(&self) -> bool {
        self.gauge.read() > 0
    }

    /// Returns the number of bytes read since the connection was opened. With TLS, only the decrypted content counts.
    pub fn read(&self) -> u64 {
        self.gauge.read()
    }

    /// Returns the number of bytes written since the connection was opened. With TLS, this is the plain text passed
    /// to TLS, which may not have been sent yet.
    pub fn written(&self) -> u64 {
        self.gauge.written()
    }

    /// Limits the number of slices that one drive reads and writes.
    pub fn limit_slices(&mut self, slices: usize) {
        self.slices = slices;
    }

    /// Returns the number of concurrent calls that the peer permits.
    pub fn max_calls(&self) -> usize {
        self.send.current_max_send_streams()
    }

    /// Returns a handle for one request. A handle accepts no second request before the first one has a stream.
    pub fn handle(&self) -> SendRequest<Bytes> {
        self.send.clone()
    }

    /// Returns the waker of a new call, and schedules the first poll of the call for the next drive.
    pub fn waker(&self, key: K) -> Arc<CallWaker<K>> {
        let waker = self.woken.call_waker(key);
        waker.waker().wake();
        waker
    }

    /// Returns the interface for PING frames; None after the first call.
    pub fn ping_pong(&mut self) -> Option<PingPong> {
        self.h2.ping_pong()
    }

    /// Reads, writes, and calls `poll` for each woken call. `look` means that the socket may have become readable
    /// since the last read. At `Over`, the caller must end the remaining calls.
    pub fn drive(&mut self, look: bool, mut poll: impl FnMut(K)) -> Health {
        if look {
            self.gauge.begin();
        }
        self.gauge.slice(SLICE);
        let mut slices = 1;
        let mut repeat = true;
        while repeat || self.woken.any() {
            if self.woken.take_connection() || repeat {
                let waker = Waker::from(self.woken.clone());
                if let Poll::Ready(result) = self.h2.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return self.over(result);
                }
            }
            self.woken.take_calls().into_iter().for_each(&mut poll);
            repeat = self.gauge.stopped() && slices < self.slices;
            if repeat {
                slices += 1;
                self.gauge.slice(SLICE);
            }
        }
        let again = self.gauge.stopped();
        match self.send.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(e)) => Health::Leaving { again, why: e.to_string() },
            _ => Health::Good { again },
        }
    }

    fn over(&mut self, result: Result<(), ::h2::Error>) -> Health {
        let reported = match self.send.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(e)) if e.is_go_away() && e.is_remote() => Some(e.to_string()),
            _ => None,
        };
        let polite = reported.is_some();
        let why = match (reported, result) {
            (Some(reported), _) => reported,
            (None, Err(e)) => format!("connection lost: {e}"),
            (None, Ok(())) => "connection closed by the peer".to_string(),
        };
        Health::Over { why, polite }
    }
}

/// Takes the informational responses that have arrived, and counts them. Returns false if there are too many.
pub fn informational_responses(response: &mut ResponseFuture, count: &mut usize, cx: &mut Context<'_>) -> bool {
    while let Poll::Ready(Some(Ok(_))) = response.poll_informational(cx) {
        *count += 1;
        if *count > MAX_INFORMATIONAL {
            return false;
        }
    }
    true
}
