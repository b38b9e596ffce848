//! The environment of a container: `envFrom` and `env` with values from ConfigMaps, Secrets, fields of the pod and
//! resources, in the order and with the precedence of a kubelet.

use crate::api::data_object::{DataKey, DataKind, DataObjects, DataValue};
use crate::api::k8s;
use crate::api::names::FullName;
use crate::api::pod::Pod;
use crate::api::quantity::{self, Quantity};
use crate::api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources};
use crate::api::service_token::Tokens;
use crate::api::services::Services;
use std::collections::BTreeMap;
use std::fmt;

/// The data from which the values of variables are taken.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    pub pod: &'a Pod,
    /// The pod's IP addresses; the first one is `status.podIP`.
    pub ips: &'a [String],
    /// The node's IP addresses; the first one is `status.hostIP`.
    pub host_ips: &'a [String],
    /// The node's allocatable resources, which are the limits of a container without limits. In milli-CPU and bytes.
    pub allocatable: &'a Resources,
    pub objects: &'a DataObjects,
    /// The services that the environment contains.
    pub services: Option<&'a Services>,
    /// None for a pod of a manifest.
    pub cluster: Option<ClusterValues<'a>>,
}

/// The values that only an API server provides.
#[derive(Clone, Copy)]
pub struct ClusterValues<'a> {
    pub tokens: &'a Tokens,
}

/// Why a value does not exist. The messages are the kubelet's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    Object(DataKey),
    /// The copy of the object on the disk is sealed (C15). Also an error for an optional object, because it may
    /// exist.
    Locked(DataKey),
    Key {
        key: String,
        object: DataKey,
    },
    /// A value that is not UTF-8 text cannot be in the environment.
    Binary {
        key: String,
        object: DataKey,
    },
    /// The node has no address yet.
    HostIp,
    Field {
        path: String,
    },
    Container {
        name: String,
    },
    Resource {
        name: String,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Object(key) => write!(f, "{} {:?} not found", key.kind.resource(), key.name.name),
            Missing::Locked(key) => write!(
                f,
                "the copy of {} {:?} on the disk is sealed, and the service has no key for it; waiting for the API \
                 server",
                key.kind.resource(),
                key.name.name
            ),
            Missing::Key { key, object } => write!(f, "couldn't find key {key} in {object}"),
            Missing::Binary { key, object } => {
                write!(f, "the value of key {key} in {object} is not UTF-8 text; mount it as a volume")
            }
            Missing::HostIp => f.write_str("the node has no IP address: it has no default route yet"),
            Missing::Field { path } => write!(f, "unsupported fieldPath: {path}"),
            Missing::Container { name } => write!(f, "container {name} not found"),
            Missing::Resource { name } => write!(f, "unsupported container resource: {name}"),
        }
    }
}

/// A variable before the expansion of references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// A literal value of the spec. References in it are expanded.
    Written { name: String, value: String },
    /// A value from another source, used as it is.
    Found { name: String, value: String },
}

/// Returns the variables in order. A later variable replaces an earlier one of the same name.
///
/// # Errors
/// A value that is not optional is missing.
pub fn variables(container: &k8s::Container, facts: Facts<'_>) -> Result<Vec<Variable>, Missing> {
    let services = facts.services.map(|services| services.variables(facts.pod)).unwrap_or_default();
    let mut all: Vec<Variable> = services.into_iter().map(|(name, value)| Variable::Found { name, value }).collect();
    for from in container.env_from.iter().flatten() {
        all.extend(all_of(from, facts)?);
    }
    for variable in container.env.iter().flatten() {
        let name = variable.name.clone();
        let written = variable.value.as_deref().unwrap_or_default();
        match &variable.value_from {
            Some(from) if written.is_empty() => {
                if let Some(value) = value_of(from, container, facts)? {
                    all.push(Variable::Found { name, value });
                }
            }
            _ => all.push(Variable::Written { name, value: written.to_owned() }),
        }
    }
    Ok(all)
}

/// Returns the ConfigMaps and Secrets to which the environment of a pod's containers refers.
pub fn references(pod: &Pod) -> impl Iterator<Item = DataKey> {
    pod.every_container().flat_map(|container| {
        let from = container.env_from.iter().flatten().filter_map(|from| source(from).map(|(key, _)| key));
        let one = container.env.iter().flatten().filter_map(|e| Some(selector(e.value_from.as_ref()?)?.0));
        from.chain(one).map(|(kind, name)| key_of(pod, kind, name))
    })
}

fn key_of(pod: &Pod, kind: DataKind, name: &str) -> DataKey {
    DataKey { kind, name: FullName { namespace: pod.name.namespace.clone(), name: name.into() } }
}

/// Returns the object of an `envFrom`, and whether the object is optional.
fn source(from: &k8s::EnvFromSource) -> Option<((DataKind, &str), bool)> {
    if let Some(of) = &from.config_map_ref {
        return Some(((DataKind::ConfigMap, &of.name), of.optional == Some(true)));
    }
    let of = from.secret_ref.as_ref()?;
    Some(((DataKind::Secret, &of.name), of.optional == Some(true)))
}

/// Returns the object and the key of a `valueFrom`, and whether the value is optional.
fn selector(from: &k8s::EnvVarSource) -> Option<((DataKind, &str), &str, bool)> {
    if let Some(of) = &from.config_map_key_ref {
        return Some(((DataKind::ConfigMap, &of.name), &of.key, of.optional == Some(true)));
    }
    let of = from.secret_key_ref.as_ref()?;
    Some(((DataKind::Secret, &of.name), &of.key, of.optional == Some(true)))
}

/// Returns all text values of the object of an `envFrom`, with its prefix. Every valid key is also a valid variable
/// name.
fn all_of(from: &k8s::EnvFromSource, facts: Facts<'_>) -> Result<Vec<Variable>, Missing> {
    let Some(((kind, name), optional)) = source(from) else { return Ok(Vec::new()) };
    let key = key_of(facts.pod, kind, name);
    let Some(object) = facts.objects.get(&key) else {
        if facts.objects.is_locked(&key) {
            return Err(Missing::Locked(key));
        }
        return if optional { Ok(Vec::new()) } else { Err(Missing::Object(key)) };
    };
    let prefix = from.prefix.as_deref().unwrap_or_default();
    let text = object.values.iter().filter_map(|(key, value)| match value {
        DataValue::Text(text) => Some(Variable::Found { name: format!("{prefix}{key}"), value: text.to_string() }),
        DataValue::Binary(_) => None,
    });
    Ok(text.collect())
}

/// Returns the value of a `valueFrom`. None if it is optional and does not exist.
fn value_of(from: &k8s::EnvVarSource, container: &k8s::Container, facts: Facts<'_>) -> Result<Option<String>, Missing> {
    if let Some(field) = &from.field_ref {
        return field_value(&field.field_path, facts).map(Some);
    }
    if let Some(of) = &from.resource_field_ref {
        return resource_value(of, container, facts).map(Some);
    }
    let Some(((kind, name), key, optional)) = selector(from) else { return Ok(None) };
    let object = key_of(facts.pod, kind, name);
    let missing = match facts.objects.get(&object) {
        None if facts.objects.is_locked(&object) => return Err(Missing::Locked(object)),
        None => Missing::Object(object),
        Some(found) => match found.values.get(key) {
            Some(DataValue::Text(text)) => return Ok(Some(text.to_string())),
            Some(DataValue::Binary(_)) if kind == DataKind::Secret => {
                return Err(Missing::Binary { key: key.to_owned(), object });
            }
            _ => Missing::Key { key: key.to_owned(), object },
        },
    };
    if optional { Ok(None) } else { Err(missing) }
}

/// Returns the value of a `fieldRef`.
///
/// # Errors
/// Kubernetes does not support the field here, or the node has no address yet.
pub fn field_value(path: &str, facts: Facts<'_>) -> Result<String, Missing> {
    let (pod, metadata) = (facts.pod, &facts.pod.object.metadata);
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let of_map = |map: &Option<BTreeMap<String, String>>, key: &str| {
        map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default()
    };
    let first_host_ip = || facts.host_ips.first().cloned().ok_or(Missing::HostIp);
    Ok(match path {
        "metadata.name" => pod.name.name.to_string(),
        "metadata.namespace" => pod.name.namespace.to_string(),
        "metadata.uid" => pod.uid.to_string(),
        "spec.nodeName" => text(&pod.spec().node_name),
        "spec.serviceAccountName" => text(&pod.spec().service_account_name),
        "status.hostIP" => first_host_ip()?,
        "status.hostIPs" => first_host_ip().map(|_| facts.host_ips.join(","))?,
        // A pod on the host's network has the host's addresses. For any other pod without an address, the value is
        // empty, as in a kubelet.
        "status.podIP" if pod.host_network() => first_host_ip()?,
        "status.podIPs" if pod.host_network() => first_host_ip().map(|_| facts.host_ips.join(","))?,
        "status.podIP" => facts.ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => facts.ips.join(","),
        _ => match subscript(path) {
            Some(("metadata.labels", key)) => of_map(&metadata.labels, key),
            Some(("metadata.annotations", key)) => of_map(&metadata.annotations, key),
            _ => return Err(Missing::Field { path: path.to_owned() }),
        },
    })
}

/// Reports whether a `fieldRef` in the environment may have this path.
pub fn is_field(path: &str) -> bool {
    const PATHS: [&str; 9] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    let subscripted =
        matches!(subscript(path), Some(("metadata.labels" | "metadata.annotations", key)) if !key.is_empty());
    PATHS.contains(&path) || subscripted
}

/// Reports whether the environment of the container contains the node's address.
pub fn needs_host_ip(container: &k8s::Container, host_network: bool) -> bool {
    container.env.iter().flatten().filter_map(|e| e.value_from.as_ref()?.field_ref.as_ref()).any(|field| {
        let path = field.field_path.as_str();
        path.starts_with("status.hostIP") || host_network && path.starts_with("status.podIP")
    })
}

/// Splits `metadata.labels['key']` into (`metadata.labels`, `key`).
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

/// Returns the value of a `resourceFieldRef`: the amount divided by the divisor, rounded up. A container without a
/// limit has the node's allocatable resources as its limit.
///
/// # Errors
/// The container does not exist, or Kubernetes does not support the resource here.
pub fn resource_value(
    of: &k8s::ResourceFieldSelector,
    container: &k8s::Container,
    facts: Facts<'_>,
) -> Result<String, Missing> {
    let container = match of.container_name.as_deref().filter(|name| !name.is_empty()) {
        None => container,
        Some(name) => facts.pod.container(name).ok_or_else(|| Missing::Container { name: name.to_owned() })?,
    };
    let unsupported = || Missing::Resource { name: of.resource.clone() };
    let (list, resource) = of.resource.split_once('.').ok_or_else(unsupported)?;
    let lists = container.resources.as_ref();
    let amount = match list {
        "limits" => {
            let written = quantity::amount(lists.and_then(|l| l.limits.as_ref()), resource);
            let whole_node = match resource {
                CPU => Quantity::from_milli(facts.allocatable.get(CPU)),
                MEMORY | EPHEMERAL_STORAGE => Quantity::from_units(facts.allocatable.get(resource)),
                _ => Quantity::default(),
            };
            written.filter(|q| !q.is_zero()).unwrap_or(whole_node)
        }
        "requests" => quantity::amount(lists.and_then(|l| l.requests.as_ref()), resource).unwrap_or_default(),
        _ => return Err(unsupported()),
    };
    let divisor = of.divisor.as_ref().and_then(|q| Quantity::parse(&q.0).ok()).filter(|q| !q.is_zero());
    Ok(amount.divided_by(divisor.unwrap_or(Quantity::from_units(1))).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::data_object::{DataObject, DataObjects};
    use crate::api::document::context::Context;
    use crate::api::document::{self, Object};
    use crate::api::expand;
    use std::rc::Rc;

    const OBJECTS: &str = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {MODE: fast, REF: '$(MODE)'}, \
binaryData: {RAW: /w==}}
---
{apiVersion: v1, kind: Secret, metadata: {name: login}, data: {user: cm9vdA==, bin: /w==}, \
stringData: {password: hunter2}}
---
{apiVersion: v1, kind: Secret, metadata: {name: login, namespace: other}, stringData: {password: other}}
";

    fn objects() -> DataObjects {
        let (all, problems) = document::read_objects(OBJECTS.as_bytes(), "/m/o.yaml", Context::new("", ""));
        assert_eq!(problems, []);
        let data = |object| if let Object::Data(data) = object { Some(Rc::new(data)) } else { None };
        DataObjects::collect(all.into_iter().filter_map(data)).0
    }

    fn pod(container: &str) -> Pod {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, uid: u-1, labels: {{app: shop}}, \
             annotations: {{'a/b': note}}}}, \
             spec: {{serviceAccountName: robot, containers: [{{name: main, image: 'i:1', {container}}}]}}}}"
        );
        let (mut pods, problems) =
            document::read(text.as_bytes(), "/m/a.yaml", Context::new("lab", "2027-01-15T08:00:00Z"));
        assert_eq!(problems, []);
        pods.remove(0)
    }

    /// Returns the environment as `NAME=value`, joined with spaces, or the error.
    fn environment(container: &str) -> String {
        let (pod, objects) = (pod(container), objects());
        let allocatable = Resources::from([(CPU, 4000), (MEMORY, 8 << 30), (EPHEMERAL_STORAGE, 1000)]);
        let (ips, host_ips) = (["10.0.0.5".to_owned(), "fd00::5".to_owned()], ["192.0.2.7".to_owned()]);
        let facts = Facts {
            pod: &pod,
            ips: &ips,
            host_ips: &host_ips,
            allocatable: &allocatable,
            objects: &objects,
            services: None,
            cluster: None,
        };
        match variables(pod.at(0), facts) {
            Err(missing) => missing.to_string(),
            Ok(variables) => {
                let expanded = expand::process(&variables, pod.at(0)).unwrap();
                expanded.env.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
            }
        }
    }

    fn of_secret(name: &str, key: &str, more: &str) -> String {
        environment(&format!("env: [{{name: A, valueFrom: {{secretKeyRef: {{name: {name}, key: {key}{more}}}}}}}]"))
    }

    #[test]
    fn d6_env_replaces_env_from_and_only_written_values_are_expanded() {
        assert_eq!(
            environment(
                "envFrom: [{configMapRef: {name: settings}}, {prefix: S_, secretRef: {name: login}}], \
                 env: [{name: MODE, value: slow}, {name: ALL, value: '$(MODE) $(REF) $(S_user)'}]"
            ),
            "MODE=slow REF=$(MODE) S_password=hunter2 S_user=root ALL=slow $(MODE) root"
        );
    }

    #[test]
    fn d6_a_key_of_an_object_in_the_pods_namespace_is_a_value() {
        assert_eq!(of_secret("login", "password", ""), "A=hunter2");
        assert_eq!(of_secret("login", "nosuch", ""), "couldn't find key nosuch in Secret default/login");
        assert_eq!(of_secret("nosuch", "k", ""), "secret \"nosuch\" not found");
        assert_eq!(
            of_secret("login", "bin", ""),
            "the value of key bin in Secret default/login is not UTF-8 text; mount it as a volume"
        );
        assert_eq!(
            [of_secret("nosuch", "k", ", optional: true"), of_secret("login", "k", ", optional: true")],
            ["", ""]
        );
        assert_eq!(environment("envFrom: [{configMapRef: {name: nosuch}}]"), "configmap \"nosuch\" not found");
        assert_eq!(environment("envFrom: [{configMapRef: {name: nosuch, optional: true}}]"), "");
    }

    #[test]
    fn fields_of_the_pod_and_of_the_node_are_values() {
        for (path, expected) in [
            ("metadata.name", "web"),
            ("metadata.namespace", "default"),
            ("metadata.uid", "u-1"),
            ("metadata.labels['app']", "shop"),
            ("metadata.labels['nosuch']", ""),
            ("metadata.annotations['a/b']", "note"),
            ("spec.nodeName", "lab"),
            ("spec.serviceAccountName", "robot"),
            ("status.podIP", "10.0.0.5"),
            ("status.podIPs", "10.0.0.5,fd00::5"),
            ("status.hostIP", "192.0.2.7"),
            ("status.hostIPs", "192.0.2.7"),
        ] {
            let env = format!("env: [{{name: A, valueFrom: {{fieldRef: {{fieldPath: \"{path}\"}}}}}}]");
            assert_eq!(environment(&env), format!("A={expected}"), "{path}");
        }
    }

    #[test]
    fn resources_are_divided_and_rounded_up_and_the_node_is_the_limit_without_one() {
        for (resource, divisor, expected) in [
            ("limits.memory", "0", "67108864"),
            ("limits.memory", "1Mi", "64"),
            ("limits.cpu", "1", "1"),
            ("limits.cpu", "1m", "500"),
            ("requests.cpu", "1m", "100"),
            ("requests.ephemeral-storage", "1", "0"),
            ("limits.ephemeral-storage", "1", "1000"),
        ] {
            let env = format!(
                "resources: {{limits: {{cpu: 500m, memory: 64Mi}}, requests: {{cpu: 100m}}}}, \
                 env: [{{name: A, valueFrom: {{resourceFieldRef: {{resource: {resource}, divisor: '{divisor}'}}}}}}]"
            );
            assert_eq!(environment(&env), format!("A={expected}"), "{resource} {divisor}");
        }
        let unlimited = "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, containerName: main}}}]";
        assert_eq!(environment(unlimited), "A=4");
    }

    #[test]
    fn the_references_of_a_pod_are_its_objects() {
        let pod = pod(
            "envFrom: [{secretRef: {name: a}}], env: [{name: A, valueFrom: {configMapKeyRef: {name: b, key: k}}}, \
             {name: B}]",
        );
        let found: Vec<String> = references(&pod).map(|key| key.to_string()).collect();
        assert_eq!(found, ["Secret default/a", "ConfigMap default/b"]);
    }

    #[test]
    fn an_object_shows_no_value_in_debug_output() {
        let objects = objects();
        assert!(!format!("{objects:?}").contains("hunter2"));
        let _: Option<&DataObject> = objects.get(&DataKey { kind: DataKind::Secret, name: FullName::new("x", "y") });
    }
}
