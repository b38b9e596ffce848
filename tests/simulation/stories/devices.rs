//! Devices of device plugins (G).

use crate::runtime::Life;
use crate::stories::cluster::member;
use crate::story::*;
use crate::world::devices::device;
use crate::world::{S, World};
use std::time::Duration;
use wherry::api::devices::Registration;
use wherry::api::runtime_features::CdiDevices;
use wherry::engine::event::{DeviceEvent, Event};
use wherry::engine::pod::kill::TerminationSource;

const CAM: &str = "v.io/cam";

fn with(amount: u32) -> String {
    format!("containers: [{{name: main, image: 'busybox:1.35', resources: {{limits: {{v.io/cam: {amount}}}}}}}]")
}

/// The devices of the running container.
fn devices_of(w: &World, of: &str) -> String {
    let id = w.running(of);
    w.runtime.containers.get(&id).and_then(|c| c.devices.clone()).unwrap_or_default()
}

fn waits(w: &World, name: &str) -> String {
    w.status(name).message.unwrap_or_default()
}

#[test]
fn g1_a_plugin_registers_and_a_pod_gets_its_device() {
    let mut w = node();
    w.plugin(CAM, &["a", "b"]);
    w.run(1);
    assert_eq!(w.devices.answers, [Ok(())]);
    w.file("web", &with(1));
    w.run(5);
    assert_eq!(devices_of(&w, "web/main"), "a");
    assert_eq!(w.devices.calls, ["Allocate v.io/cam a"]);
}

#[test]
fn g3_a_runtime_that_ignores_cdi_devices_is_reported() {
    let mut w = node();
    w.plugin(CAM, &["a"]);
    w.file("web", &with(1));
    w.run(5);
    assert!(w.runs("web/main") && w.notices("CDIDevicesIgnored").is_empty());
    w.runtime.features.cdi_devices = CdiDevices::Ignored;
    w.restart_engine();
    w.exit_of("web/main", 1);
    w.run(3);
    let notices = w.notices("CDIDevicesIgnored");
    assert!(matches!(notices.as_slice(), [one] if one.contains("runs without v.io/cam=a")), "{notices:?}");
}

#[test]
fn g1_of_a_flood_of_lists_the_newest_counts() {
    let mut w = node();
    w.plugin(CAM, &["a"]);
    w.file("web", &with(2));
    w.run(5);
    for n in 0..500 {
        w.devices_are(CAM, vec![device(&n.to_string(), true)]);
    }
    w.devices_are(CAM, vec![device("y", true), device("z", true)]);
    w.run(5);
    assert_eq!(devices_of(&w, "web/main"), "y,z");
}

#[test]
fn g1_a_wrong_registration_is_refused() {
    let mut w = node();
    let registration =
        Registration { version: "v1".into(), endpoint: "a".into(), resource: CAM.into(), pre_start: false };
    w.step(Event::Device(DeviceEvent::Register { id: 1, registration }));
    assert!(matches!(w.devices.answers.as_slice(), [Err(why)] if why.contains("v1beta1")), "{:?}", w.devices.answers);
    assert_eq!(w.notices("DevicePlugin").len(), 1);
}

#[test]
fn g2_a_pod_waits_for_its_plugin_and_for_healthy_devices() {
    let mut w = node();
    w.file("web", &with(2));
    w.run(5);
    let message = waits(&w, "web");
    assert!(message.starts_with("waiting for a device plugin that provides v.io/cam: "), "{message}");
    w.plugin(CAM, &["a"]);
    w.run(5);
    assert_eq!(waits(&w, "web"), "waiting for healthy devices: v.io/cam, requested: 2, healthy: 1");
    w.devices_are(CAM, vec![device("a", true), device("b", false)]);
    w.run(5);
    assert!(!w.runs("web/main"));
    w.devices_are(CAM, vec![device("a", true), device("b", true)]);
    w.run(5);
    assert_eq!(devices_of(&w, "web/main"), "a,b");
}

#[test]
fn g3_a_second_pod_gets_another_device_and_a_third_none() {
    let mut w = node();
    w.plugin(CAM, &["a", "b"]);
    w.run(1);
    for name in ["one", "two", "three"] {
        w.file(name, &with(1));
        w.run(5);
    }
    assert_eq!((devices_of(&w, "one/main"), devices_of(&w, "two/main")), ("a".into(), "b".into()));
    assert_eq!(w.status("three").reason.as_deref(), Some("OutOfv.io/cam"));
    w.remove("one");
    w.file("four", &with(1));
    w.run(40);
    assert_eq!(devices_of(&w, "four/main"), "a");
}

#[test]
fn g3_a_container_that_restarts_keeps_its_devices() {
    let mut w = node();
    w.plugin(CAM, &["a", "b"]);
    w.life("web/main", &[Life::exits(1, Duration::from_secs(3)), Life::FOREVER]);
    w.file("web", &with(1));
    w.run(30);
    assert_eq!((w.shown("web").as_str(), devices_of(&w, "web/main").as_str()), ("Running main#1:running", "a"));
    assert_eq!(w.devices.calls, ["Allocate v.io/cam a"], "the plugin is asked once");
}

#[test]
fn g3_a_plugin_is_called_before_each_start_if_it_wants_that() {
    let mut w = node();
    w.devices.pre_start.insert(CAM.into());
    w.plugin(CAM, &["a"]);
    w.life("web/main", &[Life::exits(1, Duration::from_secs(3)), Life::FOREVER]);
    w.file("web", &with(1));
    w.run(30);
    assert_eq!(w.devices.calls, ["Allocate v.io/cam a", "PreStart v.io/cam a", "PreStart v.io/cam a"]);
}

#[test]
fn g3_devices_outlive_a_kill_at_any_moment() {
    for after in (0..600).step_by(3) {
        let mut w = node();
        w.plugin(CAM, &["a", "b"]);
        w.run(1);
        w.file("one", &with(1));
        w.run_ms(after);
        w.kill_engine();
        w.start();
        w.plugins_register_again();
        w.run(10);
        w.file("two", &with(1));
        w.run(10);
        let mut both = [devices_of(&w, "one/main"), devices_of(&w, "two/main")];
        both.sort();
        assert_eq!(both, ["a", "b"], "after {after} ms");
    }
}

#[test]
fn g3_a_container_waits_until_its_devices_are_recorded() {
    let mut w = node();
    w.plugin(CAM, &["a", "b"]);
    w.run(1);
    w.disk_full(20 * S);
    w.file("web", &with(1));
    w.run(10);
    assert!(!w.runs("web/main"));
    let waiting = w.status("web").container_statuses.unwrap_or_default()[0].state.clone().unwrap_or_default().waiting;
    let message = waiting.unwrap_or_default().message.unwrap_or_default();
    assert!(message.contains("failed to record the container's devices"), "{message}");
    // The record ends the wait. The plugin is not called again.
    w.until("the record is written", 120, |w| w.disk.records.keys().any(|key| key.starts_with("pods/")));
    w.run(2);
    assert!(w.runs("web/main"));
    assert_eq!((w.devices.calls.len(), devices_of(&w, "web/main")), (1, "a".to_owned()));
    // A container whose devices are recorded does not depend on the disk.
    w.disk_full(60 * S);
    w.exit_of("web/main", 1);
    w.run(20);
    assert_eq!(devices_of(&w, "web/main"), "a");
}

#[test]
fn g3_running_pods_keep_their_devices_without_the_plugin() {
    let mut w = node();
    w.plugin(CAM, &["a", "b"]);
    w.life("web/main", &[Life::exits(1, Duration::from_secs(20)), Life::FOREVER]);
    w.file("web", &with(1));
    w.run(5);
    w.plugin_ends(CAM);
    w.run(60);
    assert_eq!((w.shown("web").as_str(), devices_of(&w, "web/main").as_str()), ("Running main#1:running", "a"));
    w.file("late", &with(1));
    w.run(5);
    assert_eq!(waits(&w, "late"), "waiting for healthy devices: v.io/cam, requested: 1, healthy: 0");
    w.plugin(CAM, &["a", "b"]);
    w.run(5);
    assert_eq!(devices_of(&w, "late/main"), "b");
}

#[test]
fn g3_an_error_of_a_plugin_is_shown_and_retried() {
    let mut w = node();
    w.plugin(CAM, &["a"]);
    w.devices.failures.push("camera is cold".into());
    w.file("web", &with(1));
    w.run(2);
    let (reason, message) = w.waiting("web", "main");
    assert_eq!(reason, "CreateContainerConfigError");
    assert!(
        message.contains("the device plugin of v.io/cam did not allocate a: ") && message.contains("camera is cold")
    );
    w.run(30);
    assert_eq!(devices_of(&w, "web/main"), "a");
}

#[test]
fn g3_a_plugin_that_hangs_delays_no_other_pod_and_no_end() {
    let mut w = node();
    w.plugin(CAM, &["a"]);
    w.run(1);
    w.devices.hang = true;
    w.file("web", &with(1));
    w.run(2);
    w.file("other", ONE);
    w.starts_within(3, "other");
    w.remove("web");
    w.run(20);
    assert_eq!(w.shown("web"), "");
}

#[test]
fn g3_a_device_is_free_again_when_its_pod_has_ended() {
    let mut w = node();
    w.plugin(CAM, &["a"]);
    w.file("one", &with(1));
    w.run(5);
    w.kill("one", TerminationSource::Drain, None);
    w.run(10);
    w.file("two", &with(1));
    w.run(5);
    assert_eq!(devices_of(&w, "two/main"), "a");
}

#[test]
fn g3_an_unhealthy_device_is_given_to_no_pod() {
    let mut w = node();
    w.plugin(CAM, &["a", "b"]);
    w.run(1);
    w.devices_are(CAM, vec![device("a", false), device("b", true)]);
    w.file("web", &with(1));
    w.run(5);
    assert_eq!(devices_of(&w, "web/main"), "b");
}

#[test]
fn g3_a_main_container_gets_the_device_of_an_init_container() {
    let limits = "resources: {limits: {v.io/cam: 1}}";
    let one = |name: &str, more: &str| format!("{{name: {name}, image: 'busybox:1.35', {limits}{more}}}");
    let mut w = node();
    w.plugin(CAM, &["a", "b"]);
    w.life("web/i", &[Life::exits(0, Duration::from_secs(1))]);
    let init = [one("i", ""), one("side", ", restartPolicy: Always")].join(", ");
    w.file("web", &format!("initContainers: [{init}], containers: [{}]", one("main", "")));
    w.run(20);
    // The sidecar gets the device of the init container, and the main container the second one.
    assert_eq!((devices_of(&w, "web/side"), devices_of(&w, "web/main")), ("a".into(), "b".into()));
    w.file("other", &with(1));
    w.run(5);
    assert_eq!(w.status("other").reason.as_deref(), Some("OutOfv.io/cam"));
}

#[test]
fn g3_a_container_without_its_device_is_tried_again_when_the_list_changes() {
    let mut w = node();
    w.plugin(CAM, &["a"]);
    w.devices.failures.push("camera is cold".into());
    w.file("web", &with(1));
    w.run(1);
    assert_eq!(w.waiting("web", "main").0, "CreateContainerConfigError");
    w.devices_are(CAM, vec![device("a", true), device("b", true)]);
    w.run(1);
    assert_eq!(devices_of(&w, "web/main"), "a");
}

/// The capacity and the allocatable amount of the resource at the API server.
fn at_server(w: &World) -> (String, String) {
    let status = w.api.node().map(|node| node["status"].clone()).unwrap_or_default();
    let text = |part: &str| status[part][CAM].as_str().unwrap_or("none").to_owned();
    (text("capacity"), text("allocatable"))
}

fn amounts(capacity: &str, allocatable: &str) -> (String, String) {
    (capacity.to_owned(), allocatable.to_owned())
}

#[test]
fn g4_a_member_reports_its_devices_when_they_change() {
    let mut w = member();
    assert_eq!(at_server(&w), amounts("none", "none"));
    w.plugin(CAM, &["a", "b"]);
    w.run(1);
    assert_eq!(at_server(&w), amounts("2", "2"), "{}", w.trace());
    w.devices_are(CAM, vec![device("a", true), device("b", false), device("c", false)]);
    w.run(1);
    assert_eq!(at_server(&w), amounts("3", "1"), "{}", w.trace());
    // A device that a pod has counts as before: the scheduler subtracts it.
    w.api_pod("web", "uid-1", &with(1));
    w.run(5);
    assert_eq!(devices_of(&w, "web/main"), "a");
    assert_eq!(at_server(&w), amounts("3", "1"), "{}", w.trace());
    let before = w.api.count("PATCH /api/v1/nodes");
    w.devices_are(CAM, vec![device("c", false), device("b", false), device("a", true)]);
    w.run(60);
    assert_eq!(w.api.count("PATCH /api/v1/nodes"), before, "the same list is no change");
}

#[test]
fn g4_the_resource_of_a_lost_plugin_stays_with_nothing() {
    let mut w = member();
    w.plugin(CAM, &["a", "b"]);
    w.run(1);
    w.plugin_ends(CAM);
    w.run(1);
    assert_eq!(at_server(&w), amounts("0", "0"), "{}", w.trace());
    w.plugin(CAM, &["a"]);
    w.run(1);
    assert_eq!(at_server(&w), amounts("1", "1"), "{}", w.trace());
    // After a restart too, until the plugin has registered again, and for ever if it never does.
    w.kill_engine();
    w.start();
    w.run(2);
    assert_eq!(at_server(&w), amounts("0", "0"), "{}", w.trace());
    w.plugins_register_again();
    w.run(1);
    assert_eq!(at_server(&w), amounts("1", "1"), "{}", w.trace());
}

#[test]
fn g4_a_kill_at_any_moment_leaves_no_devices_of_a_plugin_that_is_gone() {
    for after in 0..40 {
        let mut w = member();
        w.plugin(CAM, &["a"]);
        w.run_ms(after);
        w.kill_engine();
        w.start();
        w.run(5);
        let (capacity, allocatable) = at_server(&w);
        assert!([&capacity, &allocatable].iter().all(|amount| *amount != "1"), "after {after} ms: {capacity}");
    }
}

#[test]
fn g4_devices_are_reported_when_they_are_recorded() {
    let mut w = member();
    w.disk_full(20 * S);
    w.plugin(CAM, &["a"]);
    w.run(10);
    assert_eq!(at_server(&w), amounts("none", "none"), "{}", w.trace());
    w.until("the devices are reported", 120, |w| at_server(w) == amounts("1", "1"));
}

#[test]
fn g4_resources_that_an_administrator_gives_the_node_stay() {
    let mut w = member();
    w.plugin(CAM, &["a"]);
    w.run(1);
    let mut node = w.api.node().cloned().expect("a node");
    node["status"]["capacity"]["example.com/dongle"] = "4".into();
    w.api_set("/api/v1/nodes", node);
    w.run(5);
    let status = &w.api.node().expect("a node")["status"];
    assert_eq!(status["capacity"]["example.com/dongle"], "4", "{}", w.trace());
    assert_eq!(status["allocatable"]["example.com/dongle"], "4", "{}", w.trace());
    assert_eq!(at_server(&w), amounts("1", "1"));
}
