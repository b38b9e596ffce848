//! Which workers have to be stepped: those that an event or a step concerns, and those whose deadline has passed.

use crate::api::names::Uid;
use crate::api::time::Boot;
use crate::engine::timers::Timers;
use serde::Serialize;
use std::collections::BTreeSet;

#[derive(Debug, Default, Serialize)]
pub(super) struct Steps {
    dirty: BTreeSet<Uid>,
    /// When the workers must be stepped without an event.
    pod_deadlines: Timers<Uid>,
}

impl Steps {
    /// Marks the worker to be stepped, because something has happened that concerns it.
    pub fn touch(&mut self, uid: Uid) {
        self.dirty.insert(uid);
    }

    pub fn touch_all(&mut self, uids: impl IntoIterator<Item = Uid>) {
        self.dirty.extend(uids);
    }

    /// Marks the workers whose deadline has passed.
    pub fn touch_due(&mut self, now: Boot) {
        self.dirty.extend(self.pod_deadlines.expired(now));
    }

    /// Takes the next worker that has to be stepped.
    pub fn take_next(&mut self) -> Option<Uid> {
        self.dirty.pop_first()
    }

    /// Notes that the worker was stepped. `next` is the time at which it is due without an event.
    pub fn stepped(&mut self, uid: &Uid, next: Option<Boot>) {
        self.pod_deadlines.change(uid, next);
    }

    /// Makes the worker due at this time without an event, instead of at its own time.
    pub fn due_at(&mut self, uid: &Uid, at: Boot) {
        self.pod_deadlines.change(uid, Some(at));
    }

    /// Drops the deadline of a worker that is gone.
    pub fn forget(&mut self, uid: &Uid) {
        self.pod_deadlines.clear(uid);
    }

    /// Returns the earliest deadline of all workers.
    pub fn next_deadline(&self) -> Option<Boot> {
        self.pod_deadlines.next()
    }

    pub fn deadlines(&self) -> impl Iterator<Item = (&Uid, Boot)> {
        self.pod_deadlines.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_stepped_once_for_several_reasons_and_again_at_its_time() {
        let (a, b) = (Uid::from("a"), Uid::from("b"));
        let mut steps = Steps::default();
        steps.touch(b.clone());
        steps.touch_all([a.clone(), b.clone()]);
        assert_eq!((steps.take_next(), steps.take_next(), steps.take_next()), (Some(a.clone()), Some(b.clone()), None));
        steps.stepped(&a, Some(Boot(5)));
        steps.stepped(&b, Some(Boot(3)));
        steps.forget(&b);
        assert_eq!(steps.next_deadline(), Some(Boot(5)));
        steps.touch_due(Boot(4));
        assert_eq!(steps.take_next(), None);
        steps.touch_due(Boot(5));
        assert_eq!((steps.take_next(), steps.next_deadline()), (Some(a), None));
    }
}
