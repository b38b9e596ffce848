//! What all objects that create pods have.

use super::key::{WorkloadKey, WorkloadKind};
use super::template;
use crate::api::k8s::{ObjectMeta, PodTemplateSpec};
use crate::api::names::{FullName, Uid};
use crate::api::source::Source;
use std::rc::Rc;

#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadHead {
    pub key: WorkloadKey,
    pub uid: Uid,
    /// The template of the pods, with all defaults.
    pub template: Rc<PodTemplateSpec>,
    /// The hash of the template.
    pub hash: String,
    pub source: Source,
    /// The digest of the parsed content, as for a pod (D3).
    pub digest: String,
}

impl WorkloadHead {
    /// Makes the head of a complete, valid object, and sets the object's UID. `template`: taken out of the object.
    pub(super) fn new(
        kind: WorkloadKind,
        metadata: &mut ObjectMeta,
        template: PodTemplateSpec,
        source: Source,
        digest: String,
    ) -> WorkloadHead {
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        let name = FullName::new(namespace.unwrap_or_default(), name.unwrap_or_default());
        let key = WorkloadKey::new(kind, name);
        let uid = key.uid();
        metadata.uid = Some(uid.to_string());
        metadata.creation_timestamp = None;
        let hash = template::hash(&template);
        WorkloadHead { key, uid, template: Rc::new(template), hash, source, digest }
    }

    pub fn name(&self) -> &FullName {
        &self.key.name
    }
}
