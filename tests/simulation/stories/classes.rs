//! PriorityClasses (A5) and the last good version of a pod whose class is missing (D2).

use crate::story::*;
use crate::world::World;

fn of_class(class: &str, spec: &str) -> String {
    format!("priorityClassName: {class}, {spec}")
}

/// The file, field and message of each reported problem.
fn problems(w: &World) -> Vec<String> {
    w.manifest_problems()
}

const MISSING: &str = "/m/web.yaml: spec.priorityClassName: no PriorityClass with name gold was found; add a manifest of \
                       kind PriorityClass with this name";

#[test]
fn a5_a_pod_starts_once_its_class_is_defined() {
    let mut w = node();
    w.file("web", &of_class("gold", ONE));
    w.file("other", ONE);
    w.run(3);
    assert_eq!((w.shown("web").as_str(), w.shown("other").as_str()), ("", "Running main#0:running"));
    assert_eq!(problems(&w), [MISSING]);
    w.define_class("gold", 7);
    w.run(3);
    assert_eq!((w.shown("web").as_str(), w.priority_of("web")), ("Running main#0:running", Some(7)));
    assert_eq!(problems(&w), [""; 0]);
    w.assert_well();
}

#[test]
fn a5_a_version_keeps_its_priority_also_after_a_restart() {
    let mut w = node();
    w.define_class("gold", 7);
    w.file("web", &of_class("gold", ONE));
    w.run(3);
    w.take_calls();
    for restart in [false, true] {
        w.define_class("gold", 9);
        if restart {
            w.restart_engine();
        }
        w.run(3);
        assert_eq!(w.priority_of("web"), Some(7));
        w.remove_class("gold");
        if restart {
            w.restart_engine();
        }
        w.run(3);
        assert_eq!((w.shown("web").as_str(), w.priority_of("web")), ("Running main#0:running", Some(7)));
        let kept = format!("{MISSING}; until then the pod keeps the priority 7 that the class gave it");
        assert_eq!(problems(&w), [kept]);
    }
    assert_eq!(w.take_calls(), Vec::<String>::new(), "no container was touched");
    // A new version gets the new value.
    w.define_class("gold", 9);
    w.file("web", &of_class("gold", TWO));
    w.run(5);
    assert_eq!((w.shown("web").as_str(), w.priority_of("web")), ("Running one#0:running two#0:running", Some(9)));
    w.assert_well();
}

#[test]
fn d2_an_edited_pod_without_its_class_keeps_its_last_good_version() {
    for restart in [false, true] {
        let mut w = node();
        w.file("web", ONE);
        w.run(3);
        w.take_calls();
        w.file("web", &of_class("gold", TWO));
        if restart {
            w.restart_engine();
        }
        w.run(5);
        assert_eq!(w.shown("web"), "Running main#0:running");
        assert_eq!(w.take_calls(), Vec::<String>::new());
        assert_eq!(problems(&w), [MISSING]);
        w.define_class("gold", 7);
        w.run(5);
        assert_eq!((w.shown("web").as_str(), w.priority_of("web")), ("Running one#0:running two#0:running", Some(7)));
        w.assert_well();
    }
}

#[test]
fn a5_a_critical_class_preempts() {
    let mut w = node();
    w.config.node.allocatable.set("cpu", 1000);
    w.restart_engine();
    let request = |milli: u32| {
        format!("containers: [{{name: main, image: '{IMAGE}', resources: {{requests: {{cpu: {milli}m}}}}}}]")
    };
    w.file("small", &request(600));
    w.run(3);
    w.file("large", &of_class("system-node-critical", &request(700)));
    w.run(40);
    assert_eq!((w.shown("large").as_str(), w.priority_of("large")), ("Running main#0:running", Some(2_000_001_000)));
    assert_ne!(w.shown("small"), "Running main#0:running");
    w.assert_well();
}

fn of_runtime_class(class: &str, spec: &str) -> String {
    format!("runtimeClassName: {class}, {spec}")
}

/// The number of calls that create a sandbox.
fn sandboxes(w: &World) -> usize {
    w.times("RunSandbox web", 0).len()
}

const MISSING_RUNTIME: &str = "/m/web.yaml: spec.runtimeClassName: no RuntimeClass with name gvisor was found; add a \
                               RuntimeClass with this name";

#[test]
fn a5_a_pod_runs_with_the_handler_and_the_overhead_of_its_runtime_class() {
    let mut w = node();
    w.file("web", &of_runtime_class("gvisor", ONE));
    w.run(3);
    assert_eq!((w.shown("web").as_str(), problems(&w)), ("", vec![MISSING_RUNTIME.to_owned()]));
    w.define_runtime_class("gvisor", "runsc");
    w.run(3);
    assert_eq!((w.shown("web").as_str(), problems(&w)), ("Running main#0:running", Vec::new()));
    assert_eq!(w.times("RunSandbox web#0 with runsc", 0).len(), 1);
    assert_eq!(w.engine.node().1.get("cpu"), 100);
    w.assert_well();
}

#[test]
fn a5_without_its_runtime_class_a_running_pod_runs_on_and_gets_no_new_sandbox() {
    let mut w = node();
    w.define_runtime_class("gvisor", "runsc");
    w.file("web", &of_runtime_class("gvisor", ONE));
    w.run(3);
    for restart in [false, true] {
        w.remove_runtime_class("gvisor");
        if restart {
            w.restart_engine();
        }
        w.run(3);
        assert!(w.runs("web/main"));
        assert_eq!(problems(&w), [format!("{MISSING_RUNTIME}; until then the pod gets no new sandbox")]);
        let before = sandboxes(&w);
        let sandbox = w.sandbox("web");
        w.kill_sandbox(&sandbox);
        w.run(30);
        assert_eq!(sandboxes(&w), before);
        assert!(!w.notices("FailedCreatePodSandBox").is_empty());
        w.define_runtime_class("gvisor", "runsc");
        w.run(30);
        assert_eq!(sandboxes(&w), before + 1);
        assert!(w.runs("web/main"));
    }
    w.assert_well();
}

#[test]
fn a_pod_waits_for_a_runtime_with_the_feature_that_it_needs() {
    let mut w = node();
    w.file("web", &format!("securityContext: {{supplementalGroupsPolicy: Strict}}, {ONE}"));
    w.run(30);
    assert_eq!(sandboxes(&w), 0);
    assert!(!w.notices("FailedCreatePodSandBox").is_empty());
    w.runtime.features.supplemental_groups_policy = true;
    w.runtime_down();
    w.runtime_up();
    w.run(60);
    assert_eq!((sandboxes(&w), w.shown("web").as_str()), (1, "Running main#0:running"));
    w.assert_well();
}

/// The copy sorts before the original, and has the value from before the edit.
#[test]
fn a5_a_copy_of_a_class_never_takes_over() {
    for restart in [false, true] {
        let mut w = node();
        w.define_class("gold", 7);
        w.run(1);
        w.copy_class("gold");
        w.run(1);
        w.define_class("gold", 9);
        if restart {
            w.restart_engine();
        }
        w.file("web", &of_class("gold", ONE));
        w.run(3);
        assert_eq!(w.priority_of("web"), Some(9), "restart {restart}");
        assert!(w.manifest_problems()[0].starts_with("/m/a-copy-of-class-gold.yaml"), "{:?}", w.manifest_problems());
        w.remove_class("gold");
        w.file("late", &of_class("gold", ONE));
        w.run(3);
        assert_eq!((w.priority_of("late"), w.notices("ConflictEnded").len()), (Some(7), 1));
        w.assert_well();
    }
}
