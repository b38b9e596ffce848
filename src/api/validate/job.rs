//! Validation of a complete Job, with the messages of Kubernetes.

use super::complaints::{complain, one_of};
use super::{data_metadata, syntax, workload};
use crate::api::k8s::{Job, JobSpec, PodFailurePolicyRule};
use crate::api::problem::{At, Fault, Faults};
use crate::api::workload::deployment::MAX_REPLICAS;
use crate::api::workload::indexes::IndexSet;
use crate::api::workload::job::{self, MAX_INDEXES};

/// The maximum numbers of the API.
const MAX_RULES: usize = 20;
const MAX_CODES: usize = 255;

pub(crate) fn job(job: &Job) -> Vec<Fault> {
    let mut faults = Faults::default();
    data_metadata(&job.metadata, "job", &mut faults);
    let root = At::Root;
    // The name is the value of a label of the pods.
    if let Some(name) = job.metadata.name.as_deref() {
        let at = root.field("metadata");
        complain(syntax::label_value(name), name, at.field("name"), &mut faults);
        host_names(name, job.spec.as_ref(), at, &mut faults);
    }
    let Some(spec) = &job.spec else { return faults.0 };
    let at = root.field("spec");
    numbers(spec, at, &mut faults);
    modes(spec, at, &mut faults);
    indexed(spec, at, &mut faults);
    failure_policy(spec, at, &mut faults);
    success_policy(spec, at, &mut faults);
    selector(job, spec, at, &mut faults);
    workload::ending_template(&spec.template, &mut faults);
    faults.0
}

/// The host name of a pod is the name of the Job with the index.
fn host_names(name: &str, spec: Option<&JobSpec>, at: At<'_>, faults: &mut Faults) {
    let indexed = spec.filter(|spec| spec.completion_mode.as_deref() == Some("Indexed"));
    let Some(last) = indexed.and_then(|spec| spec.completions).filter(|completions| *completions > 0) else { return };
    let host_name = format!("{name}-{}", last - 1);
    if !syntax::dns_label(&host_name).is_empty() {
        let message = format_args!("will not be able to create pod with invalid DNS label: {host_name}");
        faults.invalid(at.field("name"), name, message);
    }
}

fn numbers(spec: &JobSpec, at: At<'_>, faults: &mut Faults) {
    workload::not_negative(
        &[
            ("parallelism", spec.parallelism),
            ("completions", spec.completions),
            ("backoffLimit", spec.backoff_limit),
            ("backoffLimitPerIndex", spec.backoff_limit_per_index),
            ("maxFailedIndexes", spec.max_failed_indexes),
            ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished),
        ],
        at,
        faults,
    );
    if let Some(seconds) = spec.active_deadline_seconds.filter(|seconds| *seconds < 0) {
        faults.invalid(at.field("activeDeadlineSeconds"), seconds, "must be greater than or equal to 0");
    }
    if let Some(number) = spec.parallelism.filter(|number| *number > MAX_REPLICAS) {
        faults.invalid(at.field("parallelism"), number, format_args!("must be at most {MAX_REPLICAS} on one machine"));
    }
}

fn modes(spec: &JobSpec, at: At<'_>, faults: &mut Faults) {
    let mode = spec.completion_mode.as_deref();
    one_of(mode, &["NonIndexed", "Indexed"], at.field("completionMode"), faults);
    let policies: &[&str] =
        if spec.pod_failure_policy.is_some() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    one_of(spec.pod_replacement_policy.as_deref(), policies, at.field("podReplacementPolicy"), faults);
    if let Some(by) = spec.managed_by.as_deref().filter(|by| *by != job::MANAGER) {
        faults.unsupported_value(at.field("managedBy"), by, &[job::MANAGER]);
    }
}

fn indexed(spec: &JobSpec, at: At<'_>, faults: &mut Faults) {
    if spec.completion_mode.as_deref() == Some("Indexed") {
        match spec.completions {
            None => faults.required(at.field("completions"), "when completion mode is Indexed"),
            Some(number) if u32::try_from(number).is_ok_and(|number| number > MAX_INDEXES) => {
                let message = format_args!("must be at most {MAX_INDEXES} on one machine");
                faults.invalid(at.field("completions"), number, message);
            }
            Some(_) => {}
        }
    } else if let Some(limit) = spec.backoff_limit_per_index {
        faults.invalid(at.field("backoffLimitPerIndex"), limit, "requires indexed completion mode");
    }
    let restart_policy = spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    if spec.backoff_limit_per_index.is_some() && restart_policy != Some("Never") {
        let at = at.field("template");
        let at = at.field("spec");
        let message = "when backoffLimitPerIndex is used, it must be \"Never\"";
        faults.invalid(at.field("restartPolicy"), restart_policy.unwrap_or_default(), message);
    }
    if let (Some(most), None) = (spec.max_failed_indexes, spec.backoff_limit_per_index) {
        faults.invalid(at.field("maxFailedIndexes"), most, "requires that `backoffLimitPerIndex` is specified");
    }
}

fn failure_policy(spec: &JobSpec, at: At<'_>, faults: &mut Faults) {
    let Some(policy) = &spec.pod_failure_policy else { return };
    let at = at.field("podFailurePolicy");
    let restart_policy = spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    if restart_policy != Some("Never") {
        faults.invalid(at, restart_policy.unwrap_or_default(), "only restartPolicy \"Never\" is supported with it");
    }
    let at = at.field("rules");
    if policy.rules.len() > MAX_RULES {
        faults.invalid(at, policy.rules.len(), format_args!("must have at most {MAX_RULES} items"));
    }
    for (i, rule) in policy.rules.iter().enumerate() {
        failure_rule(rule, spec, at.item(i), faults);
    }
}

fn failure_rule(rule: &PodFailurePolicyRule, spec: &JobSpec, at: At<'_>, faults: &mut Faults) {
    one_of(Some(&rule.action), &["Count", "FailIndex", "FailJob", "Ignore"], at.field("action"), faults);
    if rule.action == "FailIndex" && spec.backoff_limit_per_index.is_none() {
        faults.invalid(at.field("action"), &rule.action, "requires the backoffLimitPerIndex to be set");
    }
    let patterns = rule.on_pod_conditions.iter().flatten();
    match (&rule.on_exit_codes, patterns.clone().count()) {
        (None, 0) | (Some(_), 1..) => {
            let message = "specifying one of onExitCodes and onPodConditions is required";
            faults.invalid(at, &rule.action, message);
        }
        (None, count) if count > MAX_RULES => {
            faults.invalid(at.field("onPodConditions"), count, format_args!("must have at most {MAX_RULES} items"));
        }
        _ => {}
    }
    let at_codes = at.field("onExitCodes");
    if let Some(codes) = &rule.on_exit_codes {
        one_of(Some(&codes.operator), &["In", "NotIn"], at_codes.field("operator"), faults);
        let at_values = at_codes.field("values");
        if codes.values.is_empty() || codes.values.len() > MAX_CODES {
            faults.invalid(at_values, codes.values.len(), format_args!("must have 1 to {MAX_CODES} items"));
        }
        if codes.operator == "In" && codes.values.contains(&0) {
            faults.invalid(at_values, 0, "must not be 0 for the In operator");
        }
        let spec = spec.template.spec.as_ref();
        let all = spec.into_iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
        if let Some(name) = &codes.container_name
            && !all.map(|container| &container.name).any(|known| known == name)
        {
            faults.invalid(
                at_codes.field("containerName"),
                name,
                "must be one of the container or initContainer names",
            );
        }
    }
    for (i, pattern) in patterns.enumerate() {
        let at = at.field("onPodConditions");
        let at = at.item(i);
        complain(syntax::qualified_name(&pattern.type_), &pattern.type_, at.field("type"), faults);
        if pattern.status.is_some() {
            one_of(pattern.status.as_deref(), &["False", "True", "Unknown"], at.field("status"), faults);
        }
    }
}

fn success_policy(spec: &JobSpec, at: At<'_>, faults: &mut Faults) {
    let Some(policy) = &spec.success_policy else { return };
    let at = at.field("successPolicy");
    if spec.completion_mode.as_deref() != Some("Indexed") {
        faults.invalid(at, "successPolicy", "requires indexed completion mode");
        return;
    }
    let at = at.field("rules");
    if policy.rules.is_empty() || policy.rules.len() > MAX_RULES {
        faults.invalid(at, policy.rules.len(), format_args!("must have 1 to {MAX_RULES} items"));
    }
    let number = spec.completions.and_then(|n| u32::try_from(n).ok()).unwrap_or_default();
    for (i, rule) in policy.rules.iter().enumerate() {
        let at = at.item(i);
        if rule.succeeded_count.is_none() && rule.succeeded_indexes.is_none() {
            faults.required(at, "at least one of succeededCount or succeededIndexes must be specified");
        }
        let indexes = rule.succeeded_indexes.as_deref().map(|text| (text, IndexSet::parse(text, number)));
        if let Some((text, Err(why))) = &indexes {
            faults.invalid(at.field("succeededIndexes"), text, why);
        }
        let most = match &indexes {
            Some((_, Ok(set))) => u32::try_from(set.len()).unwrap_or(u32::MAX),
            _ => number,
        };
        if let Some(count) = rule.succeeded_count
            && !u32::try_from(count).is_ok_and(|count| (1..=most).contains(&count))
        {
            faults.invalid(at.field("succeededCount"), count, format_args!("must be from 1 to {most}"));
        }
    }
}

/// A selector that is not written by hand is the one that each Job gets.
fn selector(job: &Job, spec: &JobSpec, at: At<'_>, faults: &mut Faults) {
    let Some(selector) = &spec.selector else {
        if spec.manual_selector == Some(true) {
            faults.required(at.field("selector"), "with manualSelector");
        }
        return;
    };
    if spec.manual_selector == Some(true) {
        workload::selector(selector, &spec.template, at, faults);
    } else if *selector != job::own_selector(&job.metadata) {
        let message = "`selector` not auto-generated; leave it out";
        faults.invalid(at.field("selector"), "selector", message);
    }
}
