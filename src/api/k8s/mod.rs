//! The types of the Kubernetes API that Wherry uses, with all fields that they have in Kubernetes 1.34. A test
//! compares them with the types of k8s-openapi. `docs/pods.md` says which fields Wherry honours. Obsolete volume
//! sources, which Wherry rejects, are plain JSON.
//!
//! A field is an `Option` if Kubernetes omits it when it is empty. An optional field that is null is absent, and a
//! required field that is absent has its default value.

mod container;
mod definition;
mod environment;
pub mod field;
mod jobs;
mod metadata;
mod network;
mod objects;
mod placement;
mod pod_spec;
mod pod_status;
mod policy;
mod read;
mod scalars;
mod security;
mod volume;
mod workloads;
mod write;

pub use container::*;
pub use environment::*;
pub use field::IntOrString;
pub use jobs::*;
pub use metadata::*;
pub use network::*;
pub use objects::*;
pub use placement::*;
pub use pod_spec::*;
pub use pod_status::*;
pub use policy::*;
pub(crate) use read::{from_value, nearest, strict, with_unknown};
pub use scalars::{ByteString, Quantity, Time};
pub use security::*;
pub use volume::*;
pub use workloads::*;
