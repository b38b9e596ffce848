//! Converts a pod of the API server to our pod.
//!
//! The server has validated the object. If the pod uses a field that this version does not support, the node rejects
//! it, so that its controller creates another one (C18).

use crate::api::cluster::final_ends::FinalEnds;
use crate::api::cluster::mirror::{DIGEST, MIRROR};
use crate::api::cluster::unknown_fields;
use crate::api::document;
use crate::api::document::context::Context;
use crate::api::k8s;
use crate::api::names::{FullName, Uid};
use crate::api::pod::{LONGEST_GRACE, Pod};
use crate::api::problem::{Fault, What, brief};
use crate::api::reason::Reason;
use crate::api::source::Source;
use crate::api::{defaults, uid, validate};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Fields of the metadata that change without a change of the pod's desired state. Servers before 1.24 set
/// `selfLink`.
const VOLATILE: [&str; 3] = ["managedFields", "resourceVersion", "selfLink"];
/// The maximum number of errors listed in the message of a rejection.
const MAX_FAULTS: usize = 5;

/// The rules that a pod has to satisfy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    OfNewPods,
    /// For a pod that the node has accepted before.
    None,
}

/// A pod on the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct PodObject {
    pub uid: Uid,
    pub name: FullName,
    pub resource_version: String,
    /// `metadata.generation`, which increases with each change of the spec. None: the server is older than 1.34.
    pub generation: Option<i64>,
    /// Some: a mirror, which the node does not run.
    pub mirror: Option<MirrorOf>,
    /// Some: the pod must end.
    pub deletion: Option<Deletion>,
    /// The status that the server stores. It is empty if a field has a wrong type.
    pub status: k8s::PodStatus,
    pub final_ends: FinalEnds,
    /// The desired state.
    pub pod: Result<Box<Pod>, Rejection>,
}

/// The pod that a mirror shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorOf {
    pub uid: Uid,
    /// See `mirror::DIGEST`.
    pub digest: String,
}

/// The deletion of a pod by a user or a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Deletion {
    /// `deletionGracePeriodSeconds`, or else the grace period in the spec. It may become shorter, and may be 0.
    pub grace: Duration,
}

/// Why the node cannot run the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Rejection {
    /// All faults are fields that this version does not support.
    Unsupported(Vec<Violation>),
    /// There are other faults, such as fields that are not valid.
    Invalid(Vec<Violation>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// `spec.volumes[0].csi`; empty: the whole object.
    pub field: String,
    pub message: String,
}

impl Rejection {
    fn of(faults: Vec<Fault>) -> Rejection {
        let is_unsupported = faults.iter().all(|fault| matches!(fault.what, What::NotYet | What::Unsupported(_)));
        let violation = |fault: Fault| Violation { field: fault.at.to_string(), message: fault.what.to_string() };
        let all = faults.into_iter().map(violation).collect();
        if is_unsupported { Rejection::Unsupported(all) } else { Rejection::Invalid(all) }
    }

    fn violations(&self) -> &[Violation] {
        let (Rejection::Unsupported(all) | Rejection::Invalid(all)) = self;
        all
    }

    /// Returns the reason for the status of the pod. `PodFeatureUnsupported` is a kubelet's.
    pub fn reason(&self) -> Reason {
        match self {
            Rejection::Unsupported(_) => Reason::PodFeatureUnsupported,
            Rejection::Invalid(_) => Reason::InvalidPod,
        }
    }

    /// Returns the message for the status of the pod, with the first faults.
    pub fn message(&self) -> String {
        let mut parts = vec!["Pod was rejected".to_owned()];
        for Violation { field, message } in self.violations().iter().take(MAX_FAULTS) {
            let colon = if field.is_empty() { "" } else { ": " };
            parts.push(format!("{field}{colon}{}", brief(message)));
        }
        let more = self.violations().len().saturating_sub(MAX_FAULTS);
        let first = parts.remove(0);
        let rest = parts.join("; ");
        if more > 0 { format!("{first}: {rest}; and {more} more") } else { format!("{first}: {rest}") }
    }
}

/// Reads an object of a list, a watch or an answer.
///
/// # Errors
/// The object lacks a name, a namespace, a UID or a resource version, so nothing can be reported about it.
pub fn read(object: Value, context: Context<'_>) -> Result<PodObject, String> {
    read_with(object, context, Rules::OfNewPods)
}

/// Reads the object of a pod that the node has accepted before, from a record. It is not validated again, so that a
/// new rule in this version does not end a running pod (W25).
///
/// # Errors
/// As for `read`.
pub fn recorded(object: Value, context: Context<'_>) -> Result<PodObject, String> {
    read_with(object, context, Rules::None)
}

fn read_with(object: Value, context: Context<'_>, rules: Rules) -> Result<PodObject, String> {
    let Value::Object(mut content) = object else { return Err("the pod is not an object".to_owned()) };
    let status = content.remove("status").unwrap_or_default();
    let ephemeral =
        content.get_mut("spec").and_then(Value::as_object_mut).and_then(|s| s.remove("ephemeralContainers"));
    let seconds_of_spec = content.get("spec").and_then(|spec| spec.get("terminationGracePeriodSeconds")?.as_i64());
    let final_ends = content.get("spec").map(FinalEnds::of).unwrap_or_default();
    let Some(metadata) = content.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Err("the pod has no metadata".to_owned());
    };
    let text = |metadata: &Map<String, Value>, field: &str| match metadata.get(field).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("the pod has no metadata.{field}")),
    };
    let name = FullName::new(&text(metadata, "namespace")?, &text(metadata, "name")?);
    let uid = Uid::from(text(metadata, "uid")?);
    let resource_version = text(metadata, "resourceVersion")?;
    VOLATILE.iter().for_each(|field| drop(metadata.remove(*field)));
    let generation = metadata.remove("generation").and_then(|value| value.as_i64()).filter(|g| *g > 0);
    let deleted = metadata.remove("deletionTimestamp").is_some_and(|at| !at.is_null());
    let seconds = metadata.remove("deletionGracePeriodSeconds").and_then(|value| value.as_i64());
    let seconds = seconds.or(seconds_of_spec).unwrap_or(30);
    let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(LONGEST_GRACE);
    let annotation = |key: &str| metadata.get("annotations").and_then(|all| all.get(key)?.as_str());
    let mirror = annotation(MIRROR).map(|of| MirrorOf {
        uid: Uid::from(of.to_owned()),
        digest: annotation(DIGEST).unwrap_or_default().to_owned(),
    });
    // The items of a list do not have these fields, so the desired state does not contain them.
    ["apiVersion", "kind"].iter().for_each(|field| drop(content.remove(*field)));
    let content = Value::Object(content);
    let pod = typed(&content, ephemeral, context, rules);
    let pod = pod.map(|(object, ephemeral)| {
        // The digest does not cover ephemeral containers, which are not part of the desired state at the start (W29).
        let digest = uid::digest(&content);
        let (uid, name, source) = (uid.clone(), name.clone(), Source::api());
        let pod = Pod { uid, name, source, digest, object, ephemeral: Vec::new() };
        if ephemeral.is_empty() { pod } else { pod.with_ephemeral(ephemeral) }
    });
    let status = document::pod_of_cluster(&json!({ "status": status })).0.ok().and_then(|pod| pod.status);
    Ok(PodObject {
        uid,
        name,
        resource_version,
        generation,
        mirror,
        deletion: deleted.then_some(Deletion { grace }),
        status: status.unwrap_or_default(),
        final_ends,
        pod: pod.map(Box::new).map_err(Rejection::of),
    })
}

/// Returns the pod with defaults, and its ephemeral containers.
fn typed(
    content: &Value,
    ephemeral: Option<Value>,
    context: Context<'_>,
    rules: Rules,
) -> Result<(k8s::Pod, Vec<k8s::EphemeralContainer>), Vec<Fault>> {
    let (object, unknown) = document::pod_of_cluster(content);
    let mut object = object.map_err(|fault| vec![fault])?;
    defaults::apply_of_cluster(&mut object, context);
    if rules == Rules::OfNewPods {
        let mut faults = validate::pod_of_cluster(&object);
        faults.extend(unknown_fields::faults(content, &unknown));
        if !faults.is_empty() {
            return Err(faults);
        }
    }
    let Some(list) = ephemeral else { return Ok((object, Vec::new())) };
    let (of_list, _) = document::pod_of_cluster(&json!({ "spec": { "ephemeralContainers": list } }));
    let list = of_list.map_err(|fault| vec![fault])?.spec.and_then(|spec| spec.ephemeral_containers);
    Ok((object, list.unwrap_or_default()))
}

#[cfg(test)]
mod tests;
