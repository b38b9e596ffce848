//! The pod's relation to the node, as the API for kubectl shows it.

use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Placement {
    /// It runs or will run on the node, or has ended on it.
    #[default]
    Bound,
    /// A10: it has never started, and waits for `uncordon`.
    Unscheduled,
    /// A11, W27: it has ended, and starts again after `uncordon` or `undrain`. The API shows its successor.
    Successor { drained: bool },
    /// A11: it has ended by itself and will not run again, and the node is cordoned: an eviction would not change it.
    Gone,
    /// It is no longer wanted, and nothing of it runs. No list shows it.
    Removed,
}
