//! Carries out the engine's calls for the cgroups of pods. Each call ends in one result for its `OpId`.
//!
//! - `hierarchies`: finds the mounted hierarchies, and removes the cgroups of pods;
//! - `usage`: the resource usage of the cgroups of pods;
//! - `tree`, `files`: create cgroups and set their limits in the cgroup file system (driver cgroupfs);
//! - `slices`: systemd's slices, over the system bus (driver systemd).
//!
//! The runtime reports the driver (RuntimeConfig); if it does not, the configuration decides.
//!
//! The levels above pods (`kubepods` and its QoS classes) are created with the first pod and remembered, so that a pod
//! costs only a few system calls, or one message to systemd.

mod files;
#[cfg(test)]
mod fixture;
mod hierarchies;
pub mod slices;
#[cfg(test)]
mod tests;
mod tree;
mod usage;

pub use hierarchies::{Cgroups, Hierarchy};
pub use tree::{CgroupLevel, Tree};
pub use usage::CgroupUsage;

use crate::adapters::bus;
use crate::api::cgroups::{CLASSES, CgroupDriver, CgroupNames};
use crate::api::limits::{self, Limits, PodRules};
use crate::api::names::Uid;
use crate::api::pod::Pod;
use crate::api::qos::Qos;
use crate::api::resources::Resources;
use crate::api::time::Boot;
use crate::engine::effect::CgroupCall;
use crate::engine::event::Answer;
use crate::engine::op::{Code, OpError, OpId};
use crate::event_loop::clock;
use mio::{Registry, Token};
use serde_json::{Value, json};
use slices::{Slices, Ticket, UnitResult};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// gRPC's code INTERNAL, for Wherry's own errors.
const INTERNAL: u32 = 13;
/// Maximum number of attempts to create a pod's cgroup with its parents.
const TRIES: u32 = 3;

/// Settings from the configuration and the machine.
pub struct CgroupSettings {
    pub names: CgroupNames,
    pub rules: PodRules,
    /// The machine's capacity, and the part of it that is reserved and not available to pods.
    pub capacity: Resources,
    pub reserved: Resources,
}

/// Removes the cgroups of the pod with this UID. With the flag, kills the processes in them first.
pub type Remover = Arc<dyn Fn(&str, bool) -> Result<(), String> + Send + Sync>;

/// A result that the adapter reports. `take_results` returns it.
// As for `Event`, the size does not matter, because a result exists only briefly.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, PartialEq)]
pub enum CgroupResult {
    /// A call has ended. Each call has exactly one such result, or one `RemoveByForce`.
    Done { op: OpId, result: Result<Answer, OpError> },
    /// The call is a removal that kills processes, which can take a second: run the `Remover` on a helper thread.
    RemoveByForce { op: OpId, uid: Uid },
    /// An operation for the metrics: `create`, `update` or `destroy`.
    Counted { operation: &'static str, took: Duration },
    /// systemd could not set up a level above pods. The next pod causes another attempt.
    LevelFailed { why: String },
}

/// The adapter. The caller calls `drive` when the token is ready, after the deadline, and after `call` and
/// `take_driver`, and then takes the results.
pub struct PodCgroups {
    tree: Result<Tree, String>,
    slices: Slices,
    names: CgroupNames,
    /// `cgroupDriver`, for a runtime that does not report its driver.
    configured: CgroupDriver,
    /// The driver that the runtime last reported. The outer None means that it has not reported yet, the inner None
    /// that it does not report its driver.
    reported: Option<Option<CgroupDriver>>,
    rules: PodRules,
    node: Limits,
    /// CPU weight of the burstable class, in milli-CPU.
    burstable: u64,
    /// Whether the levels exist, as far as the adapter knows.
    ready: bool,
    /// Whether a CPU weight was set before the driver was known, and is not applied yet.
    held: bool,
    waiting: BTreeMap<Ticket, PendingCall>,
    /// Removals whose slices are being stopped.
    removals: BTreeMap<OpId, Removal>,
    results: Vec<CgroupResult>,
}

/// The continuation of a call to systemd.
struct PendingCall {
    began: Boot,
    then: Then,
}

enum Then {
    Level,
    Made { op: OpId, cgroup: String, limits: Limits },
    CpuWeightSet { op: OpId },
    Stopped { op: OpId },
    Swept,
}

struct Removal {
    uid: Uid,
    /// Slices whose stop systemd has not confirmed yet.
    left: usize,
    began: Boot,
    trouble: Option<String>,
}

impl PodCgroups {
    /// Returns the adapter. `token` becomes ready when `drive` must be called.
    pub fn new(settings: CgroupSettings, token: Token) -> PodCgroups {
        // Ignore the problems of the hierarchies here: the system check reports them.
        let tree = Cgroups::discover(settings.names.clone()).map(Tree::new);
        PodCgroups::on(tree, settings, token)
    }

    fn on(tree: Result<Tree, String>, settings: CgroupSettings, token: Token) -> PodCgroups {
        PodCgroups {
            tree,
            slices: Slices::new(&bus::system_address(), token),
            configured: settings.names.driver,
            names: settings.names,
            reported: None,
            rules: settings.rules,
            node: limits::of_node(&settings.capacity, &settings.reserved),
            burstable: 0,
            ready: false,
            held: false,
            waiting: BTreeMap::new(),
            removals: BTreeMap::new(),
            results: Vec::new(),
        }
    }

    /// Sets the rules for cgroups that are created from now on.
    pub fn set_rules(&mut self, rules: PodRules) {
        self.rules = rules;
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        self.slices.next_deadline()
    }

    /// Returns the state for `wherry debug dump`.
    pub fn shown(&self) -> Value {
        json!({
            "driver": self.names.driver.name(),
            "levelsAreMade": self.ready,
            "burstableMilliCpu": self.burstable,
            "waitsForSystemd": self.waiting.len(),
        })
    }

    pub fn names(&self) -> &CgroupNames {
        &self.names
    }

    /// Returns a function that removes the cgroups of a pod, for use on helper threads. It is valid until the driver
    /// changes.
    pub fn remover(&self) -> Remover {
        let cgroups = self.tree.as_ref().map(|tree| tree.cgroups().clone()).ok();
        Arc::new(move |uid, kill| cgroups.as_ref().map_or(Ok(()), |c| c.remove_pod(uid, kill)))
    }

    /// Takes the results so far.
    pub fn take_results(&mut self) -> Vec<CgroupResult> {
        std::mem::take(&mut self.results)
    }

    /// Carries out a call, or starts it.
    pub fn call(&mut self, op: OpId, call: CgroupCall, now: Boot) {
        if !self.names.per_qos {
            // `cgroupsPerQOS: false`: pods have no cgroups of their own.
            return self.done(op, Ok(()));
        }
        if let (CgroupCall::SetCpuWeight { burstable }, None) = (&call, self.reported) {
            // While the driver is unknown, the levels could be created for a driver that nothing uses.
            (self.burstable, self.held) = (*burstable, true);
            return self.done(op, Ok(()));
        }
        if let CgroupCall::Remove { uid, kill: true } = call {
            return self.results.push(CgroupResult::RemoveByForce { op, uid });
        }
        match self.names.driver {
            CgroupDriver::Cgroupfs => {
                let result = self.use_files(call, now);
                self.done(op, result);
            }
            CgroupDriver::Systemd => self.use_slices(op, call, now),
        }
    }

    /// Returns the number of processes and threads in each pod's cgroup. Omits pods whose cgroup cannot be read. Reads
    /// one file for each pod and never blocks.
    pub fn count_processes(&self, pods: Vec<Uid>) -> Vec<(Uid, u64)> {
        let Ok(tree) = &self.tree else { return Vec::new() };
        let count = |uid: Uid| Some((uid.clone(), tree.cgroups().processes_of(&uid)?));
        pods.into_iter().filter_map(count).collect()
    }

    /// Returns the usage of a pod's cgroup; None if the cgroup cannot be read.
    pub fn usage_of(&self, uid: &Uid) -> Option<CgroupUsage> {
        self.tree.as_ref().ok()?.cgroups().usage_of(uid)
    }

    /// Handles systemd's replies.
    pub fn drive(&mut self, registry: &Registry, now: Boot) {
        let mut out = Vec::new();
        self.slices.drive(registry, now, &mut out);
        for UnitResult { ticket, result } in out {
            if let Some(PendingCall { began, then }) = self.waiting.remove(&ticket) {
                log::debug!("systemd slice={result:?}");
                self.slice_done(began, then, result);
            }
        }
    }

    /// Handles the driver that the runtime has reported. None means that the runtime does not report one, so the
    /// configured driver applies. Requests to the runtime already use that driver.
    pub fn take_driver(&mut self, reported: Option<CgroupDriver>, now: Boot) {
        let driver = reported.unwrap_or(self.configured);
        if self.reported != Some(reported) {
            log_driver(reported, self.configured);
            self.reported = Some(reported);
        }
        self.set_driver(driver);
        if std::mem::take(&mut self.held) {
            match driver {
                CgroupDriver::Systemd => self.begin_levels(now),
                CgroupDriver::Cgroupfs => {
                    if let Err(e) = self.set_levels() {
                        log::warn!("failed to set the cgroups of the QoS levels error={e:?}");
                    }
                }
            }
        }
    }

    /// Removes the cgroups of unknown pods if nothing runs in them.
    fn sweep(&mut self, known: &BTreeSet<Uid>, now: Boot) {
        let Ok(tree) = &self.tree else { return };
        // The names of systemd slices contain underscores instead of dashes; UIDs contain no underscores.
        let gone = tree.cgroups().sweep(&|uid| known.contains(&Uid::from(uid.replace('_', "-"))));
        for name in gone {
            log::info!("removed the cgroup of a dead pod cgroup={name}");
            if self.names.driver == CgroupDriver::Systemd {
                let ticket = self.slices.stop(&name, now);
                self.waiting.insert(ticket, PendingCall { began: now, then: Then::Swept });
            }
        }
    }

    fn tree(&self) -> Result<&Tree, String> {
        self.tree.as_ref().map_err(Clone::clone)
    }

    fn is_v2(&self) -> bool {
        self.tree.as_ref().is_ok_and(|tree| tree.cgroups().is_v2())
    }

    fn level_limits(&self, level: CgroupLevel) -> Limits {
        match level {
            CgroupLevel::Node => self.node.clone(),
            CgroupLevel::Class(qos) => limits::of_class(qos, self.burstable),
        }
    }

    fn level_name(&self, level: CgroupLevel) -> String {
        match level {
            CgroupLevel::Node => self.names.node(),
            CgroupLevel::Class(qos) => self.names.class(qos),
        }
    }

    /// Returns the path and the limits of a pod's cgroup.
    fn of_pod(&self, pod: &Pod) -> (String, Limits) {
        (self.names.pod(Qos::of(pod.spec()), &pod.uid), limits::of_pod(pod, &self.rules))
    }

    fn set_driver(&mut self, driver: CgroupDriver) {
        if self.names.driver != driver {
            self.names.driver = driver;
            self.ready = false;
            if let Ok(tree) = &mut self.tree {
                tree.cgroups_mut().names.driver = driver;
            }
        }
    }

    fn done(&mut self, op: OpId, result: Result<(), String>) {
        let result = match result {
            Ok(()) => Ok(Answer::Ok),
            Err(message) => Err(OpError::Answered { code: Code::Other(INTERNAL), message }),
        };
        self.results.push(CgroupResult::Done { op, result });
    }

    /// Reports the operation for the metrics, with its duration since `began`.
    fn count(&mut self, operation: &'static str, began: Boot) {
        self.results.push(CgroupResult::Counted { operation, took: clock::boot().since(began) });
    }

    fn count_set(&mut self, made: bool, began: Boot) {
        self.count(if made { "create" } else { "update" }, began);
    }

    fn remove(&mut self, uid: &Uid, began: Boot) -> Result<(), String> {
        let result = self.tree.as_ref().map_or(Ok(()), |tree| tree.cgroups().remove_pod(uid.as_str(), false));
        self.count("destroy", began);
        result
    }
}

fn log_driver(reported: Option<CgroupDriver>, configured: CgroupDriver) {
    let driver = reported.unwrap_or(configured).name();
    match reported {
        Some(of_runtime) if of_runtime != configured => log::warn!(
            "cgroups driver={driver} (reported by the runtime; overrides cgroupDriver: {})",
            configured.name()
        ),
        Some(_) => log::info!("cgroups driver={driver}"),
        None => log::info!("cgroups driver={driver} (cgroupDriver; the runtime does not report its own)"),
    }
}

/// Calls with the driver cgroupfs.
impl PodCgroups {
    fn use_files(&mut self, call: CgroupCall, now: Boot) -> Result<(), String> {
        match call {
            CgroupCall::Make { pod } => self.make(&pod),
            CgroupCall::SetCpuWeight { burstable } => self.set_cpu_weight(burstable),
            CgroupCall::Remove { uid, .. } => self.remove(&uid, clock::boot()),
            CgroupCall::Sweep { known } => {
                self.sweep(&known, now);
                Ok(())
            }
        }
    }

    fn set_level(&mut self, level: CgroupLevel) -> Result<(), String> {
        let began = clock::boot();
        let made = self.tree()?.set_level(level, &self.level_limits(level))?;
        self.count_set(made, began);
        Ok(())
    }

    /// Sets up all levels, unless they exist.
    fn set_levels(&mut self) -> Result<(), String> {
        if !self.ready {
            CgroupLevel::ALL.into_iter().try_for_each(|level| self.set_level(level))?;
            self.ready = true;
        }
        Ok(())
    }

    /// Creates the cgroup of a pod together with its missing parents, like `mkdir -p`. The levels are created once and
    /// then remembered, so a missing level is noticed only when the pod's own mkdir fails. This call retries at once,
    /// because an error would delay the pod by its back-off.
    fn make(&mut self, pod: &Pod) -> Result<(), String> {
        let (cgroup, limits) = self.of_pod(pod);
        for _ in 0..TRIES {
            self.set_levels()?;
            let began = clock::boot();
            match self.tree()?.set_pod(&cgroup, &limits)? {
                Some(made) => {
                    self.count_set(made, began);
                    return Ok(());
                }
                None => self.ready = false,
            }
        }
        Err(format!("failed to create the cgroup {cgroup}: another process keeps removing its parents"))
    }

    fn set_cpu_weight(&mut self, burstable: u64) -> Result<(), String> {
        let level = CgroupLevel::Class(Qos::Burstable);
        let before = self.level_limits(level);
        self.burstable = burstable;
        if !self.ready {
            // Set the limits of existing levels, too: a previous run may have left them, with pods in them.
            return self.set_levels();
        }
        if self.level_limits(level) == before {
            return Ok(());
        }
        let cpu_weight_set = self.set_level(level);
        if cpu_weight_set.is_err() {
            // The next pod sets up all levels again.
            self.ready = false;
        }
        cpu_weight_set
    }
}

/// Calls with the driver systemd.
impl PodCgroups {
    fn use_slices(&mut self, op: OpId, call: CgroupCall, now: Boot) {
        match call {
            CgroupCall::Make { pod } => {
                let (cgroup, limits) = self.of_pod(&pod);
                self.begin_levels(now);
                let then = Then::Made { op, cgroup: cgroup.clone(), limits: limits.clone() };
                self.begin_slice(&cgroup, &limits, then, now);
            }
            CgroupCall::SetCpuWeight { burstable } => {
                self.burstable = burstable;
                self.begin_levels(now);
                let level = CgroupLevel::Class(Qos::Burstable);
                let (name, limits) = (self.level_name(level), self.level_limits(level));
                self.begin_slice(&name, &limits, Then::CpuWeightSet { op }, now);
            }
            CgroupCall::Remove { uid, .. } => {
                for qos in CLASSES {
                    let ticket = self.slices.stop(&self.names.pod(qos, &uid), now);
                    self.waiting.insert(ticket, PendingCall { began: now, then: Then::Stopped { op } });
                }
                self.removals.insert(op, Removal { uid, left: CLASSES.len(), began: now, trouble: None });
            }
            CgroupCall::Sweep { known } => {
                self.sweep(&known, now);
                self.done(op, Ok(()));
            }
        }
    }

    fn begin_slice(&mut self, cgroup: &str, limits: &Limits, then: Then, began: Boot) {
        let ticket = self.slices.set(cgroup, limits, self.is_v2(), began);
        self.waiting.insert(ticket, PendingCall { began, then });
    }

    fn begin_levels(&mut self, began: Boot) {
        if !std::mem::replace(&mut self.ready, true) {
            for level in CgroupLevel::ALL {
                let (name, limits) = (self.level_name(level), self.level_limits(level));
                self.begin_slice(&name, &limits, Then::Level, began);
            }
        }
    }

    fn slice_done(&mut self, began: Boot, then: Then, result: Result<bool, String>) {
        match then {
            Then::Made { op, cgroup, limits } => {
                let set = result.and_then(|made| {
                    self.tree()?.set_huge_pages(&cgroup, &limits)?;
                    self.count_set(made, began);
                    Ok(())
                });
                self.done(op, set);
            }
            Then::CpuWeightSet { op } => {
                self.count_set(false, began);
                self.done(op, result.map(drop));
            }
            Then::Level => match result {
                Ok(made) => self.count_set(made, began),
                Err(why) => {
                    // The next pod causes another attempt. The slice of the pod that waits for this level fails too.
                    self.ready = false;
                    self.results.push(CgroupResult::LevelFailed { why });
                }
            },
            Then::Stopped { op } => self.slice_stopped(op, result),
            Then::Swept => {
                if let Err(e) = result {
                    log::debug!("failed to stop the slice of a dead pod error={e:?}");
                }
            }
        }
    }

    /// Handles systemd's reply for one of the slices that the pod may have. After the last reply, removes the rest of
    /// the pod's cgroups.
    fn slice_stopped(&mut self, op: OpId, result: Result<bool, String>) {
        let Some(removal) = self.removals.get_mut(&op) else { return };
        removal.left -= 1;
        if let Err(e) = result {
            removal.trouble.get_or_insert(e);
        }
        if removal.left > 0 {
            return;
        }
        if let Some(Removal { uid, began, trouble, .. }) = self.removals.remove(&op) {
            let removed = self.remove(&uid, began);
            self.done(op, removed.and(trouble.map_or(Ok(()), Err)));
        }
    }
}
