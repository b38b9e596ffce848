//! The Kubernetes API that kubectl uses: paths, options, formats and errors. This code does no I/O.
//!
//! - `resources`: the resources that Wherry serves; `discovery`: the documents that describe them; `openapi`: the types
//!   and fields, for `kubectl explain`;
//! - `path`: the target of a request; `kubelet`: the paths of a kubelet, `kubelet_request`: requests to the node's
//!   server; `query`: its options; `accept`: the requested format; `protobuf`: bodies that are not JSON, `pod_message`:
//!   pods and workloads, `wire`: their fields;
//! - `access`: the permissions of each role; `reviews`: the answers to a client that asks for its permissions;
//! - `selection`: which objects a list or watch contains; `versions`: resource versions, and the changes since a
//!   version; `pod_notes`: the pods that may have changed; `bookmarks`: schedules the bookmarks of watches;
//! - `plain_objects`: the forms of objects that are only kept and shown; `plain_cells`: their cells in a table;
//! - `table`: objects as rows of a table; `pod_row`: the row of a pod;
//! - `log_choice`: selects the run of a container whose log a request asks for;
//! - `eviction`: evictions, and pods that are not on the node; `node_change`: cordons;
//! - `write`: computes the new manifest from a manifest and a request; `comments`: finds comments, which are lost;
//!   `strategic` (lists: `merged_list`), `json_patch`: the formats of patches; `string_data`: the plain values of a
//!   Secret; `value_size`: the limits of the value that a body or a patch produces;
//! - `status`: errors.

pub mod accept;
pub mod access;
pub mod bookmarks;
pub mod comments;
pub mod discovery;
pub mod edit;
pub mod ephemeral;
pub mod eviction;
mod job_cells;
pub mod json_patch;
pub mod kubelet;
pub mod kubelet_request;
pub mod log_choice;
mod merged_list;
pub mod node_change;
pub mod openapi;
pub mod path;
mod plain_cells;
mod plain_fields;
pub mod plain_objects;
mod pod_fields;
pub mod pod_message;
pub mod pod_notes;
pub mod pod_row;
pub mod protobuf;
pub mod query;
pub mod request_body;
pub mod resources;
pub mod reviews;
pub mod scale;
pub mod selection;
mod service_cells;
pub mod status;
pub mod strategic;
mod string_data;
pub mod table;
pub mod value_size;
pub mod versions;
mod wire;
mod workload_fields;
pub mod write;

/// The Kubernetes version whose API Wherry follows (its types are those of k8s-openapi's feature `v1_34`).
pub const KUBERNETES_MINOR: u32 = 34;
