//! The ConfigMaps and Secrets of a pod: for its volumes, the environment of its containers, and the registries of its
//! images.

use crate::api::data_object::{DataKey, DataKind};
use crate::api::environment;
use crate::api::names::FullName;
use crate::api::pod::Pod;
use crate::api::volume_contents;

impl Pod {
    /// Returns the Secrets with registry credentials. As in a kubelet, an empty name is ignored.
    pub fn image_pull_secrets(&self) -> impl Iterator<Item = DataKey> {
        let names = self.spec().image_pull_secrets.iter().flatten().map(|secret| secret.name.as_str());
        names.filter(|name| !name.is_empty()).map(|name| DataKey {
            kind: DataKind::Secret,
            name: FullName { namespace: self.name.namespace.clone(), name: name.into() },
        })
    }

    /// Returns the ConfigMaps and Secrets that the pod refers to.
    pub fn data_objects(&self) -> impl Iterator<Item = DataKey> {
        volume_contents::references(self).chain(environment::references(self)).chain(self.image_pull_secrets())
    }
}
