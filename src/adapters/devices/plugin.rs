//! The connection to one device plugin.

use super::proto;
use crate::api::time::Boot;
use crate::engine::effect::DeviceCall;
use crate::engine::event::{Answer, DeviceEvent};
use crate::engine::op::{Code, OpError, OpId};
use crate::net::grpc::h2::H2Transport;
use crate::net::grpc::{Call, CallError, CallId, Completion, Transport};
use bytes::Bytes;
use mio::{Registry, Token};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

pub struct Plugin {
    pub token: Token,
    transport: H2Transport,
    calls: BTreeMap<CallId, InFlight>,
}

enum InFlight {
    Watch,
    Allocate(OpId),
    PreStart(OpId),
}

impl Plugin {
    /// # Errors
    /// The registry cannot be cloned.
    pub fn connect(socket: &Path, registry: &Registry, token: Token) -> io::Result<Plugin> {
        let transport = H2Transport::connect(socket, registry, token)?;
        Ok(Plugin { token, transport, calls: BTreeMap::new() })
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        self.transport.next_deadline()
    }

    /// # Errors
    /// The request cannot be encoded.
    pub fn call(&mut self, op: OpId, call: DeviceCall, deadline: Boot, now: Boot) -> Result<(), String> {
        let (path, body, in_flight) = match call {
            DeviceCall::Allocate { ids, .. } => (proto::ALLOCATE, proto::allocate(ids)?, InFlight::Allocate(op)),
            DeviceCall::PreStart { ids, .. } => (proto::PRE_START, proto::pre_start(ids)?, InFlight::PreStart(op)),
        };
        self.start(path, body, Some(deadline), in_flight, now);
        Ok(())
    }

    fn start(&mut self, path: &'static str, body: Bytes, deadline: Option<Boot>, in_flight: InFlight, now: Boot) {
        let server_stream = matches!(in_flight, InFlight::Watch);
        let id = self.transport.call(Call { path, body, deadline, server_stream, header: None }, now);
        self.calls.insert(id, in_flight);
    }

    /// Drops a call. True if it was in flight.
    pub fn cancel(&mut self, op: OpId) -> bool {
        let is =
            |in_flight: &InFlight| matches!(in_flight, InFlight::Allocate(of) | InFlight::PreStart(of) if *of == op);
        let Some(id) = self.calls.iter().find(|(_, in_flight)| is(in_flight)).map(|(id, _)| *id) else { return false };
        self.calls.remove(&id);
        self.transport.cancel(id);
        true
    }

    /// Reads and writes without blocking. The reason, if the connection or the watch is lost.
    pub fn drive(
        &mut self,
        now: Boot,
        resource: &str,
        events: &mut Vec<DeviceEvent>,
        done: &mut Vec<(OpId, Result<Answer, OpError>)>,
    ) -> Option<String> {
        let mut lost = None;
        loop {
            let mut out = Vec::new();
            let again = self.transport.drive(now, &mut out);
            let any = !out.is_empty();
            for completion in out {
                match completion {
                    Completion::Up => self.start(proto::LIST_AND_WATCH, proto::empty(), None, InFlight::Watch, now),
                    Completion::Down { why } => lost = Some(why),
                    Completion::Message { message, .. } => match proto::devices(&message) {
                        Ok(devices) => events.push(DeviceEvent::Listed { resource: resource.to_owned(), devices }),
                        Err(why) => lost = Some(why),
                    },
                    Completion::Done { id, result } => match self.calls.remove(&id) {
                        Some(InFlight::Watch) => {
                            lost = Some(result.map_or_else(in_words, |_| "the plugin ended its list".to_owned()));
                        }
                        Some(InFlight::Allocate(op)) => done.push((
                            op,
                            answered(result, |body| {
                                proto::allocated(&body).map(|allocated| Answer::Allocated(Box::new(allocated)))
                            }),
                        )),
                        Some(InFlight::PreStart(op)) => done.push((op, answered(result, |_| Ok(Answer::Ok)))),
                        None => {}
                    },
                }
            }
            // A call that was started meanwhile is sent now.
            if lost.is_some() || !again && !any {
                return lost;
            }
        }
    }

    /// The calls in flight end without an answer.
    pub fn abandon(self) -> impl Iterator<Item = (OpId, Result<Answer, OpError>)> {
        self.calls.into_values().filter_map(|in_flight| match in_flight {
            InFlight::Watch => None,
            InFlight::Allocate(op) | InFlight::PreStart(op) => {
                Some((op, Err(OpError::Unknown("the connection to the device plugin was lost".to_owned()))))
            }
        })
    }
}

fn answered(
    result: Result<Bytes, CallError>,
    read: impl FnOnce(Bytes) -> Result<Answer, String>,
) -> Result<Answer, OpError> {
    match result {
        Ok(body) => read(body).map_err(|message| OpError::Answered { code: Code::Other(13), message }),
        Err(CallError::Status { code, message }) => Err(OpError::Answered { code: Code::Other(code), message }),
        Err(CallError::NotSent(why)) => Err(OpError::NotSent(why)),
        Err(CallError::Refused(why)) => Err(OpError::Refused(why)),
        Err(CallError::Unknown(why)) => Err(OpError::Unknown(why)),
    }
}

fn in_words(e: CallError) -> String {
    match e {
        CallError::NotSent(why) | CallError::Refused(why) | CallError::Unknown(why) => why,
        CallError::Status { code, message } => format!("status {code}: {message}"),
    }
}
