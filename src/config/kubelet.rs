//! `kind: KubeletConfiguration` (kubelet.config.k8s.io/v1beta1): all fields of Kubernetes 1.33, and how Wherry
//! handles them.
//!
//! Zero values follow the kubelet: in a field that is not a pointer in Go, `0s` and `""` select the default.

use crate::api::cgroups::CgroupDriver;
use crate::api::duration;
use crate::api::quantity::Quantity;
use crate::config::field_value::FieldValue;
use crate::config::node_server::{file, ttl};
use crate::config::problem::absolute;
use crate::config::settings::Config;
use crate::config::table::{Field, FieldType, INT32, INT64, Use, none, parts, set};
use crate::config::{eviction, names, node_size, registration, shutdown};
use std::net::IpAddr;
use std::time::Duration;

pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
pub const KIND: &str = "KubeletConfiguration";

const TEXTS: FieldType = FieldType::List(&FieldType::Text);
const TEXT_MAP: FieldType = FieldType::MapOf(&FieldType::Text);

/// Returns a field without an effect that is a pointer in Go: its zero value differs from an unset field.
const fn none_pointer(name: &'static str, kind: FieldType) -> Field {
    Field { name, kind, what: Use::NoEffectPointer }
}

const fn inner(name: &'static str, fields: &'static [Field]) -> Field {
    Field { name, kind: FieldType::Object(fields), what: Use::Inner }
}

/// All fields, in alphabetical order.
pub static FIELDS: &[Field] = &[
    set("address", FieldType::Text, |c, v| or_default(v, ip, |d| d.address).map(|a| c.address = a)),
    set("allowedUnsafeSysctls", TEXTS, allowed_unsafe_sysctls),
    inner(
        "authentication",
        &[
            inner(
                "anonymous",
                &[set("enabled", FieldType::Bool, |c, v| {
                    c.node_server.anonymous = v.bool();
                    Ok(())
                })],
            ),
            inner(
                "webhook",
                &[
                    set("cacheTTL", FieldType::Duration, |c, v| {
                        c.node_server.token_ttl = ttl(v, |d| d.token_ttl);
                        Ok(())
                    }),
                    set("enabled", FieldType::Bool, |c, v| {
                        c.node_server.tokens = v.bool();
                        Ok(())
                    }),
                ],
            ),
            inner("x509", &[set("clientCAFile", FieldType::Text, |c, v| file(v).map(|p| c.node_server.client_ca = p))]),
        ],
    ),
    inner(
        "authorization",
        &[
            set("mode", FieldType::OneOf(&["AlwaysAllow", "Webhook"]), |c, v| {
                c.node_server.always_allow = v.text() == "AlwaysAllow";
                Ok(())
            }),
            inner(
                "webhook",
                &[
                    set("cacheAuthorizedTTL", FieldType::Duration, |c, v| {
                        c.node_server.authorized_ttl = ttl(v, |d| d.authorized_ttl);
                        Ok(())
                    }),
                    set("cacheUnauthorizedTTL", FieldType::Duration, |c, v| {
                        c.node_server.unauthorized_ttl = ttl(v, |d| d.unauthorized_ttl);
                        Ok(())
                    }),
                ],
            ),
        ],
    ),
    set("cgroupDriver", FieldType::OneOf(&["cgroupfs", "systemd"]), |c, v| {
        c.cgroup_driver = match v.text() {
            "systemd" => CgroupDriver::Systemd,
            _ => CgroupDriver::Cgroupfs,
        };
        Ok(())
    }),
    set("cgroupRoot", FieldType::Text, cgroup_root),
    set("cgroupsPerQOS", FieldType::Bool, |c, v| {
        c.cgroups_per_qos = v.bool();
        Ok(())
    }),
    set("clusterDNS", TEXTS, |c, v| {
        c.cluster_dns = v.texts().iter().map(|s| ip(s)).collect::<Result<_, _>>()?;
        Ok(())
    }),
    set("clusterDomain", FieldType::Text, |c, v| {
        let domain = v.text().trim_end_matches('.');
        if !domain.is_empty() && !names::is_dns_subdomain(domain) {
            return Err(format!("{domain:?} is not a DNS domain"));
        }
        c.cluster_domain = domain.to_owned();
        Ok(())
    }),
    none("configMapAndSecretChangeDetectionStrategy", FieldType::OneOf(&["Get", "Cache", "Watch"])),
    set("containerLogMaxFiles", INT32, |c, v| at_least(v, 2).map(|n| c.log_rotation.max_files = n)),
    set("containerLogMaxSize", FieldType::Text, |c, v| {
        c.log_rotation.max_size = log_size(v.text())?;
        Ok(())
    }),
    set("containerLogMaxWorkers", INT32, |c, v| at_least(v, 1).map(|n| c.log_rotation.workers = n)),
    set("containerLogMonitorInterval", FieldType::Duration, |c, v| match v.duration() {
        interval if interval < MIN_LOG_INTERVAL => Err("must be at least 3s".to_owned()),
        interval => {
            c.log_rotation.interval = interval;
            Ok(())
        }
    }),
    set("containerRuntimeEndpoint", FieldType::Text, |c, v| {
        or_default(v, names::unix_endpoint, |d| d.runtime_socket.clone()).map(|p| c.runtime_socket = p)
    }),
    none("contentType", FieldType::Text),
    set("cpuCFSQuota", FieldType::Bool, |c, v| {
        c.cpu_cfs_quota = v.bool();
        Ok(())
    }),
    set("cpuCFSQuotaPeriod", FieldType::Duration, |c, v| {
        c.cpu_cfs_quota_period = between(v.duration(), Duration::from_millis(1), Duration::from_secs(1))?;
        Ok(())
    }),
    none("cpuManagerPolicy", FieldType::Text),
    none("cpuManagerPolicyOptions", TEXT_MAP),
    none("cpuManagerReconcilePeriod", FieldType::Duration),
    inner(
        "crashLoopBackOff",
        &[set("maxContainerRestartPeriod", FieldType::Duration, |c, v| {
            c.max_container_restart_period = between(v.duration(), Duration::from_secs(1), Duration::from_secs(300))?;
            Ok(())
        })],
    ),
    none_pointer("enableContentionProfiling", FieldType::Bool),
    none_pointer("enableControllerAttachDetach", FieldType::Bool),
    none_pointer("enableDebugFlagsHandler", FieldType::Bool),
    set("enableDebuggingHandlers", FieldType::Bool, |c, v| {
        c.node_server.debugging_handlers = v.bool();
        Ok(())
    }),
    none_pointer("enableProfilingHandler", FieldType::Bool),
    none_pointer("enableServer", FieldType::Bool),
    none_pointer("enableSystemLogHandler", FieldType::Bool),
    none_pointer("enableSystemLogQuery", FieldType::Bool),
    set("enforceNodeAllocatable", TEXTS, |c, v| node_size::enforce(&mut c.node, v)),
    none("eventBurst", INT32),
    none_pointer("eventRecordQPS", INT32),
    parts("evictionHard", TEXT_MAP, |c, map, wrong| eviction::hard(&mut c.eviction, map, wrong)),
    set("evictionMaxPodGracePeriod", INT32, |c, v| eviction::max_grace(&mut c.eviction, v)),
    parts("evictionMinimumReclaim", TEXT_MAP, |c, map, wrong| eviction::minimum_reclaim(&mut c.eviction, map, wrong)),
    set("evictionPressureTransitionPeriod", FieldType::Duration, |c, v| eviction::transition(&mut c.eviction, v)),
    parts("evictionSoft", TEXT_MAP, |c, map, wrong| eviction::soft(&mut c.eviction, map, wrong)),
    parts("evictionSoftGracePeriod", TEXT_MAP, |c, map, wrong| eviction::soft_grace(&mut c.eviction, map, wrong)),
    none_pointer("failCgroupV1", FieldType::Bool),
    none_pointer("failSwapOn", FieldType::Bool),
    none("featureGates", FieldType::MapOf(&FieldType::Bool)),
    set("fileCheckFrequency", FieldType::Duration, |c, v| {
        frequency(v, Duration::from_millis(100), |d| d.file_check_frequency).map(|f| c.file_check_frequency = f)
    }),
    none("hairpinMode", FieldType::OneOf(&["promiscuous-bridge", "hairpin-veth", "none"])),
    set("healthzBindAddress", FieldType::Text, |c, v| {
        or_default(v, ip, |d| d.healthz_address).map(|a| c.healthz_address = a)
    }),
    set("healthzPort", INT32, |c, v| port(v).map(|p| c.healthz_port = p)),
    none("httpCheckFrequency", FieldType::Duration),
    set("imageGCHighThresholdPercent", INT32, |c, v| percent(v).map(|p| c.image_gc.high_percent = p)),
    set("imageGCLowThresholdPercent", INT32, |c, v| percent(v).map(|p| c.image_gc.low_percent = p)),
    set("imageMaximumGCAge", FieldType::Duration, |c, v| {
        c.image_gc.max_age = Some(v.duration()).filter(|age| !age.is_zero());
        Ok(())
    }),
    set("imageMinimumGCAge", FieldType::Duration, |c, v| {
        c.image_gc.min_age = match v.duration() {
            Duration::ZERO => Config::default().image_gc.min_age,
            age => age,
        };
        Ok(())
    }),
    none(
        "imagePullCredentialsVerificationPolicy",
        FieldType::OneOf(&[
            "NeverVerify",
            "NeverVerifyPreloadedImages",
            "NeverVerifyAllowlistedImages",
            "AlwaysVerify",
        ]),
    ),
    set("imageServiceEndpoint", FieldType::Text, |c, v| {
        c.image_socket = match v.text() {
            "" => None,
            endpoint => Some(names::unix_endpoint(endpoint)?),
        };
        Ok(())
    }),
    none_pointer("iptablesDropBit", INT32),
    none_pointer("iptablesMasqueradeBit", INT32),
    none_pointer("kernelMemcgNotification", FieldType::Bool),
    none("kubeAPIBurst", INT32),
    none_pointer("kubeAPIQPS", INT32),
    parts("kubeReserved", TEXT_MAP, |c, map, wrong| node_size::kube_reserved(&mut c.node, map, wrong)),
    none("kubeReservedCgroup", FieldType::Text),
    none("kubeletCgroups", FieldType::Text),
    none_pointer("localStorageCapacityIsolation", FieldType::Bool),
    inner(
        "logging",
        &[
            none("flushFrequency", FieldType::DurationOrInt),
            none("format", FieldType::OneOf(&["text", "json"])),
            inner(
                "options",
                &[
                    inner("json", &[none("infoBufferSize", FieldType::Quantity), none("splitStream", FieldType::Bool)]),
                    inner("text", &[none("infoBufferSize", FieldType::Quantity), none("splitStream", FieldType::Bool)]),
                ],
            ),
            set("verbosity", FieldType::Int(u32::MAX as i64), |c, v| {
                c.verbosity = u32::try_from(v.int()).map_err(|_| "must be 0 or more".to_owned())?;
                Ok(())
            }),
            none(
                "vmodule",
                FieldType::List(&FieldType::Object(&[none("filePattern", FieldType::Text), none("verbosity", INT64)])),
            ),
        ],
    ),
    none_pointer("makeIPTablesUtilChains", FieldType::Bool),
    none("maxOpenFiles", INT64),
    set("maxParallelImagePulls", INT32, |c, v| {
        c.max_parallel_image_pulls =
            Some(u32::try_from(v.int()).ok().filter(|n| *n > 0).ok_or("must be 1 or more; omit it for no limit")?);
        Ok(())
    }),
    set("maxPods", INT32, |c, v| node_size::max_pods(&mut c.node, v)),
    none("memoryManagerPolicy", FieldType::OneOf(&["None", "Static"])),
    inner(
        "memorySwap",
        &[set("swapBehavior", FieldType::OneOf(&["NoSwap", "LimitedSwap"]), |c, v| {
            c.limited_swap = v.text() == "LimitedSwap";
            Ok(())
        })],
    ),
    none_pointer("memoryThrottlingFactor", FieldType::Float),
    set("mergeDefaultEvictionSettings", FieldType::Bool, |c, v| {
        c.eviction.merge_defaults = v.bool();
        Ok(())
    }),
    none("nodeLeaseDurationSeconds", INT32),
    none_pointer("nodeStatusMaxImages", INT32),
    none("nodeStatusReportFrequency", FieldType::Duration),
    none("nodeStatusUpdateFrequency", FieldType::Duration),
    none_pointer("oomScoreAdj", INT32),
    none("podCIDR", FieldType::Text),
    set("podLogsDir", FieldType::Text, |c, v| {
        or_default(v, absolute, |d| d.pod_logs_dir.clone()).map(|p| c.pod_logs_dir = p)
    }),
    set("podPidsLimit", INT64, |c, v| node_size::pod_pids_limit(&mut c.node, v)),
    set("podsPerCore", INT32, |c, v| node_size::pods_per_core(&mut c.node, v)),
    set("port", INT32, |c, v| port(v).map(|p| c.node_server.port = p)),
    none("preloadedImagesVerificationAllowlist", TEXTS),
    none("protectKernelDefaults", FieldType::Bool),
    set("providerID", FieldType::Text, |c, v| {
        v.text().clone_into(&mut c.registration.provider_id);
        Ok(())
    }),
    none("qosReserved", TEXT_MAP),
    set("readOnlyPort", INT32, |c, v| port(v).map(|p| c.read_only_port = p)),
    none_pointer("registerNode", FieldType::Bool),
    parts(
        "registerWithTaints",
        FieldType::List(&FieldType::Object(&[
            none("effect", FieldType::OneOf(&["NoSchedule", "PreferNoSchedule", "NoExecute"])),
            none("key", FieldType::Text),
            none("timeAdded", FieldType::Time),
            none("value", FieldType::Text),
        ])),
        |c, list, wrong| registration::taints(&mut c.registration, list, wrong),
    ),
    none("registryBurst", INT32),
    none_pointer("registryPullQPS", INT32),
    none(
        "reservedMemory",
        FieldType::List(&FieldType::Object(&[
            none("limits", FieldType::MapOf(&FieldType::Quantity)),
            none("numaNode", INT32),
        ])),
    ),
    none("reservedSystemCPUs", FieldType::Text),
    set("resolvConf", FieldType::Text, |c, v| {
        c.resolv_conf = match v.text() {
            "" => None,
            path => Some(absolute(path)?),
        };
        Ok(())
    }),
    none("rotateCertificates", FieldType::Bool),
    none("runOnce", FieldType::Bool),
    set("runtimeRequestTimeout", FieldType::Duration, |c, v| {
        frequency(v, Duration::from_secs(1), |d| d.runtime_request_timeout).map(|t| c.runtime_request_timeout = t)
    }),
    set("seccompDefault", FieldType::Bool, |c, v| {
        c.seccomp_default = v.bool();
        Ok(())
    }),
    set("serializeImagePulls", FieldType::Bool, |c, v| {
        c.serialize_image_pulls = Some(v.bool());
        Ok(())
    }),
    set("serverTLSBootstrap", FieldType::Bool, |c, v| {
        c.node_server.bootstrap = v.bool();
        Ok(())
    }),
    none("showHiddenMetricsForVersion", FieldType::Text),
    set("shutdownGracePeriod", FieldType::Duration, |c, v| {
        shutdown::period(v).map(|d| c.shutdown_configured.total = d)
    }),
    parts(
        "shutdownGracePeriodByPodPriority",
        FieldType::List(&FieldType::Object(&[none("priority", INT32), none("shutdownGracePeriodSeconds", INT64)])),
        |c, list, wrong| shutdown::by_pod_priority(&mut c.shutdown_configured, list, wrong),
    ),
    set("shutdownGracePeriodCriticalPods", FieldType::Duration, |c, v| {
        shutdown::period(v).map(|d| c.shutdown_configured.critical = d)
    }),
    none_pointer("singleProcessOOMKill", FieldType::Bool),
    set("staticPodPath", FieldType::Text, |c, v| {
        or_default(v, absolute, |d| d.manifests.clone()).map(|p| c.manifests = p)
    }),
    none("staticPodURL", FieldType::Text),
    none("staticPodURLHeader", FieldType::MapOf(&TEXTS)),
    none("streamingConnectionIdleTimeout", FieldType::Duration),
    set("syncFrequency", FieldType::Duration, |c, v| {
        frequency(v, Duration::from_secs(1), |d| d.sync_frequency).map(|f| c.sync_frequency = f)
    }),
    none("systemCgroups", FieldType::Text),
    parts("systemReserved", TEXT_MAP, |c, map, wrong| node_size::system_reserved(&mut c.node, map, wrong)),
    none("systemReservedCgroup", FieldType::Text),
    set("tlsCertFile", FieldType::Text, |c, v| file(v).map(|p| c.node_server.certificate = p)),
    none("tlsCipherSuites", TEXTS),
    none("tlsMinVersion", FieldType::Text),
    set("tlsPrivateKeyFile", FieldType::Text, |c, v| file(v).map(|p| c.node_server.key = p)),
    none("topologyManagerPolicy", FieldType::OneOf(&["restricted", "best-effort", "none", "single-numa-node"])),
    none("topologyManagerPolicyOptions", TEXT_MAP),
    none("topologyManagerScope", FieldType::OneOf(&["container", "pod"])),
    inner("tracing", &[none_pointer("endpoint", FieldType::Text), none_pointer("samplingRatePerMillion", INT32)]),
    inner("userNamespaces", &[none_pointer("idsPerPod", INT64)]),
    none("volumePluginDir", FieldType::Text),
    none("volumeStatsAggPeriod", FieldType::Duration),
];

/// Parses text with `read`. The empty string selects the default.
fn or_default<T>(v: &FieldValue, read: fn(&str) -> Result<T, String>, default: fn(&Config) -> T) -> Result<T, String> {
    match v.text() {
        "" => Ok(default(&Config::default())),
        text => read(text),
    }
}

/// Returns an interval or a timeout. Zero selects the default. A value below `least` is an error, because it would
/// keep the machine awake.
fn frequency(v: &FieldValue, least: Duration, default: fn(&Config) -> Duration) -> Result<Duration, String> {
    match v.duration() {
        Duration::ZERO => Ok(default(&Config::default())),
        d if d < least => Err(format!("must be at least {}", duration::format(least))),
        d => Ok(d),
    }
}

fn between(d: Duration, least: Duration, most: Duration) -> Result<Duration, String> {
    if d < least || d > most {
        let format = duration::format;
        return Err(format!("must be between {} and {}", format(least), format(most)));
    }
    Ok(d)
}

pub(super) fn ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an IP address"))
}

pub(super) fn port(v: &FieldValue) -> Result<u16, String> {
    u16::try_from(v.int()).map_err(|_| "must be between 1 and 65535, or 0 to turn it off".to_owned())
}

/// A kubelet's minimum of `containerLogMonitorInterval`.
const MIN_LOG_INTERVAL: Duration = Duration::from_secs(3);

fn at_least(v: &FieldValue, least: i64) -> Result<usize, String> {
    let n = v.int();
    match usize::try_from(n).ok().filter(|_| n >= least) {
        Some(n) => Ok(n),
        None => Err(format!("{n} is too small; it must be {least} or more")),
    }
}

/// Parses `containerLogMaxSize`, in bytes. As in a kubelet, a negative value turns rotation off, and "" selects the
/// default.
fn log_size(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(Config::default().log_rotation.max_size);
    }
    let size = Quantity::parse(text).map_err(|why| format!("{text:?}: {why}"))?;
    match u64::try_from(size.value()) {
        Ok(0) => Err("0 would rotate empty logs; write a negative value for no rotation".to_owned()),
        Ok(size) => Ok(Some(size)),
        Err(_) => Ok(None),
    }
}

fn percent(v: &FieldValue) -> Result<u8, String> {
    let percent = u8::try_from(v.int()).ok().filter(|p| *p <= 100);
    percent.ok_or_else(|| "must be between 0 and 100".to_owned())
}

fn cgroup_root(c: &mut Config, v: &FieldValue) -> Result<(), String> {
    let text = v.text().trim_matches('/');
    if text.split('/').any(|part| part == ".." || part == ".") {
        return Err(format!("{:?} is not the name of a cgroup", v.text()));
    }
    c.cgroup_root = format!("/{text}");
    Ok(())
}

/// Sets the allowed sysctls: names, with `.` or `/` between their parts, and patterns, which are prefixes with a
/// trailing `*`.
fn allowed_unsafe_sysctls(c: &mut Config, v: &FieldValue) -> Result<(), String> {
    let list = v.texts();
    for pattern in &list {
        let name = pattern.strip_suffix('*').unwrap_or(pattern);
        let name = name.strip_suffix(['.', '/']).filter(|_| pattern.ends_with('*')).unwrap_or(name);
        let part = |p: &str| {
            !p.is_empty() && p.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
        };
        if pattern.len() > 253 || !name.split(['.', '/']).all(part) {
            return Err(format!("{pattern:?} is not a sysctl like \"net.core.somaxconn\" or a pattern like \"net.*\""));
        }
    }
    c.allowed_unsafe_sysctls = list;
    Ok(())
}
