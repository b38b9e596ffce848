//! The same kubectl commands against an agent and against a real API server with the same objects: both have to print the same.
//!
//! The API server (`tests/support/api_server.rs`) has no node, so the test gives its pods the node and the status that the agent
//! shows. Known differences are in `EXCEPTIONS`, each with its reason.

use crate::support::agent::{Agent, condition};
use crate::support::api_server::{self, ApiServer};
use crate::support::kubectl::{Kubectl, Printed, programs};
use crate::support::lab::Runtime;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The first of the three ports of the server. Below the ports that the kernel gives to clients.
const PORT: u16 = 16_000;

/// `NAMESPACE` stands for the namespace of the test.
const OBJECTS: &[(&str, &str)] = &[
    (
        "web",
        r#"{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NAMESPACE, labels: {app: web, tier: front}, annotations: {note: hello}},
  spec: {
    terminationGracePeriodSeconds: 1,
    nodeSelector: {kubernetes.io/os: linux},
    priorityClassName: important,
    securityContext: {fsGroup: 500},
    initContainers: [{name: prepare, image: 'localhost/busybox:1.35', command: ['true']}],
    containers: [
      {name: main, image: 'localhost/busybox:1.35', command: [sh, -c, 'exec httpd -f -p 8080 -h /etc'],
       ports: [{containerPort: 8080}, {name: metrics, containerPort: 9090, protocol: UDP}],
       resources: {requests: {cpu: 10m, memory: 8Mi}, limits: {memory: 64Mi}},
       env: [{name: COLOUR, value: blue}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}},
             {name: SIZE, valueFrom: {configMapKeyRef: {name: settings, key: SIZE}}}],
       envFrom: [{secretRef: {name: login, optional: true}}],
       livenessProbe: {httpGet: {path: /passwd, port: 8080}, timeoutSeconds: 60},
       readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 60},
       lifecycle: {preStop: {exec: {command: ['true']}}},
       volumeMounts: [{name: data, mountPath: /data}, {name: settings, mountPath: /settings, readOnly: true}]},
      {name: side, image: 'localhost/busybox:1.35', stdin: true, tty: true}],
    volumes: [{name: data, emptyDir: {}}, {name: settings, configMap: {name: settings}},
              {name: login, secret: {secretName: login}}, {name: host, hostPath: {path: /tmp}},
              {name: all, projected: {sources: [{downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}}]}}
"#,
    ),
    (
        "job",
        r#"{apiVersion: v1, kind: Pod, metadata: {name: job, namespace: NAMESPACE, labels: {app: job}},
  spec: {restartPolicy: Never, containers: [{name: main, image: 'localhost/busybox:1.35', command: [sh, -c, 'exit 3']}]}}
"#,
    ),
    (
        "absent",
        r#"{apiVersion: v1, kind: Pod, metadata: {name: absent, namespace: NAMESPACE, labels: {app: absent}},
  spec: {terminationGracePeriodSeconds: 1, hostNetwork: true, runtimeClassName: plain,
         containers: [{name: main, image: 'localhost/no-such-image', imagePullPolicy: Never}]}}
"#,
    ),
    (
        "settings",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NAMESPACE}, data: {SIZE: large, text: \"a\\nb\\n\"}}\n",
    ),
    (
        "login",
        "{apiVersion: v1, kind: Secret, metadata: {name: login, namespace: NAMESPACE}, stringData: {password: topsecret}}\n",
    ),
    (
        "important",
        "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: important}, value: 5000, description: first}\n",
    ),
    ("plain", "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: plain}, handler: runc}\n"),
];

/// Fields that differ on purpose.
const EXCEPTIONS: &[&str] = &[
    // Those of a pod from a manifest.
    "/metadata/annotations/kubernetes.io/config.",
    "/spec/tolerations/",
    // Not in version 1.20.
    "/metadata/generation",
    "/status/containerStatuses/0/allocatedResources",
    "/status/containerStatuses/0/resources",
    "/status/containerStatuses/0/volumeMounts",
];

/// Commands whose whole output and exit code have to be the same.
const SAME: &[&str] = &[
    "get pods",
    "get pods -o wide",
    "get pods --show-labels -L app",
    "get pods -o name",
    "get pods -l app=web",
    "get pods -l 'app notin (web,job)'",
    "get pods -l '!tier'",
    "get pods --field-selector status.phase=Failed",
    "get pods --field-selector status.phase!=Failed,spec.nodeName=node",
    "get pods --field-selector metadata.name=web,spec.restartPolicy=Always",
    "get pods --field-selector spec.colour=red",
    "get pods --sort-by=.spec.priority",
    "get pods -o jsonpath={range.items[*]}{.metadata.name}{.status.qosClass}{end}",
    "get pods -o custom-columns=N:.metadata.name,P:.spec.priority,Q:.status.qosClass",
    "get pod web job -o name",
    "get pod nothing",
    "get pod nothing --ignore-not-found",
    "get pod web nothing",
    "get node",
    "get node nothing",
    "get cm settings",
    "get cm nothing",
    "get secret login",
    "get secret login -o jsonpath={.data}",
    "get runtimeclass",
    "get ns nothing",
    "get nothings",
    "get pod,cm,secret -l app=web",
    "get events --field-selector involvedObject.name=web,reason=Nothing",
    "describe pod nothing",
    "describe cm settings",
    "describe secret login",
    "describe priorityclass important",
    "auth can-i delete pods",
    "auth can-i get secrets -A",
    "delete pod nothing",
    "delete pod nothing --ignore-not-found",
    "delete pod -l app=nothing",
    "delete cm nothing",
    "label pod web app=other",
    "label pod web app=web",
    "label pod nothing app=x",
    "annotate pod web note=other",
    "annotate pod web note=other --overwrite --dry-run=server",
    "patch pod nothing -p '{}'",
    "patch pod web -p '{\"spec\":{\"containers\":[{\"name\":\"main\",\"image\":\"localhost/busybox:1.35\"}]}}'",
    "create configmap settings --from-literal=a=b",
    "create configmap Wrong_Name --from-literal=a=b",
    "create configmap more --from-literal=a=b --dry-run=server",
    "create secret generic more --from-literal=a=b --dry-run=server -o name",
    "set image pod/nothing main=x",
    "set image pod/web nothing=x",
    "wait pod/web --for=condition=Ready --timeout=10s",
    "wait pod/nothing --for=delete --timeout=10s",
    "wait pod/job --for=condition=Ready --timeout=1s",
    "replace -f web-old.json",
    "create -f unnamed.yaml",
    "create -f two-names.yaml",
    "create -f wrong-image.yaml",
    "create -f generated.yaml --dry-run=server -o jsonpath={.spec.containers[0].imagePullPolicy}",
    "apply -f web.yaml --dry-run=server -o name",
    "diff -f settings.yaml",
    "diff -f login.yaml",
    "diff -f important.yaml",
    "diff -f plain.yaml",
    "get --raw /api/v1/namespaces/NAMESPACE/pods/nothing",
    "get --raw /apis/nothing/v1",
];

/// Commands with the same exit code and the same kind of error, but with words of our own: the beginnings of both, and the reason.
/// With an empty beginning, only the exit codes are compared.
const SIMILAR: &[(&str, &str)] = &[
    // The parsers of selectors have their own words.
    ("get pods -l 'app in ('", "Error from server (BadRequest): Unable to find"),
    ("get --raw /api/v1/namespaces/NAMESPACE/pods?labelSelector=a=b=c", "Error from server (BadRequest): "),
    ("get --raw /api/v1/namespaces/NAMESPACE/pods?limit=x", "Error from server (BadRequest): "),
    ("patch pod web -p '{'", "Error from server (BadRequest): "),
    // Wherry names the label.
    ("label pod web 'a b=c'", "The Pod \"web\" is invalid: metadata.labels"),
    // Wherry shows its storage to no client.
    ("replace -f web-other-uid.json", "Error from server (Conflict): error when replacing \"web-other-uid.json\": "),
    // An API server does not tell the reason, or shows the whole object.
    ("patch cm settings --type=merge -p '{\"data\":{\"SIZE\":5}}'", "The "),
    ("patch pod web --type=json -p '[{\"op\":\"test\",\"path\":\"/metadata/name\",\"value\":\"other\"}]'", "The "),
    ("patch pod web --type=json -p '[{\"op\":\"remove\",\"path\":\"/metadata/labels/none\"}]'", "The "),
    // Version 1.20 lacks a column.
    ("get priorityclass important", "NAME VALUE GLOBAL-DEFAULT AGE"),
];

#[test]
fn kubectl_prints_the_same_as_with_an_api_server() {
    let Some(directory) = api_server::programs() else {
        eprintln!("NOT TESTED: no API server was built here (make test-api-server)");
        return;
    };
    let programs = programs();
    let Some((minor, program)) = programs.iter().find(|(minor, _)| *minor == 32) else { return };
    let mut agent = Agent::prepare("compare", &Runtime::shared());
    agent.serve_kubectl();
    let namespace = agent.namespace.clone();
    for (name, text) in OBJECTS {
        agent.write(&format!("{name}.yaml"), &text.replace("NAMESPACE", &namespace));
    }
    agent.run_with_kubectl();
    let ours = Kubectl::new(&agent, *minor, program, "compare", "");
    let server = ApiServer::start(&directory, &namespace, PORT, program);
    let theirs = server.client(*minor, program, &namespace);
    // The status must not change after it was copied.
    agent.wait("web is ready", |a| a.pod("web").is_some_and(|pod| condition(&pod, "Ready")["status"] == "True"));
    agent.wait_phase("job", "Failed");
    agent.wait_waiting("absent", "ErrImageNeverPull");
    copy_objects(&agent, &ours, &theirs);
    for client in [&ours, &theirs] {
        files(client, &namespace);
    }
    let mut failures = Vec::new();
    for line in SAME {
        let line = line.replace("NAMESPACE", &namespace);
        let (mut mine, mut real) = (normal(&ours.run(&line)), normal(&theirs.run(&line)));
        if line.starts_with("describe cm") || line.starts_with("describe secret") {
            // kubectl prints the values in any order.
            (mine, real) = (sorted(&mine), sorted(&real));
        }
        if mine != real {
            failures.push(format!("kubectl {line}\n--- Wherry\n{mine}--- API server\n{real}"));
        }
    }
    for (line, begin) in SIMILAR {
        let line = line.replace("NAMESPACE", &namespace);
        let (mine, real) = (normal(&ours.run(&line)), normal(&theirs.run(&line)));
        let of = |text: &str| text.split_once('\n').map(|(code, rest)| (code.to_owned(), rest.starts_with(begin)));
        if of(&mine) != of(&real) || of(&mine).is_none_or(|(_, fits)| !fits) {
            failures.push(format!("kubectl {line}\n--- Wherry\n{mine}--- API server\n{real}"));
        }
    }
    for object in [
        "pod/web",
        "pod/job",
        "pod/absent",
        "cm/settings",
        "secret/login",
        "runtimeclass/plain",
        "priorityclass/important",
    ] {
        failures.extend(difference(&ours, &theirs, object));
    }
    assert!(failures.is_empty(), "{} differences\n{}", failures.len(), failures.join("\n"));
}

/// The fields of an object that differ, except those that belong to a server.
fn difference(ours: &Kubectl, theirs: &Kubectl, object: &str) -> Option<String> {
    let [mine, real] = [ours, theirs].map(|client| {
        let text = ok(client, &format!("get {object} -o json --show-managed-fields=false"), "");
        let mut object: Value = serde_json::from_str(&text).expect("JSON");
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        for field in ["uid", "resourceVersion", "creationTimestamp", "selfLink"] {
            metadata.remove(field);
        }
        let mut fields = BTreeMap::new();
        flatten("", &object, &mut fields);
        fields
    });
    let mut lines: Vec<String> = Vec::new();
    for path in mine.keys().chain(real.keys()).collect::<BTreeSet<_>>() {
        let (mine, real) = (mine.get(path), real.get(path));
        if mine != real && !EXCEPTIONS.iter().any(|known| path.starts_with(known)) {
            lines.push(format!("{path}: Wherry {mine:?}, API server {real:?}"));
        }
    }
    (!lines.is_empty()).then(|| format!("{object}\n{}\n", lines.join("\n")))
}

fn flatten(path: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| flatten(&format!("{path}/{key}"), value, fields));
        }
        Value::Array(list) if !list.is_empty() => {
            list.iter().enumerate().for_each(|(at, value)| flatten(&format!("{path}/{at}"), value, fields));
        }
        Value::Null => {}
        value => drop(fields.insert(path.to_owned(), value.to_string())),
    }
}

fn ok(client: &Kubectl, line: &str, input: &str) -> String {
    let printed = client.run_with(line, input.as_bytes());
    assert_eq!(printed.code, 0, "kubectl {line}: {}{}", printed.out, printed.err);
    printed.out
}

/// Creates the objects of the agent on the API server, with the node and the status that the agent shows.
fn copy_objects(agent: &Agent, ours: &Kubectl, theirs: &Kubectl) {
    let namespace = &agent.namespace;
    ok(theirs, &format!("create namespace {namespace}"), "");
    let status = |kind: &str, name: &str| {
        let object: Value = serde_json::from_str(&ok(ours, &format!("get {kind} {name} -o json"), "")).expect("JSON");
        let patch = json!({ "status": object["status"] }).to_string();
        let line = format!("patch {kind} {name} --subresource=status --type=merge -p '{patch}'");
        ok(theirs, &line, "");
        object
    };
    let mut objects: Vec<_> = OBJECTS.iter().collect();
    // The classes first.
    objects.reverse();
    for (_, text) in objects {
        ok(theirs, "create -f -", &yaml(&text.replace("NAMESPACE", namespace)));
    }
    let node: Value = serde_json::from_str(&ok(ours, "get node node -o json", "")).expect("JSON");
    let metadata = json!({ "name": "node", "labels": node["metadata"]["labels"] });
    ok(
        theirs,
        "create -f -",
        &json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": node["spec"] }).to_string(),
    );
    // Admission adds it to every new node.
    ok(theirs, "taint node node node.kubernetes.io/not-ready-", "");
    status("node", "node");
    for pod in ["web", "job", "absent"] {
        let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod },
            "target": { "apiVersion": "v1", "kind": "Node", "name": "node" } });
        ok(
            theirs,
            &format!("create --raw /api/v1/namespaces/{namespace}/pods/{pod}/binding -f -"),
            &binding.to_string(),
        );
        status("pod", pod);
    }
}

/// Files for the commands.
fn files(client: &Kubectl, namespace: &str) {
    let write = |name: &str, text: &str| fs::write(client.home.join(name), text).expect("a file");
    for (name, text) in OBJECTS {
        write(&format!("{name}.yaml"), &yaml(&text.replace("NAMESPACE", namespace)));
    }
    let mut web: Value = serde_json::from_str(&ok(client, "get pod web -o json", "")).expect("JSON");
    web["metadata"]["resourceVersion"] = json!("1");
    write("web-old.json", &web.to_string());
    web["metadata"]["resourceVersion"] = Value::Null;
    web["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    write("web-other-uid.json", &web.to_string());
    let pod = |metadata: &str, containers: &str| {
        yaml(&format!("{{apiVersion: v1, kind: Pod, metadata: {metadata}, spec: {{containers: [{containers}]}}}}\n"))
    };
    write("unnamed.yaml", &pod("{}", "{name: m, image: x}"));
    write("two-names.yaml", &pod("{name: two}", "{name: m, image: x}, {name: m, image: x}"));
    write("wrong-image.yaml", &pod("{name: wrong}", "{name: m, imagePullPolicy: Sometimes}"));
    write("generated.yaml", &pod("{name: generated}", "{name: m, image: x}"));
}

/// kubectl takes a text that begins with a brace for JSON.
fn yaml(text: &str) -> String {
    format!("---\n{text}")
}

/// The output with placeholders for ages and identifiers.
fn normal(printed: &Printed) -> String {
    let mut text = format!("exit code {}\n", printed.code);
    for line in printed.out.lines().chain(printed.err.lines()) {
        let words: Vec<&str> = line.split_whitespace().map(|word| if is_age(word) { "AGE" } else { word }).collect();
        text.push_str(&words.join(" "));
        text.push('\n');
    }
    text
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// `5s`, `2m10s`, `3d`
fn is_age(word: &str) -> bool {
    let ends = word.ends_with(['s', 'm', 'h', 'd']) && word.starts_with(|c: char| c.is_ascii_digit());
    ends && word.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c))
}
