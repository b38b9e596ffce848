//! The ConfigMaps and Secrets of the API server's pods. Each has its own list and watch, because a node may read them
//! only by name. Each object is on the disk before a pod uses it, so that the node keeps working without the server,
//! even after a reboot.

use super::reflector::{Change, Reflector, Step};
use super::sealing::Protection;
use super::warning::warn;
use crate::api::cluster::data_record::{self, Fetched};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::watched::Watched;
use crate::api::data_object::{DataKey, DataKind, DataObjects};
use crate::api::time::Boot;
use crate::engine::effect::{Effect, RecordChange};
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default, Serialize)]
pub struct Data {
    followed: BTreeMap<DataKey, Followed>,
    /// The values in use.
    #[serde(skip)]
    objects: DataObjects,
    #[serde(skip)]
    changed: Vec<DataKey>,
    /// The record writes in flight. An object becomes usable when its record is durable.
    writes: BTreeMap<OpId, DataKey>,
}

#[derive(Debug, Serialize)]
struct Followed {
    reflector: Reflector<Fetched>,
    /// The version that is being written.
    #[serde(skip)]
    next: Option<Fetched>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum State {
    /// Neither the server nor the disk has provided the object yet.
    Unknown,
    /// The copy on the disk cannot be opened (C15), and the server has not answered.
    Locked,
    /// The object, or its absence, is known.
    Known,
}

impl Data {
    /// Takes an object from its record. Returns false if the record is unusable and is moved aside.
    pub fn record_found(&mut self, key: &str, text: &str, outbox: &mut Outbox) -> bool {
        match data_record::read(key, text) {
            Ok(fetched) => {
                let data_key = fetched.object.key.clone();
                let mut followed = Followed::new(&data_key);
                if let Some(version) = fetched.version() {
                    followed.reflector.not_older_than(version);
                }
                self.objects.replace(fetched.object);
                followed.state = State::Known;
                self.followed.insert(data_key, followed);
                true
            }
            Err(why) => {
                warn(outbox, format!("record {key} is unusable: {why}; moving it aside"));
                outbox.record(Owner::Cluster, RecordChange::SetAside { key: key.to_owned() });
                false
            }
        }
    }

    /// Handles a record that cannot be opened. It is kept until the server answers.
    pub fn record_locked(&mut self, key: &str) {
        let Some(data_key) = data_record::data_key(key) else { return };
        self.objects.lock(data_key.clone());
        let mut followed = Followed::new(&data_key);
        followed.state = State::Locked;
        self.followed.insert(data_key, followed);
    }

    /// Returns the values in use.
    pub fn objects(&self) -> &DataObjects {
        &self.objects
    }

    /// Returns true if every one of these objects is known: read from the server or from the disk, or known not to
    /// exist.
    pub fn knows(&self, mut keys: impl Iterator<Item = DataKey>) -> bool {
        keys.all(|key| self.followed.get(&key).is_some_and(|f| f.state == State::Known))
    }

    /// Returns the objects that have changed since the last call.
    pub fn take_changed(&mut self) -> Vec<DataKey> {
        std::mem::take(&mut self.changed)
    }

    /// Follows the objects that pods refer to, and discards all others.
    pub fn follow(&mut self, keys: BTreeSet<DataKey>, outbox: &mut Outbox) {
        let unused: Vec<DataKey> = self.followed.keys().filter(|key| !keys.contains(key)).cloned().collect();
        for key in unused {
            let Some(followed) = self.followed.remove(&key) else { continue };
            if let Some(op) = followed.reflector.op() {
                outbox.push(Effect::Cancel { op });
            }
            self.objects.remove(&key);
            outbox.record(Owner::Cluster, RecordChange::Delete { key: data_record::key(&key) });
        }
        for key in keys {
            self.followed.entry(key.clone()).or_insert_with(|| Followed::new(&key));
        }
    }

    pub fn next(&self) -> Option<Boot> {
        self.followed.values().filter_map(|f| f.reflector.next()).min()
    }

    pub fn hurry(&mut self) {
        self.followed.values_mut().for_each(|f| f.reflector.hurry());
    }

    pub fn step(&mut self, step: &mut Step<'_>) {
        for followed in self.followed.values_mut() {
            followed.reflector.step(step);
        }
    }

    pub fn item(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) {
        if let Some((_, followed)) = self.by_op(op) {
            followed.reflector.item(op, json, &|object, _| Fetched::read(object).map(Some), step);
        }
    }

    pub fn line(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) {
        let Some((key, followed)) = self.by_op(op) else { return };
        if let Some(change) = followed.reflector.line(op, json, &|object, _| Fetched::read(object).map(Some), step) {
            self.take(&key, change, step);
        }
    }

    /// Returns false if the operation does not belong to the ConfigMaps and Secrets.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> bool {
        let Some((key, followed)) = self.by_op(op) else { return false };
        if let Some(change) = followed.reflector.ended(op, result, step) {
            self.take(&key, change, step);
        }
        true
    }

    /// Handles the result of writing a record. Returns false if the record is not a ConfigMap or Secret.
    pub fn recorded(&mut self, op: OpId, result: &Result<(), OpError>, outbox: &mut Outbox) -> bool {
        let Some(key) = self.writes.remove(&op) else { return false };
        if !self.followed.contains_key(&key) {
            return true;
        }
        // A later version is being written, and its result decides.
        if self.writes.values().any(|other| *other == key) {
            return true;
        }
        if let Err(e) = result {
            // A full disk must not stop the pods of a node that is connected.
            warn(outbox, format!("{key} cannot be kept on the disk: {}", e.message()));
        }
        self.use_next(key);
        true
    }

    /// Puts the last version that the server has sent into use.
    fn use_next(&mut self, key: DataKey) {
        let Some(followed) = self.followed.get_mut(&key) else { return };
        if let Some(fetched) = followed.next.take() {
            followed.state = State::Known;
            self.objects.replace(fetched.object);
            self.changed.push(key);
        }
    }

    fn by_op(&mut self, op: OpId) -> Option<(DataKey, &mut Followed)> {
        let mut all = self.followed.iter_mut();
        all.find(|(_, f)| f.reflector.op() == Some(op)).map(|(key, followed)| (key.clone(), followed))
    }

    fn take(&mut self, key: &DataKey, change: Change<Fetched>, step: &mut Step<'_>) {
        let outbox = &mut *step.outbox;
        let now = match change {
            // An item of the list was unusable, so the state on the server is unknown.
            Change::All(list, gaps) if list.is_empty() && gaps.are_any() => return,
            Change::All(mut list, _) => list.pop(),
            Change::Set(object) => Some(object),
            Change::Gone(_) => None,
        };
        let Some(followed) = self.followed.get_mut(key) else { return };
        match now {
            // The response contains a different object than the requested one.
            Some(fetched) if fetched.object.key != *key => {
                warn(outbox, format!("the API server responded with {} for {key}", fetched.object.key));
            }
            Some(fetched) => {
                let same = self.objects.get(key).is_some_and(|old| old.digest == fetched.object.digest);
                if same && followed.state == State::Known && followed.next.is_none() {
                    return;
                }
                let protection = match key.kind {
                    DataKind::ConfigMap => Protection::Plain,
                    DataKind::Secret => step.protection,
                };
                let change = protection.put(data_record::key(key), data_record::write(&fetched));
                followed.next = Some(fetched);
                match change {
                    Some(change) => {
                        self.writes.insert(outbox.record(Owner::Cluster, change), key.clone());
                    }
                    None => self.use_next(key.clone()),
                }
            }
            None => {
                followed.next = None;
                followed.state = State::Known;
                if self.objects.remove(key) {
                    outbox.record(Owner::Cluster, RecordChange::Delete { key: data_record::key(key) });
                }
                self.changed.push(key.clone());
            }
        }
    }
}

impl Followed {
    fn new(key: &DataKey) -> Followed {
        Followed { reflector: Reflector::new(Watched::Data(key.clone())), next: None, state: State::Unknown }
    }
}
