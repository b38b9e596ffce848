use crate::api::document::{Context, read};
use serde_json::{Value, json};

fn faults(manifest: &Value) -> Vec<String> {
    let context = Context { node_name: "lab", unsafe_sysctls: &[], seen: "now" };
    let (_, problems) = read(manifest.to_string().as_bytes(), "f", context);
    problems.iter().map(|p| format!("{}: {}", p.field.as_deref().unwrap_or(""), p.message)).collect()
}

fn with_spec(spec: Value) -> Vec<String> {
    faults(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}))
}

/// One container with these fields more.
fn with_container(more: Value) -> Vec<String> {
    let mut container = json!({"name": "main", "image": "img:1"});
    merge(&mut container, more);
    with_spec(json!({"containers": [container]}))
}

/// A good pod with these fields more in its spec.
fn with_fields(more: Value) -> Vec<String> {
    let mut spec = json!({"containers": [{"name": "main", "image": "img:1"}]});
    merge(&mut spec, more);
    with_spec(spec)
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

#[test]
fn a_good_pod_has_no_fault() {
    let none: [&str; 0] = [];
    assert_eq!(with_fields(json!({})), none);
    assert_eq!(
        with_fields(json!({
            "activeDeadlineSeconds": 5, "terminationGracePeriodSeconds": 0, "restartPolicy": "OnFailure",
            "hostNetwork": true, "hostPID": true, "hostIPC": true, "shareProcessNamespace": false,
            "dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1", "::1"], "searches": ["a.b.", "."],
                "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]},
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a", "b.c"]}], "hostname": "h", "subdomain": "s",
            "setHostnameAsFQDN": true, "nodeName": "lab", "os": {"name": "linux"},
            "priorityClassName": "system-node-critical", "preemptionPolicy": "Never", "serviceAccountName": "x",
            "automountServiceAccountToken": false, "schedulerName": "s", "hostUsers": true,
            "tolerations": [{"operator": "Exists"}], "affinity": {"podAntiAffinity": {}}, "volumes": [],
            "securityContext": {"runAsUser": 0, "runAsGroup": 2147483647, "fsGroup": 3, "supplementalGroups": [4],
                "runAsNonRoot": false, "seccompProfile": {"type": "RuntimeDefault"},
                "appArmorProfile": {"type": "RuntimeDefault"}, "seLinuxOptions": {},
                "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]},
        })),
        ["spec.securityContext.sysctls[0].name: Invalid value: \"kernel.shm_rmid_forced\": may not be specified when \
          'hostIPC' is true"]
    );
    assert_eq!(
        with_container(json!({
            "command": ["a"], "args": ["b"], "workingDir": "/w", "stdin": true, "stdinOnce": true, "tty": true,
            "env": [{"name": "A", "value": "1"}, {"name": "A.b-c"}], "envFrom": [],
            "ports": [{"containerPort": 80, "hostPort": 80, "name": "http"}, {"containerPort": 80, "protocol": "UDP",
                "hostPort": 80, "hostIP": "127.0.0.1"}],
            "resources": {"limits": {"cpu": 1, "memory": "64Mi", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1G"},
                "requests": {"cpu": "100m"}},
            "securityContext": {"privileged": true, "allowPrivilegeEscalation": true, "procMount": "Default",
                "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}, "readOnlyRootFilesystem": true,
                "seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}},
            "terminationMessagePath": "/x", "terminationMessagePolicy": "FallbackToLogsOnError",
            "lifecycle": {}, "imagePullPolicy": "Never",
        })),
        none
    );
}

#[test]
fn metadata_is_checked() {
    let pod = |metadata: Value| {
        let spec = json!({"containers": [{"name": "main", "image": "img:1"}]});
        faults(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    };
    assert_eq!(pod(json!({})), ["metadata.name: Required value: name is needed for the pod"]);
    for (metadata, start) in [
        (
            json!({"name": "Bad_Name"}),
            "metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain must ",
        ),
        (
            json!({"name": "a", "namespace": "a.b"}),
            "metadata.namespace: Invalid value: \"a.b\": a lowercase RFC 1123 label",
        ),
        (json!({"name": "a", "uid": "../../etc"}), "metadata.uid: Invalid value: \"../../etc\": must consist of"),
        (json!({"name": "a", "labels": {"a b": "x"}}), "metadata.labels[a b]: Invalid value: \"a b\": name part must"),
        (
            json!({"name": "a", "labels": {"a": "x y"}}),
            "metadata.labels[a]: Invalid value: \"x y\": a valid label must",
        ),
        (
            json!({"name": "a", "annotations": {"/a": ""}}),
            "metadata.annotations[/a]: Invalid value: \"/a\": prefix part",
        ),
        (json!({"name": "a", "annotations": {"a": "x".repeat(300_000)}}), "metadata.annotations: Too long: may not be"),
        (json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}), "metadata.deletionTimestamp: Forbidden"),
    ] {
        let found = pod(metadata);
        assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
    }
}

#[test]
fn containers_are_checked_in_kubernetes_words() {
    assert_eq!(with_spec(json!({})), ["spec.containers: Required value"]);
    assert_eq!(with_spec(json!({"containers": []})), ["spec.containers: Required value"]);
    assert_eq!(
        with_spec(json!({"containers": [{"name": "main", "image": "a:1"}, {"name": "main"}, {"image": " a"}]})),
        [
            "spec.containers[1].name: Duplicate value: \"main\"",
            "spec.containers[1].image: Required value",
            "spec.containers[2].name: Required value",
            "spec.containers[2].image: Invalid value: \" a\": must not have leading or trailing whitespace",
        ]
    );
    for (more, expected) in [
        (
            json!({"imagePullPolicy": "always"}),
            "imagePullPolicy: Unsupported value: \"always\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (
            json!({"terminationMessagePolicy": "x"}),
            "terminationMessagePolicy: Unsupported value: \"x\": supported values: \"FallbackToLogsOnError\", \"File\"",
        ),
        (json!({"restartPolicy": "Always"}), "restartPolicy: Forbidden: may not be set for non-init containers"),
        (json!({"env": [{"name": ""}]}), "env[0].name: Required value"),
        (
            json!({"env": [{"name": "A=B"}]}),
            "env[0].name: Invalid value: \"A=B\": a valid environment variable name must consist only of printable ASCII \
             characters other than '='",
        ),
        (
            json!({"ports": [{"containerPort": 65536}]}),
            "ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
        ),
        (json!({"ports": [{"containerPort": 0}]}), "ports[0].containerPort: Required value"),
        (
            json!({"ports": [{"containerPort": 1, "hostPort": -1}]}),
            "ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive",
        ),
        (
            json!({"ports": [{"containerPort": 1, "protocol": "tcp"}]}),
            "ports[0].protocol: Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ),
        (
            json!({"ports": [{"containerPort": 1, "hostPort": 8}, {"containerPort": 2, "hostPort": 8}]}),
            "ports[1].hostPort: Duplicate value: \"TCP//8\"",
        ),
        (
            json!({"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]}),
            "ports[1].name: Duplicate value: \"a\"",
        ),
        (
            json!({"ports": [{"containerPort": 1, "hostIP": "x"}]}),
            "ports[0].hostIP: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
    ] {
        assert_eq!(with_container(more), [format!("spec.containers[0].{expected}")]);
    }
}

#[test]
fn requests_and_limits_are_checked() {
    for (resources, expected) in [
        (
            json!({"limits": {"cpu": "1 core"}}),
            "limits[cpu]: Invalid value: \"1 core\": quantities must match the regular expression \
             '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (json!({"limits": {"cpu": "-1"}}), "limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"),
        (json!({"requests": {"memory": "9E9"}}), ""),
        (json!({"requests": {"memory": "9e30"}}), "requests[memory]: Invalid value: \"9e30\": 9e30 is too large"),
        (
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1001m"}}),
            "requests: Invalid value: \"1001m\": must be less than or equal to cpu limit of 1",
        ),
        (
            json!({"limits": {"hugepages-2Mi": "4Mi", "cpu": 1}, "requests": {"hugepages-2Mi": "2Mi"}}),
            "requests: Invalid value: \"2Mi\": must be equal to hugepages-2Mi limit of 4Mi",
        ),
        (json!({"limits": {"hugepages-2Mi": "4Mi"}}), "Forbidden: HugePages require cpu or memory"),
        (
            json!({"limits": {"memori": "4Mi"}}),
            "limits[memori]: Invalid value: \"memori\": must be a standard resource for containers",
        ),
        (json!({"limits": {"x.io/gpu": 1}}), "limits[x.io/gpu]: extended resources are not supported yet"),
        (json!({"claims": [{"name": "a"}]}), "claims: not supported yet"),
    ] {
        let found = with_container(json!({"resources": resources}));
        let dot = if expected.starts_with("Forbidden") { ": " } else { "." };
        let expected: Vec<String> =
            if expected.is_empty() { vec![] } else { vec![format!("spec.containers[0].resources{dot}{expected}")] };
        assert_eq!(found, expected);
    }
}

#[test]
fn the_spec_is_checked() {
    for (more, expected) in [
        (
            json!({"restartPolicy": "Sometimes"}),
            "restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"Never\", \"OnFailure\"",
        ),
        (
            json!({"terminationGracePeriodSeconds": -1}),
            "terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"activeDeadlineSeconds": 0}),
            "activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
        (json!({"nodeName": "other"}), "nodeName: Invalid value: \"other\": this node is \"lab\""),
        (json!({"os": {"name": "windows"}}), "os.name: Invalid value: \"windows\": this node runs linux"),
        (
            json!({"hostPID": true, "shareProcessNamespace": true}),
            "shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
        ),
        (json!({"dnsPolicy": "None"}), "dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"),
        (
            json!({"dnsPolicy": "None", "dnsConfig": {}}),
            "dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
        ),
        (
            json!({"dnsConfig": {"nameservers": ["::1", "::2", "::3", "::4"]}}),
            "dnsConfig.nameservers: Too many: 4: must have at most 3 items",
        ),
        (
            json!({"dnsConfig": {"options": [{"name": "a\nnameserver"}]}}),
            "dnsConfig.options[0].name: Invalid value: \"a\\nnameserver\": must not contain whitespace",
        ),
        (
            json!({"hostAliases": [{"ip": "x"}]}),
            "hostAliases[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            json!({"securityContext": {"runAsUser": -1}}),
            "securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ),
        (
            json!({"securityContext": {"supplementalGroups": [2147483648u32]}}),
            "securityContext.supplementalGroups[0]: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive",
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
            "securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}}}),
            "securityContext.seccompProfile.localhostProfile: Invalid value: \"../x\": must not contain '..'",
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "x"}}}),
            "securityContext.seccompProfile.type: Unsupported value: \"x\": supported values: \"Localhost\", \
             \"RuntimeDefault\", \"Unconfined\"",
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
            "securityContext.sysctls[0].name: Forbidden: forbidden sysctl: \"kernel.msgmax\" not allowlisted",
        ),
        (
            json!({"hostNetwork": true, "securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}}),
            "securityContext.sysctls[0].name: Invalid value: \"net.ipv4.tcp_syncookies\": may not be specified when \
             'hostNetwork' is true",
        ),
        (
            json!({"containers": [{"name": "a", "image": "a:1", "securityContext": {"privileged": true,
                "allowPrivilegeEscalation": false}}]}),
            "containers[0].securityContext.allowPrivilegeEscalation: Invalid value: false: cannot set \
             `allowPrivilegeEscalation` to false and `privileged` to true",
        ),
        (
            json!({"hostNetwork": true, "containers": [{"name": "a", "image": "a:1", "ports": [{"containerPort": 80,
                "hostPort": 81}]}]}),
            "containers[0].ports[0].containerPort: Invalid value: 80: must match `hostPort` when `hostNetwork` is true",
        ),
    ] {
        assert_eq!(with_fields(more), [format!("spec.{expected}")]);
    }
}

#[test]
fn what_is_not_supported_yet_is_refused_by_name() {
    for (more, field) in [
        (json!({"volumes": [{"name": "v", "emptyDir": {}}]}), "volumes"),
        (json!({"initContainers": [{"name": "i", "image": "i:1"}]}), "initContainers"),
        (json!({"ephemeralContainers": [{"name": "i", "image": "i:1"}]}), "ephemeralContainers"),
        (json!({"imagePullSecrets": [{"name": "s"}]}), "imagePullSecrets"),
        (json!({"nodeSelector": {"a": "b"}}), "nodeSelector"),
        (json!({"affinity": {"nodeAffinity": {}}}), "affinity.nodeAffinity"),
        (json!({"readinessGates": [{"conditionType": "a"}]}), "readinessGates"),
        (json!({"resourceClaims": [{"name": "a"}]}), "resourceClaims"),
        (json!({"schedulingGates": [{"name": "a"}]}), "schedulingGates"),
        (json!({"runtimeClassName": "kata"}), "runtimeClassName"),
        (json!({"overhead": {"cpu": "1"}}), "overhead"),
        (json!({"hostUsers": false}), "hostUsers"),
        (json!({"resources": {"limits": {"cpu": "1"}}}), "resources"),
        (json!({"securityContext": {"seLinuxOptions": {"level": "s0"}}}), "securityContext.seLinuxOptions"),
        (json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}), "securityContext.appArmorProfile"),
        (json!({"securityContext": {"windowsOptions": {}}}), "securityContext.windowsOptions"),
        (
            json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}}),
            "securityContext.supplementalGroupsPolicy",
        ),
    ] {
        assert_eq!(with_fields(more), [format!("spec.{field}: not supported yet")]);
    }
    for (more, field) in [
        (json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}), "volumeMounts"),
        (json!({"volumeDevices": [{"name": "v", "devicePath": "/v"}]}), "volumeDevices"),
        (json!({"livenessProbe": {"exec": {"command": ["true"]}}}), "livenessProbe"),
        (json!({"readinessProbe": {"tcpSocket": {"port": 80}}}), "readinessProbe"),
        (json!({"startupProbe": {"httpGet": {"port": "web"}}}), "startupProbe"),
        (json!({"lifecycle": {"preStop": {"exec": {"command": ["true"]}}}}), "lifecycle.preStop"),
        (json!({"lifecycle": {"postStart": {"sleep": {"seconds": 1}}}}), "lifecycle.postStart"),
        (json!({"envFrom": [{"configMapRef": {"name": "a"}}]}), "envFrom"),
        (
            json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            "env[0].valueFrom",
        ),
        (json!({"securityContext": {"procMount": "Unmasked"}}), "securityContext.procMount"),
    ] {
        assert_eq!(with_container(more), [format!("spec.containers[0].{field}: not supported yet")]);
    }
    assert_eq!(
        with_fields(json!({"priorityClassName": "gold"})),
        ["spec.priorityClassName: \"gold\" is no system class, and others are not supported yet"]
    );
}

#[test]
fn unsafe_sysctls_are_for_nodes_that_allow_them() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
        "securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "9"}, {"name": "kernel.msgmax", "value": "9"}]},
        "containers": [{"name": "main", "image": "img:1"}]}});
    let faults = |allowed: &[&str]| {
        let allowed: Vec<String> = allowed.iter().map(|s| (*s).to_owned()).collect();
        let context = Context { node_name: "lab", unsafe_sysctls: &allowed, seen: "now" };
        read(pod.to_string().as_bytes(), "f", context).1.len()
    };
    assert_eq!(faults(&[]), 2);
    assert_eq!(faults(&["net.*"]), 1);
    assert_eq!(faults(&["net/core/*", "kernel.msgmax"]), 0);
    assert_eq!(faults(&["net.core", "kernel.msg"]), 2);
}
