//! File errors: messages that contain the path and the kernel's error.

use rustix::io::Errno;

pub(super) type Result<T> = std::result::Result<T, String>;

/// Returns true if the file system is read-only, or fails: after an error, the kernel makes it read-only, and parts of
/// it may be unreadable. ext4 and xfs report a wrong checksum as EBADMSG, and other damage as EUCLEAN.
pub(super) fn is_failing_disk(e: Errno) -> bool {
    matches!(e, Errno::ROFS | Errno::IO | Errno::BADMSG | Errno::UCLEAN)
}

/// Returns the message of a failed operation. `what` is the operation, such as `open`.
pub(super) fn failed(what: &str, path: &str, e: Errno) -> String {
    format!("failed to {what} {path}: {}", std::io::Error::from(e))
}
