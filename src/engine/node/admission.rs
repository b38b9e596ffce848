//! What the node takes (A): asks `engine::admission` for each pod whose turn it is, and carries out what it says.

use super::Engine;
use crate::api::names::Uid;

impl Engine {
    /// A3: somebody wants a rejected pod to be looked at again.
    pub(super) fn retry(&mut self, _uid: &Uid) {}
}
