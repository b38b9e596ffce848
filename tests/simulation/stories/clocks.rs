//! A wall clock that is set: at the boot of a machine without a real-time clock, by NTP, back by an hour, by a leap second, and past
//! the ends of 32-bit times. Decisions count on the boot clock, so almost nothing changes. deadlines.rs, restarts.rs and shown.rs
//! have more of them.

use super::cluster::{cluster, member};
use crate::runtime::Life;
use crate::story::*;
use crate::world::host::MEMORY_LIMIT;
use crate::world::{S, World, config};
use std::time::Duration;
use wherry::api::cluster::requests::Signer;
use wherry::api::eviction::{EvictionPolicy, Limit, Signal, Threshold, ThresholdKind};
use wherry::engine::config::EngineConfig;
use wherry::engine::image_gc_policy::ImageGcPolicy;

const SECOND: i64 = S as i64;
const HOUR: i64 = 3600 * SECOND;
const YEAR: i64 = 365 * 24 * HOUR;

/// Returns the new time for the old one, in ns since the epoch.
type Change = fn(i64) -> i64;

const UNCHANGED: Change = |now| now;
const TO_1970: Change = |_| 20 * SECOND;
const LEAP_SECOND: (&str, Change) = ("a leap second", |now| now - SECOND);
const CHANGES: [(&str, Change); 7] = [
    LEAP_SECOND,
    ("back by an hour", |now| now - HOUR),
    ("ahead by an hour", |now| now + HOUR),
    ("back to 1970", TO_1970),
    ("ahead by 30 years", |now| now + 30 * YEAR),
    ("soon past 2038", |_| ((1_i64 << 31) - 30) * SECOND),
    ("soon past 2106", |_| ((1_i64 << 32) - 30) * SECOND),
];

fn change_clock(w: &mut World, change: Change) {
    let now = w.wall_now().0;
    w.set_clock(change(now) - now);
}

/// A node with every kind of wait: the back-offs of restarts and of pulls, a deadline, a probe's delay and period, and a grace
/// period, of which 20 s have passed. The clock is changed before the start.
fn waiting(at_boot: Change, deadline: u64) -> World {
    let mut w = World::new(config());
    w.history = Some(Vec::new());
    w.runtime.images.insert(IMAGE.into());
    w.runtime.unknown_images.insert("missing:1".into());
    change_clock(&mut w, at_boot);
    w.start();
    w.run(1);
    w.life("crash/main", &[Life::exits(1, Duration::from_millis(500))]);
    w.life("done/main", &[Life::exits(0, Duration::from_secs(1))]);
    w.life("ends/main", &[Life::deaf()]);
    w.life("late/main", &[Life::deaf()]);
    w.file("crash", ONE);
    w.file("pull", "containers: [{name: main, image: 'missing:1'}]");
    w.file("deadline", &format!("activeDeadlineSeconds: {deadline}, {ONE}"));
    let probe = "livenessProbe: {exec: {command: [sh]}, initialDelaySeconds: 90, periodSeconds: 10}";
    w.file("probed", &format!("containers: [{{name: main, image: '{IMAGE}', {probe}}}]"));
    w.file("done", NEVER);
    w.file("ends", &format!("terminationGracePeriodSeconds: 60, {ONE}"));
    w.run(30);
    w.remove("ends");
    w.run_ms(20_500);
    w
}

/// What a node does, on the boot clock.
#[derive(Debug, PartialEq)]
struct Outcome {
    calls: Vec<(u64, String)>,
    probes: Vec<(u64, String)>,
    notices: Vec<(u64, String)>,
    ends: Vec<String>,
}

/// The clock is changed before the start, and while everything waits.
fn outcome(at_boot: Change, later: Change) -> Outcome {
    let mut w = waiting(at_boot, 120);
    change_clock(&mut w, later);
    w.run(600);
    w.assert_well();
    let ends = w.observed.ends.iter().map(|(_, end)| format!("{}#{}", end.pod.name.name, end.restart_count)).collect();
    let notices = w.observed.notices.iter().map(|(at, notice)| (*at, notice.reason.as_str().to_owned())).collect();
    Outcome { calls: w.observed.calls.clone(), probes: w.handlers.probes.clone(), notices, ends }
}

#[test]
fn a_clock_that_is_set_during_every_kind_of_wait_changes_nothing() {
    let expected = outcome(UNCHANGED, UNCHANGED);
    let starts = expected.calls.iter().filter(|(_, text)| text.starts_with("StartContainer crash")).count();
    assert!((7..=9).contains(&starts), "{starts}: the back-offs are 0, 10, 20, 40, 80, 160, 300 s");
    assert!(expected.ends.len() >= starts, "{:?}", expected.ends);
    for (name, change) in CHANGES {
        assert_eq!(outcome(UNCHANGED, change), expected, "{name}");
        assert_eq!(outcome(change, UNCHANGED), expected, "{name} before the start");
    }
}

#[test]
fn a_status_has_the_right_time_after_2106() {
    let (_, to_2106) = CHANGES[6];
    let mut w = waiting(to_2106, 600);
    w.file("new", ONE);
    w.run(1);
    let start = |name: &str| w.status(name).start_time.map(|time| time.0.to_string()).unwrap_or_default();
    // 2^32 s after the epoch it is 06:28:16.
    assert!(start("probed").starts_with("2106-02-07T06:27:"), "{}", start("probed"));
    assert!(start("new").starts_with("2106-02-07T06:28:"), "{}", start("new"));
}

#[test]
fn w25_a_clock_that_is_set_between_two_runs_restarts_nothing_and_shortens_nothing() {
    let restarted = |change: Change| {
        let mut w = waiting(UNCHANGED, 120);
        let kept = ["deadline/main", "probed/main"].map(|of| w.running(of));
        w.kill_engine();
        w.run(5);
        change_clock(&mut w, change);
        w.run(5);
        w.start();
        let since = w.clock.now;
        w.run(3);
        assert_eq!(["deadline/main", "probed/main"].map(|of| w.running(of)), kept, "{}", w.trace());
        w.run(300);
        assert_eq!(w.running("probed/main"), kept[1], "{}", w.trace());
        assert_eq!(w.times("StartContainer done", 0).len(), 1);
        w.assert_well();
        let stops = w.observed.calls.iter().filter(|(at, text)| *at >= since && text.starts_with("StopContainer"));
        let stops: Vec<(u64, String)> = stops.map(|(at, text)| (at / S, text.clone())).collect();
        (stops, w.times("StartContainer crash", since).len())
    };
    let (stops, starts) = restarted(UNCHANGED);
    assert_eq!((stops.len(), starts), (2, 3), "{stops:?}");
    for (name, change) in CHANGES {
        let (now, starts) = restarted(change);
        assert_eq!(now, stops, "{name}");
        // A back-off counts from the end of the container, by the wall clock: it can be over, or begin again.
        assert!((2..=4).contains(&starts), "{name}: {starts} starts in 300 s");
    }
}

#[test]
fn a_boot_in_1970_and_the_right_time_a_minute_later_disturb_no_pod() {
    let mut w = waiting(UNCHANGED, 1000);
    w.file("late", &format!("terminationGracePeriodSeconds: 60, {ONE}"));
    w.run_ms(144_500);
    w.remove("late");
    w.run(5);
    let done = w.shown("done");
    // The machine has no real-time clock. 200 s after the first start its power fails for 5 s.
    w.reboot(5 * S);
    let off = w.clock.now;
    change_clock(&mut w, TO_1970);
    w.run(65);
    assert!(w.runs("deadline/main") && w.runs("probed/main"), "{}", w.trace());
    assert_eq!((w.shown("late"), w.shown("done")), (String::new(), done), "{}", w.trace());
    let known = w.clock.now;
    change_clock(&mut w, |now| now + 57 * YEAR);
    w.run(10);
    for call in ["RunSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopSandbox"] {
        assert!(w.times(call, known).is_empty(), "{call}: {}", w.trace());
    }
    w.run(325);
    let starts = w.times("StartContainer crash", off).len();
    // The reboot has reset the back-off: 0, 10, 30, 70, 150 and 310 s.
    assert!((5..=7).contains(&starts), "{starts} starts in 400 s: {}", w.trace());
    assert_eq!(w.times("StartContainer done", off).len() + w.times("StartContainer late", off).len(), 0);
    // 100 to 200 of the 1000 s have passed before the boot: the record has each tenth.
    w.until("the deadline", 1000, |w| !w.notices("DeadlineExceeded").is_empty());
    let took = (w.clock.now - off) / S;
    assert!((800..=910).contains(&took), "{took} s after the power failure");
    w.assert_well();
}

#[test]
fn i4_the_age_of_an_image_does_not_depend_on_the_wall_clock() {
    let (min_age, period) = (Duration::from_secs(30), Duration::from_secs(60));
    let max_age = Some(Duration::from_secs(200));
    let image_gc = ImageGcPolicy { high_percent: 100, max_age, min_age, period, ..ImageGcPolicy::default() };
    for (name, change) in CHANGES {
        let mut w = node_with(EngineConfig { image_gc: image_gc.clone(), ..config() });
        w.run(100);
        change_clock(&mut w, change);
        w.run(90);
        assert_eq!(w.times("RemoveImage", 0).len(), 0, "{name}: {}", w.trace());
        w.run(120);
        assert_eq!(w.times("RemoveImage", 0).len(), 1, "{name}: {}", w.trace());
    }
}

/// The pod `web` uses too much memory and was evicted.
fn evicted() -> World {
    let limit = Limit::Amount(MEMORY_LIMIT);
    let memory = Threshold { signal: Signal::MemoryAvailable, kind: ThresholdKind::Hard, limit, reclaim: None };
    let transition = Duration::from_secs(30);
    let eviction = EvictionPolicy { thresholds: vec![memory], transition, ..EvictionPolicy::default() };
    let mut w = World::new(EngineConfig { eviction, ..config() });
    w.history = Some(Vec::new());
    // The node is measured every 10 s.
    w.host.reports = false;
    w.runtime.images.insert(IMAGE.into());
    w.start();
    w.run(1);
    w.file("web", ONE);
    w.host.memory_of.insert("web/main".into(), 500);
    w.run(2);
    w.host.memory = 450;
    let is_over = |w: &World| w.status("web").reason.as_deref() == Some("Evicted") && !w.runs("web/main");
    w.until("it is evicted", 30, is_over);
    w
}

#[test]
fn e5_after_the_clock_was_set_an_evicted_pod_waits_for_its_delay_at_most() {
    for (name, change) in CHANGES {
        for away in [false, true] {
            let mut w = evicted();
            w.run(2);
            if away {
                w.kill_engine();
            }
            change_clock(&mut w, change);
            if away {
                w.start();
            }
            w.host.memory = 0;
            let ms = w.until("it runs again", 200, |w| w.runs("web/main"));
            // The condition lasts for 30 s, and the delay is 10 s.
            assert!(ms < 75_000 && (away || ms > 25_000), "{name}, away: {away}: {ms} ms");
            w.run(60);
            assert_eq!(w.times("StartContainer web", 0).len(), 2, "{name}: {}", w.trace());
        }
    }
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn renewed(w: &World) -> String {
    let lease = w.api.object(LEASES, "lab").cloned().unwrap_or_default();
    lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned()
}

/// The node controller ignores a renewal whose time is not later than that of the last one.
#[test]
fn c1_the_time_in_the_lease_never_goes_back() {
    for (name, change) in CHANGES {
        let mut w = member();
        w.run(60);
        change_clock(&mut w, change);
        let before = w.api.count("PATCH /apis/coordination.k8s.io");
        let statuses = w.api.count("PATCH /api/v1/nodes/lab");
        let mut times = vec![renewed(&w)];
        for _ in 0..120 {
            w.run(1);
            if times.last() != Some(&renewed(&w)) {
                times.push(renewed(&w));
            }
        }
        let renewals = w.api.count("PATCH /apis/coordination.k8s.io") - before;
        assert!((11..=13).contains(&renewals), "{name}: {renewals} renewals in 120 s");
        assert_eq!(times.len(), renewals + 1, "{name}: {times:?}");
        assert!(times.is_sorted() && times[0].len() == "2027-01-15T08:16:41.000000Z".len(), "{name}: {times:?}");
        assert!(w.api.count("PATCH /api/v1/nodes/lab") - statuses <= 2, "{name}: {}", w.trace());
        w.assert_well();
    }
}

/// A node whose client certificate is valid for 20 hours. The clock is changed before the start.
fn with_certificate(at_boot: Change) -> World {
    let mut w = World::new(cluster());
    w.history = Some(Vec::new());
    w.has_certificate(Duration::from_secs(20 * 3600), true);
    change_clock(&mut w, at_boot);
    w.start();
    w.run(5);
    w
}

/// The keys that were made, and the events about the certificate: renewed, and expired.
fn renewals(w: &World) -> (u64, usize, usize) {
    (w.identity.client.keys, w.notices("CertificateRenewed").len(), w.notices("CertificateExpired").len())
}

#[test]
fn c7_a_certificate_that_is_not_valid_yet_by_a_wrong_clock_is_kept() {
    let mut w = with_certificate(TO_1970);
    w.run(6 * 3600);
    assert_eq!((renewals(&w), w.api.certificate_requests()), ((0, 0, 0), 0), "{}", w.trace());
    // NTP sets the clock to five hours after the issue.
    let issued = World::new(cluster()).wall_now().0;
    let now = w.wall_now().0;
    w.set_clock(issued + 5 * HOUR - now);
    w.run(4 * 3600);
    assert_eq!(renewals(&w), (0, 0, 0), "{}", w.trace());
    // The renewal is due after 10 to 11 hours, and the clock is read once an hour.
    w.run(4 * 3600);
    assert_eq!(renewals(&w), (1, 1, 0), "{}", w.trace());
    assert!(w.certificate_left(Signer::Client) > 15 * 3600);
}

#[test]
fn c7_a_clock_that_is_ahead_for_a_while_causes_one_report_and_no_request() {
    let mut w = with_certificate(UNCHANGED);
    // The certificate of the server has expired, too, so there is no connection.
    w.api_away(true);
    change_clock(&mut w, |now| now + 30 * YEAR);
    w.run(600);
    assert_eq!(renewals(&w), (0, 0, 1), "{}", w.trace());
    change_clock(&mut w, |now| now - 30 * YEAR);
    w.api_away(false);
    w.run(9 * 3600);
    assert_eq!((renewals(&w), w.api.certificate_requests()), ((0, 0, 1), 0), "{}", w.trace());
    w.run(4 * 3600);
    assert_eq!(renewals(&w), (1, 1, 1), "{}", w.trace());
}

const TOKEN: &str = "containers: [{name: main, image: 'busybox:1.35', volumeMounts: [{name: t, mountPath: /t}]}], \
                     volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3607}}]}}]";

/// A pod with a token of 3607 s runs.
fn with_token() -> World {
    let mut w = member();
    w.api_pod("web", "uid-1", TOKEN);
    w.run(5);
    assert!(w.runs("web/main") && w.api.issued == 1, "{}", w.trace());
    w
}

#[test]
fn c4_a_clock_that_is_set_does_not_change_the_age_of_a_token() {
    for (name, change) in CHANGES {
        let mut w = with_token();
        w.run(100);
        change_clock(&mut w, change);
        w.run(2590);
        assert_eq!(w.api.issued, 1, "{name}: 75 % of 3607 s are 2705 s");
        w.run(210);
        assert_eq!(w.api.issued, 2, "{name}: 80 % are 2885 s");
    }
}

#[test]
fn c4_a_token_whose_age_is_unknown_after_a_restart_is_replaced_once() {
    for (name, change) in CHANGES {
        let mut w = with_token();
        w.run(100);
        let first = w.running("web/main");
        w.kill_engine();
        w.run(5);
        change_clock(&mut w, change);
        w.run(5);
        w.start();
        let expected = if name == LEAP_SECOND.0 { 1 } else { 2 };
        for seconds in [60, 600] {
            w.run(seconds);
            assert_eq!((w.api.issued, w.running("web/main")), (expected, first.clone()), "{name}: {}", w.trace());
        }
    }
}
