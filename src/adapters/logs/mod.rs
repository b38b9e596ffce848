//! Container logs on disk. Commands read them across rotations and restarts, from the end, and while they grow. The
//! agent rotates them.
//!
//! The runtime writes `<container>/<restarts>.log`. A rotation renames the file to `<restarts>.log.<time>`, and the
//! runtime continues in a new file with the old name. All rotated files except the newest can be compressed (`.gz`).
//!
//! - `files`: the file names and their order;
//! - `tail`: finds the last lines without reading the rest;
//! - `print`: converts lines of a file to lines of output;
//! - `reader`: combines these for one container;
//! - `watch`: waits for changes;
//! - `writes`: tells the agent that a log is written to;
//! - `rotate`: renames a log, compresses and removes older files.

pub mod files;
pub mod print;
pub mod reader;
pub mod rotate;
mod tail;
pub mod watch;
pub mod writes;
