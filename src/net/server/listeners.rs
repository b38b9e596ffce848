//! The listeners of a server: the limits for their clients, and the slots and tokens that belong to each.

use crate::net::server::connection_limit;
use crate::net::stream::Peer;
use mio::Token;
use std::ops::Range;
use std::time::Duration;

/// The index of a listener in the server's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerId(pub usize);

/// The properties of a listener, and the limits for its clients.
#[derive(Debug)]
pub struct ListenerRules {
    /// The name of the listener, for the log.
    pub name: &'static str,
    /// The field of the configuration with its address, for the log.
    pub field: &'static str,
    /// The maximum number of connections. A new one closes the least useful one (`connection_limit`).
    pub connections: usize,
    /// Whether its connections use TLS.
    pub is_secure: bool,
    /// The maximum number of bodies that wait for changes. The other connections remain for single requests.
    pub watches: usize,
    /// The number of these watches that are reserved for root.
    pub watches_of_root: usize,
    /// The maximum time from the start of a streamed body to its end, unless it waits for changes.
    pub stream_timeout: Duration,
    /// The maximum time without a successful write of a response.
    pub stall_timeout: Duration,
    /// The same for a body that waits for changes. None means no limit: such a body costs nothing, and its end is
    /// always noticed.
    pub watch_stall_timeout: Option<Duration>,
    /// How much further input of a refused client is discarded, in bytes, and for how long. Closing a socket with
    /// unread input sends a reset, and the client would lose the response.
    pub drain: (usize, Duration),
}

/// The table of a server's listeners. Those with TLS are last: only a limited number of their connections is served in
/// one turn.
pub type Table = &'static [ListenerRules];

/// Returns the number of tokens of a server with these listeners: one for each listener, and two for each connection.
pub const fn tokens(table: Table) -> usize {
    table.len() + 2 * all_slots(table)
}

pub(super) const fn all_slots(table: Table) -> usize {
    let (mut sum, mut index) = (0, 0);
    while index < table.len() {
        sum += table[index].connections;
        index += 1;
    }
    sum
}

/// Returns the connection slots of a listener.
pub(super) fn slots(table: Table, ListenerId(index): ListenerId) -> Range<usize> {
    let begin = table.iter().take(index).map(|rules| rules.connections).sum();
    begin..begin + table.get(index).map_or(0, |rules| rules.connections)
}

/// Returns the first slot of the listeners with TLS.
pub(super) fn first_secure_slot(table: Table) -> usize {
    table.iter().take_while(|rules| !rules.is_secure).map(|rules| rules.connections).sum()
}

/// Returns the listener of a token, and whether the token belongs to one of its connections. None if the token is not
/// one of the server's tokens, which begin at `first`.
pub fn owner(table: Table, first: usize, token: Token) -> Option<(ListenerId, bool)> {
    match token.0.checked_sub(first)? {
        index if index < table.len() => Some((ListenerId(index), false)),
        index if index < tokens(table) => {
            let slot = (index - table.len()) % all_slots(table);
            let mut all = (0..table.len()).map(ListenerId);
            Some((all.find(|listener| slots(table, *listener).contains(&slot))?, true))
        }
        _ => None,
    }
}

impl ListenerRules {
    /// Returns the maximum number of watches for this client.
    pub(super) fn watches_for(&self, peer: Peer) -> usize {
        self.watches - if connection_limit::is_limited(peer) { self.watches_of_root } else { 0 }
    }
}
