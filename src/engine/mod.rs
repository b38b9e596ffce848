//! The core without I/O: given an event and the time, it returns effects. It never reads a clock, a file or a socket.
//! Read `event`, `effect` and `op` first, then `node`.

pub mod admission;
pub mod config;
pub mod container_ends;
pub mod context;
pub mod control;
pub mod desired;
pub mod effect;
pub mod event;
pub mod node;
pub mod op;
pub mod orphaned_directories;
pub mod outbox;
pub mod pleg;
pub mod pod;
pub mod probe;
pub mod record_error;
pub mod rng;
pub mod runtime;
pub mod shutdown;
pub mod slots;
pub mod timer;
