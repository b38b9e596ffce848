//! Changes of manifests that kubectl requests: computes the new content of a file from the present content, and
//! decides whether the engine has accepted the result. A helper reads and writes the files
//! (`adapters/manifests/edit`).
//!
//! A new object gets a file of its own, whose name begins with `kubectl_`. An object of a file that a person has
//! written can be changed or removed if it is alone in its file.

use super::comments;
use super::path::ObjectPath;
use super::plain_objects;
use super::status::Failure;
use super::write::{self, ObjectChange};
use crate::api::document::context::{Context, NetworkPolicies};
use crate::api::document::{self, Document, Object};
use crate::api::problem::Problem;
use crate::api::uid;
use serde_json::Value;
use std::path::PathBuf;

/// The prefix of the files that kubectl has created.
const PREFIX: &str = "kubectl_";
/// The maximum length of a file name without `.yaml`, in bytes. Linux allows 255, and the name of a temporary file
/// has five more.
const MAX_STEM: usize = 245;

/// A requested change of one object.
#[derive(Clone, Debug)]
pub struct ManifestEdit {
    /// The object, with its name.
    pub object: ObjectPath,
    /// The number of the document that defines the object now, counted from 1 in its file. None: the object gets a
    /// new file.
    pub document: Option<u32>,
    /// The digest that the document must have (D3). None: any.
    pub digest: Option<String>,
    /// None: the object is removed.
    pub change: Option<ObjectChange>,
    pub node_name: String,
    /// The present time, in the format of `Context::seen`.
    pub seen: String,
    pub network_policies: NetworkPolicies,
}

/// What exists at the path of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileFound {
    Nothing,
    Text(Vec<u8>),
    /// A symbolic link to this path, and the text behind it. None: the link is dangling.
    Link {
        target: String,
        text: Option<Vec<u8>>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditOutcome {
    Created,
    Changed,
    Unchanged,
    Removed,
}

/// A change that was carried out, or only checked with `dry_run`.
#[derive(Clone, Debug, PartialEq)]
pub struct Edited {
    pub outcome: EditOutcome,
    pub file: PathBuf,
    /// The digest of the new content (D3).
    pub digest: String,
    /// The new object, as in `PlannedEdit`.
    pub object: Value,
    /// The content of the file before the change, to revert it. None: there was no file.
    pub before: Option<Vec<u8>>,
    /// The digest of the whole file after the change. None: there is no file.
    after: Option<String>,
    /// For the person who made the change.
    pub warnings: Vec<String>,
}

impl Edited {
    /// Reports whether the file is still as the change left it, so that the change can be reverted. `present`: the
    /// content of the file. None: there is no file.
    pub fn is_unchanged_since(&self, present: Option<&[u8]>) -> bool {
        present.map(uid::digest_of_bytes) == self.after
    }
}

/// The result that a change will have.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedEdit {
    pub outcome: EditOutcome,
    /// The new text of the file. None: the file stays, or is removed.
    pub text: Option<Vec<u8>>,
    /// The digest of the new content (D3).
    pub digest: String,
    /// The new object: a pod with all defaults, and every other object as in its manifest.
    pub object: Value,
    /// For the person who made the change.
    pub warnings: Vec<String>,
}

impl PlannedEdit {
    /// Returns the result after the change was carried out. `before`: the content that the file had.
    pub fn carried_out(self, file: PathBuf, before: Option<Vec<u8>>) -> Edited {
        let PlannedEdit { outcome, text, digest, object, warnings } = self;
        let unchanged = before.as_deref().filter(|_| outcome == EditOutcome::Unchanged);
        let after = text.as_deref().or(unchanged).map(uid::digest_of_bytes);
        Edited { outcome, file, digest, object, before, after, warnings }
    }
}

/// Whether the engine has accepted a change that was written to its file.
#[derive(Clone, Debug, PartialEq)]
pub enum EditVerdict {
    Accepted,
    Waiting,
    /// The change has to be reverted.
    Refused(Vec<Problem>),
    /// The change is written, but the engine did not accept it in time.
    Late,
}

/// The effects so far of a change that was written to its file.
#[derive(Clone, Debug)]
pub struct Effected<'a> {
    pub outcome: EditOutcome,
    /// The path of the file, and the digest of the new content.
    pub file: &'a str,
    pub digest: &'a str,
    /// The path and the digest of the document that defines the object now.
    pub in_force: Option<(&'a str, &'a str)>,
    /// The problems of the file.
    pub problems: Vec<Problem>,
    /// The client does not wait any longer.
    pub expired: bool,
}

impl Effected<'_> {
    pub fn verdict(self) -> EditVerdict {
        let Effected { outcome, file, digest, in_force, problems, expired } = self;
        let is_accepted = match (outcome, in_force) {
            (EditOutcome::Unchanged, _) | (EditOutcome::Removed, None) => true,
            // Another file also defines an object with this name.
            (EditOutcome::Removed, Some((path, _))) => path != file,
            (_, Some(defined)) => defined == (file, digest),
            (_, None) => false,
        };
        // A problem of an existing file may be older than the change, so it counts only when the time is over.
        let is_refused = !problems.is_empty() && (outcome == EditOutcome::Created || expired);
        if is_accepted {
            EditVerdict::Accepted
        } else if is_refused {
            EditVerdict::Refused(problems)
        } else if expired {
            EditVerdict::Late
        } else {
            EditVerdict::Waiting
        }
    }
}

impl ManifestEdit {
    /// Returns the file name for a new object: `kubectl_NAMESPACE_KIND_NAME.yaml`. Names and namespaces contain no
    /// `_`, except for names of roles, which may contain anything. A digest replaces the end of a name that is too long
    /// for a file, or the unusual characters of a name.
    pub fn file_name(&self) -> String {
        let kind = self.object.resource.singular;
        let name = self.name();
        let (whole, short) = match &self.object.namespace {
            Some(namespace) => (format!("{PREFIX}{namespace}_{kind}_{name}"), format!("{PREFIX}{namespace}_{kind}_")),
            None => (format!("{PREFIX}{kind}_{name}"), format!("{PREFIX}{kind}_")),
        };
        let is_usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        if whole.len() <= MAX_STEM && name.chars().all(is_usual) {
            return format!("{whole}.yaml");
        }
        let name: String = name.chars().map(|c| if is_usual(c) { c } else { '-' }).collect();
        let begin = |text: &str| text.chars().take(64).collect::<String>();
        let digest = uid::digest_of_bytes(whole.as_bytes());
        format!("{}{}_{digest}.yaml", begin(&short), begin(&name))
    }

    /// Checks the name and the namespace, which become part of a file name before the object is validated.
    ///
    /// # Errors
    /// The name or the namespace cannot be part of a file name.
    pub fn check_names(&self) -> Result<(), Failure> {
        let parts = [self.object.name.as_deref(), self.object.namespace.as_deref()];
        match parts.into_iter().flatten().any(|part| part.contains(['/', '\0'])) {
            true => Err(Failure::bad_request("the name or the namespace is not valid")),
            false => Ok(()),
        }
    }

    /// Returns the permissions of the file. Only root may read a Secret.
    pub fn mode(&self) -> u32 {
        if self.object.resource.kind_name == "Secret" { 0o600 } else { 0o644 }
    }

    /// Plans the change of the file at this path.
    ///
    /// # Errors
    /// The change is not valid, the file defines other objects too, or it no longer defines this object.
    pub fn plan(&self, path: &str, found: FileFound) -> Result<PlannedEdit, Failure> {
        let text = match (found, &self.change) {
            // A link is never replaced: a change belongs in its target file. A deletion removes only the link.
            (FileFound::Link { target, .. }, Some(_)) => {
                return Err(self.conflict(format!(
                    "{path} is a symbolic link to {target}; change that file, or replace the link with a file"
                )));
            }
            (FileFound::Text(text) | FileFound::Link { text: Some(text), .. }, _) => text,
            (FileFound::Nothing | FileFound::Link { .. }, change) => {
                return self.plan_without_file(path, change.as_ref());
            }
        };
        let Some(number) = self.document else {
            let why = format!("{path} exists, but does not define this object; remove the file");
            return Err(self.conflict(why));
        };
        let current = self.alone(&text, path, number)?;
        match &self.change {
            None => Ok(removal()),
            Some(change) => {
                let content = plain_objects::in_version(&current.content, self.object.resource.version);
                let object = write::changed(&self.object, Some(&content), change)?;
                let has_comment = str::from_utf8(&text).is_ok_and(comments::has_comment);
                self.plan_write(path, Some((&current, has_comment)), object)
            }
        }
    }

    fn plan_without_file(&self, path: &str, change: Option<&ObjectChange>) -> Result<PlannedEdit, Failure> {
        match (change, self.document) {
            // Another deletion was faster. This client also waits until the engine has seen the removal.
            (None, _) => Ok(removal()),
            (Some(_), Some(_)) => Err(self.conflict(format!("{path} was removed in the meantime; try again"))),
            (Some(change), None) => {
                let built_in = plain_objects::built_in(&self.object);
                self.plan_write(path, None, write::changed(&self.object, built_in.as_ref(), change)?)
            }
        }
    }

    /// Plans to write the object. `current`: the present document, and whether its file has comments.
    fn plan_write(
        &self,
        path: &str,
        current: Option<(&Document, bool)>,
        object: Value,
    ) -> Result<PlannedEdit, Failure> {
        let invalid = |problems: &[Problem]| write::invalid(self.object.resource, self.name(), problems);
        let (text, document) = text_of(&object, path).map_err(|problem| invalid(std::slice::from_ref(&problem)))?;
        let network_policies = self.network_policies;
        let context = Context { network_policies, ..Context::new(&self.node_name, &self.seen) };
        let mut warnings = Vec::new();
        let shown = match document.object(path, None, context).map_err(|problems| invalid(&problems))? {
            Object::Pod(pod) => serde_json::to_value(&pod.object).unwrap_or_default(),
            Object::Plain(plain) => {
                warnings.extend(plain.warning());
                object
            }
            Object::Workload(_)
            | Object::PriorityClass(_)
            | Object::RuntimeClass(_)
            | Object::Data(_)
            | Object::Claim(_)
            | Object::Network(_) => object,
        };
        let outcome = match current {
            None => EditOutcome::Created,
            Some((current, _)) if current.digest == document.digest => EditOutcome::Unchanged,
            Some((_, has_comment)) => {
                warnings.extend(has_comment.then(|| format!("the comments in {path} are lost")));
                EditOutcome::Changed
            }
        };
        let text = (outcome != EditOutcome::Unchanged).then_some(text);
        Ok(PlannedEdit { outcome, text, digest: document.digest, object: shown, warnings })
    }

    /// Returns the object's document. It must be the only one in the file.
    fn alone(&self, text: &[u8], path: &str, number: u32) -> Result<Document, Failure> {
        let mut documents = document::parse(text, path).map_err(|problem| self.conflict(problem))?;
        if documents.len() != 1 {
            let line = line_of(text, number);
            let why = format!(
                "{path}, line {line}, defines this object together with {} other objects; change it there",
                documents.len() - 1
            );
            return Err(self.conflict(why));
        }
        let Some(document) = documents.pop().filter(|d| self.is_of(d)) else {
            return Err(self.conflict(format!("{path} no longer defines this object; try again")));
        };
        if self.digest.as_ref().is_some_and(|digest| *digest != document.digest) {
            return Err(self.conflict(format!("{path} was changed in the meantime")));
        }
        Ok(document)
    }

    fn is_of(&self, document: &Document) -> bool {
        let kind = document.content.get("kind").and_then(Value::as_str);
        let name = document.name();
        kind == Some(self.object.resource.kind_name)
            && name.as_ref().is_some_and(|name| Some(&*name.name) == self.object.name.as_deref())
            && (!self.object.resource.namespaced
                || name.is_some_and(|name| Some(&*name.namespace) == self.object.namespace.as_deref()))
    }

    fn name(&self) -> &str {
        self.object.name.as_deref().unwrap_or_default()
    }

    fn conflict(&self, why: impl std::fmt::Display) -> Failure {
        Failure::conflict(self.object.resource, self.name(), why)
    }
}

fn removal() -> PlannedEdit {
    let (digest, warnings) = Default::default();
    PlannedEdit { outcome: EditOutcome::Removed, text: None, digest, object: Value::Null, warnings }
}

/// Returns the text of a manifest and the document in it. The text is YAML, or JSON if the YAML would not be read as
/// the same object.
fn text_of(object: &Value, path: &str) -> Result<(Vec<u8>, Document), Problem> {
    let read = |text: &[u8]| document::parse(text, path).map(|mut all| all.pop().filter(|_| all.is_empty()));
    if let Ok(yaml) = serde_saphyr::to_string(object)
        && let Ok(Some(document)) = read(yaml.as_bytes())
        && document.content == *object
    {
        return Ok((yaml.into_bytes(), document));
    }
    let mut json = serde_json::to_vec_pretty(object).map_err(|e| Problem::of_file(path, e.to_string()))?;
    json.push(b'\n');
    match read(&json)? {
        Some(document) => Ok((json, document)),
        None => Err(Problem::of_file(path, "a request must contain exactly one object")),
    }
}

/// Returns the line at which the YAML document with this number begins. For an item of a List, it is only an
/// estimate.
fn line_of(text: &[u8], number: u32) -> usize {
    let begins = text.split(|b| *b == b'\n').enumerate().filter(|(_, line)| line.starts_with(b"---"));
    let mut begins: Vec<usize> = begins.map(|(at, _)| at + 2).collect();
    if begins.first() != Some(&2) {
        begins.insert(0, 1);
    }
    let wanted = usize::try_from(number).unwrap_or(1).clamp(1, begins.len());
    begins[wanted - 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kube::path::{Target, parse};

    fn effected(outcome: EditOutcome, in_force: Option<(&'static str, &'static str)>) -> Effected<'static> {
        Effected { outcome, file: "/m/web.yaml", digest: "new", in_force, problems: Vec::new(), expired: false }
    }

    #[test]
    fn a_change_is_accepted_once_the_document_that_it_wrote_is_in_force() {
        use EditOutcome::{Changed, Created, Removed, Unchanged};
        use EditVerdict::{Accepted, Late, Waiting};
        let (new, old, other) =
            (Some(("/m/web.yaml", "new")), Some(("/m/web.yaml", "old")), Some(("/m/copy.yaml", "new")));
        for (outcome, in_force, verdict) in [
            (Created, new, Accepted),
            (Created, None, Waiting),
            (Changed, old, Waiting),
            (Changed, other, Waiting),
            (Unchanged, old, Accepted),
            (Removed, None, Accepted),
            (Removed, old, Waiting),
            (Removed, other, Accepted),
        ] {
            assert_eq!(effected(outcome, in_force).verdict(), verdict, "{outcome:?} {in_force:?}");
        }
        assert_eq!(Effected { expired: true, ..effected(Changed, old) }.verdict(), Late);
        assert_eq!(Effected { expired: true, ..effected(Changed, new) }.verdict(), Accepted);
    }

    #[test]
    fn a_link_that_leads_nowhere_can_be_removed_and_not_changed() {
        let Ok(Target::Object(object)) = parse("/api/v1/namespaces/default/configmaps/a") else { panic!("the path") };
        let (node_name, seen) = ("node".to_owned(), String::new());
        let found = || FileFound::Link { target: "/gone".to_owned(), text: None };
        let of = |change| {
            let object = object.clone();
            let edit = ManifestEdit {
                object,
                document: Some(1),
                digest: None,
                change,
                node_name: node_name.clone(),
                seen: seen.clone(),
                network_policies: NetworkPolicies::default(),
            };
            edit.plan("/m/a.yaml", found())
        };
        assert_eq!(of(None).map(|planned| planned.outcome), Ok(EditOutcome::Removed));
        let refused = of(Some(ObjectChange::Merge(Value::Null))).unwrap_err();
        assert_eq!(refused.code, 409, "{}", refused.message);
        assert!(refused.message.contains("is a symbolic link to /gone"), "{}", refused.message);
    }

    #[test]
    fn a_problem_of_a_new_file_takes_it_back_at_once_and_that_of_an_old_one_in_the_end() {
        let problems = vec![Problem::of_file("/m/web.yaml", "no class")];
        let with = |outcome, expired| Effected { problems: problems.clone(), expired, ..effected(outcome, None) };
        assert_eq!(with(EditOutcome::Created, false).verdict(), EditVerdict::Refused(problems.clone()));
        assert_eq!(with(EditOutcome::Changed, false).verdict(), EditVerdict::Waiting);
        assert_eq!(with(EditOutcome::Changed, true).verdict(), EditVerdict::Refused(problems.clone()));
    }
}
