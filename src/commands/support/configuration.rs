//! The configuration in the archive: the effective one, and the files that it comes from.

use super::archive::{CollectedPart, SupportArchive};
use super::reading::{self, PATIENCE};
use super::redact;
use crate::api::ordered::CollectOrdered as _;
use crate::commands::output::{Failure, document, shown};
use crate::config::yaml::{self, MapEntry};
use crate::config::{self, Config, Flags, Loaded, duration, kubelet, wherry};
use crate::foreign::{self, Links};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The configuration, as far as it can be read.
pub(super) struct FoundConfiguration {
    pub config: Config,
    /// The files that were read.
    files: Vec<PathBuf>,
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl FoundConfiguration {
    /// Reads the configuration selected by `flags`. If its files are on a file system that hangs, uses the defaults and
    /// the flags.
    pub(super) fn load(flags: &Flags) -> FoundConfiguration {
        let of_thread = flags.clone();
        match foreign::within(PATIENCE, move || config::load(&of_thread)) {
            Ok(Loaded { config, problems, files }) => FoundConfiguration {
                config,
                files,
                errors: problems.errors.iter().map(ToString::to_string).collect(),
                warnings: problems.warnings.iter().map(ToString::to_string).collect(),
            },
            Err(why) => FoundConfiguration {
                config: without_files(flags),
                files: Vec::new(),
                errors: vec![format!("cannot read the configuration: {why}")],
                warnings: Vec::new(),
            },
        }
    }

    /// Adds the effective configuration, with the errors as comments, and the files.
    ///
    /// # Errors
    /// The output fails.
    pub(super) fn add_to<W: Write>(&self, archive: &mut SupportArchive<W>) -> io::Result<()> {
        archive.add("config.yaml", self.effective())?;
        for (n, path) in self.files.iter().enumerate() {
            // Files in different directories can have the same name.
            archive.add(&format!("config-files/{}-{}", n + 1, safe_name(path)), file(path))?;
        }
        Ok(())
    }

    fn effective(&self) -> Result<CollectedPart, String> {
        let mut text = Vec::new();
        let problems = [("error", &self.errors), ("warning", &self.warnings)];
        for (level, problem) in problems.iter().flat_map(|(level, all)| all.iter().map(move |one| (level, one))) {
            writeln!(text, "# {level}: {}", shown(problem)).map_err(|e| e.to_string())?;
        }
        for settings in [self.config.effective(), own_settings(&self.config)] {
            text.extend_from_slice(b"---\n");
            text.extend(as_yaml(&redact::configuration(&settings, true))?);
        }
        Ok(text.into())
    }
}

/// Returns the defaults with the paths and the name in the flags.
fn without_files(flags: &Flags) -> Config {
    let mut config = Config::default();
    for (path, given) in [
        (&mut config.root_dir, &flags.root_dir),
        (&mut config.manifests, &flags.manifests),
        (&mut config.socket, &flags.socket),
        (&mut config.pod_logs_dir, &flags.log_dir),
    ] {
        if let Some(given) = given {
            path.clone_from(given);
        }
    }
    config.node_name = flags.hostname.clone().unwrap_or_default();
    config
}

/// Returns a WherryConfiguration with the effective values.
fn own_settings(config: &Config) -> Value {
    let path = |path: &Path| path.display().to_string();
    let optional = |given: &Option<PathBuf>| given.as_deref().map(path);
    json!({
        "apiVersion": wherry::API_VERSION,
        "kind": wherry::KIND,
        "clusterDefaults": optional(&config.cluster_defaults),
        "containerLogsDir": path(&config.container_logs_dir),
        "devicePluginSocket": optional(&config.device_plugin_socket),
        "dockerConfig": optional(&config.docker_config),
        "extendedResources": config.node.extended,
        "imageCredentialProviderBinDir": optional(&config.image_credential_provider_bin_dir),
        "imageCredentialProviderConfig": optional(&config.image_credential_provider_config),
        "imageGCPeriod": duration::format(config.image_gc.period),
        "kubeconfig": optional(&config.kubeconfig),
        "kubectlAddress": config.kubectl_address,
        "kubectlPort": config.kubectl_port,
        "logindConfDir": path(&config.logind_conf_dir),
        "maxParallelContainerStarts": config.max_parallel_container_starts,
        "maxParallelSandboxStarts": config.max_parallel_sandbox_starts,
        "meteredConnection": config.metered_connection,
        "networkPolicies": config.manifest_rules.network_policies,
        "nodeLabels": config.node.labels,
        "nodeName": config.node_name,
        "openSecrets": if config.manifest_rules.refuse_open_secrets { "Refuse" } else { "Warn" },
        "rootDir": path(&config.root_dir),
        "sealSecrets": config.seal_secrets,
        "socket": path(&config.socket),
        "serviceClusterIPRange": ranges(config),
        "storageClasses": config.storage_classes(),
    })
}

/// Returns a configuration file without its comments and without values that can be secret.
fn file(path: &Path) -> Result<CollectedPart, String> {
    let text = reading::text(path, Links::Follow)?;
    reduced(&text).map(CollectedPart::from).map_err(|why| format!("{}: {why}", path.display()))
}

fn reduced(text: &str) -> Result<Vec<u8>, String> {
    // A text that cannot be parsed is left out, because its secret values cannot be found.
    let documents = yaml::read(text).map_err(|e| format!("line {}: {}", e.line, e.message))?;
    let mut out = Vec::new();
    for node in documents {
        let document = json_of(&node.value);
        let kind = document["kind"].as_str();
        let is_configuration = kind == Some(kubelet::KIND) || kind == Some(wherry::KIND);
        out.extend_from_slice(b"---\n");
        out.extend(as_yaml(&redact::configuration(&document, is_configuration))?);
    }
    Ok(out)
}

fn as_yaml(value: &Value) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    document(&mut text, value, true).map_err(|e| match e {
        Failure::Message(message, _) => message,
        Failure::Output(e) => e.to_string(),
    })?;
    Ok(text)
}

fn json_of(value: &yaml::Value) -> Value {
    match value {
        yaml::Value::Null => Value::Null,
        yaml::Value::Bool(b) => json!(b),
        yaml::Value::Int(n) => json!(n),
        yaml::Value::Float(n) => json!(n),
        yaml::Value::Text(text) => json!(text),
        yaml::Value::List(items) => items.iter().map(|item| json_of(&item.value)).collect(),
        yaml::Value::Map(entries) => {
            let field = |entry: &MapEntry| (entry.key.clone(), json_of(&entry.node.value));
            Value::Object(entries.iter().map(field).collect_object())
        }
    }
}

/// Returns the name of a file with only characters that every file system accepts.
pub(super) fn safe_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    name.chars().take(100).map(|c| if is_safe(c) { c } else { '_' }).collect()
}

/// Returns the ranges of service addresses as they are configured.
fn ranges(config: &Config) -> String {
    config.service_ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_configuration_can_be_read_as_a_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let flags = Flags {
            config_dir: Some(PathBuf::new()),
            root_dir: Some(dir.path().to_owned()),
            hostname: Some("lab".to_owned()),
            ..Flags::default()
        };
        let found = FoundConfiguration::load(&flags);
        let text = String::from_utf8(found.effective().unwrap().bytes).unwrap();
        let documents = yaml::read(&text).unwrap();
        let kinds: Vec<_> = documents.iter().map(|d| json_of(&d.value)["kind"].clone()).collect();
        assert_eq!(kinds, [kubelet::KIND, wherry::KIND]);
        let own = json_of(&documents[1].value);
        assert_eq!((&own["nodeName"], &own["sealSecrets"]), (&json!("lab"), &json!("Auto")));
        assert_eq!(own["rootDir"], dir.path().display().to_string());
        // Each field of the kind is there.
        let names: Vec<&str> = wherry::FIELDS.iter().map(|field| field.name).collect();
        let shown = own.as_object().unwrap();
        assert_eq!(names.iter().filter(|name| !shown.contains_key(**name)).collect::<Vec<_>>(), [&""; 0]);
    }

    #[test]
    fn a_file_keeps_its_settings_and_loses_comments_and_other_documents() {
        let text = "# s3cr3t\nkind: KubeletConfiguration\nmaxPods: 7\n---\nkind: Secret\nstringData: {a: s3cr3t}\n";
        let out = String::from_utf8(reduced(text).unwrap()).unwrap();
        assert!(out.contains("maxPods: 7") && out.contains("kind: Secret") && !out.contains("s3cr3t"), "{out}");
        let error = reduced("kind: x\npassword: [s3cr3t\n").unwrap_err();
        assert!(error.starts_with("line ") && !error.contains("s3cr3t"), "{error}");
    }

    #[test]
    fn names_of_files_are_safe() {
        assert_eq!(safe_name(Path::new("/etc/x/10-a.yaml")), "10-a.yaml");
        assert_eq!(safe_name(Path::new("/etc/a b\x1b.yaml")), "a_b_.yaml");
    }
}
