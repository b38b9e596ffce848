//! The API server of a cluster: the requests of a node and their answers, as plain values and texts.
//!
//! - `request`: the types of requests and answers; `paths`: paths of the API; `requests`: the requests of a node;
//! - `watched`: the objects that a node lists and watches; `list`, `watch`: the answers; `items`, `lines`: split the
//!   answers as they arrive;
//! - `status`: why the server refuses a request;
//! - `node`: this machine as a Node object; `node_status`: patches of the object's status;
//! - `cordon`: Wherry's cordon in that object;
//! - `in_place`: the changes that a running pod follows;
//! - `pod_object`: converts the server's object to our pod; `unknown_fields`: fields of newer servers; `pod_status`,
//!   `pod_changes`: the status of a pod for the server; `final_ends`: terminations of containers that the server
//!   considers final;
//! - `mirror`: the mirror of a manifest's pod;
//! - `keep`: converts a pod of the server to manifests;
//! - `expectation`: what is expected to happen to a pod while the server is unreachable;
//! - `lease`: the Lease whose renewals show that the node is alive; `event`: events; `event_queue`: the copies on the
//!   disk of events that wait;
//! - `reviews`: who a client of the node's server is, and what that user may do;
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
