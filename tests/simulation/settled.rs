//! The end of a life. The faults stop, and a while later exactly the desired pods run. Then new requests are served at once,
//! and after the removal of all manifests nothing is left.

use crate::check::Violation;
use crate::cluster::settled as cluster;
use crate::plan::KILLERS;
use crate::random::Pool;
use crate::runtime::{Container, Sandbox, container_fact};
use crate::text::brief;
use crate::workload_lives;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use wherry::api::facts::ContainerFact;
use wherry::api::names::Uid;
use wherry::api::pod::{RestartPolicy, is_sidecar};
use wherry::engine::claims::record as of_claim;
use wherry::engine::cluster::member;
use wherry::engine::control::Request;
use wherry::engine::node::PodView;
use wherry::engine::node::{Due, Part};
use wherry::engine::services::record as of_services;
use wherry::engine::workloads::record;

/// The number of hanging pods per slot for parallel starts.
const HANG: usize = 3;

pub type Judged = Result<(), Violation>;

pub fn unless(well: bool, rule: &'static str, what: impl FnOnce() -> String) -> Judged {
    if well { Ok(()) } else { Err(Violation { rule, what: what() }) }
}

/// The faults stop, and a while later everything must be in order.
pub fn settle(w: &mut World, pool: &Pool) -> Judged {
    w.note(|| "--- from here on all is well".into());
    w.all_is_well();
    w.collects_no_images();
    w.host.memory = 0;
    w.host.memory_of.clear();
    w.directory_is_away(false);
    workload_lives::suspend(w);
    if w.config.cluster.is_some() {
        w.set_settings(Some(7));
        w.set_password(Some(7));
    }
    // Deadlines are 40 s, and the clock may have been set. Pods with a deadline end by then.
    w.run(20);
    KILLERS.into_iter().for_each(|by| w.release(by));
    w.ask(Request::Cordon { on: false });
    w.run(150);
    if !w.config.eviction.thresholds.is_empty() {
        // E5: the longest delay of an evicted pod, and one pod after another.
        w.run(300);
    }
    w.users_are_answered();
    w.clients_see_the_pods();
    w.checks.so_far()?;
    let (requested, answered) = (w.observed.kills - w.observed.kills_before, w.observed.killed.len() as u64);
    unless(requested == answered, "W5: each requester gets an answer", || format!("{answered} of {requested}"))?;
    rests(w)?;
    armed(w)?;
    as_desired(w)?;
    workload_lives::agree(w)?;
    w.services_agree()?;
    cluster::agrees(w)?;
    nothing_else(w)?;
    cluster::survives_an_absence(w)?;
    goes_on(w, pool)?;
    ends_clean(w)
}

/// S2, S3, S7: in the end there is one lock and the full delay, whatever went wrong with logind.
fn armed(w: &World) -> Judged {
    let view = w.engine.shutdown(w.time().boot);
    let well = !view.enabled || view.armed && view.problem.is_none() && w.logind.locks() == 1;
    unless(well, "S3: armed in the end", || format!("{} locks, {:?}", w.logind.locks(), view.problem))
}

/// Without new events nothing changes.
fn rests(w: &mut World) -> Judged {
    let (published, steps, calls, probed) =
        (w.observed.published, w.observed.steps, w.observed.changing_calls, w.handlers.probed);
    let requests = w.api.requests.len();
    w.run(20);
    w.checks.so_far()?;
    unless(w.observed.published == published, "rest: nothing is shown again", || {
        format!("{} times", w.observed.published - published)
    })?;
    unless(w.observed.changing_calls == calls, "rest: nothing is changed", || {
        format!("{} calls", w.observed.changing_calls - calls)
    })?;
    cluster::rests(w, requests)?;
    // Allowed are two lists a second, their answers, the work of each minute, and requests with their timers and answers.
    let steps = w.observed.steps - steps;
    let allowed = 20 * 2 + 40 + 2 * (w.handlers.probed - probed) + 4 * (w.api.requests.len() - requests) as u64;
    unless(steps <= allowed, "rest: few steps", || format!("{steps} steps in 20 s"))
}

fn as_desired(w: &World) -> Judged {
    // P3: a state unknown to the runtime is read, and such a container is stopped. P2 requires only one read; if a list lied
    // before, that read has already happened.
    let unknown = w.runtime.containers.values().find(|c| c.unknown && c.runs()).filter(|_| !w.checks.lied);
    unless(unknown.is_none(), "P3", || format!("the state of {:?} is unknown still", unknown.map(|c| &c.id)))?;
    for view in w.engine.pods() {
        unless(view.desired, "end: only what is desired is there", || format!("{} is", view.pod.uid))?;
        if view.pod.is_from_api_server() && view.status.phase.as_deref() != Some("Running") {
            cluster::has_a_reason(w, &view)?;
        } else {
            runs_as_it_should(w, &view)?;
        }
    }
    // Each file's pod exists, or waits behind another pod with its name or UID.
    for p in w.manifests.in_force.values() {
        let recorded = w.manifests.recorded_digests(&p.source.path);
        unless(recorded.as_deref() == Some(&[p.digest.as_str()]), "D2: the record has what is in force", || {
            format!("{} is {}, recorded {recorded:?}", p.source.path, p.digest)
        })?;
        // If a preempted pod was then edited, or replaced under its UID, the old version is shown until there is room.
        let preempted = |v: &PodView<'_>| w.scarce.is_some() && waits_for_room(w, v);
        if w.engine.pod(&p.uid).is_some_and(|v| preempted(&v)) {
            continue;
        }
        // A resized pod has the UID of an earlier version.
        let same = |v: &PodView<'_>| v.pod.digest == p.digest && v.pod.source == p.source;
        let there = w.engine.pods().iter().any(same);
        let behind = w.engine.conflicts().iter().any(|c| c.source == p.source);
        unless(there != behind, "end: each file's pod is there or behind another", || {
            format!("{} of {}: there {there}, behind another {behind}", p.uid, p.source.path)
        })?;
    }
    Ok(())
}

fn runs_as_it_should(w: &World, view: &PodView<'_>) -> Judged {
    const RULE: &str = "end: what runs is what is desired";
    let uid = &view.pod.uid;
    let running: Vec<&str> = w.runtime.of(uid).filter(|c| c.runs()).map(|c| c.name.as_str()).collect();
    let always = view.pod.restart_policy() == RestartPolicy::Always;
    match view.status.phase.as_deref().unwrap_or_default() {
        "Running" => {
            let sidecars = view.pod.init_containers().iter().filter(|c| is_sidecar(c));
            for c in sidecars.chain(view.pod.containers()) {
                let n = running.iter().filter(|r| **r == c.name).count();
                let mut shown = view.status.container_statuses.iter().flatten();
                let done = shown.any(|s| s.name == c.name && s.state.as_ref().is_some_and(|s| s.terminated.is_some()));
                unless(n == 1 || n == 0 && done && !always, RULE, || {
                    format!("{n} of {} of {uid} run: {}", c.name, brief(view.status))
                })?;
                let mut instances = w.runtime.of(uid).filter(|r| r.runs() && r.name == c.name);
                let wanted = c.resources.as_deref().cloned().unwrap_or_default();
                let resized = instances.all(|r| r.resources.clone().unwrap_or_default() == wanted);
                // A container of another version under a fixed UID may continue.
                unless(resized || view.pod.has_own_uid(), "R3: containers have the resources of the spec", || {
                    format!("{} of {uid}", c.name)
                })?;
            }
            ephemeral_containers_had_their_start(w, view)?;
            shows_its_address(w, view)
        }
        phase @ ("Succeeded" | "Failed") => {
            unless(running.is_empty(), RULE, || format!("{uid} is {phase} and {running:?} run"))?;
            // A3, A8, A9: there is no room for it.
            if let Some(fit) = w.scarce
                && (waits_for_room(w, view) || view.status.reason.as_deref() == Some("OutOfcpu"))
            {
                let runs = |v: &&PodView<'_>| v.status.phase.as_deref() == Some("Running");
                let others = w.engine.pods().iter().filter(runs).count();
                let well = !waits_for_room(w, view) || others >= fit;
                return unless(well, "A9", || format!("{uid} is not back, {others} pods run"));
            }
            let may_end = !always || view.pod.active_deadline().is_some();
            unless(may_end, RULE, || format!("{uid} is {phase} and should run"))
        }
        other => unless(false, RULE, || format!("{uid} is {other}: {}", brief(view.status))),
    }
}

/// W29: a start that the runtime gave up is repeated, unless the target does not run.
fn ephemeral_containers_had_their_start(w: &World, view: &PodView<'_>) -> Judged {
    for e in &view.pod.ephemeral {
        let containers: Vec<&Container> = w.runtime.of(&view.pod.uid).collect();
        let runs = |name: &str| containers.iter().any(|c| c.name == name && c.runs());
        let waits = e.target.as_deref().is_some_and(|target| !runs(target));
        let of_name = containers.iter().filter(|c| c.name == e.container.name);
        let all: Vec<_> = of_name.map(|c| container_fact(c, false)).collect();
        let lost = !all.is_empty() && all.iter().all(ContainerFact::start_was_given_up) && !waits;
        unless(!lost, "W29", || format!("{} of {} never ran", e.container.name, view.pod.uid))?;
    }
    Ok(())
}

/// P4: a running pod has the address of its sandbox.
fn shows_its_address(w: &World, view: &PodView<'_>) -> Judged {
    let sandbox = w.runtime.ours().find(|s| s.uid == view.pod.uid && s.ready);
    let shown = view.status.pod_ip.clone().unwrap_or_default();
    // An engine that starts after the runtime forgot the address cannot know it.
    let unknown = |s: &Sandbox| s.forgotten_address && shown.is_empty();
    let well = view.pod.host_network() || sandbox.is_none_or(|s| s.ip == shown || unknown(s));
    unless(well, "P4", || format!("{} is shown with the address {shown:?} and has {sandbox:?}", view.pod.uid))
}

/// A9: the pod was preempted.
fn waits_for_room(w: &World, view: &PodView<'_>) -> bool {
    let worker_status = w.engine.worker_status(&view.pod.uid, w.time().boot);
    worker_status.is_some_and(|i| i.waits_for.iter().any(|what| what.starts_with("room, to start again")))
}

fn ours(w: &World) -> impl Iterator<Item = (&String, &Uid)> {
    let ours = |owner: &Option<String>| owner.as_ref() == Some(&w.runtime.owner);
    let containers = w.runtime.containers.values().filter(move |c| ours(&c.owner)).map(|c| (&c.id, &c.uid));
    w.runtime.ours().map(|s| (&s.id, &s.uid)).chain(containers)
}

/// Nothing else is left in the runtime, on disk and in the engine's state.
fn nothing_else(w: &World) -> Judged {
    const RULE: &str = "end: all else is gone";
    let wanted: Vec<Uid> = w.engine.pods().iter().map(|v| v.pod.uid.clone()).collect();
    for (id, uid) in ours(w) {
        unless(wanted.contains(uid), RULE, || format!("{id} of {uid} is left"))?;
    }
    for uid in &wanted {
        let ready = w.runtime.ours().filter(|s| s.uid == *uid && s.ready).count();
        unless(ready <= 1, RULE, || format!("{ready} sandboxes of {uid} are ready"))?;
        // A pod that has ended keeps the containers that it had.
        let of: Vec<(&str, u32)> = w.runtime.of(uid).map(|c| (c.name.as_str(), c.attempt)).collect();
        let containers = w.engine.pod(uid).map_or(0, |v| v.pod.all_containers().count());
        // A pod with a fixed UID may have inherited containers of another version.
        let names = of.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len();
        unless(of.len() <= 3 * containers.max(names).max(2), "W26: dead containers do not pile up", || {
            format!("{of:?}")
        })?;
    }
    let other = |owner: &Option<String>| owner.as_ref() != Some(&w.runtime.owner);
    let mut foreign = w.runtime.sandboxes.values().filter(|s| other(&s.owner)).map(|s| s.ready);
    let mut containers = w.runtime.containers.values().filter(|c| other(&c.owner)).map(Container::runs);
    let alone = foreign.all(|ready| ready) && containers.all(|runs| runs);
    unless(alone, "W21: what others own is left alone", || "somebody else's sandbox was stopped".into())?;
    for key in w.disk.records.keys() {
        let known = key == "shutdown/last"
            || key == "images/unused"
            || key == "documents/in-force" && w.manifests.has_objects()
            || wanted.iter().any(|uid| *key == format!("pods/{uid}"))
            || w.config.cluster.is_some() && member::is_key(key)
            || w.engine.claims().iter().any(|(of, _)| *key == of_claim::key(of))
            || *key == of_services::KEY && w.engine.services().iter().next().is_some()
            || w.engine.workloads().iter().any(|(of, _)| *key == record::key(of));
        unless(known, "leak: records", || format!("{key} is left"))?;
    }
    // A pod keeps an empty cgroup that a cancelled call created late, until the pod starts or is forgotten. That is so if it
    // waits for room, or was about to start when Wherry was killed and has been rejected since.
    let keeps = |v: &PodView<'_>| waits_for_room(w, v) || v.status.reason.as_deref() == Some("OutOfcpu");
    let over = |uid: &Uid| match w.engine.pod(uid) {
        None => true,
        Some(v) => !keeps(&v) && ["Succeeded", "Failed"].contains(&v.status.phase.as_deref().unwrap_or("Failed")),
    };
    // If a lie hid a ready sandbox of a pod that had already ended, its cgroup stays.
    let hidden = |uid: &Uid| w.checks.lied && w.runtime.ours().any(|s| s.uid == *uid && s.ready);
    // Another owner's pod has a cgroup of its own; the model has one for both.
    let others = |uid: &Uid| w.runtime.sandboxes.values().any(|s| s.uid == *uid && other(&s.owner));
    let stray = w.runtime.cgroups.iter().find(|uid| !others(uid) && over(uid) && !hidden(uid));
    unless(stray.is_none() || w.clock.slept, "leak: cgroups", || format!("that of {stray:?} is left"))?;
    let stray = w.disk.directories.keys().find(|d| !wanted.contains(d));
    unless(stray.is_none(), "leak: directories", || format!("that of {stray:?} is left"))?;
    // A record that could not be written does not mention them.
    let volumes =
        w.volumes.mounted.iter().find(|uid| (w.process.life == 0 || w.checks.strict) && !wanted.contains(uid));
    unless(volumes.is_none(), "leak: volumes", || format!("those of {volumes:?} are left"))?;
    for id in w.pidfds.watched.keys() {
        unless(w.runtime.lives(id), "leak: watches", || format!("{id} is watched, and is over"))?;
    }
    unless(w.pending_ops() <= 1, "leak: operations", || format!("{} are in flight", w.pending_ops()))?;
    let known = w.operations_in_flight();
    // Probes may be in flight.
    unless(known <= 1 + w.handlers.probing.len() + w.api.watches(), "leak: operations", || {
        format!("{known} are waited for")
    })?;
    let lost = w.lost_log();
    unless(lost.is_none(), "L3: each container has its log", || format!("that of {lost:?} is missing"))?;
    for (due, _) in w.deadlines() {
        let fine = match &due {
            Due::Part(Part::Relist | Part::RuntimeStatus | Part::Images | Part::Eviction | Part::Logs) => true,
            Due::Pod(uid) => wanted.contains(uid),
            // The next read of logind's delay.
            Due::Part(Part::Logind) => w.logind.wanted,
            Due::Part(Part::Cluster) => w.config.cluster.is_some(),
            // The next check of the rules.
            Due::Part(Part::Services) => !w.rules.table.is_empty(),
            // The deadline of a roll-out, for example.
            Due::Part(Part::Workloads) => !w.engine.workloads().is_empty(),
            Due::Part(
                Part::Shutdown | Part::Leftovers | Part::Admission | Part::Slots | Part::Manifests | Part::Claims,
            )
            | Due::Reread(_) => false,
        };
        unless(fine, "leak: deadlines", || format!("{due} is due"))?;
    }
    Ok(())
}

/// Finds slots that were never released: new pods start and pull their image. They do so later, but
/// still, while older pods hang.
fn goes_on(w: &mut World, pool: &Pool) -> Judged {
    w.runtime.images.remove("other:1");
    let mut files = w.files.clone();
    let (hang, within) =
        if w.config.fixed.seed.is_multiple_of(4) { (HANG * w.config.parallel_sandboxes, 30) } else { (0, 10) };
    if hang > 0 {
        w.note(|| format!("--- {hang} pods hang"));
        w.faults.hanging = Some("hang-");
        files.extend(pool.hang[..hang].iter().map(|p| (p.source.path.clone(), p.clone())));
        w.set_files(files.clone());
        w.run(1);
    }
    w.note(|| "--- two more pods".into());
    files.extend(pool.more.iter().map(|p| (p.source.path.clone(), p.clone())));
    w.set_files(files);
    w.run(within);
    w.checks.so_far()?;
    for p in &pool.more {
        let phase = w.engine.pod(&p.uid).and_then(|v| v.status.phase.clone()).unwrap_or_default();
        unless(phase == "Running", "leak: turns", || format!("{} is {phase} after {within} s", p.uid))?;
    }
    w.faults.hanging = None;
    Ok(())
}

/// All manifests are removed.
fn ends_clean(w: &mut World) -> Judged {
    w.note(|| "--- all manifests go".into());
    w.delete_all_pods();
    workload_lives::remove_all(w);
    w.set_files(BTreeMap::new());
    w.run(60);
    w.checks.so_far()?;
    let pods = w.engine.pods().len();
    unless(pods == 0, "end: nothing hangs", || format!("{pods} pods are left 60 s after their manifests went"))?;
    cluster::is_empty(w)?;
    nothing_else(w)?;
    let records = w.manifests.records();
    unless(records == 0 || w.manifests.has_objects(), "leak: records of manifests", || format!("{records} are left"))?;
    unless(w.rules.table.is_empty(), "leak: rules of services", || format!("{:?} are left", w.rules.table))?;
    let summary = w.engine.summary(w.time().boot);
    let none = summary.working.is_empty() && summary.rejected == 0;
    unless(none, "leak: workers", || "of pods that are gone".into())
}
