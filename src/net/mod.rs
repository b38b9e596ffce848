//! Network code below the adapters. It knows nothing about pods, routes or the CRI: an adapter passes it addresses
//! and bytes. Nothing here blocks; the agent's poll drives everything.
//!
//! - `stream`: a connected TCP or unix socket, and its client; `buffered`: a stream with a queue of output;
//! - `budget`: a socket with a budget for each turn of the loop;
//! - `listener`: a listening socket that is opened again when it fails or when its file is removed;
//! - `http1`: HTTP/1.1 for a server: parses request heads, formats response heads and chunks;
//! - `server`: an HTTP/1.1 server for any number of listeners, with limits for each client;
//! - `http1_client`: a GET request and its response;
//! - `tls`: TLS over a socket; `spdy`: SPDY/3.1 for the streams of a container runtime;
//! - `x509`: reads the validity, the names and the public key of a certificate;
//! - `http2`: the part of HTTP/2 that `grpc` and `https` share;
//! - `grpc`: a gRPC client over HTTP/2 on a unix socket, with reconnection; `grpc/once`: one call over TCP;
//! - `https`: a client for one server over TLS and HTTP/2;
//! - `addresses`: the addresses of this machine; `backoff`: when to connect, listen or request a stream again.

pub mod addresses;
pub mod backoff;
pub mod budget;
pub mod buffered;
pub mod grpc;
pub mod http1;
pub mod http1_client;
mod http2;
pub mod https;
pub mod listener;
#[cfg(test)]
pub mod refused;
pub mod server;
pub mod spdy;
pub mod stream;
pub mod tls;
pub mod x509;
