//! ConfigMaps and Secrets from manifests: the values by key.

use crate::api::k8s;
use crate::api::names::FullName;
use crate::api::ordered::CollectOrdered;
use crate::api::problem::Problem;
use crate::api::registry_credentials::Keyring;
use crate::api::source::Source;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// The maximum total size of the values of an object, in bytes.
pub const MAX_SIZE: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum DataKind {
    ConfigMap,
    Secret,
}

impl DataKind {
    /// Returns the resource name in a kubelet's messages.
    pub fn resource(self) -> &'static str {
        match self {
            DataKind::ConfigMap => "configmap",
            DataKind::Secret => "secret",
        }
    }
}

impl fmt::Display for DataKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DataKind::ConfigMap => "ConfigMap",
            DataKind::Secret => "Secret",
        })
    }
}

/// Identifies a ConfigMap or a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DataKey {
    pub kind: DataKind,
    pub name: FullName,
}

/// Serializes as a string, because dumps use it as the key of maps.
impl Serialize for DataKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// A value. A ConfigMap has binary values in `binaryData`; a value of a Secret is binary if it is not UTF-8 text. The
/// environment cannot contain binary values.
#[derive(Clone, PartialEq, Eq)]
pub enum DataValue {
    Text(Box<str>),
    Binary(Box<[u8]>),
}

impl DataValue {
    pub fn bytes(&self) -> &[u8] {
        match self {
            DataValue::Text(text) => text.as_bytes(),
            DataValue::Binary(bytes) => bytes,
        }
    }
}

/// The format of the registry credentials in a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DockerFormat {
    ConfigJson,
    Cfg,
}

impl DockerFormat {
    /// Returns the format for a Secret of this type. None if such a Secret has no registry credentials.
    pub fn of_type(kind: &str) -> Option<DockerFormat> {
        match kind {
            "kubernetes.io/dockerconfigjson" => Some(DockerFormat::ConfigJson),
            "kubernetes.io/dockercfg" => Some(DockerFormat::Cfg),
            _ => None,
        }
    }

    /// Returns the key under which the Secret stores the credentials.
    pub fn key(self) -> &'static str {
        match self {
            DockerFormat::ConfigJson => ".dockerconfigjson",
            DockerFormat::Cfg => ".dockercfg",
        }
    }

    /// Parses the credentials.
    ///
    /// # Errors
    /// The text does not have this format. The error shows no value.
    pub fn read(self, text: &[u8]) -> Result<Keyring, String> {
        match self {
            DockerFormat::ConfigJson => Keyring::from_docker_config(text),
            DockerFormat::Cfg => Keyring::from_dockercfg(text),
        }
    }
}

/// A valid ConfigMap or Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct DataObject {
    pub key: DataKey,
    /// True if the values never change.
    pub immutable: bool,
    pub values: BTreeMap<Box<str>, DataValue>,
    /// The format of the registry credentials, if this is a Secret with registry credentials.
    pub docker: Option<DockerFormat>,
    /// The `type` of a Secret. Empty for a ConfigMap.
    pub secret_type: Box<str>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub source: Source,
    /// The digest of the parsed content, as for a pod (D3).
    pub digest: String,
}

impl DataObject {
    /// Returns the registry credentials. None if the object is not a Secret of such a type.
    pub fn registry_credentials(&self) -> Option<Keyring> {
        let format = self.docker?;
        // The content was validated when the manifest was read, so this does not fail.
        format.read(self.values.get(format.key())?.bytes()).ok()
    }
}

/// Omits the values, which may be secret.
impl fmt::Debug for DataObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataObject({}, {} values)", self.key, self.values.len())
    }
}

/// Returns the values in `data` and `binaryData` of a ConfigMap.
pub(crate) fn of_config_map(map: &k8s::ConfigMap) -> BTreeMap<Box<str>, DataValue> {
    let text = map.data.iter().flatten().map(|(k, v)| (k.as_str().into(), DataValue::Text(v.as_str().into())));
    let binary = map.binary_data.iter().flatten();
    let binary = binary.map(|(k, v)| (k.as_str().into(), DataValue::Binary(v.0.as_slice().into())));
    text.chain(binary).collect_map()
}

/// Returns the values in `data` and `stringData` of a Secret. A key in `stringData` replaces the same key in `data`.
pub(crate) fn of_secret(secret: &k8s::Secret) -> BTreeMap<Box<str>, DataValue> {
    let value = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => DataValue::Text(text.into()),
        Err(_) => DataValue::Binary(bytes.into()),
    };
    let data = secret.data.iter().flatten().map(|(k, v)| (k.as_str().into(), value(&v.0)));
    let text =
        secret.string_data.iter().flatten().map(|(k, v)| (k.as_str().into(), DataValue::Text(v.as_str().into())));
    data.chain(text).collect_map()
}

/// All ConfigMaps and Secrets in force.
#[derive(Clone, Debug, Default)]
pub struct DataObjects {
    by_key: BTreeMap<DataKey, Rc<DataObject>>,
    /// The objects whose copies on the disk are sealed and cannot be opened (C15). It is not known whether they still
    /// exist.
    locked: BTreeSet<DataKey>,
}

impl DataObjects {
    /// Collects the objects in force. D4: of several documents with the same kind, namespace and name, the first is
    /// in force. The others are reported as problems.
    pub fn collect(all: impl IntoIterator<Item = Rc<DataObject>>) -> (DataObjects, Vec<Problem>) {
        let mut objects = DataObjects::default();
        let mut problems = Vec::new();
        for object in all {
            let Some(first) = objects.add(object.clone()) else { continue };
            let message = format!(
                "Duplicate value: {:?}: {} (document {}) also defines this {}, and only that definition is in force; \
                 rename one of them",
                object.key.name.name, first.source.path, first.source.document, object.key.kind
            );
            let (path, document) = (object.source.path.clone(), object.source.document);
            problems.push(Problem { path, document, line: None, field: Some("metadata.name".to_owned()), message });
        }
        (objects, problems)
    }

    pub fn get(&self, key: &DataKey) -> Option<&DataObject> {
        self.by_key.get(key).map(|object| &**object)
    }

    /// Adds `object`, unless an object with the same key is already in force. Returns that object.
    fn add(&mut self, object: Rc<DataObject>) -> Option<&DataObject> {
        use std::collections::btree_map::Entry;
        match self.by_key.entry(object.key.clone()) {
            Entry::Occupied(entry) => Some(&**entry.into_mut()),
            Entry::Vacant(entry) => {
                entry.insert(object);
                None
            }
        }
    }

    /// Adds the object, or replaces the one under its key.
    pub fn replace(&mut self, object: Rc<DataObject>) {
        self.locked.remove(&object.key);
        self.by_key.insert(object.key.clone(), object);
    }

    /// Removes the object. Returns false if there is no such object.
    pub fn remove(&mut self, key: &DataKey) -> bool {
        self.locked.remove(key) | self.by_key.remove(key).is_some()
    }

    /// Marks the object as locked, because its copy on the disk cannot be opened. `remove` treats it like other
    /// objects.
    pub fn lock(&mut self, key: DataKey) {
        self.locked.insert(key);
    }

    pub fn is_locked(&self, key: &DataKey) -> bool {
        self.locked.contains(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = &DataObject> {
        self.by_key.values().map(|object| &**object)
    }

    /// Returns the keys of the objects that have changed, appeared or disappeared since `before`.
    pub fn changes(&self, before: &DataObjects) -> Vec<DataKey> {
        let values = |all: &DataObjects, key: &DataKey| all.by_key.get(key).map(|object| object.digest.clone());
        let keys = self.by_key.keys().chain(before.by_key.keys().filter(|key| !self.by_key.contains_key(*key)));
        keys.filter(|key| values(self, key) != values(before, key)).cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: DataKind, path: &str, value: &str) -> Rc<DataObject> {
        Rc::new(DataObject {
            key: DataKey { kind, name: FullName::new("default", "settings") },
            immutable: false,
            values: [("key".into(), DataValue::Text(value.into()))].into(),
            docker: None,
            secret_type: "".into(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            source: Source { path: path.to_owned(), document: 1 },
            digest: value.to_owned(),
        })
    }

    #[test]
    fn d4_the_first_document_of_an_object_is_in_force() {
        let first = object(DataKind::Secret, "/m/a.yaml", "first");
        let (objects, problems) = DataObjects::collect([
            first.clone(),
            object(DataKind::ConfigMap, "/m/b.yaml", "other kind"),
            object(DataKind::Secret, "/m/c.yaml", "second"),
        ]);
        assert_eq!((objects.get(&first.key), objects.len()), (Some(&*first), 2));
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            ["/m/c.yaml: metadata.name: Duplicate value: \"settings\": /m/a.yaml (document 1) also defines this \
                 Secret, and only that definition is in force; rename one of them"]
        );
    }

    #[test]
    fn an_object_that_appears_changes_or_disappears_is_a_change() {
        let all = |value: &str| DataObjects::collect([object(DataKind::Secret, "/m/a.yaml", value)]).0;
        let (none, one, same, two) = (DataObjects::default(), all("1"), all("1"), all("2"));
        let changes = |now: &DataObjects, before: &DataObjects| now.changes(before).len();
        assert_eq!(
            [changes(&one, &none), changes(&same, &one), changes(&two, &one), changes(&none, &two)],
            [1, 0, 1, 1]
        );
    }
}
