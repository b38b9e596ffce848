//! Kills by others than who desires pods, and their release (W5, W6, W27). What comes before the sources were read (D1) waits
//! for that: the pods of before have no workers yet.

use super::Engine;
use crate::api::names::Uid;
use crate::engine::effect::Effect;
use crate::engine::pod::kill::{Kill, KillId, Killer};
use serde::Serialize;

/// A request from before the sources were read.
#[derive(Debug, Serialize)]
pub enum Early {
    Kill(KillId, Uid, Kill),
    Release(Killer, Option<Vec<Uid>>),
}

impl Engine {
    pub(super) fn kill(&mut self, id: KillId, uid: Uid, kill: Kill) {
        if !self.sources_ready {
            return self.early.push(Early::Kill(id, uid, kill));
        }
        if !self.workers.contains_key(&uid) {
            // Nothing of it runs; an orphan is stopped anyway.
            return self.out.push(Effect::Killed { id });
        }
        self.with_worker(&uid, |worker, entry, ctx| worker.kill_for(Some(id), &kill, entry, ctx));
        self.dirty.insert(uid);
    }

    pub(super) fn release(&mut self, by: Killer, uids: Option<Vec<Uid>>) {
        if !self.sources_ready {
            return self.early.push(Early::Release(by, uids));
        }
        for uid in uids.unwrap_or_else(|| self.workers.keys().cloned().collect()) {
            self.with_worker(&uid, |worker, _, ctx| worker.release(by, ctx));
            self.dirty.insert(uid);
        }
    }

    /// The sources were read.
    pub(super) fn take_early(&mut self) {
        for request in std::mem::take(&mut self.early) {
            match request {
                Early::Kill(id, uid, kill) => self.kill(id, uid, kill),
                Early::Release(by, uids) => self.release(by, uids),
            }
        }
    }
}
