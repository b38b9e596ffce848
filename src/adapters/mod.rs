//! Each adapter communicates with one external system. An adapter may use another one below it; `tests/architecture`
//! lists the permitted pairs.

pub mod api_server;
pub mod bus;
pub mod cgroups;
pub mod crash_files;
pub mod credentials;
pub mod cri;
pub mod devices;
mod durable;
pub mod handlers;
pub mod host;
pub mod identity;
pub mod logs;
pub mod manifests;
mod mount_table;
pub mod pidfds;
pub mod pki;
pub mod pod_files;
pub mod records;
pub mod report_file;
mod root_place;
pub mod server;
pub mod service_table;
pub mod systemd;
pub mod volumes;
