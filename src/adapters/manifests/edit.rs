//! Changes of manifests for kubectl: writes and removes files with one object. The decisions are in `api::kube::write`.
//!
//! A new object gets a file of its own, whose name begins with `kubectl_`. An object of a file that a person has
//! written can be changed or removed if it is alone in its file. Runs on a helper, one change at a time.

use crate::adapters::durable;
use crate::api::document::{self, Context, Document, Object};
use crate::api::kube::comments;
use crate::api::kube::path::ObjectPath;
use crate::api::kube::status::Failure;
use crate::api::kube::write::{self, Change};
use crate::api::problem::Problem;
use crate::api::uid;
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The prefix of the files that kubectl has created.
const PREFIX: &str = "kubectl_";
/// The maximum length of the name of a file without `.yaml`, in bytes: Linux has 255, and a file that is being written
/// has five more.
const MAX_STEM: usize = 245;

/// A requested change.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The manifest directory.
    pub directory: PathBuf,
    /// The object, with its name.
    pub object: ObjectPath,
    /// The file and the document that define the object now.
    pub source: Option<(PathBuf, u32)>,
    /// None: the object is removed.
    pub change: Option<Change>,
    /// Only check the change.
    pub dry_run: bool,
    pub node_name: String,
    /// The present time, as `Context::seen`.
    pub seen: String,
}

/// Whether the client of a change has gone, for the helper that carries it out.
#[derive(Clone, Debug, Default)]
pub struct Abandoned(Arc<AtomicBool>);

impl Abandoned {
    pub fn abandon(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_abandoned(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Created,
    Changed,
    Unchanged,
    Removed,
}

/// A change that is carried out, or with `dry_run` only checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Edited {
    pub outcome: Outcome,
    pub file: PathBuf,
    /// The digest of the new content (D3).
    pub digest: String,
    /// The new object: a pod with all defaults, and every other object as in its manifest.
    pub object: Value,
    /// The content of the file before the change, to take it back.
    pub before: Option<Vec<u8>>,
    /// For the person who made the change.
    pub warnings: Vec<String>,
}

impl Edit {
    /// Carries out the change, durably.
    ///
    /// # Errors
    /// The change is not valid or was abandoned, the object is not alone in its file, or a file cannot be read or
    /// written. Nothing has changed then.
    pub fn run(self, abandoned: &Abandoned) -> Result<Edited, Failure> {
        check(abandoned)?;
        // The name becomes a part of a file name before the object is validated.
        let parts = [self.object.name.as_deref(), self.object.namespace.as_deref()];
        if parts.into_iter().flatten().any(|part| part.contains(['/', '\0'])) {
            return Err(Failure::bad_request("the name or the namespace is not valid"));
        }
        let file = match &self.source {
            Some((file, _)) => file.clone(),
            None => self.directory.join(self.file_name()),
        };
        self.check_link(&file)?;
        let before = match fs::read(&file) {
            Ok(text) => Some(text),
            Err(e) if e.kind() == ErrorKind::NotFound && self.source.is_none() => None,
            // Another deletion was faster. Its client too waits until the engine has seen the removal.
            Err(e) if e.kind() == ErrorKind::NotFound && self.change.is_none() => return Ok(removed(file, None)),
            Err(e) => return Err(failed("read", &file, &e)),
        };
        let current = match (&before, &self.source) {
            (Some(text), Some((_, number))) => Some(self.alone(text, &file, *number)?),
            (Some(_), None) => {
                let why = format!("{} exists, but does not define this object; remove the file", file.display());
                return Err(self.conflict(why));
            }
            (None, _) => None,
        };
        match &self.change {
            None => self.remove(file, before, abandoned),
            Some(change) => {
                let object = write::changed(&self.object, current.as_ref().map(|d| &d.content), change)?;
                self.write(file, before, current, object, abandoned)
            }
        }
    }

    /// A link stays a link: a change belongs into the file behind it. A removal removes the link alone.
    fn check_link(&self, file: &Path) -> Result<(), Failure> {
        let is_link = fs::symlink_metadata(file).is_ok_and(|found| found.file_type().is_symlink());
        if !is_link || self.change.is_none() {
            return Ok(());
        }
        let (link, target) = (file.display(), fs::read_link(file).unwrap_or_default());
        let why = format!(
            "{link} is a symbolic link to {}; change that file, or put a file in the place of the link",
            target.display()
        );
        Err(self.conflict(why))
    }

    fn remove(self, file: PathBuf, before: Option<Vec<u8>>, abandoned: &Abandoned) -> Result<Edited, Failure> {
        check(abandoned)?;
        if !self.dry_run {
            fs::remove_file(&file).map_err(|e| failed("remove", &file, &e))?;
            durable::sync(&self.directory).map_err(|e| failed("sync", &self.directory, &e))?;
        }
        Ok(removed(file, before))
    }

    fn write(
        self,
        file: PathBuf,
        before: Option<Vec<u8>>,
        current: Option<Document>,
        object: Value,
        abandoned: &Abandoned,
    ) -> Result<Edited, Failure> {
        check(abandoned)?;
        let name = self.object.name.as_deref().unwrap_or_default();
        let path = file.display().to_string();
        let (text, document) = text_of(&object, &path)
            .map_err(|problem| write::invalid(self.object.resource, name, std::slice::from_ref(&problem)))?;
        let context = Context::new(&self.node_name, &self.seen);
        let checked = document
            .object(&path, None, context)
            .map_err(|problems| write::invalid(self.object.resource, name, &problems))?;
        let shown = match &checked {
            Object::Pod(pod) => serde_json::to_value(&pod.object).unwrap_or_default(),
            Object::PriorityClass(_) | Object::RuntimeClass(_) | Object::Data(_) => object,
        };
        let outcome = match &current {
            None => Outcome::Created,
            Some(current) if current.digest == document.digest => Outcome::Unchanged,
            Some(_) => Outcome::Changed,
        };
        let mut warnings = Vec::new();
        if outcome == Outcome::Changed && before.as_deref().is_some_and(has_comment) {
            warnings.push(format!("the comments in {path} are lost"));
        }
        check(abandoned)?;
        if !self.dry_run && outcome != Outcome::Unchanged {
            put(&self.directory, &file, &text, self.mode())?;
        }
        Ok(Edited { outcome, file, digest: document.digest, object: shown, before, warnings })
    }

    /// The document of the object, which must be the only one of the file.
    fn alone(&self, text: &[u8], file: &Path, number: u32) -> Result<Document, Failure> {
        let path = file.display().to_string();
        let mut documents = document::parse(text, &path).map_err(|problem| self.conflict(problem))?;
        if documents.len() != 1 {
            let line = line_of(text, number);
            let why = format!(
                "{path}, line {line}, defines this object together with {} other objects; change it there",
                documents.len() - 1
            );
            return Err(self.conflict(why));
        }
        let Some(document) = documents.pop().filter(|d| self.is_of(d)) else {
            return Err(self.conflict(format!("{path} does not define this object any more; try again")));
        };
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

    fn conflict(&self, why: impl std::fmt::Display) -> Failure {
        Failure::conflict(self.object.resource, self.object.name.as_deref().unwrap_or_default(), why)
    }

    /// `kubectl_NAMESPACE_KIND_NAME.yaml`. Names and namespaces contain no `_`. In a name that is too long for a file,
    /// a digest takes the place of the end.
    fn file_name(&self) -> String {
        let kind = self.object.resource.singular;
        let name = self.object.name.as_deref().unwrap_or_default();
        let (whole, short) = match &self.object.namespace {
            Some(namespace) => (format!("{PREFIX}{namespace}_{kind}_{name}"), format!("{PREFIX}{namespace}_{kind}_")),
            None => (format!("{PREFIX}{kind}_{name}"), format!("{PREFIX}{kind}_")),
        };
        if whole.len() <= MAX_STEM {
            return format!("{whole}.yaml");
        }
        let begin = |text: &str| text.chars().take(64).collect::<String>();
        let digest = uid::digest_of_bytes(whole.as_bytes());
        format!("{}{}_{digest}.yaml", begin(&short), begin(name))
    }

    /// Only root may read a Secret.
    fn mode(&self) -> u32 {
        if self.object.resource.kind_name == "Secret" { 0o600 } else { 0o644 }
    }
}

fn removed(file: PathBuf, before: Option<Vec<u8>>) -> Edited {
    let (digest, warnings) = Default::default();
    Edited { outcome: Outcome::Removed, file, digest, object: Value::Null, before, warnings }
}

fn check(abandoned: &Abandoned) -> Result<(), Failure> {
    match abandoned.is_abandoned() {
        true => Err(Failure::timeout("the client has disconnected")),
        false => Ok(()),
    }
}

/// Takes a change back: the file gets its old content, or is removed.
///
/// # Errors
/// The file cannot be written or removed.
pub fn take_back(directory: &Path, edited: &Edited) -> Result<(), String> {
    let done = match &edited.before {
        None => fs::remove_file(&edited.file).and_then(|()| durable::sync(directory)),
        Some(text) => {
            let secret = edited.object.get("kind").is_some_and(|kind| kind == "Secret");
            put(directory, &edited.file, text, if secret { 0o600 } else { 0o644 })
                .map_err(|e| std::io::Error::other(e.message))
        }
    };
    done.map_err(|e| format!("{}: {e}", edited.file.display()))
}

/// The text of a manifest: YAML, or JSON if this YAML would be read in another way. And the document that it contains.
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
        None => Err(Problem::of_file(path, "a request contains one object")),
    }
}

fn put(directory: &Path, file: &Path, text: &[u8], mode: u32) -> Result<(), Failure> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // The manifests ignore dot files.
    let aside = file.with_file_name(format!(".{name}.new"));
    // A leftover of a run that was killed may have another mode.
    let _ = fs::remove_file(&aside);
    durable::replace(file, &aside, text, mode).map_err(|e| failed("write", file, &e))?;
    durable::sync(directory).map_err(|e| failed("sync", directory, &e))
}

fn failed(what: &str, path: &Path, e: &std::io::Error) -> Failure {
    Failure::internal(format!("failed to {what} {}: {e}", path.display()))
}

fn has_comment(text: &[u8]) -> bool {
    str::from_utf8(text).is_ok_and(comments::has_comment)
}

/// The line at which the YAML document with this number begins. (The items of a List have the line of the List at
/// least.)
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
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    fn edit(directory: &Path, path: &str, change: Option<Change>) -> Edit {
        let Ok(Target::Object(object)) = parse(path) else { panic!("{path}") };
        let (node_name, seen) = ("node".to_owned(), "2026-11-20T15:00:00Z".to_owned());
        Edit { directory: directory.to_owned(), object, source: None, change, dry_run: false, node_name, seen }
    }

    fn pod(image: &str) -> Value {
        json!({ "metadata": { "name": "web" }, "spec": { "containers": [{ "name": "main", "image": image }] } })
    }

    const WEB: &str = "/api/v1/namespaces/shop/pods/web";

    fn files(directory: &Path) -> Vec<String> {
        let mut all: Vec<String> =
            fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn an_object_of_kubectl_is_a_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let created = edit(dir.path(), WEB, Some(Change::Create(pod("a:1")))).run(&Abandoned::default()).unwrap();
        assert_eq!((created.outcome, created.before), (Outcome::Created, None));
        assert_eq!(files(dir.path()), ["kubectl_shop_pod_web.yaml"]);
        assert_eq!(created.object["spec"]["restartPolicy"], "Always", "with defaults");
        let text = fs::read_to_string(&created.file).unwrap();
        assert!(text.contains("image: a:1") && !text.contains("restartPolicy"), "without them: {text}");

        let change = |patch: Value| Edit {
            source: Some((created.file.clone(), 1)),
            ..edit(dir.path(), WEB, Some(Change::Merge(patch)))
        };
        let label = json!({ "metadata": { "labels": { "a": "yes", "b": "0644", "c": "1e3" } } });
        let dry = Edit { dry_run: true, ..change(label.clone()) }.run(&Abandoned::default()).unwrap();
        assert_eq!((dry.outcome, fs::read_to_string(&created.file).unwrap()), (Outcome::Changed, text));
        let changed = change(label.clone()).run(&Abandoned::default()).unwrap();
        assert_eq!((changed.outcome, &changed.digest), (Outcome::Changed, &dry.digest));
        assert_eq!(changed.object["metadata"]["labels"], label["metadata"]["labels"]);
        assert_eq!(change(label).run(&Abandoned::default()).unwrap().outcome, Outcome::Unchanged);

        let removed = Edit { change: None, ..change(Value::Null) }.run(&Abandoned::default()).unwrap();
        assert_eq!((removed.outcome, files(dir.path())), (Outcome::Removed, Vec::new()));
        let again = Edit { change: None, ..change(Value::Null) }.run(&Abandoned::default()).unwrap();
        assert_eq!((again.outcome, again.before), (Outcome::Removed, None), "another client was faster");
        assert_eq!(change(Value::Null).run(&Abandoned::default()).unwrap_err().code, 500, "there is nothing to change");
        take_back(dir.path(), &removed).unwrap();
        assert_eq!(files(dir.path()).len(), 1);
        take_back(dir.path(), &Edited { before: None, ..removed }).unwrap();
        assert!(files(dir.path()).is_empty());
    }

    #[test]
    fn a_change_that_is_abandoned_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let abandoned = Abandoned::default();
        let create = || edit(dir.path(), WEB, Some(Change::Create(pod("a:1"))));
        abandoned.abandon();
        assert_eq!(create().run(&abandoned).unwrap_err().message, "the client has disconnected");
        assert!(files(dir.path()).is_empty());
        let created = create().run(&Abandoned::default()).unwrap();
        let remove = Edit { source: Some((created.file, 1)), ..edit(dir.path(), WEB, None) };
        assert!(remove.run(&abandoned).is_err());
        assert_eq!(files(dir.path()).len(), 1);
    }

    #[test]
    fn the_longest_name_has_a_file_and_one_that_is_longer_is_invalid() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = "n".repeat(63);
        let of = |name: &str| {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
            let object = json!({ "metadata": { "name": name }, "data": { "a": "b" } });
            edit(dir.path(), &path, Some(Change::Create(object))).run(&Abandoned::default())
        };
        // They differ only at the end.
        let (one, two) = ("m".repeat(252) + "1", "m".repeat(252) + "2");
        for name in [&one, &two] {
            let created = of(name).unwrap();
            assert!(created.file.file_name().unwrap().len() < 250, "{created:?}");
            let patch = Change::Merge(json!({ "data": { "a": "c" } }));
            let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
            let change = Edit { source: Some((created.file, 1)), ..edit(dir.path(), &path, Some(patch)) };
            assert_eq!(change.run(&Abandoned::default()).unwrap().outcome, Outcome::Changed);
        }
        assert_eq!(files(dir.path()).len(), 2);
        assert_eq!(of(&"m".repeat(254)).unwrap_err().code, 422);
    }

    #[test]
    fn a_link_is_not_replaced_and_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("web.yaml"));
        let text = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n";
        fs::write(&target, text).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let of = |change| Edit {
            source: Some((link.clone(), 1)),
            ..edit(dir.path(), "/api/v1/namespaces/default/configmaps/a", change)
        };
        let failure = of(Some(Change::Merge(json!({ "data": { "x": "y" } })))).run(&Abandoned::default()).unwrap_err();
        assert_eq!(failure.code, 409);
        let why = format!("is a symbolic link to {}; change that file", target.display());
        assert!(failure.message.contains(&why), "{}", failure.message);
        assert!(link.is_symlink());
        of(None).run(&Abandoned::default()).unwrap();
        assert_eq!((link.is_symlink(), fs::read_to_string(&target).unwrap().as_str()), (false, text));
    }

    #[test]
    fn an_object_of_a_shared_file_is_left_to_its_author() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("all.yaml");
        let one = |name: &str| format!("kind: ConfigMap\napiVersion: v1\nmetadata: {{name: {name}}}\n");
        let both = format!("# first\n{}---\n{}", one("a"), one("b"));
        fs::write(&file, &both).unwrap();
        let of_b = |change| Edit {
            source: Some((file.clone(), 2)),
            ..edit(dir.path(), "/api/v1/namespaces/default/configmaps/b", change)
        };
        for change in [None, Some(Change::Merge(json!({ "data": { "x": "y" } })))] {
            let failure = of_b(change).run(&Abandoned::default()).unwrap_err();
            assert_eq!(failure.code, 409);
            assert!(failure.message.contains("all.yaml, line 6, defines this object"), "{}", failure.message);
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), both);
        // Alone it can be changed.
        fs::write(&file, format!("# mine\n{}", one("b"))).unwrap();
        let changed = of_b(Some(Change::Merge(json!({ "data": { "x": "y" } })))).run(&Abandoned::default()).unwrap();
        assert_eq!(
            (changed.outcome, changed.warnings.len(), files(dir.path())),
            (Outcome::Changed, 1, vec!["all.yaml".to_owned()])
        );
        assert_eq!(of_b(None).run(&Abandoned::default()).unwrap().outcome, Outcome::Removed);
    }

    #[test]
    fn an_invalid_object_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let unknown = json!({ "spec": { "containers": [{ "name": "main", "image": "a", "imagge": "b" }] } });
        for (path, object, code) in [
            (WEB, unknown, 400),
            (WEB, json!({ "spec": { "containers": [] } }), 422),
            (WEB, json!({ "spec": { "containers": "x" } }), 422),
            ("/api/v1/namespaces/shop/pods/..%2Fweb", pod("a"), 400),
            ("/api/v1/namespaces/..%2F..%2Fetc/pods/x", json!({}), 400),
            ("/api/v1/namespaces/shop/configmaps/a_b", json!({}), 422),
        ] {
            let failure = edit(dir.path(), path, Some(Change::Apply(object))).run(&Abandoned::default()).unwrap_err();
            assert_eq!(failure.code, code, "{path}: {}", failure.message);
            assert!(!failure.message.contains(&dir.path().display().to_string()), "{}", failure.message);
        }
        assert!(files(dir.path()).is_empty());
        // A file of this name that defines something else is not replaced.
        fs::write(dir.path().join("kubectl_shop_pod_web.yaml"), "x").unwrap();
        assert_eq!(
            edit(dir.path(), WEB, Some(Change::Create(pod("a")))).run(&Abandoned::default()).unwrap_err().code,
            409
        );
    }

    #[test]
    fn only_root_can_read_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        let secret = json!({ "stringData": { "password": "hunter2" } });
        let path = "/api/v1/namespaces/default/secrets/key";
        let created = edit(dir.path(), path, Some(Change::Create(secret))).run(&Abandoned::default()).unwrap();
        assert_eq!(fs::metadata(&created.file).unwrap().permissions().mode() & 0o777, 0o600);
        let invalid = json!({ "data": { "password": "not base64: hunter2" } });
        let path = "/api/v1/namespaces/default/secrets/other";
        let failure = edit(dir.path(), path, Some(Change::Create(invalid))).run(&Abandoned::default()).unwrap_err();
        assert!(!failure.message.contains("hunter2"), "{}", failure.message);
    }
}
