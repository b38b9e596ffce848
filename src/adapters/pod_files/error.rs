//! Errors of files: texts that name the path and the kernel's error.

use rustix::io::Errno;

pub(super) type Result<T> = std::result::Result<T, String>;

/// `what` was to be done with the path.
pub(super) fn failed(what: &str, path: &str, e: Errno) -> String {
    format!("failed to {what} {path}: {}", std::io::Error::from(e))
}
