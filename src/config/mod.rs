//! The configuration. It consists of the kubelet's `KubeletConfiguration` in a file and drop-ins, our own second
//! document for settings that it lacks, and command line flags, which override both. `credential_providers` reads one
//! more file.
//!
//! Documents are applied in order, field by field. A later file overrides only the fields that it sets; a list is
//! replaced as a whole. All files are read to the end, so that every error is reported at once, with file and line. The
//! settings of a cluster (`cluster`) come first, so that they count only where no other file sets the field. `table`
//! reads a document by a table of fields; `kubelet` and `wherry` contain the two tables. `effective` shows the result.

pub mod cluster;
mod credential_providers;
mod effective;
mod eviction;
mod files;
pub mod kubelet;
mod node_server;
pub mod node_size;
pub mod problem;
pub mod registration;
pub mod shutdown;
pub mod table;
pub mod wherry;
pub mod yaml;

pub use crate::api::cgroups::CgroupDriver;
use crate::api::credential_provider::Provider;
pub use crate::api::duration;
use crate::api::sealing;
use crate::api::shutdown::Groups;
use crate::engine::config::Policy;
use crate::engine::log_rotation;
pub use files::read_file;
pub use node_server::{CertificateSource, NodeServer};
use problem::{Place, Problems};
use registration::Registration;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use table::Reader;
use yaml::{Node, Value};

pub const DEFAULT_FILE: &str = "/etc/wherry/config.yaml";
pub const DEFAULT_DIR: &str = "/etc/wherry/config.d";
pub const DEFAULT_SOCKET: &str = "/run/wherry/wherry.sock";

/// Command line flags that override the configuration.
// They are kept so that the configuration can be read again (SIGHUP). A file or a directory named by `config` and
// `config_dir` must exist; the default ones are optional.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct Flags {
    /// Configuration file [default: /etc/wherry/config.yaml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of drop-ins for the configuration [default: /etc/wherry/config.d, if it exists]
    #[arg(long, value_name = "DIR")]
    pub config_dir: Option<PathBuf>,
    /// Directory of manifests [default: /etc/wherry/manifests]
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// Directory for state and volumes [default: /var/lib/wherry]
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<PathBuf>,
    /// Directory of pod logs [default: /var/log/pods]
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Directory for links to container logs [default: /var/log/containers]
    #[arg(long, value_name = "DIR")]
    pub container_log_dir: Option<PathBuf>,
    /// Socket of the container runtime [default: unix:///run/containerd/containerd.sock]
    #[arg(long, value_name = "ENDPOINT")]
    pub runtime_endpoint: Option<String>,
    /// Control socket [default: /run/wherry/wherry.sock]
    #[arg(long, value_name = "FILE")]
    pub socket: Option<PathBuf>,
    /// The node's name [default: the host name in lower case]
    #[arg(long, value_name = "NAME")]
    pub hostname: Option<String>,
    /// Address of the health port [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub healthz_address: Option<IpAddr>,
    /// Port of /healthz, /livez and /readyz, 0 for none [default: 10248]
    #[arg(long, value_name = "PORT")]
    pub healthz_port: Option<u16>,
    /// Port of /healthz, /metrics and /pods without authentication, 0 for none [default: 0]
    #[arg(long, value_name = "PORT")]
    pub read_only_port: Option<u16>,
    /// Log verbosity: 0 info, 4 debug, 6 trace [default: 0]
    #[arg(short = 'v', long = "v", value_name = "LEVEL")]
    pub verbosity: Option<u32>,
}

/// The effective configuration from defaults, files and flags. All paths are absolute.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub flags: Flags,
    /// staticPodPath
    pub manifests: PathBuf,
    /// How often all manifests are read again while inotify is not available (D2).
    pub file_check_frequency: Duration,
    /// The period after which a healthy pod is synced again (W9).
    pub sync_frequency: Duration,
    pub root_dir: PathBuf,
    /// podLogsDir
    pub pod_logs_dir: PathBuf,
    /// Links to the logs of containers, by container id.
    pub container_logs_dir: PathBuf,
    /// The control socket.
    pub socket: PathBuf,
    /// A valid RFC 1123 subdomain.
    pub node_name: String,
    /// The path of containerRuntimeEndpoint.
    pub runtime_socket: PathBuf,
    /// The path of imageServiceEndpoint, if set. Not used: images are pulled through `runtime_socket`.
    pub image_socket: Option<PathBuf>,
    pub runtime_request_timeout: Duration,
    pub healthz_address: IpAddr,
    /// 0: off.
    pub healthz_port: u16,
    /// The listen address of the read-only port and of the node's server.
    pub address: IpAddr,
    /// 0: off.
    pub read_only_port: u16,
    /// The listen address of the kubectl port.
    pub kubectl_address: IpAddr,
    /// 0: off.
    pub kubectl_port: u16,
    /// Absolute, without a trailing `/` (except for `/` itself).
    pub cgroup_root: String,
    pub cgroup_driver: CgroupDriver,
    pub cgroups_per_qos: bool,
    pub cluster_dns: Vec<IpAddr>,
    /// Without a trailing dot. Empty if unset.
    pub cluster_domain: String,
    /// None: pods get no resolver configuration from the host.
    pub resolv_conf: Option<PathBuf>,
    /// Use RuntimeDefault for containers without a seccomp profile.
    pub seccomp_default: bool,
    /// Whether CPU limits are enforced.
    pub cpu_cfs_quota: bool,
    pub cpu_cfs_quota_period: Duration,
    /// `LimitedSwap`: containers of burstable pods may swap (cgroup v2).
    pub limited_swap: bool,
    /// The maximum back-off of a crashing container (W10).
    pub max_container_restart_period: Duration,
    /// The configured value. Use `parallel_image_pulls`.
    pub serialize_image_pulls: Option<bool>,
    pub max_parallel_image_pulls: Option<u32>,
    /// None: `adapters::credentials` has the default paths.
    pub docker_config: Option<PathBuf>,
    /// The socket on which device plugins register; None: there is none.
    pub device_plugin_socket: Option<PathBuf>,
    pub image_credential_provider_config: Option<PathBuf>,
    pub image_credential_provider_bin_dir: Option<PathBuf>,
    /// The content of `image_credential_provider_config`.
    pub credential_providers: Vec<Provider>,
    /// Maximum number of sandboxes created at the same time.
    pub max_parallel_sandbox_starts: u32,
    /// `openSecrets: Refuse`: a Secret in a file that every user can read is an error.
    pub refuse_open_secrets: bool,
    /// Maximum number of pods that start a container at the same time.
    pub max_parallel_container_starts: u32,
    /// The garbage collection of images.
    pub image_gc: Policy,
    /// The rotation of container logs.
    pub log_rotation: log_rotation::RotationPolicy,
    /// Node-pressure eviction.
    pub eviction: eviction::EvictionSettings,
    /// Names, or prefixes with a trailing `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// The configured values. `sizing` returns the effective ones.
    pub node: node_size::Notification,
    /// The configured values. Use `shutdown`.
    pub shutdown_configured: shutdown::Notification,
    /// The groups of S1. Empty: graceful shutdown is off.
    pub shutdown: Groups,
    /// The directory for the logind drop-in (S2).
    pub logind_conf_dir: PathBuf,
    /// The kubeconfig with which the node is a member of a cluster. None: the node has only the pods of its manifests.
    pub kubeconfig: Option<PathBuf>,
    /// The traffic with the API server costs money.
    pub metered_connection: bool,
    /// The form of Secrets and tokens of the API server on the disk (C15).
    pub seal_secrets: sealing::Policy,
    /// A KubeletConfiguration of the cluster. It counts only for fields that no other file sets.
    pub cluster_defaults: Option<PathBuf>,
    /// The server for the API server of the cluster. It exists only with a kubeconfig.
    pub node_server: NodeServer,
    /// Settings of the registration at the API server.
    pub registration: Registration,
    /// The levels of a kubelet: 0 for important messages, 4 for debugging, 6 and more for full message contents.
    pub verbosity: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            flags: Flags::default(),
            manifests: "/etc/wherry/manifests".into(),
            file_check_frequency: Duration::from_secs(20),
            sync_frequency: Duration::from_secs(60),
            root_dir: "/var/lib/wherry".into(),
            pod_logs_dir: "/var/log/pods".into(),
            container_logs_dir: "/var/log/containers".into(),
            socket: DEFAULT_SOCKET.into(),
            node_name: String::new(),
            runtime_socket: "/run/containerd/containerd.sock".into(),
            image_socket: None,
            runtime_request_timeout: Duration::from_secs(120),
            healthz_address: Ipv4Addr::LOCALHOST.into(),
            healthz_port: 10248,
            address: Ipv4Addr::UNSPECIFIED.into(),
            read_only_port: 0,
            kubectl_address: Ipv4Addr::LOCALHOST.into(),
            kubectl_port: 0,
            cgroup_root: "/".into(),
            cgroup_driver: CgroupDriver::Cgroupfs,
            cgroups_per_qos: true,
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: Some("/etc/resolv.conf".into()),
            seccomp_default: false,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: Duration::from_millis(100),
            limited_swap: false,
            max_container_restart_period: Duration::from_secs(300),
            serialize_image_pulls: None,
            max_parallel_image_pulls: None,
            docker_config: None,
            device_plugin_socket: Some("/var/lib/kubelet/device-plugins/kubelet.sock".into()),
            image_credential_provider_config: None,
            image_credential_provider_bin_dir: None,
            credential_providers: Vec::new(),
            max_parallel_sandbox_starts: 4,
            refuse_open_secrets: false,
            max_parallel_container_starts: 4,
            image_gc: Policy::default(),
            log_rotation: log_rotation::RotationPolicy::default(),
            eviction: eviction::EvictionSettings::default(),
            allowed_unsafe_sysctls: Vec::new(),
            node: node_size::Notification::default(),
            shutdown_configured: shutdown::Notification::default(),
            shutdown: Groups::default(),
            logind_conf_dir: "/etc/systemd/logind.conf.d".into(),
            kubeconfig: None,
            metered_connection: false,
            seal_secrets: sealing::Policy::default(),
            cluster_defaults: None,
            node_server: NodeServer::default(),
            registration: Registration::default(),
            verbosity: 0,
        }
    }
}

impl Config {
    /// The listen address of the health endpoint, unless it is off.
    pub fn healthz(&self) -> Option<SocketAddr> {
        (self.healthz_port != 0).then(|| SocketAddr::new(self.healthz_address, self.healthz_port))
    }

    /// The listen address of the read-only server, unless it is off.
    pub fn read_only(&self) -> Option<SocketAddr> {
        (self.read_only_port != 0).then(|| SocketAddr::new(self.address, self.read_only_port))
    }

    /// The listen address of the API for kubectl, unless it is off.
    pub fn kubectl(&self) -> Option<SocketAddr> {
        (self.kubectl_port != 0).then(|| SocketAddr::new(self.kubectl_address, self.kubectl_port))
    }

    /// Maximum number of parallel image pulls; None means no limit. As in a kubelet the default is one, unless
    /// `serializeImagePulls` is false or `maxParallelImagePulls` is set.
    pub fn parallel_image_pulls(&self) -> Option<u32> {
        match (self.serialize_image_pulls, self.max_parallel_image_pulls) {
            (_, Some(n)) => Some(n),
            (Some(false), None) => None,
            (_, None) => Some(1),
        }
    }
}

/// A configuration and its problems. It must not be used if there is an error.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    pub problems: Problems,
    /// The files that were read, in order.
    pub files: Vec<PathBuf>,
}

impl Loaded {
    pub fn is_ok(&self) -> bool {
        self.problems.errors.is_empty()
    }
}

/// Reads all files that `flags` and the defaults name.
pub fn load(flags: &Flags) -> Loaded {
    let mut problems = Problems::default();
    let mut texts = files::read_all(flags, &mut problems);
    cluster::add_defaults(&mut texts, flags, &mut problems);
    let (mut config, places) = assemble(&texts, flags, &host_name(), &mut problems);
    let place = |field: &str| places.get(field).cloned().unwrap_or_else(Place::flag);
    credential_providers::read(&mut config, place, &mut problems);
    Loaded { config, problems, files: texts.into_iter().map(|t| t.path).collect() }
}

/// True if the text is a configuration and not a manifest. False if it is not valid YAML.
pub fn is_configuration(text: &[u8]) -> bool {
    let Some(documents) = std::str::from_utf8(text).ok().and_then(|text| yaml::read(text).ok()) else { return false };
    documents.iter().any(|document| {
        let kind = document.value.get("kind").and_then(|n| n.value.text());
        kind == Some(kubelet::KIND) || kind == Some(wherry::KIND)
    })
}

/// Checks the text of one configuration file on top of the defaults.
pub fn check_text(path: &Path, text: &[u8]) -> Problems {
    let mut problems = Problems::default();
    // The text is UTF-8 if `is_configuration` has accepted it.
    let texts = [Text { path: path.to_owned(), text: String::from_utf8_lossy(text).into_owned() }];
    let flags = Flags { config: Some(path.to_owned()), config_dir: Some(PathBuf::new()), ..Flags::default() };
    assemble(&texts, &flags, &host_name(), &mut problems);
    problems
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Path and text of a file.
struct Text {
    path: PathBuf,
    text: String,
}

/// The configuration, and the place of each setting. Files that the configuration names are not read.
fn assemble(texts: &[Text], flags: &Flags, host: &str, problems: &mut Problems) -> (Config, BTreeMap<String, Place>) {
    let mut config = Config { flags: flags.clone(), ..Config::default() };
    let mut places = BTreeMap::new();
    let mut reader = Reader { config: &mut config, problems: &mut *problems, places: &mut places };
    for file in texts {
        let place = Place::file(&file.path);
        match yaml::read(&file.text) {
            Ok(documents) => read_documents(&mut reader, &documents, &place),
            Err(e) => reader.problems.error(&place.line(e.line), "", e.message),
        }
    }
    apply_flags(&mut config, flags, problems, &mut places);
    if config.node_name.is_empty() {
        config.node_name = host.trim().to_lowercase();
        if let Err(why) = check_node_name(&config.node_name) {
            let why = format!("the machine's host name is invalid: {why}; set nodeName or --hostname");
            problems.error(&Place::flag(), "nodeName", why);
        }
    }
    check_together(&config, &places, problems);
    node_server::check(&config, &places, problems);
    eviction::check(&config, &places, problems);
    node_size::decide(&mut config, &places, problems);
    shutdown::decide(&mut config, &places, problems);
    (config, places)
}

fn read_documents(reader: &mut Reader, documents: &[Node], place: &Place) {
    if documents.is_empty() {
        reader.problems.warning(place, "", "the file contains no document");
    }
    let mut seen: Vec<&str> = Vec::new();
    for document in documents {
        let here = place.line(document.line);
        let Value::Map(entries) = &document.value else {
            let found = document.value.describe();
            reader.problems.error(&here, "", format!("expected a document with apiVersion and kind, found {found}"));
            continue;
        };
        let text = |key: &str| document.value.get(key).and_then(|n| n.value.text()).unwrap_or_default();
        let (fields, version) = match text("kind") {
            kubelet::KIND => (kubelet::FIELDS, kubelet::API_VERSION),
            wherry::KIND => (wherry::FIELDS, wherry::API_VERSION),
            other => {
                let message = format!("is {other:?}; it must be {} or {}", kubelet::KIND, wherry::KIND);
                let line = entries.iter().find(|e| e.key == "kind").map_or(document.line, |e| e.line);
                reader.problems.error(&place.line(line), "kind", message);
                continue;
            }
        };
        if text("apiVersion") != version {
            let message = format!("is {:?}; for a {} it must be {version}", text("apiVersion"), text("kind"));
            let line = entries.iter().find(|e| e.key == "apiVersion").map_or(document.line, |e| e.line);
            reader.problems.error(&place.line(line), "apiVersion", message);
        }
        if seen.contains(&text("kind")) {
            reader.problems.error(&here, "kind", format!("more than one {} in one file", text("kind")));
        }
        seen.push(text("kind"));
        reader.object(fields, entries, place, "", &["apiVersion", "kind"]);
    }
}

fn apply_flags(config: &mut Config, flags: &Flags, problems: &mut Problems, places: &mut BTreeMap<String, Place>) {
    let flag = Place::flag();
    let mut path = |name: &str, value: &Option<PathBuf>, target: &mut PathBuf| {
        let Some(value) = value else { return };
        // A path on the command line may be relative to the current directory.
        match std::path::absolute(value) {
            Ok(absolute) => *target = absolute,
            Err(e) => problems.error(&flag, name, format!("{}: {e}", value.display())),
        }
    };
    path("--manifests", &flags.manifests, &mut config.manifests);
    path("--root-dir", &flags.root_dir, &mut config.root_dir);
    path("--log-dir", &flags.log_dir, &mut config.pod_logs_dir);
    path("--container-log-dir", &flags.container_log_dir, &mut config.container_logs_dir);
    path("--socket", &flags.socket, &mut config.socket);
    if let Err(why) = check_socket(&config.socket.to_string_lossy()) {
        problems.error(&flag, "--socket", why);
    }
    if let Some(endpoint) = &flags.runtime_endpoint {
        match unix_endpoint(endpoint) {
            Ok(socket) => config.runtime_socket = socket,
            Err(why) => problems.error(&flag, "--runtime-endpoint", why),
        }
    }
    if let Some(name) = &flags.hostname {
        match check_node_name(name) {
            Ok(()) => config.node_name = name.clone(),
            Err(why) => problems.error(&flag, "--hostname", why),
        }
    }
    if let Some(port) = flags.healthz_port {
        config.healthz_port = port;
        places.insert("healthzPort".into(), flag.clone());
    }
    if let Some(address) = flags.healthz_address {
        config.healthz_address = address;
    }
    if let Some(port) = flags.read_only_port {
        config.read_only_port = port;
        places.insert("readOnlyPort".into(), flag.clone());
    }
    if let Some(verbosity) = flags.verbosity {
        config.verbosity = verbosity;
    }
}

/// Checks that involve several fields.
fn check_together(config: &Config, places: &BTreeMap<String, Place>, problems: &mut Problems) {
    let place = |field: &str| places.get(field).cloned().unwrap_or_else(Place::flag);
    if config.serialize_image_pulls == Some(true) && config.max_parallel_image_pulls.is_some_and(|n| n > 1) {
        let message = "cannot be more than 1 while serializeImagePulls is true";
        problems.error(&place("maxParallelImagePulls"), "maxParallelImagePulls", message);
    }
    let Policy { high_percent, low_percent, min_age, max_age, .. } = config.image_gc;
    if low_percent >= high_percent {
        let (low, high) = ("imageGCLowThresholdPercent", "imageGCHighThresholdPercent");
        // The low threshold may have its default.
        let (field, message) = match places.contains_key(low) {
            true => (low, format!("must be less than {high} ({high_percent}); it is {low_percent}")),
            false => (high, format!("must be more than {low} ({low_percent}); it is {high_percent}")),
        };
        problems.error(&place(field), field, message);
    }
    if max_age.is_some_and(|max_age| max_age <= min_age) {
        let min = duration::format(min_age);
        let message = format!("must be more than imageMinimumGCAge ({min}), or 0s to turn it off");
        problems.error(&place("imageMaximumGCAge"), "imageMaximumGCAge", message);
    }
    if config.read_only_port != 0 && config.read_only_port == config.healthz_port {
        problems.error(&place("readOnlyPort"), "readOnlyPort", "must not be the same as healthzPort");
    }
    let others = [("healthzPort", config.healthz_port), ("readOnlyPort", config.read_only_port)];
    for (other, _) in others.iter().filter(|(_, port)| config.kubectl_port != 0 && *port == config.kubectl_port) {
        problems.error(&place("kubectlPort"), "kubectlPort", format!("must not be the same as {other}"));
    }
    if config.image_socket.as_ref().is_some_and(|socket| *socket != config.runtime_socket) {
        let message =
            "differs from containerRuntimeEndpoint and has no effect: images come from containerRuntimeEndpoint";
        problems.warning(&place("imageServiceEndpoint"), "imageServiceEndpoint", message);
    }
}

/// The path in `unix:///path` or `/path`.
pub(crate) fn unix_endpoint(endpoint: &str) -> Result<PathBuf, String> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    if !path.starts_with('/') {
        return Err(format!("{endpoint:?} is not a unix socket; write it like unix:///run/containerd/containerd.sock"));
    }
    check_socket(path)?;
    Ok(path.into())
}

/// Checks the kernel's limit on the length of a socket path.
pub(crate) fn check_socket(path: &str) -> Result<(), String> {
    if path.len() > 107 {
        return Err(format!("{path:?} is too long for a socket (107 bytes at most)"));
    }
    Ok(())
}

pub(crate) fn check_node_name(name: &str) -> Result<(), String> {
    if is_dns_subdomain(name) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is not a valid node name; use lower case letters, digits, '-' and '.', at most 253 characters"
    ))
}

/// An RFC 1123 subdomain as defined by Kubernetes: labels of lower case letters, digits and inner dashes, joined by
/// dots.
pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    let label = |l: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !l.is_empty() && l.bytes().all(inner) && !l.starts_with('-') && !l.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests;
