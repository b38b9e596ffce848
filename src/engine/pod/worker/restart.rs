//! The reasons for restarting a container.

use serde::{Deserialize, Serialize};

/// Why a container is stopped and starts again, whatever its exit code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restart {
    /// Something failed: a probe, the postStart hook, the sandbox. The same back-off as after a crash follows.
    Failure,
    /// R3: the container gets other resources. No back-off follows.
    Resize,
    /// C2: the container gets another image. No back-off follows.
    Image,
}
