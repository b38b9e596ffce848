//! Graceful shutdown with the real systemd-logind on a real system bus. Run by `make test-shutdown`, in namespaces of its own with a
//! containerd of its own (`tests/lab/in-lab.sh`); each test has its own bus and logind (`tests/lab/logind.sh`), and nothing can
//! really be powered off. Counts and order are asserted; times only with ten-fold slack.

// The ban is for the engine (clippy.toml).
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
