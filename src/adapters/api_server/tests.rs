//! The adapter against a real server.

use super::*;
use crate::api::cluster::request::{ApiError, ApiRequest, ApiResponse, BodyDelivery, Content, Method};
use crate::api::time::Boot;
use crate::engine::op::OpId;
use crate::net::https::tests::server::{Ca, Control, Exchange, Options, Server};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mio::{Events, Poll, Token};
use std::time::{Duration, Instant};

const TOKENS: [Token; 2] = [Token(1), Token(2)];

struct Rig {
    server: Server,
    api: ApiServer,
    poll: Poll,
    now: Boot,
    arrived: Vec<Arrived>,
    last: u64,
}

/// Returns credentials with a client certificate and a token.
fn credentials(ca: &Ca, address: &std::net::SocketAddr, token: &str) -> Credentials {
    let client = ca.client("system:node:a");
    let [authority, certificate, key] = [&ca.pem, &client.certificate, &client.key].map(|pem| STANDARD.encode(pem));
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://{address}/prefix', \
         certificate-authority-data: {authority}}}}}]\n\
         users: [{{name: u, user: {{token: {token}, client-certificate-data: {certificate}, \
         client-key-data: {key}}}}}]\n"
    );
    Credentials::parse(&text).unwrap()
}

impl Rig {
    fn new(limits: AnswerLimits) -> (Rig, Ca) {
        let ca = Ca::new();
        let server = Server::start(&Options {
            certified: ca.server("127.0.0.1", (2020, 2100)),
            client_ca: Some(ca.der()),
            protocol: b"h2",
            max_streams: 100,
        });
        let api = ApiServer::new(credentials(&ca, &server.address, "first"), limits, TOKENS);
        let poll = Poll::new().unwrap();
        (Rig { server, api, poll, now: Boot(1_000_000_000_000), arrived: Vec::new(), last: 0 }, ca)
    }

    fn until<T>(&mut self, mut found: impl FnMut(&mut Rig) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let mut events = Events::with_capacity(16);
            self.poll.poll(&mut events, Some(Duration::from_millis(2))).unwrap();
            events.iter().for_each(|event| self.api.ready(event.token()));
            while self.api.drive(self.poll.registry(), self.now, &mut self.arrived) {}
            if let Some(result) = found(self) {
                return result;
            }
            assert!(Instant::now() < end, "still waiting; so far: {:?}", self.arrived);
        }
    }

    fn get(&mut self, reading: BodyDelivery, deadline: Option<Boot>) -> OpId {
        self.call(Method::Get, None, reading, deadline)
    }

    fn call(
        &mut self,
        method: Method,
        body: Option<(Content, String)>,
        reading: BodyDelivery,
        deadline: Option<Boot>,
    ) -> OpId {
        self.last += 1;
        let id = OpId(self.last);
        self.api.call(id, ApiRequest { method, path: "/api/v1/x?a=b".to_owned(), body, reading }, deadline);
        id
    }

    fn request(&mut self) -> Exchange {
        self.until(|rig| rig.server.requests.try_recv().ok())
    }

    fn done(&mut self, id: OpId) -> Result<ApiResponse, ApiError> {
        self.until(|rig| {
            rig.arrived.iter().find_map(|arrived| match arrived {
                Arrived::Done { id: done, result } if *done == id => Some(result.clone()),
                _ => None,
            })
        })
    }

    fn parts(&self) -> Vec<String> {
        let part = |arrived: &Arrived| match arrived {
            Arrived::Item { json, .. } | Arrived::Line { json, .. } => Some(String::from_utf8(json.clone()).unwrap()),
            _ => None,
        };
        self.arrived.iter().filter_map(part).collect()
    }
}

fn whole(status: u16, body: &str) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse { status, retry_after: None, body: body.as_bytes().to_vec() })
}

#[test]
fn a_request_has_its_headers_its_body_and_the_token() {
    let (mut rig, _) = Rig::new(AnswerLimits::default());
    let body = "{\"a\":1}".to_owned();
    let id = rig.call(Method::Patch, Some((Content::StrategicMergePatch, body)), BodyDelivery::Whole, None);
    let exchange = rig.request();
    assert_eq!((exchange.head.method().as_str(), exchange.body.as_slice()), ("PATCH", &b"{\"a\":1}"[..]));
    assert_eq!(exchange.head.uri().path_and_query().map(|p| p.as_str()), Some("/prefix/api/v1/x?a=b"));
    let agent = exchange.header("user-agent").unwrap();
    assert!(agent.starts_with("wherry/") && agent.contains(" (linux/"), "{agent}");
    assert_eq!(exchange.header("accept"), Some("application/json"));
    assert_eq!(exchange.header("content-type"), Some("application/strategic-merge-patch+json"));
    assert_eq!(exchange.header("content-length"), Some("7"));
    assert_eq!(exchange.header("authorization"), Some("Bearer first"));
    exchange.answer(200, &[], "{}");
    assert_eq!(rig.done(id), whole(200, "{}"));
    let address = rig.server.address.to_string();
    assert_eq!(rig.arrived.first(), Some(&Arrived::Connected { address }));
}

#[test]
fn the_items_of_a_list_arrive_one_by_one() {
    let (mut rig, _) = Rig::new(AnswerLimits::default());
    let id = rig.get(BodyDelivery::Items, None);
    let mut exchange = rig.request();
    let mut stream = exchange.begin(200, &[]);
    stream
        .send_data(Bytes::from("{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[{\"a\":1},{\"b"), false)
        .unwrap();
    rig.until(|rig| (rig.parts() == ["{\"a\":1}"]).then_some(()));
    stream.send_data(Bytes::from("\":2}]}\n"), true).unwrap();
    assert_eq!(rig.done(id), whole(200, "{\"metadata\":{\"resourceVersion\":\"7\"}}"));
    assert_eq!(rig.parts(), ["{\"a\":1}", "{\"b\":2}"]);
}

#[test]
fn the_lines_of_a_watch_arrive_one_by_one() {
    let (mut rig, _) = Rig::new(AnswerLimits::default());
    let id = rig.get(BodyDelivery::Lines, None);
    let mut exchange = rig.request();
    let mut stream = exchange.begin(200, &[]);
    stream.send_data(Bytes::from("{\"type\":\"ADDED\"}\n{\"typ"), false).unwrap();
    rig.until(|rig| (rig.parts() == ["{\"type\":\"ADDED\"}"]).then_some(()));
    stream.send_data(Bytes::from("e\":\"BOOKMARK\"}\n"), false).unwrap();
    rig.until(|rig| (rig.parts().len() == 2).then_some(()));
    stream.send_data(Bytes::new(), true).unwrap();
    assert_eq!(rig.done(id), whole(200, ""));
    assert_eq!(rig.parts()[1], "{\"type\":\"BOOKMARK\"}");
}

#[test]
fn a_list_or_a_watch_that_is_cut_short_is_no_answer() {
    let (mut rig, _) = Rig::new(AnswerLimits::default());
    for (reading, text, why) in [
        (BodyDelivery::Items, "{\"items\":[{}", "GET /prefix/api/v1/x: the list is cut short"),
        (BodyDelivery::Items, "<html>", "GET /prefix/api/v1/x: not a valid JSON list (at byte 0)"),
        (BodyDelivery::Lines, "{\"type\"", "GET /prefix/api/v1/x: the watch ended in the middle of a line"),
    ] {
        let id = rig.get(reading, None);
        rig.request().answer(200, &[], text);
        assert_eq!(rig.done(id), Err(ApiError::Unknown(why.to_owned())));
    }
}

#[test]
fn a_refusal_is_delivered_as_a_whole_with_its_retry_after() {
    let (mut rig, _) = Rig::new(AnswerLimits::default());
    for reading in [BodyDelivery::Whole, BodyDelivery::Items, BodyDelivery::Lines] {
        let id = rig.get(reading, None);
        rig.request().answer(429, &[("retry-after", "13")], "{\"kind\":\"Status\"}");
        let retry_after = Some(Duration::from_secs(13));
        let body = b"{\"kind\":\"Status\"}".to_vec();
        assert_eq!(rig.done(id), Ok(ApiResponse { status: 429, retry_after, body }));
    }
    let id = rig.get(BodyDelivery::Whole, None);
    rig.request().answer(503, &[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], "");
    assert_eq!(rig.done(id), whole(503, ""));
    assert_eq!(rig.parts(), [""; 0]);
}

#[test]
fn an_answer_an_item_and_a_line_have_a_limit() {
    let (mut rig, _) = Rig::new(AnswerLimits { whole: 1000, part: 100 });
    let long = "x".repeat(500_000);
    for (reading, text) in [
        (BodyDelivery::Whole, long.clone()),
        (BodyDelivery::Items, format!("{{\"items\":[{{}},\"{long}\"]}}")),
        (BodyDelivery::Items, format!("{{\"items\":[],\"a\":\"{long}\"}}")),
        (BodyDelivery::Lines, format!("{{}}\n{long}\n")),
    ] {
        let id = rig.get(reading, None);
        let exchange = rig.request();
        exchange.answer(200, &[], &text);
        let result = rig.done(id);
        assert!(
            matches!(&result, Err(ApiError::TooLarge(why)) if why.starts_with("GET /prefix/api/v1/x: ")),
            "{result:?}"
        );
    }
    assert_eq!(rig.parts(), ["{}", "{}"], "the items and lines before it");
    // The connection is still usable.
    let id = rig.get(BodyDelivery::Whole, None);
    let exchange = rig.request();
    assert_eq!(exchange.connection, 0);
    exchange.answer(200, &[], "{}");
    assert_eq!(rig.done(id), whole(200, "{}"));
    let ends = rig.arrived.iter().filter(|a| matches!(a, Arrived::Done { .. })).count();
    assert_eq!(ends, 5, "one for each request");
}

#[test]
fn a_cancelled_request_and_one_that_is_late_end_as_unknown() {
    let (mut rig, _) = Rig::new(AnswerLimits::default());
    let watch = rig.get(BodyDelivery::Lines, None);
    let late = rig.get(BodyDelivery::Whole, Some(rig.now + Duration::from_secs(10)));
    let _exchanges = [rig.request(), rig.request()];
    rig.api.cancel(watch);
    assert_eq!(rig.done(watch), Err(ApiError::Unknown("GET /prefix/api/v1/x: cancelled".to_owned())));
    assert_eq!(rig.api.next_deadline(), Some(rig.now + Duration::from_secs(10)));
    rig.now = rig.now + Duration::from_secs(10);
    assert_eq!(rig.done(late), Err(ApiError::Unknown("GET /prefix/api/v1/x: deadline exceeded".to_owned())));
}

#[test]
fn a_server_that_disconnects_leaves_the_result_unknown() {
    let (mut rig, _) = Rig::new(AnswerLimits::default());
    let id = rig.get(BodyDelivery::Items, None);
    let mut exchange = rig.request();
    let mut stream = exchange.begin(200, &[]);
    stream.send_data(Bytes::from("{\"items\":[{}"), false).unwrap();
    rig.until(|rig| (rig.parts().len() == 1).then_some(()));
    rig.server.control(Control::Close);
    assert!(matches!(rig.done(id), Err(ApiError::Unknown(_))));
    assert!(rig.arrived.iter().any(|arrived| matches!(arrived, Arrived::Disconnected { .. })));
}

#[test]
fn replaced_credentials_are_used_by_new_requests() {
    let (mut rig, ca) = Rig::new(AnswerLimits::default());
    let old = rig.get(BodyDelivery::Whole, None);
    let first = rig.request();
    rig.api.replace_credentials(credentials(&ca, &rig.server.address, "second"));
    let new = rig.get(BodyDelivery::Whole, None);
    let second = rig.request();
    assert_eq!((second.header("authorization"), second.connection), (Some("Bearer second"), 1));
    second.answer(200, &[], "");
    first.answer(200, &[], "");
    assert_eq!((rig.done(new), rig.done(old)), (whole(200, ""), whole(200, "")));
}

#[test]
fn a_ca_of_another_cluster_is_named_as_the_reason() {
    let (mut rig, _) = Rig::new(AnswerLimits::default());
    rig.api.replace_credentials(credentials(&Ca::new(), &rig.server.address, "t"));
    let id = rig.get(BodyDelivery::Whole, None);
    let why = format!(
        "https://{}: the server's certificate is not signed by the configured CA; correct the CA, or the address if \
         this is the wrong server",
        rig.server.address
    );
    assert_eq!(rig.done(id), Err(ApiError::NotSent(why)));
}
