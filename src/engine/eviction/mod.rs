//! Node-pressure eviction (E1 to E7): measures memory, process ids and file systems, and evicts pods one after another
//! while a threshold is met.
//!
//! `levels` has the thresholds that are met and the node's conditions, `usage` the usage of pods, `ranking` the order
//! of evictions, and `limits` the limits of the local storage of a pod. `engine/node/eviction` carries out the
//! decisions.

pub mod levels;
pub mod limits;
pub mod ranking;
pub mod restart;
pub mod usage;

pub use crate::api::eviction::EvictionPolicy;
use crate::api::eviction::{Signal, ThresholdKind};
use crate::api::facts::MeasuredPod;
use crate::api::names::Uid;
use crate::api::time::Boot;
use crate::engine::effect::{Effect, RuntimeCall};
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use levels::{Levels, Met, Pressure};
use ranking::Candidate;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use usage::Usage;

/// The kubelet's interval between two measurements.
const PERIOD: Duration = Duration::from_secs(10);
/// The interval while every signal is far above its limits and the kernel reports a lack of memory by itself *(ours)*.
const CALM_PERIOD: Duration = Duration::from_secs(60);
/// Reports of the kernel cause at most one measurement in this time.
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// The kubelet's interval between two measurements of pod directories.
const DISK_PERIOD: Duration = Duration::from_secs(60);
/// Time limit for statvfs and for the statistics of the runtime. The reaction to a lack of memory must not wait for a
/// disk that hangs.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit to measure the directories of pods. They may contain millions of files.
const DISK_TIMEOUT: Duration = Duration::from_secs(30);
/// The next pod is evicted once the previous one has terminated, or after this time, which is the kubelet's.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// The kubelet's grace period for a hard threshold and for an exceeded limit of a pod.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The results that a measurement waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Source {
    Machine,
    Nodefs,
    /// ImageFsInfo, which names the file system of the images.
    ImageFs,
    Imagefs,
    Containers,
    Disks,
    Processes,
}

#[derive(Debug, Serialize)]
struct Measuring {
    open: BTreeMap<OpId, Source>,
    levels: Levels,
    /// Some if the usage of pods with storage limits is measured too.
    usage: Option<Usage>,
    /// The unused images were already removed for this pressure.
    reclaimed: bool,
}

#[derive(Debug, Default, Serialize)]
enum State {
    /// Nothing to watch, or it is not yet known which pods exist.
    #[default]
    Idle,
    Waiting {
        next: Boot,
        /// From this time on, a measurement may begin when the kernel reports a lack of memory.
        report_from: Boot,
    },
    Measuring(Measuring),
    /// Unused images are being removed.
    Reclaiming,
    /// The usage of the pods is being read, to choose the one to evict.
    Ranking {
        open: BTreeMap<OpId, Source>,
        met: Met,
        usage: Usage,
    },
    /// An evicted pod is terminating.
    Ending {
        uid: Uid,
        until: Boot,
    },
}

/// The state of the node that a step needs.
pub struct Inputs<'a> {
    pub now: Boot,
    pub policy: &'a EvictionPolicy,
    /// A directory on the node's file system.
    pub root: &'a str,
    /// The runtime is connected.
    pub up: bool,
    /// The pods that may be evicted.
    pub candidates: &'a dyn Fn() -> Vec<Candidate>,
    /// Returns the pods whose directories are measured; with true, only pods with limits (`limits::has_any`).
    pub measured: &'a dyn Fn(bool) -> Vec<MeasuredPod>,
    pub is_over: &'a dyn Fn(&Uid) -> bool,
    /// Returns true if pods wait for the end of the pressure.
    pub any_waits: &'a dyn Fn() -> bool,
    pub outbox: &'a mut Outbox,
}

/// An action that the node has to carry out.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// `signal`: None if the pod exceeds a limit of its own.
    Evict { uid: Uid, signal: Option<Signal>, message: String, grace: Duration },
    /// Remove all unused images. The state machine waits for `images_reclaimed`.
    ReclaimImages,
    /// The pressure is over: one of the evicted pods may start again.
    RestartOne,
}

#[derive(Debug, Default, Serialize)]
pub struct Eviction {
    state: State,
    pressure: Pressure,
    image_disk: ImageDisk,
    /// When the directories of pods with limits were last measured.
    disks_at: Option<Boot>,
    /// The last measurement.
    last: Option<(Boot, Levels)>,
    /// Whether the kernel reports a lack of memory.
    reported_by_kernel: Watch,
}

/// The file system of the runtime's images.
#[derive(Debug, Default, Serialize)]
enum ImageDisk {
    /// The runtime has not reported it.
    #[default]
    Unknown,
    /// The images are on the file system of the root directory.
    OfNode,
    /// A path on the file system of the images.
    Path(String),
}

/// Whether the kernel reports a lack of memory (PSI).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
enum Watch {
    #[default]
    Off,
    Requested,
    On,
    Unavailable,
}

impl Eviction {
    pub fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    /// Returns the last measurement and its time. A value is missing if no threshold needs it, or if it could not be
    /// read.
    pub fn last(&self) -> Option<(Boot, &Levels)> {
        self.last.as_ref().map(|(at, levels)| (*at, levels))
    }

    pub fn waits_for_images(&self) -> bool {
        matches!(self.state, State::Reclaiming)
    }

    /// Forgets the file system of the images, because a runtime that has just connected may use another one.
    pub fn runtime_connected(&mut self) {
        self.image_disk = ImageDisk::Unknown;
    }

    /// Makes the next measurement begin at once, because the thresholds may have changed.
    pub fn configured(&mut self, now: Boot) {
        if let State::Waiting { next, .. } = &mut self.state {
            *next = now;
        }
    }

    /// Plans the next measurement. The caller calls this after each step. `may_run`: it is known which pods exist.
    pub fn plan(&mut self, may_run: bool, inputs: &mut Inputs<'_>) {
        let wanted =
            !inputs.policy.thresholds.is_empty() || (inputs.any_waits)() || !(inputs.measured)(true).is_empty();
        match &self.state {
            State::Idle if may_run && wanted => {
                self.state = State::Waiting { next: inputs.now, report_from: inputs.now };
            }
            State::Waiting { .. } if !wanted => {
                self.pressure.clear();
                self.state = State::Idle;
            }
            State::Ending { uid, until } if (inputs.is_over)(uid) || inputs.now >= *until => {
                self.wait(REPORT_PERIOD, inputs.now);
            }
            _ => {}
        }
        self.watch_memory(inputs);
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        match &self.state {
            State::Waiting { next, .. } => Some(*next),
            State::Ending { until, .. } => Some(*until),
            _ => None,
        }
    }

    fn watch_memory(&mut self, inputs: &mut Inputs<'_>) {
        let memory = inputs.policy.thresholds.iter().any(|t| t.signal == Signal::MemoryAvailable);
        match (memory && !matches!(self.state, State::Idle), self.reported_by_kernel) {
            (true, Watch::Off) => {
                self.reported_by_kernel = Watch::Requested;
                inputs.outbox.push(Effect::WatchMemoryPressure(true));
            }
            (false, Watch::On) => {
                self.reported_by_kernel = Watch::Off;
                inputs.outbox.push(Effect::WatchMemoryPressure(false));
            }
            _ => {}
        }
    }

    /// Handles the response to `WatchMemoryPressure(true)`, or the end of the reports.
    pub fn memory_watched(&mut self, works: bool) {
        self.reported_by_kernel = if works { Watch::On } else { Watch::Unavailable };
    }

    /// Brings the next measurement forward, because the kernel reports a lack of memory.
    pub fn memory_is_short(&mut self, inputs: &mut Inputs<'_>) {
        if let State::Waiting { next, report_from } = &mut self.state {
            *next = (*next).min((*report_from).max(inputs.now));
        }
    }

    pub fn measure_due(&mut self, inputs: &mut Inputs<'_>) -> Vec<Action> {
        match self.state {
            State::Waiting { next, .. } if next <= inputs.now => self.measure(false, inputs),
            _ => Vec::new(),
        }
    }

    fn measure(&mut self, reclaimed: bool, inputs: &mut Inputs<'_>) -> Vec<Action> {
        let watches = |signals: &[Signal]| inputs.policy.thresholds.iter().any(|t| signals.contains(&t.signal));
        let mut open = BTreeMap::new();
        let pids = watches(&[Signal::PidAvailable]);
        if pids || watches(&[Signal::MemoryAvailable]) {
            let op = inputs.outbox.begin(Owner::Eviction, |op| Effect::MeasureMachine { op, pids });
            open.insert(op, Source::Machine);
        }
        let limited = match self.disks_at {
            Some(at) if inputs.now.since(at) < DISK_PERIOD => Vec::new(),
            _ => (inputs.measured)(true),
        };
        let images = watches(&[Signal::ImagefsAvailable, Signal::ImagefsInodesFree]);
        let disks = images || watches(&[Signal::NodefsAvailable, Signal::NodefsInodesFree]);
        // The file system of the images has to be known: it decides what a limit covers, and which pod is evicted.
        let seek = matches!(self.image_disk, ImageDisk::Unknown) && inputs.up && (disks || !limited.is_empty());
        if disks || seek {
            open.insert(measure_path(inputs.root, inputs.outbox), Source::Nodefs);
        }
        match &self.image_disk {
            ImageDisk::Path(path) if images => {
                open.insert(measure_path(path, inputs.outbox), Source::Imagefs);
            }
            _ if seek => {
                open.insert(call(RuntimeCall::ImageFs, inputs.outbox), Source::ImageFs);
            }
            _ => {}
        }
        let usage = (!limited.is_empty()).then(Usage::default);
        if !limited.is_empty() {
            self.disks_at = Some(inputs.now);
            open.insert(call(RuntimeCall::Usage, inputs.outbox), Source::Containers);
            open.insert(measure_pods(limited, inputs.outbox), Source::Disks);
        }
        let measuring = Measuring { open, levels: Levels::default(), usage, reclaimed };
        match measuring.open.is_empty() {
            true => self.measured(measuring, inputs),
            false => {
                self.state = State::Measuring(measuring);
                Vec::new()
            }
        }
    }

    /// Handles the result of an operation. A failed operation leaves its value unknown.
    pub fn answered(&mut self, op: OpId, result: Result<Answer, OpError>, inputs: &mut Inputs<'_>) -> Vec<Action> {
        match std::mem::take(&mut self.state) {
            State::Measuring(mut measuring) => {
                let source = measuring.open.remove(&op);
                match (source, result) {
                    (Some(Source::Machine), Ok(Answer::Machine(fact))) => measuring.levels.machine = Some(fact),
                    (Some(Source::Nodefs), Ok(Answer::FileSystem(fact))) => measuring.levels.nodefs = Some(fact),
                    (Some(Source::Imagefs), Ok(Answer::FileSystem(fact))) => measuring.levels.imagefs = Some(fact),
                    (Some(Source::Imagefs), Err(_)) => self.image_disk = ImageDisk::Unknown,
                    (Some(Source::ImageFs), Ok(Answer::ImageFs(all))) => {
                        if let Some(first) = all.into_iter().next() {
                            let path = first.mountpoint;
                            measuring.open.insert(measure_path(&path, inputs.outbox), Source::Imagefs);
                            self.image_disk = ImageDisk::Path(path);
                        }
                    }
                    (Some(source), Ok(answer)) => take_usage(measuring.usage.get_or_insert_default(), source, answer),
                    (_, Err(_)) | (None, _) => {}
                }
                if measuring.open.is_empty() {
                    return self.measured(measuring, inputs);
                }
                self.state = State::Measuring(measuring);
            }
            State::Ranking { mut open, met, mut usage } => {
                if let (Some(source), Ok(answer)) = (open.remove(&op), result) {
                    take_usage(&mut usage, source, answer);
                }
                if open.is_empty() {
                    return self.ranked(met, &usage, inputs);
                }
                self.state = State::Ranking { open, met, usage };
            }
            other => self.state = other,
        }
        Vec::new()
    }

    /// Evaluates a complete measurement.
    fn measured(&mut self, measuring: Measuring, inputs: &mut Inputs<'_>) -> Vec<Action> {
        let Measuring { mut levels, usage, reclaimed, .. } = measuring;
        match (&self.image_disk, levels.nodefs, levels.imagefs) {
            // The images are on the node's file system, so one measurement is enough from now on.
            (ImageDisk::Path(_), Some(node), Some(images)) if node.id == images.id => {
                self.image_disk = ImageDisk::OfNode;
            }
            (ImageDisk::OfNode, node, None) => levels.imagefs = node,
            _ => {}
        }
        self.last = Some((inputs.now, levels));
        let met = self.pressure.measured(&levels, inputs.policy, inputs.now, inputs.outbox);
        // E7: as in a kubelet, no pod is evicted because of a threshold of the node in the same round.
        let over =
            usage.map(|usage| over_limit(&(inputs.candidates)(), &usage, self.has_two_disks())).unwrap_or_default();
        if !over.is_empty() {
            self.wait(PERIOD, inputs.now);
            return over;
        }
        let Some(met) = met else {
            self.wait(self.period(inputs), inputs.now);
            let restarts = self.pressure.is_over() && (inputs.any_waits)();
            return if restarts { vec![Action::RestartOne] } else { Vec::new() };
        };
        if !reclaimed && levels.has_images(met.threshold.signal) && inputs.up {
            self.state = State::Reclaiming;
            return vec![Action::ReclaimImages];
        }
        self.rank(met, inputs)
    }

    /// Measures again after images were removed, because enough space may be free now.
    pub fn images_reclaimed(&mut self, inputs: &mut Inputs<'_>) -> Vec<Action> {
        match self.state {
            State::Reclaiming => self.measure(true, inputs),
            _ => Vec::new(),
        }
    }

    /// Returns true if the images have a file system of their own.
    fn has_two_disks(&self) -> bool {
        matches!(self.image_disk, ImageDisk::Path(_))
    }

    fn rank(&mut self, met: Met, inputs: &mut Inputs<'_>) -> Vec<Action> {
        let mut open = BTreeMap::new();
        let signal = met.threshold.signal;
        if signal == Signal::PidAvailable {
            let pods = (inputs.candidates)().into_iter().map(|of| of.uid).collect();
            let op = inputs.outbox.begin(Owner::Eviction, |op| Effect::CountProcesses { op, pods });
            open.insert(op, Source::Processes);
        } else if inputs.up {
            open.insert(call(RuntimeCall::Usage, inputs.outbox), Source::Containers);
        }
        let of_disk = !matches!(signal, Signal::MemoryAvailable | Signal::PidAvailable);
        let pods = if of_disk { (inputs.measured)(false) } else { Vec::new() };
        if !pods.is_empty() {
            open.insert(measure_pods(pods, inputs.outbox), Source::Disks);
        }
        if open.is_empty() {
            return self.ranked(met, &Usage::default(), inputs);
        }
        self.state = State::Ranking { open, met, usage: Usage::default() };
        Vec::new()
    }

    fn ranked(&mut self, met: Met, usage: &Usage, inputs: &mut Inputs<'_>) -> Vec<Action> {
        let candidates = (inputs.candidates)();
        let Some((uid, message)) = ranking::first(&met, &candidates, usage, self.has_two_disks()) else {
            self.wait(PERIOD, inputs.now);
            return Vec::new();
        };
        let grace = match met.threshold.kind {
            ThresholdKind::Hard => AT_ONCE,
            ThresholdKind::Soft(_) => {
                let own = candidates.iter().find(|c| c.uid == uid).map(|c| c.pod.grace_period());
                inputs.policy.max_grace.min(own.unwrap_or(AT_ONCE))
            }
        };
        self.state = State::Ending { uid: uid.clone(), until: inputs.now + END_TIMEOUT };
        vec![Action::Evict { uid, signal: Some(met.threshold.signal), message, grace }]
    }

    fn wait(&mut self, period: Duration, now: Boot) {
        self.state = State::Waiting { next: now + period, report_from: now + REPORT_PERIOD };
    }

    /// E1: returns the time to the next measurement. A calm node is measured rarely, because the kernel reports a
    /// lack of memory by itself.
    fn period(&self, inputs: &Inputs<'_>) -> Duration {
        let memory = inputs.policy.thresholds.iter().any(|t| t.signal == Signal::MemoryAvailable);
        let reported = !memory || self.reported_by_kernel == Watch::On;
        match reported && self.pressure.is_calm() && !(inputs.any_waits)() {
            true => CALM_PERIOD,
            false => PERIOD,
        }
    }
}

fn call(call: RuntimeCall, outbox: &mut Outbox) -> OpId {
    outbox.call_runtime(Owner::Eviction, call, TIMEOUT)
}

fn measure_path(path: &str, outbox: &mut Outbox) -> OpId {
    let path = path.to_owned();
    outbox.begin(Owner::Eviction, |op| Effect::MeasureFileSystem { op, path, timeout: TIMEOUT })
}

fn measure_pods(pods: Vec<MeasuredPod>, outbox: &mut Outbox) -> OpId {
    outbox.begin(Owner::Eviction, |op| Effect::MeasurePods { op, pods, timeout: DISK_TIMEOUT })
}

fn take_usage(usage: &mut Usage, source: Source, answer: Answer) {
    match (source, answer) {
        (Source::Containers, Answer::Usage(facts)) => usage.take_containers(facts),
        (Source::Disks, Answer::PodDisks(facts)) => usage.take_disks(facts),
        (Source::Processes, Answer::Processes(counts)) => usage.take_processes(counts),
        _ => {}
    }
}

fn over_limit(candidates: &[Candidate], usage: &Usage, two_disks: bool) -> Vec<Action> {
    let evict = |of: &Candidate| {
        let message = limits::exceeded(of, usage, two_disks)?;
        Some(Action::Evict { uid: of.uid.clone(), signal: None, message, grace: AT_ONCE })
    };
    candidates.iter().filter(|of| usage.knows_disk_of(&of.uid)).filter_map(evict).collect()
}
