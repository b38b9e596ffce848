//! Single requests to a real server.

use super::*;
use crate::api::cluster::requests;
use crate::net::https::tests::server::{Ca, Exchange, Options, Server};
use std::thread;

const TIMEOUT: Duration = Duration::from_secs(20);

fn server(ca: &Ca) -> Server {
    let certified = ca.server("127.0.0.1", (2020, 2100));
    Server::start(&Options { certified, client_ca: None, protocol: b"h2", max_streams: 100 })
}

/// Returns the result of a request that the server answers with `answer`. What `answer` returns is kept until the
/// client has a result.
fn answered<T>(answer: impl FnOnce(Exchange) -> T) -> Result<Answered, ApiError> {
    let server = server(&Ca::new());
    let address = server.address.to_string();
    let client = thread::spawn(move || {
        let mut api = Blocking::new(Credentials::unverified(&address).unwrap()).unwrap();
        api.call(requests::read_version(), TIMEOUT)
    });
    let _kept = answer(server.requests.recv_timeout(TIMEOUT).unwrap());
    client.join().unwrap()
}

#[test]
fn an_answer_has_its_status_its_body_and_the_clock_of_the_server() {
    let found = answered(|exchange| {
        assert_eq!(exchange.header("authorization"), None);
        exchange.answer(503, &[("date", "Wed, 25 Nov 2026 02:03:04 GMT"), ("retry-after", "7")], "later");
    });
    let Answered { response, date } = found.unwrap();
    assert_eq!((response.status, response.retry_after), (503, Some(Duration::from_secs(7))));
    assert_eq!((response.body, date.unwrap().to_string().as_str()), (b"later".to_vec(), "2026-11-25T02:03:04Z"));
}

#[test]
fn an_endless_answer_and_a_broken_one_are_errors() {
    let endless = answered(|mut exchange| {
        let mut stream = exchange.begin(200, &[]);
        stream.send_data(vec![b' '; 5 << 20].into(), false).unwrap();
        // The stream stays open until the client gives up.
        stream
    });
    assert!(matches!(endless, Err(ApiError::TooLarge(_))), "{endless:?}");
    let broken = answered(|mut exchange| drop(exchange.begin(200, &[])));
    assert!(matches!(broken, Err(ApiError::Unknown(_))), "{broken:?}");
}

#[test]
fn a_server_of_another_ca_gets_no_request() {
    let server = server(&Ca::new());
    let data = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(Ca::new().pem)
    };
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: c}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://{}', certificate-authority-data: {data}}}}}]\n",
        server.address
    );
    let mut api = Blocking::new(Credentials::parse(&text).unwrap()).unwrap();
    let error = api.call(requests::read_version(), TIMEOUT).unwrap_err();
    assert!(matches!(&error, ApiError::NotSent(why) if why.contains("not signed by the configured CA")), "{error:?}");
    assert!(server.requests.try_recv().is_err());
}

#[test]
fn an_address_has_a_host_and_a_port() {
    for (address, authority) in
        [("10.0.0.1:6443", "10.0.0.1:6443"), ("a.example", "a.example:443"), ("[fd00::1]:1", "[fd00::1]:1")]
    {
        assert_eq!(Credentials::unverified(address).unwrap().authority(), authority);
    }
    for address in ["", "https://a:1", "a:1/x", "user@a:1", "a b:1", "a:b"] {
        assert!(Credentials::unverified(address).is_err(), "{address}");
    }
}
