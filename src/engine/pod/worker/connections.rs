//! The end of new connections to a pod that ends (Y29). While the rules of services in the kernel still lead to the pod
//! and will soon do so no more, its containers are not stopped: a program that ends would refuse the connections.

use super::state::{Connections, State, Terminating};
use super::timer::Timer;
use crate::api::k8s::PodStatus;
use crate::api::time::Boot;
use crate::engine::context::Context;
use std::net::IpAddr;
use std::time::Duration;

/// *(ours: a kubelet does not wait)* The maximum delay of a stop. Rules usually change within a quarter of a second.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// A pod with less time than this is not asked to end, but killed.
const SHORTEST_USEFUL: Duration = Duration::from_secs(2);

/// Returns true while the stops of a pod that ends wait for the rules of services.
pub fn delay_stops(state: &mut State, status: &PodStatus, timer: &mut Timer, ctx: &Context<'_>) -> bool {
    let State::Terminating(t) = state else { return false };
    t.follow_connections(&addresses(status), ctx);
    let Some(until) = t.delay() else { return false };
    timer.wake_at(until);
    true
}

/// Returns the addresses that the status of a pod shows.
pub fn addresses(status: &PodStatus) -> Vec<IpAddr> {
    let all = status.pod_ips.iter().flatten();
    all.filter_map(|one| one.ip.parse().ok()).collect()
}

impl Terminating {
    fn follow_connections(&mut self, addresses: &[IpAddr], ctx: &Context<'_>) {
        let now = ctx.now.boot;
        match self.connections {
            Connections::Unchecked => {
                let left = self.grace_deadline.since(now);
                let waits = left >= SHORTEST_USEFUL && ctx.objects.services.lead_to(addresses);
                self.connections = match waits {
                    true => Connections::Awaited { until: now + LONGEST_WAIT.min(left / 2) },
                    false => Connections::Over,
                };
            }
            Connections::Awaited { until } if now >= until => self.connections = Connections::Over,
            Connections::Awaited { .. } | Connections::Over => {}
        }
    }

    /// Ends the delay: services lead to the pod no more, or until it ends.
    pub fn end_delay(&mut self) {
        self.connections = Connections::Over;
    }

    /// Returns the time until which the stops wait at most.
    pub fn delay(&self) -> Option<Boot> {
        match self.connections {
            Connections::Awaited { until } => Some(until),
            Connections::Unchecked | Connections::Over => None,
        }
    }
}
