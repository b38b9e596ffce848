//! Which images are in use, and by whom (I1).

use crate::api::facts::{ImageList, ListedImage};
use crate::api::image::full_name;
use crate::api::names::FullName;
use crate::api::ordered::OrderSlice;
use serde::Serialize;

/// An image that a pod names, or that a container of the pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// A name or an id.
    pub image: String,
    pub pod: FullName,
}

/// Why an image stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Keep {
    /// A container uses it, whether it runs or not.
    InUse,
    /// A manifest names it, and no container uses it.
    Named,
    /// The runtime keeps it.
    Pinned,
    /// The image of the runtime's sandboxes. containerd 1.6 does not pin it.
    Sandboxes,
}

/// Returns why the image stays. None if nothing uses it.
pub fn keep(image: &ListedImage, list: &ImageList, named: &[Named]) -> Option<Keep> {
    let uses = |reference: &str| refers(reference, image);
    if list.users.iter().any(|user| uses(&user.image) || uses(&user.image_ref)) {
        return Some(Keep::InUse);
    }
    if named.iter().any(|named| uses(&named.image)) {
        return Some(Keep::Named);
    }
    if image.pinned {
        return Some(Keep::Pinned);
    }
    list.sandbox_image.as_deref().is_some_and(uses).then_some(Keep::Sandboxes)
}

/// Returns the pods that use or name the image, sorted.
pub fn pods(image: &ListedImage, list: &ImageList, named: &[Named]) -> Vec<FullName> {
    let users = list.users.iter().filter(|user| refers(&user.image, image) || refers(&user.image_ref, image));
    let named = named.iter().filter(|named| refers(&named.image, image)).map(|named| named.pod.clone());
    let mut pods: Vec<FullName> = users.filter_map(|user| user.pod.clone()).chain(named).collect();
    pods.order();
    pods.dedup();
    pods
}

/// Returns true if the name or id refers to this image, or may refer to it: CRI-O can look up a name without a
/// registry in several registries.
pub fn refers(reference: &str, image: &ListedImage) -> bool {
    if reference.is_empty() {
        return false;
    }
    let hex = |id: &str| id.strip_prefix("sha256:").unwrap_or(id).to_owned();
    if hex(reference) == hex(&image.id) {
        return true;
    }
    let names = || image.tags.iter().chain(&image.digests);
    if names().any(|name| name == reference) {
        return true;
    }
    let Some(full) = full_name(reference) else { return false };
    let short = full.strip_prefix("docker.io/").filter(|_| !reference.starts_with("docker.io/"));
    let short = short.map(|path| path.strip_prefix("library/").unwrap_or(path));
    names().any(|name| *name == full || short.is_some_and(|s| name.strip_suffix(s).is_some_and(|p| p.ends_with('/'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> ListedImage {
        ListedImage {
            id: "sha256:0a".into(),
            tags: vec!["docker.io/library/web:1".into(), "quay.io/team/app:2".into()],
            digests: vec!["docker.io/library/web@sha256:1b".into()],
            size: 1,
            pinned: false,
        }
    }

    #[test]
    fn i1_a_name_in_any_form_means_the_image() {
        let digest = format!("sha256:{}", "1b".repeat(32));
        let digested = ListedImage { digests: vec![format!("docker.io/library/web@{digest}")], ..image() };
        for name in ["web:1", "docker.io/library/web:1", "docker.io/web:1", "sha256:0a", "0a", "app:2", "team/app:2"] {
            assert!(refers(name, &image()), "{name}");
        }
        assert!(refers(&format!("web:3@{digest}"), &digested));
        for name in ["", "web", "web:2", "eb:1", "p:2", "sha256:0b", "quay.io/web:1", "UPPER:1"] {
            assert!(!refers(name, &image()), "{name}");
        }
    }

    #[test]
    fn i1_the_image_of_the_sandboxes_and_a_pinned_one_stay() {
        let mut list = ImageList { sandbox_image: Some("web:1".into()), ..ImageList::default() };
        assert_eq!(keep(&image(), &list, &[]), Some(Keep::Sandboxes));
        assert_eq!(keep(&ListedImage { pinned: true, ..image() }, &list, &[]), Some(Keep::Pinned));
        list.sandbox_image = None;
        assert_eq!(keep(&image(), &list, &[]), None);
    }
}
