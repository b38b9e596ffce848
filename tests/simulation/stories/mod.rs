//! The rules, told as stories.

mod adoption;
mod desired;
mod images;
mod pleg;
mod restarts;
mod sandboxes;
mod shown;
mod termination;
mod workers;
