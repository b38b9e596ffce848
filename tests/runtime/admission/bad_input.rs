//! Invalid resources and configuration: the error names the field, and everything else on the node continues.

use super::{cpus, node, one_cpu, requesting, wait_reason, wherry_says, with};
use crate::support::agent::Agent;
use crate::support::lab::Runtime;
use crate::support::yaml::{self, TRAP};
use std::process::Command;

/// Runs `wherry check` on the configuration of this agent. Returns the exit code and the output.
fn check(agent: &Agent) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
    command.arg("check").arg("--config").arg(agent.dir.join("config.yaml"));
    command.arg("--config-dir").arg(agent.dir.join("config.d"));
    command.arg("--manifests").arg(agent.manifests()).arg("--root-dir").arg(agent.root());
    let output = command.output().expect("wherry check");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The resources of a container, and the error for the invalid field.
const WRONG: [(&str, &str, &str); 8] = [
    ("above", "{requests: {cpu: 2}, limits: {cpu: 1}}", "requests: Invalid value: \"2\""),
    ("negative", "{requests: {memory: -1Gi}}", "requests[memory]: Invalid value: \"-1Gi\""),
    ("absurd", "{limits: {cpu: '1e30'}}", "limits[cpu]: Invalid value: \"1e30\""),
    ("unit", "{requests: {memory: 64MB}}", "requests[memory]: Invalid value: \"64MB\""),
    ("resource", "{requests: {memori: 64M}}", "requests[memori]: Invalid value: \"memori\""),
    ("list", "{requests: [cpu]}", "requests: "),
    ("fraction", "{limits: {example.com/crane: 0.5}}", "limits[example.com/crane]: Invalid value: \"0.5\""),
    ("gap", "{requests: {example.com/crane: 1}}", "limits[example.com/crane]: Required value"),
];

#[test]
fn a2_invalid_quantities_are_reported_by_file_and_field_and_affect_no_other_pod() {
    let agent = node("quantities", "");
    for (name, resources, _) in WRONG {
        agent.apply(name, &with("", &format!("resources: {resources}")));
    }
    agent.apply("good", &requesting(500));
    agent.wait_running("good");
    let untold = |text: &str| {
        WRONG.iter().find(|(name, _, what)| {
            let what = format!("spec.containers[0].resources.{what}");
            !text.lines().any(|l| l.contains(&format!("/{name}.yaml:")) && l.contains(&what))
        })
    };
    agent.wait("all are reported", |a| untold(&wherry_says(a, "status")).is_none());
    let log = agent.log();
    for (name, _, what) in WRONG {
        let field = format!("field=\"spec.containers[0].resources.{}\"", what.split(": ").next().unwrap_or_default());
        let file = format!("/{name}.yaml\"");
        assert_eq!(log.lines().filter(|l| l.contains(&file) && l.contains(&field)).count(), 1, "{name}: {log}");
    }
    let (code, printed) = check(&agent);
    assert_eq!((code, untold(&printed), printed.lines().count()), (Some(1), None, WRONG.len()), "{printed}");
    assert_eq!(agent.pods().len(), 1);
    // After the correction one of them runs.
    agent.apply("negative", &requesting(500));
    agent.wait_running("negative");
}

#[test]
fn a2_reservations_above_the_capacity_prevent_the_start() {
    let mut agent = Agent::prepare("reserved", &Runtime::shared());
    let too_many = format!("systemReserved: {{cpu: \"{}\"}}\n", cpus() + 1);
    for (more, field) in [
        (too_many.as_str(), "systemReserved: resource \"cpu\" has a reservation of"),
        ("kubeReserved: {memory: 1Ei}\n", "kubeReserved: resource \"memory\" has a reservation of"),
        ("evictionHard: {memory.available: 1Ei}\n", "evictionHard: resource \"memory\" has a reservation of"),
        ("systemReserved: {memory: 1MB}\n", "systemReserved.memory: "),
        ("systemReserved: {memory: '1e30'}\n", "systemReserved.memory: "),
        ("systemReserved: {cpu: '-1'}\n", "systemReserved.cpu: "),
        ("kubeReserved: {gpu: '1'}\n", "kubeReserved.gpu: "),
        ("evictionHard: {memory.free: 1Gi}\n", "evictionHard.memory.free: "),
        ("evictionHard: {nodefs.available: 101%}\n", "evictionHard.nodefs.available: "),
        ("maxPods: -1\n", "maxPods: "),
    ] {
        agent.configure(more);
        let before = agent.log().len();
        agent.launch();
        let code = agent.ended();
        let log = agent.log()[before..].to_owned();
        assert!(code.is_some_and(|c| c != 0), "{more}: {code:?} {log}");
        assert!(log.lines().any(|l| l.contains("config.yaml") && l.contains(field)), "{more}: {log}");
        let (code, printed) = check(&agent);
        assert_eq!(code, Some(1), "{more}: {printed}");
        assert!(printed.lines().any(|l| l.contains("config.yaml") && l.contains(field)), "{more}: {printed}");
    }
    let nothing_ran = agent.cri().sandboxes(&agent.namespace);
    assert!(nothing_ran.is_empty());
    // The whole CPU may be reserved: then only pods without requests fit.
    agent.configure(&format!("systemReserved: {{cpu: \"{}\"}}\n", cpus()));
    agent.run();
    agent.apply("none", TRAP);
    agent.wait_running("none");
    agent.apply("one", &requesting(1));
    wait_reason(&agent, "one", "OutOfcpu");
}

#[test]
fn a2_a_reload_of_a_wrong_configuration_leaves_the_old_one_in_force() {
    let agent = node("reload", "");
    agent.apply("half", &requesting(500));
    agent.wait_running("half");
    let half = agent.running("half", "main");
    let wrong = [
        (format!("systemReserved: {{cpu: \"{}\"}}\n", cpus() + 1), "systemReserved: resource \"cpu\""),
        ("systemReserved: {cpu: lots}\n".to_owned(), "systemReserved.cpu: "),
    ];
    for (i, (more, field)) in wrong.iter().enumerate() {
        agent.configure(more);
        agent.hang_up();
        agent.wait("it is read again", |a| a.log().matches("reloaded manifests=").count() == i + 1);
        assert!(agent.log().lines().any(|l| l.contains("reload: ") && l.contains(field)), "{}", agent.log());
        assert_eq!(agent.log().matches("keeping the previous one").count(), i + 1);
    }
    // 500 of 1000 are left, as before.
    agent.apply("big", &requesting(501));
    wait_reason(&agent, "big", "OutOfcpu");
    agent.apply("other", &requesting(500));
    agent.wait_running("other");
    // A valid configuration is applied: running pods stay although they exceed it, and no new pod fits.
    agent.configure(&format!("{}maxPods: 1\n", one_cpu()));
    agent.hang_up();
    agent.wait("it is read again", |a| a.log().matches("reloaded manifests=").count() == 3);
    agent.apply("third", TRAP);
    let third = wait_reason(&agent, "third", "OutOfpods");
    assert_eq!(super::message(&third), "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 1");
    assert_eq!(agent.running("half", "main"), half);
    assert!(agent.running("other", "main").is_some());
}

#[test]
fn a5_check_reports_invalid_classes() {
    let agent = Agent::prepare("check-classes", &Runtime::shared());
    let class = |name: &str, value: i64| {
        format!(
            "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: {name}}}\nvalue: {value}\n\
             globalDefault: true\n"
        )
    };
    agent.write("1.yaml", &class("gold", 1));
    agent.write("2.yaml", &class("gold", 2));
    agent.write("3.yaml", &class("usual", 3));
    agent.write("4.yaml", &yaml::pod(&agent.namespace, "silver", &with("priorityClassName: silver", "")));
    let (code, printed) = check(&agent);
    assert_eq!(code, Some(1));
    let fields = ["2.yaml: metadata.name: ", "3.yaml: globalDefault: ", "4.yaml: spec.priorityClassName: "];
    for field in fields {
        assert_eq!(printed.lines().filter(|l| l.contains(field)).count(), 1, "{field}: {printed}");
    }
    assert_eq!(printed.lines().count(), fields.len(), "{printed}");
}
