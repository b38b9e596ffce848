//! The delay between repeated attempts.

use crate::api::time::Boot;
use crate::engine::context::Context;
use serde::Serialize;
use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(10);

/// Repeated attempts, with a growing delay: 0.5, 1, 2 ... 10 s, plus jitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Retry {
    failures: u32,
    at: Option<Boot>,
}

impl Retry {
    pub fn failed(&mut self, ctx: &mut Context<'_>) {
        let delay = Duration::from_millis(500).saturating_mul(1 << self.failures.min(5)).min(LONGEST);
        self.at = Some(ctx.now.boot + ctx.rng.jitter(delay));
        self.failures = self.failures.saturating_add(1);
    }

    /// Notes a success: the delay after the next failure is the shortest again. A delay in progress continues.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Returns the number of consecutive failures.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the time of the next attempt, if it is not due yet.
    pub fn waits_until(&self, now: Boot) -> Option<Boot> {
        self.at.filter(|at| *at > now)
    }
}
