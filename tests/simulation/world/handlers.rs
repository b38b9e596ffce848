//! Hooks and probes: their configured results, and those that happened.

use super::{Item, MS, World};
use crate::chance::below;
use crate::control::timed_out;
use crate::runtime::Container;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use wherry::api::facts::ExecOutput;
use wherry::engine::effect::{HookCall, HookKind, PodAddress, ProbeCall};
use wherry::engine::event::{Answer, ProbeResult};
use wherry::engine::handler::{Handler, HandlerCall};
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
    /// A hook succeeds over http, because the server has no TLS.
    WithoutTls,
}

pub const WELL: Answers = Answers::Well(Duration::from_millis(2));
pub const BADLY: Answers = Answers::Badly(Duration::from_millis(2));

/// The outcome of one run of a handler.
enum Outcome {
    Well,
    Badly,
    NotRunning,
    /// It runs until its deadline.
    Late,
    Lost,
    WithoutTls,
}

fn answered(message: &str) -> OpError {
    OpError::Answered { code: Code::Other(2), message: message.into() }
}

#[derive(Default)]
pub struct Handlers {
    /// Results by `pod/container/PreStop`, `.../Liveness` and so on, used in order; the last one repeats.
    answers: BTreeMap<String, VecDeque<Answers>>,
    /// Probes that ran: (time, `web/main/Liveness`).
    pub probes: Vec<(u64, String)>,
    /// Probes in flight, and the engine steps that their answers caused.
    pub probing: BTreeSet<OpId>,
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

    pub(super) fn answered(&mut self, op: OpId) {
        if self.probing.remove(&op) {
            self.probed += 1;
        }
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

    /// The runtime carries out an exec handler: the same results, as exit codes and output.
    pub(super) fn exec_handler(&mut self, op: OpId, call: HandlerCall) {
        let HandlerCall { handler, timeout } = call;
        let (after, outcome) = match &handler {
            Handler::Probe(call) => self.probe_outcome(op, call, timeout),
            Handler::Hook(call) => self.hook_outcome(op, call, timeout),
        };
        let executed = |exit_code, stdout: &str| {
            Ok(Answer::Executed(ExecOutput { exit_code, stdout: stdout.into(), stderr: Vec::new() }))
        };
        let result = match outcome {
            Outcome::Well | Outcome::WithoutTls => executed(0, ""),
            Outcome::Badly => executed(9, "bad\n"),
            Outcome::NotRunning => Err(answered("container is not running")),
            Outcome::Late if self.users.timeouts_are_results => Ok(timed_out()),
            Outcome::Late => self.runtime.personality.command_timed_out(timeout.as_secs()),
            Outcome::Lost => Err(OpError::Unknown("connection lost".into())),
        };
        self.handler_done(op, matches!(handler, Handler::Probe(_)), after, result);
    }

    pub(super) fn hook(&mut self, op: OpId, call: &HookCall, timeout: Duration) {
        let (after, outcome) = self.hook_outcome(op, call, timeout);
        self.check_address(call.id.as_str(), &call.address);
        let result = match outcome {
            _ if call.target().is_err() => call.target().map(|_| Answer::Ok).map_err(|why| answered(&why)),
            Outcome::Well => Ok(Answer::Ok),
            Outcome::WithoutTls => Ok(Answer::WithoutTls("10.0.0.5:8443".into())),
            Outcome::Badly => Err(answered("HTTP status 500")),
            Outcome::NotRunning => Err(answered("connection refused")),
            Outcome::Late => Err(OpError::Unknown("deadline exceeded".into())),
            Outcome::Lost => Err(OpError::Unknown("connection lost".into())),
        };
        self.handler_done(op, false, after, result);
    }

    pub(super) fn probe(&mut self, op: OpId, call: &ProbeCall, timeout: Duration) {
        let (after, outcome) = self.probe_outcome(op, call, timeout);
        self.check_address(call.id.as_str(), &call.address);
        let failed = |why: &str| Ok(Answer::Probe(ProbeResult::Failed(why.into())));
        let result = match outcome {
            _ if call.target().is_err() => call.target().map(|_| Answer::Ok).map_err(|why| answered(&why)),
            Outcome::Well | Outcome::WithoutTls => Ok(Answer::Probe(ProbeResult::Passed)),
            Outcome::Badly => failed("it is not well"),
            Outcome::NotRunning => failed("connection refused"),
            Outcome::Late => failed("timed out"),
            Outcome::Lost => Err(OpError::Unknown("connection lost".into())),
        };
        self.handler_done(op, true, after, result);
    }

    /// P4: a handler connects at an address of the container's sandbox, or at the node's for a pod with the node's network.
    fn check_address(&mut self, id: &str, address: &PodAddress) {
        let sandbox = self.runtime.containers.get(id).and_then(|c| self.runtime.sandboxes.get(&c.sandbox));
        let Some(sandbox) = sandbox else { return };
        let wrong = match address {
            PodAddress::Node => !sandbox.host_network,
            PodAddress::Own(ip) => sandbox.host_network || *ip != sandbox.ip,
            PodAddress::Unknown => sandbox.host_network,
        };
        if wrong {
            let what = format!("a handler of {id} connects at {address:?}, and its sandbox is at {:?}", sandbox.ip);
            self.checks.fail("P4", what);
        }
    }

    fn handler_done(&mut self, op: OpId, is_probe: bool, after: u64, result: Result<Answer, OpError>) {
        if is_probe {
            self.handlers.probing.insert(op);
        }
        let key = (self.process.life, op);
        self.at(after, Item::Answer { key, result });
    }

    fn hook_outcome(&mut self, op: OpId, call: &HookCall, timeout: Duration) -> (u64, Outcome) {
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
        self.outcome(answers, call.id.as_str(), timeout)
    }

    fn probe_outcome(&mut self, op: OpId, call: &ProbeCall, timeout: Duration) -> (u64, Outcome) {
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
        self.outcome(answers, call.id.as_str(), timeout)
    }

    /// The outcome, and when it is known (ns from now).
    fn outcome(&self, answers: Answers, id: &str, timeout: Duration) -> (u64, Outcome) {
        let ns = |d: Duration| d.as_nanos() as u64;
        match answers {
            _ if !self.runtime.containers.get(id).is_some_and(Container::runs) => (MS, Outcome::NotRunning),
            Answers::Well(d) if d < timeout => (ns(d), Outcome::Well),
            Answers::Badly(d) if d < timeout => (ns(d), Outcome::Badly),
            Answers::Lost => (MS, Outcome::Lost),
            Answers::WithoutTls => (MS, Outcome::WithoutTls),
            _ => (ns(timeout), Outcome::Late),
        }
    }

    fn pod_name(&self, id: &str) -> String {
        self.runtime.containers.get(id).map(|c| c.pod_name.name.to_string()).unwrap_or_default()
    }
}
