use super::*;
use crate::api::defaults;
use crate::api::document::context::Context;
use crate::api::names::{FullName, Uid};
use crate::api::reason::Reason;
use crate::api::source::Source;
use crate::api::taints::NoExecute;
use serde_json::{Value, json};

/// Makes a defaulted pod with this spec, on the node `lab`.
pub(in super::super) fn pod(spec: Value) -> Pod {
    let mut object = serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap();
    let uid = Uid::from("u");
    defaults::apply(&mut object, &uid, Context::new("lab", "now"));
    let source = Source { path: String::new(), document: 1 };
    Pod { uid, name: FullName::new("default", "p"), source, digest: String::new(), object, ephemeral: Vec::new() }
}

fn node() -> NodeFacts {
    let labels = [("disk", "hdd"), ("cores", "8"), ("zone", "a"), ("empty", ""), ("kubernetes.io/os", "linux")];
    NodeFacts {
        name: "lab".to_owned(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        allowed_unsafe_sysctls: vec!["net.core.*".to_owned(), "kernel.msgmax".to_owned()],
        ..NodeFacts::default()
    }
}

fn found(spec: Value) -> Vec<(String, String)> {
    against(&pod(spec), &node()).into_iter().map(|r| (r.reason.to_string(), r.message)).collect()
}

/// Returns the detail of the only refusal, after the kubelet's message; empty if there is none.
fn detail(spec: Value, reason: &str, words: &str) -> String {
    match &found(spec)[..] {
        [] => String::new(),
        [(found, message)] => {
            assert_eq!(found, reason);
            message.strip_prefix(words).and_then(|rest| rest.strip_prefix(": ")).unwrap().to_owned()
        }
        more => panic!("{more:?}"),
    }
}

const AFFINITY: &str = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";

fn terms(terms: Value) -> String {
    let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
    detail(json!({ "affinity": { "nodeAffinity": required }, "containers": [] }), "NodeAffinity", AFFINITY)
}

#[test]
fn a2_a_pod_of_another_operating_system_is_not_for_this_node() {
    let words = "Failed to admit pod as the OS field doesn't match node OS";
    let of = |os: Value| detail(json!({ "os": os, "containers": [] }), "PodOSNotSupported", words);
    assert_eq!(of(json!(null)), "");
    assert_eq!(of(json!({ "name": "linux" })), "");
    assert_eq!(of(json!({ "name": "windows" })), "spec.os.name is \"windows\", this node runs linux");
}

#[test]
fn a2_each_label_of_a_node_selector_has_to_be_there() {
    let of = |selector: Value| detail(json!({ "nodeSelector": selector, "containers": [] }), "NodeAffinity", AFFINITY);
    for (selector, wanted) in [
        (json!({}), ""),
        (json!({ "disk": "hdd" }), ""),
        (json!({ "disk": "hdd", "zone": "a", "empty": "" }), ""),
        (json!({ "disk": "ssd" }), "nodeSelector disk=ssd: the node has disk=hdd"),
        (json!({ "gpu": "" }), "nodeSelector gpu=: the node has no gpu"),
        (
            json!({ "disk": "ssd", "gpu": "yes", "zone": "a" }),
            "nodeSelector disk=ssd: the node has disk=hdd; nodeSelector gpu=yes: the node has no gpu",
        ),
    ] {
        assert_eq!(of(selector.clone()), wanted, "{selector}");
    }
}

#[test]
fn a2_each_operator_of_node_affinity() {
    let unknown = "such a requirement matches no node";
    for (key, operator, values, wanted) in [
        ("zone", "In", &["a"][..], ""),
        ("zone", "In", &["b", "a"], ""),
        ("zone", "In", &["b", "c"], "[b c]: the node has zone=a"),
        ("gpu", "In", &["a"], "[a]: the node has no gpu"),
        ("gpu", "In", &[""], "[]: the node has no gpu"),
        ("empty", "In", &[""], ""),
        ("zone", "NotIn", &["b"], ""),
        ("zone", "NotIn", &["b", "a"], "[b a]: the node has zone=a"),
        ("gpu", "NotIn", &["a"], ""),
        ("zone", "Exists", &[], ""),
        ("empty", "Exists", &[], ""),
        ("gpu", "Exists", &[], "[]: the node has no gpu"),
        ("gpu", "DoesNotExist", &[], ""),
        ("zone", "DoesNotExist", &[], "[]: the node has zone=a"),
        ("cores", "Gt", &["7"], ""),
        ("cores", "Gt", &["8"], "[8]: the node has cores=8"),
        ("cores", "Gt", &["-9"], ""),
        ("cores", "Lt", &["9"], ""),
        ("cores", "Lt", &["10"], ""),
        ("cores", "Lt", &["8"], "[8]: the node has cores=8"),
        ("zone", "Gt", &["7"], "[7]: the node has zone=a"),
        ("zone", "Lt", &["7"], "[7]: the node has zone=a"),
        ("gpu", "Gt", &["0"], "[0]: the node has no gpu"),
        ("gpu", "Lt", &["0"], "[0]: the node has no gpu"),
        // An invalid requirement matches nothing, not even a negated one.
        ("zone", "In", &[], unknown),
        ("zone", "NotIn", &[], unknown),
        ("zone", "Exists", &["a"], unknown),
        ("gpu", "DoesNotExist", &["a"], unknown),
        ("cores", "Gt", &["1", "2"], unknown),
        ("cores", "Gt", &["1.5"], unknown),
        ("cores", "Lt", &["99999999999999999999"], unknown),
        ("cores", "Lt", &[], unknown),
        ("zone", "in", &["a"], unknown),
        ("zone", "", &[], unknown),
    ] {
        let said = terms(json!([{ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }]));
        let beginning = format!("nodeSelectorTerms[0] {key} {operator} [");
        match wanted {
            "" => assert_eq!(said, "", "{key} {operator} {values:?}"),
            _ => assert!(said.starts_with(&beginning) && said.ends_with(wanted), "{key} {operator} {values:?}: {said}"),
        }
    }
    let without_values = terms(json!([{ "matchExpressions": [{ "key": "gpu", "operator": "Exists" }] }]));
    assert_eq!(without_values, "nodeSelectorTerms[0] gpu Exists: the node has no gpu");
}

#[test]
fn a2_of_the_terms_one_has_to_hold_and_of_a_term_all_requirements() {
    let zone = |zone: &str| json!({ "key": "zone", "operator": "In", "values": [zone] });
    let name =
        |operator: &str, names: &[&str]| json!({ "key": "metadata.name", "operator": operator, "values": names });
    let lacks_b = "zone In [b]: the node has zone=a";
    let unknown = "such a requirement matches no node";
    for (written, wanted) in [
        (json!([]), "nodeSelectorTerms is empty, which matches no node".to_owned()),
        (json!([{}]), "nodeSelectorTerms[0] is empty, which matches no node".into()),
        (json!([{}, { "matchExpressions": [zone("a")] }]), String::new()),
        (json!([{ "matchExpressions": [zone("b")] }, { "matchExpressions": [zone("a")] }]), String::new()),
        (
            json!([{ "matchExpressions": [zone("b")] }, { "matchExpressions": [], "matchFields": [] }]),
            format!("nodeSelectorTerms[0] {lacks_b}, nodeSelectorTerms[1] is empty, which matches no node"),
        ),
        (json!([{ "matchExpressions": [zone("a"), zone("b")] }]), format!("nodeSelectorTerms[0] {lacks_b}")),
        (json!([{ "matchFields": [name("In", &["lab"])] }]), String::new()),
        (json!([{ "matchFields": [name("NotIn", &["other"])] }]), String::new()),
        (
            json!([{ "matchFields": [name("In", &["other"])] }]),
            "nodeSelectorTerms[0] metadata.name In [other]: the node has metadata.name=lab".into(),
        ),
        (
            json!([{ "matchFields": [name("NotIn", &["lab"])] }]),
            "nodeSelectorTerms[0] metadata.name NotIn [lab]: the node has metadata.name=lab".into(),
        ),
        (json!([{ "matchExpressions": [zone("a")], "matchFields": [name("In", &["lab"])] }]), String::new()),
        (
            json!([{ "matchExpressions": [zone("b")], "matchFields": [name("In", &["lab"])] }]),
            format!("nodeSelectorTerms[0] {lacks_b}"),
        ),
        (
            json!([{ "matchExpressions": [zone("a")], "matchFields": [name("In", &["x"])] }]),
            "nodeSelectorTerms[0] metadata.name In [x]: the node has metadata.name=lab".into(),
        ),
        // `matchFields` supports only `metadata.name`, `In` and `NotIn`, and one value.
        (
            json!([{ "matchFields": [name("In", &["lab", "other"])] }]),
            format!("nodeSelectorTerms[0] metadata.name In [lab other]: {unknown}"),
        ),
        (
            json!([{ "matchFields": [name("Exists", &[])] }]),
            format!("nodeSelectorTerms[0] metadata.name Exists []: {unknown}"),
        ),
        (
            json!([{ "matchFields": [{ "key": "spec.x", "operator": "NotIn", "values": ["y"] }] }]),
            format!("nodeSelectorTerms[0] spec.x NotIn [y]: {unknown}"),
        ),
        // `matchExpressions` with the name of the field refers to a label.
        (
            json!([{ "matchExpressions": [name("In", &["lab"])] }]),
            "nodeSelectorTerms[0] metadata.name In [lab]: the node has no metadata.name".into(),
        ),
    ] {
        assert_eq!(terms(written.clone()), wanted, "{written}");
    }
    // A preferred term is not a reason against the pod.
    let preferred = json!([{ "weight": 1, "preference": { "matchExpressions": [zone("b")] } }]);
    let affinity = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": preferred } });
    assert_eq!(found(json!({ "affinity": affinity, "containers": [] })), []);
}

#[test]
fn a2_a_pod_that_names_another_node_is_not_for_this_one() {
    let words = "Predicate NodeName failed: node(s) didn't match the requested node name";
    let of = |name: Value| detail(json!({ "nodeName": name, "containers": [] }), "NodeName", words);
    for name in [json!(null), json!(""), json!("lab")] {
        assert_eq!(of(name.clone()), "", "{name}");
    }
    assert_eq!(of(json!("lab2")), "spec.nodeName is \"lab2\", this node is \"lab\"");
}

#[test]
fn a3_every_sysctl_that_the_node_does_not_allow_is_named() {
    let of = |names: &[&str]| {
        let sysctls: Vec<Value> = names.iter().map(|name| json!({ "name": name, "value": "1" })).collect();
        let spec = json!({ "securityContext": { "sysctls": sysctls }, "containers": [] });
        detail(spec, "SysctlForbidden", "forbidden sysctl")
    };
    for (names, wanted) in [
        (&[][..], ""),
        (&["net.ipv4.tcp_syncookies", "kernel.shm_rmid_forced"], ""),
        (&["net.core.somaxconn", "kernel.msgmax", "net/core/somaxconn"], ""),
        (&["kernel.msgmnb"], "\"kernel.msgmnb\" not allowlisted"),
        (&["net.core.x", "vm.a", "kernel/sem"], "\"vm.a\" not allowlisted, \"kernel/sem\" not allowlisted"),
    ] {
        assert_eq!(of(names), wanted, "{names:?}");
    }
}

#[test]
fn a3_an_apparmor_profile_needs_a_kernel_that_enforces_it() {
    for (profile, enabled, refused) in [
        (json!(null), false, false),
        (json!({ "type": "Unconfined" }), false, false),
        (json!({ "type": "RuntimeDefault" }), false, true),
        (json!({ "type": "Localhost", "localhostProfile": "mine" }), false, true),
        (json!({ "type": "Localhost", "localhostProfile": "mine" }), true, false),
    ] {
        let pod = pod(json!({ "containers": [{ "name": "c", "securityContext": { "appArmorProfile": profile } }] }));
        let found = against(&pod, &NodeFacts { apparmor: enabled, ..node() });
        assert_eq!(!found.is_empty(), refused, "{profile} {enabled}");
    }
}

#[test]
fn a3_all_reasons_are_found_in_their_order_with_the_ports_in_their_place() {
    let pod = pod(json!({
        "os": { "name": "windows" }, "nodeName": "other", "nodeSelector": { "gpu": "yes" },
        "securityContext": {
            "sysctls": [{ "name": "vm.a", "value": "1" }], "appArmorProfile": { "type": "RuntimeDefault" }
        },
        "containers": [{ "name": "c", "ports": [{ "containerPort": 80, "hostPort": 80 }] }]
    }));
    let taints = vec![NoExecute { key: "dedicated".to_owned(), value: "quay".to_owned() }];
    let node = NodeFacts { taints, ..node() };
    let mut refusals = against(&pod, &node);
    let reasons = |all: &[Refusal]| all.iter().map(|r| r.reason.to_string()).collect::<Vec<_>>();
    assert_eq!(reasons(&refusals), ["PodOSNotSupported", "NodeAffinity", "NodeName", "SysctlForbidden", "AppArmor"]);
    assert_eq!(untolerated(&pod, &node), None, "pods of manifests tolerate each taint");
    let mut from_server = Pod { source: Source::api(), ..pod.clone() };
    from_server.object.spec.as_mut().unwrap().tolerations = None;
    refusals.extend(untolerated(&from_server, &node));
    refusals.push(port_is_taken(&host_ports(&pod)[0]));
    in_order(&mut refusals);
    assert_eq!(reasons(&refusals), ORDER.map(|reason| reason.to_string()));
}

#[test]
fn a2_host_ports_are_those_of_main_containers_and_sidecars() {
    let of = |spec: Value| host_ports(&pod(spec)).iter().map(HostPort::to_string).collect::<Vec<_>>();
    let container = |port: Value| json!({ "name": "c", "ports": [port] });
    let sidecar = |port: Value| json!({ "name": "s", "ports": [port], "restartPolicy": "Always" });
    let two = json!({ "containerPort": 2, "hostPort": 2, "protocol": "UDP", "hostIP": "10.0.0.1" });
    for (spec, wanted) in [
        (json!({ "containers": [{ "name": "c" }] }), &[][..]),
        (json!({ "containers": [container(json!({ "containerPort": 1 }))] }), &[]),
        (json!({ "containers": [container(json!({ "containerPort": 1, "hostPort": 0 }))] }), &[]),
        (json!({ "containers": [container(json!({ "containerPort": 1, "hostPort": 8 }))] }), &["TCP 8"]),
        (
            json!({ "containers": [container(two.clone()), container(json!({ "containerPort": 1, "hostPort": 3 }))] }),
            &["UDP 10.0.0.1:2", "TCP 3"],
        ),
        (json!({ "containers": [container(json!({ "containerPort": 1 }))], "hostNetwork": true }), &["TCP 1"]),
        (json!({ "initContainers": [container(two.clone())], "containers": [] }), &[]),
        (json!({ "initContainers": [container(two.clone())], "containers": [], "hostNetwork": true }), &[]),
        (json!({ "initContainers": [sidecar(two.clone())], "containers": [] }), &["UDP 10.0.0.1:2"]),
        (json!({ "containers": [container(json!({ "containerPort": 1, "hostPort": 70000 }))] }), &[]),
        (
            json!({ "containers": [container(json!({ "containerPort": 1, "hostPort": 5, "protocol": "SCTP",
                "hostIP": "::1" }))] }),
            &["SCTP [::1]:5"],
        ),
    ] {
        assert_eq!(of(spec.clone()), wanted, "{spec}");
    }
}

#[test]
fn a2_host_ports_clash_by_number_protocol_and_address() {
    let port = |protocol: &str, ip: &str, port: u16| {
        let port = json!({ "containerPort": 1, "hostPort": port, "protocol": protocol, "hostIP": ip });
        host_ports(&pod(json!({ "containers": [{ "name": "c", "ports": [port] }] })))
    };
    for (a, b, clashes) in [
        (port("TCP", "", 80), port("TCP", "", 80), true),
        (port("TCP", "", 80), port("TCP", "", 81), false),
        (port("TCP", "", 80), port("UDP", "", 80), false),
        (port("SCTP", "", 80), port("UDP", "", 80), false),
        (port("SCTP", "", 80), port("SCTP", "", 80), true),
        (port("", "", 80), port("TCP", "", 80), true),
        (port("TCP", "10.0.0.1", 80), port("TCP", "10.0.0.1", 80), true),
        (port("TCP", "10.0.0.1", 80), port("TCP", "10.0.0.2", 80), false),
        (port("TCP", "10.0.0.1", 80), port("TCP", "10.0.0.1", 81), false),
        (port("TCP", "0.0.0.0", 80), port("TCP", "10.0.0.2", 80), true),
        (port("TCP", "", 80), port("TCP", "10.0.0.2", 80), true),
        (port("TCP", "::", 80), port("TCP", "10.0.0.2", 80), true),
        (port("TCP", "::", 80), port("TCP", "0.0.0.0", 80), true),
        (port("TCP", "0.0.0.0", 80), port("TCP", "fd00::1", 80), true),
        (port("TCP", "0.0.0.0", 80), port("UDP", "fd00::1", 80), false),
        (port("TCP", "fd00::1", 80), port("TCP", "fd00:0::01", 80), true),
        (port("TCP", "fd00::1", 80), port("TCP", "fd00::2", 80), false),
        (port("TCP", "127.0.0.1", 80), port("TCP", "::1", 80), false),
        (port("TCP", "::ffff:10.0.0.1", 80), port("TCP", "10.0.0.1", 80), true),
        (port("TCP", "::ffff:0.0.0.0", 80), port("TCP", "10.0.0.1", 80), true),
    ] {
        assert_eq!(clash(&a, &b), clashes.then_some(&a[0]), "{a:?} against {b:?}");
        assert_eq!(clash(&b, &a).is_some(), clashes, "{b:?} against {a:?}");
    }
}

#[test]
fn a2_the_port_that_clashes_is_named() {
    let ports = |list: Value| host_ports(&pod(json!({ "containers": [{ "name": "c", "ports": list }] })));
    let wanted = ports(
        json!([{ "containerPort": 1, "hostPort": 1 }, { "containerPort": 2, "hostPort": 2, "hostIP": "10.0.0.1" }]),
    );
    let used = ports(json!([{ "containerPort": 3, "hostPort": 3 }, { "containerPort": 2, "hostPort": 2 }]));
    assert_eq!(clash(&wanted, &[]), None);
    assert_eq!(clash(&[], &used), None);
    let refusal = port_is_taken(clash(&wanted, &used).unwrap());
    assert_eq!(refusal.reason, Reason::NodePorts);
    assert_eq!(
        refusal.message,
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports: TCP 10.0.0.1:2 is \
         taken"
    );
}
