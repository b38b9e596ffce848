//! A node's life as a list of decisions: `Plan::of` creates it from a seed, `random` plays it, and `shrink` plays parts of it.

use crate::chance::below;
use crate::cluster::actions::Change;
use crate::logind::{TROUBLES, Trouble};
use crate::random::Pool;
use crate::workload_lives::WorkloadChange;
use crate::world::{Damage, MS, S};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use wherry::engine::pod::kill::TerminationSource;
use wherry::engine::rng::Rng;

/// Without shutdown, which comes from logind, and preemption, which comes from the engine.
pub const KILLERS: [TerminationSource; 2] = [TerminationSource::Drain, TerminationSource::Eviction];

/// An external action on the node. Times are in ms; a `pick` selects one of the objects that exist then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sets files of the pool to a version; None removes the file.
    Files(Vec<(usize, Option<usize>)>),
    /// kill -9, and the start after this time.
    Kill {
        away: u64,
    },
    /// The same after this number of further effects, perhaps in the middle of a step.
    KillAfter {
        effects: u64,
        away: u64,
    },
    RuntimeAway {
        ms: u64,
    },
    Exit {
        pick: u64,
        code: i32,
    },
    SandboxDies {
        pick: u64,
    },
    /// Moves the wall clock by nanoseconds.
    Clock {
        by: i64,
    },
    /// Suspends the machine.
    Sleep {
        ms: u64,
    },
    Network {
        ready: bool,
    },
    /// Removes an ended container without the engine.
    RemoveDead {
        pick: u64,
    },
    /// Removes everything that runs of one pod without the engine.
    RemovePod {
        pick: u64,
    },
    /// Kills a pod for a cause other than its manifest; `grace` in seconds.
    KillPod {
        pick: u64,
        by: TerminationSource,
        grace: Option<u64>,
    },
    /// Ends the cause of kills.
    Release {
        by: TerminationSource,
    },
    /// Steps every pod and sends hints for some (bits). A second step must have no effects.
    Look {
        hints: u64,
    },
    /// Removes a second image, or removes it from the registry.
    Image,
    /// No record can be written for this time.
    DiskFull {
        ms: u64,
    },
    /// A shutdown begins, is cancelled, or ends with a reboot.
    PowerOff,
    CallOff,
    Reboot {
        away: u64,
    },
    /// The bus and logind go away or come back.
    Bus {
        up: bool,
    },
    /// A process cannot be killed for this time.
    HoldProcess {
        pick: u64,
        ms: u64,
    },
    /// The state of a container is unknown to the runtime until it is stopped.
    LoseState {
        pick: u64,
    },
    /// Adds another owner's pod with the UID of one of ours.
    Twin {
        pick: u64,
    },
    /// Lists fail for this time.
    FailLists {
        ms: u64,
    },
    /// A power failure; the disk loses some acknowledged writes.
    PowerCut {
        away: u64,
    },
    /// Applies other settings.
    Reload {
        pick: u64,
    },
    /// Requests a retry for a rejected pod, or any other.
    Retry {
        pick: u64,
    },
    /// Starts a problem with logind; None fixes all of them.
    Logind {
        trouble: Option<Trouble>,
    },
    /// For a member of a cluster.
    Cluster(Change),
}

/// A change of the device plugin of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChange {
    /// The plugin starts and registers.
    Register,
    End,
    /// The devices that have this remainder of their number by 3 are unhealthy.
    Unhealthy(u64),
    /// This number of calls fails.
    FailCalls(u64),
    /// Calls are not answered, or answered again.
    Hang(bool),
}

impl DeviceChange {
    fn of(d: &mut Rng) -> DeviceChange {
        match below(d, 10) {
            0..=3 => DeviceChange::Register,
            4 | 5 => DeviceChange::End,
            6 | 7 => DeviceChange::Unhealthy(below(d, 4)),
            8 => DeviceChange::FailCalls(1 + below(d, 3)),
            _ => DeviceChange::Hang(below(d, 2) == 0),
        }
    }
}

/// Trouble with the manifest directory. A `pick` selects a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestTrouble {
    Broken(u64, Damage),
    Repaired(u64),
    /// The directory cannot be read until it is back.
    Away,
    Back,
}

/// What kubectl does with a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kubectl {
    /// A new pod. The number is a part of its name.
    Create(u64),
    /// Another label.
    Label(u64),
    /// A value that is not valid.
    InvalidChange,
    /// The whole pod as it is.
    Replace,
    /// The whole pod as it is, with a resource version that never was.
    ReplaceOutdated,
    Delete,
    /// With a grace period of a second.
    DeleteSoon,
    DryRunDelete,
    Evict,
}

impl Kubectl {
    fn of(d: &mut Rng) -> Kubectl {
        match below(d, 12) {
            0 => Kubectl::Create(below(d, 3)),
            1..=3 => Kubectl::Label(below(d, 3)),
            4 => Kubectl::InvalidChange,
            5 => Kubectl::Replace,
            6 => Kubectl::ReplaceOutdated,
            7 => Kubectl::DryRunDelete,
            8 => Kubectl::Evict,
            9 => Kubectl::DeleteSoon,
            _ => Kubectl::Delete,
        }
    }
}

impl ManifestTrouble {
    fn of(d: &mut Rng) -> ManifestTrouble {
        match below(d, 10) {
            0..=5 => ManifestTrouble::Broken(d.draw(), Damage::ALL[below(d, Damage::ALL.len() as u64) as usize]),
            6 | 7 => ManifestTrouble::Repaired(d.draw()),
            8 => ManifestTrouble::Away,
            _ => ManifestTrouble::Back,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub action: Action,
    /// Seeds a user's request after the action. From a generator of its own, so that the actions of a seed stay the same.
    pub user: Option<u64>,
    /// Defines (true) or removes the PriorityClass of the pool before the action. From a generator of its own, too.
    pub class: Option<bool>,
    /// Changes the device plugin or its devices before the action. From a generator of its own, too.
    pub devices: Option<DeviceChange>,
    /// Trouble with manifests before the action. From a generator of its own, too.
    pub manifest: Option<ManifestTrouble>,
    /// kubectl does something with the pod of a file, which a number selects, before the action. From a generator of its own, too.
    pub kubectl: Option<(u64, Kubectl)>,
    /// A workload changes before the action. From a generator of its own, too.
    pub workload: Option<WorkloadChange>,
    /// The wait before the next action, in ms.
    pub wait: u64,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Faults per 1000 calls.
    pub faults: u64,
    /// Nonsensical answers per 1000.
    pub lies: u64,
    pub parallel_starts: usize,
    pub parallel_reads: usize,
    pub pidfds: bool,
    /// Only some of the pods fit.
    pub scarce: bool,
    /// Some pods get their priority from a PriorityClass.
    pub classes: bool,
    /// Some pods have devices.
    pub devices: bool,
    /// Graceful shutdown is on; systemd keeps descriptors.
    pub shutdown: bool,
    pub store: bool,
    /// The node is a member of a cluster.
    pub member: bool,
    /// This pod has more faults than others.
    pub unlucky: Option<&'static str>,
    pub turns: Vec<Turn>,
    /// The mishaps that may happen; None: any.
    pub only: Option<Rc<BTreeSet<u64>>>,
}

impl Plan {
    pub fn of(seed: u64, pool: &Pool) -> Plan {
        let mut dice = Rng::new(seed.wrapping_mul(0x5851_F42D_4C95_7F2D));
        let mut users = Rng::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x7573_6572);
        let mut changes = Rng::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x636C_6173);
        let mut troubles = Rng::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x6D61_6E69);
        let mut requests = Rng::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x6B75_6265);
        let mut plugins = Rng::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x6465_7669);
        let (classes, devices) = (seed % 6 == 2, seed % 6 == 4);
        let d = &mut dice;
        let parallel_starts = 1 + below(d, 4) as usize;
        let parallel_reads = 1 + below(d, 4) as usize;
        let faults = [0, 10, 60, 200][below(d, 4) as usize];
        let mut files = BTreeMap::new();
        let (shutdown, store) = (seed % 4 == 1, seed % 8 == 1);
        let turns = (0..8 + below(d, 40)).map(|_| {
            let action = match shutdown && below(d, 6) == 0 {
                true => shutdown_action(d),
                false => action(d, pool, &mut files),
            };
            let wait = match below(d, 4) {
                0 => below(d, 50),
                1 | 2 => below(d, 1500),
                _ => below(d, 15_000),
            };
            let user = (below(&mut users, 3) == 0).then(|| users.draw());
            let class = (classes && below(&mut changes, 4) == 0).then(|| below(&mut changes, 2) == 0);
            let change = (devices && below(&mut plugins, 4) == 0).then(|| DeviceChange::of(&mut plugins));
            let has_trouble = !classes && seed % 3 == 1 && below(&mut troubles, 4) == 0;
            let manifest = has_trouble.then(|| ManifestTrouble::of(&mut troubles));
            let has_request = !seed.is_multiple_of(3) && below(&mut requests, 3) == 0;
            let kubectl = has_request.then(|| (requests.draw(), Kubectl::of(&mut requests)));
            Turn { action, user, class, devices: change, manifest, kubectl, workload: None, wait }
        });
        let turns = turns.collect();
        let pidfds = !seed.is_multiple_of(3);
        let scarce = seed % 7 < 3;
        let lies = if seed % 5 == 4 { 20 } else { 0 };
        let unlucky = (seed % 11 == 3 && faults > 0).then_some("a");
        Plan {
            seed,
            faults,
            lies,
            parallel_starts,
            parallel_reads,
            pidfds,
            scarce,
            classes,
            devices,
            shutdown,
            store,
            member: false,
            unlucky,
            turns,
            only: None,
        }
    }

    /// A life of two days: the actions of many seeds at long intervals, and a power cut about every quarter of an hour.
    pub fn of_days(seed: u64, pool: &Pool) -> Plan {
        const TWO_DAYS: u64 = 48 * 3600 * 1000;
        const BETWEEN_CUTS: u64 = 14 * 60 * 1000;
        let mut plan = Plan::of(seed, pool);
        let mut dice = Rng::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x6461_7973);
        let d = &mut dice;
        let (mut turns, mut more, mut past, mut cut_at) = (Vec::new(), seed, 0, BETWEEN_CUTS);
        while past < TWO_DAYS {
            more += 1000;
            for mut turn in Plan::of(more, pool).turns {
                if past >= cut_at {
                    turn.action = Action::PowerCut { away: below(d, 60_000) };
                    cut_at += BETWEEN_CUTS;
                }
                turn.wait += [below(d, 2000), below(d, 60_000), below(d, 400_000)][below(d, 3) as usize];
                past += turn.wait;
                turns.push(turn);
            }
        }
        plan.turns = turns;
        plan
    }

    /// The same life with changes of workloads instead of changes with kubectl. There is room for all pods.
    pub fn of_workloads(seed: u64, pool: &Pool) -> Plan {
        let mut plan = Plan::of(seed, pool);
        let mut dice = Rng::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x776F_726B);
        for turn in &mut plan.turns {
            turn.kubectl = None;
            turn.workload = (below(&mut dice, 2) == 0).then(|| WorkloadChange::of(&mut dice));
        }
        plan.scarce = false;
        plan
    }

    /// The same life as a member of a cluster: with actions of the cluster between the others.
    pub fn of_member(seed: u64, pool: &Pool) -> Plan {
        let mut plan = Plan::of(seed, pool);
        let mut dice = Rng::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x636C_7573);
        let d = &mut dice;
        let mut turns = Vec::new();
        // Half of the lives have nothing but the cluster, which finds more in it.
        let only_cluster = below(d, 2) == 0;
        for turn in plan.turns {
            if below(d, 3) > 0 {
                let wait = [below(d, 50), below(d, 3000), below(d, 15_000)][below(d, 3) as usize];
                let action = Action::Cluster(Change::of(d, pool));
                turns.push(Turn {
                    action,
                    user: None,
                    class: None,
                    devices: None,
                    manifest: None,
                    kubectl: None,
                    workload: None,
                    wait,
                });
            }
            let is_of_manifests = matches!(turn.action, Action::Files(_) | Action::Twin { .. });
            if !only_cluster || !is_of_manifests {
                turns.push(turn);
            }
        }
        plan.turns = turns;
        plan.member = true;
        plan
    }
}

fn shutdown_action(d: &mut Rng) -> Action {
    match below(d, 11) {
        0..=3 => Action::PowerOff,
        4 | 5 => Action::CallOff,
        6 => Action::Reboot { away: below(d, 5000) },
        7 => Action::Bus { up: below(d, 2) == 0 },
        8 => Action::Logind { trouble: None },
        _ => Action::Logind { trouble: Some(TROUBLES[below(d, TROUBLES.len() as u64) as usize]) },
    }
}

fn action(d: &mut Rng, pool: &Pool, files: &mut BTreeMap<usize, usize>) -> Action {
    let killer = |d: &mut Rng| KILLERS[below(d, KILLERS.len() as u64) as usize];
    match below(d, 44) {
        0..=8 => files_change(d, pool, files, 1),
        9 => files_change(d, pool, files, 3),
        10..=12 => Action::Kill { away: below(d, 4000) },
        13..=15 => Action::KillAfter { effects: below(d, 30), away: below(d, 3000) },
        16 => Action::RuntimeAway { ms: below(d, 5000) },
        17..=19 => Action::Exit { pick: d.draw(), code: if below(d, 3) == 0 { 0 } else { 137 } },
        20 | 21 => Action::SandboxDies { pick: d.draw() },
        // By seconds, by a day, or by decades.
        22 => match below(d, 3) {
            0 => Action::Clock { by: below(d, 40_000 * MS) as i64 - (20 * S) as i64 },
            1 => Action::Clock { by: (86_400 * S) as i64 * if below(d, 2) == 0 { 1 } else { -1 } },
            _ => Action::Clock { by: (below(d, 40_000_000) as i64 - 20_000_000) * S as i64 },
        },
        23 => Action::Network { ready: below(d, 2) == 0 },
        24 => Action::RemoveDead { pick: d.draw() },
        25 => Action::RemovePod { pick: d.draw() },
        26 | 27 => Action::Look { hints: d.draw() },
        28 => Action::Image,
        29 => Action::DiskFull { ms: below(d, 20_000) },
        30 | 31 => Action::KillPod {
            pick: d.draw(),
            by: killer(d),
            grace: [None, Some(1), Some(4), Some(60)][below(d, 4) as usize],
        },
        32 => Action::Release { by: killer(d) },
        33 | 34 => Action::HoldProcess { pick: d.draw(), ms: below(d, 90_000) },
        35 | 36 => Action::LoseState { pick: d.draw() },
        37 => Action::FailLists { ms: [5_000, 60_000, 400_000][below(d, 3) as usize] },
        38 => Action::PowerCut { away: below(d, 5000) },
        39 => Action::Reload { pick: d.draw() },
        40 | 41 => Action::Retry { pick: d.draw() },
        42 => Action::Twin { pick: d.draw() },
        _ => Action::Sleep { ms: [1000, 60_000, 3_600_000][below(d, 3) as usize] },
    }
}

fn files_change(d: &mut Rng, pool: &Pool, files: &mut BTreeMap<usize, usize>, times: u64) -> Action {
    let mut changes = Vec::new();
    for _ in 0..times {
        let file = below(d, pool.files.len() as u64) as usize;
        if files.contains_key(&file) && below(d, 3) == 0 {
            files.remove(&file);
            changes.push((file, None));
        } else {
            let version = below(d, pool.files[file].1.len() as u64) as usize;
            files.insert(file, version);
            changes.push((file, Some(version)));
        }
    }
    Action::Files(changes)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan {
            seed,
            faults,
            lies,
            parallel_starts,
            parallel_reads,
            pidfds,
            scarce,
            classes,
            devices,
            shutdown,
            store,
            member,
            unlucky,
            ..
        } = self;
        writeln!(
            f,
            "seed {seed}: member of a cluster {member}, faults in 1000 calls {faults}, lies {lies}, parallel starts {parallel_starts}, reads {parallel_reads}, \
             pidfds {pidfds}, scarce {scarce}, classes {classes}, devices {devices}, shutdown {shutdown} (descriptors kept {store}), unlucky {unlucky:?}"
        )?;
        for turn in &self.turns {
            let user = turn.user.map(|seed| format!(" (and the user {seed})")).unwrap_or_default();
            let class = match turn.class {
                Some(true) => "define the class, ",
                Some(false) => "remove the class, ",
                None => "",
            };
            let devices = turn.devices.map(|change| format!("devices {change:?}, ")).unwrap_or_default();
            let manifest = turn.manifest.map(|trouble| format!("manifests {trouble:?}, ")).unwrap_or_default();
            let kubectl = turn.kubectl.map(|(_, what)| format!("kubectl {what:?}, ")).unwrap_or_default();
            let workload = turn.workload.map(|change| format!("{change:?}, ")).unwrap_or_default();
            writeln!(
                f,
                "  {class}{devices}{manifest}{kubectl}{workload}{:?}{user}, then {} ms",
                turn.action, turn.wait
            )?;
        }
        Ok(())
    }
}
