//! Manifests for `wherry check`, which looks for itself.

use super::look;
use crate::api::document::{self, Context, Object};
use crate::api::problem::Problem;
use std::path::{Path, PathBuf};

/// All good objects in the text of a file, as a node of that name reads it, and everything that is wrong with the others: for
/// `wherry check FILE`.
pub fn check_text(path: &str, text: &[u8], node_name: &str) -> (Vec<Object>, Vec<Problem>) {
    document::read_objects(text, path, Context { node_name, seen: "" })
}

/// The manifests of a directory, in order, by the names that count: for `wherry check` without a file.
///
/// # Errors
/// Why the directory cannot be read.
pub fn files_in(directory: &Path) -> Result<Vec<PathBuf>, String> {
    look::list(directory).map(|names| names.into_iter().map(|name| directory.join(name)).collect())
}
