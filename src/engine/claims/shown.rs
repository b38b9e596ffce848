//! Claims, their directories and the storage classes as objects of the API.

use super::ClaimEntry;
use super::definition::ClaimOrigin;
use super::volume::{ClaimVolume, VolumePhase};
use crate::api::claim::{CLAIM, ClaimKey, STORAGE, request};
use crate::api::control::VolumeView;
use crate::api::k8s::{OwnerReference, PersistentVolumeClaim};
use crate::api::storage_class::{PROVISIONER, StorageClass};
use serde_json::{Value, json};

/// The annotation of the class that a claim without one gets.
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
/// *(ours)* The annotation of a volume that says what its capacity means.
const CAPACITY: &str = "wherry.io/capacity";

/// Returns a claim with its status. None: there is no claim.
pub fn claim(key: &ClaimKey, entry: &ClaimEntry, classes: &[StorageClass]) -> Option<Value> {
    if !entry.has_claim() {
        return None;
    }
    let of_volume = || entry.volume().and_then(|volume| volume.stored.claim().ok());
    let object = entry.definition().map(|of| (*of.object).clone()).or_else(of_volume)?;
    let mut shown = json!(object);
    shown["metadata"]["name"] = (*key.0.name).into();
    shown["metadata"]["namespace"] = (*key.0.namespace).into();
    shown["metadata"]["uid"] = key.uid().to_string().into();
    if let Some(ClaimOrigin::Pod { name, uid }) = entry.definition().map(|of| &of.origin) {
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: name.clone(),
            uid: uid.to_string(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        shown["metadata"]["ownerReferences"] = json!([owner]);
    }
    let bound =
        entry.volume().filter(|_| matches!(entry.phase(), Some(VolumePhase::Bound | VolumePhase::Terminating(_))));
    let class = bound.map(|volume| volume.stored.class.as_str()).or(classes.first().map(|class| class.name.as_str()));
    if let (None, Some(class)) = (shown.pointer("/spec/storageClassName"), class) {
        shown["spec"]["storageClassName"] = class.into();
    }
    match bound {
        None => shown["status"] = json!({ "phase": "Pending" }),
        Some(volume) => {
            shown["spec"]["volumeName"] = key.volume_name().into();
            shown["status"] =
                json!({ "phase": "Bound", "accessModes": access_modes(&object), "capacity": capacity(volume) });
        }
    }
    if let Some(VolumePhase::Terminating(since)) = entry.phase() {
        shown["metadata"]["deletionTimestamp"] = since.timestamp().map(|t| format!("{t:.0}")).into();
        shown["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    }
    Some(shown)
}

/// Returns the directory of a claim as a PersistentVolume. None: there is none.
pub fn volume(key: &ClaimKey, entry: &ClaimEntry, node_name: &str) -> Option<Value> {
    let volume = entry.volume()?;
    let (phase, message) = match entry.phase()? {
        VolumePhase::Pending(why) => ("Pending", why),
        VolumePhase::Bound | VolumePhase::Terminating(_) => ("Bound", None),
        VolumePhase::Released | VolumePhase::Removing => ("Released", None),
        VolumePhase::Failed(why) => ("Failed", Some(why)),
    };
    let claim = volume.stored.claim().unwrap_or_default();
    let name = key.volume_name();
    let mut object = json!({
        "metadata": {
            "name": name,
            "annotations": { CAPACITY: "the size that the claim requests; the directory has no limit" },
            "creationTimestamp": volume.stored.created.timestamp().map(|t| format!("{t:.0}")),
        },
        "spec": {
            "accessModes": access_modes(&claim),
            "capacity": capacity(volume),
            "claimRef": {
                "apiVersion": "v1",
                "kind": CLAIM,
                "namespace": *key.0.namespace,
                "name": *key.0.name,
                "uid": key.uid(),
            },
            "local": { "path": volume.path() },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": [node_name] },
            ] }] } },
            "persistentVolumeReclaimPolicy": volume.stored.reclaim_policy.as_str(),
            "storageClassName": volume.stored.class,
            "volumeMode": "Filesystem",
        },
        "status": { "phase": phase },
    });
    if let Some(message) = message {
        object["status"]["message"] = message.into();
    }
    Some(object)
}

/// Returns the directory of a claim for `wherry volumes`. None: there is none.
pub fn view(key: &ClaimKey, entry: &ClaimEntry) -> Option<VolumeView> {
    let volume = entry.volume()?;
    let status = match entry.phase()? {
        VolumePhase::Pending(_) => "Pending",
        VolumePhase::Bound => "Bound",
        VolumePhase::Terminating(_) => "Terminating",
        VolumePhase::Released => "Released",
        VolumePhase::Removing => "Removing",
        VolumePhase::Failed(_) => "Failed",
    };
    Some(VolumeView {
        namespace: key.0.namespace.to_string(),
        claim: key.0.name.to_string(),
        status: status.to_owned(),
        storage_class: volume.stored.class.clone(),
        reclaim_policy: volume.stored.reclaim_policy.as_str().to_owned(),
        directory: volume.path(),
        pods: entry.users().iter().map(|user| user.name.to_string()).collect(),
        requested: capacity(volume)[STORAGE].as_str().unwrap_or_default().to_owned(),
        used_bytes: None,
    })
}

/// Returns a storage class. `is_default`: it is the first.
pub fn class(class: &StorageClass, is_default: bool) -> Value {
    let mut metadata = json!({ "name": class.name });
    if is_default {
        metadata["annotations"] = json!({ IS_DEFAULT: "true" });
    }
    json!({
        "metadata": metadata,
        "provisioner": PROVISIONER,
        "parameters": { "directory": class.directory },
        "reclaimPolicy": class.reclaim_policy.as_str(),
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
    })
}

fn access_modes(claim: &PersistentVolumeClaim) -> &[String] {
    claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
}

fn capacity(volume: &ClaimVolume) -> Value {
    let claim = volume.stored.claim().unwrap_or_default();
    json!({ STORAGE: claim.spec.as_ref().map(request).unwrap_or_default() })
}
