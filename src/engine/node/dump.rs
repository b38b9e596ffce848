//! The whole state of the engine as JSON, for debugging, crash reports and failed simulations.
//!
//! Every type of the state derives `Serialize`, so that a new field is either included or fails to compile. Times of
//! type `Boot` are in seconds; `now` is the time of the last step.

use super::Engine;
use serde_json::Value;

impl Engine {
    /// Returns the whole state. Pods appear without their specs. On a large node the dump takes a few kilobytes per
    /// pod.
    pub fn dump(&self) -> Value {
        // The text is parsed again, because the code of another serializer for all types takes 300 kB.
        let dumped = serde_json::from_str(&self.dump_text());
        dumped.unwrap_or_else(|e| Value::String(format!("failed to read the dump of the engine: {e}")))
    }

    /// Returns the same as `dump` as a line of JSON.
    pub fn dump_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|e| format!("\"failed to serialize the engine: {e}\""))
    }
}
