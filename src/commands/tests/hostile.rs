//! Tests that text from outside never reaches the terminal as control sequences. Every command runs against an agent
//! and on files in which every string is hostile.

use super::{Running, Written, route};
use crate::adapters::records::Records;
use crate::adapters::server::routes::{Ask, ListenerKind, Page, Route};
use crate::adapters::server::status::{ClusterStatus, ManifestStatus, NodeStatus, RuntimeStatus};
use crate::api::printable;
use crate::api::shutdown::view::{PlanGroup, PlanPod, PlanView};
use crate::commands::output::{Guard, TOLD, end, to_stderr};
use crate::commands::screen::SEQUENCES;
use crate::commands::{Cli, Command, DebugArgs, attach, debug_pod, definition, exec, logs, show, support};
use crate::engine::effect::RecordChange;
use crate::net::http1::{self, Accepts};
use crate::net::server::exchange::{Content, Part, Request, Response};
use crate::net::server::listeners::ListenerId;
use clap::Parser as _;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;

/// Text that sets the clipboard, clears the screen, starts a forged line, and hides and reverses the text after it.
const HOSTILE: &str = "evil\x1b]52;c;aGk=\x07\x1b[2J\x1b[31m\rup\nFAKE line\t\u{9b}8m\u{7f}\u{202e}\u{2028}FAKE\u{85}";

struct Hostile;

fn pod() -> Value {
    let h = HOSTILE;
    json!({
        "metadata": {"name": h, "namespace": h, "uid": "uid-1", "labels": {h: h}, "annotations": {h: h}},
        "spec": {
            "nodeName": h, "priorityClassName": h, "restartPolicy": h, "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": h, "image": h, "command": [h], "args": [h], "env": [{"name": h, "value": h}],
                "ports": [{"containerPort": 80, "protocol": h}], "resources": {"limits": {h: h}, "requests": {h: h}},
            }],
            "ephemeralContainers": [{"name": "d", "image": h, "targetContainerName": h}],
        },
        "status": {
            "phase": h, "reason": h, "message": h, "podIP": h, "podIPs": [{"ip": h}], "qosClass": h, "startTime": h,
            "conditions": [{"type": h, "status": h, "reason": h, "message": h}],
            "containerStatuses": [{
                "name": h, "containerID": h, "imageID": h, "ready": false, "restartCount": 1,
                "state": {"waiting": {"reason": h, "message": h}},
                "lastState": {"terminated": {"reason": h, "message": h, "exitCode": 1, "startedAt": h,
                    "finishedAt": h}},
            }],
            "ephemeralContainerStatuses": [{"name": "d", "state": {"waiting": {"reason": h, "message": h}}}],
        },
        "wherry": {
            "path": h, "document": 1, "digest": h, "state": h, "doing": h, "desired": false, "drained": true,
            "logDirectory": h, "backOff": [{"container": h, "seconds": 5}], "waitsFor": [h],
            "pullBackOff": [{"image": h, "seconds": 5, "failures": 1}],
        },
    })
}

fn event() -> Value {
    let h = HOSTILE;
    json!({
        "metadata": {"name": h, "namespace": h}, "source": {"component": h}, "reason": h, "message": h, "type": h,
        "involvedObject": {"kind": h, "namespace": h, "name": h, "uid": "uid-1"}, "count": 3,
        "firstTimestamp": h, "lastTimestamp": h,
    })
}

fn status() -> NodeStatus {
    let h = || HOSTILE.to_owned();
    let mut status = NodeStatus {
        version: h(),
        node_name: h(),
        not_ready_reason: Some(h()),
        runtime: RuntimeStatus {
            endpoint: h(),
            connected: true,
            name: h(),
            version: h(),
            not_ready: Some(h()),
            network_not_ready: None,
        },
        cluster: Some(ClusterStatus {
            server: h(),
            error: Some(h()),
            unreachable_seconds: Some(1),
            ..Default::default()
        }),
        manifests: ManifestStatus { directory: h(), files: 1, errors: vec![h(), h()] },
        waiting_for: vec![h()],
        ..NodeStatus::default()
    };
    status.node.resources.insert(h(), Default::default());
    status.shutdown.enabled = true;
    status.shutdown.problem = Some(h());
    status.shutdown.started_at = Some(h());
    status.shutdown.ended_at = Some(h());
    status
}

fn plan() -> PlanView {
    let h = || HOSTILE.to_owned();
    let pod = PlanPod { namespace: h(), name: h(), uid: h(), priority: 0, grace_seconds: 10, own_grace_seconds: 30 };
    let group = PlanGroup {
        priority: 0,
        period_seconds: 30,
        granted_seconds: Some(30),
        from_seconds: 0,
        until_seconds: 30,
        pods: vec![pod],
    };
    PlanView { enabled: true, armed: true, needed_seconds: 30, groups: vec![group], ..PlanView::default() }
}

fn usage() -> Value {
    let h = HOSTILE;
    let container = json!({"name": h, "id": h, "restarts": 1, "cpuAt": 1, "cpuNanos": 5, "memoryBytes": 7});
    json!({"pods": [{"namespace": h, "name": h, "uid": "uid-1", "labels": {h: h}, "containers": [container]}]})
}

fn lines(object: &Value) -> String {
    let line = |kind: &str, object: &Value| format!("{}\n", json!({"type": kind, "object": object}));
    [line("ADDED", object), line("BOOKMARK", &json!({})), line("MODIFIED", object), line("DELETED", object)].concat()
}

impl Content for Hostile {
    type Stream = Written;

    fn accepts(&self, _: ListenerId, path: &str) -> Accepts {
        Route::accepts(ListenerKind::Control, path)
    }

    fn answer(&mut self, request: &Request<'_>) -> Response<Written> {
        let is_watch = http1::query_has(&request.head.query, "watch");
        let list = |kind: &str, item: Value| json!({"kind": kind, "apiVersion": "v1", "items": [item]}).to_string();
        let body = match route(request).expect("a route") {
            // This watch ends after a few lines.
            Route::Page(Page::Pods) if is_watch => lines(&pod()),
            Route::Page(Page::Events) if is_watch => lines(&event()),
            Route::Page(Page::Pods) => list("PodList", pod()),
            Route::Page(Page::Events) => list("EventList", event()),
            Route::Page(Page::Status) => json!(status()).to_string(),
            Route::Page(Page::ShutdownPlan) => json!(plan()).to_string(),
            Route::Ask(Ask::Usage) => usage().to_string(),
            Route::Ask(Ask::Images) => {
                let h = HOSTILE;
                let (tags, pods) = ([h, h], [h]);
                let one =
                    json!({"id": h, "tags": tags, "digests": [h], "sizeBytes": 1, "pods": pods, "state": "inUse"});
                json!({"images": [one]}).to_string()
            }
            Route::Page(Page::Volumes) => {
                let (h, pods) = (HOSTILE, [HOSTILE]);
                let one = json!({"namespace": h, "claim": h, "status": h, "storageClass": h, "reclaimPolicy": h,
                    "directory": h, "pods": pods, "requested": h});
                json!({"volumes": [one]}).to_string()
            }
            Route::Page(Page::Dump) => json!({HOSTILE: [HOSTILE]}).to_string(),
            Route::Page(Page::Descriptors) => {
                let one = json!({"descriptor": 3, "kind": HOSTILE, "watches": HOSTILE, "events": 1});
                json!({"descriptors": [one]}).to_string()
            }
            Route::Ask(Ask::Drain) | Route::Ask(Ask::Undrain) => {
                let outcomes =
                    ["ending", "down", "completed", "undesired", "starts", "waits", "notDrained", "notFound"];
                let one = |outcome| json!({"uid": HOSTILE, "namespace": HOSTILE, "name": HOSTILE, "outcome": outcome});
                json!({"pods": outcomes.map(one)}).to_string()
            }
            Route::Ask(Ask::Cordon) => HOSTILE.to_owned(),
            Route::Ask(Ask::Ephemeral) if request.body.windows(11).any(|part| part == b"\"image\":\"i\"") => {
                json!({}).to_string()
            }
            Route::Ask(Ask::Retry) if http1::value_of(&request.head.query, "uid") == Some("uid-1") => {
                HOSTILE.to_owned()
            }
            Route::Ask(Ask::Stream) if request.body.starts_with(b"{\"uid\":\"uid-1\",\"exec\"") => {
                json!({"url": HOSTILE}).to_string()
            }
            Route::Ask(Ask::Exec) | Route::Ask(Ask::Stream) => return Response::text(409, HOSTILE),
            _ => return Response::text(500, HOSTILE),
        };
        Response::json(body.into_bytes())
    }

    fn next(&mut self, _: &mut Written, _: &mut Vec<u8>) -> Part {
        Part::End
    }
}

/// Returns the command lines that cover a command. `@` is the directory of the files.
fn command_lines(command: &str) -> &'static [&'static str] {
    match command {
        "check" => {
            &["check @/manifests", "check @/config.yaml", "check @/not-there\x1b[2J", "check --config @/config.yaml"]
        }
        "pods" => &[
            "pods",
            "pods -o wide",
            "pods -o json",
            "pods -o yaml",
            "pods -o name",
            "pods --watch",
            "pods --watch -o json",
            "pods --watch -o yaml",
            "pods --watch -o name",
            "pods nobody\x1b[2J",
        ],
        "describe" => &["describe uid-1", "describe uid-1 -o json", "describe uid-1 -o yaml", "describe nobody\x1b[2J"],
        "events" => &["events", "events -o json", "events --watch", "events --watch -o json", "events uid-1"],
        "logs" => &["logs nobody\x1b[2J", "logs uid-1 -c nobody\x1b[2J"],
        "retry" => &["retry uid-1", "retry nobody"],
        "drain" => &["drain uid-1 --no-wait", "drain uid-1 --timeout 0s", "drain nobody"],
        "cordon" => &["cordon"],
        "uncordon" => &["uncordon"],
        "undrain" => &["undrain uid-1", "undrain nobody"],
        "exec" => &["exec uid-1 -- x", "exec nobody\x1b[2J -- x", "exec -i uid-1 -- x"],
        "cp" => &["cp uid-1:/x\x1b[2J @/copy", "cp @/config.yaml uid-1:/x", "cp nobody\x1b[2J:/x @/copy"],
        "port-forward" => &["port-forward uid-1 :80", "port-forward nobody\x1b[2J 80"],
        "attach" => &["attach uid-1", "attach nobody\x1b[2J"],
        "top" => &["top --containers", "top -o json"],
        "images" => &["images", "images -o json", "images -o yaml"],
        "volumes" => {
            &["volumes", "volumes -o json", "volumes -o yaml", "volumes remove nobody", "volumes remove x\x1b[2J"]
        }
        "remove" => &["volumes remove default/x", "volumes remove \x1b[2J/x"],
        "debug" => &["debug uid-1 --image refused", "debug uid-1 --image i -c d", "debug nobody\x1b[2J --image i"],
        "dump" => &["debug dump"],
        "fds" => &["debug fds", "debug fds -o json"],
        "status" => &["status", "status -o json"],
        "shutdown-plan" => &["shutdown-plan", "shutdown-plan -o json"],
        "support" => &[
            "support -o @/evil\x1b[2J.tar.gz --config @/config.yaml --config-dir @/node --root-dir @/node --since 1s",
            "support -o @/evil\x1b[2J.tar.gz --config-dir @/node",
            "support -o @/not-there\x1b[2J/x --config-dir @/node",
        ],
        "purge" => &["purge --root-dir @/root --runtime-endpoint unix://@/no\x1b[2J"],
        "join" => &[
            "join nobody\x1b[2J:1 --config-dir @/node --root-dir @/node --hostname a --token 07401b.f395accd246ae52d \
             --discovery-token-unsafe-skip-ca-verification",
            "join --config-dir @/node --root-dir @/node --hostname a --kubeconfig @/list.yaml",
            "join --config @/config.yaml --config-dir @/node --kubeconfig @/list.yaml",
            "check --join --config @/config.yaml --config-dir @/node --kubeconfig @/list.yaml",
        ],
        "keep" => &[
            "keep --config-dir @/node --root-dir @/node --manifests @/manifests --hostname a kept --dry-run",
            "keep --config-dir @/node --root-dir @/node --manifests @/manifests --hostname a refused",
            "keep --config-dir @/node --root-dir @/node --manifests @/manifests --hostname a local",
            "keep --config-dir @/node --root-dir @/node --manifests @/manifests --hostname a nobody\x1b[2J",
        ],
        "leave" => &["leave --config-dir @/node --root-dir @/node", "leave --config @/config.yaml --config-dir @/node"],
        "kubeconfig" => &[
            "kubeconfig --root-dir @/node --hostname a --for nobody\x1b[2J",
            "kubeconfig --root-dir @/node --hostname a --server https://nobody\x1b[2J",
            "kubeconfig --root-dir @/node --hostname a --merge @/manifests/pod.yaml",
            "kubeconfig --root-dir @/node --hostname a --merge @/list.yaml",
            "kubeconfig --config @/config.yaml",
        ],
        "list" => &["kubeconfig list --root-dir @/node", "kubeconfig list --root-dir @/node -o json"],
        "revoke" => &[
            "kubeconfig revoke --root-dir @/node --hostname a nobody\x1b[2J",
            // The agent responds with the same text.
            "kubeconfig revoke --root-dir @/node --hostname a 00",
        ],
        "version" => &["version"],
        // `run` is the agent. `agent::logging` tests its log.
        "run" => &[],
        other => panic!("say how the output of `wherry {other}` is looked at for hostile text"),
    }
}

fn leaves(command: &clap::Command, found: &mut Vec<String>) {
    // `wherry kubeconfig` is itself a command, but also has subcommands.
    if !command.is_subcommand_required_set() {
        found.push(command.get_name().to_owned());
    }
    command.get_subcommands().for_each(|c| leaves(c, found));
}

/// Returns a value as JSON with escapes, because YAML does not accept all of the hostile characters unescaped.
fn escaped(value: &Value) -> String {
    printable::json(&value.to_string()).into_owned()
}

/// Writes configuration and manifest files with hostile names and content.
fn files(dir: &Path) {
    std::fs::create_dir(dir.join("manifests")).unwrap();
    let name = "FAKE\nFAKE \x1b[2J\u{202e}.yaml";
    let text = json!({"apiVersion": HOSTILE, "kind": HOSTILE, "metadata": {"name": HOSTILE}});
    std::fs::write(dir.join("manifests").join(name), escaped(&text)).unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": HOSTILE, "labels": {HOSTILE: HOSTILE}}, HOSTILE: 1,
        "spec": {"priorityClassName": HOSTILE, "containers": [{"name": HOSTILE, HOSTILE: 1, "image": " "}]},
    });
    std::fs::write(dir.join("manifests/pod.yaml"), escaped(&pod)).unwrap();
    std::fs::write(dir.join("manifests/list.yaml"), escaped(&json!({"kind": "List", HOSTILE: 1}))).unwrap();
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        HOSTILE: HOSTILE, "maxPods": HOSTILE, "staticPodPath": dir.join("manifests"),
    });
    std::fs::write(dir.join("config.yaml"), escaped(&config)).unwrap();
    std::fs::write(dir.join("list.yaml"), escaped(&json!({"clusters": [HOSTILE]}))).unwrap();
    let clients = dir.join("node/kubectl/clients");
    std::fs::create_dir_all(&clients).unwrap();
    let (issued, expires) = ("2026-11-24T12:00:00Z", "8000-01-01T00:00:00Z");
    let client = json!({"name": HOSTILE, "role": "edit", "serial": "00", "issued": issued, "expires": expires});
    std::fs::write(clients.join("00.json"), client.to_string()).unwrap();
    let damaged = json!({"name": "x", "role": HOSTILE}).to_string();
    std::fs::write(clients.join("FAKE\nFAKE \x1b[2J\u{202e}.json"), damaged).unwrap();
}

/// Writes the records of the pods for `wherry keep`.
fn records(root: &Path) {
    let record = |uid: &str, name: &str, path: &str| {
        let pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": uid, "annotations": {"note": HOSTILE}},
            "spec": {
                "containers": [{"name": "main", "image": "i", "env": [{"name": "A", "value": HOSTILE}]}],
                "runtimeClassName": "evil", "imagePullSecrets": [{"name": HOSTILE}],
            },
        });
        let value = json!({"version": 1, "path": path, "document": 0, "digest": "d", "startTime": 1, "pod": pod});
        RecordChange::Put { key: format!("pods/{uid}"), value: value.to_string() }
    };
    let changes = [record("kept", "web", "api"), record("refused", HOSTILE, "api"), record("local", HOSTILE, HOSTILE)];
    assert!(Records::open(root, None).unwrap().make(&changes).iter().all(Result::is_ok));
}

fn assert_harmless(what: &str, text: &str) {
    let plain = SEQUENCES.iter().fold(text.to_owned(), |text, own| text.replace(own, ""));
    let found = plain.chars().find(|c| !printable::is_plain(*c) && *c != '\n');
    assert_eq!(found, None, "{what}: {text:?}");
    let forged = text.lines().find(|line| line.starts_with("FAKE"));
    assert_eq!(forged, None, "{what}: a line of its own: {text}");
}

#[test]
fn no_command_lets_hostile_text_through() {
    let node = Running::start_with(|| Hostile);
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    records(&dir.path().join("node"));
    let mut commands = Vec::new();
    leaves(&definition(), &mut commands);
    let mut shown = 0;
    for command in &commands {
        for line in command_lines(command) {
            let line = line.replace('@', &dir.path().display().to_string());
            let mut args: Vec<String> =
                ["wherry".to_owned()].into_iter().chain(line.split(' ').map(str::to_owned)).collect();
            if !matches!(command.as_str(), "check" | "purge" | "version") {
                let at = args.iter().position(|a| a == "--").unwrap_or(args.len());
                args.splice(at..at, ["--socket".to_owned(), node.socket().display().to_string()]);
            }
            let parsed = Cli::try_parse_from(&args).unwrap_or_else(|e| panic!("{line}: {e}"));
            let mut out = Vec::new();
            TOLD.take();
            // `Guard`, which normally filters the output, would hide text that a command does not escape.
            let ended = match parsed.command {
                Command::Logs(args) => logs(&mut out, args),
                Command::Exec { query, socket } => exec::run(&mut out, &mut std::io::stderr(), &socket.path(), query),
                Command::Attach { query, socket } => {
                    attach::run(&mut out, &mut std::io::stderr(), &socket.path(), query)
                }
                Command::Debug(DebugArgs { command: None, query, socket }) => {
                    debug_pod::run(&mut out, &mut std::io::stderr(), &socket.path(), query)
                }
                Command::Support(args) => support::run(&mut out, &args),
                command => show(&mut out, command),
            };
            end(ended);
            let (out, told) = (String::from_utf8(out).unwrap(), TOLD.take());
            assert!(!out.is_empty() || !told.is_empty(), "{line:?} says nothing");
            shown += usize::from(out.contains("evil"));
            assert_harmless(&line, &out);
            assert_harmless(&line, &told);
            if line.ends_with("-o json") && !line.contains("watch") {
                serde_json::from_str::<Value>(&out).unwrap_or_else(|e| panic!("{line}: {e}: {out}"));
            }
            if line.ends_with("-o yaml") && !line.contains("watch") {
                serde_saphyr::from_str::<Value>(&out).unwrap_or_else(|e| panic!("{line}: {e}: {out}"));
            }
        }
    }
    assert!(shown > 20, "the hostile text was there to be shown: {shown}");
}

#[test]
fn the_command_line_and_the_guard_let_none_through_either() {
    TOLD.take();
    let Err(e) = Cli::try_parse_from(["wherry", "pods", "--\x1b[2J\u{202e}\r"]) else { panic!() };
    to_stderr(&e.render().to_string());
    let told = TOLD.take();
    assert!(told.contains("unexpected argument"), "{told}");
    let mut out = Vec::new();
    Guard::new(&mut out).write_all(told.as_bytes()).unwrap();
    Guard::new(&mut out).write_all(HOSTILE.replace('\n', " ").as_bytes()).unwrap();
    assert_harmless("the command line", &String::from_utf8(out).unwrap());
}

#[test]
fn a_termination_message_of_several_lines_stays_in_its_column() {
    let node = Running::start_with(|| Hostile);
    let mut out = Vec::new();
    let target = crate::commands::select::PodTarget::parse("uid-1", None).unwrap();
    crate::commands::describe::run(&mut out, &node.socket(), &target, None).unwrap();
    let text = String::from_utf8(out).unwrap();
    let at = text.lines().position(|line| line.starts_with("      Message:  ")).unwrap();
    let lines: Vec<&str> = text.lines().skip(at).take(2).collect();
    assert!(lines[0].ends_with("evil\\x1b]52;c;aGk=\\x07\\x1b[2J\\x1b[31m\\rup"), "{lines:?}");
    assert!(
        lines[1].trim_start().starts_with("FAKE line\\t\\u{9b}8m") && lines[1].starts_with("          "),
        "{lines:?}"
    );
}
