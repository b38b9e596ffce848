//! The lifecycle of one pod: its worker, the plan of its next step, its record and its status.

pub mod backoff;
pub mod kill;
pub mod placement;
pub mod plan;
pub mod process;
pub mod record;
pub mod sandbox_needs;
pub mod status;
pub mod worker;
