//! Hooks and probes: their configured results, and those that happened.

use super::{Item, MS, World};
use crate::chance::below;
use crate::runtime::Container;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wherry::engine::effect::{HookCall, HookKind, ProbeCall};
use wherry::engine::event::{Answer, ProbeResult};
use wherry::engine::op::{Code, OpError, OpId};

/// The result of a hook or a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    Well(Duration),
    Badly(Duration),
    /// Runs until its deadline.
    Never,
    /// The outcome is unknown.
    Lost,
}

pub const WELL: Answers = Answers::Well(Duration::from_millis(2));
pub const BADLY: Answers = Answers::Badly(Duration::from_millis(2));

#[derive(Default)]
pub struct Handlers {
    /// Results by `pod/container/PreStop`, `.../Liveness` and so on, used in order; the last one repeats.
    answers: BTreeMap<String, VecDeque<Answers>>,
    /// Probes that ran: (time, `web/main/Liveness`).
    pub probes: Vec<(u64, String)>,
    /// Probes in flight, and the engine steps that their answers caused.
    pub probing: u64,
    pub probed: u64,
    /// Containers whose preStop hook ran, with the number of the engine's run.
    pre_stopped: BTreeMap<String, u32>,
}

impl Handlers {
    pub fn answers(&mut self, of: &str, answers: &[Answers]) {
        self.answers.insert(of.into(), answers.iter().copied().collect());
    }

    /// The next result; None if none is configured.
    fn next(&mut self, of: &str) -> Option<Answers> {
        let turns = self.answers.get_mut(of)?;
        if turns.len() > 1 { turns.pop_front() } else { turns.front().copied() }
    }

    pub(super) fn probe_answered(&mut self) {
        self.probing = self.probing.saturating_sub(1);
        self.probed += 1;
    }
}

impl World {
    /// The result of a hook or a probe for which none is configured.
    fn chance(&mut self, of: &str) -> Answers {
        let Some(c) = self.chaos.as_mut() else { return WELL };
        let Some(mut dice) = c.mishap("not well:", of, 400) else { return WELL };
        match below(&mut dice, 5) {
            0 | 1 => Answers::Badly(Duration::from_millis(below(&mut dice, 3000))),
            2 => Answers::Never,
            3 if c.faults > 0 => Answers::Lost,
            _ => Answers::Well(Duration::from_millis(below(&mut dice, 9000))),
        }
    }

    pub(super) fn hook(&mut self, op: OpId, call: &HookCall, timeout: Duration) {
        let title = self.runtime.title(call.id.as_str());
        self.note(|| format!("  < {op} {:?} {title} (within {timeout:?})", call.kind));
        self.log(format!("{:?} {title} {}ms", call.kind, timeout.as_millis()));
        self.begin(op);
        self.checks.deadline(op, timeout);
        if call.kind == HookKind::PreStop {
            let before = self.handlers.pre_stopped.insert(call.id.to_string(), self.process.life);
            // A hook whose record could not be written runs again after a restart.
            let excused = before != Some(self.process.life) && (!self.checks.strict || self.disk.was_full);
            if before.is_some() && !excused {
                self.checks.fail("W4", format!("the preStop hook of {} runs again", call.id));
            }
        }
        let of = format!("{}/{}/{:?}", self.pod_name(call.id.as_str()), call.container, call.kind);
        let answers = match self.handlers.next(&of) {
            Some(answers) => answers,
            None => match (self.chance(&of), call.kind) {
                // The deadline of such a hook is longer than these lives.
                (Answers::Never, HookKind::PostStart) => Answers::Badly(Duration::from_secs(20)),
                (answers, _) => answers,
            },
        };
        let runs = self.runtime.containers.get(call.id.as_str()).is_some_and(Container::runs);
        let bad = |message: &str| Err(OpError::Answered { code: Code::Other(2), message: message.into() });
        let (after, result) = match answers {
            _ if !runs => (MS, bad("container is not running")),
            Answers::Well(d) if d < timeout => (d.as_nanos() as u64, Ok(Answer::Ok)),
            Answers::Badly(d) if d < timeout => {
                (d.as_nanos() as u64, bad("command 'sh' exited with 9: , message: \"bad\\n\""))
            }
            Answers::Lost => (MS, Err(OpError::Unknown("connection lost".into()))),
            _ => (timeout.as_nanos() as u64, Err(OpError::Unknown("deadline exceeded".into()))),
        };
        let key = (self.process.life, op);
        self.at(after, Item::Answer { key, result });
    }

    pub(super) fn probe(&mut self, op: OpId, call: &ProbeCall, timeout: Duration) {
        let of = format!("{}/{}/{}", call.pod.name.name, call.container, call.kind.title());
        self.note(|| format!("  < {op} probe {of} of {}", call.id));
        self.begin(op);
        self.checks.deadline(op, timeout);
        if self.chaos.is_none() {
            self.handlers.probes.push((self.clock.now, of.clone()));
        }
        let answers = match self.handlers.next(&of) {
            Some(answers) => answers,
            None => self.chance(&of),
        };
        let runs = self.runtime.containers.get(call.id.as_str()).is_some_and(Container::runs);
        let failed = |why: &str| Ok(Answer::Probe(ProbeResult::Failed(why.into())));
        let (after, result) = match answers {
            _ if !runs => (MS, failed("connection refused")),
            Answers::Well(d) if d < timeout => (d.as_nanos() as u64, Ok(Answer::Probe(ProbeResult::Passed))),
            Answers::Badly(d) if d < timeout => (d.as_nanos() as u64, failed("it is not well")),
            Answers::Lost => (MS, Err(OpError::Unknown("connection lost".into()))),
            _ => (timeout.as_nanos() as u64, failed("timed out")),
        };
        if result.is_ok() {
            self.handlers.probing += 1;
        }
        let key = (self.process.life, op);
        self.at(after, Item::Answer { key, result });
    }

    fn pod_name(&self, id: &str) -> String {
        self.runtime.containers.get(id).map(|c| c.pod_name.name.to_string()).unwrap_or_default()
    }
}
