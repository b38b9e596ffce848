//! A node's life as a list of decisions: made from a seed, played by `random`, and played again with less by `shrink`.

use crate::chance::below;
use crate::logind::{TROUBLES, Trouble};
use crate::random::Pool;
use crate::world::{MS, S};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use wherry::engine::pod::kill::TerminationSource;
use wherry::engine::rng::Rng;

/// (A shutdown is logind's, a preemption the engine's own.)
pub const KILLERS: [TerminationSource; 2] = [TerminationSource::Drain, TerminationSource::Eviction];

/// What happens to a node from outside. Times are ms; a `pick` chooses among what is there then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Files of the pool, and the version that each has from now on; None: it is removed.
    Files(Vec<(usize, Option<usize>)>),
    /// kill -9, and the start so long after.
    Kill {
        away: u64,
    },
    /// The same once so many more effects were begun: in the middle of a step.
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
    /// The wall clock is set, by nanoseconds.
    Clock {
        by: i64,
    },
    /// The machine is suspended.
    Sleep {
        ms: u64,
    },
    Network {
        ready: bool,
    },
    /// Something that ended is removed behind our back.
    RemoveDead {
        pick: u64,
    },
    /// All that runs of one pod is removed behind our back.
    RemovePod {
        pick: u64,
    },
    /// A pod is killed by somebody else than its manifest; `grace` in seconds.
    KillPod {
        pick: u64,
        by: TerminationSource,
        grace: Option<u64>,
    },
    /// What killed pods is over.
    Release {
        by: TerminationSource,
    },
    /// Every pod is stepped, and a hint comes of some (bits): nothing may follow from a second step.
    Look {
        hints: u64,
    },
    /// A second image is removed, or is in no registry.
    Image,
    /// Records cannot be written for so long.
    DiskFull {
        ms: u64,
    },
    /// The node is to go down; that is called off; it has gone down and comes up.
    PowerOff,
    CallOff,
    Reboot {
        away: u64,
    },
    /// The bus, and logind with it.
    Bus {
        up: bool,
    },
    /// A process cannot be killed for so long.
    HoldProcess {
        pick: u64,
        ms: u64,
    },
    /// The runtime does not know the state of a container until it is stopped.
    LoseState {
        pick: u64,
    },
    /// Another owner's pod comes, with the UID of one of ours.
    Twin {
        pick: u64,
    },
    /// Lists fail for so long.
    FailLists {
        ms: u64,
    },
    /// The power goes; the disk loses some of what it acknowledged.
    PowerCut {
        away: u64,
    },
    /// Other settings.
    Reload {
        pick: u64,
    },
    /// Another try for a pod that was rejected, or any other.
    Retry {
        pick: u64,
    },
    /// Something goes wrong with logind; None: all of it is mended.
    Logind {
        trouble: Option<Trouble>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub action: Action,
    /// Before the next one, ms.
    pub wait: u64,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Faults in 1000 calls.
    pub faults: u64,
    /// Answers in 1000 that make no sense.
    pub lies: u64,
    pub parallel_starts: usize,
    pub parallel_reads: usize,
    pub pidfds: bool,
    /// Only some of the pods fit.
    pub scarce: bool,
    /// Graceful shutdown is on; systemd keeps descriptors.
    pub shutdown: bool,
    pub store: bool,
    /// This pod has more faults than others.
    pub unlucky: Option<&'static str>,
    pub turns: Vec<Turn>,
    /// The mishaps that are left of those that chance gave; None: all.
    pub only: Option<Rc<BTreeSet<u64>>>,
}

impl Plan {
    pub fn of(seed: u64, pool: &Pool) -> Plan {
        let mut dice = Rng::new(seed.wrapping_mul(0x5851_F42D_4C95_7F2D));
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
            Turn { action, wait }
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
            shutdown,
            store,
            unlucky,
            turns,
            only: None,
        }
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
            seed, faults, lies, parallel_starts, parallel_reads, pidfds, scarce, shutdown, store, unlucky, ..
        } = self;
        writeln!(
            f,
            "seed {seed}: faults in 1000 calls {faults}, lies {lies}, parallel starts {parallel_starts}, reads {parallel_reads}, \
             pidfds {pidfds}, scarce {scarce}, shutdown {shutdown} (descriptors kept {store}), unlucky {unlucky:?}"
        )?;
        for turn in &self.turns {
            writeln!(f, "  {:?}, then {} ms", turn.action, turn.wait)?;
        }
        Ok(())
    }
}
