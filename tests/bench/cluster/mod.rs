//! A node of a real cluster: its cost and its latency (`node`), its return to an API server that was unreachable
//! (`back`), many pods at once (`crowd`), its memory after many pod lives (`soak`), and what it
//! writes to the disk (`wear`). Times are from the audit log of
//! the API server, from its responses, and from the runtime and its log.
//!
//! Each part has a control plane of its own, so that no work or log of another part is left.

mod back;
mod crowd;
mod node;
mod processors;
mod soak;
mod wear;

use crate::support::control_plane::{ControlPlane, NodeRequest};
use crate::support::kubectl::Kubectl;
use crate::table::Table;

type Measure = fn(&mut Table);

/// By their names in `ARGS`.
pub const PARTS: [(&str, Measure); 5] = [
    ("cluster-node", node::node),
    ("cluster-back", back::back),
    ("cluster-crowd", crowd::crowd),
    ("cluster-soak", soak::soak),
    ("cluster-wear", wear::wear),
];

fn do_with(kubectl: &Kubectl, line: &str, input: &str) {
    let printed = kubectl.run_with(line, input.as_bytes());
    assert_eq!(printed.code, 0, "kubectl {line}: {printed:?}");
}

/// A time of the audit log, in nanoseconds since the epoch.
fn nanoseconds(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().expect("a time").as_nanosecond() as i64
}

fn is_ready(request: &&NodeRequest) -> bool {
    let conditions = request.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
    request.path.starts_with("/api/v1/nodes")
        && conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Waits until the node has reported that it is ready.
fn wait_ready(plane: &ControlPlane, node: &str) {
    plane.wait("the node is ready", |plane| plane.requests_of_node(node).iter().any(|request| is_ready(&request)));
}
