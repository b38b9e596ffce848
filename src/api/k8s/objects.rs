//! The objects that Wherry reads.

use super::definition::kubernetes_types;
use super::metadata::ObjectMeta;
use super::placement::Toleration;
use super::pod_spec::PodSpec;
use super::pod_status::PodStatus;
use super::scalars::{ByteString, Quantity, Time};
use std::collections::BTreeMap;

kubernetes_types! {
    Pod of "v1" {
        metadata: ObjectMeta = "metadata",
        spec: Option<PodSpec> = "spec",
        status: Option<PodStatus> = "status",
    }

    ConfigMap of "v1" {
        binary_data: Option<BTreeMap<String, ByteString>> = "binaryData",
        data: Option<BTreeMap<String, String>> = "data",
        immutable: Option<bool> = "immutable",
        metadata: ObjectMeta = "metadata",
    }

    Secret of "v1" {
        data: Option<BTreeMap<String, ByteString>> = "data",
        immutable: Option<bool> = "immutable",
        metadata: ObjectMeta = "metadata",
        string_data: Option<BTreeMap<String, String>> = "stringData",
        type_: Option<String> = "type",
    }

    PriorityClass of "scheduling.k8s.io/v1" {
        description: Option<String> = "description",
        global_default: Option<bool> = "globalDefault",
        metadata: ObjectMeta = "metadata",
        preemption_policy: Option<String> = "preemptionPolicy",
        value: i32 = "value",
    }

    RuntimeClass of "node.k8s.io/v1" {
        handler: String = "handler",
        metadata: ObjectMeta = "metadata",
        overhead: Option<Overhead> = "overhead",
        scheduling: Option<Scheduling> = "scheduling",
    }

    Overhead {
        pod_fixed: Option<BTreeMap<String, Quantity>> = "podFixed",
    }

    Scheduling {
        node_selector: Option<BTreeMap<String, String>> = "nodeSelector",
        tolerations: Option<Vec<Toleration>> = "tolerations",
    }

    Taint {
        effect: String = "effect",
        key: String = "key",
        time_added: Option<Time> = "timeAdded",
        value: Option<String> = "value",
    }
}
