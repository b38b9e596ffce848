//! Ephemeral containers (W29) with `kubectl debug` of each version, against a real agent and runtime.

use crate::streams::pty::Pty;
use crate::support::agent::{Agent, container};
use crate::support::kubectl::{Kubectl, Printed, Running, printed, programs};
use crate::support::lab::Runtime;
use crate::support::yaml;
use serde_json::Value;
use std::fs::DirEntry;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

const IMAGE: &str = "--image=localhost/busybox:1.35";

const WEB: &str = "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: [sh, -c, 'trap exit TERM; touch /tmp/of-main; while :; do sleep 1; done']
      volumeMounts: [{name: v, mountPath: /v}]
    volumes: [{name: v, emptyDir: {}}]
";

/// An agent that serves kubectl, with a running pod.
fn serving(name: &str) -> Agent {
    let mut agent = Agent::prepare(name, &Runtime::shared());
    agent.serve_kubectl();
    agent.apply("web", WEB);
    agent.run_with_kubectl();
    agent.wait_running("web");
    agent
}

/// kubectl in a shell with its environment.
fn in_shell(k: &Kubectl, line: &str) -> Command {
    let mut command = Command::new("env");
    command.arg(format!("HOME={}", k.home.display())).arg(format!("KUBECONFIG={}", k.kubeconfig.display()));
    command.args(["sh", "-c", line]);
    command
}

fn type_in(session: &mut Running, line: &str) {
    session.input.as_mut().expect("a pipe").write_all(format!("{line}\n").as_bytes()).expect("the session goes on");
}

fn ephemeral(pod: &Value, name: &str) -> Value {
    let all = pod.pointer("/status/ephemeralContainerStatuses").and_then(Value::as_array).cloned().unwrap_or_default();
    all.into_iter().find(|c| c["name"] == name).unwrap_or_default()
}

#[test]
fn w29_each_kubectl_adds_a_container_to_a_running_pod_and_attaches_to_it() {
    let agent = serving("kdebug");
    let before = agent.wait_running("web");
    for (minor, program) in programs() {
        let k = Kubectl::new(&agent, minor, &program, &format!("k{minor}"), "");
        let profile = if minor < 27 { "" } else { "--profile=general" };
        let line = format!("debug -i web {IMAGE} -c one-{minor} {profile} --target=main -- sh");
        // The runtime ends the output of an attach with its input, so the input stays open.
        let mut shell = k.start(&line);
        type_in(&mut shell, "echo shell $((40 + 2)); ls /proc/1/root/tmp");
        shell.wait(&["shell 42"]);
        shell.wait(&["of-main"]);
        type_in(&mut shell, "exit 3");
        shell.ended();
        agent.wait("the end of the shell", |a| {
            let pod = a.pod("web").expect("web");
            ephemeral(&pod, &format!("one-{minor}"))["state"]["terminated"]["exitCode"] == 3
        });
        // With a terminal.
        let line = k.line(&format!("debug -it web {IMAGE} -c two-{minor} {profile} -- sh"));
        let mut terminal = Pty::start(&in_shell(&k, &line), 91, 33);
        terminal.expect("# ");
        terminal.type_in("echo word $((40 + 2)); tty; until stty size | grep '33 91'; do sleep 0.1; done\r");
        for text in ["word 42", "/dev/pts/", "\r\n33 91"] {
            terminal.expect(text);
        }
        terminal.type_in("exit 4\r");
        terminal.end();
        assert!(terminal.is_cooked());
    }
    let after = agent.wait_running("web");
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(before["status"]["containerStatuses"], after["status"]["containerStatuses"]);
}

/// A request on the API: the words of `kubectl patch`, with a subresource.
fn patch(k: &Kubectl, kind: &str, patch: &str, more: &[&str]) -> Printed {
    let words = ["patch", "pod", "web", "--subresource=ephemeralcontainers", "--type", kind, "-p", patch];
    k.run_words(&[&words[..], more].concat(), b"")
}

#[test]
fn w29_the_api_checks_the_containers_and_shows_them() {
    let agent = serving("kephapi");
    let programs = programs();
    let Some((minor, program)) = programs.last() else { return };
    let k = Kubectl::new(&agent, *minor, program, "ann", "");
    for (kind, text, words) in [
        (
            "strategic",
            r#"{"spec": {"ephemeralContainers": [{"name": "main", "image": "b"}]}}"#,
            "Duplicate value: \"main\"",
        ),
        ("strategic", r#"{"spec": {"ephemeralContainers": [{"name": "d"}]}}"#, "[0].image: Required value"),
        (
            "strategic",
            r#"{"spec": {"ephemeralContainers": [{"name": "d", "image": "b", "ports": [{"containerPort": 1}]}]}}"#,
            "[0].ports: Forbidden: cannot be set for an Ephemeral Container",
        ),
        ("merge", r#"{"spec": {"ephemeralContainers": [{"name": "d", "image": "b", "imagee": 1}]}}"#, "unknown field"),
        ("merge", r#"{"spec": {"ephemeralContainers": 1}}"#, "ephemeralContainers is not a list"),
        ("merge", r#"{"metadata": {"uid": "x"}}"#, "Precondition failed: UID"),
        ("json", r#"[{"op": "remove", "path": "/spec/none"}]"#, "is invalid"),
        (
            "strategic",
            r#"{"spec": {"ephemeralContainers": [{"name": "d", "image": "b", "targetContainerName": "x"}]}}"#,
            "[0].targetContainerName: Not found: \"x\"",
        ),
    ] {
        let printed = patch(&k, kind, text, &[]);
        assert!(printed.code == 1 && printed.err.contains(words), "{text}: {printed:?}");
    }
    let add = r#"{"spec": {"ephemeralContainers": [{"name": "d", "image": "localhost/busybox:1.35", "command": ["sleep", "1000"],
                 "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, {"name": "TOKEN", "value": "hunter2"}],
                 "volumeMounts": [{"name": "v", "mountPath": "/data"}]}]}}"#;
    let printed =
        patch(&k, "strategic", add, &["--dry-run=server", "-o", "jsonpath={.spec.ephemeralContainers[*].name}"]);
    assert_eq!((printed.code, printed.out.as_str()), (0, "d"), "{printed:?}");
    assert!(ephemeral(&agent.pod("web").expect("web"), "d").is_null());

    assert_eq!(patch(&k, "strategic", add, &[]).code, 0);
    agent.wait("d runs", |a| ephemeral(&a.pod("web").expect("web"), "d")["state"]["running"].is_object());
    for (kind, text) in [
        ("merge", r#"{"spec": {"ephemeralContainers": null}}"#),
        ("strategic", r#"{"spec": {"ephemeralContainers": [{"name": "d", "image": "other:1"}]}}"#),
    ] {
        let printed = patch(&k, kind, text, &[]);
        assert!(printed.err.contains("existing ephemeral containers \"d\" may not be "), "{printed:?}");
    }
    // The rest of the pod does not change with this subresource.
    assert_eq!(patch(&k, "merge", r#"{"metadata": {"labels": {"a": "b"}}}"#, &[]).code, 0);
    let pod = agent.wait_running("web");
    assert!(pod.pointer("/metadata/labels/a").is_none());
    assert_eq!(pod.pointer("/spec/ephemeralContainers/0/imagePullPolicy"), Some(&"IfNotPresent".into()));

    for (line, words) in [
        ("exec web -c d -- sh -c 'echo $IP; hostname; ls -d /data'", "web\n/data"),
        ("describe pod web", "Ephemeral Containers:\n  d:\n"),
        ("get events", "Started container d"),
        ("get events -o jsonpath={.items[*].involvedObject.fieldPath}", "spec.ephemeralContainers{d}"),
        ("get pod web", "1/1"),
        ("get --raw /api/v1", "pods/ephemeralcontainers"),
        ("auth can-i patch pods --subresource=ephemeralcontainers", "yes"),
        ("get pod web --subresource=status", "Running"),
    ] {
        let printed = k.run(line);
        assert!(printed.code == 0 && printed.out.contains(words), "{line}: {printed:?}");
    }
    let wherry = |words: &[&str]| String::from_utf8_lossy(&agent.wherry(words).stdout).into_owned();
    assert!(wherry(&["describe", "web"]).contains("Ephemeral Containers:\n  d:\n"));
    assert!(!wherry(&["debug", "dump"]).contains("hunter2") && !agent.log().contains("hunter2"));

    // Privileged containers, and an object that is sent back.
    let printed = k.run(&format!("debug web {IMAGE} -c admin --profile=sysadmin -- sleep 1000"));
    assert_eq!(printed.code, 0, "{printed:?}");
    agent.wait("admin runs", |a| ephemeral(&a.pod("web").expect("web"), "admin")["state"]["running"].is_object());
    let printed = k.run("exec web -c admin -- sh -c 'grep CapEff /proc/self/status'");
    assert!(!printed.out.contains("00000000a80425fb") && printed.out.contains("CapEff"), "{printed:?}");
    std::fs::write(k.home.join("same.yaml"), k.run("get pod web -o yaml").out).expect("a file");
    let printed = k.run("replace -f same.yaml");
    assert_eq!(printed.code, 0, "{printed:?}");
    let viewer = Kubectl::new(&agent, *minor, program, "viewer", "--view");
    let printed = patch(&viewer, "strategic", add, &[]);
    assert!(printed.code == 1 && printed.err.contains("forbidden"), "{printed:?}");
    let printed = viewer.run("auth can-i patch pods --subresource=ephemeralcontainers");
    assert!(printed.code == 1 && printed.out.starts_with("no"), "{printed:?}");
    // A manifest does not have them.
    let spec = format!("{WEB}    ephemeralContainers: [{{name: d, image: b}}]\n");
    agent.write("other.yaml", &yaml::pod(&agent.namespace, "other", &spec));
    agent.wait("the error", |a| a.log().contains("ephemeralContainers"));

    // The pod ends with its container, and everything of it is removed.
    agent.delete("web");
    agent.wait_gone("web");
    agent.wait("an empty runtime", |a| a.containers("web").is_empty() && a.sandboxes("web").is_empty());
    let printed = patch(&k, "strategic", add, &[]);
    assert!(printed.code == 1 && printed.err.contains(" not found"), "{printed:?}");
}

/// Requests a container on the control socket. Returns the status line.
fn request(agent: &Agent, container: &str) -> String {
    let uid = agent.pod("web").and_then(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned)).expect("a UID");
    let body = format!("{{\"uid\": \"{uid}\", \"containers\": [{container}]}}");
    let mut socket = UnixStream::connect(&agent.socket).expect("the control socket");
    let request = format!("POST /ephemeral HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    socket.write_all(request.as_bytes()).expect("a request");
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).expect("an answer");
    line
}

#[test]
fn w29_a_container_survives_kills_of_wherry_and_starts_once() {
    let mut agent = Agent::start("ephkill");
    agent.apply("web", WEB);
    agent.wait_running("web");
    // A call in flight at the kill can leave a container that never ran, besides the one that did.
    let runs = |a: &Agent, name: &str| {
        let log = a.log_path(&a.pod("web").expect("web"), name, 0);
        let logs = std::fs::read_dir(log.parent().expect("a directory")).expect("the logs of the container");
        let text = |log: std::io::Result<DirEntry>| std::fs::read_to_string(log.expect("a log").path()).expect("a log");
        logs.map(text).collect::<String>().matches(" ran\n").count()
    };
    for n in 0..4 {
        // The container runs a moment, and never again.
        let name = format!("d{n}");
        let command = "[\"sh\", \"-c\", \"echo ran; sleep 3\"]";
        let image = "localhost/busybox:1.35";
        let line =
            request(&agent, &format!("{{\"name\": \"{name}\", \"image\": \"{image}\", \"command\": {command}}}"));
        assert!(line.contains(" 200 "), "{line}");
        agent.kill();
        agent.run();
        agent.wait("its end", |a| {
            a.pod("web").is_some_and(|pod| ephemeral(&pod, &name)["state"]["terminated"]["exitCode"] == 0)
        });
        assert_eq!(runs(&agent, &name), 1);
    }
    let before = agent.wait_running("web");
    agent.kill();
    agent.run();
    let after = agent.wait_running("web");
    assert_eq!(before["status"]["containerStatuses"], after["status"]["containerStatuses"]);
    assert_eq!(before["status"]["ephemeralContainerStatuses"], after["status"]["ephemeralContainerStatuses"]);
    assert_eq!((0..4).map(|n| runs(&agent, &format!("d{n}"))).collect::<Vec<_>>(), [1; 4]);
    for (body, status) in [
        ("", " 200 "),
        ("1", " 422 "),
        ("{", " 400 "),
        ("{\"name\": \"d0\", \"image\": \"localhost/busybox:1.35\"}", " 422 "),
    ] {
        let line = request(&agent, body);
        assert!(line.contains(status), "{body}: {line}");
    }
}

fn wherry_debug(agent: &Agent, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
    command.args(["debug", "web", "--socket"]).arg(&agent.socket).args(words);
    command
}

#[test]
fn w29_wherry_debug_adds_a_container_and_attaches_to_it() {
    let agent = Agent::start("ephwherry");
    agent.apply("web", WEB);
    agent.wait_running("web");
    let run = |words: &[&str], input: &[u8]| {
        let mut command = wherry_debug(&agent, words);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("wherry");
        child.stdin.take().expect("a pipe").write_all(input).expect("wherry reads");
        printed(&child.wait_with_output().expect("wherry"))
    };
    // Without a session.
    let s = run(&[IMAGE, "-c", "plain", "--", "sleep", "1000"], b"");
    assert_eq!((s.code, s.out.as_str(), s.err.as_str()), (0, "", ""));
    assert!(ephemeral(&agent.wait_running("web"), "plain")["state"]["running"].is_object());
    let mut exec = Command::new(env!("CARGO_BIN_EXE_wherry"));
    exec.args(["exec", "web", "-c", "plain", "--socket"]).arg(&agent.socket).args(["--", "echo", "in plain"]);
    assert_eq!(String::from_utf8_lossy(&exec.output().expect("wherry").stdout), "in plain\n");
    // The end of a piped input ends the shell, and its output is complete.
    let s =
        run(&[IMAGE, "-i", "-c", "pipe", "--target", "main", "--", "sh"], b"cat /proc/1/comm; ls /proc/1/root/tmp\n");
    assert!(s.code == 0 && s.out.contains("of-main"), "{s:?}");
    let s = run(&[IMAGE, "-it", "--", "sh"], b"[ -t 0 ] || echo no terminal\n");
    assert!(s.out.contains("no terminal") && s.err.contains("the container is debugger-"), "{s:?}");
    // A container that ends at once: its output is in the log.
    let s = run(&[IMAGE, "-c", "quick", "--", "sh", "-c", "echo quick; exit 7"], b"");
    assert!(s.code == 0 || s.code == 7 && s.out == "quick\n", "{s:?}");
    agent.wait("the log", |a| String::from_utf8_lossy(&a.wherry(&["logs", "web", "-c", "quick"]).stdout) == "quick\n");
    // Errors.
    for (words, code, text) in [
        (&[IMAGE, "-c", "main"][..], 1, "].name: Duplicate value: \"main\""),
        (&[IMAGE, "--target", "nobody"], 1, "targetContainerName: Not found: \"nobody\""),
        (&["--image="], 1, "image: Required value"),
    ] {
        let s = run(words, b"");
        assert!(s.code == code && s.err.contains(text), "{words:?}: {s:?}");
    }
    let mut child = wherry_debug(&agent, &["--image=localhost/nowhere:1", "-c", "missing"]);
    let mut child = child.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("wherry");
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut line).expect("a pipe");
    assert!(line.starts_with("wherry: ErrImagePull: ") || line.starts_with("wherry: ImagePullBackOff: "), "{line}");
    child.kill().expect("wherry");
    child.wait().expect("wherry");
    // With a terminal.
    let mut terminal = Pty::start(&wherry_debug(&agent, &[IMAGE, "-it", "-c", "term", "--", "sh"]), 91, 33);
    terminal.expect("# ");
    terminal.type_in("echo word $((40 + 2)); until stty size | grep '33 91'; do sleep 0.1; done\r");
    terminal.expect("word 42");
    terminal.expect("\r\n33 91");
    terminal.type_in("exit 4\r");
    assert_eq!(terminal.end(), Some(0), "{}", terminal.shown());
    assert!(terminal.is_cooked());
    agent.wait("the end of the shell", |a| {
        ephemeral(&a.pod("web").expect("web"), "term")["state"]["terminated"]["exitCode"] == 4
    });
    assert_eq!(container(&agent.wait_running("web"), "main")["restartCount"], 0);

    agent.delete("web");
    agent.wait_gone("web");
    agent.wait("an empty runtime", |a| a.containers("web").is_empty() && a.sandboxes("web").is_empty());
}
