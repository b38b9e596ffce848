//! The certificates that the node gets from its cluster: the client certificate, which is renewed, and with
//! `serverTLSBootstrap` the certificate of the node's server, which is requested and renewed (C7).
//!
//! A disconnected node cannot renew its certificates, so a renewal begins after half of the lifetime; a kubelet waits
//! for 70 to 90 %. Each renewal uses a new key. The key is on the disk before its request is sent, and the name of
//! the request is derived from the key: after a lost response, a restart or a kill, the next attempt finds the same
//! request again. No Kubernetes controller approves serving certificates, so a request can wait for days.

use super::backoff::{Backoff, Limits};
use super::reflector::{Step, begin};
use crate::api::cluster::certificate::{self, InUse, Purpose, SigningProgress, SigningRequest};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::requests::{self, Signer};
use crate::api::cluster::status::{Failure, Refusal};
use crate::api::reason::Reason;
use crate::api::time::{Boot, Wall};
use crate::engine::effect::{Effect, IdentityCall, Key, Severity};
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::engine::owner::Owner;
use crate::engine::rng::Rng;
use serde::Serialize;
use std::time::Duration;

/// The renewal begins at a random time in this part of the lifetime, in percent, so that nodes do not renew at the
/// same time.
const BEGIN: (u64, u64) = (50, 55);
const TIMEOUT: Duration = Duration::from_secs(30);
/// The back-off after a failure.
const RETRIES: Limits = Limits { first: Duration::from_secs(10), most: Duration::from_secs(600) };
/// The back-off after a denial by a person or a policy.
const DENIED: Limits = Limits { first: Duration::from_secs(600), most: Duration::from_secs(6 * 3600) };
/// The delays between two reads of a request's state. An automatic approval takes less than a second.
const LOOKS: Limits = Limits { first: Duration::from_secs(1), most: Duration::from_secs(300) };
/// A request that is not approved within this time is not approved automatically.
const AUTOMATIC: Duration = Duration::from_secs(5);
/// The same for a request that a person has to approve. The delays stay short, because that person waits for the
/// result.
const LOOKS_FOR_A_PERSON: Limits = Limits { most: Duration::from_secs(60), ..LOOKS };
/// The longest time between two comparisons with the wall clock, which can be set at any time.
const CLOCK: Duration = Duration::from_secs(3600);

#[derive(Debug, Serialize)]
pub struct Certificate {
    wanted: Purpose,
    held: Held,
    renewal: Renewal,
    backoff: Backoff,
    /// The number of requests and renewals that failed.
    failures: u64,
}

/// The certificate in use.
#[derive(Debug, Serialize)]
enum Held {
    /// The files have not been read yet.
    Unknown,
    /// There is no certificate. If it is the client certificate, the node has another kind of credential.
    Missing,
    Present(Box<Present>),
}

#[derive(Debug, Serialize)]
struct Present {
    in_use: InUse,
    renew: Wall,
    expiry: Expiry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Expiry {
    Ahead,
    /// The certificate has expired, and an event has reported it.
    Reported,
}

#[derive(Debug, Serialize)]
enum Renewal {
    /// The renewal is not due, or waits for the next attempt. `look`: the next comparison with the wall clock.
    Idle {
        key: Key,
        look: Boot,
    },
    /// The adapter creates the signing request.
    Making(OpId),
    Made(SigningRequest),
    Posting {
        op: OpId,
        request: SigningRequest,
    },
    Waiting(Pending),
    Reading {
        op: OpId,
        pending: Pending,
    },
    /// The adapter stores the certificate.
    Storing(OpId),
}

/// A request on the server whose certificate has not been issued yet.
#[derive(Clone, Debug, Serialize)]
struct Pending {
    name: String,
    looks: Backoff,
    approval: Approval,
}

#[derive(Clone, Copy, Debug, Serialize)]
enum Approval {
    /// An automatic approval is still possible.
    Expected { since: Boot },
    /// An event has shown the command that approves the request.
    Announced,
}

impl Default for Renewal {
    fn default() -> Renewal {
        Renewal::Idle { key: Key::Kept, look: Boot(0) }
    }
}

impl Certificate {
    pub fn new(wanted: Purpose) -> Certificate {
        Certificate {
            wanted,
            held: Held::Unknown,
            renewal: Renewal::default(),
            backoff: Backoff::default(),
            failures: 0,
        }
    }

    pub fn signer(&self) -> Signer {
        self.wanted.signer()
    }

    /// Sets what the certificate has to contain, for example after the node's addresses have changed.
    pub fn want(&mut self, wanted: Purpose) {
        if self.wanted == wanted {
            return;
        }
        self.wanted = wanted;
        match &mut self.renewal {
            Renewal::Idle { look, .. } => *look = Boot(0),
            // The request is for the old names and addresses, so it is dropped.
            Renewal::Made(_) | Renewal::Waiting(_) => self.renewal = Renewal::default(),
            // The issued certificate will lack the new names and addresses, and another renewal follows.
            Renewal::Making(_) | Renewal::Posting { .. } | Renewal::Reading { .. } | Renewal::Storing(_) => {}
        }
    }

    pub fn failures(&self) -> u64 {
        self.failures
    }

    fn present(&self) -> Option<&Present> {
        match &self.held {
            Held::Present(present) => Some(present),
            Held::Unknown | Held::Missing => None,
        }
    }

    /// Returns the last second in which the certificate in use is valid.
    pub fn not_after(&self) -> Option<Wall> {
        self.present().map(|present| present.in_use.validity().not_after)
    }

    fn kind(&self) -> &'static str {
        match self.wanted {
            Purpose::Client => "client",
            Purpose::Serving(_) => "serving",
        }
    }

    /// Takes the certificate that was read from the files. None: there is no certificate.
    pub fn observed(&mut self, in_use: Option<InUse>, rng: &mut Rng) {
        if self.present().is_some_and(|present| Some(&present.in_use) == in_use.as_ref()) {
            return;
        }
        self.held = in_use.map_or(Held::Missing, |in_use| {
            let validity = in_use.validity();
            let lifetime = validity.not_after.since(validity.not_before);
            let part = BEGIN.0 * 1000 + rng.draw() % ((BEGIN.1 - BEGIN.0) * 1000);
            let renew = validity.not_before + lifetime.mul_f64(part as f64 / 100_000.0);
            Held::Present(Box::new(Present { in_use, renew, expiry: Expiry::Ahead }))
        });
        if let Renewal::Idle { look, .. } = &mut self.renewal {
            *look = Boot(0);
        }
    }

    /// Returns the time from which a new certificate is needed. None if no new certificate is needed.
    fn due(&self) -> Option<Wall> {
        // Earlier than any time that the clock shows.
        const AT_ONCE: Wall = Wall(0);
        match (&self.held, &self.wanted) {
            (Held::Unknown, _) | (Held::Missing, Purpose::Client) => None,
            (Held::Missing, Purpose::Serving(_)) => Some(AT_ONCE),
            (Held::Present(present), _) if !present.in_use.is_managed() => None,
            (Held::Present(present), wanted) if !present.in_use.covers(wanted) => Some(AT_ONCE),
            (Held::Present(present), _) => Some(present.renew),
        }
    }

    pub fn next(&self) -> Option<Boot> {
        self.due()?;
        match &self.renewal {
            Renewal::Idle { look, .. } => Some(self.backoff.at().max(*look)),
            Renewal::Made(_) => Some(self.backoff.at()),
            Renewal::Waiting(pending) => Some(pending.looks.at()),
            Renewal::Making(_) | Renewal::Posting { .. } | Renewal::Reading { .. } | Renewal::Storing(_) => None,
        }
    }

    /// Makes the next attempt due, because the server is reachable again.
    pub fn hurry(&mut self) {
        match &mut self.renewal {
            Renewal::Waiting(pending) => pending.looks.hurry(),
            // The failure was not caused by the absence of the server, so the back-off continues.
            Renewal::Idle { key: Key::New, .. } => {}
            _ => self.backoff.hurry(),
        }
    }

    /// Reports an expired certificate once, whether the server answers or not.
    pub fn watch_expiry(&mut self, step: &mut Step<'_>) {
        let Held::Present(present) = &mut self.held else { return };
        let not_after = present.in_use.validity().not_after;
        if present.expiry == Expiry::Reported || step.wall <= not_after {
            return;
        }
        present.expiry = Expiry::Reported;
        let at = not_after.whole_seconds().unwrap_or_default();
        let message = match &present.in_use {
            InUse::Client { is_managed, .. } => {
                let remedy = match is_managed {
                    true => "run wherry join with a new token",
                    false => "renew the certificate that the kubeconfig names",
                };
                format!(
                    "the client certificate of the node expired at {at}, so the API server refuses the node; pods keep \
                     running. If the clock is right, {remedy}"
                )
            }
            InUse::Serving { .. } => format!(
                "the serving certificate of the node expired at {at}, so the node's server uses a certificate that \
                 Wherry issues itself. If the clock is right, approve the request of the node (kubectl get csr)"
            ),
        };
        step.outbox.emit_node_event(Severity::Warning, Reason::CertificateExpired, message);
    }

    /// Begins the next action if it is due. The caller calls this only while the server answers.
    pub fn step(&mut self, step: &mut Step<'_>) {
        let Some(due) = self.due().filter(|_| self.next().is_some_and(|at| at <= step.now)) else { return };
        match &mut self.renewal {
            Renewal::Idle { look, .. } if step.wall < due => {
                *look = step.now + due.since(step.wall).min(CLOCK);
            }
            Renewal::Idle { key, .. } => {
                let call = IdentityCall::Request { purpose: self.wanted.clone(), key: *key };
                let op = step.outbox.begin(Owner::Certificate, |op| Effect::Identity { op, call });
                self.renewal = Renewal::Making(op);
            }
            Renewal::Made(request) => {
                let body = requests::create_csr(&request.name, &request.request, self.wanted.signer());
                let op = begin(body, Some(TIMEOUT), step.outbox);
                self.renewal = Renewal::Posting { op, request: request.clone() };
            }
            Renewal::Waiting(pending) => {
                let op = begin(requests::read_csr(&pending.name), Some(TIMEOUT), step.outbox);
                self.renewal = Renewal::Reading { op, pending: pending.clone() };
            }
            Renewal::Making(_) | Renewal::Posting { .. } | Renewal::Reading { .. } | Renewal::Storing(_) => {}
        }
    }

    /// Handles the result of the operation. Returns false if the operation does not belong to this certificate.
    pub fn done(&mut self, op: OpId, result: &Result<Answer, OpError>, step: &mut Step<'_>) -> bool {
        match (&self.renewal, result) {
            (Renewal::Making(of), Ok(Answer::CertificateRequest(request))) if *of == op => {
                self.renewal = Renewal::Made(request.clone());
            }
            (Renewal::Storing(of), Ok(Answer::Certificate(stored))) if *of == op => self.stored(stored.clone(), step),
            (Renewal::Making(of) | Renewal::Storing(of), result) if *of == op => {
                let why = result.as_ref().err().map_or("no answer", |e| e.message());
                // The stored request may have caused the failure, so the next attempt makes a new one.
                self.failed(why, Key::New, RETRIES, step);
            }
            _ => return false,
        }
        true
    }

    fn stored(&mut self, stored: InUse, step: &mut Step<'_>) {
        let is_first = self.present().is_none();
        let until = stored.validity().not_after.whole_seconds().unwrap_or_default();
        let is_complete = stored.covers(&self.wanted);
        self.observed(Some(stored), step.rng);
        if !is_complete {
            // An immediate second request would get the same certificate, so the longer back-off applies.
            let why = "the issued certificate lacks a name or an address of the node";
            return self.failed(why, Key::New, DENIED, step);
        }
        self.renewal = Renewal::default();
        self.backoff.succeeded();
        let kind = self.kind();
        let (reason, message) = match is_first {
            true => (
                Reason::CertificateIssued,
                format!("the cluster has issued the {kind} certificate of the node, which is valid until {until}"),
            ),
            false => (
                Reason::CertificateRenewed,
                format!("the {kind} certificate of the node was renewed; the new one is valid until {until}"),
            ),
        };
        step.outbox.emit_node_event(Severity::Normal, reason, message);
    }

    /// Handles the result of an API request. Returns false if the request does not belong to this certificate.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> bool {
        let (pending, was_read) = match &self.renewal {
            Renewal::Posting { op: of, request } if *of == op => {
                let approval = Approval::Expected { since: step.now };
                (Pending { name: request.name.clone(), looks: Backoff::default(), approval }, false)
            }
            Renewal::Reading { op: of, pending } if *of == op => (pending.clone(), true),
            _ => return false,
        };
        let response = match result {
            Ok(response) => response,
            // The state of the request is not known, so it is read again.
            Err(ApiError::NotSent(_) | ApiError::Unknown(_) | ApiError::TooLarge(_)) => {
                self.wait(pending, step);
                return true;
            }
        };
        match (Refusal::of(response), was_read) {
            (None, _) => match certificate::progress(response) {
                Ok(SigningProgress::Issued(chain)) => {
                    let call = IdentityCall::Store { signer: self.signer(), chain };
                    let op = step.outbox.begin(Owner::Certificate, |op| Effect::Identity { op, call });
                    self.renewal = Renewal::Storing(op);
                }
                Ok(SigningProgress::Pending) => {
                    let pending = self.announce(pending, step);
                    self.wait(pending, step);
                }
                Ok(SigningProgress::Refused(why)) => {
                    self.failed(&format!("the request {} was {why}", pending.name), Key::New, DENIED, step);
                }
                Err(why) => {
                    self.failed(&format!("the API server's response is unusable: {why}"), Key::Kept, RETRIES, step)
                }
            },
            (Some(refusal), false) if refusal.failure == Failure::AlreadyExists => self.wait(pending, step),
            // The request was never created, or the server removed it because it was not approved within a day. So it
            // is created again.
            (Some(refusal), true) if refusal.failure == Failure::NotFound => {
                self.renewal = Renewal::default();
                self.backoff.failed(RETRIES, step.now, step.rng);
            }
            (Some(refusal), _) => {
                self.failed(&format!("the API server refuses the request: {refusal}"), Key::Kept, RETRIES, step);
            }
        }
        true
    }

    /// Emits an event with the command that approves the request, once for each request.
    fn announce(&self, pending: Pending, step: &mut Step<'_>) -> Pending {
        match pending.approval {
            Approval::Expected { since } if step.now.since(since) >= AUTOMATIC => {
                let (kind, name) = (self.kind(), &pending.name);
                let message = format!(
                    "the request for the {kind} certificate of the node waits for its approval; to approve it: kubectl \
                     certificate approve {name}"
                );
                step.outbox.emit_node_event(Severity::Warning, Reason::CertificateNotApproved, message);
                Pending { approval: Approval::Announced, ..pending }
            }
            Approval::Expected { .. } | Approval::Announced => pending,
        }
    }

    /// Schedules the next read of the request's state.
    fn wait(&mut self, mut pending: Pending, step: &mut Step<'_>) {
        let limits = match self.wanted {
            Purpose::Client => LOOKS,
            Purpose::Serving(_) => LOOKS_FOR_A_PERSON,
        };
        pending.looks.failed(limits, step.now, step.rng);
        self.renewal = Renewal::Waiting(pending);
    }

    fn failed(&mut self, why: &str, key: Key, limits: Limits, step: &mut Step<'_>) {
        self.failures += 1;
        self.backoff.failed(limits, step.now, step.rng);
        self.renewal = Renewal::Idle { key, look: Boot(0) };
        let kind = self.kind();
        let what = match self.not_after().and_then(Wall::whole_seconds) {
            Some(until) => {
                format!("the {kind} certificate of the node, which is valid until {until}, was not renewed")
            }
            None => format!("the {kind} certificate of the node was not issued"),
        };
        let minutes = self.backoff.at().since(step.now).as_secs() / 60;
        let message = format!("{what}: {why}; the next attempt is in {minutes} min");
        step.outbox.emit_node_event(Severity::Warning, Reason::CertificateNotRenewed, message);
    }
}
