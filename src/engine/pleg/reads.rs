//! Status reads: which pods have a due read, and how many reads run in parallel (P3).

use crate::api::names::Uid;
use crate::api::time::Boot;
use crate::engine::effect::RuntimeCall;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::pleg::cache::{Cache, Entry, StepTime};
use crate::engine::slots::{InFlight, READ_PATIENCE};
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug, Serialize)]
pub struct Reads {
    in_flight: InFlight,
    /// Pods with a due status read, first come first served.
    due: VecDeque<Uid>,
}

impl Reads {
    pub fn new(limit: usize) -> Reads {
        Reads { in_flight: InFlight::new(limit, READ_PATIENCE), due: VecDeque::new() }
    }

    pub fn set_limit(&mut self, limit: usize) {
        self.in_flight.set_limit(limit);
    }

    /// Queues the status read of this pod, if one is due.
    pub fn queue(&mut self, uid: &Uid, entry: &mut Entry) {
        if entry.error.is_none() && entry.queue() {
            self.due.push_back(uid.clone());
        }
    }

    /// Starts the due reads, up to the limit. `has_begun`: the worker of the pod exists and wants its status.
    pub fn begin(
        &mut self,
        cache: &mut Cache,
        has_begun: impl Fn(&Uid) -> bool,
        step: StepTime,
        timeout: Duration,
        outbox: &mut Outbox,
    ) {
        let (generation, now) = step;
        while self.in_flight.has_room(now) {
            let Some(uid) = self.due.pop_front() else { return };
            let Some(entry) = cache.get_mut(&uid) else { continue };
            entry.unqueue();
            if !entry.read_due() || entry.error.is_some() || !has_begun(&uid) {
                continue;
            }
            self.in_flight.begin(&uid, now);
            let op = outbox.call_runtime(Owner::Read(uid.clone()), RuntimeCall::ReadPod { uid }, timeout);
            entry.read_began(op, generation, now);
        }
    }

    /// Notes that the read of this pod has ended.
    pub fn ended(&mut self, uid: &Uid) {
        self.in_flight.end(uid);
    }

    pub fn forget(&mut self, uid: &Uid) {
        self.in_flight.forget(uid);
    }

    /// Returns when a due read can start even if no read in flight ends, because hanging reads lose their slots.
    pub fn begins_at(&self) -> Option<Boot> {
        self.in_flight.frees_at().filter(|_| !self.due.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts the due reads, and returns their number.
    fn begin(reads: &mut Reads, cache: &mut Cache, now: Boot) -> usize {
        let mut outbox = Outbox::default();
        reads.begin(cache, |uid| uid.as_str() != "waits", (1, now), Duration::from_secs(120), &mut outbox);
        outbox.take().len()
    }

    #[test]
    fn p3_reads_run_in_parallel_up_to_the_limit_and_a_hanging_one_gives_its_slot_away() {
        let (mut reads, mut cache) = (Reads::new(2), Cache::new());
        for name in ["waits", "a", "b", "c"] {
            reads.queue(&name.into(), cache.entry(name.into()).or_default());
            reads.queue(&name.into(), cache.entry(name.into()).or_default());
        }
        assert_eq!(begin(&mut reads, &mut cache, Boot(0)), 2, "the worker of the first pod has not begun");
        let at = reads.begins_at();
        assert_eq!(at, Some(Boot(0) + READ_PATIENCE));
        assert_eq!(begin(&mut reads, &mut cache, Boot(0) + READ_PATIENCE), 1);
        assert_eq!(reads.begins_at(), None);
    }
}
