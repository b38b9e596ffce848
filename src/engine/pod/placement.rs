//! The pod's relation to the node, as the API for kubectl shows it.

use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Placement {
    /// The pod runs or will run on the node, or has ended on it.
    #[default]
    Bound,
    /// A10: the pod has never started, and waits for `uncordon`.
    Unscheduled,
    /// A11, W27: the pod has ended, and starts again after `uncordon` or `undrain`. The API shows its successor.
    Successor { drained: bool },
    /// A11: the pod has ended by itself and will not run again, and the node is cordoned. An eviction would change
    /// nothing.
    Gone,
    /// The pod is no longer desired, and nothing of it runs. No list shows it.
    Removed,
}
