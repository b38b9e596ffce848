//! Another machine that reports itself as this node: a disk was cloned, or two machines joined with one name.
//!
//! The API server accepts the reports of both. Each machine has its own boot id, so the node's object on the server
//! shows the other one after this machine has reported itself.

use crate::api::cluster::node::NodeInfo;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::effect::Severity;
use crate::engine::outbox::Outbox;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// A machine that has not reported itself for so many periods of an unchanged status is gone.
const PERIODS: u32 = 3;

#[derive(Debug, Serialize)]
pub struct DuplicateNode {
    ours: Machine,
    state: State,
}

#[derive(Debug, Serialize)]
enum State {
    /// The server has not had this machine as the node yet: the object shows an earlier boot.
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

/// What the object of the node shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// No other machine.
    Nothing,
    /// Another machine for the first time.
    Found,
    Known,
}

impl DuplicateNode {
    pub fn new(info: &NodeInfo) -> DuplicateNode {
        let NodeInfo { machine_id, system_uuid, boot_id, .. } = info.clone();
        DuplicateNode { ours: Machine { machine_id, system_uuid, boot_id }, state: State::Unreported }
    }

    /// Another machine acts as this node.
    pub fn is_known(&self) -> bool {
        matches!(self.state, State::Shared(_))
    }

    /// The server has this state of the node. `heartbeat`: the period of an unchanged status.
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

    /// When the other machine counts as gone.
    pub fn next(&self) -> Option<Boot> {
        match &self.state {
            State::Shared(other) => Some(other.until),
            State::Unreported | State::Alone => None,
        }
    }

    /// Returns whether the other machine is gone from now on.
    pub fn is_over(&mut self, now: Boot, outbox: &mut Outbox) -> bool {
        let State::Shared(other) = &self.state else { return false };
        if other.until > now {
            return false;
        }
        let message =
            format!("no other machine reports itself as this node any more (boot id {:?})", other.machine.boot_id);
        self.state = State::Alone;
        outbox.emit_node_event(Severity::Normal, Reason::NodeNameConflict, message);
        true
    }
}
