//! The network handlers of probes and hooks, and sleeps: HTTP, gRPC and TCP connections, without blocking. The agent's
//! poll reports the sockets. Failures have the same texts as in a kubelet, which takes them from Go's libraries.
//!
//! A handler that does not answer keeps one socket until its deadline, and delays nothing else.

mod exchange;
mod grpc;
mod lookup;
mod outcome;
#[cfg(test)]
mod tests;

use crate::api::time::Boot;
use crate::engine::effect::Target;
use crate::engine::event::{Answer, ProbeResult};
use crate::engine::op::{Code, OpError, OpId};
use exchange::Exchange;
pub use lookup::look_up;
use mio::{Registry, Token};
use outcome::ExchangeOutcome;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The values of `User-Agent`. Servers recognise a kubelet's probes by the prefix. The number is the Kubernetes
/// version whose behaviour the handlers follow.
const PROBE_AGENT: &str = "kube-probe/1.33";
const HOOK_AGENT: &str = "kube-lifecycle/1.33";

/// The answer of an operation.
pub type Done = (OpId, Result<Answer, OpError>);

/// The handlers in flight.
#[derive(Default)]
pub struct Handlers {
    flights: BTreeMap<OpId, Flight>,
    tokens: BTreeMap<Token, OpId>,
    deadlines: BTreeSet<(Boot, OpId)>,
    done: Vec<Done>,
}

struct Flight {
    deadline: Boot,
    timeout: Duration,
    work: HandlerWork,
}

enum HandlerWork {
    Probe {
        token: Token,
        exchange: Exchange,
    },
    /// Any response of the server is a success, as in a kubelet.
    Hook {
        token: Token,
        exchange: Exchange,
        fallback: Option<Fallback>,
    },
    /// Succeeds at its deadline.
    Sleep,
    /// The sleep is longer than the timeout of the hook, so the hook fails at its deadline.
    SleepTooLong,
}

/// The server of an https hook has no TLS, so the request was sent again over http.
struct Fallback {
    /// The server, as `host:port`.
    server: String,
    /// The reason why the first request failed. A failure of the second request does not replace it.
    why: String,
}

impl Handlers {
    /// Starts a probe. It fails if it has not ended after `timeout`. `token` is a new token of the poll.
    pub fn probe(
        &mut self,
        op: OpId,
        target: Result<Target, String>,
        timeout: Duration,
        now: Boot,
        registry: &Registry,
        token: Token,
    ) {
        let work = match target {
            Ok(target) => Exchange::start(target, PROBE_AGENT, registry, token),
            Err(why) => return self.done.push((op, Err(failed(why)))),
        };
        match work {
            Ok(exchange) => self.insert(op, now, timeout, HandlerWork::Probe { token, exchange }),
            Err(ended) => self.done.push((op, Ok(Answer::Probe(probe_result(ended))))),
        }
    }

    /// Starts a hook. It fails if it has not ended after `timeout`.
    pub fn hook(
        &mut self,
        op: OpId,
        target: Result<Target, String>,
        timeout: Duration,
        now: Boot,
        registry: &Registry,
        token: Token,
    ) {
        match target {
            Err(why) => self.done.push((op, Err(failed(why)))),
            Ok(Target::Sleep(time)) if time <= timeout => self.insert(op, now, time, HandlerWork::Sleep),
            Ok(Target::Sleep(_)) => self.insert(op, now, timeout, HandlerWork::SleepTooLong),
            Ok(target) => match Exchange::start(target, HOOK_AGENT, registry, token) {
                Ok(exchange) => self.insert(op, now, timeout, HandlerWork::Hook { token, exchange, fallback: None }),
                Err(ExchangeOutcome::Failed(why)) => self.done.push((op, Err(failed(why)))),
                Err(_) => self.done.push((op, Ok(Answer::Ok))),
            },
        }
    }

    fn insert(&mut self, op: OpId, now: Boot, timeout: Duration, work: HandlerWork) {
        let deadline = now + timeout;
        if let HandlerWork::Probe { token, .. } | HandlerWork::Hook { token, .. } = &work {
            self.tokens.insert(*token, op);
        }
        self.deadlines.insert((deadline, op));
        self.flights.insert(op, Flight { deadline, timeout, work });
    }

    /// Reports whether the token belongs to a handler in flight.
    pub fn owns(&self, token: Token) -> bool {
        self.tokens.contains_key(&token)
    }

    /// Continues the handler of a socket that the poll has reported. Returns true if the budget of the turn was used
    /// up: call it again without waiting.
    pub fn ready(&mut self, token: Token, registry: &Registry) -> bool {
        let Some(op) = self.tokens.get(&token).copied() else { return false };
        let Some(flight) = self.flights.get_mut(&op) else { return false };
        let result = match &mut flight.work {
            HandlerWork::Probe { exchange, .. } => match exchange.advance(registry, token) {
                ExchangeOutcome::Pending { again } => return again,
                outcome => Ok(Answer::Probe(probe_result(outcome))),
            },
            HandlerWork::Hook { exchange, fallback, .. } => {
                let outcome = exchange.advance(registry, token);
                // For a hook, the head of a response is enough.
                let answered = exchange.has_response()
                    || matches!(outcome, ExchangeOutcome::Connected | ExchangeOutcome::Response(_));
                match (outcome, fallback.take()) {
                    (_, None) if answered => Ok(Answer::Ok),
                    (_, Some(first)) if answered => Ok(Answer::WithoutTls(first.server)),
                    (ExchangeOutcome::NotTls(why), None) => match exchange.again_without_tls(registry, token) {
                        Ok(server) => {
                            *fallback = Some(Fallback { server, why });
                            return false;
                        }
                        Err(_) => Err(failed(why)),
                    },
                    (ExchangeOutcome::Failed(why), None) => Err(failed(why)),
                    (ExchangeOutcome::Failed(_) | ExchangeOutcome::NotTls(_), Some(first)) => Err(failed(first.why)),
                    (ExchangeOutcome::Pending { again }, first) => {
                        *fallback = first;
                        return again;
                    }
                    // These are answers, which were handled above.
                    (ExchangeOutcome::Connected | ExchangeOutcome::Response(_), first) => {
                        *fallback = first;
                        return false;
                    }
                }
            }
            HandlerWork::Sleep | HandlerWork::SleepTooLong => return false,
        };
        self.end(op, result);
        false
    }

    /// Returns when `expire` must be called next.
    pub fn next_deadline(&self) -> Option<Boot> {
        if self.done.is_empty() { self.deadlines.first().map(|(at, _)| *at) } else { Some(Boot(0)) }
    }

    /// Ends the handlers whose deadline has passed.
    pub fn expire(&mut self, now: Boot) {
        while let Some((at, op)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            let Some(flight) = self.flights.get(&op) else {
                self.deadlines.remove(&(at, op));
                continue;
            };
            let result = match &flight.work {
                HandlerWork::Probe { exchange, .. } => {
                    Ok(Answer::Probe(ProbeResult::Failed(exchange.timed_out(flight.timeout))))
                }
                HandlerWork::Hook { fallback: Some(first), .. } => Err(failed(first.why.clone())),
                HandlerWork::Hook { exchange, .. } => Err(failed(exchange.timed_out(flight.timeout))),
                HandlerWork::Sleep => Ok(Answer::Ok),
                HandlerWork::SleepTooLong => Err(OpError::Unknown("context deadline exceeded".to_owned())),
            };
            self.end(op, result);
        }
    }

    /// Ends a handler as `Unknown`. Has no effect if the handler has ended. Returns true if it was in flight.
    pub fn cancel(&mut self, op: OpId) -> bool {
        let in_flight = self.flights.contains_key(&op);
        if in_flight {
            self.end(op, Err(OpError::Unknown("cancelled".to_owned())));
        }
        in_flight
    }

    /// Ends a handler. Dropping its exchange closes the socket, which also removes the socket from the poll.
    fn end(&mut self, op: OpId, result: Result<Answer, OpError>) {
        if let Some(flight) = self.flights.remove(&op) {
            self.deadlines.remove(&(flight.deadline, op));
            if let HandlerWork::Probe { token, .. } | HandlerWork::Hook { token, .. } = flight.work {
                self.tokens.remove(&token);
            }
        }
        self.done.push((op, result));
    }

    /// Returns the results since the last call.
    pub fn take_done(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.done)
    }
}

fn failed(message: String) -> OpError {
    OpError::Answered { code: Code::Other(2), message }
}

/// Converts an outcome to the result of a probe. A status from 200 to 299 is a success. A status from 300 to 399,
/// such as a redirect to another host, which is not followed, is a warning.
fn probe_result(outcome: ExchangeOutcome) -> ProbeResult {
    match outcome {
        ExchangeOutcome::Connected => ProbeResult::Passed,
        ExchangeOutcome::Response(response) => {
            let text = || String::from_utf8_lossy(&response.body).into_owned();
            match response.status {
                200..300 => ProbeResult::Passed,
                300..400 => ProbeResult::Warning(format!("Probe terminated redirects, Response body: {}", text())),
                status => ProbeResult::Failed(format!("HTTP probe failed with statuscode: {status}")),
            }
        }
        ExchangeOutcome::Failed(why) | ExchangeOutcome::NotTls(why) => ProbeResult::Failed(why),
        ExchangeOutcome::Pending { .. } => ProbeResult::Failed("no result".to_owned()),
    }
}
