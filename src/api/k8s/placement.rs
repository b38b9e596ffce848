//! Where a pod may run.

use super::definition::kubernetes_types;
use super::metadata::LabelSelector;

kubernetes_types! {
    Affinity {
        node_affinity: Option<NodeAffinity> = "nodeAffinity",
        pod_affinity: Option<PodAffinity> = "podAffinity",
        pod_anti_affinity: Option<PodAntiAffinity> = "podAntiAffinity",
    }

    NodeAffinity {
        preferred_during_scheduling_ignored_during_execution: Option<Vec<PreferredSchedulingTerm>>
            = "preferredDuringSchedulingIgnoredDuringExecution",
        required_during_scheduling_ignored_during_execution: Option<NodeSelector>
            = "requiredDuringSchedulingIgnoredDuringExecution",
    }

    PreferredSchedulingTerm {
        preference: NodeSelectorTerm = "preference",
        weight: i32 = "weight",
    }

    NodeSelector {
        node_selector_terms: Vec<NodeSelectorTerm> = "nodeSelectorTerms",
    }

    NodeSelectorTerm {
        match_expressions: Option<Vec<NodeSelectorRequirement>> = "matchExpressions",
        match_fields: Option<Vec<NodeSelectorRequirement>> = "matchFields",
    }

    NodeSelectorRequirement {
        key: String = "key",
        operator: String = "operator",
        values: Option<Vec<String>> = "values",
    }

    PodAffinity {
        preferred_during_scheduling_ignored_during_execution: Option<Vec<WeightedPodAffinityTerm>>
            = "preferredDuringSchedulingIgnoredDuringExecution",
        required_during_scheduling_ignored_during_execution: Option<Vec<PodAffinityTerm>>
            = "requiredDuringSchedulingIgnoredDuringExecution",
    }

    PodAntiAffinity {
        preferred_during_scheduling_ignored_during_execution: Option<Vec<WeightedPodAffinityTerm>>
            = "preferredDuringSchedulingIgnoredDuringExecution",
        required_during_scheduling_ignored_during_execution: Option<Vec<PodAffinityTerm>>
            = "requiredDuringSchedulingIgnoredDuringExecution",
    }

    WeightedPodAffinityTerm {
        pod_affinity_term: PodAffinityTerm = "podAffinityTerm",
        weight: i32 = "weight",
    }

    PodAffinityTerm {
        label_selector: Option<LabelSelector> = "labelSelector",
        match_label_keys: Option<Vec<String>> = "matchLabelKeys",
        mismatch_label_keys: Option<Vec<String>> = "mismatchLabelKeys",
        namespace_selector: Option<LabelSelector> = "namespaceSelector",
        namespaces: Option<Vec<String>> = "namespaces",
        topology_key: String = "topologyKey",
    }

    Toleration {
        effect: Option<String> = "effect",
        key: Option<String> = "key",
        operator: Option<String> = "operator",
        toleration_seconds: Option<i64> = "tolerationSeconds",
        value: Option<String> = "value",
    }

    TopologySpreadConstraint {
        label_selector: Option<LabelSelector> = "labelSelector",
        match_label_keys: Option<Vec<String>> = "matchLabelKeys",
        max_skew: i32 = "maxSkew",
        min_domains: Option<i32> = "minDomains",
        node_affinity_policy: Option<String> = "nodeAffinityPolicy",
        node_taints_policy: Option<String> = "nodeTaintsPolicy",
        topology_key: String = "topologyKey",
        when_unsatisfiable: String = "whenUnsatisfiable",
    }
}
