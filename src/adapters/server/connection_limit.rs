//! Which connection is closed for a new one. A new connection always gets in: a listener whose connections are all held by
//! clients that do not read, or do not write, stays usable.
//!
//! On a unix socket the kernel tells each client's user. A user other than root has a share of the connections and makes room
//! among its own; a part is kept free of all of them, for root.

use crate::adapters::server::MAX_CONNECTIONS;
use crate::api::time::Boot;
use std::time::Duration;

/// Connections of one user other than root.
pub const MAX_OF_A_USER: usize = 8;
/// Connections that only root may have.
pub const KEPT_FOR_ROOT: usize = 8;
/// A client that has taken or sent nothing for so long goes before one that has.
const STALE: Duration = Duration::from_secs(1);

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The user of a TCP client is not known.
    Tcp,
    User(u32),
}

impl Peer {
    pub fn is_limited(self) -> bool {
        matches!(self, Peer::User(user) if user != 0)
    }
}

/// What a connection is doing, from what is worth least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// Between two requests.
    Idle,
    /// Its last answer is written.
    Draining,
    /// A request is on its way.
    Reading,
    /// An answer is on its way.
    Answering,
    Watching,
    /// The answer was put off: a command runs, pods are being stopped.
    Pending,
}

/// A connection as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub slot: usize,
    pub peer: Peer,
    pub activity: Activity,
    /// When its client last took or sent something.
    pub progress: Boot,
}

impl Held {
    /// The least is closed first; of equal ones the one without progress for longest.
    fn worth(&self, now: Boot) -> (bool, Activity, Boot) {
        let stale = now.since(self.progress) >= STALE;
        // One that reads nothing must not outlast one that is about to ask.
        let held_up = stale && matches!(self.activity, Activity::Reading | Activity::Answering);
        let (on_its_way, activity) = match self.activity {
            Activity::Idle | Activity::Draining => (false, self.activity),
            _ if held_up => (false, Activity::Reading),
            _ => (true, self.activity),
        };
        (on_its_way, activity, self.progress)
    }
}

/// The slot whose connection is closed for a new one of `peer`, if one has to be. `held`: the connections of its listener.
pub fn victim(peer: Peer, held: &[Held], now: Boot) -> Option<usize> {
    let least = |of: &dyn Fn(&Held) -> bool| held.iter().filter(|h| of(h)).min_by_key(|h| h.worth(now)).map(|h| h.slot);
    let count = |of: &dyn Fn(&Held) -> bool| held.iter().filter(|h| of(h)).count();
    if peer.is_limited() {
        let own = |h: &Held| h.peer == peer;
        let limited = |h: &Held| h.peer.is_limited();
        if count(&own) >= MAX_OF_A_USER {
            return least(&own);
        }
        if count(&limited) >= MAX_CONNECTIONS - KEPT_FOR_ROOT {
            return least(&limited);
        }
    }
    if held.len() < MAX_CONNECTIONS {
        return None;
    }
    // A user other than root takes no place of root's while other users have one.
    let of_users = if peer.is_limited() { least(&|h: &Held| h.peer.is_limited()) } else { None };
    of_users.or_else(|| least(&|_| true))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Boot = Boot(100_000_000_000);

    fn held(peer: Peer, each: &[(Activity, u64)]) -> Vec<Held> {
        let one = |(slot, (activity, ago)): (usize, &(Activity, u64))| {
            let progress = Boot(NOW.0 - ago * 1_000_000_000);
            Held { slot, peer, activity: *activity, progress }
        };
        each.iter().enumerate().map(one).collect()
    }

    fn renumbered(lists: &[&[Held]]) -> Vec<Held> {
        lists.concat().into_iter().enumerate().map(|(slot, h)| Held { slot, ..h }).collect()
    }

    #[test]
    fn of_a_full_listener_the_one_worth_least_goes_whatever_it_does() {
        use Activity::{Answering, Draining, Idle, Pending, Reading, Watching};
        let full = |last: &[(Activity, u64)]| {
            let mut each = vec![(Pending, 9); MAX_CONNECTIONS - last.len()];
            each.extend(last);
            victim(Peer::Tcp, &held(Peer::Tcp, &each), NOW).map(|slot| slot + last.len() - MAX_CONNECTIONS)
        };
        assert_eq!(victim(Peer::Tcp, &held(Peer::Tcp, &[(Idle, 9); MAX_CONNECTIONS - 1]), NOW), None);
        assert_eq!(full(&[(Idle, 0), (Idle, 3), (Draining, 9)]), Some(1));
        assert_eq!(full(&[(Answering, 20), (Draining, 0), (Reading, 0)]), Some(1));
        assert_eq!(full(&[(Answering, 20), (Reading, 0), (Reading, 4)]), Some(0), "the one that is stuck for longest");
        assert_eq!(full(&[(Answering, 0), (Reading, 0), (Watching, 9)]), Some(1));
        assert_eq!(full(&[(Watching, 2), (Watching, 8), (Pending, 90)]), Some(1));
        let all = held(Peer::Tcp, &[(Answering, 0); MAX_CONNECTIONS]);
        assert_eq!(victim(Peer::Tcp, &all, NOW), Some(0), "also if all are being answered");
    }

    #[test]
    fn a_user_makes_room_among_its_own_and_never_shuts_out_root() {
        let (root, alice, bob, carol, dave) =
            (Peer::User(0), Peer::User(1000), Peer::User(1001), Peer::User(1002), Peer::User(1003));
        let of = |peer, n| held(peer, &vec![(Activity::Watching, 5); n]);
        let some = renumbered(&[&of(root, 3), &of(alice, MAX_OF_A_USER)]);
        assert_eq!(victim(alice, &some, NOW), Some(3), "its own, not root's, though root's are as old");
        assert_eq!(victim(bob, &some, NOW), None);
        assert_eq!(victim(root, &some, NOW), None);
        // Three users hold all that users may have: a fourth one takes from them, root has its own.
        let users = renumbered(&[&of(root, 2), &of(alice, 8), &of(bob, 8), &of(carol, 8)]);
        assert_eq!(victim(dave, &users, NOW), Some(2));
        assert_eq!(victim(root, &users, NOW), None);
        let full = renumbered(&[&held(root, &[(Activity::Pending, 9); 8]), &of(alice, 8), &of(bob, 8), &of(carol, 8)]);
        assert_eq!(full.len(), MAX_CONNECTIONS);
        assert_eq!(victim(root, &full, NOW), Some(8));
        assert_eq!(victim(root, &of(root, MAX_CONNECTIONS), NOW), Some(0));
    }
}
