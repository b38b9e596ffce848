//! Validation of a complete StatefulSet, with the messages of Kubernetes.

use super::complaints::{complain, one_of};
use super::{claim_spec, data_metadata, syntax, workload};
use crate::api::k8s::{PersistentVolumeClaimSpec, StatefulSet, StatefulSetSpec};
use crate::api::problem::{At, Fault, Faults};
use crate::api::workload::stateful_set;

/// The maximum length of the name, in bytes. A cluster accepts longer names, but then cannot create the pods.
const MAX_NAME: usize = 52;

pub(crate) fn stateful_set(stateful_set: &StatefulSet) -> Vec<Fault> {
    let mut faults = Faults::default();
    data_metadata(&stateful_set.metadata, "statefulset", &mut faults);
    // The name is a part of the pods' host names.
    let root = At::Root;
    if let Some(name) = stateful_set.metadata.name.as_deref() {
        let at = root.field("metadata");
        complain(syntax::dns_label(name), name, at.field("name"), &mut faults);
        // A label of the pods has the name, a dash and the hash of the template; a label has at most 63 characters.
        if name.len() > MAX_NAME {
            faults.invalid(at.field("name"), name, format_args!("must be no more than {MAX_NAME} characters"));
        }
    }
    let Some(spec) = &stateful_set.spec else { return faults.0 };
    let at = root.field("spec");
    numbers(spec, at, &mut faults);
    one_of(
        spec.pod_management_policy.as_deref(),
        &["OrderedReady", "Parallel"],
        at.field("podManagementPolicy"),
        &mut faults,
    );
    if let Some(service) = spec.service_name.as_deref().filter(|name| !name.is_empty()) {
        complain(syntax::dns_label(service), service, at.field("serviceName"), &mut faults);
    }
    update_strategy(spec, at.field("updateStrategy"), &mut faults);
    claims(spec, at, &mut faults);
    workload::selector(&spec.selector, &spec.template, at, &mut faults);
    let mut template = spec.template.clone();
    if let Some(pod) = &mut template.spec {
        // The containers mount the claims by the names of their templates.
        stateful_set::with_claims(pod, spec.volume_claim_templates.as_deref().unwrap_or_default(), str::to_owned);
    }
    workload::template(&template, "StatefulSet", &mut faults);
    faults.0
}

fn numbers(spec: &StatefulSetSpec, at: At<'_>, faults: &mut Faults) {
    let start = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start);
    workload::not_negative(
        &[
            ("replicas", spec.replicas),
            ("minReadySeconds", spec.min_ready_seconds),
            ("revisionHistoryLimit", spec.revision_history_limit),
        ],
        at,
        faults,
    );
    let at_ordinals = at.field("ordinals");
    workload::not_negative(&[("start", start)], at_ordinals, faults);
    workload::replicas(spec.replicas, at, faults);
}

fn update_strategy(spec: &StatefulSetSpec, at: At<'_>, faults: &mut Faults) {
    let Some(strategy) = &spec.update_strategy else { return };
    let type_ = strategy.type_.as_deref().unwrap_or_default();
    one_of(Some(type_), &["OnDelete", "RollingUpdate"], at.field("type"), faults);
    let at = at.field("rollingUpdate");
    match &strategy.rolling_update {
        Some(_) if type_ == "OnDelete" => {
            faults.invalid(at, "rollingUpdate", "only allowed for updateStrategy 'RollingUpdate'");
        }
        Some(rolling) => {
            workload::not_negative(&[("partition", rolling.partition)], at, faults);
            let unavailable = rolling.max_unavailable.as_ref();
            workload::number_or_percentage(unavailable, Some(100), at.field("maxUnavailable"), faults);
            if workload::is_zero(unavailable) {
                let value = unavailable.map(workload::shown).unwrap_or_default();
                faults.invalid(at.field("maxUnavailable"), value, "cannot be 0");
            }
        }
        None => {}
    }
}

fn claims(spec: &StatefulSetSpec, at: At<'_>, faults: &mut Faults) {
    let at_templates = at.field("volumeClaimTemplates");
    let mut names: Vec<&str> = Vec::new();
    for (i, template) in spec.volume_claim_templates.iter().flatten().enumerate() {
        let at = at_templates.item(i);
        let at_metadata = at.field("metadata");
        let name = template.metadata.name.as_deref().unwrap_or_default();
        complain(syntax::dns_label(name), name, at_metadata.field("name"), faults);
        if names.contains(&name) {
            faults.duplicate(at_metadata.field("name"), name);
        }
        names.push(name);
        let empty = PersistentVolumeClaimSpec::default();
        claim_spec::spec(template.spec.as_ref().unwrap_or(&empty), "", at.field("spec"), faults);
    }
    let policy = spec.persistent_volume_claim_retention_policy.as_ref();
    let at = at.field("persistentVolumeClaimRetentionPolicy");
    for (field, value) in [
        ("whenDeleted", policy.and_then(|policy| policy.when_deleted.as_deref())),
        ("whenScaled", policy.and_then(|policy| policy.when_scaled.as_deref())),
    ] {
        if value.is_some() {
            one_of(value, &["Delete", "Retain"], at.field(field), faults);
        }
    }
}
