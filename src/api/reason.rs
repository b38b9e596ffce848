//! The reasons of events, conditions, waiting states, rejections and kills: one closed set, with the strings of a
//! kubelet where a kubelet has the reason.

use serde::{Serialize, Serializer};
use std::fmt;
use std::rc::Rc;

macro_rules! reasons {
    ($($name:ident)*) => {
        /// A reason. `as_str` is the string that people and tools see.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $($name,)*
            /// Too little of a resource is free (A3). Contains the whole string, for example `OutOfcpu`.
            OutOf(Rc<str>),
            /// A reason in a record that another version of Wherry wrote.
            Other(Rc<str>),
        }

        impl Reason {
            const FIXED: &[(&str, Reason)] = &[$((stringify!($name), Reason::$name),)*];

            pub fn as_str(&self) -> &str {
                match self {
                    $(Reason::$name => stringify!($name),)*
                    Reason::OutOf(text) | Reason::Other(text) => text,
                }
            }
        }
    };
}

reasons! {
    // Events of a pod.
    BackOff CDIDevicesIgnored ContainerDied Created Failed FailedCleanup FailedCreatePodSandBox FailedKillPod
    FailedLogRotation FailedMount FailedPostStartHook FailedPreStopHook FailedRecord FailedToRetrieveImagePullSecret
    FailedUnMount InspectFailed Killing LifecycleHTTPFallback OrphanedPod ProbeWarning Pulled Pulling Removed
    ResizeCompleted ResizeDeferred ResizeError ResizeInfeasible ResizeStarted SandboxChanged Started StopSignalIgnored
    Undrained Unhealthy
    // Events of a pod about its DNS settings.
    DNSConfigForming MissingClusterDNS
    // Events of workloads.
    BackoffLimitExceeded Completed FailedCreate FailedDelete FailedIndexes FailedPlacement JobAlreadyActive
    MaxFailedIndexesExceeded MissSchedule MissingJob PodFailurePolicy ReplacingInPlace Resumed SawCompletedJob
    ScalingReplicaSet SuccessfulCreate SuccessfulDelete Suspended TooManyMissedTimes UnknownTimeZone
    // Events of claims.
    ProvisioningFailed ProvisioningSucceeded VolumeFailedDelete WaitForFirstConsumer
    // Events of services.
    ClusterIPAlreadyAllocated ClusterIPOutOfRange FailedServiceAllocation FailedServiceNames PortAlreadyAllocated
    // Events of the node.
    AgentCrashed ApiServerConnected ApiServerDisconnected ApiServerError BadManifest BadRecord CertificateExpired
    CertificateIssued CertificateNotApproved CertificateNotRenewed CertificateRenewed Conflict ConflictEnded
    DevicePlugin EvictionThresholdMet FailedCgroup FailedListen FailedSeal FailedServiceRules
    FailedStore FailedUnseal FreeDiskSpaceFailed ImageGCFailed InvalidDiskCapacity LeftoverDirectory LogindConnected
    LogindDisconnected
    MirrorRefused NetworkNotReady NodeHasDiskPressure NodeHasInsufficientMemory NodeHasInsufficientPID
    NodeHasNoDiskPressure NodeHasSufficientMemory NodeHasSufficientPID NodeNotSchedulable NodeSchedulable
    NodeNameConflict NodeRegistered RuntimeConnected RuntimeDisconnected RuntimeNotReady RuntimeReady
    ServiceRulesApplied ServiceRulesLost ShutdownArmed ShutdownNotArmed Starting TokenExpired
    // Why a pod ends or is killed.
    DeadlineExceeded Drained Evicted NodeShutdown Preempting Terminated
    // Why a pod waits or is rejected. All extended resources share one metric label.
    AppArmor InvalidPod NodeAffinity NodeName NodePorts OutOfExtendedResources PodFeatureUnsupported PodOSNotSupported
    SysctlForbidden TaintToleration UIDInUse Unschedulable WaitingForRoom
    // Why a container waits.
    ContainerCreating CrashLoopBackOff CreateContainerConfigError CreateContainerError ErrImageNeverPull ErrImagePull
    ImageInspectError ImagePullBackOff InvalidImageName PodInitializing PostStartHookError RegistryUnavailable
    RunContainerError SignatureValidationFailed
    // Conditions and terminated containers.
    ContainerStatusUnknown ContainersNotInitialized ContainersNotReady Deferred Error EvictionByEvictionAPI Infeasible
    PodCompleted PodFailed ReadinessGatesNotReady TerminationByKubelet
}

impl Reason {
    const OUT_OF: &str = "OutOf";

    /// Returns the reason for a pod that requests too much of this resource.
    pub fn out_of(resource: &str) -> Reason {
        Reason::OutOf(format!("{}{resource}", Reason::OUT_OF).into())
    }

    /// Reads a reason that `as_str` wrote.
    pub fn from_text(text: &str) -> Reason {
        let fixed = Reason::FIXED.iter().find(|(name, _)| *name == text).map(|(_, reason)| reason.clone());
        fixed.unwrap_or_else(|| match text.starts_with(Reason::OUT_OF) {
            true => Reason::OutOf(text.into()),
            false => Reason::Other(text.into()),
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_read_back_from_its_text() {
        for (name, reason) in Reason::FIXED {
            assert_eq!((reason.as_str(), &Reason::from_text(name)), (*name, reason));
        }
        assert_eq!(Reason::from_text("OutOfcpu"), Reason::out_of("cpu"));
        assert_eq!(Reason::from_text("OutOfExtendedResources"), Reason::OutOfExtendedResources);
        let later = Reason::from_text("OfALaterVersion");
        assert_eq!((later.as_str(), later.clone()), ("OfALaterVersion", Reason::Other("OfALaterVersion".into())));
    }
}
