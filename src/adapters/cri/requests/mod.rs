//! Builds the CRI messages for a pod from its spec and the node's settings. Pure functions. Every field has the value
//! that a kubelet sends (compared with recordings); only the `io.wherry.*` annotations are added.
//!
//! `sandbox` and `container` build the two configs from `resources` (cpu, memory, OOM score), `security` (users,
//! capabilities, profiles, namespaces), `dns` and `annotations`. `request_config` has the node's settings. A value that
//! the CRI cannot represent is an error that names the field; nothing is dropped silently.

mod annotations;
mod container;
mod dns;
mod host_dns;
mod request_config;
mod resources;
mod sandbox;
mod security;
mod swap;
#[cfg(test)]
pub(super) mod tests;

pub use container::{container_config, container_resources};
pub use dns::dns_notices;
pub use host_dns::HostDns;
pub use request_config::RequestConfig;
pub use sandbox::sandbox_config;
pub use swap::Swap;
