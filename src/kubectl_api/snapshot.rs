//! The data that the API shows in one turn.

use super::condition_times::ConditionTimes;
use super::event_cache::EventCache;
use crate::api::layout::Layout;
use crate::api::time::{Now, Wall};
use crate::engine::node::Engine;
use jiff::Timestamp;

pub struct Snapshot<'a> {
    pub engine: &'a Engine,
    pub events: &'a EventCache,
    pub conditions: &'a ConditionTimes,
    pub layout: &'a Layout,
    pub node_name: &'a str,
    /// `kubectlPort`
    pub port: u16,
    /// When the root directory was created, which is when the node was created.
    pub created: Wall,
    /// The time at which the agent started.
    pub started: Wall,
    pub now: Now,
}

impl Snapshot<'_> {
    /// Returns the time of the clock, or the Unix epoch if it is out of range.
    pub fn timestamp(&self) -> Timestamp {
        self.now.wall.timestamp().unwrap_or_default()
    }
}
