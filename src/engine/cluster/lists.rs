//! The services of the namespaces whose pods run here, for the environment of their containers, and the RuntimeClasses,
//! if a pod names one. Each list is on the disk before a pod uses it.
//!
//! *(ours)* A kubelet follows the services of all namespaces.

use super::reflector::{Change, MOST_OBJECTS, Reflector, Step};
use super::warning::warn;
use crate::api::cluster::reduced::{self, Handler, KIND, Named, Reduced};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::watched::Watched;
use crate::api::pod::Pod;
use crate::api::runtime_class::{self, RuntimeClasses};
use crate::api::services::{KUBERNETES, Service, Services, has_links};
use crate::api::time::Boot;
use crate::engine::effect::{Effect, RecordChange};
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const CLASSES: &str = "lists/runtimeclasses";

#[derive(Debug, Default, Serialize)]
pub struct Lists {
    /// The lists of services, by namespace.
    services: BTreeMap<Rc<str>, List<Service>>,
    classes: Option<List<Handler>>,
    #[serde(skip)]
    service_values: Services,
    #[serde(skip)]
    class_values: RuntimeClasses,
    changed: Changed,
}

/// Whether a list has changed since the last call of `take_changed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
enum Changed {
    #[default]
    No,
    Yes,
}

/// The objects of one collection.
#[derive(Debug, Serialize)]
#[serde(bound = "")]
struct List<T: Reduced> {
    record: String,
    reflector: Reflector<Named<T>>,
    #[serde(skip)]
    items: BTreeMap<Box<str>, T>,
    state: State,
}

#[derive(Debug, Serialize)]
enum State {
    Unknown,
    /// The first version of the list is being written.
    Saving(OpId),
    Known,
}

impl Lists {
    pub fn services(&self) -> &Services {
        &self.service_values
    }

    pub fn classes(&self) -> &RuntimeClasses {
        &self.class_values
    }

    /// Returns true if the lists that the pod needs have been read from the server or from the disk.
    pub fn know(&self, pod: &Pod) -> bool {
        let mut namespaces = namespaces(pod);
        namespaces.all(|of| self.services.get(of).is_some_and(List::is_known))
            && (runtime_class::named(pod.spec()).is_none() || self.classes.as_ref().is_some_and(List::is_known))
    }

    /// Returns true if a list has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed) == Changed::Yes
    }

    /// Takes a list from its record. An unusable record is moved aside.
    pub fn record_found(&mut self, key: &str, text: &str, outbox: &mut Outbox) {
        let taken = match services_of(key) {
            Some(namespace) => reduced::read(text).map(|items| {
                let list = List { items, state: State::Known, ..List::services(namespace.into()) };
                self.service_values.set(namespace, list.items.clone());
                self.services.insert(namespace.into(), list);
            }),
            None if key == CLASSES => reduced::read(text).map(|items| {
                self.classes = Some(List { items, state: State::Known, ..List::classes() });
                self.show_classes();
            }),
            None => Err("it belongs to no list".to_owned()),
        };
        if let Err(why) = taken {
            warn(outbox, format!("record {key} is unusable: {why}; moving it aside"));
            outbox.record(Owner::Cluster, RecordChange::SetAside { key: key.to_owned() });
        }
    }

    /// Follows the lists that these pods need.
    pub fn follow<'p>(&mut self, pods: impl Iterator<Item = &'p Pod>, outbox: &mut Outbox) {
        let (mut wanted, mut with_class) = (BTreeSet::new(), false);
        for pod in pods {
            wanted.extend(namespaces(pod).map(Rc::<str>::from));
            with_class |= runtime_class::named(pod.spec()).is_some();
        }
        let unused: Vec<Rc<str>> = self.services.keys().filter(|of| !wanted.contains(*of)).cloned().collect();
        for namespace in unused {
            self.service_values.remove(&namespace);
            if let Some(list) = self.services.remove(&namespace) {
                list.discard(outbox);
            }
        }
        for namespace in wanted {
            self.services.entry(namespace.clone()).or_insert_with(|| List::services(namespace));
        }
        if with_class {
            self.classes.get_or_insert_with(List::classes);
        } else if let Some(list) = self.classes.take() {
            self.show_classes();
            list.discard(outbox);
        }
    }

    pub fn next(&self) -> Option<Boot> {
        let services = self.services.values().filter_map(|list| list.reflector.next());
        services.chain(self.classes.iter().filter_map(|list| list.reflector.next())).min()
    }

    pub fn hurry(&mut self) {
        self.services.values_mut().for_each(|list| list.reflector.hurry());
        self.classes.iter_mut().for_each(|list| list.reflector.hurry());
    }

    pub fn step(&mut self, step: &mut Step<'_>) {
        self.services.values_mut().for_each(|list| list.reflector.step(step));
        self.classes.iter_mut().for_each(|list| list.reflector.step(step));
    }

    /// Returns false if the operation does not belong to these lists.
    pub fn item(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) -> bool {
        if let Some(list) = self.services.values_mut().find(|list| list.reflector.op() == Some(op)) {
            list.reflector.item(op, json, &|object, _| Named::read(&object).map(Some), step);
        } else if let Some(list) = self.classes.as_mut().filter(|list| list.reflector.op() == Some(op)) {
            list.reflector.item(op, json, &|object, _| Named::read(&object).map(Some), step);
        } else {
            return false;
        }
        true
    }

    /// Returns false if the operation does not belong to these lists.
    pub fn line(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) -> bool {
        if let Some((namespace, list)) = of_op(&mut self.services, op) {
            let change = list.reflector.line(op, json, &|object, _| Named::read(&object).map(Some), step);
            self.take_services(&namespace, change, step.outbox);
        } else if let Some(list) = self.classes.as_mut().filter(|list| list.reflector.op() == Some(op)) {
            let change = list.reflector.line(op, json, &|object, _| Named::read(&object).map(Some), step);
            self.take_classes(change, step.outbox);
        } else {
            return false;
        }
        true
    }

    /// Returns false if the operation does not belong to these lists.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> bool {
        if let Some((namespace, list)) = of_op(&mut self.services, op) {
            let change = list.reflector.ended(op, result, step);
            self.take_services(&namespace, change, step.outbox);
        } else if let Some(list) = self.classes.as_mut().filter(|list| list.reflector.op() == Some(op)) {
            let change = list.reflector.ended(op, result, step);
            self.take_classes(change, step.outbox);
        } else {
            return false;
        }
        true
    }

    /// Handles the result of writing a record. Returns false if the record does not belong to these lists.
    pub fn recorded(&mut self, op: OpId, result: &Result<(), OpError>, outbox: &mut Outbox) -> bool {
        let services = self.services.values_mut().map(|list| (&list.record, &mut list.state));
        let classes = self.classes.iter_mut().map(|list| (&list.record, &mut list.state));
        let mut all = services.chain(classes);
        let Some((record, state)) = all.find(|(_, state)| matches!(state, State::Saving(of) if *of == op)) else {
            return false;
        };
        if let Err(e) = result {
            // A full disk must not stop the pods of a node that is connected.
            warn(outbox, format!("record {record} cannot be written: {}", e.message()));
        }
        *state = State::Known;
        self.changed = Changed::Yes;
        true
    }

    fn take_services(&mut self, namespace: &Rc<str>, change: Option<Change<Named<Service>>>, outbox: &mut Outbox) {
        let Some((change, list)) = change.zip(self.services.get_mut(namespace)) else { return };
        if list.take(change, outbox) {
            self.service_values.set(namespace, list.items.clone());
        }
    }

    fn take_classes(&mut self, change: Option<Change<Named<Handler>>>, outbox: &mut Outbox) {
        let Some((change, list)) = change.zip(self.classes.as_mut()) else { return };
        if list.take(change, outbox) {
            self.show_classes();
            // Pods may be waiting for a class.
            self.changed = Changed::Yes;
        }
    }

    fn show_classes(&mut self) {
        let all = self.classes.iter().flat_map(|list| list.items.iter());
        self.class_values = RuntimeClasses::collect(all.map(|(name, handler)| handler.class(name))).0;
    }
}

/// Returns the namespaces whose services are in the environment of the pod's containers.
fn namespaces(pod: &Pod) -> impl Iterator<Item = &str> {
    has_links(pod).then_some(&*pod.name.namespace).into_iter().chain([KUBERNETES.0])
}

/// Returns the namespace of a services record. None if the key belongs to another record.
fn services_of(key: &str) -> Option<&str> {
    key.strip_prefix(KIND)?.strip_prefix("/services.")
}

fn of_op(all: &mut BTreeMap<Rc<str>, List<Service>>, op: OpId) -> Option<(Rc<str>, &mut List<Service>)> {
    let mut all = all.iter_mut();
    all.find(|(_, list)| list.reflector.op() == Some(op)).map(|(namespace, list)| (namespace.clone(), list))
}

impl List<Service> {
    fn services(namespace: Rc<str>) -> List<Service> {
        List::new(format!("{KIND}/services.{namespace}"), Watched::Services(namespace))
    }
}

impl List<Handler> {
    fn classes() -> List<Handler> {
        List::new(CLASSES.to_owned(), Watched::RuntimeClasses)
    }
}

impl<T: Reduced> List<T> {
    fn new(record: String, watched: Watched) -> List<T> {
        List { record, reflector: Reflector::new(watched), items: BTreeMap::new(), state: State::Unknown }
    }

    fn is_known(&self) -> bool {
        matches!(self.state, State::Known)
    }

    /// Applies the change, and writes the list if it has changed. Returns whether it has changed, which is always
    /// true for the first list.
    fn take(&mut self, change: Change<Named<T>>, outbox: &mut Outbox) -> bool {
        let before = self.items.clone();
        let set = |items: &mut BTreeMap<Box<str>, T>, Named { name, content }| match content {
            Some(content) => drop(items.insert(name, content)),
            None => drop(items.remove(&name)),
        };
        match change {
            Change::All(all, gaps) => {
                let namespace = self.reflector.watched.namespace();
                self.items.retain(|name, _| gaps.may_have(None, namespace, name));
                all.into_iter().for_each(|named| set(&mut self.items, named));
            }
            // The object is taken from the next list, if there is space for it by then.
            Change::Set(Named { name, .. }) if self.items.len() >= MOST_OBJECTS && !self.items.contains_key(&name) => {}
            Change::Set(named) => set(&mut self.items, named),
            Change::Gone(Named { name, .. }) => drop(self.items.remove(&name)),
        }
        let is_first = matches!(self.state, State::Unknown);
        if !is_first && self.items == before {
            return false;
        }
        let change = RecordChange::Put { key: self.record.clone(), value: reduced::write(&self.items) };
        let op = outbox.record(Owner::Cluster, change);
        if is_first {
            self.state = State::Saving(op);
        }
        true
    }

    /// Cancels the request in flight and deletes the record, because no pod needs the list any longer.
    fn discard(self, outbox: &mut Outbox) {
        if let Some(op) = self.reflector.op() {
            outbox.push(Effect::Cancel { op });
        }
        outbox.record(Owner::Cluster, RecordChange::Delete { key: self.record });
    }
}
