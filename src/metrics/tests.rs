use super::Metrics;
use super::exposition::Kind as Type;
use super::families::{self, TABLE};
use super::labels::{self, CGROUP_OPERATIONS, CONTAINER_TYPES, OPERATIONS, WORKER_OPERATIONS, closed};
use crate::api::document;
use crate::api::document::context::Context;
use crate::api::node_facts::NodeFacts;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::resources::Resources;
use crate::engine::effect::Measure;
use crate::engine::probe::Kind;
use parser::Exposition;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

#[allow(dead_code)]
#[path = "../../tests/support/exposition.rs"]
mod parser;

/// A metric family in the recording of a kubelet.
struct Known {
    name: &'static str,
    kind: &'static str,
    /// The observed values by label name. Empty if the label was never observed.
    labels: Vec<(&'static str, Vec<&'static str>)>,
    bounds: Vec<&'static str>,
}

fn kubelet() -> Vec<Known> {
    let lines = include_str!("../../tests/fixtures/kubelet-metrics.tsv").lines().filter(|l| !l.starts_with('#'));
    lines.map(known).collect()
}

fn known(line: &'static str) -> Known {
    let mut columns = line.split('\t');
    let (name, kind) = (columns.next().unwrap(), columns.next().unwrap());
    let mut known = Known { name, kind, labels: Vec::new(), bounds: Vec::new() };
    for label in columns.next().unwrap_or_default().split("; ").filter(|l| !l.is_empty()) {
        let (label, values) = label.split_once(':').unwrap();
        // `static:  true` has two values, of which the first is empty.
        let values = values.strip_prefix(' ').unwrap_or(values).split(' ');
        if label == "le" {
            known.bounds = values.collect();
        } else {
            known.labels.push((label, values.filter(|v| *v != "?").collect()));
        }
    }
    known
}

fn read(m: &Metrics) -> Exposition {
    let text = String::from_utf8(m.render()).unwrap();
    Exposition::read(&text).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

fn probed_pod() -> Rc<Pod> {
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: web, uid: u1}, spec: {containers: \
                [{name: main, image: i:1, livenessProbe: {exec: {command: [x]}}}]}}";
    let context = Context::new("lab", "now");
    let documents = document::parse(text.as_bytes(), "/m/web.yaml").unwrap();
    Rc::new(documents[0].pod_with_unsupported("/m/web.yaml", context).unwrap())
}

fn probe(pod: &Rc<Pod>, passed: Option<bool>) -> Measure {
    Measure::Probe { kind: Kind::Liveness, passed, pod: pod.clone(), container: "main".into() }
}

/// Returns metrics with at least one measurement of each kind.
fn busy() -> Metrics {
    let m = Metrics::new("lab");
    let d = Duration::from_millis(30);
    for measure in [
        Measure::RelistDuration(d),
        Measure::RelistInterval(d),
        Measure::PodStartDuration(d),
        Measure::PodStatusDuration(d),
        Measure::PodWorkerDuration { operation: "sync", duration: d },
        Measure::PodWorkerStartDuration(d),
        Measure::StartedPod,
        Measure::StartedPodError,
        Measure::StartedContainer { container_type: "container" },
        Measure::StartedContainerError { container_type: "container", code: Reason::ErrImagePull },
        Measure::OrphanedPod,
        Measure::ImageCollected { reason: "space" },
        Measure::RestartedPod,
        Measure::ContainersPerPod(2),
        probe(&probed_pod(), Some(true)),
    ] {
        m.record(&measure);
    }
    m.runtime_operation("create_container", d, true);
    m.runtime_operation("run_podsandbox", d, false);
    m.runtime_operation("run_podsandbox", d, true);
    m.sandbox_run("", d, false);
    m.sandbox_run("", d, true);
    m.sandbox_run("runsc", d, true);
    m.cgroup_operation("destroy", d);
    m.inc(families::EVENT_STREAMS, []);
    m.inc(families::EVENT_STREAM_ERRORS, []);
    m.observe(families::EVENT_LATENCY, [], d.as_secs_f64());
    m.set_desired_pods(3);
    m.set_active_pods(2);
    m.set_working_pods(|lifecycle, config| match (lifecycle, config) {
        ("terminating", "desired") => 1,
        ("terminating", "orphan") => 2,
        ("terminating", "runtime_only") => 3,
        _ => 0,
    });
    m.set_running_containers(|state| match state {
        "running" => 5,
        "exited" => 1,
        _ => 0,
    });
    m.set(families::RELIST_SEEN, [], 1_700_000_000);
    m.set_graceful_shutdown(1_700_000_100.9, 1_700_000_130.2);
    m.set_certificate(families::CLIENT_CERTIFICATE, (Some(-3600), 2));
    m.set_certificate(families::SERVING_CERTIFICATE, (None, 1));
    m
}

#[test]
fn m_names_types_labels_and_buckets_are_the_kubelets() {
    let shown = read(&busy());
    let kubelet = kubelet();
    assert!(kubelet.len() >= 35, "the fixture was not read");
    for known in &kubelet {
        let family = shown.family(known.name);
        assert_eq!(family.kind, known.kind, "{}", known.name);
        let labels: BTreeSet<&str> = known.labels.iter().map(|(name, _)| *name).collect();
        assert_eq!(family.label_names(), labels, "{}", known.name);
        assert_eq!(family.bounds(), known.bounds, "{}", known.name);
    }
    for name in shown.0.keys() {
        let ours = name.starts_with("wherry_");
        assert!(ours || kubelet.iter().any(|k| k.name == name), "{name}: not a metric of a kubelet");
    }
}

#[test]
fn m_label_values_that_a_kubelet_showed_are_known_here() {
    let sets: &[(&str, &[&'static str])] = &[
        ("kubelet_runtime_operations_total", &OPERATIONS),
        ("kubelet_runtime_operations_errors_total", &OPERATIONS),
        ("kubelet_pod_worker_duration_seconds", &WORKER_OPERATIONS),
        ("kubelet_cgroup_manager_duration_seconds", &CGROUP_OPERATIONS),
        ("kubelet_started_containers_total", &CONTAINER_TYPES),
    ];
    let kubelet = kubelet();
    for (name, set) in sets {
        let known = kubelet.iter().find(|k| k.name == *name).unwrap();
        let values = &known.labels[0].1;
        assert!(!values.is_empty(), "{name}");
        for value in values {
            assert_eq!(closed(value, set), *value, "{name}");
        }
    }
    // Each call of the client has its own name.
    use crate::adapters::cri::client::method;
    for m in [
        method::VERSION,
        method::STATUS,
        method::LIST_POD_SANDBOX,
        method::POD_SANDBOX_STATUS,
        method::RUN_POD_SANDBOX,
        method::STOP_POD_SANDBOX,
        method::REMOVE_POD_SANDBOX,
        method::LIST_CONTAINERS,
        method::CONTAINER_STATUS,
        method::CREATE_CONTAINER,
        method::START_CONTAINER,
        method::STOP_CONTAINER,
        method::REMOVE_CONTAINER,
        method::IMAGE_STATUS,
        method::PULL_IMAGE,
    ] {
        assert_eq!(closed(m.operation_type, &OPERATIONS), m.operation_type);
    }
}

#[test]
fn m_families_without_labels_are_there_from_the_start_and_those_with_labels_once_used() {
    let shown = read(&Metrics::new("lab"));
    for known in kubelet() {
        let always = known.labels.is_empty()
            || ["active_pods", "desired_pods", "working_pods", "restarted_pods_total", "node_name"]
                .iter()
                .any(|n| known.name.strip_prefix("kubelet_") == Some(*n));
        // This metric is set before each scrape.
        if known.name != "kubelet_running_containers" {
            assert_eq!(shown.0.contains_key(known.name), always, "{}", known.name);
        }
    }
    assert_eq!(shown.family("kubelet_working_pods").series(), 15);
    let zeros = ["kubelet_graceful_shutdown_start_time_seconds", "kubelet_graceful_shutdown_end_time_seconds"];
    for name in zeros.into_iter().chain(["kubelet_mirror_pods", "kubelet_pleg_discard_events"]) {
        assert_eq!(shown.family(name).samples[0].value, 0.0, "{name}");
    }
    assert!(shown.sum("process_resident_memory_bytes", &[]) > 100_000.0);
    assert!(shown.sum("process_open_fds", &[]) >= 3.0);
    assert!(shown.family("process_cpu_seconds_total").samples[0].value >= 0.0);
}

#[test]
fn m_values_arrive_where_they_belong() {
    let text = String::from_utf8(busy().render()).unwrap();
    for line in [
        "kubelet_desired_pods{static=\"true\"} 3",
        "kubelet_desired_pods{static=\"\"} 0",
        "kubelet_active_pods{static=\"true\"} 2",
        "kubelet_working_pods{lifecycle=\"terminating\",config=\"orphan\",static=\"true\"} 2",
        "kubelet_working_pods{lifecycle=\"terminating\",config=\"runtime_only\",static=\"unknown\"} 3",
        "kubelet_started_pods_total 1",
        "kubelet_started_pods_errors_total 1",
        "kubelet_started_containers_total{container_type=\"container\"} 1",
        "kubelet_started_containers_errors_total{container_type=\"container\",code=\"ErrImagePull\"} 1",
        "kubelet_runtime_operations_errors_total{operation_type=\"create_container\"} 1",
        "kubelet_runtime_operations_duration_seconds_bucket{le=\"0.03125\",operation_type=\"create_container\"} 1",
        "kubelet_run_podsandbox_duration_seconds_count{runtime_handler=\"\"} 2",
        "kubelet_run_podsandbox_errors_total{runtime_handler=\"\"} 1",
        "kubelet_run_podsandbox_errors_total{runtime_handler=\"runsc\"} 1",
        "kubelet_cgroup_manager_duration_seconds_count{operation_type=\"destroy\"} 1",
        "kubelet_containers_per_pod_count_bucket{le=\"1\"} 0",
        "kubelet_containers_per_pod_count_bucket{le=\"2\"} 1",
        "kubelet_pod_status_sync_duration_seconds_bucket{le=\"0.01\"} 0",
        "kubelet_pod_status_sync_duration_seconds_bucket{le=\"0.05\"} 1",
        "kubelet_running_containers{container_state=\"running\"} 5",
        "kubelet_pleg_last_seen_seconds 1700000000",
        "kubelet_graceful_shutdown_start_time_seconds 1700000100",
        "kubelet_graceful_shutdown_end_time_seconds 1700000130",
        "kubelet_node_name{node=\"lab\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
    }
}

#[test]
fn m_no_value_from_outside_makes_a_series_of_its_own() {
    let m = busy();
    let d = Duration::from_millis(1);
    for i in 0..10_000 {
        let value: &'static str = String::leak(format!("registry.example/image-{i}: \"no\" \\ such\nthing"));
        m.record(&Measure::PodWorkerDuration { operation: value, duration: d });
        m.record(&Measure::StartedContainer { container_type: value });
        m.record(&Measure::StartedContainerError { container_type: value, code: Reason::Other(value.into()) });
        m.runtime_operation(value, d, true);
        m.cgroup_operation(value, d);
    }
    let (shown, before) = (read(&m), read(&busy()));
    for (name, family) in &shown.0 {
        let more = family.series() - before.family(name).series();
        assert!(more <= 1, "{name}: {more} series more");
    }
    assert_eq!(shown.sum("kubelet_runtime_operations_total", &[("operation_type", labels::OTHER)]), 10_000.0);
    // All calls together have a limited number of series.
    let all: usize = shown.0.values().map(parser::Family::series).sum();
    assert!(all < 100, "{all} series");
}

#[test]
fn m_the_node_s_name_is_written_as_the_format_wants_it() {
    let name = "a \"b\"\\\n c";
    let shown = read(&Metrics::new(name));
    assert_eq!(shown.sum("kubelet_node_name", &[("node", name)]), 1.0);
}

#[test]
fn m_probes_have_a_page_of_their_own() {
    let m = busy();
    let shown = Exposition::read(&String::from_utf8(m.render_probes()).unwrap()).unwrap();
    assert_eq!(shown.0.keys().collect::<Vec<_>>(), ["prober_probe_total", "process_start_time_seconds"]);
    assert_eq!(shown.sum("prober_probe_total", &[]), 1.0);
    assert_eq!(shown.sum("process_start_time_seconds", &[]), read(&m).sum("process_start_time_seconds", &[]));
}

#[test]
fn a_page_of_all_there_can_be_is_made_in_milliseconds() {
    let m = busy();
    for operation in OPERATIONS {
        m.runtime_operation(operation, Duration::from_millis(1), true);
    }
    let begin = Instant::now();
    let mut bytes = 0;
    for _ in 0..20 {
        bytes = m.render().len();
    }
    let each = begin.elapsed() / 20;
    assert!(bytes < 128 * 1024, "{bytes} bytes");
    assert!(each < Duration::from_millis(500), "{each:?} for {bytes} bytes");
}

/// Tests that the parser, on which these tests and the runtime tests rely, rejects invalid text.
#[test]
fn texts_that_break_the_format_are_refused() {
    let counter = "# HELP a A.\n# TYPE a counter\n";
    let histogram = "# HELP h H.\n# TYPE h histogram\n";
    let good = format!("{counter}a{{b=\"c\\\"\\\\\\n\"}} 1\n");
    let shown = Exposition::read(&good).unwrap();
    assert_eq!(shown.sum("a", &[("b", "c\"\\\n")]), 1.0);
    let good = format!("{histogram}h_sum 2\nh_count 3\nh_bucket{{le=\"0.5\"}} 1\nh_bucket{{le=\"+Inf\"}} 3\n");
    assert_eq!(Exposition::read(&good).unwrap().up_to("h", "0.5"), 1.0);
    for bad in [
        format!("{counter}a 1"),
        format!("{counter}a 1\na 2\n"),
        format!("{counter}a -1\n"),
        format!("{counter}a NaN\n"),
        format!("{counter}a +Inf\n"),
        "# HELP a A.\n# TYPE a gauge\na inf\n".to_owned(),
        format!("{counter}a 1 1700000000\n"),
        format!("{counter}a{{b=\"\\x\"}} 1\n"),
        format!("{counter}a{{b=\"c\"d=\"e\"}} 1\n"),
        format!("{counter}a{{b=\"c\",b=\"d\"}} 1\n"),
        format!("{counter}a{{b=\"c}} 1\n"),
        format!("{counter}a{{0b=\"c\"}} 1\n"),
        format!("{counter}a{{b=\"c\"}} 1\na 1\n"),
        format!("{counter}a_total 1\n"),
        format!("{counter}b 1\n"),
        format!("{counter}\n"),
        format!("{counter}a 1\n{counter}a 1\n"),
        format!("{counter}a 1\n# EOF\n"),
        counter.to_owned(),
        "a 1\n".to_owned(),
        "# TYPE a counter\na 1\n".to_owned(),
        "# HELP a A.\n# TYPE a unknown\na 1\n".to_owned(),
        "# HELP a no sentence\n# TYPE a counter\na 1\n".to_owned(),
        format!("{histogram}h_sum 2\nh_count 3\nh_bucket{{le=\"0.5\"}} 1\n"),
        format!("{histogram}h_sum 2\nh_count 2\nh_bucket{{le=\"+Inf\"}} 3\n"),
        format!("{histogram}h_count 3\nh_bucket{{le=\"+Inf\"}} 3\n"),
        format!("{histogram}h_sum 2\nh_count 3\nh_bucket{{le=\"1.0\"}} 3\nh_bucket{{le=\"+Inf\"}} 3\n"),
        format!(
            "{histogram}h_sum 2\nh_count 3\nh_bucket{{le=\"2\"}} 3\nh_bucket{{le=\"1\"}} 3\nh_bucket{{le=\"+Inf\"}} 3\n"
        ),
        format!("{histogram}h_sum 2\nh_count 1\nh_bucket{{le=\"2\"}} 3\nh_bucket{{le=\"+Inf\"}} 1\n"),
        format!("{histogram}h 1\n"),
    ] {
        assert!(Exposition::read(&bad).is_err(), "accepted:\n{bad}");
    }
}

#[test]
fn probes_are_counted_by_their_results_until_their_pod_is_gone() {
    let pod = probed_pod();
    let metrics = Metrics::new("lab");
    for passed in [Some(true), Some(false), Some(true), None] {
        metrics.record(&probe(&pod, passed));
    }
    let lines = || -> Vec<String> {
        let text = String::from_utf8(metrics.render()).unwrap();
        let mut lines: Vec<String> =
            text.lines().filter(|l| l.starts_with("prober_probe_total{")).map(str::to_string).collect();
        lines.sort();
        lines
    };
    let of = "container=\"main\",namespace=\"default\",pod=\"web\",pod_uid=\"u1\",probe_type=\"Liveness\"";
    let expected = [("failed", 1), ("successful", 2), ("unknown", 1)];
    assert_eq!(lines(), expected.map(|(result, n)| format!("prober_probe_total{{{of},result=\"{result}\"}} {n}")));
    metrics.record(&Measure::NoMoreProbes { pod });
    assert_eq!(lines(), Vec::<String>::new());
}

#[test]
fn m_the_nodes_size_is_shown_by_resource_and_unit() {
    let m = Metrics::new("lab");
    let amounts = |cpu, gpu| {
        let memory = 16u64 << 30;
        Resources::from([
            ("cpu", cpu),
            ("memory", memory),
            ("pods", 110),
            ("hugepages-2Mi", 4 << 20),
            ("x.io/gpu", gpu),
        ])
    };
    let node =
        |cpu, gpu| NodeFacts { capacity: amounts(4000, 2), allocatable: amounts(cpu, gpu), ..NodeFacts::default() };
    m.set_node_size(&node(3500, 2));
    m.set_node_requested(&node(3500, 2), &Resources::from([("cpu", 1250), ("pods", 3), ("ephemeral-storage", 5)]));
    let series = |family: &str| -> Vec<String> {
        let text = String::from_utf8(m.render()).unwrap();
        let mut lines: Vec<String> = text
            .lines()
            .filter_map(|l| l.strip_prefix(family))
            .filter(|l| l.starts_with('{'))
            .map(Into::into)
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(
        series("kube_node_status_allocatable"),
        [
            "{resource=\"cpu\",unit=\"core\"} 3.5",
            "{resource=\"hugepages_2Mi\",unit=\"byte\"} 4194304.0",
            "{resource=\"memory\",unit=\"byte\"} 17179869184.0",
            "{resource=\"pods\",unit=\"integer\"} 110.0",
            "{resource=\"x_io_gpu\",unit=\"integer\"} 2.0",
        ]
    );
    assert_eq!(series("kube_node_status_capacity")[0], "{resource=\"cpu\",unit=\"core\"} 4.0");
    assert_eq!(
        series("wherry_node_requested"),
        [
            "{resource=\"cpu\",unit=\"core\"} 1.25",
            "{resource=\"ephemeral_storage\",unit=\"byte\"} 5.0",
            "{resource=\"hugepages_2Mi\",unit=\"byte\"} 0.0",
            "{resource=\"memory\",unit=\"byte\"} 0.0",
            "{resource=\"pods\",unit=\"integer\"} 3.0",
            "{resource=\"x_io_gpu\",unit=\"integer\"} 0.0",
        ]
    );
    // A reload removed some resources. Their requests are removed as well.
    m.set_node_size(&NodeFacts::default());
    m.set_node_requested(&NodeFacts::default(), &Resources::default());
    assert!(series("kube_node_status_capacity").is_empty() && series("wherry_node_requested").is_empty());
    read(&m);
}

/// Covers labels with characters to escape, sorted series, integers and other numbers, and the order of a histogram's
/// lines.
#[test]
fn m_the_text_of_each_kind_of_family_stays_as_it_is() {
    let m = Metrics::new("a\\b\"c\nd é");
    m.set(families::RELIST_SEEN, [], -7);
    m.set_number(families::NODE_CAPACITY, ["pods", "integer"], 110.0);
    m.set_number(families::NODE_CAPACITY, ["cpu", "core"], 0.1);
    m.set_total(families::LOG_LINES_DROPPED, [], 1 << 60);
    for (handler, seconds) in [("runsc", 0.03), ("", 0.1), ("runsc", 0.005), ("runsc", 11.5)] {
        m.observe(families::SANDBOX_DURATION, [handler], seconds);
    }
    let text = m.page(|name| TEXT.contains(&format!("# HELP {name} ")));
    assert_eq!(String::from_utf8(text).unwrap(), TEXT);
}

#[test]
fn m_each_row_of_the_table_is_valid() {
    let m = Metrics::new("lab");
    for (at, row) in TABLE.iter().enumerate() {
        m.change(at, &vec!["x"; row.labels.len()], &mut |_| ());
        assert_eq!(row.kind == Type::Histogram, !row.bounds.is_empty(), "{}", row.name);
    }
    // The parser checks names, help texts and bounds, and finds a name that occurs twice.
    assert_eq!(read(&m).0.keys().filter(|name| !name.starts_with("process_")).count(), TABLE.len());
}

#[test]
fn m_the_document_has_the_families_of_the_table_with_their_types_and_labels() {
    let page = include_str!("../../docs/metrics.md").split("\n## ").next().unwrap();
    let quoted = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect::<Vec<_>>();
    let documented: BTreeSet<_> = page
        .lines()
        .filter(|line| line.starts_with("| `") && !line.starts_with("| `process_*`"))
        .flat_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            quoted(cells[1]).into_iter().map(move |name| (name, cells[2], quoted(cells[3])))
        })
        .collect();
    let letter = |row: &families::Row| match row.kind {
        Type::Counter => "c",
        Type::Gauge => "g",
        Type::Histogram => "h",
    };
    let table: BTreeSet<_> = TABLE.iter().map(|row| (row.name, letter(row), row.labels.to_vec())).collect();
    assert_eq!(documented, table);
}

const TEXT: &str = r#"# HELP kubelet_node_name Name of the node, as a label.
# TYPE kubelet_node_name gauge
kubelet_node_name{node="a\\b\"c\nd é"} 1
# HELP kubelet_pleg_last_seen_seconds Start time of the last successful relist, in seconds since the Unix epoch.
# TYPE kubelet_pleg_last_seen_seconds gauge
kubelet_pleg_last_seen_seconds -7
# HELP kubelet_run_podsandbox_duration_seconds Duration of RunPodSandbox calls, successful or failed, in seconds.
# TYPE kubelet_run_podsandbox_duration_seconds histogram
kubelet_run_podsandbox_duration_seconds_sum{runtime_handler=""} 0.1
kubelet_run_podsandbox_duration_seconds_count{runtime_handler=""} 1
kubelet_run_podsandbox_duration_seconds_bucket{le="0.005",runtime_handler=""} 0
kubelet_run_podsandbox_duration_seconds_bucket{le="0.01",runtime_handler=""} 0
kubelet_run_podsandbox_duration_seconds_bucket{le="0.025",runtime_handler=""} 0
kubelet_run_podsandbox_duration_seconds_bucket{le="0.05",runtime_handler=""} 0
kubelet_run_podsandbox_duration_seconds_bucket{le="0.1",runtime_handler=""} 1
kubelet_run_podsandbox_duration_seconds_bucket{le="0.25",runtime_handler=""} 1
kubelet_run_podsandbox_duration_seconds_bucket{le="0.5",runtime_handler=""} 1
kubelet_run_podsandbox_duration_seconds_bucket{le="1",runtime_handler=""} 1
kubelet_run_podsandbox_duration_seconds_bucket{le="2.5",runtime_handler=""} 1
kubelet_run_podsandbox_duration_seconds_bucket{le="5",runtime_handler=""} 1
kubelet_run_podsandbox_duration_seconds_bucket{le="10",runtime_handler=""} 1
kubelet_run_podsandbox_duration_seconds_bucket{le="+Inf",runtime_handler=""} 1
kubelet_run_podsandbox_duration_seconds_sum{runtime_handler="runsc"} 11.535
kubelet_run_podsandbox_duration_seconds_count{runtime_handler="runsc"} 3
kubelet_run_podsandbox_duration_seconds_bucket{le="0.005",runtime_handler="runsc"} 1
kubelet_run_podsandbox_duration_seconds_bucket{le="0.01",runtime_handler="runsc"} 1
kubelet_run_podsandbox_duration_seconds_bucket{le="0.025",runtime_handler="runsc"} 1
kubelet_run_podsandbox_duration_seconds_bucket{le="0.05",runtime_handler="runsc"} 2
kubelet_run_podsandbox_duration_seconds_bucket{le="0.1",runtime_handler="runsc"} 2
kubelet_run_podsandbox_duration_seconds_bucket{le="0.25",runtime_handler="runsc"} 2
kubelet_run_podsandbox_duration_seconds_bucket{le="0.5",runtime_handler="runsc"} 2
kubelet_run_podsandbox_duration_seconds_bucket{le="1",runtime_handler="runsc"} 2
kubelet_run_podsandbox_duration_seconds_bucket{le="2.5",runtime_handler="runsc"} 2
kubelet_run_podsandbox_duration_seconds_bucket{le="5",runtime_handler="runsc"} 2
kubelet_run_podsandbox_duration_seconds_bucket{le="10",runtime_handler="runsc"} 2
kubelet_run_podsandbox_duration_seconds_bucket{le="+Inf",runtime_handler="runsc"} 3
# HELP wherry_log_lines_dropped_total Log lines dropped because their reader was too slow.
# TYPE wherry_log_lines_dropped_total counter
wherry_log_lines_dropped_total 1152921504606846976
# HELP kube_node_status_capacity Total resources of the node, by resource.
# TYPE kube_node_status_capacity gauge
kube_node_status_capacity{resource="cpu",unit="core"} 0.1
kube_node_status_capacity{resource="pods",unit="integer"} 110.0
"#;
