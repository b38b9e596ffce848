//! Everything that the engine knows, as JSON: for people who look for a mistake in it, and for what a failed simulation leaves.
//!
//! Every type of the engine's state derives `Serialize`, so that a field that is added later is shown without being thought of,
//! or does not compile. Times of `Boot` are seconds; `now` says when the last step was.

use super::Engine;
use serde_json::Value;

impl Engine {
    /// The whole state; of a pod's spec only what names it. A large node's takes some kilobytes a pod.
    pub fn dump(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|e| Value::String(format!("the engine cannot be shown: {e}")))
    }
}
