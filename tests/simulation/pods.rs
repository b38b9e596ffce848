//! Hooks, probes and volumes of the model: their configured results and their state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use wherry::api::names::Uid;

/// The result of a hook or a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    Well(Duration),
    Badly(Duration),
    /// Runs until its deadline.
    Never,
    /// The outcome is unknown.
    Lost,
}

pub const WELL: Answers = Answers::Well(Duration::from_millis(2));
pub const BADLY: Answers = Answers::Badly(Duration::from_millis(2));

#[derive(Default)]
pub struct Parts {
    /// Results by `pod/container/PreStop`, `.../Liveness` and so on, used in order; the last one repeats.
    answers: BTreeMap<String, VecDeque<Answers>>,
    /// Pods with mounted volumes.
    pub mounted: BTreeSet<Uid>,
    /// The error of a mount; None: mounts succeed.
    pub mount_error: Option<String>,
    pub unmount_error: Option<String>,
    /// Probes that ran: (time, `web/main/Liveness`).
    pub probes: Vec<(u64, String)>,
    /// Probes in flight, and the engine steps that their answers caused.
    pub probing: u64,
    pub probed: u64,
    /// Writes of records failed at some time.
    pub records_failed: bool,
    /// Containers whose preStop hook ran, with the number of the engine's run.
    pub pre_stopped: BTreeMap<String, u32>,
}

impl Parts {
    pub fn answers(&mut self, of: &str, answers: &[Answers]) {
        self.answers.insert(of.into(), answers.iter().copied().collect());
    }

    /// The next result; None if none is configured.
    pub fn next(&mut self, of: &str) -> Option<Answers> {
        let turns = self.answers.get_mut(of)?;
        if turns.len() > 1 { turns.pop_front() } else { turns.front().copied() }
    }
}
