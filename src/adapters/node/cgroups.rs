//! Pods' cgroups on the machine. The runtime makes a pod's cgroup for the first container and removes only what is
//! below it, so the empty rest is removed here: in every hierarchy (each v1 controller, and the unified one), under
//! each QoS parent, deepest first.
//!
//! Only empty cgroups can be removed, so nothing that runs can be hurt, unless it is asked for: a process that its runtime has
//! lost is killed, as a kubelet does. With the systemd driver the slice's directory
//! goes; systemd notices and forgets the slice by itself.

use crate::api::cgroups::CgroupNames;
use crate::api::names::Uid;
use crate::api::qos::Qos;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    pub mount_point: String,
    /// The part of the hierarchy that is mounted there: `/` but in containers.
    pub root: String,
    pub unified: bool,
}

/// Errors name the directory.
#[derive(Clone, Debug)]
pub struct Cgroups {
    pub hierarchies: Vec<Hierarchy>,
    pub names: CgroupNames,
}

impl Cgroups {
    /// Finds what is mounted.
    pub fn discover(names: CgroupNames) -> Result<Cgroups, String> {
        let path = "/proc/self/mountinfo";
        let text = fs::read(path).map_err(|e| format!("read {path}: {e}"))?;
        Ok(Cgroups { hierarchies: hierarchies(&String::from_utf8_lossy(&text)), names })
    }

    /// Whether the unified hierarchy is the only one (cgroup v2), as opposed to v1 or a hybrid of both.
    pub fn is_v2(&self) -> bool {
        !self.hierarchies.is_empty() && self.hierarchies.iter().all(|h| h.unified)
    }

    /// Removes what is left of a pod's cgroups; fine if there is none. What still runs in one is killed first if so asked
    /// (that may take a second), else an error.
    pub fn remove_pod(&self, uid: &str, kill: bool) -> Result<(), String> {
        if !self.names.per_qos || uid.is_empty() || uid.contains(['/', '\0']) {
            return Ok(());
        }
        let uid = Uid::from(uid);
        let mut result = Ok(());
        for hierarchy in &self.hierarchies {
            for qos in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
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
}

impl Hierarchy {
    /// Where a cgroup is seen; None if it is outside of what is mounted.
    fn directory(&self, cgroup: &str) -> Option<PathBuf> {
        // In a cgroup namespace the root shows as `/` or leads upwards from it.
        let inside = if self.root == "/" || self.root.starts_with("/..") {
            cgroup
        } else {
            cgroup.strip_prefix(self.root.as_str()).filter(|rest| rest.starts_with('/'))?
        };
        Some(Path::new(&self.mount_point).join(inside.trim_start_matches('/')))
    }
}

/// Of mountinfo: each hierarchy once, however often it is mounted.
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
            found.push(Hierarchy { mount_point: unescape(mount_point), root: unescape(root), unified });
        }
    }
    found
}

/// Blanks and the like are `\040` in mountinfo.
fn unescape(field: &str) -> String {
    let mut out = Vec::new();
    let bytes = field.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let octal = field.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (byte, octal) {
            (b'\\', Some(code)) => {
                out.push(code);
                at += 4;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// So often, and so long apart, a cgroup is tried whose processes were killed.
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

/// SIGKILL to each process of the cgroup.
fn kill_all(cgroup: &Path) {
    let (Ok(text), Some(name)) = (fs::read_to_string(cgroup.join("cgroup.procs")), cgroup.file_name()) else { return };
    for pid in text.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
        // The number may be another process's by now: what the descriptor stands for has to be in there still.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let path = format!("/proc/{}/cgroup", pid.as_raw_nonzero());
        let there = fs::read_to_string(path).is_ok_and(|of| of.contains(&*name.to_string_lossy()));
        if there && pidfd_send_signal(&process, Signal::KILL).is_ok() {
            log::warn!("a process that the runtime has lost was killed pid={pid} cgroup={}", cgroup.display());
        }
    }
}

/// A cgroup and all below it, deepest first.
fn remove(directory: &Path) -> Result<(), String> {
    match fs::remove_dir(directory) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        // Perhaps only for what is below it.
        Err(_) => {}
    }
    for cgroup in with_all_below(directory)?.iter().rev() {
        match fs::remove_dir(cgroup) {
            Err(e) if e.kind() == ErrorKind::ResourceBusy => {
                return Err(format!("remove cgroup {}: processes are left in it", cgroup.display()));
            }
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(format!("remove cgroup {}: {e}", cgroup.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A directory and those below it, each after the one that it is in.
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

    fn names(driver: CgroupDriver) -> CgroupNames {
        CgroupNames { root: "/".into(), driver, per_qos: true }
    }

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
        let cgroups = |text: &str| Cgroups { hierarchies: hierarchies(text), names: names(CgroupDriver::Systemd) };
        assert!(!cgroups(HYBRID).is_v2());
        assert!(cgroups("26 23 0:24 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw").is_v2());
        assert_eq!(unescape("/a\\040b\\134c\\x"), "/a b\\c\\x");
    }

    #[test]
    fn a_part_of_a_hierarchy_shows_only_what_is_in_it() {
        let h = |root: &str| Hierarchy { mount_point: "/m".into(), root: root.into(), unified: true };
        assert_eq!(h("/").directory("/kubepods/x"), Some("/m/kubepods/x".into()));
        assert_eq!(h("/../..").directory("/kubepods/x"), Some("/m/kubepods/x".into()));
        assert_eq!(h("/docker/a").directory("/docker/a/kubepods"), Some("/m/kubepods".into()));
        assert_eq!(h("/docker/a").directory("/docker/ab/kubepods"), None);
    }

    #[test]
    fn a_pods_cgroups_go_with_all_below_them_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().to_str().unwrap();
        let hierarchy =
            |name: &str, unified| Hierarchy { mount_point: format!("{base}/{name}"), root: "/".into(), unified };
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
    fn what_cannot_be_removed_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().to_str().unwrap();
        let mount_point = base.to_owned();
        let cgroups = Cgroups {
            hierarchies: vec![Hierarchy { mount_point, root: "/".into(), unified: true }],
            names: names(CgroupDriver::Systemd),
        };
        let slice = format!("{base}/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice");
        fs::create_dir_all(&slice).unwrap();
        fs::write(format!("{slice}/file"), "").unwrap();
        let error = cgroups.remove_pod("a-b", false).unwrap_err();
        assert!(error.contains("kubepods-burstable-poda_b.slice"), "{error}");
    }
}
