//! Preemption for a critical pod (A6 to A9), observed in the containers' logs, `/pods` and `/metrics`.

use super::{
    attempt, gated, message, node, open_gate, reason, rejections, short_of_cpu, wait_listening, wait_reason,
    wherry_says,
};
use crate::support::agent::{Agent, condition};
use crate::support::yaml::TRAP;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Seek};

/// The open log file of a container. The file itself is removed with the content of a preempted pod (W26).
struct Log(File);

impl Log {
    /// The log of a gated pod, after the pod has logged its begin.
    fn of(agent: &Agent, pod: &str) -> Log {
        let pod = wait_listening(agent, pod);
        Log(File::open(agent.log_path(&pod, "main", attempt(&pod))).expect("its log"))
    }

    fn text(&self) -> String {
        let mut file = &self.0;
        let mut text = String::new();
        file.rewind().expect("rewind");
        file.read_to_string(&mut text).expect("read");
        text
    }

    fn says(&self, word: &str) -> bool {
        self.text().contains(&format!(" {word}"))
    }

    /// The time in the only line with this word, in seconds since boot.
    fn time(&self, word: &str) -> f64 {
        let text = self.text();
        let marked = format!(" {word} ");
        let times: Vec<f64> = text.lines().filter_map(|l| l.split_once(&marked)?.1.parse().ok()).collect();
        assert_eq!(times.len(), 1, "{word}: {text}");
        times[0]
    }
}

/// The seconds since boot, on the clock that the containers log.
fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").expect("uptime");
    text.split(' ').next().and_then(|t| t.parse().ok()).expect("seconds")
}

fn critical(milli: u64) -> String {
    format!("priorityClassName: system-cluster-critical\n{}", gated(milli))
}

fn preempted(agent: &Agent) -> f64 {
    let by_cpu = agent.metric("kubelet_preemptions{preemption_signal=\"cpu\"}");
    assert_eq!(by_cpu, agent.metric("kubelet_preemptions"), "there is no other");
    by_cpu
}

/// A8: the status from the kill on.
fn assert_preempted(pod: &Value, phase: &str) {
    assert_eq!(pod["status"]["phase"], phase);
    assert_eq!((reason(pod), message(pod)), ("Preempting", "Preempted in order to admit critical pod"));
    let target = condition(pod, "DisruptionTarget");
    assert_eq!((&target["status"], &target["reason"]), (&"True".into(), &"TerminationByKubelet".into()), "{pod:#}");
}

fn show(agent: &Agent, when: &str) {
    println!("wherry pods, {when}:\n{}", wherry_says(agent, "pods"));
}

#[test]
fn a8_a_critical_pod_starts_after_its_victims_have_ended_and_a9_they_restart() {
    let agent = node("preempt", "");
    agent.apply("bystander", TRAP);
    agent.wait_running("bystander");
    let bystander = agent.running("bystander", "main");
    let victims = ["v1", "v2"];
    for victim in victims {
        agent.apply(victim, &gated(500));
    }
    let logs = victims.map(|v| Log::of(&agent, v));
    show(&agent, "before");
    assert_eq!(preempted(&agent), 0.0);

    let begun = uptime();
    agent.apply("vip", &critical(600));
    for (victim, log) in victims.iter().zip(&logs) {
        let pod = wait_reason(&agent, victim, "Preempting");
        // W3: its last phase.
        assert_preempted(&pod, "Running");
        agent.wait("it is asked to end, before any other has", |_| log.says("asked"));
    }
    let vip = wait_reason(&agent, "vip", "WaitingForRoom");
    assert_eq!(vip["status"]["phase"], "Pending");
    assert!(message(&vip).ends_with(&format!(" to end: {}", short_of_cpu(600, 1000))), "{}", message(&vip));
    let namespace = &agent.namespace;
    let (one, two) = (format!("{namespace}/v1, {namespace}/v2"), format!("{namespace}/v2, {namespace}/v1"));
    assert!(message(&vip).contains(&one) || message(&vip).contains(&two), "{}", message(&vip));
    // The room is reserved.
    agent.apply("thief", &super::requesting(500));
    assert_eq!(message(&wait_reason(&agent, "thief", "OutOfcpu")), short_of_cpu(500, 600));
    assert_eq!((preempted(&agent), rejections(&agent, "OutOfcpu")), (0.0, 1.0), "a victim counts once it stopped");
    show(&agent, "during");

    open_gate(&agent, "v1");
    assert_preempted(&agent.wait_phase("v1", "Failed"), "Failed");
    let rest = format!("waiting for {namespace}/v2 to end: {}", short_of_cpu(600, 500));
    agent.wait("it waits for the other one", |a| a.pod("vip").is_some_and(|p| message(&p) == rest));
    assert!(agent.sandboxes("vip").is_empty());
    agent.wait("one is counted", |a| preempted(a) == 1.0);
    open_gate(&agent, "v2");
    let vip = Log::of(&agent, "vip");
    show(&agent, "after");
    assert_preempted(&agent.wait_phase("v2", "Failed"), "Failed");
    assert_eq!(preempted(&agent), 2.0);
    let ends = logs.each_ref().map(|log| log.time("end"));
    let starts = vip.time("begin");
    println!("begun {begun}, the victims' ends {ends:?}, the critical pod's start {starts}");
    assert!(ends.iter().all(|end| begun < *end && *end < starts), "{ends:?} {starts}");
    assert_eq!(agent.running("bystander", "main"), bystander);
    for victim in victims {
        let name = format!("{namespace}/{victim}");
        let told = agent.log().lines().filter(|l| l.contains(&name) && l.contains("reason=Preempting")).count();
        assert_eq!(told, 1, "{name}");
        assert!(agent.running(victim, "main").is_none());
    }

    let pod = agent.pod("vip").expect("listed");
    assert_eq!((reason(&pod), attempt(&pod)), ("", 0));
    open_gate(&agent, "vip");
    agent.delete("vip");
    agent.wait_gone("vip");
    for victim in victims {
        let pod = agent.wait_long("it comes back", 120, |a| a.pod(victim).filter(crate::support::agent::is_running));
        assert_eq!((reason(&pod), message(&pod)), ("", ""));
        assert!(condition(&pod, "DisruptionTarget").is_null(), "{pod:#}");
        let again = Log::of(&agent, victim).time("begin");
        assert!(again >= begun + 30.0, "{victim} came back {} s after its kill", again - begun);
        println!("{victim} came back {:.1} s after its kill", again - begun);
    }
    assert_eq!((preempted(&agent), rejections(&agent, "OutOfcpu")), (2.0, 1.0));
    assert_eq!(reason(&agent.pod("thief").expect("listed")), "OutOfcpu", "a rejected pod does not come back");
    for victim in victims {
        open_gate(&agent, victim);
    }
}

#[test]
fn a8_a_preemption_goes_on_after_a_kill_in_the_middle_of_it() {
    let mut agent = node("preempt-kill", "");
    agent.apply("v1", &gated(600));
    agent.apply("v2", &gated(400));
    let victim = Log::of(&agent, "v1");
    agent.wait_running("v2");
    let stays = agent.running("v2", "main");
    agent.apply("vip", &critical(600));
    agent.wait("the victim is asked to end", |_| victim.says("asked"));
    for _ in 0..2 {
        agent.kill();
        agent.run();
        assert_preempted(&wait_reason(&agent, "v1", "Preempting"), "Running");
        let vip = wait_reason(&agent, "vip", "WaitingForRoom");
        let waits = format!("waiting for {}/v1 to end: {}", agent.namespace, short_of_cpu(600, 1000));
        assert_eq!((&vip["status"]["phase"], message(&vip)), (&"Pending".into(), waits.as_str()));
        assert!(agent.sandboxes("vip").is_empty());
    }
    open_gate(&agent, "v1");
    let vip = Log::of(&agent, "vip");
    assert!(victim.time("end") < vip.time("begin"));
    assert_preempted(&agent.wait_phase("v1", "Failed"), "Failed");
    assert_eq!(agent.running("v2", "main"), stays, "no other pod is preempted");
    assert_eq!(reason(&agent.pod("v2").expect("listed")), "");
    assert_eq!(preempted(&agent), 1.0, "counted by the run in which it ended");
    // The same after a restart once the preemption is complete.
    agent.kill();
    agent.run();
    let pod = agent.wait_running("vip");
    assert_preempted(&wait_reason(&agent, "v1", "Preempting"), "Failed");
    assert_eq!(preempted(&agent), 0.0);
    assert_eq!((agent.sandboxes("vip").len(), agent.containers("vip").len(), attempt(&pod)), (1, 1, 0));
    assert_eq!(agent.running("v2", "main"), stays);
    for pod in ["v2", "vip"] {
        open_gate(&agent, pod);
    }
}

#[test]
fn a8_a_removed_critical_pod_preempts_no_other_pod_and_a9_its_victim_restarts() {
    let mut agent = node("preempt-leave", "");
    agent.apply("v1", &gated(600));
    agent.apply("v2", &gated(400));
    let victim = Log::of(&agent, "v1");
    agent.wait_running("v2");
    let stays = agent.running("v2", "main");
    let begun = uptime();
    agent.apply("vip", &critical(600));
    agent.wait("the victim is asked to end", |_| victim.says("asked"));
    agent.delete("vip");
    agent.wait("it is no longer listed", |a| a.pod("vip").is_none());
    open_gate(&agent, "v1");
    // No other pod takes its room, so it can return.
    agent.wait_phase("v1", "Failed");
    agent.wait("it is counted", |a| preempted(a) == 1.0);
    // A restart does not make it return sooner.
    agent.kill();
    agent.run();
    agent.wait_long("it comes back", 120, |a| a.pod("v1").filter(crate::support::agent::is_running));
    let again = Log::of(&agent, "v1").time("begin");
    assert!(again >= begun + 30.0, "v1 came back {} s after its kill", again - begun);
    assert_eq!(agent.running("v2", "main"), stays);
    for pod in ["v1", "v2"] {
        open_gate(&agent, pod);
    }
}
