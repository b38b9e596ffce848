//! The random actions of users, controllers and the network of a cluster.

use crate::chance::below;
use crate::random::Pool;
use crate::story::IMAGE;
use crate::world::api_server::PODS;
use crate::world::{MS, World};
use serde_json::{Value, json};
use wherry::engine::rng::Rng;

/// The names of pods. A manifest of the pool has the name of the last one, too.
const NAMES: [&str; 4] = ["p", "q", "r", "a"];
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// The ConfigMap that some of the pods need.
const SETTINGS: &str = "settings";
/// The Secret that some of the pods need, and its values in base64.
const PASSWORD: &str = "password";
/// The addresses of the machine: none, one, or both families.
const ADDRESSES: [&[&str]; 4] = [&[], &["10.0.0.7"], &["10.0.0.8"], &["10.0.0.8", "fd00::8"]];
const VALUES: [&str; 3] = ["b25l", "dHdv", "dGhyZWU="];
/// The own grace period of most pods of the pool, and others (s).
const GRACES: [u64; 5] = [1, 3, 5, 10, 30];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The scheduler binds a new pod to the node, unless a pod has the name.
    Bind {
        name: usize,
        spec: usize,
    },
    /// A user or a controller deletes a pod, or shortens the grace period (s) of its deletion.
    Delete {
        pick: u64,
        grace: u64,
    },
    /// Removes the object at once.
    Force {
        pick: u64,
    },
    /// The same, and at once another pod with this name.
    Replace {
        pick: u64,
        spec: usize,
    },
    Label {
        pick: u64,
        value: u64,
    },
    /// Another image for a container.
    Image {
        pick: u64,
        container: u64,
        other: bool,
    },
    /// Sets or lowers the deadline (s).
    Deadline {
        pick: u64,
        seconds: u64,
    },
    DeleteNode,
    /// The machine gets other addresses, or loses its route.
    Addresses {
        pick: u64,
    },
    /// Another program changes the node's status.
    Unknown,
    DeleteMirror {
        pick: u64,
        grace: Option<u64>,
    },
    /// Sets or removes the ConfigMap.
    Settings {
        value: Option<u64>,
    },
    /// Sets or removes the Secret.
    Password {
        value: Option<u64>,
    },
    /// Another server of the cluster answers, whose cache stays as it is for this time.
    Lag {
        ms: u64,
    },
    /// The server cannot be reached for this time.
    Away {
        ms: u64,
    },
    /// Older versions expire.
    Compact,
    /// All watches end, or their connection breaks.
    CloseWatches {
        broken: bool,
    },
    /// Another program answers at the server's address for this time.
    Foreign {
        ms: u64,
        pick: u64,
    },
    /// All requests are refused for this time.
    Refuse {
        ms: u64,
        pick: u64,
    },
}

impl Change {
    pub fn of(d: &mut Rng, pool: &Pool) -> Change {
        let spec = |d: &mut Rng| below(d, pool.bound.len() as u64) as usize;
        let grace = |d: &mut Rng| GRACES[below(d, GRACES.len() as u64) as usize];
        let ms = |d: &mut Rng| [below(d, 2000), below(d, 30_000), below(d, 400_000)][below(d, 3) as usize];
        match below(d, 41) {
            0..=7 => Change::Bind { name: below(d, NAMES.len() as u64) as usize, spec: spec(d) },
            8..=11 => Change::Delete { pick: d.draw(), grace: grace(d) },
            12 | 13 => Change::Force { pick: d.draw() },
            14 | 15 => Change::Replace { pick: d.draw(), spec: spec(d) },
            16 | 17 => Change::Label { pick: d.draw(), value: below(d, 3) },
            18 => Change::DeleteNode,
            19 => Change::Unknown,
            20 => Change::DeleteMirror { pick: d.draw(), grace: (below(d, 2) == 0).then(|| grace(d)) },
            21 | 22 => Change::Settings { value: (below(d, 3) > 0).then(|| below(d, 3)) },
            23..=25 => Change::Away { ms: ms(d) },
            26 | 27 => Change::Compact,
            28 | 29 => Change::CloseWatches { broken: below(d, 2) == 0 },
            30 => Change::Foreign { ms: ms(d), pick: d.draw() },
            31 => Change::Refuse { ms: ms(d), pick: d.draw() },
            32 | 33 => Change::Password { value: (below(d, 3) > 0).then(|| below(d, 3)) },
            34..=37 => Change::Image { pick: d.draw(), container: d.draw(), other: below(d, 2) == 0 },
            38 if below(d, 4) == 0 => Change::Deadline { pick: d.draw(), seconds: 5 + below(d, 35) },
            39 => Change::Addresses { pick: d.draw() },
            _ => Change::Lag { ms: ms(d) },
        }
    }
}

/// A pod of the list.
fn picked(pods: &[(String, Value)], pick: u64) -> Option<&(String, Value)> {
    pods.get((pick % pods.len().max(1) as u64) as usize)
}

impl World {
    pub fn change_cluster(&mut self, pool: &Pool, change: &Change) {
        let pods: Vec<(String, Value)> = self.api.bound().map(named).collect();
        match *change {
            Change::Bind { name, spec } => {
                if self.api.pod(NAMES[name]).is_none() {
                    self.bind(NAMES[name], &pool.bound[spec]);
                }
            }
            Change::Delete { pick, grace } => {
                if let Some((name, _)) = picked(&pods, pick) {
                    self.delete_pod(name, grace);
                }
            }
            Change::Force { pick } => {
                if let Some((name, _)) = picked(&pods, pick) {
                    self.force_delete_pod(name);
                }
            }
            Change::Replace { pick, spec } => {
                if let Some((name, _)) = picked(&pods, pick) {
                    self.force_delete_pod(name);
                    self.bind(name, &pool.bound[spec]);
                }
            }
            Change::Label { pick, value } => {
                if let Some((_, pod)) = picked(&pods, pick) {
                    let mut pod = pod.clone();
                    pod["metadata"]["labels"] = json!({ "version": value.to_string() });
                    self.api_set(PODS, pod);
                }
            }
            Change::Image { pick, container, other } => {
                if let Some((_, pod)) = picked(&pods, pick) {
                    let mut pod = pod.clone();
                    let [init, main] = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array());
                    let (init, main) = (init.map_or(0, Vec::len), main.map_or(1, Vec::len));
                    let index = (container % (init + main) as u64) as usize;
                    let image = json!(if other { "other:1" } else { IMAGE });
                    match index.checked_sub(init) {
                        Some(index) => pod["spec"]["containers"][index]["image"] = image,
                        None => pod["spec"]["initContainers"][index]["image"] = image,
                    }
                    self.api_set(PODS, pod);
                }
            }
            Change::Deadline { pick, seconds } => {
                if let Some((_, pod)) = picked(&pods, pick) {
                    let mut pod = pod.clone();
                    let deadline = &mut pod["spec"]["activeDeadlineSeconds"];
                    if deadline.as_u64().is_none_or(|before| seconds < before) {
                        *deadline = json!(seconds);
                    }
                    self.api_set(PODS, pod);
                }
            }
            Change::DeleteNode => {
                if self.api.node().is_some() {
                    self.api_remove("/api/v1/nodes", "lab");
                }
            }
            Change::Addresses { pick } => {
                let addresses = ADDRESSES[(pick % ADDRESSES.len() as u64) as usize];
                self.has_addresses(addresses);
            }
            Change::Unknown => {
                if let Some(mut node) = self.api.node().cloned() {
                    for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
                        condition["status"] = json!("Unknown");
                    }
                    self.api_set("/api/v1/nodes", node);
                }
            }
            Change::DeleteMirror { pick, grace } => {
                let mirrors: Vec<(String, Value)> = self.api.mirrors().map(named).collect();
                match (picked(&mirrors, pick), grace) {
                    (Some((name, _)), Some(grace)) => self.api_delete_pod(name, grace),
                    (Some((name, _)), None) => self.api_remove(PODS, name),
                    (None, _) => {}
                }
            }
            Change::Settings { value } => self.set_settings(value),
            Change::Password { value } => self.set_password(value),
            Change::Lag { ms } => self.api_lags_for(ms * MS),
            Change::Away { ms } => self.api_away_for(ms * MS),
            Change::Compact => {
                self.api_catches_up();
                self.api.forgets_versions();
            }
            Change::CloseWatches { broken } => self.close_watches(broken),
            Change::Foreign { ms, pick } => self.api_foreign_for(ms * MS, pick),
            Change::Refuse { ms, pick } => self.api_refuses_for(ms * MS, pick),
        }
    }

    /// The scheduler binds a new pod.
    pub fn bind(&mut self, name: &str, spec: &str) {
        let uid = self.api.new_uid();
        self.api_pod(name, &uid, spec);
    }

    /// As an API server does it: a pod that has ended has no grace period, and a period never becomes longer.
    fn delete_pod(&mut self, name: &str, grace: u64) {
        let Some(pod) = self.api.pod(name) else { return };
        if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
            return self.force_delete_pod(name);
        }
        let before = pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
        if before.is_none_or(|before| grace < before) {
            self.api_delete_pod(name, grace);
        }
    }

    fn force_delete_pod(&mut self, name: &str) {
        self.api_remove(PODS, name);
    }

    pub fn set_settings(&mut self, value: Option<u64>) {
        match value {
            Some(value) => {
                let metadata = json!({ "name": SETTINGS, "namespace": "default" });
                let data = json!({ "A": value.to_string() });
                let object = json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data });
                self.api_set(CONFIGMAPS, object);
            }
            None if self.api.object(CONFIGMAPS, SETTINGS).is_some() => self.api_remove(CONFIGMAPS, SETTINGS),
            None => {}
        }
    }

    pub fn set_password(&mut self, value: Option<u64>) {
        match value {
            Some(value) => {
                let metadata = json!({ "name": PASSWORD, "namespace": "default" });
                let data = json!({ "A": VALUES[(value % VALUES.len() as u64) as usize] });
                let object = json!({ "kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": data });
                self.api_set(SECRETS, object);
            }
            None if self.api.object(SECRETS, PASSWORD).is_some() => self.api_remove(SECRETS, PASSWORD),
            None => {}
        }
    }

    /// All pods of the cluster are deleted, also those that have ended.
    pub fn delete_all_pods(&mut self) {
        let names: Vec<String> = self.api.bound().map(|pod| named(pod).0).collect();
        names.iter().for_each(|name| self.delete_pod(name, 5));
    }
}

fn named(pod: &Value) -> (String, Value) {
    (pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), pod.clone())
}
