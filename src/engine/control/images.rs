//! Lists of images for users.

use super::request_id::RequestId;
use crate::engine::op::OpId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The timeout of the calls.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// The lists whose calls have not ended.
#[derive(Debug, Default, Serialize)]
pub struct ImageReads {
    open: BTreeMap<OpId, RequestId>,
}

impl ImageReads {
    pub fn begun(&mut self, op: OpId, request: RequestId) {
        self.open.insert(op, request);
    }

    /// Handles the end of the calls. Returns their request, or None if the client has disconnected.
    pub fn ended(&mut self, op: OpId) -> Option<RequestId> {
        self.open.remove(&op)
    }

    /// Forgets the request of a client that has disconnected. Returns the operation to cancel.
    pub fn gone(&mut self, request: RequestId) -> Option<OpId> {
        let op = self.open.iter().find(|(_, open)| **open == request).map(|(op, _)| *op)?;
        self.open.remove(&op);
        Some(op)
    }
}
