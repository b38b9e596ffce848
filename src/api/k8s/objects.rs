//! The objects that Wherry reads, and the metadata that they share.

use super::field::kubernetes_types;
use super::placement::Toleration;
use super::pod_spec::PodSpec;
use super::pod_status::PodStatus;
use super::scalars::{ByteString, Quantity, Time};
use serde_json::Value;
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

    ObjectMeta {
        annotations: Option<BTreeMap<String, String>> = "annotations",
        creation_timestamp: Option<Time> = "creationTimestamp",
        deletion_grace_period_seconds: Option<i64> = "deletionGracePeriodSeconds",
        deletion_timestamp: Option<Time> = "deletionTimestamp",
        finalizers: Option<Vec<String>> = "finalizers",
        generate_name: Option<String> = "generateName",
        generation: Option<i64> = "generation",
        labels: Option<BTreeMap<String, String>> = "labels",
        managed_fields: Option<Vec<ManagedFieldsEntry>> = "managedFields",
        name: Option<String> = "name",
        namespace: Option<String> = "namespace",
        owner_references: Option<Vec<OwnerReference>> = "ownerReferences",
        resource_version: Option<String> = "resourceVersion",
        self_link: Option<String> = "selfLink",
        uid: Option<String> = "uid",
    }

    OwnerReference {
        api_version: String = "apiVersion",
        block_owner_deletion: Option<bool> = "blockOwnerDeletion",
        controller: Option<bool> = "controller",
        kind: String = "kind",
        name: String = "name",
        uid: String = "uid",
    }

    ManagedFieldsEntry {
        api_version: Option<String> = "apiVersion",
        fields_type: Option<String> = "fieldsType",
        fields_v1: Option<Value> = "fieldsV1",
        manager: Option<String> = "manager",
        operation: Option<String> = "operation",
        subresource: Option<String> = "subresource",
        time: Option<Time> = "time",
    }

    LabelSelector {
        match_expressions: Option<Vec<LabelSelectorRequirement>> = "matchExpressions",
        match_labels: Option<BTreeMap<String, String>> = "matchLabels",
    }

    LabelSelectorRequirement {
        key: String = "key",
        operator: String = "operator",
        values: Option<Vec<String>> = "values",
    }

    LocalObjectReference {
        name: String = "name",
    }

    TypedLocalObjectReference {
        api_group: Option<String> = "apiGroup",
        kind: String = "kind",
        name: String = "name",
    }

    TypedObjectReference {
        api_group: Option<String> = "apiGroup",
        kind: String = "kind",
        name: String = "name",
        namespace: Option<String> = "namespace",
    }

    Taint {
        effect: String = "effect",
        key: String = "key",
        time_added: Option<Time> = "timeAdded",
        value: Option<String> = "value",
    }
}
