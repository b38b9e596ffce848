//! The queue of future events of the world, in the order of their times. Events of the same time keep their order.

use super::Key;
use std::collections::BTreeMap;
use wherry::api::manifest_report::RecordUpdate;
use wherry::api::names::Uid;
use wherry::engine::effect::{LogindCall, RecordChange};
use wherry::engine::event::{Answer, Event};
use wherry::engine::op::{OpError, OpId};

/// An event of the world. `life` and the first part of a key are the run of the engine that caused it.
pub enum Item {
    /// A call takes effect in the runtime.
    Act {
        key: Key,
    },
    Answer {
        key: Key,
        result: Result<Answer, OpError>,
    },
    Deadline {
        key: Key,
    },
    Due {
        life: u32,
        at: u64,
    },
    /// A record is written.
    Record {
        key: Key,
        change: RecordChange,
    },
    /// The records of manifests are written.
    ManifestRecords {
        key: Key,
        updates: Vec<RecordUpdate>,
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
    /// The grace period of a stop is over.
    Kill {
        container: String,
        by: Key,
    },
    /// The late effect of a cancelled RunPodSandbox.
    LateCgroup {
        uid: Uid,
        attempt: u32,
    },
    /// A process that could not be killed can be killed again.
    Freed {
        container: String,
    },
    /// The runtime can be reached again.
    Up,
    /// The engine's process starts again.
    Start {
        life: u32,
    },
    /// The manifest directory was read.
    Manifests {
        life: u32,
    },
    /// The manifests that were being written at the start are complete.
    Written {
        life: u32,
    },
    /// Records can be written again.
    DiskWell,
    Pidfd {
        life: u32,
        id: String,
    },
    Logind {
        key: Key,
        call: LogindCall,
    },
    /// The maximum delay of a shutdown is over.
    LockDue {
        since: u64,
    },
    /// The cache of the API server catches up.
    CatchesUp,
    /// The time of a watch of the API server is over.
    WatchOver {
        life: u32,
        op: OpId,
    },
    /// A helper carries out the next change of kubectl, or the time of a client is over.
    Kubectl {
        life: u32,
    },
    /// An event for the engine.
    Event {
        life: u32,
        event: Event,
    },
}

/// By due time (ns) and serial number.
#[derive(Default)]
pub struct Queue {
    items: BTreeMap<(u64, u64), Item>,
    serial: u64,
}

impl Queue {
    pub fn push(&mut self, at: u64, item: Item) {
        self.serial += 1;
        self.items.insert((at, self.serial), item);
    }

    /// The due time of the next item.
    pub fn next(&self) -> Option<u64> {
        self.items.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next item that is due by `end`, with its time.
    pub fn pop(&mut self, end: u64) -> Option<(u64, Item)> {
        let next = self.items.first_entry().filter(|next| next.key().0 <= end)?;
        let ((at, _), item) = next.remove_entry();
        Some((at, item))
    }

    /// Moves some items by this time (ns).
    pub fn delay(&mut self, by: u64, which: impl Fn(&Item) -> bool) {
        for ((at, n), item) in std::mem::take(&mut self.items) {
            let at = if which(&item) { at + by } else { at };
            self.items.insert((at, n), item);
        }
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&Item) -> bool) {
        self.items.retain(|_, item| keep(item));
    }
}
