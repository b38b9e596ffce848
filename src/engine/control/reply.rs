//! The answers to requests that were carried out.

use super::retry::RetryOutcome;
use crate::api::control::{Drained, Images, OutputEnd, Usage};
use crate::api::facts::ExecOutput;
use crate::api::names::FullName;

/// The answer to a request that was carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To `Drain` and `Undrain`: the outcome for each pod, in the order of the request. The records are durable.
    Drained(Drained),
    /// To `Cordon`. The record of the node is durable.
    Cordoned {
        on: bool,
    },
    /// To `Evict`. The record of the pod is durable.
    Evicted {
        pod: FullName,
    },
    /// To `Shorten`. The records of the pods are durable.
    Shortened,
    Retried {
        pod: FullName,
        outcome: RetryOutcome,
    },
    /// To `Ephemeral`: the names of the ephemeral containers that the pod has now, in their order. The record is
    /// durable.
    Ephemeral(Vec<String>),
    Executed(ExecOutput, OutputEnd),
    /// A URL of the runtime's streaming server. It can be used once, within a minute.
    StreamUrl(String),
    Usage(Usage),
    Images(Images),
    /// To `Access`: the name of the user.
    Permitted {
        user: String,
    },
}
