//! Builds an agent from the configuration. Opens its resources in the order that gives the most useful error.

use super::cluster::ClusterConnection;
use super::devices::DevicePlugins;
use super::disk::Disk;
use super::event_recorder::EventRecorder;
use super::handlers::LocalHandlers;
use super::jobs::Jobs;
use super::kernel::KernelReports;
use super::last_state::LastState;
use super::logind::{self, HeldLock};
use super::record_queue::RecordQueue;
use super::reports::ReportFile;
use super::runtime::Runtime;
use super::service::Service;
use super::serving::Serving;
use super::stopping::Course;
use super::tokens::{API_SERVER, HELPERS, MANIFESTS, MOUNTS, RUNTIME, SIGNALS, SLICES};
use super::{Agent, descriptors, logging, seal_key, service_table, system_check};
use super::{Process, Reporting};
use crate::adapters::cgroups::{self, Cgroups, PodCgroups};
use crate::adapters::cri::client::CriClient;
use crate::adapters::cri::events::ContainerEvents;
use crate::adapters::cri::requests::{HostDns, RequestConfig, Swap};
use crate::adapters::host::checks::{is_stuck as stuck, missing_mount};
use crate::adapters::host::{capacity, machine, machine_identity};
use crate::adapters::manifests::{ManifestSettings, Manifests, ServiceCredentials};
use crate::adapters::pod_files::PodFiles;
use crate::adapters::records::Records;
use crate::adapters::records::Root;
use crate::adapters::records::seal::SealKey;
use crate::adapters::systemd::{self, Notification};
use crate::api::cgroups::CgroupNames;
use crate::api::layout::Layout;
use crate::api::limits::{self, PodRules};
use crate::api::node_facts::{self, NodeFacts};
use crate::api::ordered::CollectOrdered;
use crate::api::resources::Resources;
use crate::api::sealing::KeyState;
use crate::api::time::{Boot, Wall};
use crate::config::problem::Problem;
use crate::config::{CertificateSource, Config};
use crate::engine::claims;
use crate::engine::cluster::member;
use crate::engine::cluster::sealing_settings::SealingSettings;
use crate::engine::cluster::traffic::Traffic;
use crate::engine::config::{ClusterConfig, EngineConfig, FixedConfig, ServingIssuer};
use crate::engine::cordon;
use crate::engine::desired::in_force;
use crate::engine::event::{Event, LogindEvent};
use crate::engine::images::seen;
use crate::engine::node::Engine;
use crate::engine::pod::record;
use crate::engine::services;
use crate::engine::shutdown;
use crate::engine::workloads;
use crate::event_loop::{EventLoop, Helpers, Signals, clock};
use crate::kubectl_api::condition_times::ConditionTimes;
use crate::kubectl_api::event_cache::EventCache;
use crate::metrics::Metrics;
use crate::net::grpc::Transport;
use mio::{Registry, Token};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The memory capacity that is assumed if it cannot be read, in bytes. Deliberately small.
const UNKNOWN_MEMORY: u64 = 1 << 30;
/// The interval at which opening an unusable root directory is retried, and the interval at which the error is
/// logged.
const RETRY: Duration = Duration::from_secs(2);
const TELL_AGAIN: Duration = Duration::from_secs(60);

pub(super) fn agent(config: Config) -> Result<Agent, String> {
    let started = clock::now();
    let lock = HeldLock::inherited();
    let inherited = descriptors::open().into_keys().filter(|fd| *fd > 2).collect_set();
    ready_the_process();
    system_check::log_findings(&system_check::machine_at_start(&config));
    let node = node_facts(&config).map_err(|problems| in_words(&problems))?;
    let credentials = ServiceCredentials::of_environment();
    let (key, key_state) = seal_key::of(&credentials);
    let (root, records) = keeping_place(&config.root_dir, key.as_ref())?;
    let event_loop = EventLoop::new().map_err(|e| e.to_string())?;
    let registry = event_loop.registry();
    let signals = Signals::new(registry, SIGNALS).map_err(|e| format!("failed to watch signals: {e}"))?;
    let helpers = Helpers::new(registry, HELPERS).map_err(|e| format!("failed to create a waker: {e}"))?;
    let transport = transport(&config.runtime_socket, registry, RUNTIME)?;
    let client = CriClient::new(transport, request_config(&config, &root.id, HostDns::none()));
    let container_events = ContainerEvents::new(&root.id);
    let manifests = Manifests::open(manifest_settings(&config, credentials), registry, MANIFESTS, MOUNTS);
    let metrics = Metrics::new(&config.node_name);
    metrics.set_node_size(&node);
    let cgroups = PodCgroups::new(cgroup_settings(&config, &node), SLICES);
    let engine = Engine::new(engine_config(&config, node, &root.id, started.wall, &key_state));
    let files = pod_files(&config, &cgroups);
    let mut events = first_events(&records, &files);
    let reporting = reporting(&config, started.boot);
    if lock.is_held() {
        events.push_back(Event::Logind(LogindEvent::Inherited));
    }
    log_start(&config);
    Ok(Agent {
        process: Process {
            started,
            root,
            inherited,
            seal_key: key_state,
            service_rules: service_table::place(&config),
        },
        course: Course::Runs,
        signals,
        jobs: Jobs::new(helpers),
        runtime: Runtime::new(client, container_events),
        reporting,
        logind: logind::Connection { bus: logind::bus(&config), lock },
        cgroups,
        kernel: KernelReports::default(),
        handlers: LocalHandlers::default(),
        devices: DevicePlugins::new(&config),
        disk: Disk { files, records: RecordQueue::new(records) },
        serving: Serving::new(&config),
        cluster: ClusterConnection::new(&config, API_SERVER),
        config,
        event_loop,
        engine,
        events,
        manifests,
        metrics,
    })
}

fn manifest_settings(config: &Config, credentials: ServiceCredentials) -> ManifestSettings {
    let settings = ManifestSettings::new(&config.manifests, &config.root_dir, config.file_check_frequency);
    // An upgrade may have replaced the executable file, so its path is not used.
    ManifestSettings { reader: Some("/proc/self/exe".into()), credentials, ..settings }
}

fn in_words(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ")
}

/// Restores the events and conditions of earlier runs since the machine booted.
fn reporting(config: &Config, now: Boot) -> Reporting {
    let (file, reports) = ReportFile::open(&config.socket, machine::boot_id());
    let mut event_cache = EventCache::new(&config.node_name);
    event_cache.restore(reports.events, now);
    Reporting {
        service: Service::new(now),
        standing: logging::LogDeduplicator::new(),
        recorder: EventRecorder::new(event_cache),
        conditions: ConditionTimes::restore(reports.conditions),
        file,
        last_state: LastState::new(config),
    }
}

/// Returns the events for what earlier runs have left on the disk.
fn first_events(records: &Records, files: &PodFiles) -> VecDeque<Event> {
    let kinds = [
        record::KIND,
        shutdown::record::KIND,
        seen::KIND,
        cordon::KIND,
        in_force::KIND,
        claims::record::KIND,
        services::record::KIND,
    ];
    let kinds: Vec<&str> = kinds.into_iter().chain(workloads::record::KINDS).chain(member::KINDS).collect();
    VecDeque::from([Event::Records(records.load(&kinds)), Event::Directories(files.found())])
}

fn log_start(config: &Config) {
    log::info!(
        "started version={} node={} manifests={} root={} runtime=unix://{}",
        env!("CARGO_PKG_VERSION"),
        config.node_name,
        config.manifests.display(),
        config.root_dir.display(),
        config.runtime_socket.display()
    );
}

/// Why the root directory cannot be used.
enum NotOpened {
    /// It may become usable; with the reason.
    Waits(String),
    Fails(String),
}

fn opened(path: &Path, key: Option<&Arc<SealKey>>) -> Result<(Root, Records), NotOpened> {
    if let Some(point) = missing_mount(path) {
        let point = point.display();
        return Err(NotOpened::Waits(format!(
            "/etc/fstab has a file system for {point}, which is not mounted; mount it, or remove its line"
        )));
    }
    let opened = Root::open(path).and_then(|root| Ok((root, Records::open(path, key.cloned())?)));
    opened.map_err(|why| match stuck(path) {
        Some(stuck) => NotOpened::Waits(format!("{stuck} error={why:?}")),
        None => NotOpened::Fails(why),
    })
}

/// Opens and locks the root directory and its records. A file system can be full, read-only or not mounted for a
/// while (such as `/var` during a boot after a crash). Wherry waits until it is usable, because it cannot start pods
/// without records; running pods are not affected. The signal handlers are not installed yet, so SIGTERM ends the
/// process.
fn keeping_place(path: &Path, key: Option<&Arc<SealKey>>) -> Result<(Root, Records), String> {
    let mut told_at = None;
    loop {
        let stuck = match opened(path, key) {
            Ok(both) => {
                if told_at.is_some() {
                    log::info!("the root directory is usable now root={}", path.display());
                }
                return Ok(both);
            }
            Err(NotOpened::Waits(stuck)) => stuck,
            Err(NotOpened::Fails(why)) => return Err(why),
        };
        let now = clock::boot();
        if told_at.is_none_or(|at| now.since(at) >= TELL_AGAIN) {
            log::error!("waiting for the root directory: {stuck} root={} retry={RETRY:?}", path.display());
            // Report readiness: otherwise systemd would restart the service again and again.
            notify_systemd(&[
                Notification::Ready,
                Notification::Status(&format!("waiting for the root directory: {stuck}")),
            ]);
            told_at = Some(now);
        }
        notify_systemd(&[Notification::Alive]);
        std::thread::sleep(RETRY);
    }
}

fn notify_systemd(notifications: &[Notification<'_>]) {
    if let Err(e) = systemd::notify(notifications) {
        log::warn!("failed to notify systemd error={e:?}");
    }
}

/// Sets inherited process attributes. The modes of new files must not depend on the parent's umask, and the soft
/// limit on descriptors (1,024, for programs that use select) is too low for a node with many pods.
fn ready_the_process() {
    let _ = rustix::process::umask(Mode::from_raw_mode(0o022));
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if let Err(e) = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        log::warn!("failed to raise the limit on descriptors limit={:?} error={:?}", limit.current, e.to_string());
    }
}

#[cfg(not(feature = "grpcio"))]
pub(super) fn transport(path: &Path, registry: &Registry, token: Token) -> Result<Box<dyn Transport>, String> {
    use crate::net::grpc::h2::H2Transport;
    let transport = H2Transport::connect(path, registry, token);
    Ok(Box::new(transport.map_err(|e| format!("failed to watch the container runtime's socket: {e}"))?))
}

#[cfg(feature = "grpcio")]
pub(super) fn transport(path: &Path, registry: &Registry, token: Token) -> Result<Box<dyn Transport>, String> {
    use crate::net::grpc::grpcio::GrpcioTransport;
    let transport = GrpcioTransport::connect(path, registry, token);
    Ok(Box::new(transport.map_err(|e| format!("failed to watch the container runtime's socket: {e}"))?))
}

/// Returns the engine's part of the configuration.
pub(super) fn engine_config(
    config: &Config,
    node: NodeFacts,
    owner: &str,
    started: Wall,
    key: &KeyState,
) -> EngineConfig {
    let defaults = EngineConfig::default();
    let fixed = FixedConfig {
        owner: owner.to_string(),
        manifests: config.manifests.to_string_lossy().into_owned(),
        refuse_open_secrets: config.manifest_rules.refuse_open_secrets,
        network_policies: config.manifest_rules.network_policies,
        boot_id: machine::boot_id(),
        started,
        // Different seeds keep nodes from acting at the same moment, and runs from naming pods alike. A hash of the
        // owner's id and of the time is random enough.
        seed: owner.bytes().fold(started.0.cast_unsigned(), |seed, b| seed.wrapping_mul(31).wrapping_add(u64::from(b))),
    };
    EngineConfig {
        fixed,
        sync_frequency: config.sync_frequency,
        request_timeout: config.runtime_request_timeout,
        max_restart_backoff: config.max_container_restart_period,
        node,
        image_gc: config.image_gc.clone(),
        storage_classes: config.storage_classes(),
        services: config.service_settings(),
        eviction: config.eviction_policy(),
        log_rotation: config.log_rotation.clone(),
        root: config.root_dir.to_string_lossy().into_owned(),
        shutdown: config.shutdown.clone(),
        parallel_sandboxes: config.max_parallel_sandbox_starts as usize,
        parallel_containers: config.max_parallel_container_starts as usize,
        parallel_pulls: config.parallel_image_pulls().map_or(usize::MAX, |n| n as usize),
        credential_providers: config.credential_providers.clone(),
        cluster: config.kubeconfig.as_ref().map(|_| cluster_config(config, key)),
        ..defaults
    }
}

fn cluster_config(config: &Config, key: &KeyState) -> ClusterConfig {
    let (addresses, info) = (crate::net::addresses::addresses(), machine_identity::read().info(String::new()));
    let registration = &config.registration;
    ClusterConfig {
        addresses,
        info,
        traffic: if config.metered_connection { Traffic::Metered } else { Traffic::Ordinary },
        reviews: config.node_server.policy(),
        sealing: SealingSettings { policy: config.seal_secrets, key: key.clone() },
        taints: registration.taints(),
        provider_id: registration.provider_id.clone(),
        serving: match config.node_server.source() {
            CertificateSource::Cluster if config.node_server().is_some() => ServingIssuer::Cluster,
            _ => ServingIssuer::Node,
        },
    }
}

/// Returns the capacity and the allocatable resources of this machine with this configuration (A2).
///
/// # Errors
/// A reservation exceeds the capacity.
pub fn node_facts(config: &Config) -> Result<NodeFacts, Vec<Problem>> {
    let machine = capacity::read(&config.root_dir);
    node_facts::facts(&machine, &config.sizing()).map_err(|wrong| config.node.problems(wrong))
}

pub(super) fn cgroup_names(config: &Config) -> CgroupNames {
    CgroupNames { root: config.cgroup_root.clone(), driver: config.cgroup_driver, per_qos: config.cgroups_per_qos }
}

pub(super) fn layout(config: &Config) -> Layout {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    Layout {
        root: text(&config.root_dir),
        logs: text(&config.pod_logs_dir),
        log_links: Some(text(&config.container_logs_dir)),
    }
}

/// Returns the settings for the cgroups of new pods that a reload can change.
pub(super) fn pod_rules(config: &Config) -> PodRules {
    PodRules {
        cpu_cfs_quota: config.cpu_cfs_quota,
        cpu_cfs_period: u64::try_from(config.cpu_cfs_quota_period.as_micros()).unwrap_or(u64::MAX),
        pids_limit: config.node.pod_pids_limit,
        huge_page_sizes: machine::huge_page_sizes(),
    }
}

/// Returns the node's settings for the cgroups of pods. Like a kubelet, Wherry limits all pods together to the
/// capacity minus the system's and Kubernetes' reservations. The hard eviction thresholds are part of that limit.
fn cgroup_settings(config: &Config, node: &NodeFacts) -> cgroups::CgroupSettings {
    let mut capacity = node.capacity.clone();
    capacity.set(limits::PIDS, machine::most_processes().unwrap_or(0));
    let mut reserved = Resources::default();
    if config.node.enforces_pods() {
        for (name, amount) in config.node.system_reserved.iter().chain(&config.node.kube_reserved) {
            reserved.add(&Resources::from([(name.as_str(), *amount)]));
        }
        reserved.set(limits::PIDS, config.node.reserved_pids());
    }
    cgroups::CgroupSettings { names: cgroup_names(config), rules: pod_rules(config), capacity, reserved }
}

fn pod_files(config: &Config, cgroups: &PodCgroups) -> PodFiles {
    PodFiles {
        layout: layout(config),
        cluster_domain: config.cluster_domain.clone(),
        host_hosts: "/etc/hosts".into(),
        remove_cgroup: cgroups.remover(),
    }
}

/// Reads the host's current resolv.conf. Blocks, so only a helper thread calls it.
pub(super) fn host_dns(path: &Path) -> Result<HostDns, String> {
    machine::resolv_conf(path).map(|text| HostDns::parse(&text))
}

/// Returns the node's settings for sandboxes and containers. `host_dns` is the last value read.
pub(super) fn request_config(config: &Config, owner: &str, host_dns: HostDns) -> RequestConfig {
    let memory = machine::memory_capacity().unwrap_or_else(|e| {
        log::warn!("failed to read the memory capacity; assuming 1 GiB error={e:?}");
        UNKNOWN_MEMORY
    });
    let cgroups = Cgroups::discover(cgroup_names(config)).ok();
    RequestConfig {
        layout: layout(config),
        cgroups: cgroup_names(config),
        owner: owner.to_string(),
        cluster_dns: config.cluster_dns.iter().map(ToString::to_string).collect(),
        cluster_domain: config.cluster_domain.clone(),
        host_dns,
        seccomp_default: config.seccomp_default,
        cpu_cfs_quota: config.cpu_cfs_quota,
        cpu_cfs_period: i64::try_from(config.cpu_cfs_quota_period.as_micros()).unwrap_or(i64::MAX),
        memory_capacity: memory,
        huge_page_sizes: machine::huge_page_sizes(),
        oom_group: cgroups.as_ref().is_some_and(Cgroups::is_v2),
        swap: swap(config, cgroups.as_ref()),
        masked_paths: machine::throttle_paths(),
        selinux: machine::has_selinux(),
    }
}

/// Returns how the machine limits the swap of containers. With `LimitedSwap`, pods share the current swap of the
/// machine.
fn swap(config: &Config, cgroups: Option<&Cgroups>) -> Swap {
    match cgroups {
        Some(cgroups) if !cgroups.is_v2() => Swap::WithMemory,
        Some(cgroups) if cgroups.limits_swap() => {
            let of_machine = || {
                machine::swap_capacity().unwrap_or_else(|e| {
                    log::warn!("failed to read the swap capacity; containers get no swap error={e:?}");
                    0
                })
            };
            Swap::Unified { for_pods: if config.limited_swap { of_machine() } else { 0 } }
        }
        _ => Swap::Unlimited,
    }
}
