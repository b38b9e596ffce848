//! Events of pods and of the node that are posted to the API server, one after another and in their order.

use super::backoff::{Backoff, REQUESTS};
use super::reflector::{Step, begin};
use crate::api::cluster::request::{ApiError, ApiRequest, ApiResponse};
use crate::api::time::Boot;
use crate::engine::op::OpId;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// More events wait only while the server is away. The oldest ones are dropped.
const MOST: usize = 1000;
const TIMEOUT: Duration = Duration::from_secs(30);
/// An event that the server refuses so often is dropped. A kubelet tries twelve times.
const ATTEMPTS: u32 = 12;

#[derive(Debug, Default, Serialize)]
pub struct Posts {
    #[serde(skip)]
    waiting: VecDeque<ApiRequest>,
    sending: Option<OpId>,
    attempts: u32,
    backoff: Backoff,
    /// Events that found no room.
    dropped: u64,
}

impl Posts {
    pub fn push(&mut self, request: ApiRequest) {
        if self.waiting.len() >= MOST {
            // The first one may be in flight.
            self.waiting.remove(usize::from(self.sending.is_some()));
            self.dropped += 1;
        }
        self.waiting.push_back(request);
    }

    pub fn next(&self) -> Option<Boot> {
        (self.sending.is_none() && !self.waiting.is_empty()).then(|| self.backoff.at())
    }

    pub fn hurry(&mut self) {
        self.backoff.hurry();
    }

    pub fn step(&mut self, step: &mut Step<'_>) {
        if self.next().is_none_or(|at| at > step.now) {
            return;
        }
        if let Some(first) = self.waiting.front() {
            self.sending = Some(begin(first.clone(), Some(TIMEOUT), step.outbox));
        }
    }

    /// False: the operation is not one of the events.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> bool {
        if self.sending != Some(op) {
            return false;
        }
        self.sending = None;
        self.attempts += 1;
        let over = match result {
            // 409: it was stored by an attempt without an answer. Another refusal does not change.
            Ok(response) => response.status < 500 && response.status != 429 || self.attempts >= ATTEMPTS,
            Err(ApiError::TooLarge(_)) => true,
            Err(ApiError::NotSent(_) | ApiError::Unknown(_)) => false,
        };
        if over {
            self.waiting.pop_front();
            self.attempts = 0;
            self.backoff.succeeded();
        } else {
            self.backoff.failed(REQUESTS, step.now, step.rng);
        }
        true
    }
}
