//! `wherry debug fds`: every descriptor of the process and its purpose.
//!
//! The kernel reports the descriptors and the token under which epoll watches each of them. The agent knows the owner
//! of each token. A descriptor without a known owner is listed as `unknown`: it is a leak, or this file does not
//! handle it.

use super::dump::AgentParts;
use super::tokens::{EVENTS, HELPERS, LOGIND, MANIFESTS, MOUNTS, RUNTIME, SERVER, SIGNALS, SLICES};
use crate::adapters::server::routes::{LISTENERS, ListenerKind};
use crate::api::ordered::CollectOrdered;
use crate::api::time::Now;
use crate::config::Config;
use crate::engine::node::Engine;
use crate::event_loop::{Class, EventLoop, Signal};
use crate::net::server::listeners;
use mio::Token;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub(super) struct Descriptor {
    descriptor: i32,
    /// A word from a fixed list (docs/strace.md).
    kind: &'static str,
    /// The purpose of the descriptor, or the event that it waits for.
    watches: String,
    /// The number of events. None if the poll does not watch the descriptor. Descriptors with the same token share
    /// their count.
    events: Option<u64>,
    /// The file as /proc shows it.
    file: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List {
    /// Turns of the loop since the start.
    turns: u64,
    /// Number of events for all allocated tokens: ends that pidfds have reported, but also the events of probes, hooks,
    /// device plugins, log watches and memory pressure.
    ends_told: u64,
    descriptors: Vec<Descriptor>,
}

/// Returns the open descriptors of the process by number, except the one that reads /proc/self/fd.
pub(super) fn open() -> BTreeMap<i32, String> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return BTreeMap::new() };
    let numbers: Vec<i32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    // The directory's own descriptor is closed by now.
    let target = |fd: i32| Some((fd, std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?.to_string_lossy().into()));
    numbers.into_iter().filter_map(target).collect_map()
}

pub(super) fn list(beside: &AgentParts<'_>, engine: &Engine, config: &Config, now: Now) -> List {
    let event_loop = beside.event_loop;
    let registered = event_loop.registered();
    let one = |(fd, file): (i32, String)| {
        let token = registered.get(&fd).copied();
        let (kind, watches) = match token {
            Some(token) => watched(token, fd, &file, beside, engine, config, now),
            None => unwatched(fd, &file, beside, config),
        };
        // A pidfd reports a single event and is then closed. `ends_told` counts it, together with the events of all
        // other allocated tokens.
        let events = token.map(|token| if beside.pidfds.owns(token) { 0 } else { event_loop.seen(token) });
        Descriptor { descriptor: fd, kind, watches, events, file }
    };
    List {
        turns: event_loop.turns(),
        ends_told: event_loop.seen_of_given_out(),
        descriptors: open().into_iter().map(one).collect(),
    }
}

fn is_inotify(file: &str) -> bool {
    file == "anon_inode:inotify"
}

/// Returns the kind and the purpose of a descriptor that the poll watches.
fn watched(
    token: Token,
    fd: i32,
    file: &str,
    beside: &AgentParts<'_>,
    engine: &Engine,
    config: &Config,
    now: Now,
) -> (&'static str, String) {
    let bus = |whose: &str, kind| match is_inotify(file) {
        true => ("inotify", format!("the directory in which the bus's socket would appear ({whose})")),
        false => (kind, whose.to_owned()),
    };
    match token {
        token if EventLoop::is_timer(token) => (
            "timerfd",
            match beside.event_loop.own().2 {
                Some(at) => format!("the earliest deadline, in {:.1} s", at.since(now.boot).as_secs_f64()),
                None => "no deadline".to_owned(),
            },
        ),
        SIGNALS => ("signal", signal(fd, beside).unwrap_or_else(|| "a signal".to_owned())),
        HELPERS => ("waker", "a helper thread that has done its work".to_owned()),
        RUNTIME => ("cri", format!("the runtime's responses: unix://{}", config.runtime_socket.display())),
        EVENTS => ("cri-events", format!("the runtime's container events: unix://{}", config.runtime_socket.display())),
        MANIFESTS => ("inotify", format!("manifests: {}", config.manifests.display())),
        MOUNTS => ("mounts", "changes to the mount table, for manifests".to_owned()),
        LOGIND => bus("logind, which announces shutdowns", "bus"),
        SLICES => bus("systemd, which creates the slices of pods", "bus"),
        token => match listeners::owner(&LISTENERS, SERVER, token) {
            Some((listener, connection)) => {
                let listener_kind = ListenerKind::of(listener);
                let at = listener_kind.map(|listener_kind| place(listener_kind, config)).unwrap_or_default();
                match (connection, is_inotify(file)) {
                    (true, _) => ("connection", format!("a client of {at}")),
                    (false, true) => ("inotify", format!("the file of {at}, in case it is removed")),
                    (false, false) => ("listener", format!("new clients of {at}")),
                }
            }
            None => match beside.pidfds.of(token) {
                Some((pid, id, uid)) => {
                    let name = engine.pod(uid).map_or_else(|| uid.to_string(), |view| view.pod.name.to_string());
                    let short: String = id.chars().take(12).collect();
                    ("pidfd", format!("the exit of process {pid} of {name} ({short})"))
                }
                None if beside.log_writes.owns(token) => {
                    ("inotify", format!("writes to {} container logs", beside.log_writes.watched()))
                }
                None if beside.memory_pressure.is_some_and(|m| m.owns(token)) => {
                    ("pressure", "the kernel's reports of memory pressure".to_owned())
                }
                None => match beside.devices.and_then(|devices| devices.purpose(token)) {
                    Some(purpose) => (if is_inotify(file) { "inotify" } else { "devices" }, purpose),
                    None => ("unknown", format!("token {}", token.0)),
                },
            },
        },
    }
}

fn place(listener_kind: ListenerKind, config: &Config) -> String {
    match listener_kind {
        ListenerKind::Control => format!("the control socket {}", config.socket.display()),
        ListenerKind::Health => {
            format!("the health port {}", config.healthz().map(|a| a.to_string()).unwrap_or_default())
        }
        ListenerKind::ReadOnly => {
            format!("the read-only port {}", config.read_only().map(|a| a.to_string()).unwrap_or_default())
        }
        ListenerKind::Node => {
            format!("the kubelet port {}", config.node_server().map(|a| a.to_string()).unwrap_or_default())
        }
        ListenerKind::Kubectl => {
            format!("the kubectl port {}", config.kubectl().map(|a| a.to_string()).unwrap_or_default())
        }
    }
}

fn signal(fd: i32, beside: &AgentParts<'_>) -> Option<String> {
    let (signal, read, _) = beside.signals.descriptors().find(|(_, read, write)| fd == *read || fd == *write)?;
    let name = match signal {
        Signal::Terminate => "SIGTERM",
        Signal::Interrupt => "SIGINT",
        Signal::Hangup => "SIGHUP",
    };
    Some(if fd == read {
        format!("{name}, read by the loop")
    } else {
        format!("{name}, written by the signal handler")
    })
}

/// Returns the kind and the purpose of a descriptor that the poll does not watch.
fn unwatched(fd: i32, file: &str, beside: &AgentParts<'_>, config: &Config) -> (&'static str, String) {
    let plain = |kind, what: &str| (kind, what.to_owned());
    if fd == beside.event_loop.own().0 {
        return plain("epoll", "events on all descriptors below");
    }
    if fd == beside.root.descriptor() {
        return ("lock", format!("prevents a second wherry on {}", config.root_dir.display()));
    }
    if beside.lock.descriptor() == Some(fd) {
        return plain("inhibitor", "logind's delay lock: a shutdown waits until it is closed");
    }
    if let Some(what) = signal(fd, beside) {
        return ("signal", what);
    }
    match fd {
        0 => return plain("stdin", "not read"),
        1 => return plain("stdout", "not written"),
        2 => return plain("stderr", "the log"),
        _ => {}
    }
    if file == "anon_inode:[eventpoll]" && !beside.inherited.contains(&fd) {
        return plain("epoll", "a duplicate of the event loop's descriptor, used by an adapter");
    }
    if beside.inherited.contains(&fd) {
        return plain("inherited", "not used: inherited from the parent process");
    }
    // The loop closes any other descriptor in the same turn, so only a helper thread can hold one open.
    let helpers = beside.jobs.helpers();
    if helpers.pending().any(|job| job.begun) || Class::ALL.into_iter().any(|class| helpers.stuck(class) > 0) {
        return plain("file", "in use by a helper thread");
    }
    if cfg!(feature = "grpcio") {
        return plain("grpc", "gRPC's C-core");
    }
    plain("unknown", "not opened by any known part of wherry")
}
