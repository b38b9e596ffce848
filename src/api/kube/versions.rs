//! Resource versions: which version each object has, and which objects have changed since a version.
//!
//! One counter numbers the changes of all objects. Only the last change of each object and the most recently removed
//! objects are kept. A watch is therefore not a queue: it asks for the changes after the last version that it has
//! sent, and a slow client gets fewer but newer states. Each run of the agent begins with a higher number than all
//! numbers of earlier runs.

use super::resources::Kind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// The maximum number of removed objects that are kept. A watch that is further behind has to list again.
const REMOVED: usize = 256;
/// The maximum number of resource versions that one run can assign.
const OF_A_RUN: u64 = 1_000_000_000;

/// The name of an object. The namespace is empty for a resource without namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub kind: Kind,
    pub namespace: Rc<str>,
    pub name: Rc<str>,
}

#[derive(Clone, Debug)]
struct ObjectVersion {
    uid: Rc<str>,
    created: u64,
    version: u64,
}

#[derive(Debug)]
struct Removed {
    key: Key,
    created: u64,
    version: u64,
    /// The last known state.
    object: Rc<Value>,
}

/// A change, as a watch reports it.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchChange {
    Added(Key),
    Modified(Key),
    Deleted(Key, Rc<Value>),
}

#[derive(Debug)]
pub struct Versions {
    first: u64,
    last: u64,
    objects: BTreeMap<Key, ObjectVersion>,
    /// The removed objects, in the order of their removal.
    removed: VecDeque<Removed>,
    kinds: BTreeMap<Kind, OfKind>,
}

/// The changes of the objects of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct OfKind {
    /// The version of the last change.
    last: u64,
    /// Removals up to this version are no longer known.
    forgotten: u64,
}

impl Versions {
    /// Starts without objects. `run`: the number of this run, which is higher than that of every earlier run.
    pub fn new(run: u64) -> Versions {
        let first = run.saturating_mul(OF_A_RUN).max(1);
        Versions { first, last: first, objects: BTreeMap::new(), removed: VecDeque::new(), kinds: BTreeMap::new() }
    }

    /// Returns the version of the last change.
    pub fn current(&self) -> u64 {
        self.last
    }

    /// Returns the version of an object; if it is unknown, the version of the list.
    pub fn of(&self, key: &Key) -> u64 {
        self.objects.get(key).map_or(self.last, |entry| entry.version)
    }

    pub fn uid(&self, key: &Key) -> Option<Rc<str>> {
        self.objects.get(key).map(|entry| entry.uid.clone())
    }

    /// Records that the object was added or changed. `last` returns the last state of another object with the same
    /// name that it replaces.
    pub fn changed(&mut self, key: &Key, uid: &str, last: impl FnOnce() -> Value) {
        if self.objects.get(key).is_some_and(|entry| *entry.uid != *uid) {
            self.removed(key, last);
        }
        let version = self.next(key.kind);
        let entry = self.objects.entry(key.clone()).or_insert_with(|| ObjectVersion {
            uid: uid.into(),
            created: version,
            version,
        });
        entry.version = version;
    }

    /// Records that the object no longer exists. `last` returns its last known state.
    pub fn removed(&mut self, key: &Key, last: impl FnOnce() -> Value) {
        let Some(entry) = self.objects.remove(key) else { return };
        let version = self.next(key.kind);
        let mut object = last();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let removed = Removed { key: key.clone(), created: entry.created, version, object: Rc::new(object) };
        self.removed.push_back(removed);
        if self.removed.len() > REMOVED
            && let Some(oldest) = self.removed.pop_front()
        {
            self.kinds.entry(oldest.key.kind).or_default().forgotten = oldest.version;
        }
    }

    /// Assigns and returns the version of the next change.
    fn next(&mut self, kind: Kind) -> u64 {
        self.last += 1;
        self.kinds.entry(kind).or_default().last = self.last;
        self.last
    }

    /// Reports whether an object of this kind has changed after this version.
    pub fn has_changed(&self, kind: Kind, version: u64) -> bool {
        self.of_kind(kind).last > version
    }

    fn of_kind(&self, kind: Kind) -> OfKind {
        self.kinds.get(&kind).copied().unwrap_or_default()
    }

    /// Returns the known objects of a kind.
    pub fn keys(&self, kind: Kind) -> impl Iterator<Item = &Key> {
        let from = Key { kind, namespace: "".into(), name: "".into() };
        self.objects.range(from..).map(|(key, _)| key).take_while(move |key| key.kind == kind)
    }

    /// Checks whether a watch of this kind can begin after this version.
    ///
    /// # Errors
    /// The version has expired, or does not exist yet.
    pub fn check(&self, kind: Kind, version: u64) -> Result<(), Outdated> {
        if version > self.last {
            return Err(Outdated::Future);
        }
        if version < self.first || version < self.of_kind(kind).forgotten { Err(Outdated::Expired) } else { Ok(()) }
    }
}

/// The position of a watch.
#[derive(Clone, Debug)]
pub struct Position {
    began: u64,
    version: u64,
    /// The objects that appeared after the watch began, and that it has reported.
    added: BTreeSet<Key>,
}

impl Position {
    /// Returns the position after `version`. After 0, the watch reports every object as added.
    pub fn after(version: u64) -> Position {
        Position { began: version, version, added: BTreeSet::new() }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the next change of an object of this kind that `wanted` accepts. None if there is no further change.
    ///
    /// # Errors
    /// The changes since the position are no longer known.
    pub fn next(
        &mut self,
        versions: &Versions,
        kind: Kind,
        wanted: impl Fn(&Key) -> bool,
    ) -> Result<Option<WatchChange>, Outdated> {
        let version = self.version;
        if version == versions.last {
            return Ok(None);
        }
        if version > 0 {
            versions.check(kind, version)?;
        }
        if !versions.has_changed(kind, version) {
            self.version = versions.last;
            return Ok(None);
        }
        let present =
            versions.keys(kind).filter(|key| wanted(key)).filter_map(|key| Some((key, versions.objects.get(key)?)));
        let present = present.filter(|(_, entry)| entry.version > version).min_by_key(|(_, entry)| entry.version);
        // A watch has not seen an object that appeared and disappeared since its last report.
        let is_known = |r: &&Removed| r.created <= self.began || self.added.contains(&r.key);
        let mut removed =
            versions.removed.iter().filter(|r| r.version > version && r.key.kind == kind && wanted(&r.key));
        let removed = removed.find(is_known);
        let (at, change) = match (present, removed) {
            (present, Some(r)) if present.is_none_or(|(_, entry)| r.version < entry.version) => {
                (r.version, WatchChange::Deleted(r.key.clone(), r.object.clone()))
            }
            (Some((key, entry)), _) if entry.created > self.began && !self.added.contains(key) => {
                (entry.version, WatchChange::Added(key.clone()))
            }
            (Some((key, entry)), _) => (entry.version, WatchChange::Modified(key.clone())),
            (None, _) => {
                self.version = versions.last;
                return Ok(None);
            }
        };
        match &change {
            WatchChange::Added(key) => drop(self.added.insert(key.clone())),
            WatchChange::Deleted(key, _) => drop(self.added.remove(key)),
            WatchChange::Modified(_) => {}
        }
        self.version = at;
        Ok(Some(change))
    }
}

/// A watch cannot begin or continue at its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outdated {
    /// The client has to list again.
    Expired,
    /// The version is higher than the current one, so it comes from another node.
    Future,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(name: &str) -> Key {
        Key { kind: Kind::Pod, namespace: "default".into(), name: name.into() }
    }

    fn object(name: &str) -> Value {
        json!({ "metadata": { "name": name } })
    }

    /// Returns the further changes, as a watch sends them.
    fn read(position: &mut Position, versions: &Versions) -> Vec<String> {
        let mut all = Vec::new();
        let mut before = position.version();
        while let Some(change) = position.next(versions, Kind::Pod, |_| true).unwrap() {
            assert!(position.version() > before);
            before = position.version();
            all.push(match change {
                WatchChange::Added(key) => format!("+{}", key.name),
                WatchChange::Modified(key) => format!("~{}", key.name),
                WatchChange::Deleted(key, _) => format!("-{}", key.name),
            });
        }
        assert_eq!(position.version(), versions.current());
        all
    }

    fn since(versions: &Versions, version: u64) -> Vec<String> {
        read(&mut Position::after(version), versions)
    }

    #[test]
    fn a_watch_gets_the_last_state_of_each_object_in_the_order_of_the_changes() {
        let mut v = Versions::new(3);
        let start = v.current();
        assert_eq!(start, 3_000_000_000);
        for name in ["a", "b", "a"] {
            v.changed(&key(name), name, || panic!());
        }
        assert_eq!(since(&v, start), ["+b", "+a"]);
        let listed = v.current();
        v.changed(&key("b"), "b", || panic!());
        v.changed(&key("c"), "c", || panic!());
        v.removed(&key("a"), || object("a"));
        v.removed(&key("c"), || object("c"));
        v.removed(&key("unknown"), || panic!());
        assert_eq!(since(&v, listed), ["~b", "-a"], "c was never seen");
        assert_eq!(since(&v, v.current()), [""; 0]);
        assert_eq!(since(&v, 0), ["+b"], "from the beginning");
        let mut watch = Position::after(start);
        assert_eq!(read(&mut watch, &v), ["+b"]);
        v.removed(&key("b"), || object("b"));
        v.changed(&key("d"), "d", || panic!());
        assert_eq!(read(&mut watch, &v), ["-b", "+d"]);
        v.changed(&key("d"), "d", || panic!());
        assert_eq!(read(&mut watch, &v), ["~d"]);
    }

    #[test]
    fn a_successor_of_the_same_name_is_another_object() {
        let mut v = Versions::new(1);
        v.changed(&key("a"), "1", || panic!());
        let listed = v.current();
        v.changed(&key("a"), "2", || object("a"));
        assert_eq!(since(&v, listed), ["-a", "+a"]);
        assert_eq!(v.uid(&key("a")).as_deref(), Some("2"));
    }

    #[test]
    fn versions_of_another_run_or_too_far_behind_are_refused() {
        let mut v = Versions::new(2);
        v.changed(&key("a"), "a", || panic!());
        assert_eq!(v.check(Kind::Pod, v.current()), Ok(()));
        assert_eq!(v.check(Kind::Pod, v.current() + 1), Err(Outdated::Future));
        assert_eq!(v.check(Kind::Pod, 1_000_000_007), Err(Outdated::Expired), "an earlier run");
        let listed = v.current();
        for n in 0..=REMOVED {
            let key = key(&n.to_string());
            v.changed(&key, "u", || panic!());
            v.removed(&key, || object("x"));
        }
        assert_eq!(Position::after(listed).next(&v, Kind::Pod, |_| true), Err(Outdated::Expired));
        assert_eq!(v.check(Kind::Pod, listed), Err(Outdated::Expired));
        assert_eq!(Position::after(1_000_000_007).next(&v, Kind::Node, |_| true), Err(Outdated::Expired));
        // A watch of another kind has missed nothing.
        assert!(v.has_changed(Kind::Pod, listed) && !v.has_changed(Kind::Node, listed));
        let mut node = Position::after(listed);
        assert_eq!((node.next(&v, Kind::Node, |_| true), node.version()), (Ok(None), v.current()));
    }
}
