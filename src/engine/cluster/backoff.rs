//! The back-off of requests to the API server: the delay doubles with each failure, and has jitter so that nodes do
//! not retry at the same time.

use crate::api::cluster::status::{Failure, Refusal};
use crate::api::time::Boot;
use crate::engine::rng::Rng;
use serde::Serialize;
use std::time::Duration;

/// The limits of a kubelet's lists and watches.
pub const REQUESTS: Limits = Limits { first: Duration::from_millis(800), most: Duration::from_secs(30) };
/// While the server is unreachable, a single request keeps retrying, so Wherry notices within two seconds that the
/// server is back.
pub const CONNECTION: Limits = Limits { first: Duration::from_millis(200), most: Duration::from_millis(1300) };

/// The longest delay that a server can ask for.
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    pub first: Duration,
    /// The longest delay, before jitter of up to 50 % is added.
    pub most: Duration,
}

/// The failures since the last success, and when the next attempt is due.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Backoff {
    failures: u32,
    at: Boot,
}

impl Backoff {
    /// Returns the time of the next attempt, which is in the past if the attempt is due.
    pub fn at(&self) -> Boot {
        self.at
    }

    pub fn is_due(&self, now: Boot) -> bool {
        self.at <= now
    }

    pub fn failed(&mut self, limits: Limits, now: Boot, rng: &mut Rng) {
        let delay = limits.first.saturating_mul(1 << self.failures.min(16)).min(limits.most);
        self.failures = self.failures.saturating_add(1);
        self.at = now + rng.jitter(delay);
    }

    /// Schedules the next attempt after a refusal. If the server asks for a delay, honors it up to ten minutes,
    /// before jitter.
    pub fn refused(&mut self, refusal: Option<&Refusal>, limits: Limits, now: Boot, rng: &mut Rng) {
        match refusal.map(|refusal| refusal.failure) {
            Some(
                Failure::TooManyRequests { retry_after: Some(delay) }
                | Failure::Unavailable { retry_after: Some(delay) },
            ) => {
                self.failures = self.failures.saturating_add(1);
                self.at = now + rng.jitter(delay.min(LONGEST));
            }
            _ => self.failed(limits, now, rng),
        }
    }

    pub fn succeeded(&mut self) {
        *self = Backoff::default();
    }

    /// Makes the next attempt due at `until`, and forgets earlier failures.
    pub fn wait(&mut self, until: Boot) {
        *self = Backoff { failures: 0, at: until };
    }

    /// Makes the next attempt due now, and keeps the number of failures.
    pub fn hurry(&mut self) {
        self.at = Boot(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_its_limit_and_a_success_ends_it() {
        let (mut backoff, mut rng) = (Backoff::default(), Rng::new(1));
        assert!(backoff.is_due(Boot(0)));
        let mut delays = Vec::new();
        for _ in 0..40 {
            backoff.failed(REQUESTS, Boot(0), &mut rng);
            delays.push(backoff.at().since(Boot(0)).as_secs_f64());
        }
        for (n, least) in [(0, 0.8), (1, 1.6), (2, 3.2), (39, 30.0)] {
            assert!(delays[n] >= least && delays[n] <= least * 1.5, "{n}: {}", delays[n]);
        }
        backoff.hurry();
        assert!(backoff.is_due(Boot(1)));
        backoff.succeeded();
        backoff.failed(REQUESTS, Boot(0), &mut rng);
        assert!(backoff.at().since(Boot(0)).as_secs_f64() <= 1.2);
        let failure = Failure::TooManyRequests { retry_after: Some(Duration::from_secs(100_000)) };
        let refusal = Refusal { failure, code: 429, message: String::new() };
        backoff.refused(Some(&refusal), REQUESTS, Boot(0), &mut rng);
        assert!(backoff.at().since(Boot(0)) <= Duration::from_secs(900));
    }
}
