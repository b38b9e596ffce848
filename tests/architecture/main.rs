//! Checks the layers of the crate in its source text: dependencies point one way (commands, agent, adapters, engine, api),
//! an adapter uses another one only as `COMPOSED` permits, `net` below the adapters uses none of these, and `engine/`, `api/`
//! and `kubectl_api/` name no clock, file, socket, thread or I/O crate. The disallowed types and methods in clippy.toml complement this
//! test: they also cover access without a `use`.

#![allow(clippy::disallowed_methods)]

mod circles;
mod counts;
mod functions;
mod helpers;
mod limits;
mod lines;
mod links;
mod names;
mod pages;
mod pod_fields;
mod rules;
mod schema;
mod sorts;
mod suites;

use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// All source files below `src/<name>`: the path relative to `src/`, and the text without comment lines.
fn room(name: &str) -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&src.join(name), &mut paths);
    assert!(!paths.is_empty(), "src/{name} has no sources: the path in this test is wrong");
    let read = |p: &PathBuf| {
        let text = fs::read_to_string(p).unwrap();
        let code: Vec<&str> = text.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
        (p.strip_prefix(&src).unwrap().display().to_string(), code.join("\n"))
    };
    paths.iter().map(read).collect()
}

/// The first two parts of each path after `crate::`: `adapters::cri`, `engine::event`.
fn crate_paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
        let parts: Vec<&str> = rest[..end].split("::").filter(|p| !p.is_empty()).collect();
        // `use crate::engine::{event, op}` yields one path for each name.
        if parts.len() == 1 && rest[end..].starts_with('{') {
            let inside = rest[end + 1..].split('}').next().unwrap_or_default();
            for name in inside.split(',') {
                let first = name.trim().split("::").next().unwrap_or_default();
                found.push(format!("{}::{first}", parts[0]));
            }
        } else {
            found.push(parts.iter().take(2).copied().collect::<Vec<_>>().join("::"));
        }
    }
    found
}

fn assert_only(room_name: &str, allowed: &dyn Fn(&str, &str) -> bool) {
    let mut wrong = Vec::new();
    for (file, code) in room(room_name) {
        for path in crate_paths(&code) {
            if !allowed(&file, &path) {
                wrong.push(format!("src/{file} uses crate::{path}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn api_depends_only_on_itself() {
    assert_only("api", &|_, path| path.starts_with("api"));
}

#[test]
fn the_engine_depends_only_on_itself_and_api() {
    assert_only("engine", &|_, path| path.starts_with("api") || path.starts_with("engine"));
}

#[test]
fn the_api_for_kubectl_depends_only_on_itself_the_engine_and_api() {
    let allowed = ["api", "engine", "kubectl_api"];
    assert_only("kubectl_api", &|_, path| allowed.iter().any(|room| path.starts_with(room)));
}

/// Parts of `api` that know nothing of Kubernetes.
const FOUNDATION: [&str; 2] = ["api::ordered", "api::time"];

#[test]
fn the_event_loop_does_not_depend_on_pods() {
    assert_only("event_loop", &|_, path| path.starts_with("event_loop") || FOUNDATION.contains(&path));
}

/// Which adapter may use which other one below it.
const COMPOSED: [(&str, &str); 16] = [
    // The driver systemd creates slices with calls on the system bus.
    ("cgroups", "bus"),
    // The system check examines the same hierarchies.
    ("host", "cgroups"),
    // The kernel's mount table.
    ("cgroups", "mount_table"),
    ("host", "mount_table"),
    ("manifests", "mount_table"),
    ("volumes", "mount_table"),
    // Small files that must survive a power cut.
    ("bus", "durable"),
    ("crash_files", "durable"),
    ("identity", "durable"),
    ("manifests", "durable"),
    ("pki", "durable"),
    ("records", "durable"),
    ("report_file", "durable"),
    // Files in the root directory while its file system is unmounted.
    ("manifests", "root_place"),
    ("records", "root_place"),
    // The removal of a tree that a container may have manipulated.
    ("volumes", "pod_files"),
];

#[test]
fn net_does_not_depend_on_pods() {
    assert_only("net", &|_, path| path.starts_with("net") || FOUNDATION.contains(&path));
}

#[test]
fn an_adapter_knows_itself_adapters_below_it_net_the_engines_interface_and_api() {
    assert_only("adapters", &|file, path| {
        let own = file.split('/').take(2).collect::<Vec<_>>().join("::");
        let own = own.trim_end_matches(".rs");
        let composed = COMPOSED
            .iter()
            .any(|(upper, lower)| own == format!("adapters::{upper}") && path == format!("adapters::{lower}"));
        path.starts_with("api")
            || composed
            // The visibility `pub(in crate::adapters)`.
            || path == "adapters"
            || matches!(path, "engine::control" | "engine::event" | "engine::effect" | "engine::op")
            // The tests of the manifests let this part of the engine decide.
            || file == "adapters/manifests/tests/mod.rs" && matches!(path, "engine::desired" | "engine::outbox")
            // The tests of the requests compare environments that the engine resolves.
            || (file, path) == ("adapters/cri/requests/tests.rs", "engine::pod")
            || path == "event_loop::clock"
            || path.starts_with("foreign")
            || path.starts_with("net::")
            || path.starts_with(own)
    });
}

#[test]
fn foreign_depends_on_no_other_module() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/foreign.rs")).unwrap();
    assert!(crate_paths(&text).is_empty());
}

#[test]
fn the_agent_does_not_depend_on_the_commands() {
    assert_only("agent", &|_, path| !path.starts_with("commands"));
}

#[test]
fn the_pure_rooms_name_no_clock_file_socket_thread_or_io_crate() {
    let banned = [
        "Instant::now",
        "SystemTime",
        "Timestamp::now",
        "std::fs",
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "ToSocketAddrs",
        "std::thread",
        "std::process",
        "std::env",
        "std::io",
        "std::os::unix",
        "HashMap",
        "HashSet",
        "mio::",
        "dbus::",
        "grpcio",
        "h2::",
        "rustix",
        "crossbeam",
        "signal_hook",
        "inotify",
        // The crate. (The API of Kubernetes has bodies of this format, which `api::kube` reads itself.)
        "protobuf::",
        "tokio",
        "log::",
    ];
    let mut wrong = Vec::new();
    for (file, code) in ["engine", "api", "kubectl_api"].into_iter().flat_map(room) {
        for name in banned {
            if code.contains(name) {
                wrong.push(format!("src/{file} names {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn paths_are_found_in_every_form() {
    let code = "use crate::engine::{event::Event, op};\nuse crate::api::pod::Pod; crate::adapters::cri::client::x()";
    assert_eq!(crate_paths(code), ["engine::event", "engine::op", "api::pod", "adapters::cri"]);
}
