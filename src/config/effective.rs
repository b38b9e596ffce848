//! The honoured fields of the KubeletConfiguration, with their effective values, for `/configz`. Fields without an
//! effect are absent. None of the values is a secret.

use super::duration::format;
use super::{Config, kubelet};
use crate::api::ordered::CollectOrdered;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

impl Config {
    fn shutdown_groups(&self) -> Vec<Value> {
        self.shutdown_configured.by_priority.iter().map(group).collect()
    }

    /// Returns a KubeletConfiguration with the effective values.
    pub fn effective(&self) -> Value {
        let (first, second) = (self.fields_a_to_f(), self.fields_from_h());
        let maps = self.eviction.shown().map(|(name, map)| (name.to_owned(), json!(map)));
        let fields = [first, second].into_iter().filter_map(|part| match part {
            Value::Object(fields) => Some(fields),
            _ => None,
        });
        Value::Object(fields.flatten().chain(self.node_server.shown()).chain(maps).collect_object())
    }

    fn fields_a_to_f(&self) -> Value {
        json!({
            "kind": kubelet::KIND,
            "apiVersion": kubelet::API_VERSION,
            "address": self.address,
            "allowedUnsafeSysctls": self.allowed_unsafe_sysctls,
            "cgroupDriver": self.cgroup_driver.name(),
            "cgroupRoot": self.cgroup_root,
            "cgroupsPerQOS": self.cgroups_per_qos,
            "clusterDNS": self.cluster_dns,
            "clusterDomain": self.cluster_domain,
            "containerLogMaxFiles": self.log_rotation.max_files,
            "containerLogMaxSize": self.log_rotation.max_size.map_or("-1".to_owned(), crate::api::eviction::in_bytes),
            "containerLogMaxWorkers": self.log_rotation.workers,
            "containerLogMonitorInterval": format(self.log_rotation.interval),
            "containerRuntimeEndpoint": endpoint(&self.runtime_socket),
            "cpuCFSQuota": self.cpu_cfs_quota,
            "cpuCFSQuotaPeriod": format(self.cpu_cfs_quota_period),
            "crashLoopBackOff": { "maxContainerRestartPeriod": format(self.max_container_restart_period) },
            "enforceNodeAllocatable": self.node.enforce,
            "evictionMaxPodGracePeriod": self.eviction.max_grace.as_secs(),
            "evictionPressureTransitionPeriod": format(self.eviction_policy().transition),
            "fileCheckFrequency": format(self.file_check_frequency),
        })
    }

    fn fields_from_h(&self) -> Value {
        json!({
            "healthzBindAddress": self.healthz_address,
            "healthzPort": self.healthz_port,
            "imageGCHighThresholdPercent": self.image_gc.high_percent,
            "imageGCLowThresholdPercent": self.image_gc.low_percent,
            "imageMaximumGCAge": format(self.image_gc.max_age.unwrap_or_default()),
            "imageMinimumGCAge": format(self.image_gc.min_age),
            "imageServiceEndpoint": self.image_socket.as_deref().map_or(String::new(), endpoint),
            "kubeReserved": reserved(&self.node.kube_reserved),
            "logging": { "verbosity": self.verbosity },
            // null means no limit.
            "maxParallelImagePulls": self.parallel_image_pulls(),
            "maxPods": self.node.max_pods,
            "memorySwap": { "swapBehavior": if self.limited_swap { "LimitedSwap" } else { "NoSwap" } },
            "mergeDefaultEvictionSettings": self.eviction.merge_defaults,
            "podLogsDir": path(&self.pod_logs_dir),
            "podPidsLimit": self.node.pod_pids_limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX)),
            "podsPerCore": self.node.pods_per_core,
            "providerID": self.registration.provider_id,
            "readOnlyPort": self.read_only_port,
            "registerWithTaints": self.registration.taints(),
            "resolvConf": self.resolv_conf.as_deref().map_or(String::new(), path),
            "runtimeRequestTimeout": format(self.runtime_request_timeout),
            "seccompDefault": self.seccomp_default,
            "serializeImagePulls": self.parallel_image_pulls() == Some(1),
            "shutdownGracePeriod": format(self.shutdown_configured.total),
            "shutdownGracePeriodByPodPriority": self.shutdown_groups(),
            "shutdownGracePeriodCriticalPods": format(self.shutdown_configured.critical),
            "staticPodPath": path(&self.manifests),
            "syncFrequency": format(self.sync_frequency),
            "systemReserved": reserved(&self.node.system_reserved),
        })
    }
}

// Replaces bytes that are not UTF-8, which a path may contain but JSON cannot.
fn path(path: &Path) -> String {
    path.display().to_string()
}

fn endpoint(socket: &Path) -> String {
    format!("unix://{}", path(socket))
}

fn group((priority, seconds): &(i32, u64)) -> Value {
    json!({ "priority": priority, "shutdownGracePeriodSeconds": seconds })
}

/// Formats reservations: CPU in milli-CPUs, everything else in whole units.
fn reserved(amounts: &BTreeMap<String, u64>) -> BTreeMap<&str, String> {
    let text = |name: &str, amount: u64| match name {
        "cpu" => format!("{amount}m"),
        "pid" => amount.to_string(),
        _ => crate::api::eviction::in_bytes(amount),
    };
    amounts.iter().map(|(name, amount)| (name.as_str(), text(name, *amount))).collect_map()
}

#[cfg(test)]
mod tests {
    use super::super::table::{Field, FieldType, Use};
    use super::super::{Flags, Loaded, load};
    use super::*;
    use std::collections::BTreeSet;

    /// Collects the paths of the honoured fields.
    fn honoured(fields: &[Field], prefix: &str, out: &mut BTreeSet<String>) {
        for field in fields {
            let path = format!("{prefix}{}", field.name);
            match (&field.what, &field.kind) {
                (Use::Honoured(_) | Use::Parts(_), _) => {
                    out.insert(path);
                }
                (Use::Inner, FieldType::Object(inner)) => honoured(inner, &format!("{path}."), out),
                _ => {}
            }
        }
    }

    fn leaves(value: &Value, path: &str, out: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, of)| leaves(of, &format!("{path}.{name}"), out)),
            _ => {
                out.insert(path.to_owned());
            }
        }
    }

    #[test]
    fn exactly_the_honoured_fields_are_shown() {
        let mut expected = BTreeSet::new();
        honoured(kubelet::FIELDS, "", &mut expected);
        let shown = Config::default().effective();
        let mut paths = BTreeSet::new();
        for (name, value) in shown.as_object().unwrap() {
            match name.as_str() {
                "kind" | "apiVersion" => {}
                "crashLoopBackOff" | "logging" | "memorySwap" | "authentication" | "authorization" => {
                    leaves(value, name, &mut paths);
                }
                name => {
                    paths.insert(name.to_owned());
                }
            }
        }
        assert_eq!(paths, expected);
    }

    fn read(text: &str) -> Config {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        std::fs::write(&path, text).unwrap();
        let drop_ins = directory.path().join("config.d");
        std::fs::create_dir(&drop_ins).unwrap();
        let flags =
            Flags { config: Some(path), config_dir: Some(drop_ins), hostname: Some("n".into()), ..Flags::default() };
        let Loaded { config, problems, .. } = load(&flags);
        assert!(problems.errors.is_empty(), "{:?}", problems.errors);
        config
    }

    /// The shown configuration can itself be used as a configuration, and has the same effect.
    #[test]
    fn the_shown_configuration_has_the_same_effect() {
        let document = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        for fields in [
            "",
            "evictionHard: {memory.available: 10%}\nevictionSoft: {nodefs.available: 1Gi}\n\
             evictionSoftGracePeriod: {nodefs.available: 1m}\nevictionMinimumReclaim: {nodefs.available: 5Mi}\n\
             systemReserved: {cpu: 500m, memory: 1Gi, pid: '100'}\nshutdownGracePeriod: 30s\n\
             shutdownGracePeriodCriticalPods: 10s\npodPidsLimit: 1000\ncontainerLogMaxSize: 5Mi\n\
             clusterDNS: [10.0.0.10]\nclusterDomain: cluster.local\nmaxParallelImagePulls: 3\n\
             imageMaximumGCAge: 24h\nlogging: {verbosity: 4}\n",
            "shutdownGracePeriodByPodPriority: [{priority: 5, shutdownGracePeriodSeconds: 7}]\n",
            "authentication: {webhook: {cacheTTL: 3m, enabled: false}, x509: {clientCAFile: /a}}\nport: 1\n\
             authorization: {mode: AlwaysAllow, webhook: {cacheUnauthorizedTTL: 1s}}\ntlsCertFile: /c\n\
             tlsPrivateKeyFile: /k\nenableDebuggingHandlers: false\n",
            "serverTLSBootstrap: true\n",
        ] {
            let config = read(&format!("{document}{fields}"));
            let shown = config.effective();
            let again = read(&shown.to_string());
            assert_eq!(again.effective(), shown);
            assert_eq!(again.eviction_policy(), config.eviction_policy());
            assert_eq!((again.sizing(), &again.shutdown), (config.sizing(), &config.shutdown));
            assert_eq!(again.log_rotation, config.log_rotation);
            assert_eq!(again.node_server, config.node_server);
        }
    }
}
