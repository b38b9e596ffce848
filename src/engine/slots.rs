//! Limits on calls that are in flight at the same time, so that a busy node does not overload the runtime.
//!
//! A limit must not let one slow pod delay another. A call therefore holds its slot only for a limited time, the
//! *patience* of its class. A call without an answer by then *hangs*: it continues, but its slot goes to the next pod
//! in the queue. The next call of a pod whose last call hung holds its slot for a fifth of that time, so that many
//! hanging pods do not fill the queue. The number of hanging calls is bounded as well; otherwise a runtime that never
//! answers would receive calls forever.
//!
//! Sandboxes, containers and pulls have separate queues: a container whose sandbox is ready does not wait for the
//! network set-up of other pods.

use crate::api::names::Uid;
use crate::api::time::Boot;
use crate::engine::config::EngineConfig;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Sandboxes and containers start in well under a second, or in a few seconds on a slow machine.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// containerd ends a pull without progress after 5 minutes. A slow pull keeps its slot until then.
const PULL_PATIENCE: Duration = Duration::from_secs(300);
/// A status read takes milliseconds.
pub const READ_PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of calls in flight, hanging ones included, as a multiple of the limit.
const HANGING: usize = 16;
/// After a call has hung, the patience for the next call of the same pod is divided by this.
const SUSPECT: u32 = 5;

/// The calls of one class that are in flight, at most one for each pod.
#[derive(Debug, Serialize)]
pub struct InFlight {
    limit: usize,
    patience: Duration,
    /// The pods that hold a slot, and the time when the patience for their call ends.
    held: BTreeMap<Uid, Boot>,
    hanging: BTreeSet<Uid>,
    /// Pods whose last call hung.
    suspects: BTreeSet<Uid>,
}

impl InFlight {
    pub fn new(limit: usize, patience: Duration) -> InFlight {
        InFlight {
            limit: limit.max(1),
            patience,
            held: BTreeMap::new(),
            hanging: BTreeSet::new(),
            suspects: BTreeSet::new(),
        }
    }

    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
    }

    /// Takes the slots from hanging calls if all slots are held.
    fn expire(&mut self, now: Boot) {
        while self.held.len() >= self.limit
            && let Some((_, uid)) = self.first().filter(|(until, _)| *until <= now)
        {
            let uid = uid.clone();
            self.held.remove(&uid);
            self.suspects.insert(uid.clone());
            self.hanging.insert(uid);
        }
    }

    /// Returns the held slot whose patience ends first.
    fn first(&self) -> Option<(Boot, &Uid)> {
        self.held.iter().map(|(uid, until)| (*until, uid)).min()
    }

    /// Returns true if another call may start.
    pub fn has_room(&mut self, now: Boot) -> bool {
        self.expire(now);
        self.held.len() < self.limit && self.is_below_ceiling()
    }

    fn is_below_ceiling(&self) -> bool {
        self.held.len() + self.hanging.len() < self.limit.saturating_mul(HANGING)
    }

    pub fn begin(&mut self, uid: &Uid, now: Boot) {
        self.hanging.remove(uid);
        let shorter = if self.suspects.contains(uid) { SUSPECT } else { 1 };
        self.held.insert(uid.clone(), now + self.patience / shorter);
    }

    /// Ends the call of this pod.
    pub fn end(&mut self, uid: &Uid) {
        if self.held.remove(uid).is_some() {
            self.suspects.remove(uid);
        }
        self.hanging.remove(uid);
    }

    /// Removes all state of the pod.
    pub fn forget(&mut self, uid: &Uid) {
        self.end(uid);
        self.suspects.remove(uid);
    }

    /// Returns the time at which the end of a call's patience frees a slot. None if a slot is free already, or if
    /// only the end of a call can free one.
    pub fn frees_at(&self) -> Option<Boot> {
        let full = self.held.len() >= self.limit && self.is_below_ceiling();
        full.then(|| self.first()).flatten().map(|(until, _)| until)
    }
}

/// The slots of one class, at most one for each pod. Pods without a slot queue, first come, first served. Looking up
/// a pod's place does not scan the queue.
#[derive(Debug, Serialize)]
pub struct Slots {
    in_flight: InFlight,
    /// By ticket number.
    queue: BTreeMap<u64, Uid>,
    places: BTreeMap<Uid, u64>,
    drawn: u64,
}

impl Slots {
    pub fn new(limit: usize, patience: Duration) -> Slots {
        let in_flight = InFlight::new(limit, patience);
        Slots { in_flight, queue: BTreeMap::new(), places: BTreeMap::new(), drawn: 0 }
    }

    /// Returns true if the pod may make its next call now. Otherwise the pod is in the queue until `grant` returns
    /// it. If all slots are held, hanging calls lose their slots first.
    pub fn take(&mut self, uid: &Uid, now: Boot) -> bool {
        self.in_flight.expire(now);
        if self.in_flight.held.contains_key(uid) {
            return true;
        }
        // The pod makes another call, so its hanging call has ended.
        self.in_flight.hanging.remove(uid);
        let first = self.queue.first_key_value().is_none_or(|(_, first)| first == uid);
        if first && self.in_flight.has_room(now) {
            self.leave(uid);
            self.in_flight.begin(uid, now);
            return true;
        }
        if !self.places.contains_key(uid) {
            self.drawn += 1;
            self.queue.insert(self.drawn, uid.clone());
            self.places.insert(uid.clone(), self.drawn);
        }
        false
    }

    pub fn waits(&self, uid: &Uid) -> bool {
        self.places.contains_key(uid)
    }

    /// Gives back the slot, or the place in the queue.
    pub fn leave(&mut self, uid: &Uid) {
        self.release(uid);
        if let Some(place) = self.places.remove(uid) {
            self.queue.remove(&place);
        }
    }

    /// Gives back the slot: no call is in flight.
    pub fn release(&mut self, uid: &Uid) {
        self.in_flight.end(uid);
    }

    /// Returns the number of pods ahead of this one in the queue; None if it does not wait.
    pub fn ahead_of(&self, uid: &Uid) -> Option<usize> {
        self.queue.values().position(|u| u == uid)
    }

    /// Gives a free slot to the first pod in the queue. The caller steps this pod now.
    fn grant(&mut self, now: Boot) -> Option<Uid> {
        if self.queue.is_empty() || !self.in_flight.has_room(now) {
            return None;
        }
        let (_, uid) = self.queue.pop_first()?;
        self.places.remove(&uid);
        self.in_flight.begin(&uid, now);
        Some(uid)
    }

    fn grants_at(&self) -> Option<Boot> {
        self.in_flight.frees_at().filter(|_| !self.queue.is_empty())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The pod's directories, cgroup and sandbox.
    Sandbox,
    /// A container in a sandbox that is ready.
    Container,
    Pull,
}

/// The slots for pods that start something.
#[derive(Debug, Serialize)]
pub struct StartSlots {
    pub sandboxes: Slots,
    pub containers: Slots,
    pub pulls: Slots,
}

impl StartSlots {
    pub fn new(config: &EngineConfig) -> StartSlots {
        StartSlots {
            sandboxes: Slots::new(config.parallel_sandboxes, START_PATIENCE),
            containers: Slots::new(config.parallel_containers, START_PATIENCE),
            pulls: Slots::new(config.parallel_pulls, PULL_PATIENCE),
        }
    }

    pub fn configure(&mut self, config: &EngineConfig) {
        self.sandboxes.in_flight.set_limit(config.parallel_sandboxes);
        self.containers.in_flight.set_limit(config.parallel_containers);
        self.pulls.in_flight.set_limit(config.parallel_pulls);
    }

    /// Releases all slots of the pod except that of `class`.
    pub fn release_others(&mut self, uid: &Uid, class: Option<Class>) {
        for (of, slots) in self.all_mut() {
            if Some(of) != class {
                slots.release(uid);
            }
        }
    }

    /// Releases the pod's slots and removes the pod from all queues.
    pub fn leave(&mut self, uid: &Uid) {
        self.all_mut().into_iter().for_each(|(_, slots)| slots.leave(uid));
    }

    /// Removes all state of the pod.
    pub fn forget(&mut self, uid: &Uid) {
        self.leave(uid);
        self.all_mut().into_iter().for_each(|(_, slots)| slots.in_flight.forget(uid));
    }

    pub fn waits(&self, uid: &Uid) -> bool {
        self.all().into_iter().any(|slots| slots.waits(uid))
    }

    /// Gives one free slot to the first pod in its queue. The caller steps this pod now.
    pub fn grant(&mut self, now: Boot) -> Option<Uid> {
        self.all_mut().into_iter().find_map(|(_, slots)| slots.grant(now))
    }

    /// Returns the time at which a waiting pod gets the slot of a hanging call.
    pub fn next_deadline(&self) -> Option<Boot> {
        self.all().into_iter().filter_map(Slots::grants_at).min()
    }

    fn all(&self) -> [&Slots; 3] {
        [&self.sandboxes, &self.containers, &self.pulls]
    }

    fn all_mut(&mut self) -> [(Class, &mut Slots); 3] {
        let StartSlots { sandboxes, containers, pulls, .. } = self;
        [(Class::Sandbox, sandboxes), (Class::Container, containers), (Class::Pull, pulls)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn uid(n: usize) -> Uid {
        Uid::from(format!("p{n:03}").as_str())
    }

    fn at(seconds: u64) -> Boot {
        Boot(0) + S * seconds as u32
    }

    #[test]
    fn w9_slots_are_granted_first_come_first_served() {
        let mut slots = Slots::new(1, 10 * S);
        let order = [5, 3, 9, 1];
        let took: Vec<bool> = order.iter().map(|n| slots.take(&uid(*n), at(0))).collect();
        assert_eq!(took, [true, false, false, false]);
        assert_eq!(
            (slots.ahead_of(&uid(3)), slots.ahead_of(&uid(1)), slots.ahead_of(&uid(5))),
            (Some(0), Some(2), None)
        );
        // A repeated request does not change a pod's place in the queue, and a newcomer does not overtake.
        assert!(!slots.take(&uid(1), at(1)) && !slots.take(&uid(0), at(1)));
        for n in [3, 9, 1, 0] {
            assert_eq!(slots.grant(at(2)), None);
            slots.in_flight.held.keys().cloned().collect::<Vec<_>>().iter().for_each(|u| slots.release(u));
            assert_eq!(slots.grant(at(2)), Some(uid(n)));
            assert!(slots.take(&uid(n), at(2)));
        }
    }

    #[test]
    fn w9_a_call_that_hangs_gives_its_slot_back_and_the_number_of_those_is_bounded() {
        let mut slots = Slots::new(2, 10 * S);
        assert!(slots.take(&uid(0), at(0)) && slots.take(&uid(1), at(1)));
        (2..100).for_each(|n| assert!(!slots.take(&uid(n), at(1))));
        assert_eq!((slots.grant(at(9)), slots.grants_at()), (None, Some(at(10))));
        assert_eq!((slots.grant(at(10)), slots.grant(at(10)), slots.grants_at()), (Some(uid(2)), None, Some(at(11))));
        let granted = (11..1000).flat_map(|s| slots.grant(at(s))).count();
        // 32 in total: 3 held their slots before.
        assert_eq!((granted, slots.grants_at()), (29, None));
        // The end of a call lets one more start.
        slots.release(&uid(0));
        assert_eq!((slots.grant(at(1000)), slots.grant(at(1000))), (Some(uid(32)), None));
    }

    #[test]
    fn w9_a_pod_that_used_up_its_time_queues_for_its_next_call_and_has_less_of_it() {
        let mut slots = Slots::new(1, 10 * S);
        assert!(slots.take(&uid(0), at(0)));
        assert!(!slots.take(&uid(1), at(1)));
        assert_eq!(slots.grant(at(10)), Some(uid(1)));
        assert!(!slots.take(&uid(0), at(11)), "its call ended, and it makes another one");
        slots.release(&uid(1));
        assert_eq!(slots.grant(at(12)), Some(uid(0)));
        assert!(!slots.take(&uid(1), at(12)));
        assert_eq!(slots.grants_at(), Some(at(14)));
        // A call that ends in time restores the full patience.
        slots.release(&uid(0));
        assert_eq!(slots.grant(at(13)), Some(uid(1)));
        slots.release(&uid(1));
        assert!(slots.take(&uid(0), at(13)) && !slots.take(&uid(1), at(13)));
        assert_eq!(slots.grants_at(), Some(at(23)));
    }

    #[test]
    fn no_state_remains_of_a_forgotten_pod() {
        let mut slots = StartSlots::new(&EngineConfig { parallel_sandboxes: 1, ..EngineConfig::default() });
        assert!(slots.sandboxes.take(&uid(0), at(0)) && !slots.sandboxes.take(&uid(1), at(0)));
        assert_eq!(slots.grant(at(5)), Some(uid(1)));
        (0..2).for_each(|n| slots.forget(&uid(n)));
        let InFlight { held, hanging, suspects, .. } = &slots.sandboxes.in_flight;
        assert_eq!((held.len(), hanging.len(), suspects.len()), (0, 0, 0));
    }

    #[test]
    fn no_limit_is_a_limit_that_is_never_reached() {
        let mut slots = Slots::new(usize::MAX, 10 * S);
        (0..1000).for_each(|n| assert!(slots.take(&uid(n), at(0))));
        assert_eq!(slots.grants_at(), None);
    }
}
