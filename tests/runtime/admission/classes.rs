//! PriorityClass manifests (A5).

use super::{node, requesting, wait_reason, wherry_says, with};
use crate::support::agent::Agent;
use crate::support::yaml::TRAP;

fn class(name: &str, fields: &str) -> String {
    format!("apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: {name}}}\n{fields}\n")
}

fn named(class: &str) -> String {
    with(&format!("priorityClassName: {class}"), "")
}

/// The line of `wherry status` about this file.
fn status_line(agent: &Agent, file: &str) -> String {
    wherry_says(agent, "status").lines().find(|l| l.contains(file)).unwrap_or_default().to_owned()
}

fn is_logged(agent: &Agent, file: &str, field: &str) -> bool {
    let (file, field) = (format!("{file}\""), format!("field=\"{field}\""));
    agent.log().lines().any(|l| l.contains("manifest error") && l.contains(&file) && l.contains(&field))
}

#[test]
fn a5_a_class_gives_its_priority_and_the_default_one_to_all_others() {
    let agent = node("class", "");
    let classes = [class("gold", "value: 1000"), class("usual", "value: 5\nglobalDefault: true")];
    agent.write("classes.yaml", &classes.join("---\n"));
    agent.apply("plain", &requesting(800));
    let plain = agent.wait_running("plain");
    assert_eq!((&plain["spec"]["priority"], &plain["spec"]["priorityClassName"]), (&5.into(), &"usual".into()));
    agent.apply("system", &named("system-node-critical"));
    assert_eq!(agent.wait_running("system")["spec"]["priority"], 2_000_001_000);
    // A6: a higher priority is enough to preempt.
    agent.apply("golden", &format!("priorityClassName: gold\n{}", requesting(800)));
    let golden = agent.wait_running("golden");
    assert_eq!(golden["spec"]["priority"], 1000);
    assert_eq!(golden["spec"]["preemptionPolicy"], "PreemptLowerPriority");
    wait_reason(&agent, "plain", "Preempting");
    assert!(wherry_says(&agent, "status").contains("no errors"));
    // A change of a class does not change pods that already have its value.
    let id = agent.running("golden", "main");
    agent.write("classes.yaml", &class("gold", "value: 7"));
    agent.apply("later", &named("gold"));
    assert_eq!(agent.wait_running("later")["spec"]["priority"], 7);
    assert_eq!(agent.pod("golden").expect("listed")["spec"]["priority"], 1000);
    assert_eq!(agent.running("golden", "main"), id);
}

#[test]
fn a5_a_class_that_never_preempts_is_rejected_instead() {
    let agent = node("class-never", "");
    agent.write("classes.yaml", &class("meek", "value: 1000\npreemptionPolicy: Never"));
    agent.apply("plain", &requesting(800));
    agent.wait_running("plain");
    agent.apply("meek", &format!("priorityClassName: meek\n{}", requesting(800)));
    wait_reason(&agent, "meek", "OutOfcpu");
    assert!(agent.running("plain", "main").is_some());
    assert_eq!(agent.metric("kubelet_preemptions"), 0.0);
}

#[test]
fn a5_a_pod_of_an_unknown_class_starts_when_the_class_is_there() {
    let mut agent = node("class-late", "");
    agent.apply("silver", &named("silver"));
    agent.apply("plain", TRAP);
    agent.wait_running("plain");
    let why = "no PriorityClass with name silver was found";
    agent.wait("it is reported", |a| status_line(a, "/silver.yaml").contains(why));
    assert!(status_line(&agent, "/silver.yaml").contains("spec.priorityClassName: "));
    assert!(is_logged(&agent, "/silver.yaml", "spec.priorityClassName"));
    let json = agent.get("/status").expect("/status").body;
    assert!(json.contains("/silver.yaml") && json.contains(why), "{json}");
    assert!(agent.pod("silver").is_none());
    // The same after a restart.
    agent.kill();
    agent.run();
    agent.wait("it is reported again", |a| status_line(a, "/silver.yaml").contains(why));
    agent.write("classes.yaml", &class("silver", "value: 50"));
    assert_eq!(agent.wait_running("silver")["spec"]["priority"], 50);
    agent.wait("nothing is wrong any more", |a| wherry_says(a, "status").contains("no errors"));
    // After the removal of a class its pods keep their priority.
    let id = agent.running("silver", "main");
    std::fs::remove_file(agent.manifests().join("classes.yaml")).expect("remove");
    agent.apply("next", TRAP);
    agent.wait_running("next");
    assert_eq!(agent.running("silver", "main"), id);
    assert_eq!(agent.pod("silver").expect("listed")["spec"]["priority"], 50);
}

#[test]
fn a5_two_classes_alike_and_two_defaults_are_errors_and_the_first_is_in_force() {
    let agent = node("class-twice", "");
    agent.write("1.yaml", &class("gold", "value: 10\nglobalDefault: true"));
    agent.write("2.yaml", &class("gold", "value: 20"));
    agent.write("3.yaml", &class("usual", "value: 30\nglobalDefault: true"));
    agent.write("4.yaml", &class("system-mine", "value: 40"));
    agent.write("5.yaml", &class("vast", "value: 2000000000"));
    agent.wait("all are reported", |a| (2..=5).all(|n| !status_line(a, &format!("/{n}.yaml:")).is_empty()));
    for (file, field, word) in [
        ("/2.yaml", "metadata.name", "/1.yaml"),
        ("/3.yaml", "globalDefault", "/1.yaml"),
        ("/4.yaml", "metadata.name", "system-"),
        ("/5.yaml", "value", "1000000000"),
    ] {
        let line = status_line(&agent, file);
        assert!(line.contains(&format!("{field}: ")) && line.contains(word), "{file}: {line}");
        assert!(is_logged(&agent, file, field), "{file}");
    }
    agent.apply("golden", &named("gold"));
    agent.apply("plain", TRAP);
    assert_eq!(agent.wait_running("golden")["spec"]["priority"], 10);
    assert_eq!(agent.wait_running("plain")["spec"]["priority"], 10);
    // The first file is removed, and the others take its place.
    std::fs::remove_file(agent.manifests().join("1.yaml")).expect("remove");
    agent.wait("they have no error any more", |a| {
        status_line(a, "/2.yaml:").is_empty() && status_line(a, "/3.yaml:").is_empty()
    });
    agent.apply("golden-too", &named("gold"));
    agent.apply("plain-too", TRAP);
    assert_eq!(agent.wait_running("golden-too")["spec"]["priority"], 20);
    assert_eq!(agent.wait_running("plain-too")["spec"]["priority"], 30);
}
