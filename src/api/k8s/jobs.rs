//! The objects that create pods which end: `batch/v1`.

use super::definition::kubernetes_types;
use super::metadata::{LabelSelector, ObjectMeta, ObjectReference};
use super::scalars::Time;
use super::workloads::PodTemplateSpec;

kubernetes_types! {
    CronJob of "batch/v1" {
        metadata: ObjectMeta = "metadata",
        spec: Option<CronJobSpec> = "spec",
        status: Option<CronJobStatus> = "status",
    }

    CronJobSpec {
        concurrency_policy: Option<String> = "concurrencyPolicy",
        failed_jobs_history_limit: Option<i32> = "failedJobsHistoryLimit",
        job_template: JobTemplateSpec = "jobTemplate",
        schedule: String = "schedule",
        starting_deadline_seconds: Option<i64> = "startingDeadlineSeconds",
        successful_jobs_history_limit: Option<i32> = "successfulJobsHistoryLimit",
        suspend: Option<bool> = "suspend",
        time_zone: Option<String> = "timeZone",
    }

    CronJobStatus {
        active: Option<Vec<ObjectReference>> = "active",
        last_schedule_time: Option<Time> = "lastScheduleTime",
        last_successful_time: Option<Time> = "lastSuccessfulTime",
    }

    JobTemplateSpec {
        metadata: Option<ObjectMeta> = "metadata",
        spec: Option<JobSpec> = "spec",
    }

    Job of "batch/v1" {
        metadata: ObjectMeta = "metadata",
        spec: Option<JobSpec> = "spec",
        status: Option<JobStatus> = "status",
    }

    JobSpec {
        active_deadline_seconds: Option<i64> = "activeDeadlineSeconds",
        backoff_limit: Option<i32> = "backoffLimit",
        backoff_limit_per_index: Option<i32> = "backoffLimitPerIndex",
        completion_mode: Option<String> = "completionMode",
        completions: Option<i32> = "completions",
        managed_by: Option<String> = "managedBy",
        manual_selector: Option<bool> = "manualSelector",
        max_failed_indexes: Option<i32> = "maxFailedIndexes",
        parallelism: Option<i32> = "parallelism",
        pod_failure_policy: Option<PodFailurePolicy> = "podFailurePolicy",
        pod_replacement_policy: Option<String> = "podReplacementPolicy",
        selector: Option<LabelSelector> = "selector",
        success_policy: Option<SuccessPolicy> = "successPolicy",
        suspend: Option<bool> = "suspend",
        template: PodTemplateSpec = "template",
        ttl_seconds_after_finished: Option<i32> = "ttlSecondsAfterFinished",
    }

    PodFailurePolicy {
        rules: Vec<PodFailurePolicyRule> = "rules",
    }

    PodFailurePolicyRule {
        action: String = "action",
        on_exit_codes: Option<PodFailurePolicyOnExitCodesRequirement> = "onExitCodes",
        on_pod_conditions: Option<Vec<PodFailurePolicyOnPodConditionsPattern>> = "onPodConditions",
    }

    PodFailurePolicyOnExitCodesRequirement {
        container_name: Option<String> = "containerName",
        operator: String = "operator",
        values: Vec<i32> = "values",
    }

    PodFailurePolicyOnPodConditionsPattern {
        status: Option<String> = "status",
        type_: String = "type",
    }

    SuccessPolicy {
        rules: Vec<SuccessPolicyRule> = "rules",
    }

    SuccessPolicyRule {
        succeeded_count: Option<i32> = "succeededCount",
        succeeded_indexes: Option<String> = "succeededIndexes",
    }

    JobStatus {
        active: Option<i32> = "active",
        completed_indexes: Option<String> = "completedIndexes",
        completion_time: Option<Time> = "completionTime",
        conditions: Option<Vec<JobCondition>> = "conditions",
        failed: Option<i32> = "failed",
        failed_indexes: Option<String> = "failedIndexes",
        ready: Option<i32> = "ready",
        start_time: Option<Time> = "startTime",
        succeeded: Option<i32> = "succeeded",
        terminating: Option<i32> = "terminating",
        uncounted_terminated_pods: Option<UncountedTerminatedPods> = "uncountedTerminatedPods",
    }

    JobCondition {
        last_probe_time: Option<Time> = "lastProbeTime",
        last_transition_time: Option<Time> = "lastTransitionTime",
        message: Option<String> = "message",
        reason: Option<String> = "reason",
        status: String = "status",
        type_: String = "type",
    }

    UncountedTerminatedPods {
        failed: Option<Vec<String>> = "failed",
        succeeded: Option<Vec<String>> = "succeeded",
    }
}
