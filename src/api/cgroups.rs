//! The cgroup names of a node's pods, identical to a kubelet's, for both cgroup drivers.
//!
//! `<root>/kubepods[/burstable|/besteffort]/pod<uid>`; with systemd, the same as a path of slices. The cgroups
//! themselves are handled in `adapters::cgroups`.

use crate::api::names::Uid;
use crate::api::qos::Qos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    Cgroupfs,
    Systemd,
}

impl CgroupDriver {
    /// Returns the value of `cgroupDriver`.
    pub fn name(self) -> &'static str {
        match self {
            CgroupDriver::Cgroupfs => "cgroupfs",
            CgroupDriver::Systemd => "systemd",
        }
    }
}

/// The runtime name that CRI-O reports.
const CRI_O: &str = "cri-o";

/// All QoS classes that a pod's cgroup can belong to.
pub const CLASSES: [Qos; 3] = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort];

/// Returns the cgroup name of a class. None for guaranteed pods, which are directly under `kubepods`.
fn parent(qos: Qos) -> Option<&'static str> {
    match qos {
        Qos::Guaranteed => None,
        Qos::Burstable => Some("burstable"),
        Qos::BestEffort => Some("besteffort"),
    }
}

/// The settings `cgroupRoot`, `cgroupDriver` and `cgroupsPerQOS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupNames {
    /// `/` or `/a/b`.
    pub root: String,
    pub driver: CgroupDriver,
    /// If false, pods get no cgroup of their own, and containers are created under the root.
    pub per_qos: bool,
}

impl CgroupNames {
    /// Returns the `cgroup_parent` of a pod's sandbox.
    pub fn pod(&self, qos: Qos, uid: &Uid) -> String {
        if !self.per_qos {
            return format!("/{}", self.root_parts().collect::<Vec<_>>().join("/"));
        }
        self.below_root(["kubepods"].into_iter().chain(parent(qos)).chain([format!("pod{uid}").as_str()]))
    }

    /// Returns the cgroup in which the runtime creates a container of the pod.
    pub fn container(&self, qos: Qos, uid: &Uid, runtime: &str, id: &str) -> String {
        let pod = self.pod(qos, uid);
        let pod = pod.trim_end_matches('/');
        match (self.driver, runtime) {
            (CgroupDriver::Cgroupfs, CRI_O) => format!("{pod}/crio-{id}"),
            (CgroupDriver::Systemd, CRI_O) => format!("{pod}/crio-{id}.scope"),
            (CgroupDriver::Cgroupfs, _) => format!("{pod}/{id}"),
            (CgroupDriver::Systemd, _) => format!("{pod}/cri-containerd-{id}.scope"),
        }
    }

    /// Returns the cgroup that contains all pods.
    pub fn node(&self) -> String {
        self.below_root(["kubepods"])
    }

    /// Returns the cgroup that contains the pods of a class.
    pub fn class(&self, qos: Qos) -> String {
        self.below_root(["kubepods"].into_iter().chain(parent(qos)))
    }

    /// Returns the cgroup of `cgroupRoot` on this machine. None for the root of all cgroups.
    pub fn base(&self) -> Option<String> {
        self.root_parts().next().map(|_| self.below_root([]))
    }

    /// Returns the UID of the pod whose cgroup is `name` in the cgroup of its class. With systemd, underscores
    /// replace dashes.
    pub fn uid_in<'a>(&self, qos: Qos, name: &'a str) -> Option<&'a str> {
        let uid = match self.driver {
            CgroupDriver::Cgroupfs => name.strip_prefix("pod")?,
            CgroupDriver::Systemd => {
                let class = self.class(qos);
                let class = unit_of(&class)?.strip_suffix(".slice")?;
                name.strip_suffix(".slice")?.strip_prefix(class)?.strip_prefix("-pod")?
            }
        };
        (!uid.is_empty()).then_some(uid)
    }

    fn below_root<'a>(&'a self, parts: impl IntoIterator<Item = &'a str>) -> String {
        let parts: Vec<&str> = self.root_parts().chain(parts).collect();
        match self.driver {
            CgroupDriver::Cgroupfs => format!("/{}", parts.join("/")),
            CgroupDriver::Systemd => slices(&parts),
        }
    }

    fn root_parts(&self) -> impl Iterator<Item = &str> {
        self.root.split('/').filter(|p| !p.is_empty())
    }
}

/// Returns the path of slices: `[a, b-c]` becomes `/a.slice/a-b_c.slice`. systemd would treat a dash in a name as
/// another level.
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

/// Returns the unit name of a slice path.
pub fn unit_of(slice: &str) -> Option<&str> {
    slice.rsplit('/').next().filter(|name| !name.is_empty())
}

/// Returns the parent unit of a slice. None for a slice in the root slice.
pub fn parent_unit(slice: &str) -> Option<&str> {
    unit_of(slice.rsplit_once('/')?.0)
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
    fn each_runtime_has_its_own_names_for_containers() {
        let of = |driver, runtime| names("/", driver, true).container(Qos::Guaranteed, &Uid::from("u"), runtime, "7f");
        assert_eq!(of(CgroupDriver::Cgroupfs, "containerd"), "/kubepods/podu/7f");
        assert_eq!(of(CgroupDriver::Cgroupfs, "cri-o"), "/kubepods/podu/crio-7f");
        let pod = "/kubepods.slice/kubepods-podu.slice";
        assert_eq!(of(CgroupDriver::Systemd, "containerd"), format!("{pod}/cri-containerd-7f.scope"));
        assert_eq!(of(CgroupDriver::Systemd, "cri-o"), format!("{pod}/crio-7f.scope"));
        let without = names("/a", CgroupDriver::Cgroupfs, false);
        assert_eq!(without.container(Qos::Burstable, &Uid::from("u"), "cri-o", "7f"), "/a/crio-7f");
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
    fn the_levels_above_pods_have_names_of_their_own() {
        let n = names("/a-b", CgroupDriver::Cgroupfs, true);
        assert_eq!(n.base().as_deref(), Some("/a-b"));
        assert_eq!(n.node(), "/a-b/kubepods");
        assert_eq!(n.class(Qos::Burstable), "/a-b/kubepods/burstable");
        assert_eq!(n.class(Qos::Guaranteed), n.node());
        let n = names("/a-b", CgroupDriver::Systemd, true);
        assert_eq!(n.base().as_deref(), Some("/a_b.slice"));
        let class = n.class(Qos::BestEffort);
        assert_eq!(class, "/a_b.slice/a_b-kubepods.slice/a_b-kubepods-besteffort.slice");
        assert_eq!(unit_of(&class), Some("a_b-kubepods-besteffort.slice"));
        assert_eq!(parent_unit(&class), Some("a_b-kubepods.slice"));
        assert_eq!(parent_unit("/kubepods.slice"), None);
        assert_eq!(names("/", CgroupDriver::Systemd, true).base(), None);
    }

    #[test]
    fn the_cgroup_of_a_pod_contains_its_uid() {
        let n = names("/", CgroupDriver::Cgroupfs, true);
        assert_eq!(n.uid_in(Qos::Burstable, "poda-b"), Some("a-b"));
        for other in ["burstable", "pod", "system"] {
            assert_eq!(n.uid_in(Qos::Guaranteed, other), None, "{other}");
        }
        let n = names("/", CgroupDriver::Systemd, true);
        assert_eq!(n.uid_in(Qos::BestEffort, "kubepods-besteffort-poda_b.slice"), Some("a_b"));
        assert_eq!(n.uid_in(Qos::Guaranteed, "kubepods-poda_b.slice"), Some("a_b"));
        for other in ["kubepods-besteffort.slice", "kubepods-besteffort-poda_b.slice", "kubepods-pod.slice", "poda"] {
            assert_eq!(n.uid_in(Qos::Guaranteed, other), None, "{other}");
        }
    }

    #[test]
    fn without_cgroups_per_qos_the_root_alone_is_named() {
        let uid = Uid::from("u");
        assert_eq!(names("/a/b", CgroupDriver::Cgroupfs, false).pod(Qos::Burstable, &uid), "/a/b");
        assert_eq!(names("", CgroupDriver::Systemd, false).pod(Qos::Burstable, &uid), "/");
    }
}
