//! The metadata of objects, and how objects refer to each other.

use super::definition::kubernetes_types;
use super::scalars::Time;
use serde_json::Value;
use std::collections::BTreeMap;

kubernetes_types! {
    OnlyMetadata {
        metadata: ObjectMeta = "metadata",
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

    ObjectReference {
        api_version: Option<String> = "apiVersion",
        field_path: Option<String> = "fieldPath",
        kind: Option<String> = "kind",
        name: Option<String> = "name",
        namespace: Option<String> = "namespace",
        resource_version: Option<String> = "resourceVersion",
        uid: Option<String> = "uid",
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
}
