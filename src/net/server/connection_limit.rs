//! Chooses the connection that is closed to make room for a new one. A new connection is always accepted, so a listener
//! stays usable even if clients that neither read nor write hold all its connections.
//!
//! On a unix socket the kernel reports the user of each client. Each user other than root has a limited number of
//! connections; beyond it, a new one replaces an older one of the same user. Some connections are reserved for root.

use crate::api::time::Boot;
use crate::net::stream::Peer;
use std::time::Duration;

/// The maximum number of connections of one user other than root.
pub const MAX_OF_A_USER: usize = 8;
/// The number of connections reserved for root.
pub const KEPT_FOR_ROOT: usize = 8;
/// A connection without progress for this time is closed before one with progress.
const STALE: Duration = Duration::from_secs(1);

/// Reports whether the peer is a user other than root, whose connections and watches are limited.
pub fn is_limited(peer: Peer) -> bool {
    matches!(peer, Peer::User(user) if user != 0)
}

/// What a connection is doing, from the least to the most worth keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// Between two requests.
    Idle,
    /// The last answer is written, and the rest of the input is discarded.
    Draining,
    /// Reading a request.
    Reading,
    /// Writing an answer.
    Answering,
    Watching,
    /// The answer is deferred: a command is running, or pods are being stopped.
    Pending,
    /// A user works in a container.
    Session,
}

/// The properties of a connection that this decision needs.
#[derive(Clone, Copy, Debug)]
pub struct HeldConnection {
    pub slot: usize,
    pub peer: Peer,
    pub activity: Activity,
    /// The last time at which the client sent or accepted data.
    pub progress: Boot,
}

impl HeldConnection {
    /// Returns the sort key: the connection with the smallest key is closed first. Among equal activities, that is
    /// the one whose last progress is oldest.
    fn worth(&self, now: Boot) -> (bool, Activity, Boot) {
        let stale = now.since(self.progress) >= STALE;
        // A client that reads nothing must not outlast a client that is about to send its request.
        let held_up = stale && matches!(self.activity, Activity::Reading | Activity::Answering);
        let (on_its_way, activity) = match self.activity {
            Activity::Idle | Activity::Draining => (false, self.activity),
            _ if held_up => (false, Activity::Reading),
            _ => (true, self.activity),
        };
        (on_its_way, activity, self.progress)
    }
}

/// Returns the slot of the connection to close for a new connection of `peer`; None if that is not necessary. `held`
/// contains the connections of the listener, and `room` the maximum number of them.
pub fn victim(peer: Peer, held: &[HeldConnection], room: usize, now: Boot) -> Option<usize> {
    let least = |of: &dyn Fn(&HeldConnection) -> bool| {
        held.iter().filter(|h| of(h)).min_by_key(|h| h.worth(now)).map(|h| h.slot)
    };
    let count = |of: &dyn Fn(&HeldConnection) -> bool| held.iter().filter(|h| of(h)).count();
    if is_limited(peer) {
        let own = |h: &HeldConnection| h.peer == peer;
        let limited = |h: &HeldConnection| is_limited(h.peer);
        if count(&own) >= MAX_OF_A_USER {
            return least(&own);
        }
        if count(&limited) >= room.saturating_sub(KEPT_FOR_ROOT) {
            return least(&limited);
        }
    }
    if held.len() < room {
        return None;
    }
    // A new connection of a limited user closes one of root only if there is no other.
    let of_users = if is_limited(peer) { least(&|h: &HeldConnection| is_limited(h.peer)) } else { None };
    of_users.or_else(|| least(&|_| true))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Boot = Boot(100_000_000_000);
    const MAX_CONNECTIONS: usize = 32;

    fn held(peer: Peer, each: &[(Activity, u64)]) -> Vec<HeldConnection> {
        let one = |(slot, (activity, ago)): (usize, &(Activity, u64))| {
            let progress = Boot(NOW.0 - ago * 1_000_000_000);
            HeldConnection { slot, peer, activity: *activity, progress }
        };
        each.iter().enumerate().map(one).collect()
    }

    fn renumbered(lists: &[&[HeldConnection]]) -> Vec<HeldConnection> {
        lists.concat().into_iter().enumerate().map(|(slot, h)| HeldConnection { slot, ..h }).collect()
    }

    #[test]
    fn a_full_listener_closes_its_least_important_connection() {
        use Activity::{Answering, Draining, Idle, Pending, Reading, Watching};
        let full = |last: &[(Activity, u64)]| {
            let mut each = vec![(Pending, 9); MAX_CONNECTIONS - last.len()];
            each.extend(last);
            victim(Peer::Tcp, &held(Peer::Tcp, &each), MAX_CONNECTIONS, NOW)
                .map(|slot| slot + last.len() - MAX_CONNECTIONS)
        };
        assert_eq!(victim(Peer::Tcp, &held(Peer::Tcp, &[(Idle, 9); MAX_CONNECTIONS - 1]), MAX_CONNECTIONS, NOW), None);
        assert_eq!(full(&[(Idle, 0), (Idle, 3), (Draining, 9)]), Some(1));
        assert_eq!(full(&[(Answering, 20), (Draining, 0), (Reading, 0)]), Some(1));
        assert_eq!(
            full(&[(Answering, 20), (Reading, 0), (Reading, 4)]),
            Some(0),
            "the connection without progress for the longest time"
        );
        assert_eq!(full(&[(Answering, 0), (Reading, 0), (Watching, 9)]), Some(1));
        assert_eq!(full(&[(Watching, 2), (Watching, 8), (Pending, 90)]), Some(1));
        let all = held(Peer::Tcp, &[(Answering, 0); MAX_CONNECTIONS]);
        assert_eq!(victim(Peer::Tcp, &all, MAX_CONNECTIONS, NOW), Some(0), "even if all are writing an answer");
    }

    #[test]
    fn a_user_at_its_limit_loses_its_own_connection_and_never_one_of_root() {
        let (root, alice, bob, carol, dave) =
            (Peer::User(0), Peer::User(1000), Peer::User(1001), Peer::User(1002), Peer::User(1003));
        let of = |peer, n| held(peer, &vec![(Activity::Watching, 5); n]);
        let some = renumbered(&[&of(root, 3), &of(alice, MAX_OF_A_USER)]);
        assert_eq!(
            victim(alice, &some, MAX_CONNECTIONS, NOW),
            Some(3),
            "its own connection, not one of root of the same age"
        );
        assert_eq!(victim(bob, &some, MAX_CONNECTIONS, NOW), None);
        assert_eq!(victim(root, &some, MAX_CONNECTIONS, NOW), None);
        // Three users hold all connections that users may have. A connection of a fourth user replaces one of them;
        // root has its own and replaces none.
        let users = renumbered(&[&of(root, 2), &of(alice, 8), &of(bob, 8), &of(carol, 8)]);
        assert_eq!(victim(dave, &users, MAX_CONNECTIONS, NOW), Some(2));
        assert_eq!(victim(root, &users, MAX_CONNECTIONS, NOW), None);
        let full = renumbered(&[&held(root, &[(Activity::Pending, 9); 8]), &of(alice, 8), &of(bob, 8), &of(carol, 8)]);
        assert_eq!(full.len(), MAX_CONNECTIONS);
        assert_eq!(victim(root, &full, MAX_CONNECTIONS, NOW), Some(8));
        assert_eq!(victim(root, &of(root, MAX_CONNECTIONS), MAX_CONNECTIONS, NOW), Some(0));
    }
}
