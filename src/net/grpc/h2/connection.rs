//! One connection and its calls.

use super::call::{self, Active};
use crate::api::time::Boot;
use crate::net::grpc::{Call, CallError, CallId, Completion};
pub use crate::net::http2::link::Health;
use crate::net::http2::link::Link;
use crate::net::http2::socket::Socket;
use crate::net::stream::Stream;
use mio::{Registry, Token};
use std::collections::BTreeMap;
use std::path::Path;
use std::task::Poll;

pub struct GrpcConnection {
    link: Link<CallId>,
    calls: BTreeMap<CallId, Active>,
}

impl GrpcConnection {
    pub fn connect(path: &Path, registry: &Registry, token: Token) -> Result<GrpcConnection, String> {
        let (socket, gauge) = Socket::connect(path, registry, token).map_err(|e| e.to_string())?;
        Ok(GrpcConnection { link: Link::new(socket, gauge)?, calls: BTreeMap::new() })
    }

    /// Creates a connection over a stream that is already connected and registered under the token.
    pub fn on(stream: Stream, registry: &Registry, token: Token) -> Result<GrpcConnection, String> {
        let (socket, gauge) = Socket::on(stream, registry, token).map_err(|e| e.to_string())?;
        Ok(GrpcConnection { link: Link::new(socket, gauge)?, calls: BTreeMap::new() })
    }

    /// Reports whether the peer's SETTINGS have arrived, which shows that the peer accepted the connection.
    pub fn is_greeted(&self) -> bool {
        self.link.is_greeted()
    }

    /// Returns the number of bytes read since the connection was opened.
    pub fn read(&self) -> u64 {
        self.link.read()
    }

    /// Limits the number of slices (see `Link`) that one `drive` reads and writes.
    pub fn limit_slices(&mut self, slices: usize) {
        self.link.limit_slices(slices);
    }

    pub fn has_room(&self) -> bool {
        self.calls.len() < self.link.max_calls()
    }

    pub fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    pub fn start(&mut self, id: CallId, call: Call, now: Boot) -> Result<(), CallError> {
        let active = call::start(&self.link, id, call, now)?;
        self.calls.insert(id, active);
        Ok(())
    }

    /// Returns the deadlines of the calls that have one.
    pub fn deadlines(&self) -> impl Iterator<Item = (Boot, CallId)> {
        self.calls.iter().filter_map(|(id, call)| Some((call.deadline?, *id)))
    }

    /// Removes a call and resets its stream. Returns its path, or None if the call is not on this connection.
    pub fn give_up(&mut self, id: CallId) -> Option<&'static str> {
        let mut call = self.calls.remove(&id)?;
        call.reset();
        Some(call.path())
    }

    /// Reads, writes and polls the calls. `look` means that the socket may have become readable since the last read.
    /// Ended calls are removed; their completions are appended to `out`. At `Health::Over`, all calls have ended.
    pub fn drive(&mut self, look: bool, out: &mut Vec<Completion>) -> Health {
        let calls = &mut self.calls;
        let health = self.link.drive(look, |id| {
            if let Some(call) = calls.get_mut(&id)
                && let Poll::Ready(result) = call.poll(out)
            {
                calls.remove(&id);
                out.push(Completion::Done { id, result });
            }
        });
        if let Health::Over { why, .. } = &health {
            self.end_calls(why, out);
        }
        health
    }

    /// Ends all calls of a connection that has ended. A call whose answer is complete still succeeds.
    fn end_calls(&mut self, why: &str, out: &mut Vec<Completion>) {
        let written = self.link.written();
        while let Some((id, mut call)) = self.calls.pop_first() {
            let result = match call.poll(out) {
                Poll::Ready(Err(CallError::Unknown(_))) | Poll::Pending => Err(call.lost(why, written)),
                Poll::Ready(result) => result,
            };
            out.push(Completion::Done { id, result });
        }
    }
}
