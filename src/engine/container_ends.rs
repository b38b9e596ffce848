//! Reports the termination of each container once, together with the first published status that shows it.

use crate::api::facts::PodFacts;
use crate::api::k8s;
use crate::api::names::Uid;
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use crate::api::time::{Boot, Now, Wall};
use crate::engine::effect::ContainerEnd;
use crate::engine::outbox::Outbox;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// A pod's published status, and the observed state behind it.
pub struct Published<'a> {
    pub pod: &'a Rc<Pod>,
    pub status: &'a k8s::PodStatus,
    pub facts: &'a PodFacts,
}

#[derive(Debug, Default, Serialize)]
pub struct ContainerEnds {
    /// The runtime's ids of the containers whose termination was reported, by pod. They outlive the pod's worker,
    /// because a successor with the same UID may still find containers of its predecessor.
    reported: BTreeMap<Uid, BTreeSet<String>>,
    /// When this run of Wherry began. None before the first step.
    began: Option<Boot>,
}

impl ContainerEnds {
    /// Reports the new terminations in the statuses that this step publishes. `started`: the start of this run of
    /// Wherry, as the clock showed it then, because a previous run has reported earlier terminations.
    pub fn report<'a>(
        &mut self,
        published: impl Fn(&Uid) -> Option<Published<'a>>,
        started: Wall,
        now: Now,
        outbox: &mut Outbox,
    ) {
        let started = self.start_by_the_clock(started, now);
        let mut ends = Vec::new();
        for published in outbox.published().iter().filter_map(|(uid, _)| published(uid)) {
            self.add_new_ends(&published, started, &mut ends);
        }
        outbox.report_ends(ends);
    }

    /// Returns the start of this run as the clock shows it now. If the clock was set during the run, the start moves
    /// with it, so that later terminations stay later.
    fn start_by_the_clock(&mut self, started: Wall, now: Now) -> Wall {
        let nanoseconds = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let first = || Boot(now.boot.0.saturating_sub(nanoseconds(now.wall.since(started))));
        let began = *self.began.get_or_insert_with(first);
        let ran = i64::try_from(nanoseconds(now.boot.since(began))).unwrap_or(i64::MAX);
        Wall(now.wall.0.saturating_sub(ran))
    }

    /// Forgets the pods that have neither a worker nor objects in the runtime.
    pub fn retain(&mut self, exists: impl Fn(&Uid) -> bool) {
        self.reported.retain(|uid, _| exists(uid));
    }

    fn add_new_ends(&mut self, of: &Published<'_>, started: Wall, ends: &mut Vec<ContainerEnd>) {
        for container in statuses(of.status) {
            let Some((id, end)) = newest_end(container) else { continue };
            let reported = self.reported.entry(of.pod.uid.clone()).or_default();
            let of_previous_run = end.finished_at.as_ref().is_some_and(|at| Some(at.0) < started.timestamp());
            if reported.insert(id.to_owned()) && !of_previous_run {
                ends.push(ContainerEnd {
                    pod: of.pod.clone(),
                    container: container.name.clone(),
                    restart_count: container.restart_count,
                    end: end.clone(),
                });
            }
        }
        self.forget_removed(of);
    }

    /// Forgets the containers that neither the status nor the runtime shows: their ids do not occur again.
    fn forget_removed(&mut self, of: &Published<'_>) {
        let Some(reported) = self.reported.get_mut(&of.pod.uid) else { return };
        let shown: BTreeSet<&str> =
            statuses(of.status).flat_map(|c| [end(&c.state), end(&c.last_state)]).flatten().map(|e| e.0).collect_set();
        let exists = |id: &str| of.facts.containers.iter().any(|c| c.id.as_str() == id);
        reported.retain(|id| shown.contains(id.as_str()) || exists(id));
    }
}

/// Returns the statuses of the main and the ephemeral containers.
fn statuses(status: &k8s::PodStatus) -> impl Iterator<Item = &k8s::ContainerStatus> {
    status.container_statuses.iter().chain(&status.ephemeral_container_statuses).flatten()
}

/// Returns the newest termination of a container: that of its current instance, or else of the previous one.
fn newest_end(status: &k8s::ContainerStatus) -> Option<(&str, &k8s::ContainerStateTerminated)> {
    end(&status.state).or_else(|| end(&status.last_state))
}

/// Returns a termination and the runtime's id of the container. None for a lost container, whose termination is
/// unknown.
fn end(state: &Option<k8s::ContainerState>) -> Option<(&str, &k8s::ContainerStateTerminated)> {
    let end = state.as_ref()?.terminated.as_ref()?;
    // `containerd://ID`
    let id = end.container_id.as_deref()?;
    Some((id.rsplit_once("://").map_or(id, |(_, id)| id), end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;
    use crate::api::document::context::Context;
    use crate::api::k8s::Time;
    use crate::api::reason::Reason;
    use crate::engine::effect::{Effect, Severity};

    const BEGIN: Wall = Wall(6_000_000_000);
    const NOW: Now = Now { boot: Boot(10_000_000_000), wall: BEGIN };

    fn pod(name: &str) -> Rc<Pod> {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: main, \
             image: i:1}}]}}}}"
        );
        let context = Context::new("lab", "2027-01-15T08:00:00Z");
        Rc::new(document::read(text.as_bytes(), "/m/web.yaml", context).0.remove(0))
    }

    fn ended(id: &str, at: i64) -> k8s::ContainerState {
        let finished_at = Wall(at * 1_000_000_000).timestamp().map(Time);
        let container_id = Some(id).filter(|id| !id.is_empty()).map(|id| format!("containerd://{id}"));
        let end = k8s::ContainerStateTerminated { container_id, finished_at, ..Default::default() };
        k8s::ContainerState { terminated: Some(Box::new(end)), ..Default::default() }
    }

    fn runs() -> k8s::ContainerState {
        k8s::ContainerState { running: Some(Default::default()), ..Default::default() }
    }

    /// Publishes the status of one container. Returns the number of reported ends.
    fn reported(
        ends: &mut ContainerEnds,
        pod: &Rc<Pod>,
        state: k8s::ContainerState,
        last: k8s::ContainerState,
    ) -> usize {
        reported_at(NOW, ends, pod, state, last)
    }

    fn reported_at(
        now: Now,
        ends: &mut ContainerEnds,
        pod: &Rc<Pod>,
        state: k8s::ContainerState,
        last: k8s::ContainerState,
    ) -> usize {
        let main = k8s::ContainerStatus {
            name: "main".into(),
            state: Some(state),
            last_state: Some(last),
            ..Default::default()
        };
        let status = k8s::PodStatus { container_statuses: Some(vec![main]), ..Default::default() };
        let mut outbox = Outbox::default();
        outbox.publish(&pod.uid, &pod.name);
        let facts = PodFacts::default();
        ends.report(|_| Some(Published { pod, status: &status, facts: &facts }), BEGIN, now, &mut outbox);
        outbox.take().iter().filter(|e| matches!(e, Effect::ContainerEnded(_))).count()
    }

    #[test]
    fn each_end_is_reported_once_also_after_the_restart_of_its_container() {
        let (mut ends, web) = (ContainerEnds::default(), pod("web"));
        let mut count = |state, last| reported(&mut ends, &web, state, last);
        assert_eq!(count(runs(), Default::default()), 0);
        assert_eq!(count(ended("c1", 7), Default::default()), 1);
        assert_eq!(count(ended("c1", 7), Default::default()), 0);
        assert_eq!(count(runs(), ended("c1", 7)), 0);
        assert_eq!(count(ended("c2", 9), ended("c1", 7)), 1);
        assert_eq!(count(ended("c1", 7), Default::default()), 0, "c2 was removed");
    }

    #[test]
    fn a_lost_container_is_not_reported() {
        let (mut ends, web) = (ContainerEnds::default(), pod("web"));
        assert_eq!(reported(&mut ends, &web, ended("", 7), Default::default()), 0);
    }

    #[test]
    fn an_end_of_a_previous_run_is_not_reported_again() {
        let (mut ends, web) = (ContainerEnds::default(), pod("web"));
        assert_eq!(reported(&mut ends, &web, ended("c1", 5), Default::default()), 0);
        assert_eq!(reported(&mut ends, &web, ended("c2", 7), ended("c1", 5)), 1);
    }

    #[test]
    fn an_end_after_the_clock_was_set_is_reported_and_one_of_a_previous_run_is_not() {
        let second = Duration::from_secs(1);
        for (clock, new, old) in [(2, 1, -13), (100_006, 100_005, 99_991), (26, 25, 11)] {
            let (mut ends, web) = (ContainerEnds::default(), pod("web"));
            assert_eq!(reported(&mut ends, &web, runs(), Default::default()), 0);
            // The run began 14 s ago.
            let now = Now { boot: NOW.boot + 14 * second, wall: Wall(clock * 1_000_000_000) };
            assert_eq!(reported_at(now, &mut ends, &web, ended("c1", old), Default::default()), 0, "{clock}");
            assert_eq!(reported_at(now, &mut ends, &web, ended("c2", new), Default::default()), 1, "{clock}");
        }
    }

    #[test]
    fn the_ids_of_removed_containers_and_pods_are_forgotten() {
        let (mut ends, web) = (ContainerEnds::default(), pod("web"));
        for n in 1..100 {
            reported(&mut ends, &web, ended(&format!("c{n}"), 7), ended(&format!("c{}", n - 1), 7));
        }
        assert_eq!(ends.reported[&web.uid].len(), 2);
        ends.retain(|uid| *uid == web.uid);
        assert_eq!(ends.reported.len(), 1);
        ends.retain(|_| false);
        assert!(ends.reported.is_empty());
    }

    #[test]
    fn an_end_precedes_the_notices_and_the_new_status() {
        let (web, mut outbox) = (pod("web"), Outbox::default());
        let main = k8s::ContainerStatus { name: "main".into(), state: Some(ended("c1", 7)), ..Default::default() };
        let status = k8s::PodStatus { container_statuses: Some(vec![main]), ..Default::default() };
        let facts = PodFacts::default();
        outbox.publish(&web.uid, &web.name);
        outbox.emit_event(Some(&web), Some("main"), Severity::Normal, Reason::Pulled, String::new());
        outbox.publish(&web.uid, &web.name);
        let published = |_: &Uid| Some(Published { pod: &web, status: &status, facts: &facts });
        ContainerEnds::default().report(published, BEGIN, NOW, &mut outbox);
        let all = outbox.take();
        let [Effect::ContainerEnded(_), Effect::Notice(_), Effect::Publish { .. }] = all.as_slice() else {
            panic!("{all:?}")
        };
    }
}
