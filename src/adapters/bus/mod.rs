//! The system's D-Bus, through libdbus, on the agent's one loop. Nothing here waits: calls of libdbus that block are
//! not used, a connection is opened by its address once something has answered there (`probe`), and the bus is greeted
//! with an ordinary message. libdbus knows of no loop: its one socket is in ours.
//!
//! - `logind`: graceful shutdown;
//! - `slices`: systemd makes the slices that pods are in;
//! - `address`, `probe`, `channel`, `reply`: what both need.

mod address;
mod channel;
pub mod logind;
mod probe;
mod reply;
pub mod slices;

pub use address::DEFAULT as DEFAULT_ADDRESS;
