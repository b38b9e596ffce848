//! Graceful node shutdown: S1 to S10.

use crate::runtime::Life;
use crate::story::*;
use crate::world::{S, World, config};
use std::time::Duration;
use wherry::api::facts::ContainerState;
use wherry::api::shutdown::Groups;
use wherry::engine::config::EngineConfig;
use wherry::engine::effect::LogindCall;
use wherry::engine::event::{Event, LogindEvent};
use wherry::engine::node::{Due, Part};

const PERIODS: [(i32, u64); 3] = [(0, 10), (1000, 6), (2_000_000_000, 4)];

pub fn with_shutdown() -> EngineConfig {
    let mut config = EngineConfig { shutdown: Groups::by_priority(PERIODS), ..config() };
    config.fixed.boot_id = "boot-1".into();
    config
}

/// Starts a node after `set` has prepared it.
pub fn started(set: impl FnOnce(&mut World)) -> World {
    let mut w = World::new(with_shutdown());
    w.history = Some(Vec::new());
    w.runtime.images.insert(IMAGE.into());
    set(&mut w);
    w.start();
    w
}

/// An armed node: logind's delay is long enough.
pub fn armed() -> World {
    let w = node_with(with_shutdown());
    assert!(w.engine.shutdown(w.time().boot).armed, "{}", w.trace());
    w
}

pub fn priority(n: i32) -> String {
    format!("priority: {n}, {ONE}")
}

/// A container that ends `ms` ms after SIGTERM.
pub fn takes(ms: u64) -> Life {
    Life { on_term: Some((Duration::from_millis(ms), 143)), ..Life::FOREVER }
}

/// A node with a pod of each group, and a second one of the lowest group: `low-1`, `low-2`, `high`, `top`.
pub fn busy() -> World {
    let mut w = armed();
    for (name, n) in [("low-1", -5), ("low-2", 999), ("high", 1000), ("top", 2_000_001_000)] {
        w.life(&format!("{name}/main"), &[takes(2000)]);
        w.file(name, &priority(n));
    }
    w.run(5);
    assert_eq!(w.notices("Started").len(), 4);
    w.take_calls();
    w
}

/// The same node, 1 s after the shutdown began.
fn going_down() -> World {
    let mut w = busy();
    w.power_off();
    w.run(1);
    w
}

/// Removes the record, as if it could not be written. Only the first list shows the next process that the pod runs.
fn lose_record(w: &mut World, name: &str) {
    let before = w.disk.records.len();
    w.disk.records.retain(|_, text| !text.contains(&format!("\"{name}\"")));
    assert_eq!(w.disk.records.len(), before - 1);
}

/// The stops, in ms from `since`.
pub fn stops(w: &World, since: u64) -> Vec<(u64, String)> {
    let of = |(at, text): &(u64, String)| ((at - since) / 1_000_000, text.clone());
    let mut all: Vec<_> =
        w.observed.calls.iter().filter(|(at, t)| *at >= since && t.starts_with("StopContainer")).map(of).collect();
    // Stops at the same time have no defined order.
    all.sort_by(|a, b| (a.0 / 10, &a.1).cmp(&(b.0 / 10, &b.1)));
    all
}

pub fn released(w: &World, since: u64) -> Vec<u64> {
    w.logind.releases.iter().map(|at| (at - since) / 1_000_000).collect()
}

#[test]
fn s2_s3_the_delay_is_raised_then_the_lock_is_taken_and_then_the_state_is_read() {
    let w = armed();
    let sum = Duration::from_secs(20);
    use LogindCall::{Inhibit, ReadDelay, ReadPreparing, Reload, Subscribe, WriteDropIn};
    assert_eq!(
        w.logind.calls,
        [ReadDelay, WriteDropIn { delay: sum }, Reload, ReadDelay, Inhibit, Subscribe, ReadPreparing]
    );
    assert_eq!(w.notices("ShutdownArmed"), ["graceful shutdown is armed: pods get up to 20s, logind waits up to 20s"]);
    let view = w.engine.shutdown(w.time().boot);
    assert_eq!((view.problem, view.delay_seconds, view.needed_seconds), (None, Some(20.0), 20));
}

#[test]
fn s2_a_sufficient_delay_is_not_changed() {
    let mut w = started(|w| w.logind.delay = Duration::from_secs(60));
    w.run(1);
    assert!(w.logind.calls.iter().all(|c| !matches!(c, LogindCall::WriteDropIn { .. } | LogindCall::Reload)));
    assert!(w.engine.shutdown(w.time().boot).armed);
}

#[test]
fn s2_a_delay_that_stays_too_short_is_reported_and_the_highest_groups_get_the_available_time() {
    type Set = fn(&mut World);
    let cases: [(Set, &str, &str); 3] = [
        (|w| w.logind.read_only = true, "/etc: read-only file system", "logindConfDir"),
        (|w| w.logind.no_reload = true, "failed to reload logind: access denied", "systemctl restart systemd-logind"),
        (
            |w| w.logind.other = Some(Duration::from_secs(8)),
            "the drop-in is written and logind was reloaded",
            "systemd-analyze cat-config systemd/logind.conf",
        ),
    ];
    for (set, why, remedy) in cases {
        let mut w = started(|w| {
            w.logind.delay = Duration::from_secs(8);
            set(w);
        });
        w.run(3);
        let view = w.engine.shutdown(w.time().boot);
        assert!(view.armed, "{}", w.trace());
        let problem = view.problem.unwrap_or_default();
        assert!(
            problem.starts_with("logind waits at most 8s, but 20s are configured: ") && problem.contains(why),
            "{problem}"
        );
        assert!(problem.contains(remedy), "{problem}");
        assert_eq!(w.notices("ShutdownNotArmed"), [problem]);
        let granted: Vec<Option<u64>> = view.groups.iter().map(|g| g.granted_seconds).collect();
        assert_eq!(granted, [Some(0), Some(4), Some(4)]);
        // Either one read, five after the reload and one a second after that, or one a second.
        let looks = w.logind.calls.iter().filter(|c| **c == LogindCall::ReadDelay).count();
        assert_eq!(looks, if why.starts_with("the drop-in") { 8 } else { 3 });
    }
}

#[test]
fn s4_groups_are_stopped_one_after_another_and_the_lock_is_released_with_the_last_pods_end() {
    let mut w = busy();
    let since = w.clock.now;
    w.power_off();
    w.run(10);
    let stops = stops(&w, since);
    let texts: Vec<&str> = stops.iter().map(|(_, t)| t.as_str()).collect();
    // The pods' own grace period is 30 s. Each pod gets the period of its group.
    assert_eq!(
        texts,
        [
            "StopContainer low-1/main#0 10000ms",
            "StopContainer low-2/main#0 10000ms",
            "StopContainer high/main#0 6000ms",
            "StopContainer top/main#0 4000ms"
        ]
    );
    let at: Vec<u64> = stops.iter().map(|(at, _)| at / 1000).collect();
    assert_eq!(at, [0, 0, 2, 4]);
    let [released] = released(&w, since)[..] else { panic!("{}", w.trace()) };
    assert!((6000..6500).contains(&released), "{released}");
    // The shutdown did not wait for the sandboxes.
    let sandboxes = w.times("StopSandbox", since);
    assert_eq!(sandboxes.len(), 4);
    assert!(sandboxes.iter().all(|at| *at >= released), "{sandboxes:?} {released}");
    for name in ["low-1", "low-2", "high", "top"] {
        let status = w.status(name);
        let is = |s: &Option<String>| s.clone().unwrap_or_default();
        assert_eq!(
            (is(&status.phase), is(&status.reason), is(&status.message)),
            (
                "Failed".into(),
                "Terminated".into(),
                "Pod was terminated in response to imminent node shutdown.".to_string()
            )
        );
        let (disrupted, by, _) = w.condition(name, "DisruptionTarget");
        assert_eq!((disrupted.as_str(), by.as_str()), ("True", "TerminationByKubelet"));
    }
    assert_eq!(w.notices("Terminated").len(), 4);
    assert_eq!(
        w.notices("NodeShutdown"),
        [
            "Shutdown manager detected shutdown event",
            "priority 0: 2 pods to stop within 10s",
            "priority 0: 2 pods ended after 2.0s",
            "priority 1000: 1 pod to stop within 6s",
            "priority 1000: 1 pod ended after 2.0s",
            "priority 2000000000: 1 pod to stop within 4s",
            "priority 2000000000: 1 pod ended after 2.0s",
            "the node may shut down, 6.0s after the start of the shutdown"
        ]
    );
    w.assert_well();
}

#[test]
fn s4_a_shorter_grace_period_applies_and_a_pod_that_ignores_sigterm_gets_at_most_its_groups_period() {
    let mut w = armed();
    for (name, n, grace) in [("low", 0, 3), ("high", 1000, 40)] {
        w.life(&format!("{name}/main"), &[Life::deaf()]);
        w.file(name, &format!("terminationGracePeriodSeconds: {grace}, {}", priority(n)));
    }
    // Not even SIGKILL ends this one.
    w.file("top", &priority(2_000_000_000));
    w.run(5);
    w.take_calls();
    let since = w.clock.now;
    w.fault("StopContainer top", crate::world::Fault::Slow(Duration::from_secs(100)));
    w.power_off();
    w.run(30);
    let texts: Vec<(u64, String)> = stops(&w, since).into_iter().map(|(at, t)| (at / 1000, t)).collect();
    assert_eq!(texts[0], (0, "StopContainer low/main#0 3000ms".into()));
    assert_eq!(texts[1], (3, "StopContainer high/main#0 6000ms".into()));
    assert_eq!(texts[2], (9, "StopContainer top/main#0 4000ms".into()));
    let [released] = released(&w, since)[..] else { panic!("{}", w.trace()) };
    assert!((13_000..13_500).contains(&released), "{released}");
    assert!(
        w.notices("NodeShutdown").iter().any(|m| m == "priority 2000000000: 1 pod has not ended in 4.0s: default/top")
    );
    w.assert_well();
}

#[test]
fn s4_a_group_with_period_zero_is_killed_and_not_waited_for_and_an_empty_one_takes_no_time() {
    let groups = Groups::by_priority([(0, 0), (10, 5), (20, 5)]);
    let mut w = node_with(EngineConfig { shutdown: groups, ..with_shutdown() });
    for (name, n) in [("zero", 0), ("last", 20)] {
        w.life(&format!("{name}/main"), &[takes(1500)]);
        w.file(name, &priority(n));
    }
    w.run(5);
    w.take_calls();
    let since = w.clock.now;
    w.power_off();
    w.run(5);
    let texts: Vec<(u64, String)> = stops(&w, since);
    assert!(texts.iter().all(|(at, _)| *at < 50), "{texts:?}");
    let texts: Vec<String> = w.take_calls().into_iter().filter(|t| t.starts_with("StopContainer")).collect();
    assert_eq!(texts, ["StopContainer zero/main#0 2000ms", "StopContainer last/main#0 5000ms"]);
    assert_eq!(released(&w, since).len(), 1);
    w.assert_well();
}

#[test]
fn s4_w6_no_pod_starts_and_pods_of_later_groups_keep_running() {
    let mut w = busy();
    w.life("low-1/main", &[takes(9000)]);
    w.file("low-1", &format!("restartPolicy: OnFailure, {}", priority(1)));
    w.run(20);
    w.take_calls();
    w.power_off();
    w.run(1);
    assert!(w.engine.shutting_down());
    w.file("new", ONE);
    // A pod that waits for the end of its old version (W8).
    w.file("low-2", &priority(3));
    w.exit_of("top/main", 1);
    w.run(4);
    assert_eq!(w.status("new").phase.as_deref(), Some("Failed"));
    assert_eq!(w.status("new").reason.as_deref(), Some("NodeShutdown"));
    assert_eq!(w.status("new").message.as_deref(), Some("Pod was rejected as the node is shutting down."));
    assert!(w.runs("top/main"), "its group has not begun: it was started again\n{}", w.trace());
    w.run(60);
    let starts: Vec<String> = w.take_calls().into_iter().filter(|t| t.starts_with("RunSandbox")).collect();
    assert_eq!(starts, Vec::<String>::new());
    assert!(!w.runs("top/main"));
    w.assert_well();
    // S6
    w.call_off();
    w.run(90);
    for name in ["new", "low-1", "low-2", "high", "top"] {
        assert!(w.runs(&format!("{name}/main")), "{name}: {}", w.shown(name));
    }
    assert!(!w.engine.shutting_down());
    w.assert_well();
}

#[test]
fn s5_after_the_reboot_all_pods_except_completed_ones_run_again() {
    let mut w = armed();
    for policy in ["Always", "OnFailure", "Never"] {
        w.file(&policy.to_lowercase(), &format!("restartPolicy: {policy}, {ONE}"));
    }
    w.life("done/main", &[Life::exits(0, Duration::from_secs(1))]);
    w.file("done", NEVER);
    w.run(5);
    assert_eq!(w.status("done").phase.as_deref(), Some("Succeeded"));
    let since = w.clock.now;
    w.power_off();
    w.run(5);
    assert_eq!(released(&w, since).len(), 1);
    assert_eq!(w.status("done").phase.as_deref(), Some("Succeeded"));
    assert!(!w.runs("never/main"));
    w.take_calls();
    w.reboot(5 * S);
    w.run(20);
    for policy in ["always", "onfailure", "never"] {
        assert!(w.runs(&format!("{policy}/main")), "{policy}: {}\n{}", w.shown(policy), w.trace());
    }
    assert_eq!(w.status("done").phase.as_deref(), Some("Succeeded"));
    let view = w.engine.shutdown(w.time().boot);
    assert!(view.in_progress.is_none() && view.started_at.is_some() && view.ended_at.is_some() && view.armed);
    w.assert_well();
}

#[test]
fn s6_a_cancelled_shutdown_kills_no_further_group_and_takes_a_new_lock() {
    let mut w = busy();
    let since = w.clock.now;
    w.power_off();
    w.run(1);
    w.call_off();
    w.logind.calls.clear();
    w.run(30);
    assert!(w.runs("high/main") && w.runs("top/main"));
    let stopped: Vec<String> = stops(&w, since).into_iter().map(|(_, t)| t).collect();
    assert_eq!(stopped, ["StopContainer low-1/main#0 10000ms", "StopContainer low-2/main#0 10000ms"]);
    assert_eq!(w.logind.calls, [LogindCall::Inhibit, LogindCall::Subscribe, LogindCall::ReadPreparing]);
    assert!(w.logind.locked());
    assert_eq!(w.logind.releases, Vec::<u64>::new());
    assert!(w.runs("low-1/main") && w.runs("low-2/main"));
    assert_eq!(w.notices("NodeShutdown").last().unwrap(), "Shutdown manager detected shutdown cancellation");
    let view = w.engine.shutdown(w.time().boot);
    assert!(view.armed && view.in_progress.is_none());
    w.assert_well();
    // The next shutdown proceeds as usual.
    let since = w.clock.now;
    w.power_off();
    w.run(20);
    assert_eq!(released(&w, since).len(), 1);
}

#[test]
fn s4_a_second_word_of_the_same_and_a_false_one_first_do_no_harm() {
    let mut w = busy();
    w.step(Event::Logind(LogindEvent::Preparing(false)));
    w.run(2);
    assert_eq!(w.take_calls(), Vec::<String>::new());
    let since = w.clock.now;
    w.power_off();
    w.run(1);
    w.step(Event::Logind(LogindEvent::Preparing(true)));
    w.run(10);
    assert_eq!(stops(&w, since).len(), 4);
    assert_eq!(released(&w, since).len(), 1);
    assert_eq!(w.notices("NodeShutdown").iter().filter(|m| m.contains("detected")).count(), 1);
}

#[test]
fn s7_a_restarted_wherry_takes_over_the_lock_and_continues_with_the_remaining_time() {
    let mut w = busy();
    let since = w.clock.now;
    w.power_off();
    // During the second group.
    w.run(3);
    assert_eq!(stops(&w, since).len(), 3);
    w.kill_engine();
    w.run(1);
    assert!(w.logind.locked(), "systemd keeps it");
    w.start();
    w.run(10);
    let at: Vec<u64> = stops(&w, since).iter().filter(|(_, t)| t.contains(" top/")).map(|(at, _)| at / 1000).collect();
    assert_eq!(at, [4], "{}", w.trace());
    assert_eq!(stops(&w, since).last().unwrap().1, "StopContainer top/main#0 4000ms");
    let [released] = released(&w, since)[..] else { panic!("{}", w.trace()) };
    assert!((6000..7000).contains(&released), "{released}");
    let view = w.engine.shutdown(w.time().boot);
    assert!(view.in_progress.is_some());
    // It is the same shutdown: its start is that of the first process.
    assert_eq!(w.notices("Terminated").iter().filter(|m| m.contains("imminent")).count(), 4);
    assert!(view.started_at.unwrap() < view.ended_at.unwrap());
    w.assert_well();
}

#[test]
fn s7_a_pod_without_a_record_stops_with_its_group_after_a_kill_of_wherry() {
    for name in ["low-2", "top"] {
        let mut w = going_down();
        lose_record(&mut w, name);
        w.kill_engine();
        let since = w.clock.now;
        // logind answers before the list is complete.
        w.fault("List", crate::world::Fault::Slow(Duration::from_millis(300)));
        w.start();
        w.run(12);
        w.assert_well();
        let of_it = format!(" {name}/");
        assert_eq!(stops(&w, since).iter().filter(|(_, text)| text.contains(&of_it)).count(), 1, "{}", w.trace());
        assert!(!w.runs(&format!("{name}/main")));
        let [released] = released(&w, since)[..] else { panic!("{}", w.trace()) };
        assert!((5000..7000).contains(&released), "{released}");
    }
}

/// The shutdown begins as usual. The pod is restarted until its group begins.
#[test]
fn s4_a_running_pod_without_a_record_runs_until_its_group_stops() {
    let mut w = going_down();
    lose_record(&mut w, "top");
    w.kill_engine();
    w.start();
    w.run(1);
    let since = w.clock.now;
    w.exit_of("top/main", 1);
    w.run(2);
    assert_eq!(w.times("StartContainer", since).len(), 1, "{}", w.trace());
    assert!(w.runs("top/main"));
    w.run(10);
    assert!(!w.runs("top/main"));
    w.assert_well();
}

#[test]
fn s4_a_running_pod_without_a_record_that_waits_for_its_name_stops_with_its_group() {
    // The old version has not ended when the shutdown begins, or it was being stopped when its record was last written.
    for (stops_for, reads_for) in [(0, Duration::from_millis(500)), (40, Duration::from_secs(600))] {
        let mut w = armed();
        if stops_for > 0 {
            w.life("web/main", &[Life::deaf(), Life::FOREVER]);
        }
        w.file("web", &priority(0));
        w.run(5);
        let (mut before, old) = (w.disk.records.clone(), w.files["/m/web.yaml"].uid.clone());
        w.file("web", &priority(1));
        if stops_for > 0 {
            w.run(1);
            before = w.disk.records.clone();
            w.run(stops_for);
        }
        w.run(5);
        assert!(w.runs("web/main"));
        w.disk.records = before;
        w.kill_engine();
        w.fault(&format!("ReadPod {old}"), crate::world::Fault::Slow(reads_for));
        w.power_off();
        let since = w.clock.now;
        w.start();
        w.run(12);
        w.assert_well();
        assert_eq!(stops(&w, since).len(), 1, "{}", w.trace());
        assert!(!w.runs("web/main"));
    }
}

#[test]
fn s4_s7_no_pod_of_a_group_that_ended_during_downtime_is_started() {
    let mut w = armed();
    w.life("low/main", &[Life::deaf()]);
    w.file("low", &priority(0));
    w.file("high", &priority(1000));
    w.run(5);
    w.power_off();
    // The container is created and not yet started.
    w.fault("StartContainer high", crate::world::Fault::Dropped);
    w.exit_of("high/main", 1);
    w.run(1);
    let made = w.runtime.containers.values().filter(|c| c.state == ContainerState::Created);
    assert_eq!(made.count(), 1);
    w.kill_engine();
    w.run(11);
    let since = w.clock.now;
    w.start();
    w.run(10);
    assert_eq!(w.times("StartContainer", since).len(), 0, "{}", w.trace());
    assert_eq!(w.notices("NodeShutdown").iter().filter(|m| m.contains("priority 1000: 1 pod to stop")).count(), 1);
    w.assert_well();
}

#[test]
fn s7_without_a_descriptor_store_everything_is_killed_with_the_minimum_in_order() {
    let mut w = busy();
    w.logind.store = false;
    let since = w.clock.now;
    w.power_off();
    w.run(1);
    w.kill_engine();
    w.start();
    w.run(20);
    let texts: Vec<String> = stops(&w, since).into_iter().map(|(_, t)| t).collect();
    let last: Vec<&str> = texts[texts.len() - 2..].iter().map(String::as_str).collect();
    assert_eq!(last, ["StopContainer high/main#0 2000ms", "StopContainer top/main#0 2000ms"]);
    assert!(w.notices("NodeShutdown").iter().any(|m| m.starts_with("no inhibitor lock is held")));
    w.assert_well();
    // After the reboot all pods run again.
    w.reboot(S);
    w.run(20);
    for name in ["low-1", "low-2", "high", "top"] {
        assert!(w.runs(&format!("{name}/main")), "{name}");
    }
}

#[test]
fn s7_a_shutdown_cancelled_during_downtime_has_ended() {
    let mut w = going_down();
    w.kill_engine();
    w.call_off();
    w.run(2);
    w.start();
    w.run(30);
    for name in ["low-1", "low-2", "high", "top"] {
        assert!(w.runs(&format!("{name}/main")), "{name}: {}\n{}", w.shown(name), w.trace());
    }
    assert!(!w.engine.shutting_down());
    assert!(w.engine.shutdown(w.time().boot).armed);
    w.assert_well();
}

/// While it is unknown whether a shutdown is in progress, the drop-in stays unchanged. logind has lost the delay
/// meanwhile.
fn in_doubt_with_a_short_delay() -> World {
    let mut w = going_down();
    w.kill_engine();
    w.call_off();
    w.logind.configured = Duration::from_secs(5);
    w.logind.delay = Duration::from_secs(5);
    w.logind.calls.clear();
    w
}

#[test]
fn s7_s2_after_a_shutdown_in_doubt_that_was_called_off_the_delay_is_raised() {
    let mut w = in_doubt_with_a_short_delay();
    w.start();
    w.run(3);
    let sum = Duration::from_secs(20);
    use LogindCall::{ListInhibitors, ReadDelay, ReadPreparing, Reload, Subscribe, WriteDropIn};
    assert_eq!(
        w.logind.calls,
        [
            // While the state is unknown.
            ReadDelay,
            ListInhibitors,
            Subscribe,
            ReadPreparing,
            // After the answer.
            ReadDelay,
            WriteDropIn { delay: sum },
            Reload,
            ReadDelay,
            ListInhibitors,
            Subscribe,
            ReadPreparing
        ]
    );
    let view = w.engine.shutdown(w.time().boot);
    assert_eq!((view.armed, view.problem, view.delay_seconds), (true, None, Some(20.0)));
    // A delay that stays too short is reported.
    let mut w = in_doubt_with_a_short_delay();
    w.logind.read_only = true;
    w.start();
    w.run(3);
    let problem = w.engine.shutdown(w.time().boot).problem.unwrap_or_default();
    assert!(problem.starts_with("logind waits at most 5s, but 20s are configured: "), "{problem}");
    assert_eq!(w.notices("ShutdownNotArmed"), [problem]);
    w.assert_well();
}

#[test]
fn s7_s2_after_a_shutdown_in_doubt_the_delay_is_raised() {
    let mut w = in_doubt_with_a_short_delay();
    w.logind.no_signal = true;
    w.logind.no_state = true;
    w.start();
    w.run(9);
    assert!(w.engine.shutting_down());
    assert!(!w.logind.calls.iter().any(|c| matches!(c, LogindCall::WriteDropIn { .. })));
    w.run(2);
    assert!(!w.engine.shutting_down());
    w.logind.no_signal = false;
    w.logind.no_state = false;
    w.run(3);
    let view = w.engine.shutdown(w.time().boot);
    assert_eq!((view.armed, view.problem, view.delay_seconds), (true, None, Some(20.0)));
    w.assert_well();
}

#[test]
fn s7_a_recorded_shutdown_without_confirmation_delays_pods_by_ten_seconds() {
    let mut w = busy();
    w.power_off();
    w.run(8);
    w.kill_engine();
    w.logind.up = false;
    w.start();
    w.run(8);
    assert!(w.engine.shutting_down());
    assert!(!w.runs("low-1/main"));
    w.run(20);
    assert!(!w.engine.shutting_down());
    for name in ["low-1", "low-2", "high", "top"] {
        assert!(w.runs(&format!("{name}/main")), "{name}");
    }
    w.assert_well();
}

#[test]
fn s7_no_pod_starts_while_a_shutdown_is_unconfirmed_and_the_pod_shows_the_reason() {
    let mut w = going_down();
    w.kill_engine();
    w.logind.up = false;
    w.start();
    w.run(1);
    w.exit_of("high/main", 1);
    w.run(5);
    assert!(!w.runs("high/main"));
    let uid = w.files["/m/high.yaml"].uid.clone();
    let worker_status = w.engine.worker_status(&uid, w.time().boot).expect("the worker exists");
    assert_eq!(worker_status.waits_for, ["starts: the progress of the node's shutdown is not known yet"]);
    w.run(20);
    assert!(w.runs("high/main") && w.runs("low-1/main"));
    w.assert_well();
}

#[test]
fn s7_an_outage_of_the_bus_or_a_restart_of_logind_does_not_change_a_shutdown() {
    let mut w = busy();
    w.bus(false);
    w.run(1);
    assert!(!w.engine.shutdown(w.time().boot).armed);
    assert_eq!(w.notices("ShutdownNotArmed"), ["no bus"]);
    w.logind.calls.clear();
    w.bus(true);
    w.run(1);
    use LogindCall::{ListInhibitors, ReadDelay, ReadPreparing, Subscribe};
    assert_eq!(w.logind.calls, [ReadDelay, ListInhibitors, Subscribe, ReadPreparing]);
    assert!(w.engine.shutdown(w.time().boot).armed);
    let since = w.clock.now;
    w.power_off();
    w.run(1);
    w.bus(false);
    w.run(10);
    assert_eq!(stops(&w, since).len(), 4);
    assert_eq!(released(&w, since).len(), 1);
    w.assert_well();
}

#[test]
fn s7_a_lost_lock_is_taken_again_when_logind_returns() {
    let mut w = armed();
    w.bus(false);
    w.logind.loses_locks();
    w.run(1);
    w.bus(true);
    w.run(1);
    assert!(w.logind.locked());
    assert_eq!(w.logind.calls.iter().filter(|c| **c == LogindCall::Inhibit).count(), 2);
}

#[test]
fn s3_a_call_that_logind_refuses_is_repeated_each_second_for_a_minute_then_each_half() {
    let mut w = started(|w| w.logind.no_lock = true);
    w.run(1);
    let view = w.engine.shutdown(w.time().boot);
    assert!(!view.armed);
    let why = "failed to take an inhibitor lock: The operation inhibition has been requested for is already running; \
               Wherry retries; check systemctl status systemd-logind";
    assert_eq!(view.problem.as_deref(), Some(why));
    w.run(299);
    let tries = w.logind.calls.iter().filter(|c| **c == LogindCall::Inhibit).count();
    assert!((64..72).contains(&tries), "{tries}");
    assert_eq!(w.notices("ShutdownNotArmed"), [why], "reported once");
    w.logind.no_lock = false;
    w.run(31);
    assert!(w.engine.shutdown(w.time().boot).armed);
    assert_eq!(w.notices("ShutdownArmed").len(), 1);
}

#[test]
fn s3_without_the_signal_the_lock_is_released() {
    let mut w = started(|w| w.logind.no_signal = true);
    w.run_ms(100);
    assert!(!w.logind.locked());
    assert_eq!(w.logind.releases.len(), 1);
    w.logind.no_signal = false;
    w.run(3);
    assert!(w.logind.locked() && w.engine.shutdown(w.time().boot).armed);
}

#[test]
fn s3_a_disabled_shutdown_releases_the_lock_and_an_enabled_one_takes_it() {
    let mut w = armed();
    let off = EngineConfig { shutdown: Groups::default(), ..with_shutdown() };
    w.step(Event::Configure(Box::new(off)));
    w.run(1);
    assert!(!w.logind.locked());
    assert!(!w.engine.shutdown(w.time().boot).enabled);
    w.step(Event::Configure(Box::new(with_shutdown())));
    w.run(1);
    assert!(w.logind.locked() && w.engine.shutdown(w.time().boot).armed);
}

#[test]
fn s8_the_begin_is_recorded_with_the_end_zero_until_the_work_is_done() {
    let mut w = going_down();
    let view = w.engine.shutdown(w.time().boot);
    assert!(view.started_at.is_some() && view.ended_at.is_none());
    let record = |w: &World| wherry::engine::shutdown::record::read(&w.disk.records["shutdown/last"]).unwrap();
    assert_eq!((record(&w).ended.0, record(&w).over), (0, false));
    w.run(9);
    assert!(record(&w).ended.0 > record(&w).started.0);
    // Times shown to users have no fractions of a second.
    let ended = w.engine.shutdown(w.time().boot).ended_at.unwrap();
    assert!(record(&w).ended.0 % 1_000_000_000 != 0 && !ended.contains('.') && ended.ends_with('Z'), "{ended}");
    // Power is lost before the end is recorded.
    let mut w = going_down();
    w.reboot(S);
    w.run(2);
    assert!(record(&w).over && record(&w).ended.0 > 0);
}

#[test]
fn s8_a_record_that_cannot_be_read_is_set_aside() {
    let mut w = busy();
    w.kill_engine();
    w.disk.records.insert("shutdown/last".into(), "{".into());
    w.start();
    w.run(5);
    assert!(w.notices("BadRecord")[0].contains("shutdown/last"));
    assert!(!w.disk.records.contains_key("shutdown/last"));
    assert!(w.engine.shutdown(w.time().boot).armed);
}

#[test]
fn s9_a_missing_bus_is_reported_once_and_all_else_works() {
    let mut w = started(|w| w.logind.up = false);
    w.file("web", ONE);
    w.run(100);
    assert!(w.runs("web/main"));
    assert_eq!(w.notices("ShutdownNotArmed"), ["no bus"]);
    assert!(w.deadlines().iter().all(|(due, _)| *due != Due::Part(Part::Logind)), "the connection is the adapter's");
    w.bus(true);
    w.run(1);
    assert!(w.engine.shutdown(w.time().boot).armed);
}

#[test]
fn s10_wherry_that_ends_leaves_pods_running() {
    let mut w = busy();
    w.restart_engine();
    w.run(5);
    assert_eq!(w.take_calls(), Vec::<String>::new());
    assert!(w.runs("low-1/main"));
    assert!(w.engine.shutdown(w.time().boot).armed);
}

#[test]
fn the_plan_has_the_stop_time_and_grace_period_of_each_pod() {
    let mut w = busy();
    w.file("short", &format!("terminationGracePeriodSeconds: 3, {}", priority(0)));
    w.run(3);
    let plan = w.engine.shutdown_plan();
    let groups: Vec<(i32, u64, u64)> =
        plan.groups.iter().map(|g| (g.priority, g.from_seconds, g.until_seconds)).collect();
    assert_eq!(groups, [(0, 0, 10), (1000, 10, 16), (2_000_000_000, 16, 20)]);
    let pods: Vec<(&str, u64, u64)> =
        plan.groups[0].pods.iter().map(|p| (p.name.as_str(), p.grace_seconds, p.own_grace_seconds)).collect();
    assert_eq!(pods, [("low-1", 10, 30), ("short", 3, 3), ("low-2", 10, 30)]);
}

#[test]
fn s7_a_group_that_began_before_wherry_was_killed_gets_no_more_than_its_time() {
    let mut w = armed();
    w.file("low", &priority(0));
    w.file("top", &priority(2_000_000_000));
    w.run(5);
    let since = w.clock.now;
    // Not even SIGKILL ends it.
    for _ in 0..4 {
        w.fault("StopContainer low", crate::world::Fault::Slow(Duration::from_secs(100)));
    }
    w.power_off();
    w.run(4);
    w.restart_engine();
    w.run(20);
    let at: Vec<u64> = stops(&w, since).iter().filter(|(_, t)| t.contains(" top/")).map(|(at, _)| at / 1000).collect();
    assert_eq!(at, [10], "{}", w.trace());
    assert!(w.notices("NodeShutdown").contains(&"priority 0: 1 pod to stop within 6s".into()));
    w.assert_well();
}

#[test]
fn s4_a_pod_counts_as_ended_once_its_pidfds_report_the_exits() {
    let mut w = started(|w| w.pidfds.available = true);
    for (name, n) in [("low", 0), ("top", 2_000_000_000)] {
        w.life(&format!("{name}/main"), &[takes(500)]);
        w.file(name, &priority(n));
    }
    w.run(5);
    w.processes.exit_lag = 3000;
    let since = w.clock.now;
    w.power_off();
    w.run(20);
    let at: Vec<u64> = stops(&w, since).into_iter().map(|(at, _)| at).collect();
    assert!(at[0] < 10 && (500..520).contains(&at[1]), "{at:?}");
    let [released] = released(&w, since)[..] else { panic!("{}", w.trace()) };
    assert!((1000..1050).contains(&released), "{released}");
    for name in ["low", "top"] {
        assert_eq!(w.shown(name), "Failed (Terminated) main#0:terminated Error 143", "{name}");
    }
    w.assert_well();
}

#[test]
fn s1_other_periods_do_not_change_a_shutdown_that_has_begun() {
    let mut w = busy();
    let since = w.clock.now;
    w.power_off();
    w.run(1);
    let one = EngineConfig { shutdown: Groups::by_priority([(0, 3)]), ..with_shutdown() };
    w.step(Event::Configure(Box::new(one)));
    w.run(10);
    let last = stops(&w, since).pop().unwrap().1;
    assert_eq!((stops(&w, since).len(), last.as_str()), (4, "StopContainer top/main#0 4000ms"));
    assert_eq!(released(&w, since).len(), 1);
    w.assert_well();
}

#[test]
fn s2_an_unlimited_delay_is_shown_as_unlimited() {
    let mut w = started(|w| w.logind.delay = Duration::MAX);
    w.run(1);
    assert_eq!(
        w.notices("ShutdownArmed"),
        ["graceful shutdown is armed: pods get up to 20s, logind waits without a limit"]
    );
}

#[test]
fn s6_a_rejected_pod_is_evaluated_again_after_a_cancelled_shutdown() {
    let mut w = armed();
    w.life("low/main", &[takes(8000)]);
    w.file("low", &priority(0));
    w.run(5);
    w.power_off();
    w.run(1);
    w.file("low", &priority(1));
    w.run(1);
    let of = |w: &World, n: &str| w.engine.pods().iter().filter(|v| v.status.reason.as_deref() == Some(n)).count();
    assert_eq!(of(&w, "NodeShutdown"), 1);
    w.call_off();
    w.run(1);
    // The old version has not ended yet (W8).
    assert!(w.runs("low/main"));
    assert_eq!(of(&w, "NodeShutdown"), 0);
    w.run(20);
    assert_eq!(w.shown("low"), "Running main#0:running");
    w.assert_well();
}

#[test]
fn s5_after_the_reboot_pods_do_not_wait_for_logind() {
    let mut w = busy();
    w.power_off();
    w.run(10);
    w.logind.up = false;
    w.reboot(S);
    w.run(5);
    for name in ["low-1", "low-2", "high", "top"] {
        assert!(w.runs(&format!("{name}/main")), "{name}: {}", w.shown(name));
    }
}

#[test]
fn s6_w3_a_published_terminal_phase_stays_until_the_pod_starts_again() {
    let mut w = busy();
    w.power_off();
    w.run_ms(2500);
    assert_eq!(w.shown("low-1"), "Failed (Terminated) main#0:terminated Error 143");
    w.call_off();
    let mut seen = Vec::new();
    for _ in 0..500 {
        w.run_ms(1);
        seen.push(w.shown("low-1"));
    }
    seen.dedup();
    let again = seen.iter().position(|s| s.starts_with("Pending")).expect("it starts again");
    assert!(seen[..again].iter().all(|s| s.starts_with("Failed")), "{seen:?}");
    w.run(5);
    assert!(w.runs("low-1/main"));
}
