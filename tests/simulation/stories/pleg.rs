//! How Wherry detects changes (P).

use crate::runtime::end;
use crate::story::*;
use crate::world::{Fault, S, World};
use std::time::Duration;
use wherry::api::facts::ContainerState;
use wherry::api::names::{FullName, Uid};
use wherry::engine::event::{Event, Kind, PlegEvent};
use wherry::engine::node::{Due, Part};
use wherry::engine::pod::kill::TerminationSource;

#[test]
fn p1_a_death_is_seen_by_the_next_relist() {
    let mut w = node();
    w.file("web", ONE);
    w.run(15);
    w.exit_of("web/main", 9);
    let took = w.until("it runs again", 3, |w| w.container_status("web", "main").restart_count == 1);
    assert!(took < 1100, "{took} ms");
}

#[test]
fn p3_a_read_that_fails_is_made_again_without_an_event() {
    let mut w = node();
    w.file("web", ONE);
    w.run(15);
    let uid = w.engine.pods()[0].pod.uid.clone();
    for _ in 0..3 {
        w.fault(&format!("ReadPod {uid}"), Fault::Error("busy".into()));
    }
    w.exit_of("web/main", 9);
    w.run(2);
    assert_eq!(w.container_status("web", "main").restart_count, 0);
    w.run(4);
    assert_eq!(w.container_status("web", "main").restart_count, 1);
}

/// Only the list shows the change, and the relist period is the short one.
#[test]
fn p3_a_running_container_that_becomes_unknown_is_read_and_no_longer_shown_running() {
    let mut w = node();
    w.file("web", ONE);
    w.run(15);
    let id = w.running("web/main");
    w.runtime.containers.get_mut(&id).unwrap().state = ContainerState::Unknown;
    w.take_calls();
    let reads = w.observed.reads;
    let took = w.until("it is shown", 3, |w| w.shown("web") != "Running main#0:running");
    assert!(took < 1100, "{took} ms");
    assert_eq!(w.shown("web"), "Running main#0:terminated ContainerStatusUnknown 137");
    assert_eq!(w.observed.reads - reads, 1);
    // As a kubelet does: the state is unknown, so the container is stopped before the next one starts.
    w.run(1);
    let said = w.take_calls();
    assert!(said[0] == "StopContainer web/main#0 30000ms" && said.iter().all(|s| s.starts_with("Stop")), "{said:?}");
    let now = w.wall_now();
    end(w.runtime.containers.get_mut(&id).unwrap(), 255, now);
    w.run(15);
    assert_eq!(w.shown("web"), "Running main#1:running");
}

/// The list showed the container while it was being created, and the pod was read at that time.
#[test]
fn p3_a_container_that_a_list_showed_before_it_started_is_read_when_it_becomes_unknown() {
    let mut w = node();
    w.fault("CreateContainer web/main#0", Fault::Stale(Duration::from_millis(1200)));
    w.file("web", ONE);
    w.until("it runs", 5, |w| w.shown("web") == "Running main#0:running");
    let id = w.running("web/main");
    w.runtime.containers.get_mut(&id).unwrap().state = ContainerState::Unknown;
    let took = w.until("it is shown", 3, |w| w.shown("web") != "Running main#0:running");
    assert!(took < 1100, "{took} ms");
}

#[test]
fn p3_a_container_that_stays_created_or_unknown_is_not_read_at_each_relist() {
    for state in [ContainerState::Created, ContainerState::Unknown] {
        let mut w = node();
        w.file("web", ONE);
        w.run(15);
        // A container name that is not in the spec.
        let mut other = w.runtime.containers[&w.running("web/main")].clone();
        (other.id, other.name, other.state) = ("c-other".into(), "other".into(), state);
        w.runtime.containers.insert(other.id.clone(), other);
        let reads = w.observed.reads;
        w.run(2);
        assert!(w.observed.reads > reads, "{state:?}: the list shows it");
        w.run(60);
        let (reads, lists, stops) = (w.observed.reads, w.observed.lists, w.times("StopContainer", 0).len() as u64);
        w.run(60);
        assert!(w.observed.lists - lists >= 59);
        // A container in the state unknown is stopped repeatedly, and each stop causes a status read.
        let stops = w.times("StopContainer", 0).len() as u64 - stops;
        assert!(
            stops <= 7 && w.observed.reads - reads <= stops,
            "{state:?}: {} reads, {stops} stops",
            w.observed.reads - reads
        );
    }
}

#[test]
fn p3_a_list_that_shows_unknown_is_checked_once_however_long_the_status_disagrees() {
    let mut w = node();
    w.file("web", ONE);
    w.run(15);
    let id = w.running("web/main");
    for _ in 0..2 {
        let reads = w.observed.reads;
        w.runtime.listed_unknown.insert(id.clone());
        w.run(60);
        assert_eq!(w.observed.reads - reads, 1);
        w.runtime.listed_unknown.clear();
        w.run(60);
        assert_eq!(w.observed.reads - reads, 1);
    }
    assert_eq!((w.shown("web").as_str(), w.running("web/main")), ("Running main#0:running", id));
}

#[test]
fn p3_a_slow_read_of_one_pod_delays_no_other() {
    let mut w = node();
    w.file("a", ONE);
    w.file("b", ONE);
    w.run(15);
    let uid = w.engine.pods().iter().find(|v| &*v.pod.name.name == "a").map(|v| v.pod.uid.clone()).unwrap();
    w.fault(&format!("ReadPod {uid}"), Fault::Slow(Duration::from_secs(100)));
    w.exit_of("a/main", 9);
    w.exit_of("b/main", 9);
    w.run(2);
    assert_eq!(w.container_status("b", "main").restart_count, 1);
    assert_eq!(w.container_status("a", "main").restart_count, 0);
    // Its stop does not wait for the read either (W2).
    w.run(1);
    w.remove("a");
    w.run(130);
    assert_eq!(w.shown("a"), "");
}

#[test]
fn w2_a_stop_does_not_wait_for_a_slow_read() {
    let mut w = node();
    w.file("web", ONE);
    w.run(15);
    let uid = w.engine.pods()[0].pod.uid.clone();
    w.fault(&format!("ReadPod {uid}"), Fault::Slow(Duration::from_secs(100)));
    w.step(World::unknown_event(Some(uid)));
    let begin = w.clock.now;
    w.remove("web");
    w.run(1);
    assert_eq!(w.times("StopContainer", begin), [0]);
}

#[test]
fn p5_the_answer_of_a_stop_causes_a_read_at_once() {
    let mut w = node();
    w.file("web", ONE);
    w.run(15);
    w.remove("web");
    let took = w.until("it is gone", 2, |w| w.engine.pods().is_empty());
    assert!(took < 100, "{took} ms");
}

#[test]
fn p5_a_read_that_began_before_a_call_of_the_worker_does_not_count_after_it() {
    let mut w = node();
    w.file("web", ONE);
    w.until("its sandbox is requested", 5, |w| !w.times("RunSandbox", 0).is_empty());
    let uid = w.engine.pods()[0].pod.uid.clone();
    // The read sees no sandbox, and its answer comes after that of RunPodSandbox.
    w.fault(&format!("ReadPod {uid}"), Fault::Stale(Duration::from_secs(2)));
    w.step(World::unknown_event(Some(uid)));
    w.run(10);
    assert_eq!((w.times("RunSandbox", 0).len(), w.runs("web/main")), (1, true), "{}", w.trace());
}

#[test]
fn p6_relists_do_not_pile_up_and_a_failed_one_changes_nothing() {
    let mut w = node();
    w.file("web", ONE);
    w.run(15);
    w.fault("List", Fault::Slow(Duration::from_secs(50)));
    let (lists, shown) = (w.observed.lists, w.shown("web"));
    w.run(45);
    assert!(w.observed.lists - lists <= 2);
    w.run(10);
    for _ in 0..20 {
        w.fault("List", Fault::Error("busy".into()));
    }
    w.take_calls();
    w.run(20);
    assert_eq!(w.shown("web"), shown);
    assert_eq!(w.take_calls(), Vec::<String>::new());
}

#[test]
fn p6_a_start_that_was_being_prepared_before_a_sleep_waits_for_a_list() {
    for (prepared, call) in
        [("PreparePod default/web", "RunSandbox web"), ("PrepareContainer main#0", "CreateContainer web")]
    {
        let mut w = node();
        w.file("web", ONE);
        w.until(prepared, 5, |w| w.trace().contains(prepared));
        let lists = |w: &World| w.trace().matches(" List (").count();
        let (since, before) = (w.clock.now, lists(&w));
        w.sleep(600 * S);
        w.until("it starts", 5, |w| !w.times(call, since).is_empty());
        assert_eq!(lists(&w) - before, 1, "{}", w.trace());
        w.assert_well();
    }
}

#[test]
fn p6_without_a_list_for_three_minutes_nothing_new_starts_and_kills_go_on() {
    let mut w = node();
    w.file("web", ONE);
    w.run(15);
    for _ in 0..1000 {
        w.fault("List", Fault::Error("busy".into()));
    }
    w.run(170);
    assert!(w.engine.checks(w.time().boot)[1].result.is_ok());
    w.run(20);
    let why = w.engine.checks(w.time().boot)[1].result.clone().unwrap_err();
    assert!(why.starts_with("pleg was last seen active 1") && why.ends_with("threshold is 3m0s"), "{why}");
    w.take_calls();
    w.file("new", ONE);
    w.run(20);
    assert_eq!(w.take_calls(), Vec::<String>::new());
    w.remove("web");
    w.run(2);
    assert_eq!(w.take_calls()[0], "StopContainer web/main#0 30000ms");
    w.faults.planned.clear();
    w.run(3);
    assert!(w.runs("new/main"));
}

#[test]
fn p8_a_runtime_event_causes_an_immediate_read() {
    let mut w = node();
    w.file("web", ONE);
    w.run(15);
    let uid = w.engine.pods()[0].pod.uid.clone();
    w.exit_of("web/main", 9);
    w.step(World::unknown_event(Some(uid)));
    let took = w.until("it runs again", 3, |w| w.container_status("web", "main").restart_count == 1);
    assert!(took < 100, "{took} ms");
}

#[test]
fn an_idle_node_reads_and_publishes_nothing() {
    let mut w = node();
    for i in 0..110 {
        w.file(&format!("p{i}"), ONE);
    }
    w.run(60);
    let (reads, published) = (w.observed.reads, w.observed.published);
    w.take_calls();
    w.run(300);
    assert_eq!((w.observed.reads, w.observed.published), (reads, published));
    // The first run of the garbage collection of images.
    assert_eq!(w.take_calls(), ["ListImages", "ImageFs"]);
    w.run(300);
    assert_eq!(w.take_calls(), ["ImageFs"]);
}

fn watched_node() -> World {
    let mut w = node();
    w.pidfds.available = true;
    w.file("web", ONE);
    w.run(15);
    w
}

#[test]
fn p8_a_death_that_a_pidfd_shows_is_followed_by_the_restart_at_once() {
    let mut w = watched_node();
    assert_eq!(w.pidfds.watched.len(), 2, "the container and its sandbox");
    let begin = w.clock.now;
    w.exit_of("web/main", 9);
    w.until("the next one is requested", 3, |w| !w.times("CreateContainer", begin).is_empty());
    assert!(w.times("CreateContainer", begin)[0] < 10);
    w.run(1);
    assert!(w.pidfds.watched.contains_key(&w.running("web/main")));
    assert_eq!(w.pidfds.watched.len(), 2);
    w.assert_well();
}

#[test]
fn p8_a_dead_pause_is_replaced_at_once() {
    let mut w = watched_node();
    let begin = w.clock.now;
    let id = w.sandbox("web");
    w.kill_sandbox(&id);
    w.run(2);
    assert!(w.times("StopContainer", begin)[0] < 10);
    assert_eq!(w.container_status("web", "main").restart_count, 1);
}

#[test]
fn p8_while_all_is_watched_the_lists_are_30_seconds_apart() {
    let mut w = watched_node();
    let lists = w.observed.lists;
    w.run(300);
    assert!((9..=11).contains(&(w.observed.lists - lists)), "{}", w.observed.lists - lists);
    // A container that cannot be watched: the period is 1 s again.
    w.pidfds.available = false;
    w.file("other", ONE);
    w.run(2);
    let lists = w.observed.lists;
    w.run(20);
    assert!(w.observed.lists - lists >= 19, "{}", w.observed.lists - lists);
    w.remove("other");
    w.run(5);
    let lists = w.observed.lists;
    w.run(60);
    assert!(w.observed.lists - lists <= 3, "{}", w.observed.lists - lists);
}

#[test]
fn p8_starting_and_removing_a_watched_pod_needs_no_lists() {
    let mut w = watched_node();
    let lists = w.observed.lists;
    w.file("other", ONE);
    w.run(1);
    w.remove("other");
    w.run(1);
    assert_eq!(w.observed.lists, lists, "{}", w.trace());
    assert_eq!(w.pidfds.watched.len(), 2);
}

#[test]
fn p8_an_end_that_a_stop_of_our_own_brings_about_is_read_once_after_its_answer() {
    let mut w = watched_node();
    w.run(2);
    let reads = w.observed.reads;
    // The StopContainer call takes longer than the process's end.
    w.fault("StopContainer", Fault::Stale(Duration::from_millis(120)));
    w.kill("web", TerminationSource::Drain, None);
    w.until("it is over", 5, |w| w.observed.killed.len() == 1);
    // One read after StopContainer, and one after the sandbox's stop.
    assert_eq!(w.observed.reads - reads, 2);
}

#[test]
fn p8_an_end_that_the_runtime_does_not_show_yet_is_read_again_and_again() {
    let mut w = watched_node();
    for (lag, reads) in [(0, 1), (4, 3), (40, 13), (65, 18), (400, 23)] {
        w.run(700);
        w.processes.exit_lag = lag;
        let begin = w.clock.now;
        let before = w.observed.reads;
        w.exit_of("web/main", 9);
        w.until("the next one is requested", 3, |w| !w.times("CreateContainer", begin).is_empty());
        let took = w.times("CreateContainer", begin)[0];
        let most = if lag <= 70 { lag + 10 } else { 2 * lag + 110 };
        assert!(took <= most, "{took} ms after a lag of {lag}");
        assert!(
            (1..=reads + 1).contains(&(w.observed.reads - before)),
            "{} reads for a lag of {lag}",
            w.observed.reads - before
        );
    }
    w.assert_well();
}

#[test]
fn p8_adopted_containers_are_watched() {
    let mut w = watched_node();
    w.restart_engine();
    w.run(2);
    assert_eq!(w.pidfds.watched.len(), 2);
    let lists = w.observed.lists;
    w.run(60);
    assert!(w.observed.lists - lists <= 3);
}

#[test]
fn p8_an_unreported_exit_is_detected_by_the_relist() {
    let mut w = watched_node();
    w.pidfds.watched.clear();
    w.exit_of("web/main", 9);
    w.run(32);
    assert_eq!(w.container_status("web", "main").restart_count, 1);
}

#[test]
fn an_idle_node_with_watched_pods_rarely_wakes() {
    let mut w = node();
    w.pidfds.available = true;
    for i in 0..110 {
        w.file(&format!("p{i}"), ONE);
    }
    w.run(60);
    let (wake_ups, reads, published) = (w.observed.wake_ups, w.observed.reads, w.observed.published);
    w.run(300);
    assert!(w.observed.wake_ups - wake_ups <= 40, "{} in 5 minutes", w.observed.wake_ups - wake_ups);
    assert_eq!((w.observed.reads, w.observed.published), (reads, published));
}

#[test]
fn p3_failing_reads_are_retried_once_per_relist_until_they_succeed() {
    let mut w = watched_node();
    let uid = w.engine.pods()[0].pod.uid.clone();
    for _ in 0..10_000 {
        w.fault(&format!("ReadPod {uid}"), Fault::Error("busy".into()));
    }
    w.exit_of("web/main", 9);
    let reads = w.observed.reads;
    w.run(3600);
    assert!((3500..3700).contains(&(w.observed.reads - reads)), "{}", w.observed.reads - reads);
    w.remove("web");
    w.run(10);
    w.faults.planned.clear();
    w.run(3);
    w.assert_clean();
}

/// A node with the event stream and without pidfds.
fn hinted_node() -> World {
    let mut w = node();
    w.stream = Some(Default::default());
    w.file("web", ONE);
    w.run(15);
    w
}

fn event(kind: Kind, id: &str) -> PlegEvent {
    PlegEvent { id: id.into(), kind }
}

#[test]
fn p8_a_death_that_the_event_stream_reports_is_followed_by_the_restart_at_once() {
    let mut w = hinted_node();
    for _ in 0..3 {
        w.run(700);
        let (begin, reads) = (w.clock.now, w.observed.reads);
        w.exit_of("web/main", 9);
        w.until("the next one is requested", 3, |w| !w.times("CreateContainer", begin).is_empty());
        assert!(w.times("CreateContainer", begin)[0] < 20, "{:?}", w.times("CreateContainer", begin));
        w.run(1);
        assert_eq!(w.observed.reads - reads, 1, "{}", w.trace());
    }
    w.assert_well();
}

#[test]
fn p8_the_event_stream_alone_never_stretches_the_relist_period() {
    let mut w = hinted_node();
    let lists = w.observed.lists;
    w.run(60);
    assert!(w.observed.lists - lists >= 59, "{}", w.observed.lists - lists);
}

#[test]
fn p8_starts_and_stops_of_our_own_cost_no_read_that_they_would_not_cost_without_the_stream() {
    let reads = |stream: bool| {
        let mut w = node();
        w.stream = stream.then(Default::default);
        w.pidfds.available = true;
        w.file("web", TWO);
        w.run(15);
        w.remove("web");
        w.run(60);
        w.assert_clean();
        (w.observed.reads, w.observed.lists)
    };
    assert_eq!(reads(true), reads(false));
}

#[test]
fn p8_an_event_already_in_the_cache_causes_no_read() {
    let mut w = hinted_node();
    let (uid, main, sandbox) = (w.engine.pods()[0].pod.uid.clone(), w.running("web/main"), w.sandbox("web"));
    let reads = w.observed.reads;
    for (id, kind) in [
        (main.as_str(), Kind::ContainerChanged),
        (&main, Kind::ContainerStarted),
        (&sandbox, Kind::ContainerStarted),
        ("long-gone", Kind::ContainerRemoved),
    ] {
        w.step(Event::RuntimeEvent { uid: Some(uid.clone()), event: event(kind, id) });
    }
    w.run(1);
    assert_eq!(w.observed.reads, reads);
    // An event that the status does not reflect causes a read, and only the read is trusted.
    w.step(Event::RuntimeEvent { uid: Some(uid), event: event(Kind::ContainerDied, &main) });
    w.run(1);
    assert_eq!((w.observed.reads, w.running("web/main")), (reads + 1, main));
}

#[test]
fn p8_a_burst_of_ten_thousand_events_costs_one_read_at_a_time() {
    let mut w = hinted_node();
    w.file("other", ONE);
    w.run(15);
    let uids: Vec<_> = w.engine.pods().iter().map(|v| v.pod.uid.clone()).collect();
    let (reads, lists) = (w.observed.reads, w.observed.lists);
    for n in 0..10_000 {
        let event = event(Kind::ContainerDied, &format!("c{n}"));
        w.step(Event::RuntimeEvent { uid: Some(uids[n % 2].clone()), event });
    }
    assert_eq!(w.observed.reads - reads, 2, "one read of each pod is in flight");
    w.run(1);
    // One more read of each pod, for the events that came meanwhile.
    assert_eq!(w.observed.reads - reads, 4);
    for n in 0..10_000 {
        w.step(Event::RuntimeEvent { uid: None, event: event(Kind::ContainerDied, &format!("c{n}")) });
    }
    w.run(1);
    assert_eq!(w.observed.reads - reads, 4);
    assert!(w.observed.lists - lists <= 4, "{}", w.observed.lists - lists);
}

#[test]
fn p8_an_event_of_an_unknown_pod_causes_a_relist() {
    let mut w = watched_node();
    for event in [World::unknown_event(None), World::unknown_event(Some("stranger".into()))] {
        w.run(10);
        let lists = w.observed.lists;
        w.step(event);
        w.run(1);
        assert_eq!(w.observed.lists - lists, 1);
    }
    let lists = w.observed.lists;
    w.step(Event::RuntimeEvent { uid: None, event: event(Kind::ContainerRemoved, "x") });
    w.run(1);
    assert_eq!(w.observed.lists, lists, "a removed container causes no list");
}

#[test]
fn p8_an_event_during_a_read_is_compared_with_its_result() {
    let mut w = hinted_node();
    w.stream = None;
    let uid = w.engine.pods()[0].pod.uid.clone();
    let main = w.running("web/main");
    let died = || Event::RuntimeEvent { uid: Some(uid.clone()), event: event(Kind::ContainerDied, &main) };
    // The status read shows the end.
    let (begin, reads) = (w.clock.now, w.observed.reads);
    w.exit_of("web/main", 9);
    w.step(died());
    w.step(died());
    w.until("the next one is requested", 3, |w| !w.times("CreateContainer", begin).is_empty());
    assert_eq!(w.observed.reads - reads, 1);
    w.run(700);
    // The status read is older than the event.
    let main = w.running("web/main");
    let died = Event::RuntimeEvent { uid: Some(uid.clone()), event: event(Kind::ContainerDied, &main) };
    let reads = w.observed.reads;
    w.fault(&format!("ReadPod {uid}"), Fault::Stale(Duration::from_millis(50)));
    w.step(World::unknown_event(Some(uid)));
    w.run_ms(20);
    w.exit_of("web/main", 9);
    w.step(died);
    let begin = w.clock.now;
    w.until("the next one is requested", 3, |w| !w.times("CreateContainer", begin).is_empty());
    assert_eq!(w.observed.reads - reads, 2);
    assert!(w.times("CreateContainer", begin)[0] < 60);
}

#[test]
fn w2_a_late_effect_of_an_abandoned_call_is_detected_immediately() {
    let mut w = node();
    w.pidfds.available = true;
    // The call times out after 120 s but takes effect later.
    w.fault("StartContainer", Fault::Slow(Duration::from_secs(125)));
    w.file("web", ONE);
    w.run(124);
    assert!(!w.runs("web/main"));
    w.until("it runs", 3, |w| w.runs("web/main"));
    w.until("it is shown", 2, |w| w.shown("web") == "Running main#0:running");
}

/// 99,960 objects of other owners, and 40 of pods of ours without a manifest.
#[test]
fn a_list_of_a_hundred_thousand_objects_causes_calls_only_for_our_pods() {
    const PODS: usize = 20;
    let mut w = node();
    w.pidfds.available = true;
    w.file("web", ONE);
    w.run(3);
    w.kill_engine();
    let (sandbox, id) = (w.sandbox("web"), w.running("web/main"));
    for i in 0..50_000 {
        let mut s = w.runtime.sandboxes[&sandbox].clone();
        let mut c = w.runtime.containers[&id].clone();
        s.id = format!("many-s{i}");
        (c.id, c.sandbox) = (format!("many-c{i}"), s.id.clone());
        s.uid = Uid::from(format!("many-{i}").as_str());
        s.name = FullName::new("many", &format!("pod-{i}"));
        (c.uid, c.pod_name) = (s.uid.clone(), s.name.clone());
        if i >= PODS {
            (s.owner, c.owner) = (Some("root-2".into()), Some("root-2".into()));
        }
        w.runtime.sandboxes.insert(s.id.clone(), s);
        w.runtime.containers.insert(c.id.clone(), c);
    }
    w.take_calls();
    w.history = None;
    w.start();
    w.run(100);
    let said = w.take_calls();
    let count = |what: &str| said.iter().filter(|s| s.starts_with(what)).count();
    for what in ["StopContainer", "StopSandbox", "RemoveSandbox"] {
        assert_eq!(count(what), PODS, "{what}");
    }
    assert!(said.len() <= 4 * PODS, "{} calls", said.len());
    assert_eq!(w.runtime.sandboxes.len(), 50_000 - PODS + 1);
    assert_eq!(w.runtime.containers.len(), 50_000 - PODS + 1);
    assert!(w.runs("web/main"));
    // A list that shows nothing new causes no call.
    let (steps, reads) = (w.observed.steps, w.observed.reads);
    w.run(60);
    assert_eq!((w.observed.reads - reads, w.take_calls().len()), (0, 0));
    assert!(w.observed.steps - steps <= 12, "{} steps in a minute", w.observed.steps - steps);
}

#[test]
fn p7_a_list_older_than_the_cached_state_causes_no_read() {
    let mut w = node();
    w.pidfds.available = true;
    w.file("web", ONE);
    w.run(5);
    w.fault("List", Fault::Stale(Duration::from_secs(3)));
    w.step_early(&Due::Part(Part::Relist));
    w.run_ms(10);
    // The container ends and is restarted while that list is in flight.
    w.exit_of("web/main", 1);
    w.run_ms(2000);
    assert_eq!(w.shown("web"), "Running main#1:running");
    let (reads, lists) = (w.observed.reads, w.observed.lists);
    w.run_ms(2500);
    assert_eq!((w.observed.reads - reads, w.observed.lists - lists), (0, 1));
}
