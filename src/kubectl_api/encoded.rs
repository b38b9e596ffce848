//! A cache of the last changes that were written, so that a change that many watches report is read and encoded only
//! once.
//!
//! The watches get a change one after another, in several turns. A version of an object never changes, so an entry
//! stays valid. Rows of tables contain ages, so they are encoded again every second.

use crate::api::kube::accept::Format;
use crate::api::kube::table::Include;
use crate::api::kube::versions::Key;
use serde_json::Value;
use std::collections::VecDeque;
use std::rc::Rc;

/// Maximum number of cached changes. A watch that is further behind reads and encodes them itself.
const MOST: usize = 8;

#[derive(Debug, Default)]
pub(super) struct EncodedChanges(VecDeque<Entry>);

#[derive(Debug)]
struct Entry {
    key: Key,
    version: u64,
    object: Rc<Value>,
    lines: Vec<(Form, Rc<[u8]>)>,
}

/// How a line of a watch is encoded. This is the key of a cached line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// The type of the line: `ADDED` or `MODIFIED`.
    pub kind: &'static str,
    pub format: Format,
    pub include: Include,
    /// For a table, the time to which the ages refer, in seconds.
    pub second: i64,
}

impl EncodedChanges {
    /// Returns the object at this version. `read` is called if the object is not cached.
    pub fn object(&mut self, key: &Key, version: u64, read: impl FnOnce() -> Option<Value>) -> Option<Rc<Value>> {
        if let Some(entry) = self.entry(key, version) {
            return Some(entry.object.clone());
        }
        let object = Rc::new(read()?);
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(Entry { key: key.clone(), version, object: object.clone(), lines: Vec::new() });
        Some(object)
    }

    /// Returns the line in this form. `encode` is called if the line is not cached.
    pub fn line(&mut self, key: &Key, version: u64, form: Form, encode: impl FnOnce() -> Vec<u8>) -> Rc<[u8]> {
        let Some(entry) = self.entry(key, version) else { return encode().into() };
        if let Some((_, line)) = entry.lines.iter().find(|(of, _)| *of == form) {
            return line.clone();
        }
        let line: Rc<[u8]> = encode().into();
        entry.lines.retain(|(of, _)| of.second == form.second);
        entry.lines.push((form, line.clone()));
        line
    }

    /// Releases the memory.
    pub fn clear(&mut self) {
        self.0 = VecDeque::new();
    }

    fn entry(&mut self, key: &Key, version: u64) -> Option<&mut Entry> {
        self.0.iter_mut().rev().find(|entry| entry.version == version && entry.key == *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kube::resources::Kind;
    use serde_json::json;

    fn key(name: &str) -> Key {
        Key { kind: Kind::Pod, namespace: "default".into(), name: name.into() }
    }

    fn form(second: i64) -> Form {
        Form { kind: "ADDED", format: Format::Table, include: Include::None, second }
    }

    #[test]
    fn a_version_is_read_and_encoded_once() {
        let mut encoded = EncodedChanges::default();
        assert_eq!(encoded.object(&key("a"), 1, || Some(json!(1))).as_deref(), Some(&json!(1)));
        assert_eq!(encoded.object(&key("a"), 1, || panic!()).as_deref(), Some(&json!(1)));
        assert_eq!(encoded.object(&key("a"), 2, || Some(json!(2))).as_deref(), Some(&json!(2)));
        assert_eq!(encoded.object(&key("b"), 3, || None), None);
        assert_eq!(&*encoded.line(&key("a"), 2, form(7), || b"line".to_vec()), b"line");
        assert_eq!(&*encoded.line(&key("a"), 2, form(7), || panic!()), b"line");
        assert_eq!(&*encoded.line(&key("a"), 2, Form { kind: "MODIFIED", ..form(7) }, || b"other".to_vec()), b"other");
        assert_eq!(&*encoded.line(&key("a"), 2, form(8), || b"later".to_vec()), b"later");
        assert_eq!(encoded.0[1].lines.len(), 1, "lines of an earlier second are dropped");
        assert_eq!(&*encoded.line(&key("b"), 9, form(8), || b"unknown".to_vec()), b"unknown");
    }

    #[test]
    fn only_the_last_changes_are_kept() {
        let mut encoded = EncodedChanges::default();
        for version in 0..1000 {
            encoded.object(&key("a"), version, || Some(json!(version)));
        }
        assert_eq!(encoded.0.len(), MOST);
        assert_eq!(encoded.object(&key("a"), 999, || panic!()).as_deref(), Some(&json!(999)));
        encoded.clear();
        assert_eq!(encoded.object(&key("a"), 999, || None), None);
    }
}
