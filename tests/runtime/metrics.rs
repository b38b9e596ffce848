//! Metrics (M): pods start, crash, fail and are removed, and a scrape has the matching numbers.

use crate::support::agent::{Agent, container, is_running};
use crate::support::exposition::Exposition;
use crate::support::lab::{Runtime, signal};
use crate::support::registry::Registry;
use crate::support::yaml::TRAP;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const OPERATIONS: &str = "kubelet_runtime_operations_total";
const FAILED_OPERATIONS: &str = "kubelet_runtime_operations_errors_total";
const FAILED_CONTAINERS: &str = "kubelet_started_containers_errors_total";
const WORK: &str = "kubelet_pod_worker_duration_seconds";
const WORKING: &str = "kubelet_working_pods";

/// Two containers, one of which ignores SIGTERM.
const DEAF: &str = "
    terminationGracePeriodSeconds: 20
    containers:
    - name: deaf
      image: localhost/busybox:1.35
      command: [sh, -c, \"trap '' TERM; while :; do sleep 0.1; done\"]
    - name: main
      image: localhost/trap:1
";

fn scrape(agent: &Agent) -> Exposition {
    scrape_path(agent, "/metrics")
}

fn scrape_path(agent: &Agent, path: &str) -> Exposition {
    let response = agent.get(path).expect(path);
    assert_eq!(response.status, 200, "{path}");
    let head = response.head.to_ascii_lowercase();
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    Exposition::read(&response.body).unwrap_or_else(|why| panic!("{path}: {why}\n{}", response.body))
}

/// The series of `kubelet_working_pods` that are not 0, in order.
fn working(m: &Exposition) -> Vec<(String, f64)> {
    let family = m.family(WORKING);
    assert_eq!(family.series(), 15);
    let some = family.samples.iter().filter(|s| s.value != 0.0);
    let mut some: Vec<_> =
        some.map(|s| (format!("{} {}", s.labels["lifecycle"], s.labels["config"]), s.value)).collect();
    some.sort_by(|a, b| a.0.cmp(&b.0));
    some
}

fn operations(m: &Exposition, operation: &str) -> (f64, f64) {
    let label = [("operation_type", operation)];
    let (all, failed) = (m.sum(OPERATIONS, &label), m.sum(FAILED_OPERATIONS, &label));
    assert_eq!(m.count("kubelet_runtime_operations_duration_seconds", &label), all, "{operation}");
    (all, failed)
}

#[test]
fn m_the_metrics_match_the_performed_operations() {
    let registry = Registry::start();
    let mut agent = Agent::prepare("metrics", &Runtime::shared());
    agent.configure("crashLoopBackOff:\n  maxContainerRestartPeriod: 1s\n");
    agent.run();
    agent.apply("one", TRAP);
    agent.apply("two", DEAF);
    let late = registry.image("metrics-late");
    agent.apply("late", &format!("\n    containers: [{{name: main, image: '{late}'}}]\n"));
    agent.apply(
        "never",
        "
        restartPolicy: Never
        containers: [{name: main, image: 'localhost/busybox:1.35', command: [/no/such/program]}]
        ",
    );
    agent.wait_phase("never", "Failed");
    agent.wait_waiting("late", "ImagePullBackOff");
    agent.delete("late");
    agent.wait_gone("late");
    agent.wait_running("two");
    agent.wait_running("one");
    for n in 1..=3 {
        let id = agent.running("one", "main").expect("it runs");
        signal(&agent.cri().container_pid(&id).to_string(), "KILL");
        agent.wait(&format!("restart {n}"), |a| {
            a.pod("one").is_some_and(|p| container(&p, "main")["restartCount"] == n && is_running(&p))
        });
    }
    // All but the newest dead container of each name are removed in the background.
    agent.wait("only the last of the dead is left", |a| a.containers("one").len() == 2);
    let exited = [("container_state", "exited")];
    agent.wait("and that is known", |a| scrape(a).sum("kubelet_running_containers", &exited) == 2.0);

    let m = scrape(&agent);
    // Gauges.
    assert_eq!(m.sum("kubelet_desired_pods", &[("static", "true")]), 3.0);
    assert_eq!(m.sum("kubelet_active_pods", &[("static", "true")]), 2.0, "one that has ended is not active");
    assert_eq!(working(&m), [("sync desired".into(), 2.0), ("terminated desired".into(), 1.0)]);
    assert_eq!(m.sum("kubelet_running_pods", &[]), 2.0);
    assert_eq!(m.sum("kubelet_running_containers", &[("container_state", "running")]), 3.0);
    assert_eq!(m.sum("kubelet_running_containers", &[]), 5.0);
    assert_eq!(m.sum("kubelet_node_name", &[("node", "node")]), 1.0);
    // Counters and durations. On a very slow machine a failed pull is repeated after 10 s.
    let pulls = m.sum(FAILED_CONTAINERS, &[("code", "ErrImagePull")]);
    assert!(pulls >= 1.0);
    assert_eq!(operations(&m, "pull_image"), (pulls, pulls));
    assert_eq!(m.sum(FAILED_CONTAINERS, &[("code", "RunContainerError")]), 1.0);
    assert_eq!(m.sum(FAILED_CONTAINERS, &[("container_type", "container")]), pulls + 1.0);
    let started = [("container_type", "container")];
    assert_eq!(m.sum("kubelet_started_containers_total", &started), 7.0 + pulls, "one 4, two 2, never 1, late");
    assert_eq!(m.sum("kubelet_started_containers_total", &[]), 7.0 + pulls);
    assert_eq!(operations(&m, "create_container"), (7.0, 0.0));
    assert_eq!(operations(&m, "start_container"), (7.0, 1.0));
    assert_eq!(operations(&m, "run_podsandbox"), (4.0, 0.0));
    assert_eq!(operations(&m, "stop_podsandbox"), (2.0, 0.0), "late and never");
    assert_eq!(operations(&m, "remove_podsandbox"), (1.0, 0.0), "late");
    assert_eq!(operations(&m, "remove_container"), (2.0, 0.0), "one's older dead");
    assert_eq!(operations(&m, "stop_container"), (0.0, 0.0));
    for operation in ["version", "status", "list_podsandbox", "list_containers", "container_status", "image_status"] {
        assert!(operations(&m, operation).0 >= 1.0, "{operation}");
    }
    let handler = [("runtime_handler", "")];
    assert_eq!(m.count("kubelet_run_podsandbox_duration_seconds", &handler), 4.0);
    assert!(m.total_seconds("kubelet_run_podsandbox_duration_seconds", &handler) > 0.0);
    assert!(!m.0.contains_key("kubelet_run_podsandbox_errors_total"), "none failed");
    assert_eq!(m.sum("kubelet_started_pods_total", &[]), 4.0);
    assert_eq!(m.sum("kubelet_started_pods_errors_total", &[]), 0.0);
    assert_eq!(m.count("kubelet_containers_per_pod_count", &[]), 4.0);
    assert_eq!(m.up_to("kubelet_containers_per_pod_count", "1"), 3.0);
    assert_eq!(m.up_to("kubelet_containers_per_pod_count", "2"), 4.0);
    assert_eq!(m.count("kubelet_pod_start_duration_seconds", &[]), 2.0, "two ran with all their containers");
    assert_eq!(m.count("kubelet_pod_worker_start_duration_seconds", &[]), 4.0);
    let work = |operation| m.count(WORK, &[("operation_type", operation)]);
    assert_eq!(work("create"), 4.0);
    assert_eq!(work("sync"), 3.0 + pulls - 1.0, "a restart is one");
    assert_eq!(work("kill"), 1.0, "late");
    assert_eq!(work("terminated"), 2.0, "late and never");
    assert_eq!(m.count("kubelet_cgroup_manager_duration_seconds", &[("operation_type", "destroy")]), 2.0);
    assert!(m.count("kubelet_pod_status_sync_duration_seconds", &[]) >= 10.0);
    assert_eq!(m.sum("kubelet_orphaned_runtime_pods_total", &[]), 0.0);
    assert_eq!(m.sum("kubelet_restarted_pods_total", &[]), 0.0);
    // PLEG.
    let relists = m.count("kubelet_pleg_relist_duration_seconds", &[]);
    assert!(relists >= 1.0 && m.count("kubelet_pleg_relist_interval_seconds", &[]) <= relists);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
    let seen = now - m.sum("kubelet_pleg_last_seen_seconds", &[]);
    assert!((-2.0..300.0).contains(&seen), "{seen} s");
    assert_eq!(m.sum("kubelet_pleg_discard_events", &[]), 0.0);

    // The next run: it adopts one pod; another has neither record nor manifest.
    agent.kill();
    let uid = agent.cri().sandboxes(&agent.namespace).into_iter().find(|s| s.metadata.name == "two").expect("two");
    let uid = uid.metadata.uid.clone();
    agent.delete("two");
    agent.lose_record(&uid);
    agent.run();
    agent.wait("the orphan ends", |a| {
        let m = scrape(a);
        working(&m).contains(&("terminating runtime_only".into(), 1.0))
    });
    let m = scrape(&agent);
    assert_eq!(m.sum(WORKING, &[("config", "runtime_only"), ("static", "unknown")]), 1.0);
    assert_eq!(m.sum("kubelet_desired_pods", &[]), 2.0);
    // The completed pod counts until its status has been read. The orphan still takes its room.
    agent.wait("two are active", |a| scrape(a).sum("kubelet_active_pods", &[]) == 2.0);
    agent.wait_gone("two");
    agent.wait("it is forgotten", |a| {
        working(&scrape(a)) == [("sync desired".to_string(), 1.0), ("terminated desired".to_string(), 1.0)]
    });
    let m = scrape(&agent);
    assert_eq!(m.sum("kubelet_orphaned_runtime_pods_total", &[]), 1.0);
    assert_eq!(m.sum("kubelet_started_pods_total", &[]), 0.0);
    assert!(!m.0.contains_key("kubelet_started_containers_total"), "nothing was started");
    assert_eq!(m.count("kubelet_pod_start_duration_seconds", &[]), 0.0);
    assert_eq!(m.count("kubelet_containers_per_pod_count", &[]), 1.0);
    let work = |operation| m.count(WORK, &[("operation_type", operation)]);
    assert_eq!((work("create"), work("kill")), (1.0, 1.0));
    assert_eq!(operations(&m, "stop_container"), (2.0, 0.0));
    assert_eq!(operations(&m, "stop_podsandbox").0, 1.0);
}

#[test]
fn m_the_paths_of_a_kubelets_metrics_are_there_or_not_found() {
    let agent = Agent::start("metricpaths");
    let probes = scrape_path(&agent, "/metrics/probes");
    assert_eq!(probes.0.keys().collect::<Vec<_>>(), ["process_start_time_seconds"], "there are no probes");
    for path in ["/metrics/cadvisor", "/metrics/resource", "/metrics/"] {
        assert_eq!(agent.get(path).expect(path).status, 404, "{path}");
    }
    // `/metrics` is complete from the first scrape on.
    let m = scrape(&agent);
    assert!(working(&m).is_empty());
    assert_eq!(m.sum("kubelet_desired_pods", &[]), 0.0);
}
