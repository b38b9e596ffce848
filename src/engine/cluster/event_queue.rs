//! The queue of the events of pods and of the node. They are posted to the API server one at a time and in order.
//!
//! While the server is away, the queue is kept on the disk, in parts of a limited size, so that a power cut loses at
//! most the events of the last seconds. A repeated event only increases the count of the first one.

use super::backoff::{Backoff, REQUESTS};
use super::event_limits::EventLimits;
use super::reflector::{Step, begin};
use super::warning::warn;
use crate::api::cluster::event_queue::{self, Entry};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::requests;
use crate::api::ordered::CollectOrdered;
use crate::api::time::Boot;
use crate::engine::effect::RecordChange;
use crate::engine::op::OpId;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// The maximum number of events that wait. If more occur, usually while the server is away, the oldest ones are
/// dropped.
const MOST: usize = 1000;
/// The number of events in a record.
const PART: u64 = 50;
const TIMEOUT: Duration = Duration::from_secs(30);
/// An event that the server still refuses after this many attempts is dropped. A kubelet also tries twelve times.
const ATTEMPTS: u32 = 12;
/// An event is written to its record after this delay, so that a pod in a crash loop does not wear out flash memory.
const WRITE_DELAY: Duration = Duration::from_secs(10);
/// An event is a repetition if it equals one of this many latest events. If the server has that one already, its
/// series must be younger than `LONGEST_SERIES`.
const REMEMBERED: usize = 128;
const LONGEST_SERIES: Duration = Duration::from_secs(600);

#[derive(Debug, Serialize)]
pub struct EventQueue {
    node: Rc<str>,
    #[serde(skip)]
    waiting: VecDeque<Waiting>,
    /// The latest events that the server has.
    #[serde(skip)]
    posted: VecDeque<Entry>,
    limits: EventLimits,
    next_number: u64,
    sending: Option<OpId>,
    attempts: u32,
    backoff: Backoff,
    disk: Disk,
    /// The parts on the disk.
    written: BTreeSet<u64>,
    /// The number of events dropped from the full queue since the server went away.
    dropped: u64,
    /// The same, since the start.
    lost: u64,
}

#[derive(Debug)]
struct Waiting {
    entry: Entry,
    part: u64,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Create,
    /// The server has the event with a smaller count.
    Repeat,
}

#[derive(Debug, Serialize)]
enum Disk {
    /// The server answers: events are posted at once.
    Unused,
    /// The changed parts are written at the time `at`.
    Keeping { changed: BTreeSet<u64>, at: Boot },
    /// The process is terminating: the changed parts are written at once.
    Closing { changed: BTreeSet<u64> },
}

impl EventQueue {
    pub fn new(node: &str) -> EventQueue {
        EventQueue {
            node: node.into(),
            waiting: VecDeque::new(),
            posted: VecDeque::new(),
            limits: EventLimits::default(),
            next_number: 0,
            sending: None,
            attempts: 0,
            backoff: Backoff::default(),
            disk: Disk::Unused,
            written: BTreeSet::new(),
            dropped: 0,
            lost: 0,
        }
    }

    /// Takes a part of the queue that an earlier process stored. An unusable record is moved aside.
    pub fn record_found(&mut self, key: &str, text: &str, outbox: &mut Outbox) {
        let Some((part, entries)) = event_queue::part_of(key).zip(event_queue::read(text).ok()) else {
            warn(outbox, format!("record {key} is unusable; moving it aside"));
            outbox.record(Owner::Cluster, RecordChange::SetAside { key: key.to_owned() });
            return;
        };
        self.waiting.extend(entries.into_iter().map(|entry| Waiting { entry, part, how: How::Create }));
        self.written.insert(part);
        self.next_number = self.next_number.max((part + 1).saturating_mul(PART));
    }

    pub fn push(&mut self, entry: Entry, now: Boot, outbox: &mut Outbox) {
        let Some(entry) = self.limits.admit(entry, now) else { return };
        let first = usize::from(self.sending.is_some());
        let repeated = self.waiting.iter_mut().skip(first).rev().take(REMEMBERED).find(|w| w.entry.is_same(&entry));
        if let Some(waiting) = repeated {
            waiting.entry.count = waiting.entry.count.saturating_add(entry.count);
            waiting.entry.last = entry.last;
            waiting.entry.message = entry.message;
            let part = waiting.part;
            return self.changed(part, now);
        }
        if self.waiting.len() >= MOST
            && let Some(Waiting { part, .. }) = self.waiting.remove(first)
        {
            self.dropped += 1;
            self.lost += 1;
            self.left(part, outbox);
        }
        let since = |posted: &Entry| u64::try_from(entry.last.saturating_sub(posted.first)).unwrap_or(0);
        let before = self
            .posted
            .iter()
            .find(|posted| posted.is_same(&entry) && Duration::from_nanos(since(posted)) < LONGEST_SERIES);
        let (entry, how) = match before {
            Some(before) => {
                (Entry { first: before.first, count: before.count.saturating_add(entry.count), ..entry }, How::Repeat)
            }
            None => (entry, How::Create),
        };
        let part = self.next_number / PART;
        self.next_number += 1;
        self.waiting.push_back(Waiting { entry, part, how });
        self.changed(part, now);
    }

    /// Keeps the queue on the disk, because the server is away from now on.
    pub fn keep(&mut self, now: Boot) {
        if matches!(self.disk, Disk::Unused) {
            let changed = self.waiting.iter().map(|waiting| waiting.part).filter(|part| !self.written.contains(part));
            self.disk = Disk::Keeping { changed: changed.collect_set(), at: now + WRITE_DELAY };
        }
    }

    /// Prepares for the termination of the process: the events that the server does not have yet are written to the
    /// disk at once, and are posted after the next start.
    pub fn close(&mut self) {
        let changed = match std::mem::replace(&mut self.disk, Disk::Unused) {
            Disk::Unused => self.waiting.iter().map(|waiting| waiting.part).collect_set(),
            Disk::Keeping { changed, .. } | Disk::Closing { changed } => changed,
        };
        self.disk = Disk::Closing { changed };
    }

    /// Stops writing the queue to the disk, because the server answers again. Returns how many events wait, and how
    /// many were dropped.
    pub fn hurry(&mut self) -> (usize, u64) {
        if let Disk::Keeping { .. } = self.disk {
            self.disk = Disk::Unused;
        }
        self.backoff.hurry();
        (self.waiting.len(), std::mem::take(&mut self.dropped))
    }

    /// Returns how many events wait, and how many were dropped since the start.
    pub fn counts(&self) -> (usize, u64) {
        (self.waiting.len(), self.lost)
    }

    /// Returns when the changed parts are written.
    pub fn next_write(&self) -> Option<Boot> {
        match &self.disk {
            Disk::Keeping { changed, at } if !changed.is_empty() => Some(*at),
            _ => None,
        }
    }

    /// Writes the parts that have changed, if it is time.
    pub fn write(&mut self, now: Boot, outbox: &mut Outbox) {
        let changed = match &mut self.disk {
            Disk::Keeping { changed, at } if *at <= now => changed,
            Disk::Closing { changed } => changed,
            Disk::Keeping { .. } | Disk::Unused => return,
        };
        for part in std::mem::take(changed) {
            let entries: Vec<&Entry> = self.waiting.iter().filter(|w| w.part == part).map(|w| &w.entry).collect();
            if !entries.is_empty() {
                let change = RecordChange::Put { key: event_queue::key(part), value: event_queue::write(&entries) };
                outbox.record(Owner::Cluster, change);
                self.written.insert(part);
            }
        }
    }

    pub fn next(&self) -> Option<Boot> {
        (self.sending.is_none() && !self.waiting.is_empty()).then(|| self.backoff.at())
    }

    pub fn step(&mut self, step: &mut Step<'_>) {
        if self.next().is_none_or(|at| at > step.now) {
            return;
        }
        let Some(Waiting { entry, how, .. }) = self.waiting.front() else { return };
        let request = entry.with(&self.node, |event| match how {
            How::Create => requests::create_event(event.namespace(), event.object()),
            How::Repeat => requests::patch_event(event.namespace(), &event.name(), event.repeated()),
        });
        self.sending = Some(begin(request, Some(TIMEOUT), step.outbox));
    }

    /// Returns false if the operation does not belong to the queue.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> bool {
        if self.sending != Some(op) {
            return false;
        }
        self.sending = None;
        self.attempts += 1;
        let status = result.as_ref().map_or(0, |response| response.status);
        let Some(first) = self.waiting.front_mut() else { return true };
        match (status, first.how) {
            // 404: the server has removed the event, as it does after an hour. 409: it has the event with a smaller
            // count.
            (404, How::Repeat) => first.how = How::Create,
            (409, How::Create) if first.entry.count > 1 => first.how = How::Repeat,
            _ => {
                let over = match result {
                    // 409: an earlier attempt, whose response was lost, has stored the event. Other rejections are
                    // permanent.
                    Ok(_) => status < 500 && status != 429 || self.attempts >= ATTEMPTS,
                    Err(ApiError::TooLarge(_)) => true,
                    Err(ApiError::NotSent(_) | ApiError::Unknown(_)) => false,
                };
                if !over {
                    self.backoff.failed(REQUESTS, step.now, step.rng);
                    return true;
                }
                if let Some(Waiting { entry, part, .. }) = self.waiting.pop_front() {
                    if status < 300 {
                        self.remember(entry);
                    }
                    self.left(part, step.outbox);
                }
            }
        }
        self.attempts = 0;
        self.backoff.succeeded();
        true
    }

    fn remember(&mut self, entry: Entry) {
        self.posted.retain(|posted| !posted.is_same(&entry));
        if self.posted.len() >= REMEMBERED {
            self.posted.pop_front();
        }
        self.posted.push_back(entry);
    }

    fn changed(&mut self, part: u64, now: Boot) {
        match &mut self.disk {
            Disk::Unused => {}
            Disk::Keeping { changed, at } => {
                if changed.is_empty() {
                    *at = now + WRITE_DELAY;
                }
                changed.insert(part);
            }
            Disk::Closing { changed } => {
                changed.insert(part);
            }
        }
    }

    /// Deletes the record of the part if none of its events waits any longer.
    fn left(&mut self, part: u64, outbox: &mut Outbox) {
        let is_empty = !self.waiting.iter().any(|waiting| waiting.part == part);
        if is_empty && self.written.remove(&part) {
            outbox.record(Owner::Cluster, RecordChange::Delete { key: event_queue::key(part) });
        }
    }
}
