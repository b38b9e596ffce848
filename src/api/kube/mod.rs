//! The Kubernetes API that kubectl uses: paths, options, formats and errors. Pure.
//!
//! - `resources`: the resources that Wherry serves; `discovery`: the documents that describe them; `openapi`: the types
//!   and fields, for `kubectl explain`;
//! - `path`: the target of a request; `kubelet`: the paths of a kubelet, `kubelet_request`: requests to the node's
//!   server; `query`: its options; `accept`: the requested format; `protobuf`: bodies that are not JSON, `pod_message`:
//!   pods, `wire`: their fields;
//! - `access`: which role may do what; `reviews`: the answers for a client that asks;
//! - `selection`: which objects a list or watch contains; `versions`: resource versions, and the changes since one of
//!   them; `pod_notes`: the pods that may have changed; `bookmarks`: when a watch gets one;
//! - `table`: objects as rows of a table; `pod_row`: the row of a pod;
//! - `log_choice`: which run of a container a request for its log means;
//! - `eviction`: evictions, and pods that are not on the node; `node_change`: cordons;
//! - `write`: from a manifest and a request to the new manifest; `comments`: those that are lost; `strategic` (lists:
//!   `merged_list`), `json_patch`: the formats of patches; `string_data`: the plain values of a Secret; `value_size`:
//!   the limits of what a body or a patch becomes;
//! - `status`: errors.

pub mod accept;
pub mod access;
pub mod bookmarks;
pub mod comments;
pub mod discovery;
pub mod edit;
pub mod ephemeral;
pub mod eviction;
pub mod json_patch;
pub mod kubelet;
pub mod kubelet_request;
pub mod log_choice;
mod merged_list;
pub mod node_change;
pub mod openapi;
pub mod path;
mod pod_fields;
pub mod pod_message;
pub mod pod_notes;
pub mod pod_row;
pub mod protobuf;
pub mod query;
pub mod request_body;
pub mod resources;
pub mod reviews;
pub mod selection;
pub mod status;
pub mod strategic;
mod string_data;
pub mod table;
pub mod value_size;
pub mod versions;
mod wire;
pub mod write;

/// The Kubernetes version whose API Wherry follows (its types are those of k8s-openapi's feature `v1_34`).
pub const KUBERNETES_MINOR: u32 = 34;
