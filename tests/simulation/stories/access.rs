//! The access to the node's server: who may use it, with and without the API server.

use super::cluster::{cluster, member};
use crate::story::node_with;
use crate::world::World;
use wherry::api::cluster::reviews::{Attributes, Credential};
use wherry::engine::cluster::access::{AccessRequest, Authorization, MOST_REVIEWS, Policy};
use wherry::engine::config::{ClusterConfig, EngineConfig};
use wherry::engine::control::{Reply, Request, RequestId};
use wherry::engine::event::Event;

const TOKENS: &str = "POST /apis/authentication.k8s.io/v1/tokenreviews";
const DECISIONS: &str = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";
const PROXY: Attributes = Attributes { verb: "get", subresources: &["proxy"] };
const PODS: Attributes = Attributes { verb: "get", subresources: &["pods", "proxy"] };

fn certificate(user: &str) -> Credential {
    Credential::new(Some((user.to_owned(), Vec::new())), None)
}

fn token(token: &str) -> Credential {
    Credential::new(None, Some(&format!("Bearer {token}")))
}

impl World {
    fn ask_for(&mut self, credential: Credential, attributes: Attributes) -> RequestId {
        self.ask(Request::Access(AccessRequest { credential, attributes }))
    }

    /// The status and the user, or the text of the error.
    fn access(&mut self, credential: Credential, attributes: Attributes) -> (u16, String) {
        let id = self.ask_for(credential, attributes);
        // Two reviews, each with an attempt on a broken connection.
        self.run_ms(100);
        self.access_of(id)
    }

    fn access_of(&self, id: RequestId) -> (u16, String) {
        match self.users.answers.get(&id) {
            Some(Ok(Reply::Permitted { user })) => (200, user.clone()),
            Some(Err(error)) => (error.status(), error.to_string()),
            other => panic!("{other:?}: {}", self.trace()),
        }
    }

    fn permit(&mut self, permission: &str) {
        self.api.permissions.insert(permission.to_owned());
    }
}

fn ok(user: &str) -> (u16, String) {
    (200, user.to_owned())
}

#[test]
fn c6_a_yes_counts_for_five_minutes_and_a_no_for_thirty_seconds() {
    let mut w = member();
    w.permit("ann get proxy");
    for (seconds, reviews) in [(0, 1), (298, 1), (3, 2)] {
        w.run(seconds);
        assert_eq!(w.access(certificate("ann"), PROXY), ok("ann"));
        assert_eq!(w.api.count(DECISIONS), reviews, "{}", w.trace());
    }
    let text = "Forbidden (user=bob, verb=get, resource=nodes, subresource(s)=[proxy])";
    for (seconds, reviews) in [(0, 3), (28, 3), (3, 4)] {
        w.run(seconds);
        assert_eq!(w.access(certificate("bob"), PROXY), (403, text.to_owned()));
        assert_eq!(w.api.count(DECISIONS), reviews, "{}", w.trace());
    }
    // Another verb is another question.
    assert_eq!(w.access(certificate("ann"), Attributes { verb: "create", ..PROXY }).0, 403);
    assert_eq!(w.api.count(TOKENS), 0);
}

#[test]
fn c6_the_user_of_a_token_is_known_for_two_minutes() {
    let mut w = member();
    w.permit("system:serviceaccount:a:b get proxy");
    w.api.tokens.insert("t0ken".into(), "system:serviceaccount:a:b".into());
    for (seconds, reviews) in [(0, 1), (118, 1), (3, 2)] {
        w.run(seconds);
        assert_eq!(w.access(token("t0ken"), PROXY), ok("system:serviceaccount:a:b"));
        assert_eq!((w.api.count(TOKENS), w.api.count(DECISIONS)), (reviews, 1), "{}", w.trace());
    }
    for (seconds, reviews) in [(0, 3), (118, 3), (3, 4)] {
        w.run(seconds);
        assert_eq!(w.access(token("guessed"), PROXY), (401, "Unauthorized".to_owned()));
        assert_eq!(w.api.count(TOKENS), reviews);
    }
    assert_eq!(w.access(Credential::Nothing, PROXY).0, 401);
    // The dump and the history have no token.
    assert!(!w.engine.dump().to_string().contains("t0ken") && !w.trace().contains("t0ken"));
}

#[test]
fn c6_one_of_several_subresources_is_enough() {
    let mut w = member();
    w.permit("ann get proxy");
    assert_eq!(w.access(certificate("ann"), PODS), ok("ann"));
    assert_eq!(w.api.count(DECISIONS), 2);
    assert_eq!(w.access(certificate("ann"), PODS), ok("ann"));
    w.permit("eve get pods");
    assert_eq!(w.access(certificate("eve"), PODS), ok("eve"));
    assert_eq!(w.api.count(DECISIONS), 3);
    let (status, text) = w.access(certificate("bob"), PODS);
    assert!(status == 403 && text.contains("subresource(s)=[pods proxy]"), "{text}");
}

#[test]
fn c6_equal_questions_share_a_review_and_a_client_can_go() {
    let mut w = member();
    w.permit("ann get proxy");
    w.api.tokens.insert("t".into(), "ann".into());
    let ids: Vec<_> = (0..5).map(|_| w.ask_for(certificate("ann"), PROXY)).collect();
    let by_token: Vec<_> = (0..5).map(|_| w.ask_for(token("t"), PROXY)).collect();
    w.client_gone(ids[0]);
    w.client_gone(by_token[0]);
    w.run(1);
    for id in ids[1..].iter().chain(&by_token[1..]) {
        assert_eq!(w.access_of(*id), ok("ann"));
    }
    assert!(!w.users.answers.contains_key(&ids[0]) && !w.users.answers.contains_key(&by_token[0]));
    assert_eq!((w.api.count(TOKENS), w.api.count(DECISIONS)), (1, 1), "{}", w.trace());
}

#[test]
fn c6_reviews_in_flight_are_limited() {
    let mut w = member();
    let ids: Vec<_> = (0..MOST_REVIEWS + 5).map(|n| w.ask_for(token(&format!("guess-{n}")), PROXY)).collect();
    w.run(1);
    let of = |status| ids.iter().filter(|id| w.access_of(**id).0 == status).count();
    assert_eq!((of(401), of(429)), (MOST_REVIEWS, 5));
    assert_eq!(w.access(token("again"), PROXY).0, 401);
}

#[test]
fn c6_without_the_server_the_last_yes_of_a_certificate_counts_for_a_day() {
    let mut w = member();
    w.permit("ann get proxy");
    w.permit("eve get proxy");
    w.api.tokens.insert("t".into(), "eve".into());
    assert_eq!(w.access(certificate("ann"), PODS), ok("ann"));
    assert_eq!(w.access(token("t"), PROXY), ok("eve"));
    w.api_away(true);
    w.run(3600);
    assert_eq!(w.access(certificate("ann"), PODS), ok("ann"));
    for credential in [token("t"), certificate("bob")] {
        let (status, text) = w.access(credential, PROXY);
        assert!(status == 503 && text.contains("connection refused") && text.contains("wherry logs"), "{text}");
    }
    w.run(22 * 3600);
    assert_eq!(w.access(certificate("ann"), PODS), ok("ann"));
    w.run(3600);
    assert_eq!(w.access(certificate("ann"), PODS).0, 503);
    // A user who is not permitted any more stays so.
    w.api_away(false);
    w.run(10);
    assert_eq!(w.access(certificate("ann"), PODS), ok("ann"));
    w.api.permissions.clear();
    w.run(301);
    assert_eq!(w.access(certificate("ann"), PODS).0, 403);
    w.api_away(true);
    w.run(60);
    assert_eq!(w.access(certificate("ann"), PODS).0, 503);
}

#[test]
fn c6_a_yes_of_a_token_does_not_count_without_the_server() {
    let mut w = World::started_with(Policy { tokens: Some(std::time::Duration::from_secs(7200)), ..Policy::default() });
    w.permit("eve get proxy");
    w.api.tokens.insert("t".into(), "eve".into());
    assert_eq!(w.access(token("t"), PROXY), ok("eve"));
    w.api_away(true);
    // The user is known, the permission is not fresh.
    w.run(3600);
    assert_eq!(w.access(token("t"), PROXY).0, 503);
}

#[test]
fn c6_a_review_on_a_broken_connection_is_repeated_once() {
    for (breaking, status) in [(1, 200), (2, 503)] {
        let mut w = member();
        w.permit("ann get proxy");
        w.api.breaking = breaking;
        assert_eq!(w.access(certificate("ann"), PROXY).0, status);
        assert_eq!(w.api.count(DECISIONS), 2, "{}", w.trace());
        assert_eq!(w.access(certificate("ann"), PROXY), ok("ann"));
    }
}

#[test]
fn c6_a_server_that_refuses_the_review_gives_no_access() {
    let mut w = member();
    w.permit("ann get proxy");
    assert_eq!(w.access(certificate("ann"), PROXY), ok("ann"));
    w.run(301);
    for (status, answer) in [(403, 500), (500, 200), (503, 200), (429, 200)] {
        w.api.no_reviews = Some(status);
        let (code, text) = w.access(certificate("ann"), PROXY);
        assert!(code == answer && (code == 200 || text.contains("system:node")), "{status}: {text}");
    }
}

impl World {
    fn started_with(reviews: Policy) -> World {
        let config = cluster();
        let cluster = config.cluster.clone().map(|cluster| ClusterConfig { reviews, ..cluster });
        let mut w = node_with(EngineConfig { cluster, ..config });
        w.run(5);
        w
    }
}

#[test]
fn c6_the_configuration_can_permit_more_or_less() {
    let default = Policy::default();
    let mut w = World::started_with(Policy { authorization: Authorization::AlwaysAllow, ..default.clone() });
    assert_eq!(w.access(certificate("ann"), PROXY), ok("ann"));
    assert_eq!(w.access(Credential::Nothing, PROXY).0, 401);
    assert_eq!(w.api.count(DECISIONS), 0);
    let mut w = World::started_with(Policy { anonymous: true, tokens: None, ..default });
    assert_eq!(w.access(Credential::Nothing, PROXY).0, 403);
    w.permit("system:anonymous get metrics");
    let metrics = Attributes { verb: "get", subresources: &["metrics"] };
    assert_eq!(w.access(Credential::Nothing, metrics), ok("system:anonymous"));
    assert_eq!((w.access(token("t"), PROXY).0, w.api.count(TOKENS)), (401, 0));
}

#[test]
fn c6_the_node_reports_the_port_that_listens() {
    let mut w = member();
    for port in [10250, 0] {
        w.step(Event::NodeServer { port });
        w.run(1);
        let reported = &w.api.node().unwrap()["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
        assert_eq!(*reported, port, "{}", w.trace());
    }
}
