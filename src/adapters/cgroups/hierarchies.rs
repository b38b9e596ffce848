//! Finds the mounted cgroup hierarchies, and removes the cgroups of pods from them.
//!
//! The runtime removes only the cgroups below a pod's cgroup. Wherry removes the pod's cgroup: in every hierarchy (each
//! v1 controller, and the unified one), under each QoS parent, deepest first.
//!
//! Only empty cgroups can be removed, so a removal cannot affect running processes. On request, processes that the
//! runtime has lost are killed first, as in a kubelet. With the systemd driver Wherry removes the directory of the
//! slice; systemd notices this and forgets the slice.

use crate::adapters::mount_table::shown;
use crate::api::cgroups::{CLASSES, CgroupNames};
use crate::api::names::Uid;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The minimum age of a cgroup that `sweep` removes. Another process may be about to use a younger one.
const YOUNG: Duration = Duration::from_secs(60);

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    pub mount_point: String,
    /// The part of the hierarchy that is mounted: `/`, except in containers.
    pub root: String,
    pub unified: bool,
    /// The controllers (cpu, memory, ...); on v1 also other mount options.
    pub controllers: Vec<String>,
}

/// The mounted hierarchies and the names of pod cgroups. All errors contain the path of the directory.
#[derive(Clone, Debug)]
pub struct Cgroups {
    pub hierarchies: Vec<Hierarchy>,
    pub names: CgroupNames,
}

impl Cgroups {
    /// Finds the mounted hierarchies.
    ///
    /// # Errors
    /// /proc/self/mountinfo cannot be read.
    pub fn discover(names: CgroupNames) -> Result<Cgroups, String> {
        Cgroups::discover_in(Path::new("/proc/self/mountinfo"), names)
    }

    /// Like `discover`, for another file in the format of mountinfo.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn discover_in(mountinfo: &Path, names: CgroupNames) -> Result<Cgroups, String> {
        let text = fs::read(mountinfo).map_err(|e| format!("read {}: {e}", mountinfo.display()))?;
        let mut hierarchies = hierarchies(&String::from_utf8_lossy(&text));
        for unified in hierarchies.iter_mut().filter(|h| h.unified) {
            // A file that cannot be read is treated as empty.
            let controllers = fs::read_to_string(format!("{}/cgroup.controllers", unified.mount_point));
            unified.controllers = controllers.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        }
        Ok(Cgroups { hierarchies, names })
    }

    /// Reports whether the unified hierarchy is the only one (cgroup v2), as opposed to v1 or a hybrid of both.
    pub fn is_v2(&self) -> bool {
        !self.hierarchies.is_empty() && self.hierarchies.iter().all(|h| h.unified)
    }

    /// Reports whether the unified hierarchy can limit swap. The root cgroup has no file for that limit, so the
    /// cgroups below it are checked too.
    pub fn limits_swap(&self) -> bool {
        let mount_points = || self.hierarchies.iter().filter(|h| h.unified).map(|h| PathBuf::from(&h.mount_point));
        let below =
            mount_points().filter_map(|top| fs::read_dir(top).ok()).flatten().flatten().map(|entry| entry.path());
        mount_points().chain(below).any(|cgroup| cgroup.join("memory.swap.max").exists())
    }

    /// Removes the cgroups of a pod. A missing cgroup is not an error. With `kill`, processes in the cgroups are killed
    /// first, which can take a second.
    ///
    /// # Errors
    /// A cgroup cannot be removed, for example because processes run in it and `kill` is not set.
    pub fn remove_pod(&self, uid: &str, kill: bool) -> Result<(), String> {
        if !self.names.per_qos || uid.is_empty() || uid.contains(['/', '\0']) {
            return Ok(());
        }
        let uid = Uid::from(uid);
        let mut result = Ok(());
        for hierarchy in &self.hierarchies {
            for qos in CLASSES {
                if let Some(directory) = hierarchy.directory(&self.names.pod(qos, &uid)) {
                    result = result.and(match kill {
                        true => remove_with_force(&directory),
                        false => remove(&directory),
                    });
                }
            }
        }
        result
    }

    /// Returns the number of processes and threads in the cgroup of a pod and below it; None if there is no such
    /// cgroup.
    pub fn processes_of(&self, uid: &Uid) -> Option<u64> {
        if !self.names.per_qos {
            return None;
        }
        let hierarchy = self.hierarchies.iter().find(|h| h.controllers.iter().any(|name| name == "pids"))?;
        CLASSES.into_iter().find_map(|qos| {
            let directory = hierarchy.directory(&self.names.pod(qos, uid))?;
            fs::read_to_string(directory.join("pids.current")).ok()?.trim().parse().ok()
        })
    }

    /// Removes the cgroups of unknown pods that are empty and not young. Returns the names of the removed cgroups.
    /// `known` receives the UID as it appears in the name of the cgroup. Kills no process.
    pub fn sweep(&self, known: &dyn Fn(&str) -> bool) -> BTreeSet<String> {
        let mut gone = BTreeSet::new();
        if !self.names.per_qos {
            return gone;
        }
        let mut kept = BTreeSet::new();
        let mut found = Vec::new();
        for (hierarchy, qos) in self.hierarchies.iter().flat_map(|h| CLASSES.map(|qos| (h, qos))) {
            let Some(class) = hierarchy.directory(&self.names.class(qos)) else { continue };
            for entry in fs::read_dir(class).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let Some(uid) = self.names.uid_in(qos, &name) else { continue };
                if known(uid) || is_young(&entry) || is_used(&entry.path()) {
                    kept.insert(uid.to_owned());
                } else {
                    found.push((uid.to_owned(), name.clone(), entry.path()));
                }
            }
        }
        // Remove only now: a pod's cgroup may be empty in one hierarchy and in use in another.
        for (uid, name, path) in found {
            if !kept.contains(&uid) && remove(&path).is_ok() {
                gone.insert(name);
            }
        }
        gone
    }
}

fn is_young(directory: &fs::DirEntry) -> bool {
    let changed = directory.metadata().and_then(|m| m.modified());
    let now = SystemTime::now();
    // A time in the future means that the clock was set back since. Such a cgroup does not stay young for years.
    let distance = |at: SystemTime| now.duration_since(at).or_else(|_| at.duration_since(now));
    // A cgroup without a modification time is considered young.
    !changed.is_ok_and(|at| distance(at).is_ok_and(|age| age >= YOUNG))
}

/// Reports whether a process is in the cgroup or below it. A cgroup that cannot be read is considered used.
fn is_used(directory: &Path) -> bool {
    let Ok(all) = with_all_below(directory) else { return true };
    all.iter().any(|cgroup| !fs::read_to_string(cgroup.join("cgroup.procs")).is_ok_and(|text| text.trim().is_empty()))
}

impl Hierarchy {
    /// Returns the directory of a cgroup; None if the cgroup is outside of the mounted part of the hierarchy.
    pub(super) fn directory(&self, cgroup: &str) -> Option<PathBuf> {
        // In a cgroup namespace the root is `/` or a path that begins with `/..`.
        let inside = if self.root == "/" || self.root.starts_with("/..") {
            cgroup
        } else {
            cgroup.strip_prefix(self.root.as_str()).filter(|rest| rest.starts_with('/'))?
        };
        Some(Path::new(&self.mount_point).join(inside.trim_start_matches('/')))
    }
}

/// Parses mountinfo. A hierarchy that is mounted several times is returned once.
fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for line in mountinfo.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let unified = match after.split(' ').next() {
            Some("cgroup") => false,
            Some("cgroup2") => true,
            _ => continue,
        };
        let mut fields = before.split(' ').skip(2);
        let (Some(device), Some(root), Some(mount_point)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if seen.insert((device.to_owned(), root.to_owned())) {
            // The last field contains the options of the hierarchy; in v1 they include the controllers.
            let options = after.rsplit(' ').next().unwrap_or_default();
            let controllers = options.split(',').filter(|_| !unified).map(str::to_owned).collect();
            let (mount_point, root) = (shown(mount_point.as_bytes()), shown(root.as_bytes()));
            found.push(Hierarchy { mount_point, root, unified, controllers });
        }
    }
    found
}

/// The number of attempts to remove a cgroup whose processes were killed, and the delay between them.
const TRIES: u32 = 40;
const APART: Duration = Duration::from_millis(25);

fn remove_with_force(directory: &Path) -> Result<(), String> {
    for _ in 0..TRIES {
        if remove(directory).is_ok() {
            return Ok(());
        }
        for cgroup in with_all_below(directory)? {
            kill_all(&cgroup);
        }
        std::thread::sleep(APART);
    }
    remove(directory)
}

/// Sends SIGKILL to each process of the cgroup.
fn kill_all(cgroup: &Path) {
    let (Ok(text), Some(name)) = (fs::read_to_string(cgroup.join("cgroup.procs")), cgroup.file_name()) else { return };
    for pid in text.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
        // The PID may have been reused: check after opening the pidfd that its process is still in the cgroup.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let path = format!("/proc/{}/cgroup", pid.as_raw_nonzero());
        let there = fs::read_to_string(path).is_ok_and(|of| of.contains(&*name.to_string_lossy()));
        if there && pidfd_send_signal(&process, Signal::KILL).is_ok() {
            log::warn!(
                "killed a process that the runtime has lost track of, to remove its cgroup pid={pid} cgroup={}",
                cgroup.display()
            );
        }
    }
}

/// Removes a cgroup and all cgroups below it, deepest first.
fn remove(directory: &Path) -> Result<(), String> {
    match fs::remove_dir(directory) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        // The cgroup may have children, which have to be removed first.
        Err(_) => {}
    }
    for cgroup in with_all_below(directory)?.iter().rev() {
        match fs::remove_dir(cgroup) {
            Err(e) if e.kind() == ErrorKind::ResourceBusy => {
                return Err(format!("remove cgroup {}: it contains processes", cgroup.display()));
            }
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(format!("remove cgroup {}: {e}", cgroup.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns a directory and all directories below it, parents first.
fn with_all_below(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![directory.to_owned()];
    let mut next = 0;
    while let Some(parent) = found.get(next).cloned() {
        next += 1;
        let entries = match fs::read_dir(&parent) {
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            other => other.map_err(|e| format!("read {}: {e}", parent.display()))?,
        };
        found.extend(entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{hierarchy, names};
    use super::*;
    use crate::api::cgroups::CgroupDriver;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/memory rw,relatime shared:1 - cgroup cgroup rw,memory
34 31 0:30 / /mnt/again\\040here rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn each_hierarchy_is_found_once() {
        let found = hierarchies(HYBRID);
        let mounts: Vec<_> = found.iter().map(|h| (h.mount_point.as_str(), h.unified)).collect();
        assert_eq!(
            mounts,
            [
                ("/sys/fs/cgroup/cpu", false),
                ("/sys/fs/cgroup/memory", false),
                ("/sys/fs/cgroup/systemd", false),
                ("/sys/fs/cgroup/unified", true),
            ]
        );
        assert_eq!(found[0].controllers, ["rw", "cpu"]);
        assert!(found[3].controllers.is_empty());
        let cgroups = |text: &str| Cgroups { hierarchies: hierarchies(text), names: names(CgroupDriver::Systemd) };
        assert!(!cgroups(HYBRID).is_v2());
        assert!(cgroups("26 23 0:24 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw").is_v2());
    }

    #[test]
    fn a_swap_limit_is_found_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().to_str().unwrap();
        let of = |unified: bool| Cgroups {
            hierarchies: vec![hierarchy(base, &["memory"], unified)],
            names: names(CgroupDriver::Cgroupfs),
        };
        fs::create_dir(dir.path().join("init.scope")).unwrap();
        fs::write(dir.path().join("init.scope/memory.max"), "max").unwrap();
        assert!(!of(true).limits_swap());
        fs::create_dir(dir.path().join("system.slice")).unwrap();
        fs::write(dir.path().join("system.slice/memory.swap.max"), "max").unwrap();
        assert!(of(true).limits_swap() && !of(false).limits_swap());
    }

    #[test]
    fn a_bind_mounted_part_of_a_hierarchy_shows_only_its_own_cgroups() {
        let h = |root: &str| Hierarchy { root: root.into(), ..hierarchy("/m", &[], true) };
        assert_eq!(h("/").directory("/kubepods/x"), Some("/m/kubepods/x".into()));
        assert_eq!(h("/../..").directory("/kubepods/x"), Some("/m/kubepods/x".into()));
        assert_eq!(h("/docker/a").directory("/docker/a/kubepods"), Some("/m/kubepods".into()));
        assert_eq!(h("/docker/a").directory("/docker/ab/kubepods"), None);
    }

    #[test]
    fn the_processes_of_a_pod_are_those_of_its_cgroup_in_the_hierarchy_with_the_controller() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().to_str().unwrap();
        let cgroups = Cgroups {
            hierarchies: vec![
                hierarchy(&format!("{base}/cpu"), &["rw", "cpu"], false),
                hierarchy(&format!("{base}/pids"), &["rw", "pids"], false),
            ],
            names: names(CgroupDriver::Cgroupfs),
        };
        let write = |path: &str, text: &str| {
            fs::create_dir_all(format!("{base}/{path}")).unwrap();
            fs::write(format!("{base}/{path}/pids.current"), text).unwrap();
        };
        write("cpu/kubepods/podu1", "9\n");
        write("pids/kubepods/podu1", "3\n");
        write("pids/kubepods/burstable/podu2", "4\n");
        write("pids/kubepods/podu3", "many\n");
        let of = |uid: &str| cgroups.processes_of(&Uid::from(uid));
        assert_eq!([of("u1"), of("u2"), of("u3"), of("u4")], [Some(3), Some(4), None, None]);
    }

    #[test]
    fn a_pods_cgroups_go_with_all_below_them_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().to_str().unwrap();
        let hierarchy = |name: &str, unified| hierarchy(&format!("{base}/{name}"), &[], unified);
        let cgroups = Cgroups {
            hierarchies: vec![hierarchy("cpu", false), hierarchy("unified", true), hierarchy("not-there", false)],
            names: names(CgroupDriver::Cgroupfs),
        };
        for path in [
            "cpu/kubepods/besteffort/podu1/c1/nested",
            "cpu/kubepods/besteffort/podu1/c2",
            "unified/kubepods/burstable/podu1",
            "unified/kubepods/podu1",
            "cpu/kubepods/besteffort/podu2",
        ] {
            fs::create_dir_all(format!("{base}/{path}")).unwrap();
        }
        for _ in 0..2 {
            cgroups.remove_pod("u1", true).unwrap();
        }
        assert!(!Path::new(&format!("{base}/cpu/kubepods/besteffort/podu1")).exists());
        assert!(!Path::new(&format!("{base}/unified/kubepods/burstable/podu1")).exists());
        assert!(!Path::new(&format!("{base}/unified/kubepods/podu1")).exists());
        assert!(Path::new(&format!("{base}/cpu/kubepods/besteffort/podu2")).exists());
        cgroups.remove_pod("", true).unwrap();
        cgroups.remove_pod("../..", true).unwrap();
        assert!(Path::new(&format!("{base}/cpu/kubepods/besteffort")).exists());
    }

    #[test]
    fn a_failed_removal_names_the_cgroup() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().to_str().unwrap();
        let cgroups = Cgroups { hierarchies: vec![hierarchy(base, &[], true)], names: names(CgroupDriver::Systemd) };
        let slice = format!("{base}/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice");
        fs::create_dir_all(&slice).unwrap();
        fs::write(format!("{slice}/file"), "").unwrap();
        let error = cgroups.remove_pod("a-b", false).unwrap_err();
        assert!(error.contains("kubepods-burstable-poda_b.slice"), "{error}");
    }

    #[test]
    fn only_old_cgroups_of_unknown_pods_that_are_empty_in_all_hierarchies_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().to_str().unwrap();
        let cgroups = Cgroups {
            hierarchies: vec![
                hierarchy(&format!("{base}/cpu"), &[], false),
                hierarchy(&format!("{base}/memory"), &[], false),
            ],
            names: names(CgroupDriver::Cgroupfs),
        };
        let make = |path: &str, procs: &str, old: bool| {
            let path = format!("{base}/{path}");
            fs::create_dir_all(&path).unwrap();
            fs::write(format!("{path}/cgroup.procs"), procs).unwrap();
            if old {
                fs::File::open(&path).unwrap().set_modified(SystemTime::now() - 2 * YOUNG).unwrap();
            }
        };
        make("cpu/kubepods/besteffort/podused", "", true);
        make("memory/kubepods/besteffort/podused", "17\n", true);
        make("cpu/kubepods/podknown", "", true);
        make("cpu/kubepods/podyoung", "", false);
        make("cpu/kubepods/burstable", "", true);
        make("cpu/kubepods/podfuture", "", false);
        let future = format!("{base}/cpu/kubepods/podfuture");
        fs::File::open(&future).unwrap().set_modified(SystemTime::now() + 2 * YOUNG).unwrap();
        // Unlike a cgroup, a plain directory that contains a file cannot be removed.
        make("cpu/kubepods/burstable/podgone", "", true);
        assert_eq!(cgroups.sweep(&|uid| uid == "known"), BTreeSet::new());
        let asked = std::cell::RefCell::new(BTreeSet::new());
        cgroups.sweep(&|uid| !asked.borrow_mut().insert(uid.to_owned()));
        assert_eq!(asked.into_inner(), ["future", "gone", "known", "used", "young"].map(String::from).into());
        let entry = |name: &str| {
            let mut all = fs::read_dir(format!("{base}/cpu/kubepods")).unwrap().flatten();
            all.find(|entry| entry.file_name() == name).unwrap()
        };
        assert!(!is_young(&entry("podfuture")) && is_young(&entry("podyoung")));
        for there in ["besteffort/podused", "podknown", "podyoung", "burstable/podgone"] {
            assert!(Path::new(&format!("{base}/cpu/kubepods/{there}")).exists(), "{there}");
        }
    }
}
