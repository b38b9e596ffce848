//! The API server of a cluster: carries out the engine's requests over HTTPS, and passes on the items and lines of
//! their answers as they arrive.
//!
//! - `kubeconfig`: reads the server and the credentials; `credentials`: what was read;
//! - `server`: the connection and its requests; `arrived`: what it passes on;
//! - `answer`: assembles the answer of one request;
//! - `blocking`: one request at a time, for commands.
//!
//! Each request ends in exactly one `Arrived::Done`. A request connects if there is no connection. The adapter never
//! retries or postpones a request: the engine decides when to try again.

mod answer;
mod arrived;
mod blocking;
mod credentials;
mod kubeconfig;
mod server;
#[cfg(test)]
mod tests;

pub use arrived::{AnswerLimits, Arrived};
pub use blocking::{Answered, Blocking};
pub use credentials::Credentials;
pub use kubeconfig::{Contents, User};
pub use server::ApiServer;
