//! Requests to the node's server: the paths of a kubelet, and the permission that a client needs for each of them.

use super::kubelet::KubeletPath;
use super::query::decode;
use crate::api::cluster::reviews::Attributes;

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A page that other servers of Wherry also have.
    Page(KubeletPath),
    /// `/runningpods/`: the pods with a running container.
    RunningPods,
    /// `/containerLogs/NAMESPACE/POD/CONTAINER`
    Log(PodPath),
    /// `/exec/...`, `/attach/...`, `/portForward/...`
    Session(SessionKind, PodPath),
    /// `/run/...`: runs a command and returns its output.
    Run(PodPath),
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    Exec,
    Attach,
    PortForward,
}

/// A pod and, except for a port-forward, one of its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPath {
    pub namespace: String,
    pub name: String,
    pub uid: Option<String>,
    pub container: Option<String>,
}

impl Target {
    /// Finds the target of a path. `path`: as sent, with percent-encoding.
    pub fn find(path: &str) -> Target {
        let parts: Vec<String> = path.trim_matches('/').split('/').map(|part| decode(part, false)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let pod = |namespace: &str, name: &str, uid: Option<&str>, container: Option<&str>| PodPath {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.map(str::to_owned),
            container: container.map(str::to_owned),
        };
        let of_container = |rest: &[&str]| match *rest {
            [namespace, name, container] => Some(pod(namespace, name, None, Some(container))),
            [namespace, name, uid, container] => Some(pod(namespace, name, Some(uid), Some(container))),
            _ => None,
        };
        let target = match parts[..] {
            ["containerLogs", namespace, name, container] => {
                Some(Target::Log(pod(namespace, name, None, Some(container))))
            }
            ["exec", ref rest @ ..] => of_container(rest).map(|pod| Target::Session(SessionKind::Exec, pod)),
            ["attach", ref rest @ ..] => of_container(rest).map(|pod| Target::Session(SessionKind::Attach, pod)),
            ["run", ref rest @ ..] => of_container(rest).map(Target::Run),
            ["portForward", namespace, name] => {
                Some(Target::Session(SessionKind::PortForward, pod(namespace, name, None, None)))
            }
            ["portForward", namespace, name, uid] => {
                Some(Target::Session(SessionKind::PortForward, pod(namespace, name, Some(uid), None)))
            }
            ["runningpods"] => Some(Target::RunningPods),
            ref other => KubeletPath::find(other).map(Target::Page),
        };
        target.unwrap_or(Target::Unknown)
    }

    /// Reports whether `enableDebuggingHandlers: false` disables the target, as in a kubelet.
    pub fn is_for_debugging(&self) -> bool {
        !matches!(self, Target::Page(_) | Target::Unknown)
    }
}

/// Returns the permission that a client needs: a verb, and one of several subresources of the node. They are those of
/// a kubelet since 1.33.
pub fn attributes(method: &str, path: &str) -> Attributes {
    let is_below =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let verb = match method {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "get",
    };
    let subresources: &[(&str, &'static [&'static str])] = &[
        ("/stats", &["stats"]),
        ("/metrics", &["metrics"]),
        ("/logs", &["log"]),
        ("/checkpoint", &["checkpoint"]),
        ("/pods", &["pods", "proxy"]),
        ("/runningpods", &["pods", "proxy"]),
        ("/healthz", &["healthz", "proxy"]),
        ("/configz", &["configz", "proxy"]),
    ];
    let found = subresources.iter().find(|(prefix, _)| is_below(prefix));
    Attributes { verb, subresources: found.map_or(&["proxy"], |(_, subresources)| subresources) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: Option<&str>, container: Option<&str>) -> PodPath {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        PodPath { namespace: "ns".into(), name: "p".into(), uid: owned(uid), container: owned(container) }
    }

    #[test]
    fn paths_are_those_of_a_kubelet() {
        for (path, target) in [
            ("/containerLogs/ns/p/c", Target::Log(pod(None, Some("c")))),
            ("/exec/ns/p/c", Target::Session(SessionKind::Exec, pod(None, Some("c")))),
            ("/exec/ns/p/u/c", Target::Session(SessionKind::Exec, pod(Some("u"), Some("c")))),
            ("/attach/ns/p/c", Target::Session(SessionKind::Attach, pod(None, Some("c")))),
            ("/portForward/ns/p", Target::Session(SessionKind::PortForward, pod(None, None))),
            ("/portForward/ns/p/u", Target::Session(SessionKind::PortForward, pod(Some("u"), None))),
            ("/run/ns/p/c", Target::Run(pod(None, Some("c")))),
            ("/runningpods/", Target::RunningPods),
            ("/pods", Target::Page(KubeletPath::Pods)),
            ("/metrics/resource", Target::Page(KubeletPath::ResourceMetrics)),
            ("/stats/summary", Target::Page(KubeletPath::Summary)),
        ] {
            assert_eq!(Target::find(path), target, "{path}");
        }
        for path in
            ["/", "", "/exec", "/exec/ns/p", "/exec/a/b/c/d/e", "/containerLogs/ns/p", "/portForward/ns", "/api"]
        {
            assert_eq!(Target::find(path), Target::Unknown, "{path}");
        }
        assert!(Target::find("/run/ns/p/c").is_for_debugging() && !Target::find("/pods").is_for_debugging());
        // An encoded separator does not change the structure.
        let Target::Log(PodPath { name, .. }) = Target::find("/containerLogs/ns/a%2Fb/c") else { panic!() };
        assert_eq!(name, "a/b");
    }

    #[test]
    fn each_path_has_the_subresource_of_a_kubelet() {
        for (method, path, verb, subresources) in [
            ("GET", "/stats/summary", "get", &["stats"][..]),
            ("HEAD", "/metrics/cadvisor", "get", &["metrics"]),
            ("GET", "/pods", "get", &["pods", "proxy"]),
            ("GET", "/runningpods/", "get", &["pods", "proxy"]),
            ("GET", "/healthz", "get", &["healthz", "proxy"]),
            ("GET", "/configz", "get", &["configz", "proxy"]),
            ("GET", "/containerLogs/a/b/c", "get", &["proxy"]),
            ("POST", "/exec/a/b/c", "create", &["proxy"]),
            ("GET", "/metricsx", "get", &["proxy"]),
            ("GET", "/", "get", &["proxy"]),
        ] {
            assert_eq!(attributes(method, path), Attributes { verb, subresources }, "{method} {path}");
        }
    }
}
