//! Checks the features and limits of the kernel that an administrator can change, and the privileges of this process.

use super::roots::{Roots, text};
use crate::api::finding::Finding;
use rustix::fs::inotify;
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// Limits below these cause a warning; the kernel's defaults are higher. The agent needs three instances. The limits
/// are per user, so the pods of root share the rest.
const INOTIFY_INSTANCES: u64 = 64;
const INOTIFY_WATCHES: u64 = 4096;
/// A limit below this causes a warning. The agent opens a pidfd for each container and sandbox, and other descriptors.
const DESCRIPTORS: u64 = 4096;

pub(super) fn inspect(roots: &Roots, seccomp_default: bool) -> Vec<Finding> {
    let seccomp = seccomp_default.then(|| seccomp(&roots.proc));
    let mut found: Vec<Finding> = seccomp.into_iter().collect();
    found.push(overlay(&roots.proc));
    found.extend(inotify_limits(&roots.proc));
    found.push(descriptors(getrlimit(Resource::Nofile).maximum));
    found.push(user(rustix::process::geteuid().is_root()));
    found.push(apparmor(roots));
    found
}

/// Checks for seccomp, which `seccompDefault` requires.
fn seccomp(proc: &Path) -> Finding {
    let here = text(&proc.join("sys/kernel/seccomp/actions_avail")).is_some_and(|actions| actions.contains("errno"));
    if here {
        return Finding::ok("seccomp", "the kernel can filter the system calls of containers");
    }
    Finding::error(
        "seccomp",
        "the kernel has no seccomp, and seccompDefault requires it",
        "remove seccompDefault from the configuration, or use a kernel with CONFIG_SECCOMP_FILTER",
    )
}

fn overlay(proc: &Path) -> Finding {
    let known = text(&proc.join("filesystems"));
    if known.is_some_and(|list| list.lines().any(|l| l.split_whitespace().last() == Some("overlay"))) {
        return Finding::ok("overlayfs", "the kernel supports it");
    }
    Finding::warning(
        "overlayfs",
        "the module is not loaded: the runtime copies image layers, or fails",
        "modprobe overlay, and add it to a file in /etc/modules-load.d",
    )
}

/// Checks the limits of inotify; returns None if the kernel has no inotify.
fn inotify_limits(proc: &Path) -> Option<Finding> {
    let limit = |name: &str| text(&proc.join("sys/fs/inotify").join(name)).and_then(|t| t.parse::<u64>().ok());
    let (instances, watches) = (limit("max_user_instances")?, limit("max_user_watches")?);
    if instances < INOTIFY_INSTANCES || watches < INOTIFY_WATCHES {
        return Some(Finding::warning(
            "inotify",
            format!("{instances} instances and {watches} watches per user: too few for the agent and all pods of root"),
            "sysctl fs.inotify.max_user_instances=512 fs.inotify.max_user_watches=65536, and add it to /etc/sysctl.d",
        ));
    }
    Some(Finding::ok("inotify", format!("{instances} instances, {watches} watches per user")))
}

pub(super) fn try_inotify() -> Option<Finding> {
    let e = inotify::init(inotify::CreateFlags::CLOEXEC).err()?;
    Some(Finding::warning(
        "inotify",
        format!("inotify_init: {e}: wherry reads manifests every fileCheckFrequency instead of when they change"),
        "sysctl fs.inotify.max_user_instances=512, or stop the processes that use them (ls -l /proc/*/fd | grep \
         inotify)",
    ))
}

/// Checks the limit of open descriptors. `limit` is None if there is no limit.
fn descriptors(limit: Option<u64>) -> Finding {
    match limit {
        Some(n) if n < DESCRIPTORS => Finding::warning(
            "descriptors",
            format!("at most {n} per process: too few for a node with many pods"),
            "set LimitNOFILE=65536 in the unit, or ulimit -Hn 65536",
        ),
        Some(n) => Finding::ok("descriptors", format!("at most {n} per process")),
        None => Finding::ok("descriptors", "no limit"),
    }
}

fn user(root: bool) -> Finding {
    if root {
        return Finding::ok("user", "root");
    }
    Finding::warning(
        "user",
        "not root: the runtime, cgroups and files below /var belong to root, so all findings may be wrong",
        "run the check as root (sudo wherry check --system)",
    )
}

/// Checks AppArmor, which is a problem if the agent itself is confined, or if the runtime cannot load its profile.
fn apparmor(roots: &Roots) -> Finding {
    if text(&roots.sys.join("module/apparmor/parameters/enabled")).as_deref() != Some("Y") {
        return Finding::ok("apparmor", "off");
    }
    let own = [roots.proc.join("self/attr/apparmor/current"), roots.proc.join("self/attr/current")];
    let own = own.iter().find_map(|path| text(path)).unwrap_or_else(|| "unconfined".to_owned());
    if own != "unconfined" && !own.ends_with("(complain)") && !own.ends_with("(unconfined)") {
        return Finding::warning(
            "apparmor",
            format!(
                "this process is confined by the profile {own}: access to files, cgroups and sockets may be denied"
            ),
            "allow the denied accesses in that profile (journalctl -k | grep apparmor), or run aa-complain on it",
        );
    }
    let parser = |directory: &str| Path::new(directory).join("apparmor_parser").exists();
    if !["/sbin", "/usr/sbin", "/bin", "/usr/bin"].into_iter().any(parser) {
        return Finding::warning(
            "apparmor",
            "on, but there is no apparmor_parser: the runtime cannot load profiles, and pods that name one fail",
            "install the package apparmor, or boot with apparmor=0",
        );
    }
    Finding::ok("apparmor", format!("on, this process is {own}"))
}

#[cfg(test)]
mod tests {
    use super::super::roots::fake as roots;
    use super::*;
    use crate::api::finding::Level;
    use std::fs;

    #[test]
    fn a_missing_kernel_feature_is_reported_with_a_remedy() {
        let (_dir, bare) = roots(&[]);
        for (finding, level) in [
            (seccomp(&bare.proc), Level::Error),
            (overlay(&bare.proc), Level::Warning),
            (descriptors(Some(1024)), Level::Warning),
            (user(false), Level::Warning),
        ] {
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.remedy.is_some() && !finding.message.contains('\n'), "{finding:?}");
        }
        // Without inotify, manifests are read periodically. No setting changes that.
        assert_eq!(inotify_limits(&bare.proc), None);
        let checks = |seccomp_default| inspect(&bare, seccomp_default).iter().map(|f| f.check).collect::<Vec<_>>();
        assert!(checks(true).contains(&"seccomp") && !checks(false).contains(&"seccomp"));
    }

    #[test]
    fn a_kernel_with_everything_is_fine() {
        let (_dir, full) = roots(&[
            ("proc/sys/kernel/seccomp/actions_avail", "kill_process trap errno log allow\n"),
            ("proc/filesystems", "nodev\tsysfs\nnodev\toverlay\n\text4\n"),
            ("proc/sys/fs/inotify/max_user_instances", "128\n"),
            ("proc/sys/fs/inotify/max_user_watches", "65536\n"),
        ]);
        for finding in [
            seccomp(&full.proc),
            overlay(&full.proc),
            inotify_limits(&full.proc).unwrap(),
            apparmor(&full),
            descriptors(None),
            user(true),
        ] {
            assert_eq!((finding.level, finding.remedy.as_deref()), (Level::Ok, None), "{finding:?}");
        }
        assert_eq!(apparmor(&full).message, "off");
        fs::write(full.proc.join("sys/fs/inotify/max_user_instances"), "8").unwrap();
        assert_eq!(inotify_limits(&full.proc).unwrap().level, Level::Warning);
    }

    #[test]
    fn apparmor_is_a_problem_only_if_it_confines_the_agent() {
        let (_dir, on) = roots(&[
            ("sys/module/apparmor/parameters/enabled", "Y\n"),
            ("proc/self/attr/current", "wherry (enforce)\n"),
        ]);
        let finding = apparmor(&on);
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.message.contains("confined by the profile wherry (enforce)"), "{finding:?}");
        // The newer of the two files takes precedence.
        fs::create_dir_all(on.proc.join("self/attr/apparmor")).unwrap();
        fs::write(on.proc.join("self/attr/apparmor/current"), "unconfined\n").unwrap();
        assert!(!apparmor(&on).message.contains("confined by"));
    }
}
