//! With the cgroupfs driver, creates the cgroup `kubepods` and the cgroups of its QoS classes and of pods, and sets
//! their limits: a mkdir and a few small writes. Each controller is in one hierarchy, its v1 hierarchy or the unified
//! one, so v1, hybrid and v2 need no separate code. On v2, each level above must enable a controller in
//! `cgroup.subtree_control`.
//!
//! The runtime creates the cgroups of further controllers (cpuset, devices, freezer, ...) itself.

use super::files::{self, CONTROLLERS, Controller, values, with_remedy};
use super::hierarchies::{Cgroups, Hierarchy};
use crate::api::limits::Limits;
use crate::api::qos::Qos;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The controllers to enable for pods on v2, if available: those of pod limits, and those that the runtime uses for
/// containers.
const LET_THROUGH: [&str; 6] = ["cpu", "memory", "pids", "hugetlb", "io", "cpuset"];

/// A cgroup above the cgroups of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupLevel {
    /// `kubepods`.
    Node,
    Class(Qos),
}

impl CgroupLevel {
    /// All levels, parents first.
    pub const ALL: [CgroupLevel; 3] =
        [CgroupLevel::Node, CgroupLevel::Class(Qos::Burstable), CgroupLevel::Class(Qos::BestEffort)];
}

/// The cgroup tree with the hierarchy of each controller. Errors name the file or directory, and the remedy if one is
/// known.
#[derive(Clone, Debug)]
pub struct Tree {
    cgroups: Cgroups,
    /// The index of the hierarchy of each controller, in the order of `CONTROLLERS`.
    places: [Option<usize>; 4],
}

impl Tree {
    pub fn new(cgroups: Cgroups) -> Tree {
        let place = |controller: Controller| {
            let has = |h: &Hierarchy| h.controllers.iter().any(|c| c == controller.name());
            cgroups.hierarchies.iter().position(has)
        };
        let places = CONTROLLERS.map(place);
        Tree { cgroups, places }
    }

    pub fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    pub fn cgroups_mut(&mut self) -> &mut Cgroups {
        &mut self.cgroups
    }

    /// Returns the problems of the machine that prevent pods from starting or limits from being enforced. The agent
    /// reports them when it starts.
    pub fn troubles(&self) -> Vec<String> {
        if self.cgroups.hierarchies.is_empty() {
            return vec![NOTHING_MOUNTED.to_owned()];
        }
        let missing = [Controller::Cpu, Controller::Memory].into_iter().filter(|c| self.place(*c).is_none());
        let mut troubles: Vec<String> = missing.map(no_controller).collect();
        troubles.extend(self.base_is_there().err());
        troubles
    }

    /// Creates the cgroup of a level if it is missing, and sets its limits. Returns true if the cgroup was created.
    ///
    /// # Errors
    /// `cgroupRoot` does not exist, or a cgroup or file cannot be written.
    pub fn set_level(&self, level: CgroupLevel, limits: &Limits) -> Result<bool, String> {
        let names = &self.cgroups.names;
        let cgroup = match level {
            CgroupLevel::Node => {
                self.base_is_there()?;
                self.make_base()?;
                names.node()
            }
            CgroupLevel::Class(qos) => names.class(qos),
        };
        // The parents must enable the controllers first, or the files of this cgroup do not exist.
        self.let_through(parent(&cgroup))?;
        let made = self.set(&cgroup, limits)?;
        self.let_through(&cgroup)?;
        Ok(made)
    }

    /// Creates the cgroup of a pod, or another cgroup below the levels, if it is missing, and sets its limits. Returns
    /// true if the cgroup was created, and `Ok(None)` if a level above it does not exist.
    ///
    /// # Errors
    /// The cgroup or a file cannot be written.
    pub fn set_pod(&self, cgroup: &str, limits: &Limits) -> Result<Option<bool>, String> {
        let above = parent(cgroup);
        let there = |hierarchy: &Hierarchy| hierarchy.directory(above).is_some_and(|d| d.is_dir());
        match self.set(cgroup, limits) {
            Ok(made) => Ok(Some(made)),
            Err(_) if !self.used().all(there) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sets the huge page limits, which systemd does not support, in a slice that systemd has created.
    ///
    /// # Errors
    /// A cgroup or file cannot be written.
    pub fn set_huge_pages(&self, cgroup: &str, limits: &Limits) -> Result<(), String> {
        let only = Limits { huge_pages: limits.huge_pages.clone(), ..Limits::default() };
        let Some(index) = self.place(Controller::HugePages).filter(|_| !only.huge_pages.is_empty()) else {
            return Ok(());
        };
        let hierarchy = &self.cgroups.hierarchies[index];
        let mut path = String::new();
        for part in cgroup.split('/').filter(|p| !p.is_empty()) {
            if hierarchy.unified {
                self.let_through(if path.is_empty() { "/" } else { &path })?;
            }
            path = format!("{path}/{part}");
            let directory = hierarchy.directory(&path).ok_or_else(|| outside(&path, hierarchy))?;
            make(&directory)?;
        }
        let directory = hierarchy.directory(cgroup).ok_or_else(|| outside(cgroup, hierarchy))?;
        let all = values(Controller::HugePages, &only, hierarchy.unified, true);
        all.iter().try_for_each(|value| files::write(&directory, value))
    }

    fn place(&self, controller: Controller) -> Option<usize> {
        CONTROLLERS.iter().position(|c| *c == controller).and_then(|at| self.places[at])
    }

    /// Returns the hierarchies with at least one of `CONTROLLERS`, each once.
    fn used(&self) -> impl Iterator<Item = &Hierarchy> {
        let is_used = |index: &usize| self.places.contains(&Some(*index));
        self.cgroups.hierarchies.iter().enumerate().filter(move |(index, _)| is_used(index)).map(|(_, h)| h)
    }

    /// Checks that `cgroupRoot` exists. Like a kubelet, Wherry does not create it, so that a misspelt value is noticed.
    fn base_is_there(&self) -> Result<(), String> {
        let Some(base) = self.cgroups.names.base() else { return Ok(()) };
        let directories: Vec<PathBuf> = self.used().filter_map(|h| h.directory(&base)).collect();
        if directories.iter().any(|d| d.is_dir()) {
            return Ok(());
        }
        let first = directories.first().map_or(base.clone(), |d| d.display().to_string());
        Err(format!(
            "cgroupRoot: the cgroup {base} does not exist; create it ({first}), or remove cgroupRoot to \
             put pods below /kubepods"
        ))
    }

    /// Creates `cgroupRoot` in the hierarchies in which it is missing.
    fn make_base(&self) -> Result<(), String> {
        let Some(base) = self.cgroups.names.base() else { return Ok(()) };
        for directory in self.used().filter_map(|hierarchy| hierarchy.directory(&base)) {
            fs::create_dir_all(&directory)
                .map_err(|e| format!("create the cgroup {}: {}", directory.display(), with_remedy(&e)))?;
        }
        Ok(())
    }

    /// Creates a cgroup, whose parent must exist, and writes its limits. Returns true if the cgroup was created.
    fn set(&self, cgroup: &str, limits: &Limits) -> Result<bool, String> {
        if self.used().next().is_none() {
            return Err(NOTHING_MOUNTED.to_owned());
        }
        self.refuse_what_cannot_be_kept(limits)?;
        let mut made = false;
        for (index, hierarchy) in self.cgroups.hierarchies.iter().enumerate() {
            let controllers = CONTROLLERS.into_iter().filter(|c| self.place(*c) == Some(index));
            let mut directory = None;
            for controller in controllers {
                let (directory, new) = match &directory {
                    Some(known) => known,
                    None => {
                        let path = hierarchy.directory(cgroup).ok_or_else(|| outside(cgroup, hierarchy))?;
                        let new = self.make(&path, cgroup, hierarchy)?;
                        made |= new;
                        &*directory.insert((path, new))
                    }
                };
                for value in values(controller, limits, hierarchy.unified, *new) {
                    files::write(directory, &value)?;
                }
            }
        }
        Ok(made)
    }

    /// Rejects limits for which no controller exists.
    fn refuse_what_cannot_be_kept(&self, limits: &Limits) -> Result<(), String> {
        let wanted = [(Controller::Cpu, limits.cpu.is_some()), (Controller::Memory, limits.memory.is_some())];
        match wanted.into_iter().find(|(controller, wanted)| *wanted && self.place(*controller).is_none()) {
            Some((controller, _)) => Err(no_controller(controller)),
            None => Ok(()),
        }
    }

    fn make(&self, path: &Path, cgroup: &str, hierarchy: &Hierarchy) -> Result<bool, String> {
        let new = make(path)?;
        if new && !hierarchy.unified && cgroup == self.cgroups.names.node() {
            // Needed before Linux 5.11 if systemd has not set it: otherwise a pod's memory limit does not cover its
            // containers.
            let file = path.join("memory.use_hierarchy");
            if fs::read_to_string(&file).is_ok_and(|text| text.trim() == "0") {
                files::put(&file, "1").map_err(|e| format!("write 1 to {}: {}", file.display(), with_remedy(&e)))?;
            }
        }
        Ok(new)
    }

    /// On v2, enables the controllers for the children of this cgroup and of all cgroups above it.
    fn let_through(&self, cgroup: &str) -> Result<(), String> {
        for hierarchy in self.used().filter(|h| h.unified) {
            let Some(directory) = hierarchy.directory(cgroup) else { continue };
            let top = Path::new(&hierarchy.mount_point);
            let mut levels: Vec<&Path> = directory.ancestors().take_while(|d| d.starts_with(top)).collect();
            levels.reverse();
            levels.into_iter().try_for_each(let_through)?;
        }
        Ok(())
    }
}

const NOTHING_MOUNTED: &str = "no cgroup hierarchy with a controller is mounted; mount one (cgroup2 at /sys/fs/cgroup)";

fn no_controller(controller: Controller) -> String {
    let name = controller.name();
    format!(
        "no cgroup hierarchy has the {name} controller, so {name} limits cannot be enforced; {}",
        controller.remedy()
    )
}

fn outside(cgroup: &str, hierarchy: &Hierarchy) -> String {
    format!("the cgroup {cgroup} is outside of the hierarchy mounted at {} ({})", hierarchy.mount_point, hierarchy.root)
}

/// Returns the parent of a cgroup.
fn parent(cgroup: &str) -> &str {
    cgroup.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty()).unwrap_or("/")
}

fn make(path: &Path) -> Result<bool, String> {
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(format!("create the cgroup {}: {}", path.display(), with_remedy(&e))),
    }
}

fn let_through(directory: &Path) -> Result<(), String> {
    let read = |name: &str| {
        let path = directory.join(name);
        fs::read_to_string(&path).map_err(|e| format!("read {}: {e}", path.display()))
    };
    let (there, already) = (read("cgroup.controllers")?, read("cgroup.subtree_control")?);
    let has = |text: &str, name: &str| text.split_whitespace().any(|c| c == name);
    let missing: Vec<String> = LET_THROUGH
        .into_iter()
        .filter(|name| has(&there, name) && !has(&already, name))
        .map(|name| format!("+{name}"))
        .collect();
    let path = directory.join("cgroup.subtree_control");
    if missing.is_empty() || files::put(&path, &missing.join(" ")).is_ok() {
        return Ok(());
    }
    // The kernel rejects the whole write if one controller is not available: enable them one by one.
    for name in missing {
        if let Err(e) = files::put(&path, &name) {
            let what = format!("write {name} to {}", path.display());
            if e.kind() == ErrorKind::ResourceBusy {
                return Err(format!(
                    "{what}: this cgroup contains processes, and a cgroup v2 cannot have both processes and children \
                     with controllers; move the processes into a cgroup below it"
                ));
            }
            // If a limit needs this controller, setting it fails later with its own error.
            log::debug!("cannot enable a cgroup controller: {what} error={e:?}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{hierarchy, names};
    use super::*;
    use crate::api::cgroups::{CgroupDriver, CgroupNames};
    use crate::api::limits::CpuQuota;

    struct Place {
        dir: tempfile::TempDir,
    }

    impl Place {
        fn new(directories: &[&str]) -> Place {
            let place = Place { dir: tempfile::tempdir().unwrap() };
            directories.iter().for_each(|d| fs::create_dir_all(place.path(d)).unwrap());
            place
        }

        fn path(&self, path: &str) -> PathBuf {
            self.dir.path().join(path)
        }

        /// Creates a file that the kernel would provide.
        fn file(&self, path: &str, text: &str) {
            fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
            fs::write(self.path(path), text).unwrap();
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.path(path)).unwrap()
        }

        fn tree(&self, hierarchies: &[(&str, &[&str], bool)], root: &str) -> Tree {
            let of = |(name, controllers, unified): &(&str, &[&str], bool)| {
                hierarchy(self.path(name).to_str().unwrap(), controllers, *unified)
            };
            let names = CgroupNames { root: root.into(), ..names(CgroupDriver::Cgroupfs) };
            Tree::new(Cgroups { hierarchies: hierarchies.iter().map(of).collect(), names })
        }
    }

    const V1: [(&str, &[&str], bool); 3] =
        [("cpu", &["rw", "cpu", "cpuacct"], false), ("memory", &["rw", "memory"], false), ("unified", &[], true)];

    fn limits() -> Limits {
        Limits {
            cpu_shares: Some(512),
            cpu: Some(CpuQuota { quota: 50_000, period: 100_000 }),
            memory: Some(4096),
            pids: Some(9),
            huge_pages: [(2 << 20, 0)].into(),
        }
    }

    #[test]
    fn on_v1_each_controller_has_its_hierarchy_and_one_that_is_missing_is_skipped() {
        let place = Place::new(&["cpu", "memory", "unified"]);
        let tree = place.tree(&V1, "/");
        assert!(tree.troubles().is_empty(), "{:?}", tree.troubles());
        assert_eq!(tree.set_level(CgroupLevel::Node, &Limits::default()), Ok(true));
        assert_eq!(tree.set_level(CgroupLevel::Node, &Limits::default()), Ok(false));
        assert_eq!(tree.set_level(CgroupLevel::Class(Qos::Burstable), &Limits::default()), Ok(true));
        // The kernel creates the files of a new cgroup; this test creates them in advance.
        for file in ["cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us"] {
            place.file(&format!("cpu/kubepods/burstable/podu/{file}"), "");
        }
        place.file("memory/kubepods/burstable/podu/memory.limit_in_bytes", "");
        assert_eq!(tree.set_pod("/kubepods/burstable/podu", &limits()), Ok(Some(false)));
        assert_eq!(place.read("cpu/kubepods/burstable/podu/cpu.shares"), "512");
        assert_eq!(place.read("cpu/kubepods/burstable/podu/cpu.cfs_quota_us"), "50000");
        assert_eq!(place.read("memory/kubepods/burstable/podu/memory.limit_in_bytes"), "4096");
        assert!(!place.path("unified/kubepods").exists(), "it has no controller");
        // A new cgroup does not need limits.
        assert_eq!(tree.set_pod("/kubepods/podv", &Limits::default()), Ok(Some(true)));
        assert!(place.path("cpu/kubepods/podv").is_dir() && place.path("memory/kubepods/podv").is_dir());
    }

    #[test]
    fn a_removed_level_is_distinguished_from_a_failed_creation_of_a_pod_cgroup() {
        let place = Place::new(&["cpu", "memory", "unified"]);
        let tree = place.tree(&V1, "/");
        assert_eq!(tree.set_pod("/kubepods/burstable/podu", &limits()), Ok(None));
        fs::create_dir_all(place.path("cpu/kubepods")).unwrap();
        assert_eq!(tree.set_pod("/kubepods/podu", &Limits::default()), Ok(None), "not in all hierarchies");
        fs::create_dir_all(place.path("memory/kubepods")).unwrap();
        // A plain directory has none of the files.
        let error = tree.set_pod("/kubepods/podu", &limits()).unwrap_err();
        assert!(error.contains("cpu/kubepods/podu/cpu.cfs_period_us: the kernel has no such file"), "{error}");
    }

    #[test]
    fn on_v2_each_level_enables_the_controllers_for_its_children() {
        let place = Place::new(&[]);
        let v2 = [("fs", ["cpu", "memory", "pids", "io", "rdma"].as_slice(), true)];
        for level in ["fs", "fs/edge", "fs/edge/kubepods", "fs/edge/kubepods/besteffort"] {
            place.file(&format!("{level}/cgroup.controllers"), "cpuset cpu io memory pids rdma\n");
            place.file(&format!("{level}/cgroup.subtree_control"), "memory\n");
        }
        let tree = place.tree(&v2, "/edge");
        assert_eq!(tree.set_level(CgroupLevel::Node, &Limits::default()), Ok(false));
        for level in ["fs", "fs/edge", "fs/edge/kubepods"] {
            let told = place.read(&format!("{level}/cgroup.subtree_control"));
            // The kernel would store the names. A plain file stores the written text, and the upper levels are written
            // again.
            let asked = if level == "fs/edge/kubepods" { "+cpu +pids" } else { "+cpu +memory +pids" };
            assert_eq!(told, format!("{asked} +io +cpuset"), "{level}");
        }
        assert_eq!(place.read("fs/edge/kubepods/besteffort/cgroup.subtree_control"), "memory\n");
        assert_eq!(tree.set_level(CgroupLevel::Class(Qos::BestEffort), &Limits::default()), Ok(false));
        assert_eq!(place.read("fs/edge/kubepods/besteffort/cgroup.subtree_control"), "+cpu +pids +io +cpuset");
        for file in ["cpu.weight", "cpu.max", "memory.max", "pids.max"] {
            place.file(&format!("fs/edge/kubepods/podu/{file}"), "");
        }
        assert_eq!(tree.set_pod("/edge/kubepods/podu", &limits()), Ok(Some(false)));
        let read = |file: &str| place.read(&format!("fs/edge/kubepods/podu/{file}"));
        assert_eq!([read("cpu.weight"), read("cpu.max")], ["20", "50000 100000"]);
        assert_eq!([read("memory.max"), read("pids.max")], ["4096", "9"]);
    }

    #[test]
    fn a_cgroup_root_that_does_not_exist_is_an_error_that_names_the_field() {
        let place = Place::new(&["cpu", "memory", "unified/edge"]);
        let tree = place.tree(&V1, "/edge");
        let error = tree.set_level(CgroupLevel::Node, &Limits::default()).unwrap_err();
        assert!(error.starts_with("cgroupRoot: the cgroup /edge does not exist; create it (/"), "{error}");
        assert_eq!(tree.troubles(), [error]);
        assert!(!place.path("cpu/edge").exists());
        // If `cgroupRoot` exists in one hierarchy, Wherry creates it in the others.
        fs::create_dir(place.path("memory/edge")).unwrap();
        assert_eq!(tree.set_level(CgroupLevel::Node, &Limits::default()), Ok(true));
        assert!(place.path("cpu/edge/kubepods").is_dir() && tree.troubles().is_empty());
    }

    #[test]
    fn the_cgroup_root_is_created_in_each_hierarchy_with_a_controller_of_pods() {
        const HYBRID: [(&str, &[&str], bool); 4] = [
            ("cpu", &["rw", "cpu"], false),
            ("memory", &["rw", "memory"], false),
            ("systemd", &["rw", "name=systemd"], false),
            ("unified", &["hugetlb"], true),
        ];
        let place = Place::new(&["cpu/a/edge", "memory/a/edge", "systemd", "unified"]);
        place.file("unified/cgroup.controllers", "hugetlb\n");
        place.file("unified/cgroup.subtree_control", "hugetlb\n");
        // The kernel would fill the new cgroup; a plain directory stays empty.
        let error = place.tree(&HYBRID, "/a/edge").set_level(CgroupLevel::Node, &Limits::default()).unwrap_err();
        assert!(error.contains("unified/a/cgroup.controllers"), "{error}");
        assert!(place.path("unified/a/edge").is_dir() && !place.path("systemd/a").exists());
    }

    #[test]
    fn a_missing_controller_is_reported_with_a_remedy() {
        let place = Place::new(&["cpu"]);
        let tree = place.tree(&V1[..1], "/");
        assert!(tree.troubles()[0].contains("cgroup_enable=memory"), "{:?}", tree.troubles());
        tree.set_level(CgroupLevel::Node, &Limits::default()).unwrap();
        let error = tree.set_pod("/kubepods/podu", &Limits { memory: Some(1), ..Limits::default() }).unwrap_err();
        assert!(error.contains("no cgroup hierarchy has the memory controller"), "{error}");
        assert_eq!(tree.set_pod("/kubepods/podu", &Limits::default()), Ok(Some(true)));
        let none = place.tree(&[], "/");
        assert!(none.troubles()[0].contains("no cgroup hierarchy"), "{:?}", none.troubles());
        assert!(none.set_level(CgroupLevel::Node, &Limits::default()).is_err());
    }

    #[test]
    fn huge_page_limits_are_written_in_addition_to_systemd_properties() {
        let place = Place::new(&["cpu", "hugetlb"]);
        let hierarchies: [(&str, &[&str], bool); 2] = [("cpu", &["cpu"], false), ("hugetlb", &["hugetlb"], false)];
        let tree = place.tree(&hierarchies, "/");
        place.file("hugetlb/a.slice/a-b.slice/hugetlb.2MB.limit_in_bytes", "");
        assert_eq!(tree.set_huge_pages("/a.slice/a-b.slice", &limits()), Ok(()));
        assert_eq!(place.read("hugetlb/a.slice/a-b.slice/hugetlb.2MB.limit_in_bytes"), "0");
        assert!(!place.path("cpu/a.slice").exists());
        // Without huge pages or their controller nothing is created.
        assert_eq!(tree.set_huge_pages("/c.slice", &Limits::default()), Ok(()));
        assert_eq!(place.tree(&V1, "/").set_huge_pages("/c.slice", &limits()), Ok(()));
        assert!(!place.path("hugetlb/c.slice").exists());
    }
}
