//! Random lives of a member of a cluster: the actions of `plan`, and between them those of a cluster (`actions`). `check` has the
//! rules for each request to the API server, and `settled` those for the end.

pub mod actions;
pub mod check;
pub mod settled;
