//! The renewal of the node's client certificate.

use super::cluster::cluster;
use crate::story::node_with;
use crate::world::api_server::Approval;
use crate::world::{S, World};
use std::time::Duration;
use wherry::api::cluster::requests::Signer;

const HOUR: u64 = 3600;

/// A node of a cluster with a certificate that is valid for two hours.
fn holder() -> World {
    let mut w = World::new(cluster());
    w.history = Some(Vec::new());
    w.has_certificate(Duration::from_secs(2 * HOUR), true);
    w.start();
    w.run(5);
    assert!(w.api.node().is_some(), "{}", w.trace());
    w
}

impl World {
    fn said(&self, reason: &str) -> usize {
        self.observed.notices.iter().filter(|(_, notice)| notice.reason.as_str() == reason).count()
    }
}

#[test]
fn c7_the_certificate_is_renewed_after_half_of_its_lifetime() {
    let mut w = holder();
    w.run(HOUR - 30);
    assert_eq!((w.identity.client.keys, w.said("CertificateRenewed")), (0, 0), "{}", w.trace());
    w.run(500);
    assert_eq!((w.identity.client.keys, w.said("CertificateRenewed")), (1, 1), "{}", w.trace());
    assert!(w.certificate_left(Signer::Client) > 2 * HOUR - 500);
    assert!(w.api.events().contains(&"CertificateRenewed".to_owned()));
    // Each one after the other, with a key of its own.
    for _ in 0..24 {
        w.run(HOUR);
        assert!(w.certificate_left(Signer::Client) > HOUR - 500, "{}", w.trace());
    }
    assert!((22..=25).contains(&w.identity.client.keys), "{}", w.identity.client.keys);
    assert_eq!(w.api.certificate_requests() as u64, w.identity.client.keys);
    w.assert_well();
}

#[test]
fn c7_a_certificate_of_somebody_else_is_not_renewed() {
    let mut w = World::new(cluster());
    w.history = Some(Vec::new());
    w.has_certificate(Duration::from_secs(2 * HOUR), false);
    w.start();
    w.run(3 * HOUR);
    assert_eq!((w.identity.client.keys, w.api.certificate_requests()), (0, 0), "{}", w.trace());
    assert_eq!(w.said("CertificateExpired"), 1, "{}", w.trace());
}

#[test]
fn c7_a_kill_at_any_effect_loses_no_request_and_makes_no_second_one() {
    for effects in 0..14 {
        let mut w = holder();
        w.run(HOUR - 10);
        w.until("the renewal begins", 1000, |w| w.identity.client.keys == 1);
        w.kill_after(effects, 2 * S);
        w.run(300);
        assert_eq!((w.identity.client.keys, w.api.certificate_requests()), (1, 1), "{effects}: {}", w.trace());
        assert!(w.certificate_left(Signer::Client) > 2 * HOUR - 1000, "{effects}: {}", w.trace());
    }
}

#[test]
fn c7_without_the_server_the_renewal_waits() {
    let mut w = holder();
    w.run(HOUR - 60);
    w.api_away(true);
    w.run(HOUR - 300);
    assert_eq!(w.identity.client.keys, 0, "{}", w.trace());
    w.api_away(false);
    w.run(15);
    assert_eq!(w.said("CertificateRenewed"), 1, "{}", w.trace());
}

#[test]
fn c7_a_lost_answer_does_not_lose_the_request() {
    let mut w = holder();
    w.api.approval = Approval::Pending;
    w.run(HOUR + 500);
    assert_eq!((w.api.certificate_requests(), w.said("CertificateRenewed")), (1, 0), "{}", w.trace());
    // The looks become rare.
    let before = w.api.requests.len();
    w.run(600);
    let looks = w.api.requests[before..].iter().filter(|(_, r)| r.contains("certificatesigningrequests")).count();
    assert!((1..=4).contains(&looks), "{looks}");
    // The control plane removes the request; it is made again.
    w.api.removes_certificate_requests();
    w.run(900);
    assert_eq!((w.api.certificate_requests(), w.identity.client.keys), (1, 1), "{}", w.trace());
    w.api.approval = Approval::Automatic;
    w.run(600);
    assert_eq!(w.said("CertificateRenewed"), 1, "{}", w.trace());
    w.assert_well();
}

#[test]
fn c7_a_denied_request_is_followed_by_another_one_later() {
    let mut w = holder();
    w.api.approval = Approval::Denied;
    w.run(HOUR + 500);
    assert_eq!((w.identity.client.keys, w.said("CertificateNotRenewed")), (1, 1), "{}", w.trace());
    w.api.approval = Approval::Automatic;
    w.run(1200);
    assert_eq!((w.identity.client.keys, w.said("CertificateRenewed")), (2, 1), "{}", w.trace());
}

#[test]
fn c7_a_refused_request_or_a_full_disk_is_tried_again_more_and_more_rarely() {
    for full in [false, true] {
        let mut w = holder();
        w.identity.full = full;
        w.api.approval = if full { Approval::Automatic } else { Approval::Forbidden };
        w.run(2 * HOUR - 60);
        let failures = w.said("CertificateNotRenewed");
        assert!((5..=14).contains(&failures), "{failures}: {}", w.trace());
        w.identity.full = false;
        w.api.approval = Approval::Automatic;
        w.run(900);
        assert_eq!(w.said("CertificateRenewed"), 1, "{}", w.trace());
    }
}

#[test]
fn c7_an_expired_certificate_is_reported_once() {
    let mut w = holder();
    w.run(60);
    w.api_away(true);
    w.run(3 * HOUR);
    assert_eq!(w.said("CertificateExpired"), 1, "{}", w.trace());
    let told = w.observed.notices.iter().find(|(_, n)| n.reason.as_str() == "CertificateExpired").unwrap();
    assert!(told.1.message.contains("run wherry join"), "{}", told.1.message);
    // (node_with starts without a certificate: nothing is due.)
    let mut w = node_with(cluster());
    w.run(3 * HOUR);
    assert_eq!((w.identity.client.keys, w.said("CertificateExpired")), (0, 0));
}
