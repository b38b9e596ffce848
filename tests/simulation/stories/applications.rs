//! Objects of applications that Wherry only keeps and shows: their documents, namespaces, and network policies.

use super::deployments::probed;
use crate::story::*;
use crate::world::World;
use crate::world::handlers::BADLY;
use serde_json::{Value, json};
use wherry::api::control::DrainOutcome;
use wherry::api::document::context::NetworkPolicies;
use wherry::api::names::Uid;
use wherry::engine::control::{Reply, Request};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const NAMESPACES: &str = "/api/v1/namespaces";

fn document(kind: &str, name: &str, rest: &str) -> String {
    let version = match kind {
        "Role" | "ClusterRole" => "rbac.authorization.k8s.io/v1",
        "NetworkPolicy" => "networking.k8s.io/v1",
        _ => "v1",
    };
    format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: '{name}'}}{rest}}}\n")
}

/// The status of the answer to a request, and its body.
fn ask(w: &mut World, method: &'static str, path: &str, body: Value) -> (u16, Value) {
    let id = w.kubectl_sends(method, path, body);
    w.run_ms(10);
    let (status, text) = w.kubectl_answer(id).expect("an answer");
    (status, serde_json::from_str(text).unwrap_or_else(|_| text.into()))
}

fn get(w: &mut World, path: &str) -> (u16, Value) {
    ask(w, "GET", path, Value::Null)
}

/// The UID of a namespace. None: it does not exist.
fn uid(w: &mut World, name: &str) -> Option<String> {
    let (status, object) = get(w, &format!("{NAMESPACES}/{name}"));
    (status == 200).then(|| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn y30_objects_of_applications_are_kept_over_a_kill_and_an_error() {
    let mut w = node();
    let all = [
        document("ServiceAccount", "web", ", automountServiceAccountToken: false"),
        document("Role", "system:web", ", rules: [{verbs: [get], resources: [pods], apiGroups: ['']}]"),
        document("ClusterRole", "web", ", rules: []"),
    ];
    w.write_document("/m/app.yaml", Some(all.join("---\n")));
    w.run(5);
    assert_eq!(w.manifest_problems(), [""; 0]);
    let role = format!("{RBAC}/namespaces/default/roles/system:web");
    let accounts = format!("{NAMESPACES}/default/serviceaccounts");
    for kill in [false, true] {
        if kill {
            // The version on the disk is broken, and the record has the last good one (D2).
            w.write_document("/m/app.yaml", Some(all.join("---\n").replace("rules", "rulez")));
            w.run(3);
            w.restart_engine();
            w.run(5);
            assert_eq!(w.manifest_problems().len(), 2);
        }
        let (status, role) = get(&mut w, &role);
        assert_eq!((status, &role["rules"][0]["verbs"][0]), (200, &json!("get")));
        assert_eq!(role["metadata"]["namespace"], "default");
        let (status, of_cluster) = get(&mut w, &format!("{RBAC}/clusterroles/web"));
        assert_eq!((status, &of_cluster["metadata"]["namespace"]), (200, &Value::Null));
        assert_eq!(get(&mut w, &format!("{accounts}/web")).1["automountServiceAccountToken"], false);
    }
    w.write_document("/m/app.yaml", None);
    w.run(3);
    assert_eq!(get(&mut w, &role).0, 404);
}

#[test]
fn y30_of_two_documents_the_one_in_force_stays() {
    let mut w = node();
    let with = |labels: &str| {
        format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: shop, labels: {{from: {labels}}}}}}}\n")
    };
    w.write_document("/m/b.yaml", Some(with("b")));
    w.run(2);
    w.write_document("/m/a.yaml", Some(with("a")));
    w.run(2);
    let from = |w: &mut World| get(w, &format!("{NAMESPACES}/shop")).1["metadata"]["labels"]["from"].clone();
    assert_eq!(from(&mut w), "b");
    let problems = w.manifest_problems();
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.starts_with("/m/a.yaml: metadata.name: Duplicate value: \"shop\": the Namespace"), "{problem}");
    w.write_document("/m/b.yaml", None);
    w.run(3);
    assert_eq!((from(&mut w), w.manifest_problems().len()), (json!("a"), 0));
}

#[test]
fn y30_a_namespace_with_a_document_is_another_object_than_one_that_contains_pods() {
    let mut w = node();
    assert_eq!(uid(&mut w, "shop"), None);
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
    assert_eq!(ask(&mut w, "POST", NAMESPACES, object.clone()).0, 201);
    let created = uid(&mut w, "shop").expect("a namespace");
    assert_eq!(ask(&mut w, "POST", NAMESPACES, object.clone()).0, 409);
    let map = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "web", "namespace": "shop" },
    });
    assert_eq!(ask(&mut w, "POST", &format!("{NAMESPACES}/shop/serviceaccounts"), map).0, 201);

    // Its objects stay, so it exists without its document. kubectl sees that the UID has changed, and does not wait.
    let (status, deleted) = ask(&mut w, "DELETE", &format!("{NAMESPACES}/shop"), Value::Null);
    assert_eq!((status, deleted["details"]["uid"].as_str()), (200, Some(created.as_str())));
    let implicit = uid(&mut w, "shop").expect("a namespace");
    assert_ne!(implicit, created);
    let (status, why) = ask(&mut w, "DELETE", &format!("{NAMESPACES}/shop"), Value::Null);
    assert!(status == 403 && why.as_str().unwrap_or_default().contains("it has no manifest"), "{status} {why}");

    // A change gives it a document again.
    let labelled =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop", "labels": { "a": "b" } } });
    assert!(ask(&mut w, "PUT", &format!("{NAMESPACES}/shop"), labelled).0 < 300);
    assert_eq!(uid(&mut w, "shop").as_deref(), Some(created.as_str()));
    assert_eq!(ask(&mut w, "DELETE", &format!("{NAMESPACES}/shop/serviceaccounts/web"), Value::Null).0, 200);
    assert_eq!(ask(&mut w, "DELETE", &format!("{NAMESPACES}/shop"), Value::Null).0, 200);
    assert_eq!(uid(&mut w, "shop"), None);
    assert!(uid(&mut w, "default").is_some());
}

#[test]
fn y30_an_autoscaler_has_two_versions_and_shows_the_replicas() {
    let mut w = node();
    w.define_deployment("web", "replicas: 2", ONE);
    w.run(3);
    let path = |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
    let object = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "web" },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "maxReplicas": 5, "targetCPUUtilizationPercentage": 80,
        },
    });
    assert_eq!(ask(&mut w, "POST", &path("v1"), object).0, 201);
    let new = get(&mut w, &format!("{}/web", path("v2"))).1;
    assert_eq!(new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
    assert_eq!((&new["apiVersion"], &new["status"]["currentReplicas"]), (&json!("autoscaling/v2"), &json!(2)));
    let old = get(&mut w, &format!("{}/web", path("v1"))).1;
    assert_eq!((&old["spec"]["targetCPUUtilizationPercentage"], &old["spec"]["metrics"]), (&json!(80), &Value::Null));
    assert_eq!(w.manifest_problems(), [""; 0]);
    assert_eq!(ask(&mut w, "DELETE", &format!("{}/web", path("v2")), Value::Null).0, 200);
    assert_eq!(get(&mut w, &format!("{}/web", path("v1"))).0, 404);
}

#[test]
fn y31_a_network_policy_is_refused_unless_the_configuration_ignores_it() {
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    for network_policies in [NetworkPolicies::Refuse, NetworkPolicies::Ignore] {
        let refused = network_policies == NetworkPolicies::Refuse;
        let mut config = crate::world::config();
        config.fixed.network_policies = network_policies;
        let mut w = node_with(config);
        let policy = document("NetworkPolicy", "deny", ", spec: {podSelector: {}}");
        let account = document("ServiceAccount", "web", "");
        w.write_document("/m/app.yaml", Some([account.clone(), policy.clone()].join("---\n")));
        w.run(3);
        let problems = w.manifest_problems();
        assert_eq!(problems.len(), usize::from(refused), "{problems:?}");
        for problem in problems {
            assert!(problem.contains("kind: nothing on one machine enforces a NetworkPolicy"), "{problem}");
            assert!(problem.contains("set networkPolicies: Ignore"), "{problem}");
        }
        assert_eq!(get(&mut w, &format!("{policies}/deny")).0, if refused { 404 } else { 200 });
        assert_eq!(get(&mut w, &format!("{NAMESPACES}/default/serviceaccounts/web")).0, 200);
        let object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": "allow" },
            "spec": { "podSelector": {} },
        });
        assert_eq!(ask(&mut w, "POST", policies, object).0, if refused { 422 } else { 201 });

        // It is not taken for a new version of another document of its file, so that document ends.
        w.write_document("/m/app.yaml", Some(policy));
        w.run(3);
        assert_eq!(get(&mut w, &format!("{NAMESPACES}/default/serviceaccounts/web")).0, 404);
    }
}

#[test]
fn y31_a_policy_that_was_ignored_before_a_restart_is_not_in_force_after_it() {
    let mut config = crate::world::config();
    config.fixed.network_policies = NetworkPolicies::Ignore;
    let mut w = node_with(config);
    w.write_document("/m/app.yaml", Some(document("NetworkPolicy", "deny", ", spec: {}")));
    w.run(5);
    w.config.fixed.network_policies = NetworkPolicies::Refuse;
    w.restart_engine();
    w.run(5);
    assert_eq!((w.engine.plain_objects().len(), w.manifest_problems().len()), (0, 1));
}

#[test]
fn a_kind_that_is_not_supported_has_a_remedy_and_affects_no_other_document() {
    let mut w = node();
    let ingress = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}}\n";
    w.write_document("/m/app.yaml", Some([document("Namespace", "shop", ""), ingress.to_owned()].join("---\n")));
    w.run(3);
    let problems = w.manifest_problems();
    assert!(problems[0].contains("Ingress is not supported: ") && problems[0].contains("NodePort"), "{problems:?}");
    assert!(uid(&mut w, "shop").is_some());
}

/// A node with two ready pods of a Deployment, and a budget.
fn protected(spec: &str) -> World {
    let mut w = node();
    w.define_deployment("web", "replicas: 2", &probed(1));
    let budget = format!(
        "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: web}}, spec: {{selector: {{matchLabels: \
         {{app: web}}}}, {spec}}}}}"
    );
    w.write_document("/m/pdb.yaml", Some(budget));
    w.run(5);
    assert_eq!((w.manifest_problems().len(), w.engine.pods().len()), (0, 2));
    w
}

fn uids(w: &World) -> Vec<Uid> {
    w.engine.pods().iter().map(|view| view.pod.uid.clone()).collect()
}

/// The status of an eviction of the pod at this place, and the message.
fn evict(w: &mut World, at: usize, query: &str) -> (u16, Value) {
    let name = w.engine.pods()[at].pod.name.name.to_string();
    let path = format!("{NAMESPACES}/default/pods/{name}/eviction{query}");
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name, "namespace": "default" },
    });
    ask(w, "POST", &path, eviction)
}

fn allowed(w: &mut World) -> Value {
    get(w, "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web").1["status"]["disruptionsAllowed"].clone()
}

#[test]
fn y32_an_eviction_that_would_violate_a_budget_is_refused() {
    for spec in ["minAvailable: 1", "maxUnavailable: 1", "minAvailable: 50%"] {
        let mut w = protected(spec);
        w.ask(Request::Cordon { on: true });
        w.run(1);
        let status = get(&mut w, "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web").1["status"].clone();
        let expected = json!({ "currentHealthy": 2, "desiredHealthy": 1, "disruptionsAllowed": 1, "expectedPods": 2 });
        assert_eq!(status, expected, "{spec}");
        assert_eq!(evict(&mut w, 0, "?dryRun=All").0, 201);
        assert_eq!(evict(&mut w, 0, "").0, 201);
        assert_eq!(allowed(&mut w), 0);
        for query in ["?dryRun=All", ""] {
            let (status, why) = evict(&mut w, 1, query);
            assert_eq!(
                (status, why),
                (429, "Cannot evict pod as it would violate the pod's disruption budget.".into())
            );
        }
        w.run(60);
        assert_eq!(evict(&mut w, 1, "").0, 429, "the first pod waits for uncordon");
        w.ask(Request::Cordon { on: false });
        w.run(60);
        assert_eq!((evict(&mut w, 1, "").0, uids(&w).len()), (201, 2), "{spec}");
    }
}

#[test]
fn y32_two_budgets_for_a_pod_are_an_error_and_none_protects_it_after_its_removal() {
    let mut w = protected("minAvailable: 2");
    assert_eq!(evict(&mut w, 0, "").0, 429);
    let other = "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: all}, spec: {selector: {}}}";
    w.write_document("/m/other.yaml", Some(other.to_owned()));
    w.run(2);
    let (status, why) = evict(&mut w, 0, "");
    assert!(status == 500 && why.as_str().unwrap_or_default().contains("more than one"), "{status} {why}");
    w.write_document("/m/other.yaml", None);
    w.write_document("/m/pdb.yaml", None);
    w.run(3);
    assert_eq!(evict(&mut w, 0, "").0, 201);
}

#[test]
fn y32_a_drain_stops_only_the_pods_that_the_budget_allows() {
    let mut w = protected("minAvailable: 1");
    let drain = |w: &mut World, ignores_budgets: bool| {
        let id = w.ask(Request::Drain { uids: uids(w), grace: None, ignores_budgets });
        w.run(1);
        let Some(Ok(Reply::Drained(drained))) = w.answer(id) else { panic!("{:?}", w.answer(id)) };
        drained.pods.iter().map(|pod| pod.outcome).collect::<Vec<_>>()
    };
    assert_eq!(drain(&mut w, false), [DrainOutcome::Ending, DrainOutcome::Refused]);
    w.run(60);
    assert_eq!(drain(&mut w, false), [DrainOutcome::Down, DrainOutcome::Refused]);
    assert_eq!(drain(&mut w, true), [DrainOutcome::Down, DrainOutcome::Ending]);
}

#[test]
fn y32_a_pod_that_is_not_ready_can_be_evicted_if_enough_others_are_or_its_policy_allows_it() {
    for (spec, expected) in [
        ("minAvailable: 1", 201),
        ("minAvailable: 2", 429),
        ("minAvailable: 2, unhealthyPodEvictionPolicy: AlwaysAllow", 201),
        ("maxUnavailable: 0, unhealthyPodEvictionPolicy: IfHealthyBudget", 429),
    ] {
        let mut w = protected(spec);
        let name = w.engine.pods()[1].pod.name.name.to_string();
        w.handlers.answers(&format!("{name}/main/Readiness"), &[BADLY; 60]);
        w.run(10);
        assert_eq!(allowed(&mut w), 0, "{spec}");
        assert_eq!((evict(&mut w, 0, "").0, evict(&mut w, 1, "").0), (429, expected), "{spec}");
    }
}
