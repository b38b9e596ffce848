//! The addresses of a node change while Wherry runs: DHCP answers late, or the machine moves to another network.

use crate::stories::cluster::{cluster, member};
use crate::story::{IMAGE, NEVER, ONE};
use crate::world::{S, World};
use serde_json::Value;
use std::time::Duration;
use wherry::api::cluster::certificate::InUse;
use wherry::engine::cluster::traffic::Traffic;
use wherry::engine::event::Event;

const ON_HOST: &str = "hostNetwork: true, containers: [{name: main, image: 'busybox:1.35'}]";
/// A renewal of the lease, and the requests after it.
const PERIOD: u64 = 11;

/// A node that has started before the network is up.
fn without_network() -> World {
    let mut w = World::new(cluster());
    w.history = Some(Vec::new());
    w.runtime.images.insert(IMAGE.into());
    w.has_addresses(&[]);
    w
}

fn texts(list: &Value, field: &str) -> Vec<String> {
    let text = |one: &Value| one[field].as_str().unwrap_or_default().to_owned();
    list.as_array().into_iter().flatten().map(text).collect()
}

impl World {
    /// The addresses of the node's object.
    fn reported_addresses(&self) -> Vec<String> {
        let node = self.api.node().cloned().unwrap_or_default();
        let mut all = texts(&node["status"]["addresses"], "address");
        assert_eq!(all.pop().as_deref(), Some("lab"), "the hostname is the last one: {}", self.trace());
        all
    }

    /// `hostIP`, `hostIPs` and `podIPs` of a pod at the server.
    fn ips(&self, name: &str) -> (String, Vec<String>, Vec<String>) {
        let status = self.api.pod(name).map(|pod| pod["status"].clone()).unwrap_or_default();
        let (host_ips, pod_ips) = (texts(&status["hostIPs"], "ip"), texts(&status["podIPs"], "ip"));
        let first = |list: &[String]| list.first().cloned().unwrap_or_default();
        assert_eq!(status["podIP"].as_str().unwrap_or_default(), first(&pod_ips), "{status}");
        (status["hostIP"].as_str().unwrap_or_default().to_owned(), host_ips, pod_ips)
    }

    fn reads_configuration(&mut self) {
        self.step(Event::Configure(Box::new(self.config.clone())));
    }

    fn renewals(&self) -> usize {
        self.api.count("PATCH /apis/coordination.k8s.io")
    }
}

#[test]
fn c1_an_address_that_comes_after_the_start_is_reported() {
    let mut w = without_network();
    w.start();
    w.run(60);
    assert_eq!(w.reported_addresses(), [""; 0], "{}", w.trace());
    w.has_addresses(&["10.0.0.7"]);
    w.run(PERIOD);
    assert_eq!(w.reported_addresses(), ["10.0.0.7"], "{}", w.trace());
    // The network is also the way to the server: the node has its address as soon as it is registered.
    let mut w = without_network();
    w.api_away(true);
    w.start();
    w.run(600);
    w.has_addresses(&["10.0.0.7"]);
    w.api_away(false);
    w.run(3);
    assert_eq!(w.reported_addresses(), ["10.0.0.7"], "{}", w.trace());
}

#[test]
fn c1_a_changed_address_is_reported_with_the_pods() {
    let mut w = member();
    w.api_pod("web", "uid-1", ONE);
    w.api_pod("proxy", "uid-2", ON_HOST);
    w.api_pod("job", "uid-3", NEVER);
    w.run(3);
    w.file("local", ON_HOST);
    w.until("the pods run", 30, |w| {
        ["web", "proxy", "job", "local"].iter().all(|name| w.runs(&format!("{name}/main")))
    });
    w.exit_of("job/main", 0);
    w.run(20);
    let of_web = w.ips("web").2;
    let ended = w.ips("job");
    w.has_addresses(&["10.0.0.8"]);
    w.run(PERIOD);
    let new = || vec!["10.0.0.8".to_owned()];
    assert_eq!(w.reported_addresses(), new(), "{}", w.trace());
    assert_eq!(w.ips("web"), (new()[0].clone(), new(), of_web), "{}", w.trace());
    for name in ["proxy", "local-lab"] {
        assert_eq!(w.ips(name), (new()[0].clone(), new(), new()), "{name}: {}", w.trace());
    }
    // A pod that has ended was on the machine with the old address.
    assert_eq!(w.ips("job"), ended, "{}", w.trace());
    // The other family comes later, and is the second one.
    w.has_addresses(&["10.0.0.8", "fd00::8"]);
    w.run(PERIOD);
    let both = || vec!["10.0.0.8".to_owned(), "fd00::8".to_owned()];
    assert_eq!(w.reported_addresses(), both(), "{}", w.trace());
    assert_eq!(w.ips("proxy"), (new()[0].clone(), both(), both()), "{}", w.trace());
    // Nothing is reported again.
    w.run(60);
    let (requests, renewals) = (w.api.requests.len(), w.renewals());
    w.run(60);
    assert_eq!(w.api.requests.len() - requests, w.renewals() - renewals, "{:?}", &w.api.requests[requests..]);
    w.assert_well();
}

#[test]
fn c1_a_cable_that_is_unplugged_takes_no_address() {
    let mut w = member();
    w.api_pod("proxy", "uid-1", ON_HOST);
    w.run(20);
    let before = (w.reported_addresses(), w.ips("proxy"));
    assert_eq!(before.0, ["10.0.0.7"]);
    w.has_addresses(&[]);
    w.run(60);
    assert_eq!((w.reported_addresses(), w.ips("proxy")), before, "{}", w.trace());
    // Neither does a reload at that moment.
    w.reads_configuration();
    w.run(60);
    assert_eq!((w.reported_addresses(), w.ips("proxy")), before, "{}", w.trace());
    // The machine was carried to another network meanwhile. The new address is there with the server.
    w.api_away(true);
    w.run(60);
    w.has_addresses(&["10.1.0.7"]);
    w.api_away(false);
    w.run(3);
    assert_eq!(w.reported_addresses(), ["10.1.0.7"], "{}", w.trace());
    // A reload reads the addresses at once.
    w.has_addresses(&["10.1.0.8"]);
    w.reads_configuration();
    w.run(1);
    assert_eq!((w.reported_addresses(), w.ips("proxy").2), (vec!["10.1.0.8".to_owned()], vec!["10.1.0.8".to_owned()]));
}

#[test]
fn c1_to_read_the_addresses_wakes_no_idle_node() {
    for (traffic, period) in [(Traffic::Ordinary, 10), (Traffic::Metered, 20)] {
        let mut config = cluster();
        config.cluster.as_mut().unwrap().traffic = traffic;
        let mut w = World::new(config);
        w.history = Some(Vec::new());
        w.start();
        w.run(60);
        let (reads, renewals) = (w.host.address_reads.len(), w.renewals());
        w.run(600);
        assert_eq!(w.host.address_reads.len() - reads, w.renewals() - renewals, "{}", w.trace());
        let between = w.host.address_reads.windows(2).map(|two| two[1] - two[0]);
        assert!(between.clone().skip(2).all(|between| between >= period * S), "{:?}", w.host.address_reads);
        // Each read is at a renewal. The first one after a start follows soon.
        assert!(between.into_iter().all(|between| between >= 5 * S), "{:?}", w.host.address_reads);
    }
    // A server that refuses the lease again and again does not cause more of them.
    let mut w = member();
    w.run(20);
    let reads = w.host.address_reads.len();
    w.api_refuses_for(300 * S, 0);
    w.run(300);
    let reads = w.host.address_reads.len() - reads;
    assert!((20..=60).contains(&reads), "{:?}", w.host.address_reads);
}

#[test]
fn c7_a_serving_certificate_follows_the_addresses_without_a_reload() {
    let mut w = without_network();
    w.wants_serving_certificate(Duration::from_secs(20 * 3600));
    w.api_away(true);
    w.start();
    w.run(60);
    w.has_addresses(&["10.0.0.7"]);
    w.api_away(false);
    w.run(60);
    let names = |w: &World| match &w.identity.serving.in_use {
        Some(InUse::Serving { names, .. }) => names.addresses.iter().map(ToString::to_string).collect(),
        _ => vec![],
    };
    // A person approves each request, so the node waits for its address before the first one.
    assert_eq!((names(&w), w.api.certificate_requests()), (vec!["10.0.0.7".to_owned()], 1), "{}", w.trace());
    w.has_addresses(&["10.0.0.8"]);
    w.run(PERIOD + 5);
    assert_eq!((names(&w), w.api.certificate_requests()), (vec!["10.0.0.8".to_owned()], 2), "{}", w.trace());
    assert_eq!(w.host.addresses_used, 2, "the node's server has another certificate of its own: {}", w.trace());
    // Neither an unplugged cable nor the loss of one family needs another one.
    w.has_addresses(&["10.0.0.8", "fd00::8"]);
    w.run(PERIOD + 5);
    for addresses in [&[][..], &["fd00::8"], &["10.0.0.8", "fd00::8"]] {
        w.has_addresses(addresses);
        w.run(60);
    }
    assert_eq!(w.api.certificate_requests(), 3, "{}", w.trace());
    w.assert_well();
}
