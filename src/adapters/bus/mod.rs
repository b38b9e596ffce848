//! The system D-Bus, through libdbus, on the agent's event loop. Nothing here blocks: blocking calls of libdbus are not used,
//! a connection is opened by address only after the bus has answered a probe (`probe`), and `Hello` is sent as an ordinary
//! message. libdbus has no event loop of its own; its one socket is registered with the agent's.
//!
//! - `logind`: graceful shutdown;
//! - `slices`: the systemd slices of pods;
//! - `address`, `probe`, `channel`, `reply`: shared by both.

mod address;
mod channel;
pub mod logind;
mod probe;
mod reply;
pub mod slices;

pub use address::DEFAULT as DEFAULT_ADDRESS;
