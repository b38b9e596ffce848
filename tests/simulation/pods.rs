//! What pods have beside containers: hooks, probes and volumes, as they answer in the world.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use wherry::api::names::Uid;

/// How a hook or a probe ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    Well(Duration),
    Badly(Duration),
    /// Until its deadline.
    Never,
    /// Nobody knows how it went.
    Lost,
}

pub const WELL: Answers = Answers::Well(Duration::from_millis(2));
pub const BADLY: Answers = Answers::Badly(Duration::from_millis(2));

#[derive(Default)]
pub struct Parts {
    /// By `pod/container/PreStop`, `.../Liveness` and so on: in turn; the last one stays.
    answers: BTreeMap<String, VecDeque<Answers>>,
    /// Pods with mounted volumes.
    pub mounted: BTreeSet<Uid>,
    /// Why volumes cannot be mounted.
    pub mount_error: Option<String>,
    pub unmount_error: Option<String>,
    /// (time, `web/main/Liveness`)
    pub probes: Vec<(u64, String)>,
    /// Answers to probes in flight, and steps that they caused.
    pub probing: u64,
    pub probed: u64,
    /// Records could not be written for a while.
    pub records_failed: bool,
    /// Containers whose preStop hook ran: (container, engine's life).
    pub pre_stopped: BTreeMap<String, u32>,
}

impl Parts {
    pub fn answers(&mut self, of: &str, answers: &[Answers]) {
        self.answers.insert(of.into(), answers.iter().copied().collect());
    }

    /// None: nothing is said of it.
    pub fn next(&mut self, of: &str) -> Option<Answers> {
        let turns = self.answers.get_mut(of)?;
        if turns.len() > 1 { turns.pop_front() } else { turns.front().copied() }
    }
}
