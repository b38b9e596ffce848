//! Credentials for image registries from outside the manifests: the node's docker configuration (`docker_config`) and
//! the programs of credential providers (`provider`). Both may block, so only helper threads call them.

pub mod docker_config;
pub mod provider;
