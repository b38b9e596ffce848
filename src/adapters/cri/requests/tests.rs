//! Compares the built requests field by field with recorded requests of a kubelet for the same pods
//! (tests/fixtures/kubelet).

use super::*;
use crate::adapters::cri::proto;
use crate::api::cgroups::{CgroupDriver, CgroupNames};
use crate::api::data_object::DataObjects;
use crate::api::devices::{Allocated, DeviceNode};
use crate::api::environment::Facts;
use crate::api::expand;
use crate::api::facts::ImageFact;
use crate::api::k8s;
use crate::api::layout::Layout;
use crate::api::mount::{Access, ImageSource, Mount, MountSource, Propagation};
use crate::api::names::{FullName, SandboxId, Uid, annotation};
use crate::api::pod::Pod;
use crate::api::resources::{EPHEMERAL_STORAGE, Resources};
use crate::api::source::Source;
use crate::api::user_namespace::IdRange;
use crate::engine::effect::CreateContainer;
use crate::engine::pod::process;
use serde_json::{Map, Value, json};
use std::rc::Rc;

pub fn config() -> RequestConfig {
    RequestConfig {
        layout: Layout { root: "ROOT/root".into(), logs: "ROOT/podlogs".into(), log_links: None },
        cgroups: CgroupNames { root: "/labkubelet".into(), driver: CgroupDriver::Cgroupfs, per_qos: true },
        owner: "0123abcd".into(),
        cluster_dns: Vec::new(),
        cluster_domain: String::new(),
        host_dns: HostDns { servers: vec!["10.255.255.53".into()], ..HostDns::default() },
        seccomp_default: false,
        cpu_cfs_quota: true,
        cpu_cfs_period: 100_000,
        memory_capacity: 24 << 30,
        huge_page_sizes: vec![2 << 20, 1 << 30],
        oom_group: false,
        swap: Swap::WithMemory,
        masked_paths: Vec::new(),
        selinux: false,
    }
}

fn from_value(object: Value) -> Pod {
    let object: k8s::Pod = serde_json::from_value(object).unwrap();
    let m = &object.metadata;
    Pod {
        ephemeral: Vec::new(),
        uid: Uid::from(m.uid.as_deref().unwrap_or("u")),
        name: FullName::new(m.namespace.as_deref().unwrap_or("default"), m.name.as_deref().unwrap_or("p")),
        source: Source { path: "/m/p.yaml".into(), document: 1 },
        digest: String::new(),
        object,
    }
}

/// Returns a pod with this spec (JSON). Missing `containers` become an empty list.
pub fn pod(spec: &str) -> Pod {
    let mut spec: Value = serde_json::from_str(spec).unwrap();
    spec.as_object_mut().unwrap().entry("containers").or_insert(json!([]));
    from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec}))
}

fn image(uid: Option<i64>, username: &str) -> ImageFact {
    ImageFact {
        id: "sha256:9e7addc7b3c613078dfe42644f6e097a3077e71ea5719ae3402430ee8aadf348".into(),
        uid,
        username: username.into(),
        size: 0,
    }
}

fn create(pod: Rc<Pod>, container: &str, attempt: u32) -> CreateContainer {
    let spec = pod.container(container);
    let process = spec.map(|c| expand::container(c).unwrap()).unwrap_or_default();
    CreateContainer {
        pod,
        container: container.into(),
        sandbox: SandboxId::from("s"),
        sandbox_attempt: 0,

        user_namespace: None,
        attempt,
        backoff_level: 0,
        boot: Some(0xff),
        image: image(None, ""),
        ips: Vec::new(),
        process,
        mounts: Vec::new(),
        devices: Default::default(),
        target: None,
    }
}

#[test]
fn w29_an_ephemeral_container_shares_the_process_ids_of_its_target() {
    let debugger = json!([{
        "name": "d", "image": "i", "targetContainerName": "main", "stdin": true, "tty": true,
        "securityContext": { "privileged": true },
    }]);
    for (spec, mode, target) in [
        ("{}", proto::NamespaceMode::TARGET, "c1"),
        (r#"{"shareProcessNamespace": true}"#, proto::NamespaceMode::POD, ""),
        (r#"{"hostPID": true}"#, proto::NamespaceMode::NODE, ""),
    ] {
        let pod = pod(spec).with_ephemeral(serde_json::from_value(debugger.clone()).unwrap());
        let mut create = create(Rc::new(pod), "d", 0);
        create.target = Some("c1".into());
        let made = container_config(&create, &config()).unwrap();
        assert!(made.stdin && made.tty && made.log_path == "d/0.log");
        let context = &made.linux.security_context;
        let namespaces = &context.namespace_options;
        assert_eq!((namespaces.pid, namespaces.target_id.as_str()), (mode.into(), target), "{spec}");
        // containerd permits a privileged container only with a privileged configuration of the sandbox.
        let sandbox = security::sandbox(&create.pod, None);
        assert!(context.privileged && sandbox.privileged && sandbox.namespace_options.target_id.is_empty());
        create.target = None;
        let made = container_config(&create, &config()).unwrap();
        assert_ne!(made.linux.security_context.namespace_options.pid, proto::NamespaceMode::TARGET.into());
    }
}

#[test]
fn g3_a_container_gets_the_nodes_annotations_and_cdi_devices_of_its_plugins() {
    let spec = r#"{"terminationGracePeriodSeconds": 7, "containers": [{"name": "main", "image": "i"}]}"#;
    let mut create = create(Rc::new(pod(spec)), "main", 0);
    let node =
        DeviceNode { container_path: "/dev/cam".into(), host_path: "/dev/video0".into(), permissions: "rw".into() };
    create.devices = Allocated {
        nodes: vec![node],
        annotations: [("v.io/slot", "3"), (annotation::GRACE_PERIOD, "0")].map(|(k, v)| (k.into(), v.into())).into(),
        cdi: vec!["v.io/cam=0".into()],
        ..Default::default()
    };
    let config = container_config(&create, &config()).unwrap();
    let [device] = config.devices.as_slice() else { panic!("{:?}", config.devices) };
    assert_eq!(
        (device.container_path.as_str(), device.host_path.as_str(), device.permissions.as_str()),
        ("/dev/cam", "/dev/video0", "rw")
    );
    assert_eq!(config.annotations["v.io/slot"], "3");
    assert_eq!(config.annotations[annotation::GRACE_PERIOD], "7", "a plugin replaces no annotation of Wherry");
    // On the wire: field 17, which contains field 1, as in the CRI's v1.
    let wire = protobuf::Message::write_to_bytes(&config).unwrap();
    let field = [&[0x8a, 0x01, 12, 0x0a, 10][..], b"v.io/cam=0"].concat();
    assert!(wire.windows(field.len()).any(|w| w == field), "{wire:?}");
}

fn build(spec: &str, cfg: &RequestConfig) -> Result<proto::LinuxContainerSecurityContext, String> {
    let c = container_config(&create(Rc::new(pod(spec)), "main", 0), cfg)?;
    Ok(c.linux.security_context.clone().unwrap())
}

/// Returns an object without empty fields, as the runtime reports its configs.
fn object(fields: Vec<(&str, Value)>) -> Value {
    let empty = |v: &Value| match v {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_i64() == Some(0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(_) => false,
    };
    Value::Object(fields.into_iter().filter(|(_, v)| !empty(v)).map(|(k, v)| (k.to_owned(), v)).collect())
}

fn map(m: &std::collections::BTreeMap<String, String>) -> Value {
    if m.is_empty() { Value::Null } else { json!(m) }
}

fn some<T>(m: &protobuf::MessageField<T>, f: impl Fn(&T) -> Value) -> Value {
    m.as_ref().map_or(Value::Null, f)
}

fn number(m: &protobuf::MessageField<proto::Int64Value>) -> Value {
    some(m, |v| object(vec![("value", json!(v.value))]))
}

fn seccomp(m: &protobuf::MessageField<proto::SecurityProfile>) -> Value {
    some(m, |s| {
        object(vec![("profile_type", json!(s.profile_type.value())), ("localhost_ref", json!(s.localhost_ref))])
    })
}

fn namespaces(m: &protobuf::MessageField<proto::NamespaceOption>) -> Value {
    some(m, |n| {
        let (network, pid, ipc) = (n.network.value(), n.pid.value(), n.ipc.value());
        object(vec![("network", json!(network)), ("pid", json!(pid)), ("ipc", json!(ipc))])
    })
}

fn resources(r: &proto::LinuxContainerResources) -> Value {
    let pages = r.hugepage_limits.iter();
    let pages: Vec<_> =
        pages.map(|h| object(vec![("page_size", json!(h.page_size)), ("limit", json!(h.limit))])).collect();
    object(vec![
        ("cpu_period", json!(r.cpu_period)),
        ("cpu_quota", json!(r.cpu_quota)),
        ("cpu_shares", json!(r.cpu_shares)),
        ("memory_limit_in_bytes", json!(r.memory_limit_in_bytes)),
        ("memory_swap_limit_in_bytes", json!(r.memory_swap_limit_in_bytes)),
        ("oom_score_adj", json!(r.oom_score_adj)),
        ("hugepage_limits", json!(pages)),
        ("unified", map(&r.unified)),
    ])
}

fn sandbox_json(c: &proto::PodSandboxConfig) -> Value {
    let ports = c.port_mappings.iter().map(|p| {
        object(vec![
            ("protocol", json!(p.protocol.value())),
            ("container_port", json!(p.container_port)),
            ("host_port", json!(p.host_port)),
            ("host_ip", json!(p.host_ip)),
        ])
    });
    let metadata = some(&c.metadata, |m| {
        object(vec![
            ("name", json!(m.name)),
            ("uid", json!(m.uid)),
            ("namespace", json!(m.namespace)),
            ("attempt", json!(m.attempt)),
        ])
    });
    let dns = some(&c.dns_config, |d| {
        object(vec![("servers", json!(d.servers)), ("searches", json!(d.searches)), ("options", json!(d.options))])
    });
    let linux = some(&c.linux, |l| {
        let security = some(&l.security_context, |s| {
            object(vec![
                ("namespace_options", namespaces(&s.namespace_options)),
                ("run_as_user", number(&s.run_as_user)),
                ("run_as_group", number(&s.run_as_group)),
                ("supplemental_groups", json!(s.supplemental_groups)),
                ("privileged", json!(s.privileged)),
                ("seccomp", seccomp(&s.seccomp)),
            ])
        });
        object(vec![
            ("cgroup_parent", json!(l.cgroup_parent)),
            ("overhead", some(&l.overhead, resources)),
            ("resources", some(&l.resources, resources)),
            ("security_context", security),
            ("sysctls", map(&l.sysctls)),
        ])
    });
    object(vec![
        ("annotations", map(&c.annotations)),
        ("labels", map(&c.labels)),
        ("hostname", json!(c.hostname)),
        ("log_directory", json!(c.log_directory)),
        ("metadata", metadata),
        ("dns_config", dns),
        ("port_mappings", json!(ports.collect::<Vec<_>>())),
        ("linux", linux),
    ])
}

fn container_json(c: &proto::ContainerConfig) -> Value {
    let envs = c.envs.iter().map(|e| object(vec![("key", json!(e.key)), ("value", json!(e.value))]));
    let mounts = c.mounts.iter().map(|m| {
        object(vec![
            ("container_path", json!(m.container_path)),
            ("host_path", json!(m.host_path)),
            ("readonly", json!(m.readonly)),
        ])
    });
    let linux = some(&c.linux, |l| {
        let security = some(&l.security_context, |s| {
            let capabilities = some(&s.capabilities, |c| {
                object(vec![
                    ("add_capabilities", json!(c.add_capabilities)),
                    ("drop_capabilities", json!(c.drop_capabilities)),
                ])
            });
            object(vec![
                ("capabilities", capabilities),
                ("privileged", json!(s.privileged)),
                ("namespace_options", namespaces(&s.namespace_options)),
                ("run_as_user", number(&s.run_as_user)),
                ("run_as_group", number(&s.run_as_group)),
                ("run_as_username", json!(s.run_as_username)),
                ("readonly_rootfs", json!(s.readonly_rootfs)),
                ("supplemental_groups", json!(s.supplemental_groups)),
                ("no_new_privs", json!(s.no_new_privs)),
                ("masked_paths", json!(s.masked_paths)),
                ("readonly_paths", json!(s.readonly_paths)),
                ("seccomp", seccomp(&s.seccomp)),
            ])
        });
        object(vec![("resources", some(&l.resources, resources)), ("security_context", security)])
    });
    let metadata = some(&c.metadata, |m| object(vec![("name", json!(m.name)), ("attempt", json!(m.attempt))]));
    object(vec![
        ("annotations", map(&c.annotations)),
        ("labels", map(&c.labels)),
        ("metadata", metadata),
        ("image", some(&c.image, |i| object(vec![("image", json!(i.image))]))),
        ("command", json!(c.command)),
        ("args", json!(c.args)),
        ("working_dir", json!(c.working_dir)),
        ("envs", json!(envs.collect::<Vec<_>>())),
        ("mounts", json!(mounts.collect::<Vec<_>>())),
        ("log_path", json!(c.log_path)),
        ("stdin", json!(c.stdin)),
        ("stdin_once", json!(c.stdin_once)),
        ("tty", json!(c.tty)),
        ("linux", linux),
    ])
}

/// Removes Wherry's own annotations, checks the owner, and returns them.
fn own_annotations(config: &mut Value) -> Map<String, Value> {
    let all = config["annotations"].as_object_mut().unwrap();
    let own: Vec<String> = all.keys().filter(|k| k.starts_with("io.wherry.")).cloned().collect();
    let own: Map<String, Value> = own.into_iter().filter_map(|k| all.remove_entry(&k)).collect();
    assert_eq!(own["io.wherry.owner"], "0123abcd");
    own
}

fn sort_envs(config: &mut Value) {
    if let Some(envs) = config.get_mut("envs").and_then(Value::as_array_mut) {
        envs.sort_by_key(|e| e["key"].to_string());
    }
}

fn compare(name: &str) {
    let file = format!("{}/tests/fixtures/kubelet/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let recorded: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let pod = Rc::new(from_value(recorded["pod"].clone()));
    let cfg = config();
    // The addresses of the recorded machine.
    let (ips, host_ips) = (["10.97.0.66".to_owned()], ["192.0.2.2".to_owned()]);
    let allocatable = Resources::from([(EPHEMERAL_STORAGE, 267_847_642_337)]);
    let objects = DataObjects::default();
    let facts = Facts {
        pod: &pod,
        ips: &ips,
        host_ips: &host_ips,
        allocatable: &allocatable,
        objects: &objects,
        services: None,
        cluster: None,
    };

    let mut ours = sandbox_json(&sandbox_config(&pod, 0, None, &cfg).unwrap());
    let own = own_annotations(&mut ours);
    assert_eq!(own["io.wherry.pod.terminationGracePeriod"], pod.grace_period().as_secs().to_string());
    // The recorded pod contains the kubelet's own times and digests, so no other field differs.
    similar(&format!("{name} sandbox"), ours, recorded["sandbox"].clone());

    for recorded in recorded["containers"].as_array().unwrap() {
        let metadata = &recorded["metadata"];
        let container = metadata["name"].as_str().unwrap();
        let attempt = metadata["attempt"].as_u64().unwrap_or(0) as u32;
        let mut call = create(pod.clone(), container, attempt);
        call.process = process::of(pod.container(container).unwrap(), facts).unwrap();
        call.mounts = recorded["mounts"].as_array().unwrap().iter().map(recorded_mount).collect();
        let mut ours = container_json(&container_config(&call, &cfg).unwrap());
        let own = own_annotations(&mut ours);
        assert_eq!(own["io.wherry.container.backoffLevel"], "0");
        assert_eq!(own["io.wherry.container.boot"], "ff");
        let mut recorded = recorded.clone();
        sort_envs(&mut ours);
        sort_envs(&mut recorded);
        similar(&format!("{name} {container}"), ours, recorded);
    }
}

fn recorded_mount(mount: &Value) -> Mount {
    let path = |field: &str| mount[field].as_str().unwrap().to_owned();
    Mount::writable(path("container_path"), path("host_path"))
}

fn similar(what: &str, ours: Value, recorded: Value) {
    assert!(ours == recorded, "{what}\nours:     {ours}\nrecorded: {recorded}");
}

#[test]
fn requests_are_those_recorded_of_a_kubelet() {
    for name in [
        "01-plain",
        "02-two",
        "07-cmd-notfound",
        "08-oom",
        "09a-qos-burstable",
        "09b-qos-guaranteed",
        "10-hostnet",
        "11a-secctx",
        "12-env",
        "13a-termmsg-file",
        "15a-init-ok",
        "20b-hostaliases",
        "21-sharepid",
    ] {
        compare(name);
    }
}

#[test]
fn fs_group_precedes_supplemental_groups_in_sandbox_and_container() {
    let spec = r#"{"securityContext":{"fsGroup":3000,"supplementalGroups":[4000],
        "sysctls":[{"name":"net.x","value":"1"}]},
        "containers":[{"name":"main"}]}"#;
    let p = pod(spec);
    let s = sandbox_config(&p, 2, None, &config()).unwrap();
    let linux = s.linux.clone().unwrap();
    assert_eq!(linux.security_context.supplemental_groups, [3000, 4000]);
    assert_eq!(linux.sysctls["net.x"], "1");
    assert_eq!(s.metadata.attempt, 2);
    assert_eq!(build(spec, &config()).unwrap().supplemental_groups, [3000, 4000]);
}

#[test]
fn a_privileged_container_makes_the_sandbox_privileged() {
    let spec = r#"{"containers":[{"name":"main","securityContext":{"privileged":true}}]}"#;
    assert!(sandbox_config(&pod(spec), 0, None, &config()).unwrap().linux.security_context.privileged);
    assert!(build(spec, &config()).unwrap().privileged);
}

#[test]
fn the_containers_context_wins_over_the_pods_and_both_over_the_images_user() {
    let cfg = config();
    let pod_only = r#"{"securityContext":{"runAsUser":1,"runAsGroup":2},"containers":[{"name":"main"}]}"#;
    let sc = build(pod_only, &cfg).unwrap();
    assert_eq!((sc.run_as_user.value, sc.run_as_group.value), (1, 2));
    let both = r#"{"securityContext":{"runAsUser":1,"runAsGroup":2},
        "containers":[{"name":"main","securityContext":{"runAsUser":7}}]}"#;
    let sc = build(both, &cfg).unwrap();
    assert_eq!((sc.run_as_user.value, sc.run_as_group.value), (7, 2));

    let p = Rc::new(pod(r#"{"containers":[{"name":"main"}]}"#));
    let user = |image: ImageFact| {
        let mut call = create(p.clone(), "main", 0);
        call.image = image;
        let sc = container_config(&call, &cfg).unwrap().linux.security_context.clone().unwrap();
        (sc.run_as_user.as_ref().map(|u| u.value), sc.run_as_username)
    };
    assert_eq!(user(image(Some(5), "")), (Some(5), String::new()));
    assert_eq!(user(image(None, "www")), (None, "www".to_owned()));
    assert_eq!(user(image(None, "")), (Some(0), String::new()));
}

#[test]
fn seccomp_profiles_follow_container_pod_and_node() {
    use proto::security_profile::ProfileType;
    let mut cfg = config();
    let profile = |spec: &str, cfg: &RequestConfig| {
        let s = build(spec, cfg).unwrap().seccomp.unwrap();
        (s.profile_type.unwrap(), s.localhost_ref)
    };
    let none = r#"{"containers":[{"name":"main"}]}"#;
    assert_eq!(profile(none, &cfg).0, ProfileType::Unconfined);
    cfg.seccomp_default = true;
    assert_eq!(profile(none, &cfg).0, ProfileType::RuntimeDefault);
    let local = r#"{"securityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":"a/b.json"}},
        "containers":[{"name":"main"}]}"#;
    assert_eq!(profile(local, &cfg), (ProfileType::Localhost, "ROOT/root/seccomp/a/b.json".to_owned()));
    let out = local.replace("a/b.json", "../b.json");
    assert!(build(&out, &cfg).is_err_and(|e| e.contains("localhostProfile")));
}

#[test]
fn a_container_that_the_pod_does_not_have_is_an_error() {
    let cfg = config();
    let p = Rc::new(pod(r#"{"containers":[{"name":"main"}]}"#));
    assert!(container_config(&create(p, "other", 0), &cfg).is_err());
}

#[test]
fn thousands_of_ports_and_options_are_sent_once_each_and_in_order() {
    let port = |i: usize| json!({"containerPort": i % 3000 + 1, "protocol": "TCP"});
    let ports: Vec<Value> = (0..6000).map(port).collect();
    let option = |i: usize| json!({"name": format!("o{}", i % 3000), "value": i.to_string()});
    let options: Vec<Value> = (0..6000).map(option).collect();
    let spec = json!({"dnsConfig": {"options": options}, "containers": [{"name": "main", "ports": ports}]});
    let sandbox = sandbox_config(&pod(&spec.to_string()), 0, None, &config()).unwrap();
    let ports: Vec<i32> = sandbox.port_mappings.iter().map(|p| p.container_port).collect();
    assert_eq!(ports, (1..=3000).collect::<Vec<i32>>());
    let options: Vec<String> = (0..3000).map(|i| format!("o{i}:{}", i + 3000)).collect();
    assert_eq!(sandbox.dns_config.options, options);
}

#[test]
fn huge_pages_and_node_settings_reach_the_resources() {
    let mut cfg = config();
    cfg.cpu_cfs_quota = false;
    cfg.oom_group = true;
    let spec =
        r#"{"containers":[{"name":"main","resources":{"limits":{"cpu":"1","memory":"1Gi","hugepages-2Mi":"4Mi"}}}]}"#;
    let c = container_config(&create(Rc::new(pod(spec)), "main", 0), &cfg).unwrap();
    let r = c.linux.resources.clone().unwrap();
    assert_eq!((r.cpu_period, r.cpu_quota, r.cpu_shares), (0, 0, 1024));
    assert_eq!(r.hugepage_limits.iter().map(|h| h.limit).collect::<Vec<_>>(), [4 << 20, 0]);
    assert_eq!(r.unified["memory.oom.group"], "1");
    assert_eq!(r.oom_score_adj, -997);
}

#[test]
fn a_container_without_a_limit_has_that_of_its_pod() {
    let spec = r#"{"resources":{"requests":{"memory":"2Gi"},"limits":{"cpu":"2","memory":"4Gi"}},
        "containers":[{"name":"main"},
        {"name":"own","resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"1Gi"}}}]}"#;
    let of = |name: &str| container_config(&create(Rc::new(pod(spec)), name, 0), &config()).unwrap();
    let (main, own) = (of("main").linux.resources.clone().unwrap(), of("own").linux.resources.clone().unwrap());
    assert_eq!((main.memory_limit_in_bytes, main.cpu_quota, main.cpu_shares), (4 << 30, 200_000, 2048));
    assert_eq!((own.memory_limit_in_bytes, own.cpu_quota), (1 << 30, 200_000));
    // Each container has half of the GiB that no container requests.
    let score = |request: u64| 1000 - i64::try_from(request * 1000 / config().memory_capacity).unwrap();
    assert_eq!((main.oom_score_adj, own.oom_score_adj), (score(1 << 29), score(3 << 29)));
}

#[test]
fn a_container_without_huge_pages_has_those_of_its_pod_or_none() {
    let of = |pod_limits: &str, limits: &str| {
        let spec = format!(
            r#"{{"resources":{{"limits":{pod_limits}}},
            "containers":[{{"name":"main","resources":{{"limits":{limits}}}}}]}}"#
        );
        let c = container_config(&create(Rc::new(pod(&spec)), "main", 0), &config()).unwrap();
        c.linux.resources.hugepage_limits.iter().map(|h| (h.page_size.clone(), h.limit)).collect::<Vec<_>>()
    };
    let limits = |two: u64, one: u64| [("2MB".to_owned(), two << 20), ("1GB".to_owned(), one << 30)];
    assert_eq!(of("{}", "{}"), limits(0, 0));
    assert_eq!(of("{}", r#"{"hugepages-2Mi":"4Mi"}"#), limits(4, 0));
    assert_eq!(of(r#"{"hugepages-2Mi":"8Mi","hugepages-1Gi":"2Gi"}"#, "{}"), limits(8, 2));
    // The limit of the container applies, even if it is 0.
    assert_eq!(of(r#"{"hugepages-2Mi":"8Mi"}"#, r#"{"hugepages-2Mi":"4Mi"}"#), limits(4, 0));
    assert_eq!(of(r#"{"hugepages-2048Ki":"8Mi","hugepages-1Gi":"2Gi"}"#, r#"{"hugepages-2Mi":"0"}"#), limits(0, 2));
}

#[test]
fn a_container_swaps_only_in_a_cgroup_of_v2_if_the_node_permits_it() {
    let of = |swap: Swap, spec: &str| {
        let cfg = RequestConfig { swap, ..config() };
        let c = container_config(&create(Rc::new(pod(spec)), "main", 0), &cfg).unwrap();
        let r = c.linux.resources.clone().unwrap();
        (r.memory_swap_limit_in_bytes, r.unified.get("memory.swap.max").cloned())
    };
    let with = |rest: &str, requests: &str, limits: &str| {
        let resources = format!(r#"{{"requests":{{{requests}}},"limits":{{{limits}}}}}"#);
        format!(r#"{{{rest}"containers":[{{"name":"main","resources":{resources}}}]}}"#)
    };
    let unified = |bytes: u64| (0, Some(bytes.to_string()));
    let (idle, limited) = (with("", "", ""), with("", "", r#""memory":"1Gi""#));
    assert_eq!((of(Swap::WithMemory, &idle), of(Swap::WithMemory, &limited)), ((0, None), (1 << 30, None)));
    assert_eq!((of(Swap::Unlimited, &idle), of(Swap::Unlimited, &limited)), ((0, None), (0, None)));
    let burstable = with("", r#""memory":"3Gi""#, r#""memory":"6Gi""#);
    for spec in [&idle, &limited, &burstable] {
        assert_eq!(of(Swap::Unified { for_pods: 0 }, spec), unified(0), "{spec}");
    }
    // 3 of the 24 GiB of memory give an eighth of the swap.
    let swap = Swap::Unified { for_pods: 8 << 30 };
    assert_eq!(of(swap, &burstable), unified(1 << 30));
    assert_eq!(of(swap, &with("", r#""memory":"3Gi""#, "")), unified(1 << 30));
    let critical = r#""priorityClassName":"system-node-critical","#;
    for spec in [
        idle,
        limited,
        with("", r#""memory":"3Gi""#, r#""memory":"3Gi""#),
        with("", r#""cpu":"1""#, r#""memory":"3Gi""#),
        with("", r#""cpu":"1""#, ""),
        with(critical, r#""memory":"3Gi""#, ""),
        with(r#""priority":2000000000,"#, r#""memory":"3Gi""#, ""),
    ] {
        assert_eq!(of(swap, &spec), unified(0), "{spec}");
    }
}

#[test]
fn the_paths_of_the_machine_are_masked_too() {
    let of = |context: &str| {
        let cfg = RequestConfig { masked_paths: vec!["/sys/devices/x".into()], ..config() };
        let spec = format!(r#"{{"hostUsers":false,"containers":[{{"name":"main","securityContext":{context}}}]}}"#);
        build(&spec, &cfg).unwrap().masked_paths
    };
    assert_eq!(of("{}").last().map(String::as_str), Some("/sys/devices/x"));
    assert!(of("{}").contains(&"/proc/kcore".to_owned()));
    assert_eq!(of(r#"{"procMount":"Unmasked"}"#), [""; 0]);
}

#[test]
fn small_cpu_limits_are_raised_to_the_kernels_least() {
    let spec = r#"{"containers":[{"name":"main","resources":{"requests":{"cpu":"1m"},"limits":{"cpu":"5m"}}}]}"#;
    let c = container_config(&create(Rc::new(pod(spec)), "main", 0), &config()).unwrap();
    assert_eq!((c.linux.resources.cpu_shares, c.linux.resources.cpu_quota), (2, 1000));
}

#[test]
fn w21_a_pre_stop_handler_is_on_its_container_as_a_kubelet_writes_it() {
    let exec = r#"{"exec":{"command":["sh","-c","date +pre.%s >>/h/log"]}}"#;
    let with = format!(r#"{{"containers":[{{"name":"main","image":"i:1","lifecycle":{{"preStop":{exec}}}}}]}}"#);
    let without = r#"{"containers":[{"name":"main","image":"i:1"}]}"#;
    let annotation = |spec: &str| {
        let made = super::container_config(&create(Rc::new(pod(spec)), "main", 0), &config()).unwrap();
        made.annotations.get(crate::api::names::annotation::PRE_STOP).cloned()
    };
    let recorded = r#"{"exec":{"command":["sh","-c","date +pre.%s \u003e\u003e/h/log"]}}"#;
    assert_eq!(annotation(&with).as_deref(), Some(recorded));
    assert_eq!(annotation(without), None);
}

#[test]
fn a_mount_says_what_the_container_may_do_and_how_mounts_propagate() {
    let create = |access, propagation| {
        let mount = Mount { access, propagation, ..Mount::writable("/c", "/h") };
        super::container::mount(&mount, None, &config())
    };
    let seen = |mount: &proto::Mount| (mount.readonly, mount.recursive_read_only, mount.propagation.value());
    for (access, propagation, wanted) in [
        (Access::ReadWrite, Propagation::Private, (false, false, 0)),
        (Access::ReadOnly, Propagation::HostToContainer, (true, false, 1)),
        (Access::RecursiveReadOnly, Propagation::Bidirectional, (true, true, 2)),
    ] {
        assert_eq!(seen(&create(access, propagation)), wanted);
    }
    // SELinux: only Wherry's own files get the label of the container.
    for (owned, selinux, relabelled) in [(true, false, false), (false, true, false), (true, true, true)] {
        let mount = Mount { owned, ..Mount::writable("/c", "/h") };
        let cfg = RequestConfig { selinux, ..config() };
        assert_eq!(super::container::mount(&mount, None, &cfg).selinux_relabel, relabelled);
    }
}

#[test]
fn w28_a_user_namespace_is_in_the_sandbox_in_its_containers_and_in_their_mounts() {
    let range = IdRange::from_text("131072").unwrap();
    let spec = r#"{"hostUsers": false, "containers": [{"name": "main", "image": "i"}]}"#;
    let mut call = create(Rc::new(pod(spec)), "main", 0);
    call.user_namespace = Some(range);
    let image = ImageSource { reference: "m:1".into(), id: "sha256:1".into(), sub_path: "part".into() };
    let image = Mount { source: MountSource::Image(image), ..Mount::writable("/m", "") };
    call.mounts = vec![Mount::writable("/c", "/h"), image];
    let container = container_config(&call, &config()).unwrap();
    let sandbox = sandbox_config(&call.pod, 0, Some(range), &config()).unwrap();
    assert_eq!(sandbox.annotations["io.wherry.pod.userNamespace"], "131072");
    let ids = |list: &[proto::IDMapping]| -> Vec<_> {
        list.iter().map(|ids| (ids.host_id, ids.container_id, ids.length)).collect()
    };
    let expected = [(131_072, 0, 65_536)];
    let of_sandbox = &sandbox.linux.security_context.namespace_options.userns_options;
    for options in [of_sandbox, &container.linux.security_context.namespace_options.userns_options] {
        assert_eq!(options.mode, proto::NamespaceMode::POD.into());
        assert_eq!((ids(&options.uids), ids(&options.gids)), (expected.to_vec(), expected.to_vec()));
    }
    let [files, image] = &container.mounts[..] else { panic!("two mounts") };
    assert_eq!((ids(&files.uidMappings), ids(&files.gidMappings)), (expected.to_vec(), expected.to_vec()));
    assert_eq!((image.image.image.as_str(), image.image_sub_path.as_str()), ("sha256:1", "part"));
    assert_eq!((image.host_path.as_str(), image.uidMappings.len()), ("", 0));
    let plain =
        sandbox_config(&pod(r#"{"containers": [{"name": "main", "image": "i"}]}"#), 0, None, &config()).unwrap();
    assert!(plain.linux.security_context.namespace_options.userns_options.is_none());
}

#[test]
fn a_stop_signal_has_its_number() {
    let spec = r#"{"os": {"name": "linux"}, "containers": [
        {"name": "main", "image": "i", "lifecycle": {"stopSignal": "SIGUSR1"}}, {"name": "other", "image": "i"}]}"#;
    let of = |name: &str| container_config(&create(Rc::new(pod(spec)), name, 0), &config()).unwrap().stop_signal;
    assert_eq!((of("main"), of("other")), (29, 0));
}
