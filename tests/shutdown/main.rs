//! Graceful shutdown with a real systemd-logind on a real system bus. `make test-shutdown` runs these tests in separate
//! namespaces with a separate containerd (`tests/lab/in-lab.sh`). Each test has its own bus and logind
//! (`tests/lab/logind.sh`), which cannot power off the machine. The tests assert counts and order. They assert times only
//! with tenfold slack.

// The lists in clippy.toml apply only to `engine` and `api`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../support/mod.rs"]
mod support;

mod bus;
mod mended;
mod pods;
mod slices;
mod store;
mod strace;
mod unit;
