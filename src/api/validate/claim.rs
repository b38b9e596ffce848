//! Validation of a complete PersistentVolumeClaim, with the messages of Kubernetes.

use super::{claim_spec, data_metadata};
use crate::api::claim::ClaimKey;
use crate::api::k8s::PersistentVolumeClaim;
use crate::api::names::FullName;
use crate::api::problem::{At, Fault, Faults};

pub(crate) fn claim(claim: &PersistentVolumeClaim) -> Vec<Fault> {
    let mut faults = Faults::default();
    let metadata = &claim.metadata;
    data_metadata(metadata, "persistentvolumeclaim", &mut faults);
    let root = At::Root;
    if let Some(spec) = &claim.spec {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let key = ClaimKey(FullName::new(&text(&metadata.namespace), &text(&metadata.name)));
        claim_spec::spec(spec, &key.volume_name(), root.field("spec"), &mut faults);
    }
    faults.0
}
