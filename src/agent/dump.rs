//! `wherry debug dump`: the complete state of the engine, and the agent's own state.

use super::descriptors;
use super::jobs::Jobs;
use super::logind::HeldLock;
use super::record_queue::RecordQueue;
use crate::adapters::cgroups::PodCgroups;
use crate::adapters::cri::client::CriClient;
use crate::adapters::devices::Devices;
use crate::adapters::host::memory_pressure::MemoryPressure;
use crate::adapters::logs::writes::LogWrites;
use crate::adapters::pidfds::Pidfds;
use crate::adapters::records::Root;
use crate::adapters::server::routes::ListenerKind;
use crate::api::names::Uid;
use crate::api::ordered::CollectOrdered;
use crate::api::time::Now;
use crate::engine::node::Engine;
use crate::event_loop::{Class, EventLoop, PendingJob, Signals};
use crate::kubectl_api::event_cache::EventCache;
use crate::net::server::listeners::ListenerId;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The state of the agent that is not in the engine, borrowed for one call of `Server::drive`.
pub(super) struct AgentParts<'a> {
    pub jobs: &'a Jobs,
    pub records: &'a RecordQueue,
    pub cgroups: &'a PodCgroups,
    pub pidfds: &'a Pidfds,
    pub memory_pressure: Option<&'a MemoryPressure>,
    pub log_writes: &'a LogWrites,
    pub devices: Option<&'a Devices>,
    pub client: &'a CriClient,
    /// The connections before this turn: listener, state, bytes queued.
    pub connections: Vec<(ListenerId, &'static str, usize)>,
    pub event_loop: &'a EventLoop,
    pub signals: &'a Signals,
    pub lock: &'a HeldLock,
    pub root: &'a Root,
    pub inherited: &'a BTreeSet<i32>,
    pub events_waiting: usize,
    /// Whether the runtime's event stream is open or being opened.
    pub event_stream: bool,
}

pub(super) fn dump(
    engine: &Engine,
    beside: &AgentParts<'_>,
    event_cache: &EventCache,
    started: Now,
    now: Now,
) -> Value {
    // The pattern has no `..`, so that a new field must be considered here.
    let AgentParts {
        jobs,
        records,
        cgroups,
        pidfds,
        memory_pressure: _,
        log_writes: _,
        devices: _,
        client,
        connections,
        events_waiting,
        event_stream,
        event_loop: _,
        signals: _,
        lock: _,
        root: _,
        inherited: _,
    } = beside;
    let (pods, of_pods, of_node) = event_cache.counts();
    let timers: BTreeMap<String, Value> =
        engine.deadlines().into_iter().map(|(due, at)| (due.to_string(), json!(at))).collect_map();
    let helpers = jobs.helpers();
    let jobs: BTreeMap<String, &str> = jobs.awaited().map(|(id, name)| (id.0.to_string(), name)).collect_map();
    let stuck: BTreeMap<&str, usize> = Class::ALL.map(|class| (class.name(), helpers.stuck(class))).into();
    let helpers: Vec<Value> = helpers.pending().map(pending_job).collect();
    let connections: Vec<Value> = connections.iter().map(connection).collect();
    let watched: BTreeMap<&str, &Uid> = pidfds.watched().collect_map();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "started": started,
        "now": now,
        "agent": {
            "descriptors": descriptors::open(),
            "timers": timers,
            "helpers": helpers,
            "helpersStuck": stuck,
            "jobs": jobs,
            "recordsWaiting": records.waiting(),
            "recordsBeingWritten": records.is_writing(),
            "cgroups": cgroups.shown(),
            "processesWatched": watched,
            "runtimeCalls": client.in_flight().collect::<Vec<String>>(),
            "connections": connections,
            "engineEventsWaiting": events_waiting,
            "runtimeEventStream": event_stream,
            "history": { "pods": pods, "eventsOfPods": of_pods, "eventsOfTheNode": of_node },
        },
        "engine": engine.dump(),
    })
}

fn pending_job(PendingJob { id, class, name, deadline, begun }: PendingJob) -> Value {
    json!({ "job": id.0, "class": class.name(), "name": name, "deadline": deadline, "begun": begun })
}

fn connection((listener, state, queued): &(ListenerId, &'static str, usize)) -> Value {
    let listener = ListenerKind::of(*listener).map(|kind| format!("{kind:?}"));
    json!({ "listener": listener, "state": state, "bytesQueued": queued })
}
