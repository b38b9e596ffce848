//! A node of a cluster to which far more pods are bound than it can run (C17).

use crate::{PODS, Resources};
use allocation_counter::measure;
use serde_json::{Value, json};
use std::collections::VecDeque;
use wherry::api::cluster::request::{ApiRequest, ApiResponse, BodyDelivery, Method};
use wherry::api::manifest_report::ManifestReport;
use wherry::api::node_facts::NodeFacts;
use wherry::api::time::{Boot, Now, Wall};
use wherry::engine::config::{ClusterConfig, EngineConfig};
use wherry::engine::effect::Effect;
use wherry::engine::event::{Answer, ApiEvent, Event};
use wherry::engine::node::Engine;
use wherry::engine::op::OpId;

fn pod(number: usize) -> String {
    json!({
        "metadata": { "name": format!("pod-{number:05}"), "namespace": "default", "uid": format!("uid-{number}"), "resourceVersion": "1" },
        "spec": { "nodeSelector": { "no": "such" }, "containers": [{ "name": "main", "image": "none" }],
                  "automountServiceAccountToken": false, "enableServiceLinks": false },
        "status": { "phase": "Pending" },
    })
    .to_string()
}

/// The answer of a server that never answers a change of a pod.
fn answer(op: OpId, request: &ApiRequest, pods: usize) -> Vec<Event> {
    let done = |status, body: Value| {
        let result = Ok(ApiResponse { status, retry_after: None, body: body.to_string().into_bytes() });
        Event::Api(ApiEvent::Done { op, result })
    };
    let path = request.path.split('?').next().unwrap_or_default();
    let list = |kind: &str| json!({ "kind": kind, "apiVersion": "v1", "metadata": { "resourceVersion": "1" } });
    let metadata = json!({ "name": "node", "uid": "uid", "resourceVersion": "1" });
    match (request.method, request.reading) {
        (Method::Get, BodyDelivery::Items) if path == "/api/v1/pods" => {
            let item = |number| Event::Api(ApiEvent::Item { op, json: pod(number).into_bytes() });
            (0..pods).map(item).chain([done(200, list("PodList"))]).collect()
        }
        (Method::Get, BodyDelivery::Items) if path.ends_with("/services") => vec![done(200, list("ServiceList"))],
        (Method::Get, BodyDelivery::Items) => {
            let json = json!({ "metadata": metadata }).to_string().into_bytes();
            vec![Event::Api(ApiEvent::Item { op, json }), done(200, list("NodeList"))]
        }
        (Method::Get, BodyDelivery::Whole) => {
            vec![done(200, json!({ "kind": "Node", "apiVersion": "v1", "metadata": metadata }))]
        }
        (Method::Patch, _) if !path.contains("/pods/") => {
            vec![done(200, json!({ "kind": "Node", "apiVersion": "v1", "metadata": metadata }))]
        }
        _ => Vec::new(),
    }
}

/// The bytes that the engine holds with this number of pods that are bound to it, and the number of those that it has read completely.
fn held(pods: usize) -> (i64, usize) {
    let allocatable = Resources::from([(PODS, 110)]);
    let node = NodeFacts { name: "node".into(), capacity: allocatable.clone(), allocatable, ..NodeFacts::default() };
    let cluster = Some(ClusterConfig::default());
    let mut engine = Engine::new(EngineConfig { node, cluster, ..EngineConfig::default() });
    let now = Now { boot: Boot(1_000_000_000), wall: Wall(1_800_000_000_000_000_000) };
    let held = measure(|| {
        let mut events: VecDeque<Event> =
            [Event::Records(Vec::new()), Event::Directories(Vec::new()), Event::Manifests(ManifestReport::default())]
                .into();
        while let Some(event) = events.pop_front() {
            for effect in engine.step(event, now) {
                match effect {
                    Effect::Record { op, .. } => events.push_back(Event::Done { op, result: Ok(Answer::Ok) }),
                    Effect::Api { op, request, .. } => events.extend(answer(op, &request, pods)),
                    _ => {}
                }
            }
        }
    });
    (held.bytes_current, engine.pods().len())
}

#[test]
fn c17_twenty_thousand_bound_pods_are_held_in_little_more_than_those_that_the_node_can_run() {
    let (few, read) = held(220);
    assert_eq!(read, 220);
    let (many, read) = held(20_000);
    assert_eq!(read, 220);
    // Ten thousand names and UIDs.
    assert!(many - few < 5_000_000, "{few} bytes, then {many}");
}
