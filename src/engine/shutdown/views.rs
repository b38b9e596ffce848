//! The data about graceful shutdown for the API: the lock and the shutdown in progress (`wherry status`), and the plan
//! (`wherry shutdown-plan`).

use super::Shutdown;
use super::pods::{LEAST, is_stopped_with, priority_of};
use crate::api::names::Uid;
use crate::api::ordered::OrderSlice;
use crate::api::shutdown::view::{GroupView, PlanGroup, PlanPod, PlanView, ProgressView, ShutdownView};
use crate::api::shutdown::{Group, Groups};
use crate::api::time::{Boot, Wall};
use crate::engine::pod::worker::Worker;
use std::collections::BTreeMap;
use std::time::Duration;

impl Shutdown {
    pub fn view(&self, configured: &Groups, workers: &BTreeMap<Uid, Box<Worker>>, now: Boot) -> ShutdownView {
        let lock = &self.lock;
        let groups = self.groups(configured);
        let mut of_group = vec![0; groups.iter().len()];
        for worker in workers.values().filter(|w| !w.state.is_over() && !w.never_began()) {
            if let Some(n) = of_group.get_mut(groups.index_of(priority_of(worker))) {
                *n += 1;
            }
        }
        let granted = self.granted();
        let view = |(index, (group, pods)): (usize, (&Group, u64))| GroupView {
            priority: group.priority,
            period_seconds: group.period.as_secs(),
            granted_seconds: granted.as_ref().and_then(|g| g.get(index)).map(Duration::as_secs),
            pods,
        };
        let last = self.last.as_ref();
        let seconds = |at: Wall| at.0 as f64 / 1e9;
        ShutdownView {
            enabled: !groups.is_off(),
            armed: lock.is_armed(),
            problem: lock.problem(),
            delay_seconds: lock.delay().map(|d| d.as_secs_f64()),
            needed_seconds: groups.sum().as_secs(),
            groups: groups.iter().zip(of_group).enumerate().map(view).collect(),
            in_progress: self.progress.as_ref().map(|p| ProgressView {
                since_seconds: now.since(p.began).as_secs_f64(),
                group: p.groups.get(p.group).map(|g| g.priority),
                left_seconds: p.end().since(now).as_secs_f64(),
                released: p.released,
            }),
            started_seconds: last.map_or(0.0, |r| seconds(r.started)),
            ended_seconds: last.map_or(0.0, |r| seconds(r.ended)),
            started_at: last.and_then(|r| r.started.whole_seconds()),
            ended_at: last.and_then(|r| r.ended.whole_seconds()),
        }
    }

    /// Returns the granted part of each group's period; during a shutdown, the values from its start. None while
    /// logind's delay is unknown.
    fn granted(&self) -> Option<Vec<Duration>> {
        let progress = self.progress.as_ref().map(|p| p.periods.clone());
        progress.or_else(|| self.lock.granted())
    }

    pub fn plan(&self, configured: &Groups, workers: &BTreeMap<Uid, Box<Worker>>) -> PlanView {
        let lock = &self.lock;
        let groups = self.groups(configured);
        let granted = self.granted();
        let mut from = Duration::ZERO;
        let mut plan = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let granted = granted.as_ref().and_then(|g| g.get(index)).copied();
            // Without a granted period, the configured one is shown.
            let period = granted.unwrap_or(group.period);
            let of_it = workers.values().filter(|w| is_stopped_with(w, groups, index));
            let mut pods: Vec<PlanPod> = of_it
                .map(|w| PlanPod {
                    namespace: w.name.namespace.to_string(),
                    name: w.name.name.to_string(),
                    uid: w.uid.to_string(),
                    priority: priority_of(w),
                    grace_seconds: w.grace_period().min(period).max(LEAST).as_secs(),
                    own_grace_seconds: w.grace_period().as_secs(),
                })
                .collect();
            pods.order_by(|a, b| (a.priority, &a.namespace, &a.name).cmp(&(b.priority, &b.namespace, &b.name)));
            let until = if pods.is_empty() { from } else { from + period };
            plan.push(PlanGroup {
                priority: group.priority,
                from_seconds: from.as_secs(),
                until_seconds: until.as_secs(),
                period_seconds: group.period.as_secs(),
                granted_seconds: granted.map(|g| g.as_secs()),
                pods,
            });
            from = until;
        }
        PlanView {
            enabled: !groups.is_off(),
            armed: lock.is_armed(),
            delay_seconds: lock.delay().map(|d| d.as_secs_f64()),
            needed_seconds: groups.sum().as_secs(),
            groups: plan,
        }
    }
}
