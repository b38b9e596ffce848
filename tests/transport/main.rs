//! The transports of the CRI client. Each test runs over every transport (grpcio only with `--features grpcio`):
//!
//! - `scripted`: a test server that behaves as a real runtime does not on demand (hang, GOAWAY, resets, 16 MiB both ways,
//!   broken answers)
//! - `trouble`: bytes that no HTTP/2 library sends (`raw`)
//! - `events`: the stream of container events
//! - `driver`: the cgroup driver that the runtime reports
//! - `containerd`: a real containerd in a temporary directory, which the test kills and restarts. This needs root and
//!   `containerd` in PATH; without them these tests print a line and are skipped.

// The lists in clippy.toml apply only to `engine` and `api`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

/// Runs each of these functions as a test over each available transport.
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
