//! The recent events of pods and of the node, for clients that ask later. Repetitions of an event of a pod are
//! counted.
//!
//! The cache is in memory, with a copy on `/run` for the next start (`adapters/report_file`). The number of events is
//! bounded per pod, for the node, and in total. Above the total, the oldest events of forgotten pods are dropped
//! first, then those of the pod with the most events. Events of forgotten pods and of the node expire after an hour.
//! No timer fires for this: expired events are left out of responses and dropped when the next event arrives. Equal
//! texts are stored once.

use crate::api::event_object::{
    COMPONENT, EventObject, EventSource, InvolvedKind, InvolvedObject, Metadata, NODE_NAMESPACE,
};
use crate::api::kept_reports::KeptEvent;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::OrderSlice;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now, Wall};
use crate::engine::effect::Severity;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Maximum numbers of events, large enough for users of `kubectl describe`.
const OF_A_POD: usize = 50;
const OF_ALL_PODS: usize = 1000;
const OF_THE_NODE: usize = 100;
/// How long an event of the node or of a forgotten pod stays visible after its last occurrence (the API server's
/// default).
const LIFE: Duration = Duration::from_secs(3600);
/// Maximum number of dropped events whose order is remembered.
const DROPPED: usize = 256;
/// The API's limit for a message, in characters.
const MAX_MESSAGE: usize = 1024;

/// One occurrence of an event.
#[derive(Clone, Copy, Debug)]
pub struct Occurrence<'a> {
    /// None for an event of the node.
    pub object: Option<Involved<'a>>,
    /// The path of a container in the pod: `spec.containers{main}`.
    pub field_path: Option<&'a str>,
    pub severity: Severity,
    pub reason: &'a Reason,
    pub message: &'a str,
}

/// The object of an event, other than the node.
#[derive(Clone, Copy, Debug)]
pub struct Involved<'a> {
    pub kind: InvolvedKind,
    pub uid: &'a Uid,
    pub name: &'a FullName,
}

impl<'a> Involved<'a> {
    pub fn pod(uid: &'a Uid, name: &'a FullName) -> Involved<'a> {
        Involved { kind: InvolvedKind::Pod, uid, name }
    }
}

#[derive(Debug, Default)]
pub struct EventCache {
    node_name: String,
    pods: BTreeMap<Uid, OfPod>,
    node: VecDeque<Kept>,
    /// Texts of events, deduplicated.
    texts: BTreeSet<Rc<str>>,
    /// Number of events in `pods`.
    kept: usize,
    /// The last order that was given to an event.
    last: u64,
    /// The number of dropped events, and the orders of the most recent of them.
    drops: u64,
    dropped: VecDeque<u64>,
}

/// The position of a watch. The default is the position before all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventPosition {
    /// The order of the last event that was sent.
    sent: u64,
    /// The watch has been sent every event up to this order.
    complete: u64,
    /// The number of dropped events that the watch was told about or has seen.
    drops: u64,
}

#[derive(Debug)]
struct OfPod {
    name: FullName,
    kind: InvolvedKind,
    /// Its events expire. Those of Deployments and ReplicaSets always do, as in a cluster.
    gone: bool,
    /// The events, sorted by the time of their last occurrence.
    events: VecDeque<Kept>,
}

#[derive(Debug)]
struct Kept {
    id: u64,
    /// Position in the order of all events. Each repetition gets a new one.
    order: u64,
    reason: Reason,
    message: Rc<str>,
    field_path: Option<Rc<str>>,
    first: Wall,
    last: Wall,
    last_boot: Boot,
    count: u32,
    severity: Severity,
}

impl Kept {
    fn equals(&self, occurrence: &Occurrence<'_>, message: &str) -> bool {
        self.reason == *occurrence.reason
            && self.severity == occurrence.severity
            && *self.message == *message
            && self.field_path.as_deref() == occurrence.field_path
    }

    fn is_over(&self, now: Boot) -> bool {
        now.since(self.last_boot) >= LIFE
    }
}

impl EventCache {
    pub fn new(node_name: &str) -> EventCache {
        EventCache { node_name: node_name.to_owned(), ..EventCache::default() }
    }

    /// Stores the event, or counts it if the cache already has an equal one.
    pub fn record(&mut self, occurrence: &Occurrence<'_>, now: Now) {
        self.drop_what_is_over(now.boot);
        self.last += 1;
        let order = self.last;
        let message = cut(occurrence.message);
        let events = match occurrence.object {
            None => Some(&mut self.node),
            Some(of) => self.pods.get_mut(of.uid).map(|p| &mut p.events),
        };
        let before = events.and_then(|events| {
            let at = events.iter().rposition(|e| e.equals(occurrence, message))?;
            events.remove(at)
        });
        let event = match before {
            Some(mut event) => {
                event.count = event.count.saturating_add(1);
                (event.order, event.last, event.last_boot) = (order, now.wall, now.boot);
                event
            }
            None => {
                self.kept += usize::from(occurrence.object.is_some());
                let (first, last, last_boot) = (now.wall, now.wall, now.boot);
                let (message, field_path) = (self.text(message), occurrence.field_path.map(|c| self.text(c)));
                let (reason, severity) = (occurrence.reason.clone(), occurrence.severity);
                Kept { id: order, order, reason, message, field_path, first, last, last_boot, count: 1, severity }
            }
        };
        match occurrence.object {
            None => self.node.push_back(event),
            Some(Involved { kind, uid, name }) => {
                let new = || OfPod { name: name.clone(), kind, gone: false, events: VecDeque::new() };
                let pod = self.pods.entry(uid.clone()).or_insert_with(new);
                // A forgotten pod may return under the same UID.
                pod.gone = kind != InvolvedKind::Pod;
                // Grow by one, because most pods have few events and a queue that grows by itself doubles its capacity.
                pod.events.reserve_exact(1);
                pod.events.push_back(event);
            }
        }
        self.keep_bounds(occurrence.object.map(|of| of.uid));
    }

    /// Returns the events to store for the next start, the latest first.
    pub fn kept(&self, now: Boot) -> impl Iterator<Item = KeptEvent> {
        let mut all: Vec<_> = self.present(now).collect();
        all.order_by_key(|(_, event)| std::cmp::Reverse(event.order));
        all.into_iter().map(|(of, event)| KeptEvent {
            kind: of.map_or(InvolvedKind::Pod, |of| of.kind),
            pod: of.map(|of| (of.uid.to_string(), of.name.namespace.to_string(), of.name.name.to_string())),
            id: event.id,
            order: event.order,
            reason: event.reason.as_str().to_owned(),
            message: event.message.to_string(),
            field_path: event.field_path.as_deref().map(str::to_owned),
            first: event.first.0,
            last: event.last.0,
            last_boot: event.last_boot.0,
            count: event.count,
            warning: event.severity == Severity::Warning,
        })
    }

    /// Restores the events of the last run, the latest first. Their pods are considered forgotten until `pod_exists`.
    pub fn restore(&mut self, events: Vec<KeptEvent>, now: Boot) {
        for kept in events.into_iter().rev() {
            let event = Kept {
                id: kept.id,
                order: kept.order,
                reason: Reason::from_text(&kept.reason),
                message: self.text(cut(&kept.message)),
                field_path: kept.field_path.map(|path| self.text(&path)),
                first: Wall(kept.first),
                last: Wall(kept.last),
                last_boot: Boot(kept.last_boot).min(now),
                count: kept.count,
                severity: if kept.warning { Severity::Warning } else { Severity::Normal },
            };
            self.last = self.last.max(event.id).max(event.order);
            let Some((uid, namespace, name)) = kept.pod else {
                self.node.push_back(event);
                self.keep_bounds(None);
                continue;
            };
            let uid = Uid::from(uid);
            let (name, kind) = (FullName::new(&namespace, &name), kept.kind);
            let new = || OfPod { name, kind, gone: true, events: VecDeque::new() };
            self.pods.entry(uid.clone()).or_insert_with(new).events.push_back(event);
            self.kept += 1;
            self.keep_bounds(Some(&uid));
        }
    }

    /// Notes that the pod of restored events still exists, so that the events do not expire.
    pub fn pod_exists(&mut self, uid: &Uid) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.gone = false;
        }
    }

    /// Notes that the pod is forgotten: its events expire after an hour.
    pub fn pod_gone(&mut self, uid: &Uid) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.gone = true;
        }
    }

    /// Writes the events after this order as items of a list, with commas between them, until `out` is `enough` bytes
    /// long. Returns whether more events follow.
    pub fn write_items(&self, after: &mut Option<u64>, now: Boot, enough: usize, out: &mut Vec<u8>) -> bool {
        for (of, event) in self.in_order(after.unwrap_or_default(), now) {
            if out.len() >= enough {
                return true;
            }
            if after.is_some() {
                out.push(b',');
            }
            self.write(of, event, out);
            *after = Some(event.order);
        }
        false
    }

    /// Returns the position of a new watch.
    pub fn begin(&self) -> EventPosition {
        EventPosition { sent: 0, complete: 0, drops: self.drops }
    }

    /// Writes the events after a position as lines of a watch, until `out` is `enough` bytes long. If events were
    /// dropped before the watch could get them, the first line is their number. Returns whether more events follow.
    pub fn write_changes(&self, position: &mut EventPosition, now: Boot, enough: usize, out: &mut Vec<u8>) -> bool {
        let lost = self.lost(*position);
        position.drops = self.drops;
        if lost > 0 {
            out.extend_from_slice(format!("{{\"type\":\"LOST\",\"count\":{lost}}}\n").as_bytes());
        }
        for (of, event) in self.in_order(position.sent, now) {
            if out.len() >= enough {
                return true;
            }
            let kind = if event.id > position.complete { "ADDED" } else { "MODIFIED" };
            self.write_line(kind, of, event, out);
            position.sent = event.order;
        }
        position.complete = position.sent;
        false
    }

    /// Returns the number of events after this position that were dropped before they could be sent. If more than
    /// `DROPPED` events were dropped, the result may include events that were sent.
    fn lost(&self, position: EventPosition) -> u64 {
        let since = self.drops - position.drops;
        let known = usize::try_from(since).map_or(DROPPED, |since| since.min(self.dropped.len()));
        let last = self.dropped.range(self.dropped.len() - known..);
        since - last.filter(|order| **order <= position.sent).count() as u64
    }

    /// Returns the events after this order, sorted by their last occurrence.
    fn in_order(&self, after: u64, now: Boot) -> Vec<(Option<Involved<'_>>, &Kept)> {
        let mut rest: Vec<_> = self.present(now).filter(|(_, event)| event.order > after).collect();
        rest.order_by_key(|(_, event)| event.order);
        rest
    }

    fn present(&self, now: Boot) -> impl Iterator<Item = (Option<Involved<'_>>, &Kept)> {
        let of_node = self.node.iter().filter(move |e| !e.is_over(now)).map(|e| (None, e));
        let of_pods = self.pods.iter().flat_map(move |(uid, p)| {
            let there = p.events.iter().filter(move |e| !(p.gone && e.is_over(now)));
            let of = Involved { kind: p.kind, uid, name: &p.name };
            there.map(move |e| (Some(of), e))
        });
        of_node.chain(of_pods)
    }

    fn name_of(&self, of: Option<Involved<'_>>, event: &Kept) -> String {
        format!("{}.{:x}", of.map_or(self.node_name.as_str(), |of| &*of.name.name), event.id)
    }

    /// Calls `f` with the namespace, the name and the order of each event. An event with a new order has occurred
    /// again.
    pub fn each(&self, now: Boot, f: &mut dyn FnMut(&str, String, u64)) {
        for (of, event) in self.present(now) {
            f(of.map_or(NODE_NAMESPACE, |of| &*of.name.namespace), self.name_of(of, event), event.order);
        }
    }

    /// Returns an event as an object of the API.
    pub fn value(&self, namespace: &str, name: &str, now: Boot) -> Option<serde_json::Value> {
        let (_, id) = name.rsplit_once('.')?;
        let id = u64::from_str_radix(id, 16).ok()?;
        let mut found = self.present(now).filter(|(_, event)| event.id == id);
        let (of, event) = found.find(|(of, event)| {
            of.map_or(NODE_NAMESPACE, |of| &*of.name.namespace) == namespace && self.name_of(*of, event) == name
        })?;
        let mut out = Vec::new();
        self.write(of, event, &mut out);
        serde_json::from_slice(&out).ok()
    }

    /// Returns the numbers of pods, events of pods and events of the node, for the dump.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.pods.len(), self.kept, self.node.len())
    }

    fn text(&mut self, text: &str) -> Rc<str> {
        if let Some(there) = self.texts.get(text) {
            return there.clone();
        }
        let new: Rc<str> = Rc::from(text);
        self.texts.insert(new.clone());
        new
    }

    fn forget(&mut self, event: Kept) {
        self.drops += 1;
        self.dropped.push_back(event.order);
        if self.dropped.len() > DROPPED {
            self.dropped.pop_front();
        }
        for text in [Some(event.message), event.field_path].into_iter().flatten() {
            // One reference belongs to the set, the other to this event.
            if Rc::strong_count(&text) == 2 {
                self.texts.remove(&text);
            }
        }
    }

    fn keep_bounds(&mut self, touched: Option<&Uid>) {
        if self.node.len() > OF_THE_NODE
            && let Some(event) = self.node.pop_front()
        {
            self.forget(event);
        }
        if let Some(uid) = touched
            && self.pods.get(uid).is_some_and(|p| p.events.len() > OF_A_POD)
        {
            self.drop_oldest(&uid.clone());
        }
        while self.kept > OF_ALL_PODS {
            let least = self.pods.iter().max_by_key(|(_, p)| {
                let oldest = p.events.front().map_or(u64::MAX, |e| e.order);
                (p.gone, if p.gone { 0 } else { p.events.len() }, std::cmp::Reverse(oldest))
            });
            let Some(uid) = least.map(|(uid, _)| uid.clone()) else { return };
            self.drop_oldest(&uid);
        }
    }

    fn drop_oldest(&mut self, uid: &Uid) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let oldest = pod.events.pop_front();
        if pod.events.is_empty() {
            self.pods.remove(uid);
        }
        if let Some(event) = oldest {
            self.kept -= 1;
            self.forget(event);
        }
    }

    fn drop_what_is_over(&mut self, now: Boot) {
        while self.node.front().is_some_and(|e| e.is_over(now)) {
            if let Some(event) = self.node.pop_front() {
                self.forget(event);
            }
        }
        let over = |p: &OfPod| p.gone && p.events.front().is_some_and(|e| e.is_over(now));
        while let Some(uid) = self.pods.iter().find(|(_, p)| over(p)).map(|(uid, _)| uid.clone()) {
            self.drop_oldest(&uid);
        }
    }

    fn write_line(&self, kind: &str, of: Option<Involved<'_>>, event: &Kept, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        self.write(of, event, out);
        out.extend_from_slice(b"}\n");
    }

    /// Writes an event as a JSON object of the API (core/v1).
    fn write(&self, of: Option<Involved<'_>>, event: &Kept, out: &mut Vec<u8>) {
        let name = of.map_or(self.node_name.as_str(), |of| &*of.name.name);
        let namespace = of.map_or(NODE_NAMESPACE, |of| &*of.name.namespace);
        let time = |at: Wall| at.timestamp().map(|t| format!("{t:.3}"));
        let (kind, api_version) = of.map_or(("Node", "v1"), |of| of.kind.in_api());
        let object = EventObject {
            kind: "Event",
            api_version: "v1",
            metadata: Metadata { name: format!("{name}.{:x}", event.id), namespace },
            involved_object: InvolvedObject {
                kind,
                namespace: of.map(|_| namespace),
                name,
                uid: of.map_or(name, |of| of.uid.as_str()),
                api_version,
                field_path: event.field_path.as_deref(),
            },
            reason: event.reason.as_str(),
            message: &event.message,
            source: EventSource { component: COMPONENT, host: &self.node_name },
            first_timestamp: time(event.first),
            last_timestamp: time(event.last),
            count: event.count,
            r#type: match event.severity {
                Severity::Normal => "Normal",
                Severity::Warning => "Warning",
            },
            reporting: None,
        };
        // All keys of the type are valid in JSON, and writing to a Vec does not fail.
        let _ = serde_json::to_writer(out, &object);
    }
}

fn cut(message: &str) -> &str {
    message.char_indices().nth(MAX_MESSAGE).map_or(message, |(end, _)| &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(seconds: u64) -> Now {
        let wall = Wall(1_800_000_000_000_000_000) + Duration::from_secs(seconds);
        Now { boot: Boot(0) + Duration::from_secs(seconds), wall }
    }

    fn occurrence<'a>(pod: &'a (Uid, FullName), reason: &'a Reason, message: &'a str) -> Occurrence<'a> {
        let severity = if *reason == Reason::BackOff { Severity::Warning } else { Severity::Normal };
        let (object, field_path) = (Some(Involved::pod(&pod.0, &pod.1)), Some("spec.containers{main}"));
        Occurrence { object, field_path, severity, reason, message }
    }

    fn pod(name: &str) -> (Uid, FullName) {
        (Uid::from(format!("uid-{name}")), FullName::new("default", name))
    }

    fn all(event_cache: &EventCache, now: Now) -> Vec<Value> {
        let mut out = b"[".to_vec();
        assert!(!event_cache.write_items(&mut None, now.boot, usize::MAX, &mut out));
        out.push(b']');
        serde_json::from_slice(&out).unwrap()
    }

    /// Returns the next lines of a watch.
    fn lines(event_cache: &EventCache, watch: &mut EventPosition) -> Vec<Value> {
        let mut out = Vec::new();
        assert!(!event_cache.write_changes(watch, at(50).boot, usize::MAX, &mut out));
        let text = String::from_utf8(out).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn an_event_is_written_as_the_api_has_it_and_repeated_ones_are_counted() {
        let mut event_cache = EventCache::new("lab");
        let web = pod("web");
        event_cache.record(&occurrence(&web, &Reason::BackOff, "again"), at(0));
        let mut watch = event_cache.begin();
        assert_eq!(lines(&event_cache, &mut watch)[0]["type"], "ADDED");
        event_cache.record(&occurrence(&web, &Reason::Started, "Started container main"), at(1));
        event_cache.record(&occurrence(&web, &Reason::BackOff, "again"), at(20));
        let new = lines(&event_cache, &mut watch);
        assert_eq!((&new[0]["type"], &new[1]["type"], new.len()), (&json!("ADDED"), &json!("MODIFIED"), 2));
        let event = json!({
            "kind": "Event", "apiVersion": "v1",
            "metadata": {"name": "web.1", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web", "uid": "uid-web",
                "apiVersion": "v1",
                               "fieldPath": "spec.containers{main}"},
            "reason": "BackOff", "message": "again", "source": {"component": "wherry", "host": "lab"},
            "firstTimestamp": "2027-01-15T08:00:00.000Z", "lastTimestamp": "2027-01-15T08:00:20.000Z",
            "count": 2, "type": "Warning",
        });
        assert_eq!(new[1]["object"], event);
        let shown = all(&event_cache, at(21));
        assert_eq!(shown.len(), 2);
        assert_eq!((&shown[0]["reason"], &shown[1]), (&json!("Started"), &event), "in the order of their last times");
    }

    #[test]
    fn a_pod_keeps_its_last_fifty_and_all_together_a_thousand() {
        let mut event_cache = EventCache::new("lab");
        let (noisy, calm) = (pod("noisy"), pod("calm"));
        event_cache.record(&occurrence(&calm, &Reason::Started, "x"), at(0));
        for i in 0..200 {
            event_cache.record(&occurrence(&noisy, &Reason::Failed, &format!("error {i}")), at(i));
        }
        assert_eq!(event_cache.counts(), (2, 51, 0));
        assert_eq!(all(&event_cache, at(200))[1]["message"], "error 150");
        for p in 0..40 {
            let other = pod(&format!("p{p}"));
            for i in 0..50 {
                event_cache.record(&occurrence(&other, &Reason::Failed, &format!("error {p} {i}")), at(300));
            }
        }
        let (pods, kept, _) = event_cache.counts();
        assert_eq!((pods, kept), (42, 1000));
        let shown = all(&event_cache, at(301));
        assert!(shown.iter().any(|e| e["involvedObject"]["name"] == "calm"), "the noisy ones pay");
        let fewest = (0..40).map(|p| {
            let name = format!("p{p}");
            shown.iter().filter(|e| e["involvedObject"]["name"] == *name).count()
        });
        assert!(fewest.min() >= Some(20));
        for i in 0..300 {
            let node = Occurrence { object: None, ..occurrence(&calm, &Reason::Conflict, "") };
            event_cache.record(&Occurrence { message: &format!("{i}"), ..node }, at(302));
        }
        assert_eq!(event_cache.counts(), (42, 1000, 100));
    }

    #[test]
    fn events_outlive_their_pod_by_an_hour_and_stay_while_it_lives() {
        let mut event_cache = EventCache::new("lab");
        let (gone, lives) = (pod("gone"), pod("lives"));
        event_cache.record(&occurrence(&gone, &Reason::Started, "x"), at(0));
        event_cache.record(&occurrence(&lives, &Reason::Started, "x"), at(0));
        event_cache.record(&Occurrence { object: None, ..occurrence(&lives, &Reason::Starting, "wherry") }, at(0));
        event_cache.record(&occurrence(&gone, &Reason::Killing, "y"), at(100));
        event_cache.pod_gone(&gone.0);
        let names = |now| -> Vec<String> {
            all(&event_cache, now).iter().map(|e| e["metadata"]["name"].as_str().unwrap().to_string()).collect()
        };
        assert_eq!(names(at(3599)), ["gone.1", "lives.2", "lab.3", "gone.4"]);
        assert_eq!(names(at(3600)), ["lives.2", "gone.4"]);
        assert_eq!(names(at(3700)), ["lives.2"]);
        event_cache.record(&occurrence(&lives, &Reason::Killing, "z"), at(100_000));
        assert_eq!((event_cache.counts(), event_cache.texts.len()), ((1, 2, 0), 3), "{:?}", event_cache.texts);
    }

    #[test]
    fn a_list_continues_at_its_last_position() {
        let mut event_cache = EventCache::new("lab");
        let web = pod("web");
        for i in 0..40 {
            event_cache.record(&occurrence(&web, &Reason::Failed, &format!("error {i}")), at(i));
        }
        let (mut list, mut watch) = (None, event_cache.begin());
        let mut read = |is_list: bool| {
            let (mut more, mut pieces, mut text) = (true, 0, Vec::new());
            while more {
                let mut out = Vec::new();
                more = match is_list {
                    true => event_cache.write_items(&mut list, at(50).boot, 1000, &mut out),
                    false => event_cache.write_changes(&mut watch, at(50).boot, 1000, &mut out),
                };
                assert!(out.len() < 1500);
                text.extend(out);
                pieces += 1;
            }
            assert!(pieces > 5);
            String::from_utf8(text).unwrap()
        };
        let items: Vec<Value> = serde_json::from_str(&format!("[{}]", read(true))).unwrap();
        let lines: Vec<Value> = read(false).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((items.len(), lines.len(), list, watch.sent), (40, 40, Some(40), 40));
        assert_eq!((&items[39]["message"], &lines[39]["type"]), (&json!("error 39"), &json!("ADDED")));
    }

    #[test]
    fn a_slow_watch_learns_how_many_events_were_dropped_before_it_could_get_them() {
        let mut event_cache = EventCache::new("lab");
        let (noisy, web) = (pod("noisy"), pod("web"));
        let fail = |event_cache: &mut EventCache, times: std::ops::Range<u64>| {
            times.for_each(|i| {
                event_cache.record(&occurrence(&noisy, &Reason::Failed, &format!("error {i}")), at(1));
            });
        };
        fail(&mut event_cache, 0..30);
        let mut watch = event_cache.begin();
        assert_eq!(lines(&event_cache, &mut watch).len(), 30);
        // The dropped events had been sent.
        fail(&mut event_cache, 30..80);
        let shown = |line: &Value| (line["type"].as_str().unwrap().to_owned(), line["count"].as_u64());
        let added = ("ADDED".to_owned(), None);
        assert!(lines(&event_cache, &mut watch).iter().all(|line| shown(line) == added));
        // Ten of the new events were dropped, and all of the fifty before them.
        fail(&mut event_cache, 80..140);
        event_cache.record(&occurrence(&web, &Reason::Started, "x"), at(2));
        let new = lines(&event_cache, &mut watch);
        assert_eq!((shown(&new[0]), new.len()), (("LOST".to_owned(), Some(10)), 52));
        assert!(new[1..].iter().all(|line| shown(line) == added));
        assert!(lines(&event_cache, &mut watch).is_empty());
        // The orders of the first dropped events are no longer known, so the fifty that were sent are counted too.
        fail(&mut event_cache, 140..1140);
        assert_eq!(shown(&lines(&event_cache, &mut watch)[0]), ("LOST".to_owned(), Some(1000)));
        let (sent, mut late) = (watch, event_cache.begin());
        assert_eq!(lines(&event_cache, &mut late).len(), 51, "a new watch has lost nothing");
        assert_eq!(sent.sent, late.sent);
    }

    #[test]
    fn restored_events_are_as_before_and_those_of_pods_that_are_gone_end() {
        let mut before = EventCache::new("lab");
        let (web, gone) = (pod("web"), pod("gone"));
        before.record(&occurrence(&web, &Reason::BackOff, "again"), at(0));
        before.record(&occurrence(&gone, &Reason::Started, "Started container main"), at(1));
        before.record(&occurrence(&web, &Reason::BackOff, "again"), at(2));
        let node = Occurrence { object: None, field_path: None, ..occurrence(&web, &Reason::Starting, "hello") };
        before.record(&node, at(3));
        let mut after = EventCache::new("lab");
        after.restore(before.kept(at(4).boot).collect(), at(4).boot);
        assert_eq!((all(&after, at(4)), after.counts()), (all(&before, at(4)), (2, 2, 1)));
        // A repetition is counted, and a new event has a new name.
        after.pod_exists(&web.0);
        after.record(&occurrence(&web, &Reason::BackOff, "again"), at(5));
        after.record(&occurrence(&web, &Reason::Started, "Started container main"), at(6));
        let names: BTreeSet<String> = all(&after, at(6)).iter().map(|e| e["metadata"]["name"].to_string()).collect();
        assert_eq!(names.len(), 4);
        let later = all(&after, at(3700));
        let shown: Vec<(&Value, &Value)> = later.iter().map(|e| (&e["reason"], &e["count"])).collect();
        assert_eq!(shown, [(&json!("BackOff"), &json!(3)), (&json!("Started"), &json!(1))]);
        // The limits also apply to a file of another version.
        let mut full = EventCache::new("lab");
        let many =
            (0..5000).map(|id| KeptEvent { id, order: id, pod: None, ..before.kept(at(4).boot).next().unwrap() });
        full.restore(many.collect(), at(4).boot);
        assert_eq!(full.counts(), (0, 0, OF_THE_NODE));
    }

    /// A running pod has three events (Pulled, Created, Started). Most of their messages are the same for all pods.
    #[test]
    fn an_event_costs_a_hundred_bytes_and_its_text_once() {
        assert!(size_of::<Kept>() <= 104, "{}", size_of::<Kept>());
        let mut event_cache = EventCache::new("lab");
        for p in 0..300 {
            let one = pod(&format!("p{p}"));
            event_cache.record(
                &occurrence(&one, &Reason::Pulled, "Container image \"i:1\" already present on machine"),
                at(0),
            );
            event_cache.record(&occurrence(&one, &Reason::Created, "Created container main"), at(0));
            event_cache.record(&occurrence(&one, &Reason::Started, "Started container main"), at(0));
        }
        assert_eq!(event_cache.counts(), (300, 900, 0));
        // Three messages and the path of a container.
        assert_eq!(event_cache.texts.len(), 4);
        let long = "\u{e4}".repeat(5000);
        event_cache.record(&occurrence(&pod("p0"), &Reason::Failed, &long), at(1));
        assert!(event_cache.texts.iter().all(|t| t.chars().count() <= MAX_MESSAGE));
    }
}
