//! The system D-Bus, through libdbus, on the agent's event loop. Nothing here blocks: blocking calls of libdbus are not
//! used, a connection is opened by address only after the bus has answered a probe (`probe`), and `Hello` is sent as an
//! ordinary message. libdbus has no event loop of its own; its one socket is registered with the agent's.
//!
//! - `connection`, `reply`: one connection and its messages, shared with the adapter `cgroups`, whose slices are calls
//!   to systemd;
//! - `address`, `probe`, `retry`, `watch`: finding the bus;
//! - `logind`: graceful shutdown.

mod address;
pub(in crate::adapters) mod connection;
pub mod logind;
mod probe;
pub(in crate::adapters) mod reply;
mod retry;
mod watch;

/// Returns the address of the system bus: `DBUS_SYSTEM_BUS_ADDRESS`, or libdbus's default. As in libdbus, an empty
/// value counts as unset.
pub fn system_address() -> String {
    let address = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").ok().filter(|a| !a.is_empty());
    address.unwrap_or_else(|| address::DEFAULT.to_owned())
}
