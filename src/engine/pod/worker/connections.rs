//! The end of new connections to a pod that ends (Y29). While the rules of services in the kernel still lead to the pod
//! and will soon do so no more, its containers are not stopped: a program that ends would refuse the connections.

use super::Worker;
use super::state::{Connections, State};
use crate::engine::context::Context;
use std::net::IpAddr;
use std::time::Duration;

/// *(ours: a kubelet does not wait)* The maximum delay of a stop. Rules usually change within a quarter of a second.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// A pod with less time than this is not asked to end, but killed.
const SHORTEST_USEFUL: Duration = Duration::from_secs(2);

impl Worker {
    /// Returns true while the stops of a pod that ends wait for the rules of services.
    pub(super) fn awaits_end_of_connections(&mut self, ctx: &Context<'_>) -> bool {
        let now = ctx.now.boot;
        let addresses = self.addresses();
        let State::Terminating(t) = &mut self.state else { return false };
        match t.connections {
            Connections::Unchecked => {
                let left = t.grace_deadline.since(now);
                let waits = left >= SHORTEST_USEFUL && ctx.objects.services.lead_to(&addresses);
                t.connections = match waits {
                    true => Connections::Awaited { until: now + LONGEST_WAIT.min(left / 2), since: ctx.generation },
                    false => Connections::Over,
                };
            }
            // The services follow the pods at the end of each step of the engine.
            Connections::Awaited { until, since } => {
                let follows = since == ctx.generation || ctx.objects.services.are_leaving(&addresses);
                if now >= until || !follows {
                    t.connections = Connections::Over;
                }
            }
            Connections::Over => {}
        }
        if let Connections::Awaited { until, .. } = t.connections {
            self.timer.wake_at(until);
        }
        matches!(t.connections, Connections::Awaited { .. })
    }

    /// Returns the addresses of a pod whose stops wait for the rules of services.
    pub fn addresses_awaited(&self) -> Option<Vec<IpAddr>> {
        let State::Terminating(t) = &self.state else { return None };
        matches!(t.connections, Connections::Awaited { .. }).then(|| self.addresses())
    }

    /// Returns the addresses that the pod's status shows.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let all = self.shown.status.pod_ips.iter().flatten();
        all.filter_map(|one| one.ip.parse().ok()).collect()
    }
}
