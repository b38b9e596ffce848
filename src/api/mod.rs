//! The pod model: defaulting, validation, quantities, QoS and identity, and plain facts about sandboxes and containers.
//! This module uses no clock, no files and no protobuf.

pub mod cgroups;
pub mod control;
pub mod data_object;
pub mod defaults;
pub mod document;
pub mod environment;
pub mod expand;
pub mod facts;
pub mod finding;
pub mod hash;
pub mod hostname;
pub mod image;
pub mod layout;
pub mod limits;
pub mod log_line;
pub mod mount;
pub mod names;
pub mod node_facts;
pub mod objects;
pub mod pod;
pub mod printable;
pub mod priority;
pub mod problem;
pub mod qos;
pub mod quantity;
pub mod reason;
pub mod resources;
pub mod selector;
pub mod shutdown;
pub mod sysctls;
pub mod time;
pub mod uid;
pub mod validate;
pub mod volume;
pub mod volume_contents;
