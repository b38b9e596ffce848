//! Containers' logs on disk, read as the commands show them: through rotation and restarts, from the end, and as they grow.
//!
//! The runtime writes `<container>/<restarts>.log` and goes on in a new file of that name after the old one was renamed to
//! `<restarts>.log.<time>`; of those all but the newest may be compressed (`.gz`). `files` knows these names, `tail` finds the
//! last lines without reading the rest, `print` turns lines of a file into lines of output, `reader` puts the three together for one
//! container, `watch` waits for more.

pub mod files;
pub mod print;
pub mod reader;
mod tail;
pub mod watch;
