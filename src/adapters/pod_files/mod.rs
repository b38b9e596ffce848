//! The files of a pod, in a kubelet's layout (`api::layout`): its directory under the root directory, its log
//! directory, the managed hosts file, termination message files, links to logs.
//!
//! Each call is synchronous. Containers can write to parts of these trees, so the code trusts nothing in them: it
//! follows no symlink, crosses no mount, reads only regular files, and limits every read. An error names the path and
//! the kernel's error.
//!
//! The main thread creates Wherry's own directories and files. Termination messages, container logs and the host's
//! hosts file can be on a file system that hangs, and a removed tree can be large: `message`, `host_hosts`,
//! `remove_container` and `remove_pod` must run on a helper thread.

mod error;
mod found;
mod hosts;
mod remove;
mod termination;
#[cfg(test)]
mod tests;

pub use remove::{mount_id, remove_tree};
pub use termination::message;

use crate::api::layout::Layout;
use crate::api::mount::{ETC_HOSTS, Mount};
use crate::api::names::ContainerId;
use crate::api::pod::Pod;
use crate::api::printable;
use crate::engine::effect::FilesCall;
use crate::engine::event::{Answer, Prepared};
use crate::engine::op::{Code, OpError};
use crate::foreign::{self, Links};
use crate::net::addresses::addresses;
use error::{Result, failed, is_failing_disk};
use remove::remove_below;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

/// The gRPC code INTERNAL, used for file errors.
const INTERNAL: u32 = 13;
/// Maximum number of termination message files that are kept for each container. Only the newest are kept. A kubelet
/// keeps all of them until the pod is removed, but a crashing container creates 100,000 a year.
const KEPT_MESSAGES: usize = 8;
/// Maximum size of the host's hosts file, in bytes.
const MAX_HOSTS: u64 = 1 << 20;
/// The longest file name on common file systems, in bytes.
const MAX_FILE_NAME: usize = 255;

/// Removes the remaining cgroups of a pod. The arguments are the UID and `kill` of `FilesCall::RemovePod`.
pub type RemoveCgroup = Arc<dyn Fn(&str, bool) -> std::result::Result<(), String> + Send + Sync>;

#[derive(Clone)]
pub struct PodFiles {
    pub layout: Layout,
    /// `clusterDomain`, for pods with a subdomain.
    pub cluster_domain: String,
    /// The path of the host's hosts file (/etc/hosts), for pods with `hostNetwork`.
    pub host_hosts: String,
    pub remove_cgroup: RemoveCgroup,
}

fn prepared(mounts: Vec<Mount>, host_ips: bool) -> Answer {
    Answer::Prepared(Prepared { mounts, host_ips: if host_ips { addresses() } else { Vec::new() } })
}

/// Returns the `terminationMessagePath` of a container; None if the pod has no such container or the path is empty.
fn termination_path(pod: &Pod, container: &str) -> Option<String> {
    let spec = pod.container(container)?;
    spec.termination_message_path.clone().filter(|path| !path.is_empty())
}

impl PodFiles {
    /// Executes one effect synchronously. Calls that can block also have separate functions for a helper thread.
    pub fn execute(&self, call: &FilesCall) -> std::result::Result<Answer, OpError> {
        let result = match call {
            FilesCall::PreparePod { pod } => self.prepare_pod(pod).map(|()| Answer::Ok),
            FilesCall::PrepareContainer { pod, container, ips, names, attempt: _, host_ips } => {
                let host = pod.host_network().then(|| self.host_hosts()).transpose();
                let hosts = host.map(|host| self.hosts(pod, ips, host.as_deref(), names));
                let prepare = |hosts: String| self.prepare_container(pod, container, &hosts);
                hosts.and_then(prepare).map(|mounts| prepared(mounts, *host_ips))
            }
            FilesCall::WriteHosts { pod, ips, names } => {
                let host = pod.host_network().then(|| self.host_hosts()).transpose();
                let write = |host: Option<String>| self.write_hosts(pod, ips, host.as_deref(), names);
                host.and_then(write).map(|()| Answer::Ok)
            }
            FilesCall::LinkLog { pod, container, id, attempt } => {
                self.link_log(pod, container, id, *attempt).map(|()| Answer::Ok)
            }
            FilesCall::ReadTermination { id: _, termination_file, log_path, fallback_to_logs, exit_code } => {
                let fallback = *fallback_to_logs && *exit_code != 0;
                Ok(Answer::Message(message(termination_file.as_deref(), log_path, fallback)))
            }
            FilesCall::RemoveContainerFiles { id, log_path } => {
                self.remove_container_files(id.as_str(), log_path).map(|()| Answer::Ok)
            }
            FilesCall::RemovePod { uid, namespace, name, kill, keep_directory } => {
                self.remove_all(uid.as_str(), namespace, name, *kill, *keep_directory).map(|()| Answer::Ok)
            }
        };
        answer(result)
    }

    /// Reads the host's hosts file, for pods with `hostNetwork`. Returns an empty string if there is no such file.
    ///
    /// # Errors
    /// The file cannot be read, is not a regular file, or is too large.
    pub fn host_hosts(&self) -> std::result::Result<String, String> {
        match foreign::read(Path::new(&self.host_hosts), Links::Follow, MAX_HOSTS) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(e) if e.is_missing() => Ok(String::new()),
            Err(e) => Err(format!("failed to read {}: {e}", self.host_hosts)),
        }
    }

    /// Carries out `PrepareContainer` for a pod with `hostNetwork`. `hosts` is the result of `hosts`.
    pub fn prepare_on_host_network(
        &self,
        pod: &Pod,
        container: &str,
        hosts: &str,
        host_ips: bool,
    ) -> std::result::Result<Answer, OpError> {
        answer(self.prepare_container(pod, container, hosts).map(|mounts| prepared(mounts, host_ips)))
    }

    /// Returns the content of a pod's hosts file. `host` is the content of the host's hosts file, for a pod with
    /// `hostNetwork`. `names`: the lines of services.
    pub fn hosts(&self, pod: &Pod, ips: &[String], host: Option<&str>, names: &str) -> String {
        hosts::content(pod, ips, &self.cluster_domain, host) + names
    }

    /// Carries out `WriteHosts`. The arguments are those of `hosts`.
    pub fn write_hosts(&self, pod: &Pod, ips: &[String], host: Option<&str>, names: &str) -> Result<()> {
        write_in_place(&self.layout.etc_hosts(&pod.uid), &self.hosts(pod, ips, host, names), IfMissing::Ignored)
    }

    /// Carries out `RemoveContainerFiles`. Must run on a helper thread, because a log can be large.
    pub fn remove_container(&self, id: &str, log_path: &str) -> std::result::Result<(), OpError> {
        answer(self.remove_container_files(id, log_path))
    }

    /// Carries out `RemovePod`. Must run on a helper thread.
    pub fn remove_pod(
        &self,
        uid: &str,
        namespace: &str,
        name: &str,
        kill: bool,
        keep_directory: bool,
    ) -> std::result::Result<(), OpError> {
        answer(self.remove_all(uid, namespace, name, kill, keep_directory))
    }

    fn prepare_pod(&self, pod: &Pod) -> Result<()> {
        for part in [pod.uid.as_str(), &pod.name.namespace, &pod.name.name] {
            one_part(part)?;
        }
        directory(&self.layout.pods(), 0o750)?;
        let own = self.layout.pod(&pod.uid);
        directory(&own, 0o750)?;
        directory(&format!("{own}/containers"), 0o750)?;
        directory(&self.layout.logs, 0o755)?;
        directory(&self.layout.pod_logs(&pod.name, &pod.uid), 0o755)
    }

    /// Creates the files of a container, even if the pod's directories are gone. `hosts` is the content of the hosts
    /// file. Returns the mounts of /etc/hosts and of the new termination message file.
    fn prepare_container(&self, pod: &Pod, container: &str, hosts: &str) -> Result<Vec<Mount>> {
        one_part(container)?;
        self.prepare_pod(pod)?;
        write_in_place(&self.layout.etc_hosts(&pod.uid), hosts, IfMissing::Created)?;
        directory(&format!("{}/{container}", self.layout.pod_logs(&pod.name, &pod.uid)), 0o755)?;
        let messages = self.layout.container(&pod.uid, container);
        directory(&messages, 0o750)?;
        let mut mounts = vec![Mount::writable(ETC_HOSTS, self.layout.etc_hosts(&pod.uid))];
        // On a disk that fails, the container starts without a file for its message.
        if let Some(file) = termination::make(&messages)? {
            termination::forget_old(&messages, &file, KEPT_MESSAGES);
            mounts.extend(termination_path(pod, container).map(|path| Mount::writable(path, file)));
        }
        Ok(mounts)
    }

    fn link_log(&self, pod: &Pod, container: &str, id: &ContainerId, attempt: u32) -> Result<()> {
        let Some(links) = &self.layout.log_links else { return Ok(()) };
        let name = link_name(&pod.name.name, &pod.name.namespace, container, id.as_str());
        one_part(&name)?;
        directory(links, 0o755)?;
        let link = format!("{links}/{name}");
        let target = format!("{}/{}", self.layout.pod_logs(&pod.name, &pod.uid), Layout::log_path(container, attempt));
        match rustix::fs::readlinkat(CWD, &link, Vec::new()) {
            Ok(there) if there.as_bytes() == target.as_bytes() => return Ok(()),
            Ok(_) | Err(Errno::INVAL) => remove_file(&link)?,
            Err(_) => {}
        }
        rustix::fs::symlinkat(&target, CWD, &link).map_err(|e| failed("link", &link, e))
    }

    /// Removes the log, its rotated files and the link. Ignores a path that is not the log of a pod.
    fn remove_container_files(&self, id: &str, log_path: &str) -> Result<()> {
        let Some(log) = LogPath::parse(log_path) else { return Ok(()) };
        let rotated = format!("{}.", log.file);
        match std::fs::read_dir(log.directory) {
            Ok(entries) => {
                for entry in entries.flatten() {
                    let name = entry.file_name();
                    let name = name.to_string_lossy();
                    if name == log.file || name.starts_with(&rotated) {
                        remove_file(&format!("{}/{name}", log.directory))?;
                    }
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("failed to read {}: {e}", log.directory)),
        }
        if let Some(links) = &self.layout.log_links {
            let name = link_name(log.pod, log.namespace, log.container, id);
            one_part(&name)?;
            remove_file(&format!("{links}/{name}"))?;
        }
        Ok(())
    }

    /// Removes all files of a pod. Continues after an error and returns the first one. The pod's directory is removed
    /// last, and only after everything else, because it is the only trace of a pod without a record if Wherry is
    /// killed.
    fn remove_all(&self, uid: &str, namespace: &str, name: &str, kill: bool, keep_directory: bool) -> Result<()> {
        for part in [uid, namespace, name] {
            one_part(part)?;
        }
        let logs = format!("{namespace}_{name}_{uid}");
        [
            // Remove the cgroups first: the check that no other owner uses the UID was made just now, and removing a
            // large log takes minutes.
            (self.remove_cgroup)(uid, kill),
            self.remove_links(namespace, name, &format!("{}/{logs}/", self.layout.logs)),
            remove_tree(&self.layout.logs, &logs),
            remove_below(&format!("{}/{uid}", self.layout.pods())),
        ]
        .into_iter()
        .collect::<Result<()>>()?;
        if keep_directory { Ok(()) } else { remove_tree(&self.layout.pods(), uid) }
    }

    /// Removes the pod's links to paths below `target`.
    fn remove_links(&self, namespace: &str, name: &str, target: &str) -> Result<()> {
        let Some(links) = &self.layout.log_links else { return Ok(()) };
        let entries = match std::fs::read_dir(links) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|e| format!("failed to read {links}: {e}"))?,
        };
        let start = format!("{name}_{namespace}_");
        for entry in entries.flatten() {
            let file = entry.file_name();
            let file = file.to_string_lossy();
            let link = format!("{links}/{file}");
            if file.starts_with(&start)
                && std::fs::read_link(&link).is_ok_and(|to| to.to_string_lossy().starts_with(target))
            {
                remove_file(&link)?;
            }
        }
        Ok(())
    }
}

/// Converts a file error to the error of an operation.
pub fn answer<T>(result: Result<T>) -> std::result::Result<T, OpError> {
    result.map_err(|message| OpError::Answered { code: Code::Other(INTERNAL), message })
}

/// Returns `<pod>_<namespace>_<container>-<id>.log`, with the part before `.log` truncated to fit in a file name.
fn link_name(pod: &str, namespace: &str, container: &str, id: &str) -> String {
    let name = format!("{pod}_{namespace}_{container}-{id}");
    printable::cut(&name, MAX_FILE_NAME - ".log".len()).to_owned() + ".log"
}

/// The parts of a container's log path: `<logs>/<namespace>_<pod>_<uid>/<container>/<attempt>.log`.
struct LogPath<'a> {
    directory: &'a str,
    namespace: &'a str,
    pod: &'a str,
    container: &'a str,
    file: &'a str,
}

impl<'a> LogPath<'a> {
    fn parse(path: &'a str) -> Option<LogPath<'a>> {
        let (directory, file) = path.rsplit_once('/')?;
        let (above, container) = directory.rsplit_once('/')?;
        let (_, pod) = above.rsplit_once('/')?;
        let mut names = pod.splitn(3, '_');
        let (namespace, pod, _uid) = (names.next()?, names.next()?, names.next()?);
        file.strip_suffix(".log")?.parse::<u32>().ok()?;
        Some(LogPath { directory, namespace, pod, container, file })
    }
}

/// Checks that a name is a single part of a path. Names from manifests become parts of paths, so this does not rely on
/// validation.
fn one_part(name: &str) -> Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(format!("the name {name:?} cannot be part of a path"));
    }
    Ok(())
}

/// Creates a directory with exactly this mode, regardless of the umask, and its missing parents with mode 0755. Does
/// not change an existing directory.
fn directory(path: &str, mode: u32) -> Result<()> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(mode)) {
        Ok(()) => rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(|e| failed("set the mode of", path, e)),
        Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => match path.rsplit_once('/') {
            Some((parent, _)) if !parent.is_empty() => {
                directory(parent, 0o755)?;
                directory(path, mode)
            }
            _ => Err(failed("create directory", path, Errno::NOENT)),
        },
        Err(e) => Err(failed("create directory", path, e)),
    }
}

fn remove_file(path: &str) -> Result<()> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(failed("remove", path, e)),
    }
}

/// Reads a file, and reports whether this is its whole content.
fn has_content(file: &mut File, content: &str) -> std::io::Result<bool> {
    // The capacity lets one read return the whole file.
    let mut there = Vec::with_capacity(content.len() + 1);
    file.take(content.len() as u64 + 1).read_to_end(&mut there)?;
    Ok(there == content.as_bytes())
}

/// What happens if a file does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Created,
    Ignored,
}

/// Writes a file that is mounted in containers. Writes in place, because a container would not see a new file, and only
/// if the content differs. A file that has the content is accepted on a read-only file system too: containers still
/// restart after the kernel has remounted a failing disk.
fn write_in_place(path: &str, content: &str, missing: IfMissing) -> Result<()> {
    let create = if missing == IfMissing::Created { OFlags::CREATE } else { OFlags::empty() };
    let flags = create | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let wrong = |e: std::io::Error| format!("failed to write {path}: {e}");
    let mut file = match rustix::fs::open(path, flags, mode) {
        Ok(file) => File::from(file),
        Err(e) if is_failing_disk(e) => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::open(path, flags, mode).map_err(|_| failed("open", path, e))?;
            let is_same = has_content(&mut File::from(file), content).map_err(wrong)?;
            return if is_same { Ok(()) } else { Err(failed("write", path, e)) };
        }
        Err(Errno::NOENT) if missing == IfMissing::Ignored => return Ok(()),
        Err(e) => return Err(failed("open", path, e)),
    };
    let is_same = has_content(&mut file, content).map_err(wrong)?;
    rustix::fs::fchmod(&file, mode).map_err(|e| failed("set the mode of", path, e))?;
    if is_same {
        return Ok(());
    }
    // A container that reads the file meanwhile never finds it empty.
    std::io::Seek::rewind(&mut file).map_err(wrong)?;
    file.write_all(content.as_bytes()).map_err(wrong)?;
    file.set_len(content.len() as u64).map_err(wrong)
}
