//! TLS on non-blocking sockets, with rustls and ring.
//!
//! - `client`: connections of probes and hooks;
//! - `server`: connections of clients that identify themselves with a certificate.

pub mod client;
pub mod server;
