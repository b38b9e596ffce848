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
//! | `kubelet.yaml` | the settings of the cluster's KubeletConfiguration that Wherry applies |
//! | `lock` | prevents two concurrent joins |
//!
//! All files have mode 0600 and are replaced atomically. A key is on the disk before its certificate is requested, so
//! that neither is lost if the process is killed: the next attempt finds the key, and through the key the request.
//! Everything here waits for the disk, so the agent runs it on a helper thread.

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
