//! Services: addresses that stay, rules that follow the ready pods, names in hosts files, across kills and errors.

use super::deployments::{controller, pod_names, probed};
use crate::runtime::Life;
use crate::story::*;
use crate::world::handlers::{Answers, BADLY, WELL};
use crate::world::{MS, S, World};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;
use wherry::api::address_range::AddressRange;
use wherry::api::names::{FullName, Uid};
use wherry::api::service_table::Protocol;
use wherry::api::workload::key::WorkloadKind;
use wherry::engine::control::Request;
use wherry::engine::event::Event;
use wherry::engine::services::shown;

const WEB: &str = "selector: {app: web}, ports: [{port: 80, targetPort: 8080}]";

fn name(name: &str) -> FullName {
    FullName::new("default", name)
}

/// The address of a service; empty: it has none.
fn address(w: &World, service: &str) -> String {
    let entry = w.engine.services().get(&name(service));
    let first = entry.and_then(|entry| entry.allocation.addresses.first());
    first.map(ToString::to_string).unwrap_or_default()
}

/// The addresses of the pods of a Deployment, with this port.
fn pods(w: &World, port: u16) -> BTreeSet<String> {
    let of = controller(w, WorkloadKind::Deployment, "web").expect("a Deployment");
    let ip = |pod: String| Some(format!("{}:{port}", w.engine.pod_named(&name(&pod))?.status.pod_ip.clone()?));
    pod_names(of).into_iter().filter_map(ip).collect()
}

fn web(w: &mut World, replicas: u32) {
    w.define_deployment("web", &format!("replicas: {replicas}"), ONE);
}

/// A node with two pods behind a service, and the address and port of the service.
fn serving() -> (World, String) {
    let mut w = node();
    web(&mut w, 2);
    w.define_service("web", WEB);
    w.run(3);
    let to = format!("{}:80", address(&w, "web"));
    assert_eq!((w.places(&to).len(), w.places(&to)), (2, pods(&w, 8080)));
    (w, to)
}

fn records(w: &World) -> usize {
    w.disk.records.keys().filter(|key| key.starts_with("services/")).count()
}

fn settled(w: &World) {
    if let Err(why) = w.services_agree() {
        panic!("{why:?}");
    }
}

#[test]
fn y26_connections_go_to_the_pods_that_are_ready() {
    let (mut w, to) = serving();
    let changes = w.rules.changes.len();
    w.run(600);
    assert_eq!(w.rules.changes.len(), changes, "nothing changes without a reason");
    assert_eq!(w.rules.checks, 10);
    web(&mut w, 3);
    w.run(3);
    assert_eq!((w.places(&to).len(), w.places(&to)), (3, pods(&w, 8080)));
    web(&mut w, 0);
    w.run(60);
    assert!(w.places(&to).is_empty(), "nothing is left to connect to");
    assert_eq!(w.rules.table.addresses.len(), 1, "connections are refused at once");
    w.remove_service("web");
    w.run(3);
    assert!(w.rules.table.is_empty() && records(&w) == 0);
    let checks = w.rules.checks;
    w.run(600);
    assert_eq!(w.rules.checks, checks, "a machine without services needs no nft");
    assert!(w.host.address_reads.is_empty());
}

#[test]
fn y26_a_pod_in_the_network_of_the_machine_has_its_addresses() {
    let mut w = node();
    w.define_deployment("web", "replicas: 1", &format!("hostNetwork: true, {ONE}"));
    w.run(60);
    assert!(w.host.address_reads.is_empty(), "nothing needs them");
    w.define_service("web", WEB);
    w.run(3);
    let to = format!("{}:80", address(&w, "web"));
    let leads_to = |w: &World, address: &str| w.places(&to) == BTreeSet::from([address.to_owned()]);
    assert!(leads_to(&w, "192.0.2.2:8080"), "{:?}", w.places(&to));
    w.host.addresses_alone = vec!["192.0.2.7".to_owned()];
    w.run(130);
    assert!(leads_to(&w, "192.0.2.7:8080"), "{:?}", w.places(&to));
    // The cable is unplugged.
    w.host.addresses_alone.clear();
    w.run(130);
    assert!(leads_to(&w, "192.0.2.7:8080"), "{:?}", w.places(&to));
    let reads = w.host.address_reads.len();
    assert!((4..=6).contains(&reads), "{reads} reads in four minutes");
    // After a restart, the old rules stay until the addresses are known.
    w.host.addresses_alone = vec!["192.0.2.9".to_owned()];
    let changes = w.rules.changes.len();
    w.restart_engine();
    w.run(30);
    assert!(leads_to(&w, "192.0.2.9:8080"), "{:?}", w.places(&to));
    assert_eq!(w.rules.changes.len(), changes + 1);
    settled(&w);
}

#[test]
fn y26_a_pod_that_is_not_ready_gets_no_connections() {
    let mut w = node();
    w.define_deployment("web", "replicas: 2", &probed(1));
    w.define_service("web", WEB);
    w.define_service("all", "selector: {app: web}, publishNotReadyAddresses: true, ports: [{port: 80}]");
    w.run(5);
    let [to, of_all] = ["web", "all"].map(|of| format!("{}:80", address(&w, of)));
    assert_eq!(w.places(&to).len(), 2);
    let pod = pod_names(controller(&w, WorkloadKind::Deployment, "web").expect("a Deployment")).pop_first();
    let pod = pod.expect("a pod");
    w.handlers.answers(&format!("{pod}/main/Readiness"), &[&[BADLY; 30][..], &[WELL]].concat());
    w.run(6);
    assert_eq!((w.places(&to).len(), w.places(&of_all).len()), (1, 2));
    let entry = w.engine.services().get(&name("web")).expect("a service");
    let slices = shown::slices(&name("web"), entry, "lab");
    let ready: Vec<&Value> = slices.values().flat_map(|slice| slice["endpoints"].as_array().expect("a list")).collect();
    assert_eq!(ready.iter().filter(|one| one["conditions"]["ready"] == true).count(), 1);
    let endpoints = shown::endpoints(&name("web"), entry, "lab");
    let count = |field: &str| endpoints["subsets"][0][field].as_array().map(Vec::len);
    assert_eq!((count("addresses"), count("notReadyAddresses")), (Some(1), Some(1)));
    w.run(60);
    assert_eq!(w.places(&to).len(), 2, "it is ready again");
}

#[test]
fn y26_the_last_pods_get_connections_until_they_end() {
    let mut w = node();
    for pod in ["web-0", "web-1"] {
        w.life(&format!("{pod}/main"), &[Life::deaf()]);
    }
    let of = |replicas| format!("replicas: {replicas}, serviceName: web, podManagementPolicy: Parallel");
    w.define_stateful_set("web", &of(2), ONE);
    w.define_service("web", WEB);
    w.run(5);
    let to = format!("{}:80", address(&w, "web"));
    w.define_stateful_set("web", &of(1), ONE);
    w.run(5);
    assert_eq!(w.places(&to).len(), 1, "another pod is ready");
    w.define_stateful_set("web", &of(0), ONE);
    w.run(5);
    assert_eq!(w.places(&to).len(), 2, "no other pod is ready, and these still answer");
    w.run(60);
    assert_eq!(w.places(&to).len(), 0);
}

/// Scales to this number, and returns the time of the change of the rules and those of the stops (ms).
fn stops_after_scale(w: &mut World, replicas: u32) -> (Option<u64>, Vec<u64>) {
    let (since, changes) = (w.clock.now, w.rules.changes.len());
    web(w, replicas);
    w.run(20);
    let change = w.rules.changes.get(changes).map(|at| (at - since) / MS);
    (change, w.times("StopContainer", since))
}

#[test]
fn y29_a_pod_is_stopped_once_the_rules_lead_to_it_no_more() {
    let (mut w, _) = serving();
    w.run(1);
    // The answer comes 5 ms after that time.
    w.rules.delay = 700 * MS;
    let (change, stops) = stops_after_scale(&mut w, 1);
    let change = change.expect("a change of the rules");
    assert_eq!(stops.len(), 1);
    assert!((change + 705..change + 710).contains(&stops[0]), "changed at {change} ms, {stops:?}");
    // For the last pod, the rules change when it has ended.
    let (change, stops) = stops_after_scale(&mut w, 0);
    assert!(stops.len() == 1 && stops[0] < 50 && change.is_some_and(|at| at > stops[0]), "{change:?} {stops:?}");
    settled(&w);
}

#[test]
fn y29_a_stop_waits_only_for_a_short_time() {
    for (grace, error, delay, expected) in [
        // A program that hangs, and a short grace period.
        (30, None, 25_000, 2000..2050),
        (3, None, 25_000, 1500..1550),
        (1, None, 25_000, 0..50),
        // It is not known what the kernel has.
        (30, Some("nft fails"), 0, 0..200),
    ] {
        let mut w = node();
        let spec = format!("terminationGracePeriodSeconds: {grace}, {ONE}");
        w.define_deployment("web", "replicas: 2", &spec);
        w.define_service("web", WEB);
        w.run(5);
        w.rules.delay = delay * MS;
        w.rules.error = error.map(str::to_owned);
        let since = w.clock.now;
        w.define_deployment("web", "replicas: 1", &spec);
        w.run(100);
        let stops = w.times("StopContainer", since);
        assert!(stops.len() == 1 && expected.contains(&stops[0]), "{grace} s, {error:?}: {stops:?}");
        w.rules.error = None;
        w.run(60);
        settled(&w);
    }
}

#[test]
fn y29_a_kill_while_a_stop_waits_loses_nothing() {
    let (mut w, to) = serving();
    w.rules.delay = 700 * MS;
    web(&mut w, 1);
    w.run_ms(300);
    assert!(w.times("StopContainer", 0).is_empty());
    w.kill_engine();
    w.rules.delay = 0;
    w.restart_engine();
    w.run(60);
    assert_eq!((w.times("StopContainer", 0).len(), w.places(&to).len()), (1, 1));
    settled(&w);
}

#[test]
fn y26_conversations_over_udp_do_not_stay_with_pods_that_are_gone() {
    let mut w = node();
    w.define_service("dns", "type: NodePort, selector: {app: web}, ports: [{port: 53, protocol: UDP}]");
    w.define_service("web", WEB);
    w.run(3);
    assert!(w.rules.forgotten.is_empty());
    web(&mut w, 3);
    w.run(5);
    let port = w.engine.services().get(&name("dns")).and_then(|of| of.allocation.node_port(Protocol::Udp, 53));
    let flows = w.rules.forgotten.clone();
    let new: Vec<u16> = flows.iter().flat_map(|one| one.ports.iter().copied()).collect();
    assert_eq!(Some(new), port.map(|port| vec![port]), "clients from before the first pod");
    assert!(flows.iter().all(|one| one.endpoints.is_empty()));
    let before = pods(&w, 53);
    web(&mut w, 1);
    w.run(10);
    let gone: BTreeSet<String> = before.difference(&pods(&w, 53)).cloned().collect();
    let forgotten = w.rules.forgotten[flows.len()..].iter().flat_map(|one| &one.endpoints);
    assert_eq!(forgotten.map(|ip| format!("{ip}:53")).collect::<BTreeSet<_>>(), gone);
    assert_eq!(gone.len(), 2);
    // After a restart, it is not known what the rules were. Nothing is interrupted.
    let count = w.rules.forgotten.len();
    w.restart_engine();
    w.run(30);
    assert_eq!(w.rules.forgotten.len(), count);
    // A failure is reported once.
    w.rules.forget_error = Some("conntrack is not installed; install the package conntrack".to_owned());
    for replicas in [3, 1, 0] {
        web(&mut w, replicas);
        w.run(40);
    }
    let events = w.notices("FailedServiceRules");
    assert!(events.len() == 1 && events[0].contains("install the package conntrack"), "{events:?}");
    w.remove_service("dns");
    w.remove_service("web");
    w.run(10);
    assert!(w.rules.table.is_empty() && records(&w) == 0);
    settled(&w);
}

#[test]
fn y29_a_runtime_that_goes_away_while_a_stop_waits_costs_no_work() {
    let (mut w, _) = serving();
    w.rules.delay = 300 * MS;
    web(&mut w, 1);
    w.run_ms(200);
    // (The world fails if the engine is always due.)
    w.runtime_down();
    w.run(5);
    assert!(w.times("StopContainer", 0).is_empty());
    w.runtime_up();
    w.run(30);
    assert_eq!(w.times("StopContainer", 0).len(), 1);
    settled(&w);
}

#[test]
fn y24_services_above_the_limit_have_no_effect() {
    let mut w = node();
    w.define_services((0..1003).map(|index| format!("s{index:04}")), "ports: [{port: 80}]");
    w.run(5);
    assert_eq!((w.engine.services().iter().count(), w.rules.table.addresses.len()), (1000, 1000));
    let events = w.notices("FailedServiceRules");
    assert!(events.len() == 1 && events[0].contains("more than 1000 services"), "{events:?}");
    w.define_services((3..1003).map(|index| format!("s{index:04}")), "ports: [{port: 80}]");
    w.run(5);
    assert!(w.engine.services().get(&name("s1002")).is_some(), "there is room for the last one");
    settled(&w);
}

#[test]
fn y26_a_service_that_does_not_fit_gets_no_connections() {
    let mut w = node();
    // 65 ports with 1024 places each.
    let places = (0..100).map(|index| format!("{{addresses: [192.0.2.{index}]}}")).collect::<Vec<_>>().join(", ");
    let ports = (1..=65).map(|port| format!("{{name: p{port}, port: {port}}}")).collect::<Vec<_>>().join(", ");
    w.define_slice("wide-1", "wide", &format!("ports: [{ports}], endpoints: [{places}]"));
    w.define_service("wide", &format!("sessionAffinity: ClientIP, ports: [{ports}]"));
    web(&mut w, 2);
    w.define_service("web", WEB);
    w.run(5);
    let [web, wide] = [("web", 80), ("wide", 1)].map(|(of, port)| format!("{}:{port}", address(&w, of)));
    assert_eq!((w.places(&web).len(), w.places(&wide).len()), (2, 0));
    let events = w.notices("FailedServiceRules");
    assert!(events.len() == 1 && events[0].contains("more endpoints than fit"), "{events:?}");
}

#[test]
fn y27_names_above_the_limit_are_left_out() {
    let mut w = node();
    w.file("client", ONE);
    let name = |index| format!("a-service-with-a-long-name-{index:04}");
    w.define_services((0..700).map(name), "ports: [{port: 80}]");
    w.run(10);
    let lines = w.names_in("client");
    let bytes: usize = lines.iter().map(|line| line.len() + 1).sum();
    assert!(lines.len() < 700 && (60_000..=64 * 1024).contains(&bytes), "{} lines, {bytes} bytes", lines.len());
    assert_eq!(w.notices("FailedServiceNames").len(), 1);
}

#[test]
fn y25_an_address_stays_over_restarts_and_reboots() {
    let (mut w, to) = serving();
    w.define_service("node", "type: NodePort, selector: {app: web}, ports: [{port: 80}]");
    w.run(3);
    let port = |w: &World| w.engine.services().get(&name("node")).map(|entry| entry.allocation.node_ports.clone());
    let before = port(&w);
    assert_eq!(before.as_ref().map(Vec::len), Some(1));
    let changes = w.rules.changes.len();
    w.restart_engine();
    w.run(5);
    assert_eq!((format!("{}:80", address(&w, "web")), port(&w)), (to.clone(), before.clone()));
    assert_eq!(w.rules.changes.len(), changes + 1, "the rules are written once, in case that they had changed");
    w.reboot(10 * S);
    assert!(w.rules.table.is_empty());
    w.run(60);
    assert_eq!((w.places(&to).len(), port(&w)), (2, before));
    settled(&w);
}

#[test]
fn y26_a_restart_of_wherry_interrupts_nothing() {
    let mut w = node();
    w.define_deployment("web", "replicas: 3", &probed(1));
    w.define_service("web", WEB);
    w.define_service("names", "clusterIP: None, selector: {app: web}, ports: [{port: 80}]");
    w.file("client", ONE);
    w.run(10);
    let to = format!("{}:80", address(&w, "web"));
    let names = w.names_in("client");
    assert_eq!((w.places(&to).len(), names.len()), (3, 4));
    w.restart_engine();
    for _ in 0..60 {
        w.run_ms(500);
        assert_eq!((w.places(&to).len(), w.names_in("client")), (3, names.clone()));
    }
    // A pod that does not become ready delays the changes, but not for ever.
    let pod = pod_names(controller(&w, WorkloadKind::Deployment, "web").expect("a Deployment")).pop_first();
    w.handlers.answers(&format!("{}/main/Readiness", pod.expect("a pod")), &[Answers::Lost]);
    w.restart_engine();
    w.run(15);
    assert_eq!(w.places(&to).len(), 3);
    w.run(15);
    assert_eq!(w.places(&to).len(), 2);
}

#[test]
fn y25_an_address_or_a_port_belongs_to_one_service() {
    let mut w = node();
    web(&mut w, 1);
    let with = |more: &str| format!("{more}, selector: {{app: web}}, ports: [{{port: 80");
    w.define_service("a", &(with("clusterIP: 10.96.0.9, type: NodePort") + ", nodePort: 30080}]"));
    w.define_service("b", &(with("clusterIP: 10.96.0.9") + "}]"));
    w.define_service("c", &(with("type: NodePort") + ", nodePort: 30080}]"));
    w.define_service("d", &(with("clusterIP: 192.0.2.1") + "}]"));
    w.run(3);
    assert_eq!(["a", "b", "d"].map(|of| address(&w, of)), ["10.96.0.9", "", ""]);
    for (reason, part) in [
        ("ClusterIPAlreadyAllocated", "belongs to the service default/a"),
        ("PortAlreadyAllocated", "nodePort 30080 belongs to the service default/a"),
        ("ClusterIPOutOfRange", "192.0.2.1 is not in a range"),
    ] {
        let found = w.notices(reason);
        assert!(matches!(found.as_slice(), [one] if one.contains(part)), "{reason}: {found:?}");
    }
    assert!(!address(&w, "c").is_empty() && w.places("30080").len() == 1);
    w.run(60);
    w.remove_service("a");
    w.run(3);
    assert_eq!(address(&w, "b"), "10.96.0.9", "the other service gets it when it is free");
    settled(&w);
}

/// Seven services in a range of six addresses. The last one has none.
const CROWDED: [&str; 7] = ["api", "cache", "db", "mail", "queue", "search", "web"];

fn small_range() -> World {
    let mut w = node();
    web(&mut w, 1);
    w.config.services.ranges = vec![AddressRange::parse("10.97.0.0/29").expect("a range")];
    w.step(Event::Configure(Box::new(w.config.clone())));
    for service in CROWDED {
        w.define_service(service, WEB);
    }
    w.run(5);
    w
}

#[test]
fn y25_a_small_range_gives_each_address_once() {
    let w = small_range();
    let all: BTreeSet<String> = CROWDED.map(|one| address(&w, one)).into_iter().filter(|one| !one.is_empty()).collect();
    assert_eq!(all.len(), 6, "{all:?}");
    let events = w.notices("FailedServiceAllocation");
    assert!(events.len() == 1 && events[0].contains("no address"), "{events:?}");
    // Those that did not get the address of their name keep the other one when it is free.
    for gone in &CROWDED[..6] {
        let mut w = small_range();
        let all = |w: &World| {
            let others = CROWDED[..6].iter().filter(|one| *one != gone);
            others.map(|one| address(w, one)).collect::<Vec<_>>()
        };
        let before = all(&w);
        w.kill_engine();
        w.remove_service(gone);
        w.remove_service(CROWDED[6]);
        w.restart_engine();
        w.run(25);
        assert_eq!(all(&w), before, "without {gone}");
    }
}

#[test]
fn y26_rules_that_another_program_removes_come_back() {
    let (mut w, to) = serving();
    w.flush_rules();
    w.run(61);
    assert_eq!((w.places(&to).len(), w.notices("ServiceRulesLost").len()), (2, 1));
}

#[test]
fn y26_a_failure_is_repeated_and_reported_once() {
    let (mut w, to) = serving();
    w.rules.error = Some("nft is not installed; install the package nftables".to_owned());
    web(&mut w, 3);
    w.run(300);
    let events = w.notices("FailedServiceRules");
    assert!(events.len() == 1 && events[0].contains("install the package nftables"), "{events:?}");
    assert_eq!(w.places(&to).len(), 2);
    w.rules.error = None;
    w.run(61);
    assert_eq!((w.places(&to).len(), w.notices("ServiceRulesApplied").len()), (3, 1));
    // The record stays as long as the kernel may have rules.
    w.rules.error = Some("nft fails".to_owned());
    w.remove_service("web");
    w.run(5);
    assert_eq!((records(&w), w.rules.table.is_empty()), (1, false));
    w.restart_engine();
    w.rules.error = None;
    w.run(30);
    assert_eq!((records(&w), w.rules.table.is_empty()), (0, true));
}

#[test]
fn y26_a_kill_at_any_moment_leaves_the_right_rules() {
    for ms in [0, 1, 2, 4, 6, 20, 120, 400] {
        let (mut w, to) = serving();
        web(&mut w, 4);
        w.run_ms(ms);
        w.restart_engine();
        // A pod whose sandbox was being created is known later. Until then, the earlier rules stay.
        w.run(25);
        assert_eq!(w.places(&to).len(), 4, "a kill after {ms} ms");
        w.remove_service("web");
        w.run_ms(ms);
        w.restart_engine();
        w.run(25);
        assert!(w.rules.table.is_empty() && records(&w) == 0, "a kill after {ms} ms");
        settled(&w);
    }
}

#[test]
fn y26_many_changes_at_once_are_few_changes_of_the_rules() {
    let mut w = node();
    w.define_service("web", WEB);
    web(&mut w, 60);
    w.run(60);
    let to = format!("{}:80", address(&w, "web"));
    assert_eq!(w.places(&to).len(), 60);
    let times = &w.rules.changes;
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 100 * MS), "{times:?}");
    assert!(times.len() <= 60, "{}", times.len());
}

#[test]
fn y26_a_client_keeps_its_pod() {
    let mut w = node();
    web(&mut w, 3);
    w.define_service("web", "sessionAffinity: ClientIP, selector: {app: web}, ports: [{port: 80}]");
    w.run(3);
    let to = format!("{}:80", address(&w, "web"));
    assert!(w.is_sticky(&to) && w.places(&to).len() == 3);
}

#[test]
fn y27_running_pods_learn_the_names_of_services() {
    let mut w = node();
    w.file("client", ONE);
    w.file("own", "dnsPolicy: Default, containers: [{name: main, image: 'busybox:1.35'}]");
    w.run(3);
    assert!(w.names_in("client").is_empty() && w.rules.writes == 0);
    web(&mut w, 1);
    w.define_service("web", WEB);
    w.run(1);
    let line = format!("{0} web.default.svc.cluster.local web.default.svc web.default web", address(&w, "web"));
    assert_eq!((w.names_in("client"), w.names_in("own")), (vec![line.clone()], Vec::new()));
    w.run(600);
    w.file("later", ONE);
    w.run(3);
    assert_eq!(w.names_in("later"), [line]);
    let writes = w.rules.writes;
    w.run(600);
    assert_eq!(w.rules.writes, writes, "nothing is written without a change");
    // Wherry does not run while the service is removed.
    w.kill_engine();
    w.remove_service("web");
    w.restart_engine();
    w.run(10);
    assert!(w.names_in("client").is_empty() && w.names_in("later").is_empty());
    settled(&w);
}

#[test]
fn y27_the_names_of_a_headless_service_are_those_of_its_ready_pods() {
    let mut w = node();
    w.define_service("db", "clusterIP: None, selector: {app: db}, ports: [{port: 5432}]");
    w.define_stateful_set("db", "replicas: 2, serviceName: db", ONE);
    w.file("client", ONE);
    w.run(10);
    let ip = |w: &World, pod: &str| w.engine.pod_named(&name(pod)).and_then(|pod| pod.status.pod_ip.clone());
    let line = |w: &World, of: &str, pod: &str| {
        let ip = ip(w, pod).unwrap_or_default();
        format!("{ip} {of}.default.svc.cluster.local {of}.default.svc {of}.default {of}")
    };
    let expected = |w: &World| {
        let of = |pod: &str| [line(w, "db", pod), line(w, &format!("{pod}.db"), pod)];
        [of("db-0"), of("db-1")].concat()
    };
    assert_eq!(w.names_in("client"), expected(&w));
    assert!(w.rules.table.is_empty() && w.rules.changes.is_empty(), "a headless service needs no rules");
    // The pod that replaces one has another address.
    let before = ip(&w, "db-1");
    let uid = Uid::from(w.shown_uid("db-1").as_str());
    w.ask(Request::DeleteReplica { uid, grace: None });
    w.run(60);
    assert_ne!(ip(&w, "db-1"), before);
    assert_eq!(w.names_in("client"), expected(&w));
    settled(&w);
}

#[test]
fn y28_a_service_without_a_selector_has_the_endpoints_of_slices() {
    let mut w = node();
    w.define_service("printer", "ports: [{port: 80}]");
    w.run(3);
    let to = format!("{}:80", address(&w, "printer"));
    assert!(w.places(&to).is_empty());
    let endpoints = "endpoints: [{addresses: [192.0.2.9]}, {addresses: [192.0.2.10], conditions: {ready: false}}]";
    w.define_slice("other-1", "other", "ports: [{port: 631}], endpoints: [{addresses: [192.0.2.8]}]");
    w.define_slice("printer-1", "printer", &format!("ports: [{{port: 631}}], {endpoints}"));
    w.run(1);
    assert_eq!(w.places(&to), BTreeSet::from(["192.0.2.9:631".to_owned()]));
    // Its answers pass this machine. Those of pods do anyway, and keep the address of the client.
    web(&mut w, 2);
    w.define_service("web", WEB);
    w.run(3);
    assert_eq!(w.rules.table.outside, ["192.0.2.9".parse::<IpAddr>().expect("an address")]);
}
