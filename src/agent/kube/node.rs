//! This machine as an object Node.

use crate::agent::content::View;
use crate::api::cluster::node::NodeInfo;
use crate::api::kube::discovery::kubernetes_version;
use crate::api::kube::node_change;
use crate::api::node_facts::go_architecture;
use crate::api::time::Wall;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The identity of the machine, which does not change while the agent runs.
#[derive(Clone, Debug, Default)]
pub(in crate::agent) struct Machine {
    machine_id: String,
    system_uuid: String,
    boot_id: String,
    kernel_version: String,
    os_image: String,
}

/// Where a kubelet reads the id of the installation: the first file that exists.
const MACHINE_IDS: [&str; 2] = ["etc/machine-id", "var/lib/dbus/machine-id"];
/// Where a kubelet reads the UUID of the machine: SMBIOS, the device tree, and on a board without both the id of the
/// installation.
const SYSTEM_UUIDS: [&str; 4] =
    ["sys/class/dmi/id/product_uuid", "proc/device-tree/system-id", "proc/device-tree/vm,uuid", "etc/machine-id"];

/// The text of a file. Those of a device tree end with a NUL. An empty one counts as missing: a firmware may have no
/// value.
fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end_matches('\0').trim().to_owned()).filter(|text| !text.is_empty())
}

impl Machine {
    /// A value that cannot be read is empty.
    pub fn read() -> Machine {
        Machine::below(Path::new("/"))
    }

    fn below(root: &Path) -> Machine {
        let first = |paths: &[&str]| paths.iter().find_map(|path| line(&root.join(path))).unwrap_or_default();
        let release = fs::read_to_string(root.join("etc/os-release")).unwrap_or_default();
        let name = release.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
        Machine {
            machine_id: first(&MACHINE_IDS),
            system_uuid: first(&SYSTEM_UUIDS),
            boot_id: crate::adapters::host::machine::boot_id(),
            kernel_version: rustix::system::uname().release().to_string_lossy().into_owned(),
            os_image: name.unwrap_or("Linux").trim_matches('"').to_owned(),
        }
    }

    /// `status.nodeInfo`. `runtime`: `containerd://1.7.0`.
    pub fn info(&self, runtime: String) -> NodeInfo {
        NodeInfo {
            machine_id: self.machine_id.clone(),
            system_uuid: self.system_uuid.clone(),
            boot_id: self.boot_id.clone(),
            kernel_version: self.kernel_version.clone(),
            os_image: self.os_image.clone(),
            container_runtime_version: runtime,
            kubelet_version: kubernetes_version(env!("CARGO_PKG_VERSION")),
            kube_proxy_version: String::new(),
            operating_system: "linux".to_owned(),
            architecture: go_architecture(std::env::consts::ARCH).to_owned(),
        }
    }

    /// The machine id, the UUID of the hardware, and the id of this boot.
    pub fn ids(&self) -> [&str; 3] {
        [&self.machine_id, &self.system_uuid, &self.boot_id]
    }
}

/// The node. It has no times that advance by themselves, so that it changes only with the machine.
pub(super) fn object(view: &View<'_>, machine: &Machine, addresses: &[String]) -> Value {
    let summary = view.engine.summary(view.now.boot);
    let (facts, _) = view.engine.node();
    let runtime = summary.runtime.clone().unwrap_or_default();
    let not_ready = view.engine.not_ready(view.now.boot);
    let text = |at: Wall| at.timestamp().map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let heartbeat = text(view.started.wall);
    let condition = |kind: &str, is_true: bool, reason: &str, message: &str| {
        let since = view.conditions.since(kind, is_true).unwrap_or(view.started.wall);
        json!({
            "type": kind,
            "status": if is_true { "True" } else { "False" },
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": heartbeat,
            "lastTransitionTime": text(since),
        })
    };
    let pressure: Vec<&str> = view.engine.conditions().map(|c| c.name()).collect();
    let mut conditions: Vec<Value> = [
        ("MemoryPressure", "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory", "memory"),
        ("DiskPressure", "KubeletHasDiskPressure", "KubeletHasNoDiskPressure", "disk space"),
        ("PIDPressure", "KubeletHasInsufficientPID", "KubeletHasSufficientPID", "process ids"),
    ]
    .iter()
    .map(|(kind, bad, good, of)| match pressure.contains(kind) {
        true => condition(kind, true, bad, &format!("the node lacks {of}")),
        false => condition(kind, false, good, &format!("the node has enough {of}")),
    })
    .collect();
    conditions.push(match &not_ready {
        None => condition("Ready", true, "KubeletReady", "wherry is ready"),
        Some((reason, message)) => condition("Ready", false, reason, message),
    });
    let internal = addresses.iter().map(|a| json!({ "type": "InternalIP", "address": a }));
    let host = std::iter::once(json!({ "type": "Hostname", "address": facts.name }));
    let mut node = json!({
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": facts.name,
            "uid": super::objects::uid("Node", "", &facts.name),
            "creationTimestamp": text(view.created),
            "labels": facts.labels,
        },
        "spec": {},
        "status": {
            "capacity": facts.capacity.quantities(),
            "allocatable": facts.allocatable.quantities(),
            "conditions": conditions,
            "addresses": internal.chain(host).collect::<Vec<_>>(),
            "daemonEndpoints": { "kubeletEndpoint": { "Port": view.config.kubectl_port } },
            "nodeInfo": machine.info(format!("{}://{}", runtime.name, runtime.version)),
        },
    });
    node_change::show(&mut node, summary.cordoned);
    node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_without_smbios_has_the_uuid_of_its_device_tree_or_its_machine_id() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let ids = || Machine::below(root.path()).ids().map(str::to_owned);
        let boot = crate::adapters::host::machine::boot_id();
        assert_eq!(ids(), ["", "", &boot]);
        write("var/lib/dbus/machine-id", "d0d0\n");
        assert_eq!(ids(), ["d0d0", "", &boot]);
        write("etc/machine-id", "3d12\n");
        assert_eq!(ids(), ["3d12", "3d12", &boot]);
        write("proc/device-tree/vm,uuid", "7e5f\0");
        assert_eq!(ids()[1], "7e5f");
        write("proc/device-tree/system-id", "\0");
        assert_eq!(ids()[1], "7e5f", "an empty value counts as none");
        write("proc/device-tree/system-id", "a1b2\0");
        assert_eq!(ids()[1], "a1b2");
        write("sys/class/dmi/id/product_uuid", "4C4C\n");
        assert_eq!(ids(), ["3d12", "4C4C", &boot]);
        assert!(!boot.is_empty());
    }
}
