//! The names of the identity files.

use crate::api::cluster::requests::Signer;
use std::path::{Path, PathBuf};

pub(super) const KUBECONFIG: &str = "kubeconfig";
pub(super) const CERTIFICATE: &str = "client.pem";
pub(super) const NEXT_KEY: &str = "next.key";
pub(super) const SERVING_CERTIFICATE: &str = "serving.pem";
pub(super) const SERVING_NEXT_KEY: &str = "serving-next.key";
pub(super) const SETTINGS: &str = "kubelet.yaml";
pub(super) const LOCK: &str = "lock";

/// Returns the name of the file with a certificate and its key.
pub(super) fn certificate_file(signer: Signer) -> &'static str {
    match signer {
        Signer::Client => CERTIFICATE,
        Signer::Serving => SERVING_CERTIFICATE,
    }
}

/// Returns the name of the file with the key of the next certificate.
pub(super) fn next_key_file(signer: Signer) -> &'static str {
    match signer {
        Signer::Client => NEXT_KEY,
        Signer::Serving => SERVING_NEXT_KEY,
    }
}

/// Returns the directory below a root directory.
pub fn directory(root: &Path) -> PathBuf {
    root.join("cluster")
}

/// Returns the kubeconfig below a root directory.
pub fn kubeconfig(root: &Path) -> PathBuf {
    directory(root).join(KUBECONFIG)
}

/// Returns the settings of the cluster below a root directory.
pub fn settings(root: &Path) -> PathBuf {
    directory(root).join(SETTINGS)
}
