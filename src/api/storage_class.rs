//! Storage classes: the directories below which the claims of this machine have theirs. The configuration defines
//! them.

use serde::{Deserialize, Serialize};

/// The name of the class without a configuration.
pub const LOCAL: &str = "local";
/// The provisioner that the API shows.
pub const PROVISIONER: &str = "wherry.io/directory";

/// What happens with the directory of a claim that is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReclaimPolicy {
    /// It stays.
    #[default]
    Retain,
    /// It is removed.
    Delete,
}

impl ReclaimPolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            ReclaimPolicy::Retain => "Retain",
            ReclaimPolicy::Delete => "Delete",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageClass {
    pub name: String,
    /// An absolute path.
    pub directory: String,
    pub reclaim_policy: ReclaimPolicy,
}

/// Returns the directory of the class that exists without a configuration. `root`: the root directory.
pub fn own_directory(root: &str) -> String {
    format!("{root}/claims")
}

/// Returns the classes that exist without a configuration.
pub fn without_configuration(root: &str) -> Vec<StorageClass> {
    let (name, directory) = (LOCAL.to_owned(), own_directory(root));
    vec![StorageClass { name, directory, reclaim_policy: ReclaimPolicy::Retain }]
}

/// Returns the class of a claim. `name`: `storageClassName`; without one, it is the first class.
pub fn find<'c>(classes: &'c [StorageClass], name: Option<&str>) -> Option<&'c StorageClass> {
    match name {
        None => classes.first(),
        Some(name) => classes.iter().find(|class| class.name == name),
    }
}

/// Returns the message for a claim whose class does not exist.
pub fn unknown(classes: &[StorageClass], name: &str) -> String {
    if name.is_empty() {
        return "no persistent volumes available for this claim and no storage class is set".to_owned();
    }
    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    format!(
        "storageclass.storage.k8s.io {name:?} not found; add it to storageClasses in the configuration, which has: {}",
        names.join(", ")
    )
}
