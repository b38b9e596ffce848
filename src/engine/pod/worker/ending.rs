//! Why a pod ends, whether it has ended by itself, and what its record says about that (W3, W7).

use super::demand::Demand;
use super::ops::Operations;
use super::pod_record::PodRecord;
use super::state::State;
use crate::api::time::{Now, Wall};
use crate::engine::pod::kill::Cause;
use crate::engine::pod::record::Termination;
use serde::Serialize;
use std::time::Duration;

/// Why the pod ends.
#[derive(Debug, Default, Serialize)]
pub struct Ending {
    /// Why it was killed, for the status.
    pub cause: Option<Cause>,
    pub end: End,
}

impl Ending {
    /// Returns the termination for the record; None unless the pod is terminating.
    pub(super) fn termination(&self, state: &State, demand: &Demand, now: Now) -> Option<Termination> {
        let State::Terminating(t) = state else { return None };
        let (began, grace_deadline) = t.in_wall_time(now);
        Some(self.entry(began, grace_deadline, !demand.desired))
    }

    /// Like `termination`, but also covers a pod that is over while its last status may not be known yet: the next
    /// run terminates it again, within `grace`.
    pub(super) fn open_termination(
        &self,
        state: &State,
        demand: &Demand,
        grace: Duration,
        now: Now,
    ) -> Option<Termination> {
        let is_open = state.is_over() && !self.end.is_terminal();
        let over = || self.entry(now.wall, now.wall + grace, !demand.desired);
        self.termination(state, demand, now).or_else(|| is_open.then(over))
    }

    fn entry(&self, began: Wall, grace_deadline: Wall, undesired: bool) -> Termination {
        Termination { began, grace_deadline, cause: self.cause.clone(), undesired }
    }

    /// W7: records the terminal status, so that the pod stays ended when its dead containers are removed. Returns true
    /// if it was not recorded before.
    pub(super) fn record_terminal(
        &mut self,
        state: &State,
        demand: &Demand,
        ops: &Operations,
        record: &mut PodRecord,
    ) -> bool {
        let shown = matches!(state, State::Finished(finished) if finished.shown);
        let settled = ops.background_is_empty() && !ops.is_active() && shown;
        if self.end == (End::Terminal { recorded: true }) || !demand.stays() || !settled {
            return false;
        }
        self.end = End::Terminal { recorded: true };
        record.update();
        true
    }
}

/// Whether a pod has ended by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum End {
    #[default]
    Open,
    /// All containers ended and none restarts, so the status may show a terminal phase (W3).
    Ended,
    /// W7: the pod is never started again and keeps its status. `recorded`: the record says so.
    Terminal { recorded: bool },
}

impl End {
    pub fn is_terminal(self) -> bool {
        matches!(self, End::Terminal { .. })
    }
}
