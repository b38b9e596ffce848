//! TLS on non-blocking sockets, with rustls and ring.
//!
//! - `client`: connections of probes and hooks, which accept every certificate;
//! - `server`: connections of clients that identify themselves with a certificate;
//! - `session`: reads and writes of a TCP connection.

pub mod client;
pub mod server;
pub mod session;
