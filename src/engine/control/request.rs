//! What a user can request.

use super::ephemeral::EphemeralRequest;
use super::exec::ExecRequest;
use super::stream::StreamRequest;
use crate::api::claim::ClaimKey;
use crate::api::names::{FullName, Uid};
use crate::engine::cluster::access::AccessRequest;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// W27: stop these pods and keep them stopped. `grace` replaces their own grace periods; it can only shorten a
    /// grace period that has started (W4).
    /// `ignores_budgets`: also pods that a disruption budget protects (Y32).
    Drain { uids: Vec<Uid>, grace: Option<Duration>, ignores_budgets: bool },
    /// W27: allow these pods to run again.
    Undrain { uids: Vec<Uid> },
    /// A10: cordon or uncordon the node.
    Cordon { on: bool },
    /// A11: evict this pod. `grace` as for `Drain`.
    Evict { uid: Uid, grace: Option<Duration> },
    /// W4: shorten the grace period of the pods of this name that terminate because they are no longer desired. A
    /// longer grace period has no effect.
    Shorten { pod: FullName, grace: Duration },
    /// Delete this pod of a workload, which creates another one. `grace` shortens the grace period of the pod.
    DeleteReplica { uid: Uid, grace: Option<Duration> },
    /// Delete this Job of a CronJob, with its pods.
    DeleteJob { of: FullName },
    /// Delete this claim of a StatefulSet or of an ephemeral volume. It ends when no pod uses it.
    DeleteClaim { of: ClaimKey },
    /// Remove the directory of this claim, which is gone.
    RemoveVolume { of: ClaimKey },
    /// A3: repeat the admission of a rejected pod.
    Retry { uid: Uid },
    /// W29: give a running pod ephemeral containers.
    Ephemeral(EphemeralRequest),
    /// Run a command in a running container.
    Exec(ExecRequest),
    /// Request the URL of a stream from the runtime.
    Stream(StreamRequest),
    /// Read the resource usage of all running containers.
    Usage,
    /// List the images, their users, and what the garbage collection would remove.
    Images,
    /// C6: decide whether this client of the node's server may do this.
    Access(AccessRequest),
}
