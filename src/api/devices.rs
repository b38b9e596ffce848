//! Devices of device plugins, and the changes to a container that gets them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the device plugin API.
pub const API_VERSION: &str = "v1beta1";

/// The registration of a device plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Registration {
    pub version: String,
    /// The name of the plugin's socket in the directory of Wherry's socket.
    pub endpoint: String,
    /// The resource that pods request.
    pub resource: String,
    /// True if the plugin must be called before each start of a container.
    pub pre_start: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    pub id: String,
    pub healthy: bool,
}

/// The response of a plugin to Allocate: the changes to the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allocated {
    pub env: BTreeMap<String, String>,
    pub mounts: Vec<DeviceMount>,
    pub nodes: Vec<DeviceNode>,
    pub annotations: BTreeMap<String, String>,
    /// Device names of the Container Device Interface (CDI).
    pub cdi: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMount {
    pub container_path: String,
    pub host_path: String,
    pub read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    pub container_path: String,
    pub host_path: String,
    /// A subset of `rwm`.
    pub permissions: String,
}

/// The devices of one resource that a container has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    pub ids: Vec<String>,
    pub allocated: Allocated,
}

/// The devices of a container, by resource.
pub type ContainerDevices = BTreeMap<String, Granted>;

/// The devices of a pod, by container.
pub type PodDevices = BTreeMap<String, ContainerDevices>;

/// Reports whether a plugin can provide a resource with this name: `vendor.com/name`, outside Kubernetes' own domain.
pub fn is_device_resource(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, rest)| !domain.is_empty() && !rest.is_empty())
        && crate::api::validate::is_extended_resource(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_extended_resources_have_plugins() {
        for (name, is) in [
            ("vendor.com/camera", true),
            ("cpu", false),
            ("hugepages-2Mi", false),
            ("kubernetes.io/x", false),
            ("vendor.com/", false),
            ("vendor.com/a b", false),
        ] {
            assert_eq!(is_device_resource(name), is, "{name}");
        }
    }
}
