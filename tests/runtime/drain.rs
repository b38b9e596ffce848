//! W27 on a real runtime: `wherry drain`, its wait, and `wherry undrain`.

use crate::support::agent::{Agent, patience};
use crate::support::lab::signal;
use crate::support::yaml::{TRAP, script};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn printed(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn assert_drained(agent: &Agent, name: &str) {
    let pod = agent.pod(name).expect("it is shown");
    assert_eq!((&pod["status"]["phase"], &pod["status"]["reason"]), (&"Failed".into(), &"Drained".into()), "{pod:#}");
    assert_eq!(agent.running(name, "main"), None);
}

/// A pod with a grace period of `grace` seconds.
fn patient(grace: u32, of: &str) -> String {
    let grace = format!("terminationGracePeriodSeconds: {grace}");
    script("Always", of).replacen("terminationGracePeriodSeconds: 2", &grace, 1)
}

/// Ends two seconds after SIGTERM and logs each step.
const SLOW: &str = "trap 'echo bye; sleep 2; echo end; exit 0' TERM; echo ready; while :; do sleep 0.1; done";

#[test]
fn w27_a_drained_pod_has_its_grace_and_stays_down_over_kills_until_undrain() {
    let mut agent = Agent::start("drain");
    agent.apply("slow", &patient(30, SLOW));
    agent.apply("other", TRAP);
    let pod = agent.wait_running("slow");
    agent.wait_running("other");
    // A shell that has not set its trap yet loses the signal.
    agent.wait("it listens", |a| a.output(&pod, "main", 0) == "ready\n");
    let name = format!("{}/slow", agent.namespace);
    let (code, out, err) = printed(&agent.wherry(&["drain", &name]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.starts_with(&format!("pod {name} has stopped (")), "{out}");
    assert_eq!(agent.output(&pod, "main", 0), "ready\nbye\nend\n", "it had its own grace period");
    assert_drained(&agent, "slow");
    assert_eq!(agent.metric("wherry_drained_pods"), 1.0);
    // A second drain finds the pod drained already.
    let (code, out, _) = printed(&agent.wherry(&["drain", &name]));
    assert_eq!((code, out), (Some(0), format!("pod {name} has stopped\n")));

    for _ in 0..2 {
        agent.kill();
        agent.run();
        agent.wait("the other one is known", |a| a.running("other", "main").is_some());
        agent.wait("it is shown", |a| a.pod("slow").is_some_and(|p| p["status"]["phase"] == "Failed"));
        assert_drained(&agent, "slow");
    }
    // A new version is held back too.
    agent.apply("slow", TRAP);
    agent.wait("the new version is there", |a| {
        a.pod("slow").is_some_and(|p| p["metadata"]["uid"] != pod["metadata"]["uid"])
    });
    agent.wait("it is down", |a| a.pod("slow").is_some_and(|p| p["status"]["reason"] == "Drained"));
    std::thread::sleep(Duration::from_secs(2));
    assert_drained(&agent, "slow");

    let (code, out, err) = printed(&agent.wherry(&["undrain", "slow"]));
    assert_eq!((code, out), (Some(0), format!("pod {name} is no longer drained and can start again\n")), "{err}");
    agent.wait_running("slow");
    assert_eq!(agent.metric("wherry_drained_pods"), 0.0);
    let (code, out, _) = printed(&agent.wherry(&["undrain", "slow"]));
    assert_eq!((code, out), (Some(1), format!("pod {name} is not drained\n")));
    assert!(agent.running("other", "main").is_some());
}

#[test]
fn w27_pods_are_drained_by_label_and_all_with_a_shorter_grace() {
    let agent = Agent::start("drains");
    let deaf = "trap '' TERM; until test -e /tmp/go; do sleep 0.1; done";
    for (name, tier) in [("a", "front"), ("b", "back"), ("c", "back")] {
        let pod = crate::support::yaml::pod(&agent.namespace, name, &patient(600, deaf));
        agent.write(
            &format!("{name}.yaml"),
            &pod.replacen("metadata:", &format!("metadata:\n  labels: {{tier: {tier}}}"), 1),
        );
    }
    for name in ["a", "b", "c"] {
        agent.wait_running(name);
    }
    let began = Instant::now();
    let (code, out, err) = printed(&agent.wherry(&["drain", "-l", "tier=back", "--grace-period", "1"]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(began.elapsed() < patience(240), "not their own 600 s");
    assert_eq!(out.lines().count(), 2, "{out}");
    assert!(agent.running("a", "main").is_some());
    assert_drained(&agent, "b");
    assert_drained(&agent, "c");

    // Ctrl-C and --timeout end the wait, not the drain.
    let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
    command.args(["drain", "--all", "--grace-period", "500"]).arg("--socket").arg(&agent.socket);
    let mut waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("wherry");
    agent.wait("it is asked to end", |a| a.pod("a").is_some_and(|p| p["status"]["reason"] == "Drained"));
    let lines = BufReader::new(waiting.stdout.take().expect("a pipe")).lines().take(2);
    let down: Vec<String> = lines.map(|line| line.expect("a line")).collect();
    assert!(down.iter().any(|l| l.ends_with("/b has stopped")), "{down:?}");
    signal(&waiting.id().to_string(), "INT");
    let (code, _, err) = printed(&waiting.wait_with_output().expect("wherry"));
    assert_eq!(code, Some(130), "{err}");
    assert!(
        err.contains(&format!("interrupted, still waiting for {}/a; the drain continues", agent.namespace)),
        "{err}"
    );
    let (code, _, err) = printed(&agent.wherry(&["drain", "a", "--timeout", "100ms"]));
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("timeout, still waiting for"), "{err}");
    agent.cri().exec(&agent.running("a", "main").expect("it is still ending"), &["touch", "/tmp/go"]);
    let (code, out, err) = printed(&agent.wherry(&["drain", "a"]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert_drained(&agent, "a");

    let (code, out, _) = printed(&agent.wherry(&["undrain", "--all"]));
    assert_eq!((code, out.lines().count()), (Some(0), 3), "{out}");
    for name in ["a", "b", "c"] {
        agent.wait_running(name);
    }
}

#[test]
fn w27_a_pod_that_cannot_be_drained_is_an_error_with_the_reason() {
    let agent = Agent::start("nodrain");
    agent.apply("job", &script("Never", "exit 0"));
    agent.wait_phase("job", "Succeeded");
    let (code, out, _) = printed(&agent.wherry(&["drain", "job"]));
    assert_eq!(
        (code, out),
        (Some(0), format!("pod {}/job has ended on its own; it is left unchanged\n", agent.namespace))
    );
    let (code, _, err) = printed(&agent.wherry(&["drain", "nobody"]));
    assert!(code == Some(1) && err.contains("pod nobody was not found"), "{err}");
    let (code, _, err) = printed(&agent.wherry(&["drain", "-l", "app=x"]));
    assert!(code == Some(0) && err.contains("no pod matches"), "{err}");
    let (code, _, err) = printed(&agent.wherry(&["undrain", "--all"]));
    assert!(code == Some(0) && err.contains("no drained pod matches"), "{err}");
}
