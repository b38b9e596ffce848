//! `/stats/summary`: the resource usage of the node, its pods and containers as JSON of a kubelet's Summary API.
//! Values that are not known are absent. The CPU usage needs two measurements (`metrics::Sample`).

use super::metrics::Sample;
use super::reading::{ContainerReading, NodeReading, PodReading, Reading, time};
use crate::api::facts::FileSystemFact;
use crate::api::time::Wall;
use serde_json::{Map, Value, json};

/// The requested part of the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::agent) enum Scope {
    All,
    /// `?only_cpu_and_memory=true`
    CpuAndMemory,
}

/// Returns the summary. `now` is the sample that belongs to the reading, `before` is an earlier sample.
pub(super) fn summary(reading: &Reading, scope: Scope, before: &Sample, now: &Sample) -> Value {
    let pods: Vec<Value> = reading.pods.iter().map(|pod| of_pod(reading, pod, scope, before, now)).collect();
    json!({ "node": of_node(reading, scope, before.machine_rate(now)), "pods": pods })
}

fn of_node(reading: &Reading, scope: Scope, nano_cores: u64) -> Value {
    let NodeReading { name, boot, cpu_nanos, memory, file_systems, processes, .. } = &reading.node;
    let at = text(reading.at);
    let mut node = object([("nodeName", Some(name.as_str().into())), ("startTime", text(*boot))]);
    insert(&mut node, "cpu", cpu(at.clone(), *cpu_nanos, Some(nano_cores)));
    if let Some(memory) = memory {
        let values = object([
            ("time", at.clone()),
            ("availableBytes", Some(memory.available.into())),
            ("usageBytes", Some(memory.used.into())),
            ("workingSetBytes", Some(memory.working_set().into())),
            ("rssBytes", Some(memory.rss.into())),
        ]);
        node.insert("memory".into(), values.into());
        let values = object([
            ("time", at.clone()),
            ("swapAvailableBytes", Some(memory.swap_total.saturating_sub(memory.swap_used).into())),
            ("swapUsageBytes", Some(memory.swap_used.into())),
        ]);
        node.insert("swap".into(), values.into());
    }
    if scope == Scope::CpuAndMemory {
        return node.into();
    }
    if let Some((at, of_node, of_images)) = file_systems {
        insert(&mut node, "fs", of_node.map(|fact| file_system(*at, fact, None, None)));
        if let Some(fact) = of_images {
            let file_system = file_system(*at, *fact, None, None);
            node.insert("runtime".into(), json!({ "imageFs": file_system, "containerFs": file_system }));
        }
    }
    if let Some((max, current)) = processes {
        node.insert("rlimit".into(), json!({ "time": at, "maxpid": max, "curproc": current }));
    }
    node.into()
}

fn of_pod(reading: &Reading, pod: &PodReading, scope: Scope, before: &Sample, now: &Sample) -> Value {
    let at = text(reading.at);
    let rate = |c: &ContainerReading| before.rate(now, &c.usage.id).or(c.usage.cpu_nano_cores);
    let containers: Vec<Value> = pod.containers.iter().map(|c| of_container(reading, c, scope, rate(c))).collect();
    let mut value = object([
        ("podRef", Some(json!({ "name": pod.name, "namespace": pod.namespace, "uid": pod.uid }))),
        ("startTime", text(pod.started)),
        ("containers", Some(containers.into())),
    ]);
    let nano_cores = pod.containers.iter().filter_map(rate).reduce(u64::saturating_add);
    insert(&mut value, "cpu", cpu(at.clone(), pod.cpu_nanos, nano_cores));
    if pod.memory_bytes.is_some() || pod.working_set_bytes.is_some() {
        let memory = object([
            ("time", at.clone()),
            ("usageBytes", pod.memory_bytes.map(Value::from)),
            ("workingSetBytes", pod.working_set_bytes.map(Value::from)),
        ]);
        value.insert("memory".into(), memory.into());
    }
    insert(&mut value, "swap", pod.swap_bytes.map(|bytes| json!({ "time": at, "swapUsageBytes": bytes })));
    value.into()
}

fn of_container(reading: &Reading, container: &ContainerReading, scope: Scope, nano_cores: Option<u64>) -> Value {
    let usage = &container.usage;
    let mut value = object([("name", Some(usage.name.as_str().into())), ("startTime", text(container.started))]);
    insert(&mut value, "cpu", cpu(text(Wall(usage.cpu_at)), usage.cpu_nanos, nano_cores));
    if let Some(working_set) = usage.memory_bytes {
        let memory = object([
            ("time", text(Wall(usage.memory_at))),
            // 0 is the value of a container without a limit.
            ("availableBytes", usage.memory_available_bytes.filter(|bytes| *bytes > 0).map(Value::from)),
            ("usageBytes", usage.memory_usage_bytes.map(Value::from)),
            ("workingSetBytes", Some(working_set.into())),
            ("rssBytes", usage.memory_rss_bytes.map(Value::from)),
            ("pageFaults", usage.page_faults.map(Value::from)),
            ("majorPageFaults", usage.major_page_faults.map(Value::from)),
        ]);
        value.insert("memory".into(), memory.into());
    }
    let swap = usage.swap_bytes.map(|bytes| {
        Value::from(object([("time", text(Wall(usage.memory_at))), ("swapUsageBytes", Some(bytes.into()))]))
    });
    insert(&mut value, "swap", swap);
    let images = reading.node.file_systems.and_then(|(at, _, images)| Some((at, images?)));
    if let (Scope::All, Some(used), Some((at, fact))) = (scope, usage.disk_bytes, images) {
        value.insert("rootfs".into(), file_system(at, fact, Some(used), usage.disk_inodes));
    }
    value.into()
}

/// Returns the CPU usage, or None if it is not known.
fn cpu(at: Option<Value>, nanos: Option<u64>, nano_cores: Option<u64>) -> Option<Value> {
    nanos?;
    let values = [
        ("time", at),
        ("usageNanoCores", nano_cores.map(Value::from)),
        ("usageCoreNanoSeconds", nanos.map(Value::from)),
    ];
    Some(object(values).into())
}

/// Returns the usage of a file system. `used` and `inodes_used` are the values for a part of the file system; None
/// stands for the whole.
fn file_system(at: Wall, fact: FileSystemFact, used: Option<u64>, inodes_used: Option<u64>) -> Value {
    let mut value = object([
        ("time", text(at)),
        ("availableBytes", Some(fact.available.into())),
        ("capacityBytes", Some(fact.capacity.into())),
        ("usedBytes", Some(used.unwrap_or(fact.capacity.saturating_sub(fact.available)).into())),
    ]);
    if fact.inodes > 0 {
        insert(&mut value, "inodesFree", Some(fact.inodes_free.into()));
        insert(&mut value, "inodes", Some(fact.inodes.into()));
    }
    let all = || (fact.inodes > 0 && used.is_none()).then(|| fact.inodes.saturating_sub(fact.inodes_free));
    insert(&mut value, "inodesUsed", inodes_used.or_else(all).map(Value::from));
    value.into()
}

/// Formats a time, or returns None if it is not known. The API uses whole seconds.
fn text(at: Wall) -> Option<Value> {
    let at = Wall(time(at.0)?);
    Some(at.timestamp()?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into())
}

fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let mut object = Map::new();
    for (name, value) in fields {
        insert(&mut object, name, value);
    }
    object
}

fn insert(object: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        object.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::reading::tests::example;
    use super::*;
    use crate::api::control::{PodUsage, Usage};
    use crate::api::time::Boot;

    const SECOND: u64 = 1_000_000_000;

    /// Returns two samples that are two seconds apart, between which the container has used half a core.
    fn samples(reading: &Reading) -> (Sample, Sample) {
        let now = reading.pods[0].containers[0].usage.clone();
        let mut before = now.clone();
        before.cpu_at -= 2 * SECOND as i64;
        before.cpu_nanos = now.cpu_nanos.map(|nanos| nanos - SECOND);
        let usage = |c| Usage { pods: vec![PodUsage { containers: vec![c], ..PodUsage::default() }] };
        (Sample::new(&usage(before), Boot(0)), Sample::new(&usage(now), Boot(2 * SECOND)))
    }

    #[test]
    fn the_summary_has_the_fields_of_the_api() {
        let reading = example();
        let (before, now) = samples(&reading);
        let summary = summary(&reading, Scope::All, &before, &now);
        let at = "2023-11-14T22:15:02Z";
        let mut node = summary["node"].clone();
        assert!(node["cpu"]["usageNanoCores"].is_u64());
        node["cpu"]["usageNanoCores"] = 0.into();
        let images = json!({
            "time": "2023-11-14T22:14:50Z", "availableBytes": 400, "capacityBytes": 1000, "usedBytes": 600,
            "inodesFree": 20, "inodes": 50, "inodesUsed": 30,
        });
        let expected = json!({
            "nodeName": "pier-7",
            "startTime": "2023-07-22T04:26:40Z",
            "cpu": { "time": at, "usageNanoCores": 0, "usageCoreNanoSeconds": 90_000_000_000_u64 },
            "memory": {
                "time": at, "availableBytes": 400_000, "usageBytes": 800_000, "workingSetBytes": 600_000,
                "rssBytes": 300_000,
            },
            "swap": { "time": at, "swapAvailableBytes": 2000, "swapUsageBytes": 1000 },
            "fs": images,
            "runtime": { "imageFs": images, "containerFs": images },
            "rlimit": { "time": at, "maxpid": 32_768, "curproc": 321 },
        });
        assert_eq!(node, expected);
        let expected = json!([{
            "podRef": { "name": "web", "namespace": "shop", "uid": "u1" },
            "startTime": "2023-11-14T22:13:19Z",
            "containers": [{
                "name": "main",
                "startTime": "2023-11-14T22:13:20Z",
                "cpu": {
                    "time": "2023-11-14T22:15:00Z", "usageNanoCores": 500_000_000,
                    "usageCoreNanoSeconds": 2_500_000_000_u64,
                },
                "memory": {
                    "time": "2023-11-14T22:15:01Z", "availableBytes": 60_000, "usageBytes": 8192,
                    "workingSetBytes": 4096, "rssBytes": 2048, "pageFaults": 11, "majorPageFaults": 3,
                },
                "swap": { "time": "2023-11-14T22:15:01Z", "swapUsageBytes": 512 },
                "rootfs": {
                    "time": "2023-11-14T22:14:50Z", "availableBytes": 400, "capacityBytes": 1000, "usedBytes": 100,
                    "inodesFree": 20, "inodes": 50, "inodesUsed": 5,
                },
            }],
            "cpu": { "time": at, "usageNanoCores": 500_000_000, "usageCoreNanoSeconds": 3_500_000_000_u64 },
            "memory": { "time": at, "usageBytes": 9000, "workingSetBytes": 5000 },
            "swap": { "time": at, "swapUsageBytes": 512 },
        }]);
        assert_eq!(summary["pods"], expected);
    }

    #[test]
    fn a_summary_of_cpu_and_memory_has_no_file_systems() {
        let reading = example();
        let (before, now) = samples(&reading);
        let summary = summary(&reading, Scope::CpuAndMemory, &before, &now);
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&summary["node"]), ["cpu", "memory", "nodeName", "startTime", "swap"]);
        let container = &summary["pods"][0]["containers"][0];
        assert_eq!(names(container), ["cpu", "memory", "name", "startTime", "swap"]);
    }

    #[test]
    fn unknown_values_are_absent() {
        let node = NodeReading { name: "n".into(), ..NodeReading::default() };
        let pod = PodReading { containers: vec![ContainerReading::default()], ..PodReading::default() };
        let reading = Reading { at: Wall(1), node, pods: vec![pod] };
        let (before, now) = samples(&example());
        let summary = summary(&reading, Scope::All, &before, &now);
        assert_eq!(summary["node"], json!({ "nodeName": "n" }));
        let expected =
            json!([{ "podRef": { "name": "", "namespace": "", "uid": "" }, "containers": [{ "name": "" }] }]);
        assert_eq!(summary["pods"], expected);
    }
}
