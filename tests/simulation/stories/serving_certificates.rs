//! The certificate of the node's server, which the cluster issues (`serverTLSBootstrap`).

use super::cluster::cluster;
use crate::world::api_server::Approval;
use crate::world::{S, World};
use serde_json::json;
use std::time::Duration;
use wherry::api::cluster::certificate::InUse;
use wherry::api::cluster::requests::Signer;
use wherry::engine::config::ServingIssuer;
use wherry::engine::event::Event;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// The lifetime of a certificate in hours.
const LIFETIME: u64 = 20;

/// A node that requests a serving certificate, without an approval.
fn applicant() -> World {
    let mut w = World::new(cluster());
    w.history = Some(Vec::new());
    w.wants_serving_certificate(Duration::from_secs(LIFETIME * HOUR));
    w.api.approval = Approval::Pending;
    w.start();
    w.run(15);
    assert_eq!(w.api.certificate_requests(), 1, "{}", w.trace());
    w
}

/// A node with such a certificate.
fn server() -> World {
    let mut w = applicant();
    w.approve();
    w.until("the certificate is there", 90, |w| w.identity.serving.in_use.is_some());
    w
}

impl World {
    /// A person approves the requests that exist.
    fn approve(&mut self) {
        let names = self.api.all("certificatesigningrequests").map(|csr| csr["metadata"]["name"].clone());
        let names: Vec<String> = names.filter_map(|name| name.as_str().map(str::to_owned)).collect();
        self.api.approved.extend(names);
    }

    fn messages(&self, reason: &str) -> Vec<String> {
        let notices = self.observed.notices.iter().filter(|(_, notice)| notice.reason.as_str() == reason);
        notices.map(|(_, notice)| notice.message.clone()).collect()
    }

    /// The requests for certificates that the server received.
    fn posted(&self) -> usize {
        self.api.count("POST /apis/certificates.k8s.io/")
    }
}

#[test]
fn c7_a_request_for_a_serving_certificate_waits_for_its_approval() {
    let mut w = applicant();
    let csr = w.api.all("certificatesigningrequests").next().unwrap().clone();
    assert_eq!(csr["spec"]["signerName"], "kubernetes.io/kubelet-serving");
    assert_eq!(csr["spec"]["usages"], json!(["digital signature", "key encipherment", "server auth"]));
    w.run(6 * HOUR);
    assert_eq!((w.posted(), w.identity.serving.keys), (1, 1), "{}", w.trace());
    let told = w.messages("CertificateNotApproved");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with("kubectl certificate approve serving-csr-1-lab-10.0.0.7"), "{told:?}");
    // A person waits for the result, so the looks do not become as rare as those of an automatic approval.
    let before = w.api.count("GET /apis/certificates.k8s.io/");
    w.run(HOUR);
    let looks = w.api.count("GET /apis/certificates.k8s.io/") - before;
    assert!((40..=60).contains(&looks), "{looks}");
    w.approve();
    w.run(90);
    let Some(InUse::Serving { names, .. }) = &w.identity.serving.in_use else { panic!("{}", w.trace()) };
    assert_eq!(format!("{names:?}"), r#"ServingNames { dns: {"lab"}, addresses: {10.0.0.7} }"#);
    assert_eq!(w.messages("CertificateIssued").len(), 1, "{}", w.trace());
    w.run(HOUR);
    assert_eq!((w.posted(), w.identity.serving.keys, w.identity.client.keys), (1, 1, 0));
    w.assert_well();
}

#[test]
fn c7_an_automatic_approval_is_not_announced() {
    let mut w = World::new(cluster());
    w.history = Some(Vec::new());
    w.wants_serving_certificate(Duration::from_secs(LIFETIME * HOUR));
    w.start();
    w.run(30);
    assert_eq!(w.messages("CertificateIssued").len(), 1, "{}", w.trace());
    assert_eq!(w.messages("CertificateNotApproved"), [""; 0]);
}

#[test]
fn c7_without_the_setting_the_node_requests_no_serving_certificate() {
    let mut w = World::new(cluster());
    w.start();
    w.run(HOUR);
    assert_eq!((w.posted(), w.identity.serving.keys), (0, 0));
    // It is turned off.
    let mut w = server();
    w.config.cluster.as_mut().unwrap().serving = ServingIssuer::Node;
    w.restart_engine();
    w.run(LIFETIME * HOUR + 10);
    assert_eq!((w.posted(), w.messages("CertificateExpired").len()), (1, 0), "{}", w.trace());
}

#[test]
fn c7_a_kill_at_any_effect_makes_no_second_request_for_a_serving_certificate() {
    for effects in 0..30 {
        let mut w = World::new(cluster());
        w.history = Some(Vec::new());
        w.wants_serving_certificate(Duration::from_secs(LIFETIME * HOUR));
        w.api.approval = Approval::Pending;
        w.start();
        w.kill_after(effects, 2 * S);
        w.run(60);
        w.restart_engine();
        w.run(60);
        assert_eq!((w.identity.serving.keys, w.api.certificate_requests()), (1, 1), "{effects}: {}", w.trace());
        w.approve();
        w.kill_after(effects, 2 * S);
        w.run(200);
        assert_eq!((w.identity.serving.keys, w.api.certificate_requests()), (1, 1), "{effects}: {}", w.trace());
        assert!(w.certificate_left(Signer::Serving) > (LIFETIME - 1) * HOUR, "{effects}: {}", w.trace());
    }
}

#[test]
fn c7_a_request_that_the_control_plane_has_removed_is_made_again_with_its_key() {
    let mut w = applicant();
    for day in 1..3 {
        w.run(DAY);
        w.api.removes_certificate_requests();
        w.run(15 * 60);
        let told = w.messages("CertificateNotApproved").len();
        assert_eq!((w.posted(), w.identity.serving.keys, told), (day + 1, 1, day + 1), "{}", w.trace());
    }
    w.approve();
    w.run(90);
    assert_eq!(w.messages("CertificateIssued").len(), 1, "{}", w.trace());
}

#[test]
fn c7_denials_make_requests_rare_also_when_the_connection_breaks() {
    let mut w = applicant();
    w.api.approval = Approval::Denied;
    w.run(HOUR);
    let keys = w.identity.serving.keys;
    assert!((2..=4).contains(&keys), "{keys}: {}", w.trace());
    for _ in 0..23 {
        w.api_away(true);
        w.run(60);
        w.api_away(false);
        w.run(HOUR - 60);
    }
    let keys = w.identity.serving.keys;
    assert!((6..=10).contains(&keys), "{keys}: {}", w.trace());
    assert_eq!(w.posted() as u64, keys);
    let failures = w.messages("CertificateNotRenewed");
    assert!(failures[0].contains("the serving certificate of the node was not issued: the request"), "{failures:?}");
}

#[test]
fn c7_a_serving_certificate_is_renewed_after_half_of_its_lifetime() {
    let mut w = server();
    w.run(10 * HOUR - 120);
    assert_eq!(w.posted(), 1, "{}", w.trace());
    w.run(HOUR + 120);
    // The old one is in use until a person approves.
    assert_eq!((w.posted(), w.identity.serving.keys), (2, 2), "{}", w.trace());
    assert!(w.certificate_left(Signer::Serving) < 10 * HOUR);
    w.approve();
    w.run(90);
    assert!(w.certificate_left(Signer::Serving) > (LIFETIME - 1) * HOUR, "{}", w.trace());
    assert_eq!((w.messages("CertificateIssued").len(), w.messages("CertificateRenewed").len()), (1, 1));
}

#[test]
fn c7_a_serving_certificate_that_expires_is_reported_once_and_requested_on() {
    let mut w = server();
    w.run(LIFETIME * HOUR + HOUR);
    let told = w.messages("CertificateExpired");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("a certificate that Wherry issues itself") && !told[0].contains("join"), "{told:?}");
    w.approve();
    w.run(90);
    assert_eq!(w.messages("CertificateRenewed").len(), 1, "{}", w.trace());
}

#[test]
fn c7_changed_addresses_need_another_serving_certificate() {
    let mut w = server();
    let set = |w: &mut World, addresses: &[&str]| {
        w.config.cluster.as_mut().unwrap().addresses = addresses.iter().map(|a| (*a).to_owned()).collect();
        w.restart_engine();
        w.run(60);
    };
    // A machine can start without a network.
    set(&mut w, &[]);
    set(&mut w, &["10.0.0.7"]);
    assert_eq!(w.posted(), 1, "{}", w.trace());
    set(&mut w, &["10.0.0.7", "10.0.0.8"]);
    assert_eq!((w.posted(), w.identity.serving.keys), (2, 2), "{}", w.trace());
    // Other addresses before the approval are another request, with the same key.
    set(&mut w, &["10.0.0.9"]);
    assert_eq!((w.posted(), w.identity.serving.keys), (3, 2), "{}", w.trace());
    w.approve();
    w.run(90);
    let Some(InUse::Serving { names, .. }) = &w.identity.serving.in_use else { panic!("{}", w.trace()) };
    assert_eq!(names.addresses, ["10.0.0.9".parse().unwrap()].into());
    // A reload reads them again, too. The request that waits is for the old ones.
    for (address, posted, keys) in [("10.0.0.10", 4, 3), ("10.0.0.11", 5, 3), ("10.0.0.11", 5, 3)] {
        w.config.cluster.as_mut().unwrap().addresses = vec![address.to_owned()];
        w.step(Event::Configure(Box::new(w.config.clone())));
        w.run(60);
        assert_eq!((w.posted(), w.identity.serving.keys), (posted, keys), "{address}: {}", w.trace());
    }
}

#[test]
fn c7_a_signer_that_leaves_names_out_does_not_get_one_request_after_the_other() {
    let mut w = applicant();
    w.identity.drops_names = true;
    w.api.approval = Approval::Automatic;
    w.run(HOUR);
    assert!((2..=4).contains(&w.posted()), "{}: {}", w.posted(), w.trace());
    let told = w.messages("CertificateNotRenewed");
    assert!(told[0].contains("lacks a name or an address"), "{told:?}");
    assert!(w.identity.serving.in_use.is_some(), "it is better than none");
}
