//! The client of the runtime's streaming server, for `exec -it`, `attach`, `port-forward` and `cp`.
//!
//! The command requests a URL from the agent (`url`, or `lookup` without blocking) and connects to the runtime itself
//! (`connection`), so a stream continues while the agent is restarted. `session` has the standard streams of a
//! process; `interactive` connects them to those of the command, with the user's terminal (`terminal`) and the detach
//! keys (`detach`); `bytes` reads and writes them for `cp`.

pub mod bytes;
pub mod connection;
pub mod detach;
pub mod interactive;
pub mod lookup;
pub mod session;
pub mod terminal;
pub mod url;

/// The protocols on top of SPDY.
pub const REMOTE_COMMAND: &str = "v4.channel.k8s.io";
pub const PORT_FORWARD: &str = "portforward.k8s.io";
