//! Metrics (M): how often each is recorded, and which interval it measures.

use crate::runtime::Life;
use crate::story::*;
use crate::world::{Fault, World};
use std::time::Duration;
use wherry::api::reason::Reason;
use wherry::engine::effect::Measure;

/// The durations of this kind of worker operation, in ms.
fn work(w: &World, operation: &str) -> Vec<u128> {
    let took = |m: &Measure| match m {
        Measure::PodWorkerDuration { operation: o, duration } if *o == operation => Some(duration.as_millis()),
        _ => None,
    };
    w.observed.measures.iter().filter_map(took).collect()
}

fn count(w: &World, measure: &Measure) -> usize {
    w.observed.measures.iter().filter(|m| *m == measure).count()
}

const TRIED: Measure = Measure::StartedContainer { container_type: "container" };

fn failed(code: &str) -> Measure {
    Measure::StartedContainerError { container_type: "container", code: Reason::from_text(code) }
}

#[test]
fn m_a_pods_way_up_is_one_create_and_each_restart_one_sync() {
    let mut w = node();
    w.observed.measures.clear();
    w.file("web", TWO);
    let took = w.until("it runs", 5, |w| w.shown("web") == "Running one#0:running two#0:running");
    w.run(100);
    let created = work(&w, "create");
    assert!(created.len() == 1 && created[0].abs_diff(took.into()) <= 5, "{created:?} and {took} ms");
    assert_eq!(work(&w, "sync"), [], "a sync without work is not counted");
    assert_eq!(count(&w, &Measure::ContainersPerPod(2)), 1);
    assert_eq!(count(&w, &Measure::StartedPod), 1);
    assert_eq!(count(&w, &TRIED), 2);
    let begun =
        w.observed.measures.iter().filter(|m| matches!(m, Measure::PodWorkerStartDuration(d) if d.as_millis() < 10));
    assert_eq!(begun.count(), 1);
    let up = w.observed.measures.iter().filter_map(|m| match m {
        Measure::PodStartDuration(d) => Some(d.as_millis()),
        _ => None,
    });
    assert_eq!(up.collect::<Vec<_>>(), created);
    // The first restart is immediate. The second one follows a back-off, which does not count as an operation.
    for n in 1..=2 {
        w.exit_of("web/one", 1);
        w.run(30);
        let syncs = work(&w, "sync");
        assert_eq!(syncs.len(), n);
        assert!(syncs.iter().all(|ms| (60..1000).contains(ms)), "{syncs:?}");
    }
    assert_eq!(count(&w, &TRIED), 4);
    assert_eq!(count(&w, &Measure::StartedPod), 1);
    assert_eq!(work(&w, "create").len(), 1);
}

#[test]
fn m_a_requested_end_is_a_kill_and_what_is_left_after_it_terminated() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", &format!("terminationGracePeriodSeconds: 4, {ONE}"));
    w.run(3);
    w.remove("web");
    w.run(10);
    let kills = work(&w, "kill");
    assert!(kills.len() == 1 && (4000..5000).contains(&kills[0]), "{kills:?}");
    assert_eq!(work(&w, "terminated").len(), 1);
    // A pod that ends by itself is not killed.
    w.life("job/main", &[Life::exits(0, Duration::from_secs(1))]);
    w.file("job", NEVER);
    w.run(10);
    assert_eq!((work(&w, "kill").len(), work(&w, "terminated").len(), work(&w, "create").len()), (1, 2, 2));
    w.assert_well();
}

#[test]
fn m_a_kill_ends_the_create_that_it_cuts_off() {
    let mut w = node();
    w.runtime.images.clear();
    w.file("web", ONE);
    w.run_ms(300);
    w.remove("web");
    w.run(5);
    let (created, killed) = (work(&w, "create"), work(&w, "kill"));
    assert!(created.len() == 1 && (290..310).contains(&created[0]), "{created:?}");
    assert_eq!(killed.len(), 1);
    assert_eq!(count(&w, &TRIED), 1);
    assert_eq!(count(&w, &failed("ErrImagePull")), 0, "a cancelled pull is not a failure");
    w.assert_clean();
}

#[test]
fn m_a_sandbox_that_fails_is_a_started_pod_and_an_error() {
    let mut w = node();
    w.fault("RunSandbox", Fault::Error("no such runtime handler".into()));
    w.file("web", ONE);
    w.run(30);
    assert!(w.runs("web/main"));
    assert_eq!((count(&w, &Measure::StartedPod), count(&w, &Measure::StartedPodError)), (2, 1));
    assert_eq!(count(&w, &TRIED), 1);
    assert_eq!(work(&w, "create").len(), 1, "a retry after an error counts as sync");
    assert_eq!(work(&w, "sync").len(), 1);
}

#[test]
fn m_each_failed_start_of_a_container_has_its_waiting_reason() {
    for (call, code) in [
        ("ImageStatus", "ImageInspectError"),
        ("PullImage", "ErrImagePull"),
        ("CreateContainer", "CreateContainerError"),
        ("StartContainer", "RunContainerError"),
    ] {
        let mut w = node();
        w.runtime.images.clear();
        w.fault(call, Fault::Error("disk on fire".into()));
        w.file("web", ONE);
        w.run(2);
        assert_eq!(count(&w, &TRIED), 1, "{call}");
        w.run(40);
        assert!(w.runs("web/main"), "{call}");
        let errors: Vec<&Measure> =
            w.observed.measures.iter().filter(|m| matches!(m, Measure::StartedContainerError { .. })).collect();
        assert_eq!(errors, [&failed(code)], "{call}");
        // An existing container is started, not created again.
        let tries = if call == "StartContainer" { 1 } else { 2 };
        assert_eq!(count(&w, &TRIED), tries, "{call}");
    }
    let mut w = node();
    w.file("web", "containers: [{name: main, image: 'gone:1', imagePullPolicy: Never}]");
    w.run(2);
    assert_eq!(count(&w, &failed("ErrImageNeverPull")), 1);
}

#[test]
fn m_a_failed_relist_has_a_duration_and_the_interval_is_from_the_last_good_one() {
    let mut w = node();
    w.pidfds.available = false;
    w.file("web", ONE);
    w.run(3);
    w.observed.measures.clear();
    w.fault("List", Fault::Error("busy".into()));
    let lists = w.observed.lists;
    w.run(5);
    let made = (w.observed.lists - lists) as usize;
    let durations = w.observed.measures.iter().filter(|m| matches!(m, Measure::RelistDuration(_))).count();
    assert!(durations >= 4 && durations.abs_diff(made) <= 1, "{durations} of {made}");
    let intervals: Vec<u64> = w
        .observed
        .measures
        .iter()
        .filter_map(|m| match m {
            Measure::RelistInterval(d) => Some((d.as_millis() as u64 + 500) / 1000),
            _ => None,
        })
        .collect();
    assert_eq!(intervals.iter().filter(|s| **s == 2).count(), 1, "one of two seconds: {intervals:?}");
    assert!(intervals.iter().all(|s| *s == 1 || *s == 2), "{intervals:?}");
}

#[test]
fn m_a_status_that_waits_for_a_termination_message_is_timed_from_the_end_that_it_shows() {
    let mut w = node();
    w.file("job", NEVER);
    w.run(3);
    w.observed.measures.clear();
    w.exit_of("job/main", 3);
    w.run(3);
    let waited: Vec<Duration> = w
        .observed
        .measures
        .iter()
        .filter_map(|m| match m {
            Measure::PodStatusDuration(d) => Some(*d),
            _ => None,
        })
        .collect();
    // Writing a file takes half a millisecond in this simulation. Nothing else delays a status.
    assert!(waited.contains(&Duration::from_micros(500)), "{waited:?}");
    assert!(waited.iter().all(|d| *d <= Duration::from_micros(500)), "{waited:?}");
}

#[test]
fn m_a_pod_of_before_is_created_again_but_not_started() {
    let mut w = node();
    w.file("web", ONE);
    w.run(3);
    w.kill_engine();
    w.observed.measures.clear();
    w.start();
    w.run(5);
    assert_eq!(work(&w, "create").len(), 1);
    assert_eq!(count(&w, &Measure::ContainersPerPod(1)), 1);
    assert_eq!((count(&w, &Measure::StartedPod), count(&w, &TRIED)), (0, 0));
    assert!(!w.observed.measures.iter().any(|m| matches!(m, Measure::PodStartDuration(_))));
}
