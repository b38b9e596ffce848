//! The templates of pods: their defaults, and the hash that names a revision.

use crate::api::defaults;
use crate::api::k8s::{ObjectMeta, PodTemplateSpec};
use crate::api::uid;
use serde_json::json;

/// The label of a Deployment's pods and ReplicaSets. Its value is the hash of the template.
pub const HASH_LABEL: &str = "pod-template-hash";
/// The label of a DaemonSet's pods and of its revisions. Its value is the hash of the template.
pub const REVISION_LABEL: &str = "controller-revision-hash";
/// The labels that the pods have and their templates lack.
pub const HASH_LABELS: [&str; 2] = [HASH_LABEL, REVISION_LABEL];
/// The characters of names that Kubernetes generates: no vowels, and no characters that look alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Fills in the defaults. Only labels and annotations of the metadata have a meaning, so everything else is removed.
pub fn complete(template: &mut PodTemplateSpec) {
    let metadata = template.metadata.take().unwrap_or_default();
    let ObjectMeta { mut labels, annotations, .. } = metadata;
    if let Some(labels) = &mut labels {
        // `kubectl rollout undo` removes the label from the template of a ReplicaSet, and other clients may not.
        for label in HASH_LABELS {
            labels.remove(label);
        }
    }
    template.metadata = Some(ObjectMeta { labels, annotations, ..ObjectMeta::default() });
    let spec = template.spec.get_or_insert_default();
    defaults::apply_to_template(spec);
    // The default is not stored, as for a pod, so that a template has the same hash with and without it.
    spec.dns_policy.take_if(|policy| policy == "ClusterFirst");
}

/// Returns the hash of a complete template. Equal templates have equal hashes. (A cluster calculates the hash in
/// another way, and only compares the value that it has stored.)
pub fn hash(template: &PodTemplateSpec) -> String {
    let digest = uid::digest(&json!(template));
    let number = digest.get(..8).and_then(|first| u32::from_str_radix(first, 16).ok()).unwrap_or_default();
    encode(number.to_string().as_bytes())
}

/// Returns five random characters for the end of a name.
pub fn suffix(random: u64) -> String {
    encode(&random.to_le_bytes()[..5])
}

fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::from_value;
    use serde_json::Value;

    fn template(value: &Value) -> PodTemplateSpec {
        let mut template = from_value(value).expect("a template");
        complete(&mut template);
        template
    }

    #[test]
    fn a_template_with_its_defaults_written_out_has_the_same_hash() {
        let brief =
            json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        let complete = template(&brief);
        let whole = json!(complete);
        assert_eq!(whole.pointer("/spec/containers/0/imagePullPolicy"), Some(&json!("IfNotPresent")));
        assert_eq!(hash(&template(&whole)), hash(&complete));
        let mut other = brief.clone();
        other["spec"]["containers"][0]["image"] = "i:2".into();
        assert_ne!(hash(&template(&other)), hash(&complete));
        let mut shown = brief;
        shown["metadata"]["labels"][HASH_LABEL] = hash(&complete).into();
        assert_eq!(hash(&template(&shown)), hash(&complete));
    }

    #[test]
    fn generated_characters_are_those_of_kubernetes() {
        assert_eq!(encode(b"0123456789"), "456789bcdf");
        assert_eq!(suffix(0), "bbbbb");
        assert!(suffix(u64::MAX).bytes().all(|b| ALPHABET.contains(&b)));
    }
}
