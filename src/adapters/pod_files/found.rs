//! Finds the pod directories that exist at the start, and the names of their pods.

use super::PodFiles;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::engine::event::PodDirectory;
use std::collections::BTreeMap;
use std::fs;

/// The namespace of a pod without a log directory. No real namespace can have this name.
const NO_NAMESPACE: &str = "-";

impl PodFiles {
    /// Returns the pod directories, sorted by UID. Links and files next to them are ignored. A pod's name comes from
    /// its log directory; without one, the namespace is `-` and the name is the UID.
    pub fn found(&self) -> Vec<PodDirectory> {
        let directories = directories(&self.layout.pods());
        // A pod's directory is created first and removed last. Without any, the log directories are not needed.
        let names = if directories.is_empty() { BTreeMap::new() } else { self.named_by_logs() };
        let of = |uid: String| {
            let name = names.get(&uid).cloned().unwrap_or_else(|| FullName::new(NO_NAMESPACE, &uid));
            let path = format!("{}/{uid}", self.layout.pods());
            PodDirectory { uid: Uid::from(uid), name, path }
        };
        directories.into_iter().map(of).collect()
    }

    fn named_by_logs(&self) -> BTreeMap<String, FullName> {
        let whose = |directory: String| {
            let mut parts = directory.splitn(3, '_');
            let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
            Some((uid.to_owned(), FullName::new(namespace, name)))
        };
        directories(&self.layout.logs).into_iter().filter_map(whose).collect_map()
    }
}

/// Returns the names of the subdirectories. Logs a warning and returns nothing if the directory cannot be read.
fn directories(path: &str) -> Vec<String> {
    let list = match fs::read_dir(path) {
        Ok(list) => list,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(e) => {
            log::warn!("failed to scan for leftovers of pods directory={path} error={e:?}");
            return Vec::new();
        }
    };
    let directories = list.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    let mut names: Vec<String> = directories.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.order();
    names
}
