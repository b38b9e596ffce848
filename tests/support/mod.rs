//! Support code for the tests on a real runtime and for the bench: Wherry as a process (`agent`), an independent CRI
//! client (`cri`), a small HTTP client, clients of the Kubernetes API (`api_client`), of the node's server
//! (`node_client`), of streaming servers (`spdy`) and of WebSockets (`websocket`), a real API server (`api_server`),
//! a whole control plane (`control_plane`), a parser for metrics, two image registries, kubectl, a system bus with a
//! real logind, systemd's descriptor store, a file system that hangs, a root directory on a disk of its own,
//! strace, and the lab that `tests/lab/in-lab.sh` creates.

// Each test program that includes this module uses only a part of it.
#![allow(dead_code)]

pub mod agent;
pub mod api_client;
pub mod api_server;
pub mod cgroups;
pub mod component;
pub mod control_plane;
pub mod cri;
pub mod device_plugin;
pub mod docker_registry;
pub mod exposition;
pub mod fuse;
pub mod grpc_server;
pub mod hostile_api_server;
pub mod http;
pub mod hung;
pub mod kubectl;
pub mod lab;
pub mod logind;
pub mod node_client;
pub mod on_disk;
pub mod registry;
pub mod spdy;
pub mod store;
pub mod strace;
pub mod tls_server;
pub mod websocket;
pub mod yaml;
