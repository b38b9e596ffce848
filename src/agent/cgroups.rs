//! Connects the engine's cgroup calls to the machine: the files of the cgroup file system with the driver cgroupfs,
//! systemd's slices with the driver systemd. The runtime reports the driver (RuntimeConfig); if it does not, the
//! configuration decides.
//!
//! The levels above pods (`kubepods` and its classes) are created with the first pod and remembered: a pod costs a few
//! system calls, or one message to systemd.

use super::{Agent, SLICES};
use crate::adapters::bus::DEFAULT_ADDRESS;
use crate::adapters::bus::slices::{Ended, Slices, Ticket};
use crate::adapters::host::cgroups::{Cgroups, Level, Tree};
use crate::adapters::pod_files::RemoveCgroup;
use crate::api::cgroups::{CLASSES, CgroupDriver, CgroupNames};
use crate::api::facts::Listed;
use crate::api::limits::{self, Limits, PodRules};
use crate::api::names::Uid;
use crate::api::pod::Pod;
use crate::api::qos::Qos;
use crate::api::resources::Resources;
use crate::api::time::{Boot, Now};
use crate::engine::effect::CgroupCall;
use crate::engine::event::{Answer, Event};
use crate::engine::op::{Code, OpError, OpId};
use crate::event_loop::clock;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// gRPC's code INTERNAL, for Wherry's own errors.
const INTERNAL: u32 = 13;
/// How often the levels are created again for one pod if another process removes them.
const TRIES: u32 = 3;

/// Settings from the configuration and the machine.
pub(super) struct Settings {
    pub names: CgroupNames,
    pub rules: PodRules,
    /// The machine's capacity, and the part that is reserved from pods.
    pub capacity: Resources,
    pub reserved: Resources,
}

pub(super) struct PodCgroups {
    tree: Result<Tree, String>,
    slices: Slices,
    names: CgroupNames,
    /// `cgroupDriver`, for a runtime that does not report its driver.
    configured: CgroupDriver,
    /// The driver that the runtime last reported, if it has reported.
    told: Option<Option<CgroupDriver>>,
    rules: PodRules,
    node: Limits,
    /// CPU weight of the burstable class, in milli-CPU.
    burstable: u64,
    /// The levels exist, as far as known.
    ready: bool,
    /// A CPU weight was set before the driver was known, and is not applied yet.
    held: bool,
    waiting: BTreeMap<Ticket, Waiting>,
    /// Removals whose slices are being stopped.
    removals: BTreeMap<OpId, Removal>,
    /// The cgroups of dead pods were searched for.
    swept: bool,
}

/// The continuation of a call to systemd.
struct Waiting {
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

/// systemd's slices over the system bus. The environment may name another bus address.
pub(super) fn slices() -> Slices {
    // Like libdbus: an empty value counts as unset.
    let address = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").ok().filter(|a| !a.is_empty());
    Slices::new(address.as_deref().unwrap_or(DEFAULT_ADDRESS), SLICES)
}

impl PodCgroups {
    pub(super) fn new(settings: Settings) -> PodCgroups {
        let tree = Cgroups::discover(settings.names.clone()).map(Tree::new);
        // (The system check reports what is wrong with the cgroups.)
        PodCgroups {
            tree,
            slices: slices(),
            configured: settings.names.driver,
            names: settings.names,
            told: None,
            rules: settings.rules,
            node: limits::of_node(&settings.capacity, &settings.reserved),
            burstable: 0,
            ready: false,
            held: false,
            waiting: BTreeMap::new(),
            removals: BTreeMap::new(),
            swept: false,
        }
    }

    /// Applies to cgroups created from now on.
    pub(super) fn set_rules(&mut self, rules: PodRules) {
        self.rules = rules;
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        self.slices.next_deadline()
    }

    /// For `wherry debug dump`.
    pub(super) fn shown(&self) -> Value {
        json!({
            "driver": self.names.driver.name(),
            "levelsAreMade": self.ready,
            "burstableMilliCpu": self.burstable,
            "waitsForSystemd": self.waiting.len(),
        })
    }

    pub(super) fn names(&self) -> &CgroupNames {
        &self.names
    }

    /// For helpers that remove the leftovers of a pod.
    pub(super) fn remover(&self) -> RemoveCgroup {
        let cgroups = self.tree.as_ref().map(|tree| tree.cgroups().clone()).ok();
        Arc::new(move |uid, kill| cgroups.as_ref().map_or(Ok(()), |c| c.remove_pod(uid, kill)))
    }

    fn tree(&self) -> Result<&Tree, String> {
        self.tree.as_ref().map_err(Clone::clone)
    }

    fn is_v2(&self) -> bool {
        self.tree.as_ref().is_ok_and(|tree| tree.cgroups().is_v2())
    }

    fn level_limits(&self, level: Level) -> Limits {
        match level {
            Level::Node => self.node.clone(),
            Level::Class(qos) => limits::of_class(qos, self.burstable),
        }
    }

    fn level_name(&self, level: Level) -> String {
        match level {
            Level::Node => self.names.node(),
            Level::Class(qos) => self.names.class(qos),
        }
    }

    fn begin_slice(&mut self, cgroup: &str, limits: &Limits, then: Then, began: Boot) {
        let ticket = self.slices.set(cgroup, limits, self.is_v2(), began);
        self.waiting.insert(ticket, Waiting { began, then });
    }

    fn begin_levels(&mut self, began: Boot) {
        if !std::mem::replace(&mut self.ready, true) {
            for level in Level::ALL {
                let (name, limits) = (self.level_name(level), self.level_limits(level));
                self.begin_slice(&name, &limits, Then::Level, began);
            }
        }
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
}

impl Agent {
    pub(super) fn use_cgroups(&mut self, op: OpId, call: CgroupCall, now: Now) {
        if !self.cgroups.names.per_qos {
            // `cgroupsPerQOS: false`: pods have no cgroups of their own.
            self.cgroups_done(op, Ok(()));
            return;
        }
        if let (CgroupCall::SetCpuWeight { burstable }, None) = (&call, self.cgroups.told) {
            // Until the driver is known, levels would be created for a driver that nothing uses.
            (self.cgroups.burstable, self.cgroups.held) = (*burstable, true);
            self.cgroups_done(op, Ok(()));
            return;
        }
        match (self.cgroups.names.driver, call) {
            (_, CgroupCall::Remove { uid, kill: true }) => self.remove_by_force(op, &uid, now),
            (CgroupDriver::Cgroupfs, CgroupCall::Make { pod }) => {
                let made = self.make_cgroup(&pod);
                self.cgroups_done(op, made);
            }
            (CgroupDriver::Cgroupfs, CgroupCall::SetCpuWeight { burstable }) => {
                let cpu_weight_set = self.set_cpu_weight(burstable);
                self.cgroups_done(op, cpu_weight_set);
            }
            (CgroupDriver::Cgroupfs, CgroupCall::Remove { uid, kill: false }) => {
                let removed = self.remove_cgroup(&uid, clock::boot());
                self.cgroups_done(op, removed);
            }
            (CgroupDriver::Systemd, CgroupCall::Make { pod }) => {
                let limits = limits::of_pod(&pod, &self.cgroups.rules);
                let cgroup = self.cgroups.names.pod(Qos::of(pod.spec()), &pod.uid);
                self.cgroups.begin_levels(now.boot);
                let then = Then::Made { op, cgroup: cgroup.clone(), limits: limits.clone() };
                self.cgroups.begin_slice(&cgroup, &limits, then, now.boot);
                self.drive_slices(now);
            }
            (CgroupDriver::Systemd, CgroupCall::SetCpuWeight { burstable }) => {
                self.cgroups.burstable = burstable;
                self.cgroups.begin_levels(now.boot);
                let level = Level::Class(Qos::Burstable);
                let (name, limits) = (self.cgroups.level_name(level), self.cgroups.level_limits(level));
                self.cgroups.begin_slice(&name, &limits, Then::CpuWeightSet { op }, now.boot);
                self.drive_slices(now);
            }
            (CgroupDriver::Systemd, CgroupCall::Remove { uid, kill: false }) => {
                let removal = Removal { uid: uid.clone(), left: CLASSES.len(), began: now.boot, trouble: None };
                self.cgroups.removals.insert(op, removal);
                for qos in CLASSES {
                    let cgroup = self.cgroups.names.pod(qos, &uid);
                    let ticket = self.cgroups.slices.stop(&cgroup, now.boot);
                    let waiting = Waiting { began: now.boot, then: Then::Stopped { op } };
                    self.cgroups.waiting.insert(ticket, waiting);
                }
                self.drive_slices(now);
            }
        }
    }

    fn cgroups_done(&mut self, op: OpId, result: Result<(), String>) {
        let result = match result {
            Ok(()) => Ok(Answer::Ok),
            Err(message) => Err(OpError::Answered { code: Code::Other(INTERNAL), message }),
        };
        self.events.push_back(Event::Done { op, result });
    }

    /// Counts the operation with its duration since `began`.
    fn count_cgroup(&mut self, made: bool, began: Boot) {
        let operation = if made { "create" } else { "update" };
        self.metrics.cgroup_operation(operation, clock::boot().since(began));
    }

    fn set_level(&mut self, level: Level) -> Result<(), String> {
        let began = clock::boot();
        let made = self.cgroups.tree()?.set_level(level, &self.cgroups.level_limits(level))?;
        self.count_cgroup(made, began);
        Ok(())
    }

    /// Sets up all levels, unless they exist.
    fn set_levels(&mut self) -> Result<(), String> {
        if !self.cgroups.ready {
            Level::ALL.into_iter().try_for_each(|level| self.set_level(level))?;
            self.cgroups.ready = true;
        }
        Ok(())
    }

    fn make_cgroup(&mut self, pod: &Pod) -> Result<(), String> {
        let limits = limits::of_pod(pod, &self.cgroups.rules);
        let cgroup = self.cgroups.names.pod(Qos::of(pod.spec()), &pod.uid);
        for _ in 0..TRIES {
            self.set_levels()?;
            let began = clock::boot();
            match self.cgroups.tree()?.set_pod(&cgroup, &limits)? {
                Some(made) => {
                    self.count_cgroup(made, began);
                    return Ok(());
                }
                None => self.cgroups.ready = false,
            }
        }
        Err(format!("failed to create the cgroup {cgroup}: another process keeps removing its parents"))
    }

    fn set_cpu_weight(&mut self, burstable: u64) -> Result<(), String> {
        let level = Level::Class(Qos::Burstable);
        let before = self.cgroups.level_limits(level);
        self.cgroups.burstable = burstable;
        if !self.cgroups.ready {
            // The levels may be leftovers of a previous run, with pods in them.
            return self.set_levels();
        }
        if self.cgroups.level_limits(level) == before {
            return Ok(());
        }
        let cpu_weight_set = self.set_level(level);
        if cpu_weight_set.is_err() {
            // The next pod sets up all levels again.
            self.cgroups.ready = false;
        }
        cpu_weight_set
    }

    fn remove_cgroup(&mut self, uid: &Uid, began: Boot) -> Result<(), String> {
        let result = (self.files.remove_cgroup)(uid.as_str(), false);
        self.metrics.cgroup_operation("destroy", clock::boot().since(began));
        result
    }

    /// Continues with systemd's answers.
    pub(super) fn drive_slices(&mut self, now: Now) {
        let mut out = Vec::new();
        self.cgroups.slices.drive(self.event_loop.registry(), now.boot, &mut out);
        for Ended { ticket, result } in out {
            let Some(Waiting { began, then }) = self.cgroups.waiting.remove(&ticket) else { continue };
            log::debug!("systemd slice={result:?}");
            match then {
                Then::Made { op, cgroup, limits } => {
                    let set = result.and_then(|made| {
                        self.cgroups.tree()?.set_huge_pages(&cgroup, &limits)?;
                        self.count_cgroup(made, began);
                        Ok(())
                    });
                    self.cgroups_done(op, set);
                }
                Then::CpuWeightSet { op } => {
                    self.count_cgroup(false, began);
                    self.cgroups_done(op, result.map(drop));
                }
                Then::Level => match result {
                    Ok(made) => self.count_cgroup(made, began),
                    Err(e) => {
                        // The next pod tries again. The pod that waits for this level fails with its own slice.
                        self.cgroups.ready = false;
                        if let Some(repeated) = self.standing.tell(&format!("slice: {e}"), now.boot) {
                            log::warn!("cgroups error={e:?} repeated={repeated}");
                        }
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
    }

    /// Once systemd has answered for all slices that the pod may have, removes the rest of its cgroup.
    fn slice_stopped(&mut self, op: OpId, result: Result<bool, String>) {
        let Some(removal) = self.cgroups.removals.get_mut(&op) else { return };
        removal.left -= 1;
        if let Err(e) = result {
            removal.trouble.get_or_insert(e);
        }
        if removal.left > 0 {
            return;
        }
        if let Some(Removal { uid, began, trouble, .. }) = self.cgroups.removals.remove(&op) {
            let removed = self.remove_cgroup(&uid, began);
            self.cgroups_done(op, removed.and(trouble.map_or(Ok(()), Err)));
        }
    }

    /// The runtime has reported its driver, or that it reports none. Requests to the runtime already use that driver.
    pub(super) fn take_driver(&mut self, told: Option<CgroupDriver>, now: Now) {
        let configured = self.cgroups.configured;
        let driver = told.unwrap_or(configured);
        if self.cgroups.told != Some(told) {
            match told {
                Some(of_runtime) if of_runtime != configured => log::warn!(
                    "cgroups driver={} the runtime uses it, which overrides cgroupDriver: {}",
                    driver.name(),
                    configured.name()
                ),
                Some(_) => log::info!("cgroups driver={}", driver.name()),
                None => {
                    log::info!("cgroups driver={} (cgroupDriver; the runtime does not report its own)", driver.name())
                }
            }
            self.cgroups.told = Some(told);
        }
        self.cgroups.set_driver(driver);
        self.files.remove_cgroup = self.cgroups.remover();
        if std::mem::take(&mut self.cgroups.held) {
            match driver {
                CgroupDriver::Systemd => {
                    self.cgroups.begin_levels(now.boot);
                    self.drive_slices(now);
                }
                CgroupDriver::Cgroupfs => {
                    if let Err(e) = self.set_levels() {
                        log::warn!("cgroups error={e:?}");
                    }
                }
            }
        }
    }

    /// Once, with the first list: removes cgroups of pods that neither the runtime nor the engine knows, if nothing
    /// runs in them.
    pub(super) fn sweep_cgroups(&mut self, listed: &Listed, now: Now) {
        if std::mem::replace(&mut self.cgroups.swept, true) {
            return;
        }
        let uids =
            listed.sandboxes.iter().map(|s| s.uid.as_str()).chain(listed.containers.iter().map(|c| c.uid.as_str()));
        let running: BTreeSet<&str> = uids.collect();
        let engine = &self.engine;
        let known = |uid: &str| {
            // Names of systemd slices replace dashes by underscores; UIDs have no underscores.
            let uid = uid.replace('_', "-");
            running.contains(uid.as_str()) || engine.pod(&Uid::from(uid)).is_some()
        };
        let Ok(tree) = &self.cgroups.tree else { return };
        let gone = tree.cgroups().sweep(&known);
        for name in gone {
            log::info!("removed the cgroup of a dead pod cgroup={name}");
            if self.cgroups.names.driver == CgroupDriver::Systemd {
                let ticket = self.cgroups.slices.stop(&name, now.boot);
                self.cgroups.waiting.insert(ticket, Waiting { began: now.boot, then: Then::Swept });
            }
        }
        self.drive_slices(now);
    }
}
