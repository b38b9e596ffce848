use crate::api::document::context::Context;
use crate::api::document::read;
use serde_json::{Value, json};

/// Returns the faults of a pod with this spec, as `field: message`.
fn faults(spec: Value) -> Vec<String> {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec});
    let context = Context::new("lab", "now");
    let (_, problems) = read(manifest.to_string().as_bytes(), "f", context);
    let shown = problems.iter().map(|p| format!("{}: {}", p.field.as_deref().unwrap_or(""), p.message));
    shown.collect()
}

/// Returns the faults of one volume.
fn of_volume(source: Value) -> Vec<String> {
    let mut volume = json!({"name": "v"});
    volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    let faults = faults(json!({"containers": [{"name": "main", "image": "img:1"}], "volumes": [volume]}));
    faults.into_iter().map(|fault| fault.strip_prefix("spec.volumes[0]").unwrap_or(&fault).to_owned()).collect()
}

/// Returns the faults of one volumeMount of the volume `v`.
fn of_mount(mount: Value, security: Value) -> Vec<String> {
    let faults = faults(json!({
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "main", "image": "img:1", "volumeMounts": [mount], "securityContext": security}],
    }));
    let prefix = "spec.containers[0].volumeMounts[0]";
    faults.into_iter().map(|fault| fault.strip_prefix(prefix).unwrap_or(&fault).to_owned()).collect()
}

#[test]
fn valid_volumes_have_no_fault() {
    let none: [&str; 0] = [];
    for source in [
        json!({}),
        json!({"emptyDir": {}}),
        json!({"emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}),
        json!({"hostPath": {"path": "/a/..b"}}),
        json!({"hostPath": {"path": "/dev/ttyUSB0", "type": "CharDevice"}}),
        json!({"configMap": {"name": "c", "optional": true, "defaultMode": 0o400,
            "items": [{"key": "a", "path": "b/c", "mode": 0o777}]}}),
        json!({"secret": {"secretName": "s"}}),
        json!({"image": {"reference": "img:1", "pullPolicy": "Never"}}),
        json!({"downwardAPI": {"items": [
            {"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "b", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['a.b/C']"}},
            {"path": "c", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"}},
            {"path": "d", "resourceFieldRef": {"containerName": "main", "resource": "requests.hugepages-2Mi",
                "divisor": "1Mi"}},
        ]}}),
        json!({"projected": {"sources": [
            {"configMap": {"name": "c", "items": [{"key": "k", "path": "a"}]}},
            {"secret": {"name": "s"}},
            {"downwardAPI": {"items": [{"path": "b", "fieldRef": {"fieldPath": "metadata.uid"}}]}},
        ]}}),
    ] {
        assert_eq!(of_volume(source.clone()), none, "{source}");
    }
    let huge = json!({"limits": {"hugepages-2Mi": "4Mi", "memory": "8Mi"}});
    for medium in ["HugePages", "HugePages-2Mi"] {
        let spec = json!({
            "containers": [{"name": "main", "image": "img:1", "resources": huge}],
            "volumes": [{"name": "v", "emptyDir": {"medium": medium}}],
        });
        assert_eq!(faults(spec), none);
    }
}

#[test]
fn a_volume_has_a_unique_name_and_one_source() {
    let faults = faults(json!({
        "containers": [{"name": "main", "image": "img:1"}],
        "volumes": [{"name": "a"}, {"name": "a"}, {"name": "A_b"}, {"name": ""},
            {"name": "b", "emptyDir": {}, "hostPath": {"path": "/x"}, "nfs": {"path": "/", "server": "s"}}],
    }));
    assert!(
        faults[1].starts_with("spec.volumes[2].name: Invalid value: \"A_b\": a lowercase RFC 1123 label"),
        "{faults:?}"
    );
    assert_eq!(faults[0], "spec.volumes[1].name: Duplicate value: \"a\"");
    assert_eq!(
        faults[2..],
        [
            "spec.volumes[3].name: Required value",
            "spec.volumes[4].hostPath: Forbidden: may not specify more than one volume type",
            "spec.volumes[4].nfs: Forbidden: may not specify more than one volume type",
            "spec.volumes[4].nfs: not supported yet",
        ]
    );
}

#[test]
fn a_source_that_wherry_does_not_have_is_rejected_by_name() {
    for (source, field) in [
        (json!({"nfs": {"path": "/", "server": "s"}}), "nfs"),
        (json!({"csi": {"driver": "d"}}), "csi"),
        (json!({"gitRepo": {"repository": "r"}}), "gitRepo"),
        (json!({"iscsi": {"iqn": "q", "lun": 0, "targetPortal": "p"}}), "iscsi"),
        (
            json!({"projected": {"sources": [{"clusterTrustBundle": {"path": "ca"}}]}}),
            "projected.sources[0].clusterTrustBundle",
        ),
    ] {
        assert_eq!(of_volume(source), [format!(".{field}: not supported yet")]);
    }
}

#[test]
fn the_fields_of_each_source_are_checked() {
    let mode = "must be a number between 0 and 0777 (octal), both inclusive";
    for (source, wanted) in [
        (
            json!({"emptyDir": {"medium": "Disk"}}),
            "emptyDir.medium: Unsupported value: \"Disk\": supported values: \"\", \
            \"HugePages\", \"HugePages-<size>\", \"Memory\""
                .to_owned(),
        ),
        (
            json!({"emptyDir": {"medium": "HugePages-2Mi"}}),
            "emptyDir.medium: Invalid value: \"HugePages-2Mi\": a container of \
            the pod must request huge pages of this size"
                .into(),
        ),
        (
            json!({"emptyDir": {"sizeLimit": "-1"}}),
            "emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource \
            quantity"
                .into(),
        ),
        (json!({"hostPath": {"path": ""}}), "hostPath.path: Required value".into()),
        (
            json!({"hostPath": {"path": "/a/../b"}}),
            "hostPath.path: Invalid value: \"/a/../b\": must not contain '..'".into(),
        ),
        (
            json!({"hostPath": {"path": "/a", "type": "Dir"}}),
            "hostPath.type: Unsupported value: \"Dir\": supported values: \
            \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \
            \"Socket\""
                .into(),
        ),
        (json!({"configMap": {}}), "configMap.name: Required value".into()),
        (
            json!({"configMap": {"name": "c", "defaultMode": 512}}),
            format!("configMap.defaultMode: Invalid value: 512: {mode}"),
        ),
        (json!({"secret": {}}), "secret.secretName: Required value".into()),
        (
            json!({"secret": {"secretName": "s", "defaultMode": -1}}),
            format!("secret.defaultMode: Invalid value: -1: {mode}"),
        ),
        (json!({"projected": {"defaultMode": 1000}}), format!("projected.defaultMode: Invalid value: 1000: {mode}")),
        (
            json!({"projected": {"sources": [{}]}}),
            "projected.sources[0]: Required value: must specify a volume type".into(),
        ),
        (
            json!({"projected": {"sources": [{"secret": {}}]}}),
            "projected.sources[0].secret.name: Required value".into(),
        ),
        (
            json!({"projected": {"sources": [{"secret": {"name": "s"}, "configMap": {"name": "c"}}]}}),
            "projected.sources[0].configMap: Forbidden: may not specify more than 1 volume type per source".into(),
        ),
        (
            json!({"projected": {"sources": [
            {"secret": {"name": "s", "items": [{"key": "a", "path": "p"}]}},
            {"configMap": {"name": "c", "items": [{"key": "b", "path": "p"}]}}]}}),
            "projected.sources[1]: Invalid value: \"p\": conflicting duplicate paths".into(),
        ),
        (
            json!({"image": {"reference": "a:1", "pullPolicy": "x"}}),
            "image.pullPolicy: Unsupported value: \"x\": supported \
            values: \"Always\", \"IfNotPresent\", \"Never\""
                .into(),
        ),
        (json!({"image": {}}), "image.reference: Required value".into()),
    ] {
        let found = of_volume(source);
        assert_eq!(found.first(), Some(&format!(".{wanted}")), "{found:?}");
        assert_eq!(found.len(), 1, "{found:?}");
    }
    let token =
        json!({"projected": {"sources": [{"serviceAccountToken": {"path": "../t", "expirationSeconds": 599}}]}});
    let at = ".projected.sources[0].serviceAccountToken";
    assert_eq!(
        of_volume(token)[..2],
        [
            format!("{at}.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"),
            format!("{at}.path: Invalid value: \"../t\": must not contain '..'"),
        ]
    );
}

#[test]
fn a_file_in_a_volume_has_a_key_and_a_path_below_the_volume() {
    for (item, wanted) in [
        (json!({"key": "", "path": "a"}), "key: Required value"),
        (json!({"key": "a", "path": ""}), "path: Required value"),
        (json!({"key": "a", "path": "/a"}), "path: Invalid value: \"/a\": must be a relative path"),
        (json!({"key": "a", "path": "a/../b"}), "path: Invalid value: \"a/../b\": must not contain '..'"),
        (json!({"key": "a", "path": "..data"}), "path: Invalid value: \"..data\": must not start with '..'"),
        (
            json!({"key": "a", "path": "b", "mode": 0o1000}),
            "mode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
        ),
    ] {
        for (source, at) in [
            (json!({"configMap": {"name": "c", "items": [item]}}), "configMap"),
            (json!({"secret": {"secretName": "s", "items": [item]}}), "secret"),
            (
                json!({"projected": {"sources": [{"secret": {"name": "s", "items": [item]}}]}}),
                "projected.sources[0].secret",
            ),
        ] {
            assert_eq!(of_volume(source), [format!(".{at}.items[0].{wanted}")]);
        }
    }
}

#[test]
fn a_file_of_the_downward_api_refers_to_one_field_or_one_resource() {
    let field = |path: &str| json!({"path": "a", "fieldRef": {"fieldPath": path}});
    let resource = |resource: &str, divisor: &str| {
        json!({"path": "a", "resourceFieldRef": {"containerName": "main",
        "resource": resource, "divisor": divisor}})
    };
    let units = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
    for (item, wanted) in [
        (json!({"path": "a"}), ": Required value: one of fieldRef and resourceFieldRef is required".to_owned()),
        (
            json!({"path": "a", "fieldRef": {"fieldPath": "metadata.name"},
                "resourceFieldRef": {"resource": "limits.cpu"}}),
            ": Invalid value: \"resource\": fieldRef and resourceFieldRef can not be specified simultaneously".into(),
        ),
        (field(""), ".fieldRef.fieldPath: Required value".into()),
        (
            field("spec.nodeName"),
            ".fieldRef.fieldPath: Unsupported value: \"spec.nodeName\": supported values: \"metadata.annotations\", \
             \"metadata.labels\", \"metadata.name\", \"metadata.namespace\", \"metadata.uid\""
                .into(),
        ),
        (
            field("metadata.name['a']"),
            ".fieldRef.fieldPath: Invalid value: \"metadata.name\": does not support subscript".into(),
        ),
        (
            json!({"path": "a", "fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}}),
            ".fieldRef.apiVersion: Invalid value: \"v2\": only v1 is supported".into(),
        ),
        (
            json!({"path": "a", "resourceFieldRef": {"resource": "limits.cpu"}}),
            ".resourceFieldRef.containerName: Required value".into(),
        ),
        (
            json!({"path": "a", "resourceFieldRef": {"containerName": "none", "resource": "limits.cpu"}}),
            ".resourceFieldRef.containerName: Not found: \"none\"".into(),
        ),
        (
            resource("limits.gpu", "1"),
            ".resourceFieldRef.resource: Unsupported value: \"limits.gpu\": supported values: \"limits.cpu\", \
             \"limits.ephemeral-storage\", \"limits.memory\", \"requests.cpu\", \"requests.ephemeral-storage\", \
             \"requests.memory\""
                .into(),
        ),
        (
            resource("limits.cpu", "1Mi"),
            ".resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m, 1 are supported with \
             the cpu resource"
                .into(),
        ),
        (
            resource("requests.memory", "3Mi"),
            format!(
                ".resourceFieldRef.divisor: Invalid value: \"requests.memory\": only divisor's values {units} are \
                 supported with the memory resource"
            ),
        ),
    ] {
        assert_eq!(of_volume(json!({"downwardAPI": {"items": [item]}})), [format!(".downwardAPI.items[0]{wanted}")]);
        let projected = json!({"projected": {"sources": [{"downwardAPI": {"items": [item]}}]}});
        assert_eq!(of_volume(projected), [format!(".projected.sources[0].downwardAPI.items[0]{wanted}")]);
    }
    let bad = of_volume(json!({"downwardAPI": {"items": [field("metadata.labels['a b']")]}}));
    assert!(
        bad[0].starts_with(".downwardAPI.items[0].fieldRef.fieldPath: Invalid value: \"a b\": name part "),
        "{bad:?}"
    );
}

#[test]
fn the_mounts_of_a_container_are_checked() {
    let plain = |more: Value| {
        let mut mount = json!({"name": "v", "mountPath": "/v"});
        mount.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        mount
    };
    let only_when_read_only = ".recursiveReadOnly: Forbidden: may only be specified when readOnly is true";
    for (mount, wanted) in [
        (json!({"name": "v", "mountPath": ""}), ".mountPath: Required value"),
        (json!({"name": "x", "mountPath": "/v"}), ".name: Not found: \"x\""),
        (json!({"name": "v", "mountPath": "/a:b"}), ".mountPath: Invalid value: \"/a:b\": must not contain ':'"),
        (plain(json!({"subPath": "/a"})), ".subPath: Invalid value: \"/a\": must be a relative path"),
        (plain(json!({"subPath": "a/.."})), ".subPath: Invalid value: \"a/..\": must not contain '..'"),
        (plain(json!({"subPathExpr": "../$(A)"})), ".subPathExpr: Invalid value: \"../$(A)\": must not contain '..'"),
        (
            plain(json!({"subPath": "a", "subPathExpr": "b"})),
            ".subPathExpr: Invalid value: \"b\": subPathExpr and subPath are mutually exclusive",
        ),
        (
            plain(json!({"mountPropagation": "Shared"})),
            ".mountPropagation: Unsupported value: \"Shared\": supported values: \"Bidirectional\", \
             \"HostToContainer\", \"None\"",
        ),
        (
            plain(json!({"mountPropagation": "Bidirectional"})),
            ".mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
        ),
        (plain(json!({"recursiveReadOnly": "Enabled"})), only_when_read_only),
        (
            plain(json!({"recursiveReadOnly": "Enabled", "readOnly": true, "mountPropagation": "HostToContainer"})),
            ".recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified",
        ),
        (
            plain(json!({"recursiveReadOnly": "yes"})),
            ".recursiveReadOnly: Unsupported value: \"yes\": supported values: \"Disabled\", \"Enabled\", \
             \"IfPossible\"",
        ),
    ] {
        assert_eq!(of_mount(mount, json!({})), [wanted]);
    }
    let none: [&str; 0] = [];
    for mount in [
        plain(json!({"subPath": "a/..b", "readOnly": true, "recursiveReadOnly": "IfPossible"})),
        plain(json!({"subPathExpr": "$(A)/x", "recursiveReadOnly": "Disabled", "mountPropagation": "None"})),
        plain(json!({"mountPropagation": "HostToContainer"})),
    ] {
        assert_eq!(of_mount(mount, json!({})), none);
    }
    assert_eq!(of_mount(plain(json!({"mountPropagation": "Bidirectional"})), json!({"privileged": true})), none);
    let twice = faults(json!({
        "volumes": [{"name": "v"}],
        "initContainers": [{"name": "i", "image": "i:1", "volumeMounts": [{"name": "none", "mountPath": "/v"}]}],
        "containers": [{"name": "main", "image": "img:1",
            "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}]}],
    }));
    assert_eq!(
        twice,
        [
            "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/v\": must be unique",
            "spec.initContainers[0].volumeMounts[0].name: Not found: \"none\"",
        ]
    );
}

#[test]
fn an_unset_field_gets_the_default_of_kubernetes() {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
        "containers": [{"name": "main", "image": "img:1"}],
        "volumes": [
            {"name": "e"},
            {"name": "h", "hostPath": {"path": "/h"}},
            {"name": "c", "configMap": {"name": "c"}},
            {"name": "s", "secret": {"secretName": "s", "defaultMode": 256}},
            {"name": "d", "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {"name": "i", "image": {"reference": "img"}},
        ]
    }});
    let mut pod: crate::api::k8s::Pod = serde_json::from_value(manifest).unwrap();
    let context = Context::new("lab", "now");
    crate::api::defaults::apply(&mut pod, &crate::api::names::Uid::from("u"), context);
    let volumes = serde_json::to_value(pod.spec.unwrap().volumes.unwrap()).unwrap();
    for (i, wanted) in [
        json!({"name": "e", "emptyDir": {}}),
        json!({"name": "h", "hostPath": {"path": "/h", "type": ""}}),
        json!({"name": "c", "configMap": {"name": "c", "defaultMode": 0o644}}),
        json!({"name": "s", "secret": {"secretName": "s", "defaultMode": 256}}),
        json!({"name": "d", "downwardAPI": {"defaultMode": 0o644,
            "items": [{"path": "a", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}]}}),
        json!({"name": "p", "projected": {"defaultMode": 0o644,
            "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}),
        json!({"name": "i", "image": {"reference": "img", "pullPolicy": "Always"}}),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(volumes[i], wanted);
    }
}
