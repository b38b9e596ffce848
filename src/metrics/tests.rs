use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// Facts seen on a kubelet 1.32: name, type, labels, and a histogram's buckets.
const DEFAULT: &str = "0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 +Inf";
const KUBELET: &[(&str, &str, &str, &str)] = &[
    ("kubelet_active_pods", "gauge", "static", ""),
    ("kubelet_cgroup_manager_duration_seconds", "histogram", "operation_type", DEFAULT),
    ("kubelet_containers_per_pod_count", "histogram", "", "1 2 4 8 16 +Inf"),
    ("kubelet_desired_pods", "gauge", "static", ""),
    ("kubelet_mirror_pods", "gauge", "", ""),
    ("kubelet_node_name", "gauge", "node", ""),
    ("kubelet_orphaned_runtime_pods_total", "counter", "", ""),
    ("kubelet_pleg_discard_events", "counter", "", ""),
    ("kubelet_pleg_last_seen_seconds", "gauge", "", ""),
    ("kubelet_pleg_relist_duration_seconds", "histogram", "", DEFAULT),
    ("kubelet_pleg_relist_interval_seconds", "histogram", "", DEFAULT),
    (
        "kubelet_pod_start_duration_seconds",
        "histogram",
        "",
        "0.5 1 2 3 4 5 6 8 10 20 30 45 60 120 180 240 300 360 480 600 900 1200 1800 2700 3600 +Inf",
    ),
    ("kubelet_pod_worker_duration_seconds", "histogram", "operation_type", DEFAULT),
    ("kubelet_pod_worker_start_duration_seconds", "histogram", "", DEFAULT),
    ("kubelet_restarted_pods_total", "counter", "static", ""),
    ("kubelet_run_podsandbox_duration_seconds", "histogram", "runtime_handler", DEFAULT),
    ("kubelet_run_podsandbox_errors_total", "counter", "runtime_handler", ""),
    ("kubelet_running_containers", "gauge", "container_state", ""),
    ("kubelet_running_pods", "gauge", "", ""),
    (
        "kubelet_runtime_operations_duration_seconds",
        "histogram",
        "operation_type",
        "0.005 0.0125 0.03125 0.078125 0.1953125 0.48828125 1.220703125 3.0517578125 7.62939453125 19.073486328125 \
         47.6837158203125 119.20928955078125 298.0232238769531 745.0580596923828 +Inf",
    ),
    ("kubelet_runtime_operations_errors_total", "counter", "operation_type", ""),
    ("kubelet_runtime_operations_total", "counter", "operation_type", ""),
    ("kubelet_started_containers_errors_total", "counter", "code container_type", ""),
    ("kubelet_started_containers_total", "counter", "container_type", ""),
    ("kubelet_started_pods_errors_total", "counter", "", ""),
    ("kubelet_started_pods_total", "counter", "", ""),
    ("kubelet_working_pods", "gauge", "config lifecycle static", ""),
    ("process_cpu_seconds_total", "counter", "", ""),
    ("process_max_fds", "gauge", "", ""),
    ("process_open_fds", "gauge", "", ""),
    ("process_resident_memory_bytes", "gauge", "", ""),
    ("process_start_time_seconds", "gauge", "", ""),
    ("process_virtual_memory_bytes", "gauge", "", ""),
    ("process_virtual_memory_max_bytes", "gauge", "", ""),
];

fn busy() -> Metrics {
    let m = Metrics::new("lab");
    let d = Duration::from_millis(30);
    for measure in [
        Measure::RelistDuration(d),
        Measure::RelistInterval(d),
        Measure::PodStartDuration(d),
        Measure::PodWorkerDuration { operation: "sync", duration: d },
        Measure::PodWorkerStartDuration(d),
        Measure::StartedPod,
        Measure::StartedPodError,
        Measure::StartedContainer,
        Measure::StartedContainerError { code: "Bad \"quote\"\n\\".into() },
        Measure::RunSandboxDuration(d),
        Measure::RunSandboxError,
        Measure::OrphanedPod,
        Measure::RestartedPod,
        Measure::ContainersPerPod(2),
    ] {
        m.observe(&measure);
    }
    m.runtime_operation("create_container", d, true);
    m.cgroup_operation("destroy", d);
    m.set_desired_pods(3);
    m.set_active_pods(2);
    m.set_working_pods("terminating", Working { desired: 1, orphan: 2, runtime_only: 3 });
    m.set_running_containers(ContainerCounts { created: 0, running: 5, exited: 1, unknown: 0 });
    m.set_pleg_last_seen(1_700_000_000);
    m
}

/// Reads the classic format strictly; by family: type, label names, bounds, and the samples.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    labels: BTreeSet<String>,
    bounds: Vec<String>,
    samples: Vec<(String, f64)>,
}

fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut helped = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.ends_with('.') && !help.ends_with(".."), "{line}");
            helped = name.to_owned();
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped);
            current = name.to_owned();
            let family = Family { kind: kind.to_owned(), ..Family::default() };
            assert!(families.insert(current.clone(), family).is_none(), "{name} twice");
            continue;
        }
        assert!(!line.starts_with('#'), "{line}");
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        let family = families.get_mut(&current).unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let suffix = name.strip_prefix(current.as_str()).unwrap_or_else(|| panic!("{line} in {current}"));
        let allowed: &[&str] = if family.kind == "histogram" { &["_sum", "_count", "_bucket"] } else { &[""] };
        assert!(allowed.contains(&suffix), "{line}: {suffix:?}");
        let mut rest = labels.strip_suffix('}').unwrap();
        while let Some((key, tail)) = rest.split_once("=\"") {
            let mut end = 0;
            while tail.as_bytes()[end] != b'"' {
                end += if tail.as_bytes()[end] == b'\\' { 2 } else { 1 };
            }
            if key == "le" {
                if !family.bounds.contains(&tail[..end].to_owned()) {
                    family.bounds.push(tail[..end].to_owned());
                }
            } else {
                family.labels.insert(key.to_owned());
            }
            rest = tail[end + 1..].trim_start_matches(',');
        }
        family.samples.push((series.to_owned(), value));
    }
    families
}

#[test]
fn names_types_labels_and_buckets_are_the_kubelets() {
    let text = String::from_utf8(busy().render()).unwrap();
    let families = parse(&text);
    for (name, kind, labels, bounds) in KUBELET {
        let family = families.get(*name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(family.kind, *kind, "{name}");
        assert_eq!(family.labels.iter().cloned().collect::<Vec<_>>().join(" "), *labels, "{name}");
        assert_eq!(family.bounds.join(" "), *bounds, "{name}");
    }
    let ours = families.keys().filter(|name| !KUBELET.iter().any(|k| k.0 == *name));
    assert!(ours.into_iter().all(|name| name.starts_with("wherry_")), "a kubelet_ metric that no kubelet has");
}

#[test]
fn values_arrive_where_they_belong() {
    let text = String::from_utf8(busy().render()).unwrap();
    for line in [
        "kubelet_desired_pods{static=\"true\"} 3",
        "kubelet_desired_pods{static=\"\"} 0",
        "kubelet_working_pods{lifecycle=\"terminating\",config=\"orphan\",static=\"true\"} 2",
        "kubelet_working_pods{lifecycle=\"terminating\",config=\"runtime_only\",static=\"unknown\"} 3",
        "kubelet_started_containers_total{container_type=\"container\"} 1",
        "kubelet_started_containers_errors_total{container_type=\"container\",code=\"Bad \\\"quote\\\"\\n\\\\\"} 1",
        "kubelet_runtime_operations_errors_total{operation_type=\"create_container\"} 1",
        "kubelet_runtime_operations_duration_seconds_bucket{le=\"0.03125\",operation_type=\"create_container\"} 1",
        "kubelet_containers_per_pod_count_bucket{le=\"1\"} 0",
        "kubelet_containers_per_pod_count_bucket{le=\"2\"} 1",
        "kubelet_running_containers{container_state=\"running\"} 5",
        "kubelet_pleg_last_seen_seconds 1700000000",
        "kubelet_node_name{node=\"lab\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
    }
}

#[test]
fn the_fifteen_series_of_working_pods_are_always_there() {
    let text = String::from_utf8(Metrics::new("lab").render()).unwrap();
    let families = parse(&text);
    assert_eq!(families["kubelet_working_pods"].samples.len(), 15);
    assert!(families["process_resident_memory_bytes"].samples[0].1 > 100_000.0);
    assert!(families["process_open_fds"].samples[0].1 >= 3.0);
    assert!(families["process_cpu_seconds_total"].samples[0].1 >= 0.0);
}

#[test]
fn only_bounds_lose_their_zero() {
    let text = "# HELP x {le=\"1.0\"} y.\na_bucket{le=\"1.0\",b=\"2.0\"} 3.0\na_bucket{le=\"+Inf\"} 1\nc{d=\"le=\\\"1.0\\\"\"} 1.0\n";
    let expected = text.replace("a_bucket{le=\"1.0\"", "a_bucket{le=\"1\"");
    assert_eq!(String::from_utf8(classic::go_bounds(text)).unwrap(), expected);
}
