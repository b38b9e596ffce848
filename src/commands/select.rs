//! Selects the pod that a user names: `NAME`, `NAMESPACE/NAME`, `pod/NAME` as in kubectl, or a UID.

use crate::api::kube::pod_row::text;
use crate::api::ordered::OrderSlice;
use crate::commands::client;
use crate::commands::output::Failure;
use serde_json::Value;

/// Maximum number of other pods listed in an error.
const MAX_NAMED: usize = 10;

/// The arguments of a command for one pod.
#[derive(Debug, clap::Args)]
pub struct PodArgs {
    /// NAME, NAMESPACE/NAME, or a UID
    pod: String,
    /// The pod's namespace [default: any]
    #[arg(short, long)]
    namespace: Option<String>,
}

impl PodArgs {
    /// Returns the pod that the arguments name.
    ///
    /// # Errors
    /// Exit code 2: the arguments name no pod.
    pub fn target(&self) -> Result<PodTarget, Failure> {
        select(&self.pod, self.namespace.as_deref())
    }
}

/// Parses an argument that names a pod, and reports errors as failures of the command.
///
/// # Errors
/// Exit code 2: the arguments name no pod.
pub fn select(pod: &str, namespace: Option<&str>) -> Result<PodTarget, Failure> {
    PodTarget::parse(pod, namespace).map_err(|e| Failure::Message(e, 2))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTarget {
    /// The namespace. None matches any namespace.
    pub namespace: Option<String>,
    /// A name or a UID.
    pub name: String,
}

impl PodTarget {
    /// Parses an argument that names a pod.
    ///
    /// # Errors
    /// The argument is not a name, or contradicts `namespace`.
    pub fn parse(given: &str, namespace: Option<&str>) -> Result<PodTarget, String> {
        let kinds = ["pod/", "pods/", "po/"];
        let rest = kinds.iter().find_map(|kind| given.strip_prefix(kind)).unwrap_or(given);
        let (of_name, name) = match rest.split_once('/') {
            Some((ns, name)) => (Some(ns), name),
            None => (None, rest),
        };
        if name.is_empty() || name.contains('/') || of_name == Some("") {
            return Err(format!("{given:?} names no pod; write NAMESPACE/NAME, NAME or a UID"));
        }
        match (of_name, namespace) {
            (Some(a), Some(b)) if a != b => Err(format!("{given:?} is not in namespace {b:?}")),
            (a, b) => Ok(PodTarget { namespace: a.or(b).map(str::to_owned), name: name.to_owned() }),
        }
    }

    /// Reports whether the target is this pod.
    pub fn is(&self, namespace: &str, name: &str, uid: &str) -> bool {
        self.namespace.as_deref().is_none_or(|n| n == namespace) && (self.name == name || self.name == uid)
    }

    /// Returns the pods of a `PodList` that match. There can be several, for example while a pod is being replaced.
    ///
    /// # Errors
    /// No pod matches. The message lists other pods.
    pub fn find(&self, list: &mut Value) -> Result<Vec<Value>, String> {
        let (found, others): (Vec<Value>, Vec<Value>) = client::take_items(list).into_iter().partition(|p| {
            self.is(text(p, "/metadata/namespace"), text(p, "/metadata/name"), text(p, "/metadata/uid"))
        });
        if found.is_empty() { Err(self.not_found(&others)) } else { Ok(found) }
    }

    fn not_found(&self, others: &[Value]) -> String {
        let full = |p: &Value| format!("{}/{}", text(p, "/metadata/namespace"), text(p, "/metadata/name"));
        let alike = |p: &&Value| {
            let name = text(p, "/metadata/name");
            let common = name.chars().zip(self.name.chars()).take_while(|(a, b)| a == b).count();
            common >= 3 || self.name.len() >= 3 && (name.contains(&self.name) || self.name.contains(name))
        };
        let mut near: Vec<String> = others.iter().filter(alike).map(full).collect();
        let what = if near.is_empty() { "existing pods:" } else { "similar names:" };
        if near.is_empty() {
            near = others.iter().map(full).collect();
        }
        near.order();
        near.dedup();
        let more = near.len().saturating_sub(MAX_NAMED);
        near.truncate(MAX_NAMED);
        let mut message = format!("pod {self} was not found");
        match (near.is_empty(), more) {
            (true, _) => message.push_str("; there are no pods"),
            (false, 0) => message.push_str(&format!("; {what} {}", near.join(", "))),
            (false, n) => message.push_str(&format!("; {what} {} and {n} more", near.join(", "))),
        }
        message
    }
}

impl std::fmt::Display for PodTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(given: &str) -> PodTarget {
        PodTarget::parse(given, None).unwrap()
    }

    #[test]
    fn a_pod_is_named_in_several_ways() {
        let of = |namespace: Option<&str>, name: &str| PodTarget {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        assert_eq!(parse("web"), of(None, "web"));
        assert_eq!(parse("shop/web"), of(Some("shop"), "web"));
        assert_eq!(parse("pod/web"), of(None, "web"));
        assert_eq!(parse("pods/shop/web"), of(Some("shop"), "web"));
        assert_eq!(PodTarget::parse("web", Some("shop")).unwrap(), of(Some("shop"), "web"));
        assert_eq!(PodTarget::parse("shop/web", Some("shop")).unwrap(), of(Some("shop"), "web"));
        assert!(PodTarget::parse("shop/web", Some("other")).unwrap_err().contains("not in namespace \"other\""));
        for bad in ["", "/web", "shop/", "a/b/c", "pod/"] {
            assert!(PodTarget::parse(bad, None).is_err(), "{bad}");
        }
    }

    fn list() -> Value {
        let pod = |namespace: &str, name: &str, uid: &str| {
            let metadata = json!({"namespace": namespace, "name": name, "uid": uid});
            json!({"metadata": metadata})
        };
        json!({"items": [pod("shop", "web", "u1"), pod("shop", "web", "u2"), pod("default", "webby", "u3"),
            pod("default", "db", "u4")]})
    }

    #[test]
    fn all_of_one_name_are_found_and_a_uid_finds_one() {
        assert_eq!(parse("shop/web").find(&mut list()).unwrap().len(), 2);
        assert_eq!(parse("u2").find(&mut list()).unwrap().len(), 1);
        assert_eq!(parse("default/db").find(&mut list()).unwrap()[0]["metadata"]["uid"], "u4");
    }

    #[test]
    fn an_unknown_pod_error_lists_the_existing_pods() {
        let say = |given: &str| parse(given).find(&mut list()).unwrap_err();
        assert_eq!(say("weber"), "pod weber was not found; similar names: default/webby, shop/web");
        assert_eq!(say("x/y"), "pod x/y was not found; existing pods: default/db, default/webby, shop/web");
        assert_eq!(parse("x").find(&mut json!({"items": []})).unwrap_err(), "pod x was not found; there are no pods");
    }
}
