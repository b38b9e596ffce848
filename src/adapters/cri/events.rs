//! The container event stream of the runtime (P8), on a separate connection. Events are hints and are never trusted.
//!
//! The stream is requested once the CRI service answers, because a containerd that has just started answers
//! UNIMPLEMENTED to every call. The stream has no deadline and costs nothing while it is idle. A stream that ended is
//! requested again after a back-off. A runtime without a stream (containerd before 1.7) is not asked again until the
//! client reconnects to it. A runtime whose events are off in its configuration (CRI-O by default) ends each stream
//! at once and without an error. This is reported once, and the stream is then requested only rarely.
//!
//! Quirks of containerd 1.7: all listeners share one queue, so two listeners receive half of the events each; an event
//! after a reconnect may be lost; events without a listener are kept for the next listener.

use super::{client, proto};
use crate::api::names::{Uid, annotation, label};
use crate::api::time::{Boot, Wall};
use crate::engine::event::{Kind, PlegEvent};
use crate::engine::op::{Code, OpError};
use crate::net::backoff::Backoff;
use crate::net::grpc::{Call, CallId, Completion, MAX_MESSAGE, Transport};
use bytes::Bytes;
use protobuf::Message;
use std::time::Duration;

const PATH: &str = "/runtime.v1.RuntimeService/GetContainerEvents";

/// Bounds of the back-off for a stream that ends soon after it started.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(60);
/// A stream that ends within this time, without an event, is off.
const AT_ONCE: Duration = Duration::from_secs(5);
/// The wait before a stream that is off is requested again.
const OFF_WAIT: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// The stream was requested.
    Requested,
    /// The state of a container or sandbox of ours has changed. `uid` is its pod; None if the event does not contain
    /// it.
    Happened { uid: Option<Uid>, event: PlegEvent, at: Wall },
    /// An invalid event; the stream continues.
    InvalidAnswer { why: String },
    /// The stream ended, or its connection failed. It is retried.
    Lost { why: String },
    /// The runtime has no event stream. Wherry works without it.
    Unimplemented,
    /// The runtime ended the stream at once, and without an error: its events are off. Reported once.
    Off,
}

pub struct ContainerEvents {
    /// The value of `annotation::OWNER` of our pods.
    owner: String,
    link: StreamLink,
}

enum StreamLink {
    Closed,
    /// The runtime has no event stream.
    Refused,
    Open(Box<Stream>),
}

struct Stream {
    transport: Box<dyn Transport>,
    call: Option<EventsCall>,
    /// Whether the last stream was off.
    off: bool,
    backoff: Backoff,
    /// When the next request is due, if no call is in flight.
    at: Boot,
}

struct EventsCall {
    id: CallId,
    since: Boot,
    /// Whether an event has arrived.
    heard: bool,
}

impl Stream {
    fn is_call(&self, id: CallId) -> bool {
        self.call.as_ref().is_some_and(|call| call.id == id)
    }

    /// Handles the end of the call in flight. Returns the event to report, unless it was already reported.
    fn ended(&mut self, result: Result<Bytes, OpError>, now: Boot) -> Option<StreamEvent> {
        let silent = self.call.take().is_some_and(|call| !call.heard && now.since(call.since) < AT_ONCE);
        let known = std::mem::replace(&mut self.off, silent && result.is_ok());
        self.at = if self.off { now + OFF_WAIT } else { self.backoff.next(now) };
        match result {
            Err(OpError::Answered { code: Code::Unimplemented, .. }) => Some(StreamEvent::Unimplemented),
            Err(e) => Some(StreamEvent::Lost { why: e.to_string() }),
            Ok(_) if self.off => (!known).then_some(StreamEvent::Off),
            Ok(_) => Some(StreamEvent::Lost { why: "the runtime ended the stream".to_owned() }),
        }
    }
}

impl ContainerEvents {
    pub fn new(owner: &str) -> ContainerEvents {
        ContainerEvents { owner: owner.to_owned(), link: StreamLink::Closed }
    }

    /// Reports whether `open` must be called.
    pub fn is_closed(&self) -> bool {
        matches!(self.link, StreamLink::Closed)
    }

    /// Call this when the runtime's CRI service answers. `transport` is a separate connection for the stream.
    pub fn open(&mut self, transport: Box<dyn Transport>) {
        let backoff = Backoff::new(FIRST_WAIT, MAX_WAIT);
        self.link = StreamLink::Open(Box::new(Stream { transport, call: None, off: false, backoff, at: Boot(0) }));
    }

    /// Call this when the connection to the runtime is lost. The next runtime may have an event stream even if this one
    /// had none.
    pub fn close(&mut self) {
        self.link = StreamLink::Closed;
    }

    /// Reads and writes without blocking, and requests the stream when that is due. Returns true if the budget was used
    /// up.
    pub fn drive(&mut self, now: Boot, out: &mut Vec<StreamEvent>) -> bool {
        let StreamLink::Open(stream) = &mut self.link else { return false };
        let mut completions = Vec::new();
        let again = stream.transport.drive(now, &mut completions);
        let mut refused = false;
        for completion in completions {
            match completion {
                Completion::Message { id, message } if stream.is_call(id) => {
                    stream.call.iter_mut().for_each(|call| call.heard = true);
                    out.extend(
                        read(&message, &self.owner).unwrap_or_else(|why| Some(StreamEvent::InvalidAnswer { why })),
                    );
                }
                Completion::Done { id, result } if stream.is_call(id) => {
                    let ended = stream.ended(result.map_err(client::op_error), now);
                    refused |= ended == Some(StreamEvent::Unimplemented);
                    out.extend(ended);
                }
                // If a call is in flight, its `Done` follows and reports the loss.
                Completion::Down { why } if stream.call.is_none() => out.push(StreamEvent::Lost { why }),
                _ => {}
            }
        }
        if refused {
            self.link = StreamLink::Refused;
            return false;
        }
        if stream.call.is_none() && stream.transport.is_up() && stream.at <= now {
            stream.backoff.attempt(now);
            // An empty message: GetEventsRequest has no fields.
            let call = Call {
                path: PATH,
                body: Bytes::new(),
                deadline: None,
                server_stream: true,
                header: None,
                most: MAX_MESSAGE,
            };
            stream.call = Some(EventsCall { id: stream.transport.call(call, now), since: now, heard: false });
            out.push(StreamEvent::Requested);
        }
        again
    }

    /// Returns when `drive` must be called next.
    pub fn next_deadline(&self) -> Option<Boot> {
        let StreamLink::Open(stream) = &self.link else { return None };
        let ask = (stream.call.is_none() && stream.transport.is_up()).then_some(stream.at);
        ask.into_iter().chain(stream.transport.next_deadline()).min()
    }
}

/// Decodes an event. Returns `Ok(None)` for an event of a pod with another owner.
///
/// # Errors
/// The event is invalid.
fn read(message: &Bytes, owner: &str) -> Result<Option<StreamEvent>, String> {
    let event = proto::ContainerEventResponse::parse_from_bytes(message)
        .map_err(|e| format!("failed to decode an event: {e}"))?;
    let kind = match event.container_event_type.enum_value() {
        Ok(proto::ContainerEventType::CONTAINER_CREATED_EVENT) => Kind::ContainerChanged,
        Ok(proto::ContainerEventType::CONTAINER_STARTED_EVENT) => Kind::ContainerStarted,
        Ok(proto::ContainerEventType::CONTAINER_STOPPED_EVENT) => Kind::ContainerDied,
        Ok(proto::ContainerEventType::CONTAINER_DELETED_EVENT) => Kind::ContainerRemoved,
        Err(unknown) => return Err(format!("an event has the unknown type {unknown}")),
    };
    if event.container_id.is_empty() {
        return Err("an event without an id".to_owned());
    }
    let uid = match event.pod_sandbox_status.as_ref() {
        Some(s) if s.annotations.get(annotation::OWNER).is_none_or(|o| o != owner) => return Ok(None),
        Some(s) => s.labels.get(label::POD_UID).map(|uid| Uid::from(uid.as_str())),
        None => None,
    };
    let event_at = Wall(event.created_at.max(0));
    Ok(Some(StreamEvent::Happened { uid, event: PlegEvent { id: event.container_id, kind }, at: event_at }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protobuf::{EnumOrUnknown, MessageField};
    use std::cell::RefCell;
    use std::rc::Rc;

    fn event(kind: i32, owner: Option<&str>) -> proto::ContainerEventResponse {
        let sandbox = owner.map(|owner| proto::EventSandboxStatus {
            labels: [(label::POD_UID.to_owned(), "u".to_owned())].into(),
            annotations: [(annotation::OWNER.to_owned(), owner.to_owned())].into(),
            ..Default::default()
        });
        proto::ContainerEventResponse {
            container_id: "c1".into(),
            container_event_type: EnumOrUnknown::from_i32(kind),
            created_at: 5,
            pod_sandbox_status: sandbox.map_or_else(MessageField::none, MessageField::some),
            ..Default::default()
        }
    }

    fn of(event: &proto::ContainerEventResponse) -> Result<Option<StreamEvent>, String> {
        read(&event.write_to_bytes().unwrap().into(), "me")
    }

    /// A connection that is up. A test sets the completions of the next drive.
    #[derive(Default)]
    struct Wire {
        calls: u64,
        completions: Vec<Completion>,
    }

    struct Scripted(Rc<RefCell<Wire>>);

    impl Transport for Scripted {
        fn call(&mut self, _: Call, _: Boot) -> CallId {
            self.0.borrow_mut().calls += 1;
            CallId(self.0.borrow().calls)
        }
        fn cancel(&mut self, _: CallId) {}
        fn drive(&mut self, _: Boot, out: &mut Vec<Completion>) -> bool {
            out.append(&mut self.0.borrow_mut().completions);
            false
        }
        fn next_deadline(&self) -> Option<Boot> {
            None
        }
        fn is_up(&self) -> bool {
            true
        }
    }

    #[test]
    fn p8_a_stream_that_is_off_is_reported_once_and_requested_rarely() {
        let wire = Rc::new(RefCell::new(Wire::default()));
        let mut events = ContainerEvents::new("me");
        events.open(Box::new(Scripted(wire.clone())));
        let mut seen = Vec::new();
        let mut now = Boot(1);
        let mut ends = |completions: &dyn Fn(CallId) -> Vec<Completion>, after: Duration| {
            events.drive(now, &mut seen);
            now = now + after;
            let call = CallId(wire.borrow().calls);
            wire.borrow_mut().completions = completions(call);
            events.drive(now, &mut seen);
            // None means that the stream has already been requested again.
            let next = events.next_deadline();
            let wait = next.map(|next| next.since(now));
            now = now.max(next.unwrap_or(now));
            (std::mem::take(&mut seen), wait)
        };
        let done = |id| Completion::Done { id, result: Ok(Bytes::new()) };
        let requested = StreamEvent::Requested;
        let at_once = Duration::from_millis(3);
        assert_eq!(ends(&|id| vec![done(id)], at_once), (vec![requested.clone(), StreamEvent::Off], Some(OFF_WAIT)));
        assert_eq!(ends(&|id| vec![done(id)], at_once), (vec![requested], Some(OFF_WAIT)));
        // A stream that lasts or delivers an event is not off. If a later stream is off, this is reported again.
        let message = Bytes::from(event(2, Some("you")).write_to_bytes().unwrap());
        let heard = |id| vec![Completion::Message { id, message: message.clone() }, done(id)];
        let lost = StreamEvent::Lost { why: "the runtime ended the stream".to_owned() };
        let (seen, wait) = ends(&heard, at_once);
        assert!(
            seen.contains(&lost) && !seen.contains(&StreamEvent::Off) && wait != Some(OFF_WAIT),
            "{seen:?} {wait:?}"
        );
        let (seen, wait) = ends(&|id| vec![done(id)], Duration::from_secs(3600));
        assert!(
            seen.contains(&lost) && !seen.contains(&StreamEvent::Off) && wait != Some(OFF_WAIT),
            "{seen:?} {wait:?}"
        );
        let (seen, wait) = ends(&|id| vec![done(id)], at_once);
        assert!(seen.contains(&StreamEvent::Off) && wait == Some(OFF_WAIT), "{seen:?} {wait:?}");
    }

    #[test]
    fn p8_an_event_has_its_pod_and_kind_and_events_of_other_owners_are_ignored() {
        let happened = |uid: Option<&str>, kind| {
            let event = PlegEvent { id: "c1".into(), kind };
            Ok(Some(StreamEvent::Happened { uid: uid.map(Uid::from), event, at: Wall(5) }))
        };
        assert_eq!(of(&event(2, Some("me"))), happened(Some("u"), Kind::ContainerDied));
        assert_eq!(of(&event(1, Some("me"))), happened(Some("u"), Kind::ContainerStarted));
        assert_eq!(of(&event(3, None)), happened(None, Kind::ContainerRemoved));
        assert_eq!(of(&event(2, Some("you"))), Ok(None));
    }

    #[test]
    fn an_event_that_makes_no_sense_is_an_error_with_its_reason() {
        assert!(of(&event(77, Some("me"))).unwrap_err().contains("77"));
        let nameless = proto::ContainerEventResponse { container_id: String::new(), ..event(2, Some("me")) };
        assert!(of(&nameless).unwrap_err().contains("without an id"));
        assert!(read(&Bytes::from_static(b"\xff\xff\xff"), "me").unwrap_err().contains("failed to decode"));
    }
}
