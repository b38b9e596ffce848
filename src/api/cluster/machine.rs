//! The identity of the machine, and its `status.nodeInfo`.

use super::node::NodeInfo;
use crate::api::kube::discovery::kubernetes_version;
use crate::api::node_facts::go_architecture;

/// The identity of the machine, which does not change while the agent runs. A value that cannot be read is empty.
#[derive(Clone, Debug, Default)]
pub struct MachineIdentity {
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    /// Rust's name for the architecture: `x86_64`, `aarch64`.
    pub architecture: &'static str,
}

impl MachineIdentity {
    /// Returns `status.nodeInfo`. `runtime`: a string such as `containerd://1.7.0`.
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
            architecture: go_architecture(self.architecture).to_owned(),
        }
    }

    /// Returns the machine id, the UUID of the hardware, and the id of this boot.
    pub fn ids(&self) -> [&str; 3] {
        [&self.machine_id, &self.system_uuid, &self.boot_id]
    }
}
