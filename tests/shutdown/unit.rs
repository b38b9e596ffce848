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

/// The system calls that the lines of SystemCallFilter allow: each line adds calls to those before, or removes some (`~`).
fn allowed() -> BTreeSet<String> {
    let mut left = BTreeSet::new();
    for line in UNIT.lines().filter_map(|l| l.strip_prefix("SystemCallFilter=")) {
        let mut named = BTreeSet::new();
        line.trim_start_matches('~').split_whitespace().for_each(|w| expand(w, &mut named));
        match line.strip_prefix('~') {
            Some(_) => left.retain(|call| !named.contains(call)),
            None => left.extend(named),
        }
    }
    let has = |call: &str| left.contains(call);
    assert!(has("epoll_wait") && has("openat2"), "{left:?}");
    assert!(
        !has("chown") && !has("chroot") && !has("pivot_root") && !has("move_mount") && !has("init_module"),
        "{left:?}"
    );
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
    // A pod that runs as a non-root user, writes and crashes; volumes and a probe; removed pods; a reload; a restarted logind.
    let secret = format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{namespace: {}, name: login}}, stringData: {{password: x}}}}",
        agent.namespace
    );
    agent.write("login.yaml", &secret);
    agent.apply(
        "volumes",
        "
        terminationGracePeriodSeconds: 2
        securityContext: {runAsUser: 1000, fsGroup: 3000}
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'cat /login/password; echo y > /disk/y; trap \"exit 0\" TERM; while :; do sleep 0.1; done']
          livenessProbe: {tcpSocket: {port: 9}, periodSeconds: 1, failureThreshold: 1000}
          volumeMounts:
          - {name: disk, mountPath: /disk}
          - {name: disk, mountPath: /sub, subPath: a/b}
          - {name: memory, mountPath: /memory}
          - {name: login, mountPath: /login}
        volumes:
        - {name: disk, emptyDir: {}}
        - {name: memory, emptyDir: {medium: Memory}}
        - {name: login, secret: {secretName: login, defaultMode: 0440}}
        ",
    );
    agent.wait_running("volumes");
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
    for name in ["user", "quick", "volumes"] {
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

/// What `adapters/volumes` needs, whether or not a pod of the other test has such a volume.
#[test]
fn the_unit_permits_the_mounts_and_owners_of_volumes() {
    for capability in ["CAP_SYS_ADMIN", "CAP_CHOWN", "CAP_FSETID"] {
        assert!(setting("CapabilityBoundingSet").contains(&capability), "{capability}");
    }
    // The directories of a volume with an fsGroup have the set-group-ID bit.
    assert!(setting("RestrictSUIDSGID").is_empty());
    let allowed = allowed();
    for call in ["mount", "umount2", "fchownat", "fchmod", "fchmodat", "openat2", "symlinkat", "renameat"] {
        assert!(allowed.contains(call), "{call}");
    }
}
