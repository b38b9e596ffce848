//! When each image was first seen and last used in this run of Wherry (I3). All times are on the boot clock.

use crate::api::facts::ImageList;
use crate::api::time::Boot;
use crate::engine::images::users::refers;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The maximum number of uses that are noted between two lists.
const MAX_USES: usize = 256;

#[derive(Debug, Default, Serialize)]
pub struct Seen {
    /// When Wherry could first see images.
    start: Boot,
    listed: bool,
    images: BTreeMap<String, Image>,
    /// Uses since the last list, by name or id.
    uses: BTreeMap<String, Boot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Image {
    detected: Boot,
    last_used: Option<Boot>,
}

impl Seen {
    pub fn began(&mut self, now: Boot) {
        if !self.listed && self.start == Boot::default() {
            self.start = now;
        }
    }

    pub fn was_listed(&self) -> bool {
        self.listed
    }

    /// Containers use these images.
    pub fn used(&mut self, references: impl Iterator<Item = String>, now: Boot) {
        for reference in references {
            if self.uses.len() < MAX_USES || self.uses.contains_key(&reference) {
                self.uses.insert(reference, now);
            }
        }
    }

    /// A list has arrived. The images of the first one may be as old as this run; others were pulled since the last list.
    pub fn listed(&mut self, list: &ImageList, now: Boot) {
        let first = if self.listed { now } else { self.start };
        let old = std::mem::take(&mut self.images);
        let uses = std::mem::take(&mut self.uses);
        for image in &list.images {
            let mut seen = old.get(&image.id).copied().unwrap_or(Image { detected: first, last_used: None });
            let noted = uses.iter().filter(|(reference, _)| refers(reference, image)).map(|(_, at)| *at).max();
            let in_use = list.users.iter().any(|user| refers(&user.image, image) || refers(&user.image_ref, image));
            seen.last_used = if in_use { Some(now) } else { seen.last_used.max(noted) };
            self.images.insert(image.id.clone(), seen);
        }
        self.listed = true;
    }

    pub fn removed(&mut self, id: &str) {
        self.images.remove(id);
    }

    /// The time since the image was detected; zero for an unknown one.
    pub fn age(&self, id: &str, now: Boot) -> Duration {
        self.images.get(id).map(|image| now.since(image.detected)).unwrap_or_default()
    }

    /// The time since the last use, or since the detection if there was none.
    pub fn unused_for(&self, id: &str, now: Boot) -> Duration {
        let since = |image: &Image| now.since(image.last_used.unwrap_or(image.detected));
        self.images.get(id).map(since).unwrap_or_default()
    }

    /// None: no use is known.
    pub fn since_last_use(&self, id: &str, now: Boot) -> Option<Duration> {
        self.images.get(id).and_then(|image| image.last_used).map(|at| now.since(at))
    }

    /// The order of removal: images without a known use first, then the least recently used.
    pub fn order(&self, id: &str) -> (Option<Boot>, Boot) {
        self.images.get(id).map(|image| (image.last_used, image.detected)).unwrap_or_default()
    }
}
