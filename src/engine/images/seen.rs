//! When each image was first seen and last used (I3). Times are on the boot clock. A record stores how long each
//! image has been unused. The time while Wherry does not run is not included, so that the record does not depend on a
//! clock that can be set.

use crate::api::facts::ImageList;
use crate::api::ordered::CollectOrdered;
use crate::api::time::Boot;
use crate::engine::images::users::refers;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// The key of the record.
pub const KEY: &str = "images/unused";
pub const KIND: &str = "images";
const VERSION: u64 = 1;

/// The record's content.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    version: u64,
    /// The times without a use, by the id of the image.
    unused_seconds: Unused,
}

/// For how many seconds each image has been unused, by id.
pub type Unused = BTreeMap<String, u64>;

pub fn write(unused: &Unused) -> String {
    serde_json::to_string(&Record { version: VERSION, unused_seconds: unused.clone() }).unwrap_or_default()
}

/// # Errors
/// The record is damaged or has an unknown version.
pub fn read(text: &str) -> Result<Unused, String> {
    match serde_json::from_str(text) {
        Ok(Record { version: VERSION, unused_seconds }) => Ok(unused_seconds),
        Ok(Record { version, .. }) => Err(format!("version {version} is unknown")),
        Err(e) => Err(e.to_string()),
    }
}

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
    /// The content of the previous process's record, until the first list.
    before: Unused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Image {
    detected: Boot,
    last_used: Option<Boot>,
    /// The time without a use under previous processes.
    unused_before: Duration,
}

impl Image {
    fn unused_for(&self, now: Boot) -> Duration {
        now.since(self.last_used.unwrap_or(self.detected)).saturating_add(self.unused_before)
    }
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

    pub fn found(&mut self, before: Unused) {
        self.before = before;
    }

    /// Notes that containers use these images.
    pub fn used(&mut self, references: impl Iterator<Item = String>, now: Boot) {
        for reference in references {
            if self.uses.len() < MAX_USES || self.uses.contains_key(&reference) {
                self.uses.insert(reference, now);
            }
        }
    }

    /// Takes a list. The images in the first list may be as old as this process; new images in later lists were
    /// pulled since the last list.
    pub fn listed(&mut self, list: &ImageList, now: Boot) {
        let first = if self.listed { now } else { self.start };
        let old = std::mem::take(&mut self.images);
        let uses = std::mem::take(&mut self.uses);
        let before = std::mem::take(&mut self.before);
        for image in &list.images {
            let unused_before = Duration::from_secs(before.get(&image.id).copied().unwrap_or_default());
            let new = Image { detected: first, last_used: None, unused_before };
            let mut seen = old.get(&image.id).copied().unwrap_or(new);
            let noted = uses.iter().filter(|(reference, _)| refers(reference, image)).map(|(_, at)| *at).max();
            let in_use = list.users.iter().any(|user| refers(&user.image, image) || refers(&user.image_ref, image));
            seen.last_used = if in_use { Some(now) } else { seen.last_used.max(noted) };
            if seen.last_used.is_some() {
                seen.unused_before = Duration::ZERO;
            }
            self.images.insert(image.id.clone(), seen);
        }
        self.listed = true;
    }

    pub fn removed(&mut self, id: &str) {
        self.images.remove(id);
    }

    /// Returns the time since the image was detected; zero for an unknown image.
    pub fn age(&self, id: &str, now: Boot) -> Duration {
        self.images
            .get(id)
            .map(|image| now.since(image.detected).saturating_add(image.unused_before))
            .unwrap_or_default()
    }

    /// Returns the time since the last use, or since the detection if there was no use.
    pub fn unused_for(&self, id: &str, now: Boot) -> Duration {
        self.images.get(id).map(|image| image.unused_for(now)).unwrap_or_default()
    }

    /// Returns the content of the record.
    pub fn unused(&self, now: Boot) -> Unused {
        self.images.iter().map(|(id, image)| (id.clone(), image.unused_for(now).as_secs())).collect_map()
    }

    /// Returns the time since the last use. None if no use is known.
    pub fn since_last_use(&self, id: &str, now: Boot) -> Option<Duration> {
        self.images.get(id).and_then(|image| image.last_used).map(|at| now.since(at))
    }

    /// Returns the sort key for the removal: images without a known use first, then the least recently used.
    pub fn order(&self, id: &str) -> Option<(Option<Boot>, Reverse<Duration>, Boot)> {
        self.images.get(id).map(|image| (image.last_used, Reverse(image.unused_before), image.detected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i4_a_record_is_read_as_it_was_written_and_a_damaged_one_is_an_error() {
        let unused = Unused::from([("sha256:1".to_owned(), 7)]);
        assert_eq!(read(&write(&unused)), Ok(unused.clone()));
        assert_eq!(read(&write(&unused).replace("1,", "2,")), Err("version 2 is unknown".to_owned()));
        assert!(read("{").is_err());
    }

    #[test]
    fn i4_a_use_ends_the_time_before_a_restart() {
        use crate::api::facts::{ImageUser, ListedImage};
        let image = ListedImage { id: "sha256:1".into(), tags: vec![], digests: vec![], size: 1, pinned: false };
        let mut list = ImageList { images: vec![image], ..ImageList::default() };
        let mut seen = Seen::default();
        seen.found(Unused::from([("sha256:1".to_owned(), 100)]));
        let at = |seconds: u64| Boot(0) + Duration::from_secs(seconds);
        seen.listed(&list, at(10));
        assert_eq!(seen.unused_for("sha256:1", at(10)), Duration::from_secs(110));
        list.users.push(ImageUser { image: "sha256:1".into(), image_ref: String::new(), pod: None });
        seen.listed(&list, at(20));
        assert_eq!(seen.unused_for("sha256:1", at(25)), Duration::from_secs(5));
    }
}
