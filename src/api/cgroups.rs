//! The names of the cgroups under which a node's pods run, as a kubelet names them, for both cgroup drivers.
//!
//! `<root>/kubepods[/burstable|/besteffort]/pod<uid>`; for systemd the same as a path of slices. The cgroups
//! themselves are `adapters::node::cgroups`' business.

use crate::api::names::Uid;
use crate::api::qos::Qos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    Cgroupfs,
    Systemd,
}

/// The classes have a parent each; a guaranteed pod is directly under `kubepods`.
fn parent(qos: Qos) -> Option<&'static str> {
    match qos {
        Qos::Guaranteed => None,
        Qos::Burstable => Some("burstable"),
        Qos::BestEffort => Some("besteffort"),
    }
}

/// `cgroupRoot`, `cgroupDriver` and `cgroupsPerQOS` of the node's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupNames {
    /// `/` or `/a/b`.
    pub root: String,
    pub driver: CgroupDriver,
    /// False: pods get no cgroup of their own, containers are put under the root.
    pub per_qos: bool,
}

impl CgroupNames {
    /// The `cgroup_parent` of a pod's sandbox.
    pub fn pod(&self, qos: Qos, uid: &Uid) -> String {
        if !self.per_qos {
            return format!("/{}", self.root_parts().collect::<Vec<_>>().join("/"));
        }
        let pod = format!("pod{uid}");
        let parts: Vec<&str> = self.root_parts().chain(["kubepods"]).chain(parent(qos)).chain([pod.as_str()]).collect();
        match self.driver {
            CgroupDriver::Cgroupfs => format!("/{}", parts.join("/")),
            CgroupDriver::Systemd => slices(&parts),
        }
    }

    fn root_parts(&self) -> impl Iterator<Item = &str> {
        self.root.split('/').filter(|p| !p.is_empty())
    }
}

/// `[a, b-c]` is `/a.slice/a-b_c.slice`: a dash in a name would be one more level.
fn slices(parts: &[&str]) -> String {
    let mut path = String::new();
    let mut name = String::new();
    for part in parts {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(&part.replace('-', "_"));
        path.push('/');
        path.push_str(&name);
        path.push_str(".slice");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(root: &str, driver: CgroupDriver, per_qos: bool) -> CgroupNames {
        CgroupNames { root: root.into(), driver, per_qos }
    }

    #[test]
    fn cgroupfs_names_are_those_recorded_of_a_kubelet() {
        let n = names("/labkubelet", CgroupDriver::Cgroupfs, true);
        let uid = Uid::from("2263f0ae");
        assert_eq!(n.pod(Qos::BestEffort, &uid), "/labkubelet/kubepods/besteffort/pod2263f0ae");
        assert_eq!(n.pod(Qos::Burstable, &uid), "/labkubelet/kubepods/burstable/pod2263f0ae");
        assert_eq!(n.pod(Qos::Guaranteed, &uid), "/labkubelet/kubepods/pod2263f0ae");
        let n = names("/", CgroupDriver::Cgroupfs, true);
        assert_eq!(n.pod(Qos::Guaranteed, &uid), "/kubepods/pod2263f0ae");
    }

    #[test]
    fn systemd_names_are_a_path_of_slices_with_dashes_escaped() {
        let n = names("/", CgroupDriver::Systemd, true);
        assert_eq!(
            n.pod(Qos::BestEffort, &Uid::from("a-b")),
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice"
        );
        assert_eq!(n.pod(Qos::Guaranteed, &Uid::from("a-b")), "/kubepods.slice/kubepods-poda_b.slice");
    }

    #[test]
    fn without_cgroups_per_qos_the_root_alone_is_named() {
        let uid = Uid::from("u");
        assert_eq!(names("/a/b", CgroupDriver::Cgroupfs, false).pod(Qos::Burstable, &uid), "/a/b");
        assert_eq!(names("", CgroupDriver::Systemd, false).pod(Qos::Burstable, &uid), "/");
    }
}
