//! The rules, told as stories.

mod admission;
mod adoption;
mod desired;
mod drains;
mod finished;
mod hooks;
mod images;
mod init;
mod kills;
mod lock;
mod measures;
mod pleg;
mod probes;
mod questions;
mod restarts;
mod sandboxes;
mod shown;
mod shutdown;
mod termination;
mod volumes;
mod workers;
