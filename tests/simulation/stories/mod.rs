//! Scenarios for the rules of docs/behaviour.md.

mod admission;
mod adoption;
mod deadlines;
mod desired;
mod drains;
mod finished;
mod hooks;
mod images;
mod init;
mod isolation;
mod kills;
mod lock;
mod measures;
mod pleg;
mod probes;
mod questions;
mod restarts;
mod room;
mod sandboxes;
mod shown;
mod shutdown;
mod strangers;
mod termination;
mod trouble;
mod volumes;
mod workers;
