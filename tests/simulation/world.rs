//! The world around the engine: a virtual clock, one queue of what will happen, the runtime model, disk and timers. It
//! carries effects to their places and their answers back, and lets things go wrong on the way.

use crate::check::Checks;
use crate::runtime::{Container, Life, Outcome, Runtime, end};
use crate::tell::{brief, files_text, short};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use wherry::api::facts::ContainerState;
use wherry::api::names::Uid;
use wherry::api::pod::Pod;
use wherry::api::time::{Boot, Now, Wall};
use wherry::engine::config::EngineConfig;
use wherry::engine::effect::{Effect, FilesCall, Measure, Notice, RecordChange, RuntimeCall, TimerKey};
use wherry::engine::event::{Answer, Event};
use wherry::engine::node::Engine;
use wherry::engine::op::{Code, OpError, OpId};
use wherry::engine::rng::Rng;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;

/// What goes wrong with one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The runtime says no and changed nothing.
    Error(String),
    /// It acted, and the answer was lost.
    Lost,
    /// It never came to it, and nobody knows.
    Dropped,
    /// It acts and answers so late (perhaps after the deadline).
    Slow(Duration),
    /// It acts in time, and the answer comes so late.
    Stale(Duration),
}

enum Item {
    Act {
        key: (u32, OpId),
    },
    Answer {
        key: (u32, OpId),
        result: Result<Answer, OpError>,
    },
    Deadline {
        key: (u32, OpId),
    },
    Timer {
        life: u32,
        key: TimerKey,
        at: u64,
    },
    Record {
        key: (u32, OpId),
        change: RecordChange,
    },
    Exit {
        container: String,
        code: i32,
    },
    /// The runtime has noticed an end.
    Shown {
        container: String,
        code: i32,
    },
    Kill {
        container: String,
        by: (u32, OpId),
    },
    Up,
    /// A pidfd, or the runtime's event stream, tells something.
    Hint {
        life: u32,
        event: Event,
    },
}

struct Flight {
    call: RuntimeCall,
    acted: bool,
    /// A stop that is answered when its container has ended.
    awaits_end: bool,
    fault: Option<Fault>,
}

/// How the world misbehaves by itself.
pub struct Chaos {
    pub rng: Rng,
    /// Faults in 1000 calls.
    pub faults: u64,
    /// All is well from now on: containers live, ends are seen.
    pub calm: bool,
}

impl Chaos {
    pub fn below(&mut self, n: u64) -> u64 {
        self.rng.draw() % n
    }
}

pub struct World {
    pub now: u64,
    /// Wall clock minus boot clock, in nanoseconds.
    pub wall: i64,
    pub engine: Engine,
    pub config: EngineConfig,
    pub runtime: Runtime,
    pub up: bool,
    pub chaos: Option<Chaos>,
    /// Faults to come, by the call's name as in `calls`: the next call whose text starts so has this fault.
    pub faults: Vec<(String, Fault)>,
    /// By `pod/container`: the lives of its instances in turn; the last one stays.
    pub lives: BTreeMap<String, VecDeque<Life>>,
    pub files: BTreeMap<String, Rc<Pod>>,
    pub records: BTreeMap<String, String>,
    /// Processes can be watched.
    pub pidfds: bool,
    /// By the ids of containers and sandboxes: their pods.
    pub watched: BTreeMap<String, Uid>,
    /// How long the runtime does not show an end, in ms.
    pub exit_lag: u64,
    pub record_error: bool,
    /// The runtime does not hear of a cancelled call in time.
    pub heard_anyway: bool,
    pub directories: BTreeSet<Uid>,
    /// What a termination message file says.
    pub termination_message: String,
    /// Changing calls as they were asked for: (time, text).
    pub calls: Vec<(u64, String)>,
    pub notices: Vec<(u64, Notice)>,
    pub measures: Vec<Measure>,
    pub published: u64,
    pub reads: u64,
    pub lists: u64,
    pub steps: u64,
    /// The moments at which the engine was woken.
    pub wake_ups: u64,
    last_step: u64,
    pub checks: Checks,
    /// The engine's life: a kill -9 begins the next one.
    pub life: u32,
    pub history: Option<Vec<String>>,
    flights: BTreeMap<(u32, OpId), Flight>,
    pending: BTreeSet<(u32, OpId)>,
    timers: BTreeMap<TimerKey, u64>,
    queue: BTreeMap<(u64, u64), Item>,
    serial: u64,
}

/// The engine as a story's node has it; W10's maximum and P1's period as by default.
pub fn config() -> EngineConfig {
    EngineConfig { owner: "root-1".into(), seed: 7, ..EngineConfig::default() }
}

impl World {
    /// A node with a well runtime, whose engine was told nothing yet.
    pub fn new(config: EngineConfig) -> World {
        let runtime = Runtime::new(&config.owner);
        World {
            now: 1000 * S,
            wall: 1_800_000_000 * S as i64,
            engine: Engine::new(config.clone()),
            config,
            runtime,
            up: true,
            chaos: None,
            faults: Vec::new(),
            lives: BTreeMap::new(),
            files: BTreeMap::new(),
            records: BTreeMap::new(),
            pidfds: false,
            watched: BTreeMap::new(),
            exit_lag: 0,
            record_error: false,
            heard_anyway: false,
            directories: BTreeSet::new(),
            termination_message: String::new(),
            calls: Vec::new(),
            notices: Vec::new(),
            measures: Vec::new(),
            published: 0,
            reads: 0,
            lists: 0,
            steps: 0,
            wake_ups: 0,
            last_step: 0,
            checks: Checks::default(),
            life: 0,
            history: None,
            flights: BTreeMap::new(),
            pending: BTreeSet::new(),
            timers: BTreeMap::new(),
            queue: BTreeMap::new(),
            serial: 0,
        }
    }

    pub fn wall_now(&self) -> Wall {
        Wall(self.wall + self.now as i64)
    }

    pub fn time(&self) -> Now {
        Now { boot: Boot(self.now), wall: self.wall_now() }
    }

    fn at(&mut self, after: u64, item: Item) {
        self.serial += 1;
        self.queue.insert((self.now + after, self.serial), item);
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            let t = self.now - 1000 * S;
            history.push(format!("{:>6}.{:03} {}", t / S, t % S / MS, line()));
        }
    }

    // --- what a story does

    /// The engine starts: records, the sources, and the runtime if it is up.
    pub fn start(&mut self) {
        let records = self.records.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        self.step(Event::Records(records));
        let runtime_first = self.chaos.as_mut().is_some_and(|c| c.below(2) == 0);
        if runtime_first && self.up {
            self.step(Event::RuntimeUp);
            let wait = self.chaos.as_mut().map_or(0, |c| c.below(3000));
            self.run_ms(wait);
        }
        self.read_manifests();
        if !runtime_first && self.up {
            self.step(Event::RuntimeUp);
        }
    }

    pub fn read_manifests(&mut self) {
        let pods: Vec<Rc<Pod>> = self.files.values().cloned().collect();
        self.step(Event::Desired(pods));
    }

    /// kill -9 of the engine, and its start. Calls in flight act or not; records in flight are there or not.
    pub fn kill_engine(&mut self) {
        self.note(|| "--- the engine is killed".into());
        self.life += 1;
        self.timers.clear();
        self.watched.clear();
        self.pending.clear();
        let mut lost: Vec<(u64, u64)> = Vec::new();
        let mut kept = Vec::new();
        for (at, item) in &self.queue {
            match item {
                Item::Act { .. } if self.checks.strict => lost.push(*at),
                Item::Act { .. } | Item::Record { .. } if self.chaos.as_mut().is_some_and(|c| c.below(2) == 0) => {
                    lost.push(*at);
                }
                Item::Record { change, .. } => {
                    kept.push(change.clone());
                    lost.push(*at);
                }
                _ => {}
            }
        }
        lost.iter().for_each(|at| drop(self.queue.remove(at)));
        kept.into_iter().for_each(|change| self.keep(change));
        self.config.seed += 1;
        self.engine = Engine::new(self.config.clone());
        self.checks.engine_restarted(&self.files, &self.runtime, &self.records);
    }

    fn keep(&mut self, change: RecordChange) {
        match change {
            RecordChange::Put { key, value } => drop(self.records.insert(key, value)),
            RecordChange::Delete { key } => drop(self.records.remove(&key)),
        }
    }

    pub fn restart_engine(&mut self) {
        self.kill_engine();
        self.start();
    }

    pub fn runtime_down(&mut self) {
        if !self.up {
            return;
        }
        self.up = false;
        self.note(|| "--- the runtime is gone".into());
        // Calls in flight: some acted, some not; none is answered.
        let keys: Vec<(u32, OpId)> = self.flights.keys().copied().collect();
        let acts: Vec<(u64, u64)> =
            self.queue.iter().filter(|(_, i)| matches!(i, Item::Act { .. })).map(|(at, _)| *at).collect();
        acts.iter().for_each(|at| drop(self.queue.remove(at)));
        let told_first = self.chaos.as_mut().is_some_and(|c| c.below(2) == 0);
        if told_first {
            self.step(Event::RuntimeDown { why: "connection reset".into() });
        }
        for key in keys {
            self.finish(key, Err(OpError::Unknown("connection lost".into())));
        }
        self.flights.clear();
        if !told_first {
            self.step(Event::RuntimeDown { why: "connection reset".into() });
        }
    }

    pub fn runtime_up(&mut self) {
        if !self.up {
            self.up = true;
            self.note(|| "--- the runtime is back".into());
            self.step(Event::RuntimeUp);
        }
    }

    pub fn runtime_up_in(&mut self, after: u64) {
        self.at(after, Item::Up);
    }

    /// A container's process ends now.
    pub fn exit(&mut self, id: &str, code: i32) {
        let lag = match &mut self.chaos {
            Some(c) if !c.calm => c.below(2000) * u64::from(c.below(4) == 0),
            _ => self.exit_lag,
        };
        let Some(c) = self.runtime.containers.get_mut(id).filter(|c| c.runs() && !c.dead) else { return };
        c.dead = true;
        self.note(|| format!("    {id} ends with {code}"));
        if lag == 0 {
            self.show_exit(id, code);
        } else {
            self.at(lag * MS, Item::Shown { container: id.into(), code });
        }
        self.look_at_pidfds();
    }

    fn show_exit(&mut self, id: &str, code: i32) {
        let wall = self.wall_now();
        if let Some(c) = self.runtime.containers.get_mut(id).filter(|c| c.runs()) {
            end(c, code, wall);
        }
    }

    /// The pidfds of processes that are over become readable.
    fn look_at_pidfds(&mut self) {
        let over: Vec<String> = self.watched.keys().filter(|id| !self.runtime.lives(id)).cloned().collect();
        for id in over {
            if let Some(uid) = self.watched.remove(&id) {
                let life = self.life;
                self.at(MS / 5, Item::Hint { life, event: Event::Ended { uid, id } });
            }
        }
    }

    pub fn kill_sandbox(&mut self, id: &str) {
        if let Some(s) = self.runtime.sandboxes.get_mut(id) {
            s.ready = false;
        }
        self.note(|| format!("    sandbox {id} dies"));
        self.look_at_pidfds();
    }

    // --- time

    pub fn run_ms(&mut self, ms: u64) {
        let end = self.now + ms * MS;
        while self.happen(end) {}
        self.now = end;
    }

    pub fn run(&mut self, seconds: u64) {
        self.run_ms(seconds * 1000);
    }

    /// Lets the next thing happen that is due by `end`.
    pub fn happen(&mut self, end: u64) -> bool {
        if self.checks.violation.is_some() {
            return false;
        }
        match self.queue.first_key_value() {
            Some(((at, _), _)) if *at <= end => {}
            _ => return false,
        }
        let Some(((at, _), item)) = self.queue.pop_first() else { return false };
        self.now = self.now.max(at);
        self.item(item);
        true
    }

    fn item(&mut self, item: Item) {
        match item {
            Item::Act { key } => self.act(key),
            Item::Answer { key, result } => self.finish(key, result),
            Item::Deadline { key } => {
                if self.flights.contains_key(&key) {
                    self.finish(key, Err(OpError::Unknown("deadline exceeded".into())));
                }
            }
            Item::Timer { life, key, at } => {
                if life == self.life && self.timers.get(&key) == Some(&at) {
                    self.timers.remove(&key);
                    self.step(Event::Timer(key));
                }
            }
            Item::Record { key, change } => {
                if key.0 == self.life {
                    let wrong = self.record_error
                        || self.chaos.as_mut().is_some_and(|c| c.faults > 0 && c.below(1000) < c.faults / 4);
                    let result = if wrong {
                        Err(OpError::Answered { code: Code::Other(28), message: "no space left on device".into() })
                    } else {
                        self.keep(change);
                        Ok(Answer::Ok)
                    };
                    self.finish(key, result);
                }
            }
            Item::Exit { container, code } => self.exit(&container, code),
            Item::Shown { container, code } => self.show_exit(&container, code),
            Item::Kill { container, by } => {
                // A call that nobody waits for any more has no second half.
                if by.0 == self.life && self.pending.contains(&by) {
                    self.exit(&container, 137);
                }
            }
            Item::Up => self.runtime_up(),
            Item::Hint { life, event } => {
                if life == self.life {
                    self.step(event);
                }
            }
        }
        self.look_at_pidfds();
        self.answer_stops();
    }

    /// StopContainer is answered when the container has ended.
    fn answer_stops(&mut self) {
        let over: Vec<(u32, OpId)> = self
            .flights
            .iter()
            .filter(|(key, f)| match &f.call {
                RuntimeCall::StopContainer { id, .. } => {
                    key.0 == self.life
                        && f.awaits_end
                        && !self.runtime.containers.get(id.as_str()).is_some_and(Container::runs)
                }
                _ => false,
            })
            .map(|(key, _)| *key)
            .collect();
        for key in over {
            if let Some(f) = self.flights.get_mut(&key) {
                f.awaits_end = false;
            }
            self.at(MS, Item::Answer { key, result: Ok(Answer::Ok) });
        }
    }

    // --- calls

    fn act(&mut self, key: (u32, OpId)) {
        let Some(flight) = self.flights.get_mut(&key) else { return };
        flight.acted = true;
        let (call, fault) = (flight.call.clone(), flight.fault.clone());
        if !self.up {
            return;
        }
        let result = match &fault {
            Some(Fault::Error(m)) => Err(OpError::Answered { code: Code::Other(2), message: m.clone() }),
            Some(Fault::Dropped) => Err(OpError::Unknown("connection lost".into())),
            _ => {
                let wall = self.wall_now();
                let (lives, chaos) = (&mut self.lives, &mut self.chaos);
                let outcome = self.runtime.call(&call, wall, |c| life_of(c, lives, chaos.as_mut()));
                self.note_changes(&call);
                match outcome {
                    Outcome::Answer(r) => r,
                    Outcome::Started(id, answer) => {
                        if let Some((after, code)) = self.runtime.containers.get(&id).and_then(|c| c.life.ends) {
                            self.at(after.as_nanos() as u64, Item::Exit { container: id, code });
                        }
                        Ok(answer)
                    }
                    Outcome::Stopping(id, grace) => {
                        self.terminate(&id, grace, key);
                        if fault == Some(Fault::Lost) {
                            Err(OpError::Unknown("connection lost".into()))
                        } else {
                            // Marks it as waiting for the container's end.
                            if let Some(f) = self.flights.get_mut(&key) {
                                f.awaits_end = true;
                            }
                            return;
                        }
                    }
                }
            }
        };
        let result = if fault == Some(Fault::Lost) { Err(OpError::Unknown("connection lost".into())) } else { result };
        let mut back = self.latency(&call) / 3;
        if let Some(Fault::Stale(d)) = fault {
            back += d.as_nanos() as u64;
        }
        self.at(back, Item::Answer { key, result });
    }

    fn note_changes(&mut self, call: &RuntimeCall) {
        if matches!(call, RuntimeCall::StartContainer { .. } | RuntimeCall::RunSandbox { .. }) {
            self.checks.after_start(&self.runtime);
        }
        if let Some(id) = self.runtime.removed_running.pop() {
            self.checks.fail(format!("{id} was removed while it ran"));
        }
    }

    fn terminate(&mut self, id: &str, grace: Duration, by: (u32, OpId)) {
        let Some(c) = self.runtime.containers.get_mut(id) else { return };
        let first = !std::mem::replace(&mut c.terminating, true);
        let on_term = c.life.on_term;
        if first && let Some((after, code)) = on_term {
            self.at(after.as_nanos() as u64, Item::Exit { container: id.into(), code });
        }
        self.at(grace.as_nanos() as u64, Item::Kill { container: id.into(), by });
    }

    fn latency(&mut self, call: &RuntimeCall) -> u64 {
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
            Some(c) => base * MS / 4 + c.below(base * 2 * MS),
        }
    }

    fn pick_fault(&mut self, text: &str, looks: bool) -> Option<Fault> {
        if let Some(i) = self.faults.iter().position(|(prefix, _)| text.starts_with(prefix.as_str())) {
            return Some(self.faults.remove(i).1);
        }
        let c = self.chaos.as_mut()?;
        // An old picture is no fault: it has to be known for one (P5).
        if looks && !c.calm && c.below(10) == 0 {
            return Some(Fault::Stale(Duration::from_millis(c.below(300))));
        }
        if c.faults == 0 || c.below(1000) >= c.faults {
            return None;
        }
        Some(match c.below(7) {
            5 => Fault::Stale(Duration::from_millis(c.below(5000))),
            0 | 1 => Fault::Error("something is wrong".into()),
            2 => Fault::Lost,
            3 => Fault::Dropped,
            4 => Fault::Slow(Duration::from_millis(c.below(3000))),
            _ => Fault::Slow(Duration::from_millis(c.below(60_000))),
        })
    }

    fn finish(&mut self, key: (u32, OpId), result: Result<Answer, OpError>) {
        if key.0 != self.life {
            self.flights.remove(&key);
            return;
        }
        // A call that was given up goes on in the runtime, but it is answered once.
        if !self.pending.remove(&key) {
            self.flights.remove(&key);
            return;
        }
        if self.flights.get(&key).is_some_and(|f| f.acted) {
            self.flights.remove(&key);
        }
        self.checks.done(key.1);
        self.step(Event::Done { op: key.1, result });
    }

    // --- the engine

    pub fn step(&mut self, event: Event) {
        self.steps += 1;
        if self.last_step != self.now {
            self.wake_ups += 1;
            self.last_step = self.now;
        }
        self.note(|| format!("> {}", short(&event)));
        let now = self.time();
        let effects = self.engine.step(event, now);
        for effect in effects {
            self.effect(effect);
        }
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Runtime { op, call, timeout } => self.runtime_call(op, call, timeout),
            Effect::Cancel { op } => {
                self.note(|| format!("  < cancel {op}"));
                let key = (self.life, op);
                if self.pending.contains(&key) {
                    // It may be past the point at which the runtime hears of it.
                    let in_time =
                        self.checks.strict || self.chaos.as_mut().map_or(!self.heard_anyway, |c| c.below(2) == 0);
                    if in_time {
                        self.flights.remove(&key);
                    }
                    self.at(MS / 10, Item::Answer { key, result: Err(OpError::Unknown("cancelled".into())) });
                }
                self.checks.cancelled(op);
            }
            Effect::Files { op, call } => self.files_call(op, call),
            Effect::Record { op, change } => {
                self.note(|| match &change {
                    RecordChange::Put { key, .. } => format!("  < put {key}"),
                    RecordChange::Delete { key } => format!("  < delete {key}"),
                });
                let key = (self.life, op);
                self.begin(op);
                self.at(2 * MS, Item::Record { key, change });
            }
            Effect::Timer { key, at } => {
                self.note(|| format!("  < timer {key:?} {:?}", at.map(|a| a.0.saturating_sub(self_zero()) / MS)));
                match at {
                    None => drop(self.timers.remove(&key)),
                    Some(at) => {
                        self.timers.insert(key.clone(), at.0);
                        let after = at.0.saturating_sub(self.now);
                        let at = at.0;
                        self.at(after, Item::Timer { life: self.life, key, at });
                    }
                }
            }
            Effect::Watch { uid, id, pid } => {
                self.note(|| format!("  < watch {id} ({pid})"));
                let unlucky = self.chaos.as_mut().is_some_and(|c| !c.calm && c.below(10) == 0);
                let ok = self.pidfds && !unlucky && self.runtime.lives(&id);
                if self.watched.contains_key(&id) {
                    self.checks.fail(format!("{id} is watched twice"));
                }
                if ok {
                    self.watched.insert(id.clone(), uid);
                }
                let life = self.life;
                self.at(MS / 10, Item::Hint { life, event: Event::Watched { id, ok } });
            }
            Effect::Unwatch { id } => {
                self.note(|| format!("  < unwatch {id}"));
                self.watched.remove(&id);
            }
            Effect::Publish { uid, .. } => {
                self.published += 1;
                if let Some(view) = self.engine.pod(&uid) {
                    let phase = view.status.phase.clone().unwrap_or_default();
                    self.checks.published(&uid, &phase, &self.runtime);
                    if view.desired && view.status.start_time.is_some() {
                        self.checks.count(&uid, view.status, &self.runtime);
                    }
                    if self.history.is_some() {
                        let text = brief(view.status);
                        self.note(|| format!("  < publish {uid} {text}"));
                    }
                }
            }
            Effect::Notice(n) => {
                self.note(|| format!("  < notice {} {}", n.reason, n.message));
                if self.chaos.is_none() {
                    self.notices.push((self.now, n));
                }
            }
            Effect::Measure(m) => {
                if self.chaos.is_none() {
                    self.measures.push(m);
                }
            }
        }
    }

    fn begin(&mut self, op: OpId) {
        if !self.pending.insert((self.life, op)) {
            self.checks.fail(format!("{op} was begun twice"));
        }
        // Stops of whole nodes are made at one time.
        if self.pending.len() > 1000 {
            self.checks.fail("more than 1000 operations in flight".into());
        }
    }

    fn runtime_call(&mut self, op: OpId, call: RuntimeCall, timeout: Duration) {
        let changing = !matches!(
            call,
            RuntimeCall::Status | RuntimeCall::List | RuntimeCall::ReadPod { .. } | RuntimeCall::ImageStatus { .. }
        );
        match call {
            RuntimeCall::List => self.lists += 1,
            RuntimeCall::ReadPod { .. } => self.reads += 1,
            _ => {}
        }
        let need_text = self.chaos.is_none() || self.history.is_some();
        let text = if need_text { self.text_of(&call) } else { String::new() };
        self.note(|| format!("  < {op} {text} (within {timeout:?})"));
        if changing && need_text {
            self.calls.push((self.now, text.clone()));
        }
        self.begin(op);
        self.checks.call(op, &call, timeout, &self.runtime);
        let key = (self.life, op);
        if !self.up {
            self.at(MS / 10, Item::Answer { key, result: Err(OpError::NotSent("no connection".into())) });
            return;
        }
        let fault = self.pick_fault(&text, matches!(call, RuntimeCall::List | RuntimeCall::ReadPod { .. }));
        let mut latency = self.latency(&call) * 2 / 3;
        if let Some(Fault::Slow(d)) = &fault {
            latency += d.as_nanos() as u64;
        }
        self.hint(&call, latency);
        self.flights.insert(key, Flight { call, acted: false, awaits_end: false, fault });
        self.at(latency, Item::Act { key });
        self.at(timeout.as_nanos() as u64, Item::Deadline { key });
    }

    /// A runtime's event stream tells of what a call does, about when it does it.
    fn hint(&mut self, call: &RuntimeCall, latency: u64) {
        let uid = match call {
            RuntimeCall::RunSandbox { pod, .. } => Some(pod.uid.clone()),
            RuntimeCall::CreateContainer(c) => Some(c.pod.uid.clone()),
            RuntimeCall::StartContainer { id } | RuntimeCall::StopContainer { id, .. } => {
                self.runtime.containers.get(id.as_str()).map(|c| c.uid.clone())
            }
            _ => None,
        };
        let Some(chaos) = self.chaos.as_mut().filter(|c| !c.calm) else { return };
        if let Some(uid) = uid
            && chaos.below(3) == 0
        {
            let after = chaos.below(latency * 2 + 1);
            let life = self.life;
            self.at(after, Item::Hint { life, event: Event::Hint { uid } });
        }
    }

    fn files_call(&mut self, op: OpId, call: FilesCall) {
        self.note(|| format!("  < {op} {}", files_text(&call)));
        self.begin(op);
        let key = (self.life, op);
        let wrong = self.chaos.as_mut().is_some_and(|c| c.faults > 0 && c.below(1000) < c.faults / 2);
        let result = if wrong {
            Err(OpError::Answered { code: Code::Other(5), message: "input/output error".into() })
        } else {
            match call {
                FilesCall::PreparePod { pod } => {
                    self.directories.insert(pod.uid.clone());
                    Ok(Answer::Ok)
                }
                FilesCall::PrepareContainer { pod, container, attempt, .. } => {
                    self.directories.insert(pod.uid.clone());
                    Ok(Answer::Prepared { termination_file: format!("/pods/{}/{container}/{attempt}", pod.uid) })
                }
                FilesCall::ReadTermination { .. } => Ok(Answer::Message(self.termination_message.clone())),
                FilesCall::RemovePod { uid, .. } => {
                    self.directories.remove(&uid);
                    Ok(Answer::Ok)
                }
                _ => Ok(Answer::Ok),
            }
        };
        self.at(MS / 2, Item::Answer { key, result });
    }

    /// A step that nothing happened before asks for nothing.
    pub fn idempotent(&mut self, uid: &Uid) {
        self.step(Event::Timer(TimerKey::Pod(uid.clone())));
        let now = self.time();
        let again = self.engine.step(Event::Timer(TimerKey::Pod(uid.clone())), now);
        for effect in again {
            if !matches!(effect, Effect::Timer { .. }) {
                self.checks.fail(format!("a second step of {uid} asks for {effect:?}"));
            }
            self.effect(effect);
        }
    }

    /// Pods of which a sandbox or a container is being made or started.
    pub fn starting(&self) -> usize {
        let starts = |f: &&Flight| {
            matches!(
                f.call,
                RuntimeCall::RunSandbox { .. }
                    | RuntimeCall::CreateContainer(_)
                    | RuntimeCall::StartContainer { .. }
                    | RuntimeCall::ImageStatus { .. }
            )
        };
        self.flights.values().filter(starts).count()
    }

    pub fn pending_ops(&self) -> usize {
        self.pending.len()
    }

    pub fn timers(&self) -> Vec<TimerKey> {
        self.timers.keys().cloned().collect()
    }

    /// `web/main#1` of a container's id.
    fn title(&self, id: &str) -> String {
        match self.runtime.containers.get(id) {
            Some(c) => format!("{}/{}#{}", c.pod_name.name, c.name, c.attempt),
            None => id.to_string(),
        }
    }

    fn sandbox_title(&self, id: &str) -> String {
        match self.runtime.sandboxes.get(id) {
            Some(s) => format!("{}#{}", s.name.name, s.attempt),
            None => id.to_string(),
        }
    }

    fn text_of(&self, call: &RuntimeCall) -> String {
        match call {
            RuntimeCall::Status => "Status".into(),
            RuntimeCall::List => "List".into(),
            RuntimeCall::ReadPod { uid } => format!("ReadPod {uid}"),
            RuntimeCall::RunSandbox { pod, attempt } => format!("RunSandbox {}#{attempt}", pod.name.name),
            RuntimeCall::StopSandbox { id } => format!("StopSandbox {}", self.sandbox_title(id.as_str())),
            RuntimeCall::RemoveSandbox { id } => format!("RemoveSandbox {}", self.sandbox_title(id.as_str())),
            RuntimeCall::ImageStatus { image } => format!("ImageStatus {image}"),
            RuntimeCall::PullImage { image, .. } => format!("PullImage {image}"),
            RuntimeCall::CreateContainer(c) => {
                format!("CreateContainer {}/{}#{}", c.pod.name.name, c.container, c.attempt)
            }
            RuntimeCall::StartContainer { id } => format!("StartContainer {}", self.title(id.as_str())),
            RuntimeCall::StopContainer { id, grace } => {
                format!("StopContainer {} {}ms", self.title(id.as_str()), grace.as_millis())
            }
            RuntimeCall::RemoveContainer { id } => format!("RemoveContainer {}", self.title(id.as_str())),
        }
    }
}

fn self_zero() -> u64 {
    1000 * S
}

fn life_of(c: &Container, lives: &mut BTreeMap<String, VecDeque<Life>>, chaos: Option<&mut Chaos>) -> Life {
    let key = format!("{}/{}", c.pod_name.name, c.name);
    if let Some(turns) = lives.get_mut(&key) {
        return match turns.len() {
            0 => Life::FOREVER,
            1 => turns[0],
            _ => turns.pop_front().unwrap_or(Life::FOREVER),
        };
    }
    match chaos {
        Some(c) if !c.calm => crate::random::life(c),
        _ => Life::FOREVER,
    }
}

/// A container that runs or may.
pub fn alive(c: &Container) -> bool {
    matches!(c.state, ContainerState::Running | ContainerState::Unknown)
}

impl Drop for World {
    /// A story that says nothing else says that all rules held.
    fn drop(&mut self) {
        if self.chaos.is_none() && !std::thread::panicking() {
            assert_eq!(self.checks.violation, None);
        }
    }
}
