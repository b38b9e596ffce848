//! Random node lives. A seed decides (`plan`) which manifests appear, change and disappear and when the engine is
//! killed, and (`chance`) how containers end and which faults happen. Then the faults stop, and exactly the desired
//! pods must run (`settled`).

use crate::chance::{Chaos, below};
use crate::check::{Checks, Violation};
use crate::control::SECRET;
use crate::plan::{Action, DeviceChange, ManifestTrouble, Plan};
use crate::runtime::{Container, Life, Personality};
use crate::settled::settle;
use crate::shrink::{Outcome, shrink};
use crate::story::{IMAGE, Manifest, pod};
use crate::world::devices::device;
use crate::world::host::MEMORY_LIMIT;
use crate::world::{MS, World, config};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wherry::api::eviction::{self, EvictionPolicy};
use wherry::api::names::Uid;
use wherry::api::sealing::KeyState;
use wherry::api::shutdown::Groups;
use wherry::api::time::Wall;
use wherry::engine::cluster::sealing_settings::SealingSettings;
use wherry::engine::config::ClusterConfig;
use wherry::engine::effect::RuntimeCall;
use wherry::engine::image_gc_policy::ImageGcPolicy;
use wherry::engine::node::{Due, Part};
use wherry::engine::rng::Rng;
use wherry::engine::rotation_policy::RotationPolicy;

/// The possible manifests: by file, with their versions.
pub struct Pool {
    pub files: Vec<(String, Vec<Manifest>)>,
    /// The same, with a class instead of its priority.
    pub classed: Vec<(String, Vec<Manifest>)>,
    /// The same; each container `side` requests a device.
    pub with_devices: Vec<(String, Vec<Manifest>)>,
    /// Pods that are added at the end, without faults.
    pub more: Vec<Manifest>,
    /// Pods that hang in RunPodSandbox meanwhile.
    pub hang: Vec<Manifest>,
    /// The specs of pods of a cluster.
    pub bound: Vec<String>,
}

impl Pool {
    pub fn new() -> Pool {
        // Other images may be missing.
        let image = "image: 'busybox:1.35'";
        let requests = format!("resources: {{requests: {{cpu: {REQUESTS}m}}}}");
        let one = format!("containers: [{{name: main, {image}, {requests}}}]");
        let two = format!("containers: [{{name: main, {image}, {requests}}}, {{name: side, image: 'other:1'}}]");
        let modest = "containers: [{name: main, image: 'busybox:1.35'}, {name: side, image: 'other:1'}]";
        let init = format!("initContainers: [{{name: i1, {image}}}, {{name: i2, {image}}}]");
        let sidecars = format!(
            "initContainers: [{{name: s1, {image}, restartPolicy: Always}}, {{name: i2, {image}}}, \
             {{name: s2, {image}, restartPolicy: Always, startupProbe: {{exec: {{command: [sh]}}, periodSeconds: 1}}}}]"
        );
        let hook = "{exec: {command: [sh]}}";
        let hooked = format!(
            "containers: [{{name: main, {image}, {requests}, volumeMounts: [{{name: v, mountPath: /v}}, {{name: m, mountPath: /m}}], lifecycle: {{postStart: {hook}, preStop: {hook}}}}}, \
             {{name: side, {image}, lifecycle: {{preStop: {{sleep: {{seconds: 1}}}}}}}}]"
        );
        let probe = |handler: &str, more: &str| format!("{{{handler}, periodSeconds: 4, failureThreshold: 2{more}}}");
        let probed = format!(
            "containers: [{{name: main, {image}, {requests}, startupProbe: {}, livenessProbe: {}, readinessProbe: {}}}]",
            probe("exec: {command: [sh]}", ""),
            probe("tcpSocket: {port: 80}", ", initialDelaySeconds: 3"),
            probe("exec: {command: [sh]}", ", successThreshold: 2")
        );
        // Versions that differ only in resources.
        let limited = |cpu: &str, more: &str| {
            let resources = format!("resources: {{requests: {{cpu: {REQUESTS}m}}, limits: {{cpu: {cpu}}}}}");
            format!("terminationGracePeriodSeconds: 2, containers: [{{name: main, {image}, {resources}{more}}}]")
        };
        let specs = [
            one.to_string(),
            format!("terminationGracePeriodSeconds: 3, priority: 1000, {two}"),
            format!("restartPolicy: OnFailure, priority: 2000000000, {two}"),
            format!("restartPolicy: Never, hostUsers: false, terminationGracePeriodSeconds: 1, {one}"),
            format!("activeDeadlineSeconds: 40, terminationGracePeriodSeconds: 5, {one}"),
            format!("restartPolicy: OnFailure, hostNetwork: true, terminationGracePeriodSeconds: 10, {one}"),
            format!("{init}, hostUsers: false, terminationGracePeriodSeconds: 4, {one}"),
            format!("restartPolicy: Never, terminationGracePeriodSeconds: 4, {sidecars}, {one}"),
            format!(
                "{sidecars}, terminationGracePeriodSeconds: 6, {hooked}, volumes: [{{name: v, emptyDir: {{}}}}, \
                 {{name: m, image: {{reference: 'other:1'}}}}]"
            ),
            format!("restartPolicy: OnFailure, terminationGracePeriodSeconds: 8, {init}, {probed}"),
            limited("1", ""),
            limited("2", ""),
            limited("3", ", resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]"),
            limited("4", ", resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]"),
        ];
        let files = |specs: &[String]| {
            let versions = |path: &str, name: &str, uid: &str, from: usize, n: usize| {
                let of = |i: usize| pod(path, name, uid, &specs[(from + i) % specs.len()]);
                (path.to_string(), (0..n).map(of).collect::<Vec<_>>())
            };
            vec![
                versions("/m/a.yaml", "a", "", 0, 10),
                versions("/m/b.yaml", "b", "", 1, 3),
                versions("/m/g.yaml", "g", "", 6, 4),
                versions("/m/c.yaml", "c", "fixed-c", 0, 14),
                // Names used by other files, and a UID that another file uses too. The first one is like a copy of `a.yaml` that
                // sorts before it.
                versions("/m/0.yaml", "a", "", 2, 2),
                versions("/m/e.yaml", "e", "fixed-c", 3, 2),
                versions("/m/f.yaml", "b", "fixed-f", 0, 2),
                versions("/m/h.yaml", "h", "", 10, 4),
            ]
        };
        let own = format!("priority: {CLASS_PRIORITY},");
        let env = format!("env: [{{name: LOGIN, valueFrom: {{secretKeyRef: {{name: {LOGIN}, key: {KEY}}}}}}}]");
        let classed = specs.iter().map(|spec| {
            let spec = spec.replace(&own, &format!("priorityClassName: {CLASS},"));
            spec.replace("{name: side,", &format!("{{name: side, {env},"))
        });
        let limits = format!("{{name: side, resources: {{limits: {{{DEVICE}: 1}}}},");
        let with_devices = specs.iter().map(|spec| spec.replace("{name: side,", &limits));
        let mounts = "volumeMounts: [{name: t, mountPath: /t}, {name: s, mountPath: /s}]";
        // It is replaced within a life.
        let token = "{name: t, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 600}}]}}";
        let settings = "{name: s, configMap: {name: settings}}";
        let supplied = format!(
            "terminationGracePeriodSeconds: 3, containers: [{{name: main, {image}, {requests}, {mounts}}}], volumes: [{token}, {settings}]"
        );
        let secret = format!(
            "terminationGracePeriodSeconds: 3, containers: [{{name: main, {image}, {requests}, env: [{{name: P, valueFrom: {{secretKeyRef: {{name: password, key: A}}}}}}]}}], volumes: [{{name: p, secret: {{secretName: password}}}}]"
        );
        let variable = "env: [{name: A, valueFrom: {configMapKeyRef: {name: settings, key: A, optional: true}}}]";
        let optional =
            format!("restartPolicy: OnFailure, containers: [{{name: main, {image}, {requests}, {variable}}}]");
        let unsupported = format!("{one}, volumes: [{{name: c, persistentVolumeClaim: {{claimName: a}}}}]");
        Pool {
            bound: specs[..10].iter().cloned().chain([supplied, optional, unsupported, secret]).collect(),
            files: files(&specs),
            with_devices: files(&with_devices.collect::<Vec<_>>()),
            classed: files(&classed.collect::<Vec<_>>()),
            hang: (0..12).map(|i| pod(&format!("/m/hang-{i}.yaml"), &format!("hang-{i}"), "", modest)).collect(),
            more: ["more-1", "more-2"].map(|name| pod(&format!("/m/{name}.yaml"), name, "", modest)).to_vec(),
        }
    }
}

/// The life of an init container.
pub fn short_life(chaos: &mut Chaos, of: &str) -> Life {
    let mut dice = chaos.dice("an init container's end:", of);
    let well = chaos.mishap("an init container fails:", of, 250).is_none();
    let ends = Some((Duration::from_millis(below(&mut dice, 4000)), if well { 0 } else { 3 }));
    Life { ends, ..life(chaos, of) }
}

/// The life of an instance of the container `of`.
pub fn life(chaos: &mut Chaos, of: &str) -> Life {
    let ends = chaos.mishap("an end of", of, 250).map(|mut dice| {
        let code = if below(&mut dice, 3) == 0 { 0 } else { 3 };
        (Duration::from_millis(below(&mut dice, 30_000)), code)
    });
    let on_term = match chaos.mishap("deaf to SIGTERM:", of, 500) {
        None => {
            let ends_well = chaos.mishap("a good end at SIGTERM:", of, 500).is_some();
            Some((Duration::from_millis(20), if ends_well { 0 } else { 143 }))
        }
        Some(mut dice) => {
            let late = (Duration::from_millis(below(&mut dice, 8000)), 0);
            (below(&mut dice, 2) == 0).then_some(late)
        }
    };
    Life { ends, on_term, cannot_start: chaos.mishap("no start of", of, 50).is_some() }
}

/// The result of a life: the final world, and the violation, if any.
pub struct Played {
    pub world: World,
    pub result: Result<(), Violation>,
}

/// The class from which pods get the priority that they otherwise set.
pub const CLASS: &str = "gold";
/// A Secret that the same lives define and remove.
const LOGIN: &str = "login";
const KEY: &str = "password";
pub const CLASS_PRIORITY: i32 = 1000;
const DEVICE: &str = "v.io/cam";
/// More than the pods of the pool.
const DEVICES: [&str; 12] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"];
/// The request of each pod of the pool, in milli-CPU.
const REQUESTS: u64 = 300;
/// The number of such pods that fit on a node with scarce room.
const FIT: u64 = 3;

/// Plays one node's life. `plant` may change the checks, for the tests of this test.
pub fn play(pool: &Pool, plan: &Plan, print: bool, plant: fn(&mut Checks)) -> Played {
    let mut c = config();
    c.request_timeout = Duration::from_secs(8);
    c.pull_timeout = Duration::from_secs(20);
    c.max_restart_backoff = Duration::from_secs(40);
    c.fixed.seed = plan.seed;
    c.parallel_sandboxes = plan.parallel_starts;
    c.parallel_containers = plan.parallel_starts;
    c.parallel_reads = plan.parallel_reads;
    if plan.shutdown {
        c.shutdown = Groups::by_priority([(0, 6), (1000, 4), (2_000_000_000, 3)]);
        c.fixed.boot_id = "boot".into();
    }
    if plan.scarce {
        c.node.allocatable.set("cpu", FIT * REQUESTS + REQUESTS / 2);
    }
    // A third of the lives collects images all the time, another one also by age.
    if !plan.seed.is_multiple_of(3) {
        c.image_gc = ImageGcPolicy {
            high_percent: 50,
            low_percent: 40,
            min_age: Duration::from_secs(plan.seed % 7),
            max_age: (plan.seed % 3 == 2).then(|| Duration::from_secs(8 + plan.seed % 5)),
            period: Duration::from_secs(2 + plan.seed % 9),
        };
    }
    c.log_rotation = RotationPolicy {
        max_size: Some(100),
        workers: 1 + plan.parallel_starts % 2,
        interval: Duration::from_secs(3),
        ..RotationPolicy::default()
    };
    // In a quarter of the lives the memory is short at times.
    let pressure = plan.seed % 4 == 1;
    if pressure {
        c.eviction = memory_policy(plan.seed);
    }
    // C15: in half of the lives, Secrets and tokens are sealed.
    let key = plan.seed.is_multiple_of(2).then_some(1);
    if plan.member {
        let key = if key.is_some() { KeyState::Usable } else { KeyState::Missing };
        let sealing = SealingSettings { key, ..SealingSettings::default() };
        c.cluster = Some(ClusterConfig { addresses: vec!["10.0.0.7".into()], sealing, ..ClusterConfig::default() });
    }
    let mut w = World::new(c);
    w.disk.key = key;
    w.scarce = plan.scarce.then_some(FIT as usize);
    w.logind.store = plan.store;
    // A call that was in flight while the machine was suspended comes late.
    let sleeps = plan.turns.iter().any(|t| matches!(t.action, Action::Sleep { .. }));
    w.checks.strict = plan.faults == 0 && plan.lies == 0 && !sleeps;
    w.checks.false_times = plan.lies > 0;
    plant(&mut w.checks);
    w.chaos = Some(Chaos::new(plan.seed, plan.faults, plan.lies, plan.only.clone()));
    w.faults.unlucky = plan.unlucky;
    w.pidfds.available = plan.pidfds;
    // A third of the lives has CRI-O.
    w.runtime.becomes(if plan.seed / 3 % 3 == 1 { Personality::CriO } else { Personality::Containerd });
    w.stream = (plan.seed.is_multiple_of(2) && w.runtime.personality.has_stream()).then(Default::default);
    if print {
        w.history = Some(Vec::new());
    }
    w.runtime.images.insert(IMAGE.into());
    w.runtime.images.extend((0..4).map(|n| format!("old-{n}:1")));
    w.runtime.store.pinned.insert("old-0:1".into());
    // With three images of 10 bytes, the usage is at the high threshold.
    (w.runtime.store.capacity, w.runtime.store.other) = (100, 20 + plan.seed % 30);
    w.host.reports = plan.seed.is_multiple_of(8);
    for name in ["a", "b", "c", "e", "g"] {
        w.host.memory_of.insert(format!("{name}/main"), 100 + plan.seed % 50);
    }
    add_foreign(&mut w);
    let lived = catch_unwind(AssertUnwindSafe(|| {
        w.start();
        live(&mut w, pool, plan)?;
        if plan.classes {
            w.define_class(CLASS, CLASS_PRIORITY);
            w.define_secret(LOGIN, KEY, SECRET);
        }
        if plan.devices {
            w.devices.works_again();
            w.plugin(DEVICE, &DEVICES);
        }
        dumped(&w)?;
        settle(&mut w, pool)
    }));
    let result = lived.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
        Err(Violation { rule: "nothing panics", what: text })
    });
    Played { world: w, result }
}

/// Adds pods of another owner to the same runtime (W21).
fn add_foreign(w: &mut World) {
    let pod = pod("/x", "a", "foreign", crate::story::ONE).pod;
    let call = RuntimeCall::RunSandbox { pod, attempt: 0, handler: Box::default(), user_namespace: None };
    w.runtime.call(&call, Wall(1), |_| Life::FOREVER);
    for s in w.runtime.sandboxes.values_mut() {
        s.owner = Some("root-2".into());
    }
}

/// The engine's state can be dumped at any time.
fn dumped(w: &World) -> Result<(), Violation> {
    let dump = w.engine.dump();
    let lacks = w.engine.pods().iter().any(|p| !dump["workers"][p.pod.uid.as_str()].is_object());
    if dump.to_string().contains(SECRET) {
        return Err(Violation { rule: "a dump contains no secret", what: String::new() });
    }
    if lacks || !dump["ops"]["owners"].is_object() {
        return Err(Violation { rule: "the dump is whole", what: dump.to_string() });
    }
    Ok(())
}

/// One threshold with and one without a grace period.
fn memory_policy(seed: u64) -> EvictionPolicy {
    let kind = if seed.is_multiple_of(5) {
        eviction::ThresholdKind::Soft(Duration::from_secs(8))
    } else {
        eviction::ThresholdKind::Hard
    };
    let limit = eviction::Limit::Amount(MEMORY_LIMIT);
    let threshold = eviction::Threshold { signal: eviction::Signal::MemoryAvailable, kind, limit, reclaim: None };
    let (transition, max_grace) = (Duration::from_secs(5), Duration::from_secs(2));
    EvictionPolicy { thresholds: vec![threshold], transition, max_grace }
}

fn live(w: &mut World, pool: &Pool, plan: &Plan) -> Result<(), Violation> {
    for turn in &plan.turns {
        // Every second turn fills the logs of some containers.
        for of in ["a/main", "b/side", "c/main", "g/main"]
            .into_iter()
            .filter(|of| (turn.wait / 2 + of.len() as u64).is_multiple_of(2))
        {
            w.writes(of, 60);
        }
        w.host.memory = if turn.wait % 3 == 0 { 800 } else { 100 };
        match turn.class {
            Some(true) => {
                w.define_class(CLASS, CLASS_PRIORITY);
                w.define_secret(LOGIN, KEY, &format!("{SECRET}-{}", turn.wait));
            }
            Some(false) => {
                w.remove_class(CLASS);
                w.remove_secret(LOGIN);
            }
            None => {}
        }
        if let Some(change) = turn.devices {
            w.note(|| format!("--- devices {change:?}"));
            change_devices(w, change);
        }
        if let Some(trouble) = turn.manifest {
            w.note(|| format!("--- manifests {trouble:?}"));
            trouble_with_manifests(w, trouble);
        }
        if let Some((pick, what)) = turn.kubectl {
            w.note(|| format!("--- kubectl {what:?}"));
            w.kubectl(&picked_file(w, pick), what);
        }
        if let Some(change) = turn.workload {
            w.note(|| format!("--- {change:?}"));
            change.apply(w);
        }
        w.note(|| format!("--- {:?}", turn.action));
        let files = match plan {
            Plan { classes: true, .. } => &pool.classed,
            Plan { devices: true, .. } => &pool.with_devices,
            _ => &pool.files,
        };
        match &turn.action {
            Action::Cluster(change) => w.change_cluster(pool, change),
            action => act(w, files, action),
        }
        if let Some(seed) = turn.user {
            w.user_acts(&mut Rng::new(seed));
        }
        w.run_ms(turn.wait);
        w.checks.so_far()?;
    }
    Ok(())
}

/// The path of a file. Empty: there is none.
fn picked_file(w: &World, pick: u64) -> String {
    let paths: Vec<String> = w.files.keys().cloned().collect();
    paths.get((pick % paths.len().max(1) as u64) as usize).cloned().unwrap_or_default()
}

fn trouble_with_manifests(w: &mut World, trouble: ManifestTrouble) {
    match trouble {
        ManifestTrouble::Broken(pick, damage) => w.break_file(&picked_file(w, pick), damage),
        ManifestTrouble::Repaired(pick) => w.repair_file(&picked_file(w, pick)),
        ManifestTrouble::Away => w.directory_is_away(true),
        ManifestTrouble::Back => w.directory_is_away(false),
    }
}

fn change_devices(w: &mut World, change: DeviceChange) {
    match change {
        DeviceChange::Register => w.plugin(DEVICE, &DEVICES),
        DeviceChange::End => w.plugin_ends(DEVICE),
        DeviceChange::Unhealthy(remainder) if w.devices.lists.contains_key(DEVICE) => {
            let list = (0..).zip(DEVICES).map(|(i, id)| device(id, i % 3 != remainder));
            w.devices_are(DEVICE, list.collect());
        }
        DeviceChange::Unhealthy(_) => {}
        DeviceChange::FailCalls(calls) => w.devices.failures.extend((0..calls).map(|_| "it is cold".to_owned())),
        DeviceChange::Hang(hang) => w.devices.hang = hang,
    }
}

fn act(w: &mut World, pool: &[(String, Vec<Manifest>)], action: &Action) {
    let pick = |ids: Vec<String>, pick: u64| ids.get((pick % ids.len().max(1) as u64) as usize).cloned();
    match *action {
        Action::Files(ref changes) => {
            let mut files = w.files.clone();
            for (file, version) in changes {
                let (path, versions) = &pool[*file];
                match version {
                    Some(v) => drop(files.insert(path.clone(), versions[*v].clone())),
                    None => drop(files.remove(path)),
                }
            }
            w.set_files(files);
        }
        Action::Kill { away } => {
            w.kill_engine();
            w.start_in(away * MS);
        }
        Action::KillAfter { effects, away } => w.kill_after(effects, away * MS),
        Action::RuntimeAway { ms } => {
            w.runtime_down();
            w.runtime_up_in(ms * MS);
        }
        Action::Exit { pick: p, code } => {
            if let Some(id) = pick(ours(w), p) {
                w.exit(&id, code);
            }
        }
        Action::SandboxDies { pick: p } => {
            let ready = w.runtime.ours().filter(|s| s.ready);
            if let Some(id) = pick(ready.map(|s| s.id.clone()).collect(), p) {
                w.kill_sandbox(&id);
            }
        }
        Action::Clock { by } => w.set_clock(by),
        Action::Sleep { ms } => w.sleep(ms * MS),
        Action::Network { ready } => w.runtime.network_ready = ready,
        Action::RemoveDead { pick: p } => {
            let dead = w.runtime.containers.values().filter(|c| !c.may_run()).map(|c| c.id.clone());
            if let Some(id) = pick(dead.collect(), p) {
                w.runtime.forget(&id);
                w.checks.tampered = true;
            }
        }
        Action::KillPod { pick: p, by, grace } => {
            let pods = w.engine.pods().iter().map(|v| v.pod.uid.to_string()).collect();
            if let Some(uid) = pick(pods, p) {
                w.kill_uid(Uid::from(uid.as_str()), by, grace);
            }
        }
        Action::Release { by } => w.release(by),
        Action::RemovePod { pick: p } => {
            let ready = w.runtime.ours().filter(|s| s.ready);
            if let Some(uid) = pick(ready.map(|s| s.uid.to_string()).collect(), p) {
                w.remove_behind(&Uid::from(uid.as_str()));
            }
        }
        // No effects may follow if the state has not changed.
        Action::Look { hints } => {
            let uids: Vec<Uid> = w.engine.pods().iter().map(|v| v.pod.uid.clone()).collect();
            for (i, uid) in uids.into_iter().enumerate() {
                w.idempotent(&uid);
                if hints >> (i % 64) & 1 == 1 {
                    w.step(World::unknown_event(Some(uid)));
                }
            }
            w.step_early(&Due::Part(Part::Relist));
        }
        Action::Image => {
            if !w.runtime.images.remove("other:1") {
                w.runtime.unknown_images = ["other:1".to_string()].into();
            }
        }
        Action::DiskFull { ms } => w.disk_full(ms * MS),
        Action::PowerOff => w.power_off(),
        Action::CallOff => w.call_off(),
        Action::Reboot { away } => w.reboot(away * MS),
        Action::Bus { up } => w.bus(up),
        Action::HoldProcess { pick: p, ms } => {
            if let Some(id) = pick(ours(w), p) {
                w.hold_process(&id, ms * MS);
            }
        }
        Action::LoseState { pick: p } => {
            if let Some(id) = pick(ours(w), p) {
                w.lose_state(&id);
            }
        }
        Action::Twin { pick: p } => {
            let pods: Vec<_> = w.files.values().cloned().collect();
            if let Some(pod) = pods.get((p % pods.len().max(1) as u64) as usize) {
                let wall = w.wall_now();
                w.note(|| format!("    another owner's pod with the UID {}", pod.uid));
                w.runtime.add_twin(pod, wall);
                w.checks.twin_at = Some(w.time().boot.0);
            }
        }
        Action::FailLists { ms } => w.fail_lists(ms * MS),
        Action::PowerCut { away } => w.power_cut(away * MS),
        Action::Reload { pick } => w.reload(pick),
        Action::Retry { pick: p } => {
            let of_phase = |phase: &str| {
                let pods = w.engine.pods();
                let pods = pods.iter().filter(|v| phase.is_empty() || v.status.phase.as_deref() == Some(phase));
                pods.map(|v| v.pod.uid.to_string()).collect::<Vec<_>>()
            };
            let failed = of_phase("Failed");
            let from = if failed.is_empty() || p % 4 == 0 { of_phase("") } else { failed };
            if let Some(uid) = pick(from, p / 4) {
                w.retry(Uid::from(uid.as_str()));
            }
        }
        Action::Logind { trouble: Some(trouble) } => w.logind_trouble(trouble),
        Action::Logind { trouble: None } => w.logind.well(),
        Action::Cluster(_) => {}
    }
}

/// Our running containers.
fn ours(w: &World) -> Vec<String> {
    let ours = |c: &&Container| c.runs() && c.owner.as_ref() == Some(&w.runtime.owner);
    w.runtime.containers.values().filter(ours).map(|c| c.id.clone()).collect()
}

/// The kinds of random lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lives {
    /// Of a node without a control plane.
    Alone,
    /// Of a node of a cluster.
    Member,
    /// Of a node with workloads.
    Workloads,
    /// Of two days with a power cut every quarter of an hour.
    Days,
}

impl Lives {
    fn plan(self, seed: u64, pool: &Pool) -> Plan {
        match self {
            Lives::Alone => Plan::of(seed, pool),
            Lives::Member => Plan::of_member(seed, pool),
            Lives::Workloads => Plan::of_workloads(seed, pool),
            Lives::Days => Plan::of_days(seed, pool),
        }
    }

    /// The name of the test that plays them.
    fn test(self) -> &'static str {
        match self {
            Lives::Alone => "seeds",
            Lives::Member => "member_seeds",
            Lives::Workloads => "workload_seeds",
            Lives::Days => "two_days_with_two_hundred_power_cuts",
        }
    }
}

/// Plays a range of seeds. The first failing one is printed in full.
pub fn play_all(lives: Lives, seeds: std::ops::Range<u64>) {
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(None::<u64>);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let pool = Pool::new();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let stop = failed.lock().is_ok_and(|f| f.is_some_and(|f| f < seed));
                    if seed >= seeds.end || stop {
                        return;
                    }
                    let result = play(&pool, &lives.plan(seed, &pool), false, |_| {}).result;
                    if let Err(why) = result
                        && let Ok(mut f) = failed.lock()
                    {
                        // Report at once: another life may hang, and shrinking takes a while. The output of `eprintln!` would
                        // be captured until the test ends.
                        let _ = writeln!(std::io::stderr(), "seed {seed}: {why}");
                        *f = Some(f.map_or(seed, |old: u64| old.min(seed)));
                    }
                }
            });
        }
    });
    if let Ok(Some(seed)) = failed.into_inner() {
        replay(lives, seed, false);
    }
}

/// The smallest life that fails like `plan`.
pub fn smallest(pool: &Pool, plan: &Plan, plant: fn(&mut Checks)) -> Plan {
    shrink(plan, |p| {
        let played = play(pool, p, false, plant);
        let happened = played.world.chaos.as_ref().map(|c| c.happened.iter().map(|m| m.id).collect());
        Outcome { broke: played.result.err().map(|v| v.rule), mishaps: happened.unwrap_or_default() }
    })
}

/// Plays one seed. If it fails, prints the shortest such life with its history, on request after the whole one.
///
/// # Panics
/// If it fails.
pub fn replay(lives: Lives, seed: u64, in_full: bool) {
    let pool = Pool::new();
    let plan = lives.plan(seed, &pool);
    let mut whole = play(&pool, &plan, true, |_| {});
    let history = whole.world.history.take().unwrap_or_default();
    if in_full {
        println!("{}", history.join("\n"));
    }
    let Err(why) = whole.result else { return };
    println!("{}", shortest(&pool, &plan, |_| {}));
    panic!(
        "seed {seed}: {why} ({} actions, {} lines of history; the shortest such life is above)\n\
         replay: WHERRY_SEED={seed} cargo test --test simulation -- --exact {}",
        plan.turns.len(),
        history.len(),
        lives.test()
    );
}

/// The shortest life that fails like `plan`, as text with its history.
pub fn shortest(pool: &Pool, plan: &Plan, plant: fn(&mut Checks)) -> String {
    if std::env::var("WHERRY_SHRINK").is_ok_and(|v| v == "0") {
        return "(not shrunk: WHERRY_SHRINK=0)".into();
    }
    let small = smallest(pool, plan, plant);
    let mut played = play(pool, &small, true, plant);
    let mut text = format!("--- the shortest life that fails so: {small}");
    for mishap in played.world.chaos.iter().flat_map(|c| &c.happened) {
        text += &format!("  by chance: {}\n", mishap.what);
    }
    text += &played.world.history.take().unwrap_or_default().join("\n");
    match played.result {
        Ok(()) => text + "\n(it does not fail!)",
        Err(why) => format!("{text}\nviolated: {why}"),
    }
}
