//! The manifest directory: what its files contain, what the engine has received of them, and their records. And a model of
//! D2 and A5 that does not use the engine's code: the version of each file that has to be in force.

use super::{Item, Key, MS, World};
use crate::chance::Chaos;
use crate::story::{Manifest, read};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::rc::Rc;
use wherry::api::data_object::DockerFormat;
use wherry::api::document;
use wherry::api::manifest_report::{
    DirectoryState, DocumentUpdate, FileContent, FileReport, FileText, ManifestReport, NamedCredentials, RecordUpdate,
    RecordedDocument,
};
use wherry::api::pod::Pod;
use wherry::api::priority;
use wherry::engine::desired::conflict::Common;
use wherry::engine::effect::RemovedManifest;
use wherry::engine::effect::RuntimeCall;
use wherry::engine::event::{Answer, Event};
use wherry::engine::op::{Code, OpError, OpId};
use wherry_engine::api::k8s::Quantity;

/// The manifest directory.
pub const DIRECTORY: &str = "/m";
/// The cpu that a pod of a RuntimeClass of a story needs in addition.
const OVERHEAD: &str = "100m";
/// A file that was being written at the start is complete after this time (ns).
const WRITTEN_AFTER: u64 = 1000 * MS;

#[derive(Default)]
pub struct Manifests {
    /// The values of PriorityClasses by name, each in a file of its own.
    classes: BTreeMap<String, i32>,
    /// The handlers of RuntimeClasses by name.
    runtime_classes: BTreeMap<String, String>,
    /// The key and the value of Secrets by name.
    secrets: BTreeMap<String, (String, String)>,
    /// The texts of Deployments and DaemonSets, each in a file of its own.
    workloads: BTreeMap<String, String>,
    /// Copies of the files of classes and Secrets. They sort before the originals.
    copied_classes: BTreeMap<String, i32>,
    copied_secrets: BTreeMap<String, (String, String)>,
    /// Files of pods that contain this broken text at the moment.
    broken: BTreeMap<String, String>,
    /// Those that were being written when the engine started.
    unfinished: BTreeSet<String>,
    /// Those that are being written at the next start.
    pub written_at_start: BTreeSet<String>,
    /// Every user of the machine can read the files.
    pub open: bool,
    /// The number of writes of records.
    pub stored: u64,
    /// The files that are missing and do not count as removed yet, with their texts.
    leaving: BTreeMap<String, String>,
    /// The directory cannot be read.
    away: bool,
    /// The texts that this engine has received by path. None: it knows that the file exists.
    known: Option<BTreeMap<String, Option<String>>>,
    /// The directory as in the last report.
    directory: DirectoryState,
    /// The records, on disk.
    recorded: BTreeMap<OsString, Vec<RecordedDocument>>,
    /// Each version of each file so far, by path and digest.
    versions: BTreeMap<(String, String), Rc<Pod>>,
    /// The last good version of each file, with the values of its classes.
    last: BTreeMap<String, Rc<Pod>>,
    /// The versions that have to be in force, by file.
    pub in_force: BTreeMap<String, Rc<Pod>>,
    /// The files that define a pod and that no conflict keeps out of force, as this engine has received them.
    winners: BTreeSet<String>,
}

/// How the text of a file is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The second half is missing.
    Truncated,
    Empty,
    /// A field has a wrong name.
    Misspelled,
    /// The name of the pod is missing.
    Nameless,
}

impl Damage {
    pub const ALL: [Damage; 4] = [Damage::Truncated, Damage::Empty, Damage::Misspelled, Damage::Nameless];

    fn of(self, text: &str) -> String {
        match self {
            // A part of YAML may be valid.
            Damage::Truncated => format!("{}\n{{", &text[..text.len() / 2]),
            Damage::Empty => String::new(),
            Damage::Misspelled => text.replacen("containers:", "contaniers:", 1),
            Damage::Nameless => text.replacen("name:", "nmae:", 1),
        }
    }
}

type Files = BTreeMap<String, Manifest>;

impl Manifests {
    /// Files define classes or Secrets.
    pub fn has_objects(&self) -> bool {
        let has_classes = !self.classes.is_empty() || !self.runtime_classes.is_empty();
        has_classes || !self.secrets.is_empty() || !self.workloads.is_empty()
    }

    /// The text of each file on the disk.
    fn texts(&self, files: &Files) -> BTreeMap<String, String> {
        let pods = files.iter().map(|(path, manifest)| {
            let text = self.broken.get(path).cloned().unwrap_or_else(|| manifest.text.to_string());
            (path.clone(), text)
        });
        let classes = |of: &BTreeMap<String, i32>, prefix: &str| {
            let one = |(name, value): (&String, &i32)| {
                let kind = "apiVersion: scheduling.k8s.io/v1, kind: PriorityClass";
                (
                    format!("{DIRECTORY}/{prefix}class-{name}.yaml"),
                    format!("{{{kind}, metadata: {{name: {name}}}, value: {value}}}"),
                )
            };
            of.iter().map(one).collect::<Vec<_>>()
        };
        let secrets = |of: &BTreeMap<String, (String, String)>, prefix: &str| {
            let one = |(name, (key, value)): (&String, &(String, String))| {
                let is_docker = key == DockerFormat::ConfigJson.key();
                let secret_type = if is_docker { "kubernetes.io/dockerconfigjson" } else { "Opaque" };
                let text = serde_json::json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "type": secret_type,
                    "stringData": { key.as_str(): value },
                });
                (format!("{DIRECTORY}/{prefix}secret-{name}.yaml"), text.to_string())
            };
            of.iter().map(one).collect::<Vec<_>>()
        };
        let runtime_classes = self.runtime_classes.iter().map(|(name, handler)| {
            let text = format!(
                "{{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {{name: {name}}}, handler: {handler}, \
                 overhead: {{podFixed: {{cpu: {OVERHEAD}}}}}}}"
            );
            (format!("{DIRECTORY}/runtime-class-{name}.yaml"), text)
        });
        let more = classes(&self.classes, "").into_iter().chain(classes(&self.copied_classes, "a-copy-of-"));
        let more = more.chain(secrets(&self.secrets, "")).chain(secrets(&self.copied_secrets, "a-copy-of-"));
        let workloads = self.workloads.iter().map(|(file, text)| (format!("{DIRECTORY}/{file}"), text.clone()));
        let more = more.chain(workloads);
        let leaving = self.leaving.iter().map(|(path, text)| (path.clone(), text.clone()));
        pods.chain(more).chain(runtime_classes).chain(leaving).collect()
    }

    /// The version with the values of its classes. None: a class does not exist.
    fn with_classes(&self, pod: &Rc<Pod>) -> Option<Rc<Pod>> {
        let value = match &pod.spec().priority_class_name {
            Some(name) => Some(*self.classes.get(name).or_else(|| self.copied_classes.get(name))?),
            None => None,
        };
        let has_overhead = match &pod.spec().runtime_class_name {
            Some(name) => self.runtime_classes.contains_key(name).then_some(true)?,
            None => false,
        };
        Some(with_values(pod, value, has_overhead))
    }

    /// Computes which versions have to be in force.
    fn judge(&mut self, files: &Files) {
        if self.away {
            self.in_force = self.last.clone();
            return;
        }
        let of_file = |(path, manifest): (&String, &Manifest)| {
            let last = self.last.get(path);
            let version = match last.filter(|last| last.digest == manifest.pod.digest) {
                _ if self.broken.contains_key(path) => last?.clone(),
                Some(same) => same.clone(),
                None => self.with_classes(&manifest.pod).or_else(|| last.cloned())?,
            };
            Some((path.clone(), version))
        };
        self.in_force = files.iter().filter_map(of_file).collect();
    }

    /// The engine has received the files.
    fn received(&mut self, files: &Files) {
        if !self.away {
            self.last = self.in_force.clone();
        }
        for (path, manifest) in files {
            self.versions.insert((path.clone(), manifest.pod.digest.clone()), manifest.pod.clone());
        }
    }

    /// The engine's process has ended: what it has not recorded is lost.
    pub(super) fn engine_killed(&mut self, files: &Files) {
        self.known = None;
        let of_record = |(name, documents): (&OsString, &Vec<RecordedDocument>)| {
            let path = format!("{DIRECTORY}/{}", name.to_string_lossy());
            let [document] = documents.as_slice() else { return None };
            let pod = self.versions.get(&(path.clone(), document.digest.clone()))?;
            let priority = document.given.priority.as_ref().map(|given| given.value);
            let has_overhead = document.given.runtime_class.as_ref().is_some_and(|given| !given.overhead.is_empty());
            Some((path, with_values(pod, priority, has_overhead)))
        };
        self.last = self.recorded.iter().filter_map(of_record).collect();
        self.finish_writes();
        self.judge(files);
    }

    /// Without a record of a pod, an engine that has just started cannot know which file was in force.
    pub fn forget_precedence(&mut self) {
        self.winners.clear();
    }

    /// The files that were being written at the start are complete.
    pub(super) fn finish_writes(&mut self) {
        for path in std::mem::take(&mut self.unfinished) {
            // The file is reported again, also if its text is the same.
            if let (None, Some(known)) = (self.broken.remove(&path), &mut self.known) {
                known.remove(&path);
            }
        }
    }

    /// The file system of the directory is away.
    pub fn is_away(&self) -> bool {
        self.away
    }

    /// The record of a file.
    pub fn recorded(&self, path: &str) -> Option<&Vec<RecordedDocument>> {
        let name = path.strip_prefix(DIRECTORY)?.strip_prefix('/')?;
        self.recorded.get(&OsString::from(name))
    }

    /// Puts an earlier record of a file back.
    pub fn set_recorded(&mut self, path: &str, record: Vec<RecordedDocument>) {
        self.recorded.insert(OsString::from(&path[DIRECTORY.len() + 1..]), record);
    }

    /// The digests of the documents in the record of a file.
    pub fn recorded_digests(&self, path: &str) -> Option<Vec<&str>> {
        Some(self.recorded(path)?.iter().map(|document| document.digest.as_str()).collect())
    }

    /// The number of records.
    pub fn records(&self) -> usize {
        self.recorded.len()
    }

    /// Stores a record. False: a document has no content.
    fn store(&mut self, RecordUpdate { name, documents }: RecordUpdate) -> bool {
        let old = self.recorded.remove(&name).unwrap_or_default();
        let document = |update: DocumentUpdate| {
            let DocumentUpdate { number, digest, content, given } = update;
            let content = match content {
                Some(text) => serde_json::from_str(&text).ok(),
                None => old.iter().find(|old| old.digest == digest).map(|old| old.content.clone()),
            };
            Some(RecordedDocument { number, digest, content: content?, given })
        };
        let wanted = documents.len();
        let documents: Vec<RecordedDocument> = documents.into_iter().filter_map(document).collect();
        let complete = documents.len() == wanted;
        if !documents.is_empty() {
            self.recorded.insert(name, documents);
        }
        complete
    }

    /// What the engine does not know yet.
    fn report(&mut self, files: &Files) -> Option<ManifestReport> {
        let first = self.known.is_none();
        let mut known = self.known.take().unwrap_or_default();
        let directory = match self.away {
            true => DirectoryState::Unusable("cannot be read".to_owned()),
            false => DirectoryState::Usable,
        };
        let mut reports = Vec::new();
        let report = |path: &str, recorded: Option<Vec<RecordedDocument>>, content: FileContent| {
            let name = path[DIRECTORY.len() + 1..].into();
            FileReport { name, recorded, content, credentials: NamedCredentials::default() }
        };
        let path_of = |name: &OsString| format!("{DIRECTORY}/{}", name.to_string_lossy());
        if self.away && first {
            for (name, recorded) in &self.recorded {
                reports.push(report(&path_of(name), Some(recorded.clone()), FileContent::NotRead));
                known.insert(path_of(name), None);
            }
        }
        if !self.away {
            let texts = self.texts(files);
            known.retain(|path, _| {
                let stays = texts.contains_key(path);
                if !stays {
                    reports.push(report(path, None, FileContent::Removed));
                }
                stays
            });
            if first {
                let of_removed = self.recorded.iter().filter(|(name, _)| !texts.contains_key(&path_of(name)));
                let removed = of_removed
                    .map(|(name, recorded)| report(&path_of(name), Some(recorded.clone()), FileContent::Removed));
                reports.extend(removed);
            }
            for (path, text) in texts {
                if known.get(&path).is_some_and(|known| known.as_ref() == Some(&text)) {
                    continue;
                }
                let recorded = match known.contains_key(&path) {
                    true => None,
                    false => self.recorded.get(&OsString::from(&path[DIRECTORY.len() + 1..])).cloned(),
                };
                let settled = !self.unfinished.contains(&path);
                let (bytes, documents) = (text.clone().into_bytes(), document::parse(text.as_bytes(), &path));
                let content = FileContent::Text(Box::new(FileText { bytes, documents, open: self.open, settled }));
                reports.push(report(&path, recorded, content));
                known.insert(path, Some(text));
            }
        }
        self.known = Some(known);
        let changed = std::mem::replace(&mut self.directory, directory.clone()) != directory;
        let news = first || changed || !reports.is_empty();
        let missing = self.leaving.keys().map(|path| OsString::from(&path[DIRECTORY.len() + 1..])).collect();
        news.then_some(ManifestReport { files: reports, missing, directory, more: false })
    }
}

fn with_values(pod: &Rc<Pod>, priority: Option<i32>, has_overhead: bool) -> Rc<Pod> {
    if priority.is_none() && !has_overhead {
        return pod.clone();
    }
    let mut pod = Pod::clone(pod);
    if let Some(spec) = &mut pod.object.spec {
        spec.priority = priority.or(spec.priority);
        if has_overhead {
            spec.overhead = Some([("cpu".to_owned(), Quantity(OVERHEAD.into()))].into());
        }
    }
    Rc::new(pod)
}

impl World {
    pub fn set_files(&mut self, files: Files) {
        self.manifests_change(|w| {
            for path in w.files.keys().filter(|path| files.get(*path) != w.files.get(*path)) {
                w.manifests.broken.remove(path);
                w.manifests.unfinished.remove(path);
            }
            w.files = files;
        });
    }

    /// Breaks the text of a file.
    pub fn break_file(&mut self, path: &str, damage: Damage) {
        let Some(text) = self.files.get(path).map(|manifest| damage.of(&manifest.text)) else { return };
        self.manifests_change(|w| {
            w.manifests.unfinished.remove(path);
            w.manifests.broken.insert(path.to_owned(), text);
        });
    }

    /// The file has its good text again.
    pub fn repair_file(&mut self, path: &str) {
        self.manifests_change(|w| {
            w.manifests.unfinished.remove(path);
            w.manifests.broken.remove(path);
        });
    }

    /// Renames the file of a pod. The old name counts as removed a moment later.
    pub fn rename_file(&mut self, from: &str, to: &str) {
        let mut files = self.files.clone();
        let manifest = files.remove(from).unwrap_or_else(|| panic!("no file {from}"));
        files.insert(to.to_owned(), Manifest { pod: read(to, &manifest.text), text: manifest.text.clone() });
        self.manifests.leaving.insert(from.to_owned(), manifest.text.to_string());
        self.set_files(files);
        self.run_ms(10);
        self.manifests.leaving.clear();
        self.manifests_change(|_| {});
    }

    /// The text of a file.
    pub(super) fn text_of(&self, path: &str) -> Option<String> {
        self.manifests.texts(&self.files).remove(path)
    }

    /// The next changes of files do not reach the engine, until the directory comes back.
    pub fn manifests_away_silently(&mut self) {
        self.manifests.away = true;
    }

    /// The file system of the directory goes away or comes back.
    pub fn directory_is_away(&mut self, away: bool) {
        self.manifests_change(|w| w.manifests.away = away);
    }

    fn manifests_change(&mut self, change: impl FnOnce(&mut World)) {
        change(self);
        self.manifests.judge(&self.files);
        self.checks.desired(&self.engine, &self.manifests.in_force, self.clock.now, &self.runtime);
        self.note(|| "--- the manifests change".into());
        self.read_manifests();
    }

    pub fn define_class(&mut self, name: &str, value: i32) {
        self.manifests_change(|w| _ = w.manifests.classes.insert(name.into(), value));
    }

    /// Copies the file of a class, as an administrator does before an edit.
    pub fn copy_class(&mut self, name: &str) {
        self.manifests_change(|w| {
            let class = w.manifests.classes.get(name).copied();
            w.manifests.copied_classes.extend(class.map(|value| (name.to_owned(), value)));
        });
    }

    pub fn copy_secret(&mut self, name: &str) {
        self.manifests_change(|w| {
            let secret = w.manifests.secrets.get(name).cloned();
            w.manifests.copied_secrets.extend(secret.map(|secret| (name.to_owned(), secret)));
        });
    }

    pub fn remove_class(&mut self, name: &str) {
        self.manifests_change(|w| _ = w.manifests.classes.remove(name));
    }

    /// Defines a class with an overhead of 100m of cpu.
    pub fn define_runtime_class(&mut self, name: &str, handler: &str) {
        self.manifests_change(|w| drop(w.manifests.runtime_classes.insert(name.into(), handler.into())));
    }

    pub fn remove_runtime_class(&mut self, name: &str) {
        self.manifests_change(|w| drop(w.manifests.runtime_classes.remove(name)));
    }

    /// Defines a Secret with one value, in a file of its own.
    pub fn define_secret(&mut self, name: &str, key: &str, value: &str) {
        self.checks.bounds.secret_changed();
        self.manifests_change(|w| drop(w.manifests.secrets.insert(name.into(), (key.into(), value.into()))));
    }

    pub fn remove_secret(&mut self, name: &str) {
        self.checks.bounds.secret_changed();
        self.manifests_change(|w| drop(w.manifests.secrets.remove(name)));
    }

    /// Writes a DaemonSet in a file of its own. `spec`: its spec without the selector and the template. `pod`: the spec of
    /// its pod.
    pub fn define_daemon_set(&mut self, name: &str, spec: &str, pod: &str) {
        self.define_workload("DaemonSet", name, spec, pod);
    }

    /// Writes a Job in a file of its own. `spec`: its spec without the template.
    pub fn define_job(&mut self, name: &str, spec: &str, pod: &str) {
        let text = format!(
            "{{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}}}, spec: {{{spec}, template: {{spec: {{{pod}}}}}}}}}"
        );
        self.manifests_change(|w| drop(w.manifests.workloads.insert(file_of("Job", name), text)));
    }

    pub fn remove_job(&mut self, name: &str) {
        self.manifests_change(|w| drop(w.manifests.workloads.remove(&file_of("Job", name))));
    }

    /// Writes a CronJob in a file of its own. `spec`: its spec without the template. `job`: the spec of its Jobs
    /// without the template.
    pub fn define_cron_job(&mut self, name: &str, spec: &str, job: &str, pod: &str) {
        let template = format!("{{spec: {{{job}template: {{spec: {{{pod}}}}}}}}}");
        let text = format!(
            "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: {name}}}, spec: {{{spec}, jobTemplate: {template}}}}}"
        );
        self.manifests_change(|w| drop(w.manifests.workloads.insert(file_of("CronJob", name), text)));
    }

    pub fn remove_cron_job(&mut self, name: &str) {
        self.manifests_change(|w| drop(w.manifests.workloads.remove(&file_of("CronJob", name))));
    }

    /// Writes a claim in a file of its own. `more`: fields of its spec besides the size.
    pub fn define_claim(&mut self, name: &str, more: &str) {
        let spec = format!("accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}{more}");
        self.define_claim_as(name, &spec);
    }

    pub fn define_claim_as(&mut self, name: &str, spec: &str) {
        let text =
            format!("{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{{spec}}}}}");
        self.manifests_change(|w| drop(w.manifests.workloads.insert(file_of("Claim", name), text)));
    }

    pub fn remove_claim(&mut self, name: &str) {
        self.manifests_change(|w| drop(w.manifests.workloads.remove(&file_of("Claim", name))));
    }

    /// Writes a Service or an EndpointSlice in a file of its own.
    pub(super) fn define_network(&mut self, file: &str, text: String) {
        self.manifests_change(|w| drop(w.manifests.workloads.insert(file_of("Network", file), text)));
    }

    pub fn remove_service(&mut self, name: &str) {
        self.manifests_change(|w| drop(w.manifests.workloads.remove(&file_of("Network", &format!("Service-{name}")))));
    }

    /// Writes a ReplicaSet in a file of its own.
    pub fn define_replica_set(&mut self, name: &str, spec: &str, pod: &str) {
        self.define_workload("ReplicaSet", name, spec, pod);
    }

    pub fn remove_replica_set(&mut self, name: &str) {
        self.manifests_change(|w| drop(w.manifests.workloads.remove(&file_of("ReplicaSet", name))));
    }

    /// Writes a StatefulSet in a file of its own.
    pub fn define_stateful_set(&mut self, name: &str, spec: &str, pod: &str) {
        self.define_workload("StatefulSet", name, spec, pod);
    }

    pub fn remove_stateful_set(&mut self, name: &str) {
        self.manifests_change(|w| drop(w.manifests.workloads.remove(&file_of("StatefulSet", name))));
    }

    pub fn remove_daemon_set(&mut self, name: &str) {
        self.manifests_change(|w| drop(w.manifests.workloads.remove(&file_of("DaemonSet", name))));
    }

    /// Writes a Deployment in a file of its own, like a DaemonSet.
    pub fn define_deployment(&mut self, name: &str, spec: &str, pod: &str) {
        self.define_workload("Deployment", name, spec, pod);
    }

    /// Writes a second document with the name of a Deployment, in a file that sorts before the first one.
    pub fn copy_deployment(&mut self, name: &str, spec: &str) {
        self.manifests_change(|w| {
            let all = &mut w.manifests.workloads;
            let text = all.get(&file_of("Deployment", name)).map(|text| text.replacen("replicas: 2", spec, 1));
            all.extend(text.map(|text| (file_of("a-copy", name), text)));
        });
    }

    pub fn remove_deployment(&mut self, name: &str) {
        self.manifests_change(|w| drop(w.manifests.workloads.remove(&file_of("Deployment", name))));
    }

    /// Writes or removes (None) the file of a workload, unless it is so already.
    pub fn set_workload(&mut self, kind: &str, name: &str, text: Option<String>) {
        let file = file_of(kind, name);
        if self.manifests.workloads.get(&file) == text.as_ref() {
            return;
        }
        self.manifests_change(|w| match text {
            Some(text) => drop(w.manifests.workloads.insert(file, text)),
            None => drop(w.manifests.workloads.remove(&file)),
        });
    }

    /// Writes or removes (None) a file that defines no pods.
    pub fn write_document(&mut self, path: &str, text: Option<String>) {
        let file = path.rsplit('/').next().unwrap_or_default().to_owned();
        self.manifests_change(|w| match text {
            Some(text) => drop(w.manifests.workloads.insert(file, text)),
            None => drop(w.manifests.workloads.remove(&file)),
        });
    }

    fn define_workload(&mut self, kind: &str, name: &str, spec: &str, pod: &str) {
        let text = format!(
            "{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: {name}}}, spec: {{{spec}, selector: {{matchLabels: {{app: \
             {name}}}}}, template: {{metadata: {{labels: {{app: {name}}}}}, spec: {{{pod}}}}}}}}}"
        );
        self.manifests_change(|w| drop(w.manifests.workloads.insert(file_of(kind, name), text)));
    }

    /// D6: a container gets the current values of its Secrets, and none is created without them.
    pub(super) fn check_environment(&mut self, call: &RuntimeCall) {
        let RuntimeCall::CreateContainer(create) = call else { return };
        if create.pod.is_from_api_server() {
            return;
        }
        let spec = create.pod.container(&create.container);
        for variable in spec.into_iter().flat_map(|c| c.env.iter().flatten()) {
            let Some(of) = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()) else { continue };
            let secret = self.manifests.secrets.get(&of.name).or_else(|| self.manifests.copied_secrets.get(&of.name));
            let value = secret.filter(|(key, _)| *key == of.key).map(|(_, value)| value.as_bytes());
            let given = create.process.env.iter().find(|(name, _)| *name == variable.name).map(|(_, v)| v.as_bytes());
            if value.is_none() || value != given {
                let what = format!("{}/{} gets another value of {}", create.pod.name, create.container, of.name);
                self.checks.fail("D6", what);
            }
        }
    }

    /// After a kill: a version that was not recorded is lost if its file is broken or cannot be read.
    pub(super) fn other_versions_are_in_force(&mut self, before: &BTreeMap<String, Rc<Pod>>) {
        if self.manifests.in_force != *before {
            self.checks.desired(&self.engine, &self.manifests.in_force, self.clock.now, &self.runtime);
        }
    }

    /// At a start, some files are being written.
    pub(super) fn find_unfinished(&mut self) {
        let World { files, manifests, chaos, .. } = self;
        let slow = std::mem::take(&mut manifests.written_at_start);
        for (path, manifest) in files.iter().filter(|_| !manifests.away) {
            let written = |c: &mut Chaos| c.mishap("the file is being written:", path, 50).is_none();
            let is_unfinished = slow.contains(path) || !chaos.as_mut().is_none_or(written);
            if is_unfinished && !manifests.broken.contains_key(path) {
                manifests.broken.insert(path.clone(), Damage::Truncated.of(&manifest.text));
                manifests.unfinished.insert(path.clone());
            }
        }
        // (Those of workloads are complete, and only too new.)
        self.manifests.unfinished.extend(slow.into_iter().filter(|path| !self.files.contains_key(path)));
        if !self.manifests.unfinished.is_empty() {
            let life = self.process.life;
            self.manifests.judge(&self.files);
            self.at(WRITTEN_AFTER, Item::Written { life });
        }
    }

    /// The files that were being written at the start are complete.
    pub(super) fn files_are_written(&mut self) {
        self.manifests_change(|w| w.manifests.finish_writes());
    }

    /// The engine receives what has changed.
    pub(super) fn send_manifests(&mut self) {
        self.manifests.judge(&self.files);
        self.manifests.received(&self.files);
        let first = self.manifests.known.is_none();
        let Some(mut report) = self.manifests.report(&self.files) else { return };
        self.clients.manifests_changed();
        let in_parts = |c: &mut Chaos| c.mishap("the files are reported one by one", "", 200).is_some();
        // (Later, what the engine does between two parts is right, but not by this model.)
        if first && self.chaos.as_mut().is_some_and(in_parts) {
            self.process.unread = true;
            for file in std::mem::take(&mut report.files) {
                self.step(Event::Manifests(ManifestReport { files: vec![file], more: true, ..report.clone() }));
            }
            if !self.process.alive {
                return;
            }
            self.process.unread = false;
        }
        self.step(Event::Manifests(report));
        self.check_precedence();
    }

    /// D4: a file stays in force while it defines its pod. (Each file of a life has one name.)
    fn check_precedence(&mut self) {
        let conflicts = self.engine.conflicts();
        let out: BTreeSet<&str> = conflicts.iter().map(|c| c.source.path.as_str()).collect();
        let of_name = conflicts.iter().filter(|c| !c.with.is_api() && matches!(c.common, Common::Name(_)));
        let lost =
            of_name.map(|c| (&c.source.path, &c.with.path)).find(|(path, _)| self.manifests.winners.contains(*path));
        let lost = lost.map(|(path, other)| format!("{path} is not in force any more, but {other} is"));
        let files = self.manifests.in_force.keys();
        let winners = files.filter(|path| !out.contains(path.as_str())).cloned().collect();
        self.manifests.winners = winners;
        if let Some(what) = lost {
            self.checks.fail("D4", what);
        }
    }

    /// The engine records the last good versions of files.
    pub(super) fn store_manifests(&mut self, op: OpId, updates: Vec<RecordUpdate>) {
        self.note(|| format!("  < {op} record {:?}", updates.iter().map(|update| &update.name).collect::<Vec<_>>()));
        let key = (self.process.life, op);
        self.manifests.stored += 1;
        self.begin(op);
        self.at(2 * MS + self.disk.delay, Item::ManifestRecords { key, updates });
    }

    /// Removes the file of a workload, unless it has other objects too.
    pub(super) fn remove_manifest(&mut self, op: OpId, removed: &RemovedManifest) {
        self.note(|| format!("  < {op} remove the manifest of {}", removed.of));
        self.begin(op);
        let file = removed.source.path.rsplit('/').next().unwrap_or_default().to_owned();
        let is_shared = self.manifests.workloads.get(&file).is_some_and(|text| text.contains("---"));
        let result = match () {
            () if is_shared => Err(OpError::Refused(format!("{file} defines other objects too"))),
            () if self.goes_wrong("no removal of", &file, 4) => Err(OpError::Unknown("the file is read-only".into())),
            () => Ok(Answer::Ok),
        };
        if result.is_ok() {
            self.manifests_change(|w| drop(w.manifests.workloads.remove(&file)));
        }
        self.at(2 * MS, Item::Answer { key: (self.process.life, op), result });
    }

    /// The disk stores the records of files, or fails after some of them.
    pub(super) fn write_manifest_records(&mut self, key: Key, updates: Vec<RecordUpdate>) {
        if key.0 != self.process.life {
            return;
        }
        let wrong = self.disk.full || self.goes_wrong("no space for", "manifests", 4);
        let stored = if wrong { updates.len() / 2 } else { updates.len() };
        self.keep_manifest_records(updates.into_iter().take(stored));
        let result = match wrong {
            true => Err(OpError::Answered { code: Code::Other(28), message: "no space left on device".into() }),
            false => Ok(Answer::Ok),
        };
        self.finish(key, result);
    }

    pub(super) fn keep_manifest_records(&mut self, updates: impl Iterator<Item = RecordUpdate>) {
        for update in updates {
            let name = update.name.clone();
            if !self.manifests.store(update) {
                self.checks.fail("D2", format!("the record of {name:?} lacks a document"));
            }
        }
    }

    /// The priority of the desired pod of this file's name.
    pub fn priority_of(&self, name: &str) -> Option<i32> {
        let pods = self.engine.pods();
        let view = pods.iter().find(|view| view.desired && &*view.pod.name.name == name)?;
        Some(priority::of(view.pod.spec()))
    }

    /// The problems of manifests that the engine shows.
    pub fn manifest_problems(&self) -> Vec<String> {
        self.engine.manifest_problems().flat_map(|open| &open.problems).map(ToString::to_string).collect()
    }
}

/// The name of the file of a workload.
fn file_of(kind: &str, name: &str) -> String {
    format!("{}-{name}.yaml", kind.to_lowercase())
}
