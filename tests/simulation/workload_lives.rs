//! Workloads in random lives: a pool of objects with versions, and what must be true of them in the end.

use crate::chance::below;
use crate::settled::{Judged, unless};
use crate::world::World;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wherry::api::workload::deployment::Strategy;
use wherry::api::workload::key::{WorkloadKey, WorkloadKind};
use wherry::engine::claims::volume::VolumePhase;
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
    kind: PoolKind,
    name: &'static str,
    /// The specs, without the selector. `POD` is the spec of the pods.
    versions: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PoolKind {
    Workload(WorkloadKind),
    Claim,
    Service,
}

const OF: &str = "selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {POD}}";
const POD: &str = "terminationGracePeriodSeconds: 2, containers: [{name: main, image: 'busybox:1.35'}]";
const OTHER: &str = "terminationGracePeriodSeconds: 2, containers: [{name: main, image: 'busybox:1.35'}, \
                     {name: side, image: 'other:1'}]";
/// A pod with the claim of the pool, and one with a claim of its own.
const SHARING: &str = "volumes: [{name: d, persistentVolumeClaim: {claimName: shared}}], \
                       terminationGracePeriodSeconds: 2, \
                       containers: [{name: main, image: 'busybox:1.35', volumeMounts: [{name: d, mountPath: /d}]}]";
const OWNING: &str = "terminationGracePeriodSeconds: 2, \
                      containers: [{name: main, image: 'busybox:1.35', volumeMounts: [{name: d, mountPath: /d}]}]";
const CLAIMS: &str = "volumeClaimTemplates: [{metadata: {name: d}, spec: {CLAIM}}]";
const CLAIM: &str = "storageClassName: scratch, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}";
const JOB: &str = "template: {spec: {restartPolicy: Never, POD}}";
const RESTARTING: &str = "template: {spec: {restartPolicy: OnFailure, POD}}";

/// A service whose endpoints are the pods of all workloads.
const BEHIND: &str = "selector: {app: x}, ports: [{port: 80}]";

const OBJECTS: [PoolObject; 11] = [
    PoolObject {
        kind: PoolKind::Workload(WorkloadKind::Deployment),
        name: "web",
        versions: &["replicas: 2, OF", "replicas: 4, OF", "replicas: 3, OTHER", "replicas: 0, OF"],
    },
    PoolObject {
        kind: PoolKind::Workload(WorkloadKind::Deployment),
        name: "back",
        versions: &[
            "replicas: 2, strategy: {type: Recreate}, SHARING",
            "replicas: 2, strategy: {type: Recreate}, OTHER",
        ],
    },
    PoolObject {
        kind: PoolKind::Workload(WorkloadKind::StatefulSet),
        name: "db",
        versions: &[
            "serviceName: db, replicas: 2, CLAIMS, OWNING",
            "serviceName: db, replicas: 3, CLAIMS, persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}, OWNING",
            "serviceName: db, replicas: 1, CLAIMS, persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}, OWNING",
        ],
    },
    PoolObject {
        kind: PoolKind::Workload(WorkloadKind::DaemonSet),
        name: "agent",
        versions: &["OF", "updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}, OTHER"],
    },
    PoolObject { kind: PoolKind::Claim, name: "shared", versions: &["CLAIM", "CLAIM"] },
    PoolObject {
        kind: PoolKind::Service,
        name: "all",
        versions: &["BEHIND", "type: NodePort, sessionAffinity: ClientIP, BEHIND", "clusterIP: None, BEHIND"],
    },
    PoolObject {
        kind: PoolKind::Service,
        name: "chosen",
        versions: &["clusterIP: 10.96.0.9, BEHIND", "publishNotReadyAddresses: true, BEHIND"],
    },
    PoolObject {
        kind: PoolKind::Workload(WorkloadKind::ReplicaSet),
        name: "plain",
        versions: &["replicas: 1, OF", "replicas: 3, OF"],
    },
    PoolObject {
        kind: PoolKind::Workload(WorkloadKind::Job),
        name: "load",
        versions: &["completions: 5, parallelism: 2, backoffLimit: 2, JOB", "backoffLimit: 1, suspend: true, JOB"],
    },
    PoolObject {
        kind: PoolKind::Workload(WorkloadKind::Job),
        name: "parts",
        versions: &[
            "completions: 3, parallelism: 2, completionMode: Indexed, backoffLimitPerIndex: 1, JOB",
            "completions: 2, parallelism: 2, completionMode: Indexed, backoffLimit: 2, RESTARTING",
        ],
    },
    PoolObject {
        kind: PoolKind::Workload(WorkloadKind::CronJob),
        name: "tick",
        versions: &[
            "schedule: '@every 20s', concurrencyPolicy: Forbid, jobTemplate: {spec: {backoffLimit: 1, JOB}}",
            "schedule: '@every 30s', concurrencyPolicy: Replace, jobTemplate: {spec: {backoffLimit: 1, JOB}}",
            "schedule: '* * * * *', jobTemplate: {spec: {ttlSecondsAfterFinished: 10, backoffLimit: 0, RESTARTING}}",
        ],
    },
];

impl PoolKind {
    fn name(self) -> &'static str {
        match self {
            PoolKind::Workload(kind) => kind.name(),
            PoolKind::Claim => "PersistentVolumeClaim",
            PoolKind::Service => "Service",
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            PoolKind::Workload(kind) => kind.api_version(),
            PoolKind::Claim | PoolKind::Service => "v1",
        }
    }
}

impl PoolObject {
    /// `more`: further fields of the spec.
    fn text(&self, version: usize, more: &str) -> String {
        let with = |pod: &str| OF.replace("POD", pod);
        let spec = self.versions[version].replace("OTHER", &with(OTHER)).replace("SHARING", &with(SHARING));
        let spec = spec.replace("OWNING", &with(OWNING)).replace("OF", OF);
        let spec = spec.replace("BEHIND", BEHIND).replace("CLAIMS", CLAIMS).replace("CLAIM", CLAIM);
        let spec = spec.replace("RESTARTING", RESTARTING).replace("JOB", JOB).replace("POD", POD);
        let (version, kind, name) = (self.kind.api_version(), self.kind.name(), self.name);
        format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: {name}}}, spec: {{{more}{spec}}}}}")
    }

    /// Returns the key of a CronJob.
    fn cron_job(&self) -> Option<WorkloadKey> {
        let name = wherry::api::names::FullName::new("default", self.name);
        (self.kind == PoolKind::Workload(WorkloadKind::CronJob)).then(|| WorkloadKey::new(WorkloadKind::CronJob, name))
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
        w.set_workload(of.kind.name(), of.name, self.version.map(|version| of.text(version, "")));
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

/// CronJobs create no more Jobs, and the claim of a pod is there, so that there is rest.
pub fn suspend(w: &mut World) {
    for of in &OBJECTS {
        if of.cron_job().is_some_and(|key| w.engine.workloads().get(&key).is_some()) {
            w.set_workload(of.kind.name(), of.name, Some(of.text(0, "suspend: true, ")));
        }
        if of.kind == PoolKind::Claim && !w.engine.workloads().is_empty() {
            w.set_workload(of.kind.name(), of.name, Some(of.text(0, "")));
        }
    }
}

/// Y22: each claim that pods use has its directory, and nothing waits.
fn claims_agree(w: &World) -> Judged {
    for (key, entry) in w.engine.claims().iter() {
        let well = match entry.phase() {
            Some(VolumePhase::Bound) => entry.volume().is_some_and(|v| w.files_of_claim(&v.path()).is_some()),
            Some(VolumePhase::Released) => true,
            // Only a pod gives it a directory.
            None => entry.users().is_empty(),
            Some(_) => false,
        };
        unless(well, "Y22: each claim is at rest", || format!("{key}: {:?}", entry.phase()))?;
    }
    Ok(())
}

pub fn remove_all(w: &mut World) {
    for of in &OBJECTS {
        w.set_workload(of.kind.name(), of.name, None);
    }
}

/// Each workload has what it asks for.
pub fn agree(w: &World) -> Judged {
    claims_agree(w)?;
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
