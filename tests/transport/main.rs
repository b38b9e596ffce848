//! The transports of the CRI client, each test over both of them (the second with `--features grpcio`):
//!
//! - `scripted`: a server of the tests' own, for what a real runtime will not do on demand (hang, GOAWAY, resets, 16 MiB
//!   both ways, broken answers);
//! - `trouble`: bytes that no HTTP/2 library would send (`raw`);
//! - `events`: the stream of container events over them;
//! - `driver`: which cgroup driver the runtime says that it uses;
//! - `containerd`: a real one, started by the test in a directory of its own, killed and started again. Needs root and
//!   `containerd` in PATH; without them its tests say so and are skipped.

// The lists in clippy.toml are for `engine` and `api`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

/// Runs each of these functions as a test over each transport there is.
macro_rules! over_each_transport {
    ($($name:ident),* $(,)?) => {
        mod h2 {
            $(#[test] fn $name() { super::$name($crate::rig::h2) })*
        }
        #[cfg(feature = "grpcio")]
        mod grpcio {
            $(#[test] fn $name() { super::$name($crate::rig::grpcio) })*
        }
    };
}

mod containerd;
mod driver;
mod events;
mod raw;
mod rig;
mod scripted;
mod server;
mod trouble;
