//! The inhibitor lock when logind, systemd or the disk fail: S2, S3, S6 and S7.

use super::shutdown::{armed, busy, priority, released, started, stops, takes, with_shutdown};
use crate::logind::Trouble;
use crate::runtime::Life;
use crate::story::*;
use crate::world::{S, World};
use std::time::Duration;
use wherry::api::shutdown::Groups;
use wherry::api::shutdown::view::ShutdownView;
use wherry::engine::config::EngineConfig;
use wherry::engine::effect::LogindCall;
use wherry::engine::event::Event;

fn view(w: &World) -> ShutdownView {
    w.engine.shutdown(w.time().boot)
}

fn granted(w: &World) -> Vec<Option<u64>> {
    view(w).groups.iter().map(|g| g.granted_seconds).collect()
}

fn calls_of(w: &World, call: &LogindCall) -> usize {
    w.logind.calls.iter().filter(|c| *c == call).count()
}

fn configure(w: &mut World, groups: Groups) {
    let config = EngineConfig { shutdown: groups, ..with_shutdown() };
    w.step(Event::Configure(Box::new(config)));
}

fn configured() -> Groups {
    with_shutdown().shutdown
}

fn texts(w: &World, since: u64) -> Vec<String> {
    stops(w, since).into_iter().map(|(_, text)| text).collect()
}

fn well(w: &World) {
    let view = view(w);
    assert_eq!((view.armed, view.problem), (true, None), "{}", w.trace());
    assert_eq!(granted(w), [Some(10), Some(6), Some(4)]);
}

#[test]
fn s2_a_failed_increase_of_the_delay_is_retried_until_it_succeeds() {
    type Set = fn(&mut World, bool);
    let cases: [Set; 3] =
        [|w, is| w.logind.read_only = is, |w, is| w.logind.no_reload = is, |w, is| w.logind.no_delay = is];
    for set in cases {
        let mut w = started(|w| set(w, true));
        w.run(5);
        assert!(view(&w).armed && view(&w).problem.is_some(), "{}", w.trace());
        assert_eq!(w.notices("ShutdownNotArmed").len(), 1, "{}", w.trace());
        set(&mut w, false);
        w.run(2);
        well(&w);
        assert_eq!((calls_of(&w, &LogindCall::Inhibit), w.logind.locks()), (1, 1));
        assert_eq!(w.notices("ShutdownArmed").len(), 1);
    }
}

#[test]
fn s2_a_short_delay_is_read_each_second_for_a_minute_then_each_half_minute() {
    let mut w = started(|w| w.logind.read_only = true);
    w.run(300);
    let writes = calls_of(&w, &LogindCall::WriteDropIn { delay: Duration::from_secs(20) });
    assert!((64..72).contains(&writes), "{writes}");
    // A configuration reload retries at once.
    w.logind.read_only = false;
    configure(&mut w, configured());
    w.run_ms(100);
    well(&w);
}

#[test]
fn s2_a_delay_that_is_not_known_is_not_shown_as_granted() {
    let mut w = started(|w| w.logind.no_delay = true);
    w.file("low", ONE);
    w.run(3);
    assert_eq!((granted(&w), view(&w).delay_seconds), (vec![None; 3], None));
    let problem = view(&w).problem.unwrap_or_default();
    assert!(problem.starts_with("failed to read logind's delay: no response in time; Wherry retries"), "{problem}");
    let plan = w.engine.shutdown_plan();
    assert!(plan.groups.iter().all(|g| g.granted_seconds.is_none()));
    assert_eq!(plan.groups[0].until_seconds, 10);
}

#[test]
fn s2_an_external_change_of_the_delay_is_detected_within_a_minute_without_endless_reloads() {
    let mut w = armed();
    w.logind.calls.clear();
    w.logind.other = Some(Duration::from_secs(8));
    w.logind.reload();
    w.run(63);
    let problem = view(&w).problem.unwrap_or_default();
    assert!(problem.starts_with("logind waits at most 8s, but 20s are configured: "), "{problem}");
    assert_eq!(granted(&w), [Some(0), Some(4), Some(4)]);
    w.run(200);
    assert_eq!(calls_of(&w, &LogindCall::Reload), 1);
    assert!(calls_of(&w, &LogindCall::ReadDelay) > 60);
    // The delay has changed: the drop-in may take precedence now.
    w.logind.other = Some(Duration::from_secs(9));
    w.logind.reload();
    w.run(33);
    assert_eq!(calls_of(&w, &LogindCall::Reload), 2);
    assert_eq!(granted(&w), [Some(0), Some(5), Some(4)]);
    w.logind.other = None;
    w.logind.reload();
    w.run(31);
    well(&w);
    assert_eq!(calls_of(&w, &LogindCall::Inhibit), 0);
    w.assert_well();
}

#[test]
fn s2_a_shutdown_uses_logind_delay_at_its_start() {
    let mut w = busy();
    w.logind.other = Some(Duration::from_secs(8));
    w.logind.reload();
    let since = w.clock.now;
    w.power_off();
    w.run(12);
    let all = [
        "StopContainer high/main#0 4000ms",
        "StopContainer low-1/main#0 2000ms",
        "StopContainer low-2/main#0 2000ms",
        "StopContainer top/main#0 4000ms",
    ];
    assert_eq!(texts(&w, since), all, "the lowest group gets nothing\n{}", w.trace());
    assert_eq!(released(&w, since).len(), 1);
    let record = wherry::engine::shutdown::record::read(&w.disk.records["shutdown/last"]).unwrap();
    assert_eq!(record.periods.iter().map(Duration::as_secs).collect::<Vec<_>>(), [0, 4, 4]);
}

#[test]
fn s2_an_unanswered_delay_call_delays_a_shutdown_by_at_most_a_second() {
    for silent in [true, false] {
        let mut w = busy();
        w.logind.silent = silent;
        w.logind.no_delay = true;
        let since = w.clock.now;
        w.power_off();
        w.run(1);
        assert!(w.engine.shutting_down());
        w.run(9);
        let stops = stops(&w, since);
        assert_eq!(stops.len(), 4, "{}", w.trace());
        // The second stop is that of the first group.
        let (begins, text) = match silent {
            true => (1000..1050, "StopContainer low-1/main#0 9000ms"),
            false => (0..50, "StopContainer low-1/main#0 10000ms"),
        };
        assert!(begins.contains(&stops[0].0), "{stops:?}");
        assert_eq!(stops[0].1, text);
        w.assert_well();
    }
}

#[test]
fn s3_a_shutdown_keeps_its_lock_and_time_if_the_subscription_fails_after_a_bus_restart() {
    // logind may also fail to answer whether a shutdown is in progress.
    for no_state in [false, true] {
        let mut w = busy();
        let since = w.clock.now;
        w.power_off();
        w.run_ms(500);
        w.bus(false);
        w.logind.no_signal = true;
        w.logind.no_state = no_state;
        w.bus(true);
        w.run(5);
        assert!(w.logind.locked(), "{}", w.trace());
        assert_eq!(w.logind.releases.len(), 0);
        w.run(3);
        let seconds: Vec<u64> = stops(&w, since).iter().map(|(at, _)| at / 1000).collect();
        assert_eq!(seconds, [0, 0, 2, 4], "{}", w.trace());
        assert_eq!(texts(&w, since)[3], "StopContainer top/main#0 4000ms");
        assert_eq!((released(&w, since).len(), w.logind.locked()), (1, false));
        // The subscription is retried, and the cancellation is found by polling as well.
        assert!(calls_of(&w, &LogindCall::Subscribe) > 4);
        w.logind.no_state = false;
        w.call_off();
        w.run(5);
        assert!(!w.engine.shutting_down());
        w.logind.no_signal = false;
        w.run(60);
        well(&w);
        assert!(w.runs("low-1/main") && w.runs("top/main"));
        w.assert_well();
    }
}

#[test]
fn s3_a_shutdown_is_found_out_about_without_the_signal() {
    let mut w = busy();
    w.bus(false);
    w.logind.preparing = Some((w.clock.now, true));
    w.logind.no_signal = true;
    let since = w.clock.now;
    w.bus(true);
    w.run(1);
    assert!(w.engine.shutting_down() && w.logind.locked(), "{}", w.trace());
    w.run(9);
    assert_eq!((stops(&w, since).len(), released(&w, since).len()), (4, 1));
}

#[test]
fn s7_a_lost_lock_that_logind_does_not_grant_again_is_not_armed_and_adds_no_grace() {
    let mut w = busy();
    w.logind.no_lock = true;
    w.logind_trouble(Trouble::Lost);
    w.run(1);
    assert!(!view(&w).armed, "{}", w.trace());
    let problem = view(&w).problem.unwrap_or_default();
    assert!(problem.starts_with("failed to take an inhibitor lock: "), "{problem}");
    let since = w.clock.now;
    w.power_off();
    w.run(15);
    assert!(texts(&w, since).iter().all(|t| t.ends_with(" 2000ms")), "{:?}", texts(&w, since));
    assert_eq!(stops(&w, since).len(), 4);
    assert!(w.notices("NodeShutdown").iter().any(|m| m.starts_with("no inhibitor lock is held")));
    w.assert_well();
}

#[test]
fn s7_a_lock_that_is_lost_during_a_shutdown_leaves_the_others_the_minimum() {
    let mut w = armed();
    for (name, n) in [("low", 0), ("high", 1000), ("top", 2_000_000_000)] {
        w.life(&format!("{name}/main"), &[takes(8000)]);
        w.file(name, &priority(n));
    }
    w.run(5);
    let since = w.clock.now;
    w.power_off();
    w.run(1);
    w.logind_trouble(Trouble::LostInShutdown);
    w.run(20);
    assert_eq!(
        texts(&w, since),
        [
            "StopContainer low/main#0 10000ms",
            "StopContainer low/main#0 2000ms",
            "StopContainer high/main#0 2000ms",
            "StopContainer top/main#0 2000ms"
        ],
        "{}",
        w.trace()
    );
    w.call_off();
    w.run(60);
    well(&w);
    w.assert_well();
}

#[test]
fn s6_a_shutdown_continues_when_it_is_disabled_and_nothing_starts_until_it_is_cancelled() {
    for restart in [false, true] {
        let mut w = busy();
        let since = w.clock.now;
        w.power_off();
        w.run_ms(2500);
        match restart {
            false => configure(&mut w, Groups::default()),
            true => {
                w.config.shutdown = Groups::default();
                w.restart_engine();
            }
        }
        w.run_ms(500);
        assert!(w.engine.shutting_down() && w.logind.locked(), "{}", w.trace());
        w.run(20);
        assert!(w.engine.shutting_down());
        for call in ["RunSandbox", "StartContainer"] {
            assert_eq!(w.times(call, since).len(), 0, "{}", w.trace());
        }
        assert_eq!(texts(&w, since).last().map(String::as_str), Some("StopContainer top/main#0 4000ms"));
        assert_eq!((released(&w, since).len(), w.logind.locked()), (1, false));
        w.call_off();
        w.run(90);
        assert!(!w.engine.shutting_down() && !w.logind.wanted && !w.logind.locked());
        for name in ["low-1", "low-2", "high", "top"] {
            assert!(w.runs(&format!("{name}/main")), "{name}: {}\n{}", w.shown(name), w.trace());
        }
        assert!(!view(&w).enabled);
    }
}

#[test]
fn s7_a_restart_with_other_groups_does_not_extend_the_shutdown() {
    let mut w = armed();
    for (name, n) in [("low", 0), ("high", 1000)] {
        w.life(&format!("{name}/main"), &[Life::deaf()]);
        w.file(name, &priority(n));
    }
    w.run(5);
    let since = w.clock.now;
    w.power_off();
    w.run(6);
    w.config.shutdown = Groups::by_priority([(0, 30)]);
    w.restart_engine();
    w.run(1);
    assert_eq!(view(&w).groups.len(), 3, "those of its begin");
    w.run(20);
    let high: Vec<_> = stops(&w, since).into_iter().filter(|(_, t)| t.contains(" high/")).collect();
    assert_eq!(high.iter().map(|(at, _)| at / 1000).collect::<Vec<_>>(), [10], "{}", w.trace());
    assert_eq!(high[0].1, "StopContainer high/main#0 6000ms");
    let [released] = released(&w, since)[..] else { panic!("{}", w.trace()) };
    assert!(released <= 20_000, "{released}");
    // The configuration read meanwhile applies after the shutdown.
    w.call_off();
    w.run(10);
    assert_eq!(view(&w).groups.len(), 1);
    assert_eq!(w.logind.delay, Duration::from_secs(30));
}

#[test]
fn s2_only_wherry_own_drop_in_is_lowered_with_the_periods() {
    let less = || Groups::by_priority([(0, 8)]);
    let mut w = armed();
    assert_eq!(w.logind.delay, Duration::from_secs(20));
    w.logind.no_reload = true;
    configure(&mut w, less());
    w.run(3);
    assert!(view(&w).armed, "{}", w.trace());
    let problem = view(&w).problem.unwrap_or_default();
    assert!(problem.starts_with("failed to lower logind's delay to the 8s that pods need"), "{problem}");
    w.logind.no_reload = false;
    w.run(2);
    assert_eq!((w.logind.delay, view(&w).problem), (Duration::from_secs(8), None));
    assert_eq!(view(&w).delay_seconds, Some(8.0));
    assert_eq!((calls_of(&w, &LogindCall::Inhibit), w.logind.releases.len()), (1, 0));
    // Without a drop-in of Wherry.
    let mut w = started(|w| w.logind.delay = Duration::from_secs(60));
    w.run(1);
    configure(&mut w, less());
    w.run(1);
    assert_eq!((w.logind.delay, w.logind.drop_in), (Duration::from_secs(60), false));
    assert_eq!(calls_of(&w, &LogindCall::Reload), 0);
    assert!(view(&w).armed && view(&w).problem.is_none());
}

#[test]
fn s7_a_failed_change_of_the_descriptor_store_is_retried() {
    let mut w = started(|w| w.logind.deaf_store = true);
    w.run(10);
    assert!(view(&w).armed, "{}", w.trace());
    assert!((9..14).contains(&w.logind.stores), "{}", w.logind.stores);
    assert_eq!(w.notices("FailedStore").len(), 1);
    w.logind.deaf_store = false;
    w.run(2);
    let stores = w.logind.stores;
    w.run(10);
    assert_eq!(w.logind.stores, stores, "no further FDSTORE after the first success");
    w.logind.calls.clear();
    w.restart_engine();
    w.run(2);
    assert_eq!(calls_of(&w, &LogindCall::Inhibit), 0, "it was kept");
    well(&w);
    // S4: a copy of the lock in systemd's descriptor store delays the shutdown.
    w.logind.deaf_store = true;
    w.power_off();
    w.run(5);
    assert!(w.logind.releases.len() == 1 && w.logind.locked());
    w.logind.deaf_store = false;
    let since = w.clock.now;
    while w.logind.locked() {
        w.run_ms(100);
        assert!(w.clock.now < since + 2 * S, "{}", w.trace());
    }
}

#[test]
fn s7_a_lock_that_comes_after_its_round_was_given_up_replaces_the_old_one_in_the_store_too() {
    let mut w = busy();
    // A slow logind grants a new lock after a cancelled shutdown. The next shutdown is announced before the answer.
    w.power_off();
    w.run_ms(100);
    w.logind.slow = Some(3 * S);
    w.call_off();
    w.run_ms(500);
    w.logind.slow = None;
    w.bus(false);
    w.bus(true);
    w.run(20);
    assert_eq!(calls_of(&w, &LogindCall::Inhibit), 2);
    assert_eq!(w.logind.locks(), 1, "{}", w.trace());
    well(&w);
    // The lock is released as usual.
    w.power_off();
    w.run(20);
    assert!(!w.logind.locked());
}

#[test]
fn s4_nothing_is_started_while_a_shutdown_waits_for_the_delay() {
    let mut w = busy();
    w.logind.silent = true;
    w.power_off();
    let since = w.clock.now;
    w.exit_of("low-1/main", 1);
    w.exit_of("top/main", 1);
    w.run_ms(990);
    assert_eq!(w.times("StartContainer", since).len(), 0, "{}", w.trace());
    w.run_ms(200);
    // Its group has not begun.
    assert_eq!(w.times("StartContainer", since).len(), 1, "{}", w.trace());
    assert!(w.runs("top/main"));
}

#[test]
fn s4_a_start_that_is_being_prepared_when_a_shutdown_begins_is_not_made() {
    for (prepared, call) in
        [("PreparePod default/new", "RunSandbox new"), ("PrepareContainer main#0", "CreateContainer new")]
    {
        let mut w = busy();
        w.logind.silent = true;
        w.take_calls();
        let since = w.clock.now;
        w.file("new", &priority(-5));
        w.until(prepared, 5, |w| w.trace().contains(prepared));
        w.power_off();
        w.run(10);
        assert_eq!(w.times(call, since).len(), 0, "{}", w.trace());
        w.call_off();
        w.run(30);
        assert!(w.runs("new/main"), "{}", w.trace());
        w.assert_well();
    }
}

#[test]
fn s4_a_shutdown_that_does_not_know_its_pods_yet_waits_for_the_list_without_a_timer() {
    let mut w = armed();
    w.file("web", ONE);
    w.run(5);
    w.kill_engine();
    w.fail_lists(8 * S);
    w.start();
    w.run(1);
    w.power_off();
    let steps = w.observed.steps;
    w.run(5);
    assert!(w.observed.steps - steps < 100, "{} steps in 5 s", w.observed.steps - steps);
    w.until("its group begins", 5, |w| w.observed.calls.iter().any(|(_, call)| call.starts_with("StopContainer")));
}
