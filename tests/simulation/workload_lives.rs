//! Workloads in random lives: a pool of objects with versions, and what must be true of them in the end.

use crate::chance::below;
use crate::settled::{Judged, unless};
use crate::world::World;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wherry::api::workload::deployment::Strategy;
use wherry::api::workload::key::{WorkloadKey, WorkloadKind};
use wherry::engine::rng::Rng;
use wherry::engine::workloads::any_controller::AnyController;
use wherry::engine::workloads::controller::Controller;
use wherry::engine::workloads::revision::ReplicaState;
use wherry::engine::workloads::stateful_set::Sequence;
use wherry::engine::workloads::{Workloads, shown};

/// An object of the pool appears, changes, or is removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WorkloadChange {
    pub which: usize,
    /// None: it is removed.
    pub version: Option<usize>,
}

struct PoolObject {
    kind: WorkloadKind,
    name: &'static str,
    /// The specs, without the selector. `POD` is the spec of the pods.
    versions: &'static [&'static str],
}

const OF: &str = "selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {POD}}";
const POD: &str = "terminationGracePeriodSeconds: 2, containers: [{name: main, image: 'busybox:1.35'}]";
const OTHER: &str = "terminationGracePeriodSeconds: 2, containers: [{name: main, image: 'busybox:1.35'}, \
                     {name: side, image: 'other:1'}]";
const JOB: &str = "template: {spec: {restartPolicy: Never, POD}}";
const RESTARTING: &str = "template: {spec: {restartPolicy: OnFailure, POD}}";

const OBJECTS: [PoolObject; 8] = [
    PoolObject {
        kind: WorkloadKind::Deployment,
        name: "web",
        versions: &["replicas: 2, OF", "replicas: 4, OF", "replicas: 3, OTHER", "replicas: 0, OF"],
    },
    PoolObject {
        kind: WorkloadKind::Deployment,
        name: "back",
        versions: &["replicas: 2, strategy: {type: Recreate}, OF", "replicas: 2, strategy: {type: Recreate}, OTHER"],
    },
    PoolObject {
        kind: WorkloadKind::StatefulSet,
        name: "db",
        versions: &["serviceName: db, replicas: 2, OF", "serviceName: db, replicas: 3, OTHER"],
    },
    PoolObject {
        kind: WorkloadKind::DaemonSet,
        name: "agent",
        versions: &["OF", "updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}, OTHER"],
    },
    PoolObject { kind: WorkloadKind::ReplicaSet, name: "plain", versions: &["replicas: 1, OF", "replicas: 3, OF"] },
    PoolObject {
        kind: WorkloadKind::Job,
        name: "load",
        versions: &["completions: 5, parallelism: 2, backoffLimit: 2, JOB", "backoffLimit: 1, suspend: true, JOB"],
    },
    PoolObject {
        kind: WorkloadKind::Job,
        name: "parts",
        versions: &[
            "completions: 3, parallelism: 2, completionMode: Indexed, backoffLimitPerIndex: 1, JOB",
            "completions: 2, parallelism: 2, completionMode: Indexed, backoffLimit: 2, RESTARTING",
        ],
    },
    PoolObject {
        kind: WorkloadKind::CronJob,
        name: "tick",
        versions: &[
            "schedule: '@every 20s', concurrencyPolicy: Forbid, jobTemplate: {spec: {backoffLimit: 1, JOB}}",
            "schedule: '@every 30s', concurrencyPolicy: Replace, jobTemplate: {spec: {backoffLimit: 1, JOB}}",
            "schedule: '* * * * *', jobTemplate: {spec: {ttlSecondsAfterFinished: 10, backoffLimit: 0, RESTARTING}}",
        ],
    },
];

impl PoolObject {
    /// `more`: further fields of the spec.
    fn text(&self, version: usize, more: &str) -> String {
        let spec = self.versions[version].replace("OTHER", &OF.replace("POD", OTHER)).replace("OF", OF);
        let spec = spec.replace("RESTARTING", RESTARTING).replace("JOB", JOB).replace("POD", POD);
        let (version, kind, name) = (self.kind.api_version(), self.kind.name(), self.name);
        format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: {name}}}, spec: {{{more}{spec}}}}}")
    }

    fn key(&self) -> WorkloadKey {
        WorkloadKey::new(self.kind, wherry::api::names::FullName::new("default", self.name))
    }
}

impl WorkloadChange {
    pub fn of(d: &mut Rng) -> WorkloadChange {
        let which = below(d, OBJECTS.len() as u64) as usize;
        let version = (below(d, 5) > 0).then(|| below(d, OBJECTS[which].versions.len() as u64) as usize);
        WorkloadChange { which, version }
    }

    pub fn apply(self, w: &mut World) {
        let of = &OBJECTS[self.which];
        w.set_workload(of.kind, of.name, self.version.map(|version| of.text(version, "")));
    }
}

impl fmt::Debug for WorkloadChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = &OBJECTS[self.which];
        match self.version {
            Some(version) => write!(f, "{} {} is {}", of.kind.name(), of.name, of.versions[version]),
            None => write!(f, "{} {} is removed", of.kind.name(), of.name),
        }
    }
}

/// CronJobs create no more Jobs, so that there is rest.
pub fn suspend(w: &mut World) {
    for of in OBJECTS.iter().filter(|of| of.kind == WorkloadKind::CronJob) {
        if w.engine.workloads().get(&of.key()).is_some() {
            w.set_workload(of.kind, of.name, Some(of.text(0, "suspend: true, ")));
        }
    }
}

pub fn remove_all(w: &mut World) {
    for of in &OBJECTS {
        w.set_workload(of.kind, of.name, None);
    }
}

/// Each workload has what it asks for.
pub fn agree(w: &World) -> Judged {
    for (key, controller) in w.engine.workloads().iter() {
        let object = shown::object(controller);
        let (spec, status) = (&object["spec"], &object["status"]);
        let number = |of: &Value, field: &str| of[field].as_u64().unwrap_or_default();
        let pods = controller.get().state().history.pods().count() as u64;
        let well = match key.kind {
            WorkloadKind::Deployment => {
                let replicas = number(spec, "replicas");
                let counts = ["replicas", "updatedReplicas", "availableReplicas"].map(|field| number(status, field));
                counts == [replicas; 3] && status["unavailableReplicas"].is_null()
            }
            WorkloadKind::StatefulSet => {
                let replicas = number(spec, "replicas");
                ["readyReplicas", "updatedReplicas"].map(|field| number(status, field)) == [replicas; 2]
            }
            WorkloadKind::ReplicaSet => number(status, "readyReplicas") == number(spec, "replicas"),
            WorkloadKind::DaemonSet => number(status, "numberAvailable") == 1 && pods == 1,
            WorkloadKind::Job => job_agrees(spec, status),
            WorkloadKind::CronJob => cron_job_agrees(w, key, status),
        };
        unless(well, "Y: each workload has what it asks for", || format!("{key}: {spec} {status}"))?;
    }
    Ok(())
}

/// A Job has ended, is suspended, or its pods run.
fn job_agrees(spec: &Value, status: &Value) -> bool {
    let number = |of: &Value, field: &str| of[field].as_u64().unwrap_or_default();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let is = |type_: &str| conditions.iter().any(|c| c["type"] == type_ && c["status"] == "True");
    let (succeeded, active) = (number(status, "succeeded"), number(status, "active"));
    let completions = number(spec, "completions");
    match () {
        () if is("Complete") => succeeded == completions && active == 0 && !is("Failed"),
        () if is("Failed") => active == 0,
        () if spec["suspend"] == true => active == 0 && is("Suspended"),
        () => {
            let failed =
                status["failedIndexes"].as_str().map_or(0, |text| text.split(',').filter(|i| !i.is_empty()).count());
            let open = completions.saturating_sub(succeeded + failed as u64);
            active == open.min(number(spec, "parallelism")) && number(status, "ready") == active
        }
    }
}

/// Its status names its Jobs that are active.
fn cron_job_agrees(w: &World, key: &WorkloadKey, status: &Value) -> bool {
    let jobs = w.engine.workloads().iter().filter(|(_, one)| one.creator() == Some(key));
    let active = |one: &AnyController| one.get().state().history.revisions.iter().any(|of| !of.replicas.is_empty());
    let jobs: Vec<_> = jobs.collect();
    let named = status["active"].as_array().map_or(0, Vec::len);
    named <= jobs.len() && jobs.iter().filter(|(_, one)| active(one)).count() >= named
}

/// The number of pods of each workload after the last step.
#[derive(Default)]
pub struct Sizes(BTreeMap<WorkloadKey, usize>);

impl Sizes {
    /// The pods of an earlier run may be more than a changed manifest permits.
    pub fn engine_killed(&mut self) {
        self.0.clear();
    }

    /// Returns what is wrong if a step has created more pods than a workload permits.
    pub fn exceeded(&mut self, workloads: &Workloads) -> Option<String> {
        let before = std::mem::take(&mut self.0);
        let mut wrong = None;
        for (key, one) in workloads.iter() {
            let (size, most) = size(one);
            if before.get(key).is_some_and(|before| size > *before) && size > most {
                wrong = Some(format!("{key} has {size} pods, and may have {most}"));
            }
            self.0.insert(key.clone(), size);
        }
        wrong
    }
}

/// The number of different names of its pods.
fn names(of: &Sequence) -> usize {
    of.state().history.pods().map(|pod| &pod.name).collect::<BTreeSet<_>>().len()
}

/// Returns the number of pods that have not ended, and up to which number more may be created. For a StatefulSet, only
/// pods of the same name count.
fn size(of: &AnyController) -> (usize, usize) {
    let number = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let pods = of.get().state().history.revisions.iter().flat_map(|revision| revision.replicas.values());
    let pods = pods.filter(|pod| pod.state != ReplicaState::Ended).count();
    match of {
        AnyController::Deployment(of) => {
            let of = of.deployment();
            let surge = if let Strategy::Rolling { surge, .. } = of.strategy() { surge } else { 0 };
            (pods, number(of.replicas() + surge))
        }
        // A pod may be replaced while others above the number of replicas still wait for their end.
        AnyController::StatefulSet(of) => (of.state().history.pods().count() - names(of), 0),
        AnyController::ReplicaSet(of) => (pods, number(of.replica_set().replicas())),
        AnyController::Job(of) => (number(of.counts().active), number(of.job().parallelism())),
        AnyController::DaemonSet(_) => (pods, 2),
        AnyController::CronJob(_) => (0, 0),
    }
}
