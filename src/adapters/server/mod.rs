//! What the node serves over HTTP (`net::server`): the listeners and routes, the requests of the control socket and
//! their responses, the health checks, and the status of the node.

pub mod api;
pub mod control;
pub mod health;
pub mod routes;
pub mod status;
