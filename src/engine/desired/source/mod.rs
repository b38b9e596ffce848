//! The files of the manifest directory (D1 to D3): which version of each document is in force. The reader of the
//! directory reports what it sees (`api/manifest_report`). A file that is broken, cannot be read or has not been read
//! yet keeps its last good version (`contents`), even across a restart (`records`).

mod contents;
mod file;
mod open_problems;
mod records;

use crate::api::document::context::{Context, NetworkPolicies};
use crate::api::document::{Document, Key};
use crate::api::manifest_report::{
    DirectoryState, FileContent, FileReport, FileText, ManifestReport, NamedCredentials, RecordedDocument,
};
use crate::api::objects::{AcceptedPod, Objects};
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::api::pod::Pod;
use crate::api::problem::Problem;
use crate::api::reason::Reason;
use crate::api::source::Source;
use crate::api::time::{Boot, Now};
use crate::engine::effect::{Effect, ManifestNews, Severity};
use crate::engine::outbox::Outbox;
use contents::{Held, Thing};
use file::{File, Fingerprint};
pub use open_problems::OpenProblem;
use open_problems::{Kind, OpenProblems};
use records::Records;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

/// The warning about a file with a Secret.
pub const OPEN_SECRET: &str = "contains a Secret, and every user of this machine can read the file; chmod o-r, or move \
                               the Secret to a file of its own";

/// The settings and the time that the rules about files need.
#[derive(Clone, Copy, Default)]
pub struct Setting<'a> {
    /// The manifest directory.
    pub directory: &'a str,
    pub node_name: &'a str,
    /// `openSecrets: Refuse`: it is an error if every user of the machine can read a file that contains a Secret.
    pub refuse_open_secrets: bool,
    pub network_policies: NetworkPolicies,
    pub now: Now,
}

impl Setting<'_> {
    /// Returns the path of a file, as documents, problems and people name it.
    fn path(&self, name: &OsStr) -> String {
        Path::new(self.directory).join(name).to_string_lossy().into_owned()
    }

    /// Calls `read` with the context in which documents become objects. `config.seen` is the current time.
    fn context<R>(&self, credentials: &NamedCredentials, read: impl FnOnce(Context<'_>) -> R) -> R {
        let seen = self.now.wall.timestamp().map(|time| time.to_string()).unwrap_or_default();
        let Setting { node_name, network_policies, .. } = *self;
        credentials.with(|credentials| read(Context { node_name, seen: &seen, credentials, network_policies }))
    }
}

/// *(ours)* How long workloads wait for a file that was being written at the start. A file is read when it has not
/// changed for a second; one that changes all the time must not stop them.
const SETTLING: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub struct ManifestFiles {
    files: BTreeMap<OsString, File>,
    /// The state of the directory in the last report.
    directory: DirectoryState,
    missing: BTreeSet<OsString>,
    problems: OpenProblems,
    records: Records,
    /// Documents have changed since `take_objects` returned them.
    changed: bool,
    progress: Progress,
    /// The files whose recorded version is in force because they were being written at the start, and until when
    /// workloads wait for them.
    unsettled: BTreeMap<OsString, Boot>,
}

/// How much of the directory has been reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    /// The first scan is not complete (D1).
    #[default]
    FirstScan,
    /// More changes that were made at the same time follow.
    MoreFollows,
    Complete,
}

impl ManifestFiles {
    /// Returns the current problems, by path.
    pub fn problems(&self) -> impl Iterator<Item = &OpenProblem> {
        self.problems.iter()
    }

    /// Returns the number of files, including broken ones.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// Returns true if the directory is readable, and is the one whose manifests are in force, so that files can be
    /// added to it.
    pub fn are_writable(&self) -> bool {
        self.progress != Progress::FirstScan && self.directory == DirectoryState::Usable
    }

    pub fn take_report(&mut self, report: ManifestReport, setting: &Setting<'_>, outbox: &mut Outbox) {
        let ManifestReport { files, missing, directory, more } = report;
        self.progress = match (self.progress, more) {
            (Progress::FirstScan, true) => Progress::FirstScan,
            (_, true) => Progress::MoreFollows,
            (before, false) => {
                // The first scan counts as a change even if the directory is empty.
                self.changed |= before == Progress::FirstScan;
                Progress::Complete
            }
        };
        for file in files {
            self.take_file(file, setting, outbox);
        }
        self.missing = missing;
        match &directory {
            DirectoryState::Usable => self.problems.clear(None, setting.directory, Kind::Content, outbox),
            DirectoryState::Unusable(why) => {
                let message = format!("{why}; the last known pods stay in force");
                let problems = vec![Problem::of_file(setting.directory, message)];
                self.problems.set(None, setting.directory, Kind::Content, problems, setting.now, outbox);
            }
        }
        self.directory = directory;
    }

    /// Returns all objects in the order of their paths, if they have changed. Two pods with the same name are both
    /// included (`precedence` decides between them, D4).
    pub fn take_objects(&mut self) -> Option<Objects> {
        if !self.changed || self.progress != Progress::Complete || self.is_being_renamed() {
            return None;
        }
        self.changed = false;
        let held = || self.files.values().flat_map(|file| &file.documents);
        Some(Objects {
            classes: held().filter_map(Held::class).cloned().collect(),
            runtime_classes: held().filter_map(Held::runtime_class).cloned().collect(),
            data: held().filter_map(Held::data).cloned().collect(),
            workloads: held().filter_map(Held::workload).cloned().collect(),
            claims: held().filter_map(Held::claim).cloned().collect(),
            network: held().filter_map(Held::network).cloned().collect(),
            plain: held().filter_map(Held::plain).cloned().collect(),
            pods: held().filter_map(Held::pod_document).collect(),
        })
    }

    /// Takes the pods that now have the values of their classes. Their records will contain these values.
    pub fn accept(&mut self, pods: &[AcceptedPod]) {
        let pods: BTreeMap<_, _> = pods.iter().map(|accepted| (version(&accepted.pod), accepted)).collect_map();
        for (name, file) in &mut self.files {
            for held in &mut file.documents {
                let accepted = held.new_pod().and_then(|pod| pods.get(&version(pod)));
                if let Some(accepted) = accepted.copied().cloned() {
                    held.thing = Thing::Accepted(accepted);
                    self.records.check_later(name);
                }
            }
        }
    }

    /// Replaces the problems in the relations between objects, for all files.
    pub fn object_problems(&mut self, mut problems: Vec<Problem>, setting: &Setting<'_>, outbox: &mut Outbox) {
        for name in self.files.keys() {
            let path = setting.path(name);
            let mut of_file: Vec<Problem> = problems.extract_if(.., |problem| problem.path == path).collect();
            of_file.order_by_key(|problem| problem.document);
            self.problems.set(Some(name), &path, Kind::Class, of_file, setting.now, outbox);
        }
    }

    /// Returns when `write_records` has something to do, or workloads wait no longer.
    pub fn next_deadline(&self) -> Option<Boot> {
        self.records.next_deadline().into_iter().chain(self.unsettled.values().copied()).min()
    }

    /// Starts writing the records that differ from the documents in force. New pods take effect only after all changes
    /// that were made at the same time have been read.
    pub fn write_records(&mut self, now: Boot, outbox: &mut Outbox) {
        if self.progress == Progress::Complete {
            self.records.write(&mut self.files, now, outbox);
        }
    }

    /// Handles the result of writing records.
    pub fn records_written(&mut self, result: Result<(), String>, setting: &Setting<'_>, outbox: &mut Outbox) {
        let problem = result
            .as_ref()
            .err()
            .map(|why| Problem::of_file(setting.directory, format!("failed to record the last good version: {why}")));
        self.records.written(&mut self.files, result.is_ok(), setting.now.boot);
        let problems = problem.into_iter().collect();
        self.problems.set(None, setting.directory, Kind::Record, problems, setting.now, outbox);
    }

    /// Returns true while the objects of a renamed file exist twice, because its old name is not considered removed
    /// yet. This is not a conflict.
    fn is_being_renamed(&self) -> bool {
        let (leaving, staying): (Vec<_>, Vec<_>) =
            self.files.iter().partition(|(name, _)| self.missing.contains(*name));
        let mut keys = leaving.iter().flat_map(|(_, file)| &file.documents).map(Held::key).peekable();
        if keys.peek().is_none() {
            return false;
        }
        let staying: BTreeSet<Key> = staying.iter().flat_map(|(_, file)| &file.documents).map(Held::key).collect_set();
        keys.any(|key| staying.contains(&key))
    }

    /// Returns true while files that were being written at the start are about to be read. Their recorded versions may
    /// be older than what a workload has done already.
    pub fn are_settling(&mut self, now: Boot) -> bool {
        self.unsettled.retain(|_, until| *until > now);
        !self.unsettled.is_empty()
    }

    /// Returns the latest time until which such files are waited for.
    pub fn settle_until(&self) -> Option<Boot> {
        self.unsettled.values().max().copied()
    }

    fn take_file(&mut self, report: FileReport, setting: &Setting<'_>, outbox: &mut Outbox) {
        let FileReport { name, recorded, content, credentials } = report;
        let waits_until = self.unsettled.remove(&name).unwrap_or(setting.now.boot + SETTLING);
        let recalled = Recalled { documents: recorded, credentials: &credentials, path: setting.path(&name) };
        let is_known = self.files.contains_key(&name);
        match content {
            FileContent::Removed => self.remove(&name, &recalled, outbox),
            FileContent::NotRead => self.restore(&name, recalled, setting, outbox),
            FileContent::Unreadable(why) => {
                let problem = Problem::of_file(&recalled.path, why);
                self.keep(&name, recalled, problem, setting, outbox);
            }
            // The file may be incomplete, so its text is used only if no other version is known.
            FileContent::Text(text) if !text.settled && (recalled.documents.is_some() || is_known) => {
                self.unsettled.insert(name.clone(), waits_until);
                self.restore(&name, recalled, setting, outbox);
            }
            FileContent::Text(text) => self.read(&name, *text, recalled, setting, outbox),
        }
    }

    /// Takes the text of a file that was read.
    fn read(
        &mut self,
        name: &OsStr,
        text: FileText,
        recalled: Recalled<'_>,
        setting: &Setting<'_>,
        outbox: &mut Outbox,
    ) {
        let documents = match text.documents {
            Ok(documents) => documents,
            Err(problem) => return self.keep(name, recalled, problem, setting, outbox),
        };
        let open = text.open && documents.iter().any(Document::has_secret_values);
        if open && !setting.refuse_open_secrets {
            let news = ManifestNews::Warning { path: recalled.path.clone(), warning: OPEN_SECRET };
            outbox.push(Effect::ManifestNews(news));
        }
        let (path, credentials, fingerprint) = (recalled.path.clone(), recalled.credentials, recalled.fingerprint());
        let is_new = !self.files.contains_key(name);
        let file = self.files.entry(name.to_owned()).or_default();
        if is_new {
            file.recorded = fingerprint;
        }
        let old = (!is_new).then(|| std::mem::take(&mut file.documents));
        let refuse = open && setting.refuse_open_secrets;
        let is_refused = |document: &Document| document.is_refused(setting.network_policies);
        let (refused, documents): (Vec<Document>, Vec<Document>) = documents.into_iter().partition(is_refused);
        let (documents, problems) = setting.context(credentials, |context| {
            let make = |document: &Document| match refuse && document.has_secret_values() {
                true => Err(vec![Problem { document: document.number, ..Problem::of_file(&path, OPEN_SECRET) }]),
                false => document.object(&path, Some(&text.bytes), context),
            };
            let of_refused = refused.iter().filter_map(|document| make(document).err()).flatten();
            let of_refused: Vec<Problem> = of_refused.collect();
            let (documents, mut problems) =
                contents::merge(old, || recalled.documents(setting, outbox), documents, make);
            problems.extend(of_refused);
            problems.order_by_key(|problem| problem.document);
            (documents, problems)
        });
        file.documents = documents;
        self.changed = true;
        self.records.check_later(name);
        self.problems.set(Some(name), &path, Kind::Content, problems, setting.now, outbox);
    }

    /// Keeps the last good version of a file that exists but is broken (D2).
    fn keep(
        &mut self,
        name: &OsStr,
        recalled: Recalled<'_>,
        problem: Problem,
        setting: &Setting<'_>,
        outbox: &mut Outbox,
    ) {
        let path = recalled.path.clone();
        self.restore(name, recalled, setting, outbox);
        self.problems.set(Some(name), &path, Kind::Content, vec![problem], setting.now, outbox);
    }

    /// Brings the recorded version of a file into force, unless another version already is in force.
    fn restore(&mut self, name: &OsStr, recalled: Recalled<'_>, setting: &Setting<'_>, outbox: &mut Outbox) {
        if self.files.contains_key(name) {
            return;
        }
        let recorded = recalled.fingerprint();
        self.files.insert(name.to_owned(), File { documents: recalled.documents(setting, outbox), recorded });
        self.changed = true;
        self.records.check_later(name);
    }

    fn remove(&mut self, name: &OsStr, recalled: &Recalled<'_>, outbox: &mut Outbox) {
        let removed = self.files.remove(name);
        self.changed |= removed.is_some();
        if removed.is_some() || recalled.documents.is_some() {
            self.records.check_later(name);
        }
        for kind in [Kind::Content, Kind::Class] {
            self.problems.clear(Some(name), &recalled.path, kind, outbox);
        }
    }
}

/// The record of a file as it was found.
struct Recalled<'a> {
    documents: Option<Vec<RecordedDocument>>,
    credentials: &'a NamedCredentials,
    /// The path of the file.
    path: String,
}

impl Recalled<'_> {
    fn fingerprint(&self) -> Option<Fingerprint> {
        let versions = self.documents.as_ref()?.iter().map(|document| (document.digest.as_str(), &document.given));
        Some(Fingerprint::of(versions))
    }

    /// Returns the last good version of the file.
    fn documents(self, setting: &Setting<'_>, outbox: &mut Outbox) -> Vec<Held> {
        let mut held = Vec::new();
        for RecordedDocument { number, content, given, .. } in self.documents.into_iter().flatten() {
            let document = Document::from_content(number, content);
            if document.is_refused(setting.network_policies) {
                continue;
            }
            match setting.context(self.credentials, |context| document.recorded(&self.path, context)) {
                Ok(object) => held.push(Held::recorded(object, given, &document.content)),
                Err(problems) => {
                    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                    let message = format!(
                        "a document in the record of the last good version of {} is no longer valid and is ignored \
                         ({}); correct the manifest",
                        self.path,
                        problems.join("; ")
                    );
                    outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
                }
            }
        }
        held
    }
}

/// Identifies one version of one document.
fn version(pod: &Pod) -> (&Source, &str) {
    (&pod.source, &pod.digest)
}
