//! The renewal of the node's client certificate (C7).
//!
//! A node that is away cannot renew its certificate, so the renewal begins after half of the lifetime; a kubelet waits for 70 to 90 %.
//! The key is new each time. It is on the disk before its request is sent, and the name of the request follows from the key: after
//! a lost answer, a restart or a kill, the next attempt finds the same request again.

use super::backoff::{Backoff, Limits};
use super::reflector::{Step, begin};
use crate::api::cluster::certificate::{self, Progress, Request, Validity};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::requests::{self, Signer};
use crate::api::cluster::status::{Failure, Refusal};
use crate::api::reason::Reason;
use crate::api::time::{Boot, Wall};
use crate::engine::context::Owner;
use crate::engine::effect::{Effect, IdentityCall, Key, Severity};
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::engine::rng::Rng;
use serde::Serialize;
use std::time::Duration;

/// The renewal begins at a random time in this part of the lifetime, in percent, so that nodes do not act together.
const BEGIN: (u64, u64) = (50, 55);
const TIMEOUT: Duration = Duration::from_secs(30);
/// After a failure.
const RETRIES: Limits = Limits { first: Duration::from_secs(10), most: Duration::from_secs(600) };
/// After a denial, which a person or a policy has made.
const DENIED: Limits = Limits { first: Duration::from_secs(600), most: Duration::from_secs(6 * 3600) };
/// Between two looks at a request. An automatic approval takes less than a second.
const LOOKS: Limits = Limits { first: Duration::from_secs(1), most: Duration::from_secs(300) };
/// The wall clock, which decides whether the renewal is due, can be set at any time.
const CLOCK: Duration = Duration::from_secs(3600);

#[derive(Debug, Default, Serialize)]
pub struct Certificate {
    /// The certificate in use. None: not known, or the node has another kind of credential.
    held: Option<Held>,
    renewal: Renewal,
    backoff: Backoff,
    /// Renewals that failed.
    failures: u64,
}

#[derive(Debug, Serialize)]
struct Held {
    validity: Validity,
    renew: Wall,
    expiry: Expiry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Expiry {
    Ahead,
    /// It has expired, and an event has reported it.
    Reported,
}

#[derive(Debug, Serialize)]
enum Renewal {
    /// Not due, or it waits for the next attempt. `look`: the next comparison with the wall clock.
    Idle {
        key: Key,
        look: Boot,
    },
    /// The adapter makes the request.
    Making(OpId),
    Made(Request),
    Posting {
        op: OpId,
        request: Request,
    },
    /// Not issued yet.
    Waiting {
        name: String,
        looks: Backoff,
    },
    Reading {
        op: OpId,
        name: String,
        looks: Backoff,
    },
    /// The adapter stores the certificate.
    Storing(OpId),
}

impl Default for Renewal {
    fn default() -> Renewal {
        Renewal::Idle { key: Key::Kept, look: Boot(0) }
    }
}

impl Certificate {
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// The last second of the certificate in use.
    pub fn not_after(&self) -> Option<Wall> {
        self.held.as_ref().map(|held| held.validity.not_after)
    }

    /// The certificate of the credentials that were read.
    pub fn observed(&mut self, validity: Option<Validity>, rng: &mut Rng) {
        if self.held.as_ref().map(|held| held.validity) == validity {
            return;
        }
        self.held = validity.map(|validity| {
            let lifetime = validity.not_after.since(validity.not_before);
            let part = BEGIN.0 * 1000 + rng.draw() % ((BEGIN.1 - BEGIN.0) * 1000);
            let renew = validity.not_before + lifetime.mul_f64(part as f64 / 100_000.0);
            Held { validity, renew, expiry: Expiry::Ahead }
        });
        if let Renewal::Idle { look, .. } = &mut self.renewal {
            *look = Boot(0);
        }
    }

    pub fn next(&self) -> Option<Boot> {
        self.held.as_ref().filter(|held| held.validity.is_managed)?;
        match &self.renewal {
            Renewal::Idle { look, .. } => Some(self.backoff.at().max(*look)),
            Renewal::Made(_) => Some(self.backoff.at()),
            Renewal::Waiting { looks, .. } => Some(looks.at()),
            Renewal::Making(_) | Renewal::Posting { .. } | Renewal::Reading { .. } | Renewal::Storing(_) => None,
        }
    }

    /// The server answers again.
    pub fn hurry(&mut self) {
        match &mut self.renewal {
            Renewal::Waiting { looks, .. } => looks.hurry(),
            _ => self.backoff.hurry(),
        }
    }

    /// An expired certificate is reported once. The server does not matter for this.
    pub fn watch_expiry(&mut self, step: &mut Step<'_>) {
        let Some(held) = self.held.as_mut().filter(|held| held.expiry == Expiry::Ahead) else { return };
        if step.wall <= held.validity.not_after {
            return;
        }
        held.expiry = Expiry::Reported;
        let at = held.validity.not_after.whole_seconds().unwrap_or_default();
        let remedy = match held.validity.is_managed {
            true => "run wherry join with a new token",
            false => "renew the certificate that the kubeconfig names",
        };
        let message = format!(
            "the client certificate of the node expired at {at}, so the API server refuses the node; pods keep running. If \
             the clock is right, {remedy}"
        );
        step.outbox.emit_node_event(Severity::Warning, Reason::CertificateExpired, message);
    }

    /// Begins the next action if it is due. Only while the server answers.
    pub fn step(&mut self, step: &mut Step<'_>) {
        if self.next().is_none_or(|at| at > step.now) {
            return;
        }
        let Some(held) = &self.held else { return };
        match &mut self.renewal {
            Renewal::Idle { look, .. } if step.wall < held.renew => {
                *look = step.now + held.renew.since(step.wall).min(CLOCK);
            }
            Renewal::Idle { key, .. } => {
                let call = IdentityCall::Request { key: *key };
                let op = step.outbox.begin(Owner::Certificate, |op| Effect::Identity { op, call });
                self.renewal = Renewal::Making(op);
            }
            Renewal::Made(request) => {
                let body = requests::create_csr(&request.name, &request.request, Signer::Client);
                let op = begin(body, Some(TIMEOUT), step.outbox);
                self.renewal = Renewal::Posting { op, request: request.clone() };
            }
            Renewal::Waiting { name, looks } => {
                let op = begin(requests::read_csr(name), Some(TIMEOUT), step.outbox);
                self.renewal = Renewal::Reading { op, name: std::mem::take(name), looks: looks.clone() };
            }
            Renewal::Making(_) | Renewal::Posting { .. } | Renewal::Reading { .. } | Renewal::Storing(_) => {}
        }
    }

    /// The adapter has answered.
    pub fn done(&mut self, op: OpId, result: Result<Answer, OpError>, step: &mut Step<'_>) {
        match (&self.renewal, result) {
            (Renewal::Making(of), Ok(Answer::CertificateRequest(request))) if *of == op => {
                self.renewal = Renewal::Made(request);
            }
            (Renewal::Storing(of), Ok(Answer::Certificate(validity))) if *of == op => {
                self.renewal = Renewal::default();
                self.backoff.succeeded();
                self.observed(Some(validity), step.rng);
                let until = validity.not_after.whole_seconds().unwrap_or_default();
                let message =
                    format!("the client certificate of the node was renewed; the new one is valid until {until}");
                step.outbox.emit_node_event(Severity::Normal, Reason::CertificateRenewed, message);
            }
            (Renewal::Making(of) | Renewal::Storing(of), result) if *of == op => {
                let why = result.err().map_or_else(|| "no answer".to_owned(), |e| e.message().to_owned());
                // The stored request may be the reason.
                self.failed(&why, Key::New, RETRIES, step);
            }
            _ => {}
        }
    }

    /// A request has ended. False: it is not one of the certificate.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> bool {
        let (name, looks) = match &self.renewal {
            Renewal::Posting { op: of, request } if *of == op => (request.name.clone(), None),
            Renewal::Reading { op: of, name, looks } if *of == op => (name.clone(), Some(looks.clone())),
            _ => return false,
        };
        let response = match result {
            Ok(response) => response,
            // The state of the request is not known.
            Err(ApiError::NotSent(_) | ApiError::Unknown(_) | ApiError::TooLarge(_)) => {
                self.wait(name, looks, step);
                return true;
            }
        };
        match (Refusal::of(response), looks.is_some()) {
            (None, _) => match certificate::progress(response) {
                Ok(Progress::Issued(chain)) => {
                    let call = IdentityCall::Store { chain };
                    let op = step.outbox.begin(Owner::Certificate, |op| Effect::Identity { op, call });
                    self.renewal = Renewal::Storing(op);
                }
                Ok(Progress::Pending) => self.wait(name, looks, step),
                Ok(Progress::Refused(why)) => {
                    self.failed(&format!("the request {name} was {why}"), Key::New, DENIED, step);
                }
                Err(why) => {
                    self.failed(&format!("the API server's answer is unusable: {why}"), Key::Kept, RETRIES, step)
                }
            },
            (Some(refusal), false) if refusal.failure == Failure::AlreadyExists => self.wait(name, None, step),
            // It was not made, or was removed unapproved after a day: it is made again.
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

    /// Looks at the request again later.
    fn wait(&mut self, name: String, looks: Option<Backoff>, step: &mut Step<'_>) {
        let mut looks = looks.unwrap_or_default();
        looks.failed(LOOKS, step.now, step.rng);
        self.renewal = Renewal::Waiting { name, looks };
    }

    fn failed(&mut self, why: &str, key: Key, limits: Limits, step: &mut Step<'_>) {
        self.failures += 1;
        self.backoff.failed(limits, step.now, step.rng);
        self.renewal = Renewal::Idle { key, look: Boot(0) };
        let until = self.not_after().and_then(Wall::whole_seconds).unwrap_or_default();
        let minutes = self.backoff.at().since(step.now).as_secs() / 60;
        let message = format!(
            "the client certificate of the node, which is valid until {until}, was not renewed: {why}; the next attempt is in \
             {minutes} min"
        );
        step.outbox.emit_node_event(Severity::Warning, Reason::CertificateNotRenewed, message);
    }
}
