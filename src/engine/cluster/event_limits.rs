//! Limits for the events of this node, as in a Kubernetes client: events that differ only in their message are
//! combined from the tenth message on, until a pause of ten minutes, and one object sends at most 25 events at once
//! and then one every five minutes.
//!
//! Without these limits, an event whose message contains a time would create a new object on the server each time
//! that it occurs.

use crate::api::cluster::event_queue::{Entry, Subject};
use crate::api::time::Boot;
use serde::Serialize;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

/// From this number of different messages on, the events of a kind are combined.
const DISTINCT: usize = 10;
const INTERVAL: Duration = Duration::from_secs(600);
/// The number of events that one object may send in a burst.
const BURST: u32 = 25;
/// The time after which an object may send one more event.
const REFILL: Duration = Duration::from_secs(300);
/// How many kinds of events, and how many objects, are remembered. The least recently used ones are forgotten. A
/// Kubernetes client remembers 4096.
const REMEMBERED: usize = 512;

#[derive(Debug, Default, Serialize)]
pub struct EventLimits {
    /// The most recently used kind is the last.
    #[serde(skip)]
    kinds: Vec<Kind>,
    #[serde(skip)]
    objects: Vec<Object>,
    /// The number of events withheld since the start.
    pub withheld: u64,
}

/// Events that differ only in their message.
#[derive(Debug)]
struct Kind {
    of: Option<Subject>,
    reason: String,
    warning: bool,
    /// The digests of the messages.
    messages: BTreeSet<u64>,
    last: Boot,
}

#[derive(Debug)]
struct Object {
    /// The object, without the field path. None: the node.
    of: Option<Subject>,
    left: u32,
    /// The time at which `left` increases by one.
    refill: Boot,
}

impl EventLimits {
    /// Returns the event to post. None if its object sends too many events.
    pub fn admit(&mut self, mut entry: Entry, now: Boot) -> Option<Entry> {
        entry.combined = self.is_combined(&entry, now);
        if self.may_send(entry.pod.as_ref(), now) {
            return Some(entry);
        }
        self.withheld += 1;
        None
    }

    fn is_combined(&mut self, entry: &Entry, now: Boot) -> bool {
        let is_same =
            |kind: &Kind| kind.of == entry.pod && kind.reason == entry.reason && kind.warning == entry.warning;
        let new = || {
            let (of, reason) = (entry.pod.clone(), entry.reason.clone());
            Kind { of, reason, warning: entry.warning, messages: BTreeSet::new(), last: now }
        };
        let kind = newest(&mut self.kinds, is_same, new);
        if now.since(kind.last) > INTERVAL {
            kind.messages.clear();
        }
        kind.last = now;
        if kind.messages.len() < DISTINCT {
            kind.messages.insert(digest(&entry.message));
        }
        kind.messages.len() >= DISTINCT
    }

    fn may_send(&mut self, of: Option<&Subject>, now: Boot) -> bool {
        let of = of.map(|subject| Subject { field: None, ..subject.clone() });
        let new = || Object { of: of.clone(), left: BURST, refill: now + REFILL };
        let object = newest(&mut self.objects, |object| object.of == of, new);
        while object.refill <= now && object.left < BURST {
            object.left += 1;
            object.refill = object.refill + REFILL;
        }
        if object.left == BURST {
            object.refill = now + REFILL;
        }
        let may = object.left > 0;
        object.left = object.left.saturating_sub(1);
        may
    }
}

fn digest(message: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    hasher.finish()
}

/// Finds the element, or adds it, and makes it the newest.
fn newest<T>(all: &mut Vec<T>, is_same: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let found = match all.iter().rposition(is_same) {
        Some(at) => all.remove(at),
        None => new(),
    };
    if all.len() >= REMEMBERED {
        all.remove(0);
    }
    let at = all.len();
    all.push(found);
    &mut all[at]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::time::Wall;

    const S: u64 = 1_000_000_000;

    fn event(pod: u32, message: &str) -> Entry {
        let subject =
            Subject { namespace: "default".into(), name: format!("p{pod}"), uid: pod.to_string(), field: None };
        Entry::new(Some(subject), true, "Failed", message, Wall(0))
    }

    #[test]
    fn c9_similar_events_are_combined_from_the_tenth_on() {
        let mut limits = EventLimits::default();
        for n in 0..20 {
            let entry = limits.admit(event(1, &format!("failed at {n}")), Boot(n * S)).unwrap();
            assert_eq!(entry.combined, n >= 9, "{n}");
        }
        // Repetitions of one message are not combined, and neither are messages of another pod.
        for _ in 0..20 {
            assert!(!limits.admit(event(2, "failed"), Boot(20 * S)).unwrap().combined);
        }
        assert!(!limits.admit(event(1, "failed at last"), Boot(700 * S)).unwrap().combined, "after ten minutes");
    }

    #[test]
    fn c9_an_object_sends_25_events_and_then_one_each_five_minutes() {
        let mut limits = EventLimits::default();
        let mut sent = |pod, now: u64, events: u32| {
            (0..events).filter(|_| limits.admit(event(pod, "again"), Boot(now * S)).is_some()).count()
        };
        assert_eq!((sent(1, 0, 40), sent(2, 1, 40)), (25, 25));
        assert_eq!((sent(1, 299, 5), sent(1, 300, 5), sent(1, 301, 5)), (0, 1, 0));
        assert_eq!((sent(1, 1000, 5), sent(1, 100_000, 40)), (2, 25));
    }

    #[test]
    fn c9_the_memory_of_events_has_a_limit() {
        let mut limits = EventLimits::default();
        for n in 0..3000 {
            limits.admit(event(n, "a"), Boot(0));
        }
        assert_eq!((limits.kinds.len(), limits.objects.len()), (REMEMBERED, REMEMBERED));
    }
}
