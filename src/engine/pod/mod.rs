//! One pod's life: its worker, what it plans, and the status that people see.

pub mod backoff;
pub mod kill;
pub mod plan;
pub mod record;
pub mod status;
pub mod worker;
