//! What the tests on a real runtime and the bench share: wherry as a process (`agent`), the runtime seen by an
//! independent client (`cri`), a small HTTP client, a reader of metrics, an image registry, a system bus
//! with a real logind, systemd's descriptor store, a file system that hangs, strace and its page, and the lab that
//! `tests/lab/in-lab.sh` made.

// Each of the programs that include this uses a part of it.
#![allow(dead_code)]

pub mod agent;
pub mod cri;
pub mod exposition;
pub mod fuse;
pub mod http;
pub mod hung;
pub mod lab;
pub mod logind;
pub mod registry;
pub mod store;
pub mod strace;
pub mod yaml;
