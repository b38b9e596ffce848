//! File errors: messages that contain the path and the kernel's error.

use rustix::io::Errno;

pub(super) type Result<T> = std::result::Result<T, String>;

/// Returns the message of a failed operation. `what` is the operation, such as `open`.
pub(super) fn failed(what: &str, path: &str, e: Errno) -> String {
    format!("failed to {what} {path}: {}", std::io::Error::from(e))
}
