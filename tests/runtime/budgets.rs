//! Y32 on a real runtime: a disruption budget limits `kubectl drain` and `wherry drain`.

use crate::support::agent::Agent;
use crate::support::kubectl::Kubectl;
use std::process::Output;

/// Three replicas, of which two have to stay.
const APPLICATION: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: 'localhost/busybox:1.35', command: [sleep, '1000']}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
";

fn printed(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Waits until as many of the pods run and are ready.
fn wait_ready(agent: &Agent, k: &Kubectl, replicas: &str) {
    let path = "jsonpath={.status.readyReplicas}";
    agent.wait("the pods are ready", |_| k.run(&format!("get deploy web -o {path}")).out == replicas);
}

#[test]
fn y32_kubectl_and_wherry_drain_only_the_pods_that_the_budget_allows() {
    let mut agent = Agent::serving("budget");
    let k = Kubectl::newest(&agent, "budget");
    let file = k.file("web.yaml", APPLICATION);
    k.ok(&["apply", "-f", &file]);
    wait_ready(&agent, &k, "3");
    let row = || k.run("get pdb web --no-headers").out.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
    assert_eq!(row(), "web 2 N/A 1");

    // kubectl tries again every five seconds, until its time is over.
    let node = k.ok(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    let drain = k.run(&format!("drain {node} --timeout=15s"));
    assert_ne!(drain.code, 0, "{} {}", drain.out, drain.err);
    assert!(drain.err.contains("Cannot evict pod as it would violate the pod's disruption budget"), "{}", drain.err);
    assert_eq!(drain.out.matches(" evicted\n").count(), 1, "{} {}", drain.out, drain.err);
    wait_ready(&agent, &k, "2");
    assert_eq!(row(), "web 2 N/A 0");
    k.ok(&["uncordon", &node]);
    wait_ready(&agent, &k, "3");

    let selector = ["-l", "app=web", "-n", &agent.namespace.clone()].map(str::to_owned);
    let wherry = |agent: &Agent, command: &str, options: &[&str]| {
        let arguments = [command].into_iter().chain(selector.iter().map(String::as_str)).chain(options.iter().copied());
        printed(&agent.wherry(&arguments.collect::<Vec<_>>()))
    };
    let (code, out, err) = wherry(&agent, "drain", &["--timeout", "15s"]);
    assert_eq!((code, out.matches(" has stopped (").count()), (Some(1), 1), "{out}{err}");
    assert_eq!(err.matches("a disruption budget allows no disruption of pod").count(), 2, "{err}");
    assert!(err.contains("drain it later, or with --ignore-budgets"), "{err}");
    wait_ready(&agent, &k, "2");

    // A killed agent knows which pods are drained, and what the budget allows.
    agent.kill();
    agent.run_with_kubectl();
    agent.wait("the API answers", |_| k.run("get pdb web").code == 0);
    wait_ready(&agent, &k, "2");
    assert_eq!(row(), "web 2 N/A 0");
    let (code, out, err) = wherry(&agent, "drain", &["--no-wait"]);
    assert_eq!((code, out.matches(" has stopped\n").count()), (Some(1), 1), "{out}{err}");

    let (code, out, err) = wherry(&agent, "drain", &["--ignore-budgets"]);
    assert_eq!((code, out.matches(" has stopped").count()), (Some(0), 3), "{out}{err}");
    let (code, out, err) = wherry(&agent, "undrain", &[]);
    assert_eq!((code, out.matches(" can start again\n").count()), (Some(0), 3), "{out}{err}");
    wait_ready(&agent, &k, "3");

    // Without the budget, nothing holds a drain back.
    k.ok(&["delete", "pdb", "web"]);
    k.ok(&["drain", &node, "--timeout=60s"]);
    k.ok(&["uncordon", &node]);
    wait_ready(&agent, &k, "3");
    k.ok(&["delete", "-f", &file, "--ignore-not-found", "--timeout=60s"]);
}
