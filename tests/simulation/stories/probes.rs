//! Probes: when they run, what their results cause, and what they cost.

use crate::runtime::{Life, Personality};
use crate::story::*;
use crate::world::handlers::{Answers, BADLY, WELL};
use crate::world::{MS, World};
use std::time::Duration;
use wherry::engine::effect::Measure;

/// The spec of a pod with one container and these probes.
fn probed(probes: &str) -> String {
    format!("containers: [{{name: main, image: 'busybox:1.35', {probes}}}]")
}

/// The times at which this probe ran, in ms from `since`.
fn probes(w: &World, kind: &str, since: u64) -> Vec<u64> {
    let of = format!("web/main/{kind}");
    let all = w.handlers.probes.iter().filter(|(at, what)| *at >= since && *what == of);
    all.map(|(at, _)| (at - since) / MS).collect()
}

fn ready(w: &World) -> (bool, Option<bool>) {
    let c = w.container_status("web", "main");
    (c.ready, c.started)
}

#[test]
fn a_liveness_probe_that_fails_so_often_in_a_row_restarts_the_container() {
    let mut w = node();
    w.life("web/main", &[Life::deaf(), Life::FOREVER]);
    w.handlers.answers("web/main/Liveness", &[WELL, BADLY, WELL, BADLY, BADLY, WELL]);
    w.file(
        "web",
        &format!(
            "terminationGracePeriodSeconds: 3, {}",
            probed("livenessProbe: {exec: {command: [sh]}, periodSeconds: 5, failureThreshold: 2}")
        ),
    );
    w.until("it runs", 2, |w| w.runs("web/main"));
    let begin = w.clock.now;
    w.run(19);
    let times = probes(&w, "Liveness", begin);
    assert_eq!(times.iter().map(|t| t / 1000).collect::<Vec<_>>(), [0, 5, 10, 15], "{times:?}");
    assert_eq!(ready(&w), (true, Some(true)));
    w.take_calls();
    w.run(3);
    let failed = "Liveness probe failed: bad\n";
    assert_eq!(w.notices("Unhealthy"), [failed, failed, failed]);
    assert_eq!(w.notices("Killing"), ["Container main failed liveness probe, will be restarted"]);
    assert_eq!(w.take_calls(), ["StopContainer web/main#0 3000ms"]);
    w.run(5);
    assert_eq!(w.shown("web"), "Running main#1:running");
    let last = w.container_status("web", "main").last_state.unwrap().terminated.unwrap();
    assert_eq!(last.exit_code, 137);
    w.run(100);
    assert_eq!(w.shown("web"), "Running main#1:running", "the new one's probes begin again");
}

#[test]
fn a_liveness_probes_own_grace_period_counts_and_under_never_nothing_starts_again() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.handlers.answers("web/main/Liveness", &[BADLY]);
    let probe = "livenessProbe: {exec: {command: [sh]}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 4}";
    w.file("web", &format!("restartPolicy: Never, {}", probed(probe)));
    w.run(10);
    assert_eq!(w.notices("Killing"), ["Container main failed liveness probe"]);
    assert_eq!(w.times("StopContainer", 0).len(), 1);
    assert!(w.observed.calls.iter().any(|(_, c)| c == "StopContainer web/main#0 4000ms"));
    assert_eq!(w.shown("web"), "Failed main#0:terminated Error 137");
}

#[test]
fn a_probe_that_hangs_is_a_failure_and_one_that_is_lost_is_none() {
    let mut w = node();
    w.handlers.answers("web/main/Liveness", &[Answers::Never, Answers::Lost, Answers::Never, WELL]);
    w.file(
        "web",
        &probed("livenessProbe: {exec: {command: [sh]}, periodSeconds: 3, timeoutSeconds: 2, failureThreshold: 2}"),
    );
    w.run(12);
    assert_eq!(
        w.notices("Unhealthy"),
        [
            "Liveness probe failed: command \"sh\" timed out",
            "Liveness probe errored and resulted in unknown state: connection lost",
            "Liveness probe failed: command \"sh\" timed out",
        ]
    );
    assert_eq!(w.notices("Killing"), ["Container main failed liveness probe, will be restarted"]);
    w.users.timeouts_are_results = true;
    w.handlers.answers("web/main/Liveness", &[Answers::Never, WELL]);
    w.run(8);
    assert_eq!(w.notices("Unhealthy").pop().unwrap(), "Liveness probe failed: command \"sh\" timed out");
    let of = |passed| {
        w.observed.measures.iter().filter(|m| matches!(m, Measure::Probe { passed: p, .. } if *p == passed)).count()
    };
    assert_eq!((of(Some(false)), of(None)), (3, 1));
}

#[test]
fn readiness_decides_ready_and_never_restarts() {
    let mut w = node();
    w.handlers.answers("web/main/Readiness", &[BADLY, WELL, BADLY, BADLY, WELL]);
    w.file("web", &probed("readinessProbe: {exec: {command: [sh]}, periodSeconds: 4, failureThreshold: 2}"));
    w.until("it runs", 2, |w| w.runs("web/main"));
    w.run(2);
    assert_eq!(ready(&w), (false, Some(true)));
    assert_eq!(w.condition("web", "Ready").2, "containers with unready status: [main]");
    assert_eq!(w.status("web").phase.as_deref(), Some("Running"));
    w.run(4);
    assert!(ready(&w).0);
    w.run(4);
    assert!(ready(&w).0, "one failure is below the threshold");
    w.run(4);
    assert!(!ready(&w).0);
    w.run(4);
    assert!(ready(&w).0);
    assert_eq!(w.notices("Unhealthy").len(), 3);
    assert_eq!(w.times("StopContainer", 0), [] as [u64; 0]);
}

#[test]
fn the_initial_delay_counts_from_the_start_and_the_period_from_the_last_probe() {
    let mut w = node();
    w.handlers.answers(
        "web/main/Readiness",
        &[Answers::Well(Duration::from_millis(900)), Answers::Well(Duration::from_millis(5500)), WELL],
    );
    w.file(
        "web",
        &probed("readinessProbe: {exec: {command: [sh]}, initialDelaySeconds: 7, periodSeconds: 5, timeoutSeconds: 6}"),
    );
    w.until("it runs", 2, |w| w.runs("web/main"));
    let begin = w.clock.now;
    w.run(25);
    let times: Vec<u64> = probes(&w, "Readiness", begin).iter().map(|t| t / 100).collect();
    // At 7 s, at 12 s (takes 5.5 s), immediately after that, then 5 s later.
    assert_eq!(times, [70, 120, 175, 225], "{times:?}");
}

#[test]
fn the_startup_probe_gates_the_others_and_its_failure_restarts() {
    let mut w = node();
    let all = "startupProbe: {exec: {command: [sh]}, periodSeconds: 2, failureThreshold: 3}, \
               livenessProbe: {exec: {command: [sh]}, periodSeconds: 5}, readinessProbe: {exec: {command: [sh]}, periodSeconds: 5}";
    w.handlers.answers("web/main/Startup", &[BADLY, BADLY, BADLY, BADLY, WELL]);
    w.file("web", &probed(all));
    w.run(3);
    assert_eq!(ready(&w), (false, Some(false)));
    w.until("the second instance", 10, |w| w.container_status("web", "main").restart_count == 1);
    assert_eq!(w.notices("Killing"), ["Container main failed startup probe, will be restarted"]);
    assert_eq!(w.notices("Unhealthy")[0], "Startup probe failed: bad\n");
    assert!(!w.handlers.probes.iter().any(|(_, p)| p != "web/main/Startup"), "{:?}", w.handlers.probes);
    w.run(5);
    assert_eq!(ready(&w), (true, Some(true)));
    let startups = probes(&w, "Startup", 0).len();
    w.run(60);
    assert_eq!(probes(&w, "Startup", 0).len(), startups, "a startup probe ends with its first success");
    assert!(probes(&w, "Liveness", 0).len() >= 12 && probes(&w, "Readiness", 0).len() >= 12);
}

#[test]
fn w11_a_sidecar_with_a_startup_probe_holds_the_next_until_it_passes() {
    let mut w = node();
    let spec = "initContainers: [{name: side, image: 'busybox:1.35', restartPolicy: Always, \
                startupProbe: {exec: {command: [sh]}, periodSeconds: 2}}], containers: [{name: main, image: 'busybox:1.35'}]";
    w.handlers.answers("web/side/Startup", &[BADLY, BADLY, WELL]);
    w.file("web", spec);
    w.run(3);
    assert_eq!(w.shown("web"), "Pending side#0:running main#0:waiting PodInitializing");
    assert_eq!(w.condition("web", "Initialized").2, "containers with incomplete status: [side]");
    w.run(3);
    assert_eq!(w.shown("web"), "Running side#0:running main#0:running");
    // Its startup probe fails after a restart: the main container continues to run.
    w.handlers.answers("web/side/Startup", &[BADLY]);
    w.exit_of("web/side", 1);
    w.run(12);
    assert!(
        w.notices("Killing").contains(&"Init container side failed startup probe".into()),
        "{:?}",
        w.notices("Killing")
    );
    assert!(w.runs("web/main"));
    assert_eq!(w.status("web").phase.as_deref(), Some("Running"));
}

#[test]
fn a_pod_that_is_being_stopped_is_probed_for_readiness_alone() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.handlers.answers("web/main/Liveness", &[WELL, WELL, BADLY]);
    w.file("web", &format!(
        "terminationGracePeriodSeconds: 20, {}",
        probed("livenessProbe: {exec: {command: [sh]}, periodSeconds: 2, failureThreshold: 1}, readinessProbe: {exec: {command: [sh]}, periodSeconds: 2}")
    ));
    w.run(3);
    let begin = w.clock.now;
    w.remove("web");
    w.run(15);
    assert_eq!(probes(&w, "Liveness", begin), [] as [u64; 0]);
    assert!(probes(&w, "Readiness", begin).len() >= 6);
    assert_eq!(w.notices("Killing"), ["Stopping container main"]);
    w.run(10);
    let last = w.handlers.probes.len();
    w.run(60);
    assert_eq!(w.handlers.probes.len(), last);
    assert_eq!(w.observed.measures.iter().filter(|m| matches!(m, Measure::NoMoreProbes { .. })).count(), 1);
    w.assert_clean();
}

#[test]
fn w25_an_adopted_container_is_not_ready_before_its_first_probe_within_a_period() {
    let mut w = node();
    w.file(
        "web",
        &probed("startupProbe: {exec: {command: [sh]}, periodSeconds: 10}, readinessProbe: {exec: {command: [sh]}, periodSeconds: 10}"),
    );
    w.run(30);
    assert_eq!(ready(&w), (true, Some(true)));
    w.restart_engine();
    w.until("it is shown", 2, |w| w.container_status("web", "main").started.is_some());
    assert_eq!(ready(&w), (false, Some(false)));
    w.run(20);
    assert_eq!(ready(&w), (true, Some(true)));
    assert_eq!(w.container_status("web", "main").restart_count, 0);
    assert_eq!(w.times("StopContainer", 0), [] as [u64; 0]);
}

#[test]
fn a_probe_costs_its_own_wake_up_and_no_read() {
    let idle = |spec: &str| {
        let mut w = node();
        w.pidfds.available = true;
        w.file("web", spec);
        w.run(65);
        let (wakes, reads, steps) = (w.observed.wake_ups, w.observed.reads, w.observed.steps);
        w.run(600);
        (w.observed.wake_ups - wakes, w.observed.reads - reads, w.observed.steps - steps)
    };
    let (wakes, reads, steps) = idle(ONE);
    let (more_wakes, more_reads, more_steps) =
        idle(&probed("livenessProbe: {exec: {command: [sh]}, periodSeconds: 10}"));
    assert_eq!(more_reads, reads);
    // 60 probes: one step starts each, one handles its result. Some coincide with other steps.
    assert!((105..=122).contains(&(more_wakes - wakes)), "{wakes} and {more_wakes}");
    assert!((105..=122).contains(&(more_steps - steps)), "{steps} and {more_steps}");
}

/// The liveness probe of `web` connects at the pod's address.
const LIVENESS: &str = "livenessProbe: {httpGet: {port: 80}, periodSeconds: 5, failureThreshold: 1}";

/// Probes and their failures until now, and restarts.
fn seen(w: &World) -> (usize, usize, i32) {
    let restarts = w.container_status("web", "main").restart_count;
    (probes(w, "Liveness", 0).len(), w.notices("Unhealthy").len(), restarts)
}

#[test]
fn p4_a_running_pod_is_probed_at_its_address_after_the_runtime_forgets_it() {
    let mut w = node_on(Personality::CriO);
    w.file("web", &probed(LIVENESS));
    w.until("it runs", 2, |w| w.runs("web/main"));
    let ip = w.status("web").pod_ip.expect("an address");
    w.runtime_down();
    w.runtime.forget_address(&w.sandbox("web"));
    w.runtime_up();
    let before = seen(&w).0;
    w.run(30);
    // `check_address` compares the address of each probe.
    assert!(seen(&w).0 > before + 3);
    assert_eq!((seen(&w).1, seen(&w).2, w.status("web").pod_ip), (0, 0, Some(ip)));
    assert_eq!(w.condition("web", "PodReadyToStartContainers").0, "True");
}

#[test]
fn p4_a_pod_without_an_address_is_not_probed_at_the_nodes() {
    let mut w = node();
    w.runtime.no_address = true;
    w.handlers.answers("web/main/Liveness", &[BADLY]);
    w.file("web", &probed(LIVENESS));
    w.until("it runs", 2, |w| w.runs("web/main"));
    w.run(30);
    let (probes, problems, restarts) = seen(&w);
    assert!(probes > 4, "{probes}");
    assert_eq!((problems, restarts), (probes, 0), "the result is unknown, so nothing restarts");
    let unknown = "Liveness probe errored and resulted in unknown state: rpc error: code = Unknown desc = the container runtime \
                   reports no address of the pod";
    assert!(w.notices("Unhealthy")[0].starts_with(unknown), "{:?}", w.notices("Unhealthy"));
    assert_eq!(w.condition("web", "PodReadyToStartContainers").0, "False");
}

#[test]
fn p4_a_pod_on_the_nodes_network_is_probed_at_the_nodes_address() {
    let mut w = node();
    w.file("web", &format!("hostNetwork: true, {}", probed(LIVENESS)));
    w.until("it runs", 2, |w| w.runs("web/main"));
    w.run(30);
    assert!(seen(&w).0 > 4);
    assert_eq!((seen(&w).1, seen(&w).2), (0, 0));
}
