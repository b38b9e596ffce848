//! What a pod of a Job has in addition to its template: the labels of the Job, and its index.

use super::job::{INDEX, INDEX_VARIABLE, Job};
use crate::api::k8s::{EnvVar, EnvVarSource, ObjectFieldSelector};
use crate::api::pod::Pod;

/// Gives a pod the labels of its Job, and its index: as a label and an annotation, in its host name, and in the
/// environment of its containers.
pub fn identified(mut pod: Pod, job: &Job, index: Option<u32>) -> Pod {
    let labels = pod.object.metadata.labels.get_or_insert_default();
    labels.extend(job.own_labels());
    let Some(index) = index else { return pod };
    labels.insert(INDEX.to_owned(), index.to_string());
    pod.object.metadata.annotations.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
    let Some(spec) = &mut pod.object.spec else { return pod };
    spec.hostname = Some(format!("{}-{index}", job.head.name().name));
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let env = container.env.get_or_insert_default();
        if env.iter().all(|variable| variable.name != INDEX_VARIABLE) {
            env.push(index_variable());
        }
    }
    pod
}

/// Returns the index of a pod of an Indexed Job.
pub fn index_of(pod: &Pod) -> Option<u32> {
    pod.object.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok()
}

/// Returns the index in the name `JOB-INDEX-SUFFIX` of a pod.
pub fn index_in_name(name: &str) -> Option<u32> {
    let (front, _) = name.rsplit_once('-')?;
    front.rsplit_once('-')?.1.parse().ok()
}

fn index_variable() -> EnvVar {
    let field_path = format!("metadata.labels['{INDEX}']");
    let field = ObjectFieldSelector { api_version: Some("v1".to_owned()), field_path };
    let value_from = EnvVarSource { field_ref: Some(Box::new(field)), ..EnvVarSource::default() };
    EnvVar { name: INDEX_VARIABLE.to_owned(), value_from: Some(Box::new(value_from)), ..EnvVar::default() }
}
