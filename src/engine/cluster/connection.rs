//! The connection of a node to the API server of its cluster, as `wherry status` and the metrics show it.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection<'e> {
    pub state: ConnectionState<'e>,
    /// The number of events that the server does not have yet (C9).
    pub waiting_events: usize,
    /// The number of events dropped from the full queue since the start.
    pub lost_events: u64,
    /// Another machine acts as this node (C13).
    pub is_shared: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionState<'e> {
    /// The node is registered with the server.
    Registered,
    /// The server has not answered yet, or does not accept the node.
    Unregistered,
    /// `duration`: how long the server has been away, but at most the time since the start. `why`: the error of the
    /// last attempt.
    Away { duration: Duration, why: &'e str },
}
