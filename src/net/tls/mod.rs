//! TLS on non-blocking sockets, with rustls and ring.
//!
//! - `client`: connections of probes and hooks, which accept every certificate;
//! - `verified`: connections to a server whose certificate a given CA has signed;
//! - `server`: connections of clients that identify themselves with a certificate;
//! - `session`: reads and writes for `verified` and `server`.

pub mod client;
pub mod server;
pub mod session;
pub mod verified;
