//! Faults of calls to the runtime: those that a story asks for, and those that happen by chance.

use super::{MS, World};
use crate::chance::below;
use std::collections::BTreeSet;
use std::time::Duration;
use wherry::engine::effect::RuntimeCall;

/// Longer than any story.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// A fault of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The runtime answers with an error and has changed nothing.
    Error(String),
    /// The call is not sent although there is a connection, for example because the request is too large.
    Refused(String),
    /// The call took effect, and its answer was lost.
    Lost,
    /// The call never took effect, and its outcome is unknown to the engine.
    Dropped,
    /// The call takes effect and is answered after this delay, perhaps after the deadline.
    Slow(Duration),
    /// The call takes effect in time, and its answer comes after this delay.
    Stale(Duration),
    /// RunPodSandbox is cancelled, and after this delay the runtime still creates the pod's cgroup.
    GivenUp(Duration),
    /// The answer is OK, and nothing was done.
    Sham,
}

#[derive(Default)]
pub struct Faults {
    /// Pending faults, by the beginning of a call's text. The next such call has the fault.
    pub planned: Vec<(String, Fault)>,
    /// Calls whose text begins like this are neither carried out nor answered.
    pub hangs: BTreeSet<String>,
    /// All lists fail until this time.
    pub lists_fail_until: u64,
    /// The pod with this name has far more faults than others.
    pub unlucky: Option<&'static str>,
    /// RunPodSandbox is not answered for pods whose name begins like this.
    pub hanging: Option<&'static str>,
    /// The runtime does not learn of a cancellation in time.
    pub late_cancellation: bool,
}

impl Faults {
    /// The fault that a story asks for.
    fn planned_for(&mut self, text: &str) -> Option<Fault> {
        if self.hangs.iter().any(|hangs| text.starts_with(hangs)) {
            return Some(Fault::Slow(NEVER));
        }
        if let Some(i) = self.planned.iter().position(|(prefix, _)| text.starts_with(prefix.as_str())) {
            return Some(self.planned.remove(i).1);
        }
        let hangs =
            self.hanging.is_some_and(|name| text.strip_prefix("RunSandbox ").is_some_and(|of| of.starts_with(name)));
        hangs.then_some(Fault::Slow(Duration::from_secs(86_400)))
    }
}

impl World {
    /// The fault of a call; `looks`: the call reads the state of pods.
    pub(super) fn pick_fault(&mut self, text: &str, looks: bool) -> Option<Fault> {
        if let Some(fault) = self.faults.planned_for(text) {
            return Some(fault);
        }
        let c = self.chaos.as_mut()?;
        // An outdated answer is not a fault, but the engine must recognize it (P5).
        if looks && let Some(mut dice) = c.mishap("an old picture in", text, 100) {
            return Some(Fault::Stale(Duration::from_millis(below(&mut dice, 300))));
        }
        let unlucky = self.faults.unlucky.is_some_and(|name| of_pod(text, name));
        let often = if unlucky { c.faults.max(400) } else { c.faults };
        let mut dice = c.mishap("a fault of", text, often)?;
        let fault = match below(&mut dice, 8) {
            7 if text.starts_with("StopContainer") => Fault::Sham,
            5 => Fault::Stale(Duration::from_millis(below(&mut dice, 5000))),
            0 | 1 => Fault::Error("something is wrong".into()),
            2 => Fault::Lost,
            3 => Fault::Dropped,
            4 => Fault::Slow(Duration::from_millis(below(&mut dice, 3000))),
            _ => Fault::Slow(Duration::from_millis(below(&mut dice, 60_000))),
        };
        self.note(|| format!("    {fault:?}"));
        Some(fault)
    }

    pub(super) fn latency(&mut self, call: &RuntimeCall, text: &str) -> u64 {
        if let Some(time) = self.time_of_user_call(call) {
            return time;
        }
        let base = match call {
            RuntimeCall::Status | RuntimeCall::List | RuntimeCall::ReadPod { .. } | RuntimeCall::ImageStatus { .. } => {
                1
            }
            RuntimeCall::RunSandbox { .. } => 90,
            RuntimeCall::PullImage { .. } => 500,
            RuntimeCall::StartContainer { .. } => 60,
            _ => 6,
        };
        match &mut self.chaos {
            None => base * MS,
            Some(c) => base * MS / 4 + below(&mut c.dice("latency", text), base * 2 * MS),
        }
    }
}

/// Whether this call is about the pod of that name.
fn of_pod(text: &str, name: &str) -> bool {
    let of = text.split(' ').nth(1).unwrap_or_default();
    of.split(['/', '#']).next() == Some(name)
}
