//! The world around the engine: a virtual clock, one queue of future events, the runtime model, disk and timers. It carries out
//! the engine's effects, returns the answers, and injects faults.

use crate::bounds::Scene;
use crate::chance::{Chaos, below};
use crate::check::Checks;
use crate::lies::lie;
use crate::logind::{Logind, Trouble};
use crate::pods::{Answers, Parts};
use crate::runtime::{Container, GivenUp, Life, Outcome, Runtime, end};
use crate::stream::Stream;
use crate::tell::{brief, files_text, short};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use wherry::api::facts::{ContainerState, Listed, PodFacts};
use wherry::api::names::{FullName, Uid};
use wherry::api::node_facts::NodeFacts;
use wherry::api::pod::Pod;
use wherry::api::time::{Boot, Now, Wall};
use wherry::engine::config::EngineConfig;
use wherry::engine::effect::{
    CgroupCall, Effect, FilesCall, HookCall, HookKind, LogindCall, Measure, Notice, ProbeCall, RecordChange,
    RuntimeCall, TimerKey, VolumesCall,
};
use wherry::engine::event::{Answer, Event, LogindEvent, PodDirectory, ProbeResult};
use wherry::engine::node::Engine;
use wherry::engine::op::{Code, OpError, OpId};
use wherry::engine::pod::kill::KillId;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;

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
    /// The runtime has noticed the end of a container.
    Shown {
        container: String,
        code: i32,
    },
    Kill {
        container: String,
        by: (u32, OpId),
    },
    /// The late effect of a cancelled call.
    LateCgroup {
        uid: Uid,
        attempt: u32,
    },
    /// A process that could not be killed can be killed again.
    Freed {
        container: String,
    },
    Up,
    /// The engine's process starts again.
    Start {
        life: u32,
    },
    /// The manifest directory was read.
    Manifests {
        life: u32,
    },
    DiskWell,
    Pidfd {
        life: u32,
        id: String,
    },
    Logind {
        key: (u32, OpId),
        call: LogindCall,
    },
    /// The maximum delay of a shutdown is over.
    LockDue {
        since: u64,
    },
    /// A runtime event from a pidfd or from the event stream.
    Hint {
        life: u32,
        event: Event,
    },
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

pub struct World {
    pub now: u64,
    /// The wall clock minus the boot clock, in nanoseconds.
    pub wall: i64,
    pub engine: Engine,
    pub config: EngineConfig,
    pub runtime: Runtime,
    pub logind: Logind,
    pub up: bool,
    /// The engine's process is alive.
    pub alive: bool,
    /// The engine is killed after this number of further effects, and starts again after this time (ns).
    kill_after: Option<(u64, u64)>,
    pub chaos: Option<Chaos>,
    /// Pending faults, by the beginning of a call's text in `calls`. The next such call has the fault.
    pub faults: Vec<(String, Fault)>,
    /// Calls whose text begins like this are neither carried out nor answered.
    pub hangs: BTreeSet<String>,
    /// By `pod/container`: the lives of its instances in order; the last one repeats.
    pub lives: BTreeMap<String, VecDeque<Life>>,
    pub files: BTreeMap<String, Rc<Pod>>,
    pub records: BTreeMap<String, String>,
    /// pidfds are available.
    pub pidfds: bool,
    /// The watched containers and sandboxes, by id, with their pods.
    pub watched: BTreeMap<String, Uid>,
    /// The runtime's event stream, if it has one.
    pub stream: Option<Stream>,
    /// Watched objects whose pidfd fires late or never.
    late_pidfds: BTreeSet<String>,
    /// How long the runtime does not show an end, in ms.
    pub exit_lag: u64,
    pub record_error: bool,
    /// The runtime does not learn of a cancellation in time.
    pub heard_anyway: bool,
    pub directories: BTreeMap<Uid, FullName>,
    /// All lists fail until this time.
    pub lists_fail_until: u64,
    /// Acknowledged changes of records: time, key, and the previous content.
    pub acknowledged: Vec<(u64, String, Option<String>)>,
    /// The pod with this name has far more faults than others.
    pub unlucky: Option<&'static str>,
    /// RunPodSandbox is not answered for pods whose name begins like this.
    pub hanging: Option<&'static str>,
    /// Hooks, probes and volumes.
    pub parts: Parts,
    /// The content of termination message files.
    pub termination_message: String,
    /// The changing calls as the engine requested them: (time, text).
    pub calls: Vec<(u64, String)>,
    pub notices: Vec<(u64, Notice)>,
    pub measures: Vec<Measure>,
    /// The machine was suspended, so operations in flight ended later than they otherwise could.
    pub slept: bool,
    /// The number of pods that fit at one time (A2).
    pub scarce: Option<usize>,
    /// The CPU weight of the burstable class, in milli-CPU.
    pub weighed: Option<u64>,
    /// Kills that were answered.
    pub killed: Vec<KillId>,
    /// Kills that were requested.
    pub kills: u64,
    /// Kills requested from earlier engines.
    pub kills_before: u64,
    /// This engine has not received the desired pods yet.
    unread: bool,
    /// The number of changing calls.
    pub changing_calls: u64,
    pub published: u64,
    pub reads: u64,
    pub lists: u64,
    pub steps: u64,
    /// The number of times that the engine was woken.
    pub wake_ups: u64,
    last_step: u64,
    /// The number of steps since `last_step`.
    steps_now: u64,
    /// The current minute, and the number of effects in it.
    minute: (u64, u64),
    pub checks: Checks,
    /// The number of the engine's run; each kill -9 starts the next one.
    pub life: u32,
    pub history: Option<Vec<String>>,
    flights: BTreeMap<(u32, OpId), Flight>,
    pending: BTreeSet<(u32, OpId)>,
    timers: BTreeMap<TimerKey, u64>,
    queue: BTreeMap<(u64, u64), Item>,
    serial: u64,
}

/// The default configuration of a story's node. W10's maximum and P1's period have their default values.
pub fn config() -> EngineConfig {
    let defaults = EngineConfig::default();
    let node = NodeFacts { name: "lab".into(), ..defaults.node };
    EngineConfig { owner: "root-1".into(), boot_id: "boot".into(), seed: 7, node, ..defaults }
}

impl World {
    /// A node with a healthy runtime and an engine that has not started.
    pub fn new(config: EngineConfig) -> World {
        let runtime = Runtime::new(&config.owner);
        World {
            now: 1000 * S,
            wall: 1_800_000_000 * S as i64,
            engine: Engine::new(config.clone()),
            config,
            runtime,
            logind: Logind::default(),
            up: true,
            alive: true,
            kill_after: None,
            chaos: None,
            faults: Vec::new(),
            hangs: BTreeSet::new(),
            lives: BTreeMap::new(),
            files: BTreeMap::new(),
            records: BTreeMap::new(),
            pidfds: false,
            watched: BTreeMap::new(),
            stream: None,
            late_pidfds: BTreeSet::new(),
            exit_lag: 0,
            record_error: false,
            heard_anyway: false,
            directories: BTreeMap::new(),
            lists_fail_until: 0,
            acknowledged: Vec::new(),
            unlucky: None,
            hanging: None,
            parts: Parts::default(),
            termination_message: String::new(),
            calls: Vec::new(),
            notices: Vec::new(),
            measures: Vec::new(),
            slept: false,
            scarce: None,
            weighed: None,
            killed: Vec::new(),
            kills: 0,
            kills_before: 0,
            unread: false,
            changing_calls: 0,
            published: 0,
            reads: 0,
            lists: 0,
            steps: 0,
            wake_ups: 0,
            last_step: 0,
            steps_now: 0,
            minute: (0, 0),
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

    // --- the actions of stories

    /// The engine starts: it receives the records, the sources and, if the runtime is up, the connection.
    pub fn start(&mut self) {
        let records = self.records.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        self.step(Event::Records(records));
        let found = self.directories.iter().map(|(uid, name)| {
            let path = format!("/pods/{uid}");
            PodDirectory { uid: uid.clone(), name: name.clone(), path }
        });
        let found = found.collect();
        self.step(Event::Directories(found));
        if self.logind.inherit() {
            self.step(Event::Logind(LogindEvent::Inherited));
        }
        if !self.config.shutdown.is_off() {
            self.logind.wanted = true;
            self.meet_logind();
        }
        let late = self.chaos.as_mut().and_then(|c| c.mishap("manifests are read late", "", 500));
        if late.is_none() {
            self.read_manifests();
        }
        if self.up {
            self.step(Event::RuntimeUp);
        }
        if let Some(mut dice) = late {
            let life = self.life;
            self.at(below(&mut dice, 3000) * MS, Item::Manifests { life });
        }
    }

    /// The events about logind when the engine starts.
    fn meet_logind(&mut self) {
        if !self.logind.wanted {
            return;
        }
        let life = self.life;
        let event = match self.logind.up {
            true => LogindEvent::Up,
            false => LogindEvent::Down { why: "no bus".into() },
        };
        self.at(MS, Item::Hint { life, event: Event::Logind(event) });
    }

    fn signal(&mut self, preparing: bool) {
        self.note(|| format!("--- PrepareForShutdown({preparing})"));
        if self.alive && self.logind.up && self.logind.subscribed == Some(self.life) {
            let life = self.life;
            self.at(MS / 10, Item::Hint { life, event: Event::Logind(LogindEvent::Preparing(preparing)) });
        }
    }

    /// `systemctl poweroff`.
    pub fn power_off(&mut self) {
        if self.logind.preparing.is_some() || !self.logind.up {
            return;
        }
        let (since, locked) = (self.now, self.logind.locked());
        self.logind.preparing = Some((since, locked));
        self.logind.groups.clear();
        self.signal(true);
        let sum = self.config.shutdown.sum().as_nanos() as u64;
        self.at(sum + S, Item::LockDue { since });
    }

    pub fn call_off(&mut self) {
        if self.logind.preparing.take().is_some() {
            self.signal(false);
        }
    }

    /// The bus goes away or comes back.
    pub fn bus(&mut self, up: bool) {
        if self.logind.up == up || !self.logind.wanted {
            return;
        }
        self.logind.up = up;
        self.logind.subscribed = None;
        self.note(|| format!("--- the bus is {}", if up { "back" } else { "gone" }));
        if self.alive {
            self.meet_logind();
        }
    }

    /// Starts a problem with logind.
    pub fn logind_trouble(&mut self, trouble: Trouble) {
        self.logind.trouble(trouble);
        let restarts = matches!(trouble, Trouble::Lost | Trouble::LostInShutdown);
        if restarts && self.logind.up {
            self.bus(false);
            self.bus(true);
        }
    }

    /// The node reboots: nothing runs, and the boot id changes.
    pub fn reboot(&mut self, away: u64) {
        self.kill_engine();
        self.runtime.cgroups.clear();
        self.runtime.reserved.clear();
        self.queue.retain(|_, item| !matches!(item, Item::LateCgroup { .. }));
        self.note(|| "--- the node boots".into());
        self.logind.boots();
        let wall = self.wall_now();
        let ours = |c: &&Container| c.runs() && c.owner.as_ref() == Some(&self.runtime.owner);
        let ids: Vec<String> = self.runtime.containers.values().filter(ours).map(|c| c.id.clone()).collect();
        for id in ids {
            if let Some(c) = self.runtime.containers.get_mut(&id) {
                c.dead = true;
                (c.held, c.pending_end) = (false, None);
                end(c, 255, wall);
            }
        }
        let ours = self.runtime.owner.clone();
        let sandboxes = self.runtime.sandboxes.values_mut().filter(|s| s.owner.as_ref() == Some(&ours));
        sandboxes.for_each(|s| s.ready = false);
        self.config.boot_id.push('+');
        self.engine = Engine::new(self.config.clone());
        self.start_in(away);
    }

    /// The engine's process starts again after this time (ns).
    pub fn start_in(&mut self, after: u64) {
        let life = self.life;
        self.at(after, Item::Start { life });
    }

    /// Kills the engine after this number of further effects, perhaps in the middle of a step; it starts again after `away` (ns).
    pub fn kill_after(&mut self, effects: u64, away: u64) {
        self.kill_after = Some((effects, away));
    }

    /// No more faults from here on.
    pub fn all_is_well(&mut self) {
        if let Some(c) = &mut self.chaos {
            c.calm = true;
        }
        self.runtime.network_ready = true;
        self.runtime.unknown_images.clear();
        self.kill_after = None;
        self.record_error = false;
        self.lists_fail_until = 0;
        self.unlucky = None;
        let held: Vec<String> = self.runtime.containers.values().filter(|c| c.held).map(|c| c.id.clone()).collect();
        held.iter().for_each(|id| self.free_process(id));
        self.runtime.twins_end();
        self.look_at_pidfds();
        if !self.alive {
            self.start();
        }
        self.bus(true);
        self.logind.well();
        self.call_off();
        self.runtime_up();
    }

    /// Moves the wall clock by this number of nanoseconds.
    pub fn set_clock(&mut self, by: i64) {
        self.wall = self.wall.saturating_add(by);
        self.checks.clock_was_set();
    }

    /// Suspends the machine for this time (ns). On wake-up timers and deadlines expire at once; everything else continues.
    pub fn sleep(&mut self, ns: u64) {
        self.slept = true;
        let asleep = self.now;
        self.now += ns;
        for ((at, n), item) in std::mem::take(&mut self.queue) {
            let counts = matches!(item, Item::Timer { .. } | Item::Deadline { .. });
            let at = if counts { at } else { at + (self.now - asleep) };
            self.queue.insert((at, n), item);
        }
    }

    /// No record can be written for this time (ns).
    pub fn disk_full(&mut self, ns: u64) {
        self.record_error = true;
        self.parts.records_failed = true;
        self.at(ns, Item::DiskWell);
    }

    /// Removes everything of a pod from the runtime without the engine.
    pub fn remove_behind(&mut self, uid: &Uid) {
        self.note(|| format!("    all of {uid} is removed"));
        let owner = self.runtime.owner.clone();
        self.runtime.sandboxes.retain(|_, s| s.uid != *uid || s.owner.as_ref() != Some(&owner));
        self.runtime.containers.retain(|_, c| c.uid != *uid || c.owner.as_ref() != Some(&owner));
        self.checks.tampered = true;
        self.look_at_pidfds();
    }

    pub fn read_manifests(&mut self) {
        if !self.alive {
            return;
        }
        // Requests to an earlier engine that it did not record are void once this one receives the desired pods.
        if std::mem::take(&mut self.unread) {
            self.checks.engine_starts(&self.files, &self.records, &self.runtime);
        }
        let pods: Vec<Rc<Pod>> = self.files.values().cloned().collect();
        self.step(Event::Desired(pods));
    }

    /// Kills the engine with kill -9. Calls in flight may or may not take effect, and records in flight
    /// may or may not be written.
    pub fn kill_engine(&mut self) {
        self.note(|| "--- the engine is killed".into());
        self.alive = false;
        self.unread = true;
        self.kill_after = None;
        self.logind.process_dies();
        self.logind.wanted = false;
        self.life += 1;
        self.killed.clear();
        self.kills_before = self.kills;
        self.timers.clear();
        self.watched.clear();
        self.late_pidfds.clear();
        self.pending.clear();
        self.parts.probing = 0;
        let mut lost: Vec<(u64, u64)> = Vec::new();
        let mut kept = Vec::new();
        let mut given_up = Vec::new();
        for (at, item) in &self.queue {
            match item {
                Item::Act { .. } if self.checks.strict => lost.push(*at),
                Item::Act { .. } | Item::Record { .. }
                    if self.chaos.as_mut().is_some_and(|c| c.mishap("lost by the kill", "", 500).is_some()) =>
                {
                    lost.push(*at);
                    // A call of an earlier engine can no longer be cancelled; otherwise its name would still be taken.
                    let Item::Act { key } = item else { continue };
                    if key.0 != self.life {
                        continue;
                    }
                    let Some(call @ (RuntimeCall::StartContainer { .. } | RuntimeCall::RunSandbox { .. })) =
                        self.flights.get(key).map(|f| &f.call)
                    else {
                        continue;
                    };
                    if let Some(dice) = self.chaos.as_mut().and_then(|c| c.mishap("given up by the kill", "", 500)) {
                        given_up.push((call.clone(), dice));
                    }
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
        let now = self.wall_now();
        for (call, mut dice) in given_up {
            match &call {
                RuntimeCall::StartContainer { id } => {
                    let how = [GivenUp::InTheShim, GivenUp::BeforeTheShim][below(&mut dice, 2) as usize];
                    self.runtime.give_up_start(id.as_str(), how, now);
                }
                _ => self.give_up_sandbox(&call, below(&mut dice, 10_000) * MS),
            }
        }
        self.config.seed += 1;
        self.engine = Engine::new(self.config.clone());
        self.checks.engine_killed(&self.runtime, &self.records);
    }

    fn keep(&mut self, change: RecordChange) {
        let key = record_key(&change).to_owned();
        let before = match change {
            RecordChange::Put { key, value } => self.records.insert(key, value),
            RecordChange::Delete { key } | RecordChange::SetAside { key } => self.records.remove(&key),
        };
        self.acknowledged.push((self.now, key, before));
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
        // Of the calls in flight some took effect and some did not. None is answered.
        let keys: Vec<(u32, OpId)> = self.flights.keys().copied().collect();
        let acts: Vec<(u64, u64)> =
            self.queue.iter().filter(|(_, i)| matches!(i, Item::Act { .. })).map(|(at, _)| *at).collect();
        acts.iter().for_each(|at| drop(self.queue.remove(at)));
        let told_first =
            self.chaos.as_mut().is_some_and(|c| c.mishap("told of the runtime's end first", "", 500).is_some());
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

    /// The connection is lost before the calls in flight are sent.
    pub fn runtime_down_unsent(&mut self) {
        self.up = false;
        self.queue.retain(|_, item| !matches!(item, Item::Act { .. }));
        self.step(Event::RuntimeDown { why: "connection reset".into() });
        for key in self.flights.keys().copied().collect::<Vec<_>>() {
            self.finish(key, Err(OpError::NotSent("connection lost".into())));
        }
        self.flights.clear();
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

    /// Ends a container's process.
    pub fn exit(&mut self, id: &str, code: i32) {
        let lag = match &mut self.chaos {
            Some(c) => c.mishap("shown late: the end of", id, 250).map_or(0, |mut d| below(&mut d, 2000)),
            None => self.exit_lag,
        };
        let Some(c) = self.runtime.containers.get_mut(id).filter(|c| c.runs() && !c.dead) else { return };
        if c.held {
            c.pending_end.get_or_insert(code);
            return;
        }
        c.dead = true;
        self.note(|| format!("    {id} ends with {code}"));
        if lag == 0 {
            self.show_exit(id, code);
        } else {
            self.at(lag * MS, Item::Shown { container: id.into(), code });
        }
        self.look_at_pidfds();
        self.look_at_stream();
    }

    fn show_exit(&mut self, id: &str, code: i32) {
        let wall = self.wall_now();
        if let Some(c) = self.runtime.containers.get_mut(id).filter(|c| c.runs()) {
            end(c, code, wall);
        }
    }

    /// Makes the pidfds of ended processes readable.
    pub fn look_at_pidfds(&mut self) {
        let (late, runtime) = (&self.late_pidfds, &self.runtime);
        let over = self.watched.keys().filter(|id| !late.contains(*id) && !runtime.lives(id));
        for id in over.cloned().collect::<Vec<_>>() {
            let life = self.life;
            let late = self.chaos.as_mut().and_then(|c| c.mishap("a late pidfd of", &id, 60));
            // A third of the late pidfds never fire.
            let after = late.map_or(Some(MS / 5), |mut dice| {
                let after = below(&mut dice, 20_000) * MS;
                (below(&mut dice, 3) > 0).then_some(after)
            });
            if let Some(after) = after {
                self.at(after, Item::Pidfd { life, id: id.clone() });
            }
            self.late_pidfds.insert(id);
        }
    }

    pub fn kill_sandbox(&mut self, id: &str) {
        if let Some(s) = self.runtime.sandboxes.get_mut(id) {
            s.ready = false;
        }
        self.note(|| format!("    sandbox {id} dies"));
        self.look_at_pidfds();
        self.look_at_stream();
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

    /// Handles the next event that is due by `end`.
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
                    let wrong = self.record_error && matches!(change, RecordChange::Put { .. })
                        || self.goes_wrong("no space for", record_key(&change), 4);
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
                // A call that is no longer pending has no second half.
                if by.0 == self.life && self.pending.contains(&by) {
                    self.exit(&container, 137);
                }
            }
            Item::LateCgroup { uid, attempt } => {
                self.note(|| format!("    the cgroup of {uid} turns up"));
                self.runtime.reserved.remove(&(uid.clone(), attempt));
                self.runtime.cgroups.insert(uid);
            }
            Item::Freed { container } => self.free_process(&container),
            Item::Up => self.runtime_up(),
            Item::Start { life } => {
                if life == self.life && !self.alive {
                    self.start();
                }
            }
            Item::Manifests { life } => {
                if life == self.life {
                    self.read_manifests();
                }
            }
            Item::Pidfd { life, id } => {
                if life == self.life
                    && self.late_pidfds.remove(&id)
                    && let Some(uid) = self.watched.remove(&id)
                {
                    self.step(Event::Ended { uid, id });
                }
            }
            Item::DiskWell => self.record_error = false,
            Item::Logind { key, call } => {
                // A process that has ended sends no requests.
                if key.0 == self.life {
                    let wrong = self.goes_wrong("logind says no to", &format!("{call:?}"), 4);
                    let result = match wrong {
                        true => Err(OpError::Answered { code: Code::Other(2), message: "no such unit".into() }),
                        false => self.logind.call(self.life, &call),
                    };
                    self.finish(key, result);
                }
            }
            Item::LockDue { since } => {
                let on = self.logind.preparing == Some((since, true)) && self.alive && self.logind.locked();
                let view = self.engine.shutdown(Boot(self.now));
                // If the record was lost with an earlier engine, the shutdown starts from the beginning.
                let sum = view.needed_seconds as f64;
                if on && view.in_progress.is_some_and(|p| !p.released && p.since_seconds > sum + 0.5) {
                    self.checks
                        .fail("S4: the lock is released in time", "it is held longer than the periods' sum".into());
                }
            }
            Item::Hint { life, event } => {
                if life == self.life {
                    self.step(event);
                }
            }
        }
        self.look_at_pidfds();
        self.look_at_stream();
        self.answer_stops();
    }

    /// Answers StopContainer for containers that have ended.
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
        if !self.up || self.looks_twice(key, &call) {
            return;
        }
        let lists_fail = matches!(call, RuntimeCall::List) && self.now < self.lists_fail_until;
        let result = match &fault {
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
            _ => {
                let wall = self.wall_now();
                if let RuntimeCall::RunSandbox { pod, .. } = &call {
                    let lucky =
                        self.chaos.as_mut().is_none_or(|c| c.mishap("no address for", pod.uid.as_str(), 30).is_none());
                    self.runtime.no_address = !lucky;
                }
                let (lives, chaos) = (&mut self.lives, &mut self.chaos);
                let outcome = self.runtime.call(&call, wall, |c| life_of(c, lives, chaos.as_mut()));
                self.note_changes(&call);
                match outcome {
                    Outcome::Answer(r) => r,
                    Outcome::Started(id, answer) => {
                        if let Some(c) = self.runtime.containers.get(&id) {
                            self.checks.started(&c.clone(), &self.runtime);
                        }
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
                            // Marks the call as waiting for the container's end.
                            if let Some(f) = self.flights.get_mut(&key) {
                                f.awaits_end = true;
                            }
                            return;
                        }
                    }
                }
            }
        };
        let mut result =
            if fault == Some(Fault::Lost) { Err(OpError::Unknown("connection lost".into())) } else { result };
        if let Some(half) = self.flights.get_mut(&key).and_then(|f| f.half.take()) {
            result = result.map(|now| half.complete(now));
        }
        let text = self.text_of(&call);
        if let Ok(answer) = &mut result
            && let Some(c) = &mut self.chaos
            && let Some(mut dice) = c.mishap("nonsense in the answer of", &text, c.lies)
        {
            self.checks.lied |= lie(answer, &mut dice);
        }
        let mut back = self.latency(&call, &text) / 3;
        if let Some(Fault::Stale(d)) = fault {
            back += d.as_nanos() as u64;
        }
        self.at(back, Item::Answer { key, result });
    }

    /// Splits a call that reads sandboxes and containers separately, so that something may happen in between. Returns true if
    /// the second part is still to come.
    fn looks_twice(&mut self, key: (u32, OpId), call: &RuntimeCall) -> bool {
        let of = match call {
            RuntimeCall::List => "the lists",
            RuntimeCall::ReadPod { uid } => uid.as_str(),
            _ => return false,
        };
        if self.flights.get(&key).is_none_or(|f| f.half.is_some()) {
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
        if let Some(flight) = self.flights.get_mut(&key) {
            flight.half = Some(half);
        }
        self.at(below(&mut dice, 400) * MS, Item::Act { key });
        true
    }

    pub fn free_in(&mut self, container: &str, after: u64) {
        self.at(after, Item::Freed { container: container.into() });
    }

    /// containerd's behaviour for a RunPodSandbox whose caller is gone: nothing of it is ever shown, but the OCI runtime was
    /// started and creates the cgroup.
    fn give_up_sandbox(&mut self, call: &RuntimeCall, late: u64) {
        if let RuntimeCall::RunSandbox { pod, attempt } = call {
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

    /// Whether something fails, at a `part`th of the fault rate of calls.
    fn goes_wrong(&mut self, what: &str, of: &str, part: u64) -> bool {
        self.chaos.as_mut().is_some_and(|c| c.mishap(what, of, c.faults / part).is_some())
    }

    fn latency(&mut self, call: &RuntimeCall, text: &str) -> u64 {
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

    fn pick_fault(&mut self, text: &str, looks: bool) -> Option<Fault> {
        if self.hangs.iter().any(|hangs| text.starts_with(hangs)) {
            return Some(Fault::Slow(NEVER));
        }
        if let Some(i) = self.faults.iter().position(|(prefix, _)| text.starts_with(prefix.as_str())) {
            return Some(self.faults.remove(i).1);
        }
        if self.hanging.is_some_and(|name| text.strip_prefix("RunSandbox ").is_some_and(|of| of.starts_with(name))) {
            return Some(Fault::Slow(Duration::from_secs(86_400)));
        }
        let c = self.chaos.as_mut()?;
        // An outdated answer is not a fault, but the engine must recognize it (P5).
        if looks && let Some(mut dice) = c.mishap("an old picture in", text, 100) {
            return Some(Fault::Stale(Duration::from_millis(below(&mut dice, 300))));
        }
        let unlucky = self.unlucky.is_some_and(|name| of_pod(text, name));
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

    fn finish(&mut self, key: (u32, OpId), result: Result<Answer, OpError>) {
        if key.0 != self.life {
            self.flights.remove(&key);
            return;
        }
        // A cancelled call continues in the runtime, but it is answered only once.
        if !self.pending.remove(&key) {
            self.flights.remove(&key);
            return;
        }
        if self.flights.get(&key).is_some_and(|f| f.acted) {
            self.flights.remove(&key);
        }
        self.checks.done(key.1, &result, self.now);
        let probe = matches!(&result, Ok(Answer::Probe(_)));
        if probe {
            self.parts.probing = self.parts.probing.saturating_sub(1);
            self.parts.probed += 1;
        }
        self.step(Event::Done { op: key.1, result });
    }

    // --- the engine

    pub fn step(&mut self, event: Event) {
        self.alive |= matches!(event, Event::Records(_));
        if !self.alive {
            return;
        }
        self.steps += 1;
        if self.last_step != self.now {
            self.wake_ups += 1;
            self.last_step = self.now;
            self.steps_now = 0;
        }
        self.steps_now += 1;
        if self.chaos.is_some() && self.steps_now > 5000 {
            self.checks.fail("effects are bounded", "5000 steps at one moment".into());
        }
        self.note(|| format!("> {}", short(&event)));
        let now = self.time();
        // A hint of a change that the cache already shows has no effect.
        if let Event::RuntimeEvent { uid: Some(uid), event } = &event
            && event.id == crate::stream::UNKNOWN
        {
            self.checks.hinted(uid);
        }
        let effects = self.engine.step(event, now);
        if !self.unread {
            self.checks.replaced(&self.engine, self.now, &self.runtime);
        }
        self.count(effects.len() as u64);
        self.carry_out(effects);
    }

    /// The number of effects is bounded, per step and per minute.
    fn count(&mut self, effects: u64) {
        if self.minute.0 != self.now / (60 * S) {
            self.minute = (self.now / (60 * S), 0);
        }
        self.minute.1 += effects;
        let n = self.minute.1;
        let (many, long) = (effects > 20, self.chaos.is_some() && n > 1500);
        // Counting the pods is slow.
        if !many && !long {
            return;
        }
        let pods = (self.engine.pods().len() + self.runtime.sandboxes.len() + self.runtime.containers.len()) as u64;
        if effects > 20 + 10 * pods {
            self.checks.fail("effects are bounded", format!("{effects} in one step, of {pods} pods and their parts"));
        }
        if long && n > 1500 + 200 * pods {
            self.checks.fail("effects are bounded", format!("{n} in one minute, of {pods} pods and their parts"));
        }
    }

    /// Carries out the effects of one step, or only the first ones if the engine is killed.
    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match &mut self.kill_after {
                Some((0, away)) => {
                    let away = *away;
                    self.kill_engine();
                    return self.start_in(away);
                }
                Some((left, _)) => *left -= 1,
                None => {}
            }
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
                    // The cancellation may come too late for the runtime.
                    let in_time = self.checks.strict
                        || match &mut self.chaos {
                            Some(c) => c.mishap("a cancelled call acts", "", 500).is_none(),
                            None => !self.heard_anyway,
                        };
                    if in_time && let Some(flight) = self.flights.remove(&key) {
                        let late = self.chaos.as_mut().and_then(|c| c.mishap("given up late", "", 300));
                        if let Some(mut dice) = late.filter(|_| !flight.acted) {
                            self.give_up_sandbox(&flight.call, below(&mut dice, 10_000) * MS);
                        }
                    }
                    self.at(MS / 10, Item::Answer { key, result: Err(OpError::Unknown("cancelled".into())) });
                }
                self.checks.cancelled(op);
            }
            Effect::Files { op, call } => self.files_call(op, call),
            Effect::Cgroup { op, call } => self.cgroup_call(op, &call),
            Effect::Volumes { op, call, timeout } => self.volumes_call(op, &call, timeout),
            Effect::Hook { op, call, timeout } => self.hook(op, &call, timeout),
            Effect::Probe { op, call, timeout } => self.probe(op, &call, timeout),
            Effect::Logind { op, call, timeout } => {
                self.note(|| format!("  < {op} {call:?}"));
                self.begin(op);
                let key = (self.life, op);
                let late = self.chaos.as_mut().and_then(|c| c.mishap("logind is slow", "", 60));
                let after = late.map_or(MS / 2, |mut dice| below(&mut dice, 4000) * MS);
                let after =
                    if self.logind.silent { timeout.as_nanos() as u64 } else { self.logind.slow.unwrap_or(after) };
                self.at(after, Item::Logind { key, call });
            }
            Effect::ReleaseLock => {
                self.note(|| "  < release the lock".into());
                self.logind.release(self.now);
            }
            Effect::StoreLock { op } => {
                self.note(|| format!("  < {op} the store"));
                self.begin(op);
                let wrong = self.goes_wrong("systemd does not read", "what it is to keep", 4);
                let result = match wrong {
                    true => Err(OpError::Answered { code: Code::Other(2), message: "systemd is busy".into() }),
                    false => self.logind.store(),
                };
                self.at(MS / 10, Item::Answer { key: (self.life, op), result });
            }
            Effect::UseLogind(wanted) => {
                if std::mem::replace(&mut self.logind.wanted, wanted) != wanted {
                    self.note(|| format!("  < use logind: {wanted}"));
                    self.logind.subscribed = None;
                    self.meet_logind();
                }
            }
            Effect::Record { op, change } => {
                self.note(|| match &change {
                    RecordChange::Put { key, .. } => format!("  < put {key}"),
                    RecordChange::Delete { key } => format!("  < delete {key}"),
                    RecordChange::SetAside { key } => format!("  < set aside {key}"),
                });
                if let Some(uid) = record_key(&change).strip_prefix("pods/") {
                    let put = matches!(change, RecordChange::Put { .. });
                    self.checks.record(op, &Uid::from(uid), put, &self.runtime);
                }
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
                let unlucky = self.chaos.as_mut().is_some_and(|c| c.mishap("no pidfd of", &id, 100).is_some());
                let ok = self.pidfds && !unlucky && self.runtime.lives(&id);
                if self.watched.contains_key(&id) {
                    self.checks.fail("nothing is watched twice", format!("{id} is"));
                }
                if ok {
                    self.watched.insert(id.clone(), uid.clone());
                }
                let life = self.life;
                self.at(MS / 10, Item::Hint { life, event: Event::Watched { uid, id, ok } });
            }
            Effect::Unwatch { id } => {
                self.note(|| format!("  < unwatch {id}"));
                self.watched.remove(&id);
                self.late_pidfds.remove(&id);
            }
            Effect::Killed { id } => {
                self.note(|| format!("  < {id:?} is done"));
                self.killed.push(id);
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
                if let Some(pod) = n.pod.as_ref().filter(|_| n.reason == "DeadlineExceeded") {
                    self.checks.deadline_exceeded(&pod.uid, &self.runtime);
                }
                if n.reason == "Terminated" {
                    self.groups_end_in_turn(&n);
                }
                self.no_rejection_while_lower_pods_hold_the_room(&n);
                if let Some(pod) = n.pod.as_ref().filter(|_| ["Terminated", "Preempting"].contains(&n.reason)) {
                    self.checks.bounds.has_a_reason(&pod.uid, &self.runtime);
                }
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
            self.checks.fail("no operation is begun twice", format!("{op} was"));
        }
        // Stops of a whole node happen at one time.
        if self.pending.len() > 1000 {
            self.checks.fail("operations are bounded", "more than 1000 are in flight".into());
        }
    }

    /// S4: no container of a group that has begun is started.
    fn no_start_in_a_shutdown(&mut self, call: &RuntimeCall) {
        let uid = match call {
            RuntimeCall::RunSandbox { pod, .. } => &pod.uid,
            RuntimeCall::CreateContainer(c) => &c.pod.uid,
            RuntimeCall::StartContainer { id } => match self.runtime.containers.get(id.as_str()) {
                Some(c) => &c.uid,
                None => return,
            },
            _ => return,
        };
        let Some(progress) = self.engine.shutdown(Boot(self.now)).in_progress else { return };
        let group = self.group_of(uid);
        let begun = progress.group.map_or(usize::MAX, |p| self.config.shutdown.index_of(p));
        if group.is_some_and(|g| g <= begun) {
            let text = self.text_of(call);
            self.checks.fail("S4: nothing of a group that has begun is started", text);
        }
    }

    /// S4: no pod of a later group is killed before the earlier group is done or out of time.
    fn groups_end_in_turn(&mut self, notice: &Notice) {
        let view = self.engine.shutdown(Boot(self.now));
        let (Some(pod), Some(progress)) = (&notice.pod, view.in_progress) else { return };
        // Without a lock no group has time. False lists may hide running containers.
        let lies = self.chaos.as_ref().is_some_and(|c| c.lies > 0);
        let Some(group) = self.group_of(&pod.uid).filter(|_| self.logind.locked() && !lies) else { return };
        self.logind.groups.entry(group).or_insert(self.now);
        let granted = |g: usize| view.groups.get(g).and_then(|g| g.granted_seconds).unwrap_or(0) * S;
        let planned = |g: usize| (0..=g).map(granted).sum::<u64>() as f64 / S as f64;
        let in_time = |g: usize| {
            self.logind.groups.get(&g).is_some_and(|at| self.now < at + granted(g))
                && progress.since_seconds + 0.001 < planned(g)
        };
        let earlier =
            |c: &&Container| c.runs() && !c.dead && self.group_of(&c.uid).is_some_and(|g| g < group && in_time(g));
        let ours = |c: &&Container| c.owner.as_ref() == Some(&self.runtime.owner);
        if let Some(c) = self.runtime.containers.values().filter(ours).find(earlier) {
            let what = format!("{} runs when {} is killed after {:.1}s", c.id, pod.uid, progress.since_seconds);
            self.checks.fail("S4: groups end in their order", what);
        }
    }

    /// The group of a pod that the engine knows.
    fn group_of(&self, uid: &Uid) -> Option<usize> {
        let view = self.engine.pod(uid)?;
        Some(self.config.shutdown.index_of(wherry::api::priority::of(view.pod.spec())))
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
        let text = self.text_of(&call);
        self.note(|| format!("  < {op} {text} (within {timeout:?})"));
        if changing {
            self.changing_calls += 1;
            self.calls.push((self.now, text.clone()));
        }
        self.begin(op);
        self.checks.call(op, &call, timeout, self.now, &self.runtime);
        let shutdown = self.engine.shutdown(Boot(self.now)).in_progress.is_some();
        let scene = Scene { runtime: &self.runtime, engine: &self.engine, files: &self.files, shutdown };
        let (now, max) = ((self.now, self.wall_now()), self.config.max_restart_backoff);
        self.checks.within_bounds(op, &call, now, max, &scene);
        self.no_start_in_a_shutdown(&call);
        self.no_start_without_room(&call);
        if let RuntimeCall::RunSandbox { pod, .. } = &call
            && self.engine.pod(&pod.uid).is_some_and(|v| !v.desired)
        {
            self.checks.fail("no start after the end was asked for", format!("RunSandbox of {}", pod.uid));
        }
        // For an orphan, or an older version whose record was lost, the sidecars are unknown.
        let known = |c: &Container| self.engine.pod(&c.uid).is_some_and(|v| v.pod.digest == c.pod.digest);
        if let RuntimeCall::StopContainer { id, grace } = &call
            && self.runtime.containers.get(id.as_str()).is_some_and(known)
        {
            self.checks.stopped(id.as_str(), *grace, &self.runtime);
        }
        if let RuntimeCall::CreateContainer(c) = &call
            && c.pod.spec().volumes.is_some()
            && !self.parts.mounted.contains(&c.pod.uid)
        {
            self.checks.fail("volumes", format!("{} of {} is created without its volumes", c.container, c.pod.uid));
        }
        let key = (self.life, op);
        if !self.up {
            self.at(MS / 10, Item::Answer { key, result: Err(OpError::NotSent("no connection".into())) });
            return;
        }
        let fault = self.pick_fault(&text, matches!(call, RuntimeCall::List | RuntimeCall::ReadPod { .. }));
        let mut latency = self.latency(&call, &text) * 2 / 3;
        if let Some(Fault::Slow(d)) = &fault {
            latency += d.as_nanos() as u64;
        }
        self.flights.insert(key, Flight { call, acted: false, awaits_end: false, fault, half: None });
        self.at(latency, Item::Act { key });
        self.at(timeout.as_nanos() as u64, Item::Deadline { key });
    }

    pub fn hint_in(&mut self, after: u64, event: Event) {
        let life = self.life;
        self.at(after, Item::Hint { life, event });
    }

    fn files_call(&mut self, op: OpId, call: FilesCall) {
        self.note(|| format!("  < {op} {}", files_text(&call)));
        self.begin(op);
        match &call {
            FilesCall::PreparePod { pod } => self.checks.prepares_pod(&pod.uid),
            FilesCall::PrepareContainer { pod, .. } => self.checks.acts_on_status(&pod.uid, "PrepareContainer"),
            _ => {}
        }
        let key = (self.life, op);
        let wrong = self.goes_wrong("an I/O error in", &files_text(&call), 2);
        let result = if wrong {
            Err(OpError::Answered { code: Code::Other(5), message: "input/output error".into() })
        } else {
            match call {
                FilesCall::PreparePod { pod } => {
                    self.directories.insert(pod.uid.clone(), pod.name.clone());
                    Ok(Answer::Ok)
                }
                FilesCall::PrepareContainer { pod, container, attempt, .. } => {
                    self.directories.insert(pod.uid.clone(), pod.name.clone());
                    Ok(Answer::Prepared { termination_file: format!("/pods/{}/{container}/{attempt}", pod.uid) })
                }
                FilesCall::ReadTermination { id, .. } => {
                    let now = self.wall_now();
                    let lags = self.runtime.containers.values().any(|c| c.id == id.as_str() && c.log_lags(now));
                    Ok(Answer::Message(if lags { String::new() } else { self.termination_message.clone() }))
                }
                FilesCall::RemovePod { uid, .. } if self.parts.mounted.contains(&uid) => {
                    self.checks.fail("W2", format!("{uid} is taken away while its volumes are mounted"));
                    Ok(Answer::Ok)
                }
                FilesCall::RemovePod { uid, kill, keep_directory, .. } => {
                    let result = self.remove_cgroup(&uid, kill);
                    if result.is_ok() && !keep_directory {
                        self.directories.remove(&uid);
                    }
                    result
                }
                _ => Ok(Answer::Ok),
            }
        };
        self.at(MS / 2, Item::Answer { key, result });
    }

    /// A2: no more pods run than fit. Pods unknown to the engine are not counted.
    fn no_start_without_room(&mut self, call: &RuntimeCall) {
        let (Some(fit), RuntimeCall::RunSandbox { pod, .. }) = (self.scarce, call) else { return };
        let asks =
            |pod: &Pod| pod.containers().iter().any(|c| c.resources.as_ref().is_some_and(|r| r.requests.is_some()));
        let known = |uid: &Uid| self.engine.pod(uid).is_some_and(|v| asks(v.pod));
        let ours = |c: &&Container| c.owner.as_ref() == Some(&self.runtime.owner);
        let running =
            self.runtime.containers.values().filter(ours).filter(|c| c.runs() && c.uid != pod.uid && known(&c.uid));
        let others: BTreeSet<Uid> = running.map(|c| c.uid.clone()).collect();
        if asks(pod) && others.len() >= fit {
            self.checks.fail("A2", format!("RunSandbox of {} while {others:?} run", pod.uid));
        }
    }

    fn cgroup_call(&mut self, op: OpId, call: &CgroupCall) {
        let text = match call {
            CgroupCall::Make { pod } => format!("MakeCgroup {}", pod.name),
            CgroupCall::Remove { uid, .. } => format!("RemoveCgroup {uid}"),
            CgroupCall::SetCpuWeight { burstable } => format!("WeighCgroups {burstable}m"),
        };
        self.note(|| format!("  < {op} {text}"));
        self.begin(op);
        match call {
            CgroupCall::SetCpuWeight { burstable } => self.weighed = Some(*burstable),
            CgroupCall::Remove { uid, .. } if self.parts.mounted.contains(uid) => {
                self.checks.fail("W2", format!("{uid} is taken away while its volumes are mounted"));
            }
            _ => {}
        }
        let key = (self.life, op);
        let result = match self.goes_wrong("an I/O error in", &text, 2) {
            true => Err(OpError::Answered { code: Code::Other(5), message: "input/output error".into() }),
            false => match call {
                CgroupCall::Make { pod } => {
                    self.runtime.cgroups.insert(pod.uid.clone());
                    Ok(Answer::Ok)
                }
                CgroupCall::Remove { uid, kill } => self.remove_cgroup(uid, *kill),
                CgroupCall::SetCpuWeight { .. } => Ok(Answer::Ok),
            },
        };
        self.at(MS / 2, Item::Answer { key, result });
    }

    /// A cgroup cannot be removed while something of the pod runs.
    fn remove_cgroup(&mut self, uid: &Uid, kill: bool) -> Result<Answer, OpError> {
        self.checks.nothing_of_others(&self.runtime, uid, self.now);
        let busy = self.runtime.of(uid).any(|c| c.runs() || c.stuck && !kill)
            || self.runtime.ours().any(|s| s.uid == *uid && s.ready);
        if busy && self.runtime.cgroups.contains(uid) {
            return Err(OpError::Answered { code: Code::Other(13), message: "processes are left in it".into() });
        }
        self.runtime.cgroups.remove(uid);
        Ok(Answer::Ok)
    }

    fn volumes_call(&mut self, op: OpId, call: &VolumesCall, timeout: Duration) {
        self.note(|| match call {
            VolumesCall::Mount { pod } => format!("  < {op} Mount {}", pod.name.name),
            VolumesCall::Unmount { uid } => format!("  < {op} Unmount {uid}"),
        });
        self.begin(op);
        self.checks.deadline(op, timeout);
        let unlucky = self.chaos.as_mut().is_some_and(|c| c.mishap("a volume fails", "", c.faults).is_some());
        let error = match call {
            VolumesCall::Mount { .. } => self.parts.mount_error.clone(),
            VolumesCall::Unmount { .. } => self.parts.unmount_error.clone(),
        };
        let result = match error.or_else(|| unlucky.then(|| "input/output error".to_string())) {
            Some(message) => Err(OpError::Answered { code: Code::Other(5), message }),
            None => {
                match call {
                    VolumesCall::Mount { pod } => {
                        self.log(format!("Mount {}", pod.name.name));
                        self.parts.mounted.insert(pod.uid.clone());
                        // The volumes are below the pod's directory.
                        self.directories.insert(pod.uid.clone(), pod.name.clone());
                    }
                    VolumesCall::Unmount { uid } => {
                        if self.parts.mounted.remove(uid) {
                            self.log("Unmount".into());
                        }
                        let ours = |c: &&Container| c.runs() && c.owner.as_ref() == Some(&self.runtime.owner);
                        if let Some(c) = self.runtime.of(uid).find(ours) {
                            let id = c.id.clone();
                            self.checks.fail("W2", format!("the volumes of {uid} are unmounted while {id} runs"));
                        }
                    }
                }
                Ok(Answer::Ok)
            }
        };
        let key = (self.life, op);
        self.at(3 * MS, Item::Answer { key, result });
    }

    /// Adds a line to the calls.
    fn log(&mut self, text: String) {
        if self.chaos.is_none() || self.history.is_some() {
            self.calls.push((self.now, text));
        }
    }

    fn chance(&mut self, of: &str) -> Answers {
        let Some(c) = self.chaos.as_mut() else { return crate::pods::WELL };
        let Some(mut dice) = c.mishap("not well:", of, 400) else { return crate::pods::WELL };
        match below(&mut dice, 5) {
            0 | 1 => Answers::Badly(Duration::from_millis(below(&mut dice, 3000))),
            2 => Answers::Never,
            3 if c.faults > 0 => Answers::Lost,
            _ => Answers::Well(Duration::from_millis(below(&mut dice, 9000))),
        }
    }

    fn hook(&mut self, op: OpId, call: &HookCall, timeout: Duration) {
        let title = self.title(call.id.as_str());
        self.note(|| format!("  < {op} {:?} {title} (within {timeout:?})", call.kind));
        self.log(format!("{:?} {title} {}ms", call.kind, timeout.as_millis()));
        self.begin(op);
        self.checks.deadline(op, timeout);
        if call.kind == HookKind::PreStop {
            let before = self.parts.pre_stopped.insert(call.id.to_string(), self.life);
            // A hook whose record could not be written runs again after a restart.
            let excused = before != Some(self.life) && (!self.checks.strict || self.parts.records_failed);
            if before.is_some() && !excused {
                self.checks.fail("W4", format!("the preStop hook of {} runs again", call.id));
            }
        }
        let of = format!("{}/{}/{:?}", self.pod_name(call.id.as_str()), call.container, call.kind);
        let answers = match self.parts.next(&of) {
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
        let key = (self.life, op);
        self.at(after, Item::Answer { key, result });
    }

    fn probe(&mut self, op: OpId, call: &ProbeCall, timeout: Duration) {
        let of = format!("{}/{}/{}", call.pod.name.name, call.container, call.kind.title());
        self.note(|| format!("  < {op} probe {of} of {}", call.id));
        self.begin(op);
        self.checks.deadline(op, timeout);
        if self.chaos.is_none() {
            self.parts.probes.push((self.now, of.clone()));
        }
        let answers = match self.parts.next(&of) {
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
            self.parts.probing += 1;
        }
        let key = (self.life, op);
        self.at(after, Item::Answer { key, result });
    }

    fn pod_name(&self, id: &str) -> String {
        self.runtime.containers.get(id).map(|c| c.pod_name.name.to_string()).unwrap_or_default()
    }

    /// A step without a preceding change has no effects.
    pub fn idempotent(&mut self, uid: &Uid) {
        self.step(Event::Timer(TimerKey::Pod(uid.clone())));
        let now = self.time();
        if !self.alive {
            return;
        }
        let again = self.engine.step(Event::Timer(TimerKey::Pod(uid.clone())), now);
        if let Some(effect) = again.iter().find(|e| !matches!(e, Effect::Timer { .. })) {
            self.checks.fail("a second step asks for nothing", format!("{uid}: {effect:?}"));
        }
        self.carry_out(again);
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
        (self.flights.values().filter(sandbox).count(), self.flights.values().filter(container).count())
    }

    pub fn pending_ops(&self) -> usize {
        self.pending.len() - (self.parts.probing as usize).min(self.pending.len())
    }

    /// The due times of the pods' timers (ns).
    pub fn pod_timers(&self) -> Vec<(TimerKey, u64)> {
        let of_pods = self.timers.iter().filter(|(key, _)| matches!(key, TimerKey::Pod(_)));
        of_pods.map(|(key, at)| (key.clone(), *at)).collect()
    }

    pub fn timers(&self) -> Vec<TimerKey> {
        self.timers.keys().cloned().collect()
    }

    /// A short name of the container, such as `web/main#1`.
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
            RuntimeCall::DeleteTask { id } => format!("DeleteTask {}", self.title(id.as_str())),
        }
    }
}

/// Whether this call is about the pod of that name.
fn of_pod(text: &str, name: &str) -> bool {
    let of = text.split(' ').nth(1).unwrap_or_default();
    of.split(['/', '#']).next() == Some(name)
}

fn self_zero() -> u64 {
    1000 * S
}

fn record_key(change: &RecordChange) -> &str {
    match change {
        RecordChange::Put { key, .. } | RecordChange::Delete { key } | RecordChange::SetAside { key } => key,
    }
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
    // An init container that never ended would block its pod for ever.
    let ends = c.pod.init_containers().iter().any(|s| s.name == c.name && !wherry::api::pod::is_sidecar(s));
    match chaos {
        Some(chaos) if !chaos.calm && ends => crate::random::short_life(chaos, &key),
        _ if ends => Life::exits(0, Duration::from_millis(200)),
        Some(chaos) => crate::random::life(chaos, &key),
        None => Life::FOREVER,
    }
}

/// The container runs or may run.
pub fn alive(c: &Container) -> bool {
    matches!(c.state, ContainerState::Running | ContainerState::Unknown)
}

impl Drop for World {
    /// A story fails if any rule was violated, also without an assertion of its own.
    fn drop(&mut self) {
        if self.chaos.is_none() && !std::thread::panicking() {
            assert_eq!(self.checks.violation, None);
        }
    }
}
