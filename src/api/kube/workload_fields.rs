//! The messages of workloads in the public API (apps/v1, batch/v1): see `pod_message`. Only kinds that a `kubectl
//! create` makes are here.

pub(super) const TABLE: &str = "\
CronJob 1:metadata:ObjectMeta 2:spec:CronJobSpec 3:status:-
CronJobSpec 1:schedule:s 2:startingDeadlineSeconds:I 3:concurrencyPolicy:s 4:suspend:B 5:jobTemplate:JobTemplateSpec \
    6:successfulJobsHistoryLimit:I 7:failedJobsHistoryLimit:I 8:timeZone:S
Deployment 1:metadata:ObjectMeta 2:spec:DeploymentSpec 3:status:-
DeploymentSpec 1:replicas:I 2:selector:LabelSelector 3:template:PodTemplateSpec 4:strategy:DeploymentStrategy \
    5:minReadySeconds:i 6:revisionHistoryLimit:I 7:paused:b 9:progressDeadlineSeconds:I
DeploymentStrategy 1:type:s 2:rollingUpdate:RollingUpdateDeployment
Job 1:metadata:ObjectMeta 2:spec:JobSpec 3:status:-
JobSpec 1:parallelism:I 2:completions:I 3:activeDeadlineSeconds:I 4:selector:LabelSelector 5:manualSelector:B \
    6:template:PodTemplateSpec 7:backoffLimit:I 8:ttlSecondsAfterFinished:I 9:completionMode:S 10:suspend:B \
    11:podFailurePolicy:PodFailurePolicy 12:backoffLimitPerIndex:I 13:maxFailedIndexes:I 14:podReplacementPolicy:S \
    15:managedBy:S 16:successPolicy:SuccessPolicy
JobTemplateSpec 1:metadata:ObjectMeta 2:spec:JobSpec
PodFailurePolicy 1:rules:[]PodFailurePolicyRule
PodFailurePolicyOnExitCodesRequirement 1:containerName:S 2:operator:s 3:values:[]i
PodFailurePolicyOnPodConditionsPattern 1:type:s 2:status:s
PodFailurePolicyRule 1:action:s 2:onExitCodes:PodFailurePolicyOnExitCodesRequirement \
    3:onPodConditions:[]PodFailurePolicyOnPodConditionsPattern
PodTemplateSpec 1:metadata:ObjectMeta 2:spec:PodSpec
RollingUpdateDeployment 1:maxUnavailable:IntOrString 2:maxSurge:IntOrString
SuccessPolicy 1:rules:[]SuccessPolicyRule
SuccessPolicyRule 1:succeededIndexes:S 2:succeededCount:I
";
