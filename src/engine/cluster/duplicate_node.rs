//! Another machine that reports itself as this node: a disk was cloned, or two machines joined under the same name.
//!
//! The API server accepts the reports of both machines. Each machine has its own boot id. If this machine has
//! reported itself and the Node object then shows another boot id, another machine has reported itself too.

use crate::api::cluster::node::NodeInfo;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::effect::Severity;
use crate::engine::outbox::Outbox;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// The other machine is considered gone if it has not reported itself for this many heartbeat periods.
const PERIODS: u32 = 3;

#[derive(Debug, Serialize)]
pub struct DuplicateNode {
    ours: Machine,
    state: State,
}

#[derive(Debug, Serialize)]
enum State {
    /// The server has not shown this machine as the node yet: the Node object is from an earlier boot.
    Unreported,
    Alone,
    Shared(Other),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Machine {
    machine_id: String,
    system_uuid: String,
    boot_id: String,
}

#[derive(Debug, Serialize)]
struct Other {
    machine: Machine,
    until: Boot,
}

/// What the Node object shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// No other machine.
    Nothing,
    /// Another machine, for the first time.
    Found,
    Known,
}

impl DuplicateNode {
    pub fn new(info: &NodeInfo) -> DuplicateNode {
        let NodeInfo { machine_id, system_uuid, boot_id, .. } = info.clone();
        DuplicateNode { ours: Machine { machine_id, system_uuid, boot_id }, state: State::Unreported }
    }

    /// Reports whether another machine acts as this node.
    pub fn is_known(&self) -> bool {
        matches!(self.state, State::Shared(_))
    }

    /// Looks for another machine in the Node object on the server. `heartbeat`: how often an unchanged status is
    /// reported.
    pub fn observe(&mut self, node: &Value, heartbeat: Duration, now: Boot, outbox: &mut Outbox) -> Sight {
        let info = |field: &str| node.pointer("/status/nodeInfo").and_then(|info| info[field].as_str());
        let text = |field: &str| info(field).unwrap_or_default().to_owned();
        let shown = Machine { machine_id: text("machineID"), system_uuid: text("systemUUID"), boot_id: text("bootID") };
        if shown.boot_id == self.ours.boot_id {
            if let State::Unreported = self.state {
                self.state = State::Alone;
            }
            return Sight::Nothing;
        }
        if matches!(self.state, State::Unreported) || shown.boot_id.is_empty() || self.ours.boot_id.is_empty() {
            return Sight::Nothing;
        }
        let is_known = self.is_known();
        if !is_known {
            let message = format!(
                "another machine reports itself as this node (machine id {:?}, system UUID {:?}, boot id {:?}); both \
                 run the pods of the node, and this one reports only its own changes; run `wherry leave` on one of \
                 them",
                shown.machine_id, shown.system_uuid, shown.boot_id
            );
            outbox.emit_node_event(Severity::Warning, Reason::NodeNameConflict, message);
        }
        self.state = State::Shared(Other { machine: shown, until: now + heartbeat * PERIODS });
        if is_known { Sight::Known } else { Sight::Found }
    }

    /// Returns when the other machine is considered gone.
    pub fn next(&self) -> Option<Boot> {
        match &self.state {
            State::Shared(other) => Some(other.until),
            State::Unreported | State::Alone => None,
        }
    }

    /// Returns true once, when the other machine is considered gone.
    pub fn is_over(&mut self, now: Boot, outbox: &mut Outbox) -> bool {
        let State::Shared(other) = &self.state else { return false };
        if other.until > now {
            return false;
        }
        let message =
            format!("no other machine reports itself as this node any longer (boot id {:?})", other.machine.boot_id);
        self.state = State::Alone;
        outbox.emit_node_event(Severity::Normal, Reason::NodeNameConflict, message);
        true
    }
}
