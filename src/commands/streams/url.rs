//! Requests the URL of a stream from the agent.

use crate::api::control::{StreamRequest, StreamUrl};
use crate::api::kube::pod_row::text;
use crate::commands::client::{self, AgentAnswer};
use crate::commands::output::Failure;
use crate::commands::select::PodTarget;
use serde_json::Value;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the pod that the user has named.
///
/// # Errors
/// The agent is not running, or the pod does not exist.
pub fn find_pod(socket: &Path, target: &PodTarget) -> Result<Value, Failure> {
    let mut pods = client::get_json(socket, "/pods")?;
    choose(target.find(&mut pods).map_err(Failure::message)?)
        .ok_or_else(|| Failure::message("the agent's list of pods is empty"))
}

/// Chooses the running pod, if a pod is being replaced. If no pod is running, chooses the first: the agent's error
/// for it explains why.
pub fn choose(mut found: Vec<Value>) -> Option<Value> {
    let running = found.iter().position(|pod| text(pod, "/status/phase") == "Running");
    let at = running.unwrap_or(0);
    (at < found.len()).then(|| found.swap_remove(at))
}

/// The request was refused: the status, and the agent's message.
pub struct UrlRefused(pub u16, pub String);

impl From<UrlRefused> for Failure {
    fn from(UrlRefused(_, words): UrlRefused) -> Failure {
        Failure::message(words)
    }
}

/// Requests a URL from the agent.
///
/// # Errors
/// The agent does not respond (`Failure`), or it refuses the request (`UrlRefused`).
pub fn request(socket: &Path, request: &StreamRequest) -> Result<Result<String, UrlRefused>, Failure> {
    let mut reader = match client::post(socket, "/stream", request, PATIENCE)? {
        AgentAnswer::Done(reader) => reader,
        AgentAnswer::Refused(status, words) => return Ok(Err(UrlRefused(status, words))),
    };
    let mut answer = Vec::new();
    reader.read_to_end(&mut answer).map_err(|e| Failure::message(format!("/stream: {e}")))?;
    let StreamUrl { url } =
        serde_json::from_slice(&answer).map_err(|e| Failure::message(format!("/stream: invalid response: {e}")))?;
    Ok(Ok(url))
}
