//! Requests of users: the server's requests become events of the engine, and its answers become responses.

use super::{Agent, SERVER};
use crate::adapters::server::control;
use crate::api::time::Now;
use crate::engine::control::{Reply, Request, RequestError, RequestId};
use crate::engine::event::Event;
use crate::net::server::exchange::Ticket;
use mio::Token;

/// A change among the requests on the control socket.
pub(super) enum ControlEvent {
    Request(Ticket, Request),
    /// The client has disconnected.
    Gone(Ticket),
}

impl Agent {
    /// Passes the requests of one drive of the server to the engine.
    pub(super) fn take_requests(&mut self, requests: Vec<ControlEvent>, now: Now) {
        if requests.is_empty() {
            return;
        }
        for request in requests {
            self.events.push_back(match request {
                ControlEvent::Request(Ticket(id), request) => Event::Request { id: RequestId(id), request },
                ControlEvent::Gone(Ticket(id)) => {
                    if let Some(kube) = self.kube.get() {
                        kube.gone(Ticket(id));
                    }
                    if let Some(node_server) = self.node_server.get() {
                        node_server.gone(Ticket(id));
                    }
                    Event::RequestGone { id: RequestId(id) }
                }
            });
        }
        self.settle(now);
        // Clients receive the answers, and watches the changes, in the next turn.
        self.event_loop.again(Token(SERVER));
    }

    pub(super) fn answer(&mut self, id: RequestId, answer: Result<Reply, RequestError>, now: Now) {
        if let Ok(Reply::Retried { pod, outcome }) = &answer {
            log::info!("pod={pod} reason=Retried outcome={:?}", outcome.to_string());
        }
        let ticket = Ticket(id.0);
        let answered = self.kube_answered(ticket, answer, now);
        let response = match answered.or_else(|answer| self.node_server_answered(ticket, answer, now)) {
            Ok(None) => return,
            Ok(Some(response)) => response,
            Err(answer) => control::response(answer),
        };
        self.server.answer(Ticket(id.0), response, now.boot);
        self.event_loop.again(Token(SERVER));
    }
}
