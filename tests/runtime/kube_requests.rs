//! The API for kubectl over TLS, with requests that no kubectl sends, and with clients that come and go.

use crate::support::agent::{Agent, patience};
use crate::support::api_client::{ApiClient, enable};
use crate::support::lab::Runtime;
use crate::support::spdy::{REMOTE_COMMAND, Spdy};
use crate::support::yaml::TRAP;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

fn serving(name: &str) -> (Agent, ApiClient) {
    let mut agent = Agent::prepare(name, &Runtime::shared());
    enable(&agent);
    agent.run();
    let client = ApiClient::new(&agent, &[]);
    agent.wait("the API is served", |_| client.get("/healthz").is_ok_and(|r| r.status == 200));
    (agent, client)
}

#[test]
fn each_refusal_is_a_status() {
    let (agent, edit) = serving("refusals");
    let view = ApiClient::new(&agent, &["--view"]);
    let pods = format!("/api/v1/namespaces/{}/pods", agent.namespace);
    let request = |method: &str, path: &str, host: &str, fields: &str, body: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\nConnection: close\r\n{fields}\r\n{body}",
            body.len()
        )
    };
    let get = |host: &str, fields: &str| request("GET", &pods, host, fields, "");
    let post = |fields: &str, body: &str| request("POST", &pods, "localhost", fields, body);
    let json = "Content-Type: application/json\r\n";
    let limit = 3 * 1024 * 1024;
    // The body of the first two never arrives.
    let head = |path: &str, length: usize| {
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{json}Content-Length: {length}\r\n\r\n{{")
    };
    for (client, request, code, reason) in [
        (&edit, head(&pods, limit + 1), 413, "RequestEntityTooLarge"),
        (&view, head(&pods, limit), 403, "Forbidden"),
        (&edit, head("/api/v1/namespaces/default/nothing", limit), 404, "NotFound"),
        (&edit, head("/version", limit), 405, "MethodNotAllowed"),
        (&edit, get("localhost", "Origin: https://example.com\r\n"), 403, "Forbidden"),
        (&edit, get("localhost", "Sec-Fetch-Site: cross-site\r\n"), 403, "Forbidden"),
        (&edit, get("example.com", ""), 403, "Forbidden"),
        (&edit, get("localhost:1", "Accept: text/html\r\n"), 406, "NotAcceptable"),
        (&edit, get("127.0.0.1", "Accept: application/yaml\r\n"), 406, "NotAcceptable"),
        (&edit, post("Content-Type: text/plain\r\n", "x"), 415, "UnsupportedMediaType"),
        (&edit, post("Content-Type: application/cbor\r\n", "x"), 415, "UnsupportedMediaType"),
        (&edit, post(json, "{"), 400, "BadRequest"),
        (&view, post(json, "{}"), 403, "Forbidden"),
        (&edit, request("PUT", "/version", "localhost", json, "{}"), 405, "MethodNotAllowed"),
        (&edit, get("localhost", "Transfer-Encoding: chunked\r\n"), 411, ""),
    ] {
        let mut connection = client.connect().expect("a connection");
        let response = connection.exchange(request.as_bytes()).unwrap_or_else(|e| panic!("{request}: {e}"));
        assert_eq!(response.status, code, "{request}: {}", response.body);
        assert!(response.head.contains("\r\nContent-Type: application/json\r\n"), "{request}: {}", response.head);
        let status: Value = serde_json::from_str(&response.body).expect("JSON");
        assert_eq!((&status["kind"], &status["status"]), (&"Status".into(), &"Failure".into()), "{request}");
        assert_eq!(status["code"], code, "{request}");
        assert_eq!(status["reason"].as_str().unwrap_or_default(), reason, "{request}: {status}");
    }
    let mut connection = edit.connect().expect("a connection");
    for _ in 0..2 {
        assert_eq!(connection.get(&pods, "").expect("a list").status, 200);
    }
    assert_eq!(std::fs::read_dir(agent.manifests()).expect("manifests").count(), 0);
}

/// The version of a list, and of each object by name.
fn versions(client: &ApiClient, path: &str) -> (u64, BTreeMap<String, u64>) {
    let list: Value = serde_json::from_str(&client.get(path).expect("a list").body).expect("JSON");
    let of = |object: &Value| -> u64 {
        object["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number")
    };
    let name = |object: &Value| object["metadata"]["name"].as_str().expect("a name").to_owned();
    let items = list["items"].as_array().expect("items");
    (of(&list), items.iter().map(|item| (name(item), of(item))).collect())
}

/// The events of a watch that ends after a second: type, name and version.
fn watch(client: &ApiClient, path: &str, after: u64) -> Vec<(String, String, u64)> {
    let watch = format!("{path}?watch=true&timeoutSeconds=1&resourceVersion={after}");
    let body = client.get(&watch).expect("a watch").body;
    let events = body.lines().map(|line| {
        let event: Value = serde_json::from_str(line).expect("JSON");
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        let metadata = &event["object"]["metadata"];
        let version = text(&metadata["resourceVersion"]).parse().unwrap_or_default();
        (text(&event["type"]), text(&metadata["name"]), version)
    });
    events.collect()
}

#[test]
fn a_client_that_was_away_misses_no_change() {
    let (agent, client) = serving("away");
    let pods = format!("/api/v1/namespaces/{}/pods", agent.namespace);
    for name in ["gone", "replaced", "same"] {
        agent.apply(name, TRAP);
        agent.wait_running(name);
    }
    let settings =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings, namespace: {}}}\n", agent.namespace);
    agent.write("settings.yaml", &settings);
    let path = format!("/api/v1/namespaces/{}/configmaps", agent.namespace);
    agent.wait("the ConfigMap is served", |_| versions(&client, &path).1.contains_key("settings"));
    let (before, objects) = versions(&client, &pods);
    assert_eq!(versions(&client, &pods), (before, objects.clone()), "each connection is a new one");

    // Without a connection.
    agent.delete("gone");
    agent.apply("replaced", &format!("{TRAP}      args: [second]\n"));
    agent.apply("new", TRAP);
    agent.wait_gone("gone");
    agent.wait("the successor runs", |a| {
        let args = |pod: &Value| pod["spec"]["containers"][0]["args"][0] == "second";
        a.pod("replaced").is_some_and(|pod| args(&pod) && crate::support::agent::is_running(&pod))
    });
    agent.wait_running("new");
    std::thread::sleep(Duration::from_millis(500));

    let events = watch(&client, &pods, before);
    let seen: Vec<(&str, &str)> = events.iter().map(|(kind, name, _)| (kind.as_str(), name.as_str())).collect();
    assert_eq!(seen.len(), 4, "{seen:?}");
    for expected in [("DELETED", "gone"), ("DELETED", "replaced"), ("ADDED", "replaced"), ("ADDED", "new")] {
        assert!(seen.contains(&expected), "{seen:?}");
    }
    let position = |of: (&str, &str)| seen.iter().position(|seen| *seen == of);
    assert!(position(("DELETED", "replaced")) < position(("ADDED", "replaced")), "{seen:?}");
    assert!(events.iter().map(|(_, _, version)| *version).is_sorted() && events[0].2 > before, "{events:?}");
    let (after, now) = versions(&client, &pods);
    assert_eq!(now.keys().map(String::as_str).collect::<Vec<_>>(), ["new", "replaced", "same"]);
    assert!(after > before && now["same"] == objects["same"], "{now:?} {objects:?}");
    // More removals than the agent remembers: the client has to list again.
    let (kept, _) = versions(&client, &path);
    for round in 0..2 {
        let more: Vec<String> = (0..150).map(|n| settings.replace("settings", &format!("r{round}-{n}"))).collect();
        agent.write("more.yaml", &more.join("---\n"));
        agent.wait("they are served", |_| versions(&client, &path).1.len() == 151);
        std::fs::remove_file(agent.manifests().join("more.yaml")).expect("removed");
        agent.wait("they are gone", |_| versions(&client, &path).1.len() == 1);
    }
    for (path, after) in [(&path, kept), (&pods, before)] {
        let expired = client.get(&format!("{path}?watch=true&resourceVersion={after}")).expect("an answer");
        assert_eq!(expired.status, 410, "{}", expired.body);
    }
    assert_eq!(watch(&client, &pods, after), [], "no removal of a pod is forgotten since");
}

/// The number of seconds until the end.
fn seconds_until_the_end(begun: Instant, client: &ApiClient, agent: &Agent) -> [f64; 2] {
    let path = format!("/api/v1/namespaces/{}/pods", agent.namespace);
    let mut watch = client.connect().expect("a connection");
    watch.start(format!("GET {path}?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).expect("a watch");
    watch.read_until(|received| received.windows(5).position(|w| w == b"ADDED")).expect("an event");
    let stream = client.connect().expect("a connection").into_stream();
    let exec = format!("{path}/web/exec?stdout=true&command=sleep&command=86400");
    let mut session = Spdy::start(stream, "localhost", &exec, REMOTE_COMMAND).expect("a session");
    let [_, stdout] = session.open([&[("streamtype", "error")], &[("streamtype", "stdout")]]).expect("streams");
    let end = std::thread::spawn(move || {
        let _ = session.receive(stdout, usize::MAX);
        begun.elapsed().as_secs_f64()
    });
    // Not a part of any event.
    assert!(watch.read_until(|received| received.ends_with(b"\0").then_some(0)).is_err());
    [begun.elapsed().as_secs_f64(), end.join().expect("the session")]
}

#[test]
fn watches_and_sessions_end_when_the_certificate_expires_or_is_revoked() {
    let (agent, other) = serving("expires");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let begun = Instant::now();
    let client = ApiClient::new(&agent, &["--expires", "5s"]);
    for seconds in seconds_until_the_end(begun, &client, &agent) {
        assert!(seconds > 3.0 && seconds < patience(60).as_secs_f64(), "{seconds}");
    }
    // TLS counts whole seconds.
    assert!(client.get("/version").map_or(true, |r| r.status == 401));
    assert!(agent.log().contains("the certificate of its client has expired"));
    let ends = std::thread::scope(|scope| {
        let ends = scope.spawn(|| seconds_until_the_end(Instant::now(), &other, &agent));
        agent.wait("a watch and a session", |a| {
            let dump = a.get("/debug/dump").expect("/debug/dump").body;
            dump.contains("\"session\"") && dump.contains("\"watching\"")
        });
        let revoked = agent.kubeconfig("revoke test");
        assert!(revoked.status.success(), "{revoked:?}");
        ends.join().expect("both end")
    });
    assert!(ends.iter().all(|seconds| *seconds < patience(60).as_secs_f64()));
}
