//! Changes of manifests by kubectl. As the agent does, the model asks `api/kube` what a request comes to, writes the file,
//! and asks whether the engine has accepted it.

use super::World;
use super::manifests::DIRECTORY;
use crate::plan::Kubectl;
use crate::story::{Manifest, read};
use serde_json::{Value, json};
use wherry::api::kube::edit::{EditOutcome, EditVerdict, Effected, FileFound, ManifestEdit, PlannedEdit};
use wherry::api::kube::path::{ObjectPath, Target, parse};
use wherry::api::kube::status::Failure;
use wherry::api::kube::write::{self, ObjectChange};
use wherry::api::names::FullName;

impl World {
    /// kubectl changes the pod of this file, and gets its answer.
    pub fn kubectl(&mut self, path: &str, what: Kubectl) {
        let Some(name) = self.files.get(path).map(|manifest| manifest.name.clone()) else { return };
        if !self.process.alive || self.process.unread || !self.engine.manifests_are_writable() {
            return;
        }
        let answer = self.request(&name, what);
        self.note(|| match &answer {
            Ok(outcome) => format!("    kubectl: {outcome:?} {name}"),
            Err(refused) => format!("    kubectl: {name}: {} {}", refused.code, refused.message),
        });
        let exists = self.engine.manifest_of(&name).is_some() || self.engine.pod_named(&name).is_some();
        match (what, &answer) {
            (Kubectl::Create, Ok(outcome)) => {
                self.kubectl_must(*outcome == EditOutcome::Created && exists, "a new pod is there", &name);
            }
            (Kubectl::InvalidChange, Ok(_)) => self.kubectl_must(false, "an invalid change is refused", &name),
            (Kubectl::Delete, Ok(outcome)) => {
                self.kubectl_must(*outcome == EditOutcome::Removed, "a deletion removes", &name)
            }
            (Kubectl::Replace | Kubectl::Label(_), Ok(outcome)) => {
                self.kubectl_must(
                    matches!(outcome, EditOutcome::Changed | EditOutcome::Unchanged),
                    "a change changes",
                    &name,
                );
            }
            (_, Err(refused)) => self.kubectl_must(refused.code < 500, "no change fails", &name),
        }
    }

    fn kubectl_must(&mut self, fine: bool, rule: &'static str, name: &FullName) {
        if !fine {
            self.checks.fail("kubectl", format!("{rule}: {name}"));
        }
    }

    fn request(&mut self, name: &FullName, what: Kubectl) -> Result<EditOutcome, Failure> {
        let object = object_path(name);
        let source = self.engine.manifest_of(name).map(|pod| pod.source.clone());
        let live = self.engine.pod_named(name).map(|view| serde_json::to_value(&view.pod.object).unwrap_or_default());
        let change = match what {
            Kubectl::Create => Some(ObjectChange::Create(json!({ "spec": { "containers": [
                { "name": "main", "image": "busybox:1.35" }] } }))),
            Kubectl::Label(value) => {
                Some(ObjectChange::Merge(json!({ "metadata": { "labels": { "round": value.to_string() } } })))
            }
            Kubectl::InvalidChange => Some(ObjectChange::Merge(json!({ "spec": { "restartPolicy": "Perhaps" } }))),
            Kubectl::Replace => {
                let pod =
                    self.engine.manifest_of(name).map(|pod| serde_json::to_value(&pod.object).unwrap_or_default());
                Some(ObjectChange::Replace(pod.unwrap_or_default()))
            }
            Kubectl::Delete => None,
        };
        let (resource, text) = (object.resource, name.name.to_string());
        write::check(resource, &text, change.as_ref(), &Value::Null, source.is_some(), live.as_ref())?;
        let Some(source) = source.as_ref().or_else(|| matches!(what, Kubectl::Create).then_some(&EMPTY)) else {
            // It terminates already.
            return Ok(EditOutcome::Removed);
        };
        let document = (!source.path.is_empty()).then_some(source.document);
        let (node_name, seen) = (self.config.node.name.clone(), "2027-01-15T08:00:00Z".to_owned());
        let edit = ManifestEdit { object, document, change, node_name, seen };
        let path = match document {
            Some(_) => source.path.clone(),
            None => format!("{DIRECTORY}/{}", edit.file_name()),
        };
        let found = self.text_of(&path).map_or(FileFound::Nothing, |text| FileFound::Text(text.into_bytes()));
        let planned = edit.plan(&path, found)?;
        self.carry_out_edit(name, &path, &planned)
    }

    /// Writes the file. The engine decides at once, because the model's directory reports changes at once.
    fn carry_out_edit(&mut self, name: &FullName, path: &str, planned: &PlannedEdit) -> Result<EditOutcome, Failure> {
        let mut files = self.files.clone();
        match (&planned.text, planned.outcome) {
            (Some(text), _) => {
                let text = String::from_utf8_lossy(text);
                let manifest = Manifest { pod: read(path, &text), text: text.as_ref().into() };
                files.insert(path.to_owned(), manifest);
                self.set_files(files);
            }
            (None, EditOutcome::Removed) => {
                files.remove(path);
                self.set_files(files);
            }
            (None, _) => {}
        }
        // The engine may have been killed in the middle of the change.
        if !self.process.alive {
            return Ok(planned.outcome);
        }
        let in_force = self.engine.manifest_of(name).cloned();
        let problems = self.engine.manifest_problems().filter(|open| open.path == path);
        let effected = Effected {
            outcome: planned.outcome,
            file: path,
            digest: &planned.digest,
            in_force: in_force.as_ref().map(|pod| (pod.source.path.as_str(), pod.digest.as_str())),
            problems: problems.flat_map(|open| &open.problems).cloned().collect(),
            expired: false,
        };
        match effected.verdict() {
            EditVerdict::Accepted => {}
            // Another file defines a pod of this name.
            EditVerdict::Waiting if in_force.is_some_and(|pod| pod.source.path != path) => {}
            verdict => self.checks.fail("kubectl", format!("a valid change of {name} is {verdict:?}")),
        }
        Ok(planned.outcome)
    }
}

/// The object gets a new file.
static EMPTY: wherry::api::pod::Source = wherry::api::pod::Source { path: String::new(), document: 0 };

fn object_path(name: &FullName) -> ObjectPath {
    match parse(&format!("/api/v1/namespaces/{}/pods/{}", name.namespace, name.name)) {
        Ok(Target::Object(object)) => object,
        _ => panic!("{name} has no path"),
    }
}
