//! The node's lease, which is renewed every ten seconds (see `traffic`), so that the control plane knows that the
//! node is alive.
//!
//! A renewal patches only the time. It needs no previous read and no resource version, and is much smaller than a
//! kubelet's update.

use super::backoff::{Backoff, Limits};
use super::reflector::{Step, begin};
use super::warning::warn;
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::status::{Failure, Refusal};
use crate::api::cluster::{lease, requests};
use crate::api::time::{Boot, Wall};
use crate::engine::op::OpId;
use serde::Serialize;
use std::time::Duration;

/// Shorter than the lease's duration, so that a lost response does not make the node NotReady.
const TIMEOUT: Duration = Duration::from_secs(10);
const RETRIES: Limits = Limits { first: Duration::from_millis(200), most: Duration::from_secs(7) };
/// The smallest difference between two renewal times that the API stores.
const MICROSECOND: Duration = Duration::from_micros(1);

#[derive(Debug, Default, Serialize)]
pub struct Lease {
    state: State,
    backoff: Backoff,
    creation: Creation,
    /// The time in the last renewal.
    renewed: Wall,
}

/// Whether the last creation of the lease failed and an event has reported this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
enum Creation {
    #[default]
    Unknown,
    Failed,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
enum State {
    /// It is not known whether the lease exists. The first renewal shows it.
    #[default]
    Unknown,
    First(OpId),
    /// When the next renewal is due.
    Due(Boot),
    Renewing(OpId),
    /// The lease does not exist.
    Missing,
    Creating(OpId),
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    Done,
    Failed,
    /// The lease no longer exists. It is removed together with its Node.
    Missing,
}

impl Lease {
    pub fn next(&self) -> Option<Boot> {
        match self.state {
            State::Due(at) => Some(at.max(self.backoff.at())),
            State::Unknown | State::Missing => Some(self.backoff.at()),
            State::First(_) | State::Renewing(_) | State::Creating(_) => None,
        }
    }

    /// Makes the next renewal due, because the server is reachable again.
    pub fn hurry(&mut self) {
        self.backoff.hurry();
        if let State::Due(_) = self.state {
            self.state = State::Unknown;
        }
    }

    /// Begins the renewal or the creation of the lease if it is due. Returns whether it has begun. `node_uid`: the
    /// owner of the lease.
    pub fn step(&mut self, node: &str, node_uid: &str, step: &mut Step<'_>) -> bool {
        if self.next().is_none_or(|at| at > step.now) {
            return false;
        }
        let renewed = self.renewal_time(step.wall);
        self.state = match self.state {
            State::Missing => {
                let request = requests::create_lease(lease::new(node, node_uid, lease::DURATION_S, renewed));
                State::Creating(begin(request, Some(TIMEOUT), step.outbox))
            }
            before => {
                let request = requests::patch_lease(node, lease::renewal(renewed, step.traffic.has_managed_fields()));
                let op = begin(request, Some(TIMEOUT), step.outbox);
                if matches!(before, State::Unknown) { State::First(op) } else { State::Renewing(op) }
            }
        };
        true
    }

    /// Returns the time of the next renewal: now, but later than that of the last one. The node controller ignores a
    /// renewal with an earlier time, so a node whose clock was set back would become NotReady.
    fn renewal_time(&mut self, now: Wall) -> Wall {
        self.renewed = now.max(self.renewed + MICROSECOND);
        self.renewed
    }

    /// Handles the result of a request. Returns None if the request does not belong to the lease.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> Option<Renewal> {
        let (State::First(of) | State::Renewing(of) | State::Creating(of)) = self.state else { return None };
        if of != op {
            return None;
        }
        let refusal = result.as_ref().map(Refusal::of);
        let refusal = match refusal {
            Ok(None) => {
                self.backoff.succeeded();
                self.creation = Creation::Unknown;
                let period = step.traffic.lease_period();
                let delay = match self.state {
                    State::Renewing(_) => step.rng.spread(period / 25) + period,
                    // Nodes that started, or found the server again, at the same time (C12) renew their leases at
                    // different times.
                    _ => step.rng.spread(period),
                };
                self.state = State::Due(step.now + delay);
                return Some(Renewal::Done);
            }
            Ok(refusal) => refusal,
            Err(_) => None,
        };
        let failure = refusal.as_ref().map(|r| r.failure);
        let (state, renewal) = match (&self.state, failure) {
            (State::First(_), Some(Failure::NotFound)) => (State::Missing, Renewal::Failed),
            // The namespace of the leases does not exist.
            (State::Creating(_), Some(Failure::NotFound)) => {
                if std::mem::replace(&mut self.creation, Creation::Failed) != Creation::Failed {
                    let message =
                        "the lease of the node cannot be created: the API server has no namespace kube-node-lease";
                    warn(step.outbox, message.to_owned());
                }
                self.backoff.refused(refusal.as_ref(), RETRIES, step.now, step.rng);
                (State::Missing, Renewal::Failed)
            }
            (_, Some(Failure::NotFound)) => (State::Missing, Renewal::Missing),
            // The lease exists after all, so it is renewed at once.
            (State::Creating(_), Some(Failure::AlreadyExists)) => (State::Due(step.now), Renewal::Failed),
            (before, _) => {
                let state = match before {
                    State::Creating(_) => State::Missing,
                    State::First(_) => State::Unknown,
                    _ => State::Due(step.now),
                };
                self.backoff.refused(refusal.as_ref(), RETRIES, step.now, step.rng);
                (state, Renewal::Failed)
            }
        };
        self.state = state;
        Some(renewal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_renewal_time_never_goes_back() {
        let mut lease = Lease::default();
        let times = [5_000, 3_000_000, 2_000_000, 2_000_500, 3_001_000, 9_000_000];
        let renewed = times.map(|now| lease.renewal_time(Wall(now)).0);
        assert_eq!(renewed, [5_000, 3_000_000, 3_001_000, 3_002_000, 3_003_000, 9_000_000]);
    }
}
