//! Durations that count on the boot clock and never on the wall clock: the active deadline (W1) and the grace period
//! (W4).

use crate::runtime::Life;
use crate::story::*;
use crate::world::{S, World};
use serde_json::Value;

const YEAR: i64 = 365 * 86_400 * S as i64;

/// Waits until `web` is past its active deadline. Returns the seconds since `begin`.
fn ended_after(w: &mut World, begin: u64) -> u64 {
    w.until("it is past its deadline", 2000, |w| !w.notices("DeadlineExceeded").is_empty());
    (w.clock.now - begin) / S
}

fn with_deadline(seconds: u64) -> String {
    format!("activeDeadlineSeconds: {seconds}, {ONE}")
}

/// Wherry is stopped for 10 s, and the wall clock is set meanwhile.
fn away_while_the_clock_is_set(w: &mut World, by: i64) {
    w.kill_engine();
    w.run(5);
    w.set_clock(by);
    w.run(5);
    w.start();
}

#[test]
fn w1_a_clock_that_is_set_while_wherry_is_away_moves_no_deadline() {
    for by in [50 * YEAR, 3600 * S as i64, 0, -3600 * (S as i64), -50 * YEAR] {
        let mut w = node();
        let begin = w.clock.now;
        w.file("web", &with_deadline(600));
        w.run(100);
        away_while_the_clock_is_set(&mut w, by);
        w.run(100);
        assert_eq!(w.shown("web"), "Running main#0:running", "by {by} ns");
        assert_eq!(ended_after(&mut w, begin), 600, "by {by} ns");
        w.run(10);
        assert_eq!(w.shown("web"), "Failed (DeadlineExceeded) main#0:terminated Error 143", "by {by} ns");
    }
}

#[test]
fn w1_a_pod_first_seen_in_1970_is_not_over_when_the_time_is_known() {
    let mut w = node();
    let now = w.wall_now().0;
    w.set_clock(20 * S as i64 - now);
    let begin = w.clock.now;
    w.file("web", &with_deadline(600));
    w.run(60);
    away_while_the_clock_is_set(&mut w, 57 * YEAR);
    w.run(60);
    assert_eq!(w.shown("web"), "Running main#0:running");
    assert_eq!(ended_after(&mut w, begin), 600);
}

#[test]
fn w1_active_time_before_a_boot_counts_and_time_without_power_does_not() {
    let mut w = node();
    w.file("web", &with_deadline(1000));
    w.run(950);
    // A power failure.
    w.reboot(7200 * S);
    w.set_clock(-50 * YEAR);
    w.until("it runs again", 7300, |w| w.runs("web/main"));
    let begin = w.clock.now;
    // The record is written at each tenth of the deadline.
    let took = ended_after(&mut w, begin);
    assert!((48..=105).contains(&took), "{took} s after the boot");
}

#[test]
fn w1_a_record_without_the_active_time_counts_from_now() {
    let mut w = node();
    w.file("web", &with_deadline(600));
    w.run(100);
    w.kill_engine();
    for record in w.disk.records.values_mut() {
        let mut value: Value = serde_json::from_str(record).unwrap();
        let object = value.as_object_mut().unwrap();
        assert!(object.remove("kept").is_some());
        object.remove("active");
        *record = value.to_string();
    }
    let begin = w.clock.now;
    w.start();
    assert_eq!(ended_after(&mut w, begin), 600);
}

#[test]
fn a_pod_without_a_deadline_writes_no_record_as_time_passes() {
    let mut w = node();
    w.file("web", ONE);
    w.file("job", &with_deadline(10_000));
    w.run(15);
    let of =
        |w: &World, name: &str| w.disk.records[&format!("pods/{}", w.files[&format!("/m/{name}.yaml")].uid)].clone();
    let before = (of(&w, "web"), of(&w, "job"));
    w.run(900);
    assert_eq!((of(&w, "web"), of(&w, "job")), before);
    w.run(200);
    assert_eq!(of(&w, "web"), before.0);
    assert_ne!(of(&w, "job"), before.1, "a tenth has passed");
}

#[test]
fn w4_a_clock_that_is_set_while_wherry_is_away_does_not_shorten_a_grace_period() {
    for by in [3600 * S as i64, -3600 * (S as i64)] {
        let mut w = node();
        w.life("web/main", &[Life::deaf()]);
        w.file("web", &format!("terminationGracePeriodSeconds: 60, {ONE}"));
        w.run(5);
        w.remove("web");
        w.run(10);
        w.take_calls();
        away_while_the_clock_is_set(&mut w, by);
        w.run(1);
        assert_eq!(w.take_calls(), ["StopContainer web/main#0 40000ms"], "by {by} ns");
    }
}
