use super::*;
use crate::net::https::tests::server::{Ca, Options, Server};
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// A signature that was created with `openssl dgst -sha256 -hmac`, for the payload `payload` with a line break.
const SIGNED: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6IjA3NDAxYiJ9..cbzFTPzHxmMBW2Y2PQ3PQ8TCunAEm7E5dUjmEdM-ie8";

fn token() -> Token {
    Token::parse("07401b.f395accd246ae52d").unwrap()
}

/// Returns the signature of the payload.
fn sign(header: &Value, payload: &str, secret: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(header.to_string());
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(payload));
    let mut block = [0_u8; 64];
    block[..secret.len()].copy_from_slice(secret.as_bytes());
    let inner = Sha256::digest([&block.map(|b| b ^ 0x36)[..], message.as_bytes()].concat());
    let code = Sha256::digest([&block.map(|b| b ^ 0x5c)[..], &inner[..]].concat());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(code))
}

fn answer(data: &Value) -> ApiResponse {
    ApiResponse { status: 200, retry_after: None, body: json!({ "data": data }).to_string().into_bytes() }
}

#[test]
fn the_signature_of_another_program_is_accepted() {
    assert!(is_signed("payload\n", SIGNED, &token()));
    assert!(!is_signed("payload", SIGNED, &token()));
}

#[test]
fn only_the_signature_of_the_token_counts() {
    let header = json!({ "alg": "HS256", "kid": "07401b" });
    let good = sign(&header, "text", "f395accd246ae52d");
    assert!(is_signed("text", &good, &token()));
    for (payload, signature) in [
        ("other", good.clone()),
        ("text", sign(&header, "text", "0000000000000000")),
        ("text", sign(&json!({ "alg": "none", "kid": "07401b" }), "text", "f395accd246ae52d")),
        ("text", sign(&json!({ "alg": "HS256", "kid": "07401c" }), "text", "f395accd246ae52d")),
        ("text", good.replace("..", ".")),
        ("text", format!("{}..", good.split("..").next().unwrap())),
        ("text", "..".to_owned()),
        ("text", String::new()),
        ("text", "\u{e4}..%".to_owned()),
    ] {
        assert!(!is_signed(payload, &signature, &token()), "{signature}");
    }
}

#[test]
fn an_answer_without_the_token_names_the_remedy() {
    let good = sign(&json!({ "alg": "HS256", "kid": "07401b" }), "k", "f395accd246ae52d");
    let response = answer(&json!({ "kubeconfig": "k", "jws-kubeconfig-07401b": good }));
    assert_eq!(signed_kubeconfig(&response, &token()), Ok("k".into()));
    for (data, why) in [
        (json!({}), "has no kubeconfig"),
        (json!({ "kubeconfig": ["k"] }), "has no kubeconfig"),
        (json!({ "kubeconfig": "k" }), "does not know the token 07401b"),
        (json!({ "kubeconfig": "k", "jws-kubeconfig-07401c": good }), "does not know the token 07401b"),
        (json!({ "kubeconfig": "other", "jws-kubeconfig-07401b": good }), "has not signed"),
    ] {
        let error = signed_kubeconfig(&answer(&data), &token()).unwrap_err();
        assert!(error.contains(why) && !error.contains("f395"), "{error}");
    }
    for body in ["", "[]", "null", "<html>"] {
        let response = ApiResponse { status: 200, retry_after: None, body: body.into() };
        assert!(signed_kubeconfig(&response, &token()).is_err());
    }
}

#[test]
fn every_ca_has_to_have_one_of_the_keys() {
    let (ca, other) = (Ca::new(), Ca::new());
    let contents = |pem: &str| {
        let data = STANDARD.encode(pem);
        let text = format!(
            "clusters: [{{name: '', cluster: {{server: 'https://a:6443', certificate-authority-data: {data}}}}}]"
        );
        Contents::parse(text.as_bytes(), Path::new("/")).unwrap()
    };
    let (ours, both) = (contents(&ca.pem), contents(&format!("{}{}", other.pem, ca.pem)));
    let pins = |of: &Contents| Pins::Hashes(hashes(of));
    assert!(check_pins(&ours, &pins(&ours)).is_ok() && check_pins(&both, &pins(&both)).is_ok());
    assert!(check_pins(&ours, &Pins::Unsafe).is_ok());
    // A second CA beside the right one.
    assert!(check_pins(&both, &pins(&ours)).is_err());
    let error = check_pins(&ours, &pins(&contents(&other.pem))).unwrap_err();
    assert!(error.contains(&hashes(&ours)[0].to_string()), "{error}");
    assert!(check_pins(&ours, &Pins::Hashes(Vec::new())).is_err());
}

#[test]
fn a_cluster_info_with_other_content_is_an_error() {
    for text in [
        "",
        "[]",
        "clusters: []",
        "clusters: [{name: a}]",
        "clusters: [{cluster: {server: 'https://a'}}]",
        "clusters: [{cluster: {server: 'https://a', certificate-authority-data: '!'}}]",
        "clusters: [{cluster: {server: 'https://a', certificate-authority-data: YQ==}}]",
        "clusters: [{cluster: {}}, {cluster: {}}]",
    ] {
        assert!(Contents::parse(text.as_bytes(), Path::new("/nonexistent")).is_err(), "{text}");
    }
}

/// Runs the discovery with a server that sends these responses, one for each request. Returns the result and the
/// number of requests.
fn discovered(ca: &Ca, pins: Pins, answers: &[String]) -> (Result<Contents, (DiscoveryStage, String)>, usize) {
    let certified = ca.server("127.0.0.1", (2020, 2100));
    let server = Server::start(&Options { certified, client_ca: None, protocol: b"h2", max_streams: 100 });
    let address = server.address.to_string();
    let client = std::thread::spawn(move || discover(&address, &token(), &pins));
    let mut count = 0;
    while !client.is_finished() {
        if let Ok(exchange) = server.requests.recv_timeout(Duration::from_millis(20)) {
            assert_eq!(exchange.head.uri().path(), "/api/v1/namespaces/kube-public/configmaps/cluster-info");
            exchange.answer(200, &[], answers.get(count).map_or("{}", String::as_str));
            count += 1;
        }
    }
    (client.join().unwrap(), count)
}

/// Returns a signed cluster-info with this CA.
fn cluster_info(ca: &Ca, server: &str) -> String {
    let data = STANDARD.encode(&ca.pem);
    let kubeconfig =
        format!("clusters: [{{name: '', cluster: {{server: '{server}', certificate-authority-data: {data}}}}}]");
    let signature = sign(&json!({ "alg": "HS256", "kid": "07401b" }), &kubeconfig, "f395accd246ae52d");
    json!({ "data": { "kubeconfig": kubeconfig, "jws-kubeconfig-07401b": signature } }).to_string()
}

#[test]
fn a_cluster_is_found_if_both_answers_are_equal_and_the_ca_verifies_the_server() {
    let (ca, other) = (Ca::new(), Ca::new());
    let info = cluster_info(&ca, "https://a:6443");
    let (found, count) = discovered(&ca, Pins::Unsafe, &[info.clone(), info.clone()]);
    let found = found.map_err(|(_, why)| why).unwrap();
    assert_eq!((found.server.as_str(), count), ("https://a:6443", 2));
    let pins = Pins::Hashes(hashes(&found));
    assert!(discovered(&ca, pins.clone(), &[info.clone(), info.clone()]).0.is_ok());
    // The second response differs, although it is also signed.
    let (result, _) = discovered(&ca, pins.clone(), &[info.clone(), cluster_info(&ca, "https://b:6443")]);
    assert!(matches!(&result, Err((DiscoveryStage::Verified, why)) if why.contains("differently")));
    // Someone who knows the token presents another CA.
    let of_other = cluster_info(&other, "https://a:6443");
    let (result, count) = discovered(&ca, pins, &[of_other.clone(), of_other.clone()]);
    assert!(
        matches!(&result, Err((DiscoveryStage::Authority, why)) if why.contains("does not match: its hash"))
            && count == 1
    );
    // Without a pin, the CA must at least have signed the server's certificate.
    let (result, count) = discovered(&ca, Pins::Unsafe, &[of_other.clone(), of_other]);
    assert!(matches!(&result, Err((DiscoveryStage::Verified, why)) if why.contains("not signed by")) && count == 1);
}
