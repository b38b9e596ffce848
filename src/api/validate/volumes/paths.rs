//! The paths in a volume, and the modes of its files.

use crate::api::problem::{At, Faults};

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub(super) fn mode(mode: Option<i32>, at: At<'_>, faults: &mut Faults) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        faults.invalid(at, mode, MODE);
    }
}

/// Checks the path of a file in a volume.
pub(super) fn file_path(path: &str, at: At<'_>, faults: &mut Faults) {
    if path.is_empty() {
        return faults.required(at, "");
    }
    descending(path, at, faults);
    if path.starts_with("..") && !path.split('/').any(|part| part == "..") {
        faults.invalid(at, path, "must not start with '..'");
    }
}

/// Checks that a path is relative and does not leave its directory.
pub(super) fn descending(path: &str, at: At<'_>, faults: &mut Faults) {
    if path.starts_with('/') {
        faults.invalid(at, path, "must be a relative path");
    }
    no_backsteps(path, at, faults);
}

pub(super) fn no_backsteps(path: &str, at: At<'_>, faults: &mut Faults) {
    if path.split('/').any(|part| part == "..") {
        faults.invalid(at, path, "must not contain '..'");
    }
}
