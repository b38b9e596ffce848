//! The messages of objects that are only kept and shown, in the public API: see `pod_message`.

pub(super) const TABLE: &str = "\
AggregationRule 1:clusterRoleSelectors:[]LabelSelector
AutoscalerOfV1 1:metadata:ObjectMeta 2:spec:AutoscalerSpecOfV1 3:status:-
AutoscalerSpecOfV1 1:scaleTargetRef:CrossVersionObjectReference 2:minReplicas:I 3:maxReplicas:i \
    4:targetCPUUtilizationPercentage:I
ClusterRole 1:metadata:ObjectMeta 2:rules:[]PolicyRule 3:aggregationRule:AggregationRule
ClusterRoleBinding 1:metadata:ObjectMeta 2:subjects:[]Subject 3:roleRef:RoleRef
ContainerResourceMetricSource 1:name:s 2:target:MetricTarget 3:container:s
CrossVersionObjectReference 1:kind:s 2:name:s 3:apiVersion:s
ExternalMetricSource 1:metric:MetricIdentifier 2:target:MetricTarget
HPAScalingPolicy 1:type:s 2:value:i 3:periodSeconds:i
HPAScalingRules 1:selectPolicy:S 2:policies:[]HPAScalingPolicy 3:stabilizationWindowSeconds:I 4:tolerance:Quantity
HorizontalPodAutoscaler 1:metadata:ObjectMeta 2:spec:HorizontalPodAutoscalerSpec 3:status:-
HorizontalPodAutoscalerBehavior 1:scaleUp:HPAScalingRules 2:scaleDown:HPAScalingRules
HorizontalPodAutoscalerSpec 1:scaleTargetRef:CrossVersionObjectReference 2:minReplicas:I 3:maxReplicas:i \
    4:metrics:[]MetricSpec 5:behavior:HorizontalPodAutoscalerBehavior
MetricIdentifier 1:name:s 2:selector:LabelSelector
MetricSpec 1:type:s 2:object:ObjectMetricSource 3:pods:PodsMetricSource 4:resource:ResourceMetricSource \
    5:external:ExternalMetricSource 7:containerResource:ContainerResourceMetricSource
MetricTarget 1:type:s 2:value:Quantity 3:averageValue:Quantity 4:averageUtilization:I
Namespace 1:metadata:ObjectMeta 2:spec:NamespaceSpec 3:status:-
NamespaceSpec 1:finalizers:[]s
ObjectMetricSource 1:describedObject:CrossVersionObjectReference 2:target:MetricTarget 3:metric:MetricIdentifier
ObjectReference 1:kind:s 2:namespace:s 3:name:s 4:uid:s 5:apiVersion:s 6:resourceVersion:s 7:fieldPath:s
PodDisruptionBudget 1:metadata:ObjectMeta 2:spec:PodDisruptionBudgetSpec 3:status:-
PodDisruptionBudgetSpec 1:minAvailable:IntOrString 2:selector:LabelSelector 3:maxUnavailable:IntOrString \
    4:unhealthyPodEvictionPolicy:S
PodsMetricSource 1:metric:MetricIdentifier 2:target:MetricTarget
PolicyRule 1:verbs:[]s 2:apiGroups:[]s 3:resources:[]s 4:resourceNames:[]s 5:nonResourceURLs:[]s
ResourceMetricSource 1:name:s 2:target:MetricTarget
Role 1:metadata:ObjectMeta 2:rules:[]PolicyRule
RoleBinding 1:metadata:ObjectMeta 2:subjects:[]Subject 3:roleRef:RoleRef
RoleRef 1:apiGroup:s 2:kind:s 3:name:s
ServiceAccount 1:metadata:ObjectMeta 2:secrets:[]ObjectReference 3:imagePullSecrets:[]LocalObjectReference \
    4:automountServiceAccountToken:B
Subject 1:kind:s 2:apiGroup:s 3:name:s 4:namespace:s
";
