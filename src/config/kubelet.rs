//! `kind: KubeletConfiguration` (kubelet.config.k8s.io/v1beta1): all fields of 1.33, and how wherry handles them.
//!
//! Zero values follow the kubelet: in a field that is not a pointer in Go, `0s` and `""` select the default.

use crate::api::quantity::Quantity;
use crate::config::Config;
use crate::config::node_server::{file, ttl};
use crate::config::problem::absolute;
use crate::config::table::{Field, Given, INT32, INT64, Kind, Use, parts, set};
use crate::config::{eviction, node_size, registration, shutdown};
use std::net::IpAddr;
use std::time::Duration;

pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
pub const KIND: &str = "KubeletConfiguration";

const TEXTS: Kind = Kind::List(&Kind::Text);
const TEXT_MAP: Kind = Kind::MapOf(&Kind::Text);

const fn none(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, what: Use::NoEffect }
}

/// A field that is a pointer in Go: its zero value differs from an unset field.
const fn none_pointer(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, what: Use::NoEffectPointer }
}

const fn inner(name: &'static str, fields: &'static [Field]) -> Field {
    Field { name, kind: Kind::Object(fields), what: Use::Inner }
}

/// In alphabetical order.
pub static FIELDS: &[Field] = &[
    set("address", Kind::Text, |c, v| or_default(v, ip, |d| d.address).map(|a| c.address = a)),
    set("allowedUnsafeSysctls", TEXTS, allowed_unsafe_sysctls),
    inner(
        "authentication",
        &[
            inner(
                "anonymous",
                &[set("enabled", Kind::Bool, |c, v| {
                    c.node_server.anonymous = v.bool();
                    Ok(())
                })],
            ),
            inner(
                "webhook",
                &[
                    set("cacheTTL", Kind::Duration, |c, v| {
                        c.node_server.token_ttl = ttl(v, |d| d.token_ttl);
                        Ok(())
                    }),
                    set("enabled", Kind::Bool, |c, v| {
                        c.node_server.tokens = v.bool();
                        Ok(())
                    }),
                ],
            ),
            inner("x509", &[set("clientCAFile", Kind::Text, |c, v| file(v).map(|p| c.node_server.client_ca = p))]),
        ],
    ),
    inner(
        "authorization",
        &[
            set("mode", Kind::OneOf(&["AlwaysAllow", "Webhook"]), |c, v| {
                c.node_server.always_allow = v.text() == "AlwaysAllow";
                Ok(())
            }),
            inner(
                "webhook",
                &[
                    set("cacheAuthorizedTTL", Kind::Duration, |c, v| {
                        c.node_server.authorized_ttl = ttl(v, |d| d.authorized_ttl);
                        Ok(())
                    }),
                    set("cacheUnauthorizedTTL", Kind::Duration, |c, v| {
                        c.node_server.unauthorized_ttl = ttl(v, |d| d.unauthorized_ttl);
                        Ok(())
                    }),
                ],
            ),
        ],
    ),
    set("cgroupDriver", Kind::OneOf(&["cgroupfs", "systemd"]), |c, v| {
        c.cgroup_driver = match v.text() {
            "systemd" => crate::config::CgroupDriver::Systemd,
            _ => crate::config::CgroupDriver::Cgroupfs,
        };
        Ok(())
    }),
    set("cgroupRoot", Kind::Text, cgroup_root),
    set("cgroupsPerQOS", Kind::Bool, |c, v| {
        c.cgroups_per_qos = v.bool();
        Ok(())
    }),
    set("clusterDNS", TEXTS, |c, v| {
        c.cluster_dns = v.texts().iter().map(|s| ip(s)).collect::<Result<_, _>>()?;
        Ok(())
    }),
    set("clusterDomain", Kind::Text, |c, v| {
        let domain = v.text().trim_end_matches('.');
        if !domain.is_empty() && !super::is_dns_subdomain(domain) {
            return Err(format!("{domain:?} is not a DNS domain"));
        }
        c.cluster_domain = domain.to_owned();
        Ok(())
    }),
    none("configMapAndSecretChangeDetectionStrategy", Kind::OneOf(&["Get", "Cache", "Watch"])),
    set("containerLogMaxFiles", INT32, |c, v| at_least(v, 2).map(|n| c.log_rotation.max_files = n)),
    set("containerLogMaxSize", Kind::Text, |c, v| {
        c.log_rotation.max_size = log_size(v.text())?;
        Ok(())
    }),
    set("containerLogMaxWorkers", INT32, |c, v| at_least(v, 1).map(|n| c.log_rotation.workers = n)),
    set("containerLogMonitorInterval", Kind::Duration, |c, v| match v.duration() {
        interval if interval < MIN_LOG_INTERVAL => Err("must be at least 3s".to_owned()),
        interval => {
            c.log_rotation.interval = interval;
            Ok(())
        }
    }),
    set("containerRuntimeEndpoint", Kind::Text, |c, v| {
        or_default(v, super::unix_endpoint, |d| d.runtime_socket.clone()).map(|p| c.runtime_socket = p)
    }),
    none("contentType", Kind::Text),
    set("cpuCFSQuota", Kind::Bool, |c, v| {
        c.cpu_cfs_quota = v.bool();
        Ok(())
    }),
    set("cpuCFSQuotaPeriod", Kind::Duration, |c, v| {
        c.cpu_cfs_quota_period = between(v.duration(), Duration::from_millis(1), Duration::from_secs(1))?;
        Ok(())
    }),
    none("cpuManagerPolicy", Kind::Text),
    none("cpuManagerPolicyOptions", TEXT_MAP),
    none("cpuManagerReconcilePeriod", Kind::Duration),
    inner(
        "crashLoopBackOff",
        &[set("maxContainerRestartPeriod", Kind::Duration, |c, v| {
            c.max_container_restart_period = between(v.duration(), Duration::from_secs(1), Duration::from_secs(300))?;
            Ok(())
        })],
    ),
    none_pointer("enableContentionProfiling", Kind::Bool),
    none_pointer("enableControllerAttachDetach", Kind::Bool),
    none_pointer("enableDebugFlagsHandler", Kind::Bool),
    set("enableDebuggingHandlers", Kind::Bool, |c, v| {
        c.node_server.debugging_handlers = v.bool();
        Ok(())
    }),
    none_pointer("enableProfilingHandler", Kind::Bool),
    none_pointer("enableServer", Kind::Bool),
    none_pointer("enableSystemLogHandler", Kind::Bool),
    none_pointer("enableSystemLogQuery", Kind::Bool),
    set("enforceNodeAllocatable", TEXTS, node_size::enforce),
    none("eventBurst", INT32),
    none_pointer("eventRecordQPS", INT32),
    parts("evictionHard", TEXT_MAP, eviction::hard),
    set("evictionMaxPodGracePeriod", INT32, eviction::max_grace),
    parts("evictionMinimumReclaim", TEXT_MAP, eviction::minimum_reclaim),
    set("evictionPressureTransitionPeriod", Kind::Duration, eviction::transition),
    parts("evictionSoft", TEXT_MAP, eviction::soft),
    parts("evictionSoftGracePeriod", TEXT_MAP, eviction::soft_grace),
    none_pointer("failCgroupV1", Kind::Bool),
    none_pointer("failSwapOn", Kind::Bool),
    none("featureGates", Kind::MapOf(&Kind::Bool)),
    set("fileCheckFrequency", Kind::Duration, |c, v| {
        frequency(v, Duration::from_millis(100), |d| d.file_check_frequency).map(|f| c.file_check_frequency = f)
    }),
    none("hairpinMode", Kind::OneOf(&["promiscuous-bridge", "hairpin-veth", "none"])),
    set("healthzBindAddress", Kind::Text, |c, v| {
        or_default(v, ip, |d| d.healthz_address).map(|a| c.healthz_address = a)
    }),
    set("healthzPort", INT32, |c, v| port(v).map(|p| c.healthz_port = p)),
    none("httpCheckFrequency", Kind::Duration),
    set("imageGCHighThresholdPercent", INT32, |c, v| percent(v).map(|p| c.image_gc.high_percent = p)),
    set("imageGCLowThresholdPercent", INT32, |c, v| percent(v).map(|p| c.image_gc.low_percent = p)),
    set("imageMaximumGCAge", Kind::Duration, |c, v| {
        c.image_gc.max_age = Some(v.duration()).filter(|age| !age.is_zero());
        Ok(())
    }),
    set("imageMinimumGCAge", Kind::Duration, |c, v| {
        c.image_gc.min_age = match v.duration() {
            Duration::ZERO => Config::default().image_gc.min_age,
            age => age,
        };
        Ok(())
    }),
    none(
        "imagePullCredentialsVerificationPolicy",
        Kind::OneOf(&["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"]),
    ),
    set("imageServiceEndpoint", Kind::Text, |c, v| {
        c.image_socket = match v.text() {
            "" => None,
            endpoint => Some(super::unix_endpoint(endpoint)?),
        };
        Ok(())
    }),
    none_pointer("iptablesDropBit", INT32),
    none_pointer("iptablesMasqueradeBit", INT32),
    none_pointer("kernelMemcgNotification", Kind::Bool),
    none("kubeAPIBurst", INT32),
    none_pointer("kubeAPIQPS", INT32),
    parts("kubeReserved", TEXT_MAP, node_size::kube_reserved),
    none("kubeReservedCgroup", Kind::Text),
    none("kubeletCgroups", Kind::Text),
    none_pointer("localStorageCapacityIsolation", Kind::Bool),
    inner(
        "logging",
        &[
            none("flushFrequency", Kind::DurationOrInt),
            none("format", Kind::OneOf(&["text", "json"])),
            inner(
                "options",
                &[
                    inner("json", &[none("infoBufferSize", Kind::Quantity), none("splitStream", Kind::Bool)]),
                    inner("text", &[none("infoBufferSize", Kind::Quantity), none("splitStream", Kind::Bool)]),
                ],
            ),
            set("verbosity", Kind::Int(u32::MAX as i64), |c, v| {
                c.verbosity = u32::try_from(v.int()).map_err(|_| "must be 0 or more".to_owned())?;
                Ok(())
            }),
            none("vmodule", Kind::List(&Kind::Object(&[none("filePattern", Kind::Text), none("verbosity", INT64)]))),
        ],
    ),
    none_pointer("makeIPTablesUtilChains", Kind::Bool),
    none("maxOpenFiles", INT64),
    set("maxParallelImagePulls", INT32, |c, v| {
        c.max_parallel_image_pulls =
            Some(u32::try_from(v.int()).ok().filter(|n| *n > 0).ok_or("must be 1 or more; omit it for no limit")?);
        Ok(())
    }),
    set("maxPods", INT32, node_size::max_pods),
    none("memoryManagerPolicy", Kind::OneOf(&["None", "Static"])),
    inner(
        "memorySwap",
        &[set("swapBehavior", Kind::OneOf(&["NoSwap", "LimitedSwap"]), |c, v| {
            c.limited_swap = v.text() == "LimitedSwap";
            Ok(())
        })],
    ),
    none_pointer("memoryThrottlingFactor", Kind::Float),
    set("mergeDefaultEvictionSettings", Kind::Bool, |c, v| {
        c.eviction.merge_defaults = v.bool();
        Ok(())
    }),
    none("nodeLeaseDurationSeconds", INT32),
    none_pointer("nodeStatusMaxImages", INT32),
    none("nodeStatusReportFrequency", Kind::Duration),
    none("nodeStatusUpdateFrequency", Kind::Duration),
    none_pointer("oomScoreAdj", INT32),
    none("podCIDR", Kind::Text),
    set("podLogsDir", Kind::Text, |c, v| {
        or_default(v, absolute, |d| d.pod_logs_dir.clone()).map(|p| c.pod_logs_dir = p)
    }),
    set("podPidsLimit", INT64, node_size::pod_pids_limit),
    set("podsPerCore", INT32, node_size::pods_per_core),
    set("port", INT32, |c, v| port(v).map(|p| c.node_server.port = p)),
    none("preloadedImagesVerificationAllowlist", TEXTS),
    none("protectKernelDefaults", Kind::Bool),
    set("providerID", Kind::Text, |c, v| {
        v.text().clone_into(&mut c.registration.provider_id);
        Ok(())
    }),
    none("qosReserved", TEXT_MAP),
    set("readOnlyPort", INT32, |c, v| port(v).map(|p| c.read_only_port = p)),
    none_pointer("registerNode", Kind::Bool),
    parts(
        "registerWithTaints",
        Kind::List(&Kind::Object(&[
            none("effect", Kind::OneOf(&["NoSchedule", "PreferNoSchedule", "NoExecute"])),
            none("key", Kind::Text),
            none("timeAdded", Kind::Time),
            none("value", Kind::Text),
        ])),
        registration::taints,
    ),
    none("registryBurst", INT32),
    none_pointer("registryPullQPS", INT32),
    none(
        "reservedMemory",
        Kind::List(&Kind::Object(&[none("limits", Kind::MapOf(&Kind::Quantity)), none("numaNode", INT32)])),
    ),
    none("reservedSystemCPUs", Kind::Text),
    set("resolvConf", Kind::Text, |c, v| {
        c.resolv_conf = match v.text() {
            "" => None,
            path => Some(absolute(path)?),
        };
        Ok(())
    }),
    none("rotateCertificates", Kind::Bool),
    none("runOnce", Kind::Bool),
    set("runtimeRequestTimeout", Kind::Duration, |c, v| {
        frequency(v, Duration::from_secs(1), |d| d.runtime_request_timeout).map(|t| c.runtime_request_timeout = t)
    }),
    set("seccompDefault", Kind::Bool, |c, v| {
        c.seccomp_default = v.bool();
        Ok(())
    }),
    set("serializeImagePulls", Kind::Bool, |c, v| {
        c.serialize_image_pulls = Some(v.bool());
        Ok(())
    }),
    set("serverTLSBootstrap", Kind::Bool, |c, v| {
        c.node_server.bootstrap = v.bool();
        Ok(())
    }),
    none("showHiddenMetricsForVersion", Kind::Text),
    set("shutdownGracePeriod", Kind::Duration, |c, v| shutdown::period(v).map(|d| c.shutdown_configured.total = d)),
    parts(
        "shutdownGracePeriodByPodPriority",
        Kind::List(&Kind::Object(&[none("priority", INT32), none("shutdownGracePeriodSeconds", INT64)])),
        shutdown::by_pod_priority,
    ),
    set("shutdownGracePeriodCriticalPods", Kind::Duration, |c, v| {
        shutdown::period(v).map(|d| c.shutdown_configured.critical = d)
    }),
    none_pointer("singleProcessOOMKill", Kind::Bool),
    set("staticPodPath", Kind::Text, |c, v| or_default(v, absolute, |d| d.manifests.clone()).map(|p| c.manifests = p)),
    none("staticPodURL", Kind::Text),
    none("staticPodURLHeader", Kind::MapOf(&TEXTS)),
    none("streamingConnectionIdleTimeout", Kind::Duration),
    set("syncFrequency", Kind::Duration, |c, v| {
        frequency(v, Duration::from_secs(1), |d| d.sync_frequency).map(|f| c.sync_frequency = f)
    }),
    none("systemCgroups", Kind::Text),
    parts("systemReserved", TEXT_MAP, node_size::system_reserved),
    none("systemReservedCgroup", Kind::Text),
    set("tlsCertFile", Kind::Text, |c, v| file(v).map(|p| c.node_server.certificate = p)),
    none("tlsCipherSuites", TEXTS),
    none("tlsMinVersion", Kind::Text),
    set("tlsPrivateKeyFile", Kind::Text, |c, v| file(v).map(|p| c.node_server.key = p)),
    none("topologyManagerPolicy", Kind::OneOf(&["restricted", "best-effort", "none", "single-numa-node"])),
    none("topologyManagerPolicyOptions", TEXT_MAP),
    none("topologyManagerScope", Kind::OneOf(&["container", "pod"])),
    inner("tracing", &[none_pointer("endpoint", Kind::Text), none_pointer("samplingRatePerMillion", INT32)]),
    inner("userNamespaces", &[none_pointer("idsPerPod", INT64)]),
    none("volumePluginDir", Kind::Text),
    none("volumeStatsAggPeriod", Kind::Duration),
];

/// The empty string selects the default. Other values are parsed with `read`.
fn or_default<T>(v: &Given, read: fn(&str) -> Result<T, String>, default: fn(&Config) -> T) -> Result<T, String> {
    match v.text() {
        "" => Ok(default(&Config::default())),
        text => read(text),
    }
}

/// Zero selects the default. A value below `least` is an error, because it would keep the machine awake.
fn frequency(v: &Given, least: Duration, default: fn(&Config) -> Duration) -> Result<Duration, String> {
    match v.duration() {
        Duration::ZERO => Ok(default(&Config::default())),
        d if d < least => Err(format!("must be at least {}", crate::config::duration::format(least))),
        d => Ok(d),
    }
}

fn between(d: Duration, least: Duration, most: Duration) -> Result<Duration, String> {
    if d < least || d > most {
        let format = crate::config::duration::format;
        return Err(format!("must be between {} and {}", format(least), format(most)));
    }
    Ok(d)
}

pub(super) fn ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an IP address"))
}

pub(super) fn port(v: &Given) -> Result<u16, String> {
    u16::try_from(v.int()).map_err(|_| "must be between 1 and 65535, or 0 to turn it off".to_owned())
}

/// A kubelet's minimum of `containerLogMonitorInterval`.
const MIN_LOG_INTERVAL: Duration = Duration::from_secs(3);

fn at_least(v: &Given, least: i64) -> Result<usize, String> {
    let n = v.int();
    match usize::try_from(n).ok().filter(|_| n >= least) {
        Some(n) => Ok(n),
        None => Err(format!("{n} is too small; it must be {least} or more")),
    }
}

/// `containerLogMaxSize` in bytes. As in a kubelet, a negative value means no rotation, and "" the default.
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

fn percent(v: &Given) -> Result<u8, String> {
    let percent = u8::try_from(v.int()).ok().filter(|p| *p <= 100);
    percent.ok_or_else(|| "must be between 0 and 100".to_owned())
}

fn cgroup_root(c: &mut Config, v: &Given) -> Result<(), String> {
    let text = v.text().trim_matches('/');
    if text.split('/').any(|part| part == ".." || part == ".") {
        return Err(format!("{:?} is not the name of a cgroup", v.text()));
    }
    c.cgroup_root = format!("/{text}");
    Ok(())
}

/// Accepts sysctl names, with `.` or `/` between their parts, and patterns: a prefix with a trailing `*`.
fn allowed_unsafe_sysctls(c: &mut Config, v: &Given) -> Result<(), String> {
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
