//! Decides which data of pods and settings stays out of the archive of `wherry support`. Pure.
//!
//! - The spec of a pod: only the fields in `SPEC` and `WHOLE` stay. Environment variables, commands, arguments, headers
//!   and paths of probes and hooks, addresses, and fields that a later version adds are left out.
//! - Annotations keep their names and lose their values.
//! - Output of containers is left out: termination messages, and the output of probes and hooks.
//! - A configuration file loses the values of fields that can hold a password or a token, and everything that is not a
//!   configuration.
//!
//! Messages of the runtime and of Wherry stay. They name images, files and keys, but no values.

use crate::api::ordered::CollectOrdered;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Replaces what is left out.
pub(super) const REMOVED: &str = "<removed>";

/// The fields of a pod's spec that stay. Their inner fields have to be in one of the lists, too.
const SPEC: [&str; 85] = [
    "activeDeadlineSeconds",
    "automountServiceAccountToken",
    "configMap",
    "containerPort",
    "containers",
    "csi",
    "defaultMode",
    "dnsPolicy",
    "downwardAPI",
    "driver",
    "emptyDir",
    "enableServiceLinks",
    "ephemeralContainers",
    "exec",
    "expirationSeconds",
    "failureThreshold",
    "grpc",
    "hostIP",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPort",
    "hostUsers",
    "httpGet",
    "image",
    "imagePullPolicy",
    "initContainers",
    "initialDelaySeconds",
    "iscsi",
    "lifecycle",
    "livenessProbe",
    "medium",
    "mountPath",
    "mountPropagation",
    "name",
    "nfs",
    "nodeName",
    "optional",
    "os",
    "periodSeconds",
    "persistentVolumeClaim",
    "port",
    "ports",
    "postStart",
    "preStop",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "projected",
    "protocol",
    "pullPolicy",
    "readOnly",
    "readinessProbe",
    "recursiveReadOnly",
    "reference",
    "resizePolicy",
    "resourceName",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "scheme",
    "seconds",
    "secret",
    "secretName",
    "serviceAccountToken",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "sizeLimit",
    "sleep",
    "sources",
    "startupProbe",
    "stdin",
    "stdinOnce",
    "stopSignal",
    "successThreshold",
    "targetContainerName",
    "tcpSocket",
    "terminationGracePeriodSeconds",
    "terminationMessagePolicy",
    "timeoutSeconds",
    "tty",
    "volumeDevices",
    "volumeMounts",
    "volumes",
    "devicePath",
];

/// The fields of a pod's spec that stay with everything in them.
const WHOLE: [&str; 7] =
    ["hostPath", "nodeSelector", "overhead", "resources", "restartPolicyRules", "securityContext", "tolerations"];

/// The fields that are left out wherever they are. `pre_stop` is the preStop hook in the state of the engine.
const LEFT_OUT: [&str; 9] =
    ["args", "binaryData", "command", "env", "envFrom", "env_from", "managedFields", "pre_stop", "stringData"];

/// The beginnings of messages that continue with the output of a container, or with a part of a hook.
const BEFORE_OUTPUT: [&str; 5] = [
    " probe failed: ",
    " probe warning: ",
    " probe errored and resulted in unknown state: ",
    "Exec lifecycle hook (",
    "HTTP lifecycle hook (",
];

/// The names of configuration fields that contain one of these words and no value that has to be secret.
const HARMLESS_SETTINGS: [&str; 3] = ["configMapAndSecretChangeDetectionStrategy", "openSecrets", "sealSecrets"];
const SECRET_WORDS: [&str; 6] = ["header", "key-data", "passwd", "password", "secret", "token"];

/// Reduces a response of the agent: every response except a list of pods, which has more to leave out.
pub(super) fn response(mut value: Value) -> Value {
    reduce(&mut value);
    value
}

/// Reduces a list of pods.
pub(super) fn pod_list(mut list: Value) -> Value {
    if let Some(pods) = list.get_mut("items").and_then(Value::as_array_mut) {
        for pod in pods {
            if let Some(spec) = pod.get_mut("spec") {
                *spec = kept(spec);
            }
        }
    }
    response(list)
}

/// Returns the part of a pod's spec that stays.
fn kept(spec: &Value) -> Value {
    match spec {
        Value::Array(items) => items.iter().map(kept).collect(),
        Value::Object(fields) => {
            let stays = fields.iter().filter_map(|(name, value)| match name.as_str() {
                whole if WHOLE.contains(&whole) => Some((name.clone(), value.clone())),
                known if SPEC.contains(&known) => Some((name.clone(), kept(value))),
                _ => None,
            });
            Value::Object(stays.collect_object())
        }
        scalar => scalar.clone(),
    }
}

fn reduce(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(short) = without_output(text) {
                *text = short;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(reduce),
        Value::Object(fields) => {
            // The message of a container that has ended contains its own words.
            let is_end = fields.contains_key("exitCode");
            for (name, value) in fields.iter_mut() {
                match name.as_str() {
                    "message" if is_end => remove(value),
                    left_out if LEFT_OUT.contains(&left_out) => remove(value),
                    // `messages` are termination messages in the state of the engine, by the ids of the containers.
                    "annotations" | "messages" => remove_values(value),
                    _ => reduce(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces a value. An empty value stays, because it says that there is none.
fn remove(value: &mut Value) {
    let is_empty = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    if !is_empty {
        *value = REMOVED.into();
    }
}

/// Replaces the values of a map and keeps their names.
fn remove_values(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(remove),
        other => remove(other),
    }
}

/// Cuts a message where the output of a container, or a part of a hook, begins.
fn without_output(text: &str) -> Cow<'_, str> {
    let end = |mark: &&str| text.find(mark).map(|at| at + mark.len());
    match BEFORE_OUTPUT.iter().filter_map(end).min() {
        Some(end) if end < text.len() => Cow::Owned(format!("{}{REMOVED}", &text[..end])),
        _ => Cow::Borrowed(text),
    }
}

/// Reduces log lines of the agent.
pub(super) fn log(text: &str) -> String {
    text.lines().map(|line| log_line(line) + "\n").collect()
}

fn log_line(line: &str) -> String {
    // The line about the end of a container ends with its termination message.
    let message = if line.contains(" exit_code=") { line.find(" message=") } else { None };
    let line = match message {
        Some(at) => Cow::Owned(format!("{} message={REMOVED}", &line[..at])),
        None => Cow::Borrowed(line),
    };
    without_output(&line).into_owned()
}

/// Reduces a crash report: some lines of text, then the last state of the agent as JSON, which may be cut.
pub(super) fn crash_report(text: &str) -> String {
    let begin = if text.starts_with('{') { Some(0) } else { text.find("\n{").map(|at| at + 1) };
    let Some((words, state)) = begin.map(|at| text.split_at(at)) else { return log(text) };
    let mut states = serde_json::Deserializer::from_str(state).into_iter::<Value>();
    let (state, rest) = match states.next() {
        Some(Ok(whole)) => (Some(whole), log(state[states.byte_offset()..].trim())),
        _ => (closed(state).and_then(|text| serde_json::from_str(&text).ok()), "(the state is cut)\n".to_owned()),
    };
    let state = match state {
        Some(state) => format!("{:#}", response(state)),
        None => "(the state cannot be read, and is left out)".to_owned(),
    };
    format!("{}{state}\n{rest}", log(words))
}

/// Ends a JSON text that is cut: removes the last, incomplete item and closes all lists and objects.
fn closed(text: &str) -> Option<String> {
    let (mut open, mut end) = (Vec::new(), None);
    let (mut in_string, mut is_escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if in_string => is_escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => {
                open.pop();
            }
            ',' => end = Some((at, open.clone())),
            _ => {}
        }
    }
    let (at, open) = end?;
    Some(text[..at].chars().chain(open.into_iter().rev()).collect())
}

/// Reduces a document of a configuration file. `is_configuration`: whether its kind is that of a configuration.
pub(super) fn configuration(document: &Value, is_configuration: bool) -> Value {
    if is_configuration {
        return settings(document);
    }
    json!({ "apiVersion": document["apiVersion"], "kind": document["kind"], "not a configuration": REMOVED })
}

fn settings(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let reduced = fields.iter().map(|(name, value)| {
                let lower = name.to_ascii_lowercase();
                let is_secret = SECRET_WORDS.iter().any(|word| lower.contains(word));
                let value = if is_secret && !HARMLESS_SETTINGS.contains(&name.as_str()) {
                    let mut value = value.clone();
                    remove(&mut value);
                    value
                } else {
                    settings(value)
                };
                (name.clone(), value)
            });
            Value::Object(reduced.collect_object())
        }
        Value::Array(items) => items.iter().map(settings).collect(),
        Value::String(text) if text.contains("-----BEGIN ") => REMOVED.into(),
        Value::String(text) => without_user(text).into(),
        other => other.clone(),
    }
}

/// Removes the user and the password from a URL.
fn without_user(text: &str) -> String {
    let user = text.split_once("://").and_then(|(scheme, rest)| {
        let authority = rest.split('/').next().unwrap_or_default();
        let (user, _) = authority.rsplit_once('@')?;
        Some((scheme, &rest[user.len()..]))
    });
    user.map_or_else(|| text.to_owned(), |(scheme, rest)| format!("{scheme}://{REMOVED}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "s3cr3t";

    fn pod() -> Value {
        json!({
            "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"note": SECRET, "empty": ""}},
            "spec": {
                "restartPolicy": "Always",
                "hostAliases": [{"ip": "10.0.0.1", "hostnames": [SECRET]}],
                "aFieldOfTomorrow": SECRET,
                "containers": [{
                    "name": "main", "image": "i:1", "command": [SECRET], "args": [SECRET], "workingDir": SECRET,
                    "env": [{"name": SECRET, "value": SECRET}], "envFrom": [{"prefix": SECRET}],
                    "resources": {"limits": {"memory": "1Gi"}},
                    "livenessProbe": {
                        "periodSeconds": 7,
                        "httpGet": {"port": 80, "path": SECRET, "httpHeaders": [{"name": "A", "value": SECRET}]},
                    },
                    "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
                    "volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": SECRET}],
                }],
                "volumes": [
                    {"name": "v", "secret": {"secretName": "login", "items": [{"key": SECRET, "path": SECRET}]}},
                    {"name": "h", "hostPath": {"path": "/srv"}},
                ],
            },
            "status": {
                "phase": "Running",
                "containerStatuses": [{
                    "lastState": {"terminated": {"exitCode": 1, "message": SECRET}},
                    "state": {"waiting": {"reason": "R", "message": format!("Exec lifecycle hook ([{SECRET}]) ...")}},
                }],
            },
            "wherry": {"path": "/m/web.yaml", "waitsFor": ["main: next start in 5 s"]},
        })
    }

    #[test]
    fn a_pod_keeps_what_explains_its_state_and_nothing_that_may_be_secret() {
        let reduced = pod_list(json!({"kind": "PodList", "items": [pod()]}));
        assert!(!reduced.to_string().contains(SECRET), "{reduced:#}");
        let pod = &reduced["items"][0];
        assert_eq!(pod["metadata"]["labels"]["app"], "web");
        assert_eq!(pod["metadata"]["annotations"], json!({"note": REMOVED, "empty": ""}));
        let container = &pod["spec"]["containers"][0];
        let expected = json!({
            "name": "main", "image": "i:1", "resources": {"limits": {"memory": "1Gi"}},
            "livenessProbe": {"periodSeconds": 7, "httpGet": {"port": 80}},
            "lifecycle": {"preStop": {"exec": {}}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        });
        assert_eq!(*container, expected);
        let volumes =
            json!([{"name": "v", "secret": {"secretName": "login"}}, {"name": "h", "hostPath": {"path": "/srv"}}]);
        assert_eq!(pod["spec"]["volumes"], volumes);
        let status = &pod["status"]["containerStatuses"][0];
        assert_eq!(status["lastState"]["terminated"], json!({"exitCode": 1, "message": REMOVED}));
        assert_eq!(status["state"]["waiting"]["message"], "Exec lifecycle hook (<removed>");
        assert_eq!(pod["wherry"]["waitsFor"][0], "main: next start in 5 s");
    }

    #[test]
    fn the_state_of_the_engine_loses_hooks_and_the_words_of_containers() {
        let state = json!({
            "facts": {"pre_stop": SECRET, "exit_code": 128, "message": "no such image", "stop": null},
            "containers": {"messages": {"c1": SECRET, "c2": ""}},
            "calls": [{"command": [SECRET]}],
        });
        let expected = json!({
            "facts": {"pre_stop": REMOVED, "exit_code": 128, "message": "no such image", "stop": null},
            "containers": {"messages": {"c1": REMOVED, "c2": ""}},
            "calls": [{"command": REMOVED}],
        });
        assert_eq!(response(state), expected);
    }

    #[test]
    fn messages_end_before_the_output_of_a_container() {
        for (text, short) in [
            ("Liveness probe failed: s3cr3t", "Liveness probe failed: <removed>"),
            ("Readiness probe warning: s3cr3t", "Readiness probe warning: <removed>"),
            ("Readiness probe failed: ", "Readiness probe failed: "),
            ("Started container main", "Started container main"),
        ] {
            assert_eq!(response(text.into()), short);
        }
        let lines = "09:00 wherry[1]: pod=a/b container=main reason=Error exit_code=1 restarts=2 message=\"s3cr3t\"\n\
                     09:01 wherry[1]: pod=a/b reason=Unhealthy message=\"Liveness probe failed: s3cr3t\"\n\
                     09:02 wherry[1]: pod=a/b reason=Pulled message=\"here\"";
        let reduced = log(lines);
        assert!(!reduced.contains(SECRET) && reduced.lines().count() == 3, "{reduced}");
        assert!(
            reduced.contains("restarts=2 message=<removed>\n") && reduced.ends_with("message=\"here\"\n"),
            "{reduced}"
        );
    }

    #[test]
    fn the_state_in_a_crash_report_is_reduced_even_if_it_is_cut() {
        let head = "The previous wherry panicked\n\nIts last state:\n\n";
        let state = json!({"n": 7, "messages": {"c": SECRET}, "last": ["a,b]", "{\\\"", SECRET]});
        let whole = crash_report(&format!("{head}{state}\n"));
        assert!(whole.starts_with(head) && whole.contains("\"n\": 7") && whole.contains("a,b]"), "{whole}");
        assert!(whole.contains("\"c\": \"<removed>\""), "{whole}");
        let text = r#"{"messages":{"c":"s3cr3t"},"a":[1,{"b":"x\"},","c":"s3cr3t and"#;
        let cut = crash_report(&format!("{head}{text}\n(cut after 9 bytes)\n"));
        assert!(!cut.contains(SECRET) && cut.contains("\"x\\\"},\"") && cut.contains("(the state is cut)"), "{cut}");
        assert_eq!(crash_report("a panic at x.rs:7\n"), "a panic at x.rs:7\n");
        assert!(crash_report("head\n{").contains("cannot be read, and is left out"));
    }

    #[test]
    fn a_configuration_loses_what_can_be_a_password() {
        let document = json!({
            "kind": "KubeletConfiguration", "maxPods": 7, "sealSecrets": "Auto", "tlsPrivateKeyFile": "/k",
            "staticPodURL": "https://ann:s3cr3t@host/x@y", "staticPodURLHeader": {"Authorization": [SECRET]},
            "x": ["-----BEGIN PRIVATE KEY-----"], "bootstrapToken": SECRET, "imageMinimumGCAge": "2m",
        });
        let expected = json!({
            "kind": "KubeletConfiguration", "maxPods": 7, "sealSecrets": "Auto", "tlsPrivateKeyFile": "/k",
            "staticPodURL": "https://<removed>@host/x@y", "staticPodURLHeader": REMOVED,
            "x": [REMOVED], "bootstrapToken": REMOVED, "imageMinimumGCAge": "2m",
        });
        assert_eq!(configuration(&document, true), expected);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": SECRET}});
        let other = configuration(&secret, false);
        assert!(!other.to_string().contains(SECRET) && other["kind"] == "Secret", "{other}");
    }
}
