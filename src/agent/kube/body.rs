//! Writes lists and watches piece by piece, in the requested format.

use super::Kube;
use super::encoded::Form;
use super::versions::key;
use crate::agent::bodies::PieceWriter;
use crate::agent::content::{Drive, View};
use crate::api::kube::accept::Format;
use crate::api::kube::bookmarks::Bookmarks;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::selection::Selection;
use crate::api::kube::status::Failure;
use crate::api::kube::table::{self, Include};
use crate::api::kube::versions::{Key, Outdated, Position, WatchChange};
use crate::api::ordered::CollectOrdered;
use crate::api::time::Boot;
use crate::net::server::exchange::Part;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The approximate size of a piece, in bytes.
const PIECE: usize = 8 * 1024;

/// A list in progress.
pub(super) struct List {
    selection: Selection,
    format: Format,
    include: Include,
    /// The resource version of the list. 0: the objects have no versions.
    version: u64,
    progress: Progress,
}

enum Progress {
    New,
    /// The last key that was read, and whether an item was written.
    After(Key, bool),
}

impl List {
    pub(super) fn new(selection: Selection, format: Format, include: Include, version: u64) -> List {
        List { selection, format, include, version, progress: Progress::New }
    }
}

impl PieceWriter for List {
    fn next(&mut self, drive: &mut Drive<'_>, out: &mut Vec<u8>) -> Part {
        drive.served.kube.as_ref().map_or(Part::End, |kube| kube.part_of_list(&drive.view, self, out))
    }
}

/// A watch in progress.
pub(super) struct Watch {
    pub selection: Selection,
    pub format: Format,
    pub include: Include,
    pub position: Position,
    /// The column definitions were sent.
    pub columns: bool,
    /// The initial state is sent, and the client is to learn of its end.
    pub initial: bool,
    /// None: the client wants none.
    pub bookmarks: Option<Bookmarks>,
    /// The objects that the client has, for a selection that objects can leave.
    pub selected: Option<BTreeSet<Key>>,
    /// The watch ends at this time.
    pub until: Option<Boot>,
}

impl PieceWriter for Watch {
    fn next(&mut self, drive: &mut Drive<'_>, out: &mut Vec<u8>) -> Part {
        drive.served.kube.as_mut().map_or(Part::End, |kube| kube.part_of_watch(&drive.view, self, out))
    }

    fn waits_for(&self) -> Option<Kind> {
        Some(self.selection.resource.kind)
    }

    fn next_deadline(&self) -> Option<Boot> {
        self.until.into_iter().chain(self.bookmarks.map(Bookmarks::next)).min()
    }
}

impl Kube {
    /// Appends the next items of a list.
    fn part_of_list(&self, view: &View<'_>, list: &mut List, out: &mut Vec<u8>) -> Part {
        let enough = out.len() + PIECE;
        let kind = list.selection.resource.kind;
        let (after, mut any) = match &list.progress {
            Progress::New => {
                write_list_head(list, out);
                (None, false)
            }
            Progress::After(key, any) => (Some(key.clone()), *any),
        };
        let keys = self.objects.versions.keys(kind).skip_while(|key| after.as_ref().is_some_and(|after| *key <= after));
        for key in keys {
            if out.len() >= enough {
                return Part::More;
            }
            list.progress = Progress::After(key.clone(), any);
            if !list.selection.may_contain(&key.namespace, &key.name) {
                continue;
            }
            let Some(object) = self.object(view, key).filter(|object| list.selection.contains(object)) else {
                continue;
            };
            if std::mem::replace(&mut any, true) {
                out.push(b',');
            }
            list.progress = Progress::After(key.clone(), any);
            write(&item(object, list.selection.resource, list.format, list.include, now(view)), out);
        }
        out.extend_from_slice(b"]}\n");
        Part::End
    }

    /// Appends the next changes.
    fn part_of_watch(&mut self, view: &View<'_>, watch: &mut Watch, out: &mut Vec<u8>) -> Part {
        let enough = out.len() + PIECE;
        let kind = watch.selection.resource.kind;
        while out.len() < enough {
            let selection = &watch.selection;
            let wanted = |key: &Key| selection.may_contain(&key.namespace, &key.name);
            match watch.position.next(&self.objects.versions, kind, wanted) {
                Ok(Some(change)) => self.write_change(view, watch, change, out),
                Ok(None) if watch.initial => {
                    watch.initial = false;
                    let annotations = json!({ "k8s.io/initial-events-end": "true" });
                    write_bookmark(watch, annotations, out);
                }
                Ok(None) if watch.until.is_some_and(|at| at <= view.now.boot) => {
                    if watch.bookmarks.is_some() {
                        write_bookmark(watch, Value::Null, out);
                    }
                    return Part::End;
                }
                Ok(None) => {
                    if watch.bookmarks.as_mut().is_some_and(|bookmarks| bookmarks.take_due(view.now.boot)) {
                        write_bookmark(watch, Value::Null, out);
                    }
                    return Part::Wait;
                }
                Err(outdated) => {
                    let version = watch.position.version();
                    let failure = self.outdated(outdated, version);
                    write_event("ERROR", failure.to_value(), out);
                    return Part::End;
                }
            }
        }
        Part::More
    }

    pub(super) fn outdated(&self, outdated: Outdated, version: u64) -> Failure {
        match outdated {
            Outdated::Expired => Failure::expired(version),
            Outdated::Future => Failure::version_too_large(version, self.objects.versions.current()),
        }
    }

    fn write_change(&mut self, view: &View<'_>, watch: &mut Watch, change: WatchChange, out: &mut Vec<u8>) {
        let (is_new, key) = match change {
            WatchChange::Added(key) => (true, key),
            WatchChange::Modified(key) => (false, key),
            WatchChange::Deleted(key, object) => {
                let was_selected = match &mut watch.selected {
                    None => watch.selection.contains(&object),
                    Some(selected) => selected.remove(&key),
                };
                if was_selected {
                    write_object("DELETED", watch, (*object).clone(), now(view), out);
                }
                return;
            }
        };
        let mut encoded = std::mem::take(&mut self.encoded);
        let version = self.objects.versions.of(&key);
        if let Some(object) = encoded.object(&key, version, || self.object(view, &key))
            && let Some(kind) = event_kind(watch, &key, &object, is_new)
        {
            if watch.format == Format::Table && !watch.columns {
                write_object(kind, watch, (*object).clone(), now(view), out);
            } else {
                let second = if watch.format == Format::Table { now(view).as_second() } else { 0 };
                let form = Form { kind, format: watch.format, include: watch.include, second };
                let line = encoded.line(&key, version, form, || {
                    let mut line = Vec::new();
                    write_object(kind, watch, (*object).clone(), now(view), &mut line);
                    line
                });
                out.extend_from_slice(&line);
            }
        }
        self.encoded = encoded;
    }

    /// The objects of a selection that the client of a new watch may have.
    pub(super) fn may_be_selected(&self, view: &View<'_>, watch: &Watch) -> BTreeSet<Key> {
        let version = watch.position.version();
        let all = self.objects.versions.keys(watch.selection.resource.kind);
        let known = all.filter(|key| watch.selection.may_contain(&key.namespace, &key.name));
        let selected = known.filter(|key| {
            // An object that has changed since may have been selected.
            self.objects.versions.of(key) > version
                || self.object(view, key).is_some_and(|object| watch.selection.contains(&object))
        });
        selected.cloned().collect_set()
    }
}

/// One object in the requested format.
pub(super) fn single(object: Value, resource: &Resource, format: Format, include: Include, now: Timestamp) -> Value {
    match format {
        Format::Object => object,
        Format::Metadata => table::metadata_only(object),
        Format::Table => {
            let version = object["metadata"]["resourceVersion"].clone();
            json!({
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": { "resourceVersion": version },
                "columnDefinitions": table::definitions(resource.kind),
                "rows": [table::row(resource.kind, object, include, now)],
            })
        }
    }
}

/// A complete list of objects that have no versions.
pub(super) fn whole_list(
    objects: Vec<Value>,
    resource: &'static Resource,
    format: Format,
    include: Include,
    now: Timestamp,
) -> Vec<u8> {
    let path = crate::api::kube::path::ObjectPath { resource, namespace: None, name: None, subresource: None };
    let mut out = Vec::new();
    if let Ok(selection) = Selection::new(&path, &Default::default()) {
        write_list_head(&List::new(selection, format, include, 0), &mut out);
    }
    for (at, object) in objects.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(&item(object, resource, format, include, now), &mut out);
    }
    out.extend_from_slice(b"]}\n");
    out
}

fn write_list_head(list: &List, out: &mut Vec<u8>) {
    let resource = list.selection.resource;
    let (kind, version) = match list.format {
        Format::Object => (format!("{}List", resource.kind_name), resource.api_version()),
        Format::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        Format::Table => ("Table".to_owned(), "meta.k8s.io/v1".to_owned()),
    };
    let metadata = match list.version {
        0 => json!({}),
        version => json!({ "resourceVersion": version.to_string() }),
    };
    out.extend_from_slice(format!(r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{metadata},"#).as_bytes());
    if list.format == Format::Table {
        out.extend_from_slice(br#""columnDefinitions":"#);
        write(&table::definitions(resource.kind), out);
        out.extend_from_slice(br#","rows":["#);
    } else {
        out.extend_from_slice(br#""items":["#);
    }
}

fn item(mut object: Value, resource: &Resource, format: Format, include: Include, now: Timestamp) -> Value {
    match format {
        Format::Object => {
            // As in the lists of an API server, whose items have neither.
            if let Some(object) = object.as_object_mut() {
                object.remove("kind");
                object.remove("apiVersion");
            }
            object
        }
        Format::Metadata => table::metadata_only(object),
        Format::Table => table::row(resource.kind, object, include, now),
    }
}

/// How a watch reports a change of an object; None if it does not.
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
        // Clients keep the columns of the first table.
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

fn write(value: &Value, out: &mut Vec<u8>) {
    if let Err(e) = serde_json::to_writer(&mut *out, value) {
        // Writing to a Vec does not fail.
        log::error!("failed to write an object as JSON: {e}");
    }
}

pub(super) fn now(view: &View<'_>) -> Timestamp {
    view.now.wall.timestamp().unwrap_or_default()
}

/// The key of the object that a path names.
pub(super) fn key_of(path: &crate::api::kube::path::ObjectPath) -> Option<Key> {
    Some(key(path.resource.kind, path.namespace.as_deref().unwrap_or_default(), path.name.as_deref()?))
}
