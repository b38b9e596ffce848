//! The directories of pods that are there at start, and whose they are.

use super::PodFiles;
use crate::api::names::{FullName, Uid};
use crate::engine::event::PodDirectory;
use std::collections::BTreeMap;
use std::fs;

/// Of a pod without a log directory: no namespace is named so.
const NO_NAMESPACE: &str = "-";

impl PodFiles {
    /// Sorted. Links and files beside them are nobody's.
    pub fn found(&self) -> Vec<PodDirectory> {
        let directories = directories(&self.layout.pods());
        // The pod's directory is made first and removed last, so log directories of others are never looked at.
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
        directories(&self.layout.logs).into_iter().filter_map(whose).collect()
    }
}

/// The names of the directories in one; none, with a warning, if it cannot be read.
fn directories(path: &str) -> Vec<String> {
    let list = match fs::read_dir(path) {
        Ok(list) => list,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(e) => {
            log::warn!("cannot look for what pods left directory={path} error={e:?}");
            return Vec::new();
        }
    };
    let directories = list.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    let mut names: Vec<String> = directories.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names
}
