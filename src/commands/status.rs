//! `wherry status`: how the node does, in a few lines.

use crate::adapters::server::status::NodeStatus;
use crate::commands::client;
use crate::commands::output::Failure;
use crate::commands::row::human;
use serde::Deserialize as _;
use std::io::Write;
use std::path::Path;

pub fn run(out: &mut dyn Write, socket: &Path, json: bool) -> Result<u8, Failure> {
    let value = client::get_json(socket, "/status")?;
    if json {
        let text = serde_json::to_string_pretty(&value).map_err(|e| Failure::message(e.to_string()))?;
        writeln!(out, "{text}")?;
        return Ok(0);
    }
    let status = NodeStatus::deserialize(value)
        .map_err(|e| Failure::message(format!("/status: the answer is not understood: {e}")))?;
    show(out, &status)?;
    Ok(0)
}

fn show(out: &mut dyn Write, s: &NodeStatus) -> std::io::Result<()> {
    let up = human(i64::try_from(s.uptime_seconds).unwrap_or(i64::MAX));
    writeln!(out, "wherry {} on {}, up {up}", s.version, s.node_name)?;
    let runtime = match (&s.runtime.not_ready, s.runtime.connected) {
        (Some(why), _) => format!("not ready: {why}"),
        (None, false) => "not connected".into(),
        (None, true) => match &s.runtime.network_not_ready {
            Some(why) => format!("ready, its network is not: {why}"),
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
    let pleg = if s.pleg.healthy { "healthy" } else { "unhealthy" };
    match s.pleg.age_seconds {
        Some(age) => writeln!(out, "PLEG:       {pleg}, last relist {age:.1}s ago")?,
        None => writeln!(out, "PLEG:       {pleg}, no relist yet")?,
    }
    let p = &s.pods;
    write!(out, "Pods:       {} desired", p.desired)?;
    // What is none is not worth a word.
    for (n, what) in [
        (p.running, "running"),
        (p.pending, "pending"),
        (p.succeeded, "succeeded"),
        (p.failed, "failed"),
        (p.terminating, "terminating"),
    ] {
        if n > 0 {
            write!(out, ", {n} {what}")?;
        }
    }
    writeln!(out, "; {} running", count(p.containers, "container"))?;
    let m = &s.manifests;
    let errors = if m.errors.is_empty() { "no errors".into() } else { count(m.errors.len() as u64, "error") };
    writeln!(out, "Manifests:  {} in {}, {errors}", count(m.files, "file"), m.directory)?;
    for error in &m.errors {
        writeln!(out, "  {error}")?;
    }
    if !s.waiting_for.is_empty() {
        writeln!(out, "Waiting for:")?;
        for what in &s.waiting_for {
            writeln!(out, "  {what}")?;
        }
    }
    Ok(())
}

fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::server::status::{ManifestStatus, PlegStatus, PodCounts, RuntimeStatus};

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
            pleg: PlegStatus { healthy: true, age_seconds: Some(0.44) },
            pods: PodCounts { desired: 3, pending: 1, running: 2, containers: 1, ..PodCounts::default() },
            manifests: ManifestStatus {
                directory: "/m".into(),
                files: 4,
                errors: vec!["/m/web.yaml:7: spec.nope: unknown field".into()],
            },
            waiting_for: vec!["the runtime's network".into()],
        };
        // Over the wire and back, as the command gets it.
        let status = NodeStatus::deserialize(serde_json::to_value(&status).unwrap()).unwrap();
        let mut out = Vec::new();
        show(&mut out, &status).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "wherry 0.1.0 on lab, up 3h12m\n\
             Runtime:    containerd 1.6.20 at unix:///run/c.sock, ready, its network is not: cni plugin not initialized\n\
             PLEG:       healthy, last relist 0.4s ago\n\
             Pods:       3 desired, 2 running, 1 pending; 1 container running\n\
             Manifests:  4 files in /m, 1 error\n\
             \x20 /m/web.yaml:7: spec.nope: unknown field\n\
             Waiting for:\n\
             \x20 the runtime's network\n"
        );
    }

    #[test]
    fn an_answer_of_another_version_is_read_as_far_as_it_goes() {
        let value = serde_json::json!({"version": "9", "later": {"more": 1}, "pods": {"desired": 1}});
        let status = NodeStatus::deserialize(value).unwrap();
        assert_eq!((status.version.as_str(), status.pods.desired), ("9", 1));
    }
}
