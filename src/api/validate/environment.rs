//! Environment variables: their names, and the sources of their values.

use super::complaints::{complain, one_of};
use super::syntax;
use crate::api::environment;
use crate::api::k8s::{Container, EnvFromSource, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector};
use crate::api::problem::{At, Faults};
use crate::api::quantity::Quantity;
use crate::api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};

pub(super) fn environment(container: &Container, at: At<'_>, faults: &mut Faults) {
    let (env, env_from) = (at.field("env"), at.field("envFrom"));
    for (i, variable) in container.env.iter().flatten().enumerate() {
        let at = env.item(i);
        if variable.name.is_empty() {
            faults.required(at.field("name"), "");
        } else {
            complain(syntax::env_name(&variable.name), &variable.name, at.field("name"), faults);
        }
        if let Some(from) = &variable.value_from {
            let written = variable.value.as_ref().is_some_and(|value| !value.is_empty());
            value_from(from, written, at.field("valueFrom"), faults);
        }
    }
    for (i, from) in container.env_from.iter().flatten().enumerate() {
        source(from, env_from.item(i), faults);
    }
}

fn value_from(from: &EnvVarSource, written: bool, at: At<'_>, faults: &mut Faults) {
    let mut sources = 0;
    if let Some(field) = &from.field_ref {
        sources += 1;
        field_ref(field, at.field("fieldRef"), faults);
    }
    if let Some(resource) = &from.resource_field_ref {
        sources += 1;
        resource_ref(resource, at.field("resourceFieldRef"), faults);
    }
    let refs = [
        (from.config_map_key_ref.as_ref().map(|of| (of.name.as_str(), of.key.as_str())), "configMapKeyRef"),
        (from.secret_key_ref.as_ref().map(|of| (of.name.as_str(), of.key.as_str())), "secretKeyRef"),
    ];
    for (name, key, field) in refs.into_iter().filter_map(|(of, field)| of.map(|(name, key)| (name, key, field))) {
        sources += 1;
        let at = at.field(field);
        object_name(name, at, faults);
        match key {
            "" => faults.required(at.field("key"), ""),
            key => complain(syntax::config_key(key), key, at.field("key"), faults),
        }
    }
    if from.file_key_ref.is_some() {
        sources += 1;
        faults.not_yet(at.field("fileKeyRef"));
    }
    match sources {
        0 => faults.invalid(
            at,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
        ),
        1 if written => faults.invalid(at, "", "may not be specified when `value` is not empty"),
        1 => {}
        _ => faults.invalid(at, "", "may not have more than one field specified at a time"),
    }
}

fn object_name(name: &str, at: At<'_>, faults: &mut Faults) {
    match name {
        "" => faults.required(at.field("name"), ""),
        name => complain(syntax::dns_subdomain(name), name, at.field("name"), faults),
    }
}

fn field_ref(field: &ObjectFieldSelector, at: At<'_>, faults: &mut Faults) {
    if let Some(version) = field.api_version.as_deref().filter(|version| !version.is_empty()) {
        one_of(Some(version), &["v1"], at.field("apiVersion"), faults);
    }
    match field.field_path.as_str() {
        "" => faults.required(at.field("fieldPath"), ""),
        path if !environment::is_field(path) => {
            let known = "supported are metadata.name, metadata.namespace, metadata.uid, metadata.labels['KEY'], \
                         metadata.annotations['KEY'], spec.nodeName, spec.serviceAccountName, status.hostIP, \
                         status.hostIPs, status.podIP and status.podIPs";
            faults.invalid(at.field("fieldPath"), path, known);
        }
        _ => {}
    }
}

fn resource_ref(of: &ResourceFieldSelector, at: At<'_>, faults: &mut Faults) {
    let known = of.resource.split_once('.').is_some_and(|(list, resource)| {
        ["limits", "requests"].contains(&list)
            && ([CPU, MEMORY, EPHEMERAL_STORAGE].contains(&resource) || resource.starts_with("hugepages-"))
    });
    match of.resource.as_str() {
        "" => faults.required(at.field("resource"), ""),
        resource if !known => {
            let known = "supported are limits and requests of cpu, memory, ephemeral-storage and hugepages-SIZE, for \
                         example limits.memory";
            faults.invalid(at.field("resource"), resource, known);
        }
        _ => {}
    }
    let Some(divisor) = &of.divisor else { return };
    match Quantity::parse(&divisor.0) {
        Err(why) => faults.invalid(at.field("divisor"), &divisor.0, why),
        Ok(amount) if amount.is_negative() => {
            faults.invalid(at.field("divisor"), &divisor.0, "must be greater than or equal to 0");
        }
        Ok(_) => {}
    }
}

fn source(from: &EnvFromSource, at: At<'_>, faults: &mut Faults) {
    if let Some(prefix) = from.prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
        complain(syntax::env_name(prefix), prefix, at.field("prefix"), faults);
    }
    let refs = [
        (from.config_map_ref.as_ref().map(|of| of.name.as_str()), "configMapRef"),
        (from.secret_ref.as_ref().map(|of| of.name.as_str()), "secretRef"),
    ];
    let sources: Vec<(&str, &str)> = refs.into_iter().filter_map(|(of, field)| of.map(|name| (name, field))).collect();
    sources.iter().for_each(|(name, field)| object_name(name, at.field(field), faults));
    match sources.len() {
        0 => faults.invalid(at, "", "must specify one of: `configMapRef` or `secretRef`"),
        1 => {}
        _ => faults.invalid(at, "", "may not have more than one field specified at a time"),
    }
}
