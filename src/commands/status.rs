//! `wherry status`: shows the status of the node in a few lines.

use crate::adapters::server::status::{ClusterStatus, NodeRoom, NodeStatus, PodCounts, ResourceRoom};
use crate::api::kube::pod_row::human;
use crate::api::ordered::OrderSlice;
use crate::api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use crate::api::shutdown::view::{GroupView, ProgressView, ShutdownView};
use crate::commands::client;
use crate::commands::output::Failure;
use crate::commands::shutdown_plan::{share, span};
use crate::commands::table::Table;
use std::io::Write;
use std::path::Path;

pub fn run(out: &mut dyn Write, socket: &Path, json: bool) -> Result<u8, Failure> {
    client::print(out, socket, "/status", json, show)
}

fn show(out: &mut dyn Write, s: &NodeStatus) -> std::io::Result<()> {
    let up = human(i64::try_from(s.uptime_seconds).unwrap_or(i64::MAX));
    writeln!(out, "wherry {} on {}, up {up}", s.version, s.node_name)?;
    match (&s.not_ready_reason, s.ready) {
        (_, true) => writeln!(out, "Node:       ready")?,
        (Some(reason), false) => writeln!(out, "Node:       not ready ({reason})")?,
        // An older agent does not report the reason.
        (None, false) => {}
    }
    let runtime = match (&s.runtime.not_ready, s.runtime.connected) {
        (Some(why), _) => format!("not ready: {why}"),
        (None, false) => "not connected".into(),
        (None, true) => match &s.runtime.network_not_ready {
            Some(why) => format!("ready, but its network is not: {why}"),
            None => "ready".into(),
        },
    };
    let name = [s.runtime.name.as_str(), s.runtime.version.as_str()].join(" ");
    let at = if s.runtime.name.is_empty() {
        s.runtime.endpoint.clone()
    } else {
        format!("{name} at {}", s.runtime.endpoint)
    };
    writeln!(out, "Runtime:    {at}, {runtime}")?;
    if let Some(cluster) = &s.cluster {
        writeln!(out, "Cluster:    {}", of_cluster(cluster))?;
    }
    let pleg = if s.pleg.healthy { "healthy" } else { "unhealthy" };
    match s.pleg.age_seconds {
        Some(age) => writeln!(out, "PLEG:       {pleg}, last relist {age:.1}s ago")?,
        None => writeln!(out, "PLEG:       {pleg}, no relist yet")?,
    }
    pods(out, &s.pods)?;
    room(out, &s.node)?;
    let m = &s.manifests;
    let errors = if m.errors.is_empty() { "no errors".into() } else { count(m.errors.len() as u64, "error") };
    writeln!(out, "Manifests:  {} in {}, {errors}", count(m.files, "file"), m.directory)?;
    for error in &m.errors {
        writeln!(out, "  {error}")?;
    }
    if s.node.cordoned {
        let waiting = count(s.pods.waiting_for_uncordon, "pod");
        writeln!(out, "Cordoned:   yes, {waiting} waiting; `wherry uncordon` ends it")?;
    }
    shutdown(out, &s.shutdown)?;
    if !s.waiting_for.is_empty() {
        writeln!(out, "Waiting for:")?;
        for what in &s.waiting_for {
            writeln!(out, "  {what}")?;
        }
    }
    Ok(())
}

fn of_cluster(cluster: &ClusterStatus) -> String {
    let mut line = match (cluster.unreachable_seconds, cluster.registered) {
        (Some(seconds), _) => {
            let span = human(i64::try_from(seconds).unwrap_or(i64::MAX));
            // Remove the address from the beginning of a connection error, because it is already shown.
            let own = format!("{}: ", cluster.server);
            let why = cluster.error.as_ref().map(|why| why.strip_prefix(&own).unwrap_or(why));
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            format!("{}, has not responded for {span}{why}", cluster.server)
        }
        (None, true) => format!("{}, connected", cluster.server),
        (None, false) => format!("{}, the node is not registered yet", cluster.server),
    };
    if cluster.waiting_events > 0 {
        line += &format!("; {} waiting", count(cluster.waiting_events, "event"));
    }
    if cluster.lost_events > 0 {
        line += &format!("; {} lost", count(cluster.lost_events, "event"));
    }
    if cluster.name_conflict {
        line += "; another machine acts as this node (see `wherry events`)";
    }
    line
}

fn pods(out: &mut dyn Write, p: &PodCounts) -> std::io::Result<()> {
    write!(out, "Pods:       {} desired", p.desired)?;
    // Leave out counts that are zero.
    type Parts<'a> = &'a [(u64, &'static str)];
    let none: Parts<'_> = &[];
    let not_ready: Parts<'_> = &[(p.not_ready, "not ready")];
    for (n, what, parts) in [
        (p.running, "running", not_ready),
        (p.pending, "pending", &[(p.waiting_for_room, "waiting for room")]),
        (p.succeeded, "succeeded", none),
        // A pod that is still being drained has not failed yet.
        (p.failed, "failed", &[(p.rejected, "rejected"), (p.drained.min(p.failed), "drained")]),
        (p.terminating, "terminating", none),
    ] {
        if n > 0 {
            write!(out, ", {n} {what}")?;
        }
        let some = parts.iter().filter(|(part, _)| *part > 0);
        let parts: Vec<String> = some.map(|(part, of_them)| format!("{part} {of_them}")).collect();
        if !parts.is_empty() {
            write!(out, " ({})", parts.join(", "))?;
        }
    }
    writeln!(out, "; {} running", count(p.containers, "container"))
}

/// Prints the node's resources, one line for each.
fn room(out: &mut dyn Write, node: &NodeRoom) -> std::io::Result<()> {
    const ORDER: [&str; 4] = [CPU, MEMORY, EPHEMERAL_STORAGE, PODS];
    let mut resources: Vec<_> = node.resources.iter().collect();
    resources.order_by_key(|(name, _)| ORDER.iter().position(|first| first == name).unwrap_or(ORDER.len()));
    let line = |(name, room): &(&String, &ResourceRoom)| {
        let of = |amount| amount_of(name, amount);
        [format!("  {name}"), of(room.capacity), of(room.allocatable), of(room.requested)]
    };
    let rows: Vec<[String; 4]> = resources.iter().map(line).collect();
    let rows: Vec<&[String]> = rows.iter().map(|r| &r[..]).collect();
    if rows.is_empty() {
        // An older agent does not report resources.
        return Ok(());
    }
    Table::new(&["Resources:", "Capacity", "Allocatable", "Requested"]).print(out, true, &rows)?;
    match node.pressure.is_empty() {
        true => Ok(()),
        false => writeln!(out, "Pressure:   {}", node.pressure.join(", ")),
    }
}

/// Formats an amount: CPUs in Kubernetes' notation, bytes to a tenth of the largest fitting unit.
pub fn amount_of(resource: &str, amount: u64) -> String {
    if resource == CPU {
        return if amount.is_multiple_of(1000) { (amount / 1000).to_string() } else { format!("{amount}m") };
    }
    if !matches!(resource, MEMORY | EPHEMERAL_STORAGE) && !resource.starts_with("hugepages-") {
        return amount.to_string();
    }
    let units = [(60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let Some((shift, unit)) = units.into_iter().find(|(shift, _)| amount >> shift > 0) else {
        return amount.to_string();
    };
    let tenths = (u128::from(amount) * 10) >> shift;
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole}{unit}"),
        (whole, tenth) => format!("{whole}.{tenth}{unit}"),
    }
}

fn shutdown(out: &mut dyn Write, s: &ShutdownView) -> std::io::Result<()> {
    let (problem, needed) = (s.problem.as_deref(), span(s.needed_seconds as f64));
    // The problem is shown on a separate line, unless the first line already contains it.
    let (first, beside) = match (&s.in_progress, s.enabled, s.armed) {
        (Some(progress), _, armed) => (in_progress(progress, armed), problem),
        (None, false, _) => ("off, shutdownGracePeriod is not set".to_owned(), problem),
        (None, true, false) => (format!("not armed: {}", problem.unwrap_or("logind has not been queried yet")), None),
        (None, true, true) => {
            let delay = s.delay_seconds.map_or("it is unknown how long logind waits".to_owned(), |d| {
                format!("logind waits up to {}", span(d))
            });
            (format!("armed, {delay}, {needed} needed"), problem)
        }
    };
    writeln!(out, "Shutdown:   {first}")?;
    if let Some(problem) = beside {
        writeln!(out, "  {problem}")?;
    }
    if let (None, Some(began)) = (&s.in_progress, &s.started_at) {
        match &s.ended_at {
            Some(ended) => writeln!(out, "  last one from {began} to {ended}")?,
            None => writeln!(out, "  last one from {began}, its end was not seen")?,
        }
    }
    let rows: Vec<[String; 3]> = s.groups.iter().map(group).collect();
    let rows: Vec<&[String]> = rows.iter().map(|r| &r[..]).collect();
    Table::new(&["", "", ""]).print(out, false, &rows)
}

fn in_progress(p: &ProgressView, armed: bool) -> String {
    let what = match p.group {
        Some(priority) => format!("stopping pods from priority {priority}, {} left", span(p.left_seconds)),
        None => "pods stopped".to_owned(),
    };
    let lock = match (p.released, armed) {
        (true, _) => "lock released",
        (false, true) => "lock held",
        (false, false) => "no lock",
    };
    format!("in progress for {}: {what}, {lock}", span(p.since_seconds))
}

fn group(g: &GroupView) -> [String; 3] {
    let period = share(g.granted_seconds, g.period_seconds);
    [format!("  from priority {}", g.priority), period, count(g.pods, "pod")]
}

fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::server::status::{ManifestStatus, PlegStatus, RuntimeStatus};
    use crate::api::node_facts::NodeFacts;
    use crate::api::resources::Resources;
    use serde::Deserialize as _;

    #[test]
    fn a_status_is_a_few_lines() {
        let status = NodeStatus {
            version: "0.1.0".into(),
            node_name: "lab".into(),
            uptime_seconds: 11_520,
            runtime: RuntimeStatus {
                endpoint: "unix:///run/c.sock".into(),
                connected: true,
                name: "containerd".into(),
                version: "1.6.20".into(),
                not_ready: None,
                network_not_ready: Some("cni plugin not initialized".into()),
            },
            cluster: Some(ClusterStatus {
                server: "https://10.0.0.1:6443".into(),
                unreachable_seconds: Some(7_260),
                error: Some("https://10.0.0.1:6443: connection refused".into()),
                waiting_events: 1,
                ..ClusterStatus::default()
            }),
            pleg: PlegStatus { healthy: true, age_seconds: Some(0.44) },
            pods: PodCounts { desired: 3, pending: 1, running: 2, containers: 1, ..PodCounts::default() },
            node: NodeRoom::default(),
            manifests: ManifestStatus {
                directory: "/m".into(),
                files: 4,
                errors: vec!["/m/web.yaml:7: spec.nope: unknown field".into()],
            },
            waiting_for: vec!["the runtime's network".into()],
            ready: false,
            not_ready_reason: Some("KubeletNotReady".into()),
            not_ready_message: Some("the runtime's network".into()),
            root_directory: "/var/lib/wherry".into(),
            kubectl: None,
            shutdown: ShutdownView::default(),
        };
        // Convert to JSON and back, as the command does.
        let status = NodeStatus::deserialize(serde_json::to_value(&status).unwrap()).unwrap();
        let mut out = Vec::new();
        show(&mut out, &status).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "wherry 0.1.0 on lab, up 3h12m\n\
             Node:       not ready (KubeletNotReady)\n\
             Runtime:    containerd 1.6.20 at unix:///run/c.sock, ready, \
             but its network is not: cni plugin not initialized\n\
             Cluster:    https://10.0.0.1:6443, has not responded for 121m: connection refused; 1 event waiting\n\
             PLEG:       healthy, last relist 0.4s ago\n\
             Pods:       3 desired, 2 running, 1 pending; 1 container running\n\
             Manifests:  4 files in /m, 1 error\n\
             \x20 /m/web.yaml:7: spec.nope: unknown field\n\
             Shutdown:   off, shutdownGracePeriod is not set\n\
             Waiting for:\n\
             \x20 the runtime's network\n"
        );
    }

    #[test]
    fn the_state_of_a_member_of_a_cluster_is_one_line() {
        let server = || "https://10.0.0.1:6443".to_owned();
        let new = ClusterStatus { server: server(), ..ClusterStatus::default() };
        assert_eq!(of_cluster(&new), "https://10.0.0.1:6443, the node is not registered yet");
        let shared = ClusterStatus { registered: true, lost_events: 2, name_conflict: true, ..new };
        let line =
            "https://10.0.0.1:6443, connected; 2 events lost; another machine acts as this node (see `wherry events`)";
        assert_eq!(of_cluster(&shared), line);
    }

    #[test]
    fn pods_that_the_node_does_not_take_or_not_yet_are_counted() {
        let counts = PodCounts {
            desired: 7,
            pending: 3,
            waiting_for_room: 2,
            failed: 4,
            rejected: 1,
            terminating: 1,
            running: 2,
            not_ready: 1,
            ..PodCounts::default()
        };
        let mut out = Vec::new();
        pods(&mut out, &counts).unwrap();
        let line = "Pods:       7 desired, 2 running (1 not ready), 3 pending (2 waiting for room), \
                    4 failed (1 rejected), 1 terminating; \
                    0 containers running\n";
        assert_eq!(String::from_utf8(out).unwrap(), line);
    }

    #[test]
    fn node_resources_are_a_table_in_readable_units_and_raw_in_json() {
        const GI: u64 = 1 << 30;
        let size = [(CPU, 4000), (MEMORY, 16 * GI), (EPHEMERAL_STORAGE, 100 * GI), (PODS, 110), ("x.io/gpu", 2)];
        let mut node = NodeFacts { capacity: Resources::from(size), ..NodeFacts::default() };
        node.capacity.set("hugepages-2Mi", GI);
        node.allocatable = node.capacity.clone();
        node.allocatable.subtract(&Resources::from([(CPU, 500), (MEMORY, 100 << 20)]));
        // A resource that the node no longer has is shown while a pod requests it.
        let requested = Resources::from([(CPU, 1250), (MEMORY, 700 << 20), (PODS, 3), ("gone.io/x", 1)]);
        let view = NodeRoom::of(&node, &requested, Vec::new());
        let mut out = Vec::new();
        room(&mut out, &view).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Resources:            Capacity   Allocatable   Requested\n\
             \x20 cpu                 4          3500m         1250m\n\
             \x20 memory              16Gi       15.9Gi        700Mi\n\
             \x20 ephemeral-storage   100Gi      100Gi         0\n\
             \x20 pods                110        110           3\n\
             \x20 gone.io/x           0          0             1\n\
             \x20 hugepages-2Mi       1Gi        1Gi           0\n\
             \x20 x.io/gpu            2          2             0\n"
        );
        let short = NodeRoom { pressure: vec!["MemoryPressure".into(), "DiskPressure".into()], ..view.clone() };
        let mut out = Vec::new();
        room(&mut out, &short).unwrap();
        assert!(String::from_utf8(out).unwrap().ends_with("\nPressure:   MemoryPressure, DiskPressure\n"));
        let raw = serde_json::to_value(NodeStatus { node: view, ..NodeStatus::default() }).unwrap();
        let cpu = serde_json::json!({"capacity": 4000, "allocatable": 3500, "requested": 1250});
        assert_eq!(raw["node"]["resources"]["cpu"], cpu);
        assert_eq!(raw["node"]["resources"]["memory"]["requested"], 700u64 << 20);

        // An older agent does not report resources. A node with no resources is still shown with four lines.
        let mut out = Vec::new();
        room(&mut out, &NodeRoom::default()).unwrap();
        assert!(out.is_empty());
        assert_eq!(NodeRoom::of(&NodeFacts::default(), &Resources::default(), Vec::new()).resources.len(), 4);
    }

    #[test]
    fn amounts_are_written_for_people() {
        for (resource, amount, text) in [
            (CPU, 0, "0"),
            (CPU, 1, "1m"),
            (CPU, 4000, "4"),
            (CPU, 3500, "3500m"),
            (MEMORY, 1023, "1023"),
            (MEMORY, 1024, "1Ki"),
            (MEMORY, (1 << 20) + (1 << 19), "1.5Mi"),
            // Rounded down.
            (MEMORY, (16 << 30) - 1, "15.9Gi"),
            ("hugepages-1Gi", 3 << 30, "3Gi"),
            (EPHEMERAL_STORAGE, u64::MAX, "15.9Ei"),
            ("x.io/gpu", 4096, "4096"),
            (PODS, 110, "110"),
        ] {
            assert_eq!(amount_of(resource, amount), text, "{resource} {amount}");
        }
    }

    fn shutdown_of(view: &ShutdownView) -> String {
        let view = ShutdownView::deserialize(serde_json::to_value(view).unwrap()).unwrap();
        let mut out = Vec::new();
        shutdown(&mut out, &view).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn armed() -> ShutdownView {
        let group = |priority, period, granted, pods| GroupView {
            priority,
            period_seconds: period,
            granted_seconds: Some(granted),
            pods,
        };
        ShutdownView {
            enabled: true,
            armed: true,
            delay_seconds: Some(30.0),
            needed_seconds: 30,
            groups: vec![group(0, 20, 20, 5), group(2_000_000_000, 10, 10, 1)],
            ..ShutdownView::default()
        }
    }

    #[test]
    fn the_shutdown_status_has_the_armed_state_and_the_delays() {
        assert_eq!(
            shutdown_of(&armed()),
            "Shutdown:   armed, logind waits up to 30s, 30s needed\n\
             \x20 from priority 0            20s   5 pods\n\
             \x20 from priority 2000000000   10s   1 pod\n"
        );
        let mut short = armed();
        short.delay_seconds = Some(15.0);
        short.groups[0].granted_seconds = Some(5);
        short.problem = Some("logind waits 15s only, 30s are needed: another file sets less".into());
        short.started_at = Some("2026-11-20T14:46:39Z".into());
        short.ended_at = Some("2026-11-20T14:46:52Z".into());
        assert_eq!(
            shutdown_of(&short),
            "Shutdown:   armed, logind waits up to 15s, 30s needed\n\
             \x20 logind waits 15s only, 30s are needed: another file sets less\n\
             \x20 last one from 2026-11-20T14:46:39Z to 2026-11-20T14:46:52Z\n\
             \x20 from priority 0            5s of 20s   5 pods\n\
             \x20 from priority 2000000000   10s         1 pod\n"
        );
        let mut unknown = ShutdownView { delay_seconds: None, ..armed() };
        unknown.groups.iter_mut().for_each(|g| g.granted_seconds = None);
        assert_eq!(
            shutdown_of(&unknown),
            "Shutdown:   armed, it is unknown how long logind waits, 30s needed\n\
             \x20 from priority 0            unknown of 20s   5 pods\n\
             \x20 from priority 2000000000   unknown of 10s   1 pod\n"
        );
        let not = ShutdownView { armed: false, delay_seconds: None, groups: Vec::new(), ..armed() };
        assert_eq!(shutdown_of(&not), "Shutdown:   not armed: logind has not been queried yet\n");
        let not = ShutdownView { problem: Some("there is no system bus".into()), ..not };
        assert_eq!(shutdown_of(&not), "Shutdown:   not armed: there is no system bus\n");
        let cut_off = ShutdownView { started_at: Some("2026-11-20T14:46:39Z".into()), ..ShutdownView::default() };
        assert_eq!(
            shutdown_of(&cut_off),
            "Shutdown:   off, shutdownGracePeriod is not set\n\
             \x20 last one from 2026-11-20T14:46:39Z, its end was not seen\n"
        );
    }

    #[test]
    fn a_shutdown_in_progress_shows_its_progress() {
        let progress = |group, released| {
            let in_progress = Some(ProgressView { since_seconds: 12.04, group, left_seconds: 17.96, released });
            let view = ShutdownView { in_progress, started_at: Some("2026-11-20T14:46:39Z".into()), ..armed() };
            ShutdownView { groups: Vec::new(), ..view }
        };
        assert_eq!(
            shutdown_of(&progress(Some(0), false)),
            "Shutdown:   in progress for 12s: stopping pods from priority 0, 18s left, lock held\n"
        );
        assert_eq!(
            shutdown_of(&progress(None, true)),
            "Shutdown:   in progress for 12s: pods stopped, lock released\n"
        );
        let without = ShutdownView { armed: false, ..progress(Some(0), false) };
        assert!(shutdown_of(&without).ends_with(", no lock\n"));
        let mut out = Vec::new();
        let status = NodeStatus {
            not_ready_reason: Some("NodeShuttingDown".into()),
            shutdown: progress(None, true),
            ..NodeStatus::default()
        };
        show(&mut out, &status).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().nth(1), Some("Node:       not ready (NodeShuttingDown)"), "{text}");
    }

    #[test]
    fn an_answer_of_another_version_is_read_as_far_as_it_goes() {
        let value = serde_json::json!({"version": "9", "later": {"more": 1}, "pods": {"desired": 1}});
        let status = NodeStatus::deserialize(value).unwrap();
        assert_eq!((status.version.as_str(), status.pods.desired), ("9", 1));
    }
}
