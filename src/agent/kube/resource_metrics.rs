//! `/metrics/resource`: CPU and memory of the node, its pods and containers, with the names, types, labels and
//! timestamps of a kubelet.

use super::reading::{ContainerReading, Memory, PodReading, Reading, bytes, seconds, time};
use crate::metrics::exposition::{Exposition, Kind};

/// A value and its time.
type Timed = (Option<f64>, Option<i64>);

/// Returns the page. `failed` tells whether the runtime failed to report the usage of containers.
pub(super) fn page(reading: &Reading, failed: bool) -> Vec<u8> {
    let mut page = Exposition::default();
    containers(
        &mut page,
        reading,
        ("container_cpu_usage_seconds_total", Kind::Counter, "CPU time of the container, in core-seconds."),
        |c| (seconds(c.usage.cpu_nanos), time(c.usage.cpu_at)),
    );
    containers(
        &mut page,
        reading,
        ("container_memory_working_set_bytes", Kind::Gauge, "Working set of the container, in bytes."),
        |c| (bytes(c.usage.memory_bytes), time(c.usage.memory_at)),
    );
    // This sample has no timestamp, because a scraper would reject a time that is long ago.
    containers(
        &mut page,
        reading,
        ("container_start_time_seconds", Kind::Gauge, "Start time of the container, in seconds since the Unix epoch."),
        |c| (time(c.started.0).map(|at| at as f64 / 1e9), None),
    );
    containers(
        &mut page,
        reading,
        ("container_swap_usage_bytes", Kind::Gauge, "Swap used by the container, in bytes."),
        |c| (bytes(c.usage.swap_bytes), time(c.usage.memory_at)),
    );
    of_node(&mut page, reading);
    of_pods(&mut page, reading);
    let help = "1 if the usage of the containers could not be read, otherwise 0.";
    let value = if failed { 1.0 } else { 0.0 };
    page.family("resource_scrape_error", Kind::Gauge, help).sample(&[], Some(value), None);
    page.into_bytes()
}

fn of_node(page: &mut Exposition, reading: &Reading) {
    let memory = reading.node.memory;
    for (name, kind, help, value) in [
        (
            "node_cpu_usage_seconds_total",
            Kind::Counter,
            "CPU time of the node, in core-seconds.",
            seconds(reading.node.cpu_nanos),
        ),
        (
            "node_memory_working_set_bytes",
            Kind::Gauge,
            "Working set of the node, in bytes.",
            bytes(memory.map(Memory::working_set)),
        ),
        (
            "node_swap_usage_bytes",
            Kind::Gauge,
            "Swap used by the node, in bytes.",
            bytes(memory.map(|memory| memory.swap_used)),
        ),
    ] {
        page.family(name, kind, help).sample(&[], value, time(reading.at.0));
    }
}

fn of_pods(page: &mut Exposition, reading: &Reading) {
    let now = time(reading.at.0);
    pods(
        page,
        reading,
        ("pod_cpu_usage_seconds_total", Kind::Counter, "CPU time of the pod, in core-seconds."),
        |pod| (seconds(pod.cpu_nanos), now),
    );
    pods(page, reading, ("pod_memory_working_set_bytes", Kind::Gauge, "Working set of the pod, in bytes."), |pod| {
        (bytes(pod.working_set_bytes), now)
    });
    pods(page, reading, ("pod_swap_usage_bytes", Kind::Gauge, "Swap used by the pod, in bytes."), |pod| {
        (bytes(pod.swap_bytes), now)
    });
}

fn containers(
    page: &mut Exposition,
    reading: &Reading,
    (name, kind, help): (&'static str, Kind, &'static str),
    value: impl Fn(&ContainerReading) -> Timed,
) {
    let mut family = page.family(name, kind, help);
    for pod in &reading.pods {
        for container in &pod.containers {
            let (value, at) = value(container);
            let labels =
                [("container", container.usage.name.as_str()), ("namespace", &pod.namespace), ("pod", &pod.name)];
            family.sample(&labels, value, at);
        }
    }
}

fn pods(
    page: &mut Exposition,
    reading: &Reading,
    (name, kind, help): (&'static str, Kind, &'static str),
    value: impl Fn(&PodReading) -> Timed,
) {
    let mut family = page.family(name, kind, help);
    for pod in &reading.pods {
        let (value, at) = value(pod);
        family.sample(&[("namespace", &pod.namespace), ("pod", &pod.name)], value, at);
    }
}

#[cfg(test)]
mod tests {
    use super::super::reading::tests::example;
    use super::*;

    #[test]
    fn the_page_has_the_families_labels_and_timestamps_of_a_kubelet() {
        let text = String::from_utf8(page(&example(), false)).unwrap();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let container = "{container=\"main\",namespace=\"shop\",pod=\"web\"}";
        let pod = "{namespace=\"shop\",pod=\"web\"}";
        let expected = [
            format!("container_cpu_usage_seconds_total{container} 2.5 1700000100000"),
            format!("container_memory_working_set_bytes{container} 4096 1700000101000"),
            format!("container_start_time_seconds{container} 1700000000.5"),
            format!("container_swap_usage_bytes{container} 512 1700000101000"),
            "node_cpu_usage_seconds_total 90 1700000102000".to_owned(),
            "node_memory_working_set_bytes 600000 1700000102000".to_owned(),
            "node_swap_usage_bytes 1000 1700000102000".to_owned(),
            format!("pod_cpu_usage_seconds_total{pod} 3.5 1700000102000"),
            format!("pod_memory_working_set_bytes{pod} 5000 1700000102000"),
            format!("pod_swap_usage_bytes{pod} 512 1700000102000"),
            "resource_scrape_error 0".to_owned(),
        ];
        assert_eq!(samples, expected);
        for counter in ["container_cpu", "node_cpu", "pod_cpu"] {
            assert!(text.contains(&format!("# TYPE {counter}_usage_seconds_total counter\n")), "{counter}");
        }
        assert_eq!(text.matches(" gauge\n").count(), 8);
    }

    #[test]
    fn without_the_runtime_the_page_has_the_node_and_the_error() {
        let reading = Reading { pods: Vec::new(), ..example() };
        let text = String::from_utf8(page(&reading, true)).unwrap();
        assert!(text.contains("\nnode_cpu_usage_seconds_total 90 ") && text.ends_with("\nresource_scrape_error 1\n"));
        assert!(!text.contains("container_cpu") && !text.contains("pod_"), "{text}");
    }

    #[test]
    fn a_container_without_values_has_only_its_start() {
        let mut reading = example();
        let container = &mut reading.pods[0].containers[0];
        container.usage = crate::api::control::ContainerUsage { name: "main".into(), ..Default::default() };
        let text = String::from_utf8(page(&reading, false)).unwrap();
        assert!(text.starts_with("# HELP container_start_time_seconds "), "{text}");
    }
}
