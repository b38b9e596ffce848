//! The connection to the runtime: calls in flight, their effects and answers, cancellations, deadlines, and the loss of the
//! connection.

use super::{Fault, Item, Key, MS, World};
use crate::bounds::Scene;
use crate::chance::below;
use crate::lies::lie;
use crate::runtime::{Container, Life, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wherry::api::facts::{Listed, PodFacts};
use wherry::api::names::Uid;
use wherry::api::time::Boot;
use wherry::engine::effect::RuntimeCall;
use wherry::engine::event::{Answer, Event};
use wherry::engine::op::{Code, OpError, OpId};

pub struct Connection {
    pub up: bool,
    flights: BTreeMap<Key, Flight>,
    /// All operations that the engine waits for, also those of other models.
    pending: BTreeSet<Key>,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection { up: true, flights: BTreeMap::new(), pending: BTreeSet::new() }
    }
}

struct Flight {
    call: RuntimeCall,
    acted: bool,
    /// A stop, which is answered when its container has ended.
    awaits_end: bool,
    fault: Option<Fault>,
    /// The first half of an answer that shows sandboxes and containers at different times.
    half: Option<Half>,
}

/// The part that was read first.
enum Half {
    List { sandboxes: bool, listed: Listed },
    Pod { sandboxes: bool, facts: PodFacts },
}

impl Half {
    /// Adds the other part, which is read now.
    fn complete(self, now: Answer) -> Answer {
        match (self, now) {
            (Half::List { sandboxes: true, listed }, Answer::Listed(now)) => {
                Answer::Listed(Listed { sandboxes: listed.sandboxes, ..now })
            }
            (Half::List { sandboxes: false, listed }, Answer::Listed(now)) => {
                Answer::Listed(Listed { containers: listed.containers, ..now })
            }
            (Half::Pod { sandboxes: true, facts }, Answer::Pod(now)) => {
                Answer::Pod(PodFacts { sandboxes: facts.sandboxes, ..now })
            }
            (Half::Pod { sandboxes: false, facts }, Answer::Pod(now)) => {
                Answer::Pod(PodFacts { containers: facts.containers, ..now })
            }
            (_, now) => now,
        }
    }
}

impl Connection {
    /// A killed engine waits for nothing.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
    }

    pub(super) fn is_pending(&self, key: Key) -> bool {
        self.pending.contains(&key)
    }

    /// The call in flight, if it starts a sandbox or a container.
    pub(super) fn start_in_flight(&self, key: Key) -> Option<&RuntimeCall> {
        let call = self.flights.get(&key).map(|f| &f.call)?;
        matches!(call, RuntimeCall::StartContainer { .. } | RuntimeCall::RunSandbox { .. }).then_some(call)
    }
}

impl World {
    /// Sends a call of the engine to the runtime.
    pub(super) fn runtime_call(&mut self, op: OpId, call: RuntimeCall, timeout: Duration) {
        let looks = matches!(call, RuntimeCall::List | RuntimeCall::ReadPod { .. });
        match call {
            RuntimeCall::List => self.observed.lists += 1,
            RuntimeCall::ReadPod { .. } => self.observed.reads += 1,
            RuntimeCall::UpdateContainer { .. } => self.observed.resizes.push("container".into()),
            _ => {}
        }
        let text = self.runtime.text_of(&call);
        self.note(|| format!("  < {op} {text} (within {timeout:?})"));
        if !looks && !matches!(call, RuntimeCall::Status | RuntimeCall::ImageStatus { .. }) {
            self.observed.changing_calls += 1;
            self.observed.calls.push((self.clock.now, text.clone()));
        }
        self.begin(op);
        self.check_call(op, &call, timeout);
        let key = (self.process.life, op);
        if !self.connection.up {
            self.at(MS / 10, Item::Answer { key, result: Err(OpError::NotSent("no connection".into())) });
            return;
        }
        let fault = self.pick_fault(&text, looks);
        let mut latency = self.latency(&call, &text) * 2 / 3;
        if let Some(Fault::Slow(d)) = &fault {
            latency += d.as_nanos() as u64;
        }
        self.connection.flights.insert(key, Flight { call, acted: false, awaits_end: false, fault, half: None });
        self.at(latency, Item::Act { key });
        self.at(timeout.as_nanos() as u64, Item::Deadline { key });
    }

    /// The rules for a call at the moment when the engine requests it.
    fn check_call(&mut self, op: OpId, call: &RuntimeCall, timeout: Duration) {
        self.check_environment(call);
        self.checks.call(op, call, timeout, self.clock.now, &self.runtime);
        let life = self.process.life;
        let flights = self.connection.flights.iter();
        let execs = flights.filter(|(key, f)| key.0 == life && matches!(f.call, RuntimeCall::Exec(_))).count();
        self.check_exec(call, execs + 1);
        let flights = self.connection.flights.iter();
        let streams = flights.filter(|(key, f)| key.0 == life && matches!(f.call, RuntimeCall::Stream(_))).count();
        self.check_stream(call, streams + 1);
        self.check_image(call);
        let shutdown = self.engine.shutdown(Boot(self.clock.now)).in_progress.is_some();
        let api = self.config.cluster.as_ref().map(|_| &self.api);
        let scene =
            Scene { runtime: &self.runtime, engine: &self.engine, files: &self.manifests.in_force, api, shutdown };
        let (now, max) = ((self.clock.now, self.wall_now()), self.config.max_restart_backoff);
        self.checks.within_bounds(op, call, now, max, &scene);
        self.no_start_in_a_shutdown(call);
        self.no_start_without_room(call);
        if let RuntimeCall::RunSandbox { pod, .. } = call
            && self.checks.confirmed.contains(pod.uid.as_str())
            // Otherwise the version of the list was perhaps lost, too.
            && self.checks.lost_records.is_empty()
            && !self.disk.was_full
        {
            self.checks.fail("C14: a pod whose deletion was confirmed does not run again", pod.uid.to_string());
        }
        if let RuntimeCall::RunSandbox { pod, .. } = call
            && self.engine.pod(&pod.uid).is_some_and(|v| !v.desired)
        {
            self.checks.fail("no start after the end was asked for", format!("RunSandbox of {}", pod.uid));
        }
        // For an orphan, or an older version whose record was lost, the sidecars are unknown.
        let known = |c: &Container| self.engine.pod(&c.uid).is_some_and(|v| v.pod.digest == c.pod.digest);
        if let RuntimeCall::StopContainer { id, grace } = call
            && self.runtime.containers.get(id.as_str()).is_some_and(known)
        {
            self.checks.stopped(id.as_str(), *grace, &self.runtime);
        }
        if let RuntimeCall::CreateContainer(c) = call {
            self.check_devices(c);
        }
        if let RuntimeCall::UpdateContainer { pod, .. } = call
            && self.chaos.is_none()
            && !self.disk.records.get(&format!("pods/{}", pod.uid)).is_some_and(|record| record.contains(&pod.digest))
        {
            self.checks.fail("R3", format!("{} is resized before that is recorded", pod.uid));
        }
        if let RuntimeCall::CreateContainer(c) = call
            && c.pod.spec().volumes.is_some()
            && !self.volumes.mounted.contains(&c.pod.uid)
        {
            self.checks.fail("volumes", format!("{} of {} is created without its volumes", c.container, c.pod.uid));
        }
    }

    /// The engine begins an operation, of this or of another model.
    pub(super) fn begin(&mut self, op: OpId) {
        if !self.connection.pending.insert((self.process.life, op)) {
            self.checks.fail("no operation is begun twice", format!("{op} was"));
        }
        // Stops of a whole node happen at one time.
        if self.connection.pending.len() > 1000 {
            self.checks.fail("operations are bounded", "more than 1000 are in flight".into());
        }
    }

    /// A call takes effect, unless its fault prevents that, and its answer is on the way.
    pub(super) fn act(&mut self, key: Key) {
        let Some(flight) = self.connection.flights.get_mut(&key) else { return };
        flight.acted = true;
        let (call, fault) = (flight.call.clone(), flight.fault.clone());
        if !self.connection.up || self.looks_twice(key, &call) {
            return;
        }
        let lists_fail = matches!(call, RuntimeCall::List) && self.clock.now < self.faults.lists_fail_until;
        let mut result = match &fault {
            _ if lists_fail => {
                Err(OpError::Answered { code: Code::Other(4), message: "context deadline exceeded".into() })
            }
            Some(Fault::Sham) => Ok(Answer::Ok),
            Some(Fault::Error(m)) => Err(OpError::Answered { code: Code::Other(2), message: m.clone() }),
            Some(Fault::Refused(m)) => Err(OpError::Refused(m.clone())),
            Some(Fault::Dropped) => Err(OpError::Unknown("connection lost".into())),
            Some(Fault::GivenUp(late)) => {
                self.give_up_sandbox(&call, late.as_nanos() as u64);
                Err(OpError::Unknown("connection lost".into()))
            }
            _ => match self.take_effect(key, &call) {
                Some(result) => result,
                None if fault == Some(Fault::Lost) => Ok(Answer::Ok),
                None => {
                    // Marks the call as waiting for the container's end.
                    if let Some(f) = self.connection.flights.get_mut(&key) {
                        f.awaits_end = true;
                    }
                    return;
                }
            },
        };
        if fault == Some(Fault::Lost) {
            result = Err(OpError::Unknown("connection lost".into()));
        }
        if let Some(half) = self.connection.flights.get_mut(&key).and_then(|f| f.half.take()) {
            result = result.map(|now| half.complete(now));
        }
        let text = self.runtime.text_of(&call);
        if let Ok(answer) = &mut result
            && let Some(c) = &mut self.chaos
            && let Some(mut dice) = c.mishap("an invalid answer of", &text, c.lies)
        {
            self.checks.lied |= lie(answer, &mut dice);
        }
        let mut back = self.latency(&call, &text) / 3;
        if let Some(Fault::Stale(d)) = fault {
            back += d.as_nanos() as u64;
        }
        self.at(back, Item::Answer { key, result });
    }

    /// A call takes effect in the runtime. Returns None if the answer has to wait for the end of a container.
    fn take_effect(&mut self, key: Key, call: &RuntimeCall) -> Option<Result<Answer, OpError>> {
        let wall = self.wall_now();
        if let RuntimeCall::RunSandbox { pod, .. } = call {
            let lucky = self.chaos.as_mut().is_none_or(|c| c.mishap("no address for", pod.uid.as_str(), 30).is_none());
            self.runtime.no_address |= !lucky;
        }
        let (processes, chaos) = (&mut self.processes, &mut self.chaos);
        let outcome = self.runtime.call(call, wall, |c| processes.life_of(c, chaos.as_mut()));
        let outcome = self.user_call(call).map_or(outcome, Outcome::Answer);
        self.note_changes(call);
        match outcome {
            Outcome::Answer(result) => Some(result),
            Outcome::Started(id, answer) => {
                self.process_begins(id);
                Some(Ok(answer))
            }
            Outcome::Stopping(id, grace) => {
                self.terminate(&id, grace, key);
                None
            }
        }
    }

    /// Splits a call that reads sandboxes and containers separately, so that something may happen in between. Returns true if
    /// the second part is still to come.
    fn looks_twice(&mut self, key: Key, call: &RuntimeCall) -> bool {
        let of = match call {
            RuntimeCall::List => "the lists",
            RuntimeCall::ReadPod { uid } => uid.as_str(),
            _ => return false,
        };
        if self.connection.flights.get(&key).is_none_or(|f| f.half.is_some()) {
            return false;
        }
        let Some(mut dice) = self.chaos.as_mut().and_then(|c| c.mishap("two moments of", of, 60)) else { return false };
        let sandboxes = below(&mut dice, 2) == 0;
        let wall = self.wall_now();
        let half = match self.runtime.call(call, wall, |_| Life::FOREVER) {
            Outcome::Answer(Ok(Answer::Listed(listed))) => Half::List { sandboxes, listed },
            Outcome::Answer(Ok(Answer::Pod(facts))) => Half::Pod { sandboxes, facts },
            _ => return false,
        };
        if let Some(flight) = self.connection.flights.get_mut(&key) {
            flight.half = Some(half);
        }
        self.at(below(&mut dice, 400) * MS, Item::Act { key });
        true
    }

    /// containerd's behaviour for a RunPodSandbox whose caller is gone: nothing of it is ever shown, but the OCI runtime was
    /// started and creates the cgroup.
    pub(super) fn give_up_sandbox(&mut self, call: &RuntimeCall, late: u64) {
        if let RuntimeCall::RunSandbox { pod, attempt, .. } = call {
            self.runtime.reserved.insert((pod.uid.clone(), *attempt));
            self.at(late, Item::LateCgroup { uid: pod.uid.clone(), attempt: *attempt });
        }
    }

    fn note_changes(&mut self, call: &RuntimeCall) {
        if matches!(call, RuntimeCall::StartContainer { .. } | RuntimeCall::RunSandbox { .. }) {
            self.checks.after_start(&self.runtime);
        }
        if let Some(id) = self.runtime.removed_running.pop() {
            self.checks.fail("nothing is removed while it runs", format!("{id} was"));
        }
        if let Some(pod) = self.runtime.shared_user_namespaces.pop() {
            self.checks.fail("W28", format!("{pod} has the ids of another pod"));
        }
    }

    /// The cgroup of a cancelled RunPodSandbox appears.
    pub(super) fn late_cgroup(&mut self, uid: Uid, attempt: u32) {
        self.note(|| format!("    the cgroup of {uid} turns up"));
        self.runtime.reserved.remove(&(uid.clone(), attempt));
        self.runtime.cgroups.insert(uid);
    }

    /// The engine cancels a call.
    pub(super) fn cancel(&mut self, op: OpId) {
        self.note(|| format!("  < cancel {op}"));
        let key = (self.process.life, op);
        if self.connection.pending.contains(&key) {
            // The cancellation may come too late for the runtime.
            let in_time = self.checks.strict
                || match &mut self.chaos {
                    Some(c) => c.mishap("a cancelled call acts", "", 500).is_none(),
                    None => !self.faults.late_cancellation,
                };
            if in_time && let Some(flight) = self.connection.flights.remove(&key) {
                let late = self.chaos.as_mut().and_then(|c| c.mishap("given up late", "", 300));
                if let Some(mut dice) = late.filter(|_| !flight.acted) {
                    self.give_up_sandbox(&flight.call, below(&mut dice, 10_000) * MS);
                }
            }
            self.at(MS / 10, Item::Answer { key, result: Err(OpError::Unknown("cancelled".into())) });
        }
        self.checks.cancelled(op);
    }

    pub(super) fn deadline_is_over(&mut self, key: Key) {
        if self.connection.flights.contains_key(&key) {
            self.finish(key, Err(OpError::Unknown("deadline exceeded".into())));
        }
    }

    /// Answers StopContainer for containers that have ended.
    pub(super) fn answer_stops(&mut self) {
        let over: Vec<Key> = self
            .connection
            .flights
            .iter()
            .filter(|(key, f)| match &f.call {
                RuntimeCall::StopContainer { id, .. } => {
                    key.0 == self.process.life
                        && f.awaits_end
                        && !self.runtime.containers.get(id.as_str()).is_some_and(Container::runs)
                }
                _ => false,
            })
            .map(|(key, _)| *key)
            .collect();
        for key in over {
            if let Some(f) = self.connection.flights.get_mut(&key) {
                f.awaits_end = false;
            }
            self.at(MS, Item::Answer { key, result: Ok(Answer::Ok) });
        }
    }

    /// An operation ends: the engine receives its result.
    pub(super) fn finish(&mut self, key: Key, result: Result<Answer, OpError>) {
        if key.0 != self.process.life {
            self.connection.flights.remove(&key);
            return;
        }
        // A cancelled call continues in the runtime, but it is answered only once.
        if !self.connection.pending.remove(&key) {
            self.connection.flights.remove(&key);
            return;
        }
        if self.connection.flights.get(&key).is_some_and(|f| f.acted) {
            self.connection.flights.remove(&key);
        }
        self.checks.done(key.1, &result, self.clock.now);
        self.handlers.answered(key.1);
        self.step(Event::Done { op: key.1, result });
    }

    pub fn runtime_down(&mut self) {
        if !self.connection.up {
            return;
        }
        self.connection.up = false;
        self.note(|| "--- the runtime is gone".into());
        // Of the calls in flight some took effect and some did not. None is answered.
        let keys: Vec<Key> = self.connection.flights.keys().copied().collect();
        self.queue.retain(|item| !matches!(item, Item::Act { .. }));
        let end_first =
            self.chaos.as_mut().is_some_and(|c| c.mishap("told of the runtime's end first", "", 500).is_some());
        if end_first {
            self.step(Event::RuntimeDown { why: "connection reset".into() });
        }
        for key in keys {
            self.finish(key, Err(OpError::Unknown("connection lost".into())));
        }
        self.connection.flights.clear();
        if !end_first {
            self.step(Event::RuntimeDown { why: "connection reset".into() });
        }
    }

    /// The connection is lost before the calls in flight are sent.
    pub fn runtime_down_unsent(&mut self) {
        self.connection.up = false;
        self.queue.retain(|item| !matches!(item, Item::Act { .. }));
        self.step(Event::RuntimeDown { why: "connection reset".into() });
        for key in self.connection.flights.keys().copied().collect::<Vec<_>>() {
            self.finish(key, Err(OpError::NotSent("connection lost".into())));
        }
        self.connection.flights.clear();
    }

    pub fn runtime_up(&mut self) {
        if !self.connection.up {
            self.connection.up = true;
            self.note(|| "--- the runtime is back".into());
            self.forget_addresses();
            self.step(Event::RuntimeUp);
        }
    }

    /// A runtime that started again may not know all addresses.
    fn forget_addresses(&mut self) {
        let World { runtime, chaos: Some(chaos), .. } = self else { return };
        if !runtime.personality.may_forget_addresses() || chaos.calm {
            return;
        }
        let known: Vec<String> = runtime.sandboxes.values().filter(|s| s.ready).map(|s| s.id.clone()).collect();
        for id in known {
            if chaos.mishap("the address is forgotten of", &id, 300).is_some() {
                runtime.forget_address(&id);
            }
        }
    }

    pub fn runtime_up_in(&mut self, after: u64) {
        self.at(after, Item::Up);
    }

    /// The number of pods whose sandbox is being created, and of pods with a container that is being created or started.
    pub fn starting(&self) -> (usize, usize) {
        let sandbox = |f: &&Flight| matches!(f.call, RuntimeCall::RunSandbox { .. });
        let container = |f: &&Flight| {
            matches!(
                f.call,
                RuntimeCall::CreateContainer(_) | RuntimeCall::StartContainer { .. } | RuntimeCall::ImageStatus { .. }
            )
        };
        (
            self.connection.flights.values().filter(sandbox).count(),
            self.connection.flights.values().filter(container).count(),
        )
    }

    pub fn pending_ops(&self) -> usize {
        self.connection.pending.len() - self.handlers.probing.len().min(self.connection.pending.len())
    }
}
