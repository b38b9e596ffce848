//! What a pod is here: defaulting, validation, quantities, QoS, identity; and plain facts about
//! sandboxes and containers. No clock, no file, no protobuf.

pub mod facts;
pub mod names;
pub mod pod;
pub mod time;
