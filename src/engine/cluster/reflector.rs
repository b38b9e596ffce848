//! Keeps one collection of objects up to date: a list, then a watch from the version of the list, and again a list when the
//! server does not have that version any more (410).
//!
//! A list counts only when it is complete and of the right kind: an empty or foreign answer never means that the objects are
//! gone.

use super::backoff::{Backoff, REQUESTS};
use super::sealing::Protection;
use super::traffic::Traffic;
use crate::api::cluster::list;
use crate::api::cluster::request::{ApiError, ApiRequest, ApiResponse};
use crate::api::cluster::status::Refusal;
use crate::api::cluster::watch::{self, ChangeKind, Line};
use crate::api::cluster::watched::{ListFrom, Watched};
use crate::api::time::{Boot, Wall};
use crate::engine::context::Owner;
use crate::engine::effect::Effect;
use crate::engine::op::OpId;
use crate::engine::outbox::Outbox;
use crate::engine::rng::Rng;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// A list has to be complete within this time.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// A watch that lasted so long was a success, also without a line.
const LONG: Duration = Duration::from_secs(30);
/// A watch that ends earlier without a line counts as a failure.
const SHORT: Duration = Duration::from_secs(1);

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
    },
    Watching {
        op: OpId,
        version: String,
        since: Boot,
        heard: bool,
    },
}

/// The next request.
#[derive(Clone, Debug, Serialize)]
enum Next {
    List(List),
    /// From this version.
    Watch(String),
}

#[derive(Clone, Debug, Serialize)]
enum List {
    /// The server may answer from its cache.
    Cached,
    /// The same, if its cache has this version, which an earlier run has seen.
    NotOlder(String),
    /// The version of the last list has expired: the server must not answer from its cache.
    Latest,
}

/// A change of the collection.
#[derive(Debug, PartialEq)]
pub enum Change<T> {
    /// The complete collection.
    All(Vec<T>),
    /// An object has appeared or changed.
    Set(T),
    /// An object is gone.
    Gone(T),
}

/// Makes an object from its JSON. An error means that the object cannot even be identified.
pub type Decode<'a, T> = &'a dyn Fn(Value) -> Result<T, String>;

/// The time, the settings, the jitter and the effects of a step.
pub struct Step<'a> {
    pub now: Boot,
    pub wall: Wall,
    /// Watches that a broken connection has ended are begun again at this time.
    pub resume: Boot,
    pub traffic: Traffic,
    /// Of new Secrets and tokens on the disk.
    pub protection: Protection,
    pub rng: &'a mut Rng,
    pub outbox: &'a mut Outbox,
}

impl<T> Reflector<T> {
    pub fn new(watched: Watched) -> Reflector<T> {
        Reflector { watched, state: State::Waiting(Next::List(List::Cached)), backoff: Backoff::default() }
    }

    /// An earlier run has seen this version (C14): the first list must not be older.
    pub fn not_older_than(&mut self, version: String) {
        if let State::Waiting(Next::List(List::Cached)) = self.state {
            self.state = State::Waiting(Next::List(List::NotOlder(version)));
        }
    }

    /// The version of the collection. None: it has not been listed.
    pub fn version(&self) -> Option<&str> {
        match &self.state {
            State::Waiting(Next::Watch(version)) | State::Watching { version, .. } => Some(version),
            State::Waiting(Next::List(_)) | State::Listing { .. } => None,
        }
    }

    /// The request in flight.
    pub fn op(&self) -> Option<OpId> {
        match &self.state {
            State::Waiting(_) => None,
            State::Listing { op, .. } | State::Watching { op, .. } => Some(*op),
        }
    }

    /// When the next request is due; None: one is in flight.
    pub fn next(&self) -> Option<Boot> {
        matches!(self.state, State::Waiting(_)).then(|| self.backoff.at())
    }

    /// The server answers again: the next request is due now.
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
                State::Listing { op, found: Vec::new(), of }
            }
            Next::Watch(version) => {
                let range = step.traffic.watch(self.watched.is_one_object());
                let seconds = range.start + step.rng.draw() % (range.end - range.start);
                let bookmarks = step.traffic.has_bookmarks(self.watched.is_one_object());
                let request = self.watched.watch(&version, Duration::from_secs(seconds), bookmarks);
                let op = begin(request, None, step.outbox);
                State::Watching { op, version, since: step.now, heard: false }
            }
        };
    }

    /// An element of the list in flight.
    pub fn item(&mut self, op: OpId, json: &[u8], decode: Decode<'_, T>, step: &mut Step<'_>) {
        let State::Listing { op: listing, found, .. } = &mut self.state else { return };
        if *listing != op {
            return;
        }
        // The items of a list have no kind.
        let with_kind = |mut object: Value| {
            object["kind"] = self.watched.kind().into();
            object["apiVersion"] = self.watched.api_version().into();
            object
        };
        match list::item(json).map(with_kind).and_then(decode) {
            Ok(object) => found.push(object),
            Err(why) => self.broken(op, &format!("the list contains an object that cannot be read: {why}"), step),
        }
    }

    /// A line of the watch in flight.
    pub fn line(&mut self, op: OpId, json: &[u8], decode: Decode<'_, T>, step: &mut Step<'_>) -> Option<Change<T>> {
        let State::Watching { op: of, version, heard, .. } = &mut self.state else { return None };
        if *of != op {
            return None;
        }
        *heard = true;
        match watch::parse(json, &self.watched) {
            Ok(Line::Change { kind, object, resource_version: new }) => match decode(object) {
                Ok(object) => {
                    *version = new;
                    self.backoff.succeeded();
                    return Some(match kind {
                        ChangeKind::Added | ChangeKind::Modified => Change::Set(object),
                        ChangeKind::Deleted => Change::Gone(object),
                    });
                }
                Err(why) => self.broken(op, &format!("the watch has an object that cannot be read: {why}"), step),
            },
            Ok(Line::Bookmark(new)) => {
                *version = new;
                self.backoff.succeeded();
            }
            Ok(Line::Error(refusal)) => {
                step.outbox.push(Effect::Cancel { op });
                self.failed(&refusal, step);
            }
            Err(why) => self.broken(op, &why, step),
        }
        None
    }

    /// The request in flight has ended. Returns the collection after a complete list.
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
            State::Listing { mut found, of, .. } => match list::rest(&response.body, &self.watched) {
                Ok(list::Rest { resource_version: version, next: None }) => {
                    self.backoff.succeeded();
                    found.shrink_to_fit();
                    self.state = State::Waiting(Next::Watch(version));
                    Some(Change::All(found))
                }
                Ok(list::Rest { next: Some(next), .. }) => {
                    let request = self.watched.list(ListFrom::Next(&next));
                    let op = begin(request, Some(LIST_TIMEOUT), step.outbox);
                    self.state = State::Listing { op, found, of };
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

    /// The server answered with an error.
    fn failed(&mut self, refusal: &Refusal, step: &mut Step<'_>) {
        let is_not_older = matches!(&self.state, State::Listing { of: List::NotOlder(_), .. });
        // The cache of the server is behind, or the versions have begun again, because the cluster was restored from a backup.
        let is_behind = is_not_older && refusal.code == 504;
        if refusal.is_expired() || is_behind {
            self.state = State::Waiting(Next::List(List::Latest));
        }
        self.backoff.refused(Some(refusal), REQUESTS, step.now, step.rng);
        self.idle();
    }

    /// There is no answer. All watches that a broken connection ends are begun again at one time (C12).
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

    /// The answer makes no sense: it changes nothing, and the request is repeated.
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

    fn report(&self, why: &str, step: &mut Step<'_>) {
        let message = format!("the answer of the API server for {} is unusable: {why}", self.watched.kind());
        super::warn(step.outbox, message);
    }
}

/// Sends a request.
pub fn begin(request: ApiRequest, timeout: Option<Duration>, outbox: &mut Outbox) -> OpId {
    outbox.begin(Owner::Cluster, |op| Effect::Api { op, request, timeout })
}
