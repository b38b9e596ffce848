//! The answers to requests that were carried out.

use super::retry::RetryOutcome;
use crate::api::control::{Drained, Images, OutputEnd, Usage};
use crate::api::facts::ExecOutput;
use crate::api::names::FullName;

/// The answer to a request that was carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The answer to `Drain` and `Undrain`: the outcome for each pod, in the order of the request. The records are
    /// durable.
    Drained(Drained),
    /// The answer to `Cordon`. The record of the node is durable.
    Cordoned {
        on: bool,
    },
    /// The answer to `Evict`. The record of the pod is durable.
    Evicted {
        pod: FullName,
    },
    /// The answer to `Shorten`, `DeleteReplica`, `DeleteJob`, `DeleteClaim` and `RemoveVolume`. The records are
    /// durable.
    Shortened,
    Retried {
        pod: FullName,
        outcome: RetryOutcome,
    },
    /// The answer to `Ephemeral`: the names of the ephemeral containers that the pod has now, in their order. The
    /// record is durable.
    Ephemeral(Vec<String>),
    Executed(ExecOutput, OutputEnd),
    /// A URL of the runtime's streaming server. It can be used once, within a minute.
    StreamUrl(String),
    Usage(Usage),
    Images(Images),
    /// The answer to `Access`: the name of the user.
    Permitted {
        user: String,
    },
}
