//! The target of a request.

use super::kubelet::KubeletPath;
use super::query::decode;
use super::resources::{Resource, groups};
use super::status::Failure;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `/api`: the core group.
    Core,
    /// `/apis`: all other groups.
    Groups,
    /// `/apis/GROUP`
    Group(&'static str),
    /// `/api/v1`, `/apis/GROUP/VERSION`
    Resources(&'static str, &'static str),
    /// `/openapi/v3`
    OpenApi,
    /// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION`
    OpenApiOf(&'static str, &'static str),
    Version,
    /// `/healthz`, `/livez`, `/readyz`: the path.
    Health(&'static str),
    /// A path of a kubelet, and the node if the path is below `/api/v1/nodes/NODE/proxy`.
    Kubelet(Option<String>, KubeletPath),
    Object(ObjectPath),
}

/// The path of a collection or an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPath {
    pub resource: &'static Resource,
    /// None: all namespaces, or a resource without namespaces.
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<&'static str>,
}

/// Finds the target of a path. Each part is decoded by itself, so an encoded `/` belongs to a name.
///
/// # Errors
/// The server has no such path.
pub fn parse(path: &str) -> Result<Target, Failure> {
    let parts: Vec<String> = path.trim_matches('/').split('/').map(|part| decode(part, false)).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let known = |group: &str, version: &str| {
        let core = std::iter::once(("", "v1"));
        core.chain(groups()).find(|(g, v)| *g == group && *v == version)
    };
    if let ["api", "v1", "namespaces", _, "pods", name, "resize"] = parts[..] {
        return Err(Failure::no_resize(name));
    }
    let target = match parts[..] {
        ["api"] => Some(Target::Core),
        ["apis"] => Some(Target::Groups),
        ["apis", group] => groups().into_iter().find(|(g, _)| *g == group).map(|(group, _)| Target::Group(group)),
        ["api", version] => known("", version).map(|(g, v)| Target::Resources(g, v)),
        ["apis", group, version] if !group.is_empty() => known(group, version).map(|(g, v)| Target::Resources(g, v)),
        ["openapi", "v3"] => Some(Target::OpenApi),
        ["openapi", "v3", "api", version] => known("", version).map(|(g, v)| Target::OpenApiOf(g, v)),
        ["openapi", "v3", "apis", group, version] if !group.is_empty() => {
            known(group, version).map(|(g, v)| Target::OpenApiOf(g, v))
        }
        ["version"] => Some(Target::Version),
        ["healthz"] => Some(Target::Health("/healthz")),
        ["livez"] => Some(Target::Health("/livez")),
        ["readyz"] => Some(Target::Health("/readyz")),
        ["api", "v1", "nodes", node, "proxy", ref rest @ ..] if !node.is_empty() => {
            KubeletPath::find(rest).map(|path| Target::Kubelet(Some(node.to_owned()), path))
        }
        ["api", version, ref rest @ ..] => object("", version, rest).map(Target::Object),
        ["apis", group, version, ref rest @ ..] if !group.is_empty() => {
            object(group, version, rest).map(Target::Object)
        }
        ref parts => KubeletPath::find(parts).map(|path| Target::Kubelet(None, path)),
    };
    target.ok_or_else(Failure::no_such_path)
}

fn object(group: &str, version: &str, rest: &[&str]) -> Option<ObjectPath> {
    let find =
        |plural: &str, namespaced: bool| Resource::find(group, version, plural).filter(|r| r.namespaced == namespaced);
    let text = |s: &str| (!s.is_empty()).then(|| s.to_owned());
    match *rest {
        ["namespaces", namespace, plural, ref of @ ..] if Resource::find(group, version, plural).is_some() => {
            let resource = find(plural, true)?;
            let (name, subresource) = named(resource, of)?;
            Some(ObjectPath { resource, namespace: Some(text(namespace)?), name, subresource })
        }
        [plural] => {
            let resource = Resource::find(group, version, plural)?;
            Some(ObjectPath { resource, namespace: None, name: None, subresource: None })
        }
        [plural, ref of @ ..] => {
            let resource = find(plural, false)?;
            let (name, subresource) = named(resource, of)?;
            Some(ObjectPath { resource, namespace: None, name, subresource })
        }
        [] => None,
    }
}

/// Returns the name and the subresource that follow the plural.
fn named(resource: &'static Resource, of: &[&str]) -> Option<(Option<String>, Option<&'static str>)> {
    match *of {
        [] => Some((None, None)),
        [name] if !name.is_empty() => Some((Some(name.to_owned()), None)),
        [name, sub] if !name.is_empty() => Some((Some(name.to_owned()), Some(resource.subresource(sub)?.name))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::resources::Kind;
    use super::*;

    fn path(text: &str) -> (Kind, Option<String>, Option<String>, Option<&'static str>) {
        match parse(text) {
            Ok(Target::Object(o)) => (o.resource.kind, o.namespace, o.name, o.subresource),
            other => panic!("{text}: {other:?}"),
        }
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn each_form_of_a_path_has_its_target() {
        assert_eq!(path("/api/v1/pods"), (Kind::Pod, None, None, None));
        assert_eq!(path("/api/v1/namespaces/a/pods"), (Kind::Pod, some("a"), None, None));
        assert_eq!(path("/api/v1/namespaces/a/pods/web"), (Kind::Pod, some("a"), some("web"), None));
        assert_eq!(path("/api/v1/namespaces/a/pods/web/log"), (Kind::Pod, some("a"), some("web"), Some("log")));
        assert_eq!(path("/api/v1/namespaces/a"), (Kind::Namespace, None, some("a"), None));
        assert_eq!(path("/api/v1/namespaces"), (Kind::Namespace, None, None, None));
        assert_eq!(path("/api/v1/nodes/n%2F1"), (Kind::Node, None, some("n/1"), None));
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";
        assert_eq!(path(lease), (Kind::Lease, some("kube-node-lease"), some("n"), None));
        assert_eq!(path("/apis/metrics.k8s.io/v1beta1/nodes"), (Kind::NodeMetrics, None, None, None));
        assert_eq!(parse("/api/"), Ok(Target::Core));
        assert_eq!(parse("/apis"), Ok(Target::Groups));
        assert_eq!(parse("/apis/metrics.k8s.io"), Ok(Target::Group("metrics.k8s.io")));
        assert_eq!(parse("/api/v1"), Ok(Target::Resources("", "v1")));
        assert_eq!(parse("/openapi/v3/api/v1"), Ok(Target::OpenApiOf("", "v1")));
        assert_eq!(parse("/metrics/resource"), Ok(Target::Kubelet(None, KubeletPath::ResourceMetrics)));
        assert_eq!(parse("/pods/"), Ok(Target::Kubelet(None, KubeletPath::Pods)));
        let through = |path| parse(&format!("/api/v1/nodes/pier-7/proxy/{path}"));
        let of_node = |path| Ok(Target::Kubelet(Some("pier-7".to_owned()), path));
        for (path, target) in [
            ("metrics", KubeletPath::Metrics),
            ("metrics/resource", KubeletPath::ResourceMetrics),
            ("metrics/cadvisor", KubeletPath::CadvisorMetrics),
            ("metrics/probes", KubeletPath::ProbeMetrics),
            ("stats/summary", KubeletPath::Summary),
            ("pods", KubeletPath::Pods),
            ("configz", KubeletPath::Configz),
            ("healthz", KubeletPath::Healthz),
        ] {
            assert_eq!(through(path), of_node(target), "{path}");
        }
        assert_eq!(parse("/readyz"), Ok(Target::Health("/readyz")));
    }

    #[test]
    fn other_paths_do_not_exist() {
        for none in [
            "",
            "/",
            "/api/v2",
            "/api/v1/deployments",
            "/apis/apps/v1/replicasetz",
            "/apis//v1/pods",
            "/api/v1/pods/web",
            "/api/v1/namespaces/a/nodes",
            "/api/v1/namespaces//pods",
            "/api/v1/namespaces/a/pods/web/nothing",
            "/api/v1/namespaces/a/pods/web/log/x",
            "/api/v1/namespaces/a/pods//log",
            "/api/v1/nodes/n/log",
            "/apis/metrics.k8s.io/v1/nodes",
            "/openapi/v2",
            "/metrics/other",
            "/stats",
            "/runningpods",
            "/api/v1/nodes//proxy/metrics",
            "/api/v1/nodes/n/proxy",
            "/api/v1/nodes/n/proxy/exec/a/b/c",
            "/api/v1/namespaces/a/pods/web/proxy/metrics",
            "/openapi/v3/apis/autoscaling/v3",
            "/../etc/passwd",
        ] {
            assert_eq!(parse(none), Err(Failure::no_such_path()), "{none}");
        }
    }
}
