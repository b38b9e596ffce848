//! The objects that create pods from a template: `apps/v1`.

use super::definition::kubernetes_types;
use super::field::IntOrString;
use super::metadata::{LabelSelector, ObjectMeta};
use super::pod_spec::PodSpec;
use super::scalars::Time;
use super::volume::PersistentVolumeClaimSpec;

kubernetes_types! {
    PodTemplateSpec {
        metadata: Option<ObjectMeta> = "metadata",
        spec: Option<PodSpec> = "spec",
    }

    Deployment of "apps/v1" {
        metadata: ObjectMeta = "metadata",
        spec: Option<DeploymentSpec> = "spec",
        status: Option<DeploymentStatus> = "status",
    }

    DeploymentSpec {
        min_ready_seconds: Option<i32> = "minReadySeconds",
        paused: Option<bool> = "paused",
        progress_deadline_seconds: Option<i32> = "progressDeadlineSeconds",
        replicas: Option<i32> = "replicas",
        revision_history_limit: Option<i32> = "revisionHistoryLimit",
        selector: LabelSelector = "selector",
        strategy: Option<DeploymentStrategy> = "strategy",
        template: PodTemplateSpec = "template",
    }

    DeploymentStrategy {
        rolling_update: Option<RollingUpdateDeployment> = "rollingUpdate",
        type_: Option<String> = "type",
    }

    RollingUpdateDeployment {
        max_surge: Option<IntOrString> = "maxSurge",
        max_unavailable: Option<IntOrString> = "maxUnavailable",
    }

    DeploymentStatus {
        available_replicas: Option<i32> = "availableReplicas",
        collision_count: Option<i32> = "collisionCount",
        conditions: Option<Vec<DeploymentCondition>> = "conditions",
        observed_generation: Option<i64> = "observedGeneration",
        ready_replicas: Option<i32> = "readyReplicas",
        replicas: Option<i32> = "replicas",
        terminating_replicas: Option<i32> = "terminatingReplicas",
        unavailable_replicas: Option<i32> = "unavailableReplicas",
        updated_replicas: Option<i32> = "updatedReplicas",
    }

    DeploymentCondition {
        last_transition_time: Option<Time> = "lastTransitionTime",
        last_update_time: Option<Time> = "lastUpdateTime",
        message: Option<String> = "message",
        reason: Option<String> = "reason",
        status: String = "status",
        type_: String = "type",
    }

    DaemonSet of "apps/v1" {
        metadata: ObjectMeta = "metadata",
        spec: Option<DaemonSetSpec> = "spec",
        status: Option<DaemonSetStatus> = "status",
    }

    DaemonSetSpec {
        min_ready_seconds: Option<i32> = "minReadySeconds",
        revision_history_limit: Option<i32> = "revisionHistoryLimit",
        selector: LabelSelector = "selector",
        template: PodTemplateSpec = "template",
        update_strategy: Option<DaemonSetUpdateStrategy> = "updateStrategy",
    }

    DaemonSetUpdateStrategy {
        rolling_update: Option<RollingUpdateDaemonSet> = "rollingUpdate",
        type_: Option<String> = "type",
    }

    RollingUpdateDaemonSet {
        max_surge: Option<IntOrString> = "maxSurge",
        max_unavailable: Option<IntOrString> = "maxUnavailable",
    }

    DaemonSetStatus {
        collision_count: Option<i32> = "collisionCount",
        conditions: Option<Vec<DaemonSetCondition>> = "conditions",
        current_number_scheduled: i32 = "currentNumberScheduled",
        desired_number_scheduled: i32 = "desiredNumberScheduled",
        number_available: Option<i32> = "numberAvailable",
        number_misscheduled: i32 = "numberMisscheduled",
        number_ready: i32 = "numberReady",
        number_unavailable: Option<i32> = "numberUnavailable",
        observed_generation: Option<i64> = "observedGeneration",
        updated_number_scheduled: Option<i32> = "updatedNumberScheduled",
    }

    DaemonSetCondition {
        last_transition_time: Option<Time> = "lastTransitionTime",
        message: Option<String> = "message",
        reason: Option<String> = "reason",
        status: String = "status",
        type_: String = "type",
    }

    StatefulSet of "apps/v1" {
        metadata: ObjectMeta = "metadata",
        spec: Option<StatefulSetSpec> = "spec",
        status: Option<StatefulSetStatus> = "status",
    }

    StatefulSetSpec {
        min_ready_seconds: Option<i32> = "minReadySeconds",
        ordinals: Option<StatefulSetOrdinals> = "ordinals",
        persistent_volume_claim_retention_policy: Option<StatefulSetPersistentVolumeClaimRetentionPolicy> =
            "persistentVolumeClaimRetentionPolicy",
        pod_management_policy: Option<String> = "podManagementPolicy",
        replicas: Option<i32> = "replicas",
        revision_history_limit: Option<i32> = "revisionHistoryLimit",
        selector: LabelSelector = "selector",
        service_name: Option<String> = "serviceName",
        template: PodTemplateSpec = "template",
        update_strategy: Option<StatefulSetUpdateStrategy> = "updateStrategy",
        volume_claim_templates: Option<Vec<PersistentVolumeClaim>> = "volumeClaimTemplates",
    }

    PersistentVolumeClaim {
        api_version: Option<String> = "apiVersion",
        kind: Option<String> = "kind",
        metadata: ObjectMeta = "metadata",
        spec: Option<PersistentVolumeClaimSpec> = "spec",
    }

    StatefulSetOrdinals {
        start: Option<i32> = "start",
    }

    StatefulSetPersistentVolumeClaimRetentionPolicy {
        when_deleted: Option<String> = "whenDeleted",
        when_scaled: Option<String> = "whenScaled",
    }

    StatefulSetUpdateStrategy {
        rolling_update: Option<RollingUpdateStatefulSetStrategy> = "rollingUpdate",
        type_: Option<String> = "type",
    }

    RollingUpdateStatefulSetStrategy {
        max_unavailable: Option<IntOrString> = "maxUnavailable",
        partition: Option<i32> = "partition",
    }

    StatefulSetStatus {
        available_replicas: Option<i32> = "availableReplicas",
        collision_count: Option<i32> = "collisionCount",
        conditions: Option<Vec<StatefulSetCondition>> = "conditions",
        current_replicas: Option<i32> = "currentReplicas",
        current_revision: Option<String> = "currentRevision",
        observed_generation: Option<i64> = "observedGeneration",
        ready_replicas: Option<i32> = "readyReplicas",
        replicas: i32 = "replicas",
        update_revision: Option<String> = "updateRevision",
        updated_replicas: Option<i32> = "updatedReplicas",
    }

    StatefulSetCondition {
        last_transition_time: Option<Time> = "lastTransitionTime",
        message: Option<String> = "message",
        reason: Option<String> = "reason",
        status: String = "status",
        type_: String = "type",
    }

    ReplicaSet of "apps/v1" {
        metadata: ObjectMeta = "metadata",
        spec: Option<ReplicaSetSpec> = "spec",
        status: Option<ReplicaSetStatus> = "status",
    }

    ReplicaSetSpec {
        min_ready_seconds: Option<i32> = "minReadySeconds",
        replicas: Option<i32> = "replicas",
        selector: LabelSelector = "selector",
        template: Option<PodTemplateSpec> = "template",
    }

    ReplicaSetStatus {
        available_replicas: Option<i32> = "availableReplicas",
        conditions: Option<Vec<ReplicaSetCondition>> = "conditions",
        fully_labeled_replicas: Option<i32> = "fullyLabeledReplicas",
        observed_generation: Option<i64> = "observedGeneration",
        ready_replicas: Option<i32> = "readyReplicas",
        replicas: i32 = "replicas",
        terminating_replicas: Option<i32> = "terminatingReplicas",
    }

    ReplicaSetCondition {
        last_transition_time: Option<Time> = "lastTransitionTime",
        message: Option<String> = "message",
        reason: Option<String> = "reason",
        status: String = "status",
        type_: String = "type",
    }
}
