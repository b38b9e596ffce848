//! The next steps of a request: the first step, and the step that follows the engine's answer.

use super::change_queue::RequestedChange;
use super::log_request::LogRequest;
use super::request::Result;
use super::response::ApiResponse;
use crate::api::ephemeral_request::RequestedContainers;
use crate::api::kube::accept::Format;
use crate::api::kube::kubelet::KubeletPath;
use crate::api::kube::query::Query;
use crate::api::kube::selection::Selection;
use crate::api::kube::table::Include;
use crate::api::kube::versions::Key;
use crate::engine::control::{Request, StreamRequest};
use serde_json::Value;

/// The first step of a request. It does not implement `Debug`, like every type that may contain a Secret.
pub struct FirstStep {
    /// The verb for the metric, if the client may make the request.
    pub verb: Option<&'static str>,
    pub next: Result<NextStep>,
}

/// The next step of a request. `log` contains the fields of a log line.
pub enum NextStep {
    Respond(ApiResponse),
    /// Passes a request to the engine. `after` defines how its answer is handled.
    Ask {
        request: Request,
        after: AfterAnswer,
        log: String,
    },
    /// Changes a manifest.
    Change {
        change: Box<RequestedChange>,
        log: String,
    },
    /// Connects the client to a stream of the runtime.
    Session {
        request: StreamRequest,
        log: String,
    },
    OpenLog(LogRequest),
    /// Measures the resource usage.
    Measure(Measurement),
    /// Serves a path of a kubelet.
    Kubelet(KubeletPath, Query),
    /// Serves a page of health checks: `/livez`.
    Health {
        page: &'static str,
        is_verbose: bool,
    },
}

/// What follows the engine's answer.
pub enum AfterAnswer {
    /// Responds to the eviction of the pod with this name.
    Evicted(String),
    /// Responds to a change to the node.
    Cordoned,
    /// Responds to the deletion of an object without a manifest: of a pod that is already terminating, with a grace
    /// period, of a pod of a workload, or of a Job of a CronJob. `live` is the object before the deletion.
    DeletedAgain {
        key: Key,
        live: Value,
    },
    Debugged(Debugging),
}

/// A request for objects of metrics.k8s.io.
#[derive(Debug)]
pub struct Measurement {
    pub selection: Selection,
    /// Whether the request names one object.
    pub single: bool,
    pub format: Format,
    pub include: Include,
}

/// A request for ephemeral containers that was passed to the engine.
#[derive(Debug)]
pub struct Debugging {
    pub(super) key: Key,
    pub(super) wanted: RequestedContainers,
    pub(super) dry_run: bool,
}
