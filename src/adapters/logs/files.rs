//! Finds the log files of one container instance, and puts them in order.

use crate::api::ordered::OrderSlice;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The device and inode of a file. They do not change when the file is renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u64, u64);

impl Identity {
    pub fn of(metadata: &Metadata) -> Identity {
        Identity(metadata.dev(), metadata.ino())
    }
}

/// Returns the instances (restart counts) that have a log, in ascending order.
pub fn instances(directory: &Path) -> Vec<u32> {
    let number = |name: String| name.strip_suffix(".log")?.parse().ok();
    let mut found: Vec<u32> = names(directory).into_iter().filter_map(number).collect();
    found.order();
    found
}

/// Returns the files of one instance, the oldest first.
pub fn of_instance(directory: &Path, instance: u32) -> Vec<PathBuf> {
    let current = format!("{instance}.log");
    let rotated = format!("{current}.");
    let all = names(directory);
    let mut old: Vec<&String> = all
        .iter()
        // During compression, both the plain and the compressed file exist for a moment. A partial file ends in .tmp.
        .filter(|n| n.starts_with(&rotated) && !n.ends_with(".tmp"))
        .filter(|n| n.strip_suffix(".gz").is_none_or(|plain| !all.iter().any(|other| other == plain)))
        .collect();
    // The times in the names sort correctly as text.
    old.order_by_key(|n| n.strip_suffix(".gz").unwrap_or(n));
    let new = all.iter().filter(|n| **n == current);
    old.into_iter().chain(new).map(|n| directory.join(n)).collect()
}

pub fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "gz")
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect()
}

/// The log directory of a pod. The fields come from its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLogs {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub path: PathBuf,
    changed: (i64, i64),
}

/// Returns the directories of all pods below `logs` (`<namespace>_<name>_<uid>`), the newest first.
///
/// # Errors
/// `logs` cannot be read.
pub fn pods(logs: &Path) -> io::Result<Vec<PodLogs>> {
    let one = |entry: std::fs::DirEntry| {
        let directory = entry.file_name().into_string().ok()?;
        let mut parts = directory.splitn(3, '_');
        let mut next = || parts.next().map(str::to_owned);
        let (namespace, name, uid) = (next()?, next()?, next()?);
        let metadata = entry.metadata().ok().filter(Metadata::is_dir)?;
        Some(PodLogs { namespace, name, uid, path: entry.path(), changed: (metadata.ctime(), metadata.ctime_nsec()) })
    };
    let mut found: Vec<PodLogs> = std::fs::read_dir(logs)?.flatten().filter_map(one).collect();
    found.order_by_key(|p| std::cmp::Reverse(p.changed));
    Ok(found)
}

/// Returns the names of the containers that have logs, sorted.
pub fn containers(pod: &Path) -> Vec<String> {
    let mut found: Vec<String> = names(pod).into_iter().filter(|n| pod.join(n).is_dir()).collect();
    found.order();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_in_the_order_in_which_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "1.log",
            "0.log",
            "10.log",
            "1.log.20261120-144639",
            "1.log.20261119-100000.gz",
            "1.log.20261120-100000",
            "1.log.20261120-100000.gz",
            "1.log.20261120-144000.tmp",
            "other",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(instances(dir.path()), [0, 1, 10]);
        let names = |instance| -> Vec<String> {
            let files = of_instance(dir.path(), instance);
            files.iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        let expected = ["1.log.20261119-100000.gz", "1.log.20261120-100000", "1.log.20261120-144639", "1.log"];
        assert_eq!(names(1), expected);
        assert_eq!(names(10), ["10.log"]);
        assert!(names(2).is_empty() && instances(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn a_pod_is_found_by_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["shop_web_u1/main", "shop_web_u2/main", "shop_web_u2/side", "bad"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("a_b_c"), "").unwrap();
        let found = pods(dir.path()).unwrap();
        assert_eq!(found.len(), 2);
        let u2 = found.iter().find(|p| p.uid == "u2").unwrap();
        assert_eq!((u2.namespace.as_str(), u2.name.as_str()), ("shop", "web"));
        assert_eq!(containers(&u2.path), ["main", "side"]);
        assert!(pods(Path::new("/nowhere")).is_err());
    }
}
