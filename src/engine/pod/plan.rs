//! What a pod in Sync needs next, from its spec and what was observed: the one place that says whether a container is
//! started, restarted or left alone. Pure and without memory; when a container has to wait is the worker's (`holds`).

use crate::api::facts::{ContainerFact, ContainerState, PodFacts, SandboxFact};
use crate::api::names::{ContainerId, SandboxId};
use crate::api::pod::{Pod, RestartPolicy};

/// The next changing step; the worker makes them one after another, looking again after each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// All that should run runs, or has to wait.
    Nothing,
    /// All containers ended and none is to run again: the pod is over (W1).
    Ended,
    /// Containers that survived their sandbox (W13), or whose state the runtime does not know.
    StopContainers(Vec<ContainerId>),
    /// A sandbox that died, or a superfluous one.
    StopSandbox(SandboxId),
    RunSandbox {
        attempt: u32,
    },
    /// `index` in the spec.
    Create {
        index: usize,
        attempt: u32,
    },
    /// Created and not started yet (wherry was killed in between): go on with it.
    Start {
        index: usize,
        id: ContainerId,
    },
}

/// The newest sandbox, if it is ready.
pub fn ready_sandbox(facts: &PodFacts) -> Option<&SandboxFact> {
    facts.sandboxes.first().filter(|s| s.ready)
}

/// The container of that name that counts: the one that runs, else the newest. (One that was created by a call given up
/// long ago may have a higher number.)
pub fn newest<'a>(facts: &'a PodFacts, name: &str) -> Option<&'a ContainerFact> {
    let of_name = facts.containers.iter().filter(|c| c.name == name);
    of_name.max_by_key(|c| (c.state == ContainerState::Running, c.attempt, c.created_at))
}

/// Does the restart policy start a container again that ended so?
pub fn restarts(policy: RestartPolicy, exit_code: i32) -> bool {
    match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    }
}

/// `held(name)`: the container has to wait (a back-off, an error). `stopped(id)`: the dead sandbox's network was taken
/// down already, which its state does not show. `first_attempt`: sandboxes with a lower one are an earlier pod's.
pub fn next(
    pod: &Pod,
    facts: &PodFacts,
    first_attempt: u32,
    held: impl Fn(&str) -> bool,
    stopped: impl Fn(&SandboxId) -> bool,
) -> Next {
    let policy = pod.restart_policy();
    let ended = |c: &ContainerFact| c.state == ContainerState::Exited && !restarts(policy, c.exit_code);
    let all_ended = pod.containers().iter().all(|c| newest(facts, &c.name).is_some_and(ended));
    if all_ended {
        return Next::Ended;
    }

    let current = ready_sandbox(facts).filter(|s| s.attempt >= first_attempt);
    let survivors: Vec<ContainerId> = facts
        .containers
        .iter()
        .filter(|c| match c.state {
            // (A runtime that does not tell the sandbox is asked again by the next read.)
            ContainerState::Running => {
                current.is_none_or(|s| c.sandbox != s.id && !c.sandbox.as_str().is_empty())
                    || newest(facts, &c.name).is_some_and(|n| n.id != c.id)
            }
            ContainerState::Unknown => true,
            ContainerState::Created | ContainerState::Exited => false,
        })
        .map(|c| c.id.clone())
        .collect();
    if !survivors.is_empty() {
        return Next::StopContainers(survivors);
    }
    // Of several ready sandboxes the newest counts.
    if let Some(old) = facts.sandboxes.iter().find(|s| s.ready && current.is_none_or(|c| c.id != s.id)) {
        return Next::StopSandbox(old.id.clone());
    }
    let Some(current) = current else {
        // W13: a pod that never restarts anything gets no second sandbox once a container existed.
        if policy == RestartPolicy::Never && !facts.containers.is_empty() {
            return Next::Ended;
        }
        // Nothing to run in it yet: no sandbox.
        let wanted = pod.containers().iter().any(|c| !held(&c.name) && !newest(facts, &c.name).is_some_and(ended));
        if !wanted {
            return Next::Nothing;
        }
        // A dead sandbox still holds its address and host ports until it is stopped.
        if let Some(dead) = facts.sandboxes.iter().find(|s| !stopped(&s.id)) {
            return Next::StopSandbox(dead.id.clone());
        }
        let attempt = facts.sandboxes.iter().map(|s| s.attempt.saturating_add(1)).max().unwrap_or(0).max(first_attempt);
        return Next::RunSandbox { attempt };
    };

    for (index, container) in pod.containers().iter().enumerate() {
        if held(&container.name) {
            continue;
        }
        match newest(facts, &container.name) {
            None => return Next::Create { index, attempt: 0 },
            Some(c) => match c.state {
                ContainerState::Running | ContainerState::Unknown => {}
                ContainerState::Created if c.sandbox == current.id => return Next::Start { index, id: c.id.clone() },
                // Its sandbox is no more. It never ran, but its name is taken.
                ContainerState::Created => return Next::Create { index, attempt: c.attempt.saturating_add(1) },
                ContainerState::Exited if restarts(policy, c.exit_code) => {
                    return Next::Create { index, attempt: c.attempt.saturating_add(1) };
                }
                ContainerState::Exited => {}
            },
        }
    }
    Next::Nothing
}

/// W26: a dead container that nobody looks at any more. Of each name the two newest stay: the one that runs or ended
/// last, and the one before it (`lastState`, `logs -p`).
pub fn superfluous(facts: &PodFacts) -> Option<&ContainerFact> {
    facts.containers.iter().find(|c| {
        let newer = |o: &&ContainerFact| o.name == c.name && (o.attempt, o.created_at) > (c.attempt, c.created_at);
        match c.state {
            ContainerState::Exited => facts.containers.iter().filter(newer).count() >= 2,
            ContainerState::Created => newest(facts, &c.name).is_some_and(|n| n.id != c.id),
            ContainerState::Running | ContainerState::Unknown => false,
        }
    })
}

/// An old sandbox without any container; the newest stays.
pub fn superfluous_sandbox(facts: &PodFacts) -> Option<SandboxId> {
    let mut old = facts.sandboxes.iter().skip(1);
    let found = old.find(|s| !s.ready && !facts.containers.iter().any(|c| c.sandbox == s.id));
    found.map(|s| s.id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;
    use crate::api::facts::ContainerState::{Created, Exited, Running, Unknown};
    use crate::api::time::Wall;

    fn pod(policy: &str) -> Pod {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{restartPolicy: {policy}, \
             containers: [{{name: a, image: i:1}}, {{name: b, image: i:1}}]}}}}"
        );
        let context = document::Context { node_name: "lab", seen: "2027-01-15T08:00:00Z", unsafe_sysctls: &[] };
        document::read(text.as_bytes(), "/m/p.yaml", context).0.remove(0)
    }

    fn sandbox(attempt: u32, ready: bool) -> SandboxFact {
        let id = format!("s{attempt}").into();
        SandboxFact { id, attempt, ready, created_at: Wall(1), ips: Vec::new(), owner: None, pid: None }
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
            backoff_level: 0,
            grace_seconds: None,
            termination_file: None,
            fallback_to_logs: false,
            log_path: String::new(),
            owner: None,
            pid: None,
        }
    }

    /// Sandboxes newest first as (attempt, ready), containers as (name, attempt, state, sandbox, exit code).
    fn facts(sandboxes: &[(u32, bool)], containers: &[(&str, u32, ContainerState, &str, i32)]) -> PodFacts {
        PodFacts {
            sandboxes: sandboxes.iter().map(|(a, r)| sandbox(*a, *r)).collect(),
            containers: containers.iter().map(|(n, a, s, of, code)| container(n, *a, *s, of, *code)).collect(),
        }
    }

    fn plan(policy: &str, facts: &PodFacts) -> Next {
        next(&pod(policy), facts, 0, |_| false, |_| false)
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
    fn w13_a_dead_sandbox_is_replaced_after_what_survived_it_is_stopped() {
        let survived = facts(&[(0, false)], &[("a", 0, Running, "s0", 0), ("b", 0, Exited, "s0", 0)]);
        let stopped = facts(&[(0, false)], &[("a", 0, Exited, "s0", 137), ("b", 0, Exited, "s0", 0)]);
        for policy in ["Always", "OnFailure", "Never"] {
            assert_eq!(plan(policy, &survived), Next::StopContainers(vec!["a0".into()]), "{policy}");
        }
        assert_eq!(plan("Always", &stopped), Next::StopSandbox("s0".into()));
        let run = next(&pod("Always"), &stopped, 0, |_| false, |_| true);
        assert_eq!(run, Next::RunSandbox { attempt: 1 });
        assert_eq!(plan("Never", &stopped), Next::Ended);
        // Nothing may start yet: no sandbox for it.
        assert_eq!(next(&pod("Always"), &stopped, 0, |_| true, |_| true), Next::Nothing);
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
        assert_eq!(next(&pod("Always"), &late, 1, |_| false, |_| false), Next::StopSandbox("s0".into()));
        assert_eq!(next(&pod("Always"), &facts(&[], &[]), 1, |_| false, |_| false), Next::RunSandbox { attempt: 1 });
    }

    #[test]
    fn of_two_instances_the_running_one_counts() {
        let late =
            facts(&[(0, true)], &[("a", 1, Created, "s0", 0), ("a", 0, Running, "s0", 0), ("b", 0, Running, "s0", 0)]);
        assert_eq!(plan("Always", &late), Next::Nothing);
        assert_eq!(superfluous(&late).map(|c| c.id.as_str()), Some("a1"));
        let both = facts(&[(0, true)], &[("a", 1, Running, "s0", 0), ("a", 0, Running, "s0", 0)]);
        assert_eq!(plan("Always", &both), Next::StopContainers(vec!["a0".into()]));
    }

    #[test]
    fn what_the_runtime_does_not_know_is_stopped() {
        let found = facts(&[(0, true)], &[("a", 0, Unknown, "s0", 0)]);
        assert_eq!(plan("Always", &found), Next::StopContainers(vec!["a0".into()]));
    }

    #[test]
    fn a_held_container_does_not_hold_up_the_others() {
        let found = facts(&[(0, true)], &[]);
        let held = next(&pod("Always"), &found, 0, |name| name == "a", |_| false);
        assert_eq!(held, Next::Create { index: 1, attempt: 0 });
    }

    #[test]
    fn w26_the_two_newest_of_each_name_stay() {
        let dead = |n: u32| ("a", n, Exited, "s0", 1);
        assert_eq!(superfluous(&facts(&[(0, true)], &[dead(1), dead(0)])), None);
        let three = facts(&[(0, true)], &[("a", 2, Running, "s0", 0), dead(1), dead(0)]);
        assert_eq!(superfluous(&three).map(|c| c.id.as_str()), Some("a0"));
        let sandboxes = facts(&[(2, true), (1, false), (0, false)], &[("a", 0, Exited, "s1", 1)]);
        assert_eq!(superfluous_sandbox(&sandboxes), Some("s0".into()));
        assert_eq!(superfluous_sandbox(&facts(&[(1, false)], &[])), None, "the newest stays");
    }
}
