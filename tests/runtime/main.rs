//! Pods on a real container runtime. `make test-runtime` runs them in namespaces and with a containerd of their own
//! (`tests/lab/in-lab.sh`). Tests assert counts and order, and times only with ten-fold slack (`make bench` measures).

// The ban is for the engine (clippy.toml).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../support/mod.rs"]
mod support;

mod admission;
mod against_api_server;
mod applications;
mod budgets;
mod cgroups;
mod claims;
mod crash;
mod cron_jobs;
mod daemon_sets;
mod deployments;
mod device_plugins;
mod downgrade;
mod drain;
mod endings;
mod environment;
mod eviction;
mod exec;
mod failing_disk;
mod features;
mod force;
mod handlers;
mod hints;
mod hostile;
mod hostile_api_server;
mod hostile_parties;
mod hung_paths;
mod image_gc;
mod images;
mod init;
mod jobs;
mod kube_requests;
mod kubectl;
mod kubectl_changes;
mod kubectl_debug;
mod kubectl_drain;
mod kubectl_ephemeral;
mod kubelet_endpoints;
mod lab;
mod life;
mod log_rotation;
mod looking;
mod manifests;
mod many;
mod metrics;
mod objects;
mod older_state;
mod plain_objects;
mod purge;
mod recorded;
mod reference;
mod registry;
mod replica_sets;
mod resize;
mod restarted;
mod restarts;
mod service;
mod services;
mod shared_uid;
mod stateful_sets;
mod strace;
mod streams;
mod support_file;
mod system_check;
mod trouble;
mod volumes;
