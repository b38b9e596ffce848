use super::*;

const CONTEXT: Context<'_> = Context::new("n1", "2026-11-22T07:43:26.000000001Z");

/// A running pod, as recorded from an API server 1.36.
fn recorded() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "creationTimestamp": "2026-11-22T07:43:26Z",
            "generation": 1,
            "labels": { "app": "life" },
            "name": "life",
            "namespace": "default",
            "resourceVersion": "444",
            "uid": "450ff913-c90e-4319-85e2-250652e43c46",
            "managedFields": [{ "manager": "kubectl" }],
        },
        "spec": {
            "containers": [{
                "image": "localhost/trap:1",
                "imagePullPolicy": "IfNotPresent",
                "name": "main",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "volumeMounts": [{
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                    "name": "kube-api-access-wgb8n",
                    "readOnly": true,
                }],
            }],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": true,
            "nodeName": "n1",
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "serviceAccount": "default",
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                { "effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists",
                    "tolerationSeconds": 300 },
            ],
            "volumes": [{
                "name": "kube-api-access-wgb8n",
                "projected": {
                    "defaultMode": 420,
                    "sources": [
                        { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
                        { "configMap": { "items": [{ "key": "ca.crt", "path": "ca.crt" }],
                            "name": "kube-root-ca.crt" } },
                        { "downwardAPI": { "items": [{
                            "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" }, "path": "namespace",
                        }] } },
                    ],
                },
            }],
        },
        "status": {
            "conditions": [{ "lastProbeTime": null, "lastTransitionTime": "2026-11-22T07:43:26Z", "status": "True",
                "type": "Ready" }],
            "hostIP": "10.77.0.1",
            "phase": "Running",
            "qosClass": "BestEffort",
            "startTime": "2026-11-22T07:43:26Z",
        },
    })
}

fn of(object: Value) -> PodObject {
    read(object, CONTEXT).unwrap()
}

/// Reads the object as from a record of an accepted pod.
fn recorded_again(object: &Value) -> Result<Box<Pod>, Rejection> {
    super::recorded(object.clone(), CONTEXT).unwrap().pod
}

fn rejection(object: Value) -> Rejection {
    of(object).pod.unwrap_err()
}

#[test]
fn a_pod_of_a_server_becomes_ours() {
    let object = of(recorded());
    let pod = object.pod.unwrap();
    assert_eq!(pod.uid.as_str(), "450ff913-c90e-4319-85e2-250652e43c46");
    assert_eq!((&object.uid, &object.name, object.name.to_string().as_str()), (&pod.uid, &pod.name, "default/life"));
    assert_eq!((object.resource_version.as_str(), object.generation), ("444", Some(1)));
    assert_eq!((object.mirror, object.deletion), (None, None));
    assert_eq!(object.status.phase.as_deref(), Some("Running"));
    assert!(pod.source.is_api() && pod.has_own_uid() && pod.object.status.is_none());
    assert_eq!(pod.object.metadata.managed_fields, None);
    // A pod of a manifest tolerates everything; this one has the tolerations that the server says.
    assert_eq!(pod.spec().tolerations.as_ref().map(Vec::len), Some(1));
    let annotations = pod.object.metadata.annotations.as_ref().unwrap();
    let annotations: Vec<_> = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let expected =
        [("kubernetes.io/config.seen", "2026-11-22T07:43:26.000000001Z"), ("kubernetes.io/config.source", "api")];
    assert_eq!(annotations, expected);
    let sources = pod.spec().volumes.as_ref().unwrap()[0].projected.as_ref().unwrap().sources.as_ref().unwrap();
    assert_eq!(sources[0].service_account_token.as_ref().unwrap().expiration_seconds, Some(3607));
}

#[test]
fn the_digest_changes_only_with_the_desired_state() {
    let digest = |object: Value| of(object).pod.unwrap().digest;
    let first = digest(recorded());
    let mut later = recorded();
    later["metadata"]["resourceVersion"] = "500".into();
    later["metadata"]["generation"] = 2.into();
    later["metadata"]["selfLink"] = "/api/v1/namespaces/default/pods/life".into();
    later["metadata"]["deletionTimestamp"] = "2026-11-22T08:00:00Z".into();
    later["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    later["status"]["phase"] = "Failed".into();
    later["spec"]["ephemeralContainers"] = json!([{ "name": "debug", "image": "i:1" }]);
    // An item of a list.
    later.as_object_mut().unwrap().remove("kind");
    later.as_object_mut().unwrap().remove("apiVersion");
    assert_eq!(digest(later), first);
    let mut changed = recorded();
    changed["spec"]["containers"][0]["image"] = "localhost/trap:2".into();
    assert_ne!(digest(changed), first);
}

#[test]
fn a_deletion_has_a_grace_period() {
    let mut object = recorded();
    object["metadata"]["deletionTimestamp"] = "2026-11-22T08:00:00Z".into();
    let grace = |object: &Value| of(object.clone()).deletion.unwrap().grace.as_secs();
    assert_eq!(grace(&object), 30);
    object["metadata"]["deletionGracePeriodSeconds"] = 4.into();
    assert_eq!(grace(&object), 4);
    object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    assert_eq!(grace(&object), 0);
    object["metadata"]["deletionGracePeriodSeconds"] = (-3).into();
    assert_eq!(grace(&object), 0);
    object["metadata"]["deletionGracePeriodSeconds"] = i64::MAX.into();
    assert_eq!(grace(&object), LONGEST_GRACE.as_secs());
}

#[test]
fn c18_a_pod_with_an_unknown_field_that_concerns_the_node_is_rejected() {
    let with = |pointer: &str, field: &str, value: Value| {
        let mut object = recorded();
        object.pointer_mut(pointer).unwrap()[field] = value;
        object
    };
    for (pointer, field, value, shown) in [
        ("/spec", "newFeature", json!({ "a": 1 }), "spec.newFeature"),
        ("/spec", "newNumber", json!(0), "spec.newNumber"),
        ("/spec/containers/0", "alsoNew", json!(true), "spec.containers[0].alsoNew"),
    ] {
        let object = with(pointer, field, value);
        let rejected = rejection(object.clone());
        assert_eq!(rejected.reason().as_str(), "PodFeatureUnsupported");
        assert_eq!(rejected.message(), format!("Pod was rejected: {shown}: not supported yet"));
        assert!(recorded_again(&object).is_ok(), "a pod that was accepted before goes on");
    }
    for (pointer, field, value) in [
        ("/metadata", "newer", json!(1)),
        ("/status", "alsoIgnored", json!(1)),
        ("/spec", "workloadRef", json!({ "name": "w" })),
        ("/spec", "schedulingGroup", json!({ "podGroupName": "g" })),
        ("/spec", "evictionResponders", json!([{ "name": "e" }])),
        ("/spec", "off", json!(false)),
        ("/spec", "none", Value::Null),
        ("/spec/containers/0", "empty", json!([])),
        ("/spec/containers/0", "also", json!({})),
        ("/spec/containers/0", "text", json!("")),
    ] {
        assert!(of(with(pointer, field, value)).pod.is_ok(), "{field}");
    }
}

#[test]
fn c18_a_pod_that_breaks_a_rule_for_manifests_runs() {
    let mut object = recorded();
    let container = &mut object["spec"]["containers"][0];
    container["securityContext"] = json!({ "allowPrivilegeEscalation": false,
        "capabilities": { "add": ["SYS_ADMIN"] }, "windowsOptions": { "runAsUserName": "me" } });
    container["livenessProbe"] = json!({ "httpGet": { "port": "nowhere" } });
    container["lifecycle"] = json!({ "preStop": { "httpGet": { "port": "nowhere" } } });
    container["resources"] = json!({ "limits": { "example.kubernetes.io/part": "1" },
        "requests": { "example.kubernetes.io/part": "1" } });
    container["volumeMounts"].as_array_mut().unwrap()[0]["mountPath"] = "/a:b".into();
    object["spec"]["securityContext"] = json!({ "windowsOptions": {} });
    object["spec"]["hostnameOverride"] = "db.example.com".into();
    let pod = of(object.clone()).pod.unwrap_or_else(|why| panic!("{}", why.message()));
    assert_eq!(crate::api::hostname::label(&pod), "db.example.com");
    // An object that an API server would refuse is refused.
    object["spec"]["containers"][0]["volumeMounts"][0]["name"] = "../x".into();
    assert_eq!(rejection(object).reason().as_str(), "InvalidPod");
}

#[test]
fn a_pod_with_unsupported_fields_is_rejected() {
    let mut object = recorded();
    object["spec"]["volumes"].as_array_mut().unwrap().extend([
        json!({ "name": "data", "persistentVolumeClaim": { "claimName": "c" } }),
        json!({ "name": "driver", "csi": { "driver": "x.example.com" } }),
    ]);
    object["spec"]["readinessGates"] = json!([{ "conditionType": "example.com/gate" }]);
    let rejected = rejection(object.clone());
    let Rejection::Unsupported(violations) = &rejected else { panic!("{rejected:?}") };
    let mut fields: Vec<&str> = violations.iter().map(|v| v.field.as_str()).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["spec.volumes[1].persistentVolumeClaim", "spec.volumes[2].csi"]);
    assert_eq!(rejected.reason().as_str(), "PodFeatureUnsupported");
    assert!(rejected.message().contains("spec.volumes[2].csi: not supported yet"), "{}", rejected.message());
    assert!(recorded_again(&object).is_ok());
    object["spec"]["restartPolicy"] = "Sometimes".into();
    assert_eq!(rejection(object).reason().as_str(), "InvalidPod");
}

#[test]
fn a_pod_of_wrong_types_can_be_reported() {
    let mut object = recorded();
    object["spec"]["containers"] = json!([7]);
    let rejected = of(object.clone());
    assert_eq!(rejected.name.to_string(), "default/life");
    let message = rejected.pod.unwrap_err().message();
    assert!(message.starts_with("Pod was rejected: spec.containers[0]: must be an object"), "{message}");
    object["status"] = json!({ "phase": 7 });
    assert_eq!(of(object).status, k8s::PodStatus::default());
    let mut none = recorded();
    none.as_object_mut().unwrap().remove("spec");
    assert!(matches!(rejection(none), Rejection::Invalid(_)));
    let mut many = recorded();
    many["spec"]["containers"] = (0..9).map(|_| json!({ "name": "", "image": "" })).collect();
    assert!(rejection(many).message().contains("; and "));
}

#[test]
fn a_mirror_is_recognised() {
    let mut object = recorded();
    object["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "0c5e" });
    assert_eq!(of(object).mirror.unwrap().uid.as_str(), "0c5e");
}

#[test]
fn an_object_without_identity_is_an_error() {
    for field in ["name", "namespace", "uid", "resourceVersion"] {
        for value in [Value::Null, json!(""), json!(7)] {
            let mut object = recorded();
            object["metadata"][field] = value;
            assert_eq!(read(object, CONTEXT).unwrap_err(), format!("the pod has no metadata.{field}"));
        }
    }
    for object in [Value::Null, json!([]), json!({}), json!({ "metadata": [] })] {
        assert!(read(object, CONTEXT).is_err());
    }
}
