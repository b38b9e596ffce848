//! Reads manifests for `wherry check`, without helper threads.

use super::inspection;
use crate::api::document::context::{Context, NetworkPolicies};
use crate::api::document::{self, Checked};
use std::path::{Path, PathBuf};

/// Checks the text of a manifest as the node `node_name` would. Returns the valid objects, the problems of the other
/// documents, invalid image names, and warnings. Used by `wherry check FILE`.
pub fn check_text(path: &str, text: &[u8], node_name: &str, network_policies: NetworkPolicies) -> Checked {
    document::check_objects(text, path, Context { network_policies, ..Context::new(node_name, "") })
}

/// Returns the paths of the manifests in a directory, in order. Used by `wherry check` without a file.
///
/// # Errors
/// The reason why the directory cannot be read.
pub fn files_in(directory: &Path) -> Result<Vec<PathBuf>, String> {
    inspection::list(directory).map(|names| names.into_iter().map(|name| directory.join(name)).collect())
}
