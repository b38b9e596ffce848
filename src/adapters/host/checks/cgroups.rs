//! Checks the cgroup hierarchies: v1, v2 or both, and whether limits of pods can be enforced.

use super::raspberry_pi;
use super::roots::Roots;
use crate::adapters::cgroups::{Cgroups, Tree};
use crate::api::cgroups::{CgroupDriver, CgroupNames};
use crate::api::finding::{Finding, Level};
use crate::api::ordered::CollectOrdered;
use std::collections::BTreeSet;
use std::time::Duration;

/// The controllers that a finding lists, and those that must not be missing.
const SHOWN: [&str; 6] = ["cpu", "memory", "pids", "cpuset", "io", "hugetlb"];
const NEEDED: [&str; 3] = ["cpu", "memory", "pids"];
const UNIFIED: &str = "boot with systemd.unified_cgroup_hierarchy=1 (a systemd before 258) or cgroup_no_v1=all";

/// Waits at most `patience` for files of the boot loader.
pub(super) fn inspect(roots: &Roots, names: &CgroupNames, patience: Duration) -> Vec<Finding> {
    let mountinfo = roots.proc.join("self/mountinfo");
    let cgroups = match Cgroups::discover_in(&mountinfo, names.clone()) {
        Ok(cgroups) => cgroups,
        Err(e) => return vec![Finding::error("cgroups", e, "mount /proc")],
    };
    let all: BTreeSet<String> = cgroups.hierarchies.iter().flat_map(|h| h.controllers.clone()).collect_set();
    let has = |name: &str| all.contains(name) || (name == "io" && all.contains("blkio"));
    let shown: Vec<&str> = SHOWN.into_iter().filter(|name| has(name)).collect();
    let missing: Vec<&str> = NEEDED.into_iter().filter(|name| !has(name)).collect();
    let unified = cgroups.hierarchies.iter().any(|h| h.unified);
    let is_v2 = cgroups.is_v2();
    // The agent reports the same problems at its start: the mount, cpu, memory, `cgroupRoot`.
    let troubles = Tree::new(cgroups).troubles();
    let mut found = vec![if !troubles.is_empty() {
        // The messages contain the remedy. On some boards, there is more to say.
        let no_memory = missing.contains(&"memory");
        let remedy = if no_memory { raspberry_pi::memory_controller(roots, patience) } else { None };
        Finding { check: "cgroups", level: Level::Error, message: troubles.join("; "), remedy }
    } else if !missing.is_empty() {
        let message = format!("no controller {}: these limits of pods have no effect", missing.join(", "));
        Finding::warning("cgroups", message, "use a kernel with CONFIG_CGROUP_PIDS, and mount the controller")
    } else if is_v2 {
        Finding::ok("cgroups", format!("v2: {}", shown.join(" ")))
    } else {
        let kind = if unified { "v1 with an unused v2 (hybrid)" } else { "v1 only" };
        let message =
            format!("{kind}: {}; pods run, but future runtimes and kernels will not support v1", shown.join(" "));
        Finding::warning("cgroups", message, UNIFIED)
    }];
    if names.driver == CgroupDriver::Systemd && !roots.run.join("systemd/system").is_dir() {
        found.push(Finding::error(
            "cgroup-driver",
            "cgroupDriver is systemd, but this machine was not booted with systemd",
            "set cgroupDriver: cgroupfs in the configuration, and the same driver in that of the runtime (containerd: \
             SystemdCgroup = false, CRI-O: cgroup_manager = \"cgroupfs\")",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::roots::fake;
    use super::*;
    use std::fs;
    use std::path::Path;

    fn roots(mountinfo: &str) -> (tempfile::TempDir, Roots) {
        let (dir, roots) = fake(&[("proc/self/mountinfo", "")]);
        let cgroup = roots.sys.join("fs/cgroup");
        fs::create_dir_all(&cgroup).unwrap();
        fs::create_dir_all(&roots.run).unwrap();
        let mountinfo = mountinfo.replace("CGROUP", cgroup.to_str().unwrap());
        fs::write(roots.proc.join("self/mountinfo"), mountinfo).unwrap();
        (dir, roots)
    }

    fn look(roots: &Roots, names: &CgroupNames) -> Vec<Finding> {
        inspect(roots, names, Duration::from_secs(60))
    }

    fn names(driver: CgroupDriver, root: &str) -> CgroupNames {
        CgroupNames { root: root.into(), driver, per_qos: true }
    }

    fn v1(controllers: &[&str]) -> String {
        let line =
            |(i, c): (usize, &&str)| format!("{} 31 0:{} / CGROUP/{c} rw - cgroup cgroup rw,{c}\n", 32 + i, 40 + i);
        controllers.iter().enumerate().map(line).collect()
    }

    fn only(roots: &Roots) -> Finding {
        let mut found = look(roots, &names(CgroupDriver::Cgroupfs, "/"));
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    fn make(roots: &Roots, directories: &[&str]) {
        for directory in directories {
            fs::create_dir_all(roots.sys.join("fs/cgroup").join(directory)).unwrap();
        }
    }

    const V2: &str = "26 23 0:24 / CGROUP rw - cgroup2 cgroup2 rw\n";

    fn v2(controllers: &str) -> (tempfile::TempDir, Roots) {
        let (dir, roots) = roots(V2);
        fs::write(roots.sys.join("fs/cgroup/cgroup.controllers"), controllers).unwrap();
        (dir, roots)
    }

    #[test]
    fn v2_is_ok_and_its_missing_controllers_are_reported() {
        let (_dir, good) = v2("cpuset cpu io memory hugetlb pids rdma\n");
        assert_eq!(only(&good), Finding::ok("cgroups", "v2: cpu memory pids cpuset io hugetlb"));
        let (_dir, bad) = v2("cpu pids\n");
        let finding = only(&bad);
        assert_eq!(finding.level, Level::Error);
        assert!(finding.message.contains("the memory controller") && finding.message.contains("cgroup_enable=memory"));
        assert_eq!(finding.remedy, None);
        // Only some boards disable the controller in a file that is known here.
        fs::create_dir_all(bad.proc.join("device-tree")).unwrap();
        fs::write(bad.proc.join("device-tree/model"), "Raspberry Pi 3 Model B Rev 1.2\0").unwrap();
        assert!(only(&bad).remedy.is_some_and(|remedy| remedy.contains("cmdline.txt on the boot partition")));
        let (_dir, few) = v2("cpu memory\n");
        let finding = only(&few);
        assert!(finding.level == Level::Warning && finding.message.contains("no controller pids"), "{finding:?}");
    }

    #[test]
    fn v1_and_hybrid_are_reported_in_one_line() {
        let all = ["cpu", "memory", "pids"];
        let (_dir, only_v1) = roots(&v1(&all));
        make(&only_v1, &all);
        let finding = only(&only_v1);
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.message.starts_with("v1 only: cpu memory pids;"), "{finding:?}");
        assert!(!finding.message.contains('\n') && finding.remedy.is_some());
        let (_dir, hybrid) = roots(&(v1(&all) + "60 31 0:60 / CGROUP/unified rw - cgroup2 cgroup2 rw\n"));
        make(&hybrid, &["cpu", "memory", "pids", "unified"]);
        assert!(only(&hybrid).message.contains("(hybrid)"));
    }

    #[test]
    fn no_hierarchy_a_missing_cgroup_root_and_a_missing_systemd_are_errors() {
        let (_dir, none) = roots("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
        assert_eq!(only(&none).level, Level::Error);
        let (_dir, good) = v2("cpu memory pids\n");
        let found = look(&good, &names(CgroupDriver::Cgroupfs, "/not-there"));
        assert!(found[0].level == Level::Error && found[0].message.contains("not-there"), "{found:?}");
        let found = look(&good, &names(CgroupDriver::Systemd, "/"));
        assert!(found[1].level == Level::Error && found[1].message.contains("not booted with systemd"), "{found:?}");
        fs::create_dir_all(good.run.join("systemd/system")).unwrap();
        assert_eq!(look(&good, &names(CgroupDriver::Systemd, "/")).len(), 1);
        let no_proc = Roots { proc: Path::new("/nowhere/at/all").into(), ..good };
        assert_eq!(only(&no_proc).level, Level::Error);
    }
}
