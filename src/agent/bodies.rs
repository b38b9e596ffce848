//! Response bodies that are produced piece by piece: pods and events for the control socket, the read-only port and
//! the node's server. `kube` has the bodies of the Kubernetes API and of logs.

use super::content::{Drive, View};
use super::pod_changes::{PodChange, PodPosition};
use crate::api::kube::resources::Kind;
use crate::api::names::{FullName, Uid};
use crate::api::time::Boot;
use crate::engine::node::PodView;
use crate::kubectl_api::event_cache::{EventCache, EventPosition};
use crate::kubectl_api::pod_object;
use crate::net::server::exchange::{Part, StreamedBody};
use std::fmt;
use std::os::fd::BorrowedFd;

/// Approximate size of one piece of a streamed body, in bytes.
const PIECE: usize = 8 * 1024;

/// A body that remembers its position in the data that the agent shows.
pub(super) trait PieceWriter {
    /// Appends the next piece.
    fn next(&mut self, drive: &mut Drive<'_>, out: &mut Vec<u8>) -> Part;

    /// Returns the kind of objects whose changes continue the body, or None if it does not wait for changes.
    fn waits_for(&self) -> Option<Kind> {
        None
    }

    /// See `StreamedBody::next_deadline`.
    fn next_deadline(&self) -> Option<Boot> {
        None
    }

    /// See `StreamedBody::source`.
    fn source(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Any response body that the agent streams.
pub(super) type Streamed = Box<dyn PieceWriter>;

impl StreamedBody for Streamed {
    fn is_watch(&self) -> bool {
        self.waits_for().is_some()
    }

    fn next_deadline(&self) -> Option<Boot> {
        (**self).next_deadline()
    }

    fn source(&self) -> Option<BorrowedFd<'_>> {
        (**self).source()
    }
}

impl fmt::Debug for dyn PieceWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a body that waits for {:?}", self.waits_for())
    }
}

/// A `PodList`.
pub(super) struct PodList {
    /// Whether to include the additional data for the commands.
    is_verbose: bool,
    /// The last pod that was written.
    after: Option<(FullName, Uid)>,
}

impl PodList {
    pub(super) fn new(is_verbose: bool) -> PodList {
        PodList { is_verbose, after: None }
    }

    fn write_pod(&self, view: &View<'_>, pod: &PodView<'_>, out: &mut Vec<u8>) {
        let status = if self.is_verbose { view.engine.worker_status(&pod.pod.uid, view.now.boot) } else { None };
        let own = |status| {
            let logs = view.layout.pod_logs(&pod.pod.name, &pod.pod.uid);
            pod_object::Own::new(pod, status, logs, view.engine.expectation(pod.pod))
        };
        pod_object::write_pod(pod, status.map(own), out);
    }
}

impl PieceWriter for PodList {
    fn next(&mut self, drive: &mut Drive<'_>, out: &mut Vec<u8>) -> Part {
        let view = &drive.view;
        // Measure from here, because `out` may already contain earlier output.
        let enough = out.len() + PIECE;
        let pods = view.engine.pods();
        let from = match &self.after {
            None => 0,
            Some((name, uid)) => pods.partition_point(|p| (&p.pod.name, &p.pod.uid) <= (name, uid)),
        };
        if self.after.is_none() {
            out.extend_from_slice(br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#);
        }
        for pod in &pods[from..] {
            if out.len() >= enough {
                return Part::More;
            }
            if self.after.is_some() {
                out.push(b',');
            }
            self.write_pod(view, pod, out);
            self.after = Some((pod.pod.name.clone(), pod.pod.uid.clone()));
        }
        out.extend_from_slice(b"]}\n");
        Part::End
    }
}

/// A watch of pods: the existing pods, a bookmark, and then each change.
pub(super) struct PodWatch {
    position: PodPosition,
    /// Whether the bookmark has not been written yet.
    is_listing: bool,
}

impl PodWatch {
    pub(super) fn new() -> PodWatch {
        PodWatch { position: PodPosition::default(), is_listing: true }
    }
}

impl PieceWriter for PodWatch {
    fn next(&mut self, drive: &mut Drive<'_>, out: &mut Vec<u8>) -> Part {
        let enough = out.len() + PIECE;
        let engine = drive.view.engine;
        // The changes are numbered as long as a watch exists, so `None` does not occur here.
        let Some(Ok(changes)) = drive.served.pod_changes.as_ref().map(|changes| changes.after(self.position)) else {
            return Part::End;
        };
        for (number, change) in changes {
            if out.len() >= enough {
                return Part::More;
            }
            self.position.advance(number);
            let (kind, uid) = match change {
                PodChange::Added(uid) => ("ADDED", uid),
                PodChange::Modified(uid) => ("MODIFIED", uid),
                PodChange::Deleted(uid, name) => {
                    pod_object::write_gone(uid, name, out);
                    continue;
                }
            };
            // If the pod no longer exists, its removal follows.
            if let Some(pod) = engine.pod(uid) {
                pod_object::write_change(kind, &pod, out);
            }
        }
        self.position.is_complete();
        if std::mem::replace(&mut self.is_listing, false) {
            out.extend_from_slice(pod_object::BOOKMARK);
        }
        Part::Wait
    }

    fn waits_for(&self) -> Option<Kind> {
        Some(Kind::Pod)
    }
}

/// An `EventList`.
#[derive(Default)]
pub(super) struct EventList {
    /// The sequence number of the last event that was written.
    after: Option<u64>,
}

impl PieceWriter for EventList {
    fn next(&mut self, drive: &mut Drive<'_>, out: &mut Vec<u8>) -> Part {
        if self.after.is_none() {
            out.extend_from_slice(br#"{"kind":"EventList","apiVersion":"v1","metadata":{},"items":["#);
        }
        let enough = out.len() + PIECE;
        if drive.view.event_cache.write_items(&mut self.after, drive.view.now.boot, enough, out) {
            return Part::More;
        }
        out.extend_from_slice(b"]}\n");
        Part::End
    }
}

/// A watch of events: the existing events, a bookmark, and then each new event. Reports the number of events that
/// were dropped before they could be sent.
pub(super) struct EventWatch {
    position: EventPosition,
    /// Whether the bookmark has not been written yet.
    is_listing: bool,
}

impl EventWatch {
    pub(super) fn new(event_cache: &EventCache) -> EventWatch {
        EventWatch { position: event_cache.begin(), is_listing: true }
    }
}

impl PieceWriter for EventWatch {
    fn next(&mut self, drive: &mut Drive<'_>, out: &mut Vec<u8>) -> Part {
        let enough = out.len() + PIECE;
        let View { event_cache, now, .. } = &drive.view;
        if event_cache.write_changes(&mut self.position, now.boot, enough, out) {
            return Part::More;
        }
        if std::mem::replace(&mut self.is_listing, false) {
            out.extend_from_slice(pod_object::BOOKMARK);
        }
        Part::Wait
    }

    fn waits_for(&self) -> Option<Kind> {
        Some(Kind::Event)
    }
}
