//! `wherry keep`: writes manifests with which a pod of the cluster can run without the cluster.
//!
//! The command reads the agent's records; it needs neither the agent nor the API server. The pod's own manifest is
//! written last, so that an interrupted command can be repeated.
//!
//! Sealed records (C15) need the key, which is a credential of the process. Their Secrets are written as plain text
//! only with `--plain-secrets`.

use crate::adapters::manifests::edit::{Abandoned, Edit};
use crate::adapters::manifests::{self, ServiceCredentials};
use crate::adapters::records::Records;
use crate::agent::seal_key;
use crate::api::cluster::reduced::{self, Handler};
use crate::api::cluster::{data_record, keep};
use crate::api::data_object::{DataKey, DataKind};
use crate::api::document::context::Context;
use crate::api::document::{self, Key};
use crate::api::kube::edit::ManifestEdit;
use crate::api::kube::path::ObjectPath;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::write::ObjectChange;
use crate::api::names::FullName;
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::problem::Problem;
use crate::api::runtime_class;
use crate::api::sealing::{CREDENTIAL, CREDENTIAL_FILE, Content, KeyState, StoredRecord};
use crate::commands::output::{Failure, document as print_document, print_message, shown};
use crate::commands::select::{PodArgs, PodTarget};
use crate::config::{self, Flags};
use crate::engine::pod::record::{self, Record};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The record of the RuntimeClasses.
const CLASSES: &str = "lists/runtimeclasses";

#[derive(Debug, clap::Args)]
pub struct KeepArgs {
    #[command(flatten)]
    pod: PodArgs,
    /// Print the manifests, including the values of Secrets, and write no files
    #[arg(long)]
    dry_run: bool,
    /// Write Secrets as plain text into manifests, even if their copies on the disk are sealed
    #[arg(long)]
    plain_secrets: bool,
    #[command(flatten)]
    config: Flags,
}

/// Runs the command.
///
/// # Errors
/// There is no such pod of the cluster, it already has a manifest, or a manifest cannot be created or written.
pub fn run(out: &mut dyn Write, arguments: &KeepArgs) -> Result<u8, Failure> {
    let config = config::load(&arguments.config).config;
    let (key, key_state) = seal_key::of(&ServiceCredentials::of_environment());
    let records = Records::look(&config.root_dir, &[record::KIND, data_record::KIND, reduced::KIND], key.as_deref())
        .map_err(|why| Failure::message(format!("{why}; run the command as root")))?;
    let pod = find(&records, &arguments.pod.target()?)?;
    let there = defined(&config.manifests)?;
    if let Some(file) = there.get(&Key::Pod(pod.name.clone())) {
        let why = format!("{} already defines pod {}", file.display(), pod.name);
        return Err(Failure::message(why));
    }
    let seen = Timestamp::now().to_string();
    let kept =
        keep::pod(&pod, Context::new(&config.node_name, &seen)).map_err(|problems| unsupported(&pod, &problems))?;
    let may_be_plain = arguments.dry_run || arguments.plain_secrets;
    let new = Objects { there, records: &records, pod: &pod, key_state, may_be_plain }.of(kept.clone())?;
    for KeptObject { path, value } in new {
        if arguments.dry_run {
            writeln!(out, "---")?;
            print_document(out, &value, true)?;
            continue;
        }
        let manifest = ManifestEdit {
            object: path,
            document: None,
            digest: None,
            change: Some(ObjectChange::Create(value)),
            node_name: config.node_name.clone(),
            seen: seen.clone(),
            network_policies: config.manifest_rules.network_policies,
        };
        let edit = Edit { directory: config.manifests.clone(), file: None, manifest, dry_run: false };
        let edited = edit.run(&Abandoned::default()).map_err(|failure| Failure::message(failure.message))?;
        writeln!(out, "wrote {}", shown(&edited.file.display().to_string()))?;
    }
    out.flush()?;
    explain(&pod, &kept);
    Ok(0)
}

/// Returns the recorded pod that the user has named.
fn find(records: &[StoredRecord], target: &PodTarget) -> Result<Rc<Pod>, Failure> {
    let pods: Vec<Record> = records
        .iter()
        .filter(|record| record::is_pod(&record.key))
        .filter_map(|record| record::read(&record.key, record.value()?).ok())
        .filter(|record| record.terminal.is_none())
        .collect();
    let items = pods.iter().map(|record| {
        let Pod { name, uid, .. } = &*record.pod;
        json!({ "metadata": { "namespace": &*name.namespace, "name": &*name.name, "uid": uid.to_string() } })
    });
    // The error lists similar names.
    let found = target.find(&mut json!({ "items": items.collect::<Value>() })).map_err(Failure::message)?;
    let is_found = |pod: &Pod| found.iter().any(|item| item["metadata"]["uid"] == pod.uid.as_str());
    let (of_cluster, others): (Vec<Rc<Pod>>, Vec<Rc<Pod>>) =
        pods.into_iter().map(|record| record.pod).filter(|pod| is_found(pod)).partition(|pod| pod.source.is_api());
    match (of_cluster.as_slice(), others.first()) {
        ([pod], _) => Ok(pod.clone()),
        ([], Some(pod)) => Err(Failure::message(format!(
            "pod {} does not belong to a cluster: {} defines it",
            pod.name, pod.source.path
        ))),
        (several, _) => {
            let names: Vec<String> = several.iter().map(|pod| format!("{} (UID {})", pod.name, pod.uid)).collect();
            Err(Failure::message(format!("{target} names several pods: {}; name one by its UID", names.join(", "))))
        }
    }
}

/// Returns the objects of the manifests, with their files.
fn defined(directory: &Path) -> Result<BTreeMap<Key, PathBuf>, Failure> {
    let mut there = BTreeMap::new();
    for file in manifests::files_in(directory).map_err(Failure::message)? {
        let text = fs::read(&file).map_err(|e| Failure::message(format!("cannot read {}: {e}", file.display())))?;
        for document in document::parse(&text, &file.display().to_string()).unwrap_or_default() {
            if let Some(key) = document.key() {
                there.entry(key).or_insert_with(|| file.clone());
            }
        }
    }
    Ok(there)
}

fn unsupported(pod: &Pod, problems: &[Problem]) -> Failure {
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Failure::message(format!("pod {} cannot have a manifest:\n{}", pod.name, all.join("\n")))
}

struct KeptObject {
    path: ObjectPath,
    value: Value,
}

/// The data from which the manifests are made.
struct Objects<'a> {
    there: BTreeMap<Key, PathBuf>,
    records: &'a [StoredRecord],
    pod: &'a Pod,
    key_state: KeyState,
    /// Whether a sealed Secret may be written as plain text.
    may_be_plain: bool,
}

impl Objects<'_> {
    /// Returns the new manifests, with the pod's manifest at the end.
    fn of(&self, kept: keep::Kept) -> Result<Vec<KeptObject>, Failure> {
        let keep::Kept { object, pod, overhead, .. } = kept;
        let mut keys: Vec<DataKey> = pod.data_objects().collect();
        keys.order();
        keys.dedup();
        let new = keys.into_iter().filter_map(|key| self.data(key).transpose());
        let mut new = new.collect::<Result<Vec<KeptObject>, Failure>>()?;
        if let Some(name) = runtime_class::named(pod.spec())
            && let Some(value) = self.runtime_class(name, overhead)
        {
            new.push(KeptObject { path: path(Kind::RuntimeClass, None, name), value });
        }
        let FullName { namespace, name } = &pod.name;
        new.push(KeptObject { path: path(Kind::Pod, Some(namespace), name), value: object });
        Ok(new)
    }

    /// Returns a ConfigMap or a Secret, or None if it already has a manifest or is not on this machine.
    fn data(&self, key: DataKey) -> Result<Option<KeptObject>, Failure> {
        let record_key = data_record::key(&key);
        if let Some(file) = self.there.get(&Key::Data(key.clone())) {
            print_message(&format!("using {key} from {}, not the one from the cluster", file.display()));
            return Ok(None);
        }
        let record = self.records.iter().find(|record| record.key == record_key);
        match record.map(|record| &record.content) {
            Some(Content::Locked) => return Err(self.locked(&key)),
            Some(Content::Sealed(_)) if !self.may_be_plain => {
                return Err(Failure::message(format!(
                    "{key} is sealed on this machine, and its manifest would be plain text: repeat the command with \
                     --plain-secrets, or first write a manifest of {key} whose values are credentials of the service \
                     (man wherry-manifests, wherry.io/credentials)"
                )));
            }
            _ => {}
        }
        let text = record.and_then(StoredRecord::value);
        let Some(fetched) = text.and_then(|text| data_record::read(&record_key, text).ok()) else {
            print_message(&format!("{key} does not exist in the cluster, or is not on this machine"));
            return Ok(None);
        };
        let kind = match key.kind {
            DataKind::ConfigMap => Kind::ConfigMap,
            DataKind::Secret => Kind::Secret,
        };
        let path = path(kind, Some(&key.name.namespace), &key.name.name);
        Ok(Some(KeptObject { path, value: keep::data(fetched.value()) }))
    }

    fn locked(&self, key: &DataKey) -> Failure {
        let FullName { namespace, name } = &self.pod.name;
        let state = match &self.key_state {
            KeyState::Missing => format!("this command has no credential {CREDENTIAL}"),
            KeyState::Unusable(why) => format!("the credential {CREDENTIAL} of this command cannot be used: {why}"),
            KeyState::Usable => format!("the credential {CREDENTIAL} of this command is a different key"),
        };
        Failure::message(format!(
            "{key} is sealed on this machine, and {state}; run as root: systemd-run --pipe --wait --collect -p \
             LoadCredentialEncrypted={CREDENTIAL}:{CREDENTIAL_FILE} wherry keep {namespace}/{name} --plain-secrets"
        ))
    }

    fn runtime_class(&self, name: &str, overhead: Option<Value>) -> Option<Value> {
        if let Some(file) = self.there.get(&Key::RuntimeClass(name.to_owned())) {
            print_message(&format!("using RuntimeClass {name} from {}, not the one from the cluster", file.display()));
            return None;
        }
        let handler = self.record(CLASSES).and_then(|text| reduced::read::<Handler>(text).ok()?.remove(name));
        if handler.is_none() {
            print_message(&format!("RuntimeClass {name} is not on this machine; add a manifest for it"));
        }
        Some(keep::runtime_class(name, &handler?.handler, overhead))
    }

    fn record(&self, key: &str) -> Option<&str> {
        self.records.iter().find(|record| record.key == key).and_then(StoredRecord::value)
    }
}

fn path(kind: Kind, namespace: Option<&str>, name: &str) -> ObjectPath {
    let namespace = namespace.map(str::to_owned);
    ObjectPath { resource: Resource::of(kind), namespace, name: Some(name.to_owned()), subresource: None }
}

/// Prints which parts of the pod the manifest lacks, and how to let the pod of the manifest start.
fn explain(pod: &Pod, kept: &keep::Kept) {
    if !kept.tokens.is_empty() {
        let volumes = kept.tokens.join(", ");
        print_message(&format!("the manifest has no service account token (volume {volumes})"));
    }
    print_message("the manifest has no environment variables for services");
    let FullName { namespace, name } = &pod.name;
    print_message(&format!(
        "the pod of the manifest starts when the pod of the cluster is gone; to remove that pod: kubectl delete pod -n \
         {namespace} {name}, or wherry leave --force"
    ));
    let owners = pod.object.metadata.owner_references.iter().flatten();
    for owner in owners.filter(|owner| owner.controller == Some(true)) {
        print_message(&format!("{} {} replaces deleted pods; scale it down first", owner.kind, owner.name));
    }
}
