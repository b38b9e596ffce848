use super::*;
use crate::net::x509;
use jiff::{SignedDuration, Timestamp};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn now() -> Timestamp {
    "2026-11-24T12:00:00Z".parse().unwrap()
}

fn later(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

/// Returns a root directory, and the directory of the certificates in it.
fn root() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let directory = directory(root.path());
    (root, directory)
}

fn open(directory: &Path) -> Authority {
    Authority::open_or_create(directory, "boat-7", now()).unwrap()
}

fn refused(directory: &Path, now: Timestamp) -> String {
    Authority::open_or_create(directory, "boat-7", now).map(|_| ()).unwrap_err()
}

fn names(addresses: &[&str]) -> Names {
    Names::new("boat-7", addresses.iter().map(|a| a.parse().unwrap()))
}

fn parts(pem: &str) -> x509::Certificate {
    x509::read(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap()
}

/// Reports whether a server that trusts the CA accepts the client.
fn is_accepted(authority: &Authority, client: &CertificateDer<'_>, at: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(at.as_second().try_into().unwrap()));
    verifier.verify_client_cert(client, &[], at).is_ok()
}

/// Returns the files below the directory and their modes, except the lock and the records.
fn files(directory: &Path) -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|e| e.unwrap())
        .map(|e| format!("{:o} {}", e.metadata().unwrap().permissions().mode() & 0o7777, e.file_name().display()))
        .collect();
    found.sort();
    found
}

#[test]
fn the_certificates_belong_together_and_say_what_they_are_for() {
    let (_root, directory) = root();
    let authority = open(&directory);
    let ca = parts(authority.certificate_pem());
    assert_eq!(ca.common_name.as_deref(), Some("wherry-ca@boat-7"));
    assert_eq!(ca.not_before.to_string(), "2026-11-24T11:55:00Z");
    assert_eq!(authority.expires().to_string(), "2036-11-24T12:00:00Z");
    let server = authority.server(&names(&["10.0.0.5", "0.0.0.0", "::"]), now()).unwrap();
    let read = x509::read(&server.certificate).unwrap();
    assert_eq!((read.issuer.as_slice(), read.common_name.as_deref()), (ca.subject.as_slice(), Some("boat-7")));
    assert_eq!(read.dns_names, ["boat-7", "localhost"]);
    let addresses: Vec<String> = read.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.5", "127.0.0.1", "::1"]);
    assert_eq!(read.not_after.to_string(), "2027-11-24T12:00:00Z");
    assert!(!is_accepted(&authority, &server.certificate, now()), "a server is no client");
    for (role, organization) in [(Role::Edit, "wherry:edit"), (Role::View, "wherry:view")] {
        let issued = authority.client("größe: #1", role, YEAR, now()).unwrap();
        let der = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
        let read = x509::read(&der).unwrap();
        assert_eq!(read.common_name.as_deref(), Some("größe: #1"));
        assert_eq!(read.organizations, [organization]);
        assert_eq!(Role::of(&read), Some(role));
        assert_eq!((read.serial.len(), read.not_after), (16, issued.client.expires));
        assert!(is_accepted(&authority, &der, now()) && is_accepted(&authority, &der, later(-240)));
        assert!(!is_accepted(&authority, &der, later(366 * 24 * 3600)));
        assert!(issued.key_pem.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    }
    // A certificate with the organisations of two roles gives no role.
    let two = x509::Certificate { organizations: vec!["wherry:view".into(), "wherry:edit".into()], ..ca.clone() };
    assert_eq!((Role::of(&two), Role::of(&ca)), (None, None));
}

#[test]
fn nobody_else_can_read_the_files_and_no_key_is_printed() {
    let (root, directory) = root();
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    let authority = open(&directory);
    let server = authority.server(&names(&[]), now()).unwrap();
    let client = authority.client("ann", Role::Edit, YEAR, now()).unwrap().client;
    authority.revoke("ann", now()).unwrap();
    assert_eq!(
        files(&directory),
        ["600 ca.crt", "600 ca.key", "600 lock", "600 revoked", "600 server.crt", "600 server.key", "700 clients"]
    );
    assert_eq!(files(&directory.join("clients")), [format!("600 {}.json", client.serial)]);
    assert!(files(root.path()).contains(&"700 kubectl".to_owned()));
    let key = rustls::pki_types::PrivateKeyDer::from_pem_file(directory.join("server.key")).unwrap();
    assert_eq!(key.secret_der(), server.key.secret_der());
    let bytes = format!("{:?}", &key.secret_der()[40..60]);
    assert!(!format!("{server:?}").contains(&bytes[1..bytes.len() - 1]), "{server:?}");
}

#[test]
fn the_serving_certificate_is_kept_until_it_has_to_be_replaced() {
    let (_root, directory) = root();
    let authority = open(&directory);
    let start = later(1000);
    let first = authority.server(&names(&["10.0.0.5"]), start).unwrap();
    assert!(first.is_new);
    // Two thirds of a year after its start.
    assert_eq!(first.renew.to_string(), "2027-07-25T20:15:00Z");
    let same = |names: &Names, at| {
        let next = authority.server(names, at).unwrap();
        assert_eq!(next.is_new, next.certificate != first.certificate);
        !next.is_new
    };
    let key = fs::read(directory.join("server.key")).unwrap();
    let back = || {
        fs::write(directory.join("server.crt"), pem(&first.certificate)).unwrap();
        fs::write(directory.join("server.key"), &key).unwrap();
    };
    assert!(same(&names(&["10.0.0.5"]), start) && same(&names(&[]), first.renew), "fewer names");
    assert!(!same(&names(&["10.0.0.6"]), start), "another address");
    back();
    assert!(!same(&Names::new("boat-8", []), start), "another name");
    back();
    assert!(!same(&names(&[]), first.renew + SignedDuration::from_secs(1)), "less than a third is left");
    back();
    assert!(!same(&names(&[]), start - SignedDuration::from_secs(301)), "not valid yet");
    for damaged in ["server.crt", "server.key"] {
        for content in [&b""[..], b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            back();
            fs::write(directory.join(damaged), content).unwrap();
            assert!(!same(&names(&[]), start), "{damaged}: {content:?}");
        }
        back();
        fs::remove_file(directory.join(damaged)).unwrap();
        assert!(!same(&names(&[]), start), "without {damaged}");
    }
    // The certificate of a CA with the same name and another key.
    back();
    drop(authority);
    fs::remove_file(directory.join("ca.crt")).unwrap();
    fs::remove_file(directory.join("ca.key")).unwrap();
    let next = open(&directory).server(&names(&[]), start).unwrap();
    assert!(next.is_new);
}

fn pem(der: &[u8]) -> String {
    // The standard prescribes lines of 64 characters, but readers do not require them.
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", base64(der))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let bits = chunk.iter().fold(0_u32, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        let digit = |i: usize| char::from(DIGITS[(bits >> (18 - 6 * i) & 63) as usize]);
        (0..4).map(|i| if i <= chunk.len() { digit(i) } else { '=' }).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

#[test]
fn an_interrupted_creation_is_completed() {
    let (_model, complete) = root();
    let authority = open(&complete);
    authority.server(&names(&[]), now()).unwrap();
    drop(authority);
    let content = |name: &str| fs::read(complete.join(name)).unwrap();
    let order = ["ca.key", "ca.crt", "server.key", "server.crt"];
    // After `n` files, a part of the next one was written to the temporary file.
    for n in 0..=order.len() {
        let (_root, directory) = root();
        fs::create_dir(&directory).unwrap();
        for name in &order[..n] {
            fs::write(directory.join(name), content(name)).unwrap();
        }
        if let Some(next) = order.get(n) {
            fs::write(directory.join(format!("{next}.new")), &content(next)[..50]).unwrap();
        }
        let authority = open(&directory);
        let server = authority.server(&names(&[]), now()).unwrap();
        assert_eq!(server.is_new, n < order.len(), "{n} files");
        let client = authority.client("ann", Role::View, YEAR, now()).unwrap();
        let der = CertificateDer::from_pem_slice(client.certificate_pem.as_bytes()).unwrap();
        assert!(is_accepted(&authority, &der, now()), "{n} files");
        for name in &order[..n.min(2)] {
            assert_eq!(fs::read(directory.join(name)).unwrap(), content(name), "{n} files");
        }
        assert!(files(&directory).iter().all(|f| !f.ends_with(".new")), "{:?}", files(&directory));
        drop(authority);
        // The result is the same as without an interruption: nothing is created again.
        let again = open(&directory).server(&names(&[]), now()).unwrap();
        assert!(!again.is_new && again.certificate == server.certificate, "{n} files");
    }
    // The old certificate with the next key: a replacement that was interrupted between the two.
    let (_root, directory) = root();
    open(&directory).server(&names(&[]), now()).unwrap();
    fs::write(directory.join("server.key"), content("server.key")).unwrap();
    assert!(open(&directory).server(&names(&[]), now()).unwrap().is_new);
    // A record whose certificate was not handed out.
    fs::write(directory.join("clients/00.json.new"), b"{").unwrap();
    assert_eq!(clients(&directory).unwrap(), (vec![], vec![]));
}

#[test]
fn a_ca_of_no_use_is_an_error_with_a_remedy() {
    let (_other, other) = root();
    drop(open(&other));
    let remedy =
        |error: &str| assert!(error.contains("restore the file from a backup, or remove the directory"), "{error}");
    for (file, content, why) in [
        ("ca.key", Some(vec![0xff]), "ca.key: is not a private key in PEM (PKCS #8)"),
        (
            "ca.key",
            Some(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_vec()),
            "is not a private key",
        ),
        ("ca.key", None, "ca.crt exists, but "),
        ("ca.crt", Some(b"x".to_vec()), "ca.crt: is not a certificate in PEM"),
        ("ca.crt", Some(pem(&[0x30, 0]).into_bytes()), "ca.crt: invalid certificate: "),
        ("ca.crt", Some(fs::read(other.join("ca.crt")).unwrap()), "does not belong to the key"),
    ] {
        let (_root, directory) = root();
        drop(open(&directory));
        match content {
            Some(content) => fs::write(directory.join(file), content).unwrap(),
            None => fs::remove_file(directory.join(file)).unwrap(),
        }
        let error = refused(&directory, now());
        assert!(error.contains(why), "{error}");
        remedy(&error);
    }
    let (_root, directory) = root();
    let end = open(&directory).expires();
    assert!(Authority::open_or_create(&directory, "boat-7", end).is_ok());
    let error = refused(&directory, end + SignedDuration::from_secs(1));
    assert!(error.contains("ca.crt expired at 2036-11-24T12:00:00Z"), "{error}");
    remedy(&error);
}

#[test]
fn a_wrong_clock_is_named_and_nothing_is_created() {
    let (root, directory) = root();
    for time in ["1970-01-01T00:00:05Z", "2025-12-31T23:59:59Z", "9000-01-01T00:00:00Z"] {
        let error = refused(&directory, time.parse().unwrap());
        assert!(error.starts_with(&format!("the clock of this machine is wrong: it shows {time}")), "{error}");
        assert!(error.contains("set the clock"), "{error}");
    }
    assert_eq!(files(root.path()), [""; 0]);
    drop(open(&directory));
    let error = refused(&directory, later(-301));
    assert!(error.starts_with("the clock of this machine is wrong: it shows 2026-11-24T11:54:59Z"), "{error}");
    assert!(Authority::open_or_create(&directory, "boat-7", later(-300)).is_ok());
    let last: Timestamp = "8999-12-31T23:59:59Z".parse().unwrap();
    let (_root, directory) = self::root();
    let authority = Authority::open_or_create(&directory, "boat-7", last).unwrap();
    assert!(authority.server(&names(&[]), last).is_ok());
}

#[test]
fn a_client_certificate_ends_with_the_ca_at_the_latest() {
    let (_root, directory) = root();
    let authority = open(&directory);
    for lifetime in [YEAR * 11, Duration::MAX] {
        assert_eq!(authority.client("ann", Role::Edit, lifetime, now()).unwrap().client.expires, authority.expires());
    }
    let short = authority.client("ann", Role::Edit, Duration::from_secs(1), now()).unwrap().client;
    assert_eq!(short.expires, later(1));
    assert!(authority.client("ann", Role::Edit, Duration::ZERO, now()).is_err());
    let end = authority.expires();
    assert!(authority.server(&names(&[]), end - SignedDuration::from_hours(1)).unwrap().renew < end);
}

#[test]
fn the_name_of_a_client_is_one_line_of_64_characters_and_not_a_name_of_kubernetes() {
    for good in ["a", "root", "größe: \"#1\" {x}", "- a", &"ü".repeat(64), "systematic", "null"] {
        assert_eq!(check_name(good), Ok(()), "{good}");
    }
    for (bad, why) in [
        ("", "the name has 0 characters"),
        (&*"a".repeat(65), "the name has 65 characters; it must have 1 to 64"),
        ("a\nb", "\"a\\nb\" contains a control character"),
        ("a\u{202e}b", "contains a control character"),
        ("system:masters", "begins with \"system:\""),
    ] {
        let error = check_name(bad).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    let (_root, directory) = root();
    assert!(open(&directory).client("a\0", Role::Edit, YEAR, now()).is_err());
    assert_eq!(clients(&directory).unwrap().0, []);
}

#[test]
fn a_name_or_a_serial_number_is_revoked_and_servers_notice_it() {
    let (_root, directory) = root();
    assert!(!Revoked::load(&directory).unwrap().contains(&[1]), "there is no directory yet");
    let authority = open(&directory);
    let issue = |name: &str, lifetime| authority.client(name, Role::Edit, lifetime, now()).unwrap();
    let [a1, a2, b] = ["ann", "ann", "bob"].map(|name| issue(name, YEAR));
    let serial = |issued: &Issued| parts(&issued.certificate_pem).serial;
    let mut server = Revoked::load(&directory).unwrap();
    assert!(!server.changed() && !server.contains(&serial(&a1)));
    let mut revoked = authority.revoke("ann", now()).unwrap();
    revoked.sort_by_key(|c| c.serial != a1.client.serial);
    assert_eq!(revoked, [a1.client.clone(), a2.client.clone()]);
    assert!(server.changed());
    server = Revoked::load(&directory).unwrap();
    assert!(!server.changed());
    assert_eq!([&a1, &a2, &b].map(|c| server.contains(&serial(c))), [true, true, false]);
    // As openssl prints a serial number.
    let upper = b.client.serial.to_uppercase();
    let colons: Vec<&str> = (0..16).map(|i| &upper[2 * i..2 * i + 2]).collect();
    assert_eq!(authority.revoke(&colons.join(":"), later(5)).unwrap(), std::slice::from_ref(&b.client));
    assert!(server.changed());
    server = Revoked::load(&directory).unwrap();
    assert!(server.contains(&serial(&b)) && server.contains(&serial(&a1)));
    assert_eq!(authority.revoke("ann", now()).unwrap_err(), "\"ann\" is revoked already");
    assert!(authority.revoke("nobody", now()).unwrap_err().contains("no valid client certificate has the name"));
    // A later certificate of the same name is valid until it is revoked too.
    let a3 = issue("ann", YEAR);
    assert!(!Revoked::load(&directory).unwrap().contains(&serial(&a3)));
    assert_eq!(authority.revoke("ann", now()).unwrap(), [a3.client]);
    fs::remove_file(directory.join("revoked")).unwrap();
    assert!(server.changed());
}

#[test]
fn expired_certificates_leave_the_records_and_later_the_list_of_revoked_ones() {
    let (_root, directory) = root();
    let authority = open(&directory);
    let hour = Duration::from_secs(3600);
    let short = authority.client("short", Role::View, hour, now()).unwrap().client;
    let revoked = authority.client("revoked", Role::View, hour, now()).unwrap().client;
    authority.revoke("revoked", now()).unwrap();
    assert_eq!(clients(&directory).unwrap().0.len(), 2);
    assert!(authority.revoke("short", later(3601)).unwrap_err().contains("no valid client certificate"));
    let long = authority.client("long", Role::View, YEAR, later(3600)).unwrap().client;
    assert_eq!(clients(&directory).unwrap().0.len(), 3, "valid to the last second: {short:?}");
    let longer = authority.client("longer", Role::View, YEAR, later(3601)).unwrap().client;
    assert_eq!(clients(&directory).unwrap(), (vec![long, longer], vec![]));
    // A clock that is set back must not revive it.
    let serials = || revocations(&directory).unwrap().into_iter().map(|r| r.serial).collect::<Vec<_>>();
    authority.revoke("long", later(3601 + 29 * 24 * 3600)).unwrap();
    assert!(serials().contains(&revoked.serial));
    authority.revoke("longer", later(3601 + 31 * 24 * 3600)).unwrap();
    assert!(!serials().contains(&revoked.serial) && serials().len() == 2);
}

#[test]
fn damaged_records_are_reported_and_a_damaged_list_of_revoked_certificates_is_an_error() {
    let (_root, directory) = root();
    let authority = open(&directory);
    let good = authority.client("ann", Role::Edit, YEAR, now()).unwrap().client;
    let record = fs::read_to_string(directory.join(format!("clients/{}.json", good.serial))).unwrap();
    fs::write(directory.join("clients/00.json"), &record).unwrap();
    fs::write(directory.join("clients/01.json"), record.replace("2026", "twenty")).unwrap();
    let (found, damaged) = clients(&directory).unwrap();
    assert_eq!(found, [good]);
    assert!(damaged[0].contains("00.json: contains the wrong serial number"), "{damaged:?}");
    assert!(damaged[1].contains("01.json: is damaged: ") && damaged[1].contains("is not a time"), "{damaged:?}");
    assert!(authority.revoke("bob", now()).unwrap_err().contains("00.json"));
    authority.revoke("ann", now()).unwrap();
    let text = fs::read_to_string(directory.join("revoked")).unwrap();
    for damage in [&text[..text.len() - 1], "", &text.replace("\"version\":1", "\"version\":2"), "[]"] {
        fs::write(directory.join("revoked"), damage).unwrap();
        let error = Revoked::load(&directory).map(|r| panic!("{r:?}")).unwrap_err();
        assert!(error.contains("revoked: is damaged (") && error.contains("restore it from a backup"), "{error}");
        assert!(authority.revoke("ann", now()).is_err());
    }
}

#[test]
fn concurrent_commands_exclude_each_other() {
    let (_root, directory) = root();
    let issue = &|i: usize| {
        let authority = open(&directory);
        authority.server(&names(&[]), now()).unwrap();
        let issued = authority.client(&format!("user-{i}"), Role::Edit, YEAR, now()).unwrap();
        authority.revoke(&issued.client.serial, now()).unwrap();
        (authority.certificate_pem().to_owned(), issued.client.serial)
    };
    let done: Vec<(String, String)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|i| scope.spawn(move || issue(i))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(done.iter().all(|(ca, _)| *ca == done[0].0), "one CA");
    let mut serials: Vec<&String> = done.iter().map(|(_, serial)| serial).collect();
    serials.sort();
    let mut revoked: Vec<String> = revocations(&directory).unwrap().into_iter().map(|r| r.serial).collect();
    revoked.sort();
    assert_eq!(revoked.iter().collect::<Vec<_>>(), serials, "no revocation is lost");
    assert_eq!(clients(&directory).unwrap().0.len(), 8);
}
