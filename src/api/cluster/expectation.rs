//! Describes for people what is expected to happen to a pod of the API server while the server is unreachable.

use crate::api::k8s;
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::taints::NoExecute;
use serde::Serialize;
use std::time::Duration;

/// The taint of a node from which the controllers have not heard for about a minute.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Expectation {
    pub reboot: Reboot,
    /// The remaining lifetime of the pod's first token to expire, in seconds; 0: expired. None: the pod has no token.
    pub token_seconds: Option<u64>,
    pub unreachable: Unreachable,
}

/// What happens to the pod after a reboot of the machine while the server is unreachable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reboot {
    Starts,
    /// The pod starts if these images can be pulled: their pull policy is Always.
    Pulls(Vec<String>),
    /// The pod waits for these objects, which are not on the disk.
    Waits(Vec<String>),
    /// The pod ends, because its containers never restart.
    Ends,
}

/// What happens to the pod once the controllers consider the node unreachable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unreachable {
    Stays,
    /// The pod is deleted after this many seconds, and stops when the server is back.
    Deleted(u64),
}

impl Expectation {
    /// Returns what is expected to happen to the pod. `missing`: the objects that are not on the disk. `token`: see
    /// `token_seconds`.
    pub fn of(pod: &Pod, missing: Vec<String>, token: Option<Duration>) -> Expectation {
        let pulls = pod.all_containers().filter(|c| c.image_pull_policy.as_deref() == Some("Always"));
        let mut pulls: Vec<String> = pulls.filter_map(|c| c.image.clone()).collect();
        pulls.order();
        pulls.dedup();
        let reboot = if pod.spec().restart_policy.as_deref() == Some("Never") {
            Reboot::Ends
        } else if !missing.is_empty() {
            Reboot::Waits(missing)
        } else if !pulls.is_empty() {
            Reboot::Pulls(pulls)
        } else {
            Reboot::Starts
        };
        let unreachable = unreachable(pod.spec().tolerations.as_deref().unwrap_or_default());
        Expectation { reboot, token_seconds: token.map(|left| left.as_secs()), unreachable }
    }
}

/// Applies the rules of the taint eviction controller: of all tolerations of the taint, the shortest
/// `tolerationSeconds` applies; a toleration without it sets no limit.
fn unreachable(tolerations: &[k8s::Toleration]) -> Unreachable {
    let taint = NoExecute::of_key(UNREACHABLE);
    let all: Vec<&k8s::Toleration> = tolerations.iter().filter(|t| taint.is_tolerated_by(t)).collect();
    let seconds = all.iter().filter_map(|t| t.toleration_seconds).min();
    match seconds {
        Some(seconds) => Unreachable::Deleted(u64::try_from(seconds).unwrap_or(0)),
        None if all.is_empty() => Unreachable::Deleted(0),
        None => Unreachable::Stays,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cluster::pod_object;
    use crate::api::document;
    use crate::api::document::context::Context;

    fn expectation(spec: &str, missing: &[&str], token: Option<u64>) -> Expectation {
        let text = format!(
            "{{metadata: {{name: web, namespace: shop, uid: u, resourceVersion: '5'}}, \
             spec: {{{spec} containers: [{{name: a, image: 'i:1'}}]}}}}"
        );
        let object = document::value(text.as_bytes()).unwrap();
        let pod = pod_object::read(object, Context::new("lab", "")).unwrap().pod.unwrap();
        Expectation::of(&pod, missing.iter().map(|m| (*m).to_owned()).collect(), token.map(Duration::from_secs))
    }

    #[test]
    fn a_reboot_needs_what_is_on_the_disk_or_a_registry() {
        for (spec, missing, expected) in [
            ("", &[][..], Reboot::Starts),
            ("", &["ConfigMap shop/a"][..], Reboot::Waits(vec!["ConfigMap shop/a".to_owned()])),
            (
                "initContainers: [{name: b, image: j, imagePullPolicy: Always}],",
                &[],
                Reboot::Pulls(vec!["j".to_owned()]),
            ),
            ("restartPolicy: Never,", &["ConfigMap shop/a"], Reboot::Ends),
        ] {
            assert_eq!(expectation(spec, missing, None).reboot, expected, "{spec}");
        }
        assert_eq!(expectation("", &[], Some(90)).token_seconds, Some(90));
    }

    #[test]
    fn tolerations_decide_whether_controllers_delete_the_pod() {
        for (tolerations, expected) in [
            ("", Unreachable::Deleted(0)),
            ("{key: node.kubernetes.io/not-ready, operator: Exists}", Unreachable::Deleted(0)),
            (
                "{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}",
                Unreachable::Deleted(300),
            ),
            ("{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute}", Unreachable::Stays),
            ("{key: node.kubernetes.io/unreachable}", Unreachable::Stays),
            ("{key: node.kubernetes.io/unreachable, value: x}", Unreachable::Deleted(0)),
            ("{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoSchedule}", Unreachable::Deleted(0)),
            ("{operator: Exists}", Unreachable::Stays),
            (
                "{operator: Exists}, {operator: Exists, effect: NoExecute, tolerationSeconds: 9}",
                Unreachable::Deleted(9),
            ),
        ] {
            assert_eq!(
                expectation(&format!("tolerations: [{tolerations}],"), &[], None).unreachable,
                expected,
                "{tolerations}"
            );
        }
    }
}
