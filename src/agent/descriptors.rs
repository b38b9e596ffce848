//! `wherry debug fds`: every descriptor of the process and what it is for.
//!
//! The kernel says which there are and under which token the poll watches each; whose the token is the agent knows. One
//! that nobody here knows is listed as `unknown`: that is a leak, or a line missing below.

use super::dump::AgentParts;
use super::{EVENTS, HELPERS, LOGIND, MANIFESTS, MOUNTS, RUNTIME, SERVER, SIGNALS, SLICES};
use crate::adapters::server::Server;
use crate::adapters::server::http::ListenerKind;
use crate::api::time::Now;
use crate::config::Config;
use crate::engine::node::Engine;
use crate::event_loop::{Class, EventLoop, Signal};
use mio::Token;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub(super) struct Descriptor {
    descriptor: i32,
    /// A word of a fixed list (docs/strace.md).
    kind: &'static str,
    /// What it is for, or what it waits for.
    watches: String,
    /// None: the poll does not watch it. Descriptors under one token share their count.
    events: Option<u64>,
    /// As /proc shows it.
    file: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List {
    /// How often the loop has waited since the start.
    turns: u64,
    /// Processes of containers and sandboxes whose end a pidfd has told of.
    ends_told: u64,
    descriptors: Vec<Descriptor>,
}

/// By number, what the process has open, but for the directory that says so.
pub(super) fn open() -> BTreeMap<i32, String> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return BTreeMap::new() };
    let numbers: Vec<i32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    // That directory's own descriptor is closed by now.
    let target = |fd: i32| Some((fd, std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?.to_string_lossy().into()));
    numbers.into_iter().filter_map(target).collect()
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
        // A pidfd's first event is its last, and those of all that had theirs are in one count.
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

/// One in the poll.
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
        RUNTIME => ("cri", format!("the runtime's answers: unix://{}", config.runtime_socket.display())),
        EVENTS => ("cri-events", format!("the runtime's container events: unix://{}", config.runtime_socket.display())),
        MANIFESTS => ("inotify", format!("manifests: {}", config.manifests.display())),
        MOUNTS => ("mounts", "file systems that are mounted or unmounted where manifests are".to_owned()),
        LOGIND => bus("logind's word of a shutdown", "bus"),
        SLICES => bus("systemd, which makes pods' slices", "bus"),
        token => match Server::part(token, SERVER) {
            Some((index, connection)) => {
                let listener_kind = beside.listener_kinds.get(index).copied().flatten();
                let at = listener_kind.map(|listener_kind| place(listener_kind, config)).unwrap_or_default();
                match (connection, is_inotify(file)) {
                    (true, _) => ("connection", format!("a client of {at}")),
                    (false, true) => ("inotify", format!("the file of {at}, in case that it is removed")),
                    (false, false) => ("listener", format!("new clients of {at}")),
                }
            }
            None => match beside.pidfds.of(token) {
                Some((pid, id, uid)) => {
                    let name = engine.pod(uid).map_or_else(|| uid.to_string(), |view| view.pod.name.to_string());
                    let short: String = id.chars().take(12).collect();
                    ("pidfd", format!("the end of process {pid} of {name} ({short})"))
                }
                None => ("unknown", format!("token {}", token.0)),
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
    }
}

fn signal(fd: i32, beside: &AgentParts<'_>) -> Option<String> {
    let (signal, read, _) = beside.signals.descriptors().find(|(_, read, write)| fd == *read || fd == *write)?;
    let name = match signal {
        Signal::Terminate => "SIGTERM",
        Signal::Interrupt => "SIGINT",
        Signal::Hangup => "SIGHUP",
    };
    Some(if fd == read { format!("{name} having come") } else { format!("where the handler of {name} writes") })
}

/// One that the poll does not watch.
fn unwatched(fd: i32, file: &str, beside: &AgentParts<'_>, config: &Config) -> (&'static str, String) {
    let plain = |kind, what: &str| (kind, what.to_owned());
    if fd == beside.event_loop.own().0 {
        return plain("epoll", "all that has events below");
    }
    if fd == beside.root.descriptor() {
        return ("lock", format!("no second wherry on {}", config.root_dir.display()));
    }
    if beside.lock.descriptor() == Some(fd) {
        return plain("inhibitor", "logind, which waits at a shutdown until this is closed");
    }
    if let Some(what) = signal(fd, beside) {
        return ("signal", what);
    }
    match fd {
        0 => return plain("stdin", "nothing is read from it"),
        1 => return plain("stdout", "nothing is written to it"),
        2 => return plain("stderr", "the log"),
        _ => {}
    }
    if file == "anon_inode:[eventpoll]" && !beside.inherited.contains(&fd) {
        return plain("epoll", "the same one, as an adapter has it to register with");
    }
    if beside.inherited.contains(&fd) {
        return plain("inherited", "nothing: whoever started wherry had it open");
    }
    // Whatever is not in the poll is opened and closed within a turn, or by a helper.
    let helpers = beside.helpers;
    if helpers.pending().any(|job| job.begun) || Class::ALL.into_iter().any(|class| helpers.stuck(class) > 0) {
        return plain("file", "a helper thread is at it");
    }
    if cfg!(feature = "grpcio") {
        return plain("grpc", "gRPC's C-core");
    }
    plain("unknown", "nobody here has opened it")
}
