//! This machine as a Node object of a cluster: the facts, and the object with which the node registers.

use crate::api::facts::{ImageList, ListedImage};
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::api::resources::Resources;
use crate::api::time::Wall;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The state of a node that it reports to the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    pub name: String,
    /// The node's labels. Contains only labels that `may_set_label` permits.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// `registerWithTaints`: only a new node gets them.
    pub taints: Vec<Taint>,
    /// `spec.providerID`; only a new node gets it. Empty: none.
    pub provider_id: String,
    pub addresses: Vec<Address>,
    pub capacity: Resources,
    pub allocatable: Resources,
    /// The resources of device plugins, including those of lost plugins, which have the amount 0. `capacity` takes
    /// precedence.
    pub devices: BTreeMap<String, DeviceAmount>,
    /// The conditions. Each type occurs once.
    pub conditions: Vec<Condition>,
    pub info: NodeInfo,
    /// The images, largest first. A kubelet reports up to 50, with up to 5 names each.
    pub images: Vec<Image>,
    /// The port of the node's server.
    pub port: u16,
    pub runtime_handlers: Vec<RuntimeHandler>,
    /// `features.supplementalGroupsPolicy`: the runtime supports this field of a pod.
    pub supplemental_groups_policy: bool,
}

/// The devices of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceAmount {
    /// The number of devices, including unhealthy ones.
    pub capacity: u64,
    pub allocatable: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Address {
    /// `InternalIP`, `Hostname`.
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
}

/// `status.nodeInfo`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    #[serde(rename = "machineID")]
    pub machine_id: String,
    #[serde(rename = "systemUUID")]
    pub system_uuid: String,
    #[serde(rename = "bootID")]
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    /// `containerd://1.7.0`
    pub container_runtime_version: String,
    pub kubelet_version: String,
    /// Empty from Kubernetes 1.33 on.
    pub kube_proxy_version: String,
    pub operating_system: String,
    pub architecture: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    pub names: Vec<String>,
    pub size_bytes: u64,
}

/// Returns the largest images of the runtime's list, as a kubelet reports them: at most 50, with at most 5 names
/// each, digests first.
pub fn largest(list: &ImageList) -> Vec<Image> {
    const MOST: usize = 50;
    const NAMES: usize = 5;
    let mut all: Vec<&ListedImage> = list.images.iter().collect();
    // Also sorted by id, so that equal lists give equal reports.
    all.order_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    let image = |image: &ListedImage| Image {
        names: image.digests.iter().chain(&image.tags).take(NAMES).cloned().collect(),
        size_bytes: image.size,
    };
    all.into_iter().take(MOST).map(image).collect()
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuntimeHandler {
    /// Empty: the default handler.
    pub name: String,
    pub features: HandlerFeatures,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandlerFeatures {
    pub recursive_read_only_mounts: bool,
    pub user_namespaces: bool,
}

/// A resource of which the node is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    Memory,
    Disk,
    Pid,
}

impl Condition {
    fn new(kind: &str, is_true: bool, reason: &str, message: &str) -> Condition {
        Condition {
            kind: kind.to_owned(),
            status: if is_true { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    /// Returns the condition of this resource, with a kubelet's texts.
    pub fn pressure(of: Pressure, is_true: bool) -> Condition {
        let (kind, reason, message) = match (of, is_true) {
            (Pressure::Memory, false) => {
                ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available")
            }
            (Pressure::Memory, true) => {
                ("MemoryPressure", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available")
            }
            (Pressure::Disk, false) => ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            (Pressure::Disk, true) => ("DiskPressure", "KubeletHasDiskPressure", "kubelet has disk pressure"),
            (Pressure::Pid, false) => {
                ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available")
            }
            (Pressure::Pid, true) => {
                ("PIDPressure", "KubeletHasInsufficientPID", "kubelet has insufficient PID available")
            }
        };
        Condition::new(kind, is_true, reason, message)
    }

    /// Returns the condition Ready. `why_not`: the reasons why the node is not ready.
    pub fn ready(why_not: Option<&str>) -> Condition {
        match why_not {
            None => Condition::new("Ready", true, "KubeletReady", "kubelet is posting ready status"),
            Some(why) => Condition::new("Ready", false, "KubeletNotReady", why),
        }
    }

    /// Returns the condition as an object, with these times in RFC 3339.
    pub(super) fn object(&self, heartbeat: &str, transition: &str) -> Value {
        json!({
            "type": self.kind,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "lastHeartbeatTime": heartbeat,
            "lastTransitionTime": transition,
        })
    }
}

/// Formats a time in RFC 3339 with whole seconds. A time that cannot be represented becomes the epoch.
pub(super) fn seconds(at: Wall) -> String {
    at.whole_seconds().unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned())
}

/// Converts a plain value to JSON. This cannot fail, because all keys are strings.
pub(super) fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

impl NodeReport {
    /// Returns the fields of the status without `conditions`, by name. Fields without a value are absent.
    pub(super) fn status_fields(&self) -> BTreeMap<&'static str, Value> {
        let with_devices = |resources: &Resources, of: fn(&DeviceAmount) -> u64| {
            let mut quantities = resources.quantities();
            for (name, amount) in self.devices.iter().filter(|(name, _)| self.capacity.get(name) == 0) {
                quantities.insert(name.clone(), of(amount).to_string());
            }
            value(&quantities)
        };
        let mut fields = BTreeMap::from([
            ("addresses", value(&self.addresses)),
            ("allocatable", with_devices(&self.allocatable, |amount| amount.allocatable)),
            ("capacity", with_devices(&self.capacity, |amount| amount.capacity)),
            ("daemonEndpoints", json!({ "kubeletEndpoint": { "Port": self.port } })),
            ("images", value(&self.images)),
            ("features", self.features()),
            ("nodeInfo", value(&self.info)),
            ("runtimeHandlers", value(&self.runtime_handlers)),
        ]);
        fields.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
        fields
    }

    /// Returns `status.features`. A runtime that does not report its features is taken to have none.
    fn features(&self) -> Value {
        match self.supplemental_groups_policy {
            true => json!({ "supplementalGroupsPolicy": true }),
            false => Value::Null,
        }
    }

    /// Returns the object with which the node registers.
    pub fn object(&self, now: Wall) -> String {
        let now = seconds(now);
        let mut spec = Map::new();
        if !self.taints.is_empty() {
            spec.insert("taints".to_owned(), value(&self.taints));
        }
        if !self.provider_id.is_empty() {
            spec.insert("providerID".to_owned(), self.provider_id.as_str().into());
        }
        let mut status: Map<String, Value> =
            self.status_fields().into_iter().map(|(name, value)| (name.to_owned(), value)).collect_object();
        let conditions: Vec<Value> = self.conditions.iter().map(|condition| condition.object(&now, &now)).collect();
        status.insert("conditions".to_owned(), conditions.into());
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": self.name, "labels": self.labels, "annotations": self.annotations },
            "spec": spec,
            "status": status,
        })
        .to_string()
    }
}

/// The labels that a kubelet keeps up to date. A node may set them although they are in a domain of Kubernetes.
pub(super) const MACHINE_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Reports whether the API server lets a node set this label on itself (admission plugin NodeRestriction). A request
/// with any other label is refused as a whole.
pub fn may_set_label(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let is_in = |domain: &str| prefix == domain || prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    let is_reserved = is_in("kubernetes.io") || is_in("k8s.io");
    !is_reserved || MACHINE_LABELS.contains(&key) || is_in("kubelet.kubernetes.io") || is_in("node.kubernetes.io")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn conditions(ready: Option<&str>) -> Vec<Condition> {
        let of = |pressure| Condition::pressure(pressure, false);
        vec![of(Pressure::Memory), of(Pressure::Disk), of(Pressure::Pid), Condition::ready(ready)]
    }

    pub fn report() -> NodeReport {
        let text = str::to_owned;
        let label = |(key, value): (&str, &str)| (text(key), text(value));
        let address = |(kind, address): (&str, &str)| Address { kind: text(kind), address: text(address) };
        let mut resources = Resources::default();
        for (name, amount) in [("cpu", 2000), ("memory", 24_684_096 << 10), ("pods", 110)] {
            resources.set(name, amount);
        }
        NodeReport {
            name: text("n1"),
            labels: [("kubernetes.io/hostname", "n1"), ("kubernetes.io/os", "linux")].map(label).into(),
            annotations: [label(("volumes.kubernetes.io/controller-managed-attach-detach", "true"))].into(),
            addresses: [("InternalIP", "10.77.0.1"), ("Hostname", "n1")].map(address).into(),
            capacity: resources.clone(),
            allocatable: resources,
            conditions: conditions(Some("CSINode is not yet initialized")),
            info: NodeInfo { machine_id: text("3d12"), os_image: text("Debian"), ..NodeInfo::default() },
            images: vec![Image { names: vec![text("localhost/pause:3.9")], size_bytes: 303_135 }],
            port: 10250,
            ..NodeReport::default()
        }
    }

    /// 2026-11-22T07:40:25Z
    pub const NOW: Wall = Wall(1_795_333_225_900_000_000);

    #[test]
    fn a_node_registers_as_a_kubelet_does() {
        let node: Value = serde_json::from_str(&report().object(NOW)).unwrap();
        let at = "2026-11-22T07:40:25Z";
        let condition = |kind: &str, reason: &str, message: &str| {
            json!({ "type": kind, "status": "False", "reason": reason, "message": message,
                    "lastHeartbeatTime": at, "lastTransitionTime": at })
        };
        let quantities = json!({ "cpu": "2", "memory": "24684096Ki", "pods": "110" });
        let expected = json!({
            "kind": "Node", "apiVersion": "v1",
            "metadata": {
                "name": "n1",
                "labels": { "kubernetes.io/hostname": "n1", "kubernetes.io/os": "linux" },
                "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
            },
            "spec": {},
            "status": {
                "capacity": quantities, "allocatable": quantities,
                "conditions": [
                    condition("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory \
                                                                               available"),
                    condition("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                    condition("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                    condition("Ready", "KubeletNotReady", "CSINode is not yet initialized"),
                ],
                "addresses": [{ "type": "InternalIP", "address": "10.77.0.1" },
                    { "type": "Hostname", "address": "n1" }],
                "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
                "nodeInfo": {
                    "machineID": "3d12", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "Debian",
                    "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
                    "architecture": "",
                },
                "images": [{ "names": ["localhost/pause:3.9"], "sizeBytes": 303135 }],
            },
        });
        assert_eq!(node, expected);
    }

    #[test]
    fn a_new_node_gets_taints_and_a_provider() {
        let taint = Taint { key: "a".into(), effect: "NoSchedule".into(), ..Taint::default() };
        let report = NodeReport { taints: vec![taint], provider_id: "x://1".into(), ..report() };
        let node: Value = serde_json::from_str(&report.object(NOW)).unwrap();
        let expected = json!({ "taints": [{ "key": "a", "effect": "NoSchedule" }], "providerID": "x://1" });
        assert_eq!(node["spec"], expected);
    }

    #[test]
    fn a_node_may_not_set_the_labels_of_others() {
        for key in [
            "kubernetes.io/hostname",
            "kubernetes.io/os",
            "topology.kubernetes.io/zone",
            "node.kubernetes.io/exclude-disruption",
            "kubelet.kubernetes.io/a",
            "a.node.kubernetes.io/a",
            "example.com/a",
            "a",
            "notkubernetes.io/a",
        ] {
            assert!(may_set_label(key), "{key}");
        }
        for key in [
            "node-role.kubernetes.io/worker",
            "node-restriction.kubernetes.io/a",
            "kubernetes.io/role",
            "k8s.io/a",
            "a.k8s.io/a",
            "topology.kubernetes.io/rack",
        ] {
            assert!(!may_set_label(key), "{key}");
        }
    }
}
