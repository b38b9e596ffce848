//! The API server of a cluster: objects with versions, lists, watches, patches, and its faults. It knows only the requests of a node.

use super::api_faults::{ApiFaults, Fate};
use super::{Item, MS, S, World};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wherry::api::cluster::request::{ApiError, ApiRequest, ApiResponse, BodyDelivery, Method};
use wherry::api::names::Uid;
use wherry::engine::event::{ApiEvent, Event};
use wherry::engine::op::OpId;
use wherry_engine::api::k8s::ByteString;

/// The time of an answer (ns).
pub(super) const LATENCY: u64 = 2 * MS;
/// The collection of all pods of the simulation.
pub const PODS: &str = "/api/v1/namespaces/default/pods";
/// The annotation of a mirror.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

#[derive(Default)]
pub struct ApiServer {
    pub away: bool,
    version: u64,
    /// By collection path and name.
    objects: BTreeMap<(String, String), Value>,
    /// Each change with its version: type, collection, object.
    changes: Vec<(u64, &'static str, String, Value)>,
    /// Older versions have expired.
    oldest: u64,
    watches: BTreeMap<OpId, Watch>,
    /// The cache of the server has this earlier state.
    cache: Option<Cache>,
    /// The requests that the server received: `PATCH /api/v1/nodes/lab/status`, with the time (ns).
    pub requests: Vec<(u64, String)>,
    /// Lists of pods are answered with this text instead.
    pub foreign: Option<String>,
    /// The next lists of ConfigMaps and Secrets, and the next requests for tokens, are refused: the Node authorizer does not know
    /// the pod yet.
    pub unrelated: u32,
    pub approval: Approval,
    /// The names of the requests for certificates that a person has approved.
    pub approved: BTreeSet<String>,
    /// There is no service account.
    pub no_account: bool,
    /// The shortest time in which a token is issued (ns).
    pub token_latency: u64,
    /// The number of tokens that were issued. Each is `token-N`.
    pub issued: u32,
    /// The server accepts the tokens for a year.
    pub extends_tokens: bool,
    /// The users of tokens.
    pub tokens: BTreeMap<String, String>,
    /// Who may do what with the node: `ann get proxy`.
    pub permissions: BTreeSet<String>,
    /// Reviews are answered with this status instead.
    pub no_reviews: Option<u16>,
    /// There is no namespace for leases.
    pub no_leases: bool,
    pub of_node: OfNode,
    /// The connection breaks during the next reviews.
    pub breaking: u32,
    pub(super) faults: ApiFaults,
    /// The number of pods that were bound by random actions. Each has the UID `pod-N`.
    bound: u32,
}

/// As in a server of several whose cache is behind: lists that need not be the newest, and watches, have this state. Other requests
/// have the newest one.
struct Cache {
    objects: BTreeMap<(String, String), Value>,
    version: u64,
}

/// The treatment of the node's conditions in its reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OfNode {
    #[default]
    Stored,
    /// The condition PIDPressure is not stored.
    Dropped,
}

/// The treatment of requests for certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approval {
    /// They are issued at once.
    #[default]
    Automatic,
    /// They wait for an approval.
    Pending,
    Denied,
    /// The server forbids them.
    Forbidden,
}

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

struct Watch {
    collection: String,
    selector: String,
    from: u64,
    /// The time of its last line (ns).
    due: u64,
}

/// The kind and the version of the objects of a collection.
fn kind_of(collection: &str) -> (&'static str, &'static str) {
    match collection.rsplit('/').next() {
        Some("pods") => ("Pod", "v1"),
        Some("nodes") => ("Node", "v1"),
        Some("secrets") => ("Secret", "v1"),
        Some("configmaps") => ("ConfigMap", "v1"),
        Some("services") => ("Service", "v1"),
        Some("runtimeclasses") => ("RuntimeClass", "node.k8s.io/v1"),
        other => panic!("a list of {other:?}"),
    }
}

/// A node watches objects of the collection.
fn is_watched(collection: &str) -> bool {
    !["/leases", "/events", CSRS].iter().any(|end| collection.ends_with(end))
}

/// A collection across namespaces is stored by namespace: `/api/v1/pods` lists `/api/v1/namespaces/x/pods`.
fn belongs(stored: &str, asked: &str) -> bool {
    stored == asked || asked == "/api/v1/pods" && stored.starts_with("/api/v1/namespaces/") && stored.ends_with("/pods")
}

fn matches(object: &Value, selector: &str) -> bool {
    match selector.split_once('=') {
        None => true,
        Some(("spec.nodeName", node)) => object["spec"]["nodeName"] == node,
        Some((_, name)) => object["metadata"]["name"] == name,
    }
}

/// The collection of an object, without the namespace.
fn kind_of_object(object: &Value) -> &'static str {
    match object["kind"].as_str() {
        Some("ConfigMap") => "configmaps",
        _ => "pods",
    }
}

pub fn is_mirror(pod: &Value) -> bool {
    !pod["metadata"]["annotations"][MIRROR].is_null()
}

pub fn is_terminal(phase: &Value) -> bool {
    matches!(phase.as_str(), Some("Succeeded" | "Failed"))
}

fn decoded(text: &str) -> String {
    text.replace("%3D", "=").replace("%2F", "/")
}

/// Strategic merge: conditions by type; other lists are replaced.
fn merge(into: &mut Value, patch: Value, field: &str) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                if key.starts_with('$') {
                    continue;
                }
                match value {
                    Value::Null => {
                        into.remove(&key);
                    }
                    value => merge(into.entry(&key).or_insert(Value::Null), value, &key),
                }
            }
        }
        (Value::Array(into), Value::Array(patch)) if field == "conditions" => {
            for condition in patch {
                if condition["$patch"] == "delete" {
                    into.retain(|c| c["type"] != condition["type"]);
                    continue;
                }
                match into.iter_mut().find(|c| c["type"] == condition["type"]) {
                    Some(old) => merge(old, condition, ""),
                    None => into.push(condition),
                }
            }
        }
        (into, Value::Array(patch)) => {
            *into = patch.into_iter().filter(|v| v.get("$patch").is_none()).collect();
        }
        (into @ Value::Null, Value::Object(patch)) => {
            *into = Value::Object(Map::new());
            merge(into, Value::Object(patch), field);
        }
        (into, patch) => *into = patch,
    }
}

impl ApiServer {
    /// An empty one. As in etcd, the version begins with 1.
    pub fn new() -> ApiServer {
        ApiServer { version: 1, ..ApiServer::default() }
    }

    fn change(&mut self, kind: &'static str, collection: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let key = (collection.to_owned(), object["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        match kind {
            "DELETED" => self.objects.remove(&key),
            _ => self.objects.insert(key, object.clone()),
        };
        if is_watched(collection) {
            self.changes.push((self.version, kind, collection.to_owned(), object.clone()));
        }
        object
    }

    /// The newest version.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The objects of the server pass to `other`. The connections and the requests of a node stay with it.
    pub(super) fn pass_to(&mut self, other: &mut ApiServer) {
        std::mem::swap(self, other);
        std::mem::swap(&mut self.watches, &mut other.watches);
        std::mem::swap(&mut self.requests, &mut other.requests);
        std::mem::swap(&mut self.faults, &mut other.faults);
        (self.away, other.away) = (other.away, self.away);
    }

    /// The versions of the cluster begin again.
    pub fn restore_from_backup(&mut self) {
        self.version = 1;
        self.oldest = 0;
        self.changes.clear();
    }

    /// Only the newest version can be watched from now on.
    pub fn forgets_versions(&mut self) {
        self.oldest = self.version;
        self.changes.clear();
    }

    pub fn object(&self, collection: &str, name: &str) -> Option<&Value> {
        self.objects.get(&(collection.to_owned(), name.to_owned()))
    }

    pub fn pod(&self, name: &str) -> Option<&Value> {
        self.object(PODS, name)
    }

    fn pods(&self) -> impl Iterator<Item = &Value> {
        let from = (PODS.to_owned(), String::new());
        self.objects.range(from..).take_while(|((of, _), _)| of == PODS).map(|(_, pod)| pod)
    }

    /// The pods that are bound to the node.
    pub fn bound(&self) -> impl Iterator<Item = &Value> {
        self.pods().filter(|pod| !is_mirror(pod))
    }

    pub fn mirrors(&self) -> impl Iterator<Item = &Value> {
        self.pods().filter(|pod| is_mirror(pod))
    }

    /// The last state of a pod that was removed.
    pub fn removed(&self, name: &str) -> Option<&Value> {
        let removed = self.changes.iter().rev().filter(|(_, kind, of, _)| *kind == "DELETED" && of == PODS);
        removed.map(|(.., object)| object).find(|pod| pod["metadata"]["name"] == name)
    }

    fn node_reported(&mut self, collection: &str, mut node: Value) -> Value {
        if self.of_node == OfNode::Dropped
            && let Some(conditions) = node["status"]["conditions"].as_array_mut()
        {
            conditions.retain(|condition| condition["type"] != "PIDPressure");
        }
        self.change("MODIFIED", collection, node)
    }

    /// The pod with this UID has to run.
    pub fn wants(&self, uid: &str) -> bool {
        let pod = self.bound().find(|pod| pod["metadata"]["uid"] == uid);
        pod.is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_null() && !is_terminal(&pod["status"]["phase"]))
    }

    /// The UID of the next random pod.
    pub fn new_uid(&mut self) -> String {
        self.bound += 1;
        format!("pod-{}", self.bound)
    }

    /// The number of open watches.
    pub fn watches(&self) -> usize {
        self.watches.len()
    }

    /// Ends all watches. Returns them with the times of their last lines (ns).
    pub(super) fn take_watches(&mut self) -> Vec<(OpId, u64)> {
        std::mem::take(&mut self.watches).into_iter().map(|(op, watch)| (op, watch.due)).collect()
    }

    /// The lines under way arrive later, and the next lines after them.
    pub fn delay_lines(&mut self, ns: u64) {
        for watch in self.watches.values_mut() {
            watch.due += ns;
        }
    }

    pub fn node(&self) -> Option<&Value> {
        self.object("/api/v1/nodes", "lab")
    }

    /// The objects of all collections that end like this.
    pub fn all(&self, collection: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |((of, _), _)| of.ends_with(collection)).map(|(_, object)| object)
    }

    pub fn events(&self) -> Vec<String> {
        let of = |(collection, _): &(String, String)| collection.ends_with("/events");
        let events = self.objects.iter().filter(|(key, _)| of(key)).map(|(_, event)| event);
        events.map(|event| event["reason"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The number of requests that begin like this.
    pub fn count(&self, text: &str) -> usize {
        self.requests.iter().filter(|(_, request)| request.starts_with(text)).count()
    }

    fn issue(&mut self, path: &str, body: &Value) -> (u16, Value) {
        if self.no_account {
            return (404, json!("NotFound"));
        }
        let bound = &body["spec"]["boundObjectRef"];
        let collection = format!("{}/pods", path.split("/serviceaccounts/").next().unwrap_or_default());
        let pod = self.object(&collection, bound["name"].as_str().unwrap_or_default());
        if pod.is_none_or(|pod| pod["metadata"]["uid"] != bound["uid"]) {
            return (403, json!("Forbidden"));
        }
        self.issued += 1;
        let mut answer = body.clone();
        answer["status"] = json!({
            "token": format!("token-{}", self.issued),
            "expirationTimestamp": format!("{}-01-15T09:00:00Z", if self.extends_tokens { 2028 } else { 2027 }),
        });
        (201, answer)
    }

    fn review(&self, mut review: Value) -> (u16, Value) {
        if let Some(status) = self.no_reviews {
            return (status, json!("Forbidden"));
        }
        let spec = &review["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        review["status"] = match review["kind"].as_str() {
            Some("TokenReview") => match self.tokens.get(&text(&spec["token"])) {
                Some(user) => json!({ "authenticated": true, "user": { "username": user } }),
                None => json!({ "authenticated": false, "error": "unknown" }),
            },
            _ => {
                let of = &spec["resourceAttributes"];
                assert_eq!((&of["resource"], &of["name"]), (&json!("nodes"), &json!("lab")), "{review}");
                let wanted = format!("{} {} {}", text(&spec["user"]), text(&of["verb"]), text(&of["subresource"]));
                json!({ "allowed": self.permissions.contains(&wanted) })
            }
        };
        (201, review)
    }

    fn respond(&mut self, op: OpId, request: &ApiRequest) -> Option<(u16, Value)> {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let query: BTreeMap<&str, String> =
            query.split('&').filter_map(|p| p.split_once('=')).map(|(k, v)| (k, decoded(v))).collect();
        let selector = query.get("fieldSelector").cloned().unwrap_or_default();
        let body: Value = request.body.as_ref().map_or(Value::Null, |(_, text)| serde_json::from_str(text).unwrap());
        match (request.method, request.reading) {
            (Method::Get, BodyDelivery::Items) => {
                let wanted = query.get("resourceVersion").and_then(|v| v.parse::<u64>().ok());
                let cache = self.cache.as_ref().filter(|_| wanted.is_some());
                let (objects, version) =
                    cache.map_or((&self.objects, self.version), |cache| (&cache.objects, cache.version));
                if wanted.is_some_and(|wanted| wanted > version) {
                    return Some((504, json!("Timeout")));
                }
                let items: Vec<&Value> = objects
                    .iter()
                    .filter(|((collection, _), object)| belongs(collection, path) && matches(object, &selector))
                    .map(|(_, object)| object)
                    .collect();
                Some((200, json!({ "items": items, "version": version })))
            }
            (Method::Get, BodyDelivery::Lines) => {
                let from: u64 = query.get("resourceVersion").and_then(|v| v.parse().ok()).unwrap_or(0);
                if from < self.oldest {
                    return Some((410, json!("Expired")));
                }
                self.watches.insert(op, Watch { collection: path.to_owned(), selector, from, due: 0 });
                None
            }
            (Method::Post, _) if path == CSRS && self.approval == Approval::Forbidden => {
                Some((403, json!("Forbidden")))
            }
            (Method::Post, _) if path.ends_with("/token") => Some(self.issue(path, &body)),
            (Method::Post, _) if path.ends_with("reviews") => Some(self.review(body)),
            (Method::Post, _) if path.ends_with("/leases") && self.no_leases => Some((404, json!("NotFound"))),
            (Method::Post, _) => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                if self.object(path, &name).is_some() {
                    return Some((409, json!("AlreadyExists")));
                }
                let mut object = body;
                object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
                Some((201, self.change("ADDED", path, object)))
            }
            (method, _) => {
                let path = path.strip_suffix("/status").unwrap_or(path);
                let (collection, name) = path.rsplit_once('/').unwrap_or_default();
                let Some(mut object) = self.object(collection, name).cloned() else {
                    return Some((404, json!("NotFound")));
                };
                let uid = body.pointer("/metadata/uid").or(body.pointer("/preconditions/uid"));
                if uid.is_some_and(|uid| *uid != object["metadata"]["uid"]) {
                    return Some((409, json!("Conflict")));
                }
                match method {
                    Method::Get if collection == CSRS => Some((200, self.judged(object))),
                    Method::Get => Some((200, object)),
                    Method::Delete => Some((200, self.change("DELETED", collection, object))),
                    _ => {
                        merge(&mut object, body, "");
                        if collection.ends_with("/nodes") {
                            return Some((200, self.node_reported(collection, object)));
                        }
                        Some((200, self.change("MODIFIED", collection, object)))
                    }
                }
            }
        }
    }
}

impl ApiServer {
    /// The request with its certificate: the name of the request, in base64 of a PEM text.
    fn judged(&self, mut csr: Value) -> Value {
        let name = csr["metadata"]["name"].as_str().unwrap_or_default();
        let approval = if self.approved.contains(name) { Approval::Automatic } else { self.approval };
        csr["status"] = match approval {
            Approval::Automatic => {
                let name = csr["spec"]["request"].as_str().unwrap_or_default().to_owned();
                json!({ "certificate": ByteString(name.into_bytes()) })
            }
            Approval::Denied => json!({ "conditions": [{ "type": "Denied", "reason": "Policy" }] }),
            Approval::Pending | Approval::Forbidden => Value::Null,
        };
        csr
    }

    /// The requests for certificates that exist.
    pub fn certificate_requests(&self) -> usize {
        self.objects.keys().filter(|(collection, _)| collection == CSRS).count()
    }

    /// As the control plane does with old ones.
    pub fn removes_certificate_requests(&mut self) {
        self.objects.retain(|(collection, _), _| collection != CSRS);
    }
}

/// The containers that have another image in `now`.
fn other_images(before: &Value, now: &Value) -> Vec<String> {
    let of = |pod: &Value| -> Vec<(String, Value)> {
        let lists = [&pod["spec"]["containers"], &pod["spec"]["initContainers"]];
        let all = lists.into_iter().filter_map(Value::as_array).flatten();
        all.map(|c| (c["name"].as_str().unwrap_or_default().to_owned(), c["image"].clone())).collect()
    };
    let before = of(before);
    of(now).into_iter().filter(|container| !before.contains(container)).map(|(name, _)| name).collect()
}

impl World {
    /// Someone creates or replaces an object.
    pub fn api_set(&mut self, collection: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let before = self.api.object(collection, name);
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        if let Some(before) = before.filter(|before| before["metadata"]["uid"] == object["metadata"]["uid"]) {
            let uid = Uid::from(object["metadata"]["uid"].as_str().unwrap_or_default());
            for name in other_images(before, &object) {
                self.checks.bounds.reimaged(uid.clone(), name);
            }
        }
        self.note(|| format!("--- {kind} {collection}/{name}"));
        self.api.change(kind, collection, object);
        self.tell_watches();
    }

    /// The object disappears at once.
    pub fn api_remove(&mut self, collection: &str, name: &str) {
        self.note(|| format!("--- DELETED {collection}/{name}"));
        let object = self.api.object(collection, name).cloned().expect("an object");
        self.api.change("DELETED", collection, object);
        self.tell_watches();
    }

    /// The scheduler binds a new pod to this node.
    pub fn api_pod(&mut self, name: &str, uid: &str, spec: &str) {
        let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{spec}}}}}");
        let mut pod = wherry::api::document::value(text.as_bytes()).expect("a pod");
        pod["metadata"]["namespace"] = json!("default");
        pod["metadata"]["uid"] = json!(uid);
        pod["spec"]["nodeName"] = json!(self.config.node.name);
        pod["status"] = json!({ "phase": "Pending" });
        self.checks.of_server.insert(uid.to_owned());
        self.api_set("/api/v1/namespaces/default/pods", pod);
    }

    /// A user deletes the pod.
    pub fn api_delete_pod(&mut self, name: &str, grace: u64) {
        let mut pod = self.api.pod(name).cloned().expect("a pod");
        pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        self.api_set("/api/v1/namespaces/default/pods", pod);
    }

    /// Another server answers from now on, and its cache stays as it is now.
    pub fn api_lags(&mut self) {
        self.note(|| "--- the cache of the API server stays behind".into());
        self.api.cache = Some(Cache { objects: self.api.objects.clone(), version: self.api.version });
        self.break_connection();
    }

    /// The same, and its cache has this object of the past.
    pub fn api_lags_with(&mut self, past: Value) {
        self.api_lags();
        let of = kind_of_object(&past);
        let name = past["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let version = past["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(1);
        if let Some(cache) = &mut self.api.cache {
            cache.objects.insert((format!("/api/v1/namespaces/default/{of}"), name), past);
            cache.version = version;
        }
    }

    /// The same, and its cache does not have this pod yet.
    pub fn api_lags_without(&mut self, pod: &str) {
        self.api_lags();
        let changes = self.api.changes.iter();
        let first =
            changes.filter(|(_, _, _, object)| object["metadata"]["name"] == pod).map(|(version, ..)| *version).min();
        if let Some(cache) = &mut self.api.cache {
            cache.objects.remove(&(PODS.to_owned(), pod.to_owned()));
            cache.version = first.unwrap_or(1) - 1;
        }
    }

    pub fn api_catches_up(&mut self) {
        if self.api.cache.take().is_some() {
            self.note(|| "--- the cache of the API server catches up".into());
            self.tell_watches();
        }
    }

    /// The server cannot be reached from now on, or it can again.
    pub fn api_away(&mut self, away: bool) {
        self.note(|| format!("--- the API server is {}", if away { "away" } else { "back" }));
        self.api.away = away;
        if away {
            self.break_connection();
        }
    }

    pub(super) fn api_cancel(&mut self, op: OpId) -> bool {
        let was = self.api.watches.remove(&op).is_some();
        if was {
            let result = Err(ApiError::Unknown("cancelled".into()));
            self.event_in(MS, Event::Api(ApiEvent::Done { op, result }));
        }
        was
    }

    /// The connections of an engine that was killed.
    pub(super) fn api_disconnected(&mut self) {
        self.api.watches.clear();
    }

    pub(super) fn api_request(&mut self, op: OpId, request: &ApiRequest, timeout: Option<Duration>) {
        self.note(|| format!("  < {op} {request:?}"));
        if self.api_is_away() {
            let result = Err(ApiError::NotSent("https://10.0.0.1:6443: connection refused".into()));
            return self.event_in(MS, Event::Api(ApiEvent::Done { op, result }));
        }
        self.api.requests.push((self.clock.now, format!("{} {}", request.method.as_str(), request.path)));
        self.check_request(request);
        self.check_rate();
        if request.path.ends_with("reviews") && self.api.breaking > 0 {
            self.api.breaking -= 1;
            let result = Err(ApiError::Unknown("connection reset".into()));
            return self.event_in(MS, Event::Api(ApiEvent::Done { op, result }));
        }
        let is_data = ["/configmaps", "/secrets", "/token"].iter().any(|part| request.path.contains(part));
        if is_data && self.api.unrelated > 0 {
            self.api.unrelated -= 1;
            let body = json!({ "kind": "Status", "code": 403, "reason": "Forbidden" });
            return self.api_answer(op, 403, &body, LATENCY);
        }
        let is_pods = request.reading == BodyDelivery::Items && request.path.starts_with("/api/v1/pods");
        if let Some(text) = self.api.foreign.clone().filter(|_| is_pods) {
            let result = Ok(ApiResponse { status: 200, retry_after: None, body: text.into_bytes() });
            return self.event_in(LATENCY, Event::Api(ApiEvent::Done { op, result }));
        }
        let fate = self.api_fate(op, request, timeout);
        if matches!(fate, Fate::Over) {
            return;
        }
        let before = self.patched_pod(request);
        let response = self.api.respond(op, request);
        if let (Some(before), Some((200, now))) = (before, &response) {
            self.check_status(&before, now);
        }
        self.tell_watches();
        match (fate, response) {
            (Fate::Answered(after), Some((status, body))) => {
                let after = if request.path.ends_with("/token") { after.max(self.api.token_latency) } else { after };
                self.api_respond(op, request, status, body, after);
            }
            (Fate::Lost(after), Some(_)) => {
                let result = Err(ApiError::Unknown("connection lost".into()));
                self.event_in(after, Event::Api(ApiEvent::Done { op, result }));
            }
            (_, None) => self.watch_ends_in_time(op, &request.path),
            (Fate::Over, _) => {}
        }
    }

    /// The server ends the watch after the time that the node wants.
    fn watch_ends_in_time(&mut self, op: OpId, path: &str) {
        let seconds = path.split_once("timeoutSeconds=").map(|(_, rest)| rest.split('&').next().unwrap_or_default());
        if let Some(seconds) = seconds.and_then(|text| text.parse::<u64>().ok()) {
            let life = self.process.life;
            self.at(seconds * S, Item::WatchOver { life, op });
        }
    }

    pub(super) fn watch_is_over(&mut self, life: u32, op: OpId) {
        if life == self.process.life
            && let Some(watch) = self.api.watches.remove(&op)
        {
            self.end_watch(op, watch.due, false);
        }
    }

    /// The pod before a patch of its status.
    fn patched_pod(&self, request: &ApiRequest) -> Option<Value> {
        let name = request.path.strip_prefix(PODS)?.strip_prefix('/')?.strip_suffix("/status")?;
        self.api.pod(name).cloned()
    }

    fn api_respond(&mut self, op: OpId, request: &ApiRequest, status: u16, body: Value, after: u64) {
        if request.reading == BodyDelivery::Items && status == 200 {
            for item in body["items"].as_array().into_iter().flatten() {
                let mut item = item.clone();
                // As in a real list.
                for field in ["kind", "apiVersion"] {
                    item.as_object_mut().map(|item| item.remove(field));
                }
                let json = item.to_string().into_bytes();
                self.event_in(after, Event::Api(ApiEvent::Item { op, json }));
            }
            let (kind, version) = kind_of(request.path.split('?').next().unwrap_or_default());
            let metadata = json!({ "resourceVersion": body["version"].to_string() });
            let rest = json!({ "kind": format!("{kind}List"), "apiVersion": version, "metadata": metadata });
            return self.api_answer(op, 200, &rest, after);
        }
        let body = match status {
            200 | 201 => body,
            _ => json!({ "kind": "Status", "code": status, "reason": body }),
        };
        self.api_answer(op, status, &body, after);
    }

    fn api_answer(&mut self, op: OpId, status: u16, body: &Value, after: u64) {
        let result = Ok(ApiResponse { status, retry_after: None, body: body.to_string().into_bytes() });
        self.event_in(after, Event::Api(ApiEvent::Done { op, result }));
    }

    /// Sends each watch the changes that it has not seen.
    pub(super) fn tell_watches(&mut self) {
        let mut lines = Vec::new();
        let visible = self.api.cache.as_ref().map_or(self.api.version, |cache| cache.version);
        for (op, watch) in &mut self.api.watches {
            let seen = self.api.changes.partition_point(|(version, ..)| *version <= watch.from);
            for (version, kind, collection, object) in &self.api.changes[seen..] {
                if *version <= visible && belongs(collection, &watch.collection) && matches(object, &watch.selector) {
                    let mut object = object.clone();
                    let (kind_of_object, version) = kind_of(collection);
                    object["kind"] = json!(kind_of_object);
                    object["apiVersion"] = json!(version);
                    lines.push((*op, json!({ "type": kind, "object": object })));
                }
            }
            watch.from = watch.from.max(visible);
        }
        for (op, line) in lines {
            let (after, twice) = self.line_delay();
            let Some(watch) = self.api.watches.get_mut(&op) else { continue };
            // The lines of a watch keep their order.
            watch.due = watch.due.max(self.clock.now + after);
            let after = watch.due - self.clock.now;
            let json = line.to_string().into_bytes();
            for _ in 0..1 + usize::from(twice) {
                self.event_in(after, Event::Api(ApiEvent::Line { op, json: json.clone() }));
            }
        }
    }
}
