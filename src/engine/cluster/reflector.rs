//! Keeps one collection of objects up to date: a list, then a watch from the version of the list, and again a list when
//! the server no longer has that version (410).
//!
//! A list is used only if it is complete and of the right kind: an empty response, or one of another program, never
//! means that the objects are gone.

use super::backoff::{Backoff, REQUESTS};
use super::sealing::Protection;
use super::traffic::Traffic;
use super::warning::warn;
use crate::api::cluster::list::{self, Identity};
use crate::api::cluster::request::{ApiError, ApiRequest, ApiResponse};
use crate::api::cluster::status::Refusal;
use crate::api::cluster::watch::{self, ChangeKind, Line};
use crate::api::cluster::watched::{ListFrom, Watched};
use crate::api::time::{Boot, Wall};
use crate::engine::effect::Effect;
use crate::engine::op::OpId;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::rng::Rng;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// A list has to be complete within this time.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// A watch that lasted at least this long was a success, even without a line.
const LONG: Duration = Duration::from_secs(30);
/// A watch that ends sooner, without a line, is a failure.
const SHORT: Duration = Duration::from_secs(1);
/// The maximum number of items in a list: a longer list is probably endless. A node has far fewer pods, even with the
/// terminated ones.
const MOST_ITEMS: usize = 100_000;
/// The maximum number of unusable items in a list whose identity is kept, and of unusable lines in a watch.
const MOST_GAPS: usize = 100;
/// The number of unusable items that are reported individually.
const MOST_REPORTS: usize = 3;
/// The maximum size of a list of objects other than pods, as JSON in bytes.
const MOST_BYTES: usize = 16 << 20;
/// The maximum number of services in a namespace, and of RuntimeClasses.
pub const MOST_OBJECTS: usize = 5_000;
/// The maximum number of items in a list that requests a single object. The server may send others by mistake.
const MOST_OF_ONE: usize = 8;

/// Returns the limits for the items of a list that are kept: their number, and their size in bytes. `Pods` has its
/// own limits.
fn room(watched: &Watched) -> (usize, usize) {
    match watched {
        Watched::Pods(_) => (MOST_ITEMS, usize::MAX),
        Watched::Services(_) | Watched::RuntimeClasses => (MOST_OBJECTS, MOST_BYTES),
        Watched::Node(_) | Watched::Data(_) | Watched::Csr(_) => (MOST_OF_ONE, MOST_BYTES),
    }
}

#[derive(Debug, Serialize)]
#[serde(bound = "")]
pub struct Reflector<T> {
    pub watched: Watched,
    state: State<T>,
    backoff: Backoff,
}

#[derive(Debug, Serialize)]
#[serde(bound = "")]
enum State<T> {
    /// The next request is due at the end of the back-off.
    Waiting(Next),
    Listing {
        op: OpId,
        #[serde(skip)]
        found: Vec<T>,
        of: List,
        size: Size,
    },
    Watching {
        op: OpId,
        version: String,
        since: Boot,
        heard: bool,
        /// The number of lines that could not be used.
        unusable: usize,
    },
}

/// What the next request is.
#[derive(Clone, Debug, Serialize)]
enum Next {
    List(List),
    /// A watch from this version.
    Watch(String),
}

#[derive(Clone, Debug, Serialize)]
enum List {
    /// The server may answer from its cache.
    Cached,
    /// The server may answer from its cache if the cache is not older than this version, which an earlier process has
    /// seen.
    NotOlder(String),
    /// The server must not answer from its cache, for example because the version of the last list has expired.
    Latest,
}

/// How much of a list has arrived.
#[derive(Debug, Default, Serialize)]
struct Size {
    items: usize,
    /// The size of the items that are kept, as JSON.
    bytes: usize,
    /// The number of items that were dropped because of the limits.
    left_out: usize,
    unusable: usize,
    #[serde(skip)]
    gaps: Gaps,
}

/// The unusable items of a list. Their state on the server is unknown, so the last known state of such objects is
/// kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    known: Vec<Identity>,
    /// There is an item whose identity is not known. It may be any object.
    any: bool,
}

impl Gaps {
    fn add(&mut self, identity: Option<Identity>) {
        match identity.filter(|_| self.known.len() < MOST_GAPS) {
            Some(identity) => self.known.push(identity),
            None => self.any = true,
        }
    }

    /// Returns true if there are unusable items.
    pub fn are_any(&self) -> bool {
        self.any || !self.known.is_empty()
    }

    /// Returns true if the object may be one of these items.
    pub fn may_have(&self, uid: Option<&str>, namespace: &str, name: &str) -> bool {
        let is_same = |gap: &Identity| match uid.filter(|_| !gap.uid.is_empty()) {
            Some(uid) => gap.uid == uid,
            None => (&*gap.namespace, &*gap.name) == (namespace, name),
        };
        self.any || self.known.iter().any(is_same)
    }
}

/// A change of the collection.
#[derive(Debug, PartialEq)]
pub enum Change<T> {
    /// The complete collection, without the items that could not be used.
    All(Vec<T>, Gaps),
    /// An object has appeared or changed.
    Set(T),
    /// An object is gone.
    Gone(T),
}

/// Makes an object from its JSON and the size of the JSON in bytes. None: the object is beyond the limits or is not
/// needed. An error means that the object cannot be used.
pub type Decode<'a, T> = &'a dyn Fn(Value, usize) -> Result<Option<T>, String>;

/// The inputs and outputs of a step: the time, the settings, the source of jitter, and the outbox.
pub struct Step<'a> {
    pub now: Boot,
    pub wall: Wall,
    /// The time at which watches are restarted after a broken connection has ended them.
    pub resume: Boot,
    pub traffic: Traffic,
    /// The number of pods that this node can hold.
    pub most_pods: usize,
    /// How new Secrets and tokens are protected on the disk.
    pub protection: Protection,
    pub rng: &'a mut Rng,
    pub outbox: &'a mut Outbox,
}

impl<T> Reflector<T> {
    pub fn new(watched: Watched) -> Reflector<T> {
        Reflector { watched, state: State::Waiting(Next::List(List::Cached)), backoff: Backoff::default() }
    }

    /// Requires that the first list is not older than this version, which an earlier process has seen (C14).
    pub fn not_older_than(&mut self, version: String) {
        if let State::Waiting(Next::List(List::Cached)) = self.state {
            self.state = State::Waiting(Next::List(List::NotOlder(version)));
        }
    }

    /// Returns the version of the collection. None if it has to be listed first.
    pub fn version(&self) -> Option<&str> {
        match &self.state {
            State::Waiting(Next::Watch(version)) | State::Watching { version, .. } => Some(version),
            State::Waiting(Next::List(_)) | State::Listing { .. } => None,
        }
    }

    /// Returns the request in flight.
    pub fn op(&self) -> Option<OpId> {
        match &self.state {
            State::Waiting(_) => None,
            State::Listing { op, .. } | State::Watching { op, .. } => Some(*op),
        }
    }

    /// Returns when the next request is due. None if a request is in flight.
    pub fn next(&self) -> Option<Boot> {
        matches!(self.state, State::Waiting(_)).then(|| self.backoff.at())
    }

    /// Makes the next request due now, because the server is reachable again.
    pub fn hurry(&mut self) {
        self.backoff.hurry();
    }

    /// Begins the next request if it is due.
    pub fn step(&mut self, step: &mut Step<'_>) {
        let State::Waiting(next) = &self.state else { return };
        if !self.backoff.is_due(step.now) {
            return;
        }
        self.state = match next.clone() {
            Next::List(of) => {
                let from = match &of {
                    List::Cached => ListFrom::Cache,
                    List::NotOlder(version) => ListFrom::NotOlder(version),
                    List::Latest => ListFrom::Latest,
                };
                let op = begin(self.watched.list(from), Some(LIST_TIMEOUT), step.outbox);
                State::Listing { op, found: Vec::new(), of, size: Size::default() }
            }
            Next::Watch(version) => {
                let range = step.traffic.watch(self.watched.is_one_object());
                let seconds = range.start + step.rng.draw() % (range.end - range.start);
                let bookmarks = step.traffic.has_bookmarks(self.watched.is_one_object());
                let request = self.watched.watch(&version, Duration::from_secs(seconds), bookmarks);
                let op = begin(request, None, step.outbox);
                State::Watching { op, version, since: step.now, heard: false, unusable: 0 }
            }
        };
    }

    /// Returns how many items of the list in flight have arrived.
    pub fn arrived(&self) -> usize {
        match &self.state {
            State::Listing { size, .. } => size.items,
            State::Waiting(_) | State::Watching { .. } => 0,
        }
    }

    /// Lists the objects again, unless a list is in flight.
    pub fn list_again(&mut self, outbox: &mut Outbox) {
        if matches!(self.state, State::Listing { .. }) {
            return;
        }
        if let Some(op) = self.op() {
            outbox.push(Effect::Cancel { op });
        }
        self.state = State::Waiting(Next::List(List::Latest));
    }

    /// Takes an item of the list in flight.
    pub fn item(&mut self, op: OpId, json: &[u8], decode: Decode<'_, T>, step: &mut Step<'_>) {
        let State::Listing { op: listing, found, size, .. } = &mut self.state else { return };
        if *listing != op {
            return;
        }
        size.items += 1;
        if size.items > MOST_ITEMS {
            return self.broken(op, &format!("the list has more than {MOST_ITEMS} items"), step);
        }
        let (most, most_bytes) = room(&self.watched);
        if found.len() >= most || size.bytes + json.len() > most_bytes {
            size.left_out += 1;
            return;
        }
        // The server omits the kind of a list's items, so it is added here.
        let with_kind = |mut object: Value| {
            object["kind"] = self.watched.kind().into();
            object["apiVersion"] = self.watched.api_version().into();
            object
        };
        match list::item(json).map(with_kind).and_then(|object| decode(object, json.len())) {
            Ok(Some(object)) => {
                size.bytes += json.len();
                found.push(object);
            }
            Ok(None) => {}
            Err(why) => {
                let identity = list::identity(json);
                size.unusable += 1;
                size.gaps.add(identity.clone());
                if size.unusable <= MOST_REPORTS {
                    self.report_unusable(identity, &why, step);
                }
            }
        }
    }

    /// Takes a line of the watch in flight. Returns the change that it describes.
    pub fn line(&mut self, op: OpId, json: &[u8], decode: Decode<'_, T>, step: &mut Step<'_>) -> Option<Change<T>> {
        let State::Watching { op: of, version, heard, .. } = &mut self.state else { return None };
        if *of != op {
            return None;
        }
        match watch::parse(json, &self.watched) {
            Ok(Line::Change { kind, object, resource_version: new }) => {
                *version = new;
                *heard = true;
                let identity = list::identity_of(&object);
                match decode(object, json.len()) {
                    Ok(object) => {
                        self.backoff.succeeded();
                        return object.map(|object| match kind {
                            ChangeKind::Added | ChangeKind::Modified => Change::Set(object),
                            ChangeKind::Deleted => Change::Gone(object),
                        });
                    }
                    Err(why) => self.unusable_line(op, identity, &why, step),
                }
            }
            Ok(Line::Bookmark(new)) => {
                *version = new;
                *heard = true;
                self.backoff.succeeded();
            }
            Ok(Line::Error(refusal)) => {
                step.outbox.push(Effect::Cancel { op });
                self.failed(&refusal, step);
            }
            Ok(Line::Unusable { identity, why }) => self.unusable_line(op, identity, &why, step),
            Err(why) => self.broken(op, &why, step),
        }
        None
    }

    /// Reports a line that cannot be used and is ignored. After too many such lines, ends the watch, because the
    /// server is probably not an API server.
    fn unusable_line(&mut self, op: OpId, identity: Option<Identity>, why: &str, step: &mut Step<'_>) {
        let State::Watching { unusable, .. } = &mut self.state else { return };
        *unusable += 1;
        match *unusable {
            n if n <= MOST_REPORTS => self.report_unusable(identity, why, step),
            n if n > MOST_GAPS => {
                self.broken(op, &format!("more than {MOST_GAPS} lines of the watch are unusable"), step)
            }
            _ => {}
        }
    }

    /// Handles the result of the request in flight. Returns the collection after a complete list.
    pub fn ended(
        &mut self,
        op: OpId,
        result: &Result<ApiResponse, ApiError>,
        step: &mut Step<'_>,
    ) -> Option<Change<T>> {
        if self.op() != Some(op) {
            return None;
        }
        let response = match result {
            Ok(response) => match Refusal::of(response) {
                None => response,
                Some(refusal) => {
                    self.failed(&refusal, step);
                    return None;
                }
            },
            Err(error) => {
                self.lost(error, step);
                return None;
            }
        };
        match std::mem::replace(&mut self.state, State::Waiting(Next::List(List::Cached))) {
            State::Waiting(_) => None,
            State::Watching { version, since, heard, .. } => {
                self.state = State::Waiting(Next::Watch(version));
                match step.now.since(since) {
                    lasted if lasted < SHORT && !heard => self.backoff.failed(REQUESTS, step.now, step.rng),
                    lasted if lasted >= LONG => self.backoff.succeeded(),
                    _ => {}
                }
                None
            }
            State::Listing { mut found, of, size, .. } => match list::rest(&response.body, &self.watched) {
                Ok(list::Rest { resource_version: version, next: None }) => {
                    self.backoff.succeeded();
                    found.shrink_to_fit();
                    self.state = State::Waiting(Next::Watch(version));
                    self.report_size(&size, found.len(), step);
                    Some(Change::All(found, size.gaps))
                }
                Ok(list::Rest { next: Some(next), .. }) => {
                    let request = self.watched.list(ListFrom::Next(&next));
                    let op = begin(request, Some(LIST_TIMEOUT), step.outbox);
                    self.state = State::Listing { op, found, of, size };
                    None
                }
                Err(why) => {
                    self.report(&why, step);
                    self.backoff.failed(REQUESTS, step.now, step.rng);
                    None
                }
            },
        }
    }

    /// Handles an error that the server has returned.
    fn failed(&mut self, refusal: &Refusal, step: &mut Step<'_>) {
        let is_not_older = matches!(&self.state, State::Listing { of: List::NotOlder(_), .. });
        // The cache of the server is behind, or the versions have started over because the cluster was restored from
        // a backup.
        let is_behind = is_not_older && refusal.code == 504;
        if refusal.is_expired() || is_behind {
            self.state = State::Waiting(Next::List(List::Latest));
        }
        self.backoff.refused(Some(refusal), REQUESTS, step.now, step.rng);
        self.idle();
    }

    /// Handles a request that got no complete response. If a broken connection ends several watches, all of them are
    /// restarted at the same time (C12).
    fn lost(&mut self, error: &ApiError, step: &mut Step<'_>) {
        let resume = step.resume.max(step.now);
        match (&self.state, error) {
            (State::Watching { since, .. }, ApiError::Unknown(_)) if step.now.since(*since) >= LONG => {
                self.backoff.wait(resume);
            }
            (State::Watching { .. }, ApiError::Unknown(_)) => self.backoff.failed(REQUESTS, resume, step.rng),
            _ => self.backoff.failed(REQUESTS, step.now, step.rng),
        }
        self.idle();
    }

    /// Handles a response that makes no sense: ignores it, and repeats the request.
    fn broken(&mut self, op: OpId, why: &str, step: &mut Step<'_>) {
        step.outbox.push(Effect::Cancel { op });
        self.report(why, step);
        self.again(step);
    }

    fn again(&mut self, step: &mut Step<'_>) {
        self.backoff.failed(REQUESTS, step.now, step.rng);
        self.idle();
    }

    /// Waits for the next request, which continues the watch if there was one.
    fn idle(&mut self) {
        let next = match &mut self.state {
            State::Watching { version, .. } => Next::Watch(std::mem::take(version)),
            State::Listing { of, .. } => Next::List(of.clone()),
            State::Waiting(_) => return,
        };
        self.state = State::Waiting(next);
    }

    /// Reports how many further items were unusable, and how many were dropped, with a single event each.
    fn report_size(&self, size: &Size, found: usize, step: &mut Step<'_>) {
        let more = size.unusable.saturating_sub(MOST_REPORTS);
        if more > 0 {
            let message = format!("{more} more items of the list of {} are unusable", self.watched.kind());
            warn(step.outbox, message);
        }
        if size.left_out > 0 {
            let message = format!(
                "the list of {} exceeds the limits of this node: {} items are ignored, and {found} are kept",
                self.watched.kind(),
                size.left_out
            );
            warn(step.outbox, message);
        }
    }

    fn report_unusable(&self, identity: Option<Identity>, why: &str, step: &mut Step<'_>) {
        let name = identity.map(|identity| identity.to_string()).unwrap_or_default();
        let message = format!("the API server's {} {name:?} is unusable and is ignored: {why}", self.watched.kind());
        warn(step.outbox, message);
    }

    fn report(&self, why: &str, step: &mut Step<'_>) {
        let message = format!("the API server's response for {} is unusable: {why}", self.watched.kind());
        warn(step.outbox, message);
    }
}

/// Sends a request.
pub fn begin(request: ApiRequest, timeout: Option<Duration>, outbox: &mut Outbox) -> OpId {
    outbox.begin(Owner::Cluster, |op| Effect::Api { op, request, timeout })
}
