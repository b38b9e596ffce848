use super::*;
use crate::net::https::tests::server::Ca;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn setup() -> (tempfile::TempDir, Directory) {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::new(root.path());
    drop(directory.lock().unwrap());
    (root, directory)
}

#[test]
fn a_repeated_request_has_the_same_key_and_name_until_it_is_refused() {
    let (root, directory) = setup();
    let first = directory.request("n1").unwrap();
    let path = super::directory(root.path()).join(NEXT_KEY);
    let key = fs::read(&path).unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(directory.request("n1").unwrap().name, first.name);
    assert_eq!(fs::read(&path).unwrap(), key);
    assert_ne!(directory.request("n2").unwrap().name, first.name);
    directory.forget_key().unwrap();
    assert_ne!(directory.request("n1").unwrap().name, first.name);
    // A damaged key is replaced.
    fs::write(&path, "damaged").unwrap();
    assert_ne!(directory.request("n1").unwrap().name, first.name);
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
        (&own.certificate, &other.key, "another key"),
        (&other.certificate, &other.key, "is for \"system:node:n2\""),
    ] {
        let error = import(certificate, key).unwrap_err();
        assert!(error.contains(why), "{error}");
        assert!(!path.exists());
    }
    // The file of a kubelet: both in one.
    import(&format!("{}{}", own.key, own.certificate), &own.key).unwrap();
    assert_eq!(mode(&path), 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.replace('\r', ""), format!("{}{}", own.certificate, own.key).replace('\r', ""));
    let error = store(&directory, "n1", &own.certificate).unwrap_err();
    assert!(error.contains("does not exist any more"), "{error}");
    directory.request("n1").unwrap();
    assert!(store(&directory, "n1", &own.certificate).unwrap_err().contains("another key"));
    directory.remove_all().unwrap();
    assert!(!super::directory(root.path()).exists());
    directory.remove_all().unwrap();
}

#[test]
fn a_second_join_is_refused() {
    let (_root, directory) = setup();
    let held = directory.lock().unwrap();
    assert!(directory.lock().unwrap_err().contains("another wherry join or leave runs"));
    drop(held);
    assert!(directory.lock().is_ok());
}
