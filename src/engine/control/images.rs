//! Lists of images for users.

use super::request_id::RequestId;
use crate::engine::op::OpId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Timeout of the calls.
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

    /// The calls have ended. Returns None if the client has disconnected.
    pub fn ended(&mut self, op: OpId) -> Option<RequestId> {
        self.open.remove(&op)
    }

    /// The client has disconnected. Returns the operation to cancel.
    pub fn gone(&mut self, request: RequestId) -> Option<OpId> {
        let op = self.open.iter().find(|(_, open)| **open == request).map(|(op, _)| *op)?;
        self.open.remove(&op);
        Some(op)
    }
}
