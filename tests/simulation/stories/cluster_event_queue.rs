//! C9: events of the time without the server are kept and posted later.

use crate::stories::cluster::{member, running};
use crate::world::{S, World};
use serde_json::Value;
use std::time::Duration;
use wherry::api::time::Boot;
use wherry::engine::cluster::connection::ConnectionState;
use wherry::engine::event::Event;

/// The events at the server with this reason.
fn events(w: &World, reason: &str) -> Vec<Value> {
    w.api.all("/events").filter(|event| event["reason"] == reason).cloned().collect()
}

#[test]
fn c9_events_of_an_absence_survive_a_power_cut_with_their_times() {
    let mut w = running("web");
    w.api_away(true);
    w.exit_of("web/main", 3);
    w.run(20);
    assert!(w.disk.records.keys().any(|key| key.starts_with("diary/")), "{:?}", w.disk.records.keys());
    w.reboot(S);
    w.run(30);
    let at = w.wall_now().whole_seconds().unwrap();
    w.run(3600);
    w.api_away(false);
    w.run(20);
    // Before the absence, during it, and after the boot.
    let started = events(&w, "Started");
    assert_eq!((started.len(), &started[0]["count"]), (1, &serde_json::json!(3)), "{}", w.trace());
    assert!(started[0]["lastTimestamp"].as_str().unwrap() <= at.as_str(), "{} {at}", started[0]);
    let back = events(&w, "ApiServerConnected");
    let message = back.last().unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("queued events follow"), "{message}");
    w.run(30);
    assert!(!w.disk.records.keys().any(|key| key.starts_with("diary/")), "{:?}", w.disk.records.keys());
}

#[test]
fn c9_an_orderly_stop_writes_the_events_of_the_last_seconds() {
    // While the server is away, and while it refuses each request.
    for refuses in [false, true] {
        let mut w = running("web");
        let before = events(&w, "Started").len();
        if refuses {
            w.api_is_busy_for(20 * S, Duration::from_secs(5));
        } else {
            w.api_away(true);
        }
        w.exit_of("web/main", 3);
        w.run(2);
        let diary = |w: &World| -> Vec<String> {
            let records = w.disk.records.iter().filter(|(key, _)| key.starts_with("diary/"));
            records.map(|(_, text)| text.clone()).collect()
        };
        assert_eq!((before, diary(&w)), (1, vec![]), "{}", w.trace());
        w.step(Event::Stopping);
        w.run(1);
        let has = |w: &World, reason: &str| diary(w).iter().any(|text| text.contains(&format!("\"{reason}\"")));
        assert_eq!((has(&w, "Started"), has(&w, "BackOff")), (true, false), "{refuses}: {:?}", diary(&w));
        // An event between the signal and the end.
        w.exit_of("web/main", 3);
        w.run(1);
        assert!(has(&w, "BackOff"), "{refuses}: {:?}", diary(&w));
        w.kill_engine();
        w.api_away(false);
        w.start();
        w.run(30);
        let started = events(&w, "Started");
        // Before the absence, before the stop, and after the back-off.
        assert_eq!((started.len(), &started[0]["count"]), (1, &serde_json::json!(3)), "{refuses}: {started:?}");
        assert_eq!(events(&w, "BackOff").len(), 1, "{}", w.trace());
        assert_eq!(diary(&w), Vec::<String>::new());
        w.assert_well();
    }
}

#[test]
fn c9_a_long_absence_keeps_a_bounded_event_queue() {
    let mut w = running("web");
    w.api_away(true);
    for _ in 0..12 {
        w.exit_of("web/main", 3);
        w.run(900);
    }
    let parts = w.disk.records.keys().filter(|key| key.starts_with("diary/")).count();
    assert_eq!(parts, 1, "a repeated event takes no more room");
    w.api_away(false);
    w.run(60);
    // The same again and again is one event.
    let started = events(&w, "Started");
    assert_eq!((started.len(), &started[0]["count"]), (1, &serde_json::json!(13)), "{started:?}");
    assert!(w.runs("web/main"));
}

#[test]
fn c9_an_event_that_occurs_again_is_counted_at_the_server() {
    let mut w = running("web");
    for _ in 0..3 {
        w.exit_of("web/main", 3);
        w.run(100);
    }
    let started = events(&w, "Started");
    assert_eq!((started.len(), &started[0]["count"]), (1, &serde_json::json!(4)), "{started:?}");
}

#[test]
fn the_state_of_the_connection_is_shown() {
    let mut w = member();
    let connection = |w: &World| {
        let connection = w.engine.connection(Boot(w.clock.now)).expect("a member");
        let away = match connection.state {
            ConnectionState::Away { duration, why } => Some((duration.as_secs(), why.to_owned())),
            ConnectionState::Registered => None,
            ConnectionState::Unregistered => panic!("the node is registered"),
        };
        (away, connection.waiting_events, connection.is_shared)
    };
    assert_eq!(connection(&w), (None, 0, false));
    w.api_away(true);
    w.run(120);
    let (away, waiting, _) = connection(&w);
    let (since, why) = away.expect("the server is away");
    assert!((100..=120).contains(&since) && !why.is_empty() && waiting > 0, "{since} {why} {waiting}");
    w.restart_engine();
    assert_eq!(
        w.engine.connection(Boot(w.clock.now)).map(|c| c.state),
        Some(ConnectionState::Unregistered),
        "no answer yet"
    );
    w.run(10);
    assert!(connection(&w).0.is_some());
    w.api_away(false);
    w.run(10);
    assert_eq!(connection(&w), (None, 0, false), "{}", w.trace());
}
