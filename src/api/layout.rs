//! Where a pod's things are on disk, as a kubelet lays them out: computed from names, nothing is looked at.
//!
//! The runtime is told these paths (log directory, mounts), and the pod's files are made under them; both sides
//! take them from here.

use crate::api::names::{FullName, Uid};

/// The directories that a node was given. Absolute paths, without a slash at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// State of pods, records, the lock: `/var/lib/wherry`.
    pub root: String,
    /// Logs of pods: `/var/log/pods`.
    pub logs: String,
    /// Links to the logs, a flat directory for log collectors: `/var/log/containers`. None: no links are made.
    pub log_links: Option<String>,
}

impl Layout {
    /// `<root>/pods`
    pub fn pods(&self) -> String {
        format!("{}/pods", self.root)
    }

    /// `<root>/pods/<uid>`
    pub fn pod(&self, uid: &Uid) -> String {
        format!("{}/pods/{uid}", self.root)
    }

    /// The managed hosts file, mounted at /etc/hosts.
    pub fn etc_hosts(&self, uid: &Uid) -> String {
        format!("{}/pods/{uid}/etc-hosts", self.root)
    }

    /// Where a container's termination message files are.
    pub fn container(&self, uid: &Uid, container: &str) -> String {
        format!("{}/pods/{uid}/containers/{container}", self.root)
    }

    /// Where `seccompProfile.localhostProfile` is relative to.
    pub fn seccomp(&self) -> String {
        format!("{}/seccomp", self.root)
    }

    /// `<logs>/<namespace>_<name>_<uid>`: the sandbox's log_directory.
    pub fn pod_logs(&self, name: &FullName, uid: &Uid) -> String {
        format!("{}/{}_{}_{uid}", self.logs, name.namespace, name.name)
    }

    /// A container's log, relative to the pod's log directory: `<container>/<attempt>.log`.
    pub fn log_path(container: &str, attempt: u32) -> String {
        format!("{container}/{attempt}.log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_a_kubelet() {
        let l = Layout { root: "/r".into(), logs: "/l".into(), log_links: None };
        let uid = Uid::from("u1");
        assert_eq!(l.etc_hosts(&uid), "/r/pods/u1/etc-hosts");
        assert_eq!(l.container(&uid, "main"), "/r/pods/u1/containers/main");
        assert_eq!(l.pod_logs(&FullName::new("ns", "p"), &uid), "/l/ns_p_u1");
        assert_eq!(Layout::log_path("main", 4), "main/4.log");
    }
}
