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

/// The maximum size of a response or of a list, in bytes; the same as in a kubelet.
const MAX_ANSWER: usize = 4 << 20;

pub struct Plugin {
    pub token: Token,
    transport: H2Transport,
    calls: BTreeMap<CallId, PluginCall>,
}

/// The result of `Plugin::drive`.
pub struct PluginProgress {
    /// Whether the budget of this turn ran out. If so, call `drive` again in the next turn, because the poll does not
    /// report the remaining input.
    pub again: bool,
    /// The reason, if the connection or the watch is lost.
    pub lost: Option<String>,
}

enum PluginCall {
    Watch,
    Allocate(OpId),
    PreStart(OpId),
}

impl Plugin {
    /// Starts to connect to a plugin.
    ///
    /// # Errors
    /// The registry cannot be cloned.
    pub fn connect(socket: &Path, registry: &Registry, token: Token) -> io::Result<Plugin> {
        let transport = H2Transport::connect(socket, registry, token)?;
        Ok(Plugin { token, transport, calls: BTreeMap::new() })
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        self.transport.next_deadline()
    }

    /// Starts a call.
    ///
    /// # Errors
    /// The request cannot be encoded.
    pub fn call(&mut self, op: OpId, call: DeviceCall, deadline: Boot, now: Boot) -> Result<(), String> {
        let (path, body, in_flight) = match call {
            DeviceCall::Allocate { ids, .. } => (proto::ALLOCATE, proto::allocate(ids)?, PluginCall::Allocate(op)),
            DeviceCall::PreStart { ids, .. } => (proto::PRE_START, proto::pre_start(ids)?, PluginCall::PreStart(op)),
        };
        self.start(path, body, Some(deadline), in_flight, now);
        Ok(())
    }

    fn start(&mut self, path: &'static str, body: Bytes, deadline: Option<Boot>, in_flight: PluginCall, now: Boot) {
        let server_stream = matches!(in_flight, PluginCall::Watch);
        let id = self.transport.call(Call { path, body, deadline, server_stream, header: None, most: MAX_ANSWER }, now);
        self.calls.insert(id, in_flight);
    }

    /// Drops a call. Returns true if it was in flight.
    pub fn cancel(&mut self, op: OpId) -> bool {
        let is = |call: &PluginCall| matches!(call, PluginCall::Allocate(of) | PluginCall::PreStart(of) if *of == op);
        let Some(id) = self.calls.iter().find(|(_, call)| is(call)).map(|(id, _)| *id) else { return false };
        self.calls.remove(&id);
        self.transport.cancel(id);
        true
    }

    /// Reads and writes without blocking, within the budget of a turn. If several lists arrive, only the newest is
    /// used.
    pub fn drive(
        &mut self,
        now: Boot,
        resource: &str,
        events: &mut Vec<DeviceEvent>,
        done: &mut Vec<(OpId, Result<Answer, OpError>)>,
    ) -> PluginProgress {
        let mut progress = PluginProgress { again: false, lost: None };
        let mut list = None;
        let mut completions = Vec::new();
        progress.again |= self.transport.drive(now, &mut completions);
        // The watch starts when the connection is up, which happens once. Its request is sent immediately.
        if completions.contains(&Completion::Up) {
            self.start(proto::LIST_AND_WATCH, proto::empty(), None, PluginCall::Watch, now);
            progress.again |= self.transport.flush(now, &mut completions);
        }
        for completion in completions {
            match completion {
                Completion::Up => {}
                Completion::Down { why } => progress.lost = Some(why),
                Completion::Message { message, .. } => list = Some(message),
                Completion::Done { id, result } => match self.calls.remove(&id) {
                    Some(PluginCall::Watch) => {
                        progress.lost = Some(
                            result.map_or_else(in_words, |_| "the plugin ended its ListAndWatch stream".to_owned()),
                        );
                    }
                    Some(PluginCall::Allocate(op)) => done.push((op, allocated(result))),
                    Some(PluginCall::PreStart(op)) => done.push((op, answered(result, |_| Ok(Answer::Ok)))),
                    None => {}
                },
            }
        }
        match list.map(|message| proto::devices(&message)) {
            Some(Ok(devices)) => events.push(DeviceEvent::Listed { resource: resource.to_owned(), devices }),
            Some(Err(why)) => progress.lost = Some(why),
            None => {}
        }
        progress
    }

    /// Ends the calls in flight, whose responses can no longer arrive.
    pub fn abandon(self) -> impl Iterator<Item = (OpId, Result<Answer, OpError>)> {
        self.calls.into_values().filter_map(|in_flight| match in_flight {
            PluginCall::Watch => None,
            PluginCall::Allocate(op) | PluginCall::PreStart(op) => {
                Some((op, Err(OpError::Unknown("the connection to the device plugin was lost".to_owned()))))
            }
        })
    }
}

fn allocated(result: Result<Bytes, CallError>) -> Result<Answer, OpError> {
    answered(result, |body| proto::allocated(&body).map(|allocated| Answer::Allocated(Box::new(allocated))))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::devices::Device;
    use mio::Poll;
    use std::io::Write;
    use std::os::unix::net::{UnixListener, UnixStream};

    const TOKEN: Token = Token(1);

    /// Returns a frame of HTTP/2.
    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[a, b, c, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    /// Returns a message with its prefix, in DATA frames.
    fn message(message: &[u8]) -> Vec<u8> {
        let prefix = u32::try_from(message.len()).unwrap().to_be_bytes();
        let bytes = [&[0], &prefix[..], message].concat();
        bytes.chunks(16_384).flat_map(|chunk| frame(0, 0, 1, chunk)).collect()
    }

    /// Returns a list with one healthy device.
    fn list(id: &str) -> Vec<u8> {
        let length = |text: &str| u8::try_from(text.len()).unwrap();
        let device = [&[0x0a, length(id)], id.as_bytes(), &[0x12, 7], b"Healthy"].concat();
        message(&[&[0x0a, u8::try_from(device.len()).unwrap()], &device[..]].concat())
    }

    struct Lab {
        _directory: tempfile::TempDir,
        _poll: Poll,
        plugin: Plugin,
        server: UnixStream,
        events: Vec<DeviceEvent>,
    }

    impl Lab {
        /// Returns a lab whose plugin has sent the response headers for the request of its list.
        fn new() -> Lab {
            let poll = Poll::new().unwrap();
            let directory = tempfile::tempdir().unwrap();
            let socket = directory.path().join("cam.sock");
            let listener = UnixListener::bind(&socket).unwrap();
            let mut plugin = Plugin::connect(&socket, poll.registry(), TOKEN).unwrap();
            assert!(plugin.drive(Boot(0), "v.io/cam", &mut Vec::new(), &mut Vec::new()).lost.is_none());
            let (mut server, _) = listener.accept().unwrap();
            // The server sends SETTINGS.
            server.write_all(&frame(4, 0, 0, &[])).unwrap();
            let mut lab = Lab { _directory: directory, _poll: poll, plugin, server, events: Vec::new() };
            lab.drive();
            // `:status: 200`, and the content type by its index.
            let head = [&[0x88, 0x0f, 0x10, 16][..], b"application/grpc"].concat();
            lab.server.write_all(&frame(1, 4, 1, &head)).unwrap();
            lab.server.set_nonblocking(true).unwrap();
            lab
        }

        fn drive(&mut self) -> PluginProgress {
            self.plugin.drive(Boot(0), "v.io/cam", &mut self.events, &mut Vec::new())
        }
    }

    #[test]
    fn of_a_flood_of_lists_one_in_each_turn_is_passed_on_and_the_newest_counts() {
        let mut lab = Lab::new();
        // The flood fits in the window of a stream, so that the server does not have to wait for the client.
        let flood: Vec<u8> = (0..5000).flat_map(|n| list(&format!("{n:09}"))).collect();
        assert!((160_000..250_000).contains(&flood.len()), "{}", flood.len());
        let (mut left, mut drives) = (&flood[..], 0);
        loop {
            let sent = lab.server.write(left).unwrap_or(0);
            left = &left[sent..];
            let progress = lab.drive();
            drives += 1;
            assert!(progress.lost.is_none() && lab.events.len() <= drives, "{:?}", progress.lost);
            if left.is_empty() && !progress.again {
                break;
            }
        }
        assert!((2..100).contains(&drives), "{drives}");
        let newest = Device { id: "000004999".to_owned(), healthy: true };
        let expected = DeviceEvent::Listed { resource: "v.io/cam".to_owned(), devices: vec![newest] };
        assert_eq!(lab.events.last(), Some(&expected));
    }

    #[test]
    fn a_list_has_a_limit_in_bytes_and_in_devices() {
        let mut lab = Lab::new();
        let length = u32::try_from(MAX_ANSWER + 1).unwrap().to_be_bytes();
        lab.server.write_all(&frame(0, 0, 1, &[&[0], &length[..]].concat())).unwrap();
        let lost = lab.drive().lost.unwrap();
        assert!(lost.ends_with("message of 4194305 bytes is over the limit of 4 MiB"), "{lost}");
        let mut lab = Lab::new();
        lab.server.write_all(&message(&[0x0a, 0].repeat(50_000))).unwrap();
        while lab.events.is_empty() {
            assert!(lab.drive().lost.is_none());
        }
        let error = proto::devices(&Bytes::from([0x0a, 0].repeat(100_001))).unwrap_err();
        assert_eq!(error, "the list has 100001 devices; the limit is 100000");
    }
}
