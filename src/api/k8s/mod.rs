//! The types of the Kubernetes API that Wherry uses, with all fields that they have in Kubernetes 1.34. A test compares
//! them with the types of k8s-openapi. `docs/pods.md` says which fields Wherry honours.
//!
//! A field is an `Option` if Kubernetes leaves it out when it is empty. Optional fields that are null are absent, and
//! required fields that are absent have a default.

pub mod field;
mod read;
mod scalars;
mod write;

mod container;
mod environment;
mod objects;
mod placement;
mod pod_spec;
mod pod_status;
mod security;
mod volume;

pub use container::*;
pub use environment::*;
pub use objects::*;
pub use placement::*;
pub use pod_spec::*;
pub use pod_status::*;
pub(crate) use read::{from_value, nearest, strict, with_unknown};
pub use scalars::{ByteString, IntOrString, Quantity, Time};
pub use security::*;
pub use volume::*;
