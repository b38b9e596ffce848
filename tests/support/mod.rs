//! What the tests on a real runtime and the bench share: wherry as a process (`agent`), the runtime seen by an
//! independent client (`cri`), a small HTTP client, an image registry, and the lab that `tests/lab/in-lab.sh` made.

// Each of the programs that include this uses a part of it.
#![allow(dead_code)]

pub mod agent;
pub mod cri;
pub mod http;
pub mod lab;
pub mod registry;
pub mod yaml;
