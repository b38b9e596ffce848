//! The paths of a kubelet on the port for kubectl, as a collector with a certificate of the role view reads them.

use crate::support::agent::{Agent, patience};
use crate::support::api_client::{ApiClient, enable};
use crate::support::exposition::Exposition;
use crate::support::lab::Runtime;
use crate::support::yaml::TRAP;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Two containers, one of which uses the CPU.
const BUSY: &str = "
    terminationGracePeriodSeconds: 2
    containers:
    - name: idle
      image: localhost/trap:1
    - name: worker
      image: localhost/busybox:1.35
      command: [sh, -c, \"while :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 0.05; done\"]
";

fn start(name: &str) -> (Agent, ApiClient) {
    let mut agent = Agent::prepare(name, &Runtime::shared());
    enable(&agent);
    agent.run();
    agent.apply("busy", BUSY);
    agent.apply("web", TRAP);
    agent.wait_running("busy");
    agent.wait_running("web");
    let client = ApiClient::new(&agent, &["--view"]);
    agent.wait("the API is served", |_| client.get("/healthz").is_ok_and(|r| r.status == 200));
    (agent, client)
}

/// The page, and the timestamps in it, in milliseconds.
fn scrape(client: &ApiClient, path: &str) -> (Exposition, Vec<i64>) {
    let response = client.get(path).expect(path);
    assert_eq!(response.status, 200, "{path}: {}", response.body);
    let head = response.head.to_ascii_lowercase();
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    let mut times = Vec::new();
    let mut untimed = |line: &str| {
        let is_number = |text: Option<&str>| text.is_some_and(|text| text.parse::<f64>().is_ok());
        let timed = line.rsplit_once(' ').filter(|(sample, time)| {
            !line.starts_with('#') && time.len() == 13 && is_number(sample.rsplit(' ').next())
        });
        match timed {
            Some((sample, time)) => {
                times.push(time.parse().expect("milliseconds"));
                format!("{sample}\n")
            }
            None => format!("{line}\n"),
        }
    };
    let text: String = response.body.lines().map(&mut untimed).collect();
    (Exposition::read(&text).unwrap_or_else(|why| panic!("{path}: {why}\n{text}")), times)
}

fn json(client: &ApiClient, path: &str) -> Value {
    let response = client.get(path).expect(path);
    assert_eq!(response.status, 200, "{path}: {}", response.body);
    serde_json::from_str(&response.body).expect("JSON")
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

/// Polls until `look` returns a value.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + patience(120);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn names(m: &Exposition) -> Vec<&str> {
    m.0.keys().map(String::as_str).collect()
}

#[test]
fn m_resource_metrics_follow_the_usage_of_real_containers() {
    let began = now();
    let (agent, client) = start("resource");
    let namespace = agent.namespace.as_str();
    let worker = [("container", "worker"), ("namespace", namespace), ("pod", "busy")];
    let pod = [("namespace", namespace), ("pod", "busy")];
    let (first, times) = wait_for("every container has values", || {
        let (m, times) = scrape(&client, "/metrics/resource");
        let known = m.0.get("container_memory_working_set_bytes").is_some_and(|f| f.series() == 3);
        known.then_some((m, times))
    });
    assert_eq!(first.sum("resource_scrape_error", &[]), 0.0);
    // Not every runtime reports the swap of containers.
    let swap = ["container_swap_usage_bytes", "pod_swap_usage_bytes"];
    let always: Vec<&str> = names(&first).into_iter().filter(|name| !swap.contains(name)).collect();
    let expected = [
        "container_cpu_usage_seconds_total",
        "container_memory_working_set_bytes",
        "container_start_time_seconds",
        "node_cpu_usage_seconds_total",
        "node_memory_working_set_bytes",
        "node_swap_usage_bytes",
        "pod_cpu_usage_seconds_total",
        "pod_memory_working_set_bytes",
        "resource_scrape_error",
    ];
    assert_eq!(always, expected);
    for name in expected {
        let labels: &[&str] = match name.split('_').next() {
            Some("container") => &["container", "namespace", "pod"],
            Some("pod") => &["namespace", "pod"],
            _ => &[],
        };
        assert_eq!(first.family(name).label_names(), labels.iter().copied().collect::<BTreeSet<_>>(), "{name}");
    }
    // Values of the runtime may be some seconds old.
    for time in &times {
        let seconds = *time as f64 / 1000.0;
        assert!(seconds > began - 60.0 && seconds < now() + 1.0, "{seconds}, {began}");
    }
    // CPU and memory of three containers and two pods, and three values of the node.
    assert!(times.len() >= 3 * 2 + 2 * 2 + 3, "{times:?}");
    let started = first.sum("container_start_time_seconds", &worker);
    assert!(started > began - 1.0 && started < now() + 1.0, "{started}");
    let working_set = first.sum("container_memory_working_set_bytes", &worker);
    assert!(working_set > 0.0, "{working_set}");
    assert!(first.sum("pod_memory_working_set_bytes", &pod) >= working_set / 2.0);
    assert!(first.sum("node_memory_working_set_bytes", &[]) > working_set);
    let counters = [
        ("container_cpu_usage_seconds_total", &worker[..]),
        ("pod_cpu_usage_seconds_total", &pod[..]),
        ("node_cpu_usage_seconds_total", &[]),
    ];
    wait_for("the CPU time grows", || {
        let (later, _) = scrape(&client, "/metrics/resource");
        counters.iter().all(|(name, of)| later.sum(name, of) > first.sum(name, of)).then_some(())
    });
    // A pod that is gone has no series.
    agent.delete("web");
    agent.wait_gone("web");
    let (after, _) = scrape(&client, "/metrics/resource");
    assert_eq!(after.family("pod_cpu_usage_seconds_total").series(), 1);
}

#[test]
fn m_cadvisor_metrics_name_the_container_its_image_and_its_cgroup() {
    let (agent, client) = start("cadvisor");
    let m = wait_for("every container has values", || {
        let (m, _) = scrape(&client, "/metrics/cadvisor");
        let known = |name: &str| m.0.get(name).is_some_and(|f| f.series() == 3);
        (known("container_memory_working_set_bytes") && known("container_fs_limit_bytes")).then_some(m)
    });
    assert_eq!(m.sum("container_scrape_error", &[]), 0.0);
    let id = agent.running("busy", "worker").expect("runs");
    let worker = [("name", id.as_str())];
    for name in [
        "container_cpu_usage_seconds_total",
        "container_fs_limit_bytes",
        "container_fs_usage_bytes",
        "container_last_seen",
        "container_memory_working_set_bytes",
        "container_start_time_seconds",
    ] {
        let mut labels: BTreeSet<&str> = ["container", "id", "image", "name", "namespace", "pod"].into();
        if name.starts_with("container_cpu") {
            labels.insert("cpu");
        }
        assert_eq!(m.family(name).label_names(), labels, "{name}");
        // The runtime measures the disk only now and then.
        assert!(m.sum(name, &worker) > 0.0 || name == "container_fs_usage_bytes", "{name}");
        assert_eq!(m.family(name).series(), 3, "{name}");
    }
    let sample = m.family("container_last_seen").samples.iter().find(|s| s.labels["name"] == id).expect("a sample");
    let labels = &sample.labels;
    assert_eq!((labels["pod"].as_str(), labels["container"].as_str()), ("busy", "worker"));
    assert!(labels["image"].contains("busybox:1.35"), "{labels:?}");
    let pid = agent.cri().container_pid(&id);
    let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("cgroups");
    assert!(cgroups.lines().any(|line| line.ends_with(&labels["id"])), "{labels:?} {cgroups}");
    assert!(m.sum("machine_cpu_cores", &[]) >= 1.0);
    assert!(m.sum("machine_memory_bytes", &[]) > m.sum("container_memory_working_set_bytes", &[]));
}

#[test]
fn m_the_summary_has_every_running_pod() {
    let (agent, client) = start("summary");
    let (summary, pods, worker) = wait_for("the summary is complete", || {
        let summary = json(&client, "/stats/summary");
        let pods = summary["pods"].as_array().expect("pods").clone();
        let containers: Vec<&Value> = pods.iter().filter_map(|p| p["containers"].as_array()).flatten().collect();
        let worker = (*containers.iter().find(|c| c["name"] == "worker")?).clone();
        let complete = containers.iter().all(|c| c["memory"].is_object())
            && worker["cpu"]["usageNanoCores"].as_u64().is_some_and(|n| n > 0)
            && worker["rootfs"]["usedBytes"].is_u64()
            && summary["node"]["fs"]["capacityBytes"].is_u64();
        complete.then_some((summary, pods, worker))
    });
    let node = &summary["node"];
    assert_eq!(node["nodeName"], "node");
    for path in [
        "/cpu/usageNanoCores",
        "/cpu/usageCoreNanoSeconds",
        "/memory/workingSetBytes",
        "/memory/availableBytes",
        "/memory/usageBytes",
        "/fs/availableBytes",
        "/fs/usedBytes",
        "/runtime/imageFs/capacityBytes",
        "/rlimit/maxpid",
        "/rlimit/curproc",
    ] {
        assert!(node.pointer(path).and_then(Value::as_u64).is_some_and(|n| n > 0), "{path}: {node:#}");
    }
    let mut refs: Vec<&str> = pods.iter().map(|p| p["podRef"]["name"].as_str().expect("a name")).collect();
    refs.sort_unstable();
    assert_eq!(refs, ["busy", "web"]);
    for pod in &pods {
        let name = pod["podRef"]["name"].as_str().expect("a name");
        let shown = agent.pod(name).expect("shown");
        assert_eq!(pod["podRef"]["uid"], shown["metadata"]["uid"]);
        assert_eq!(pod["podRef"]["namespace"], agent.namespace.as_str());
        assert_eq!(pod["startTime"], shown["status"]["startTime"]);
        assert!(pod["memory"]["workingSetBytes"].as_u64().is_some_and(|n| n > 0), "{pod:#}");
        assert!(pod["cpu"]["usageCoreNanoSeconds"].as_u64().is_some_and(|n| n > 0), "{pod:#}");
    }
    assert!(worker["memory"]["workingSetBytes"].as_u64().is_some_and(|n| n > 0), "{worker:#}");
    assert!(worker["startTime"].is_string(), "{worker:#}");
    let only = json(&client, "/stats/summary?only_cpu_and_memory=true");
    assert!(only["node"]["cpu"].is_object() && only["node"]["fs"].is_null() && only["node"]["rlimit"].is_null());
    assert!(only["pods"][0]["containers"][0]["rootfs"].is_null());
    let through = json(&client, "/api/v1/nodes/node/proxy/stats/summary");
    assert_eq!(through["pods"].as_array().map(Vec::len), Some(2));
}

#[test]
fn m_the_paths_of_a_kubelet_need_a_certificate_and_no_more() {
    let (agent, client) = start("endpoints");
    let pods = json(&client, "/pods");
    assert_eq!((pods["kind"].as_str(), pods["apiVersion"].as_str()), (Some("PodList"), Some("v1")));
    let of = |list: &[Value]| list.iter().map(|p| p["metadata"]["uid"].clone()).collect::<Vec<_>>();
    assert_eq!(of(pods["items"].as_array().expect("items")), of(&agent.pods()));
    let (m, times) = scrape(&client, "/metrics");
    assert!(times.is_empty());
    assert_eq!(m.sum("kubelet_running_pods", &[]), 2.0);
    let (probes, _) = scrape(&client, "/metrics/probes");
    assert_eq!(names(&probes), ["process_start_time_seconds"]);
    let config = &json(&client, "/configz")["kubeletconfig"];
    assert_eq!(config["kind"], "KubeletConfiguration");
    assert_eq!(
        (&config["healthzPort"], &config["cgroupRoot"]),
        (&agent.healthz_port.into(), &agent.cgroup.as_str().into())
    );
    assert_eq!(config["evictionHard"]["memory.available"], "1Mi");
    let editor = ApiClient::new(&agent, &[]);
    let anonymous = ApiClient::anonymous(&agent);
    let metrics = ["/metrics", "/metrics/probes", "/metrics/resource", "/metrics/cadvisor"];
    for path in metrics.into_iter().chain(["/stats/summary", "/pods", "/configz", "/healthz"]) {
        for path in [path.to_owned(), format!("/api/v1/nodes/node/proxy{path}")] {
            for client in [&client, &editor] {
                assert_eq!(client.get(&path).expect("an answer").status, 200, "{path}");
            }
            assert_eq!(editor.send("POST", &path).expect("an answer").status, 405, "{path}");
            // Either the handshake fails, or the request.
            let refused = anonymous.get(&path);
            assert!(refused.as_ref().map_or(true, |r| r.status == 401), "{path}: {refused:?}");
            let other = path.replace("/nodes/node/", "/nodes/other/");
            if other != path {
                assert_eq!(client.get(&other).expect("an answer").status, 404, "{other}");
            }
        }
    }
    assert_eq!(client.send("POST", "/api/v1/nodes/node/proxy/pods").expect("an answer").status, 403);
    for path in ["/metrics/none", "/runningpods", "/api/v1/nodes/node/proxy/exec/a/b/c"] {
        assert_eq!(client.get(path).expect("an answer").status, 404, "{path}");
    }
}
