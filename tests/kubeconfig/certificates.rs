//! The certificates in the eyes of openssl.

use super::node::{Node, openssl};
use jiff::{SignedDuration, Timestamp};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use wherry::adapters::pki::{self, Authority, Names, Role};
use wherry::net::x509;

/// The text of `openssl x509 -text`, one line a field, without indentation.
fn text(path: &str) -> Vec<String> {
    let (ok, text) = openssl(&["x509", "-in", path, "-noout", "-text"]);
    assert!(ok, "{text}");
    text.lines().map(|l| l.trim().to_owned()).collect()
}

/// The line after the one that begins with `heading`.
fn after<'a>(lines: &'a [String], heading: &str) -> &'a str {
    let at = lines.iter().position(|l| l.starts_with(heading)).unwrap_or_else(|| panic!("{heading} in {lines:#?}"));
    &lines[at + 1]
}

fn has(lines: &[String], line: &str) -> bool {
    lines.iter().any(|l| l == line)
}

/// notBefore and notAfter.
fn validity(path: &str) -> (Timestamp, Timestamp) {
    let (_, dates) = openssl(&["x509", "-in", path, "-noout", "-dates", "-dateopt", "iso_8601"]);
    let date = |field: &str| {
        let line = dates.lines().find_map(|l| l.strip_prefix(field)).unwrap_or_else(|| panic!("{field} in {dates}"));
        line.replace(' ', "T").parse().unwrap()
    };
    (date("notBefore="), date("notAfter="))
}

fn verify(ca: &str, options: &[&str], certificate: &str) -> bool {
    openssl(&[&["verify", "-x509_strict", "-CAfile", ca], options, &[certificate]].concat()).0
}

const DAY: i64 = 24 * 3600;

#[test]
fn openssl_verifies_the_chain_of_a_client_and_its_purpose() {
    let node = Node::new("");
    let printed = node.ok("--for ann --expires 30d").stdout;
    let now = Timestamp::now();
    let path = node.certificate(&printed, "ann.crt").display().to_string();
    let ca = node.path("root/kubectl/ca.crt").display().to_string();
    assert!(verify(&ca, &["-purpose", "sslclient"], &path));
    assert!(!verify(&ca, &["-purpose", "sslserver"], &path), "a client is no server");

    let lines = text(&path);
    assert!(has(&lines, "Version: 3 (0x2)") && has(&lines, "Signature Algorithm: ecdsa-with-SHA256"));
    assert!(has(&lines, "ASN1 OID: prime256v1") && has(&lines, "NIST CURVE: P-256"), "{lines:#?}");
    assert!(has(&lines, "Issuer: CN = wherry-ca@boat-7") && has(&lines, "Subject: CN = ann, O = wherry:edit"));
    assert_eq!(after(&lines, "X509v3 Extended Key Usage:"), "TLS Web Client Authentication");
    assert_eq!(after(&lines, "X509v3 Key Usage: critical"), "Digital Signature");
    assert_eq!(after(&lines, "X509v3 Basic Constraints:"), "CA:FALSE");
    let serial = after(&lines, "Serial Number:").replace(':', "");
    assert_eq!((serial.len(), node.list()[0]["serial"].as_str()), (32, Some(&*serial)));

    let (from, to) = validity(&path);
    let minutes = now.duration_since(from).as_secs();
    assert!((300..360).contains(&minutes), "{minutes} s before its issue");
    let lifetime = to.duration_since(from).as_secs();
    assert_eq!(lifetime, 30 * DAY + 300);

    // The key belongs to the certificate.
    let key = node.path("ann.key");
    fs::write(&key, node.decoded(&printed, "client-key-data")).unwrap();
    let (_, of_key) = openssl(&["pkey", "-in", &key.display().to_string(), "-pubout"]);
    let (_, of_certificate) = openssl(&["x509", "-in", &path, "-noout", "-pubkey"]);
    assert!(of_key.starts_with("-----BEGIN PUBLIC KEY-----") && of_key == of_certificate);

    let view = node.certificate(&node.ok("--for ci --view").stdout, "ci.crt").display().to_string();
    assert!(has(&text(&view), "Subject: CN = ci, O = wherry:view"));
    // The CA of another node.
    let other = Node::new("");
    other.ok("");
    assert!(!verify(&other.path("root/kubectl/ca.crt").display().to_string(), &[], &path));
}

#[test]
fn openssl_verifies_the_ca_and_the_serving_certificate() {
    let node = Node::new("");
    node.ok("");
    let ca = node.path("root/kubectl/ca.crt").display().to_string();
    let lines = text(&ca);
    assert_eq!(after(&lines, "X509v3 Basic Constraints: critical"), "CA:TRUE, pathlen:0");
    assert_eq!(after(&lines, "X509v3 Key Usage: critical"), "Certificate Sign");
    assert!(has(&lines, "Subject: CN = wherry-ca@boat-7"), "{lines:#?}");
    let (from, to) = validity(&ca);
    assert_eq!(to.duration_since(from).as_secs(), 3653 * DAY + 300);

    let now = Timestamp::now();
    let directory = pki::directory(&node.path("root"));
    let authority = Authority::open_or_create(&directory, "boat-7", now).unwrap();
    let names = Names::new("boat-7", ["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()]);
    assert!(authority.server(&names, now).unwrap().is_new);
    let path = directory.join("server.crt").display().to_string();
    let lines = text(&path);
    assert_eq!(after(&lines, "X509v3 Extended Key Usage:"), "TLS Web Server Authentication");
    assert_eq!(after(&lines, "X509v3 Key Usage: critical"), "Digital Signature");
    assert_eq!(
        after(&lines, "X509v3 Subject Alternative Name:"),
        "DNS:boat-7, DNS:localhost, IP Address:10.0.0.5, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1, IP \
         Address:FD00:0:0:0:0:0:0:5"
    );
    for name in ["boat-7", "localhost"] {
        assert!(verify(&ca, &["-purpose", "sslserver", "-verify_hostname", name], &path), "{name}");
    }
    for address in ["127.0.0.1", "::1", "10.0.0.5", "fd00::5"] {
        assert!(verify(&ca, &["-purpose", "sslserver", "-verify_ip", address], &path), "{address}");
    }
    assert!(!verify(&ca, &["-verify_hostname", "boat-8"], &path) && !verify(&ca, &["-verify_ip", "10.0.0.6"], &path));
    assert!(!verify(&ca, &["-purpose", "sslclient"], &path), "a server is no client");
    let to = validity(&path).1;
    assert!((365 * DAY - 1..=365 * DAY).contains(&to.duration_since(now).as_secs()), "{to}");
    let old = now + SignedDuration::from_hours(24 * 300);
    let replaced = authority.server(&names, old).unwrap();
    assert!(replaced.is_new && validity(&path).1.duration_since(old).as_secs() >= 364 * DAY);
}

#[test]
fn a_name_with_a_meaning_in_yaml_or_in_certificates_stays_the_same() {
    let node = Node::new("");
    for (i, name) in
        ["- \"x\": {y} # null", "null", "CN=a/O=b, OU=c", "größe 🚢", "a\\b'c", "*"].into_iter().enumerate()
    {
        let context = format!("{name}@{i}");
        let output = node.command([&*format!("--for={name}"), &format!("--context={context}")]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let path = node.certificate(&printed, "it.crt").display().to_string();
        let (_, subject) =
            openssl(&["x509", "-in", &path, "-noout", "-subject", "-nameopt", "sep_multiline,utf8,lname"]);
        assert!(subject.contains(&format!("commonName={name}\n")), "{name}: {subject}");
        let config: serde_json::Value = serde_saphyr::from_str(&printed).unwrap();
        assert_eq!(config["current-context"], context.as_str());
        assert_eq!(config["contexts"][0]["context"]["user"], context.as_str());
        assert!(node.list().iter().any(|c| c["name"] == name), "{name}");
    }
}

/// The server of the agent is rustls; kubectl is Go, which openssl stands for here.
#[test]
fn a_client_of_openssl_and_a_server_of_rustls_accept_each_other() {
    let node = Node::new("");
    let printed = node.ok("--for ann").stdout;
    let certificate = node.certificate(&printed, "ann.crt").display().to_string();
    let key = node.path("ann.key");
    fs::write(&key, node.decoded(&printed, "client-key-data")).unwrap();
    let ca = node.path("ca.crt");
    fs::write(&ca, node.decoded(&printed, "certificate-authority-data")).unwrap();

    let now = Timestamp::now();
    let authority = Authority::open_or_create(&pki::directory(&node.path("root")), "boat-7", now).unwrap();
    let serving = authority.server(&Names::new("boat-7", []), now).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_client_cert_verifier(verifier);
    let config = Arc::new(config.with_single_cert(vec![serving.certificate], serving.key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();

    let (certificate, key, ca) = (&*certificate, &*key.display().to_string(), &*ca.display().to_string());
    let client = ["s_client", "-connect", &address, "-CAfile", ca, "-verify_return_error", "-verify_ip", "127.0.0.1"];
    for (identity, accepted) in [(&["-cert", certificate, "-key", key][..], true), (&[], false)] {
        let config = config.clone();
        let socket = listener.try_clone().unwrap();
        // The subject of the client, or None if the handshake failed.
        let server = std::thread::spawn(move || {
            let mut socket = socket.accept().unwrap().0;
            socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
            let mut connection = ServerConnection::new(config).unwrap();
            while connection.is_handshaking() {
                connection.complete_io(&mut socket).ok()?;
            }
            let peer = x509::read(&connection.peer_certificates()?[0]).unwrap();
            connection.send_close_notify();
            let _ = connection.complete_io(&mut socket);
            Some((Role::of(&peer), peer.common_name))
        });
        let (ok, output) = openssl(&[&client[..], identity].concat());
        let subject = server.join().unwrap();
        assert_eq!(subject, accepted.then(|| (Some(Role::Edit), Some("ann".to_owned()))), "{output}");
        assert!(!accepted || ok && output.contains("Verify return code: 0 (ok)"), "{output}");
    }
}
