//! The status in the words of a kubelet, from its recordings.

use crate::runtime::Life;
use crate::story::*;
use crate::world::{Fault, S};
use std::time::Duration;
use wherry::api::reason::Reason;
use wherry::engine::event::Event;
use wherry::engine::pod::kill::TerminationSource;

#[test]
fn a_pod_before_its_sandbox_is_pending_with_all_its_conditions() {
    let mut w = node();
    w.runtime.network_ready = false;
    w.run(90);
    w.file("web", "containers: [{name: b, image: 'busybox:1.35'}, {name: a, image: 'busybox:1.35'}]");
    w.run(2);
    let status = w.status("web");
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let kinds: Vec<&str> = status.conditions.iter().flatten().map(|c| c.type_.as_str()).collect();
    assert_eq!(kinds, ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]);
    let not_ready = ("False".into(), "ContainersNotReady".into(), "containers with unready status: [b a]".into());
    assert_eq!(w.condition("web", "Ready"), not_ready);
    assert_eq!(w.condition("web", "ContainersReady"), not_ready);
    assert_eq!(w.condition("web", "PodReadyToStartContainers").0, "False");
    assert_eq!(w.condition("web", "Initialized").0, "True");
    let names: Vec<&str> = status.container_statuses.iter().flatten().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["a", "b"], "sorted by name");
    assert_eq!(w.waiting("web", "a"), ("ContainerCreating".into(), String::new()));
    let c = w.container_status("web", "a");
    assert_eq!((c.image.as_str(), c.image_id.as_str(), c.started, c.ready), ("busybox:1.35", "", Some(false), false));
    assert!(c.last_state.is_some(), "an empty lastState");
}

#[test]
fn a_running_pod_is_ready() {
    let mut w = node();
    w.file("web", ONE);
    w.run(3);
    for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(w.condition("web", kind), ("True".into(), String::new(), String::new()), "{kind}");
    }
    let c = w.container_status("web", "main");
    assert!(
        c.ready
            && c.started == Some(true)
            && c.container_id.unwrap().starts_with(&format!("{}://c", w.runtime.personality.name()))
    );
    let status = w.status("web");
    assert_eq!(status.pod_ips.unwrap()[0].ip, status.pod_ip.unwrap());
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    assert_eq!(status.host_ip, None);
}

#[test]
fn a_host_network_pod_shows_no_address() {
    let mut w = node();
    w.file("web", &format!("hostNetwork: true, {ONE}"));
    w.run(3);
    let status = w.status("web");
    assert_eq!((status.pod_ip, status.pod_ips), (None, None));
    assert_eq!(w.condition("web", "PodReadyToStartContainers").0, "True");
}

#[test]
fn a_condition_keeps_the_time_of_its_last_change() {
    let mut w = node();
    w.file("web", ONE);
    w.run(3);
    let at = |w: &crate::world::World, kind: &str| {
        let c = w.status("web").conditions.unwrap().into_iter().find(|c| c.type_ == kind).unwrap();
        c.last_transition_time
    };
    let (ready, initialized) = (at(&w, "Ready"), at(&w, "Initialized"));
    w.life("web/main", &[Life::exits(1, Duration::from_secs(5)), Life::FOREVER]);
    w.run(30);
    w.exit_of("web/main", 1);
    w.run(3);
    w.exit_of("web/main", 1);
    w.run(3);
    assert_ne!(at(&w, "Ready"), ready);
    assert_eq!(at(&w, "Initialized"), initialized);
}

#[test]
fn w10_a_container_that_was_never_attempted_waits_when_its_pod_was_killed_before_it() {
    let mut w = node();
    w.life("web/i1", &[Life::FOREVER]);
    w.file("web", INIT);
    w.run(2);
    w.kill("web", TerminationSource::Drain, None);
    w.run(5);
    let over = "Failed (Drained) i1#0:terminated Error 143 i2#0:waiting PodInitializing main#0:waiting PodInitializing";
    assert_eq!(w.shown("web"), over);
    assert_eq!(w.condition("web", "Initialized").1, "ContainersNotInitialized");
    w.restart_engine();
    w.run(5);
    assert_eq!(w.shown("web"), over);
}

#[test]
fn w10_a_pod_killed_before_its_first_container_shows_its_waiting_reason() {
    let mut w = node();
    w.runtime.unknown_images.insert("other:1".into());
    for _ in 0..100 {
        w.fault("RunSandbox no-sandbox", Fault::Error("no network".into()));
    }
    w.file("no-sandbox", ONE);
    w.file("no-image", "containers: [{name: main, image: 'other:1'}]");
    w.run(5);
    w.kill("no-sandbox", TerminationSource::Drain, None);
    w.kill("no-image", TerminationSource::Drain, None);
    w.run(5);
    assert_eq!(w.shown("no-sandbox"), "Failed (Drained) main#0:waiting ContainerCreating");
    assert_eq!(w.shown("no-image"), "Failed (Drained) main#0:waiting ImagePullBackOff");
}

#[test]
fn a_container_removed_before_its_pod_ends_is_shown_as_lost() {
    let mut w = node();
    w.file("web", ONE);
    w.run(5);
    w.runtime_down();
    let uid = w.files["/m/web.yaml"].uid.clone();
    w.remove_behind(&uid);
    w.kill("web", TerminationSource::Drain, None);
    w.runtime_up();
    w.run(5);
    assert_eq!(w.shown("web"), "Failed (Drained) main#0:terminated ContainerStatusUnknown 137");
}

#[test]
fn the_end_of_each_container_is_reported_once_and_before_the_start_of_the_next_one() {
    let mut w = node();
    let soon = Duration::from_secs(1);
    w.life("web/main", &[Life::exits(3, soon), Life::exits(4, soon), Life::FOREVER]);
    w.file("web", ONE);
    w.run(60);
    let ends: Vec<(i32, i32)> = w.observed.ends.iter().map(|(_, e)| (e.end.exit_code, e.restart_count)).collect();
    assert_eq!(ends, [(3, 0), (4, 1)]);
    let notices = w.observed.notices.iter().enumerate();
    let starts: Vec<usize> = notices.filter(|(_, (_, n))| n.reason == Reason::Started).map(|(at, _)| at).collect();
    let [_, second, third] = starts[..] else { panic!("{starts:?}") };
    assert!(w.observed.ends[0].0 <= second, "the first end is reported before the restart");
    assert!((second + 1..=third).contains(&w.observed.ends[1].0), "the second end is reported between the restarts");
}

#[test]
fn an_end_that_a_previous_run_reported_is_not_reported_again() {
    let mut w = node();
    w.life("job/main", &[Life::exits(0, Duration::from_secs(1))]);
    w.life("web/main", &[Life::exits(1, Duration::from_secs(1)), Life::FOREVER]);
    w.file("job", NEVER);
    w.file("web", ONE);
    w.run(10);
    assert_eq!(w.observed.ends.len(), 2);
    w.restart_engine();
    w.run(90);
    assert_eq!(w.observed.ends.len(), 0);
}

#[test]
fn a_reload_after_the_clock_was_set_reports_no_end_again() {
    let mut w = node();
    w.life("job/main", &[Life::exits(0, Duration::from_secs(1))]);
    w.file("job", NEVER);
    w.run(10);
    w.set_clock(-3600 * S as i64);
    w.step(Event::Configure(Box::new(w.config.clone())));
    w.run(90);
    assert_eq!(w.observed.ends.len(), 1);
}
