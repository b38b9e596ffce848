//! C16: the node's cordon on the API server. The node's object shows whether the server has it, so nothing is kept on
//! the disk, and a node that was created again is cordoned again.

use super::backoff::{Backoff, REQUESTS};
use super::reflector::{Step, begin};
use super::warning::warn;
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::status::Refusal;
use crate::api::cluster::{cordon, requests};
use crate::api::time::Boot;
use crate::engine::op::OpId;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
/// A change after this time is not delayed by the ones before.
const PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default, Serialize)]
pub struct ShownCordon {
    /// The node is cordoned.
    pub wanted: bool,
    state: State,
    /// Each change delays the next one, so that two programs that take back each other's changes make no storm.
    backoff: Backoff,
    last: Option<Boot>,
}

#[derive(Debug, Default, Serialize)]
enum State {
    /// The node's object has not been seen.
    #[default]
    Unseen,
    /// The server's object shows a cordon of Wherry, or none.
    Shown(bool),
    Patching(OpId),
}

impl ShownCordon {
    /// The present object of the node.
    pub fn observe(&mut self, node: &Value) {
        // The answer to a patch is newer.
        if !matches!(self.state, State::Patching(_)) {
            self.state = State::Shown(cordon::is_shown(node));
        }
    }

    /// The server answers again.
    pub fn hurry(&mut self) {
        self.backoff.hurry();
    }

    pub fn next(&self) -> Option<Boot> {
        match self.state {
            State::Shown(shown) if shown != self.wanted => Some(self.backoff.at()),
            State::Shown(_) | State::Unseen | State::Patching(_) => None,
        }
    }

    pub fn step(&mut self, node: &str, step: &mut Step<'_>) {
        if self.next().is_none_or(|at| at > step.now) {
            return;
        }
        if self.last.is_none_or(|last| step.now.since(last) > PAUSE) {
            self.backoff.succeeded();
        }
        self.last = Some(step.now);
        let request = requests::patch_node(node, cordon::patch(self.wanted));
        self.state = State::Patching(begin(request, Some(TIMEOUT), step.outbox));
    }

    /// The request in flight.
    pub fn op(&self) -> Option<OpId> {
        match self.state {
            State::Patching(op) => Some(op),
            State::Unseen | State::Shown(_) => None,
        }
    }

    /// Handles the end of the request. Returns the node's object if the server has answered with it.
    pub fn ended(&mut self, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> Option<Value> {
        let answer = result.as_ref().ok();
        let refusal = answer.and_then(Refusal::of);
        if let Some(refusal) = &refusal {
            warn(step.outbox, format!("the API server refuses the cordon of the node: {refusal}"));
        }
        self.backoff.refused(refusal.as_ref(), REQUESTS, step.now, step.rng);
        let node =
            answer.filter(|_| refusal.is_none()).and_then(|response| serde_json::from_slice(&response.body).ok());
        let node = node.filter(|node: &Value| node["kind"] == "Node");
        // Without an answer, the server may have either state. The patch is repeated.
        let shown = node.as_ref().map_or(!self.wanted, cordon::is_shown);
        self.state = State::Shown(shown);
        node
    }
}
