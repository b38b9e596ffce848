//! `wherry purge`: removes the pods of a root directory, their files and cgroups, its records, and its drop-in for
//! logind. It runs while no agent is running, and prevents one from starting.
//!
//! The purge is a plain sequence of steps that does not use the engine: no pod is desired, an interrupted purge can
//! be repeated, and its duration is bounded. It touches only objects with the id of this root directory (W21).

use super::tokens::{RUNTIME, SLICES};
use super::{service_table, start};
use crate::adapters::bus;
use crate::adapters::bus::logind::dropin;
use crate::adapters::cgroups::Cgroups;
use crate::adapters::cgroups::slices::Slices;
use crate::adapters::cri::client::{ClientEvent, CriClient};
use crate::adapters::cri::requests::HostDns;
use crate::adapters::pod_files::{self, PodFiles};
use crate::adapters::records::{Root, existing_id};
use crate::api::cgroups::{CLASSES, CgroupDriver, CgroupNames};
use crate::api::facts::{ContainerState, Listed};
use crate::api::names::{FullName, Uid};
use crate::api::ordered::CollectOrdered;
use crate::api::storage_class;
use crate::api::time::Boot;
use crate::config::Config;
use crate::engine::effect::RuntimeCall;
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::event_loop::{EventLoop, clock};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A runtime that does not respond within this time is considered unavailable.
const CONNECT: Duration = Duration::from_secs(10);
/// The shorter limit for a runtime that refuses connections or has no socket. It may be about to start, so the purge
/// does not give up at once.
const REFUSES: Duration = Duration::from_secs(3);
/// The part of the time limit that is reserved for the steps after the grace periods.
const AFTER_STOPS: Duration = Duration::from_secs(10);
/// Minimum timeout of a call, even after the time limit: this call may be the one that kills the containers.
const LEAST: Duration = Duration::from_secs(2);
/// Time that a stop may take beyond its grace period.
const STOP_SLACK: Duration = Duration::from_secs(2);
/// Grace period of containers without one of their own (the default of Kubernetes).
const GRACE: Duration = Duration::from_secs(30);
/// Time limit for removing the rules of services.
const RULES_TIMEOUT: Duration = Duration::from_secs(30);
/// Subdirectory of the root directory in which a package leaves a copy of the binary, so that it can run the purge.
const KEPT: &str = "purge";

/// A pod in the runtime's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodThere {
    pub name: FullName,
    pub uid: Uid,
    /// Number of the pod's running containers.
    pub running: usize,
}

/// Returns the pods of this root directory that the runtime lists, sorted by name.
///
/// # Errors
/// The runtime does not respond, or the root directory's id cannot be read.
pub fn pods(config: &Config) -> Result<Vec<PodThere>, String> {
    let Some(owner) = existing_id(&config.root_dir)? else { return Ok(Vec::new()) };
    let mut runtime = Runtime::connect(config, &owner, clock::boot() + CONNECT)?;
    Ok(pods_of(&runtime.list()?))
}

/// Removes everything, within about `limit`. Calls `report` with a line for each step.
///
/// # Errors
/// The objects that could not be removed, with reasons. The state stays, so that the purge can be repeated.
pub fn purge(config: &Config, limit: Duration, report: &mut dyn FnMut(String)) -> Result<(), Vec<String>> {
    let one = |e: String| vec![e];
    if let Some(owner) = existing_id(&config.root_dir).map_err(one)? {
        // The lock also keeps an agent from starting meanwhile.
        let _root = Root::open(&config.root_dir).map_err(one)?;
        let (driver, shared) = remove_pods(config, &owner, limit, report)?;
        let mut names = start::cgroup_names(config);
        names.driver = driver.unwrap_or(names.driver);
        remove_files(config, names, &shared, report).map_err(one)?;
        if service_table::place(config).remove(RULES_TIMEOUT).map_err(one)? {
            report("removed the rules of services".to_owned());
        }
        remove_state(config)?;
        report(format!("removed the state in {}", config.root_dir.display()));
        let claims = storage_class::own_directory(&config.root_dir.to_string_lossy());
        if Path::new(&claims).exists() {
            report(format!(
                "kept the directories of claims in {claims}; remove them if their files are no longer needed"
            ));
        }
    }
    if dropin::remove(&config.logind_conf_dir).map_err(one)? {
        report(format!("removed {}", config.logind_conf_dir.join(dropin::NAME).display()));
    }
    Ok(())
}

/// Stops and removes all pods of this root directory; after success, the runtime has none of them. Returns the cgroup
/// driver that the runtime reports, and the UIDs under which the runtime has objects of other owners.
fn remove_pods(
    config: &Config,
    owner: &str,
    limit: Duration,
    report: &mut dyn FnMut(String),
) -> Result<(Option<CgroupDriver>, BTreeSet<Uid>), Vec<String>> {
    let end = clock::boot() + limit;
    let one = |e: String| vec![e];
    let mut runtime = Runtime::connect(config, owner, end).map_err(one)?;
    let listed = runtime.list().map_err(one)?;
    let mut errors: BTreeMap<Uid, OpError> = BTreeMap::new();

    let stopping = listed.containers.iter().filter(|c| c.state != ContainerState::Exited);
    let longest = end.since(clock::boot()).saturating_sub(AFTER_STOPS);
    let stops = stopping.map(|c| {
        let grace = c.grace_seconds.map_or(GRACE, Duration::from_secs).min(longest);
        (c.uid.clone(), RuntimeCall::StopContainer { id: c.id.clone(), grace }, grace + STOP_SLACK)
    });
    let stops: Vec<_> = stops.collect();
    runtime.call_all(stops, &mut errors);
    // Containers that did not stop are killed when their sandbox is stopped or when they are removed.
    for step in [stop_sandbox, remove_containers, remove_sandbox] {
        let left = end.since(clock::boot()).max(LEAST);
        let calls = step(&listed).into_iter().map(|(uid, call)| (uid, call, left)).collect();
        runtime.call_all(calls, &mut errors);
    }

    let left = pods_of(&runtime.list().map_err(one)?);
    for pod in pods_of(&listed).iter().filter(|p| !left.iter().any(|l| l.uid == p.uid)) {
        report(format!("stopped and removed pod {}", pod.name));
    }
    if left.is_empty() {
        return Ok((runtime.driver, runtime.shared));
    }
    let why = |uid: &Uid| errors.get(uid).map_or("it appeared again".to_owned(), ToString::to_string);
    Err(left.iter().map(|pod| format!("pod {} cannot be removed: {}", pod.name, why(&pod.uid))).collect())
}

type Calls = Vec<(Uid, RuntimeCall)>;

fn stop_sandbox(listed: &Listed) -> Calls {
    let ready = listed.sandboxes.iter().filter(|s| s.ready);
    ready.map(|s| (s.uid.clone(), RuntimeCall::StopSandbox { id: s.id.clone() })).collect()
}

fn remove_containers(listed: &Listed) -> Calls {
    listed.containers.iter().map(|c| (c.uid.clone(), RuntimeCall::RemoveContainer { id: c.id.clone() })).collect()
}

fn remove_sandbox(listed: &Listed) -> Calls {
    listed.sandboxes.iter().map(|s| (s.uid.clone(), RuntimeCall::RemoveSandbox { id: s.id.clone() })).collect()
}

/// Removes the directories, logs and cgroups of all pods that have a directory. The logs and the cgroup of a UID that
/// other owners share stay (W21); the pod's directory is removed with the root directory.
fn remove_files(
    config: &Config,
    names: CgroupNames,
    shared: &BTreeSet<Uid>,
    report: &mut dyn FnMut(String),
) -> Result<(), String> {
    let known = Cgroups::discover(names.clone());
    let files = PodFiles {
        layout: start::layout(config),
        cluster_domain: config.cluster_domain.clone(),
        host_hosts: "/etc/hosts".into(),
        // Kills processes that the runtime has lost track of.
        remove_cgroup: Arc::new(move |uid, kill| known.as_ref().map_or(Ok(()), |c| c.remove_pod(uid, kill))),
    };
    let (others, found): (Vec<_>, Vec<_>) = files.found().into_iter().partition(|f| shared.contains(&f.uid));
    for other in others {
        report(format!(
            "keeping the logs and the cgroup of pod {}: another pod with the same UID uses them",
            other.name
        ));
    }
    if names.driver == CgroupDriver::Systemd && names.per_qos {
        let uids = found.iter().map(|f| &f.uid);
        if let Err(why) = stop_slices(&names, uids) {
            report(format!("failed to stop pods' slices: {why}; empty slices stay until the next boot"));
        }
    }
    for found in found {
        let FullName { namespace, name } = &found.name;
        files.remove_pod(found.uid.as_str(), namespace, name, true, false).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Stops the slices of pods through systemd, which recreates a slice that is removed only from the cgroup file
/// system. The QoS class of a pod is no longer known, so the slices of all three classes are stopped.
///
/// # Errors
/// The first error that systemd returned.
fn stop_slices<'a>(names: &CgroupNames, uids: impl Iterator<Item = &'a Uid>) -> Result<(), String> {
    let mut event_loop = EventLoop::new().map_err(|e| e.to_string())?;
    let mut slices = Slices::new(&bus::system_address(), SLICES);
    let mut waiting = BTreeSet::new();
    for uid in uids {
        for qos in CLASSES {
            waiting.insert(slices.stop(&names.pod(qos, uid), clock::boot()));
        }
    }
    let (mut result, mut ended) = (Ok(()), Vec::new());
    while !waiting.is_empty() {
        slices.drive(event_loop.registry(), clock::boot(), &mut ended);
        for end in ended.drain(..) {
            waiting.remove(&end.ticket);
            result = result.and(end.result.map(drop));
        }
        if !waiting.is_empty() {
            event_loop.turn(slices.next_deadline(), &mut Vec::new()).map_err(|e| e.to_string())?;
        }
    }
    result
}

/// Removes the content of the root directory, except the files of claims. A mount point in it is not entered and is an
/// error.
fn remove_state(config: &Config) -> Result<(), Vec<String>> {
    let root = config.root_dir.to_string_lossy();
    let entries = fs::read_dir(&config.root_dir).map_err(|e| vec![format!("failed to read {root}: {e}")])?;
    let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    let claims = storage_class::own_directory(&root);
    // Fails if a claim has a directory.
    let _ = fs::remove_dir(&claims);
    let is_kept = |name: &String| name == KEPT || format!("{root}/{name}") == claims;
    // The id is removed last: without it, the owner of the pods is unknown.
    let names: BTreeSet<(bool, String)> = names.filter(|n| !is_kept(n)).map(|n| (n == "id", n)).collect_set();
    let errors: Vec<String> = names.iter().filter_map(|(_, name)| pod_files::remove_tree(&root, name).err()).collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    // Fails if the package's copy of the binary, or a claim, is still in the directory.
    let _ = fs::remove_dir(&config.root_dir);
    // Fails if a device plugin or a kubelet uses the directory.
    if let Some(of_plugins) = config.device_plugin_socket.as_deref().and_then(Path::parent) {
        let _ = fs::remove_dir(of_plugins);
    }
    Ok(())
}

fn pods_of(listed: &Listed) -> Vec<PodThere> {
    let mut pods: BTreeMap<(FullName, Uid), usize> = BTreeMap::new();
    for s in &listed.sandboxes {
        pods.entry((s.name.clone(), s.uid.clone())).or_default();
    }
    for c in &listed.containers {
        *pods.entry((c.pod_name.clone(), c.uid.clone())).or_default() +=
            usize::from(c.state == ContainerState::Running);
    }
    pods.into_iter().map(|((name, uid), running)| PodThere { name, uid, running }).collect()
}

/// A synchronous client of the runtime.
struct Runtime {
    event_loop: EventLoop,
    client: CriClient,
    owner: String,
    /// UIDs under which the last list showed objects of other owners.
    shared: BTreeSet<Uid>,
    /// The cgroup driver that the runtime reports.
    driver: Option<CgroupDriver>,
    next_op: u64,
}

impl Runtime {
    fn connect(config: &Config, owner: &str, end: Boot) -> Result<Runtime, String> {
        let event_loop = EventLoop::new().map_err(|e| e.to_string())?;
        let transport = start::transport(&config.runtime_socket, event_loop.registry(), RUNTIME)?;
        let client = CriClient::new(transport, start::request_config(config, owner, HostDns::none()));
        let mut runtime =
            Runtime { event_loop, client, owner: owner.to_owned(), shared: BTreeSet::new(), driver: None, next_op: 0 };
        let mut end = end.min(clock::boot() + CONNECT);
        let mut why = "it does not respond".to_owned();
        while !runtime.client.is_up() && clock::boot() < end {
            for event in runtime.turn(Some(end)).map_err(|e| e.to_string())? {
                if let ClientEvent::Down { why: down } = event {
                    why = down;
                    end = end.min(clock::boot() + REFUSES);
                }
            }
        }
        let away = |why: &str| format!("the container runtime on unix://{}: {why}", config.runtime_socket.display());
        if !runtime.client.is_up() {
            return Err(away(&why));
        }
        runtime.call(RuntimeCall::Status, CONNECT).map_err(|e| away(&e.to_string()))?;
        Ok(runtime)
    }

    /// Lists the sandboxes and containers of this root directory.
    fn list(&mut self) -> Result<Listed, String> {
        match self.call(RuntimeCall::List, CONNECT).map_err(|e| format!("failed to list the pods: {e}"))? {
            Answer::Listed(mut listed) => {
                let other = |o: &Option<String>| o.as_ref() != Some(&self.owner);
                let sandboxes = listed.sandboxes.iter().filter(|s| other(&s.owner)).map(|s| &s.uid);
                let containers = listed.containers.iter().filter(|c| other(&c.owner)).map(|c| &c.uid);
                self.shared = sandboxes.chain(containers).cloned().collect_set();
                listed.sandboxes.retain(|s| s.owner.as_ref() == Some(&self.owner));
                listed.containers.retain(|c| c.owner.as_ref() == Some(&self.owner));
                Ok(listed)
            }
            other => Err(format!("failed to list the pods: unexpected response: {other:?}")),
        }
    }

    fn call(&mut self, call: RuntimeCall, timeout: Duration) -> Result<Answer, OpError> {
        let mut results = self.run(vec![(call, timeout)]);
        results.pop().unwrap_or_else(|| Err(OpError::Unknown("no response".to_owned())))
    }

    /// Makes all calls at once and records errors. NotFound is considered a success.
    fn call_all(&mut self, calls: Vec<(Uid, RuntimeCall, Duration)>, errors: &mut BTreeMap<Uid, OpError>) {
        let (uids, calls): (Vec<Uid>, Vec<_>) =
            calls.into_iter().map(|(uid, call, timeout)| (uid, (call, timeout))).unzip();
        for (uid, result) in uids.into_iter().zip(self.run(calls)) {
            if let Err(e) = result.map_err(|e| (!e.is_not_found()).then_some(e)) {
                errors.extend(e.map(|e| (uid, e)));
            }
        }
    }

    /// Makes the calls and returns their results in order. No call takes longer than its timeout.
    fn run(&mut self, calls: Vec<(RuntimeCall, Duration)>) -> Vec<Result<Answer, OpError>> {
        let first = self.next_op;
        let mut results: Vec<Option<Result<Answer, OpError>>> = vec![None; calls.len()];
        for (call, timeout) in calls {
            self.client.start(OpId(self.next_op), call, timeout, clock::boot());
            self.next_op += 1;
        }
        while results.iter().any(Option::is_none) {
            let events = match self.turn(None) {
                Ok(events) => events,
                Err(e) => {
                    let failed = || Some(Err(OpError::Unknown(e.to_string())));
                    results.iter_mut().filter(|r| r.is_none()).for_each(|r| *r = failed());
                    break;
                }
            };
            for event in events {
                match event {
                    ClientEvent::Done { op, result } => {
                        let at = op.0.checked_sub(first).and_then(|n| usize::try_from(n).ok());
                        if let Some(slot) = at.and_then(|at| results.get_mut(at)) {
                            *slot = Some(result);
                        }
                    }
                    ClientEvent::Driver(driver) => self.driver = driver,
                    _ => {}
                }
            }
        }
        results.into_iter().flatten().collect()
    }

    /// Sends and receives bytes, and waits up to `until` if there are no events yet.
    fn turn(&mut self, until: Option<Boot>) -> std::io::Result<Vec<ClientEvent>> {
        let mut events = Vec::new();
        let again = self.client.drive(clock::boot(), &mut events);
        if events.is_empty() && !again {
            let deadline = self.client.next_deadline().into_iter().chain(until).min();
            self.event_loop.turn(deadline, &mut Vec::new())?;
        }
        Ok(events)
    }
}
