//! Latency of operations on one pod: start, crash, edit, removal. Medians in milliseconds.

use crate::direct;
use crate::process::now;
use crate::support::agent::Agent;
use crate::support::cri::{Container, ContainerState, Cri};
use crate::support::lab::{Runtime, signal};
use crate::support::{http, yaml};
use crate::table::{Table, median};
use std::fs;
use std::time::{Duration, Instant};

pub const ROUNDS: usize = 11;

pub fn ms(from: i64, to: i64) -> f64 {
    (to - from) as f64 / 1e6
}

/// Polls every 2 ms. Callers query only the runtime.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn of_pod<'a>(all: &'a [Container], pod: &str) -> impl Iterator<Item = &'a Container> {
    all.iter().filter(move |c| c.labels.get("io.kubernetes.pod.name").is_some_and(|n| n == pod))
}

/// The ID of the pod's running container other than `old`.
pub fn running(cri: &mut Cri, namespace: &str, pod: &str, old: &str) -> Option<String> {
    let all = cri.containers(namespace);
    let state = |c: &&Container| c.state.enum_value() == Ok(ContainerState::CONTAINER_RUNNING) && c.id != old;
    of_pod(&all, pod).find(state).map(|c| c.id.clone())
}

/// The time of the first RunPodSandbox of the pod in containerd's log, in nanoseconds since the epoch.
pub fn seen_by_runtime(runtime: &Runtime, pod: &str) -> Option<i64> {
    let log = fs::read_to_string(runtime.dir.join("containerd.log")).expect("containerd.log");
    let line = log.lines().find(|l| {
        l.contains("RunPodSandbox for")
            && (l.contains(&format!("Name:{pod},")) || l.contains(&format!("name:\\\"{pod}\\\"")))
    })?;
    time_of(line)
}

/// The time of the first CreateContainer in containerd's log after `since`. No other pod is started at that time.
pub fn create_seen_by_runtime(runtime: &Runtime, since: i64) -> Option<i64> {
    let log = fs::read_to_string(runtime.dir.join("containerd.log")).expect("containerd.log");
    let calls =
        log.lines().filter(|l| l.contains("CreateContainer within sandbox") && !l.contains("returns container id"));
    calls.filter_map(time_of).find(|at| *at >= since)
}

pub fn time_of(line: &str) -> Option<i64> {
    let time = line.strip_prefix("time=\"")?.split('"').next()?;
    let time: jiff::Timestamp = time.parse().ok()?;
    Some(time.as_nanosecond() as i64)
}

/// Measures the time from the start of the process to the first healthy answer.
pub fn start(table: &mut Table) {
    let mut agent = Agent::prepare("start", &Runtime::shared());
    let mut taken = Vec::new();
    for _ in 0..ROUNDS {
        let begun = now();
        agent.launch();
        let address = format!("127.0.0.1:{}", agent.healthz_port);
        let end = Instant::now() + Duration::from_secs(30);
        while !http::get_tcp(&address, "/healthz").is_ok_and(|r| r.status == 200) {
            assert!(Instant::now() < end, "the agent did not become healthy:\n{}", agent.log());
            std::thread::sleep(Duration::from_micros(300));
        }
        taken.push(ms(begun, now()));
        agent.terminate();
    }
    table.row("start to healthy, ms", median(taken), None, 50.0, "260");
}

#[derive(Default)]
struct Taken {
    seen: Vec<f64>,
    started: Vec<f64>,
    direct: Vec<f64>,
    noticed: Vec<f64>,
    direct_noticed: Vec<f64>,
    restarted: Vec<f64>,
    direct_restarted: Vec<f64>,
    edited: Vec<f64>,
    stopped: Vec<f64>,
    removed: Vec<f64>,
    direct_removed: Vec<f64>,
}

/// Measures one pod after another: manifest to running, crash to restart, edit, removal. Compares with direct calls.
pub fn pods(table: &mut Table) {
    let runtime = Runtime::shared();
    let agent = Agent::start("latency");
    let mut cri = runtime.connect();
    let mut taken = Taken::default();
    for round in 0..ROUNDS {
        one_pod(&agent, &runtime, &mut cri, round, &mut taken);
        one_pod_directly(&runtime, &mut cri, round, &mut taken);
    }
    let direct = median(taken.direct);
    table.row("manifest renamed -> RunPodSandbox seen, ms", median(taken.seen), None, 2.0, "8");
    table.row("manifest renamed -> container started, ms", median(taken.started), Some(direct), direct + 5.0, "157");
    // Wherry waits until the runtime shows the exit. The limit is 20 ms more.
    let shown = median(taken.direct_noticed);
    table.row("container killed -> CreateContainer seen, ms", median(taken.noticed), Some(shown), shown + 20.0, "");
    let restart = median(taken.direct_restarted);
    table.row("container killed -> started again, ms", median(taken.restarted), Some(restart), 600.0, "742");
    table.row("manifest changed -> new container started, ms", median(taken.edited), None, 500.0, "12000 to 14000");
    table.row("manifest removed -> container stopped, ms", median(taken.stopped), None, 48.0, "48");
    let removed = median(taken.direct_removed);
    table.row("manifest removed -> sandbox removed, ms", median(taken.removed), Some(removed), 500.0, "29000");
}

fn one_pod(agent: &Agent, runtime: &Runtime, cri: &mut Cri, round: usize, taken: &mut Taken) {
    let (namespace, pod) = (agent.namespace.as_str(), format!("bench-{round}"));
    let aside = agent.dir.join("aside/next");
    let file = agent.manifests().join("pod.yaml");

    fs::write(&aside, yaml::pod(namespace, &pod, yaml::TRAP)).expect("write");
    let begun = now();
    fs::rename(&aside, &file).expect("rename");
    let first = until("the pod runs", || running(cri, namespace, &pod, ""));
    taken.started.push(ms(begun, direct::started(cri, &first)));
    taken.seen.extend(seen_by_runtime(runtime, &pod).map(|at| ms(begun, at)));
    std::thread::sleep(Duration::from_millis(300));

    let pid = cri.container_pid(&first).to_string();
    let begun = now();
    signal(&pid, "KILL");
    let second = until("the container was restarted", || running(cri, namespace, &pod, &first));
    taken.restarted.push(ms(begun, direct::started(cri, &second)));
    taken.noticed.extend(create_seen_by_runtime(runtime, begun).map(|at| ms(begun, at)));
    std::thread::sleep(Duration::from_millis(300));

    let edited = "containers: [{name: main, image: localhost/trap:1, args: [edited]}]";
    fs::write(&aside, yaml::pod(namespace, &pod, edited)).expect("write");
    let begun = now();
    fs::rename(&aside, &file).expect("rename");
    let third = until("the new version runs", || running(cri, namespace, &pod, &second));
    taken.edited.push(ms(begun, direct::started(cri, &third)));
    std::thread::sleep(Duration::from_millis(300));

    // A pidfd reports the exit: the runtime removes the container soon after.
    let pid = rustix::process::Pid::from_raw(cri.container_pid(&third) as i32).expect("a pid");
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("pidfd");
    let begun = now();
    fs::remove_file(&file).expect("remove");
    let mut wait = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
    let long = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut wait, Some(&long)), Ok(1), "the container was not stopped");
    taken.stopped.push(ms(begun, now()));
    until("the sandbox is gone", || cri.sandboxes(namespace).is_empty().then_some(()));
    taken.removed.push(ms(begun, now()));
}

fn one_pod_directly(runtime: &Runtime, cri: &mut Cri, round: usize, taken: &mut Taken) {
    let pod = direct::start(runtime, cri, &format!("direct-{round}"));
    taken.direct.push(ms(pod.begun, pod.started));
    let pid = cri.container_pid(&pod.container).to_string();
    let begun = now();
    signal(&pid, "KILL");
    let again = direct::container(cri, &pod, 1);
    taken.direct_restarted.push(ms(begun, direct::started(cri, &again)));
    // The time until the runtime shows the exit.
    let pid = cri.container_pid(&again).to_string();
    let begun = now();
    signal(&pid, "KILL");
    let ended = ContainerState::CONTAINER_EXITED;
    let shows = |cri: &mut Cri| cri.container_status(&again).is_ok_and(|a| a.status.state.enum_value() == Ok(ended));
    until("the runtime shows the exit", || shows(cri).then_some(()));
    taken.direct_noticed.push(ms(begun, now()));
    let begun = now();
    cri.remove_sandbox(&pod.sandbox);
    taken.direct_removed.push(ms(begun, now()));
}

/// Measures the delay of the second and the third restart of a crashing container beyond their back-off of 10 s and 20 s.
pub fn back_off(table: &mut Table) {
    let agent = Agent::start("backoff");
    let mut cri = agent.cri();
    agent.apply("loop", &yaml::script("Always", "sleep 0.2; exit 1"));
    // Start and end of each run, by attempt.
    let mut runs = [(0i64, 0i64); 4];
    until("the fourth run has started", || {
        for container in cri.containers(&agent.namespace) {
            let Some(run) = runs.get_mut(container.metadata.attempt as usize) else { continue };
            // An exited container may be removed between the calls.
            if let Ok(answer) = cri.container_status(&container.id) {
                *run = (answer.status.started_at, answer.status.finished_at);
            }
        }
        (runs[3].0 > 0).then_some(())
    });
    let late = |n: usize, seconds: f64| ms(runs[n].1, runs[n + 1].0) - seconds * 1000.0;
    table.row("second restart late against its 10 s, ms", late(1, 10.0), None, 50.0, "2000 to 8000");
    table.row("third restart late against its 20 s, ms", late(2, 20.0), None, 50.0, "2000 to 8000");
}
