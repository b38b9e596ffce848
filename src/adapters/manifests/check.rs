//! Manifests for `wherry check`, which looks for itself.

use super::file::{self, Unread};
use super::look;
use crate::api::document::{self, Context, Object};
use crate::api::problem::Problem;
use std::path::{Path, PathBuf};

/// All good objects of a file, as a node of that name which allows these unsafe sysctls would read it, and everything that is
/// wrong with the others: for `wherry check FILE`.
pub fn check_file(path: &Path, node_name: &str) -> (Vec<Object>, Vec<Problem>) {
    let shown = path.to_string_lossy();
    let why = match file::read(path) {
        Ok((text, _)) => {
            return document::read_objects(&text, &shown, Context { node_name, seen: "" });
        }
        Err(Unread::Gone) => "no such file".to_owned(),
        Err(Unread::Changing) => "it changes while it is read".to_owned(),
        Err(Unread::Broken { why, .. }) => why,
    };
    (Vec::new(), vec![Problem::of_file(&shown, why)])
}

/// The manifests of a directory, in order, by the names that count: for `wherry check` without a file.
///
/// # Errors
/// Why the directory cannot be read.
pub fn files_in(directory: &Path) -> Result<Vec<PathBuf>, String> {
    look::list(directory).map(|names| names.into_iter().map(|name| directory.join(name)).collect())
}
