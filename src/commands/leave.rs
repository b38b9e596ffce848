//! `wherry leave`: ends the membership of this machine in a cluster.
//!
//! The drop-in is removed first, so that an interruption does not leave an agent without credentials. The next call
//! removes the rest.

use crate::adapters::identity::{self, IdentityDirectory};
use crate::api::names::annotation::CONFIG_SOURCE;
use crate::commands::client;
use crate::commands::join::{membership, membership::Membership, service};
use crate::commands::output::Failure;
use crate::config::{self, Flags};
use serde_json::Value;
use std::io::Write;
use std::path::Path;

#[derive(Debug, clap::Args)]
pub struct LeaveArgs {
    /// Leave even if the node has pods of the cluster; they stop
    #[arg(long)]
    force: bool,
    /// Do not restart the service; the node leaves at its next start
    #[arg(long)]
    no_restart: bool,
    #[command(flatten)]
    config: Flags,
}

/// Runs the command.
///
/// # Errors
/// The node has pods of the cluster, or a file cannot be removed.
pub fn run(out: &mut dyn Write, arguments: &LeaveArgs) -> Result<u8, Failure> {
    let flags = &arguments.config;
    let config = config::load(flags).config;
    let membership = Membership::read(&config)?;
    if !membership.is_managed() && !identity::directory(&config.root_dir).exists() {
        writeln!(out, "this machine is not a node of a cluster")?;
        return Ok(0);
    }
    let node = &config.node_name;
    if membership.is_managed() && !arguments.force {
        refuse_with_pods(&config.socket, node)?;
    }
    let directory = IdentityDirectory::new(&config.root_dir);
    let lock = directory.lock().map_err(Failure::message)?;
    membership::remove_drop_in(flags)?;
    directory.remove_all().map_err(Failure::message)?;
    drop(lock);
    writeln!(out, "this machine has left its cluster; to remove the node there: kubectl delete node {node}")?;
    service::restart(out, !arguments.no_restart, "To join again: wherry join")?;
    Ok(0)
}

/// Fails if the node has pods of the cluster, which would stop when the agent starts again outside the cluster.
fn refuse_with_pods(socket: &Path, node: &str) -> Result<(), Failure> {
    let how = format!(
        "drain the node first (kubectl drain {node} --ignore-daemonsets), keep them as manifests (wherry keep), or use \
         --force, which stops them"
    );
    let mut list = client::get_json(socket, "/pods").map_err(|failure| match failure {
        Failure::Message(why, code) => Failure::Message(
            format!("cannot determine whether the node has pods of the cluster: {why}; start wherry, or use --force"),
            code,
        ),
        other @ Failure::Output(_) => other,
    })?;
    let pods = client::take_items(&mut list);
    let of_cluster: Vec<String> = pods.iter().filter(|pod| is_of_cluster(pod)).map(name).collect();
    match of_cluster.as_slice() {
        [] => Ok(()),
        [first, more @ ..] => {
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            Err(Failure::message(format!("the node has pods of the cluster ({first}{more}); {how}")))
        }
    }
}

/// Reports whether this is a pod of the cluster that has not ended and that `kubectl drain` would evict. A drain leaves
/// pods of DaemonSets in place.
fn is_of_cluster(pod: &Value) -> bool {
    let metadata = &pod["metadata"];
    let of_daemon_set = |owner: &Value| owner["controller"] == true && owner["kind"] == "DaemonSet";
    metadata["annotations"][CONFIG_SOURCE] == "api"
        && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
        && !metadata["ownerReferences"].as_array().into_iter().flatten().any(of_daemon_set)
}

fn name(pod: &Value) -> String {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(source: &str, phase: &str, owner: &str) -> Value {
        json!({ "metadata": { "name": "web", "namespace": "default",
            "annotations": { "kubernetes.io/config.source": source },
            "ownerReferences": [{ "kind": owner, "controller": true }] }, "status": { "phase": phase } })
    }

    #[test]
    fn only_pods_that_a_drain_moves_away_keep_the_node() {
        for (pod, counts) in [
            (pod("api", "Running", "ReplicaSet"), true),
            (pod("api", "Pending", "Job"), true),
            (pod("api", "Succeeded", "Job"), false),
            (pod("api", "Running", "DaemonSet"), false),
            (pod("file", "Running", ""), false),
            (json!({}), false),
        ] {
            assert_eq!(is_of_cluster(&pod), counts, "{pod}");
        }
        assert_eq!(name(&pod("api", "Running", "")), "default/web");
    }
}
