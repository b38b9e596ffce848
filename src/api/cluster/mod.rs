//! The API server of a cluster: the requests of a node and their answers, as plain values and texts.
//!
//! - `request`: a request and an answer in general; `paths`: the paths; `requests`: the requests of a node;
//! - `watched`: the objects that a node lists and watches; `list`, `watch`: the answers to that; `items`, `lines` take
//!   them apart as they arrive;
//! - `status`: why the server refuses a request;
//! - `node`: this machine as an object Node; `node_status`: the patches of it;
//! - `cordon`: Wherry's cordon in that object;
//! - `in_place`: the changes that a running pod follows;
//! - `pod_object`: from the server's object to our pod; `unknown_fields`: fields of newer servers; `pod_status`,
//!   `pod_changes`: the status of a pod for the server; `final_ends`: the ends of containers that the server keeps;
//! - `mirror`: the mirror of a pod of a manifest;
//! - `keep`: from a pod of the server to manifests;
//! - `expectation`: the expected life of a pod while the server is away;
//! - `lease`: the sign of life of the node; `event`: events; `event_queue`: events that wait, on the disk;
//! - `reviews`: who presents a credential to the node's server, and what that user may do;
//! - `data_record`: a ConfigMap or a Secret on the disk; `token`: a token of a service account; `reduced`: services and
//!   RuntimeClasses;
//! - `bootstrap`: the token and the pin with which a machine joins; `certificate`: requests for a certificate.

pub mod bootstrap;
pub mod certificate;
pub mod cordon;
pub mod data_record;
pub mod event;
pub mod event_queue;
pub mod expectation;
pub mod final_ends;
pub mod in_place;
pub mod items;
pub mod keep;
pub mod lease;
pub mod lines;
pub mod list;
pub mod machine;
pub mod mirror;
pub mod node;
pub mod node_status;
mod paths;
mod pod_changes;
pub mod pod_object;
pub mod pod_status;
pub mod reduced;
pub mod request;
pub mod requests;
pub mod reviews;
pub mod status;
pub mod token;
mod unknown_fields;
pub mod watch;
pub mod watched;
