use super::*;
use serde_json::json;
use std::fmt::Write;
use std::ops::Add;

const CONTEXT: Context<'static> = Context::new("lab", "2026-01-02T03:04:05.6Z");
const PATH: &str = "/m/web.yaml";

fn problems(text: &str) -> Vec<String> {
    read(text.as_bytes(), PATH, CONTEXT).1.iter().map(ToString::to_string).collect()
}

fn pods(text: &str) -> Vec<Pod> {
    let (pods, problems) = read(text.as_bytes(), PATH, CONTEXT);
    assert_eq!(problems, [], "{text}");
    pods
}

fn pod_named(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: 'i:1'}}]}}\n"
    )
}

#[test]
fn d5_several_documents_lists_and_json_are_read() {
    let json = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [
        {"metadata": {"name": "d"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        {"metadata": {"name": "e"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
    ]});
    let indented = pod_named("b").replace('\n', "\n  ");
    let text = format!(
        "# first\n---\n{}---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- {}\n- {}\n---\n{json}\n",
        pod_named("a"),
        indented.trim_end(),
        indented.replace("name: b", "name: c").trim_end()
    );
    let pods = pods(&text);
    let seen: Vec<(u32, &str)> = pods.iter().map(|p| (p.source.document, &*p.name.name)).collect();
    assert_eq!(seen, [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]);
}

#[test]
fn d5_one_bad_document_leaves_the_others_alone_and_is_named_with_its_line() {
    let text = format!(
        "{}---\n{}  typo: 1\n---\napiVersion: v1\nkind: Ingress\nmetadata: {{name: m}}\n---\n{}",
        pod_named("a"),
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: b\nspec:\n",
        pod_named("c"),
    );
    let (pods, found) = read(text.as_bytes(), PATH, CONTEXT);
    assert_eq!(pods.iter().map(|p| &*p.name.name).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "/m/web.yaml:11: spec.typo: unknown field",
            "/m/web.yaml:10: spec.containers: Required value",
            "/m/web.yaml:14: kind: Ingress is not supported: nothing on one machine serves it; leave the document out, \
             and use a Service of type NodePort, or run a reverse proxy as a pod with a configuration of its own",
        ]
    );
    let documents = parse(text.as_bytes(), PATH).unwrap();
    assert_eq!(documents.iter().map(Document::may_be_ours).collect::<Vec<_>>(), [true, true, false, true]);
    assert_eq!(documents[1].name(), Some(FullName::new("default", "b")));
}

#[test]
fn an_error_in_an_item_of_a_list_is_found_there() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n  spec:\n    \
                hostPid: true\n";
    assert_eq!(
        problems(text),
        [
            "/m/web.yaml:8: items[0].spec.hostPid: unknown field; did you mean hostPID?",
            "/m/web.yaml:7: items[0].spec.containers: Required value",
        ]
    );
    assert_eq!(problems("apiVersion: v1\nkind: List\n"), ["/m/web.yaml:1: items: Required value"]);
    assert_eq!(
        problems("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: []}\n"),
        ["/m/web.yaml:4: items[0].kind: a List in a List is not supported"]
    );
}

#[test]
fn bad_input_is_an_error_with_a_line() {
    let deep_flow = "[".repeat(10_000);
    let deep_block: String = (0..200).fold(String::new(), |mut text, i| {
        let _ = writeln!(text, "{}a:", " ".repeat(i));
        text
    });
    let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x]\n");
    for (before, name) in ('a'..'i').zip('b'..='i') {
        let _ = writeln!(bomb, "{name}: &{name} [{}]", vec![format!("*{before}"); 9].join(","));
    }
    let scalar_bomb = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), vec!["*a"; 90].join(","));
    let large = "#\n".repeat(5 << 20);
    let expanded =
        "larger than 2097152 bytes or 20,000 values once its aliases are expanded; use fewer aliases, or split it";
    let expected = [
        ("a: b: c\n", ":1: mapping values are not allowed in this context".to_owned()),
        ("kind: Pod\na: [1, 2\n", ":2: unclosed bracket '['".to_owned()),
        ("a: 1\nb: 2\na: 2\n", ":3: duplicate key a".to_owned()),
        ("{\"a\": 1,\n\"a\": 2}", ":2: duplicate key a".to_owned()),
        ("", ": the file has no document; to remove its pods, remove the file".to_owned()),
        ("# only\n---\n# comments\n", ": the file has no document; to remove its pods, remove the file".to_owned()),
        ("text", ":1: must be an object with apiVersion, kind, metadata and spec".to_owned()),
        ("- 1", ":1: must be an object with apiVersion, kind, metadata and spec".to_owned()),
        ("kind: pod\n", ":1: kind: Unsupported value: \"pod\"; did you mean Pod?".to_owned()),
        ("kind: Pod\n", ":1: apiVersion: Required value: must be v1".to_owned()),
        (
            "apiVersion: v2\nkind: Pod\n",
            ":1: apiVersion: Unsupported value: \"v2\": supported values: \"v1\"".to_owned(),
        ),
        ("a: *b\n", ":1: alias references unknown anchor".to_owned()),
        ("a: .inf\n", ":1: not a finite number; put it in quotes if it is a string".to_owned()),
        (&deep_flow, ":1: recursion limit exceeded".to_owned()),
        (&deep_block, ":65: nested deeper than 64 levels".to_owned()),
        (&bomb, format!(":5: {expanded}")),
        (&scalar_bomb, format!(":2: {expanded}")),
        (&large, ": larger than 2097152 bytes; split it".to_owned()),
    ];
    for (text, problem) in expected {
        assert_eq!(problems(text), [format!("{PATH}{problem}")], "{:.40}", text);
    }
    assert_eq!(read(b"a: 1\nb: \xff\n", PATH, CONTEXT).1[0].to_string(), "/m/web.yaml:2: not UTF-8 text");
}

/// Returns a pod with this many variables. With 32 of them, the references expand to 20 GB of environment.
fn doubling_environment(lines: usize) -> String {
    let mut text = pod_named("a").replace("spec: {containers: [{name: c, image: 'i:1'}]}", "spec:\n  containers:");
    text.push_str("  - name: c\n    image: i:1\n    env:\n    - {name: c0, value: aaaaaaaaaa}\n");
    for i in 1..lines {
        let _ = writeln!(text, "    - {{name: c{i}, value: \"$(c{0})$(c{0})\"}}", i - 1);
    }
    text
}

#[test]
fn references_that_multiply_the_environment_are_an_error_with_line_field_and_remedy() {
    let bomb = doubling_environment(32);
    assert!(bomb.len() < 1500, "{}", bomb.len());
    let expected = "/m/web.yaml:26: spec.containers[0].env[17].value: Too long: with this value the environment, \
                    command and arguments of the container are larger than 2097152 bytes once $(VAR) references are \
                    expanded: Linux cannot start such a container; shorten the values, use fewer references, or write \
                    $$(VAR) for a plain $(VAR)";
    assert_eq!(problems(&bomb), [expected]);
    assert_eq!(pods(&doubling_environment(17)).len(), 1);
    // The same limit applies to an item of a List, and to a record that an earlier version accepted.
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [parse(bomb.as_bytes(), PATH).unwrap()[0].content]});
    assert_eq!(problems(&list.to_string()), [expected.replace(":26: ", ":1: items[0].")]);
    let recorded = Document::from_content(1, parse(bomb.as_bytes(), PATH).unwrap()[0].content.clone());
    let problems = recorded.object(PATH, None, CONTEXT).unwrap_err();
    assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected.replace(":26: ", ": ")]);
}

#[test]
fn aliases_do_not_make_a_pod_larger_than_a_file_may_be() {
    // 90 KB of text expand to 3 MB of environment.
    let mut text = pod_named("a").replace("spec: {containers: [{name: c, image: 'i:1'}]}", "spec:\n  containers:");
    let _ =
        write!(text, "  - name: c\n    image: i:1\n    env:\n    - {{name: A, value: &a {}}}\n", "x".repeat(60_000));
    for i in 0..50 {
        let _ = writeln!(text, "    - {{name: A{i}, value: *a}}");
    }
    let found = problems(&text);
    assert!(found.len() == 1 && found[0].ends_with("use fewer aliases, or split it"), "{found:?}");
}

#[test]
fn a_file_full_of_errors_reports_some_of_them_and_is_not_walked_for_each() {
    let fields: String = (0..9000).map(|i| format!("  field{i}: 1\n")).collect();
    let found =
        problems(&pod_named("a").replace("spec: {containers: [{name: c, image: 'i:1'}]}\n", "spec:\n").add(&fields));
    assert_eq!(found.len(), MAX_FAULTS + 1);
    assert_eq!(found[0], "/m/web.yaml:5: spec.field0: unknown field");
    assert_eq!(found[MAX_FAULTS], "/m/web.yaml:1: 8981 more errors in this document; correct these first");

    // With errors in many documents, the first problems have line numbers, and the last ones only document numbers.
    let text: String =
        (0..1000).map(|i| format!("---\n{}", pod_named("a").replace("name: c", &format!("x{i}: c")))).collect();
    let documents = parse(text.as_bytes(), PATH).unwrap();
    let last = documents.len() - 1;
    let problems = |at: usize| documents[at].object(PATH, Some(text.as_bytes()), CONTEXT).unwrap_err();
    assert!(problems(0).iter().all(|p| p.line.is_some()));
    for document in &documents {
        let _ = document.object(PATH, Some(text.as_bytes()), CONTEXT);
    }
    assert!(documents[0].walked.load(Ordering::Relaxed) > MAX_WALKED);
    assert!(
        problems(last)[0].to_string().starts_with(&format!("{PATH}: document {}: ", last + 1)),
        "{}",
        problems(last)[0]
    );
}

#[test]
fn a_long_value_is_not_repeated_in_its_error() {
    let long = "x".repeat(500_000);
    let found = problems(&pod_named("a").replace("i:1", &format!(" {long}")));
    assert_eq!(found.len(), 1);
    assert!(found[0].ends_with("xxx...: must not have leading or trailing whitespace"), "{:.400}", found[0]);
    assert!(found[0].len() < 400, "{}", found[0].len());
    for text in [
        pod_named("a").replace("name: a", &format!("name: a, labels: {{{long}: b}}")),
        pod_named("a").replace("name: a", &format!("name: a, {long}: b")),
        pod_named("a").replace("containers: [", &format!("dnsPolicy: {long}, containers: [")),
        pod_named("a").replace("containers: [", &format!("hostNetwork: {long}, containers: [")),
        pod_named("a").replace("kind: Pod", &format!("kind: {long}")),
        pod_named("a").replace("apiVersion: v1", &format!("apiVersion: {long}")),
    ] {
        let found = problems(&text);
        assert!(!found.is_empty() && found.iter().all(|p| p.len() < 3000), "{:.300}", found[0]);
    }
}

#[test]
fn unquoted_booleans_and_octal_numbers_are_those_of_yaml_1_1() {
    let text = pod_named("a").replace("name: c", "name: Y");
    let message = "spec.containers[0].name: must be a string, not the boolean true; put it in quotes (yes, no, on, \
                   off, y and n are booleans too)";
    assert_eq!(problems(&text), [format!("/m/web.yaml:4: {message}")]);
    let text =
        format!("{}  ", pod_named("a")).replace("spec: {", "spec: {hostPID: yes, terminationGracePeriodSeconds: 010, ");
    let spec = pods(&text)[0].spec().clone();
    assert_eq!((spec.host_pid, spec.termination_grace_period_seconds), (Some(true), Some(8)));
}

#[test]
fn d3_the_uid_depends_on_path_and_content_but_not_on_comments_order_or_status() {
    let uid = |path: &str, text: &str| read(text.as_bytes(), path, CONTEXT).0[0].uid.clone();
    let base = uid(PATH, &pod_named("a"));
    assert_eq!(base.as_str().len(), 32);
    let reordered = "# why\nspec: {containers: [{image: 'i:1', name: c}]}\nmetadata: {name: a}\nkind: Pod\n\
                     apiVersion: v1\n\
                     status: {phase: Running, newer: true}\n";
    assert_eq!(uid(PATH, reordered), base);
    let as_json = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    assert_eq!(uid(PATH, &as_json.to_string()), base);
    assert_ne!(uid("/m/other.yaml", &pod_named("a")), base);
    assert_ne!(uid(PATH, &pod_named("b")), base);
    assert_ne!(uid(PATH, &pod_named("a").replace("i:1", "i:2")), base);
    let own = pod_named("a").replace("name: a", "name: a, uid: my-uid-1");
    assert_eq!(uid(PATH, &own).as_str(), "my-uid-1");
}

#[test]
fn d4_collisions_name_both_places() {
    let text = format!("{0}---\n{0}---\n{1}", pod_named("a"), pod_named("b"));
    let found = collisions(pods(&text).iter());
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["/m/web.yaml: document 2: metadata.name: Duplicate value: \"default/a\": also used by /m/web.yaml \
             (document 1); only one of the two pods runs"]
    );
}

#[test]
fn defaults_are_a_kubelets() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: bench-00008, namespace: bench, labels: {app: bench}}\n\
                spec:\n  \
                terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: \
                localhost/busybox:1.35\n    \
                command: [sleep, \"1000000\"]\n";
    let pod = &pods(text)[0];
    let uid = pod.uid.as_str();
    assert_eq!(
        serde_json::to_value(&pod.object).unwrap(),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "bench-00008", "namespace": "bench", "uid": uid, "labels": {"app": "bench"},
                "annotations": {
                    "kubernetes.io/config.hash": uid, "kubernetes.io/config.seen": "2026-01-02T03:04:05.6Z",
                    "kubernetes.io/config.source": "file",
                },
            },
            "spec": {
                "containers": [{
                    "name": "main", "image": "localhost/busybox:1.35", "command": ["sleep", "1000000"], "resources": {},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }],
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 1,
                "nodeName": "lab", "securityContext": {}, "schedulerName": "default-scheduler",
                "tolerations": [{"operator": "Exists", "effect": "NoExecute"}], "enableServiceLinks": true,
            },
        })
    );
}

#[test]
fn defaults_of_containers_follow_image_limits_and_network() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  hostNetwork: true\n  containers:\n  \
                - {name: a, image: busybox, ports: [{containerPort: 80}]}\n  - {name: b, image: 'r:5/b:latest'}\n  \
                - {name: c, image: 'c:1', resources: {limits: {cpu: 1, memory: 64Mi}, requests: {cpu: 100m}}}\n  \
                - {name: d, image: 'd@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'}\n";
    let pod = &pods(text)[0];
    let policies: Vec<_> = pod.containers().iter().map(|c| c.image_pull_policy.as_deref().unwrap()).collect();
    assert_eq!(policies, ["Always", "Always", "IfNotPresent", "IfNotPresent"]);
    let port = &pod.containers()[0].ports.as_ref().unwrap()[0];
    assert_eq!((port.host_port, port.protocol.as_deref()), (Some(80), Some("TCP")));
    let requests = pod.containers()[2].resources.as_ref().unwrap().requests.as_ref().unwrap();
    let requests: Vec<_> = requests.iter().map(|(k, v)| (k.as_str(), v.0.as_str())).collect();
    assert_eq!(requests, [("cpu", "100m"), ("memory", "64Mi")]);
}

fn classes(text: &str) -> Vec<PriorityClass> {
    let (objects, problems) = read_objects(text.as_bytes(), PATH, CONTEXT);
    assert_eq!(problems, [], "{text}");
    let class = |object| if let Object::PriorityClass(class) = object { Some(class) } else { None };
    objects.into_iter().filter_map(class).collect()
}

const CLASS: &str = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: gold}\n";

#[test]
fn a5_priority_classes_are_read_next_to_pods_and_in_lists() {
    let item = format!("{CLASS}value: -3\npreemptionPolicy: Never\nglobalDefault: true\n").replace('\n', "\n  ");
    let text = format!(
        "{}---\n{CLASS}value: 1000000000\ndescription: for what earns money\n---\napiVersion: v1\nkind: List\nitems:\n\
         - {}\n",
        pod_named("a"),
        item.trim_end()
    );
    let found = classes(&text);
    let said = |c: &PriorityClass| (c.source.document, c.value, c.global_default, c.preemption_policy.clone());
    assert_eq!(
        found.iter().map(said).collect::<Vec<_>>(),
        [(2, 1_000_000_000, false, "PreemptLowerPriority".to_owned()), (3, -3, true, "Never".to_owned())]
    );
    assert_eq!(pods(&text).len(), 1, "`read` returns only the pods");
    let key = |kind: &str| {
        let text = format!("apiVersion: x\nkind: {kind}\nmetadata: {{name: gold}}\n");
        parse(text.as_bytes(), PATH).unwrap()[0].key().unwrap()
    };
    assert_eq!(key("PriorityClas"), Key::PriorityClass("gold".into()));
    assert_eq!(key("Pod"), Key::Pod(FullName::new("default", "gold")));
}

#[test]
fn a5_a_wrong_priority_class_is_reported_with_line_and_field() {
    let whole = |head: &str, body: &str| problems(&format!("{head}{body}"));
    for (body, expected) in [
        ("value: 1000000001\n", ":4: value: Forbidden: maximum allowed value of a user defined priority is 1000000000"),
        ("value: 99999999999\n", ":4: value: integer 99999999999 is out of range"),
        ("value: high\n", ":4: value: must be an integer, not the text \"high\""),
        ("", ":1: value: Required value"),
        ("value: null\n", ":4: value: Required value"),
        ("value: 1\nglobaldefault: true\n", ":5: globaldefault: unknown field; did you mean globalDefault?"),
        (
            "value: 1\npreemptionPolicy: never\n",
            ":5: preemptionPolicy: Unsupported value: \"never\": supported values: \"PreemptLowerPriority\", \"Never\"",
        ),
        ("value: 1\npreemptionPolicy: \"\"\n", ":5: preemptionPolicy: Required value"),
    ] {
        assert_eq!(whole(CLASS, body), [format!("{PATH}{expected}")], "{body}");
    }
    for (from, to, expected) in [
        (
            "gold",
            "system-node-critical",
            ":3: metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use \
             only; system-node-critical is built in and needs no manifest",
        ),
        (
            "gold",
            "system-mine",
            ":3: metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use \
             only; choose another name",
        ),
        ("name: gold", "labels: {}", ":3: metadata.name: Required value: name is needed for the priority class"),
        ("name: gold", "name: gold, namespace: a", ":3: metadata.namespace: Forbidden: not allowed on this type"),
        (
            "io/v1",
            "io/v1beta1",
            ":1: apiVersion: Unsupported value: \"scheduling.k8s.io/v1beta1\": supported values: \
             \"scheduling.k8s.io/v1\"",
        ),
        (
            "kind: PriorityClass",
            "kind: Priorityclass",
            ":2: kind: Unsupported value: \"Priorityclass\"; did you mean \
             PriorityClass?",
        ),
    ] {
        assert_eq!(whole(&CLASS.replace(from, to), "value: 1\n"), [format!("{PATH}{expected}")], "{to}");
    }
}

#[test]
fn d2_a_record_is_not_validated_again() {
    let resources = json!({"limits": {"cpu": "1", "hugepages-2Mi": "3Mi"}});
    let content = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "a:1", "resources": resources}]}
    });
    let context = Context::new("lab", "");
    let document = Document::from_content(1, content);
    assert!(document.object("/m/web.yaml", None, context).is_err());
    let Ok(Object::Pod(pod)) = document.recorded("/m/web.yaml", context) else { panic!("no pod") };
    assert_eq!(pod.name.to_string(), "default/web");
}

#[test]
fn d6_config_maps_and_secrets_are_read_and_no_error_shows_a_secret() {
    let read = |text: &str| {
        let (objects, problems) = read_objects(text.as_bytes(), "/m/o.yaml", CONTEXT);
        let data = |object| if let Object::Data(data) = object { Some(data) } else { None };
        let objects: Vec<_> = objects.into_iter().filter_map(data).collect();
        (objects, problems.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let (objects, problems) = read(
        "{apiVersion: v1, kind: Secret, metadata: {name: s}, type: Opaque, immutable: true, data: {a: aGk=}, \
         stringData: {b: c}}",
    );
    assert_eq!(problems, [""; 0]);
    let values: Vec<(&str, &[u8])> = objects[0].values.iter().map(|(k, v)| (&**k, v.bytes())).collect();
    assert_eq!((values.as_slice(), objects[0].immutable), (&[("a", &b"hi"[..]), ("b", &b"c"[..])][..], true));
    assert_eq!(objects[0].key.to_string(), "Secret default/s");
    let secret = |fields: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{fields}\n");
    for (fields, expected) in [
        ("data: {a: hunter2!}", "data[a]: Invalid value: must be a map from keys to base64 text"),
        (
            "stringData: {a: 4711}",
            "stringData[a]: Invalid value: must be a map from keys to text; put numbers in quotes",
        ),
        ("stringData: {'../x': hunter2}", "stringData[...]: Invalid value: a valid config key must consist of"),
        // Without a colon, the value is part of the key.
        (
            "stringData: {a hunter2}",
            "stringData[...]: Invalid value: must be a map from keys to text; put numbers in quotes",
        ),
        ("data: {'a hunter2': aGk=}", "data[...]: Invalid value: a valid config key must consist of"),
        ("stringdata: {a: hunter2}", "stringdata: unknown field; did you mean stringData?"),
    ] {
        let (objects, problems) = read(&secret(fields));
        assert!(objects.is_empty() && problems[0].starts_with(&format!("/m/o.yaml:4: {expected}")), "{problems:?}");
        assert!(!problems.concat().contains("hunter2") && !problems.concat().contains("4711"), "{problems:?}");
    }
    for (fields, line, expected) in [
        ("type: kubernetes.io/dockerconfigjson\ndata: {a: aGk=}", 5, "data[.dockerconfigjson]: Required value"),
        ("type: kubernetes.io/dockercfg", 1, "data[.dockercfg]: Required value"),
        (
            "type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '{hunter2'}",
            5,
            "stringData[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": not valid JSON (line 1, \
             column 2)",
        ),
        (
            "type: kubernetes.io/dockercfg\nstringData: {.dockercfg: '{\"r.io\": {\"auth\": \"hunter2\"}}'}",
            5,
            "stringData[.dockercfg]: Invalid value: \"<secret contents redacted>\": [r.io].auth: must be the base64 \
             form of user:password",
        ),
    ] {
        let (objects, problems) = read(&secret(fields));
        assert!(objects.is_empty());
        assert_eq!(problems, [format!("/m/o.yaml:{line}: {expected}")]);
    }
    let of_type = |kind: &str, key: &str| {
        let text = secret(&format!(
            "type: {kind}\nstringData: {{{key}: '{{\"auths\": {{\"r.io\": {{\"username\": \"me\"}}}}}}'}}"
        ));
        let (objects, problems) = read(&text);
        assert_eq!(problems, [""; 0]);
        objects[0].registry_credentials().map(|keyring| keyring.lookup("r.io/a").len())
    };
    assert_eq!(of_type("kubernetes.io/dockerconfigjson", ".dockerconfigjson"), Some(1));
    assert_eq!(of_type("Opaque", ".dockerconfigjson"), None);
    let map = |fields: &str| read(&format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: m}}, {fields}}}")).1;
    assert_eq!(map("data: {port: '80'}, binaryData: {raw: /w==}"), [""; 0]);
    assert!(map("data: {port: 80}")[0].contains("data[port]: "), "{:?}", map("data: {port: 80}"));
    assert!(map("data: {a: x}, binaryData: {a: /w==}")[0].contains("duplicate of key present in binaryData"));
    let sized = |bytes: usize| map(&format!("data: {{a: {0}, b: {0}}}", "x".repeat(bytes / 2)));
    assert_eq!(sized(1 << 20), [""; 0]);
    assert!(sized((1 << 20) + 2)[0].contains("Too long"), "{:?}", sized((1 << 20) + 2));
}

#[test]
fn a_workload_that_is_not_supported_has_an_advice() {
    let text = "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: a}\n";
    let (_, found) = read(text.as_bytes(), PATH, CONTEXT);
    let [problem] = &found[..] else { panic!("{found:?}") };
    let text = problem.to_string();
    assert!(text.starts_with("/m/web.yaml:2: kind: ReplicationController is not supported: "), "{text}");
    assert!(text.contains("write a Deployment with the same spec.replicas and spec.template"), "{text}");
}

#[test]
fn all_wrong_types_of_a_document_are_reported_with_their_lines() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  hostNetwork: 'yes'\n  containers:\n  - name: \
                true\n    \
                image: i\n    command: sh\n";
    let (_, found) = read(text.as_bytes(), PATH, CONTEXT);
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    let places: Vec<&str> = found.iter().filter_map(|text| text.split(": ").nth(1)).collect();
    assert_eq!(places, ["spec.containers[0].command", "spec.containers[0].name", "spec.hostNetwork"], "{found:#?}");
    assert!(found[0].starts_with("/m/web.yaml:9: "), "{found:#?}");
}

const DEPLOYMENT: &str = r"apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: main, image: 'i:1'}]
";

#[test]
fn a_deployment_has_the_defaults_of_the_api() {
    let (objects, problems) = read_objects(DEPLOYMENT.as_bytes(), PATH, CONTEXT);
    let [Object::Workload(Workload::Deployment(deployment))] = &objects[..] else { panic!("{problems:?}") };
    let shown = serde_json::json!(deployment.object.spec);
    for (at, value) in [
        ("/replicas", serde_json::json!(1)),
        ("/revisionHistoryLimit", 10.into()),
        ("/progressDeadlineSeconds", 600.into()),
        ("/strategy/type", "RollingUpdate".into()),
        ("/strategy/rollingUpdate/maxSurge", "25%".into()),
        ("/strategy/rollingUpdate/maxUnavailable", "25%".into()),
    ] {
        assert_eq!(shown.pointer(at), Some(&value), "{at}");
    }
    assert_eq!((deployment.head.name().to_string().as_str(), deployment.replicas()), ("default/web", 1));
    // The UID stays when the content changes.
    let (objects, _) = read_objects(DEPLOYMENT.replace("i:1", "i:2").as_bytes(), PATH, CONTEXT);
    let [Object::Workload(Workload::Deployment(other))] = &objects[..] else { panic!("a Deployment") };
    assert_eq!(deployment.head.uid, other.head.uid);
    assert_ne!(deployment.head.hash, other.head.hash);
}

#[test]
fn each_error_of_a_deployment_names_its_field() {
    let strategy = |text: &str| format!("  strategy: {text}\n  template:");
    for (from, to, found) in [
        ("  template:", strategy("{type: Often}"), "spec.strategy.type: Unsupported value: \"Often\""),
        (
            "  template:",
            strategy("{type: Recreate, rollingUpdate: {maxSurge: 1}}"),
            "spec.strategy.rollingUpdate: Forbidden: ",
        ),
        (
            "  template:",
            strategy("{rollingUpdate: {maxSurge: 0, maxUnavailable: 0%}}"),
            "maxUnavailable: Invalid value: \"0%\"",
        ),
        ("  template:", strategy("{rollingUpdate: {maxUnavailable: 101%}}"), "must not be greater than 100%"),
        (
            "  template:",
            strategy("{rollingUpdate: {maxSurge: some}}"),
            "spec.strategy.rollingUpdate.maxSurge: Invalid value",
        ),
        ("  template:", "  replicas: -1\n  template:".to_owned(), "spec.replicas: Invalid value: -1"),
        ("  template:", "  minReadySeconds: 600\n  template:".to_owned(), "must be greater than minReadySeconds"),
        ("labels: {app: web}", "labels: {app: other}".to_owned(), "spec.template.metadata.labels: Invalid value"),
        (
            "      containers:",
            "      activeDeadlineSeconds: 5\n      containers:".to_owned(),
            "spec.template.spec.activeDeadlineSeconds: Forbidden",
        ),
        ("'i:1'}", "'i:1', ports: [{}]}".to_owned(), "spec.template.spec.containers[0].ports[0].containerPort: "),
    ] {
        let (_, problems) = read_objects(DEPLOYMENT.replacen(from, &to, 1).as_bytes(), PATH, CONTEXT);
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(all.len() == 1 && all[0].contains(found), "{to}: {all:?}");
    }
}

#[test]
fn a_daemon_set_has_the_defaults_of_the_api_and_each_error_names_its_field() {
    let text = DEPLOYMENT.replace("kind: Deployment", "kind: DaemonSet");
    let (objects, problems) = read_objects(text.as_bytes(), PATH, CONTEXT);
    let [Object::Workload(Workload::DaemonSet(daemon_set))] = &objects[..] else { panic!("{problems:?}") };
    let shown = serde_json::json!(daemon_set.object.spec);
    for (at, value) in [
        ("/revisionHistoryLimit", serde_json::json!(10)),
        ("/updateStrategy/type", "RollingUpdate".into()),
        ("/updateStrategy/rollingUpdate/maxSurge", 0.into()),
        ("/updateStrategy/rollingUpdate/maxUnavailable", 1.into()),
    ] {
        assert_eq!(shown.pointer(at), Some(&value), "{at}");
    }
    let strategy = |text: &str| format!("  updateStrategy: {text}\n  template:");
    let at = "spec.updateStrategy.rollingUpdate";
    for (to, found) in [
        (strategy("{type: Recreate}"), "spec.updateStrategy.type: Unsupported value: \"Recreate\"".to_owned()),
        (strategy("{rollingUpdate: {maxSurge: 1}}"), format!("{at}.maxSurge: Invalid value: \"1\": may not be set")),
        (strategy("{rollingUpdate: {maxUnavailable: 0}}"), format!("{at}.maxUnavailable: Required value: cannot be 0")),
        (strategy("{rollingUpdate: {maxUnavailable: 200%}}"), "must not be greater than 100%".to_owned()),
        ("  minReadySeconds: -1\n  template:".to_owned(), "spec.minReadySeconds: Invalid value: -1".to_owned()),
        ("  replicas: 2\n  template:".to_owned(), "spec.replicas: ".to_owned()),
    ] {
        let (_, problems) = read_objects(text.replacen("  template:", &to, 1).as_bytes(), PATH, CONTEXT);
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(all.len() == 1 && all[0].contains(&found), "{to}: {all:?}");
    }
    for to in [
        strategy("{rollingUpdate: {maxSurge: 100%, maxUnavailable: 0}}"),
        strategy("{type: OnDelete, rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}"),
    ] {
        let (_, problems) = read_objects(text.replacen("  template:", &to, 1).as_bytes(), PATH, CONTEXT);
        assert_eq!(problems, [], "{to}");
    }
}

const JOB: &str = "\
apiVersion: batch/v1
kind: Job
metadata: {name: load}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: a:1}]
";

#[test]
fn y18_a_job_has_the_defaults_of_the_api_and_each_error_names_its_field() {
    let read = |to: &str| read_objects(JOB.replacen("spec:\n", &format!("spec:\n{to}"), 1).as_bytes(), PATH, CONTEXT);
    let (objects, problems) = read("");
    let [Object::Workload(Workload::Job(job))] = &objects[..] else { panic!("{problems:?}") };
    let shown = serde_json::json!(job.object.spec);
    for (at, value) in [
        ("/completions", serde_json::json!(1)),
        ("/parallelism", 1.into()),
        ("/backoffLimit", 6.into()),
        ("/completionMode", "NonIndexed".into()),
        ("/suspend", false.into()),
        ("/podReplacementPolicy", "TerminatingOrFailed".into()),
    ] {
        assert_eq!(shown.pointer(at), Some(&value), "{at}");
    }
    let indexed = "  completionMode: Indexed\n  completions: 3\n";
    let failure = |rule: &str| format!("  podFailurePolicy: {{rules: [{rule}]}}\n");
    let codes = |codes: &str| failure(&format!("{{action: Ignore, onExitCodes: {codes}}}"));
    let success = |rule: &str| format!("{indexed}  successPolicy: {{rules: [{rule}]}}\n");
    for (to, found) in [
        ("  parallelism: -1\n".to_owned(), "spec.parallelism: Invalid value: -1"),
        (
            "  parallelism: 1001\n".to_owned(),
            "spec.parallelism: Invalid value: 1001: must be at most 1000 on one machine",
        ),
        ("  activeDeadlineSeconds: -1\n".to_owned(), "spec.activeDeadlineSeconds: Invalid value: -1"),
        ("  completionMode: Any\n".to_owned(), "spec.completionMode: Unsupported value: \"Any\""),
        ("  parallelism: 2\n  completionMode: Indexed\n".to_owned(), "spec.completions: Required value"),
        (indexed.replace('3', "10001"), "must be at most 10000 on one machine"),
        ("  backoffLimitPerIndex: 1\n".to_owned(), "requires indexed completion mode"),
        (format!("{indexed}  maxFailedIndexes: 1\n"), "requires that `backoffLimitPerIndex` is specified"),
        (failure("{action: Ignore}"), "specifying one of onExitCodes and onPodConditions is required"),
        (failure("{action: Stop, onPodConditions: [{type: A}]}"), "rules[0].action: Unsupported value: \"Stop\""),
        (failure("{action: FailIndex, onPodConditions: [{type: A}]}"), "requires the backoffLimitPerIndex to be set"),
        (codes("{operator: In, values: [0]}"), "values: Invalid value: 0: must not be 0 for the In operator"),
        (codes("{operator: In, values: []}"), "values: Invalid value: 0: must have 1 to 255 items"),
        (codes("{containerName: x, operator: In, values: [1]}"), "must be one of the container or initContainer names"),
        (
            failure("{action: Ignore, onPodConditions: [{type: A, status: Perhaps}]}"),
            "status: Unsupported value: \"Perhaps\"",
        ),
        (success("{}"), "at least one of succeededCount or succeededIndexes must be specified"),
        (success("{succeededIndexes: '2-1'}"), "succeededIndexes: Invalid value: \"2-1\": \"2-1\": the first number"),
        (
            success("{succeededIndexes: '0,1', succeededCount: 3}"),
            "succeededCount: Invalid value: 3: must be from 1 to 2",
        ),
        ("  manualSelector: true\n".to_owned(), "spec.selector: Required value"),
        ("  selector: {matchLabels: {a: b}}\n".to_owned(), "`selector` not auto-generated"),
        ("  managedBy: a.com/b\n".to_owned(), "spec.managedBy: Unsupported value"),
    ] {
        let (_, problems) = read(&to);
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(all.len() == 1 && all[0].contains(found), "{to}: {all:?}");
    }
    let long = JOB.replace("load", &"x".repeat(62)).replacen("spec:\n", &format!("spec:\n{indexed}"), 1);
    let (_, problems) = read_objects(long.as_bytes(), PATH, CONTEXT);
    assert!(problems.len() == 1 && problems[0].to_string().contains("with invalid DNS label: xxx"), "{problems:?}");
    for (from, to) in [("Never", "Always"), ("restartPolicy: Never\n      ", "")] {
        let (_, problems) = read_objects(JOB.replacen(from, to, 1).as_bytes(), PATH, CONTEXT);
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let found = "spec.template.spec.restartPolicy: Unsupported value: \"Always\"";
        assert!(all.len() == 1 && all[0].contains(found), "{to}: {all:?}");
    }
    let both = format!("{indexed}  backoffLimitPerIndex: 1\n");
    let text = JOB.replace("Never", "OnFailure").replacen("spec:\n", &format!("spec:\n{both}"), 1);
    let (_, problems) = read_objects(text.as_bytes(), PATH, CONTEXT);
    assert!(
        problems.len() == 1 && problems[0].to_string().contains("when backoffLimitPerIndex is used"),
        "{problems:?}"
    );
}

const CRON_JOB: &str = "\
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: 30 6 * * mon-fri
  jobTemplate:
    metadata: {labels: {app: tick}}
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: a:1}]
";

#[test]
fn y20_a_cron_job_has_the_defaults_of_the_api_and_each_error_names_its_field() {
    let read = |from: &str, to: &str| read_objects(CRON_JOB.replacen(from, to, 1).as_bytes(), PATH, CONTEXT);
    let (objects, problems) = read("", "");
    let [Object::Workload(Workload::CronJob(of))] = &objects[..] else { panic!("{problems:?}") };
    let shown = serde_json::json!(of.object.spec);
    for (at, value) in [
        ("/concurrencyPolicy", serde_json::json!("Allow")),
        ("/suspend", false.into()),
        ("/successfulJobsHistoryLimit", 3.into()),
        ("/failedJobsHistoryLimit", 1.into()),
    ] {
        assert_eq!(shown.pointer(at), Some(&value), "{at}");
    }
    let job = of.job("2026-01-02T06:30:00Z".parse().expect("a time"), &jiff::tz::TimeZone::UTC);
    let object = serde_json::json!(job.object);
    for (at, value) in [
        ("/metadata/name", serde_json::json!("tick-29455590")),
        ("/metadata/labels/app", "tick".into()),
        ("/metadata/annotations/batch.kubernetes.io~1cronjob-scheduled-timestamp", "2026-01-02T06:30:00Z".into()),
        ("/metadata/ownerReferences/0/name", "tick".into()),
        ("/spec/completions", 1.into()),
    ] {
        assert_eq!(object.pointer(at), Some(&value), "{at}");
    }
    assert_eq!(job.head.template, of.head.template);
    let spec = |line: &str| ("spec:\n", format!("spec:\n  {line}\n"));
    let job = |line: &str| ("    spec:\n", format!("    spec:\n      {line}\n"));
    for ((from, to), found) in [
        (("30 6 * * mon-fri", "\"\"".to_owned()), "spec.schedule: Required value"),
        (("30 6 * * mon-fri", "30 6 * * mon-".to_owned()), "spec.schedule: Invalid value: \"30 6 * * mon-\""),
        (("30 6", "TZ=UTC 30 6".to_owned()), "use timeZone field instead"),
        (spec("timeZone: \"\""), "spec.timeZone: Invalid value: \"\""),
        (spec("timeZone: Europe//Berlin"), "spec.timeZone: Invalid value"),
        (spec("timeZone: ../../etc/passwd"), "spec.timeZone: Invalid value"),
        (spec("concurrencyPolicy: Maybe"), "spec.concurrencyPolicy: Unsupported value: \"Maybe\""),
        (spec("startingDeadlineSeconds: -1"), "spec.startingDeadlineSeconds: Invalid value: -1"),
        (spec("failedJobsHistoryLimit: -1"), "spec.failedJobsHistoryLimit: Invalid value: -1"),
        (spec("failedJobsHistoryLimit: 101"), "must be at most 100 on one machine"),
        (job("manualSelector: true"), "spec.jobTemplate.spec.manualSelector: Unsupported value"),
        (job("selector: {matchLabels: {a: b}}"), "spec.jobTemplate.spec.selector: Invalid value"),
        (job("completions: -1"), "spec.jobTemplate.spec.completions: Invalid value: -1"),
        (("Never", "Always".to_owned()), "spec.jobTemplate.spec.template.spec.restartPolicy: Unsupported value"),
        (("{app: tick}", "{app: _}".to_owned()), "spec.jobTemplate.metadata.labels"),
        (("name: tick", format!("name: {}", "x".repeat(53))), "must be no more than 52 characters"),
    ] {
        let (objects, problems) = read(from, &to);
        let text = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(objects.is_empty() && text.contains(found), "{to}: {text}");
    }
}
