//! Lists, written piece by piece.

use super::form::BodyProgress;
use super::form::{PIECE, item, write, write_list_head};
use super::snapshot::Snapshot;
use super::state::KubectlApi;
use crate::api::kube::accept::Format;
use crate::api::kube::selection::Selection;
use crate::api::kube::table::Include;
use crate::api::kube::versions::Key;

/// A list in progress.
#[derive(Debug)]
pub struct List {
    selection: Selection,
    format: Format,
    include: Include,
    /// The resource version of the list, or 0 if the objects have no versions.
    version: u64,
    progress: Progress,
}

#[derive(Debug)]
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

impl KubectlApi {
    /// Appends the next items of a list.
    pub fn part_of_list(&self, snapshot: &Snapshot<'_>, list: &mut List, out: &mut Vec<u8>) -> BodyProgress {
        let enough = out.len() + PIECE;
        let kind = list.selection.resource.kind;
        let (after, mut any) = match &list.progress {
            Progress::New => {
                write_list_head(list.selection.resource, list.format, list.version, out);
                (None, false)
            }
            Progress::After(key, any) => (Some(key.clone()), *any),
        };
        let keys = self.objects.versions.keys(kind).skip_while(|key| after.as_ref().is_some_and(|after| *key <= after));
        for key in keys {
            if out.len() >= enough {
                return BodyProgress::Piece;
            }
            list.progress = Progress::After(key.clone(), any);
            if !list.selection.may_contain(&key.namespace, &key.name) {
                continue;
            }
            let Some(object) = self.object(snapshot, key).filter(|object| list.selection.contains(object)) else {
                continue;
            };
            if std::mem::replace(&mut any, true) {
                out.push(b',');
            }
            list.progress = Progress::After(key.clone(), any);
            write(&item(object, list.selection.resource, list.format, list.include, snapshot.timestamp()), out);
        }
        out.extend_from_slice(b"]}\n");
        BodyProgress::Whole
    }
}
