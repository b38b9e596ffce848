//! `podFailurePolicy`: what the failure of a pod means for its Job.

use crate::api::k8s::{
    ContainerStatus, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule, PodStatus,
};
use crate::api::names::FullName;

/// What the failure of a pod means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureVerdict {
    /// The whole Job fails. The message says why.
    FailJob(String),
    /// The index of the pod fails, without another attempt.
    FailIndex,
    /// The failure is not counted.
    Ignore,
    Count,
}

/// Applies the first rule that matches the status of a failed pod.
pub fn judge(rules: &[PodFailurePolicyRule], pod: &FullName, status: &PodStatus) -> FailureVerdict {
    for (at, rule) in rules.iter().enumerate() {
        let Some(what) = matched(rule, status) else { continue };
        return match rule.action.as_str() {
            "FailJob" => FailureVerdict::FailJob(message(&what, pod, at)),
            "FailIndex" => FailureVerdict::FailIndex,
            "Ignore" => FailureVerdict::Ignore,
            _ => FailureVerdict::Count,
        };
    }
    FailureVerdict::Count
}

/// What a rule has matched.
enum Matched {
    ExitCode { container: String, code: i32 },
    Condition { type_: String },
}

/// Returns the message of the condition, as in a cluster.
fn message(what: &Matched, pod: &FullName, rule: usize) -> String {
    match what {
        Matched::ExitCode { container, code } => format!(
            "Container {container} for pod {pod} failed with exit code {code} matching FailJob rule at index {rule}"
        ),
        Matched::Condition { type_ } => {
            format!("Pod {pod} has condition {type_} matching FailJob rule at index {rule}")
        }
    }
}

fn matched(rule: &PodFailurePolicyRule, status: &PodStatus) -> Option<Matched> {
    if let Some(codes) = &rule.on_exit_codes {
        return exit_code(codes, status);
    }
    condition(rule.on_pod_conditions.as_deref()?, status)
}

fn exit_code(rule: &PodFailurePolicyOnExitCodesRequirement, status: &PodStatus) -> Option<Matched> {
    let statuses = |all: &Option<Vec<ContainerStatus>>| all.clone().unwrap_or_default();
    let all = statuses(&status.container_statuses).into_iter().chain(statuses(&status.init_container_statuses));
    for container in all {
        if rule.container_name.as_ref().is_some_and(|name| *name != container.name) {
            continue;
        }
        let code = container.state.and_then(|state| state.terminated).map(|terminated| terminated.exit_code);
        // (A container that has succeeded matches no rule.)
        let Some(code) = code.filter(|code| *code != 0) else { continue };
        if rule.values.contains(&code) == (rule.operator == "In") {
            return Some(Matched::ExitCode { container: container.name, code });
        }
    }
    None
}

fn condition(patterns: &[PodFailurePolicyOnPodConditionsPattern], status: &PodStatus) -> Option<Matched> {
    for condition in status.conditions.iter().flatten() {
        let is_matched = |pattern: &PodFailurePolicyOnPodConditionsPattern| {
            pattern.type_ == condition.type_ && pattern.status.as_deref().unwrap_or("True") == condition.status
        };
        if patterns.iter().any(is_matched) {
            return Some(Matched::Condition { type_: condition.type_.clone() });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::from_value;
    use serde_json::{Value, json};

    fn verdict(rules: Value, code: i32) -> FailureVerdict {
        let rules: crate::api::k8s::PodFailurePolicy = from_value(&json!({ "rules": rules })).expect("a policy");
        let status = json!({
            "containerStatuses": [
                {"name": "good", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 0}}},
                {"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": code}}},
            ],
            "conditions": [{"type": "DisruptionTarget", "status": "True"}],
        });
        judge(&rules.rules, &FullName::new("a", "job-x"), &from_value(&status).expect("a status"))
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let on = |action: &str, operator: &str, values: &[i32]| {
            let codes = json!({"operator": operator, "values": values});
            json!({"action": action, "onExitCodes": codes})
        };
        let rules = json!([on("Ignore", "In", &[3]), on("FailJob", "In", &[42]), on("FailIndex", "NotIn", &[1])]);
        assert_eq!(verdict(rules.clone(), 3), FailureVerdict::Ignore);
        assert_eq!(
            verdict(rules.clone(), 42),
            FailureVerdict::FailJob(
                "Container main for pod a/job-x failed with exit code 42 matching FailJob rule at index 1".to_owned()
            )
        );
        assert_eq!(verdict(rules.clone(), 7), FailureVerdict::FailIndex);
        assert_eq!(verdict(rules, 1), FailureVerdict::Count);
        // The exit code 0 of the other container is none of the codes that `NotIn` means.
        assert_eq!(verdict(json!([on("Ignore", "NotIn", &[5])]), 5), FailureVerdict::Count);
    }

    #[test]
    fn a_container_and_a_condition_can_be_named() {
        let of = |name: &str| {
            let codes = json!({"containerName": name, "operator": "In", "values": [1]});
            verdict(json!([{"action": "Ignore", "onExitCodes": codes}]), 1)
        };
        assert_eq!((of("main"), of("good")), (FailureVerdict::Ignore, FailureVerdict::Count));
        let on = |type_: &str| {
            verdict(json!([{"action": "Ignore", "onPodConditions": [{"type": type_, "status": "True"}]}]), 1)
        };
        assert_eq!((on("DisruptionTarget"), on("Other")), (FailureVerdict::Ignore, FailureVerdict::Count));
    }
}
