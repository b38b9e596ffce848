//! Checks that the rights in packaging/wherry.service are sufficient: the agent runs with the capabilities of the unit and
//! without new privileges, and strace shows that the unit's filters allow all its system calls.

use crate::support::agent::Agent;
use crate::support::lab::signal;
use crate::support::logind::{Node, wait};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

const UNIT: &str = include_str!("../../packaging/wherry.service");

/// The words of all lines of a setting in the unit.
fn setting(name: &str) -> Vec<&'static str> {
    let lines = UNIT.lines().filter_map(|l| l.strip_prefix(name)?.strip_prefix('='));
    lines.flat_map(str::split_whitespace).collect()
}

/// Expands a system call set (`@...`) as the installed systemd defines it.
fn expand(word: &str, into: &mut BTreeSet<String>) {
    if !word.starts_with('@') {
        into.insert(word.to_owned());
        return;
    }
    let shown = Command::new("systemd-analyze").args(["syscall-filter", "--no-pager", word]).output();
    let shown = shown.expect("systemd-analyze");
    assert!(shown.status.success(), "{word}: {shown:?}");
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let inside = text.lines().skip(1).map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    inside.for_each(|l| expand(l, into));
}

/// The system calls that both lines of SystemCallFilter allow: the first line allows calls, the second removes some.
fn allowed() -> BTreeSet<String> {
    let lines: Vec<&str> = UNIT.lines().filter_map(|l| l.strip_prefix("SystemCallFilter=")).collect();
    let [allow, deny] = lines.as_slice() else { panic!("{lines:?}") };
    let (mut allowed, mut denied) = (BTreeSet::new(), BTreeSet::new());
    allow.split_whitespace().for_each(|w| expand(w, &mut allowed));
    deny.strip_prefix('~').expect("a deny list").split_whitespace().for_each(|w| expand(w, &mut denied));
    let left: BTreeSet<String> = allowed.difference(&denied).cloned().collect();
    assert!(left.contains("epoll_wait") && !left.contains("mount") && !left.contains("chown"), "{left:?}");
    left
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

#[test]
fn the_rights_of_the_unit_are_sufficient() {
    let mut node = Node::start("unit");
    let mut agent = node.agent("unit");
    let trace = agent.dir.join("trace");
    let capabilities = setting("CapabilityBoundingSet");
    let names = capabilities.iter().map(|c| format!("+{}", c.strip_prefix("CAP_").expect("CAP_").to_lowercase()));
    let bounding = format!("-all,{}", names.collect::<Vec<_>>().join(","));
    agent.under = vec![
        "setpriv",
        "--no-new-privs",
        "--bounding-set",
        leak(bounding),
        "--inh-caps",
        "-all",
        "strace",
        "-f",
        "-qq",
        "-o",
        leak(trace.display().to_string()),
    ];
    agent.configure("shutdownGracePeriod: 10s\n");
    agent.run();
    rights(&agent, &capabilities);
    // A pod that runs as a non-root user, writes and crashes; removed pods; a reload; a restarted logind.
    agent.apply(
        "user",
        "
        securityContext: {runAsUser: 1000}
        terminationGracePeriodSeconds: 2
        containers:
        - name: main
          image: localhost/busybox:1.35
          resources: {limits: {cpu: 100m, memory: 32Mi}}
          command: [sh, -c, 'echo said; echo last > /dev/termination-log; sleep 1; exit 3']
        ",
    );
    agent.wait("the container was restarted", |a| {
        a.pod("user").is_some_and(|p| p["status"]["containerStatuses"][0]["restartCount"].as_u64() > Some(0))
    });
    agent.apply(
        "quick",
        "{restartPolicy: Never, containers: [{name: main, image: 'localhost/busybox:1.35', command: ['true']}]}",
    );
    agent.wait_phase("quick", "Succeeded");
    let status = agent.wherry(&["status"]);
    assert!(status.status.success(), "{status:?}");
    assert!(agent.wherry(&["logs", &format!("{}/user", agent.namespace)]).status.success());
    wait("the lock is held", || (node.locks() == 1).then_some(()));
    signal(&traced(&agent).to_string(), "HUP");
    agent.wait("the configuration was reloaded", |a| a.log().contains("reloaded"));
    for name in ["user", "quick"] {
        agent.delete(name);
        agent.wait_gone(name);
    }
    node.kill_logind();
    node.start_logind();
    wait("the lock is held again", || (node.locks() == 1).then_some(()));
    assert!(!agent.log().contains("Operation not permitted"), "{}", agent.log());
    // strace exits when the agent exits.
    signal(&traced(&agent).to_string(), "TERM");
    assert_eq!(agent.ended(), Some(0));

    let text = fs::read_to_string(&trace).expect("trace");
    let calls: Vec<&str> = text.lines().filter_map(|l| l.split_once(' ').map(|(_, call)| call.trim_start())).collect();
    let allowed = allowed();
    let mut used = BTreeSet::new();
    for call in &calls {
        let Some((name, arguments)) = call.split_once('(') else { continue };
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        used.insert(name.to_owned());
        if name == "socket" {
            let families = setting("RestrictAddressFamilies");
            assert!(families.iter().any(|f| arguments.starts_with(&format!("{f},"))), "{call}");
        }
        // MemoryDenyWriteExecute
        assert!(!(name == "mprotect" && arguments.contains("PROT_EXEC")), "{call}");
        assert!(!(name == "mmap" && arguments.contains("PROT_WRITE|PROT_EXEC")), "{call}");
    }
    assert!(used.contains("epoll_wait") && used.contains("timerfd_settime") && used.contains("sendmsg"), "{used:?}");
    let beyond: Vec<&String> = used.difference(&allowed).collect();
    assert!(beyond.is_empty(), "the unit forbids {beyond:?}");
}

/// The PID of the agent, the child of strace.
fn traced(agent: &Agent) -> u32 {
    let pid = agent.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
    children.split_whitespace().next().and_then(|c| c.parse().ok()).expect("a child")
}

fn rights(agent: &Agent, capabilities: &[&str]) {
    let status = fs::read_to_string(format!("/proc/{}/status", traced(agent))).expect("status");
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim).unwrap_or_default();
    let effective = u64::from_str_radix(field("CapEff:"), 16).expect("hexadecimal");
    assert_eq!(effective.count_ones() as usize, capabilities.len(), "{status}");
    assert_eq!(field("NoNewPrivs:"), "1");
}

/// The unit does not permit mounts. A change that adds a mount must also change the unit and docs/service.md.
#[test]
fn the_agent_mounts_nothing_under_its_unit() {
    assert!(!setting("CapabilityBoundingSet").contains(&"CAP_SYS_ADMIN"));
    let mut waiting = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(&path).expect("sources").map(|e| e.expect("an entry").path()));
        } else if path.file_name().is_some_and(|n| n != "tests.rs") {
            let code = fs::read_to_string(&path).expect("a source");
            assert!(!code.contains("rustix::mount") && !code.contains("mount_bind("), "{}", path.display());
        }
    }
}
