//! An event that waits for the API server, and its copy on the disk.

use super::event::{Event, Involved};
use crate::api::names::{FullName, Uid};
use crate::api::printable::cut;
use crate::api::time::Wall;
use serde::{Deserialize, Serialize};

/// The kind of the records. A key is `diary/NUMBER`, with the number of a part.
pub const KIND: &str = "diary";
const VERSION: u64 = 1;
/// The API's limit for a message, in bytes. Longer messages are cut.
const MAX_MESSAGE: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The pod that the event is about; None: the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Subject>,
    pub warning: bool,
    pub reason: String,
    pub message: String,
    /// Nanoseconds since the Unix epoch.
    pub first: i64,
    pub last: i64,
    pub count: u32,
    /// The event stands for similar ones, and has the message of the last one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub combined: bool,
}

/// The pod that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// `spec.containers{main}`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl Entry {
    pub fn new(pod: Option<Subject>, warning: bool, reason: &str, message: &str, now: Wall) -> Entry {
        let (reason, message) = (reason.to_owned(), cut(message, MAX_MESSAGE).to_owned());
        Entry { pod, warning, reason, message, first: now.0, last: now.0, count: 1, combined: false }
    }

    /// Returns true if `other` is another occurrence of this event.
    pub fn is_same(&self, other: &Entry) -> bool {
        let has_message = self.combined && self.warning == other.warning || self.message == other.message;
        self.pod == other.pod && self.reason == other.reason && self.combined == other.combined && has_message
    }

    /// Calls `f` with the event in the form of the API, and returns the result.
    pub fn with<T>(&self, node: &str, f: impl FnOnce(&Event<'_>) -> T) -> T {
        let pod =
            self.pod.as_ref().map(|pod| (FullName::new(&pod.namespace, &pod.name), Uid::from(pod.uid.clone()), pod));
        let involved = match &pod {
            Some((name, uid, pod)) => Involved::Pod { name, uid, field_path: pod.field.as_deref() },
            None => Involved::Node,
        };
        f(&Event {
            involved,
            node,
            is_warning: self.warning,
            reason: &self.reason,
            message: &self.message,
            first: Wall(self.first),
            last: Wall(self.last),
            count: self.count,
            combined: self.combined,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct EventsRecord<T> {
    version: u64,
    entries: T,
}

pub fn key(part: u64) -> String {
    format!("{KIND}/{part:010}")
}

/// Returns the number of the part in the key of a record.
pub fn part_of(key: &str) -> Option<u64> {
    key.strip_prefix(KIND)?.strip_prefix('/')?.parse().ok()
}

pub fn write(entries: &[&Entry]) -> String {
    serde_json::to_string(&EventsRecord { version: VERSION, entries }).unwrap_or_default()
}

/// # Errors
/// The text is not a record of this version.
pub fn read(text: &str) -> Result<Vec<Entry>, String> {
    let record: EventsRecord<Vec<Entry>> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    if record.version == VERSION { Ok(record.entries) } else { Err(format!("it is not of version {VERSION}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_on_the_disk_with_its_times() {
        let pod = Subject { namespace: "shop".into(), name: "web".into(), uid: "u".into(), field: None };
        let entry = Entry { count: 3, last: 9_000_000_000, ..Entry::new(Some(pod), true, "BackOff", "again", Wall(7)) };
        assert_eq!(read(&write(&[&entry])), Ok(vec![entry.clone()]));
        assert_eq!(part_of(&key(12)), Some(12));
        assert!(read("{\"version\":2,\"entries\":[]}").is_err() && part_of("diary/x").is_none());
        let again = Entry::new(entry.pod.clone(), true, "BackOff", "again", Wall(8));
        assert!(entry.is_same(&again) && !entry.is_same(&Entry { pod: None, ..again }));
        let name = entry.with("lab", |event| (event.namespace().to_owned(), event.name()));
        assert_eq!(name, ("shop".to_owned(), "web.0000000000000007".to_owned()));
    }
}
