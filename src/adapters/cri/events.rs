//! The runtime's stream of container events (P8), on a connection of its own: hints, never the truth.
//!
//! It is asked for once the CRI service answers (a containerd that has just started answers UNIMPLEMENTED to everything), has
//! no deadline, and costs nothing while nothing happens. A stream that ended is asked for again after a back-off. A runtime
//! without one (containerd before 1.7) is not asked again as long as the client's connection to it lasts.
//!
//! Known of containerd 1.7: one queue for all listeners, so two of them see half of the events each; an event after a
//! reconnect may be lost; what happens while nobody listens is kept for the next one.

use super::transport::backoff::Backoff;
use super::transport::{Call, CallId, Completion, Transport};
use super::{client, proto};
use crate::api::names::{Uid, annotation, label};
use crate::api::time::{Boot, Wall};
use crate::engine::event::{Kind, PlegEvent};
use crate::engine::op::{Code, OpError};
use bytes::Bytes;
use protobuf::Message;
use std::time::Duration;

const PATH: &str = "/runtime.v1.RuntimeService/GetContainerEvents";

/// Between tries for a stream that does not last.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// The runtime was asked for its events.
    Asked,
    /// Something became of a container or sandbox. `uid`: its pod, which is ours; None if the event does not say.
    Happened { uid: Option<Uid>, event: PlegEvent, at: Wall },
    /// An event that makes no sense; the stream goes on.
    Nonsense { why: String },
    /// The stream ended, or there is no connection for it. It is tried again.
    Lost { why: String },
    /// The runtime has no such stream; it is done without.
    Unimplemented,
}

pub struct ContainerEvents {
    /// The owner's annotation of our pods.
    owner: String,
    link: Link,
}

enum Link {
    Closed,
    /// This runtime has no stream.
    Refused,
    Open(Box<Stream>),
}

struct Stream {
    transport: Box<dyn Transport>,
    call: Option<CallId>,
    backoff: Backoff,
    /// Without a call: when it is tried again.
    at: Boot,
}

impl ContainerEvents {
    pub fn new(owner: &str) -> ContainerEvents {
        ContainerEvents { owner: owner.to_owned(), link: Link::Closed }
    }

    /// It wants a connection.
    pub fn is_closed(&self) -> bool {
        matches!(self.link, Link::Closed)
    }

    /// The runtime's CRI service answers; `transport` is a connection for the stream alone.
    pub fn open(&mut self, transport: Box<dyn Transport>) {
        let backoff = Backoff::new(FIRST_WAIT, MAX_WAIT);
        self.link = Link::Open(Box::new(Stream { transport, call: None, backoff, at: Boot(0) }));
    }

    /// The runtime is gone. The next one may have what this one had not.
    pub fn close(&mut self) {
        self.link = Link::Closed;
    }

    /// Moves bytes, and asks for the stream when that is due. True if it stopped for its budget.
    pub fn drive(&mut self, now: Boot, out: &mut Vec<StreamEvent>) -> bool {
        let Link::Open(stream) = &mut self.link else { return false };
        let mut completions = Vec::new();
        let again = stream.transport.drive(now, &mut completions);
        let mut refused = false;
        for completion in completions {
            match completion {
                Completion::Message { id, message } if stream.call == Some(id) => {
                    out.extend(read(&message, &self.owner).unwrap_or_else(|why| Some(StreamEvent::Nonsense { why })));
                }
                Completion::Done { id, result } if stream.call == Some(id) => {
                    stream.call = None;
                    stream.at = stream.backoff.next(now);
                    match result.map_err(client::op_error) {
                        Err(OpError::Answered { code: Code::Unimplemented, .. }) => refused = true,
                        Err(e) => out.push(StreamEvent::Lost { why: e.to_string() }),
                        Ok(_) => out.push(StreamEvent::Lost { why: "the runtime ended it".to_owned() }),
                    }
                }
                // (With a call there follows its end.)
                Completion::Down { why } if stream.call.is_none() => out.push(StreamEvent::Lost { why }),
                _ => {}
            }
        }
        if refused {
            out.push(StreamEvent::Unimplemented);
            self.link = Link::Refused;
            return false;
        }
        if stream.call.is_none() && stream.transport.is_up() && stream.at <= now {
            stream.backoff.attempt(now);
            // An empty message: GetEventsRequest has no fields.
            let call = Call { path: PATH, body: Bytes::new(), deadline: None, server_stream: true, header: None };
            stream.call = Some(stream.transport.call(call, now));
            out.push(StreamEvent::Asked);
        }
        again
    }

    /// When `drive` must be called at the latest.
    pub fn next_deadline(&self) -> Option<Boot> {
        let Link::Open(stream) = &self.link else { return None };
        let ask = (stream.call.is_none() && stream.transport.is_up()).then_some(stream.at);
        ask.into_iter().chain(stream.transport.next_deadline()).min()
    }
}

/// None: it is of somebody else's pod.
fn read(message: &Bytes, owner: &str) -> Result<Option<StreamEvent>, String> {
    let event = proto::ContainerEventResponse::parse_from_bytes(message)
        .map_err(|e| format!("an event cannot be read: {e}"))?;
    let kind = match event.container_event_type.enum_value() {
        Ok(proto::ContainerEventType::CONTAINER_CREATED_EVENT) => Kind::ContainerChanged,
        Ok(proto::ContainerEventType::CONTAINER_STARTED_EVENT) => Kind::ContainerStarted,
        Ok(proto::ContainerEventType::CONTAINER_STOPPED_EVENT) => Kind::ContainerDied,
        Ok(proto::ContainerEventType::CONTAINER_DELETED_EVENT) => Kind::ContainerRemoved,
        Err(unknown) => return Err(format!("an event of the unknown type {unknown}")),
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

    #[test]
    fn p8_an_event_says_whose_and_what_and_those_of_others_are_left_out() {
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
        assert!(read(&Bytes::from_static(b"\xff\xff\xff"), "me").unwrap_err().contains("cannot be read"));
    }
}
