//! The cgroups of pods, as the kernel shows them: the values of each level and each pod, their removal, and the errors
//! if they cannot be created. The driver is cgroupfs; `tests/shutdown/slices.rs` and the virtual machine test systemd.

use crate::support::agent::{Agent, cgroup_mounts, container, make_cgroup, uid};
use crate::support::lab::Runtime;
use crate::support::yaml::TRAP;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

fn is_v2() -> bool {
    cgroup_mounts().iter().all(|m| m.join("cgroup.controllers").exists())
}

/// The directory of a cgroup in the hierarchy of a controller. None if this machine has no such controller.
fn directory(controller: &str, cgroup: &str) -> Option<PathBuf> {
    let mounts = cgroup_mounts();
    let of = |m: &&PathBuf| m.file_name().is_some_and(|n| n.to_string_lossy().split(',').any(|c| c == controller));
    let mount = if is_v2() { mounts.first() } else { mounts.iter().find(of) };
    mount.map(|m| m.join(cgroup.trim_start_matches('/')))
}

/// The content of a file, with its names on v1 and v2. "none" if the machine has no such controller.
fn read(controller: &str, cgroup: &str, v1: &str, v2: &str) -> String {
    let Some(directory) = directory(controller, cgroup) else { return "none".to_string() };
    let path = directory.join(if is_v2() { v2 } else { v1 });
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).trim().to_string()
}

/// CPU shares (the weight on v2), quota and memory limit of a cgroup.
fn limits(cgroup: &str) -> [String; 3] {
    [
        read("cpu", cgroup, "cpu.shares", "cpu.weight"),
        read("cpu", cgroup, "cpu.cfs_quota_us", "cpu.max"),
        read("memory", cgroup, "memory.limit_in_bytes", "memory.max"),
    ]
}

/// The expected values for the cgroup version: shares or weight, quota in a period of 100 ms, bytes.
fn expected(shares: (u64, u64), quota: Option<u64>, memory: Option<u64>) -> [String; 3] {
    if is_v2() {
        let or_max = |n: Option<u64>| n.map_or("max".to_string(), |n| n.to_string());
        [shares.1.to_string(), format!("{} 100000", or_max(quota)), or_max(memory)]
    } else {
        let quota = quota.map_or("-1".to_string(), |q| q.to_string());
        // The kernel's maximum, in whole pages.
        let memory = memory.unwrap_or(i64::MAX as u64 / 4096 * 4096).to_string();
        [shares.0.to_string(), quota, memory]
    }
}

fn score(pid: u32) -> i64 {
    let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("oom_score_adj");
    text.trim().parse().expect("a number")
}

fn meminfo() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("meminfo");
    let line = text.lines().find(|l| l.starts_with("MemTotal:")).expect("MemTotal");
    line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") << 10
}

fn with_resources(name: &str, resources: &str) -> String {
    format!("- name: {name}\n          image: localhost/trap:1\n          resources: {resources}")
}

fn spec(containers: &[String]) -> String {
    format!(
        "\n        terminationGracePeriodSeconds: 2\n        containers:\n        {}\n",
        containers.join("\n        ")
    )
}

#[test]
fn each_level_and_pod_cgroup_has_its_limits_and_all_are_removed() {
    let mut agent = Agent::start("cgroups");
    let both = "{limits: {cpu: 250m, memory: 32Mi}}";
    let asks = "{requests: {cpu: 100m, memory: 16Mi}, limits: {memory: 64Mi}}";
    agent.apply("sure", &spec(&[with_resources("main", both), with_resources("beside", both)]));
    agent.apply("some", &spec(&[with_resources("main", asks)]));
    agent.apply("free", TRAP);
    let pods = ["sure", "some", "free"].map(|name| (name, uid(&agent.wait_running(name))));
    let [sure, some, free] = pods.clone().map(|(_, uid)| uid);
    let node = format!("{}/kubepods", agent.cgroup);
    let mib = 1 << 20;
    let of_pods = [
        (format!("{node}/pod{sure}"), expected((512, 20), Some(50_000), Some(64 * mib))),
        (format!("{node}/burstable/pod{some}"), expected((102, 4), None, Some(64 * mib))),
        (format!("{node}/besteffort/pod{free}"), expected((2, 1), None, None)),
    ];
    for (cgroup, wanted) in &of_pods {
        assert_eq!(limits(cgroup), *wanted, "{cgroup}");
    }
    // Not `available_parallelism`: a quota on the tests' own cgroup lowers it.
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").expect("cpuinfo");
    let processors = cpuinfo.lines().filter(|l| l.starts_with("processor"));
    let processors = processors.count() as u64;
    let weight = 1 + (processors * 1024 - 2) * 9999 / 262_142;
    assert_eq!(limits(&node), expected((processors * 1024, weight), None, Some(meminfo() / 4096 * 4096)));
    assert_eq!(limits(&format!("{node}/besteffort")), expected((2, 1), None, None));
    let pids = read("pids", &node, "pids.max", "pids.max");
    assert!(pids == "none" || pids.parse::<u64>().is_ok_and(|n| n > 100), "{pids}");

    // OOM scores. If no process may go below the runtime's own score, that score is the minimum.
    let runtime = fs::read_to_string(Runtime::shared().dir.join("containerd.toml")).expect("containerd.toml");
    let (restricted, own) = (runtime.contains("restrict_oom_score_adj = true"), score(std::process::id()));
    let of = |wanted: i64| if restricted { wanted.max(own) } else { wanted };
    let pid = |pod: &str| agent.cri().container_pid(&agent.running(pod, "main").expect("runs"));
    assert_eq!(score(pid("sure")), of(-997));
    assert_eq!(score(pid("free")), of(1000));
    let burstable = 1000 - (16 * mib as i64 * 1000) / meminfo() as i64;
    assert_eq!(score(pid("some")), of(burstable.clamp(3, 999)));
    assert_eq!(score(agent.cri().sandbox_pid(&agent.sandboxes("free")[0].id)), of(-998));

    let count = |a: &Agent, operation: &str| {
        let text = a.get("/metrics").expect("/metrics").body;
        let line = format!("kubelet_cgroup_manager_duration_seconds_count{{operation_type=\"{operation}\"}} ");
        text.lines().find_map(|l| l.strip_prefix(&line)?.parse::<u64>().ok()).unwrap_or(0)
    };
    assert_eq!((count(&agent, "create"), count(&agent, "destroy")), (6, 0), "three levels and three pods");

    // The next run adopts the cgroups unchanged, and the levels serve the next pod.
    agent.kill();
    agent.run();
    agent.apply("next", TRAP);
    let next = uid(&agent.wait_running("next"));
    for (cgroup, wanted) in &of_pods {
        assert_eq!(limits(cgroup), *wanted, "{cgroup}");
    }
    assert_eq!(count(&agent, "create"), 1, "the pod is new, the levels are not");
    assert!(count(&agent, "update") >= 3, "they are set again");
    for (name, uid) in pods.into_iter().chain([("next", next)]) {
        agent.delete(name);
        agent.wait(&format!("the cgroups of {name} are gone"), |a| a.cgroups(&uid).is_empty());
    }
    agent.wait("all are counted", |a| count(a, "destroy") == 4);
    assert!(agent.pod_cgroups().is_empty());
    assert_eq!(limits(&format!("{node}/besteffort")), expected((2, 1), None, None), "the levels stay");
}

#[test]
fn the_resources_of_a_pod_limit_all_its_containers_together() {
    let agent = Agent::start("whole");
    agent.apply(
        "web",
        "
        terminationGracePeriodSeconds: 1
        resources: {requests: {cpu: 250m}, limits: {cpu: 500m, memory: 64Mi}}
        containers:
        - {name: main, image: localhost/trap:1}
        - {name: own, image: localhost/trap:1, resources: {limits: {memory: 16Mi}}}
        ",
    );
    let pod = agent.wait_running("web");
    assert_eq!(
        (&pod["status"]["qosClass"], &pod["spec"]["resources"]["requests"]["memory"]),
        (&"Burstable".into(), &"16Mi".into())
    );
    let of_pod = format!("{}/kubepods/burstable/pod{}", agent.cgroup, uid(&pod));
    let mib = 1 << 20;
    assert_eq!(limits(&of_pod), expected((256, 10), Some(50_000), Some(64 * mib)));
    for (name, memory) in [("main", 64 * mib), ("own", 16 * mib)] {
        let id = agent.running("web", name).expect("runs");
        assert_eq!(limits(&format!("{of_pod}/{id}"))[2], expected((0, 0), None, Some(memory))[2], "{name}");
    }
}

/// The burstable level gets the sum of its pods' requests as its CPU weight, the best-effort level gets the minimum.
#[test]
fn the_weight_of_the_burstable_level_is_the_sum_of_its_requests() {
    let agent = Agent::start("weight");
    let level = format!("{}/kubepods/burstable", agent.cgroup);
    let weighs = |shares: u64, weight: u64| {
        let wanted = if is_v2() { weight } else { shares }.to_string();
        agent.wait(&format!("the level weighs {shares} shares"), |_| limits(&level)[0] == wanted);
    };
    let asks = |cpu: &str| spec(&[with_resources("main", &format!("{{requests: {{cpu: {cpu}}}}}"))]);
    agent.apply("small", &asks("100m"));
    agent.wait_running("small");
    weighs(102, 4);
    agent.apply("large", &asks("400m"));
    agent.wait_running("large");
    weighs(512, 20);
    agent.apply("free", TRAP);
    agent.apply("sure", &spec(&[with_resources("main", "{limits: {cpu: 250m, memory: 32Mi}}")]));
    agent.wait_running("free");
    agent.wait_running("sure");
    weighs(512, 20);
    agent.delete("large");
    weighs(102, 4);
    agent.delete("small");
    weighs(2, 1);
}

#[test]
fn a_missing_cgroup_root_is_reported_and_pods_start_once_it_exists() {
    let agent = {
        let mut agent = Agent::prepare("noroot", &Runtime::shared());
        for mount in cgroup_mounts() {
            fs::remove_dir(mount.join(agent.cgroup.trim_start_matches('/'))).expect("remove it");
        }
        agent.run();
        agent
    };
    let wanted = format!("cgroupRoot: the cgroup {} does not exist", agent.cgroup);
    assert!(agent.log().contains(&wanted), "logged at the start");
    agent.apply("early", TRAP);
    agent.wait("the pod's event says so", |a| {
        a.get("/events").is_ok_and(|r| r.body.contains("FailedCreatePodSandBox") && r.body.contains(&wanted))
    });
    assert!(agent.sandboxes("early").is_empty());
    make_cgroup(&agent.cgroup);
    agent.wait_running("early");
}

/// A process in cgroups of its own. Dropping it removes both.
struct Within {
    child: Child,
    cgroups: Vec<PathBuf>,
}

impl Drop for Within {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.cgroups.iter().for_each(|c| drop(fs::remove_dir(c)));
    }
}

#[test]
fn a_start_removes_only_the_empty_cgroups_of_dead_pods() {
    let mut agent = Agent::start("deadpods");
    agent.apply("web", TRAP);
    let web = uid(&agent.wait_running("web"));
    agent.kill();
    let make = |name: &str, old: bool| -> Vec<PathBuf> {
        let cgroup = format!("{}/kubepods/besteffort/{name}", agent.cgroup);
        let mut directories: Vec<PathBuf> =
            ["cpu", "memory"].into_iter().filter_map(|controller| directory(controller, &cgroup)).collect();
        // On v2 both are the same directory.
        directories.dedup();
        for directory in &directories {
            fs::create_dir_all(directory.join("inner")).expect("a cgroup");
            let time = if old { SystemTime::now() - Duration::from_secs(3600) } else { SystemTime::now() };
            fs::File::open(directory).and_then(|d| d.set_modified(time)).expect("its time");
        }
        directories
    };
    let dead = make("poddead", true);
    let young = make("podyoung", false);
    let foreign = make("notapod", true);
    let used = make("podused", true);
    let child = Command::new("sleep").arg("600").spawn().expect("sleep");
    // In one hierarchy only: the cgroup still counts as in use.
    fs::write(used.last().expect("one").join("inner/cgroup.procs"), child.id().to_string()).expect("move it");
    let mut used = Within { child, cgroups: used };
    agent.run();
    agent.wait("the dead pod's are gone", |_| dead.iter().all(|d| !d.exists()));
    assert!(agent.log().contains("removed the cgroup of a dead pod cgroup=poddead"));
    for there in young.iter().chain(&foreign).chain(&used.cgroups) {
        assert!(there.join("inner").is_dir(), "{}", there.display());
    }
    assert!(matches!(used.child.try_wait(), Ok(None)), "nothing is killed");
    assert!(!agent.cgroups(&web).is_empty());
    assert_eq!(container(&agent.wait_running("web"), "main")["restartCount"], 0);
    let inner: Vec<PathBuf> = young.iter().chain(&foreign).flat_map(|d| [d.join("inner"), d.clone()]).collect();
    inner.iter().for_each(|d| fs::remove_dir(d).expect("empty"));
    let inside: Vec<PathBuf> = used.cgroups.iter().map(|c| c.join("inner")).collect();
    used.cgroups.splice(0..0, inside);
}
