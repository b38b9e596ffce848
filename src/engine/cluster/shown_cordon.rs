//! C16: shows the node's cordon on the API server. The Node object itself shows whether the server has the cordon, so
//! nothing is kept on the disk, and a Node that is created again is cordoned again.

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
/// A change after a pause of this length is not delayed by earlier changes.
const PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default, Serialize)]
pub struct ShownCordon {
    /// Whether the node is cordoned.
    pub wanted: bool,
    state: State,
    /// Each change delays the next one, so that two programs that undo each other's changes do not flood the server.
    backoff: Backoff,
    last: Option<Boot>,
}

#[derive(Debug, Default, Serialize)]
enum State {
    /// The Node object has not been seen yet.
    #[default]
    Unseen,
    /// Whether the Node object on the server shows a cordon of Wherry.
    Shown(bool),
    Patching(OpId),
}

impl ShownCordon {
    /// Takes the current Node object.
    pub fn observe(&mut self, node: &Value) {
        // While a patch is in flight, the object is ignored: the response to the patch will be newer.
        if !matches!(self.state, State::Patching(_)) {
            self.state = State::Shown(cordon::is_shown(node));
        }
    }

    /// Makes the next patch due, because the server is reachable again.
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

    /// Returns the request in flight.
    pub fn op(&self) -> Option<OpId> {
        match self.state {
            State::Patching(op) => Some(op),
            State::Unseen | State::Shown(_) => None,
        }
    }

    /// Handles the result of the request. Returns the Node object if the response contains it.
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
        // Without a response, the state on the server is unknown, and the patch is repeated.
        let shown = node.as_ref().map_or(!self.wanted, cordon::is_shown);
        self.state = State::Shown(shown);
        node
    }
}
