//! Identifiers that modules and the runtime share: pod identities, and the label and annotation keys by which node
//! agents and their tools find sandboxes and containers in a CRI runtime.

use std::fmt;
use std::rc::Rc;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(from = "String")]
        pub struct $name(pub Rc<str>);
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(s: &str) -> Self {
                $name(Rc::from(s))
            }
        }
        impl From<String> for $name {
            fn from(s: String) -> Self {
                $name(Rc::from(s))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

name! {
    /// A pod's UID (D3).
    Uid
}
name! {
    /// The runtime's id of a sandbox.
    SandboxId
}
name! {
    /// The runtime's id of a container, without a `<runtime>://` prefix.
    ContainerId
}

/// `namespace/name`. At most one pod with the same full name runs at a time (W8).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FullName {
    pub namespace: Rc<str>,
    pub name: Rc<str>,
}

impl FullName {
    pub fn new(namespace: &str, name: &str) -> FullName {
        FullName { namespace: Rc::from(namespace), name: Rc::from(name) }
    }
}

impl fmt::Display for FullName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Serialised as one string, so that it can be a map key.
impl serde::Serialize for FullName {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl fmt::Debug for FullName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Labels of sandboxes and containers, identical to a kubelet's.
pub mod label {
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
}

/// Annotations of containers and sandboxes: those of a kubelet, and our own (`io.wherry.*`).
pub mod annotation {
    pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    pub const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    pub const TERMINATION_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    pub const CONTAINER_PORTS: &str = "io.kubernetes.container.ports";
    /// The preStop handler in JSON, which is needed to stop the container without its spec (W21).
    pub const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
    pub const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
    pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
    pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
    pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
    /// On sandboxes and containers: the id of the root directory that owns the pod (W21).
    pub const OWNER: &str = "io.wherry.owner";
    /// On containers: the number of consecutive restarts before this one (W10), decimal.
    pub const BACKOFF_LEVEL: &str = "io.wherry.container.backoffLevel";
    /// On containers: a digest of the id of the boot in which the container was created (W10), hexadecimal.
    pub const BOOT: &str = "io.wherry.container.boot";
    /// On sandboxes with a user namespace of their own: the first id on the host (W28), decimal.
    pub const USER_NAMESPACE: &str = "io.wherry.pod.userNamespace";
    /// On the node's object at an API server: `true` while Wherry's cordon is shown there (C16).
    pub const CORDONED: &str = "io.wherry.node.cordoned";
    /// On sandboxes: the pod's grace period in seconds, used for an orphan (W21), decimal.
    pub const SANDBOX_GRACE: &str = "io.wherry.pod.terminationGracePeriod";
}
