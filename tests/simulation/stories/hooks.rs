//! W4, W10, W11: postStart and preStop hooks, and the order in which a pod with sidecars stops.

use crate::runtime::{Life, Personality};
use crate::story::*;
use crate::world::handlers::{Answers, BADLY, WELL};
use crate::world::{S, World};
use std::time::Duration;
use wherry::api::reason::Reason;

const HOOK: &str = "{exec: {command: [sh, -c, 'x']}}";

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Two containers, the first with hooks.
fn hooked(more: &str) -> String {
    format!(
        "{more}containers: [{{name: main, image: 'busybox:1.35', lifecycle: {{postStart: {HOOK}, preStop: {HOOK}}}}}, \
         {{name: second, image: 'busybox:1.35'}}]"
    )
}

/// The calls so far: starts, stops and hooks.
fn order(w: &mut World) -> Vec<String> {
    let mut said = w.take_calls();
    said.retain(|s| ["Start", "Stop", "P"].iter().any(|p| s.starts_with(p)) && !s.starts_with("StopSandbox"));
    said.iter().map(|s| s.replace("Container", "")).collect()
}

#[test]
fn w11_a_post_start_hook_is_done_before_the_next_container_starts() {
    let mut w = node();
    w.handlers.answers("web/main/PostStart", &[Answers::Well(seconds(2))]);
    w.file("web", &hooked(""));
    w.run(1);
    assert_eq!(w.shown("web"), "Pending main#0:waiting ContainerCreating second#0:waiting ContainerCreating");
    assert_eq!(order(&mut w), ["Start web/main#0", "PostStart web/main#0 1800000ms"]);
    w.run(2);
    assert_eq!(w.shown("web"), "Running main#0:running second#0:running");
    assert_eq!(order(&mut w), ["Start web/second#0"]);
}

#[test]
fn w10_a_post_start_hook_that_fails_kills_its_container_which_starts_anew_with_the_back_off() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.handlers.answers("web/main/PostStart", &[BADLY, BADLY, WELL]);
    w.file("web", &hooked("terminationGracePeriodSeconds: 2, "));
    w.run(1);
    assert_eq!(w.notices("FailedPostStartHook"), ["PostStartHook failed"]);
    assert_eq!(w.notices("Killing"), ["FailedPostStartHook"]);
    let (reason, message) = w.waiting("web", "main");
    assert_eq!(reason, "PostStartHookError");
    let begin = "Exec lifecycle hook ([sh -c x]) for Container \"main\" in Pod \"web_default(";
    let end = ")\" failed - error: command 'sh -c x' exited with 9: , message: \"bad\\n\"";
    assert!(message.starts_with(begin) && message.ends_with(end), "{message}");
    w.until("its second end", 9, |w| w.waiting("web", "main").0 == "CrashLoopBackOff");
    let expected = [
        "Start web/main#0",
        "PostStart web/main#0 1800000ms",
        "PreStop web/main#0 1998ms",
        "Stop web/main#0 2000ms",
        "Start web/main#1",
        "PostStart web/main#1 1800000ms",
        "PreStop web/main#1 1998ms",
        "Stop web/main#1 2000ms",
        "Start web/second#0",
    ];
    assert_eq!(order(&mut w), expected);
    w.run(12);
    assert_eq!(w.shown("web"), "Running main#2:running second#0:running");
}

#[test]
fn w4_w6_a_kill_cancels_a_post_start_hook() {
    let mut w = node();
    w.handlers.answers("web/main/PostStart", &[Answers::Never]);
    w.file("web", &hooked(""));
    w.run(5);
    w.remove("web");
    let took = w.until("nothing runs", 5, |w| !w.runs("web/main"));
    assert!(took < 500, "{took} ms");
    w.run(5);
    // W6: the hook was cancelled. That is not a failure of the pod.
    assert!(w.notices("FailedPostStartHook").is_empty());
    w.assert_clean();
}

#[test]
fn a_post_start_hook_whose_container_ended_is_not_waited_for() {
    let mut w = node();
    w.handlers.answers("web/main/PostStart", &[Answers::Never, WELL]);
    w.file("web", &hooked(""));
    w.run(2);
    w.exit_of("web/main", 3);
    w.run(4);
    assert_eq!(w.shown("web"), "Running main#1:running second#0:running");
}

#[test]
fn w4_pre_stop_runs_inside_the_grace_period_and_the_stop_gets_what_is_left() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.handlers.answers("web/main/PreStop", &[Answers::Well(seconds(2))]);
    w.file("web", &hooked("terminationGracePeriodSeconds: 5, "));
    w.run(2);
    order(&mut w);
    let begin = w.clock.now;
    w.remove("web");
    w.run(10);
    let expected = ["Stop web/second#0 5000ms", "PreStop web/main#0 4998ms", "Stop web/main#0 3000ms"];
    assert_eq!(order(&mut w), expected);
    let ended: Vec<u64> =
        w.observed.notices.iter().filter(|(_, n)| n.reason == Reason::Killing).map(|(t, _)| (t - begin) / S).collect();
    assert_eq!(ended, [0, 0], "reported at the start of the hook");
    w.assert_clean();
}

#[test]
fn w4_pre_stop_is_cut_at_the_end_of_the_period_and_the_stop_gets_two_seconds() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.handlers.answers("web/main/PreStop", &[Answers::Never]);
    w.file("web", &hooked("terminationGracePeriodSeconds: 5, "));
    w.run(2);
    w.take_calls();
    let begin = w.clock.now;
    w.remove("web");
    let took = w.until("it is dead", 20, |w| !w.runs("web/main"));
    assert_eq!(w.times("StopContainer web/main", begin), [5000]);
    assert!((7000..7200).contains(&took), "{took}");
    w.run(5);
    assert_eq!(w.notices("Killing").len(), 2);
    w.assert_clean();
}

#[test]
fn w4_a_failed_pre_stop_is_reported_and_the_stop_continues() {
    let mut w = node();
    w.handlers.answers("web/main/PreStop", &[BADLY]);
    w.file("web", &hooked(""));
    w.run(2);
    w.remove("web");
    w.run(3);
    assert_eq!(w.notices("FailedPreStopHook"), ["PreStopHook failed"]);
    w.assert_clean();
}

#[test]
fn w10_an_https_hook_that_succeeds_over_http_is_reported() {
    const GET: &str = "{httpGet: {scheme: HTTPS, port: 8443, path: /x}}";
    let mut w = node();
    for hook in ["PostStart", "PreStop"] {
        w.handlers.answers(&format!("web/main/{hook}"), &[Answers::WithoutTls]);
    }
    w.file("web", &hooked("").replace(HOOK, GET));
    w.run(2);
    let message = "request to HTTPS lifecycle hook 10.0.0.5:8443 got HTTP response, retry with HTTP succeeded";
    assert_eq!(w.notices("LifecycleHTTPFallback"), [message]);
    assert_eq!(w.shown("web"), "Running main#0:running second#0:running");
    w.remove("web");
    w.run(3);
    assert_eq!(w.notices("LifecycleHTTPFallback"), [message; 2]);
    assert_eq!(w.notices("FailedPreStopHook"), [""; 0]);
    w.assert_clean();
}

#[test]
fn w4_pre_stop_runs_once_whatever_becomes_of_wherry() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.handlers.answers("web/main/PreStop", &[Answers::Never]);
    w.file("web", &hooked("terminationGracePeriodSeconds: 20, "));
    w.run(2);
    w.remove("web");
    w.run(5);
    w.take_calls();
    w.restart_engine();
    w.run(30);
    let said = order(&mut w);
    assert_eq!(said, ["Stop web/main#0 15000ms"], "the hook ran before; the stop gets the rest of the period");
    w.assert_clean();
}

#[test]
fn w21_an_orphans_pre_stop_hook_comes_from_its_annotation() {
    let mut w = node();
    w.file("web", &hooked("terminationGracePeriodSeconds: 7, "));
    w.run(2);
    w.disk.records.clear();
    w.files.clear();
    w.take_calls();
    w.restart_engine();
    w.run(10);
    let said = order(&mut w);
    let main: Vec<&String> = said.iter().filter(|s| s.contains("main")).collect();
    assert_eq!(main.len(), 2, "{said:?}");
    assert!(main[0] == "PreStop web/main#0 6999ms" || main[0] == "PreStop web/main#0 7000ms", "{said:?}");
    assert_eq!(main[1], "Stop web/main#0 7000ms");
    w.assert_clean();
}

#[test]
fn w11_sidecars_stop_after_the_main_containers_in_reverse_order() {
    let side = |name: &str| format!("{{name: {name}, image: 'busybox:1.35', restartPolicy: Always}}");
    let spec = format!(
        "terminationGracePeriodSeconds: 20, initContainers: [{}, {}], containers: [{{name: main, image: 'busybox:1.35'}}]",
        side("s1"),
        side("s2")
    );
    let mut w = node();
    w.life("web/main", &[Life { on_term: Some((seconds(4), 0)), ..Life::FOREVER }]);
    w.life("web/s2", &[Life { on_term: Some((seconds(3), 0)), ..Life::FOREVER }]);
    w.file("web", &spec);
    w.run(2);
    order(&mut w);
    w.remove("web");
    w.run(15);
    assert_eq!(order(&mut w), ["Stop web/main#0 20000ms", "Stop web/s2#0 16000ms", "Stop web/s1#0 13000ms"]);
    assert_eq!(w.notices("Killing").len(), 3);
    w.assert_clean();
}

#[test]
fn w4_sidecars_that_wait_are_stopped_at_the_end_of_the_period_with_two_seconds() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.life("web/side", &[Life::deaf()]);
    w.life("web/i2", &[Life::exits(0, seconds(1))]);
    w.file("web", &format!("terminationGracePeriodSeconds: 6, {SIDECAR}"));
    w.run(4);
    order(&mut w);
    let begin = w.clock.now;
    w.remove("web");
    w.run(5);
    w.run(10);
    assert_eq!(w.times("StopContainer web/main", begin), [0]);
    assert_eq!(w.times("StopContainer web/side", begin), [6000]);
    let said = order(&mut w);
    assert_eq!(said, ["Stop web/main#0 6000ms", "Stop web/side#0 2000ms"]);
    w.assert_clean();
}

#[test]
fn w4_a_shorter_period_cuts_a_pre_stop_hook_that_runs() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.handlers.answers("web/main/Liveness", &[BADLY]);
    w.handlers.answers("web/main/PreStop", &[Answers::Never]);
    let probe = "livenessProbe: {exec: {command: [sh]}, failureThreshold: 1, terminationGracePeriodSeconds: 60}";
    w.file(
        "web",
        &format!(
            "terminationGracePeriodSeconds: 5, containers: [{{name: main, image: 'busybox:1.35', {probe}, \
             lifecycle: {{preStop: {HOOK}}}}}]"
        ),
    );
    w.run(3);
    assert_eq!(order(&mut w), ["Start web/main#0", "PreStop web/main#0 59998ms"]);
    let begin = w.clock.now;
    w.remove("web");
    w.run(10);
    assert_eq!(w.times("StopContainer web/main", begin), [5000]);
    assert_eq!(order(&mut w), ["Stop web/main#0 2000ms"]);
    assert_eq!(w.notices("Killing"), ["Container main failed liveness probe, will be restarted"]);
    w.assert_clean();
}

#[test]
fn w10_a_stop_signal_is_in_the_status_or_the_runtime_ignores_it() {
    let spec = "os: {name: linux}, containers: [{name: main, image: 'busybox:1.35', lifecycle: {stopSignal: SIGUSR1}}]";
    let signal = |w: &World| w.status("web").container_statuses.unwrap_or_default()[0].stop_signal.clone();
    let mut w = node();
    w.file("web", spec);
    w.run(3);
    assert!(w.runs("web/main"));
    assert_eq!((w.notices("StopSignalIgnored").len(), signal(&w)), (1, None));
    w.runtime.stop_signals = true;
    w.exit_of("web/main", 1);
    w.run(3);
    assert_eq!((w.notices("StopSignalIgnored").len(), signal(&w).as_deref()), (1, Some("SIGUSR1")));
}

/// CRI-O honours the signal and does not report it.
#[test]
fn w10_a_stop_signal_that_is_honoured_without_a_report_is_in_the_status() {
    let spec = "os: {name: linux}, containers: [{name: main, image: 'busybox:1.35', lifecycle: {stopSignal: SIGUSR1}}]";
    let mut w = node_on(Personality::CriO);
    w.file("web", spec);
    w.run(3);
    assert!(w.runs("web/main"));
    assert_eq!(w.container_status("web", "main").stop_signal.as_deref(), Some("SIGUSR1"));
    assert_eq!(w.notices("StopSignalIgnored"), [""; 0]);
}

#[test]
fn p4_a_hook_does_not_connect_at_the_node_instead_of_a_pod_without_an_address() {
    let mut w = node();
    w.runtime.no_address = true;
    let hook = "preStop: {httpGet: {port: 80}}";
    w.file("web", &format!("containers: [{{name: main, image: 'busybox:1.35', lifecycle: {{{hook}}}}}]"));
    w.until("it runs", 2, |w| w.runs("web/main"));
    w.run(2);
    w.remove("web");
    w.run(5);
    assert_eq!(w.notices("FailedPreStopHook"), ["PreStopHook failed"]);
    w.assert_clean();
}
