//! Validation of the spec of a PersistentVolumeClaim, or of a template of claims.

use super::complaints::{complain, one_of};
use super::syntax;
use crate::api::claim::{self, ACCESS_MODES, ONE_POD, STORAGE};
use crate::api::k8s::PersistentVolumeClaimSpec;
use crate::api::problem::{At, Faults};
use crate::api::quantity::Quantity;

/// Why a claim cannot ask for a volume of a manifest.
const NO_VOLUMES: &str = "a claim gets a directory of its own; PersistentVolumes of manifests are not supported yet";

/// `own_volume`: the name of the claim's own volume, which the API shows in its spec. A template has none.
pub(super) fn spec(spec: &PersistentVolumeClaimSpec, own_volume: &str, at: At<'_>, faults: &mut Faults) {
    access_modes(spec.access_modes.as_deref().unwrap_or_default(), at.field("accessModes"), faults);
    size(spec, at.field("resources"), faults);
    if let Some(class) = spec.storage_class_name.as_deref().filter(|name| !name.is_empty()) {
        complain(syntax::dns_subdomain(class), class, at.field("storageClassName"), faults);
    }
    one_of(spec.volume_mode.as_deref(), &["Block", "Filesystem"], at.field("volumeMode"), faults);
    if spec.volume_mode.as_deref() == Some("Block") {
        let why = "a claim is a directory of this machine, which is no block device; use Filesystem";
        faults.forbidden(at.field("volumeMode"), why);
    }
    if spec.volume_name.as_deref().is_some_and(|name| !name.is_empty() && name != own_volume) {
        faults.forbidden(at.field("volumeName"), NO_VOLUMES);
    }
    if spec.selector.is_some() {
        faults.forbidden(at.field("selector"), NO_VOLUMES);
    }
    for (is_set, field) in
        [(spec.data_source.is_some(), "dataSource"), (spec.data_source_ref.is_some(), "dataSourceRef")]
    {
        if is_set {
            let why =
                "a new claim is an empty directory; copy the data into it with `kubectl cp`, and remove the field";
            faults.forbidden(at.field(field), why);
        }
    }
    if spec.volume_attributes_class_name.as_deref().is_some_and(|name| !name.is_empty()) {
        let why = "a directory has no such attributes; remove the field";
        faults.forbidden(at.field("volumeAttributesClassName"), why);
    }
}

fn access_modes(modes: &[String], at: At<'_>, faults: &mut Faults) {
    if modes.is_empty() {
        faults.required(at, "at least 1 access mode is required");
    }
    for (i, mode) in modes.iter().enumerate() {
        if !ACCESS_MODES.contains(&mode.as_str()) {
            faults.unsupported_value(at.item(i), mode, &ACCESS_MODES);
        }
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == ONE_POD) {
        faults.forbidden(at, format_args!("may not use {ONE_POD} with other access modes"));
    }
}

fn size(spec: &PersistentVolumeClaimSpec, at: At<'_>, faults: &mut Faults) {
    let at_requests = at.field("requests");
    let at_size = at_requests.key(STORAGE);
    match claim::request(spec) {
        "" => faults.required(at_size, ""),
        size => match Quantity::parse(size) {
            Err(why) => faults.invalid(at_size, size, why),
            Ok(parsed) if parsed.is_negative() || parsed.is_zero() => {
                faults.invalid(at_size, size, "must be greater than zero");
            }
            Ok(_) => {}
        },
    }
    let limits = spec.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    if limits.is_some_and(|limits| !limits.is_empty()) {
        let why = "the size of a directory is not limited; remove the limits, or give the storage class a file system \
                   of its own";
        faults.forbidden(at.field("limits"), why);
    }
}
