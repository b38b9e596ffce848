//! The messages of `proto/cri.proto` (CRI v1) and `proto/containerd.proto`, as `build.rs` generates them. Only `requests`, `answers` and `client`
//! know them; nothing of protobuf goes further.

#![allow(clippy::all, clippy::pedantic, missing_docs)]

mod generated {
    include!(concat!(env!("OUT_DIR"), "/cri/mod.rs"));
}

pub use generated::containerd;
pub use generated::cri::*;
