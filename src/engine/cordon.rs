//! The cordon of the node (A10), and its record. A change takes effect when its record is durable; its client gets
//! the answer then. Changes are made one at a time, in the order of their requests.

use crate::api::reason::Reason;
use crate::engine::control::{RequestError, RequestId};
use crate::engine::effect::{RecordChange, Severity};
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use serde::Serialize;
use std::collections::VecDeque;

/// The key of the record. It exists while the node is cordoned.
pub const KEY: &str = "node/cordon";
pub const KIND: &str = "node";
/// The content of the record. Only the existence of the record matters.
const RECORD: &str = r#"{"version":1,"cordoned":true}"#;

#[derive(Debug, Default, Serialize)]
pub struct Cordon {
    on: bool,
    change: Option<Change>,
    waiting: VecDeque<(Option<RequestId>, bool)>,
}

/// A change whose record is being written or removed.
#[derive(Debug, Serialize)]
struct Change {
    op: OpId,
    on: bool,
    /// None: the client has disconnected.
    request: Option<RequestId>,
}

/// The answer to a request.
pub type Answer = (RequestId, Result<bool, RequestError>);

impl Cordon {
    /// Returns true if the node is cordoned.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Restores the cordon, because the record of an earlier run exists.
    pub fn record_found(&mut self) {
        self.on = true;
    }

    /// Handles a request to cordon or uncordon the node. Returns the answer if there is nothing to change.
    pub fn request(&mut self, id: RequestId, on: bool, outbox: &mut Outbox) -> Option<Answer> {
        self.waiting.push_back((Some(id), on));
        self.next(outbox).pop()
    }

    /// Handles the end of writing or removing the record. Returns the answers, and whether the node's state has
    /// changed.
    pub fn answered(&mut self, op: OpId, result: Result<(), OpError>, outbox: &mut Outbox) -> (Vec<Answer>, bool) {
        let Some(change) = self.change.take_if(|change| change.op == op) else { return (Vec::new(), false) };
        let changed = result.is_ok() && self.on != change.on;
        if changed {
            self.on = change.on;
            let (reason, message) = match change.on {
                true => (Reason::NodeNotSchedulable, "the node is cordoned: pods that have never started do not start"),
                false => (Reason::NodeSchedulable, "the node is no longer cordoned: pods that waited may start"),
            };
            outbox.emit_node_event(Severity::Normal, reason, message.to_owned());
        }
        let answer = result.map(|()| change.on).map_err(|e| RequestError::NotCordoned { why: e.message().to_owned() });
        let first = change.request.map(|request| (request, answer));
        let answers = first.into_iter().chain(self.next(outbox)).collect();
        (answers, changed)
    }

    /// Forgets a client that has disconnected. Its change still takes place.
    pub fn gone(&mut self, id: RequestId) {
        let running = self.change.as_mut().map(|change| &mut change.request);
        let all = self.waiting.iter_mut().map(|(request, _)| request).chain(running);
        all.filter(|request| **request == Some(id)).for_each(|request| *request = None);
    }

    /// Begins the next change. Returns the answers to requests that change nothing.
    fn next(&mut self, outbox: &mut Outbox) -> Vec<Answer> {
        let mut answers = Vec::new();
        while self.change.is_none()
            && let Some((request, on)) = self.waiting.pop_front()
        {
            if on == self.on {
                answers.extend(request.map(|request| (request, Ok(on))));
                continue;
            }
            let key = KEY.to_owned();
            let record = match on {
                true => RecordChange::Put { key, value: RECORD.to_owned() },
                false => RecordChange::Delete { key },
            };
            let op = outbox.record(Owner::Cordon, record);
            self.change = Some(Change { op, on, request });
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Result<(), OpError> {
        Err(OpError::Unknown("disk full".to_owned()))
    }

    fn begun(cordon: &Cordon) -> OpId {
        cordon.change.as_ref().map(|change| change.op).unwrap()
    }

    #[test]
    fn a10_a_change_takes_effect_when_it_is_durable() {
        let (mut cordon, mut outbox) = (Cordon::default(), Outbox::default());
        assert_eq!(cordon.request(RequestId(1), false, &mut outbox), Some((RequestId(1), Ok(false))));
        assert_eq!(cordon.request(RequestId(2), true, &mut outbox), None);
        assert!(!cordon.is_on());
        let (answers, changed) = cordon.answered(begun(&cordon), Ok(()), &mut outbox);
        assert_eq!((answers, changed, cordon.is_on()), (vec![(RequestId(2), Ok(true))], true, true));
        assert_eq!(cordon.request(RequestId(3), true, &mut outbox), Some((RequestId(3), Ok(true))));
    }

    #[test]
    fn a10_a_change_that_cannot_be_written_has_no_effect_and_the_next_one_follows() {
        let (mut cordon, mut outbox) = (Cordon::default(), Outbox::default());
        for (id, on) in [(1, true), (2, false), (3, true), (4, true)] {
            assert_eq!(cordon.request(RequestId(id), on, &mut outbox), None);
        }
        let (answers, changed) = cordon.answered(begun(&cordon), failed(), &mut outbox);
        let why = "disk full".to_owned();
        let expected = [(RequestId(1), Err(RequestError::NotCordoned { why })), (RequestId(2), Ok(false))];
        assert_eq!((answers.as_slice(), changed, cordon.is_on()), (&expected[..], false, false));
        let (answers, changed) = cordon.answered(begun(&cordon), Ok(()), &mut outbox);
        assert_eq!((answers, changed), (vec![(RequestId(3), Ok(true)), (RequestId(4), Ok(true))], true));
    }
}
