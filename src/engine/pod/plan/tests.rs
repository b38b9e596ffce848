use super::*;
use crate::api::document;
use crate::api::document::context::Context;
use crate::api::facts::ContainerState::{Created, Exited, Running, Unknown};
use crate::api::k8s;
use crate::api::pod::Pod;
use crate::api::time::Wall;
use crate::engine::pleg::foreign_objects::ForeignObjects;
use crate::engine::pod::worker::restarting::Restarting;
use std::collections::BTreeSet;

fn pod(policy: &str) -> Pod {
    let text = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{restartPolicy: {policy}, \
         containers: [{{name: a, image: i:1}}, {{name: b, image: i:1}}]}}}}"
    );
    let context = Context::new("lab", "2027-01-15T08:00:00Z");
    document::read(text.as_bytes(), "/m/p.yaml", context).0.remove(0)
}

fn sandbox(attempt: u32, ready: bool) -> SandboxFact {
    let id = format!("s{attempt}").into();
    SandboxFact {
        user_namespace: None,
        id,
        attempt,
        ready,
        created_at: Wall(1),
        ips: Vec::new(),
        host_network: false,
        owner: None,
        pid: None,
    }
}

fn container(name: &str, attempt: u32, state: ContainerState, sandbox: &str, exit_code: i32) -> ContainerFact {
    ContainerFact {
        id: format!("{name}{attempt}").into(),
        sandbox: sandbox.into(),
        name: name.into(),
        attempt,
        state,
        created_at: Wall(1),
        started_at: Wall(1),
        finished_at: Wall(1),
        exit_code,
        reason: String::new(),
        message: String::new(),
        image: String::new(),
        image_ref: String::new(),
        spec_hash: None,
        backoff_level: 0,
        boot: None,
        grace_seconds: None,
        pre_stop: None,
        stop_signal: None,
        user: None,
        termination_file: None,
        fallback_to_logs: false,
        log_path: String::new(),
        owner: None,
        pid: None,
    }
}

/// The sandboxes, newest first, are (attempt, ready); the containers are (name, attempt, state, sandbox, exit code).
fn facts(sandboxes: &[(u32, bool)], containers: &[(&str, u32, ContainerState, &str, i32)]) -> PodFacts {
    PodFacts {
        sandboxes: sandboxes.iter().map(|(a, r)| sandbox(*a, *r)).collect(),
        containers: containers.iter().map(|(n, a, s, of, code)| container(n, *a, *s, of, *code)).collect(),
    }
}

fn plan(policy: &str, facts: &PodFacts) -> Next {
    planned(policy, facts, 0, &|_| false, &|_| false)
}

fn planned(
    policy: &str,
    facts: &PodFacts,
    first_attempt: u32,
    held: &dyn Fn(&str) -> bool,
    stopped: &dyn Fn(&SandboxId) -> bool,
) -> Next {
    next(&PlanInput {
        pod: &pod(policy),
        facts,
        first_attempt,
        foreign: &ForeignObjects::default(),
        first_free: &|_| 0,
        held,
        stopped,
        in_doubt: false,
        started: &|_| true,
        begun_ephemeral: &BTreeSet::new(),
        restarting: &Restarting::default(),
    })
}

#[test]
fn w1_from_nothing_to_running_step_by_step() {
    let s = &[(0, true)];
    for (found, expected) in [
        (facts(&[], &[]), Next::RunSandbox { attempt: 0 }),
        (facts(s, &[]), Next::Create { index: 0, attempt: 0 }),
        (facts(s, &[("a", 0, Created, "s0", 0)]), Next::Start { index: 0, id: "a0".into() }),
        (facts(s, &[("a", 0, Running, "s0", 0)]), Next::Create { index: 1, attempt: 0 }),
        (facts(s, &[("a", 0, Running, "s0", 0), ("b", 0, Running, "s0", 0)]), Next::Nothing),
        (facts(s, &[("a", 0, Exited, "s0", 0), ("b", 0, Running, "s0", 0)]), Next::Create { index: 0, attempt: 1 }),
    ] {
        assert_eq!(plan("Always", &found), expected, "{found:?}");
    }
}

#[test]
fn restart_policies_decide_what_an_end_means() {
    let one_ended = |code| facts(&[(0, true)], &[("a", 0, Exited, "s0", code), ("b", 0, Running, "s0", 0)]);
    let all_ended = |code| facts(&[(0, true)], &[("a", 0, Exited, "s0", code), ("b", 0, Exited, "s0", 0)]);
    let again = Next::Create { index: 0, attempt: 1 };
    for (policy, code, one, all) in [
        ("Always", 0, again.clone(), again.clone()),
        ("Always", 3, again.clone(), again.clone()),
        ("OnFailure", 0, Next::Nothing, Next::Ended),
        ("OnFailure", 3, again.clone(), again.clone()),
        ("Never", 0, Next::Nothing, Next::Ended),
        ("Never", 3, Next::Nothing, Next::Ended),
    ] {
        assert_eq!(plan(policy, &one_ended(code)), one, "{policy} {code}");
        assert_eq!(plan(policy, &all_ended(code)), all, "{policy} {code}");
    }
}

#[test]
fn w13_a_dead_sandbox_is_replaced_after_its_surviving_containers_are_stopped() {
    let survived = facts(&[(0, false)], &[("a", 0, Running, "s0", 0), ("b", 0, Exited, "s0", 0)]);
    let stopped = facts(&[(0, false)], &[("a", 0, Exited, "s0", 137), ("b", 0, Exited, "s0", 0)]);
    for policy in ["Always", "OnFailure", "Never"] {
        assert_eq!(plan(policy, &survived), Next::StopContainers(vec!["a0".into()]), "{policy}");
    }
    assert_eq!(plan("Always", &stopped), Next::StopSandbox("s0".into()));
    let run = planned("Always", &stopped, 0, &|_| false, &|_| true);
    assert_eq!(run, Next::RunSandbox { attempt: 1 });
    assert_eq!(plan("Never", &stopped), Next::Ended);
    // No container may start yet, so no sandbox is needed.
    assert_eq!(planned("Always", &stopped, 0, &|_| true, &|_| true), Next::Nothing);
}

#[test]
fn w13_a_container_created_in_a_dead_sandbox_gives_its_place_to_the_next() {
    let found = facts(&[(1, true), (0, false)], &[("a", 2, Created, "s0", 0)]);
    assert_eq!(plan("Always", &found), Next::Create { index: 0, attempt: 3 });
}

#[test]
fn of_two_sandboxes_the_newest_counts_and_its_predecessors_are_not_its_own() {
    let two = facts(&[(1, true), (0, true)], &[("a", 0, Running, "s0", 0)]);
    assert_eq!(plan("Always", &two), Next::StopContainers(vec!["a0".into()]));
    let empty = facts(&[(1, true), (0, true)], &[]);
    assert_eq!(plan("Always", &empty), Next::StopSandbox("s0".into()));
    let late = facts(&[(0, true)], &[]);
    assert_eq!(planned("Always", &late, 1, &|_| false, &|_| false), Next::StopSandbox("s0".into()));
    assert_eq!(planned("Always", &facts(&[], &[]), 1, &|_| false, &|_| false), Next::RunSandbox { attempt: 1 });
}

#[test]
fn of_two_instances_the_running_one_counts() {
    let late =
        facts(&[(0, true)], &[("a", 1, Created, "s0", 0), ("a", 0, Running, "s0", 0), ("b", 0, Running, "s0", 0)]);
    assert_eq!(plan("Always", &late), Next::Nothing);
    assert_eq!(superfluous(&late, 2).map(|c| c.id.as_str()), Some("a1"));
    let both = facts(&[(0, true)], &[("a", 1, Running, "s0", 0), ("a", 0, Running, "s0", 0)]);
    assert_eq!(plan("Always", &both), Next::StopContainers(vec!["a0".into()]));
}

#[test]
fn a_container_in_an_unknown_state_is_stopped() {
    let found = facts(&[(0, true)], &[("a", 0, Unknown, "s0", 0)]);
    assert_eq!(plan("Always", &found), Next::StopContainers(vec!["a0".into()]));
}

#[test]
fn a_held_container_does_not_hold_up_the_others() {
    let found = facts(&[(0, true)], &[]);
    let held = planned("Always", &found, 0, &|name| name == "a", &|_| false);
    assert_eq!(held, Next::Create { index: 1, attempt: 0 });
}

#[test]
fn w26_the_two_newest_of_each_name_stay() {
    let dead = |n: u32| ("a", n, Exited, "s0", 1);
    assert_eq!(superfluous(&facts(&[(0, true)], &[dead(1), dead(0)]), 2), None);
    let three = facts(&[(0, true)], &[("a", 2, Running, "s0", 0), dead(1), dead(0)]);
    assert_eq!(superfluous(&three, 2).map(|c| c.id.as_str()), Some("a0"));
    let sandboxes = facts(&[(2, true), (1, false), (0, false)], &[("a", 0, Exited, "s1", 1)]);
    assert_eq!(superfluous_sandbox(&sandboxes), Some("s0".into()));
    assert_eq!(superfluous_sandbox(&facts(&[(1, false)], &[])), None, "the newest stays");
}

/// Returns a pod with the sidecar `s`, the init container `i`, and then `a` and `b`.
fn with_init(policy: &str) -> Pod {
    let mut pod = pod(policy);
    let of = |name: &str, sidecar: bool| k8s::Container {
        name: name.into(),
        restart_policy: sidecar.then(|| "Always".into()),
        ..Default::default()
    };
    if let Some(spec) = &mut pod.object.spec {
        spec.init_containers = Some(vec![of("s", true), of("i", false)]);
    }
    pod
}

fn plan_init(policy: &str, facts: &PodFacts, started: bool) -> Next {
    plan_init_of(&with_init(policy), facts, started, false)
}

fn plan_init_of(pod: &Pod, facts: &PodFacts, started: bool, in_doubt: bool) -> Next {
    let none = |_: &SandboxId| false;
    next(&PlanInput {
        pod,
        facts,
        first_attempt: 0,
        foreign: &ForeignObjects::default(),
        first_free: &|_| 0,
        held: &|_| false,
        stopped: &none,
        in_doubt,
        started: &|_| started,
        begun_ephemeral: &BTreeSet::new(),
        restarting: &Restarting::default(),
    })
}

#[test]
fn w11_a_sidecar_an_init_container_and_then_the_main_ones() {
    let s = &[(0, true)];
    let side = ("s", 0, Running, "s0", 0);
    let done = ("i", 0, Exited, "s0", 0);
    for (found, started, expected) in [
        (facts(&[], &[]), true, Next::RunSandbox { attempt: 0 }),
        (facts(s, &[]), true, Next::Create { index: 0, attempt: 0 }),
        (facts(s, &[("s", 0, Created, "s0", 0)]), true, Next::Start { index: 0, id: "s0".into() }),
        (facts(s, &[side]), false, Next::Nothing),
        (facts(s, &[side]), true, Next::Create { index: 1, attempt: 0 }),
        (facts(s, &[side, ("i", 0, Running, "s0", 0)]), true, Next::Nothing),
        (facts(s, &[side, ("i", 0, Exited, "s0", 3)]), true, Next::Create { index: 1, attempt: 1 }),
        (facts(s, &[side, done]), true, Next::Create { index: 2, attempt: 0 }),
        // A sidecar that restarts does not delay the main containers, whatever its probe reports at that time.
        (facts(s, &[side, done, ("a", 0, Running, "s0", 0)]), false, Next::Create { index: 3, attempt: 0 }),
        (facts(s, &[("s", 0, Exited, "s0", 0), done]), true, Next::Create { index: 0, attempt: 1 }),
        // An init container that is gone from the runtime still counts as completed.
        (facts(s, &[side, ("a", 0, Exited, "s0", 1)]), true, Next::Create { index: 2, attempt: 1 }),
    ] {
        assert_eq!(plan_init("Always", &found, started), expected, "{found:?}");
    }
}

/// The dead instance of the init container is gone from the runtime, and a cancelled call may still take effect.
#[test]
fn w11_a_container_created_in_this_sandbox_shows_that_all_before_it_are_done() {
    let side = ("s", 0, Running, "s0", 0);
    let found = facts(&[(0, true)], &[side, ("a", 0, Created, "s0", 0)]);
    for in_doubt in [false, true] {
        let next = plan_init_of(&with_init("Always"), &found, true, in_doubt);
        assert_eq!(next, Next::Start { index: 2, id: "a0".into() });
    }
    // With a fixed UID the created container may belong to another version of the pod: it proves nothing, but it may
    // start.
    let mut own = with_init("Always");
    own.uid = "own".into();
    assert_eq!(plan_init_of(&own, &found, true, true), Next::Nothing);
    assert_eq!(plan_init_of(&own, &found, true, false), Next::Create { index: 1, attempt: 0 });
    let dead = facts(&[(0, true)], &[side, ("a", 0, Exited, "s0", 0)]);
    assert_eq!(plan_init_of(&own, &dead, true, true), Next::Create { index: 2, attempt: 1 });
}

#[test]
fn w13_only_containers_of_the_current_sandbox_count() {
    let found = facts(&[(1, true), (0, false)], &[("i", 0, Exited, "s0", 0), ("s", 0, Exited, "s0", 137)]);
    assert_eq!(plan_init("Always", &found, true), Next::Create { index: 0, attempt: 1 });
    let found = facts(&[(1, true)], &[("s", 1, Running, "s1", 0), ("i", 0, Exited, "s0", 0)]);
    assert_eq!(plan_init("Always", &found, true), Next::Create { index: 1, attempt: 1 });
}

#[test]
fn w1_a_failed_init_container_ends_a_pod_that_never_restarts_and_sidecars_do_not_keep_it() {
    let s = &[(0, true)];
    let side = ("s", 0, Exited, "s0", 1);
    let failed = facts(s, &[side, ("i", 0, Exited, "s0", 3)]);
    assert_eq!(plan_init("Never", &failed, true), Next::Ended);
    assert_eq!(plan_init("OnFailure", &failed, true), Next::Create { index: 0, attempt: 1 });
    let ended = [("s", 0, Running, "s0", 0), ("a", 0, Exited, "s0", 0), ("b", 0, Exited, "s0", 0)];
    assert_eq!(plan_init("OnFailure", &facts(s, &ended), true), Next::Ended);
}
