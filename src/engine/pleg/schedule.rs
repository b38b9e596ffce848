//! Decides when to list all sandboxes and containers (P6, P8): one relist at a time, one period after the start of
//! the last one, or earlier after a runtime event. PLEG is healthy while relists succeed.

use crate::api::facts::Listed;
use crate::api::time::Boot;
use crate::engine::effect::{Measure, RuntimeCall};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::pleg::cache::StepTime;
use serde::Serialize;
use std::time::Duration;

/// P6: without a successful relist for this time, PLEG is unhealthy.
const UNHEALTHY_AFTER: Duration = Duration::from_secs(180);
/// P8: the relist period while every change causes a runtime event.
const IDLE_PERIOD: Duration = Duration::from_secs(30);
/// P8: the minimum time between relists that runtime events cause.
const EVENT_PERIOD: Duration = Duration::from_millis(100);

#[derive(Debug, Default, Serialize)]
pub struct Schedule {
    /// The start of the relist in flight.
    began: Option<StepTime>,
    last_began: Option<Boot>,
    /// The start of the last successful relist.
    pub last_ok: Option<Boot>,
    /// The error of the last relist.
    error: Option<String>,
    /// A runtime event for an unknown pod has arrived since the last relist started.
    event_arrived: bool,
}

/// A list, and the start of the call that returned it.
#[derive(Debug)]
pub struct List {
    pub listed: Listed,
    pub began: StepTime,
    /// It is the first list since the start.
    pub is_first: bool,
}

impl Schedule {
    /// Starts a relist, unless one is in flight (P6). `up`: the runtime is connected.
    pub fn relist(&mut self, up: bool, step: StepTime, timeout: Duration, outbox: &mut Outbox) {
        if self.began.is_some() || !up {
            return;
        }
        let (_, now) = step;
        if let Some(last) = self.last_ok {
            outbox.measure(Measure::RelistInterval(now.since(last)));
        }
        self.event_arrived = false;
        self.began = Some(step);
        self.last_began = Some(now);
        outbox.call_runtime(Owner::Relist, RuntimeCall::List, timeout);
    }

    /// Handles the result of the relist in flight. P6: a failed list changes nothing.
    pub fn ended(&mut self, result: Result<Answer, OpError>, now: Boot, outbox: &mut Outbox) -> Option<List> {
        let began = self.began.take()?;
        let (_, at) = began;
        outbox.measure(Measure::RelistDuration(now.since(at)));
        match result {
            Ok(Answer::Listed(listed)) => {
                let is_first = self.last_ok.replace(at).is_none();
                self.error = None;
                Some(List { listed, began, is_first })
            }
            Ok(_) => None,
            Err(e) => {
                self.error = Some(e.to_string());
                None
            }
        }
    }

    /// Returns the time of the next relist. `every_change_is_seen`: each change of a known pod causes a runtime
    /// event.
    pub fn next(&self, up: bool, every_change_is_seen: bool, period: Duration) -> Option<Boot> {
        let all_watched = every_change_is_seen && self.last_ok.is_some() && self.error.is_none();
        let period = match (self.event_arrived, all_watched) {
            (true, _) => EVENT_PERIOD.min(period),
            (false, true) => IDLE_PERIOD,
            (false, false) => period,
        };
        match (up, self.began, self.last_began) {
            // A new connection starts a relist, and the end of a relist in flight schedules the next one.
            (false, _, _) | (_, Some(_), _) | (_, _, None) => None,
            (true, None, Some(last)) => Some(last + period),
        }
    }

    /// P8: starts a relist soon, because of a runtime event for an unknown pod.
    pub fn relist_soon(&mut self) {
        self.event_arrived = true;
    }

    pub fn is_relisting(&self) -> bool {
        self.began.is_some()
    }

    /// P6: returns true if the last successful relist is recent enough.
    pub fn is_healthy(&self, now: Boot) -> bool {
        self.last_ok.is_some_and(|at| now.since(at) < UNHEALTHY_AFTER)
    }

    /// Returns the result of the health check, in a kubelet's words.
    ///
    /// # Errors
    /// If the last successful relist is too long ago.
    pub fn check(&self, now: Boot) -> Result<String, String> {
        match self.last_ok {
            None => Err("pleg has yet to be successful".to_string()),
            Some(at) if self.is_healthy(now) => Ok(format!("last relist {:.1}s ago", now.since(at).as_secs_f64())),
            Some(at) => {
                let age = now.since(at).as_secs();
                Err(format!("pleg was last seen active {age}s ago; threshold is 3m0s"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::effect::Effect;

    const PERIOD: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Boot {
        Boot(0) + Duration::from_secs(seconds)
    }

    fn relist(schedule: &mut Schedule, seconds: u64) -> usize {
        let mut outbox = Outbox::default();
        schedule.relist(true, (1, at(seconds)), PERIOD, &mut outbox);
        outbox.take().iter().filter(|e| matches!(e, Effect::Runtime { call: RuntimeCall::List, .. })).count()
    }

    fn end(schedule: &mut Schedule, result: Result<Answer, OpError>) -> Option<List> {
        schedule.ended(result, at(0), &mut Outbox::default())
    }

    #[test]
    fn p6_one_relist_is_in_flight_at_a_time() {
        let mut schedule = Schedule::default();
        assert_eq!((relist(&mut schedule, 5), relist(&mut schedule, 6)), (1, 0));
        assert_eq!(schedule.next(true, false, PERIOD), None);
        assert!(end(&mut schedule, Ok(Answer::Listed(Listed::default()))).is_some_and(|list| list.is_first));
        assert_eq!(relist(&mut schedule, 7), 1);
        assert!(end(&mut schedule, Ok(Answer::Listed(Listed::default()))).is_some_and(|list| !list.is_first));
    }

    #[test]
    fn p6_a_failed_list_changes_nothing_but_the_error() {
        let mut schedule = Schedule::default();
        relist(&mut schedule, 5);
        assert!(end(&mut schedule, Err(OpError::Unknown("EOF".into()))).is_none());
        assert_eq!((schedule.last_ok, schedule.error.as_deref()), (None, Some("EOF")));
        assert!(!schedule.is_healthy(at(6)));
        relist(&mut schedule, 7);
        end(&mut schedule, Ok(Answer::Listed(Listed::default())));
        assert!(schedule.is_healthy(at(180)) && !schedule.is_healthy(at(187)));
    }

    #[test]
    fn p8_the_period_is_long_while_every_change_is_seen_and_short_after_an_event() {
        for (seen, event, wanted) in [
            (false, false, PERIOD),
            (true, false, IDLE_PERIOD),
            (false, true, EVENT_PERIOD),
            (true, true, EVENT_PERIOD),
        ] {
            let mut schedule = Schedule::default();
            relist(&mut schedule, 5);
            end(&mut schedule, Ok(Answer::Listed(Listed::default())));
            if event {
                schedule.relist_soon();
            }
            assert_eq!(schedule.next(true, seen, PERIOD), Some(at(5) + wanted), "{seen} {event}");
        }
    }
}
