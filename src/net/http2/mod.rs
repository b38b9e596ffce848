//! HTTP/2 with the `h2` crate on a non-blocking socket in the agent's poll, as the base of `grpc` and `https`. The
//! futures are polled directly, without an executor. Only two traits of the tokio crate are used; there is no tokio
//! runtime.
//!
//! - `link`: one connection of a client, which polls the woken calls of its owner;
//! - `socket`: reading and writing within a budget; `wake`: the list of futures to poll.

pub(super) mod link;
pub(super) mod socket;
pub(super) mod wake;
