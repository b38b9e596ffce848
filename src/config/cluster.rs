//! The settings that a cluster has for all its nodes: a part of its KubeletConfiguration, which `wherry join` stores
//! and `clusterDefaults` names. They apply only to fields that no file of this machine sets.

use super::assemble::{assemble, check_text, host_name};
use super::files::{Text, read_file};
use super::flags::Flags;
use super::kubelet;
use super::problem::{Place, Problems};
use crate::api::document;
use serde_json::{Map, Value, json};
use std::path::Path;

/// The fields that are settings of a cluster. All other fields belong to the machine (paths, ports, cgroups,
/// reservations, limits of pods and evictions): the pods that run here were admitted under the machine's own
/// settings.
const FIELDS: [&str; 12] = [
    "allowedUnsafeSysctls",
    "clusterDNS",
    "clusterDomain",
    "containerLogMaxFiles",
    "containerLogMaxSize",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "imageMaximumGCAge",
    "imageMinimumGCAge",
    "maxParallelImagePulls",
    "serializeImagePulls",
    // With kubeadm, an administrator sets this field there for all nodes.
    "serverTLSBootstrap",
];

/// The part of a KubeletConfiguration that applies here.
#[derive(Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// A KubeletConfiguration; None if it would be empty.
    pub text: Option<String>,
    /// The names of the fields that were left out although they have a value.
    pub left_out: Vec<String>,
    /// Fields with an error, and the error.
    pub wrong: Vec<String>,
}

/// Selects the settings of a cluster's KubeletConfiguration.
///
/// # Errors
/// The text is not a KubeletConfiguration.
pub fn settings(text: &str) -> Result<ClusterSettings, String> {
    let document = document::value(text.as_bytes())?;
    if document["kind"] != kubelet::KIND {
        return Err(format!("it is not a {}", kubelet::KIND));
    }
    let mut kept = Map::new();
    let (mut left_out, mut wrong) = (Vec::new(), Vec::new());
    for (field, value) in document.as_object().into_iter().flatten() {
        if matches!(field.as_str(), "kind" | "apiVersion") || is_unset(value) {
            continue;
        }
        if !FIELDS.contains(&field.as_str()) {
            left_out.push(field.clone());
            continue;
        }
        let alone = written(Map::from_iter([(field.clone(), value.clone())]));
        let problems = check_text(Path::new("kubelet-config"), alone.as_bytes());
        match problems.errors.first() {
            None => {
                kept.insert(field.clone(), value.clone());
            }
            Some(error) => wrong.push(format!("{}: {}", error.field, error.message)),
        }
    }
    let text = (!kept.is_empty()).then(|| written(kept));
    Ok(ClusterSettings { text, left_out, wrong })
}

/// Writes a KubeletConfiguration as JSON, which is also YAML.
fn written(fields: Map<String, Value>) -> String {
    let mut document = json!({ "apiVersion": kubelet::API_VERSION, "kind": kubelet::KIND });
    for (field, value) in fields {
        document[field] = value;
    }
    format!("{document:#}\n")
}

/// Reports whether a value is the same as an unset field. kubeadm writes many such fields.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty() || s == "0s",
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_unset),
    }
}

/// Adds the file that `clusterDefaults` names before all other files. A file that cannot be used only causes a
/// warning: it comes from the cluster, and must not keep the agent from starting.
pub(super) fn add_defaults(texts: &mut Vec<Text>, flags: &Flags, problems: &mut Problems) {
    let errors = |texts: &[Text]| {
        let mut problems = Problems::default();
        let (config, places) = assemble(texts, flags, &host_name(), &mut problems);
        (config.cluster_defaults, places, problems.errors)
    };
    let (Some(path), places, before) = errors(texts) else { return };
    let place = places.get("clusterDefaults").cloned().unwrap_or_else(Place::flag);
    let mut ignored = |why: String| {
        let why = format!("{}: {why}; the settings of the cluster are ignored", path.display());
        problems.warning(&place, "clusterDefaults", why);
    };
    match read_file(&path) {
        Err(e) => ignored(e.to_string()),
        Ok(text) => {
            texts.insert(0, Text { path: path.clone(), text });
            let (_, _, after) = errors(texts);
            if let Some(error) = after.iter().find(|error| !before.contains(error)) {
                ignored(error.to_string());
                texts.remove(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;
    use std::fs;

    /// A KubeletConfiguration as kubeadm stores it.
    const KUBEADM: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
        authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}}\ncgroupDriver: systemd\n\
        clusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\ncpuManagerReconcilePeriod: 0s\n\
        logging: {flushFrequency: 0}\n\
        memorySwap: {}\nimageMinimumGCAge: 0s\nrotateCertificates: true\nstaticPodPath: /etc/kubernetes/manifests\n";

    #[test]
    fn the_settings_of_a_cluster_are_taken_and_those_of_a_machine_are_left_out() {
        let settings = settings(KUBEADM).unwrap();
        let kept: Value = serde_json::from_str(&settings.text.unwrap()).unwrap();
        assert_eq!(
            kept,
            json!({ "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                "clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local" })
        );
        assert_eq!(settings.left_out, ["authentication", "cgroupDriver", "rotateCertificates", "staticPodPath"]);
        assert!(settings.wrong.is_empty());
    }

    #[test]
    fn a_wrong_field_is_left_out_alone() {
        let text =
            "kind: KubeletConfiguration\nclusterDNS: [not an address]\nclusterDomain: cluster.local\nunknown: 1\n";
        let found = settings(text).unwrap();
        assert!(found.text.unwrap().contains("cluster.local"));
        assert!(found.wrong.len() == 1 && found.wrong[0].starts_with("clusterDNS: "), "{:?}", found.wrong);
        assert_eq!(found.left_out, ["unknown"]);
        assert_eq!(settings("kind: KubeletConfiguration").unwrap().text, None);
        for text in ["", "kind: Pod", "[", "kind: KubeletConfiguration\n---\nkind: KubeletConfiguration"] {
            assert!(settings(text).is_err(), "{text}");
        }
    }

    #[test]
    fn defaults_of_the_cluster_count_only_where_no_other_file_sets_the_field() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let flags = Flags { config: Some(path("config.yaml")), config_dir: Some(path("d")), ..Flags::default() };
        let kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        fs::create_dir(path("d")).unwrap();
        fs::write(
            path("config.yaml"),
            format!("{kubelet}clusterDomain: local.example\nimageGCLowThresholdPercent: 80\n"),
        )
        .unwrap();
        let drop_in = "apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nclusterDefaults: ";
        fs::write(path("d/join.yaml"), format!("{drop_in}{}\n", path("kubelet.yaml").display())).unwrap();
        let set = |more: &str| {
            fs::write(
                path("kubelet.yaml"),
                format!("{kubelet}clusterDomain: cluster.local\nclusterDNS: [10.96.0.10]\n{more}"),
            )
            .unwrap();
            load(&flags)
        };
        let loaded = set("");
        assert!(loaded.is_ok() && loaded.problems.warnings.is_empty(), "{:?}", loaded.problems);
        assert_eq!(loaded.config.cluster_domain, "local.example");
        assert_eq!(loaded.config.cluster_dns, ["10.96.0.10".parse::<std::net::IpAddr>().unwrap()]);
        assert_eq!(loaded.files[0], path("kubelet.yaml"));
        // A file that cannot be used is ignored, even if only its combination with the machine's settings is invalid.
        for more in ["imageGCHighThresholdPercent: 70\n", "unknown: 1\n", "[\n"] {
            let loaded = set(more);
            assert!(loaded.is_ok() && loaded.config.cluster_dns.is_empty(), "{more}");
            let warning = loaded.problems.warnings[0].to_string();
            assert!(warning.contains("the settings of the cluster are ignored"), "{warning}");
        }
        fs::remove_file(path("kubelet.yaml")).unwrap();
        let loaded = load(&flags);
        assert!(loaded.is_ok() && loaded.problems.warnings.len() == 1, "{:?}", loaded.problems);
    }
}
