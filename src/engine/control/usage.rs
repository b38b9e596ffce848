//! Reads of the resource usage of containers. The runtime's response is reduced to the containers of Wherry's own
//! pods.

use super::request_id::RequestId;
use crate::api::control::{ContainerUsage, PodUsage};
use crate::api::facts::{ContainerFact, ContainerState, UsageFact};
use crate::api::pod::Pod;
use crate::engine::op::{OpError, OpId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The timeout of the call, for which the runtime reads several files for each container.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// How often the call is repeated if containers keep disappearing between the list and the read.
const REPETITIONS: u32 = 5;

/// The reads whose calls have not ended.
#[derive(Debug, Default, Serialize)]
pub struct UsageReads {
    open: BTreeMap<OpId, UsageRead>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UsageRead {
    pub request: RequestId,
    /// How often the call may still be repeated.
    repetitions: u32,
}

impl UsageRead {
    pub fn first(request: RequestId) -> UsageRead {
        UsageRead { request, repetitions: REPETITIONS }
    }

    /// Returns the next attempt after this error, if there is one. If a container disappears during the call,
    /// containerd 1.7 returns NotFound and no usage of any container.
    pub fn after(self, e: &OpError) -> Option<UsageRead> {
        let repetitions = self.repetitions.checked_sub(1).filter(|_| e.is_not_found())?;
        Some(UsageRead { repetitions, ..self })
    }
}

impl UsageReads {
    pub fn begun(&mut self, op: OpId, read: UsageRead) {
        self.open.insert(op, read);
    }

    /// Handles the end of a call. Returns None if its client has disconnected.
    pub fn ended(&mut self, op: OpId) -> Option<UsageRead> {
        self.open.remove(&op)
    }

    /// Forgets the request of a client that has disconnected. Returns the call to cancel.
    pub fn gone(&mut self, request: RequestId) -> Option<OpId> {
        let op = self.open.iter().find(|(_, read)| read.request == request).map(|(op, _)| *op)?;
        self.open.remove(&op);
        Some(op)
    }
}

/// Returns the usage of a pod's running containers. Values that the runtime does not report are left out.
pub fn of_pod(pod: &Pod, facts: &[ContainerFact], usage: &BTreeMap<&str, &UsageFact>) -> PodUsage {
    let container = |c: &ContainerFact| {
        let used = usage.get(c.id.as_str()).copied();
        ContainerUsage {
            name: c.name.clone(),
            id: c.id.to_string(),
            restarts: c.attempt,
            cpu_at: used.map_or(0, |u| u.cpu_at),
            cpu_nanos: used.and_then(|u| u.cpu_nanos),
            cpu_nano_cores: used.and_then(|u| u.cpu_nano_cores),
            memory_bytes: used.and_then(|u| u.memory_bytes),
            memory_at: used.map_or(0, |u| u.memory_at),
            memory_available_bytes: used.and_then(|u| u.memory.available_bytes),
            memory_usage_bytes: used.and_then(|u| u.memory.usage_bytes),
            memory_rss_bytes: used.and_then(|u| u.memory.rss_bytes),
            page_faults: used.and_then(|u| u.memory.page_faults),
            major_page_faults: used.and_then(|u| u.memory.major_page_faults),
            swap_bytes: used.and_then(|u| u.swap_bytes),
            disk_bytes: used.and_then(|u| u.disk_bytes),
            disk_inodes: used.and_then(|u| u.disk_inodes),
        }
    };
    PodUsage {
        namespace: pod.name.namespace.to_string(),
        name: pod.name.name.to_string(),
        uid: pod.uid.to_string(),
        labels: pod.object.metadata.labels.clone().unwrap_or_default(),
        containers: facts.iter().filter(|c| c.state == ContainerState::Running).map(container).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::op::Code;

    #[test]
    fn a_read_is_repeated_if_a_container_disappeared_but_not_for_ever() {
        let error = |code| OpError::Answered { code, message: "x".into() };
        let first = UsageRead::first(RequestId(1));
        let repeat = |read: Option<UsageRead>, _| read.and_then(|read| read.after(&error(Code::NotFound)));
        assert!((0..REPETITIONS).fold(Some(first), repeat).is_some());
        assert_eq!((0..=REPETITIONS).fold(Some(first), repeat), None);
        assert_eq!(first.after(&error(Code::Unimplemented)), None);
        assert_eq!(first.after(&OpError::Unknown("cancelled".into())), None);
    }
}
