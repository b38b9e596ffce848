//! Each adapter communicates with one external thing and does not depend on other adapters.

pub mod bus;
pub mod cri;
pub mod host;
pub mod logs;
pub mod manifests;
pub mod pidfds;
pub mod pod_files;
pub mod records;
pub mod server;
pub mod systemd;
