//! A network partition between a node and the API server: all packets are dropped.

use super::ControlPlane;
use crate::support::agent::Agent;
use std::path::PathBuf;
use std::process::Command;

/// Writes a kubeconfig for a node that uses the service address of the API server. Returns its path.
pub fn kubeconfig(plane: &ControlPlane, node: &str, agent: &Agent) -> PathBuf {
    let direct = std::fs::read_to_string(plane.kubeconfig_of_node(node)).expect("a kubeconfig");
    let path = agent.dir.join("kubeconfig");
    let service = format!("https://{}:443", plane.service_address);
    std::fs::write(&path, direct.replace(&plane.server, &service)).expect("a kubeconfig");
    path
}

/// Drops all packets to the service address of the API server as long as this value exists. (Other clients use the
/// server's own address.)
pub struct Partition<'p>(&'p ControlPlane);

impl Partition<'_> {
    /// Starts to drop the packets.
    pub fn begin(plane: &ControlPlane) -> Partition<'_> {
        let partition = Partition(plane);
        assert!(partition.rule("-I"), "a rule of iptables");
        partition
    }

    /// Runs iptables with the rule, which applies before the address is translated.
    fn rule(&self, command: &str) -> bool {
        let address = self.0.service_address.to_string();
        let mut iptables = Command::new("iptables");
        iptables.args(["-w", "-t", "raw", command, "OUTPUT", "-d", &address, "-j", "DROP"]);
        iptables.status().expect("iptables").success()
    }
}

impl Drop for Partition<'_> {
    fn drop(&mut self) {
        self.rule("-D");
    }
}
