//! The requests that the API server receives from all nodes.

use crate::world::MS;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Lease,
    NodeRead,
    NodeStatus,
    List,
    Watch,
    Token,
    PodStatus,
    Event,
    Other,
}

impl Kind {
    pub const ALL: [Kind; 9] = [
        Kind::Lease,
        Kind::NodeRead,
        Kind::NodeStatus,
        Kind::List,
        Kind::Watch,
        Kind::Token,
        Kind::PodStatus,
        Kind::Event,
        Kind::Other,
    ];
}

/// The kind of a request: `PATCH /api/v1/nodes/node-7/status?timeout=10s`.
fn kind(request: &str) -> Kind {
    let (method, path) = request.split_once(' ').unwrap_or_default();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    match method {
        "GET" if query.contains("watch=true") => Kind::Watch,
        "GET" if path.starts_with("/api/v1/nodes/") => Kind::NodeRead,
        "GET" => Kind::List,
        _ if path.contains("/leases") => Kind::Lease,
        _ if path.starts_with("/api/v1/nodes") => Kind::NodeStatus,
        _ if path.ends_with("/token") => Kind::Token,
        _ if path.contains("/events") => Kind::Event,
        _ if path.ends_with("/status") => Kind::PodStatus,
        _ => Kind::Other,
    }
}

/// The requests of each node, with their times (ns).
pub struct Load {
    nodes: Vec<Vec<(u64, Kind)>>,
}

impl Load {
    pub fn of(nodes: impl Iterator<Item = Vec<(u64, String)>>) -> Load {
        let of_node = |requests: Vec<(u64, String)>| requests.into_iter().map(|(at, text)| (at, kind(&text))).collect();
        Load { nodes: nodes.map(of_node).collect() }
    }

    /// The least, the mean and the greatest number of requests of this kind of a node.
    pub fn per_node(&self, of: Kind) -> (usize, f64, usize) {
        let counts = self.nodes.iter().map(|all| all.iter().filter(|(_, kind)| *kind == of).count());
        let counts: Vec<usize> = counts.collect();
        let (least, most) = (counts.iter().min(), counts.iter().max());
        let mean = counts.iter().sum::<usize>() as f64 / counts.len().max(1) as f64;
        (least.copied().unwrap_or(0), mean, most.copied().unwrap_or(0))
    }

    pub fn total(&self) -> usize {
        self.nodes.iter().map(Vec::len).sum()
    }

    /// The greatest number of requests of a node.
    pub fn most_of_a_node(&self) -> usize {
        self.nodes.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The greatest number of requests of all nodes in one period (ns).
    pub fn most_in(&self, period: u64) -> usize {
        greatest(self.nodes.iter().flatten().map(|(at, _)| *at), period)
    }

    /// For each node, the time (ns) from this moment to its first request of one of these kinds.
    pub fn first(&self, since: u64, kinds: &[Kind]) -> Vec<Option<u64>> {
        let of_node = |all: &Vec<(u64, Kind)>| {
            let first = all.iter().find(|(at, kind)| *at >= since && kinds.contains(kind));
            first.map(|(at, _)| at - since)
        };
        self.nodes.iter().map(of_node).collect()
    }
}

/// The nodes find the server again.
pub struct Return {
    pub load: Load,
    /// The number of nodes that sent a request.
    pub nodes: usize,
    /// The time (ms) to the first request of the nodes: the least, the median, the 99th percentile, the greatest.
    pub first: [u64; 4],
    /// The same for the first renewal of the lease or the first watch, which show that the node is connected.
    pub connected: [u64; 4],
    /// The greatest share of the nodes that sent their first requests in one tenth of a second.
    pub share: f64,
}

impl Return {
    /// `since` (ns): the server is there.
    pub fn of(load: Load, since: u64) -> Return {
        let first: Vec<u64> = load.first(since, &Kind::ALL).into_iter().flatten().collect();
        let connected: Vec<u64> = load.first(since, &[Kind::Lease, Kind::Watch]).into_iter().flatten().collect();
        let nodes = first.len().min(connected.len());
        let share = greatest(first.iter().copied(), 100 * MS) as f64 / load.nodes.len() as f64;
        Return { load, nodes, first: percentiles(first), connected: percentiles(connected), share }
    }
}

/// The greatest number of these times in one period (ns).
pub fn greatest(times: impl Iterator<Item = u64>, period: u64) -> usize {
    let mut periods: BTreeMap<u64, usize> = BTreeMap::new();
    times.for_each(|at| *periods.entry(at / period).or_default() += 1);
    periods.into_values().max().unwrap_or(0)
}

/// Percentiles in ms.
pub fn percentiles(mut times: Vec<u64>) -> [u64; 4] {
    times.sort_unstable();
    let at = |percent: usize| times.get((times.len().max(1) - 1) * percent / 100).copied().unwrap_or(0) / MS;
    [at(0), at(50), at(99), at(100)]
}
