//! The paths of a pod's files, in the layout of a kubelet. They are computed from names without disk access.
//!
//! The requests to the runtime (log directory, mounts) and the code that writes the files both use these paths.

use crate::api::names::{FullName, Uid};

/// The configured directories: absolute paths without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Pod state, records and the lock file: `/var/lib/wherry`.
    pub root: String,
    /// Pod logs: `/var/log/pods`.
    pub logs: String,
    /// A flat directory of links to the logs, for log collectors: `/var/log/containers`. None: no links are created.
    pub log_links: Option<String>,
}

impl Layout {
    /// Returns `<root>/pods`.
    pub fn pods(&self) -> String {
        format!("{}/pods", self.root)
    }

    /// Returns `<root>/pods/<uid>`.
    pub fn pod(&self, uid: &Uid) -> String {
        format!("{}/pods/{uid}", self.root)
    }

    /// Returns the path of the managed hosts file, which is mounted at /etc/hosts.
    pub fn etc_hosts(&self, uid: &Uid) -> String {
        format!("{}/pods/{uid}/etc-hosts", self.root)
    }

    /// Returns the directory of a container's termination message files.
    pub fn container(&self, uid: &Uid, container: &str) -> String {
        format!("{}/pods/{uid}/containers/{container}", self.root)
    }

    /// Returns the directory of an emptyDir.
    pub fn empty_dir(&self, uid: &Uid, volume: &str) -> String {
        format!("{}/pods/{uid}/volumes/kubernetes.io~empty-dir/{volume}", self.root)
    }

    /// Returns the base directory of `seccompProfile.localhostProfile`.
    pub fn seccomp(&self) -> String {
        format!("{}/seccomp", self.root)
    }

    /// Returns `<logs>/<namespace>_<name>_<uid>`: the sandbox's log_directory.
    pub fn pod_logs(&self, name: &FullName, uid: &Uid) -> String {
        format!("{}/{}_{}_{uid}", self.logs, name.namespace, name.name)
    }

    /// Returns the path of a container's log, relative to the pod's log directory: `<container>/<attempt>.log`.
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
        assert_eq!(l.empty_dir(&uid, "v"), "/r/pods/u1/volumes/kubernetes.io~empty-dir/v");
        assert_eq!(l.pod_logs(&FullName::new("ns", "p"), &uid), "/l/ns_p_u1");
        assert_eq!(Layout::log_path("main", 4), "main/4.log");
    }
}
