//! The objects that create pods from a template (apps/v1), and the pods that they create.

pub mod daemon_set;
pub mod deployment;
pub mod key;
pub mod label_selector;
pub mod portion;
pub mod replica;
pub mod template;

use crate::api::k8s::{LabelSelector, PodTemplateSpec};
use crate::api::names::FullName;
use crate::api::problem::Problem;
use crate::api::source::Source;
use daemon_set::DaemonSet;
use deployment::Deployment;
use key::{WorkloadKey, WorkloadKind};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A valid document of a manifest that creates pods.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    Deployment(Rc<Deployment>),
    DaemonSet(Rc<DaemonSet>),
}

impl Workload {
    pub fn kind(&self) -> WorkloadKind {
        match self {
            Workload::Deployment(_) => WorkloadKind::Deployment,
            Workload::DaemonSet(_) => WorkloadKind::DaemonSet,
        }
    }

    pub fn name(&self) -> &FullName {
        match self {
            Workload::Deployment(of) => &of.name,
            Workload::DaemonSet(of) => &of.name,
        }
    }

    pub fn key(&self) -> WorkloadKey {
        WorkloadKey::new(self.kind(), self.name().clone())
    }

    pub fn source(&self) -> &Source {
        match self {
            Workload::Deployment(of) => &of.source,
            Workload::DaemonSet(of) => &of.source,
        }
    }

    /// Returns the digest of the parsed content, as for a pod (D3).
    pub fn digest(&self) -> &str {
        match self {
            Workload::Deployment(of) => &of.digest,
            Workload::DaemonSet(of) => &of.digest,
        }
    }

    /// Returns the template of the pods, with all defaults.
    pub fn template(&self) -> &Rc<PodTemplateSpec> {
        match self {
            Workload::Deployment(of) => &of.template,
            Workload::DaemonSet(of) => &of.template,
        }
    }

    pub fn selector(&self) -> &LabelSelector {
        match self {
            Workload::Deployment(of) => of.selector(),
            Workload::DaemonSet(of) => of.selector(),
        }
    }
}

/// Returns a problem for each document that has the kind and the name of an earlier one, which is in force (D6).
pub fn duplicates(all: &[Workload]) -> Vec<Problem> {
    let mut first: BTreeMap<WorkloadKey, &Source> = BTreeMap::new();
    let mut problems = Vec::new();
    for workload in all {
        let (key, source) = (workload.key(), workload.source());
        let Some(Source { path, document }) = first.get(&key) else {
            first.insert(key, source);
            continue;
        };
        let message = format!(
            "Duplicate value: \"{}\": the {} in {path} (document {document}) is in force; change one",
            key.name,
            key.kind.name()
        );
        let field = Some("metadata.name".to_owned());
        problems.push(Problem { path: source.path.clone(), document: source.document, line: None, field, message });
    }
    problems
}
