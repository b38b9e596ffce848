//! systemd slices for pods, over a real system bus. systemd is the stub of `support::logind`, which records the properties
//! of each slice. `make test-vm-shutdown` tests with the real systemd in a virtual machine.

use crate::support::agent::Agent;
use crate::support::agent::{cgroup_mounts, patience, uid};
use crate::support::logind::Node;
use crate::support::yaml::TRAP;
use mio::Token;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use wherry::adapters::cgroups::slices::{Slices, Ticket};
use wherry::api::limits::{CpuQuota, Limits};
use wherry::event_loop::{EventLoop, clock};

const TOKEN: Token = Token(1);
const POD: &str = "/kubepods.slice/kubepods-podu.slice";

/// Runs the loop until the call has ended. Only the bus and the deadline wake the loop.
fn end(slices: &mut Slices, event_loop: &mut EventLoop, ticket: Ticket) -> Result<bool, String> {
    let latest = clock::boot() + patience(120);
    let mut ready = Vec::new();
    loop {
        let mut out = Vec::new();
        slices.drive(event_loop.registry(), clock::boot(), &mut out);
        if let Some(ended) = out.pop() {
            assert!(out.is_empty() && ended.ticket == ticket, "unexpected result: {ended:?} {out:?}");
            return ended.result;
        }
        assert!(clock::boot() < latest, "the call has not ended");
        let due = slices.next_deadline().expect("a deadline");
        event_loop.turn(Some(due.min(latest)), &mut ready).expect("turn");
    }
}

fn properties(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

#[test]
fn a_slice_is_made_changed_and_stopped_over_the_bus_and_after_it_was_away() {
    let mut node = Node::without_logind("slices");
    let mut event_loop = EventLoop::new().expect("a loop");
    let mut slices = Slices::new(&node.address(), TOKEN);
    let limits = Limits {
        cpu_shares: Some(1024),
        cpu: Some(CpuQuota { quota: 50_000, period: 100_000 }),
        memory: Some(4096),
        ..Limits::default()
    };
    let numbers = |node: &Node| {
        let mut all = node.slices().remove("kubepods-podu.slice").expect("the slice");
        all.retain(|name, _| !name.ends_with("Accounting") && name != "DefaultDependencies");
        all
    };
    let ticket = slices.set(POD, &limits, true, clock::boot());
    assert_eq!(end(&mut slices, &mut event_loop, ticket), Ok(true));
    let wanted = properties(&[("CPUWeight", 39), ("CPUQuotaPerSecUSec", 500_000), ("MemoryMax", 4096)]);
    assert_eq!(numbers(&node), wanted);
    // The slice exists: only its properties are set. Removed limits are set explicitly.
    let ticket = slices.set(POD, &Limits { cpu_shares: Some(2), ..Limits::default() }, true, clock::boot());
    assert_eq!(end(&mut slices, &mut event_loop, ticket), Ok(false));
    let none = u64::MAX;
    let wanted = properties(&[("CPUWeight", 1), ("CPUQuotaPerSecUSec", none), ("MemoryMax", none), ("TasksMax", none)]);
    assert_eq!(numbers(&node), wanted);
    for _ in 0..2 {
        let ticket = slices.stop(POD, clock::boot());
        assert_eq!(end(&mut slices, &mut event_loop, ticket), Ok(false));
        assert!(node.slices().is_empty());
    }
    node.kill_bus();
    let ticket = slices.set(POD, &limits, true, clock::boot());
    let error = end(&mut slices, &mut event_loop, ticket).expect_err("the bus is stopped");
    assert!(error.contains("systemd cannot be reached on the system bus at unix:path="), "{error}");
    node.start_bus();
    let ticket = slices.set(POD, &limits, false, clock::boot());
    assert_eq!(end(&mut slices, &mut event_loop, ticket), Ok(true));
    assert_eq!(numbers(&node)["CPUShares"], 1024);
}

/// The cgroups that the runtime, which uses the cgroupfs driver, created for the paths of the slices. Removed on drop.
struct Made(String);

impl Drop for Made {
    fn drop(&mut self) {
        for mount in cgroup_mounts() {
            remove(&mount.join(&self.0));
        }
    }
}

fn remove(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(directory);
}

/// An agent with the cgroup driver systemd, the prefix of its slice names, and a guard that removes their cgroups.
fn with_slices(node: &Node, name: &str) -> (Agent, String, Made) {
    let mut agent = node.agent(name);
    agent.configure("cgroupDriver: systemd\n");
    let base = agent.cgroup.trim_matches('/').replace('-', "_").replace('/', "-");
    let made = Made(format!("{}.slice", base.split('-').next().expect("a root")));
    agent.run();
    (agent, base, made)
}

#[test]
fn with_the_driver_systemd_a_pod_and_its_levels_are_slices_until_it_ends() {
    let node = Node::without_logind("driver");
    let (agent, base, _made) = with_slices(&node, "driver");
    agent.apply("web", TRAP);
    let id = uid(&agent.wait_running("web")).replace('-', "_");
    let levels = ["-besteffort.slice", "-burstable.slice", ".slice"].map(|end| format!("{base}-kubepods{end}"));
    let pod = format!("{base}-kubepods-besteffort-pod{id}.slice");
    let names = |node: &Node| node.slices().into_keys().collect::<BTreeSet<_>>();
    let with_pod: BTreeSet<String> = levels.iter().chain([&pod]).cloned().collect();
    assert_eq!(names(&node), with_pod);
    let parent = agent.sandboxes("web").remove(0);
    let pid = agent.cri().sandbox_pid(&parent.id);
    assert!(fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("its cgroups").contains(&pod));
    agent.delete("web");
    let levels: BTreeSet<String> = levels.into();
    agent.wait("only the levels are left", |_| names(&node) == levels);
    agent.wait_gone("web");
    let left = |a: &Path| fs::read_dir(a).into_iter().flatten().flatten().any(|e| *e.file_name() == *pod.as_str());
    let class = format!("{base}-kubepods.slice/{base}-kubepods-besteffort.slice");
    assert!(!cgroup_mounts().iter().any(|m| left(&m.join(&class))));
}

/// systemd would create a slice again that is removed only from the cgroup file system.
#[test]
fn a_purge_has_systemd_stop_the_slices_of_its_pods_and_no_others() {
    let node = Node::without_logind("purged");
    let (mut agent, base, _made) = with_slices(&node, "purged");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let names = |node: &Node| node.slices().into_keys().collect::<BTreeSet<_>>();
    assert_eq!(names(&node).len(), 4);
    assert_eq!(agent.terminate(), Some(0));
    let output = agent.command_of("purge").arg("--yes").output().expect("wherry");
    assert!(output.status.success(), "{output:?}");
    assert!(agent.sandboxes("web").is_empty());
    let levels = ["-besteffort.slice", "-burstable.slice", ".slice"].map(|end| format!("{base}-kubepods{end}"));
    assert_eq!(names(&node), BTreeSet::from(levels));
}
