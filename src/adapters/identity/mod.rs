//! The identity of this machine as a node of a cluster, in `<root>/cluster` (mode 0700): the files of `wherry join`,
//! and the certificates that the cluster issues while the node runs.
//!
//! | file | content |
//! |---|---|
//! | `kubeconfig` | the server, its CA, and the name of the next file |
//! | `client.pem` | the client certificate and its key |
//! | `next.key` | a key whose client certificate was requested and has not arrived |
//! | `serving.pem` | the certificate of the node's server (`serverTLSBootstrap`) and its key |
//! | `serving-next.key` | a key whose serving certificate was requested and has not arrived |
//! | `kubelet.yaml` | the settings of the cluster's KubeletConfiguration that count here |
//! | `lock` | excludes two concurrent joins |
//!
//! All files have mode 0600 and are replaced atomically. A key is on the disk before its certificate is requested, so
//! that a kill loses neither: the next attempt finds the key, and by it the request. Everything here waits for the
//! disk: the agent runs it on a helper thread.

mod directory;
mod files;
mod key;
mod kubeconfig;
mod serving;
mod store;
#[cfg(test)]
mod tests;

pub use directory::{IdentityDirectory, is_managed};
pub use files::{directory, kubeconfig, settings};
pub use kubeconfig::NodeKubeconfig;
pub use serving::{FoundServing, Serving, serving, serving_in_use};
pub use store::{import, store, validity};
