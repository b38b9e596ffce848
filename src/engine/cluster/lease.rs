//! The node's lease: renewed every ten seconds, so that the control plane knows that the node works.
//!
//! A renewal patches the time only. It needs no earlier read and no version, and it is a fifth of a kubelet's update.

use super::backoff::{Backoff, Limits};
use super::reflector::{Step, begin};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::status::{Failure, Refusal};
use crate::api::cluster::{lease, requests};
use crate::api::time::Boot;
use crate::engine::op::OpId;
use serde::Serialize;
use std::time::Duration;

/// A quarter of the lease's duration, as in a kubelet.
const PERIOD: Duration = Duration::from_secs(10);
/// Below the lease's duration, so that a lost answer does not make the node NotReady.
const TIMEOUT: Duration = Duration::from_secs(10);
const RETRIES: Limits = Limits { first: Duration::from_millis(200), most: Duration::from_secs(7) };

#[derive(Debug, Default, Serialize)]
pub struct Lease {
    state: State,
    backoff: Backoff,
    /// The lease has existed.
    existed: bool,
}

#[derive(Debug, Serialize)]
enum State {
    /// The next renewal.
    Due(Boot),
    Renewing(OpId),
    /// The lease does not exist.
    Missing,
    Creating(OpId),
}

impl Default for State {
    fn default() -> State {
        State::Due(Boot(0))
    }
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    Done,
    Failed,
    /// The lease does not exist any more. It is removed together with its Node.
    Missing,
}

impl Lease {
    pub fn next(&self) -> Option<Boot> {
        match self.state {
            State::Due(at) => Some(at.max(self.backoff.at())),
            State::Missing => Some(self.backoff.at()),
            State::Renewing(_) | State::Creating(_) => None,
        }
    }

    pub fn hurry(&mut self) {
        self.backoff.hurry();
        if let State::Due(at) = &mut self.state {
            *at = Boot(0);
        }
    }

    /// `node_uid`: the owner of the lease.
    pub fn step(&mut self, node: &str, node_uid: &str, step: &mut Step<'_>) {
        if self.next().is_none_or(|at| at > step.now) {
            return;
        }
        self.state = match self.state {
            State::Missing => {
                let request = requests::create_lease(lease::new(node, node_uid, lease::DURATION_S, step.wall));
                State::Creating(begin(request, Some(TIMEOUT), step.outbox))
            }
            _ => {
                let request = requests::patch_lease(node, lease::renewal(step.wall));
                State::Renewing(begin(request, Some(TIMEOUT), step.outbox))
            }
        };
    }

    /// None: the operation is not one of the lease.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> Option<Renewal> {
        let (State::Renewing(of) | State::Creating(of)) = self.state else { return None };
        if of != op {
            return None;
        }
        let creating = matches!(self.state, State::Creating(_));
        let refusal = result.as_ref().map(Refusal::of);
        let refusal = match refusal {
            Ok(None) => {
                self.backoff.succeeded();
                self.existed = true;
                // Nodes that started together drift apart.
                let jitter = Duration::from_millis(step.rng.draw() % 800);
                self.state = State::Due(step.now + (PERIOD - Duration::from_millis(400)) + jitter);
                return Some(Renewal::Done);
            }
            Ok(refusal) => refusal,
            Err(_) => None,
        };
        self.state = State::Due(step.now);
        match refusal.as_ref().map(|r| r.failure) {
            Some(Failure::NotFound) if !creating => {
                self.state = State::Missing;
                return Some(if self.existed { Renewal::Missing } else { Renewal::Failed });
            }
            // It exists after all.
            Some(Failure::AlreadyExists) if creating => return Some(Renewal::Failed),
            _ => {}
        }
        if creating {
            self.state = State::Missing;
        }
        self.backoff.refused(refusal.as_ref(), RETRIES, step.now, step.rng);
        Some(Renewal::Failed)
    }
}
