//! The whole state of the engine as JSON, for debugging and for failed simulations.
//!
//! Every type of the state derives `Serialize`, so that a new field is either included or fails to compile. Times of
//! type `Boot` are in seconds; `now` is the time of the last step.

use super::Engine;
use serde_json::Value;

impl Engine {
    /// Returns the whole state. Pods appear without their specs. On a large node the dump takes a few kilobytes per
    /// pod.
    pub fn dump(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|e| Value::String(format!("failed to serialize the engine: {e}")))
    }
}
