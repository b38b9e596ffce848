//! The requests of the API that only it passes to the engine, and the responses from the engine's answers.

use super::Kube;
use super::ephemeral::Debugging;
use crate::adapters::server::api::failure;
use crate::agent::content::{Response, View};
use crate::api::kube::status::Failure;
use crate::api::kube::versions::Key;
use crate::engine::control::{Reply, RequestError};
use crate::net::server::exchange::Ticket;
use serde_json::Value;

#[derive(Debug)]
pub(super) enum Pending {
    /// The eviction of this pod.
    Evict {
        name: String,
    },
    /// A change of the node.
    Cordon,
    /// The deletion of a pod that terminates already, with a grace period. `live`: the pod before it.
    DeleteAgain {
        key: Key,
        live: Value,
    },
    Ephemeral(Debugging),
}

impl Kube {
    /// The engine has answered. Returns the response, unless the request goes on. The answer comes back if the request
    /// is not one of the API.
    pub(in crate::agent) fn answered(
        &mut self,
        view: &View<'_>,
        ticket: Ticket,
        answer: Result<Reply, RequestError>,
    ) -> Result<Option<Response>, Result<Reply, RequestError>> {
        let response = match self.pending.remove(&ticket) {
            Some(Pending::Evict { name }) => self.node_answered(view, Some(name), answer),
            Some(Pending::Cordon) => self.node_answered(view, None, answer),
            Some(Pending::DeleteAgain { key, live }) => self.deleted_again(view, &key, live, answer),
            Some(Pending::Ephemeral(of)) => self.ephemeral_added(view, of, answer),
            None => match self.waiting.answered(view, &self.machine, ticket, answer)? {
                Some(response) => response,
                None => return Ok(None),
            },
        };
        Ok(Some(response.unwrap_or_else(|e| failure(&e))))
    }

    fn deleted_again(
        &self,
        view: &View<'_>,
        key: &Key,
        live: Value,
        answer: Result<Reply, RequestError>,
    ) -> Result<Response, Failure> {
        answer.map_err(Failure::internal)?;
        // It has the new grace period. A pod that ended meanwhile is shown as it was.
        let now = self.object(view, key).filter(|now| now["metadata"]["uid"] == live["metadata"]["uid"]);
        Ok(Response::json(serde_json::to_vec(&now.unwrap_or(live)).unwrap_or_default()))
    }
}
