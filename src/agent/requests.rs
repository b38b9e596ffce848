//! The requests of all servers that wait for the engine, by ticket.

use super::act::{Origin, Then};
use crate::api::time::Boot;
use crate::engine::control::Request;
use crate::net::server::exchange::Ticket;
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct PendingRequests {
    requests: BTreeMap<Ticket, Pending>,
}

struct Pending {
    origin: Origin,
    then: Then,
    stage: Stage,
}

enum Stage {
    /// The request was passed to the engine.
    Asked,
    /// The request must be passed to the engine at this time.
    Waits(Boot, Request),
}

impl PendingRequests {
    /// Notes that the request was passed to the engine.
    pub(super) fn asked(&mut self, ticket: Ticket, origin: Origin, then: Then) {
        self.requests.insert(ticket, Pending { origin, then, stage: Stage::Asked });
    }

    /// Notes a request that must be passed to the engine at this time.
    pub(super) fn ask_at(&mut self, at: Boot, ticket: Ticket, origin: Origin, request: Request, then: Then) {
        self.requests.insert(ticket, Pending { origin, then, stage: Stage::Waits(at, request) });
    }

    /// Removes a request, because the engine has answered or the client has disconnected.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<(Origin, Then)> {
        self.requests.remove(&ticket).map(|Pending { origin, then, .. }| (origin, then))
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        let deadlines = self.requests.values().filter_map(|pending| match pending.stage {
            Stage::Waits(at, _) => Some(at),
            Stage::Asked => None,
        });
        deadlines.min()
    }

    /// Returns the delayed requests that must be passed to the engine now.
    pub(super) fn due(&mut self, now: Boot) -> Vec<(Ticket, Request)> {
        let mut due = Vec::new();
        for (ticket, pending) in &mut self.requests {
            if !matches!(pending.stage, Stage::Waits(at, _) if at <= now) {
                continue;
            }
            if let Stage::Waits(_, request) = std::mem::replace(&mut pending.stage, Stage::Asked) {
                due.push((*ticket, request));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_waits_is_due_once_and_then_belongs_to_the_engine() {
        let mut requests = PendingRequests::default();
        requests.asked(Ticket(1), Origin::Local, Then::Show);
        requests.ask_at(Boot(5), Ticket(2), Origin::Kubectl, Request::Usage, Then::Ran);
        requests.ask_at(Boot(7), Ticket(3), Origin::Node, Request::Usage, Then::Ran);
        assert_eq!((requests.next_deadline(), requests.due(Boot(4))), (Some(Boot(5)), vec![]));
        assert_eq!(requests.due(Boot(5)), [(Ticket(2), Request::Usage)]);
        assert_eq!((requests.next_deadline(), requests.due(Boot(6))), (Some(Boot(7)), vec![]));
        // The client of the third request disconnects meanwhile.
        assert!(requests.take(Ticket(3)).is_some());
        assert_eq!((requests.next_deadline(), requests.due(Boot(9))), (None, vec![]));
        assert!(matches!(requests.take(Ticket(2)), Some((Origin::Kubectl, Then::Ran))));
        assert!(matches!(requests.take(Ticket(1)), Some((Origin::Local, Then::Show))));
        assert!(requests.take(Ticket(1)).is_none());
    }
}
