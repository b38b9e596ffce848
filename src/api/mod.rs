//! What a pod is here: defaulting, validation, quantities, QoS, identity; and plain facts about
//! sandboxes and containers. No clock, no file, no protobuf.

pub mod cgroups;
pub mod facts;
pub mod hostname;
pub mod layout;
pub mod names;
pub mod pod;
pub mod time;
