//! Determines which log a request asks for, and which part of it.

use super::request::Result;
use super::snapshot::Snapshot;
use crate::api::k8s::PodStatus;
use crate::api::kube::log_choice;
use crate::api::kube::query::Query;
use crate::api::kube::status::Failure;
use crate::api::names::Uid;
use crate::api::pod::Pod;
use jiff::{SignedDuration, Timestamp};
use std::path::PathBuf;

/// The requested log, and the requested part of it.
#[derive(Clone, Debug)]
pub struct LogRequest {
    /// The UID of the pod as a string, because a `Uid` cannot be passed to a helper thread.
    pub uid: String,
    pub container: String,
    pub directory: PathBuf,
    pub instance: u32,
    pub follow: bool,
    pub tail: Option<u64>,
    pub since: Option<Timestamp>,
    pub timestamps: bool,
    pub limit: Option<u64>,
}

/// Returns the name of the wanted container or, without a name, of the only container. The error messages are those
/// of an API server.
pub fn container_of<'a>(pod: &'a Pod, wanted: Option<&str>) -> Result<&'a str> {
    let name = &pod.name.name;
    let containers: Vec<&str> = pod.every_container().map(|c| c.name.as_str()).collect();
    match wanted {
        Some(wanted) => containers
            .iter()
            .find(|c| **c == wanted)
            .copied()
            .ok_or_else(|| Failure::bad_request(format!("container {wanted} is not valid for pod {name}"))),
        None if containers.len() == 1 => Ok(containers[0]),
        None => {
            let choice = containers.join(" ");
            let why = format!("a container name must be specified for pod {name}, choose one of: [{choice}]");
            Err(Failure::bad_request(why))
        }
    }
}

/// Converts a query in the form of a kubelet to the names of the API: an older client sends `tail`, which can be
/// `all`.
pub fn kubelet_query(query: Query) -> Query {
    let is_needed = |tail: &&str| *tail != "all" && query.get("tailLines").is_none();
    match query.get("tail").filter(is_needed).map(str::to_owned) {
        Some(tail) => query.with("tailLines", &tail),
        None => query,
    }
}

/// Returns the requested part of a container's log. The error messages are those of a kubelet.
pub fn request(snapshot: &Snapshot<'_>, pod: &Pod, container: &str, query: &Query) -> Result<LogRequest> {
    let name = &pod.name.name;
    let uid: Uid = pod.uid.clone();
    let directory = PathBuf::from(snapshot.layout.pod_logs(&pod.name, &uid)).join(container);
    let facts = snapshot.engine.containers(&uid);
    let attempt = |id: &str| facts.iter().find(|c| c.id.as_str() == id).map(|c| c.attempt);
    let shown = snapshot.engine.pod(&uid);
    let none = PodStatus::default();
    let status = shown.as_ref().map_or(&none, |shown| shown.status);
    let instance = log_choice::run(status, container, query.flag("previous"), attempt)
        .map_err(|why| Failure::bad_request(why.describe(container, name)))?;
    let number = |name: &str| query.number(name).map_err(Failure::bad_request);
    let since = match (number("sinceSeconds")?, query.get("sinceTime")) {
        (Some(_), Some(_)) => {
            return Err(Failure::bad_request("at most one of sinceTime or sinceSeconds may be specified"));
        }
        (Some(seconds), None) => {
            let ago = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            Some(snapshot.timestamp().checked_sub(ago).unwrap_or(Timestamp::MIN))
        }
        (None, Some(time)) => {
            Some(time.parse().map_err(|e| Failure::bad_request(format!("sinceTime: invalid time {time:?}: {e}")))?)
        }
        (None, None) => None,
    };
    Ok(LogRequest {
        uid: uid.to_string(),
        container: container.to_owned(),
        directory,
        instance,
        follow: query.flag("follow") && !query.flag("previous"),
        tail: number("tailLines")?,
        since,
        timestamps: query.flag("timestamps"),
        limit: number("limitBytes")?,
    })
}
