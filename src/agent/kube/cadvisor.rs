//! `/metrics/cadvisor`: those metrics of cAdvisor whose values the runtime reports, with cAdvisor's names, types and
//! labels. Only containers have series; pods, sandboxes and other cgroups have none.

use super::reading::{ContainerReading, Reading, bytes, seconds, time};
use crate::api::cluster::machine::MachineIdentity;
use crate::api::facts::FileSystemFact;
use crate::metrics::exposition::{Exposition, Family, Kind};

/// Returns the page. `failed` tells whether the runtime failed to report the usage of containers.
pub(super) fn page(reading: &Reading, machine: &MachineIdentity, failed: bool) -> Vec<u8> {
    let mut page = Exposition::default();
    let help = "CPU time of the container, in core-seconds.";
    each(reading, page.family("container_cpu_usage_seconds_total", Kind::Counter, help), Some(("cpu", "total")), |c| {
        (seconds(c.usage.cpu_nanos), time(c.usage.cpu_at))
    });
    of_file_systems(&mut page, reading);
    let help = "Time of the reading, in seconds since the Unix epoch.";
    let now = time(reading.at.0);
    each(reading, page.family("container_last_seen", Kind::Gauge, help), None, |_| {
        (now.map(|now| (now / 1_000_000_000) as f64), now)
    });
    page_faults(&mut page, reading);
    of_memory(&mut page, reading);
    let help = "1 if the usage of the containers could not be read, otherwise 0.";
    let value = if failed { 1.0 } else { 0.0 };
    page.family("container_scrape_error", Kind::Gauge, help).sample(&[], Some(value), None);
    let help = "Start time of the container, in seconds since the Unix epoch.";
    each(reading, page.family("container_start_time_seconds", Kind::Gauge, help), None, |c| {
        (time(c.started.0).map(|at| (at / 1_000_000_000) as f64), None)
    });
    of_machine(&mut page, reading, machine);
    page.into_bytes()
}

fn of_file_systems(page: &mut Exposition, reading: &Reading) {
    // The container's files are on the file system of the images.
    let images = reading.node.file_systems.and_then(|(_, _, images)| images);
    let of_disk = |c: &ContainerReading, value: fn(FileSystemFact) -> u64| {
        let known = c.usage.disk_bytes.and(images);
        (bytes(known.map(value)), None)
    };
    let help = "Free inodes of the file system of the container.";
    each(reading, page.family("container_fs_inodes_free", Kind::Gauge, help), None, |c| {
        of_disk(c, |images| images.inodes_free)
    });
    let help = "Inodes of the file system of the container.";
    each(reading, page.family("container_fs_inodes_total", Kind::Gauge, help), None, |c| {
        of_disk(c, |images| images.inodes)
    });
    let help = "Size of the file system of the container, in bytes.";
    each(reading, page.family("container_fs_limit_bytes", Kind::Gauge, help), None, |c| {
        of_disk(c, |images| images.capacity)
    });
    let help = "Bytes used by files that the container has written, excluding volumes and logs.";
    each(reading, page.family("container_fs_usage_bytes", Kind::Gauge, help), None, |c| {
        (bytes(c.usage.disk_bytes), None)
    });
}

fn page_faults(page: &mut Exposition, reading: &Reading) {
    let help = "Page faults of the container.";
    let mut faults = page.family("container_memory_failures_total", Kind::Counter, help);
    for pod in &reading.pods {
        for container in &pod.containers {
            for (kind, count) in
                [("pgfault", container.usage.page_faults), ("pgmajfault", container.usage.major_page_faults)]
            {
                let labels = [
                    ("container", container.usage.name.as_str()),
                    ("failure_type", kind),
                    ("id", &container.cgroup),
                    ("image", &container.image),
                    ("name", &container.usage.id),
                    ("namespace", &pod.namespace),
                    ("pod", &pod.name),
                    ("scope", "container"),
                ];
                faults.sample(&labels, bytes(count), time(container.usage.memory_at));
            }
        }
    }
}

fn of_memory(page: &mut Exposition, reading: &Reading) {
    let of_memory = |c: &ContainerReading, value: Option<u64>| (bytes(value), time(c.usage.memory_at));
    let help = "Anonymous memory of the container, in bytes.";
    each(reading, page.family("container_memory_rss", Kind::Gauge, help), None, |c| {
        of_memory(c, c.usage.memory_rss_bytes)
    });
    let help = "Swap used by the container, in bytes.";
    each(reading, page.family("container_memory_swap", Kind::Gauge, help), None, |c| of_memory(c, c.usage.swap_bytes));
    let help = "All memory of the container, including the page cache, in bytes.";
    each(reading, page.family("container_memory_usage_bytes", Kind::Gauge, help), None, |c| {
        of_memory(c, c.usage.memory_usage_bytes)
    });
    let help = "Working set of the container, in bytes.";
    each(reading, page.family("container_memory_working_set_bytes", Kind::Gauge, help), None, |c| {
        of_memory(c, c.usage.memory_bytes)
    });
}

fn of_machine(page: &mut Exposition, reading: &Reading, machine: &MachineIdentity) {
    let [machine_id, system_uuid, boot_id] = machine.ids();
    let labels = [("boot_id", boot_id), ("machine_id", machine_id), ("system_uuid", system_uuid)];
    let cores = Some(reading.node.cores as f64);
    page.family("machine_cpu_cores", Kind::Gauge, "Number of CPUs of the machine.").sample(&labels, cores, None);
    let total = bytes(reading.node.memory.map(|memory| memory.total));
    let help = "Memory of the machine, in bytes.";
    page.family("machine_memory_bytes", Kind::Gauge, help).sample(&labels, total, None);
}

/// Writes one sample for each container. `value`: a value and its time.
fn each(
    reading: &Reading,
    mut family: Family<'_>,
    more: Option<(&str, &str)>,
    value: impl Fn(&ContainerReading) -> (Option<f64>, Option<i64>),
) {
    for pod in &reading.pods {
        for container in &pod.containers {
            let mut labels = vec![("container", container.usage.name.as_str())];
            labels.extend(more);
            labels.extend([
                ("id", container.cgroup.as_str()),
                ("image", &container.image),
                ("name", &container.usage.id),
                ("namespace", &pod.namespace),
                ("pod", &pod.name),
            ]);
            let (value, at) = value(container);
            family.sample(&labels, value, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reading::tests::example;
    use super::*;

    #[test]
    fn the_page_has_the_families_and_labels_of_cadvisor() {
        let text = String::from_utf8(page(&example(), &MachineIdentity::default(), false)).unwrap();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let id =
            "id=\"/kubepods/podu1/c1\",image=\"docker.io/library/web:1\",name=\"c1\",namespace=\"shop\",pod=\"web\"";
        let of = format!("{{container=\"main\",{id}}}");
        let faults = |kind: &str| {
            format!(
                "container_memory_failures_total{{container=\"main\",failure_type=\"{kind}\",{id},scope=\"container\"}}"
            )
        };
        let machine = "{boot_id=\"\",machine_id=\"\",system_uuid=\"\"}";
        let expected = [
            format!("container_cpu_usage_seconds_total{{container=\"main\",cpu=\"total\",{id}}} 2.5 1700000100000"),
            format!("container_fs_inodes_free{of} 20"),
            format!("container_fs_inodes_total{of} 50"),
            format!("container_fs_limit_bytes{of} 1000"),
            format!("container_fs_usage_bytes{of} 100"),
            format!("container_last_seen{of} 1700000102 1700000102000"),
            format!("{} 11 1700000101000", faults("pgfault")),
            format!("{} 3 1700000101000", faults("pgmajfault")),
            format!("container_memory_rss{of} 2048 1700000101000"),
            format!("container_memory_swap{of} 512 1700000101000"),
            format!("container_memory_usage_bytes{of} 8192 1700000101000"),
            format!("container_memory_working_set_bytes{of} 4096 1700000101000"),
            "container_scrape_error 0".to_owned(),
            format!("container_start_time_seconds{of} 1700000000"),
            format!("machine_cpu_cores{machine} 4"),
            format!("machine_memory_bytes{machine} 1000000"),
        ];
        assert_eq!(samples, expected);
        let counters: Vec<&str> = text.lines().filter(|line| line.ends_with(" counter")).collect();
        assert_eq!(counters.len(), 2, "{counters:?}");
    }

    #[test]
    fn without_the_runtime_the_page_has_the_machine_and_the_error() {
        let reading = Reading { pods: Vec::new(), ..example() };
        let text = String::from_utf8(page(&reading, &MachineIdentity::default(), true)).unwrap();
        assert!(text.contains("\ncontainer_scrape_error 1\n") && text.contains("\nmachine_memory_bytes{"), "{text}");
        assert!(!text.contains("container_cpu"), "{text}");
    }
}
