//! Container probes: when each is due, and the meaning of its results. This corresponds to the kubelet's prober worker.
//!
//! A startup probe gates the other two. Results belong to one container instance: they begin again for a new
//! container, and for a container that a restarted Wherry finds running. The worker acts on a verdict (`ready`, a
//! kill).

mod machine;

pub use machine::{Kind, Verdict};

use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::k8s;
use crate::api::names::ContainerId;
use crate::api::pod::Pod;
use crate::api::time::{Boot, Now};
use crate::engine::op::OpId;
use crate::engine::rng::Rng;
use machine::Machine;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// All probes of a pod's running containers.
#[derive(Debug, Default, Serialize)]
pub struct Probes {
    of: BTreeMap<ContainerId, OfContainer>,
    /// The containers that this run of Wherry started itself and did not find running.
    started_here: BTreeSet<ContainerId>,
}

#[derive(Debug, Serialize)]
struct OfContainer {
    /// The index in `Pod::all_containers`.
    index: usize,
    machines: Vec<Machine>,
}

/// A probe that is due now.
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    pub id: ContainerId,
    pub index: usize,
    pub kind: Kind,
    pub timeout: Duration,
}

/// The effect of a probe's result.
#[derive(Debug, PartialEq, Eq)]
pub struct Judged {
    pub id: ContainerId,
    pub index: usize,
    pub kind: Kind,
    /// The verdict, if this result changed it.
    pub verdict: Option<Verdict>,
}

pub fn any(pod: &Pod) -> bool {
    pod.all_containers().any(|c| Kind::ALL.iter().any(|kind| kind.spec(c).is_some()))
}

impl Probes {
    /// Notes that this run of Wherry started the container.
    pub fn started_container(&mut self, id: &ContainerId) {
        self.started_here.insert(id.clone());
    }

    /// Drops the notes about containers that no longer exist.
    pub fn forget_gone(&mut self, containers: &[ContainerFact]) {
        self.started_here.retain(|id| containers.iter().any(|c| c.id == *id));
    }

    /// Drops containers that no longer run and adds those that do. After a restart of Wherry, many containers are found
    /// running at once; as in a kubelet, their first probes are spread over a random part of the period.
    pub fn follow<'f>(
        &mut self,
        pod: &Pod,
        running: impl Fn(&str) -> Option<&'f ContainerFact>,
        now: Now,
        rng: &mut Rng,
    ) {
        self.of.retain(|id, of| running(&pod.at(of.index).name).is_some_and(|c| c.id == *id));
        for (index, spec) in pod.all_containers().enumerate() {
            let probed = Kind::ALL.iter().any(|kind| kind.spec(spec).is_some());
            let Some(c) = running(&spec.name).filter(|c| probed && c.state == ContainerState::Running) else {
                continue;
            };
            if self.of.contains_key(&c.id) {
                continue;
            }
            // The wall clock may have been set: a start in the future counts as now.
            let ago = now.wall.since(c.started_at);
            let found = !self.started_here.contains(&c.id);
            let machines = Kind::ALL.iter().filter_map(|kind| {
                let mut machine = Machine::new(*kind, kind.spec(spec)?);
                let delay = machine.initial_delay.saturating_sub(ago);
                let spread = if found { part(machine.period, rng) } else { Duration::ZERO };
                machine.due = now.boot + delay.max(spread);
                Some(machine)
            });
            self.of.insert(c.id.clone(), OfContainer { index, machines: machines.collect() });
        }
    }

    /// Returns the due probes of the wanted kinds. The caller reports each probe that it starts to `requested`, and
    /// its result to `judge`.
    pub fn due(&self, now: Boot, wanted: impl Fn(Kind) -> bool) -> Vec<Due> {
        let mut all = Vec::new();
        for (id, of) in &self.of {
            for m in of.machines.iter().filter(|m| wanted(m.kind) && of.may_run(m.kind) && m.is_due(now)) {
                all.push(Due { id: id.clone(), index: of.index, kind: m.kind, timeout: m.timeout });
            }
        }
        all
    }

    pub fn requested(&mut self, due: &Due, op: OpId, now: Boot) {
        let of = self.of.get_mut(&due.id).into_iter().flat_map(|of| &mut of.machines);
        of.filter(|m| m.kind == due.kind).for_each(|m| m.requested(op, now));
    }

    /// Returns the next time at which a probe is due.
    pub fn next(&self, now: Boot, wanted: impl Fn(Kind) -> bool) -> Option<Boot> {
        let all = self.of.values().flat_map(|of| of.machines.iter().filter(|m| wanted(m.kind) && of.may_run(m.kind)));
        all.filter_map(|m| m.next(now)).min()
    }

    /// Returns the container (its index in `Pod::all_containers`) and the kind of the probe that `op` carries out.
    /// None if the container is no longer current.
    pub fn of_op(&self, op: OpId) -> Option<(usize, Kind)> {
        let mut all = self.of.values().flat_map(|of| of.machines.iter().map(|m| (of.index, m)));
        all.find(|(_, m)| m.in_flight == Some(op)).map(|(index, m)| (index, m.kind))
    }

    /// Handles the result of `op`: passed, failed, or None if it is unknown. Returns None if the container is no
    /// longer current.
    pub fn judge(&mut self, op: OpId, passed: Option<bool>) -> Option<Judged> {
        for (id, of) in &mut self.of {
            if let Some(m) = of.machines.iter_mut().find(|m| m.in_flight == Some(op)) {
                let verdict = m.judge(passed);
                return Some(Judged { id: id.clone(), index: of.index, kind: m.kind, verdict });
            }
        }
        None
    }

    /// Returns true if a startup or readiness probe has no verdict yet. Each run of Wherry begins without verdicts.
    pub fn are_undecided(&self) -> bool {
        let decides = |m: &Machine| m.kind != Kind::Liveness && m.verdict == Verdict::Open;
        self.of.values().any(|of| of.machines.iter().any(decides))
    }

    fn verdict(&self, id: &ContainerId, kind: Kind) -> Option<Verdict> {
        self.of.get(id).and_then(|of| of.verdict(kind))
    }

    /// Returns true if a running container has started: its startup probe succeeded, or it has none.
    pub fn started(&self, spec: &k8s::Container, id: &ContainerId) -> bool {
        spec.startup_probe.is_none() || self.verdict(id, Kind::Startup) == Some(Verdict::Passed)
    }

    /// Returns true if a running container is ready. Callers check `started` as well.
    pub fn ready(&self, spec: &k8s::Container, id: &ContainerId) -> bool {
        spec.readiness_probe.is_none() || self.verdict(id, Kind::Readiness) == Some(Verdict::Passed)
    }
}

impl OfContainer {
    fn verdict(&self, kind: Kind) -> Option<Verdict> {
        self.machines.iter().find(|m| m.kind == kind).map(|m| m.verdict)
    }

    /// Returns true if a probe of this kind may run: the other probes wait until the startup probe has passed.
    fn may_run(&self, kind: Kind) -> bool {
        kind == Kind::Startup || self.verdict(Kind::Startup).is_none_or(|v| v == Verdict::Passed)
    }
}

/// Returns a random part of `period`, in whole milliseconds.
fn part(period: Duration, rng: &mut Rng) -> Duration {
    let ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(rng.draw() % ms)
}
