//! Parses a manifest file into objects. It supports YAML and JSON, several documents per file, and the kinds `Pod`,
//! `CronJob`, `Deployment`, `DaemonSet`, `Job`, `ReplicaSet`, `StatefulSet`, `Service`, `EndpointSlice`,
//! `PersistentVolumeClaim`, `ConfigMap`, `Secret`, `PriorityClass`, `RuntimeClass`, the kinds of `plain_object`, `List`
//! and `PodList`.
//!
//! Parsing has two steps, so that unchanged documents are not processed again. `parse` returns the documents as plain
//! values, each with its digest. Only an error in the format of the file (invalid YAML, a duplicate key, too large)
//! makes the whole file fail. `Document::object` then builds the typed object of one document: it checks types and
//! unknown fields (`k8s`), sets defaults and validates. An error in one document does not affect the others.
//!
//! YAML is read as in Kubernetes (YAML 1.1: `yes`, `on` and `y` are booleans, `0644` is octal), with limits on size,
//! depth and aliases.

pub mod context;
mod kinds;
mod locate;
pub mod other_kinds;

use crate::api::claim::{self, CLAIM, Claim, ClaimKey};
use crate::api::data_object::{self, DataKey, DataKind, DataObject, DataValue, DockerFormat};
use crate::api::k8s::field::FieldValue;
use crate::api::k8s::{self, ObjectMeta};
use crate::api::names::FullName;
use crate::api::network_defaults;
use crate::api::network_object::{NetworkContent, NetworkKey, NetworkKind, NetworkObject};
use crate::api::plain_object::{self, PlainKey, PlainKind, PlainObject};
use crate::api::pod::Pod;
use crate::api::priority::PriorityClass;
use crate::api::problem::{Fault, FieldPath, FieldStep, Problem, brief};
use crate::api::runtime_class::RuntimeClass;
use crate::api::source::Source;
use crate::api::system_credentials::{self, Credentials};
use crate::api::workload::Workload;
use crate::api::workload::cron_job::{self, CronJob};
use crate::api::workload::daemon_set::{self, DaemonSet};
use crate::api::workload::deployment::{self, Deployment};
use crate::api::workload::job::{self, Job};
use crate::api::workload::key::{WorkloadKey, WorkloadKind};
use crate::api::workload::replica_set::{self, ReplicaSet};
use crate::api::workload::stateful_set::{self, StatefulSet};
use crate::api::{defaults, uid, validate};
use context::{Context, NetworkPolicies};
use kinds::{
    CRON_JOB, DAEMON_SET, DEPLOYMENT, ENDPOINT_SLICE, JOB, PRIORITY_CLASS, REPLICA_SET, RUNTIME_CLASS, SERVICE,
    STATEFUL_SET, fault, near,
};
use serde_json::{Value, json};
use serde_saphyr::options::DuplicateKeyPolicy;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The maximum size of a file, in bytes. A ConfigMap or Secret with the maximum of 1 MiB of values fits, even in
/// base64.
pub const MAX_BYTES: usize = 2 << 20;
/// The maximum nesting depth: more than any pod needs, and safe for the stack.
const MAX_DEPTH: usize = 64;
const MAX_NODES: usize = 20_000;
/// The maximum number of aliases for one anchor. It limits the effect of an alias bomb.
const MAX_ALIASES: usize = 100;
/// The maximum number of errors reported per document. Further errors are only counted.
const MAX_FAULTS: usize = 20;
/// The maximum length of an error message, in characters.
const MAX_MESSAGE: usize = 2000;
/// The maximum number of bytes that are parsed again per file to find the lines of errors. Once it is reached, errors
/// name only the document and the field.
const MAX_WALKED: usize = 16 * MAX_BYTES;

/// The object of a valid document.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    Pod(Box<Pod>),
    Workload(Workload),
    PriorityClass(PriorityClass),
    RuntimeClass(RuntimeClass),
    Data(DataObject),
    Claim(Box<Claim>),
    Network(Box<NetworkObject>),
    Plain(Box<PlainObject>),
}

/// The identity that a document claims. A later version with the same key replaces the earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Pod(FullName),
    Workload(WorkloadKey),
    PriorityClass(String),
    RuntimeClass(String),
    Data(DataKey),
    Claim(ClaimKey),
    Network(NetworkKey),
    Plain(PlainKey),
}

/// Returns the errors of a typed, defaulted pod.
type Validate = fn(&k8s::Pod) -> Vec<Fault>;

/// One unprocessed document of a file. An item of a List counts as one document.
#[derive(Clone, Debug)]
pub struct Document {
    /// The position in the file, from 1.
    pub number: u32,
    /// The document without `status`, which is not part of the desired state.
    pub content: Value,
    /// The digest of the content (D3).
    pub digest: String,
    /// The index of the YAML document, from 0, and the path to the root of this document in it.
    stream_index: usize,
    root: FieldPath,
    /// The errors found before the types are checked.
    faults: Vec<Fault>,
    /// Bytes parsed again to find the lines of errors, counted over all documents of the file.
    walked: Arc<AtomicUsize>,
}

/// Splits a file into documents. `path` is only used in the error.
///
/// # Errors
/// The file as a whole cannot be parsed, or it contains no document (D2: the file is broken).
pub fn parse(text: &[u8], path: &str) -> Result<Vec<Document>, Problem> {
    if text.len() > MAX_BYTES {
        return Err(Problem::of_file(path, format!("larger than {MAX_BYTES} bytes; split it")));
    }
    let text = std::str::from_utf8(text).map_err(|e| Problem {
        line: Some(1 + text[..e.valid_up_to()].iter().filter(|&&b| b == b'\n').count() as u32),
        ..Problem::of_file(path, "not UTF-8 text")
    })?;
    let values: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options()).map_err(|e| yaml_error(path, &e))?;
    let mut documents = Vec::new();
    let walked = Arc::default();
    for (index, value) in values.into_iter().enumerate() {
        add(&mut documents, index, FieldPath::default(), value, &walked);
    }
    if documents.is_empty() {
        return Err(Problem::of_file(path, "the file has no document; to remove its pods, remove the file"));
    }
    Ok(documents)
}

/// Parses a single YAML or JSON document into a plain value, with the limits that apply to manifests.
///
/// # Errors
/// The text cannot be parsed, or does not contain exactly one document.
pub fn value(text: &[u8]) -> Result<Value, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("larger than {MAX_BYTES} bytes"));
    }
    let text = std::str::from_utf8(text).map_err(|_| "not UTF-8 text")?;
    let mut values: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options())
        .map_err(|e| brief(&yaml_error("", &e).message).to_string())?;
    match (values.pop(), values.is_empty()) {
        (Some(value), true) => Ok(value),
        _ => Err("it must contain one document".to_owned()),
    }
}

/// Returns all objects and all problems of a file. Combines `parse` and `Document::object`.
pub fn read_objects(text: &[u8], path: &str, context: Context<'_>) -> (Vec<Object>, Vec<Problem>) {
    let mut objects = Vec::new();
    let mut problems = Vec::new();
    match parse(text, path) {
        Err(problem) => problems.push(problem),
        Ok(documents) => {
            for document in documents {
                match document.object(path, Some(text), context) {
                    Ok(object) => objects.push(object),
                    Err(more) => problems.extend(more),
                }
            }
        }
    }
    (objects, problems)
}

/// The objects, problems and warnings of a file.
#[derive(Debug, Default)]
pub struct Checked {
    pub objects: Vec<Object>,
    /// The errors, including invalid image names, for which a pod is not rejected.
    pub problems: Vec<Problem>,
    /// Values that are valid but probably unintended.
    pub warnings: Vec<Problem>,
}

/// Like `read_objects`, but also reports invalid image names and warnings.
pub fn check_objects(text: &[u8], path: &str, context: Context<'_>) -> Checked {
    let mut checked = Checked::default();
    let documents = match parse(text, path) {
        Ok(documents) => documents,
        Err(problem) => return Checked { problems: vec![problem], ..checked },
    };
    for document in documents {
        match document.object(path, Some(text), context) {
            Ok(object) => {
                let faults = |check: fn(&k8s::Pod) -> Vec<Fault>| match &object {
                    Object::Pod(pod) => document.problems(path, Some(text), check(&pod.object)),
                    Object::Workload(of) => {
                        document.problems(path, Some(text), validate::workload::in_template(&of.head().template, check))
                    }
                    Object::PriorityClass(_)
                    | Object::RuntimeClass(_)
                    | Object::Data(_)
                    | Object::Claim(_)
                    | Object::Network(_)
                    | Object::Plain(_) => Vec::new(),
                };
                checked.problems.extend(faults(validate::image_names));
                checked.warnings.extend(faults(validate::parts_of_bytes));
                checked.warnings.extend(faults(validate::without_effect));
                if let Object::Plain(plain) = &object {
                    let warning = plain.warning().map(|warning| fault("kind", &warning));
                    checked.warnings.extend(document.problems(path, Some(text), warning.into_iter().collect()));
                }
                checked.objects.push(object);
            }
            Err(more) => checked.problems.extend(more),
        }
    }
    checked
}

/// Like `read_objects`, but returns only the pods. Priority classes are not resolved.
pub fn read(text: &[u8], path: &str, context: Context<'_>) -> (Vec<Pod>, Vec<Problem>) {
    let (objects, problems) = read_objects(text, path, context);
    let pod = |object| if let Object::Pod(pod) = object { Some(*pod) } else { None };
    (objects.into_iter().filter_map(pod).collect(), problems)
}

/// Reads a Kubernetes type from JSON that has already been validated, such as a record (W25) or the response of a
/// server. The value is not validated again, and unknown fields are ignored.
///
/// # Errors
/// The value does not match the type.
pub fn from_value<T: FieldValue + Default>(value: &Value) -> Result<T, String> {
    k8s::from_value::<T>(value).0.map_err(|fault| fault.to_string())
}

/// Reads a pod from an API server. Also returns the paths of the fields that this version does not know.
pub(crate) fn pod_of_cluster(value: &Value) -> (Result<k8s::Pod, Fault>, Vec<FieldPath>) {
    let (typed, unknown) = k8s::from_value::<k8s::Pod>(value);
    (typed, unknown.into_iter().map(|fault| fault.at).collect())
}

/// Reads the ephemeral containers of a request without setting defaults. Faults have field paths of a pod.
pub(crate) fn ephemeral_from_value(list: &[Value]) -> Result<Vec<k8s::EphemeralContainer>, Vec<Fault>> {
    let pod = serde_json::json!({ "spec": { "ephemeralContainers": list } });
    let (typed, mut faults) = k8s::from_value::<k8s::Pod>(&pod);
    match typed {
        Err(fault) => faults.insert(0, fault),
        Ok(pod) if faults.is_empty() => {
            return Ok(pod.spec.and_then(|spec| spec.ephemeral_containers).unwrap_or_default());
        }
        Ok(_) => {}
    }
    Err(faults)
}

/// Returns the conflicts between pods (D4). If two pods have the same namespace/name or the same UID, the problem is
/// reported for the later one.
pub fn collisions<'p>(pods: impl Iterator<Item = &'p Pod>) -> Vec<Problem> {
    let mut names: BTreeMap<&FullName, &Source> = BTreeMap::new();
    let mut uids: BTreeMap<&str, &Source> = BTreeMap::new();
    let mut problems = Vec::new();
    for pod in pods {
        let mut problem = |field: &str, value: String, first: &Source| {
            problems.push(Problem {
                path: pod.source.path.clone(),
                document: pod.source.document,
                line: None,
                field: Some(field.to_owned()),
                message: format!(
                    "Duplicate value: {value:?}: also used by {} (document {}); only one of the two pods runs",
                    first.path, first.document
                ),
            });
        };
        if let Some(first) = names.get(&pod.name) {
            problem("metadata.name", pod.name.to_string(), first);
        } else if let Some(first) = uids.get(pod.uid.as_str()) {
            problem("metadata.uid", pod.uid.to_string(), first);
        } else {
            names.insert(&pod.name, &pod.source);
            uids.insert(pod.uid.as_str(), &pod.source);
        }
    }
    problems
}

/// Two documents are equal if they have the same content at the same position in the file.
impl PartialEq for Document {
    fn eq(&self, other: &Document) -> bool {
        (self.number, &self.digest) == (other.number, &other.digest)
    }
}

impl Document {
    /// Restores a document from the record of an accepted version (D2), in the form that `parse` returned.
    pub fn from_content(number: u32, content: Value) -> Document {
        let digest = uid::digest(&content);
        let faults = kinds::faults_of(&content);
        let (root, walked) = (FieldPath::default(), Arc::default());
        Document { number, content, digest, stream_index: 0, root, faults, walked }
    }

    /// Returns the namespace/name of the document, if it is readable. Ignores other errors.
    pub fn name(&self) -> Option<FullName> {
        let metadata = self.content.get("metadata")?;
        let name = metadata.get("name")?.as_str()?;
        let namespace = match metadata.get("namespace") {
            None | Some(Value::Null) => "default",
            Some(namespace) => namespace.as_str()?,
        };
        Some(FullName::new(if namespace.is_empty() { "default" } else { namespace }, name))
    }

    /// Reports whether this is a Secret with values in the document itself. Credentials of the service are not in the
    /// document.
    pub fn has_secret_values(&self) -> bool {
        let has = |field| self.content.get(field).and_then(Value::as_object).is_some_and(|values| !values.is_empty());
        self.content.get("kind").and_then(Value::as_str) == Some("Secret") && (has("data") || has("stringData"))
    }

    /// Returns the identity that the document claims, if it is readable. Ignores other errors.
    pub fn key(&self) -> Option<Key> {
        let name = self.name()?;
        let kind = self.content.get("kind").and_then(Value::as_str);
        if let Some(of) = WorkloadKind::ALL.into_iter().find(|of| kind.is_some_and(|kind| near(kind, of.name()))) {
            return Some(Key::Workload(WorkloadKey::new(of, name)));
        }
        if let Some(of) = NetworkKind::ALL.into_iter().find(|of| kind.is_some_and(|kind| near(kind, of.name()))) {
            return Some(Key::Network(NetworkKey { kind: of, name }));
        }
        if let Some(of) = PlainKind::ALL.into_iter().find(|of| kind.is_some_and(|kind| near(kind, of.name()))) {
            return Some(Key::Plain(PlainKey::new(of, &name.namespace, &name.name)));
        }
        Some(match kind {
            Some(kind) if near(kind, PRIORITY_CLASS) => Key::PriorityClass(name.name.to_string()),
            Some(kind) if near(kind, RUNTIME_CLASS) => Key::RuntimeClass(name.name.to_string()),
            Some(kind) if near(kind, CLAIM) => Key::Claim(ClaimKey(name)),
            Some(kind) if near(kind, "ConfigMap") => Key::Data(DataKey { kind: DataKind::ConfigMap, name }),
            Some(kind) if near(kind, "Secret") => Key::Data(DataKey { kind: DataKind::Secret, name }),
            _ => Key::Pod(name),
        })
    }

    /// Returns false if the kind is certainly not supported. Any other broken document may be a new version of a good
    /// document (D2).
    pub fn may_be_ours(&self) -> bool {
        match self.content.get("kind") {
            // Text that cannot be a kind indicates a document that is truncated or being edited.
            Some(Value::String(kind)) if !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_alphanumeric()) => {
                kinds::is_near_one(kind)
            }
            _ => true,
        }
    }

    /// Builds the object: typed, defaulted and validated. `text` is the text of the file, to find the lines of
    /// errors.
    ///
    /// # Errors
    /// All errors of the document. After a type error, nothing else is checked.
    pub fn object(&self, path: &str, text: Option<&[u8]>, context: Context<'_>) -> Result<Object, Vec<Problem>> {
        let made = match self.content.get("kind").and_then(Value::as_str) {
            Some(CRON_JOB) => {
                let make = |object, source, digest| Workload::CronJob(Rc::new(CronJob::new(object, source, digest)));
                self.workload(path, cron_job::complete, validate::cron_job::cron_job, make)
            }
            Some(DEPLOYMENT) => {
                let make =
                    |object, source, digest| Workload::Deployment(Rc::new(Deployment::new(object, source, digest)));
                self.workload(path, deployment::complete, validate::deployment::deployment, make)
            }
            Some(DAEMON_SET) => {
                let make =
                    |object, source, digest| Workload::DaemonSet(Rc::new(DaemonSet::new(object, source, digest)));
                self.workload(path, daemon_set::complete, validate::daemon_set::daemon_set, make)
            }
            Some(JOB) => {
                let make = |object, source, digest| Workload::Job(Rc::new(Job::new(object, source, digest)));
                self.workload(path, job::complete, validate::job::job, make)
            }
            Some(REPLICA_SET) => {
                let make =
                    |object, source, digest| Workload::ReplicaSet(Rc::new(ReplicaSet::new(object, source, digest)));
                self.workload(path, replica_set::complete, validate::replica_set::replica_set, make)
            }
            Some(STATEFUL_SET) => {
                let make =
                    |object, source, digest| Workload::StatefulSet(Rc::new(StatefulSet::new(object, source, digest)));
                self.workload(path, stateful_set::complete, validate::stateful_set::stateful_set, make)
            }
            Some(PRIORITY_CLASS) => self.priority_class(path).map(Object::PriorityClass),
            Some(RUNTIME_CLASS) => self.runtime_class(path).map(Object::RuntimeClass),
            Some(CLAIM) => self.claim(path).map(|claim| Object::Claim(Box::new(claim))),
            Some(SERVICE) => {
                let make = |service| NetworkContent::Service(Box::new(service));
                self.network(path, network_defaults::service, validate::service::service, make)
            }
            Some(ENDPOINT_SLICE) => {
                let make = |slice| NetworkContent::EndpointSlice(Box::new(slice));
                self.network(path, network_defaults::endpoint_slice, validate::endpoint_slice::endpoint_slice, make)
            }
            Some("ConfigMap") => self.config_map(path).map(Object::Data),
            Some("Secret") => self.secret(path, context.credentials).map(Object::Data),
            kind => match kind.and_then(PlainKind::of) {
                Some(kind) => self.plain_object(kind, path, context),
                None => return self.pod(path, text, context).map(|pod| Object::Pod(Box::new(pod))),
            },
        };
        made.map_err(|faults| self.problems(path, text, faults))
    }

    /// Builds the pod: typed, defaulted and validated. `text` is the text of the file, to find the lines of errors.
    ///
    /// # Errors
    /// All errors of the document. After a type error, nothing else is checked.
    pub fn pod(&self, path: &str, text: Option<&[u8]>, context: Context<'_>) -> Result<Pod, Vec<Problem>> {
        self.make(path, context, validate::pod).map_err(|faults| self.problems(path, text, faults))
    }

    /// Restores the object of a record. An accepted pod is not validated again, so that a new rule in this version
    /// does not stop a running pod (D2, W25).
    ///
    /// # Errors
    /// The content does not match the types.
    pub fn recorded(&self, path: &str, context: Context<'_>) -> Result<Object, Vec<Problem>> {
        let kind = self.content.get("kind").and_then(Value::as_str);
        if kind.is_some_and(|kind| kind != "Pod") {
            return self.object(path, None, context);
        }
        let made = self.make(path, context, |_| Vec::new());
        made.map(|pod| Object::Pod(Box::new(pod))).map_err(|faults| self.problems(path, None, faults))
    }

    /// Builds the pod, and also accepts fields that are not implemented yet. For tests of code that also handles pods
    /// of a cluster.
    ///
    /// # Errors
    /// As for `pod`, but without line numbers in the problems.
    pub fn pod_with_unsupported(&self, path: &str, context: Context<'_>) -> Result<Pod, Vec<Problem>> {
        let made = self.make(path, context, validate::pod_with_unsupported);
        made.map_err(|faults| faults.into_iter().map(|fault| self.problem(path, None, fault)).collect())
    }

    fn make(&self, path: &str, context: Context<'_>, validate: Validate) -> Result<Pod, Vec<Fault>> {
        if !self.faults.is_empty() {
            return Err(self.faults.clone());
        }
        let (mut object, mut faults) = k8s::with_unknown::<k8s::Pod>(&self.content)?;
        let own_uid = object.metadata.uid.as_deref().filter(|uid| !uid.is_empty());
        let uid = own_uid.map_or_else(|| uid::of(path, &self.digest), Into::into);
        defaults::apply(&mut object, &uid, context);
        faults.extend(validate(&object));
        if !faults.is_empty() {
            return Err(faults);
        }
        let metadata = &object.metadata;
        let name = FullName::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        let source = Source { path: path.to_owned(), document: self.number };
        Ok(Pod { uid, name, source, digest: self.digest.clone(), object, ephemeral: Vec::new() })
    }

    /// Builds a workload: typed, defaulted and validated.
    fn workload<T: FieldValue + Default>(
        &self,
        path: &str,
        complete: fn(&mut T),
        validate: fn(&T) -> Vec<Fault>,
        make: fn(T, Source, String) -> Workload,
    ) -> Result<Object, Vec<Fault>> {
        let mut object = self.typed::<T>()?;
        complete(&mut object);
        let faults = validate(&object);
        if !faults.is_empty() {
            return Err(faults);
        }
        let source = Source { path: path.to_owned(), document: self.number };
        Ok(Object::Workload(make(object, source, self.digest.clone())))
    }

    fn priority_class(&self, path: &str) -> Result<PriorityClass, Vec<Fault>> {
        if !self.faults.is_empty() {
            return Err(self.faults.clone());
        }
        let (class, mut faults) = k8s::with_unknown::<k8s::PriorityClass>(&self.content)?;
        let says_value = self.content.get("value").is_some_and(|value| !value.is_null());
        faults.extend(validate::priority_class(&class, says_value));
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(PriorityClass {
            name: class.metadata.name.unwrap_or_default(),
            value: class.value,
            global_default: class.global_default == Some(true),
            preemption_policy: PriorityClass::preemption_policy(class.preemption_policy.as_deref()),
            description: class.description.unwrap_or_default(),
            labels: class.metadata.labels.unwrap_or_default(),
            annotations: class.metadata.annotations.unwrap_or_default(),
            source: Source { path: path.to_owned(), document: self.number },
            digest: self.digest.clone(),
        })
    }

    fn runtime_class(&self, path: &str) -> Result<RuntimeClass, Vec<Fault>> {
        let class = self.typed::<k8s::RuntimeClass>()?;
        let faults = validate::runtime_class(&class);
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(RuntimeClass {
            name: class.metadata.name.unwrap_or_default(),
            handler: class.handler,
            overhead: class.overhead.and_then(|overhead| overhead.pod_fixed).unwrap_or_default(),
            node_selector: class.scheduling.and_then(|scheduling| scheduling.node_selector).unwrap_or_default(),
            labels: class.metadata.labels.unwrap_or_default(),
            annotations: class.metadata.annotations.unwrap_or_default(),
            source: Source { path: path.to_owned(), document: self.number },
            digest: self.digest.clone(),
        })
    }

    fn claim(&self, path: &str) -> Result<Claim, Vec<Fault>> {
        let mut object = self.typed::<k8s::PersistentVolumeClaim>()?;
        claim::complete(&mut object);
        let faults = validate::claim::claim(&object);
        if !faults.is_empty() {
            return Err(faults);
        }
        let source = Source { path: path.to_owned(), document: self.number };
        Ok(Claim::new(object, source, self.digest.clone()))
    }

    /// Builds a Service or an EndpointSlice: typed, defaulted and validated.
    fn network<T: FieldValue + Default>(
        &self,
        path: &str,
        complete: fn(&mut T),
        validate: fn(&T) -> Vec<Fault>,
        make: fn(T) -> NetworkContent,
    ) -> Result<Object, Vec<Fault>> {
        let mut object = self.typed::<T>()?;
        complete(&mut object);
        let faults = validate(&object);
        if !faults.is_empty() {
            return Err(faults);
        }
        let source = Source { path: path.to_owned(), document: self.number };
        Ok(Object::Network(Box::new(NetworkObject::new(make(object), source, self.digest.clone()))))
    }

    /// Reports whether this is a NetworkPolicy that the configuration does not permit (Y31). Such a document never
    /// counts as a new version of another one.
    pub fn is_refused(&self, network_policies: NetworkPolicies) -> bool {
        let kind = self.content.get("kind").and_then(Value::as_str);
        network_policies == NetworkPolicies::Refuse && kind == Some(PlainKind::NetworkPolicy.name())
    }

    /// Builds an object that is only kept and shown (Y30).
    fn plain_object(&self, kind: PlainKind, path: &str, context: Context<'_>) -> Result<Object, Vec<Fault>> {
        if !self.faults.is_empty() {
            return Err(self.faults.clone());
        }
        if self.is_refused(context.network_policies) {
            return Err(vec![fault("kind", plain_object::REFUSED_POLICY)]);
        }
        let metadata = json!({ "metadata": self.content.get("metadata") });
        let (k8s::OnlyMetadata { mut metadata }, mut faults) = k8s::with_unknown(&metadata)?;
        if kind.is_namespaced() {
            defaults::namespace(&mut metadata);
        }
        faults.extend(validate::plain_object::plain_object(kind, &self.content, &metadata));
        if kind == PlainKind::PodDisruptionBudget {
            faults.extend(validate::disruption_budget::disruption_budget(&self.typed()?));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let source = Source { path: path.to_owned(), document: self.number };
        let object = PlainObject::new(kind, &metadata, &self.content, source, self.digest.clone());
        Ok(Object::Plain(Box::new(object)))
    }

    fn config_map(&self, path: &str) -> Result<DataObject, Vec<Fault>> {
        let mut map = self.typed::<k8s::ConfigMap>()?;
        defaults::namespace(&mut map.metadata);
        let faults = validate::config_map(&map);
        if !faults.is_empty() {
            return Err(faults);
        }
        let (immutable, values) = (map.immutable == Some(true), data_object::of_config_map(&map));
        Ok(self.data_object(DataKind::ConfigMap, path, &map.metadata, immutable, values))
    }

    /// Builds a Secret. No error contains a value, or a key that may contain a value.
    fn secret(&self, path: &str, credentials: Credentials<'_>) -> Result<DataObject, Vec<Fault>> {
        let mut secret = self.typed::<k8s::Secret>().map_err(|mut faults| {
            faults.iter_mut().for_each(Fault::hide_secret);
            without_secret_keys(faults)
        })?;
        defaults::namespace(&mut secret.metadata);
        let of_credentials = system_credentials::add(&mut secret, credentials)?;
        let faults = validate::secret(&secret);
        if !faults.is_empty() {
            return Err(without_secret_keys(faults));
        }
        let (immutable, values) = (secret.immutable == Some(true), data_object::of_secret(&secret));
        let docker = secret.type_.as_deref().and_then(DockerFormat::of_type);
        let mut object = self.data_object(DataKind::Secret, path, &secret.metadata, immutable, values);
        if !of_credentials.is_empty() {
            object.digest = uid::digest_of_bytes(format!("{}{of_credentials}", object.digest).as_bytes());
        }
        let secret_type = secret.type_.as_deref().filter(|t| !t.is_empty()).unwrap_or("Opaque").into();
        Ok(DataObject { docker, secret_type, ..object })
    }

    fn typed<T: FieldValue + Default>(&self) -> Result<T, Vec<Fault>> {
        if !self.faults.is_empty() {
            return Err(self.faults.clone());
        }
        k8s::strict(&self.content)
    }

    fn data_object(
        &self,
        kind: DataKind,
        path: &str,
        metadata: &ObjectMeta,
        immutable: bool,
        values: BTreeMap<Box<str>, DataValue>,
    ) -> DataObject {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let key = DataKey { kind, name: FullName::new(&text(&metadata.namespace), &text(&metadata.name)) };
        let source = Source { path: path.to_owned(), document: self.number };
        let (labels, annotations) = (metadata.labels.clone(), metadata.annotations.clone());
        DataObject {
            key,
            immutable,
            values,
            docker: None,
            secret_type: "".into(),
            labels: labels.unwrap_or_default(),
            annotations: annotations.unwrap_or_default(),
            source,
            digest: self.digest.clone(),
        }
    }

    fn problems(&self, path: &str, text: Option<&[u8]>, faults: Vec<Fault>) -> Vec<Problem> {
        let text = text.and_then(|t| std::str::from_utf8(t).ok());
        let more = faults.len().saturating_sub(MAX_FAULTS);
        let reported = faults.into_iter().take(MAX_FAULTS);
        let mut problems: Vec<Problem> = reported.map(|fault| self.problem(path, text, fault)).collect();
        if more > 0 {
            let message = format!("{more} more errors in this document; correct these first");
            problems.push(self.problem(path, text, Fault::invalid(FieldPath::default(), message)));
        }
        problems
    }

    fn problem(&self, path: &str, text: Option<&str>, fault: Fault) -> Problem {
        let field = FieldPath(self.root.0.iter().chain(&fault.at.0).cloned().collect());
        let walk = |text: &&str| self.walked.fetch_add(text.len(), Ordering::Relaxed) < MAX_WALKED;
        let line = text.filter(walk).and_then(|text| locate::line(text, self.stream_index, &field));
        let field = (!field.0.is_empty()).then(|| field.to_string());
        let mut message = fault.what.to_string();
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
            message.truncate(end);
            message.push_str("...");
        }
        Problem { path: path.to_owned(), document: self.number, line, field, message }
    }
}

fn without_secret_keys(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.iter_mut().for_each(|fault| fault.hide_invalid_key(validate::is_config_key));
    faults
}

/// Adds one value, or the items of a List, to the documents.
fn add(
    documents: &mut Vec<Document>,
    stream_index: usize,
    root: FieldPath,
    mut value: Value,
    walked: &Arc<AtomicUsize>,
) {
    let mut faults = kinds::faults_of(&value);
    if faults.is_empty() && root.0.is_empty() && is_list(&value) {
        match list_items(&mut value) {
            Ok(items) => {
                for (index, item) in items.into_iter().enumerate() {
                    let root = FieldPath(vec![FieldStep::Field("items".to_owned()), FieldStep::Item(index)]);
                    add(documents, stream_index, root, item, walked);
                }
                return;
            }
            Err(more) => faults = more,
        }
    } else if is_list(&value) && !root.0.is_empty() {
        faults.push(fault("kind", "a List in a List is not supported"));
    }
    if let Value::Object(map) = &mut value {
        map.remove("status");
    }
    let number = u32::try_from(documents.len() + 1).unwrap_or(u32::MAX);
    let digest = uid::digest(&value);
    documents.push(Document { number, content: value, digest, stream_index, root, faults, walked: walked.clone() });
}

fn is_list(value: &Value) -> bool {
    matches!(value.get("kind").and_then(Value::as_str), Some("List" | "PodList"))
}

/// Takes the items out of a List. Items of a PodList may omit `apiVersion` and `kind`.
fn list_items(list: &mut Value) -> Result<Vec<Value>, Vec<Fault>> {
    let typed = list.get("kind").and_then(Value::as_str) == Some("PodList");
    let Value::Object(map) = list else { return Ok(Vec::new()) };
    let unknown = map.keys().filter(|k| !matches!(k.as_str(), "apiVersion" | "kind" | "metadata" | "items"));
    let mut faults: Vec<Fault> = unknown.map(|name| fault(name, "unknown field")).collect();
    match map.get("items") {
        Some(Value::Array(_)) => {}
        None | Some(Value::Null) => faults.push(fault("items", "Required value")),
        Some(_) => faults.push(fault("items", "must be a list")),
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let Some(Value::Array(mut items)) = map.remove("items") else { return Ok(Vec::new()) };
    if typed {
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.entry("apiVersion").or_insert_with(|| "v1".into());
            item.entry("kind").or_insert_with(|| "Pod".into());
        }
    }
    Ok(items)
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_aliases: 10 * MAX_ALIASES,
            max_anchors: MAX_NODES,
            // Text of a pod becomes part of requests to the runtime. Aliases must not make it larger than a file may
            // be.
            max_total_scalar_bytes: MAX_BYTES,
            max_recorded_anchor_bytes: 4 * MAX_BYTES,
            max_recorded_anchor_events: 4 * MAX_NODES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 4 * MAX_NODES,
            max_replay_stack_depth: 16,
            max_alias_expansions_per_anchor: MAX_ALIASES,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        legacy_octal_numbers: true,
        no_schema: true,
        with_snippet: false,
    }
}

/// Rewrites the library's error for the author of a manifest. The library's own text refers to its options.
fn yaml_error(path: &str, error: &serde_saphyr::Error) -> Problem {
    use serde_saphyr::Error;
    use serde_saphyr::budget::BudgetBreach;
    let error = error.without_snippet();
    let line = error.location().map(|l| l.line()).filter(|l| *l > 0);
    let message = match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("duplicate key {}", brief(key)),
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => format!("nested deeper than {MAX_DEPTH} levels"),
        Error::NonFiniteFloat { .. } => "not a finite number; put it in quotes if it is a string".to_owned(),
        error if is_over_budget(error) => {
            "larger than 2097152 bytes or 20,000 values once its aliases are expanded; use fewer aliases, or split it"
                .to_owned()
        }
        // The problem already has the line number.
        other => brief(other.to_string().split(" at line ").next().unwrap_or_default()).into_owned(),
    };
    Problem { line: line.and_then(|l| u32::try_from(l).ok()), ..Problem::of_file(path, message) }
}

/// Reports whether the document, or the expansion of an alias, is too large.
fn is_over_budget(error: &serde_saphyr::Error) -> bool {
    match error {
        serde_saphyr::Error::Budget { .. } => true,
        serde_saphyr::Error::AliasError { error, .. } => is_over_budget(error),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
