//! Warnings about the API server and its responses.

use crate::api::reason::Reason;
use crate::engine::effect::Severity;
use crate::engine::outbox::Outbox;

/// Emits a log line and an event of the node.
pub(super) fn warn(outbox: &mut Outbox, message: String) {
    outbox.emit_node_event(Severity::Warning, Reason::ApiServerError, message);
}
