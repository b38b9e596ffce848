//! Watches, written piece by piece.

use super::encoded::Form;
use super::form::BodyProgress;
use super::form::{PIECE, single, write};
use super::snapshot::Snapshot;
use super::state::KubectlApi;
use crate::api::kube::accept::Format;
use crate::api::kube::bookmarks::Bookmarks;
use crate::api::kube::resources::Kind;
use crate::api::kube::selection::Selection;
use crate::api::kube::status::Failure;
use crate::api::kube::table::Include;
use crate::api::kube::versions::{Key, Outdated, Position, WatchChange};
use crate::api::ordered::CollectOrdered;
use crate::api::time::Boot;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A watch in progress.
#[derive(Debug)]
pub struct Watch {
    pub selection: Selection,
    pub format: Format,
    pub include: Include,
    pub position: Position,
    /// Whether the column definitions have been sent.
    pub columns: bool,
    /// Whether a bookmark must still mark the end of the initial state.
    pub initial: bool,
    /// None if the client does not want bookmarks.
    pub bookmarks: Option<Bookmarks>,
    /// The objects that the client may have. Set only if objects can stop matching the selection.
    pub selected: Option<BTreeSet<Key>>,
    /// The watch ends at this time.
    pub until: Option<Boot>,
}

impl Watch {
    pub(super) fn new(selection: Selection, format: Format, include: Include, position: Position) -> Watch {
        let (columns, initial, bookmarks, selected, until) = (false, false, None, None, None);
        Watch { selection, format, include, position, columns, initial, bookmarks, selected, until }
    }

    /// Returns the kind of objects whose changes continue the watch.
    pub fn kind(&self) -> Kind {
        self.selection.resource.kind
    }

    /// Returns when the watch continues even without a change.
    pub fn next_deadline(&self) -> Option<Boot> {
        self.until.into_iter().chain(self.bookmarks.map(Bookmarks::next)).min()
    }
}

impl KubectlApi {
    /// Appends the next changes.
    pub fn part_of_watch(&mut self, snapshot: &Snapshot<'_>, watch: &mut Watch, out: &mut Vec<u8>) -> BodyProgress {
        let enough = out.len() + PIECE;
        let kind = watch.selection.resource.kind;
        while out.len() < enough {
            let selection = &watch.selection;
            let wanted = |key: &Key| selection.may_contain(&key.namespace, &key.name);
            match watch.position.next(&self.objects.versions, kind, wanted) {
                Ok(Some(change)) => self.write_change(snapshot, watch, change, out),
                Ok(None) if watch.initial => {
                    watch.initial = false;
                    let annotations = json!({ "k8s.io/initial-events-end": "true" });
                    write_bookmark(watch, annotations, out);
                }
                Ok(None) if watch.until.is_some_and(|at| at <= snapshot.now.boot) => {
                    if watch.bookmarks.is_some() {
                        write_bookmark(watch, Value::Null, out);
                    }
                    return BodyProgress::Whole;
                }
                Ok(None) => {
                    if watch.bookmarks.as_mut().is_some_and(|bookmarks| bookmarks.take_due(snapshot.now.boot)) {
                        write_bookmark(watch, Value::Null, out);
                    }
                    return BodyProgress::Everything;
                }
                Err(outdated) => {
                    let version = watch.position.version();
                    let failure = self.outdated(outdated, version);
                    write_event("ERROR", failure.to_value(), out);
                    return BodyProgress::Whole;
                }
            }
        }
        BodyProgress::Piece
    }

    pub(super) fn outdated(&self, outdated: Outdated, version: u64) -> Failure {
        match outdated {
            Outdated::Expired => Failure::expired(version),
            Outdated::Future => Failure::version_too_large(version, self.objects.versions.current()),
        }
    }

    fn write_change(&mut self, snapshot: &Snapshot<'_>, watch: &mut Watch, change: WatchChange, out: &mut Vec<u8>) {
        let (is_new, key) = match change {
            WatchChange::Added(key) => (true, key),
            WatchChange::Modified(key) => (false, key),
            WatchChange::Deleted(key, object) => {
                let was_selected = match &mut watch.selected {
                    None => watch.selection.contains(&object),
                    Some(selected) => selected.remove(&key),
                };
                if was_selected {
                    write_object("DELETED", watch, (*object).clone(), snapshot.timestamp(), out);
                }
                return;
            }
        };
        let mut encoded = std::mem::take(&mut self.encoded);
        let version = self.objects.versions.of(&key);
        if let Some(object) = encoded.object(&key, version, || self.object(snapshot, &key))
            && let Some(kind) = event_kind(watch, &key, &object, is_new)
        {
            if watch.format == Format::Table && !watch.columns {
                write_object(kind, watch, (*object).clone(), snapshot.timestamp(), out);
            } else {
                let second = if watch.format == Format::Table { snapshot.timestamp().as_second() } else { 0 };
                let form = Form { kind, format: watch.format, include: watch.include, second };
                let line = encoded.line(&key, version, form, || {
                    let mut line = Vec::new();
                    write_object(kind, watch, (*object).clone(), snapshot.timestamp(), &mut line);
                    line
                });
                out.extend_from_slice(&line);
            }
        }
        self.encoded = encoded;
    }

    /// Returns the objects of a selection that the client of a new watch may already have.
    pub(super) fn may_be_selected(&self, snapshot: &Snapshot<'_>, watch: &Watch) -> BTreeSet<Key> {
        let version = watch.position.version();
        let all = self.objects.versions.keys(watch.selection.resource.kind);
        let known = all.filter(|key| watch.selection.may_contain(&key.namespace, &key.name));
        let selected = known.filter(|key| {
            // An object that has changed since then may have been selected before.
            self.objects.versions.of(key) > version
                || self.object(snapshot, key).is_some_and(|object| watch.selection.contains(&object))
        });
        selected.cloned().collect_set()
    }
}

/// Returns the type of the event with which a watch reports a change to an object, or None if it does not report the
/// change.
fn event_kind(watch: &mut Watch, key: &Key, object: &Value, is_new: bool) -> Option<&'static str> {
    let contains = watch.selection.contains(object);
    let Some(selected) = &mut watch.selected else {
        return contains.then_some(if is_new { "ADDED" } else { "MODIFIED" });
    };
    match (contains, selected.contains(key)) {
        (false, false) => None,
        (false, true) => {
            selected.remove(key);
            Some("DELETED")
        }
        (true, true) => Some("MODIFIED"),
        (true, false) => {
            selected.insert(key.clone());
            Some("ADDED")
        }
    }
}

fn write_object(kind: &str, watch: &mut Watch, object: Value, now: Timestamp, out: &mut Vec<u8>) {
    let mut object = single(object, watch.selection.resource, watch.format, watch.include, now);
    if watch.format == Format::Table && std::mem::replace(&mut watch.columns, true) {
        // Clients keep the column definitions of the first table.
        object["columnDefinitions"] = Value::Null;
    }
    write_event(kind, object, out);
}

fn write_bookmark(watch: &Watch, annotations: Value, out: &mut Vec<u8>) {
    let resource = watch.selection.resource;
    let mut metadata = json!({ "resourceVersion": watch.position.version().to_string() });
    if !annotations.is_null() {
        metadata["annotations"] = annotations;
    }
    let object = match watch.format {
        Format::Object => {
            json!({ "kind": resource.kind_name, "apiVersion": resource.api_version(), "metadata": metadata })
        }
        Format::Metadata => {
            json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
        }
        Format::Table => json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": null,
            "rows": [],
        }),
    };
    write_event("BOOKMARK", object, out);
}

fn write_event(kind: &str, object: Value, out: &mut Vec<u8>) {
    write(&json!({ "type": kind, "object": object }), out);
    out.push(b'\n');
}
