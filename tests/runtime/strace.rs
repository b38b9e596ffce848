//! Checks docs/strace.md and docs/strace-pods.md: the system calls of an idle agent, of a pod's start and of a crash. Also
//! checks that `wherry debug fds` knows every descriptor.

use crate::support::agent::Agent;
use crate::support::lab::signal;
use crate::support::strace::{Trace, documented, page, wait_quiet};
use crate::support::yaml::TRAP;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// Waits by asking the runtime. A request to the agent would appear in the trace.
fn wait_started(agent: &Agent, pod: &str, other_than: Option<&str>) -> String {
    agent.wait_for(&format!("{pod} runs in the runtime"), |a| {
        a.running(pod, "main").filter(|id| other_than != Some(id.as_str()))
    })
}

// gRPC's C-core makes other calls, and the call names and numbers are those of one architecture.
#[cfg(all(not(feature = "grpcio"), target_arch = "x86_64"))]
#[test]
fn an_idle_minute_makes_the_documented_system_calls_and_few_of_them() {
    let agent = Agent::start("straceidle");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    // The last state is written up to a minute after the last event.
    let state = agent.socket.with_extension("sock.state");
    let is_written = |_: &Agent| fs::read_to_string(&state).is_ok_and(|text| text.contains("\"phase\":\"Running\""));
    agent.wait("the last state is written", is_written);
    wait_quiet(agent.pid());
    let trace = Trace::attach(agent.pid(), "idle");
    std::thread::sleep(Duration::from_secs(62));
    let (calls, mounts) = trace.matches_the_page_with_mounts();
    // Two lists 30 s apart, perhaps a sync. From 1.7 on the event stream also reports the containers of all other
    // tests.
    if agent.cri().version().expect("Version").runtime_version.starts_with("1.6") {
        // Other tests' containers create mounts: each ends a wait, and at most once a second Wherry sets its timer and reads the
        // mount table: a wait, an open, reads, a close, and for a long table the growth of the heap and its end.
        let tables = calls.get("openat").copied().unwrap_or(0);
        let growth = calls.get("brk").copied().unwrap_or(0).min(2 * tables);
        let rest = calls.iter().filter(|(call, _)| !matches!(call.as_str(), "openat" | "read" | "close" | "fcntl"));
        let all = rest.map(|(_, count)| count).sum::<u32>().saturating_sub(mounts + 3 * tables + growth);
        assert!(all <= 60, "{all}, {mounts} mounts: {calls:?}");
    }
}

#[cfg(all(not(feature = "grpcio"), target_arch = "x86_64"))]
#[test]
fn a_pods_start_and_a_crash_make_the_documented_system_calls() {
    let agent = Agent::start("stracestart");
    // The first pod creates the shared parts: cgroup levels and directories.
    agent.apply("first", TRAP);
    agent.wait_running("first");
    wait_quiet(agent.pid());
    let trace = Trace::attach(agent.pid(), "start");
    agent.apply("web", TRAP);
    let id = wait_started(&agent, "web", None);
    wait_quiet(agent.pid());
    let calls = trace.matches_the_page();
    // One request for each: sandbox, image, create, start, and the status after each change.
    assert!(calls["pidfd_open"] == 2, "sandbox and container: {calls:?}");

    let trace = Trace::attach(agent.pid(), "crash");
    signal(&agent.cri().container_pid(&id).to_string(), "KILL");
    wait_started(&agent, "web", Some(&id));
    wait_quiet(agent.pid());
    let calls = trace.matches_the_page();
    assert!(calls["pidfd_open"] == 1, "the new container: {calls:?}");
}

type Listed = BTreeMap<i64, (String, String)>;

/// The descriptors by number: kind and purpose.
fn listed(agent: &Agent) -> Listed {
    let output = agent.wherry(&["debug", "fds", "-o", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |v: &Value| v.as_str().expect("text").to_owned();
    let all = list["descriptors"].as_array().expect("a list").iter();
    all.map(|d| (d["descriptor"].as_i64().expect("a number"), (text(&d["kind"]), text(&d["watches"])))).collect()
}

fn known(all: &Listed) {
    let unknown: Vec<_> = all.iter().filter(|(_, (kind, _))| kind == "unknown").collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn debug_fds_identifies_every_descriptor_of_the_process() {
    let agent = Agent::start("fds");
    for pod in ["a", "b"] {
        agent.apply(pod, TRAP);
        known(&listed(&agent));
    }
    for pod in ["a", "b"] {
        agent.wait_running(pod);
    }
    let of_kind = |all: &Listed, wanted: &str| all.values().filter(|(kind, _)| kind == wanted).count();
    // Reads /proc/PID/fd between two identical lists of the agent, so that nothing was opened or closed meanwhile.
    let all = agent.wait_for("a quiet moment", |a| {
        let before = listed(a);
        let entries = std::fs::read_dir(format!("/proc/{}/fd", a.pid())).expect("it runs");
        let numbers: BTreeSet<i64> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
        let lasting = |all: &Listed| -> BTreeSet<i64> {
            all.iter().filter(|(_, (kind, _))| kind != "connection").map(|(fd, _)| *fd).collect()
        };
        let after = listed(a);
        // The connection of the request exists only during the request.
        let same = lasting(&before) == lasting(&after) && lasting(&after) == numbers;
        same.then_some(after)
    });
    known(&all);
    assert_eq!(of_kind(&all, "pidfd"), 4, "a sandbox and a container each: {all:?}");
    let of_pods = |pod: &str| all.values().filter(|(_, what)| what.contains(&format!("/{pod} ("))).count();
    assert_eq!((of_pods("a"), of_pods("b")), (2, 2), "{all:?}");
    assert_eq!((of_kind(&all, "listener"), of_kind(&all, "timerfd"), of_kind(&all, "lock")), (2, 1, 1), "{all:?}");
    assert_eq!((of_kind(&all, "signal"), of_kind(&all, "stderr")), (6, 1), "{all:?}");
    let page = documented(&page(), "kinds");
    for (kind, _) in all.values() {
        assert!(page.contains_key(kind), "docs/strace*.md have no {kind}");
    }

    // Under load every descriptor is known, too.
    for pod in ["a", "b"] {
        agent.delete(pod);
        agent.apply(&format!("{pod}-next"), TRAP);
    }
    agent.wait("they came and went", |a| {
        known(&listed(a));
        a.pod("a").is_none() && a.pod("b").is_none() && a.running("a-next", "main").is_some()
    });
    let table = agent.wherry(&["debug", "fds"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    // The column width depends on the content.
    let head: Vec<_> = table.lines().next().expect("a head").split_whitespace().collect();
    assert_eq!(head, ["FD", "KIND", "EVENTS", "WATCHES"], "{table}");
    assert!(table.contains("the control socket"), "{table}");
}
