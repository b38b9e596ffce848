//! Carries out changes to manifests that kubectl requests: reads, writes and removes files that define a single
//! object. `api/kube/edit` makes the decisions. Runs on a helper thread, one change at a time.

use crate::adapters::durable;
use crate::api::kube::edit::{EditOutcome, Edited, FileFound, ManifestEdit, PlannedEdit};
use crate::api::kube::status::Failure;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A requested change.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The manifest directory.
    pub directory: PathBuf,
    /// The file that currently defines the object; None if no file does.
    pub file: Option<PathBuf>,
    pub manifest: ManifestEdit,
    /// Whether to check the change without carrying it out.
    pub dry_run: bool,
}

/// Tells the helper thread that carries out a change whether the client has disconnected.
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

impl Edit {
    /// Carries out the change, durably.
    ///
    /// # Errors
    /// The change is not valid or was abandoned, the object is not alone in its file, or a file cannot be read or
    /// written. In these cases nothing has changed. If only the sync of the directory fails, the file has changed.
    pub fn run(self, abandoned: &Abandoned) -> Result<Edited, Failure> {
        check(abandoned)?;
        self.manifest.check_names()?;
        let file = self.file.clone().unwrap_or_else(|| self.directory.join(self.manifest.file_name()));
        let found = find(&file)?;
        let exists = found != FileFound::Nothing;
        let before = match &found {
            FileFound::Nothing => None,
            FileFound::Text(text) => Some(text.clone()),
            FileFound::Link { text, .. } => text.clone(),
        };
        let planned = self.manifest.plan(&file.display().to_string(), found)?;
        check(abandoned)?;
        if !self.dry_run {
            self.carry_out(&file, &planned, exists)?;
        }
        Ok(planned.carried_out(file, before))
    }

    fn carry_out(&self, file: &Path, planned: &PlannedEdit, exists: bool) -> Result<(), Failure> {
        match &planned.text {
            Some(text) => put(&self.directory, file, text, self.manifest.mode()),
            None if planned.outcome == EditOutcome::Removed && exists => {
                fs::remove_file(file).map_err(|e| failed("remove", file, &e))?;
                durable::sync(&self.directory).map_err(|e| failed("sync", &self.directory, &e))
            }
            None => Ok(()),
        }
    }
}

fn find(file: &Path) -> Result<FileFound, Failure> {
    let text = match fs::read(file) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(failed("read", file, &e)),
    };
    Ok(match (fs::read_link(file), text) {
        (Ok(target), text) => FileFound::Link { target: target.display().to_string(), text },
        // The path is not a symbolic link, so readlink(2) fails.
        (Err(_), Some(text)) => FileFound::Text(text),
        (Err(_), None) => FileFound::Nothing,
    })
}

fn check(abandoned: &Abandoned) -> Result<(), Failure> {
    match abandoned.is_abandoned() {
        true => Err(Failure::timeout("the client has disconnected")),
        false => Ok(()),
    }
}

/// Reverts a change: restores the old content of the file, or removes the file if the change created it. Leaves the
/// file alone if somebody has modified it since.
///
/// # Errors
/// The file cannot be read, written or removed.
pub fn take_back(directory: &Path, edited: &Edited) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", edited.file.display());
    let present = match fs::read(&edited.file) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(failed(e)),
    };
    if !edited.is_unchanged_since(present.as_deref()) {
        log::info!("not reverting a refused change: the file has been modified since file={:?}", edited.file);
        return Ok(());
    }
    let done = match &edited.before {
        None => fs::remove_file(&edited.file).and_then(|()| durable::sync(directory)),
        Some(text) => {
            let secret = edited.object.get("kind").is_some_and(|kind| kind == "Secret");
            put(directory, &edited.file, text, if secret { 0o600 } else { 0o644 })
                .map_err(|e| std::io::Error::other(e.message))
        }
    };
    done.map_err(failed)
}

fn put(directory: &Path, file: &Path, text: &[u8], mode: u32) -> Result<(), Failure> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // Dot files are not read as manifests.
    let aside = file.with_file_name(format!(".{name}.new"));
    // A file that a killed run left behind may have another mode.
    let _ = fs::remove_file(&aside);
    durable::replace(file, &aside, text, mode).map_err(|e| failed("write", file, &e))?;
    durable::sync(directory).map_err(|e| failed("sync", directory, &e))
}

fn failed(what: &str, path: &Path, e: &std::io::Error) -> Failure {
    Failure::internal(format!("failed to {what} {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::context::NetworkPolicies;
    use crate::api::kube::path::{Target, parse};
    use crate::api::kube::write::ObjectChange;
    use serde_json::{Value, json};
    use std::os::unix::fs::PermissionsExt;

    fn edit(directory: &Path, path: &str, change: Option<ObjectChange>) -> Edit {
        let Ok(Target::Object(object)) = parse(path) else { panic!("{path}") };
        let (node_name, seen) = ("node".to_owned(), "2026-11-20T15:00:00Z".to_owned());
        let network_policies = NetworkPolicies::default();
        let manifest = ManifestEdit { object, document: None, digest: None, change, node_name, seen, network_policies };
        Edit { directory: directory.to_owned(), file: None, manifest, dry_run: false }
    }

    /// Returns a change to the object that this document of the file defines.
    fn edit_of(file: &Path, document: u32, path: &str, change: Option<ObjectChange>) -> Edit {
        let Edit { directory, manifest, .. } = edit(file.parent().unwrap(), path, change);
        let manifest = ManifestEdit { document: Some(document), ..manifest };
        Edit { directory, file: Some(file.to_owned()), manifest, dry_run: false }
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
        let created = edit(dir.path(), WEB, Some(ObjectChange::Create(pod("a:1")))).run(&Abandoned::default()).unwrap();
        assert_eq!((created.outcome, created.before), (EditOutcome::Created, None));
        assert_eq!(files(dir.path()), ["kubectl_shop_pod_web.yaml"]);
        assert_eq!(created.object["spec"]["restartPolicy"], "Always", "with defaults");
        let text = fs::read_to_string(&created.file).unwrap();
        assert!(text.contains("image: a:1") && !text.contains("restartPolicy"), "without them: {text}");

        let change = |patch: Value| edit_of(&created.file, 1, WEB, Some(ObjectChange::Merge(patch)));
        let remove = || edit_of(&created.file, 1, WEB, None);
        let label = json!({ "metadata": { "labels": { "a": "yes", "b": "0644", "c": "1e3" } } });
        let dry = Edit { dry_run: true, ..change(label.clone()) }.run(&Abandoned::default()).unwrap();
        assert_eq!((dry.outcome, fs::read_to_string(&created.file).unwrap()), (EditOutcome::Changed, text));
        let changed = change(label.clone()).run(&Abandoned::default()).unwrap();
        assert_eq!((changed.outcome, &changed.digest), (EditOutcome::Changed, &dry.digest));
        assert_eq!(changed.object["metadata"]["labels"], label["metadata"]["labels"]);
        assert_eq!(change(label).run(&Abandoned::default()).unwrap().outcome, EditOutcome::Unchanged);

        let manifest = ManifestEdit { digest: Some(created.digest.clone()), ..remove().manifest };
        let of_older_version = Edit { manifest, ..remove() }.run(&Abandoned::default()).unwrap_err();
        assert!(of_older_version.message.contains("was changed in the meantime"), "{}", of_older_version.message);
        let removed = remove().run(&Abandoned::default()).unwrap();
        assert_eq!((removed.outcome, files(dir.path())), (EditOutcome::Removed, Vec::new()));
        let again = remove().run(&Abandoned::default()).unwrap();
        assert_eq!((again.outcome, again.before), (EditOutcome::Removed, None), "another client was faster");
        assert_eq!(change(Value::Null).run(&Abandoned::default()).unwrap_err().code, 409, "there is nothing to change");
        take_back(dir.path(), &removed).unwrap();
        assert_eq!(files(dir.path()).len(), 1);
        remove().run(&Abandoned::default()).unwrap();
        let created = edit(dir.path(), WEB, Some(ObjectChange::Create(pod("a:1")))).run(&Abandoned::default()).unwrap();
        let (mine, written) = ("# by hand\n", fs::read(&created.file).unwrap());
        fs::write(&created.file, mine).unwrap();
        take_back(dir.path(), &created).unwrap();
        assert_eq!(fs::read_to_string(&created.file).unwrap(), mine, "a later change stays");
        fs::write(&created.file, written).unwrap();
        take_back(dir.path(), &created).unwrap();
        assert!(files(dir.path()).is_empty());
    }

    #[test]
    fn a_change_that_is_abandoned_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let abandoned = Abandoned::default();
        let create = || edit(dir.path(), WEB, Some(ObjectChange::Create(pod("a:1"))));
        abandoned.abandon();
        assert_eq!(create().run(&abandoned).unwrap_err().message, "the client has disconnected");
        assert!(files(dir.path()).is_empty());
        let created = create().run(&Abandoned::default()).unwrap();
        let remove = edit_of(&created.file, 1, WEB, None);
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
            edit(dir.path(), &path, Some(ObjectChange::Create(object))).run(&Abandoned::default())
        };
        // The names differ only in the last character.
        let (one, two) = ("m".repeat(252) + "1", "m".repeat(252) + "2");
        for name in [&one, &two] {
            let created = of(name).unwrap();
            assert!(created.file.file_name().unwrap().len() < 250, "{created:?}");
            let patch = ObjectChange::Merge(json!({ "data": { "a": "c" } }));
            let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
            let change = edit_of(&created.file, 1, &path, Some(patch));
            assert_eq!(change.run(&Abandoned::default()).unwrap().outcome, EditOutcome::Changed);
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
        let of = |change| edit_of(&link, 1, "/api/v1/namespaces/default/configmaps/a", change);
        let failure =
            of(Some(ObjectChange::Merge(json!({ "data": { "x": "y" } })))).run(&Abandoned::default()).unwrap_err();
        assert_eq!(failure.code, 409);
        let why = format!("is a symbolic link to {}; change that file", target.display());
        assert!(failure.message.contains(&why), "{}", failure.message);
        assert!(link.is_symlink());
        of(None).run(&Abandoned::default()).unwrap();
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &link).unwrap();
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
        let of_b = |change| edit_of(&file, 2, "/api/v1/namespaces/default/configmaps/b", change);
        for change in [None, Some(ObjectChange::Merge(json!({ "data": { "x": "y" } })))] {
            let failure = of_b(change).run(&Abandoned::default()).unwrap_err();
            assert_eq!(failure.code, 409);
            assert!(failure.message.contains("all.yaml, line 6, defines this object"), "{}", failure.message);
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), both);
        // An object that is alone in its file can be changed.
        fs::write(&file, format!("# mine\n{}", one("b"))).unwrap();
        let changed =
            of_b(Some(ObjectChange::Merge(json!({ "data": { "x": "y" } })))).run(&Abandoned::default()).unwrap();
        assert_eq!(
            (changed.outcome, changed.warnings.len(), files(dir.path())),
            (EditOutcome::Changed, 1, vec!["all.yaml".to_owned()])
        );
        assert_eq!(of_b(None).run(&Abandoned::default()).unwrap().outcome, EditOutcome::Removed);
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
            let failure =
                edit(dir.path(), path, Some(ObjectChange::Apply(object))).run(&Abandoned::default()).unwrap_err();
            assert_eq!(failure.code, code, "{path}: {}", failure.message);
            assert!(!failure.message.contains(&dir.path().display().to_string()), "{}", failure.message);
        }
        assert!(files(dir.path()).is_empty());
        // An existing file of this name with other content is not replaced.
        fs::write(dir.path().join("kubectl_shop_pod_web.yaml"), "x").unwrap();
        assert_eq!(
            edit(dir.path(), WEB, Some(ObjectChange::Create(pod("a")))).run(&Abandoned::default()).unwrap_err().code,
            409
        );
    }

    #[test]
    fn only_root_can_read_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        let secret = json!({ "stringData": { "password": "hunter2" } });
        let path = "/api/v1/namespaces/default/secrets/key";
        let created = edit(dir.path(), path, Some(ObjectChange::Create(secret))).run(&Abandoned::default()).unwrap();
        assert_eq!(fs::metadata(&created.file).unwrap().permissions().mode() & 0o777, 0o600);
        let invalid = json!({ "data": { "password": "not base64: hunter2" } });
        let path = "/api/v1/namespaces/default/secrets/other";
        let failure =
            edit(dir.path(), path, Some(ObjectChange::Create(invalid))).run(&Abandoned::default()).unwrap_err();
        assert!(!failure.message.contains("hunter2"), "{}", failure.message);
    }
}
