//! Many nodes of one cluster, each with its own engine, runtime and clock.
//!
//! The objects of different nodes have no influence on each other, so each node has the part of the API server that contains its
//! own objects. All parts are away at the same times and have the same faults, and their requests together are those that the
//! server receives.

pub mod load;

use crate::story::IMAGE;
use crate::world::World;
use load::{Load, Return};
use serde_json::json;
use wherry::api::node_facts::NodeFacts;
use wherry::engine::config::{EngineConfig, FixedConfig};

/// As in a pod of a real cluster: a token, and the certificate of the cluster's CA.
const ACCESS: &str = "{name: access, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3607}}, \
                      {configMap: {name: kube-root-ca.crt}}]}}";
const PODS: [(&str, &str); 3] = [
    ("web", "{name: settings, configMap: {name: web}}"),
    ("store", "{name: password, secret: {secretName: store}}"),
    ("agent", ""),
];

pub struct Fleet {
    nodes: Vec<World>,
}

impl Fleet {
    /// Nodes with three pods each that start at one moment, and that run.
    pub fn new(nodes: u64) -> Fleet {
        let mut fleet = Fleet { nodes: (0..nodes).map(node).collect() };
        fleet.each(World::start);
        fleet.run(60);
        for node in fleet.iter() {
            assert!(PODS.iter().all(|(pod, _)| node.runs(&format!("{pod}/main"))), "the pods run");
        }
        fleet
    }

    pub fn run_ms(&mut self, ms: u64) {
        self.nodes.iter_mut().for_each(|node| node.run_ms(ms));
    }

    pub fn run(&mut self, seconds: u64) {
        self.run_ms(seconds * 1000);
    }

    /// Something happens to all nodes, or to all parts of the server.
    pub fn each(&mut self, f: impl FnMut(&mut World)) {
        self.nodes.iter_mut().for_each(f);
    }

    pub fn iter(&self) -> impl Iterator<Item = &World> {
        self.nodes.iter()
    }

    /// The time (ns), which is the same for all nodes.
    pub fn now(&self) -> u64 {
        self.nodes[0].clock.now
    }

    /// The server is away for this time (ms), and returns for all nodes at one moment. Returns the load since then, for ten seconds.
    pub fn outage(&mut self, ms: u64) -> Return {
        self.each(|node| node.api_away(true));
        self.run_ms(ms);
        self.take_load();
        self.each(|node| node.api_away(false));
        self.returned()
    }

    /// The load of ten seconds from now on.
    pub fn returned(&mut self) -> Return {
        let since = self.now();
        self.run(10);
        Return::of(self.take_load(), since)
    }

    /// Takes the requests since the last call.
    pub fn take_load(&mut self) -> Load {
        // The stories of a fleet do not look at these.
        self.each(|node| node.observed.measures.clear());
        Load::of(self.nodes.iter_mut().map(|node| std::mem::take(&mut node.api.requests)))
    }
}

fn node(number: u64) -> World {
    let defaults = crate::stories::cluster::cluster();
    let name = format!("node-{number}");
    // As the agent does: nodes have seeds that differ little.
    let config = EngineConfig {
        fixed: FixedConfig { owner: format!("root-{number}"), seed: 1_000_000 + number, ..defaults.fixed },
        node: NodeFacts { labels: [("kubernetes.io/hostname".to_owned(), name.clone())].into(), name, ..defaults.node },
        ..defaults
    };
    let mut w = World::new(config);
    w.runtime.images.insert(IMAGE.into());
    w.pidfds.available = true;
    let object = |kind: &str, name: &str, data: &str| json!({ "kind": kind, "apiVersion": "v1", "metadata": { "name": name, "namespace": "default" }, "data": { "a": data } });
    let namespace = "/api/v1/namespaces/default";
    w.api_set(&format!("{namespace}/configmaps"), object("ConfigMap", "kube-root-ca.crt", "certificate"));
    w.api_set(&format!("{namespace}/configmaps"), object("ConfigMap", "web", "setting"));
    w.api_set(&format!("{namespace}/secrets"), object("Secret", "store", "c2VjcmV0"));
    for (pod, volume) in PODS {
        let volumes = format!("volumes: [{ACCESS}, {volume}]").replace(", ]", "]");
        let spec = format!("containers: [{{name: main, image: '{IMAGE}'}}], {volumes}");
        w.api_pod(pod, &format!("uid-{pod}"), &spec);
    }
    w
}
