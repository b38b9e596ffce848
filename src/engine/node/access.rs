//! Access control of the node's server (C6): passes the requests of its clients to `engine::cluster::reviews`, and
//! returns the decisions.

use super::Engine;
use crate::engine::cluster::access::{AccessError, AccessRequest};
use crate::engine::control::{Reply, RequestError, RequestId};
use crate::engine::effect::Effect;

impl Engine {
    pub(super) fn ask_for_access(&mut self, id: RequestId, request: AccessRequest) {
        match self.with_member(|member, step| member.reviews.ask(id, request, step)) {
            Some(()) => self.answer_reviews(),
            // The node's server exists only on a node of a cluster, so any other request is rejected.
            None => self.answer(id, Err(RequestError::NoAccess(AccessError::Unauthorized))),
        }
    }

    /// Handles the disconnection of a request's client.
    pub(super) fn review_gone(&mut self, id: RequestId) {
        if let Some(member) = self.cluster.member_mut() {
            member.reviews.gone(id);
        }
    }

    /// Answers the clients whose reviews have ended.
    pub(super) fn answer_reviews(&mut self) {
        let Engine { cluster, outbox, .. } = self;
        let Some(member) = cluster.member_mut() else { return };
        for (id, access) in member.reviews.take_answers() {
            let answer = access.map(|user| Reply::Permitted { user }).map_err(RequestError::NoAccess);
            outbox.push(Effect::Answer { id, answer });
        }
    }

    pub(super) fn node_server_listens(&mut self, port: u16) {
        if let Some(member) = self.cluster.member_mut() {
            member.status.port = port;
        }
    }
}
