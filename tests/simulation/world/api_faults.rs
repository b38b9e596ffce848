//! The faults of the API server and of the connection to it: it is away, another program answers, requests are refused, slow or
//! lost, watches end, and their lines come late or twice.

use super::api_server::LATENCY;
use super::{Item, MS, S, World};
use crate::chance::below;
use serde_json::json;
use std::time::Duration;
use wherry::api::cluster::request::{ApiError, ApiRequest, ApiResponse, BodyDelivery};
use wherry::engine::event::{ApiEvent, Event};
use wherry::engine::op::OpId;
use wherry::engine::rng::Rng;

/// Answers of other programs.
const FOREIGN: [(u16, &str); 6] = [
    (200, ""),
    (200, "{}"),
    (200, "<html>login</html>"),
    (200, r#"{"kind":"PodList","apiVersion":"v1","metadata":{}}"#),
    (404, "default backend - 404"),
    (503, "<html>Service Unavailable</html>"),
];
const REFUSALS: [u16; 6] = [500, 503, 429, 403, 401, 504];

#[derive(Default)]
pub struct ApiFaults {
    /// The server cannot be reached until then (ns).
    away_until: u64,
    foreign_until: u64,
    foreign: Option<(u16, &'static str)>,
    refuses_until: u64,
    refusal: u16,
    loses_until: u64,
    lags_until: u64,
    /// With its refusals, the server asks for this delay.
    retry_after: Option<Duration>,
    /// Each attempt to connect succeeds with a probability of one half.
    connections: Option<Connections>,
}

/// Attempts to connect that may fail.
struct Connections {
    dice: Rng,
    open: bool,
}

/// The treatment of a request.
pub(super) enum Fate {
    /// It is carried out, and answered after this time (ns).
    Answered(u64),
    /// It is carried out. The answer is lost after this time (ns).
    Lost(u64),
    /// It has been answered.
    Over,
}

impl World {
    /// No more faults from here on.
    pub(super) fn api_is_well(&mut self) {
        self.api.faults = ApiFaults::default();
        self.api_catches_up();
    }

    /// The server cannot be reached for this time (ns).
    pub fn api_away_for(&mut self, ns: u64) {
        self.api.faults.away_until = self.clock.now + ns;
        self.break_connection();
    }

    /// For this time (ns), a server answers whose cache stays behind.
    pub fn api_lags_for(&mut self, ns: u64) {
        self.api_catches_up();
        self.api_lags();
        self.api.faults.lags_until = self.clock.now + ns;
        self.at(ns, Item::CatchesUp);
    }

    pub(super) fn cache_is_due(&mut self) {
        if self.api.faults.lags_until <= self.clock.now {
            self.api_catches_up();
        }
    }

    pub fn api_foreign_for(&mut self, ns: u64, pick: u64) {
        self.api.faults.foreign = Some(FOREIGN[(pick % FOREIGN.len() as u64) as usize]);
        self.api.faults.foreign_until = self.clock.now + ns;
        self.break_connection();
    }

    pub fn api_refuses_for(&mut self, ns: u64, pick: u64) {
        self.api.faults.refusal = REFUSALS[(pick % REFUSALS.len() as u64) as usize];
        self.api.faults.refuses_until = self.clock.now + ns;
    }

    /// All requests are refused for this time (ns), because there are too many. They may be repeated after a delay.
    pub fn api_is_busy_for(&mut self, ns: u64, retry_after: Duration) {
        self.api.faults.refusal = 429;
        self.api.faults.refuses_until = self.clock.now + ns;
        self.api.faults.retry_after = Some(retry_after);
    }

    /// All requests are received and their answers are lost, for this time (ns).
    pub fn api_loses_answers_for(&mut self, ns: u64) {
        self.api.faults.loses_until = self.clock.now + ns;
    }

    /// From now on, an attempt to connect succeeds with a probability of one half.
    pub fn api_refuses_half_of_the_connections(&mut self, seed: u64) {
        self.api.faults.connections = Some(Connections { dice: Rng::new(seed), open: false });
    }

    /// The request finds no connection.
    pub(super) fn api_is_away(&mut self) -> bool {
        if let Some(connections) = &mut self.api.faults.connections {
            connections.open |= below(&mut connections.dice, 2) == 0;
            if !connections.open {
                return true;
            }
        }
        self.api.away || self.clock.now < self.api.faults.away_until
    }

    /// Decides about a request, and answers the ones that fail.
    pub(super) fn api_fate(&mut self, op: OpId, request: &ApiRequest, timeout: Option<Duration>) -> Fate {
        let (now, faults) = (self.clock.now, &self.api.faults);
        if let Some((status, text)) = faults.foreign.filter(|_| now < faults.foreign_until) {
            self.api_answers(op, status, text.into(), None);
            return Fate::Over;
        }
        if now < faults.refuses_until {
            self.refuse(op, faults.refusal, faults.retry_after);
            return Fate::Over;
        }
        if now < faults.loses_until {
            return Fate::Lost(LATENCY);
        }
        let of = format!("{} {}", request.method.as_str(), request.path.split('?').next().unwrap_or_default());
        let Some(chaos) = &mut self.chaos else { return Fate::Answered(LATENCY) };
        let rate = chaos.faults / 2;
        if let Some(mut dice) = chaos.mishap("the API server refuses", &of, rate) {
            let retry = (below(&mut dice, 3) == 0).then(|| Duration::from_secs(1 + below(&mut dice, 3)));
            let status = REFUSALS[below(&mut dice, REFUSALS.len() as u64) as usize];
            self.refuse(op, status, retry);
            return Fate::Over;
        }
        let limit = timeout.map_or(u64::MAX, |t| t.as_nanos() as u64);
        if let Some(mut dice) = chaos.mishap("lost before the API server:", &of, rate) {
            let after = (below(&mut dice, 20_000) * MS).min(limit);
            let result = Err(ApiError::Unknown("connection lost".into()));
            self.event_in(after, Event::Api(ApiEvent::Done { op, result }));
            return Fate::Over;
        }
        if request.reading == BodyDelivery::Lines {
            return Fate::Answered(LATENCY);
        }
        if let Some(mut dice) = chaos.mishap("the answer is lost:", &of, rate) {
            return Fate::Lost((below(&mut dice, 20_000) * MS).min(limit));
        }
        if let Some(mut dice) = chaos.mishap("the API server is slow:", &of, 2 * rate) {
            let after = [below(&mut dice, 500), below(&mut dice, 40_000)][below(&mut dice, 2) as usize] * MS;
            return if after < limit { Fate::Answered(after) } else { Fate::Lost(limit) };
        }
        Fate::Answered(LATENCY)
    }

    /// The time (ns) after which a line of a watch arrives, and whether it arrives twice.
    pub(super) fn line_delay(&mut self) -> (u64, bool) {
        let Some(chaos) = &mut self.chaos else { return (LATENCY, false) };
        let rate = chaos.faults;
        let late = chaos.mishap("a watch is late", "", rate).map(|mut dice| below(&mut dice, 5 * S));
        (late.unwrap_or(LATENCY), chaos.mishap("a line comes twice", "", rate).is_some())
    }

    fn refuse(&mut self, op: OpId, status: u16, retry_after: Option<Duration>) {
        let body = json!({ "kind": "Status", "code": status, "reason": "" }).to_string();
        self.api_answers(op, status, body, retry_after);
    }

    fn api_answers(&mut self, op: OpId, status: u16, body: String, retry_after: Option<Duration>) {
        let result = Ok(ApiResponse { status, retry_after, body: body.into_bytes() });
        self.event_in(LATENCY, Event::Api(ApiEvent::Done { op, result }));
    }

    /// The watches end with an error.
    pub(super) fn break_connection(&mut self) {
        self.close_watches(true);
    }

    pub fn close_watches(&mut self, broken: bool) {
        for (op, due) in self.api.take_watches() {
            self.end_watch(op, due, broken);
        }
    }

    /// `due`: the time of its last line (ns).
    pub(super) fn end_watch(&mut self, op: OpId, due: u64, broken: bool) {
        let result = match broken {
            true => Err(ApiError::Unknown("connection lost".into())),
            false => Ok(ApiResponse { status: 200, retry_after: None, body: Vec::new() }),
        };
        // After the lines that are on their way.
        let after = due.saturating_sub(self.clock.now) + MS;
        self.event_in(after, Event::Api(ApiEvent::Done { op, result }));
    }
}
