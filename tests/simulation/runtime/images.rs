//! The images of the runtime model, and the file system that contains them.

use super::{Outcome, Runtime, not_found, ok};
use std::collections::{BTreeMap, BTreeSet};
use wherry::api::facts::{FileSystemFact, ImageFsFact, ImageList, ImageUser, ListedImage};
use wherry::api::image::full_name;
use wherry::engine::event::Answer;

/// The size of an image without an entry in `sizes`.
const SIZE: u64 = 10;

pub struct ImageStore {
    /// Bytes by image name.
    pub sizes: BTreeMap<String, u64>,
    pub pinned: BTreeSet<String>,
    pub sandbox_image: Option<String>,
    pub capacity: u64,
    /// What other files occupy.
    pub other: u64,
}

impl Default for ImageStore {
    fn default() -> ImageStore {
        let (sizes, pinned) = Default::default();
        ImageStore { sizes, pinned, sandbox_image: None, capacity: 1000, other: 0 }
    }
}

impl ImageStore {
    pub fn file_systems(&self) -> Vec<ImageFsFact> {
        vec![ImageFsFact { mountpoint: "/var/lib/containerd".into(), used_bytes: 0 }]
    }
}

impl Runtime {
    fn size(&self, name: &str) -> u64 {
        self.store.sizes.get(name).copied().unwrap_or(SIZE)
    }

    pub fn file_system(&self) -> FileSystemFact {
        let used: u64 = self.images.iter().map(|name| self.size(name)).sum();
        let capacity = self.store.capacity;
        let available = capacity.saturating_sub(used + self.store.other);
        FileSystemFact { capacity, available, ..FileSystemFact::default() }
    }

    pub(super) fn list_images(&self) -> ImageList {
        let image = |name: &String| ListedImage {
            id: format!("sha256:{name}"),
            tags: full_name(name).into_iter().collect(),
            digests: Vec::new(),
            size: self.size(name),
            pinned: self.store.pinned.contains(name),
        };
        let users = self.containers.values().map(|c| ImageUser {
            image: c.image.clone(),
            image_ref: c.image.clone(),
            pod: Some(c.pod_name.clone()),
        });
        ImageList {
            images: self.images.iter().map(image).collect(),
            users: users.collect(),
            sandbox_image: self.store.sandbox_image.clone(),
        }
    }

    pub(super) fn remove_image(&mut self, id: &str) -> Outcome {
        let name = id.strip_prefix("sha256:").unwrap_or(id);
        if self.images.remove(name) { ok(Answer::Ok) } else { not_found(id) }
    }
}
