//! 110 pods of a Deployment, compared with 110 pods of manifests in the same run, beside the same control plane.
//!
//! The pods have the same spec. Those of the Deployment also have the token of their service account. The control plane has processors
//! of its own, because each of its requests would otherwise delay the node, which does not happen on two machines.

use super::processors::Divided;
use super::{do_with, wait_ready};
use crate::crowd::{self, Start, launch, measure, wait_removed};
use crate::process::now;
use crate::support::agent::Agent;
use crate::support::control_plane::{Client, ControlPlane};
use crate::support::kubectl::Kubectl;
use crate::support::lab::Runtime;
use crate::support::yaml::TRAP;
use crate::table::{Table, median};
use serde_json::{Value, json};

const PODS: usize = 110;
const ROUNDS: usize = 3;
/// The time from a Deployment, divided by that from manifests, is at most this.
const RATIO: f64 = 1.05;
/// Limits of the agent's CPU seconds for 110 pods: of manifests, as in `crate::crowd`; of a Deployment, with the requests for
/// tokens and the reports, a kubelet's time for manifests.
const CPU_LIMITS: (f64, f64) = (0.2, 2.2);
/// Of the node, and of the namespace of its pods.
const NAME: &str = "crowd";

pub fn crowd(table: &mut Table) {
    let plane = ControlPlane::start("bench-crowd");
    let admin = plane.namespace(NAME);
    let runtime = Runtime::shared();
    let _divided = Divided::new(&runtime, &plane);
    let mut agent = Agent::prepare(NAME, &runtime);
    agent.set_cluster(NAME, &plane.kubeconfig_of_node(NAME));
    agent.run();
    wait_ready(&plane, NAME);
    let mut node = Node { agent, plane: &plane, admin, client: plane.client() };

    // The controller manager creates at most 20 pods in a second, and the scheduler binds them one after another, so the first
    // comparison contains their time. In the second one all objects are bound to the node before its agent starts, as all manifests
    // are there before the other agent starts, so only the agents differ.
    let (mut manifests, mut deployment) = (Vec::new(), Vec::new());
    let (mut manifests_before, mut deployment_before) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The removal of the pods before can slow the next ones down (see `crate::crowd`), so the order alternates.
        if round % 2 == 0 {
            manifests.push(crowd::by_wherry(PODS));
            deployment.push(node.deployment(round));
            manifests_before.push(crowd::at_the_start(PODS));
            deployment_before.push(node.deployment_before_start(round));
        } else {
            deployment.push(node.deployment(round));
            manifests.push(crowd::by_wherry(PODS));
            deployment_before.push(node.deployment_before_start(round));
            manifests_before.push(crowd::at_the_start(PODS));
        }
    }
    compare(table, "", &manifests, &deployment);
    compare(table, " before the agent starts", &manifests_before, &deployment_before);
}

/// Adds the rows of a comparison. `when`: words in their names.
fn compare(table: &mut Table, when: &str, manifests: &[Start], deployment: &[Start]) {
    let taken = |starts: &[Start]| median(starts.iter().map(|start| start.taken).collect());
    let cpu = |starts: &[Start]| median(starts.iter().map(|start| start.cpu).collect());
    let from_manifests = taken(manifests);
    let what = format!("all started, compared with manifests ({from_manifests:.1} s)");
    let row = |of: &str, what: &str| format!("cluster: {PODS} pods of {of}{when}, {what}");
    table.row(&row("a Deployment", &what), taken(deployment) / from_manifests, None, RATIO, "");
    table.row(&row("manifests", "CPU, s"), cpu(manifests), None, CPU_LIMITS.0, "2.2");
    table.row(&row("a Deployment", "CPU until all are reported, s"), cpu(deployment), None, CPU_LIMITS.1, "");
}

struct Node<'p> {
    agent: Agent,
    plane: &'p ControlPlane,
    admin: Kubectl,
    client: Client,
}

impl Node<'_> {
    /// From the creation of the Deployment on, while the agent runs.
    fn deployment(&mut self, round: usize) -> Start {
        let name = format!("running-{round}");
        let object = object(&name, "nodeSelector", &json!({ "node": NAME }));
        let begin = |_: &mut Agent| {
            let begun = now();
            create(&self.client, &object);
            begun
        };
        let start = measure(&mut self.agent, NAME, PODS, begin, || wait_reported(self.plane));
        self.remove(&name);
        start
    }

    /// From the start of the agent on. The template names the node, so the pods are bound when they are created.
    fn deployment_before_start(&mut self, round: usize) -> Start {
        let name = format!("stopped-{round}");
        self.agent.terminate();
        create(&self.client, &object(&name, "nodeName", &json!(NAME)));
        self.plane.wait("all pods exist", |plane| pods(plane).len() == PODS);
        let start = measure(&mut self.agent, NAME, PODS, launch, || wait_reported(self.plane));
        self.remove(&name);
        start
    }

    fn remove(&self, deployment: &str) {
        do_with(&self.admin, &format!("delete deployment {deployment}"), "");
        self.plane.wait("the pods are gone", |plane| pods(plane).is_empty());
        wait_removed(&mut self.agent.cri(), NAME);
    }
}

/// The Deployment, with this field in the spec of its pods.
fn object(name: &str, field: &str, value: &Value) -> Value {
    let labels = json!({ "app": name });
    let mut spec: Value = serde_saphyr::from_str(TRAP).expect("a spec");
    spec[field] = value.clone();
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": { "replicas": PODS, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec } } })
}

/// Without kubectl, whose start would be a part of the measured time.
fn create(client: &Client, deployment: &Value) {
    let path = format!("/apis/apps/v1/namespaces/{NAME}/deployments");
    let answer = client.post(&path, deployment).expect("an answer");
    assert_eq!(answer.status, 201, "{}", answer.body);
}

fn pods(plane: &ControlPlane) -> Vec<Value> {
    plane.list(&format!("/api/v1/namespaces/{NAME}/pods"))
}

/// Waits until the API server shows that all pods run.
fn wait_reported(plane: &ControlPlane) {
    plane.wait("all pods are reported", |plane| {
        pods(plane).iter().filter(|pod| pod["status"]["phase"] == "Running").count() == PODS
    });
}
