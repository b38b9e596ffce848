use super::*;
use crate::net::https::tests::server::Ca;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fs;

const TOKEN: &str = "secret-token";

/// Returns a kubeconfig with these fields of the cluster and of the user, which are in YAML flow style.
fn config(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{cluster: k, user: u}}\n\
         clusters:\n- name: other\n  cluster: {{server: 'http://x'}}\n- name: k\n  cluster: {{{cluster}}}\n\
         users:\n- name: u\n  user: {{{user}}}\n"
    )
}

fn error(text: &str) -> String {
    parse(text.as_bytes(), Path::new("/nonexistent")).unwrap_err()
}

#[test]
fn files_are_relative_to_the_kubeconfig() {
    let (dir, ca) = (tempfile::tempdir().unwrap(), Ca::new());
    let client = ca.client("system:node:a");
    for (name, content) in [
        ("ca.crt", &ca.pem),
        ("c.pem", &format!("{}{}", client.key, client.certificate)),
        ("token", &format!("{TOKEN}\n")),
    ] {
        fs::write(dir.path().join(name), content).unwrap();
    }
    let cluster = "server: 'https://api.example:6443', certificate-authority: ca.crt, tls-server-name: kubernetes";
    let user = "client-certificate: c.pem, client-key: c.pem, tokenFile: token, token: other";
    let path = dir.path().join("kubeconfig");
    fs::write(&path, config(cluster, user)).unwrap();
    let credentials = Credentials::read(&path).unwrap();
    assert_eq!(credentials.server(), "https://api.example:6443");
    assert_eq!(credentials.peer.tls.name(), "kubernetes");
    let certificate = crate::net::x509::read(credentials.client_certificate().unwrap()).unwrap();
    assert_eq!(certificate.common_name.as_deref(), Some("system:node:a"));
    let token = credentials.token.as_ref().unwrap();
    assert_eq!(token.to_str().unwrap(), format!("Bearer {TOKEN}"));
    assert!(!format!("{credentials:?} {token:?}").contains(TOKEN));
    // A file that is missing.
    fs::remove_file(dir.path().join("token")).unwrap();
    let error = Credentials::read(&path).unwrap_err();
    let start = format!("{}: users[\"u\"].user.tokenFile: {}: ", path.display(), dir.path().join("token").display());
    assert!(error.starts_with(&start) && error.contains("provide the file"), "{error}");
    let error = Credentials::read(&dir.path().join("missing")).unwrap_err();
    assert!(error.ends_with("provide a kubeconfig there"), "{error}");
}

#[test]
fn a_user_without_credentials_is_anonymous() {
    let data = STANDARD.encode(Ca::new().pem);
    let cluster = format!("server: 'https://[fd00::1]', certificate-authority-data: {data}");
    let credentials = parse(config(&cluster, "").as_bytes(), Path::new("/")).unwrap();
    assert_eq!(
        (credentials.server().as_str(), credentials.peer.tls.name().as_str()),
        ("https://[fd00::1]:443", "fd00::1")
    );
    assert!(credentials.token.is_none() && credentials.client_certificate().is_none());
}

#[test]
fn each_problem_names_its_field_and_a_remedy() {
    let ca = Ca::new();
    let client = ca.client("a");
    let [authority, certificate, key, other] =
        [&ca.pem, &client.certificate, &client.key, &ca.client("b").key].map(|pem| STANDARD.encode(pem));
    let good = format!("server: 'https://a', certificate-authority-data: {authority}");
    let (cluster, user) = ("clusters[\"k\"].cluster", "users[\"u\"].user");
    for (cluster_fields, user_fields, field, remedy) in [
        ("server: 'https://a'", "", format!("{cluster}.certificate-authority:"), "set it"),
        ("server: 'http://a'", "", format!("{cluster}.server:"), "https://HOST:PORT"),
        ("certificate-authority: x", "", format!("{cluster}.server:"), "set it"),
        (
            "server: 'https://a', certificate-authority: x",
            "",
            format!("{cluster}.certificate-authority:"),
            "correct the path",
        ),
        (
            "server: 'https://a', certificate-authority-data: '%'",
            "",
            format!("{cluster}.certificate-authority-data:"),
            "base64 -w0",
        ),
        (
            "server: 'https://a', certificate-authority-data: eA==",
            "",
            format!("{cluster}.certificate-authority-data:"),
            "-----BEGIN",
        ),
        (
            &format!("{good}, insecure-skip-tls-verify: true"),
            "",
            format!("{cluster}.insecure-skip-tls-verify:"),
            "remove it",
        ),
        (&format!("{good}, proxy-url: 'http://p'"), "", format!("{cluster}.proxy-url:"), "remove it"),
        (&format!("{good}, tls-server-name: 'a b'"), "", format!("{cluster}.tls-server-name:"), "DNS name"),
        (&good, "exec: {command: x}", format!("{user}.exec:"), "use client-certificate"),
        (&good, "auth-provider: {name: x}", format!("{user}.auth-provider:"), "use client-certificate"),
        (&good, "username: x, password: secret-token", format!("{user}.username:"), "use client-certificate"),
        (&good, "as: x", format!("{user}.as:"), "remove it"),
        (&good, "token: 'secret-token secret-token'", format!("{user}.token:"), "provide one line"),
        (&good, "token: 17", format!("{user}.token:"), "put it in quotes"),
        (&good, &format!("client-certificate-data: {certificate}"), format!("{user}.client-key:"), "set it"),
        (&good, &format!("client-key-data: {key}"), format!("{user}.client-certificate:"), "set it"),
        (
            &good,
            &format!("client-certificate-data: {certificate}, client-key-data: {certificate}"),
            format!("{user}.client-key-data:"),
            "provide the key",
        ),
        (
            &good,
            &format!("client-certificate-data: {certificate}, client-key-data: {other}"),
            format!("{user}.client-certificate:"),
            "the key that belongs to it",
        ),
    ] {
        let error = error(&config(cluster_fields, user_fields));
        assert!(error.starts_with(&field) && error.contains(remedy), "{error}");
        assert!(!error.contains(TOKEN), "{error}");
    }
    for (text, expected) in [
        ("", "it must contain one document"),
        ("a: [", ""),
        ("kind: Config", "kubeconfig.current-context: missing"),
        ("current-context: c", "contexts[\"c\"].context: missing"),
        ("current-context: c\ncontexts: [{name: c, context: {}}]", "contexts[\"c\"].context.cluster: missing"),
        ("current-context: c\ncontexts: [{name: c, context: {cluster: k}}]", "clusters[\"k\"].cluster: missing"),
    ] {
        let found = error(text);
        assert!(found.starts_with(expected) && !found.is_empty(), "{text}: {found}");
    }
}
