//! The identity of this machine as a node of a cluster, in `<root>/cluster` (mode 0700): the files of `wherry join`, and the
//! replacement of the certificate while the node runs.
//!
//! | file | content |
//! |---|---|
//! | `kubeconfig` | the server, its CA, and the name of the next file |
//! | `client.pem` | the client certificate and its key |
//! | `next.key` | a key whose certificate was requested and has not arrived |
//! | `kubelet.yaml` | the settings of the cluster's KubeletConfiguration that count here |
//! | `lock` | excludes two concurrent joins |
//!
//! All files have mode 0600 and are replaced atomically. A key is on the disk before its certificate is requested, so that a kill
//! loses neither: the next attempt finds the key, and by it the request. Everything here waits for the disk: the agent runs it on a
//! helper thread.

mod directory;
mod key;
mod kubeconfig;
mod store;
#[cfg(test)]
mod tests;

pub use directory::{Directory, is_managed};
pub use kubeconfig::NodeKubeconfig;
pub use store::{Renewed, import, store};

use std::path::{Path, PathBuf};

const KUBECONFIG: &str = "kubeconfig";
const CERTIFICATE: &str = "client.pem";
const NEXT_KEY: &str = "next.key";
const SETTINGS: &str = "kubelet.yaml";
const LOCK: &str = "lock";

/// The directory below a root directory.
pub fn directory(root: &Path) -> PathBuf {
    root.join("cluster")
}

/// The kubeconfig below a root directory.
pub fn kubeconfig(root: &Path) -> PathBuf {
    directory(root).join(KUBECONFIG)
}

/// The settings of the cluster below a root directory.
pub fn settings(root: &Path) -> PathBuf {
    directory(root).join(SETTINGS)
}
