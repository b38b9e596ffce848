//! kubectl of several versions against an agent: what each command prints, sessions in containers, watches, and certificates.
//!
//! The versions run at the same time on the same pods. Rows whose content depends on the version say so.

use crate::support::agent::{Agent, container};
use crate::support::kubectl::{Kubectl, Printed, Running, programs};
use crate::support::yaml;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

const WEB: &str = "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: [sh, -c, 'mkdir /w; echo page > /w/index.html; for i in 1 2 3; do echo line $i; done; exec httpd -f -p 8080 -h /w']
      ports: [{containerPort: 8080}]
    - name: side
      image: localhost/busybox:1.35
      stdin: true
      command: [sh, -c, 'echo side begins; while read line; do echo \"got $line\"; done']
";

const TWICE: &str = "
    restartPolicy: OnFailure
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: [sh, -c, 'if [ -e /v/again ]; then echo second run; exec sleep 86400; fi; touch /v/again; echo first run; exit 1']
      volumeMounts: [{name: v, mountPath: /v}]
    volumes: [{name: v, emptyDir: {}}]
";

const LOOKS: &str = "
    terminationGracePeriodSeconds: 1
    restartPolicy: Never
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: [sh, -c, 'echo begins; while [ ! -e /stop ]; do sleep 0.1; done; echo ends']
";

/// An agent with the API and the pods of this suite.
fn agent(name: &str) -> Agent {
    let mut agent = Agent::prepare(name, &crate::support::lab::Runtime::shared());
    agent.serve_kubectl();
    let namespace = agent.namespace.clone();
    let labelled = |name: &str, spec: &str| {
        yaml::pod(&namespace, name, spec).replace("\nspec:", &format!("\n  labels: {{app: {name}}}\nspec:"))
    };
    agent.write("web.yaml", &labelled("web", WEB));
    agent.write("twice.yaml", &labelled("twice", TWICE));
    agent.apply("job", &yaml::script("Never", "echo done"));
    let metadata = |name: &str| format!("metadata: {{name: {name}, namespace: {namespace}}}");
    let object =
        |kind: &str, name: &str, more: &str| format!("{{apiVersion: v1, kind: {kind}, {}, {more}}}\n", metadata(name));
    agent.write("cm.yaml", &object("ConfigMap", "settings", "data: {COLOUR: blue, SIZE: large}"));
    agent.write("secret.yaml", &object("Secret", "login", "stringData: {password: topsecret}"));
    agent.write(
        "pc.yaml",
        "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: important}, value: 5000}\n",
    );
    agent
        .write("rc.yaml", "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: plain}, handler: runc}\n");
    agent.run_with_kubectl();
    agent
}

fn wait_for_pods(agent: &Agent) {
    agent.wait_running("web");
    agent.wait_phase("job", "Succeeded");
    agent.wait("the second run", |a| a.pod("twice").is_some_and(|p| container(&p, "main")["restartCount"] == 1));
    agent.wait_running("twice");
}

/// One command: its words; the exit code; texts of stdout and stderr. `^a b`: the words of the first line. `!a`: not contained.
type Row<'a> = (&'a str, i32, &'a [&'a str]);

fn check(printed: &Printed, (words, code, texts): Row<'_>, minor: u32) -> Result<(), String> {
    let all = format!("{}{}", printed.out, printed.err);
    let holds = |text: &&str| match (text.strip_prefix('^'), text.strip_prefix('!')) {
        (Some(first), _) => {
            printed.out.lines().next().is_some_and(|l| l.split_whitespace().eq(first.split_whitespace()))
        }
        (_, Some(absent)) => !all.contains(absent),
        _ => all.contains(*text),
    };
    let missing: Vec<_> = texts.iter().filter(|text| !holds(text)).collect();
    if printed.code == code && missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "1.{minor}: kubectl {words}\nexit code {} (expected {code}); not as expected: {missing:?}\n{}--- stderr\n{}",
        printed.code, printed.out, printed.err
    ))
}

/// The commands that read, and the first one of each kind of session, with what all versions print.
const ROWS: &[Row<'_>] = &[
    ("version", 0, &["Server Version: ", "+wherry"]),
    ("get pods", 0, &["^NAME READY STATUS RESTARTS AGE", "Running", "Completed", "!IP"]),
    ("get pod web --no-headers", 0, &["web", "2/2", "Running", "!job"]),
    (
        "get po -o wide",
        0,
        &["^NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES", "node", "<none>"],
    ),
    ("get pods -A", 0, &["^NAMESPACE NAME READY STATUS RESTARTS AGE", "web"]),
    ("get pods -o name", 0, &["pod/web", "pod/job", "pod/twice"]),
    (
        "get pod web -o jsonpath={.spec.containers[*].name},{.status.phase},{.spec.dnsPolicy}",
        0,
        &["main side,Running,ClusterFirst"],
    ),
    ("get pods -o custom-columns=N:.metadata.name,P:.status.phase", 0, &["^N P", "Succeeded"]),
    ("get pod web -o yaml", 0, &["kind: Pod\n", "restartPolicy: Always\n", "resourceVersion: \""]),
    ("get pods -l app=web -o name", 0, &["pod/web", "!pod/job"]),
    ("get pods -l 'app in (web,twice),app!=twice' -o name", 0, &["pod/web", "!twice"]),
    ("get pods --field-selector status.phase=Succeeded -o name", 0, &["pod/job", "!web"]),
    ("get pods --field-selector spec.nodeName=elsewhere", 0, &["No resources found"]),
    ("get pods --field-selector spec.colour=red", 1, &["field label not supported: spec.colour"]),
    ("get pods --sort-by=.metadata.name", 0, &["^NAME READY STATUS RESTARTS AGE", "web"]),
    ("get pods --show-labels -L app", 0, &["^NAME READY STATUS RESTARTS AGE APP LABELS", "app=web"]),
    ("get nodes", 0, &["^NAME STATUS ROLES AGE VERSION", "node", "Ready", "<none>", "+wherry"]),
    ("get no -o wide", 0, &["OS-IMAGE", "CONTAINER-RUNTIME", "192.0.2.2", "://"]),
    ("get cm", 0, &["^NAME DATA AGE", "settings   2 "]),
    ("get secret", 0, &["^NAME TYPE DATA AGE", "login", "Opaque"]),
    ("get secret login -o jsonpath={.data.password}", 0, &["dG9wc2VjcmV0"]),
    ("get ns", 0, &["^NAME STATUS AGE", "default", "Active", "kube-system"]),
    ("get pc", 0, &["NAME", "VALUE", "important", "5000", "system-node-critical", "2000001000"]),
    ("get runtimeclass", 0, &["^NAME HANDLER AGE", "plain", "runc"]),
    ("get lease -n kube-node-lease", 0, &["^NAME HOLDER AGE", "node"]),
    ("get ev", 0, &["^LAST SEEN TYPE REASON OBJECT MESSAGE", "Started", "pod/web"]),
    ("get ev --field-selector involvedObject.name=job", 0, &["pod/job", "!pod/web"]),
    ("get all", 0, &["^NAME READY STATUS RESTARTS AGE", "web "]),
    ("get pod,cm -o name", 0, &["pod/web", "configmap/settings"]),
    ("get pod nothing", 1, &["Error from server (NotFound): pods \"nothing\" not found"]),
    ("get pod nothing --ignore-not-found", 0, &["!NotFound"]),
    ("get node nothing", 1, &["nodes \"nothing\" not found"]),
    ("get services", 0, &["No resources found"]),
    ("get ingresses,replicationcontrollers", 0, &["No resources found"]),
    ("get gateways", 1, &["error: the server doesn't have a resource type \"gateways\""]),
    ("get --raw /readyz", 0, &["ok"]),
    ("get --raw /api/v1/namespaces/default", 0, &["\"phase\":\"Active\""]),
    ("get --raw /api/v2/pods", 1, &["(NotFound)", "could not find the requested resource"]),
    ("get --raw /apis/metrics.k8s.io/v1/pods", 1, &["(NotFound)"]),
    ("get --raw '/api/v1/pods?watch=1&resourceVersion=9000000000000000000'", 1, &["Too large resource version"]),
    ("get --raw '/api/v1/pods?watch=1&resourceVersion=1'", 1, &["(Expired)"]),
    ("get --raw '/api/v1/pods?watch=1&resourceVersion=many'", 1, &["(BadRequest)", "invalid number"]),
    ("describe pod web", 0, &["Name: ", "Containers:\n  main:\n", "Port:          8080/TCP", "Started container side"]),
    ("describe pod job", 0, &["Reason:       Completed", "Exit Code:    0"]),
    ("describe node node", 0, &["Non-terminated Pods:", "HolderIdentity:  node", "Ready", "KubeletReady", " web "]),
    ("describe cm settings", 0, &["COLOUR:\n----\nblue\n"]),
    ("logs job", 0, &["done\n"]),
    ("logs web -c main", 0, &["line 1\nline 2\nline 3\n"]),
    ("logs web -c main --tail=1", 0, &["line 3\n", "!line 2"]),
    ("logs web -c main --since=1h", 0, &["line 1\n"]),
    ("logs web -c main --since-time=2100-01-01T00:00:00Z", 0, &["!line"]),
    ("logs web -c main --limit-bytes=7", 0, &["line 1\n", "!line 2"]),
    ("logs web -c main --timestamps --tail=1", 0, &["^T line 3"]),
    ("logs web --all-containers", 0, &["line 3\n", "side begins\n"]),
    ("logs -l app=web --all-containers --prefix --tail=-1", 0, &["/web/main] line 1\n", "/web/side] side begins\n"]),
    ("logs web -c nothing", 1, &["container nothing is not valid for pod web"]),
    ("logs nothing", 1, &["pods \"nothing\" not found"]),
    ("logs twice -p", 0, &["first run\n", "!second"]),
    ("logs twice", 0, &["second run\n", "!first"]),
    ("logs job -p", 1, &["previous terminated container \"main\" in pod \"job\" not found"]),
    ("logs -f job", 0, &["done\n"]),
    ("top pod", 0, &["^NAME CPU(cores) MEMORY(bytes)", "web ", "m ", "Mi", "!job"]),
    ("top pod web --containers --no-headers", 0, &["main ", "side ", "!twice"]),
    ("top node --no-headers", 0, &["node ", "m ", "%", "Mi"]),
    ("wait pod/web --for=condition=Ready --timeout=60s", 0, &["pod/web condition met\n"]),
    (
        "wait pod/web --for=condition=Never --timeout=1s",
        1,
        &["error: timed out waiting for the condition on pods/web\n"],
    ),
    ("auth can-i delete pods", 0, &["yes\n"]),
    ("auth can-i --list", 0, &["*.*", "[*]"]),
    ("api-resources -o name", 0, &["pods\n", "nodes\n", "leases.coordination.k8s.io\n"]),
    ("api-resources --namespaced=false --no-headers", 0, &["nodes ", "priorityclasses ", "!configmaps"]),
    ("api-versions", 0, &["v1\n", "metrics.k8s.io/v1beta1\n"]),
    ("cluster-info", 0, &["is running at"]),
    (
        "exec web -c main -- sh -c 'echo out; echo err >&2; exit 3'",
        3,
        &["out\n", "err\n", "command terminated with exit code 3"],
    ),
    ("exec job -- true", 1, &["error: "]),
    ("exec web -c nothing -- true", 1, &["container", "nothing"]),
    ("exec nothing -- true", 1, &["pods \"nothing\" not found"]),
];

/// Commands that an older kubectl does not have.
const SINCE_32: &[Row<'_>] = &[
    ("get pod web --subresource=status -o jsonpath={.status.phase}", 0, &["Running"]),
    ("events", 0, &["^LAST SEEN TYPE REASON OBJECT MESSAGE", "Pod/web"]),
    ("explain pods", 0, &["KIND:       Pod\nVERSION:    v1\n", "DESCRIPTION:", "  spec\t<PodSpec>\n"]),
    ("explain pod.spec.containers.resources.limits", 0, &["FIELD: limits <map[string]Quantity>", "Honoured"]),
    ("explain pod.spec.readinessGates", 0, &["FIELD: readinessGates <[]PodReadinessGate>", "Refused."]),
    ("explain pod.spec.initContainers --recursive", 0, &["httpGet\t<HTTPGetAction>", "port\t<IntOrString>"]),
    ("explain cm", 0, &["KIND:       ConfigMap", "binaryData\t<map[string]string>"]),
    ("explain pc", 0, &["GROUP:      scheduling.k8s.io", "value\t<integer>"]),
    ("explain lease.spec.holderIdentity", 0, &["FIELD: holderIdentity <string>"]),
    ("explain pod.spec.colour", 1, &["field \"colour\" does not exist"]),
    ("events --for pod/job", 0, &["Pod/job", "!Pod/web"]),
    ("auth whoami", 0, &["^ATTRIBUTE VALUE", "Username", "wherry:edit"]),
    ("wait pod/job --for=jsonpath={.status.phase}=Succeeded --timeout=60s", 0, &["pod/job condition met\n"]),
    ("logs web", 0, &["Defaulted container \"main\" out of: main, side", "line 1\n"]),
];

/// Commands with a certificate of the role view.
const VIEW: &[Row<'_>] = &[
    ("get pods -o name", 0, &["pod/web"]),
    ("logs job", 0, &["done\n"]),
    (
        "get secrets",
        1,
        &["Error from server (Forbidden): secrets is forbidden: User \"view-", "cannot list resource \"secrets\""],
    ),
    ("exec web -c main -- true", 1, &["pods \"web\" is forbidden: User \"view-", "\"pods/exec\""]),
    ("port-forward pod/web :8080", 1, &["is forbidden", "\"pods/portforward\""]),
    ("auth can-i list pods", 0, &["yes\n"]),
    ("auth can-i create pods/exec", 1, &["no"]),
    ("auth can-i get secrets", 1, &["no"]),
];

#[test]
fn every_version_of_kubectl_reads_and_opens_sessions() {
    let programs = programs();
    if programs.is_empty() {
        return;
    }
    let agent = agent("kubectl");
    let clients: Vec<Kubectl> =
        programs.iter().map(|(minor, p)| Kubectl::new(&agent, *minor, p, &format!("edit-{minor}"), "")).collect();
    let viewers: Vec<Kubectl> =
        programs.iter().map(|(minor, p)| Kubectl::new(&agent, *minor, p, &format!("view-{minor}"), "--view")).collect();
    wait_for_pods(&agent);
    let all: Vec<Vec<String>> = std::thread::scope(|scope| {
        let versions = clients.iter().zip(&viewers);
        let threads: Vec<_> = versions.map(|(edit, view)| scope.spawn(|| failures_of_a_version(edit, view))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| vec!["a check panicked".to_owned()])).collect()
    });
    let failures: Vec<String> = all.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n\n"));
}

fn failures_of_a_version(edit: &Kubectl, view: &Kubectl) -> Vec<String> {
    let mut failures = Vec::new();
    let mut rows = |client: &Kubectl, rows: &[Row<'_>]| {
        for row in rows {
            let mut printed = client.run(row.0);
            if row.0.contains("--timestamps") {
                printed.out = replace_timestamp(&printed.out);
            }
            failures.extend(check(&printed, *row, client.minor).err());
        }
    };
    rows(edit, ROWS);
    if edit.minor >= 32 {
        rows(edit, SINCE_32);
    }
    rows(view, VIEW);
    type Check = fn(&Kubectl) -> Result<(), String>;
    let checks: [(&str, Check); 6] = [
        ("get -o json", json_is_complete),
        ("exec", commands_in_a_container),
        ("exec -it", terminal),
        ("attach", attached),
        ("cp", copied),
        ("port-forward", forwarded),
    ];
    for (what, check) in checks {
        failures.extend(check(edit).err().map(|why| format!("1.{}: {what}: {why}", edit.minor)));
    }
    failures
}

/// `2026-...Z line 3` as `T line 3`; unchanged if it does not begin with a time.
fn replace_timestamp(out: &str) -> String {
    match out.split_once(' ') {
        Some((time, rest)) if time.parse::<jiff::Timestamp>().is_ok() => format!("T {rest}"),
        _ => out.to_owned(),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}")) }
}

fn json_is_complete(client: &Kubectl) -> Result<(), String> {
    let list: Value = serde_json::from_str(&client.run("get pods -o json").out).map_err(|e| e.to_string())?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = items.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    same(names, vec!["job", "twice", "web"])?;
    for pod in &items {
        same(pod["kind"].as_str(), Some("Pod"))?;
        for path in [
            "/metadata/uid",
            "/metadata/creationTimestamp",
            "/metadata/resourceVersion",
            "/spec/securityContext",
            "/spec/schedulerName",
            "/spec/containers/0/terminationMessagePath",
            "/status/podIP",
        ] {
            pod.pointer(path).ok_or_else(|| format!("no {path} in {pod}"))?;
        }
    }
    Ok(())
}

fn commands_in_a_container(client: &Kubectl) -> Result<(), String> {
    let input = vec![b'x'; 200_000];
    let printed = client.run_with("exec -i web -c main -- wc -c", &input);
    same((printed.code, printed.out.trim()), (0, "200000"))?;
    let printed = client.run("exec web -c main -- head -c 3000000 /dev/zero");
    same((printed.code, printed.out.len()), (0, 3_000_000))?;
    let printed = client.run("exec web -c main -- no-such-command");
    if printed.code == 0 || !printed.err.contains("no-such-command") {
        return Err(format!("{printed:?}"));
    }
    Ok(())
}

fn terminal(client: &Kubectl) -> Result<(), String> {
    let mut script = Command::new("script");
    client.environment(&mut script);
    // kubectl sees a terminal of `script`, whose typescript goes nowhere.
    let line = client.line("exec -it web -c main -- sh -c 'tty; [ -t 1 ] && echo terminal; exit 4'");
    let output = script.args(["-qec", &line, "/dev/null"]).output().map_err(|e| format!("script: {e}"))?;
    let printed = crate::support::kubectl::printed(&output);
    same((printed.code, printed.out.contains("/dev/pts/"), printed.out.contains("terminal\r\n")), (4, true, true))
        .map_err(|e| format!("{e}: {printed:?}"))
}

fn attached(client: &Kubectl) -> Result<(), String> {
    let mut attach = client.start("attach -i web -c side");
    let word = format!("word-{}", client.minor);
    attach.input.as_mut().ok_or("no input")?.write_all(format!("{word}\n").as_bytes()).map_err(|e| e.to_string())?;
    attach.wait(&[&format!("got {word}")]);
    Ok(())
}

fn copied(client: &Kubectl) -> Result<(), String> {
    let content: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(client.home.join("there"), &content).map_err(|e| e.to_string())?;
    let remote = format!("web:/tmp/copy-{}", client.minor);
    let printed = client.run(&format!("cp there {remote} -c main"));
    same(printed.code, 0).map_err(|e| format!("{e}: {printed:?}"))?;
    let printed = client.run(&format!("cp {remote} back -c main"));
    same(printed.code, 0).map_err(|e| format!("{e}: {printed:?}"))?;
    let back = fs::read(client.home.join("back")).map_err(|e| e.to_string())?;
    same(back == content, true)
}

fn forwarded(client: &Kubectl) -> Result<(), String> {
    let forward = client.start("port-forward pod/web :8080 --address 127.0.0.1");
    let line = forward.wait(&["Forwarding from 127.0.0.1:", " -> 8080"]);
    let port: u16 = line
        .split_once("127.0.0.1:")
        .and_then(|(_, rest)| rest.split_once(' '))
        .and_then(|(port, _)| port.parse().ok())
        .ok_or_else(|| line.clone())?;
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(TcpStream::connect(("127.0.0.1", port)).map_err(|e| e.to_string())?);
    }
    for stream in &mut streams {
        stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(|e| e.to_string())?;
        stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").map_err(|e| e.to_string())?;
    }
    for stream in &mut streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(|e| format!("{e}: {:?}", forward.lines()))?;
        same(answer.ends_with("\r\n\r\npage\n"), true).map_err(|e| format!("{e}: {answer}"))?;
    }
    Ok(())
}

#[test]
fn watches_follow_pods_and_end_with_the_agent_and_with_their_certificate() {
    let programs = programs();
    if programs.is_empty() {
        return;
    }
    let mut agent = Agent::prepare("kwatch", &crate::support::lab::Runtime::shared());
    agent.serve_kubectl();
    agent.run_with_kubectl();
    let clients: Vec<Kubectl> =
        programs.iter().map(|(minor, p)| Kubectl::new(&agent, *minor, p, &format!("watch-{minor}"), "")).collect();
    let start = |line: &str| -> Vec<Running> { clients.iter().map(|client| client.start(line)).collect() };
    agent.apply("first", LOOKS);
    agent.wait_running("first");

    // A pod appears, changes and is deleted.
    let watches = start("get pods -w --output-watch-events");
    for watch in &watches {
        watch.wait(&["ADDED", "first", "1/1", "Running"]);
    }
    agent.apply("second", LOOKS);
    for watch in &watches {
        watch.wait(&["ADDED", "second"]);
        watch.wait(&["MODIFIED", "second", "1/1", "Running"]);
    }
    let mut logs = start("logs -f second");
    let mut waits = start("wait pod/second --for=delete --timeout=200s");
    for log in &logs {
        log.wait(&["begins"]);
    }
    // A log ends with its container.
    assert_eq!(clients[0].run("exec second -- touch /stop").code, 0);
    for log in &mut logs {
        assert_eq!(log.ended(), 0, "{:?}", log.lines());
        assert_eq!(log.lines(), ["begins", "ends"]);
    }
    for watch in &watches {
        watch.wait(&["MODIFIED", "second", "0/1", "Completed"]);
    }
    agent.delete("second");
    for watch in &watches {
        watch.wait(&["DELETED", "second"]);
    }
    for wait in &mut waits {
        assert_eq!(wait.ended(), 0, "{:?}", wait.lines());
        wait.wait(&["condition met"]);
    }

    // The agent ends: the watches end. The next ones work.
    let versions: Vec<String> = clients.iter().map(version_of_the_list).collect();
    agent.terminate();
    for mut watch in watches {
        watch.ended();
    }
    agent.run_with_kubectl();
    for (client, old) in clients.iter().zip(versions) {
        let new = version_of_the_list(client);
        assert!(new.parse::<u64>().expect("a number") > old.parse().expect("a number"), "{old} {new}");
        let path = format!("get --raw '/api/v1/pods?watch=1&resourceVersion={old}'");
        let expired = client.run(&path);
        assert!(expired.code == 1 && expired.err.contains("(Expired)"), "{expired:?}");
    }
    let mut watches = start("get pods -w");
    for watch in &watches {
        watch.wait(&["first", "1/1", "Running"]);
    }

    // A certificate is revoked: its watch ends, and the next command fails. The others go on.
    let (client, watch) = (clients.last().expect("a client"), watches.last_mut().expect("a watch"));
    let other = Kubectl::new(&agent, client.minor, &programs.last().expect("a program").1, "other", "--view");
    let mut others = other.start("get pods -w");
    others.wait(&["first"]);
    let revoked = agent.kubeconfig(&format!("revoke watch-{}", client.minor));
    assert!(revoked.status.success(), "{revoked:?}");
    watch.ended();
    let refused = client.run("get pods");
    assert!(
        refused.code == 1 && refused.err.contains("You must be logged in") && refused.err.contains("is revoked"),
        "{refused:?}"
    );
    assert!(others.is_running());
    assert_eq!(other.run("get pods -o name").out, "pod/first\n");
}

/// The resource version of a list of pods.
fn version_of_the_list(client: &Kubectl) -> String {
    let list: Value = serde_json::from_str(&client.run("get --raw /api/v1/pods").out).expect("JSON");
    list["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
}

#[test]
fn a_client_without_a_valid_certificate_gets_nothing() {
    let programs = programs();
    if programs.is_empty() {
        return;
    }
    let mut agent = Agent::prepare("kdenied", &crate::support::lab::Runtime::shared());
    agent.serve_kubectl();
    agent.run_with_kubectl();
    let clients = programs
        .iter()
        .map(|(minor, program)| Kubectl::new(&agent, *minor, program, &format!("short-{minor}"), "--expires 1s"));
    let clients: Vec<Kubectl> = clients.collect();
    // The certificates end with a whole second.
    std::thread::sleep(Duration::from_millis(2100));
    for client in clients {
        let minor = client.minor;
        let expired = client.run("get pods");
        assert!(expired.code == 1 && expired.err.contains("certificate"), "1.{minor}: {expired:?}");
        // A token instead of the certificate.
        let text = fs::read_to_string(&client.kubeconfig).expect("a kubeconfig");
        let lines = text.lines().filter(|line| !line.contains("client-key-data"));
        let lines: Vec<String> = lines
            .map(|line| match line.split_once("client-certificate-data:") {
                Some((margin, _)) => format!("{margin}token: x"),
                None => line.to_owned(),
            })
            .collect();
        fs::write(&client.kubeconfig, lines.join("\n")).expect("written");
        let without = client.run("get pods");
        assert!(without.code == 1 && without.out.is_empty(), "1.{minor}: {without:?}");
        let refusals = ["certificate required", "bad certificate"];
        assert!(refusals.iter().any(|why| without.err.contains(why)), "1.{minor}: {without:?}");
    }
}
