//! The requests of nodes, and the creations of pods by the administrator, from the audit log of the API server. The
//! log does not contain other requests.

use serde_json::Value;
use std::fs;
use std::path::Path;

/// Logs all requests of the group of the nodes, with both bodies, and the creations of pods by the administrator. A
/// watch has two lines: its start and its end.
pub const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
    - {level: RequestResponse, userGroups: ['system:nodes']}\n\
    - {level: Metadata, users: [admin], verbs: [create], resources: [{group: '', resources: [pods]}]}\n- {level: None}\n";

/// One line of the audit log.
#[derive(Clone, Debug)]
pub struct NodeRequest {
    /// When the server received the request, in the format of RFC 3339.
    pub at: String,
    /// When the server responded, in the format of RFC 3339.
    pub answered: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`
    pub verb: String,
    /// The path without the query.
    pub path: String,
    /// The query. Empty if there is none.
    pub query: String,
    pub code: u64,
    /// `ResponseComplete`; also `ResponseStarted` for a watch.
    pub stage: String,
    /// The object that was sent, or Null.
    pub body: Value,
    /// The object that was returned, or Null.
    pub response: Value,
}

/// Returns the requests of `node` to which the server has responded, in the order of the responses.
pub fn requests(log: &Path, node: &str) -> Vec<NodeRequest> {
    let user = format!("system:node:{node}");
    let text = fs::read_to_string(log).unwrap_or_default();
    // The last line may be incomplete.
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["user"]["username"] == user.as_str()).map(|event| request(&event)).collect()
}

/// Returns when the server responded to the creation of a pod by the administrator, in nanoseconds since the epoch.
pub fn time_of_creation(log: &Path, namespace: &str, name: &str) -> Option<i64> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let mut events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let event = events.find(|event| {
        event["user"]["username"] == "admin"
            && event["objectRef"]["namespace"] == namespace
            && event["objectRef"]["name"] == name
    })?;
    let at: jiff::Timestamp = event["stageTimestamp"].as_str()?.parse().ok()?;
    i64::try_from(at.as_nanosecond()).ok()
}

fn request(event: &Value) -> NodeRequest {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let uri = word(&event["requestURI"]);
    let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
    NodeRequest {
        at: word(&event["requestReceivedTimestamp"]),
        answered: word(&event["stageTimestamp"]),
        verb: word(&event["verb"]),
        path: path.to_owned(),
        query: query.to_owned(),
        code: event["responseStatus"]["code"].as_u64().unwrap_or(0),
        stage: word(&event["stage"]),
        body: event["requestObject"].clone(),
        response: event["responseObject"].clone(),
    }
}
