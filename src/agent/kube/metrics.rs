//! The resource usage for `kubectl top`, as objects of metrics.k8s.io. The CPU usage needs two measurements. The
//! first is the last measurement if it is recent; otherwise a second measurement follows after a second.

use super::reading::Reading;
use super::summary::{self, Scope};
use crate::agent::act::{Act, Then};
use crate::agent::content::{Response, View, json};
use crate::api::control::{PodUsage, Usage};
use crate::api::kube::resources::Kind;
use crate::api::kube::status::Failure;
use crate::api::ordered::CollectOrdered;
use crate::api::time::Boot;
use crate::engine::control::Request;
use crate::kubectl_api::form::{single, whole_list};
use crate::kubectl_api::step::Measurement;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The time between two measurements, if there is no recent one.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum age of the first measurement.
const RECENT: Duration = Duration::from_secs(60);

/// What a client wants to know from two measurements.
#[derive(Debug)]
pub(in crate::agent) enum Wanted {
    Objects(Measurement),
    Summary(Scope),
}

impl Wanted {
    /// Continues after the first measurement. `before` is the last earlier measurement, perhaps of another request.
    ///
    /// # Errors
    /// There is no such object.
    pub(in crate::agent) fn measured(
        self,
        view: &View<'_>,
        usage: &Usage,
        before: Option<&Sample>,
    ) -> Result<Act, Failure> {
        let sample = Sample::new(usage, view.now.boot);
        match before.filter(|before| before.is_useful(&sample)) {
            Some(before) => self.response(view, usage, before, &sample).map(Act::Respond),
            None => Ok(Act::AskAt(view.now.boot + PAUSE, Request::Usage, Then::MeasuredAgain(self, sample))),
        }
    }

    /// Returns the response that results from two measurements.
    ///
    /// # Errors
    /// There is no such object.
    pub(in crate::agent) fn response(
        &self,
        view: &View<'_>,
        usage: &Usage,
        before: &Sample,
        sample: &Sample,
    ) -> Result<Response, Failure> {
        let Measurement { selection, single: is_single, format, include } = match self {
            Wanted::Objects(measurement) => measurement,
            Wanted::Summary(scope) => {
                let summary = summary::summary(&Reading::new(view, usage), *scope, before, sample);
                return Ok(json(&summary));
            }
        };
        let resource = selection.resource;
        let mut objects = objects(view, resource.kind == Kind::NodeMetrics, usage, before, sample);
        objects.retain(|object| selection.contains(object));
        if *is_single {
            let object = objects.pop();
            let name = selection.name.as_deref().unwrap_or_default();
            let object = object.ok_or_else(|| Failure::not_found(resource, name))?;
            let body = single(object, resource, *format, *include, view.snapshot().timestamp());
            return Ok(json(&body));
        }
        Ok(Response::json(whole_list(objects, resource, *format, *include, view.snapshot().timestamp())))
    }
}

/// The counters at one point in time.
#[derive(Debug)]
pub(in crate::agent) struct Sample {
    at: Boot,
    /// For each container id, the time of the measurement and the CPU time, both in nanoseconds.
    containers: BTreeMap<String, (i64, u64)>,
    /// The CPU time of the whole machine, in nanoseconds.
    machine: u64,
}

impl Sample {
    pub fn new(usage: &Usage, at: Boot) -> Sample {
        let containers = usage.pods.iter().flat_map(|pod| &pod.containers);
        let containers = containers.filter_map(|c| Some((c.id.clone(), (c.cpu_at, c.cpu_nanos?))));
        Sample {
            at,
            containers: containers.collect_map(),
            machine: fs::read_to_string("/proc/stat").ok().and_then(|stat| machine_cpu(&stat)).unwrap_or(0),
        }
    }

    /// Reports whether a later measurement can be compared with this one.
    pub fn is_useful(&self, later: &Sample) -> bool {
        let age = later.at.since(self.at);
        let known = |id: &String| self.containers.contains_key(id);
        (PAUSE..=RECENT).contains(&age) && later.containers.keys().all(known)
    }

    /// Returns the CPU usage of the machine since this sample, in nanocores.
    pub fn machine_rate(&self, later: &Sample) -> u64 {
        let elapsed = later.at.since(self.at).as_nanos().max(1);
        let cores = u128::from(later.machine.saturating_sub(self.machine)) * 1_000_000_000 / elapsed;
        u64::try_from(cores).unwrap_or(u64::MAX)
    }

    /// Returns the CPU usage of a container since this sample, in nanocores.
    pub fn rate(&self, later: &Sample, id: &str) -> Option<u64> {
        let (before, after) = (self.containers.get(id)?, later.containers.get(id)?);
        let time = u128::try_from(after.0 - before.0).ok().filter(|t| *t > 0)?;
        u64::try_from(u128::from(after.1.saturating_sub(before.1)) * 1_000_000_000 / time).ok()
    }
}

/// Returns the metrics of pods, or of the node.
fn objects(view: &View<'_>, of_node: bool, usage: &Usage, before: &Sample, now: &Sample) -> Vec<Value> {
    let at = view.now.wall.timestamp().map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default();
    let window = format!("{:.3}s", now.at.since(before.at).as_secs_f64());
    if of_node {
        let cores = before.machine_rate(now);
        let name = &view.config.node_name;
        return vec![json!({
            "kind": "NodeMetrics",
            "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": { "name": name, "creationTimestamp": at, "labels": view.engine.node().0.labels },
            "timestamp": at,
            "window": window,
            "usage": { "cpu": format!("{cores}n"), "memory": memory(machine_memory().unwrap_or(0)) },
        })];
    }
    let one = |pod: &PodUsage| {
        let container = |c: &crate::api::control::ContainerUsage| {
            let cpu = before.rate(now, &c.id).or(c.cpu_nano_cores).unwrap_or(0);
            json!({
                "name": c.name,
                "usage": { "cpu": format!("{cpu}n"), "memory": memory(c.memory_bytes.unwrap_or(0)) },
            })
        };
        json!({
            "kind": "PodMetrics",
            "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {
                "name": pod.name,
                "namespace": pod.namespace,
                "creationTimestamp": at,
                "labels": pod.labels,
            },
            "timestamp": at,
            "window": window,
            "containers": pod.containers.iter().map(container).collect::<Vec<_>>(),
        })
    };
    usage.pods.iter().filter(|pod| !pod.containers.is_empty()).map(one).collect()
}

fn memory(bytes: u64) -> String {
    format!("{}Ki", bytes / 1024)
}

/// Returns the busy time of all CPUs, in nanoseconds (from the first line of /proc/stat: user, nice, system, idle,
/// iowait, irq, softirq, steal, in ticks).
pub(super) fn machine_cpu(stat: &str) -> Option<u64> {
    let ticks: Vec<u64> =
        stat.lines().next()?.split_ascii_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
    // The later values are already included in these eight.
    let busy = ticks.iter().take(8).sum::<u64>().saturating_sub(idle);
    Some(busy.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

/// Returns the memory in use, in bytes.
fn machine_memory() -> Option<u64> {
    let level = crate::adapters::host::levels::read(false).ok()?.memory;
    Some(level.capacity.saturating_sub(level.available))
}
