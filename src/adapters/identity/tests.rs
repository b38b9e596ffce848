use super::files::{CERTIFICATE, NEXT_KEY, SERVING_CERTIFICATE, SERVING_NEXT_KEY};
use super::*;
use crate::api::cluster::certificate::{Purpose, ServingNames};
use crate::api::cluster::requests::Signer;
use crate::net::https::tests::server::Ca;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn setup() -> (tempfile::TempDir, IdentityDirectory) {
    let root = tempfile::tempdir().unwrap();
    let directory = IdentityDirectory::new(root.path());
    drop(directory.lock().unwrap());
    (root, directory)
}

#[test]
fn a_repeated_request_has_the_same_key_and_name_until_it_is_refused() {
    let (root, directory) = setup();
    let first = directory.request("n1", &Purpose::Client).unwrap();
    let path = super::directory(root.path()).join(NEXT_KEY);
    let key = fs::read(&path).unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(directory.request("n1", &Purpose::Client).unwrap().name, first.name);
    assert_eq!(fs::read(&path).unwrap(), key);
    assert_ne!(directory.request("n2", &Purpose::Client).unwrap().name, first.name);
    directory.forget_key(Signer::Client).unwrap();
    assert_ne!(directory.request("n1", &Purpose::Client).unwrap().name, first.name);
    // A damaged key is replaced.
    fs::write(&path, "damaged").unwrap();
    assert_ne!(directory.request("n1", &Purpose::Client).unwrap().name, first.name);
    assert!(!fs::read_to_string(&path).unwrap().contains("damaged"));
}

#[test]
fn only_the_certificate_of_the_node_and_its_key_is_stored() {
    let (root, directory) = setup();
    let ca = Ca::new();
    let [own, other] = ["system:node:n1", "system:node:n2"].map(|name| ca.client(name));
    let import = |certificate: &str, key: &str| import(&directory, "n1", certificate.as_bytes(), key.as_bytes());
    let path = super::directory(root.path()).join(CERTIFICATE);
    for (certificate, key, why) in [
        ("", own.key.as_str(), "not in PEM"),
        (&own.certificate, "", "not a private key"),
        (&own.certificate, &other.key, "a different key"),
        (&other.certificate, &other.key, "is for \"system:node:n2\""),
    ] {
        let error = import(certificate, key).unwrap_err();
        assert!(error.contains(why), "{error}");
        assert!(!path.exists());
    }
    // The file of a kubelet, which contains both the certificate and the key.
    import(&format!("{}{}", own.key, own.certificate), &own.key).unwrap();
    assert_eq!(mode(&path), 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.replace('\r', ""), format!("{}{}", own.certificate, own.key).replace('\r', ""));
    let error = store(&directory, "n1", Signer::Client, &own.certificate).unwrap_err();
    assert!(error.contains("no longer exists"), "{error}");
    directory.request("n1", &Purpose::Client).unwrap();
    assert!(store(&directory, "n1", Signer::Client, &own.certificate).unwrap_err().contains("a different key"));
    directory.remove_all().unwrap();
    assert!(!super::directory(root.path()).exists());
    directory.remove_all().unwrap();
}

fn names(addresses: &[&str]) -> ServingNames {
    ServingNames { dns: ["n1".to_owned()].into(), addresses: addresses.iter().map(|a| a.parse().unwrap()).collect() }
}

#[test]
fn a_serving_certificate_has_files_of_its_own_and_the_names_of_its_request() {
    let root = tempfile::tempdir().unwrap();
    // No join has created the directory.
    let directory = IdentityDirectory::new(root.path());
    let nothing = |why: &str| match serving(&directory, "n1").unwrap() {
        FoundServing::Nothing(text) => assert!(text.contains(why), "{text}"),
        FoundServing::Certificate(_) => panic!("a certificate"),
    };
    nothing("serving.pem does not exist");
    let wanted = Purpose::Serving(names(&["10.0.0.7", "fd00::7"]));
    let request = directory.request("n1", &wanted).unwrap();
    let path = |name: &str| super::directory(root.path()).join(name);
    assert_eq!((mode(&path("")), mode(&path(SERVING_NEXT_KEY))), (0o700, 0o600));
    // The name is derived from the key and the names.
    assert_eq!(directory.request("n1", &wanted).unwrap().name, request.name);
    assert_ne!(directory.request("n1", &Purpose::Serving(names(&["10.0.0.8"]))).unwrap().name, request.name);
    let client = directory.request("n1", &Purpose::Client).unwrap();
    assert_ne!(client.name, request.name);
    let key = fs::read_to_string(path(SERVING_NEXT_KEY)).unwrap();
    let text = String::from_utf8(STANDARD.decode(&request.request).unwrap()).unwrap();
    assert!(text.starts_with("-----BEGIN CERTIFICATE REQUEST") && !text.contains("PRIVATE"), "{text}");
    let ca = Ca::new();
    let issued = ca.serving("n1", &key, &["n1", "10.0.0.7", "fd00::7"], (2020, 2100));
    let foreign = ca.serving("n2", &key, &["n1"], (2020, 2100));
    let expired = ca.serving("n1", &key, &["n1"], (2020, 2021));
    for (wrong, why) in [(foreign, "is for \"system:node:n2\""), (expired, "expired at 2021-01-01T00:00:00Z")] {
        assert!(store(&directory, "n1", Signer::Serving, &wrong).unwrap_err().contains(why));
    }
    let stored = serving_in_use(store(&directory, "n1", Signer::Serving, &issued).unwrap());
    assert!(stored.covers(&wanted) && !path(SERVING_NEXT_KEY).exists() && path(NEXT_KEY).exists());
    assert_eq!(mode(&path(SERVING_CERTIFICATE)), 0o600);
    let FoundServing::Certificate(found) = serving(&directory, "n1").unwrap() else { panic!("no certificate") };
    assert!(found.in_use == stored && found.chain.len() == 1);
    let other = serving(&directory, "n2").unwrap();
    assert!(matches!(other, FoundServing::Nothing(text) if text.contains("not for \"system:node:n2\"")));
    // If Wherry was killed between the last two steps of `store`, the next request has another key.
    fs::write(path(SERVING_NEXT_KEY), &key).unwrap();
    assert_ne!(directory.request("n1", &wanted).unwrap().name, request.name);
    for damaged in ["", "damaged", &issued] {
        fs::write(path(SERVING_CERTIFICATE), damaged).unwrap();
        nothing("serving.pem: ");
    }
    directory.remove_serving().unwrap();
    assert!(!path(SERVING_CERTIFICATE).exists() && !path(SERVING_NEXT_KEY).exists());
    directory.request("n1", &wanted).unwrap();
    directory.remove_all().unwrap();
    assert!(!path("").exists());
}

#[test]
fn a_second_join_is_refused() {
    let (_root, directory) = setup();
    let held = directory.lock().unwrap();
    assert!(directory.lock().unwrap_err().contains("another wherry join or leave is running"));
    drop(held);
    assert!(directory.lock().is_ok());
}
