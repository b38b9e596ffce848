use crate::api::document::context::Context;
use crate::api::document::read;
use serde_json::{Value, json};

fn faults(manifest: &Value) -> Vec<String> {
    let context = Context::new("lab", "now");
    let (_, problems) = read(manifest.to_string().as_bytes(), "f", context);
    problems.iter().map(|p| format!("{}: {}", p.field.as_deref().unwrap_or(""), p.message)).collect()
}

fn with_spec(spec: Value) -> Vec<String> {
    faults(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}))
}

/// Returns the faults of a pod whose container has these additional fields.
fn with_container(more: Value) -> Vec<String> {
    let mut container = json!({"name": "main", "image": "img:1"});
    merge(&mut container, more);
    with_spec(json!({"containers": [container]}))
}

/// Returns the faults of a valid pod with these additional fields in its spec.
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
            "env[0].name: Invalid value: \"A=B\": a valid environment variable name must consist only of printable \
             ASCII characters other than '='",
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
        (
            json!({"limits": {"hugepages-2Mi": "3Mi", "cpu": 1}}),
            "limits[hugepages-2Mi]: Invalid value: \"3Mi\": must be a multiple of the page size 2Mi; round it up to \
             4Mi",
        ),
        (
            json!({"limits": {"hugepages-1Gi": "1Mi", "cpu": 1}, "requests": {"hugepages-1Gi": "1Mi"}}),
            "limits[hugepages-1Gi]: Invalid value: \"1Mi\": must be a multiple of the page size 1Gi; round it up to \
             1Gi",
        ),
        (
            json!({"limits": {"hugepages-0": "1Mi", "cpu": 1}}),
            "limits[hugepages-0]: Invalid value: \"hugepages-0\": must be a standard resource for containers",
        ),
        (json!({"limits": {"hugepages-2Mi": "4Mi"}}), "Forbidden: HugePages require cpu or memory"),
        (
            json!({"limits": {"memori": "4Mi"}}),
            "limits[memori]: Invalid value: \"memori\": must be a standard resource for containers",
        ),
        (json!({"limits": {"x.io/gpu": 1}}), ""),
        (json!({"limits": {"x.io/gpu": "2k"}, "requests": {"x.io/gpu": 2000}}), ""),
        (json!({"limits": {"x.io/gpu": "1500m"}}), "limits[x.io/gpu]: Invalid value: \"1500m\": must be an integer"),
        (
            json!({"limits": {"x.io/gpu": 2}, "requests": {"x.io/gpu": 1}}),
            "requests: Invalid value: \"1\": must be equal to x.io/gpu limit of 2",
        ),
        (
            json!({"requests": {"x.io/gpu": 1}}),
            "limits[x.io/gpu]: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            json!({"limits": {"node.kubernetes.io/gpu": 1}}),
            "limits[node.kubernetes.io/gpu]: Invalid value: \"node.kubernetes.io/gpu\": doesn't follow extended \
             resource name standard",
        ),
        (
            json!({"limits": {"requests.x.io/gpu": 1}}),
            "limits[requests.x.io/gpu]: Invalid value: \"requests.x.io/gpu\": doesn't follow extended resource name \
             standard",
        ),
        (
            json!({"limits": {"memory": "64mb"}}),
            "limits[memory]: Invalid value: \"64mb\": quantities must match the regular \
             expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (json!({"limits": {"cpu": "1e30"}}), "limits[cpu]: Invalid value: \"1e30\": 1e30 is too large"),
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
            "securityContext.supplementalGroups[0]: Invalid value: 2147483648: must be between 0 and 2147483647, \
             inclusive",
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
            "securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is \
             Localhost",
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
            json!({"hostNetwork": true, "securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies",
                "value": "1"}]}}),
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
fn init_containers_have_unique_names_and_only_sidecars_have_probes_and_hooks() {
    let faults = |fields: Value| {
        let mut init = json!({"name": "i", "image": "i:1", "imagePullPolicy": "Never"});
        init["terminationMessagePolicy"] = "File".into();
        init.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        with_fields(json!({"initContainers": [init]}))
    };
    let probe = json!({"exec": {"command": ["true"]}});
    let alone = "may not be set for init containers without restartPolicy=Always";
    for (fields, expected) in [
        (json!({}), vec![]),
        (json!({"restartPolicy": "Always", "livenessProbe": probe, "lifecycle": {"preStop": probe}}), vec![]),
        (
            json!({"restartPolicy": "OnFailure"}),
            vec!["restartPolicy: Unsupported value: \"OnFailure\": supported values: \"Always\"".to_owned()],
        ),
        (json!({"name": "main"}), vec!["name: Duplicate value: \"main\"".to_owned()]),
        (json!({"image": ""}), vec!["image: Required value".to_owned()]),
        (json!({"lifecycle": {"preStop": probe}}), vec![format!("lifecycle: Forbidden: {alone}")]),
        (json!({"livenessProbe": probe}), vec![format!("livenessProbe: Forbidden: {alone}")]),
        (json!({"readinessProbe": probe}), vec![format!("readinessProbe: Forbidden: {alone}")]),
        (json!({"startupProbe": probe}), vec![format!("startupProbe: Forbidden: {alone}")]),
    ] {
        let expected: Vec<String> = expected.iter().map(|e| format!("spec.initContainers[0].{e}")).collect();
        assert_eq!(faults(fields), expected);
    }
}

#[test]
fn a_probe_or_hook_has_one_valid_handler_and_valid_times() {
    let live = |probe: Value| {
        json!({"ports": [{"name": "web", "containerPort": 80, "protocol": "TCP"}],
        "livenessProbe": probe})
    };
    let stop = |hook: Value| json!({"lifecycle": {"preStop": hook}});
    let get = |fields: Value| {
        let mut get = json!({"port": 80, "path": "/", "scheme": "HTTP"});
        get.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        live(json!({"httpGet": get}))
    };
    for (fields, expected) in [
        (live(json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "terminationGracePeriodSeconds": 1})), ""),
        (get(json!({"port": "web", "host": "127.0.0.1", "httpHeaders": [{"name": "X-A", "value": "b"}]})), ""),
        (live(json!({"tcpSocket": {"port": 80, "host": "localhost"}})), ""),
        (live(json!({"tcpSocket": {"port": 80, "host": "DB_1.example."}})), ""),
        (live(json!({"tcpSocket": {"port": 80, "host": "fd00::1"}})), ""),
        (stop(json!({"sleep": {"seconds": 30}})), ""),
        (live(json!({})), "livenessProbe: Required value: must specify a handler type"),
        (
            live(json!({"exec": {"command": ["true"]}, "tcpSocket": {"port": 80}})),
            "livenessProbe: Forbidden: may not specify more than 1 handler type",
        ),
        (live(json!({"exec": {}})), "livenessProbe.exec.command: Required value"),
        (
            get(json!({"port": "nosuch"})),
            "livenessProbe.httpGet.port: Invalid value: \"nosuch\": the container has no port",
        ),
        (
            get(json!({"port": 0})),
            "livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (get(json!({"path": "/a b"})), "livenessProbe.httpGet.path: Invalid value: \"/a b\": must not contain spaces"),
        (get(json!({"scheme": "FTP"})), "livenessProbe.httpGet.scheme: Unsupported value: \"FTP\""),
        (
            get(json!({"host": "db example"})),
            "livenessProbe.httpGet.host: Invalid value: \"db example\": must be an IP address or the name of a host",
        ),
        (
            get(json!({"httpHeaders": [{"name": "X A", "value": "b"}]})),
            "livenessProbe.httpGet.httpHeaders[0].name: Invalid value: \"X A\": a valid HTTP header",
        ),
        (
            get(json!({"httpHeaders": [{"name": "X", "value": "b\r\nY: z"}]})),
            "livenessProbe.httpGet.httpHeaders[0].value: Invalid value: \"b\\r\\nY: z\": must not contain control",
        ),
        (
            live(json!({"tcpSocket": {"port": 80}, "periodSeconds": -1})),
            "livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            live(json!({"tcpSocket": {"port": 80}, "successThreshold": 2})),
            "livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            json!({"readinessProbe": {"tcpSocket": {"port": 80}, "terminationGracePeriodSeconds": 1}}),
            "readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes",
        ),
        (
            stop(json!({"sleep": {"seconds": 31}})),
            "lifecycle.preStop.sleep.seconds: Invalid value: 31: must be non-negative",
        ),
        (stop(json!({})), "lifecycle.preStop: Required value: must specify a handler type"),
    ] {
        let faults = with_container(fields.clone());
        match expected {
            "" => assert_eq!(faults, [""; 0], "{fields}"),
            expected => {
                let begin = format!("spec.containers[0].{expected}");
                assert!(faults.len() == 1 && faults[0].starts_with(&begin), "{fields}: {faults:?}");
            }
        }
    }
}

#[test]
fn a_value_from_elsewhere_has_one_valid_source() {
    let from = |source: Value| json!({"env": [{"name": "A", "valueFrom": source}]});
    let key = |key: &str| json!({"secretKeyRef": {"name": "s", "key": key}});
    for (fields, expected) in [
        (from(json!({"fieldRef": {"fieldPath": "metadata.labels['a/b']"}})), None),
        (from(json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}})), None),
        (json!({"envFrom": [{"prefix": "P_", "configMapRef": {"name": "a", "optional": true}}]}), None),
        (from(key("tls.crt")), None),
        (from(json!({})), Some("env[0].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`")),
        (
            from(json!({"fieldRef": {"fieldPath": "status.phase"}})),
            Some("env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"status.phase\": supported are"),
        ),
        (from(json!({"fieldRef": {"fieldPath": ""}})), Some("env[0].valueFrom.fieldRef.fieldPath: Required value")),
        (
            from(json!({"resourceFieldRef": {"resource": "limits.gpu"}})),
            Some("env[0].valueFrom.resourceFieldRef.resource: Invalid value: \"limits.gpu\""),
        ),
        (
            from(json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "x"}})),
            Some("env[0].valueFrom.resourceFieldRef.divisor: Invalid value: \"x\""),
        ),
        (from(key("../x")), Some("env[0].valueFrom.secretKeyRef.key: Invalid value: \"../x\"")),
        (
            from(json!({"secretKeyRef": {"name": "", "key": "k"}})),
            Some("env[0].valueFrom.secretKeyRef.name: Required value"),
        ),
        (
            json!({"env": [{"name": "A", "value": "x", "valueFrom": key("k")}]}),
            Some("env[0].valueFrom: Invalid value: \"\": may not be specified when `value`"),
        ),
        (json!({"envFrom": [{"prefix": "P_"}]}), Some("envFrom[0]: Invalid value: \"\": must specify one of")),
        (
            json!({"envFrom": [{"configMapRef": {"name": "A b"}}]}),
            Some("envFrom[0].configMapRef.name: Invalid value: \"A b\""),
        ),
    ] {
        let faults = with_container(fields.clone());
        match expected {
            None => assert_eq!(faults, [""; 0], "{fields}"),
            Some(expected) => {
                let begin = format!("spec.containers[0].{expected}");
                assert!(!faults.is_empty() && faults[0].starts_with(&begin), "{fields}: {faults:?}");
            }
        }
    }
}

#[test]
fn an_unsupported_field_is_rejected_by_name() {
    for (more, field) in [
        (json!({"ephemeralContainers": [{"name": "i", "image": "i:1"}]}), "ephemeralContainers"),
        (json!({"resourceClaims": [{"name": "a"}]}), "resourceClaims"),
        (json!({"schedulingGates": [{"name": "a"}]}), "schedulingGates"),
    ] {
        assert_eq!(with_fields(more), [format!("spec.{field}: not supported yet")]);
    }
    for (more, field) in [
        (json!({"volumeDevices": [{"name": "v", "devicePath": "/v"}]}), "volumeDevices"),
        (json!({"restartPolicyRules": [{"action": "Restart"}]}), "restartPolicyRules"),
        (
            json!({"env": [{"name": "A", "valueFrom": {"fileKeyRef": {"key": "k", "path": "p", "volumeName": "v"}}}]}),
            "env[0].valueFrom.fileKeyRef",
        ),
    ] {
        assert_eq!(with_container(more), [format!("spec.containers[0].{field}: not supported yet")]);
    }
    // Options for Windows have no effect.
    assert_eq!(with_fields(json!({"securityContext": {"windowsOptions": {}}})), [""; 0]);
    assert_eq!(with_container(json!({"securityContext": {"windowsOptions": {}}})), [""; 0]);
}

#[test]
fn a_host_name_override_is_a_name_and_excludes_other_settings() {
    let faults = |name: &str, more: Value| {
        let mut fields = json!({ "hostnameOverride": name });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with_fields(fields)
    };
    assert_eq!(faults("db.example.com", json!({})), [""; 0]);
    assert_eq!(faults("", json!({ "hostNetwork": true })), [""; 0]);
    let at = "spec.hostnameOverride: ";
    for (name, more, expected) in [
        ("Db_x", json!({}), "Invalid value: \"Db_x\": a lowercase RFC 1123 subdomain"),
        (&*format!("{}.{}", "a".repeat(40), "b".repeat(40)), json!({}), "Invalid value: "),
        ("db", json!({ "setHostnameAsFQDN": true }), "Forbidden: may not be set together with setHostnameAsFQDN"),
        ("db", json!({ "hostNetwork": true }), "Forbidden: may not be set together with hostNetwork"),
    ] {
        let found = faults(name, more);
        assert!(found.len() == 1 && found[0].starts_with(&format!("{at}{expected}")), "{found:?}");
    }
}

#[test]
fn the_resources_of_the_pod_cover_those_of_its_containers() {
    let of = |resources: Value| {
        with_fields(json!({
            "resources": resources,
            "containers": [
                {"name": "a", "image": "i:1", "resources": {"requests": {"cpu": "300m"}, "limits": {"memory": "64Mi"}}},
                {"name": "b", "image": "i:1", "resources": {"requests": {"cpu": "1500m"}}},
            ],
        }))
    };
    assert_eq!(of(json!({"requests": {"cpu": "1800m"}, "limits": {"memory": "64Mi", "cpu": "2"}})), [""; 0]);
    for (resources, expected) in [
        (
            json!({"requests": {"cpu": "1"}}),
            "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container \
             requests of 1800m",
        ),
        (
            json!({"limits": {"memory": "32Mi"}}),
            "spec.resources.limits[memory]: Invalid value: \"64Mi\": container a: must be less than or equal to pod \
             limits of 32Mi",
        ),
        (
            json!({"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}),
            "spec.resources.requests: Invalid value: \"3\": must be less than or equal to cpu limit of 2",
        ),
        (
            json!({"limits": {"ephemeral-storage": "1Gi"}}),
            "spec.resources.limits[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported values: \
             \"cpu\", \"memory\", \"hugepages-<size>\"",
        ),
        (json!({"claims": [{"name": "x"}]}), "spec.resources.claims: not supported yet"),
    ] {
        let faults = of(resources.clone());
        assert!(faults.contains(&expected.to_owned()), "{resources}: {faults:?}");
    }
}

#[test]
fn security_modules_are_checked_as_in_kubernetes() {
    let apparmor = |profile: Value| json!({"securityContext": {"appArmorProfile": profile}});
    let at = "spec.containers[0].securityContext.appArmorProfile";
    let only = "can only be set when AppArmor type is Localhost";
    for (profile, expected) in [
        (json!({"type": "Unconfined"}), None),
        (json!({"type": "Localhost", "localhostProfile": "mine"}), None),
        (
            json!({"type": "Localhost"}),
            Some(format!("{at}.localhostProfile: Required value: must be set when AppArmor type is Localhost")),
        ),
        (
            json!({"type": "Localhost", "localhostProfile": ""}),
            Some(format!("{at}.localhostProfile: Required value: must be set when AppArmor type is Localhost")),
        ),
        (
            json!({"type": "Localhost", "localhostProfile": " a"}),
            Some(format!("{at}.localhostProfile: Invalid value: \" a\": must not be padded with whitespace")),
        ),
        (
            json!({"type": "RuntimeDefault", "localhostProfile": "a"}),
            Some(format!("{at}.localhostProfile: Invalid value: \"a\": {only}")),
        ),
        (json!({"type": ""}), Some(format!("{at}.type: Required value: type is required when appArmorProfile is set"))),
    ] {
        assert_eq!(with_container(apparmor(profile.clone())), Vec::from_iter(expected), "{profile}");
    }
    let selinux = json!({"level": "s0:c1,c2", "role": "r", "type": "t", "user": "u"});
    let pod = json!({"securityContext": {"seLinuxOptions": selinux, "seLinuxChangePolicy": "Recursive"}});
    assert_eq!(with_fields(pod), [""; 0]);
    assert_eq!(
        with_fields(json!({"securityContext": {"seLinuxChangePolicy": "x"}})),
        ["spec.securityContext.seLinuxChangePolicy: Unsupported value: \"x\": supported values: \"MountOption\", \
             \"Recursive\""]
    );
}

#[test]
fn a3_a_problem_that_only_admission_can_detect_is_no_manifest_error() {
    let required = |term: Value| {
        json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}})
    };
    for more in [
        json!({"nodeName": "other"}),
        json!({"os": {"name": "windows"}}),
        json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"},
            {"name": "net/core/x", "value": ""}]}}),
        json!({"nodeSelector": {"kubernetes.io/os": "plan9", "a": ""}}),
        json!({"overhead": {"cpu": "10m", "memory": "1Mi"}}),
        json!({"affinity": required(json!({}))}),
        json!({"affinity": required(json!({
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["b", ""]},
                    {"key": "x.io/a", "operator": "NotIn", "values": ["b"]},
                {"key": "a", "operator": "Exists"}, {"key": "a", "operator": "DoesNotExist", "values": []},
                {"key": "a", "operator": "Gt", "values": ["5"]}, {"key": "a", "operator": "Lt", "values": ["7"]},
            ],
            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["other"]}],
        }))}),
    ] {
        assert_eq!(with_fields(more.clone()), Vec::<String>::new(), "{more}");
    }
}

#[test]
fn a2_a_malformed_placement_is_refused_in_kubernetes_words() {
    let term = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let required = |terms: Value| {
        let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        with_fields(json!({"affinity": {"nodeAffinity": terms}}))
    };
    assert_eq!(required(json!([])), [format!("{term}: Required value: must have at least one node selector term")]);
    for (requirement, expected) in [
        (
            json!({"key": "a", "operator": "In"}),
            "values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            json!({"key": "a", "operator": "Exists", "values": ["b"]}),
            "values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        (
            json!({"key": "a", "operator": "Gt", "values": ["1", "2"]}),
            "values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
        ),
        (
            json!({"key": "a", "operator": "Lt", "values": ["x"]}),
            "values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (json!({"key": "a", "operator": "in"}), "operator: Invalid value: \"in\": not a valid selector operator"),
        (json!({"key": "a b", "operator": "Exists"}), "key: Invalid value: \"a b\": name part must consist of "),
        (
            json!({"key": "a", "operator": "In", "values": ["b c"]}),
            "values[0]: Invalid value: \"b c\": a valid label must be ",
        ),
    ] {
        let found = required(json!([{}, {"matchExpressions": [requirement]}]));
        let expected = format!("{term}[1].matchExpressions[0].{expected}");
        assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?} {expected}");
    }
    for (requirement, expected) in [
        (
            json!({"key": "metadata.name", "operator": "In", "values": ["a", "b"]}),
            "values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        ),
        (
            json!({"key": "metadata.name", "operator": "Exists"}),
            "operator: Invalid value: \"Exists\": not a valid selector operator",
        ),
        (
            json!({"key": "metadata.namespace", "operator": "In", "values": ["a"]}),
            "key: Invalid value: \"metadata.namespace\": not a valid field selector key",
        ),
    ] {
        let found = required(json!([{"matchFields": [requirement]}]));
        assert_eq!(found, [format!("{term}[0].matchFields[0].{expected}")]);
    }
    for (more, expected) in [
        (
            json!({"nodeSelector": {"a b": "c"}}),
            "nodeSelector[a b]: Invalid value: \"a b\": name part must consist of ",
        ),
        (json!({"nodeSelector": {"a": "b c"}}), "nodeSelector[a]: Invalid value: \"b c\": a valid label must be "),
        (json!({"nodeName": "Other_one"}), "nodeName: Invalid value: \"Other_one\": a lowercase RFC 1123 subdomain "),
        (
            json!({"os": {"name": "plan9"}}),
            "os.name: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\"",
        ),
        (
            json!({"overhead": {"cpu": "-1"}}),
            "overhead[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "Kernel.x", "value": "1"}]}}),
            "securityContext.sysctls[0].name: Invalid value: \"Kernel.x\": ",
        ),
        (
            json!({"priorityClassName": "Gold Class"}),
            "priorityClassName: Invalid value: \"Gold Class\": a lowercase RFC 1123 subdomain ",
        ),
    ] {
        let found = with_fields(more);
        assert!(found.len() == 1 && found[0].starts_with(&format!("spec.{expected}")), "{found:?} {expected}");
    }
}

#[test]
fn a_resize_policy_is_checked() {
    let of = |policies: Value, pod: &str| {
        let container = json!({"name": "main", "image": "img:1", "resizePolicy": policies});
        with_spec(json!({"restartPolicy": pod, "containers": [container]}))
    };
    let cpu = |policy: &str| json!({"resourceName": "cpu", "restartPolicy": policy});
    let at = "spec.containers[0].resizePolicy";
    for (policies, pod, expected) in [
        (json!([cpu("RestartContainer")]), "Always", None),
        (json!([cpu("NotRequired")]), "Never", None),
        (
            json!([cpu("RestartContainer")]),
            "Never",
            Some(
                "[0].restartPolicy: Invalid value: \"RestartContainer\": must be NotRequired when the pod's \
                 restartPolicy is Never",
            ),
        ),
        (
            json!([cpu("Restart")]),
            "Always",
            Some(
                "[0].restartPolicy: Unsupported value: \"Restart\": supported values: \"NotRequired\", \
                 \"RestartContainer\"",
            ),
        ),
        (json!([cpu("NotRequired"), cpu("NotRequired")]), "Always", Some("[1].resourceName: Duplicate value: \"cpu\"")),
        (
            json!([{"resourceName": "disk", "restartPolicy": "NotRequired"}]),
            "Always",
            Some("[0].resourceName: Unsupported value: \"disk\": supported values: \"cpu\", \"memory\""),
        ),
    ] {
        let wanted: Vec<String> = expected.into_iter().map(|e| format!("{at}{e}")).collect();
        assert_eq!(of(policies.clone(), pod), wanted, "{policies}");
    }
}

#[test]
fn host_users_exclude_the_hosts_namespaces_and_high_ids() {
    let own = |more: Value| {
        let mut spec = json!({"hostUsers": false});
        merge(&mut spec, more);
        with_fields(spec)
    };
    assert_eq!(own(json!({"securityContext": {"runAsUser": 65535}})), [""; 0]);
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        assert_eq!(own(json!({field: true})), [format!("spec.{field}: Forbidden: when `hostUsers` is false")]);
    }
    let high = "must be less than 65536 when `hostUsers` is false";
    for (field, value) in [("runAsUser", json!(65536)), ("runAsGroup", json!(65536)), ("fsGroup", json!(65536))] {
        let found = own(json!({"securityContext": {field: value}}));
        assert_eq!(found, [format!("spec.securityContext.{field}: Invalid value: 65536: {high}")]);
    }
    let container =
        json!({"name": "main", "image": "i:1", "securityContext": {"procMount": "Unmasked", "runAsUser": 70000}});
    let found = with_spec(json!({"hostUsers": false, "containers": [container.clone()]}));
    assert_eq!(found, [format!("spec.containers[0].securityContext.runAsUser: Invalid value: 70000: {high}")]);
    let found = with_spec(json!({"containers": [container]}));
    let at = "spec.containers[0].securityContext.procMount";
    let why = "`hostUsers` must be false to use `Unmasked`; set hostUsers: false in the spec, or remove procMount";
    assert_eq!(found, [format!("{at}: Invalid value: \"Unmasked\": {why}")]);
}

#[test]
fn a_stop_signal_needs_the_operating_system_and_exists() {
    let of = |signal: &str, os: Value| {
        let container = json!({"name": "main", "image": "i:1", "lifecycle": {"stopSignal": signal}});
        with_spec(json!({"os": os, "containers": [container]}))
    };
    let at = "spec.containers[0].lifecycle.stopSignal";
    assert_eq!(of("SIGRTMIN+3", json!({"name": "linux"})), [""; 0]);
    let unnamed = format!("{at}: Forbidden: may not be set for containers with empty `spec.os.name`");
    assert_eq!(of("SIGUSR1", Value::Null), [unnamed]);
    let unknown = "must be a Linux signal, for example SIGUSR1 or SIGRTMIN+3";
    assert_eq!(of("USR1", json!({"name": "linux"})), [format!("{at}: Invalid value: \"USR1\": {unknown}")]);
}
