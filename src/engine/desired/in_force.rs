//! D6, A5: if several documents define the same ConfigMap, Secret, class or workload, the one that is in force stays
//! in force, whatever another file defines. As for pods (D4), it is recognized by the path of its file. A record
//! preserves the paths across a restart.

use crate::api::claim::Claim;
use crate::api::data_object::DataObject;
use crate::api::network_object::NetworkObject;
use crate::api::objects::Objects;
use crate::api::ordered::OrderSlice;
use crate::api::plain_object::PlainObject;
use crate::api::priority::PriorityClass;
use crate::api::reason::Reason;
use crate::api::runtime_class::RuntimeClass;
use crate::api::source::Source;
use crate::api::time::Boot;
use crate::api::workload::Workload;
use crate::engine::effect::{RecordChange, Severity};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::rewriting::Rewriting;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The key of the record. It exists while manifests define such objects.
pub const KEY: &str = "documents/in-force";
pub const KIND: &str = "documents";
const VERSION: u64 = 1;

/// The path of each object's file, by kind and name.
type Paths = BTreeMap<String, String>;

/// The record's content.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    version: u64,
    paths: Paths,
}

#[derive(Debug, Default, Serialize)]
pub struct InForce {
    paths: Paths,
    /// The other documents of these objects: objects and paths.
    others: Vec<(String, String)>,
    writing: Rewriting,
}

/// An object of which one document is in force.
trait Defined {
    /// Returns the kind and the name.
    fn object(&self) -> String;
    fn source(&self) -> &Source;
}

impl Defined for PriorityClass {
    fn object(&self) -> String {
        format!("PriorityClass {}", self.name)
    }

    fn source(&self) -> &Source {
        &self.source
    }
}

impl Defined for RuntimeClass {
    fn object(&self) -> String {
        format!("RuntimeClass {}", self.name)
    }

    fn source(&self) -> &Source {
        &self.source
    }
}

impl Defined for Rc<DataObject> {
    fn object(&self) -> String {
        self.key.to_string()
    }

    fn source(&self) -> &Source {
        &self.source
    }
}

impl Defined for Rc<Claim> {
    fn object(&self) -> String {
        self.key.to_string()
    }

    fn source(&self) -> &Source {
        &self.source
    }
}

impl Defined for Rc<NetworkObject> {
    fn object(&self) -> String {
        self.key().to_string()
    }

    fn source(&self) -> &Source {
        &self.source
    }
}

impl Defined for Rc<PlainObject> {
    fn object(&self) -> String {
        self.key.to_string()
    }

    fn source(&self) -> &Source {
        &self.source
    }
}

impl Defined for Workload {
    fn object(&self) -> String {
        self.head().key.to_string()
    }

    fn source(&self) -> &Source {
        &self.head().source
    }
}

/// Returns the message of an event: the document now defines the object.
pub fn takes_over(source: &Source, object: &str, before: &str) -> String {
    let Source { path, document } = source;
    format!("{object} is now taken from {path} (document {document}), because {before} no longer defines it")
}

impl InForce {
    /// Takes the record of the previous process, which was found at the start.
    pub fn record_found(&mut self, text: &str, outbox: &mut Outbox) {
        let why = match serde_json::from_str(text) {
            Ok(Record { version: VERSION, paths }) => {
                self.paths = paths;
                return;
            }
            Ok(Record { version, .. }) => format!("version {version} is unknown"),
            Err(e) => e.to_string(),
        };
        self.writing.changed();
        let message = format!("record {KEY} is unusable: {why}; writing it again");
        outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
    }

    /// Puts the documents that are in force before the others, and reports each object that now comes from another
    /// file because the previous file no longer defines it.
    pub fn choose(&mut self, objects: &mut Objects, outbox: &mut Outbox) {
        let (mut paths, mut others) = (Paths::new(), Vec::new());
        self.put_first(&mut objects.classes, &mut paths, &mut others, outbox);
        self.put_first(&mut objects.runtime_classes, &mut paths, &mut others, outbox);
        self.put_first(&mut objects.data, &mut paths, &mut others, outbox);
        self.put_first(&mut objects.claims, &mut paths, &mut others, outbox);
        self.put_first(&mut objects.network, &mut paths, &mut others, outbox);
        self.put_first(&mut objects.plain, &mut paths, &mut others, outbox);
        self.put_first(&mut objects.workloads, &mut paths, &mut others, outbox);
        if self.paths != paths {
            self.writing.changed();
        }
        (self.paths, self.others) = (paths, others);
    }

    fn put_first<T: Defined>(
        &self,
        all: &mut [T],
        paths: &mut Paths,
        others: &mut Vec<(String, String)>,
        outbox: &mut Outbox,
    ) {
        all.order_by_key(|one| self.paths.get(&one.object()) != Some(&one.source().path));
        for one in all {
            let (object, path) = (one.object(), one.source().path.clone());
            if paths.contains_key(&object) {
                others.push((object, path));
                continue;
            }
            let other = (object, path);
            if self.others.contains(&other)
                && let Some(before) = self.paths.get(&other.0).filter(|before| **before != other.1)
            {
                let message = takes_over(one.source(), &other.0, before);
                outbox.emit_node_event(Severity::Normal, Reason::ConflictEnded, message);
            }
            paths.insert(other.0, other.1);
        }
    }

    /// Writes the record if that is due. A failure matters only if another document defines the same object and
    /// Wherry is restarted before the next write.
    pub fn write(&mut self, now: Boot, outbox: &mut Outbox) {
        if !self.writing.begins(now) {
            return;
        }
        let key = KEY.to_owned();
        let record = || Record { version: VERSION, paths: self.paths.clone() };
        let change = match self.paths.is_empty() {
            true => RecordChange::Delete { key },
            false => RecordChange::Put { key, value: serde_json::to_string(&record()).unwrap_or_default() },
        };
        outbox.record(Owner::InForce, change);
    }

    /// Handles the end of writing or removing the record.
    pub fn written(&mut self, well: bool, now: Boot) {
        self.writing.ended(well, now);
    }
}
