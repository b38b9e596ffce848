//! `kubectl debug` that creates pods, with each kubectl of the lab: newer versions send them as protobuf.

use crate::support::agent::Agent;
use crate::support::kubectl::{Kubectl, Printed, programs};
use crate::support::lab::Runtime;
use serde_json::Value;
use std::io::Write;

const WEB: &str = "{terminationGracePeriodSeconds: 1, containers: [{name: main, image: 'localhost/busybox:1.35', env: [{name: EMPTY, \
     value: ''}, {name: A, value: b}], command: [sh, -c, 'while :; do sleep 1; done'], resources: {limits: {memory: 32Mi}}, \
     readinessProbe: {exec: {command: ['true']}, periodSeconds: 1}}]}";

fn ok(k: &Kubectl, line: &str) -> String {
    let Printed { code, out, err } = k.run(line);
    assert_eq!(code, 0, "1.{} {line}: {out} {err}", k.minor);
    out + &err
}

#[test]
fn each_kubectl_debugs_with_copies_of_pods_and_pods_of_the_node() {
    let mut agent = Agent::prepare("kubedebug", &Runtime::shared());
    agent.serve_kubectl();
    agent.run_with_kubectl();
    agent.apply("web", WEB);
    agent.wait_running("web");
    for (minor, program) in programs() {
        let k = Kubectl::new(&agent, minor, &program, &format!("k{minor}"), "");
        let image = "--image=localhost/busybox:1.35";
        // Changes the image of the copy, and keeps everything else.
        ok(&k, "debug web --copy-to=copied --set-image=main=localhost/trap:1");
        let Printed { out, .. } = k.run("get pod copied -o json");
        let copied: Value = serde_json::from_str(&out).expect("JSON");
        let container = &copied["spec"]["containers"][0];
        assert_eq!(container["image"], "localhost/trap:1");
        assert_eq!(
            (&container["command"][0], &container["resources"]["limits"]["memory"]),
            (&"sh".into(), &"32Mi".into())
        );
        assert_eq!(container["env"][1]["value"], "b");
        let file = agent.manifests().join(format!("kubectl_{}_pod_copied.yaml", agent.namespace));
        assert!(file.exists(), "{file:?}");
        // A container beside those of the copy, which shares their processes.
        let line = format!("debug web --copy-to=shared --share-processes {image} -c tool -- sleep 1000");
        ok(&k, &line);
        agent.wait("the tool runs", |a| a.running("shared", "tool").is_some());
        assert!(ok(&k, "exec shared -c tool -- ps").contains("while :; do sleep 1"), "1.{minor}");
        // A pod in the namespaces of the node, with a session.
        let node = ok(&k, "get nodes -o name").trim().to_owned();
        let line = format!(
            "debug {node} {image} --attach=true -i -- sh -c 'read line; sleep 1; ls -d /host/proc; echo end of session; sleep 1'"
        );
        let mut session = k.start(&line);
        session.input.as_mut().expect("a pipe").write_all(b"go\n").expect("the input");
        session.wait(&["/host/proc"]);
        session.wait(&["end of session"]);
        session.ended();
        let names = ok(&k, "get pods -o name");
        let debugger = names.lines().find(|name| name.contains("node-debugger")).expect("a pod").to_owned();
        ok(&k, &format!("delete pod/copied pod/shared {debugger} --now"));
        agent.wait_gone("copied");
        agent.wait_gone("shared");
        agent.wait_gone(debugger.trim_start_matches("pod/"));
    }
}
