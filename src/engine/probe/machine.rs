//! The state of one probe of one container: its times, its consecutive results and its verdict.

use crate::api::k8s;
use crate::api::time::Boot;
use crate::engine::op::OpId;
use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Kind {
    Startup,
    Liveness,
    Readiness,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Startup, Kind::Liveness, Kind::Readiness];

    pub fn spec(self, container: &k8s::Container) -> Option<&k8s::Probe> {
        match self {
            Kind::Startup => container.startup_probe.as_deref(),
            Kind::Liveness => container.liveness_probe.as_deref(),
            Kind::Readiness => container.readiness_probe.as_deref(),
        }
    }

    /// Returns the name in events and metrics.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Startup => "Startup",
            Kind::Liveness => "Liveness",
            Kind::Readiness => "Readiness",
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Kind::Startup => "startup",
            Kind::Liveness => "liveness",
            Kind::Readiness => "readiness",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// No threshold has been reached yet.
    Open,
    Passed,
    Failed,
}

#[derive(Debug, Serialize)]
pub(super) struct Machine {
    pub kind: Kind,
    pub initial_delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
    success: u32,
    failure: u32,
    pub due: Boot,
    pub in_flight: Option<OpId>,
    pub verdict: Verdict,
    /// The last result. `row` is the number of its consecutive occurrences.
    last: Option<bool>,
    row: u32,
    /// The probe does not run again for this container: a startup probe after its verdict, a liveness probe after its
    /// failure.
    over: bool,
}

impl Machine {
    pub fn new(kind: Kind, spec: &k8s::Probe) -> Machine {
        let seconds = |n: Option<i32>, unset: u64| match n.and_then(|n| u64::try_from(n).ok()) {
            None | Some(0) => Duration::from_secs(unset),
            Some(n) => Duration::from_secs(n),
        };
        let times = |n: Option<i32>, unset| n.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(unset);
        Machine {
            kind,
            initial_delay: seconds(spec.initial_delay_seconds, 0),
            period: seconds(spec.period_seconds, 10),
            timeout: seconds(spec.timeout_seconds, 1),
            success: times(spec.success_threshold, 1),
            failure: times(spec.failure_threshold, 3),
            due: Boot(0),
            in_flight: None,
            // As in the kubelet, a liveness probe counts as passed at the start, and a readiness probe does not.
            verdict: if kind == Kind::Liveness { Verdict::Passed } else { Verdict::Open },
            last: None,
            row: 0,
            over: false,
        }
    }

    pub fn is_due(&self, now: Boot) -> bool {
        !self.over && self.in_flight.is_none() && self.due <= now
    }

    /// Returns the next time to check the probe. A probe that takes longer than its period runs again as soon as it
    /// has a result.
    pub fn next(&self, now: Boot) -> Option<Boot> {
        let waits = self.in_flight.is_some() && self.due <= now;
        (!self.over && !waits).then_some(self.due)
    }

    pub fn requested(&mut self, op: OpId, now: Boot) {
        self.in_flight = Some(op);
        self.due = now + self.period;
    }

    /// Stores a result. Returns the verdict if it changed.
    pub fn judge(&mut self, passed: Option<bool>) -> Option<Verdict> {
        self.in_flight = None;
        // An unknown result counts as if the probe had not run.
        let passed = passed?;
        self.row = if self.last == Some(passed) { self.row.saturating_add(1) } else { 1 };
        self.last = Some(passed);
        if self.row < if passed { self.success } else { self.failure } {
            return None;
        }
        let verdict = if passed { Verdict::Passed } else { Verdict::Failed };
        self.over = self.kind == Kind::Startup || self.kind == Kind::Liveness && !passed;
        (std::mem::replace(&mut self.verdict, verdict) != verdict).then_some(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(kind: Kind, success: i32, failure: i32) -> Machine {
        let spec = k8s::Probe {
            period_seconds: Some(5),
            success_threshold: Some(success),
            failure_threshold: Some(failure),
            ..Default::default()
        };
        Machine::new(kind, &spec)
    }

    fn judge(m: &mut Machine, results: &[Option<bool>]) -> Vec<Option<Verdict>> {
        results.iter().map(|r| m.judge(*r)).collect()
    }

    #[test]
    fn a_verdict_needs_its_results_in_a_row_and_comes_once() {
        let (ok, bad, unknown) = (Some(true), Some(false), None);
        let mut m = machine(Kind::Readiness, 2, 3);
        assert_eq!(judge(&mut m, &[ok, bad, ok, ok, ok]), [None, None, None, Some(Verdict::Passed), None]);
        assert_eq!(judge(&mut m, &[bad, bad, ok, bad, bad]), [None; 5]);
        assert_eq!(judge(&mut m, &[unknown, bad, bad]), [None, Some(Verdict::Failed), None]);
    }

    #[test]
    fn liveness_is_over_with_its_failure_and_startup_with_any_verdict() {
        let mut live = machine(Kind::Liveness, 1, 2);
        assert_eq!(live.verdict, Verdict::Passed);
        assert_eq!(judge(&mut live, &[Some(true), Some(false)]), [None, None]);
        assert!(live.is_due(Boot(0)));
        assert_eq!(live.judge(Some(false)), Some(Verdict::Failed));
        assert!(!live.is_due(Boot(u64::MAX)) && live.next(Boot(0)).is_none());
        let mut start = machine(Kind::Startup, 1, 2);
        assert_eq!(start.judge(Some(true)), Some(Verdict::Passed));
        assert!(!start.is_due(Boot(u64::MAX)));
    }

    #[test]
    fn a_probe_is_due_a_period_after_the_last_start_and_never_runs_twice_in_parallel() {
        let mut m = machine(Kind::Liveness, 1, 3);
        let second = |s: u64| Boot(s * 1_000_000_000);
        m.requested(OpId(1), second(1));
        assert_eq!((m.is_due(second(2)), m.next(second(2))), (false, Some(second(6))));
        assert_eq!((m.is_due(second(7)), m.next(second(7))), (false, None), "it waits for its answer");
        m.judge(Some(true));
        assert!(m.is_due(second(7)));
    }
}
