//! The CPU weight of the burstable class: the sum of the requests of its pods.

use super::room::holds_room;
use crate::api::names::Uid;
use crate::api::qos::Qos;
use crate::api::reason::Reason;
use crate::api::resources::CPU;
use crate::engine::effect::{CgroupCall, Effect, Severity};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::pod::worker::Worker;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct CpuWeight {
    /// The requests behind the current weight, in milli-CPU. None if the weight has not been set, or setting it failed.
    set: Option<u64>,
}

impl CpuWeight {
    /// Sets the weight if the requests of the admitted pods have changed.
    pub fn update(&mut self, workers: &BTreeMap<Uid, Box<Worker>>, outbox: &mut Outbox) {
        let burstable = workers.values().filter(|w| holds_room(w) && w.admission.requests.qos == Qos::Burstable);
        let sum = burstable.map(|w| w.admission.requests.resources.get(CPU)).fold(0, u64::saturating_add);
        if self.set != Some(sum) {
            self.set = Some(sum);
            outbox.begin(Owner::Cgroups, |op| Effect::Cgroup { op, call: CgroupCall::SetCpuWeight { burstable: sum } });
        }
    }

    pub fn answered(&mut self, result: Result<Answer, OpError>, outbox: &mut Outbox) {
        if let Err(e) = result {
            // The next change of the requests tries again.
            self.set = None;
            let message = format!("failed to set the CPU weight of the burstable cgroup: {e}");
            outbox.emit_node_event(Severity::Warning, Reason::FailedCgroup, message);
        }
    }
}
